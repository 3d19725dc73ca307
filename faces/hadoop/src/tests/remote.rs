//! The names of another process: the same face, over a handle that sends requests and answers through a socket.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use parking_lot::Mutex;
use savanna_epoch::{NodeId, OwnerEpoch};
use savanna_files_host::blocks::Silence;
use savanna_files_host::{
    Answer, Asked, Asker, Brought, Errand, Files, HandleError, NamesHandle, Outcome, Reply, Request, Unanswered,
};
use savanna_journal::newest_epoch;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;
use crate::wire::client::{FsStats, RecoverLease};

/// In which directory the other process has its files.
const DIRECTORY: &str = "SAVANNA_TEST_FILES";

/// What goes to the process that has the names.
#[derive(serde::Serialize, serde::Deserialize)]
enum Letter {
    /// A request, and its number.
    Ask(u64, Asked<Request>),
    /// An errand, and its number.
    Run(u64, Asked<Errand>),
    /// What it says to every request from now on, if it is not to do them.
    Say(Option<HandleError>),
}

/// What comes back.
#[derive(serde::Serialize, serde::Deserialize)]
enum Answered {
    Request(Outcome<Reply>),
    Errand(Outcome<Brought>),
}

fn send(stream: &mut UnixStream, value: &impl Serialize) -> io::Result<()> {
    let bytes = postcard::to_allocvec(value).unwrap();
    stream.write_all(&[&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat())
}

fn receive<T: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut bytes)?;
    Ok(postcard::from_bytes(&bytes).unwrap())
}

/// The process that has the names; nothing where no test asks for it.
#[test]
fn engine() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let log = directory.join("log");
    std::fs::create_dir_all(&log).unwrap();
    let epoch = newest_epoch(&log).unwrap().next();
    let (files, _upkeep) = Files::open(HostOptions {
        log: Options::dir(log),
        epoch,
        lease: None,
        directory: directory.to_owned(),
        superuser: "root".to_owned(),
        limits: Limits::default(),
        trash: 0,
        silence: Silence::default(),
        database: None,
    })
    .unwrap();
    let socket = directory.join("socket");
    let _ = std::fs::remove_file(&socket);
    let (mut from, _) = UnixListener::bind(socket).unwrap().accept().unwrap();
    let to = Arc::new(Mutex::new(from.try_clone().unwrap()));
    let mut says: Option<HandleError> = None;
    while let Ok(letter) = receive(&mut from) {
        match (letter, &says) {
            (Letter::Say(error), _) => says = error,
            (Letter::Ask(number, _), Some(error)) => {
                let answer = Answered::Request(Err(error.clone()));
                send(&mut to.lock(), &(number, answer)).unwrap();
            }
            (Letter::Run(number, _), Some(error)) => {
                let answer = Answered::Errand(Err(error.clone()));
                send(&mut to.lock(), &(number, answer)).unwrap();
            }
            (Letter::Ask(number, asked), None) => {
                let to = Arc::clone(&to);
                files.call(&asked.asker(), &asked.it, move |answer: Answer| {
                    // Who asked may have gone.
                    let _ = send(&mut to.lock(), &(number, Answered::Request(answer.map_err(HandleError::from))));
                });
            }
            (Letter::Run(number, asked), None) => {
                let to = Arc::clone(&to);
                files.run(&asked.asker(), asked.it.clone(), move |told| {
                    let _ = send(&mut to.lock(), &(number, Answered::Errand(told.map_err(HandleError::from))));
                });
            }
        }
    }
}

type Hear = Box<dyn FnOnce(Answer) + Send>;

/// Who waits for what comes back.
enum Waits {
    Request(Hear),
    Errand(Box<dyn FnOnce(Result<Brought, Unanswered>) + Send>),
}

impl Waits {
    fn hear(self, answered: Option<Answered>) {
        match (self, answered) {
            (Self::Request(hear), Some(Answered::Request(answer))) => hear(answer.map_err(Unanswered::from)),
            (Self::Errand(hear), Some(Answered::Errand(told))) => hear(told.map_err(Unanswered::from)),
            (Self::Request(hear), _) => hear(Err(Unanswered::Gone)),
            (Self::Errand(hear), _) => hear(Err(Unanswered::Gone)),
        }
    }
}

