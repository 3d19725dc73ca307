//! A process that runs a function, from its start to its end.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use savanna_functions::catalog::{Language, RuntimeKind, Version};
use savanna_functions::core::InstanceId;
use tokio::net::TcpListener;

use crate::code::PinnedCode;
use crate::functions::Functions;
use crate::interpreter::{Interpreter, Interpreters, system_folders};
use crate::launcher::{Confinement, FAILED, RUNTIME, Spec, TASK};
use crate::leftovers;
use crate::logs::{FunctionLog, InstanceLog};
use crate::memory::{MemoryLimit, used};
use crate::options::{Abilities, HostError, Isolation};
use crate::process::{Order, Process, Spawner, described};
use crate::processes::Processes;
use crate::runtime_api::{self, InstanceWork};

/// What runs a handler where the machine's program has nothing for that.
const BOOTSTRAPS: [(&str, &str); 2] = [
    ("bootstrap.py", include_str!("../runtime/bootstrap.py")),
    ("bootstrap.mjs", include_str!("../runtime/bootstrap.mjs")),
];
/// The folder of what instances have for themselves.
pub(crate) const BASES: &str = "instances";
/// The first of the users that instances become, one each.
const UID_FIRST: u32 = 900_000;
const UIDS: u64 = 60_000;
/// What a process says that could be kept apart.
const KEPT: &str = "kept apart";
/// After its end, what a process has printed is waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What the machine has for instances.
pub(crate) struct Machine {
    launcher: PathBuf,
    confinement: Confinement,
    memory: MemoryLimit,
    spawner: Spawner,
    pub(crate) interpreters: Interpreters,
    /// Each instance has an empty directory in it.
    bases: PathBuf,
    /// What is added to code.
    runtime: PathBuf,
    ports: Vec<u16>,
}

impl Machine {
    /// Finds out what the machine can, and refuses what it cannot if that is required. Blocks.
    pub(crate) fn open(
        directory: &Path,
        launcher: PathBuf,
        isolation: Isolation,
        abilities: &Abilities,
        ports: Vec<u16>,
    ) -> Result<Self, HostError> {
        let (bases, runtime) = (directory.join(BASES), directory.join("runtime"));
        let failed = |source| HostError::Directory { path: directory.to_owned(), source };
        fs::create_dir_all(&bases).map_err(failed)?;
        fs::create_dir_all(&runtime).map_err(failed)?;
        fs::set_permissions(&runtime, std::os::unix::fs::PermissionsExt::from_mode(0o755)).map_err(failed)?;
        for (name, text) in BOOTSTRAPS {
            fs::write(runtime.join(name), text).map_err(failed)?;
        }
        let has = |confinement| match confinement {
            Confinement::Full => abilities.namespaces && abilities.landlock,
            Confinement::Namespaces => abilities.namespaces,
            Confinement::Landlock => abilities.landlock,
            Confinement::None => true,
        };
        let try_out = |confinement| {
            if has(confinement) {
                try_out(&launcher, confinement, &bases, &runtime)
            } else {
                Err("it is not used".to_owned())
            }
        };
        let confinement = match (isolation, try_out(Confinement::Full)) {
            (Isolation::None, _) => Confinement::None,
            (_, Ok(())) => Confinement::Full,
            (Isolation::Required, Err(reason)) => return Err(HostError::Isolation(reason)),
            (Isolation::Preferred, Err(reason)) => {
                tracing::warn!(
                    reason,
                    "functions are not kept apart as they could be (namespaces and Landlock); functions.isolation = required refuses to run them so"
                );
                let mut less = [Confinement::Namespaces, Confinement::Landlock].into_iter();
                less.find(|less| try_out(*less).is_ok()).unwrap_or(Confinement::None)
            }
        };
        let spawner = Spawner::begin().map_err(HostError::Thread)?;
        let (memory, interpreters) = (MemoryLimit::below(&abilities.groups), Interpreters::default());
        Ok(Self { launcher, confinement, memory, spawner, interpreters, bases, runtime, ports })
    }

    /// Whether a process that ends by a signal may have been told to by whoever ends the host, too. What keeps processes without namespaces kills them then.
    const fn is_told_to_end_by(&self, signal: i32) -> bool {
        matches!(signal, libc::SIGTERM | libc::SIGINT | libc::SIGHUP)
            || signal == libc::SIGKILL && !self.confinement.has_root()
    }

    /// What instances are kept from, and who sees to their memory.
    pub(crate) fn described(&self) -> String {
        let kept = match self.confinement {
            Confinement::Full => "namespaces and Landlock",
            Confinement::Namespaces => "namespaces without Landlock's ports",
            Confinement::Landlock => "Landlock alone",
            Confinement::None => "none",
        };
        format!("{kept}; memory: {}", self.memory)
    }
}

