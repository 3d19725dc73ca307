//! A node shows that it works, in `pulses/NAME` of the directory, and answers who wants to know whether he reaches it. What follows from that is decided in
//! [`savanna_control::reach`].

use std::fs::{self, File};
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use savanna_control::reach::{PULSE_PERIOD, Pulse};
use savanna_epoch::NodeId;
use savanna_rpc::{Cluster, MethodTable, Service, ServiceTable, TcpServer};
use serde::{Deserialize, Serialize};
use tokio::task::{JoinHandle, spawn_blocking};

use super::leader::{Ping, connections};
use crate::data_dir::create_private;

const FOLDER: &str = "pulses";

/// What a node shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Shown {
    node: NodeId,
    /// Where it answers those who want to know whether they reach it.
    address: SocketAddr,
    /// Whether it encrypts what it says there. Earlier releases do not.
    #[serde(default)]
    is_encrypted: bool,
}

/// A node that has shown nothing for longer than this has ended, or stands still.
const RECENT: Duration = Duration::from_secs(2);

/// What a node has shown that has shown nothing for so long, and holds no lease, is removed. If it goes on after all, it shows itself anew.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3_600);

/// Under which name a node answers there.
pub(super) fn name_of(node: &NodeId) -> NodeId {
    NodeId::new(format!("pulse@{node}"))
}

/// A node that shows that it works, and answers who wants to know whether he reaches it, until it is dropped.
pub(super) struct Showing {
    beating: JoinHandle<()>,
    _server: TcpServer,
}

impl Showing {
    /// Begins, on the runtime of the caller: one that queries do not hold up.
    pub(super) async fn begin(
        directory: PathBuf,
        cluster: Cluster,
        node: NodeId,
        address: SocketAddr,
    ) -> io::Result<Self> {
        let answers = MethodTable::new().method(PhantomData::<Ping>, |_, ()| async { Ok(()) });
        let services = ServiceTable::new().service("leader", Arc::new(answers) as Arc<dyn Service>);
        let is_encrypted = cluster.is_encrypted();
        let server = TcpServer::within(cluster, address, name_of(&node), Arc::new(services), connections()).await?;
        let shown = Shown { node, address: server.local_address(), is_encrypted };
        Ok(Self { beating: tokio::spawn(beat_on(directory, shown)), _server: server })
    }
}

impl Drop for Showing {
    fn drop(&mut self) {
        self.beating.abort();
    }
}

/// Shows that the node works, for ever.
async fn beat_on(directory: PathBuf, shown: Shown) {
    let mut has_failed = false;
    loop {
        let (directory, shown) = (directory.clone(), shown.clone());
        let beaten = spawn_blocking(move || beat(&directory, &shown)).await;
        let failure = beaten.map_err(io::Error::other).and_then(|beaten| beaten).err();
        if let Some(error) = failure.as_ref().filter(|_| !has_failed) {
            tracing::warn!(%error, "other nodes cannot see in the data directory that this one works");
        }
        has_failed = failure.is_some();
        tokio::time::sleep(PULSE_PERIOD).await;
    }
}

/// The file of a node. Its name is that of the node, with what may not be in a file's name as hexadecimal digits.
fn path_of(directory: &Path, node: &NodeId) -> PathBuf {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let letters = node.0.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02x}"),
    });
    directory.join(FOLDER).join(letters.collect::<String>())
}

fn beat(directory: &Path, shown: &Shown) -> io::Result<()> {
    let path = path_of(directory, &shown.node);
    if read(&path).is_some_and(|(said, _)| said == *shown) {
        return File::open(&path)?.set_modified(SystemTime::now());
    }
    create_private(&directory.join(FOLDER))?;
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(shown).map_err(io::Error::other)?)?;
    fs::rename(new, path)
}

fn read(path: &Path) -> Option<(Shown, SystemTime)> {
    let said = fs::read(path).ok()?;
    Some((serde_json::from_slice(&said).ok()?, fs::metadata(path).ok()?.modified().ok()?))
}

/// The node works no more, which others need not find out then.
pub(super) fn end(directory: &Path, node: &NodeId) {
    // If it stays, it shows nothing new.
    let _ = fs::remove_file(path_of(directory, node));
}

/// What nodes have shown that are gone.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    /// Of these it is removed.
    pub(super) gone: Vec<NodeId>,
    /// Of these it could not be.
    pub(super) kept: Vec<(NodeId, io::Error)>,
}

/// Removes what others have shown that have ended long ago without a word, and do not live.
pub(super) fn forget(
    directory: &Path,
    own: &NodeId,
    lives: impl Fn(&NodeId) -> bool,
    now: SystemTime,
) -> io::Result<Forgotten> {
    let is_old = |at: SystemTime| now.duration_since(at).is_ok_and(|since| since >= FORGOTTEN_AFTER);
    let others = shown(directory, own)?.into_iter();
    let mut forgotten = Forgotten::default();
    for (Shown { node, .. }, _) in others.filter(|(shown, at)| is_old(*at) && !lives(&shown.node)) {
        match fs::remove_file(path_of(directory, &node)) {
            Ok(()) => forgotten.gone.push(node),
            // Somebody else has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => forgotten.kept.push((node, error)),
        }
    }
    Ok(forgotten)
}