/// Requests and errands that are under way; none when the other process has ended.
type UnderWay = Arc<Mutex<Option<HashMap<u64, Waits>>>>;

/// The handle of names in another process.
struct Remote {
    stream: Mutex<(UnixStream, u64)>,
    under_way: UnderWay,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

impl Remote {
    fn to(directory: &Path) -> Self {
        let deadline = Instant::now() + Duration::from_secs(60);
        let stream = loop {
            match UnixStream::connect(directory.join("socket")) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let under_way: UnderWay = Arc::new(Mutex::new(Some(HashMap::new())));
        let (mut from, hears) = (stream.try_clone().unwrap(), Arc::clone(&under_way));
        std::thread::spawn(move || {
            while let Ok((number, answered)) = receive::<(u64, Answered)>(&mut from) {
                let waits = hears.lock().as_mut().and_then(|under_way| under_way.remove(&number)).unwrap();
                waits.hear(Some(answered));
            }
            let left = hears.lock().take();
            left.into_iter().flatten().for_each(|(_, waits)| waits.hear(None));
        });
        Self { stream: Mutex::new((stream, 0)), under_way }
    }

    fn say(&self, error: Option<HandleError>) {
        send(&mut self.stream.lock().0, &Letter::Say(error)).unwrap();
    }

    fn send(&self, waits: Waits, letter: impl FnOnce(u64) -> Letter) {
        let mut stream = self.stream.lock();
        let (stream, number) = &mut *stream;
        *number += 1;
        match self.under_way.lock().as_mut() {
            Some(under_way) => drop(under_way.insert(*number, waits)),
            None => return waits.hear(None),
        }
        // If it cannot be sent, the other process has ended, which is noticed where answers come.
        let _ = send(stream, &letter(*number));
    }
}

impl NamesHandle for Remote {
    fn call(&self, asker: &Asker<'_>, request: &Request, answer: Hear) {
        let asked = Asked::of(asker, request.clone());
        self.send(Waits::Request(answer), |number| Letter::Ask(number, asked));
    }