/// Whether a process can be kept apart so. In words, why not.
fn try_out(launcher: &Path, confinement: Confinement, bases: &Path, runtime: &Path) -> Result<(), String> {
    let base = bases.join("try");
    let tried = fs::create_dir_all(&base).and_then(|()| {
        let spec = Spec {
            host: std::process::id(),
            environment: BTreeMap::new(),
            confinement,
            command: vec!["/bin/echo".to_owned(), KEPT.to_owned()],
            task: runtime.to_owned(),
            runtime: runtime.to_owned(),
            base: base.clone(),
            readable: Vec::new(),
            storage: 1,
            uid: UID_FIRST,
            ports: Vec::new(),
            groups: Vec::new(),
        };
        let spec = serde_json::to_vec(&spec)?;
        let mut command = Command::new(launcher);
        command.arg(crate::launcher::ARGUMENT).env_clear();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        // One that has ended already says so below.
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(&spec));
        child.wait_with_output()
    });
    let _ = fs::remove_dir(&base);
    match tried {
        // A program that begins no instances may end well, too.
        Ok(output) if output.status.success() && output.stdout.trim_ascii() == KEPT.as_bytes() => Ok(()),
        Ok(output) => Err(format!("{}{}", described(output.status), String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{}: {error}", launcher.display())),
    }
}

/// Who stops a service may tell all of its processes to end, and the host is closed a little later than they have ended: what they worked on is not over then.
const STOP_TIME: Duration = Duration::from_secs(3);

/// What an instance runs.
pub(crate) struct Begun {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) build: Version,
    /// Its number among the instances of the function.
    pub(crate) slot: u32,
    /// Its code stays where it is until its end, whatever becomes of the function.
    pub(crate) _code: PinnedCode,
}

