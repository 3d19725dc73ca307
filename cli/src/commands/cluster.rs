//! `savanna dev --nodes`: several nodes of one cluster on this machine, each in a process of its own.
//!
//! The processes are started together, and each says where it listens once all services of the cluster are served. One that dies is started
//! again, on the ports that it had, unless another process has taken its name. They stop when this process is asked to, or is gone: they read
//! from a pipe that it keeps open.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures::future::join_all;
use savanna_http::types::NodeStatus;
use savanna_node::{ClusterPort, Config, NodeConfig};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::dev::Stop;
use super::netns::{Namespace, Network};
use crate::args::{Format, Shared};
use crate::error::{CliError, Exit};
use crate::output;

/// The ports of each node are so much above those of the one before.
const PORTS_APART: u16 = 10;
/// Between the end of a process and the start of the next, doubled by each that ends soon.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A process that has run for so long has not ended soon.
const RAN_WELL: Duration = Duration::from_secs(30);
/// How long a process has to say where it listens.
const START_TIME: Duration = Duration::from_secs(60);
/// How long a process has to stop, beyond what its services have.
const STOP_TIME: Duration = Duration::from_secs(5);

/// What listens in each node: its name there, and the setting of its port.
const FACES: [(&str, &str); 5] = [
    ("tenants", "tenants.port"),
    ("keys", "keys.port"),
    ("pgwire", "pgwire.port"),
    ("http", "http.port"),
    ("cluster", "cluster.port"),
];

/// Runs so many nodes, each in a network namespace of its own if `apart`.
pub(crate) async fn run(config: &Config, shared: &Shared, count: u16, apart: bool) -> Result<Exit, CliError> {
    let stop = Stop::listen()?;
    if !apart {
        return run_in(config, shared, count, None, stop).await;
    }
    let network = Network::make((0..count).map(name_of).collect()).await?;
    let ended = run_in(config, shared, count, Some(&network), stop).await;
    network.remove().await;
    ended
}

async fn run_in(
    config: &Config,
    shared: &Shared,
    count: u16,
    network: Option<&Network>,
    mut stop: Stop,
) -> Result<Exit, CliError> {
    let (stopping, _) = watch::channel(false);
    let mut ports = BTreeSet::new();
    let nodes = (0..count).map(|number| Node::new(config, shared, (number, count), network, &mut ports));
    let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
    let starting = join_all(nodes.into_iter().map(|node| {
        let (stopping, mut stops) = (&stopping, stopping.subscribe());
        async move {
            let started = node.start(&mut stops).await;
            if started.is_err() {
                stopping.send_replace(true);
            }
            started
        }
    }));
    let mut starting = std::pin::pin!(starting);
    let started = tokio::select! {
        started = &mut starting => started,
        () = stop.asked() => {
            stopping.send_replace(true);
            return tokio::select! {
                _ = starting => Ok(Exit::Done),
                // Processes that are dropped are killed.
                () = stop.asked() => Err(CliError::Reported(Exit::Interrupted)),
            };
        }
    };
    let started = all_of(started).await?;
    show(&started, shared.output)?;
    let watching: Vec<_> =
        started.into_iter().map(|running| tokio::spawn(running.look_after(stopping.subscribe()))).collect();
    let mut watching = join_all(watching);
    tokio::select! {
        () = stop.asked() => {}
        // Whoever took the names has said so, or the nodes have.
        _ = &mut watching => return Err(CliError::Reported(Exit::Replaced)),
    }
    eprintln!("stopping {count} nodes; Ctrl-C again stops at once");
    stopping.send_replace(true);
    tokio::select! {
        _ = watching => Ok(Exit::Done),
        // Processes that are dropped are killed.
        () = stop.asked() => Err(CliError::Reported(Exit::Interrupted)),
    }
}