/// What all others show that encrypt if this node does, and do not if it does not. It reaches no others, nor they it, whatever the network does.
pub(super) fn pulses(directory: &Path, own: &NodeId, is_encrypted: bool) -> io::Result<Vec<Pulse>> {
    let alike = shown(directory, own)?.into_iter().filter(|(shown, _)| shown.is_encrypted == is_encrypted);
    Ok(alike.map(|(Shown { node, address, .. }, at)| Pulse { node, address, at }).collect())
}

/// Whether others have just shown that they work, and encrypt where this node does not, or the other way round.
pub(super) fn do_others_otherwise(
    directory: &Path,
    own: &NodeId,
    is_encrypted: bool,
    now: SystemTime,
) -> io::Result<bool> {
    let is_recent = |at: SystemTime| now.duration_since(at).is_ok_and(|since| since < RECENT);
    Ok(shown(directory, own)?.iter().any(|(shown, at)| shown.is_encrypted != is_encrypted && is_recent(*at)))
}

/// What all others show, and when they did.
fn shown(directory: &Path, own: &NodeId) -> io::Result<Vec<(Shown, SystemTime)>> {
    let entries = match fs::read_dir(directory.join(FOLDER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let others = |entry: io::Result<fs::DirEntry>| {
        let path = entry.ok()?.path();
        // One that is about to be renamed is nobody's.
        read(&path).filter(|(shown, _)| path == path_of(directory, &shown.node) && shown.node != *own)
    };
    Ok(entries.filter_map(others).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_pulse_is_seen_by_others_until_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let shown = |name: &str| Shown {
            node: NodeId::new(name),
            address: "127.0.0.1:7400".parse().unwrap(),
            is_encrypted: false,
        };
        let (own, other) = (shown("a"), shown("../b %/ü"));
        let seen = || pulses(directory.path(), &own.node, false).unwrap();
        assert_eq!(seen(), []);
        beat(directory.path(), &other).unwrap();
        beat(directory.path(), &own).unwrap();
        let [first] = &seen()[..] else { panic!("one node shows that it works, seen were {:?}", seen()) };
        assert_eq!((&first.node, first.address), (&other.node, other.address));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "a name leads nowhere else");
        std::thread::sleep(Duration::from_millis(20));
        beat(directory.path(), &other).unwrap();
        assert!(seen()[0].at > first.at);
        end(directory.path(), &other.node);
        assert_eq!(seen(), []);
    }

    #[test]
    fn what_a_node_has_shown_goes_when_it_has_neither_worked_nor_lived_for_long() {
        let directory = tempfile::tempdir().unwrap();
        let address = "127.0.0.1:7400".parse().unwrap();
        for name in ["own", "lives", "gone", "gone too", "removed meanwhile"] {
            beat(directory.path(), &Shown { node: NodeId::new(name), address, is_encrypted: false }).unwrap();
        }
        let own = NodeId::new("own");
        let forgotten = |after: Duration| {
            let lives = |node: &NodeId| {
                if node.0 == "removed meanwhile" && after == FORGOTTEN_AFTER {
                    end(directory.path(), node);
                }
                node.0 == "lives"
            };
            let Forgotten { gone, kept } = forget(directory.path(), &own, lives, SystemTime::now() + after).unwrap();
            assert!(kept.is_empty(), "{kept:?}");
            gone.into_iter().map(|node| node.0).collect::<BTreeSet<_>>()
        };
        assert!(forgotten(FORGOTTEN_AFTER - Duration::from_secs(60)).is_empty(), "it may only stand still");
        assert_eq!(forgotten(FORGOTTEN_AFTER), BTreeSet::from(["gone".to_owned(), "gone too".to_owned()]));
        assert!(forgotten(FORGOTTEN_AFTER).is_empty());
        let left: Vec<_> =
            pulses(directory.path(), &own, false).unwrap().into_iter().map(|pulse| pulse.node.0).collect();
        assert_eq!(left, ["lives"]);
    }

    #[test]
    fn who_encrypts_otherwise_is_on_no_side_and_has_the_directory_to_itself_while_it_works() {
        let directory = tempfile::tempdir().unwrap();
        let own = NodeId::new("a");
        let address = "127.0.0.1:7400".parse().unwrap();
        for (name, is_encrypted) in [("a", false), ("b", true)] {
            beat(directory.path(), &Shown { node: NodeId::new(name), address, is_encrypted }).unwrap();
        }
        let seen = |is_encrypted| pulses(directory.path(), &own, is_encrypted).unwrap().len();
        assert_eq!([seen(true), seen(false)], [1, 0]);
        let now = SystemTime::now();
        let otherwise = |is_encrypted, now| do_others_otherwise(directory.path(), &own, is_encrypted, now).unwrap();
        assert_eq!([otherwise(true, now), otherwise(false, now)], [false, true], "its own, of before, is nobody's");
        assert!(!otherwise(false, now + RECENT), "it has ended");
        let earlier: Shown = serde_json::from_str(r#"{"node":"b","address":"127.0.0.1:7400"}"#).unwrap();
        assert!(!earlier.is_encrypted, "as an earlier release shows it");
    }
}
