//! A node shows that it works, in `pulses/NAME` of the directory, and answers who wants to know whether he reaches it. What follows from that is decided in
//! [`savanna_control::reach`].

use std::fs::{self, File};
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

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
}

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
        let server = TcpServer::within(cluster, address, name_of(&node), Arc::new(services), connections()).await?;
        let shown = Shown { node, address: server.local_address() };
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

/// What all others show.
pub(super) fn pulses(directory: &Path, own: &NodeId) -> io::Result<Vec<Pulse>> {
    let entries = match fs::read_dir(directory.join(FOLDER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let pulse = |entry: io::Result<fs::DirEntry>| {
        let path = entry.ok()?.path();
        let (Shown { node, address }, at) = read(&path)?;
        // One that is about to be renamed is nobody's.
        (path == path_of(directory, &node)).then_some(Pulse { node, address, at })
    };
    Ok(entries.filter_map(pulse).filter(|pulse| pulse.node != *own).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulse_is_seen_by_others_until_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let shown = |name: &str| Shown { node: NodeId::new(name), address: "127.0.0.1:7400".parse().unwrap() };
        let (own, other) = (shown("a"), shown("../b %/ü"));
        let seen = || pulses(directory.path(), &own.node).unwrap();
        assert_eq!(seen(), []);
        beat(directory.path(), &other).unwrap();
        beat(directory.path(), &own).unwrap();
        let [first] = &seen()[..] else { panic!("one node shows that it works, seen were {:?}", seen()) };
        assert_eq!((&first.node, first.address), (&other.node, other.address));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "a name leads nowhere else");
        std::thread::sleep(std::time::Duration::from_millis(20));
        beat(directory.path(), &other).unwrap();
        assert!(seen()[0].at > first.at);
        end(directory.path(), &other.node);
        assert_eq!(seen(), []);
    }
}