/// The nodes, if all have started; else those that have are stopped.
async fn all_of(nodes: Vec<Result<Option<Running>, CliError>>) -> Result<Vec<Running>, CliError> {
    let (mut started, mut failure) = (Vec::new(), None);
    for node in nodes {
        match node {
            Ok(running) => started.extend(running),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let Some(failure) = failure else { return Ok(started) };
    join_all(started.into_iter().map(Running::stop)).await;
    Err(failure)
}

/// Prints where the nodes listen.
fn show(nodes: &[Running], format: Format) -> Result<(), CliError> {
    if format == Format::Json {
        return nodes.iter().try_for_each(|node| output::write_json(&node.status));
    }
    let row = |running: &Running| {
        let of = |name: &str| {
            let service = running.status.services.iter().find(|service| service.service == name)?;
            service.address.clone().or_else(|| Some(format!("{}: {}", service.state, service.reason.clone()?)))
        };
        let services = ["tenants", "keys", "pgwire", "http"].map(|name| of(name).unwrap_or_else(|| "-".to_owned()));
        let mut row = vec![running.status.node.clone(), running.status.pid.to_string()];
        row.extend(services);
        row.push(running.node.log.display().to_string());
        row
    };
    let rows: Vec<_> = nodes.iter().map(row).collect();
    let table = output::text_table(&["node", "process", "tenants", "keys", "streams", "http", "log"], &rows);
    output::write(table.as_bytes())?;
    eprintln!("Any node takes any client; `savanna shards` says which node has what. Ctrl-C stops all.");
    for node in nodes.iter().map(|running| &running.node) {
        if let Some(Namespace { name, address }) = &node.namespace {
            eprintln!("{} is {address} in namespace {name}: `ip netns exec {name} ..` runs a program there", node.name);
        }
    }
    Ok(())
}

/// The name of the node with a number.
fn name_of(number: u16) -> String {
    format!("n{}", number + 1)
}

/// How one of the nodes is started.
#[derive(Clone)]
struct Node {
    name: String,
    arguments: Vec<String>,
    /// Where it runs, if not beside the others.
    namespace: Option<Namespace>,
    /// By setting.
    ports: Vec<(&'static str, u16)>,
    log: PathBuf,
    stop_time: Duration,
}

impl Node {
    /// The node with this number. It takes none of the ports that others have.
    fn new(
        config: &Config,
        shared: &Shared,
        (number, count): (u16, u16),
        network: Option<&Network>,
        others: &mut BTreeSet<u16>,
    ) -> Result<Self, CliError> {
        let node = config.node();
        let name = name_of(number);
        let namespace = network.and_then(|network| network.of(&name));
        let folder = node.data_dir.join("nodes");
        // As the node makes its data directory: for nobody but its owner.
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(CliError::io(format!("creating {}", folder.display())))?;
        let ports = FACES.map(|(_, setting)| {
            let base = base_port(node, setting);
            if namespace.is_some() {
                return (setting, base);
            }
            let port = above(base, number);
            let is_free = port == 0 || (others.insert(port) && TcpListener::bind((node.address, port)).is_ok());
            if !is_free {
                eprintln!("{}:{port} is taken: {setting} of node {name} is any that is free", node.address);
            }
            (setting, if is_free { port } else { 0 })
        });
        let mut arguments = arguments_of(shared);
        // Whatever source a setting has: this one counts.
        for setting in ["services", "address", "streams.files", "keys.tls_port"] {
            if let Some(sourced) = config.get(setting) {
                arguments.extend(["--set".to_owned(), format!("{setting}={}", sourced.value)]);
            }
        }
        let tls_port = node.keys.tls.port;
        if tls_port != 0 {
            let port = if namespace.is_some() { tls_port } else { above(tls_port, number) };
            arguments.extend(["--set".to_owned(), format!("keys.tls_port={port}")]);
        }
        let cluster_port = match node.keys_cluster_port {
            ClusterPort::None => "none".to_owned(),
            ClusterPort::At(port) | ClusterPort::IfFree(port) if namespace.is_some() => port.to_string(),
            ClusterPort::At(port) => above(port, number).to_string(),
            ClusterPort::IfFree(port) => {
                let port = above(port, number);
                let is_free = others.insert(port) && TcpListener::bind((node.address, port)).is_ok();
                if is_free { port.to_string() } else { "none".to_owned() }
            }
        };
        arguments.extend(["--set".to_owned(), format!("keys.cluster_port={cluster_port}")]);
        arguments.extend(["--set".to_owned(), format!("cluster.nodes={count}")]);
        if let Some(Namespace { address, .. }) = &namespace {
            arguments.extend(["--set".to_owned(), format!("cluster.address={address}")]);
        }
        // However it is called: a path with a slash is a directory.
        let directory = Path::new(".").join(&node.data_dir);
        arguments.extend(["node".to_owned(), "--join".to_owned(), directory.display().to_string()]);
        arguments.extend(["--name".to_owned(), name.clone(), "--stop-with-stdin".to_owned()]);
        let log = folder.join(format!("{name}.log"));
        let stop_time = node.shutdown_timeout + STOP_TIME;
        Ok(Self { name, arguments, namespace, ports: ports.into(), log, stop_time })
    }

    /// Starts the process, and waits until it says where it listens; none if all are to stop before.
    async fn start(self, stopping: &mut watch::Receiver<bool>) -> Result<Option<Running>, CliError> {
        let mut child = self.spawn()?;
        let began = Instant::now();
        // Waiting for a process closes what it reads from, if it is still there.
        let stdin = child.stdin.take();
        let Some(stdout) = child.stdout.take() else { return Err(self.failed("it has no standard output")) };
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::select! {
            line = timeout(START_TIME, lines.next_line()) => line,
            () = asked(stopping) => {
                end(child, stdin, &self.name, self.stop_time).await;
                return Ok(None);
            }
        };
        let line = match line {
            Ok(Ok(Some(line))) => line,
            Ok(_) => return Err(self.failed("it ended")),
            Err(_) => return Err(self.failed("it did not say where it listens")),
        };
        let status: NodeStatus = serde_json::from_str(&line).map_err(|error| self.failed(&error.to_string()))?;
        let mut node = self;
        node.keep_ports(&status);
        Ok(Some(Running { node, child, began, status, stdin, _stdout: lines }))
    }

    fn spawn(&self) -> Result<Child, CliError> {
        let io = |doing: &str| CliError::io(format!("{doing} for node {}", self.name));
        let program = std::env::current_exe().map_err(io("finding this program"))?;
        let log = OpenOptions::new().create(true).append(true).open(&self.log).map_err(io("opening the log"))?;
        let mut command = match &self.namespace {
            None => Command::new(program),
            // It becomes the program, in the same process.
            Some(Namespace { name, .. }) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(program);
                command
            }
        };
        command.args(&self.arguments).args(["--output", "json"]);
        for (setting, port) in &self.ports {
            command.arg(format!("--{}", setting.replace('.', "-"))).arg(port.to_string());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::from(log)).kill_on_drop(true);
        // Ctrl-C at the terminal is for this process, which asks the others once.
        command.process_group(0);
        command.spawn().map_err(io("starting a process"))
    }

    /// What starts again listens where it was.
    fn keep_ports(&mut self, status: &NodeStatus) {
        for (name, setting) in FACES {
            let service = status.services.iter().find(|service| service.service == name);
            let address = service.and_then(|service| service.address.as_deref()?.parse::<SocketAddr>().ok());
            if let (Some(address), Some(port)) = (address, self.ports.iter_mut().find(|(other, _)| *other == setting)) {
                port.1 = address.port();
            }
        }
    }

    fn failed(&self, reason: &str) -> CliError {
        let log = self.log.display();
        CliError::NotStarted(format!("node {} did not start: {reason}; {}see {log}", self.name, last_line(&self.log)))
    }
}

/// A node that runs.
struct Running {
    node: Node,
    child: Child,
    began: Instant,
    status: NodeStatus,
    /// The process stops when it is closed.
    stdin: Option<ChildStdin>,
    /// Kept open: nobody reads it.
    _stdout: Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// Starts the node again whenever it ends, until `stopping` says so; then stops it. One whose name another process has is not started
    /// again: the two would take it from each other for ever.
    async fn look_after(self, mut stopping: watch::Receiver<bool>) {
        let (mut running, mut pause) = (self, PAUSE_MIN);
        loop {
            let ended = tokio::select! {
                ended = running.child.wait() => Some(ended),
                () = asked(&mut stopping) => None,
            };
            let Some(ended) = ended else { return running.stop().await };
            let (name, log) = (&running.node.name, &running.node.log);
            if ended.as_ref().is_ok_and(|status| status.code() == Some(Exit::Replaced as i32)) {
                eprintln!(
                    "node {name} ended, as another process has its name; {}it is not started again",
                    last_line(log)
                );
                return;
            }
            let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            eprintln!("node {name} ended: {how}; {}it is started again, see {}", last_line(log), log.display());
            if running.began.elapsed() >= RAN_WELL {
                pause = PAUSE_MIN;
            }
            let mut node = running.node;
            running = loop {
                tokio::select! {
                    () = sleep(pause) => {}
                    () = asked(&mut stopping) => return,
                }
                pause = (pause * 2).min(PAUSE_MAX);
                let again = node.clone();
                match node.start(&mut stopping).await {
                    Ok(None) => return,
                    Ok(Some(running)) => {
                        eprintln!("node {} runs again, as process {}", running.node.name, running.status.pid);
                        break running;
                    }
                    Err(error) => eprintln!("{error}"),
                }
                node = again;
            };
        }
    }

    async fn stop(self) {
        end(self.child, self.stdin, &self.node.name, self.node.stop_time).await;
    }
}

/// Has a process stop, which it does when what it reads ends.
async fn end(mut child: Child, stdin: Option<ChildStdin>, name: &str, within: Duration) {
    drop(stdin);
    if timeout(within, child.wait()).await.is_err() {
        eprintln!("node {name} did not stop in time, and is killed");
        // It is dropped, and so killed, if that fails.
        let _ = child.kill().await;
    }
}

/// Ready when the nodes are to stop.
async fn asked(stopping: &mut watch::Receiver<bool>) {
    // A closed channel means that nobody looks after them any more.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// What each process is told of what this one was told.
fn arguments_of(shared: &Shared) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut push = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
    if let Some(config) = &shared.config {
        push("--config", config.display().to_string());
    }
    for (key, value) in &shared.settings {
        push("--set", format!("{key}={value}"));
    }
    if let Some(log) = &shared.log {
        push("--log", log.clone());
    }
    arguments
}

fn base_port(node: &NodeConfig, setting: &str) -> u16 {
    match setting {
        "tenants.port" => node.tenants_port,
        "keys.port" => node.keys_port,
        "pgwire.port" => node.pgwire_port,
        "http.port" => node.http_port,
        _ => node.cluster_port,
    }
}

/// The port of a node by its number; any if there is none so high, or none was asked for.
fn above(base: u16, number: u16) -> u16 {
    if base == 0 { 0 } else { base.checked_add(number * PORTS_APART).unwrap_or(0) }
}

/// What a log says last, for people.
fn last_line(log: &Path) -> String {
    use std::io::{Read as _, Seek as _, SeekFrom};

    const TAIL: u64 = 4096;
    let read = || -> std::io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .map_or_else(String::new, |line| format!("`{}`; ", line.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_apart_and_any_where_there_are_none() {
        assert_eq!([0, 1, 2].map(|number| above(6380, number)), [6380, 6390, 6400]);
        assert_eq!((above(0, 3), above(65_530, 1)), (0, 0));
    }

    #[test]
    fn the_last_line_of_a_log_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        assert_eq!(last_line(&log), "");
        fs::write(&log, "first\nerror: it is so\n\n").unwrap();
        assert_eq!(last_line(&log), "`error: it is so`; ");
    }
}