/// Why an instance does not run: Lambda's name for it, and in words.
type Ended = (&'static str, String);

/// Runs an instance until its end.
pub(crate) async fn run(functions: Functions, id: InstanceId, begun: Begun, log: Arc<FunctionLog>) {
    let base = functions.0.machine.bases.join(id.0.to_string());
    let end = match begin(&functions, id, &begun, &base, log).await {
        Ok(running) => {
            let (end, by) = running.until_the_end().await;
            if by.is_some_and(|by| functions.0.machine.is_told_to_end_by(by)) && !functions.has_killed(id) {
                let mut ended = functions.0.ended.subscribe();
                let _ = tokio::time::timeout(STOP_TIME, ended.wait_for(Option::is_some)).await;
            }
            end
        }
        Err(end) => end,
    };
    functions.over(id, end);
    // Nobody is in it any more, or it lies under what ends with the namespace.
    let _ = tokio::task::spawn_blocking(move || leftovers::remove(&base)).await;
}

/// An instance that runs.
struct Running {
    process: Process,
    log: Arc<InstanceLog>,
    serving: tokio::task::JoinHandle<()>,
    following: tokio::task::JoinHandle<()>,
}

fn failed(error: &io::Error) -> Ended {
    ("Runtime.StartError", format!("the function could not be started: {error}"))
}

async fn begin(
    functions: &Functions,
    id: InstanceId,
    begun: &Begun,
    base: &Path,
    log: Arc<FunctionLog>,
) -> Result<Running, Ended> {
    let shared = Arc::clone(&functions.0);
    let (sha256, kind) = (begun.build.code.sha256.clone(), RuntimeKind::of(&begun.build.settings.runtime));
    let prepared = tokio::task::spawn_blocking(move || {
        let task = shared.code.task(&sha256).map_err(|error| ("Runtime.CodeUnavailable", error.to_string()))?;
        let Some(RuntimeKind::Interpreted(language, version)) = kind else { return Ok((task, None)) };
        let found = shared.machine.interpreters.find(language, &version);
        let found = found.ok_or_else(|| {
            ("Runtime.NotOnThisMachine", format!("this machine has no {language:?} of version {version}"))
        });
        Ok::<_, Ended>((task, Some((language, found?))))
    });
    let (task, interpreter) = prepared.await.map_err(|error| ("Runtime.StartError", error.to_string()))??;
    let machine = &functions.0.machine;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(|error| failed(&error))?;
    let port = listener.local_addr().map_err(|error| failed(&error))?.port();
    fs::create_dir_all(base).map_err(|error| failed(&error))?;
    let has_root = machine.confinement.has_root();
    let (task_seen, runtime_seen) =
        if has_root { (PathBuf::from(TASK), PathBuf::from(RUNTIME)) } else { (task.clone(), machine.runtime.clone()) };
    let interpreter = interpreter.as_ref();
    let command = command(&begun.build, interpreter, &task, &task_seen, &runtime_seen)?;
    let seen = Seen { task: &task_seen, runtime: &runtime_seen, port };
    let mut environment = environment(functions, id, begun, interpreter.map(|(_, found)| found), &seen);
    if !has_root {
        environment.insert("TMPDIR".to_owned(), base.display().to_string());
    }
    let memory = begun.build.settings.memory;
    let group = machine.memory.group(id.0, memory).map_err(|error| failed(&error))?.map(Arc::new);
    let spec = Spec {
        host: std::process::id(),
        environment,
        confinement: machine.confinement,
        command,
        task: task.clone(),
        runtime: machine.runtime.clone(),
        base: base.to_owned(),
        readable: interpreter.map_or_else(Vec::new, |(_, interpreter)| interpreter.readable.clone()),
        storage: begun.build.settings.storage,
        uid: UID_FIRST + u32::try_from(id.0 % UIDS).unwrap_or_default(),
        ports: machine.ports.iter().copied().chain([port]).collect(),
        groups: group.iter().map(|group| group.entrance()).collect(),
    };
    let order = Order { launcher: machine.launcher.clone(), spec, folder: task };
    let (process, printed) = machine.spawner.start(order).await.map_err(|error| failed(&error))?;
    let killer = process.killer().map_err(|error| failed(&error))?;
    let log = InstanceLog::new(printed, log).map(Arc::new);
    {
        let mut state = functions.0.state.lock();
        if let Some(slot) = state.slots.get_mut(&id) {
            (slot.killer, slot.process, slot.group) = (Some(killer), Some(process.id()), group);
            slot.log = log.as_ref().ok().map(Arc::clone);
            // What was to end it came before there was anything to end; or nobody could see what it prints.
            if slot.is_killed || log.is_err() {
                slot.kill();
            }
        }
    }
    let log = log.map_err(|error| failed(&error))?;
    let serving =
        tokio::spawn(runtime_api::serve(InstanceWork { functions: functions.clone(), instance: id }, listener));
    let followed = Arc::clone(&log);
    let following = tokio::spawn(async move { followed.follow().await });
    Ok(Running { process, log, serving, following })
}

impl Running {
    /// How it has ended, and by which signal if by one.
    async fn until_the_end(self) -> (Ended, Option<i32>) {
        let Self { process, log, serving, mut following } = self;
        let ended = process.wait().await;
        serving.abort();
        // What holds the other end of the pipe is in the namespace, which is ending; or has left its group.
        if tokio::time::timeout(LAST_WORDS, &mut following).await.is_err() {
            following.abort();
        }
        log.drain();
        let by = ended.as_ref().ok().and_then(|status| status.signal());
        let end = match ended {
            Ok(status) if status.code() == Some(i32::from(FAILED)) => {
                ("Runtime.StartError", String::from_utf8_lossy(&log.tail()).trim().to_owned())
            }
            Ok(status) => ("Runtime.ExitError", described(status)),
            Err(error) => failed(&error),
        };
        (end, by)
    }
}

/// What runs the code.
fn command(
    build: &Version,
    interpreter: Option<&(Language, Interpreter)>,
    task: &Path,
    task_seen: &Path,
    runtime_seen: &Path,
) -> Result<Vec<String>, Ended> {
    let text = |path: &Path| path.display().to_string();
    match interpreter {
        Some((Language::Python, python)) if python.has_client => Ok(vec![
            text(&python.executable),
            "-m".to_owned(),
            "awslambdaric".to_owned(),
            build.settings.handler.clone(),
        ]),
        Some((Language::Python, python)) => {
            Ok(vec![text(&python.executable), text(&runtime_seen.join("bootstrap.py"))])
        }
        // It would take as much as the machine has before it looked for what it needs no more.
        Some((Language::Node, node)) => Ok(vec![
            text(&node.executable),
            format!("--max-old-space-size={}", build.settings.memory * 9 / 10),
            text(&runtime_seen.join("bootstrap.mjs")),
        ]),
        None => {
            use std::os::unix::fs::PermissionsExt as _;
            let bootstrap = task.join("bootstrap");
            match fs::metadata(&bootstrap) {
                Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => {
                    Err(("Runtime.InvalidEntrypoint", "fork/exec /var/task/bootstrap: permission denied".to_owned()))
                }
                Ok(_) => Ok(vec![text(&task_seen.join("bootstrap"))]),
                Err(_) => Err((
                    "Runtime.InvalidEntrypoint",
                    "Couldn't find valid bootstrap(s): [/var/task/bootstrap /opt/bootstrap]".to_owned(),
                )),
            }
        }
    }
}

/// Where an instance finds what is its own.
struct Seen<'a> {
    task: &'a Path,
    runtime: &'a Path,
    /// Of its Runtime API.
    port: u16,
}

