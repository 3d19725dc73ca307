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
use savanna_files_host::{Answer, Asked, Asker, Files, HandleError, NamesHandle, Outcome, Request, Unanswered};
use savanna_journal::newest_epoch;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;

/// In which directory the other process has its files.
const DIRECTORY: &str = "SAVANNA_TEST_FILES";

/// What goes to the process that has the names.
#[derive(serde::Serialize, serde::Deserialize)]
enum Letter {
    /// A request, and its number.
    Ask(u64, Asked),
    /// What it says to every request from now on, if it is not to do them.
    Say(Option<HandleError>),
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
                send(&mut to.lock(), &(number, Outcome::Err(error.clone()))).unwrap();
            }
            (Letter::Ask(number, asked), None) => {
                let to = Arc::clone(&to);
                files.call(&asked.asker(), &asked.request, move |answer: Answer| {
                    // Who asked may have gone.
                    let _ = send(&mut to.lock(), &(number, answer.map_err(HandleError::from)));
                });
            }
        }
    }
}

type Hear = Box<dyn FnOnce(Answer) + Send>;

/// Requests that are under way; none when the other process has ended.
type UnderWay = Arc<Mutex<Option<HashMap<u64, Hear>>>>;

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
            while let Ok((number, outcome)) = receive::<(u64, Outcome)>(&mut from) {
                let hear = hears.lock().as_mut().and_then(|under_way| under_way.remove(&number)).unwrap();
                hear(outcome.map_err(Unanswered::from));
            }
            let left = hears.lock().take();
            left.into_iter().flatten().for_each(|(_, hear)| hear(Err(Unanswered::Gone)));
        });
        Self { stream: Mutex::new((stream, 0)), under_way }
    }

    fn say(&self, error: Option<HandleError>) {
        send(&mut self.stream.lock().0, &Letter::Say(error)).unwrap();
    }
}

impl NamesHandle for Remote {
    fn call(&self, asker: &Asker<'_>, request: &Request, answer: Hear) {
        let mut stream = self.stream.lock();
        let (stream, number) = &mut *stream;
        *number += 1;
        match self.under_way.lock().as_mut() {
            Some(under_way) => drop(under_way.insert(*number, answer)),
            None => return answer(Err(Unanswered::Gone)),
        }
        // If it cannot be sent, the other process has ended, which is noticed where answers come.
        let _ = send(stream, &Letter::Ask(*number, Asked::of(asker, request)));
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