    fn run(&self, asker: &Asker<'_>, errand: Errand, told: Box<dyn FnOnce(Result<Brought, Unanswered>) + Send>) {
        let asked = Asked::of(asker, errand);
        self.send(Waits::Errand(told), |number| Letter::Run(number, asked));
    }
}

/// The process that has the names, until it is killed.
struct Engine(Child);

impl Engine {
    fn begin(directory: &Path) -> Self {
        let _ = std::fs::remove_file(directory.join("socket"));
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::remote::engine"])
            .env(DIRECTORY, directory)
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn names_may_be_in_another_process() {
    let (disk, here, there) = (SimDisk::new(1), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut engine = Engine::begin(there.path());
    let remote = Arc::new(Remote::to(there.path()));
    let served = |remote: &Arc<Remote>, epoch| {
        let names = Arc::clone(remote);
        Server::start_with(options(&disk, here.path(), epoch, None), move |_| names as _).unwrap()
    };
    let server = served(&remote, 1);
    let mut client = Client::of(&server, "root");
    let mkdirs =
        |path: &str| Mkdirs { path: path.to_owned(), permission: PERMISSION, with_parents: true, unmasked: None };
    assert!(client.call::<Flag>("mkdirs", &mkdirs("/d/deep")).unwrap().it);
    let made = client.create("/d/f").unwrap();
    assert_eq!(client.status("/d/f").unwrap().id, made.id);
    assert!(client.complete("/d/f", None));
    // A call that comes again is answered as before: who called has come along.
    let rename = Rename { from: "/d/f".to_owned(), to: "/d/g".to_owned() };
    for _ in 0..2 {
        assert!(client.call::<Flag>("rename", &rename).unwrap().it);
        client.next -= 1;
    }
    client.next += 1;
    let (class, _) = client.call::<Flag>("mkdirs", &mkdirs("/d/g")).unwrap_err();
    assert_eq!(class, "org.apache.hadoop.fs.FileAlreadyExistsException");
    let (class, _) = Client::of(&server, "ann").call::<Flag>("mkdirs", &mkdirs("/e")).unwrap_err();
    assert_eq!(class, "org.apache.hadoop.security.AccessControlException");
    // Bytes are written to the data node here, and who has the names hears of them.
    let bytes = content(300_001);
    client.write("/d/bytes", &bytes);
    assert_eq!(client.read("/d/bytes"), bytes);
    let text = |text: &str| Text { it: text.to_owned() };
    let total = client.call::<ContentSummaryResponse>("getContentSummary", &text("/d")).unwrap().it.unwrap();
    assert_eq!((total.files, total.directories, total.length), (2, 2, 300_001));
    let used = client.call::<One<QuotaUsage>>("getQuotaUsage", &text("/d")).unwrap().it.unwrap();
    assert_eq!((used.inodes, used.space), (4, 900_003));
    let stats = client.call::<FsStats>("getFsStats", &Nothing {}).unwrap();
    assert!(stats.missing == 0 && stats.capacity > 0 && stats.used > 300_000, "{stats:?}");
    client.create("/d/open").unwrap();
    client.call::<Nothing>("renewLease", &text("writer")).unwrap();
    let recover = |client: &str| RecoverLease { path: "/d/open".to_owned(), client: client.to_owned() };
    let (class, words) = client.call::<Flag>("recoverLease", &recover("writer")).unwrap_err();
    assert!(class.ends_with("AlreadyBeingCreatedException") && words.contains("already the lease owner"), "{words}");
    while !client.call::<Flag>("recoverLease", &recover("other")).unwrap().it {}
    assert!(client.call::<Flag>("isFileClosed", &text("/d/open")).unwrap().it);
    assert_eq!(web::send(&server, "root", "PUT", "/d/http", "CREATE", &bytes).status, 201);
    assert_eq!(web::send(&server, "root", "POST", "/d/http", "APPEND", b"more").status, 200);
    assert_eq!(client.read("/d/http"), [&bytes[..], b"more"].concat());
    let checked = String::from_utf8(web::ask(&server, "GET", "/fsck?ugi=root&path=/d", b"").body).unwrap();
    assert!(checked.contains("Total files:\t4") && checked.ends_with("is HEALTHY"), "{checked}");
    let beans = web::ask(&server, "GET", "/jmx?get=Hadoop:service=NameNode,name=FSNamesystem::FilesTotal", b"");
    assert_eq!(beans.json()["beans"][0]["FilesTotal"], 7);
    assert_eq!(server.files().figures().inodes, 0, "none of it is in this process");
    // What a name node says that has the names no more, or not now, clients know how to follow.
    remote.say(Some(HandleError::Moved { to: NodeId::new("n2"), epoch: OwnerEpoch(7) }));
    let (class, words) = client.call::<Flag>("mkdirs", &mkdirs("/moved")).unwrap_err();
    assert_eq!(class, "org.apache.hadoop.ipc.StandbyException");
    assert!(words.contains("n2"), "{words}");
    remote.say(Some(HandleError::Frozen { retry_after_ms: 5 }));
    let (class, _) = client.call::<Flag>("mkdirs", &mkdirs("/frozen")).unwrap_err();
    assert_eq!(class, "org.apache.hadoop.ipc.RetriableException");
    remote.say(None);
    assert!(client.status("/moved").is_none() && client.status("/frozen").is_none(), "nothing was done");
    // When it ends, nobody is told anything; the next one has all that somebody was told of.
    engine.kill();
    client.ask(CLIENT, "mkdirs", &mkdirs("/late"));
    assert_eq!(client.stream.read(&mut [0]).unwrap_or(0), 0, "the connection ends without an answer");
    drop(server);
    let _engine = Engine::begin(there.path());
    let server = served(&Arc::new(Remote::to(there.path())), 2);
    let mut client = Client::of(&server, "root");
    assert_eq!(client.status("/d/g").unwrap().id, made.id);
    assert!(client.status("/d/deep").is_some() && client.status("/late").is_none());
}