/// Where libraries are looked for, in Lambda's order: those of the program that runs the handler and of the system come before those of the zip, so
/// that a zip does not take the place of what the program is linked with.
fn libraries(interpreter: Option<&Interpreter>, seen: &Seen<'_>) -> String {
    let of_program = interpreter.into_iter().flat_map(|interpreter| {
        let beside = interpreter.executable.parent().and_then(Path::parent).map(Path::to_owned);
        beside.into_iter().chain(interpreter.readable.clone()).map(|prefix| prefix.join("lib"))
    });
    // One that brings a C library of its own starts with no other.
    let takes_system = interpreter.is_none_or(|interpreter| interpreter.takes_system);
    let of_system = system_folders().filter(|_| takes_system);
    let own = [seen.runtime, seen.task].into_iter().flat_map(|folder| [folder.to_owned(), folder.join("lib")]);
    let mut folders: Vec<String> = Vec::new();
    for folder in of_program.chain(of_system).chain(own).map(|folder| folder.display().to_string()) {
        // One with a colon in its name cannot be named here.
        if !folders.contains(&folder) && !folder.contains(':') {
            folders.push(folder);
        }
    }
    folders.join(":")
}

/// What a function finds in its environment: its own variables, and Lambda's.
fn environment(
    functions: &Functions,
    id: InstanceId,
    begun: &Begun,
    interpreter: Option<&Interpreter>,
    seen: &Seen<'_>,
) -> BTreeMap<String, String> {
    let settings = &begun.build.settings;
    let region = functions.region();
    let stream = format!("[{}]{:016x}", begun.version, id.0);
    let own = [
        ("_HANDLER", settings.handler.clone()),
        ("AWS_REGION", region.to_owned()),
        ("AWS_DEFAULT_REGION", region.to_owned()),
        ("AWS_EXECUTION_ENV", format!("AWS_Lambda_{}", settings.runtime)),
        ("AWS_LAMBDA_FUNCTION_NAME", begun.name.clone()),
        ("AWS_LAMBDA_FUNCTION_VERSION", begun.version.clone()),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", settings.memory.to_string()),
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand".to_owned()),
        ("AWS_LAMBDA_LOG_GROUP_NAME", format!("/aws/lambda/{}", begun.name)),
        ("AWS_LAMBDA_LOG_STREAM_NAME", stream),
        ("AWS_LAMBDA_RUNTIME_API", format!("127.0.0.1:{}", seen.port)),
        ("LAMBDA_TASK_ROOT", seen.task.display().to_string()),
        ("LAMBDA_RUNTIME_DIR", seen.runtime.display().to_string()),
        ("SAVANNA_EXECUTOR_ID", format!("{}/{}.{}", begun.name, functions.0.epoch.0, begun.slot)),
        ("SAVANNA_CACHE", String::new()),
    ];
    let libraries = libraries(interpreter, seen);
    let defaults = [
        ("LD_LIBRARY_PATH", libraries.as_str()),
        ("LANG", "en_US.UTF-8"),
        ("TZ", ":UTC"),
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("PYTHONUNBUFFERED", "1"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ];
    let defaults = defaults.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter();
    let theirs = settings.environment.iter().map(|(name, value)| (name.clone(), value.clone()));
    defaults.chain(theirs).chain(own.map(|(name, value)| (name.to_owned(), value))).collect()
}

/// Ends instances that have more memory than they may, where no control group does.
pub(crate) async fn watch_memory(functions: Functions) {
    const INTERVAL: Duration = Duration::from_millis(100);
    let mut ended = functions.0.ended.subscribe();
    if !matches!(functions.0.machine.memory, MemoryLimit::Watched) {
        return;
    }
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = ended.wait_for(Option::is_some) => return,
        }
        let watched: Vec<(InstanceId, u32, u32)> = {
            let state = functions.0.state.lock();
            state.slots.iter().filter_map(|(id, slot)| Some((*id, slot.process?, slot.memory))).collect()
        };
        let (processes, has_root) = (Processes::now(), functions.0.machine.confinement.has_root());
        for (id, process, megabytes) in watched {
            if used(&processes, process, has_root) > u64::from(megabytes) << 20 {
                let mut state = functions.0.state.lock();
                if let Some(slot) = state.slots.get_mut(&id) {
                    slot.kill();
                }
            }
        }
    }
}
