//! What calls mean.

mod admin;
mod batched;
pub(crate) mod client;
pub(crate) mod complete;
mod datanode;
pub(crate) mod lists;
pub(crate) mod namenode;
mod nodes;
pub(crate) mod policies;
mod recovery;
pub(crate) mod replies;
pub(crate) mod reports;
mod unsupported;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;
use savanna_files_host::blocks::Replica;
use savanna_files_host::change::CallId;
use savanna_files_host::ids::{BlockId, Stamp};
use savanna_files_host::request::BlockName;
use savanna_files_host::{
    Answer, Asker, Brought, Class, Errand, Files, FilesError, Reply, Request, SharedNamesHandle, Statistics, Stats,
    Summary, Unanswered,
};
use tokio::sync::Semaphore;

use crate::audit::{AuditLog, Entry};
use crate::exception;
use crate::ipc::answer::Detail;
use crate::ipc::connection::Answerer;
use crate::web::Writes;
use crate::wire::hdfs::{Block, Node, NodeId};

/// What a server serves.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) files: Files,
    /// Who has the names: the same files, or another process.
    pub(crate) names: SharedNamesHandle,
    /// Where calls are noted, if they are.
    pub(crate) audit: Option<AuditLog>,
    /// Where its data node is reached.
    pub(crate) transfer_port: u16,
    /// Where its calls are.
    pub(crate) ipc_port: u16,
    /// Where its bytes go over HTTP.
    pub(crate) http_port: u16,
    /// What clients write over HTTP.
    pub(crate) writes: Arc<Writes>,
    /// Places of checks of files.
    pub(crate) checks: Arc<Semaphore>,
    /// Places of reports of all that data nodes have.
    pub(crate) reports: Arc<Semaphore>,
    /// Addresses of machines whose data nodes are admitted.
    pub(crate) datanodes: Vec<IpAddr>,
    /// Replicas of a file if nobody says how many.
    pub(crate) replication: u16,
    /// For calls that take long.
    pub(crate) runtime: tokio::runtime::Handle,
}

/// Who calls.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The user, as it says.
    pub(crate) user: String,
    /// Where it is.
    pub(crate) machine: String,
    /// The address of this machine that it reached; it will reach the data node there, too.
    pub(crate) reached: IpAddr,
    /// By which protocol it calls, as the audit log says it.
    pub(crate) by: &'static str,
    /// The number of its connection, in the order in which they began.
    pub(crate) connection: u64,
}

impl Peer {
    /// The same for the host.
    pub(crate) fn asker(&self, call: Option<CallId>) -> Asker<'_> {
        Asker { user: &self.user, machine: &self.machine, call }
    }
}

/// A protocol: what calls of a connection may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    Client,
    Datanode,
    Namenode,
    Nodes,
    Recovery,
}

/// The protocol of a name.
pub(crate) fn find(name: &str) -> Option<Protocol> {
    match name {
        client::NAME => Some(Protocol::Client),
        datanode::NAME => Some(Protocol::Datanode),
        namenode::NAME => Some(Protocol::Namenode),
        nodes::NAME => Some(Protocol::Nodes),
        recovery::NAME => Some(Protocol::Recovery),
        _ => None,
    }
}

impl Protocol {
    /// Does a call.
    pub(crate) fn call(self, service: &Arc<Service>, peer: &Arc<Peer>, method: &str, body: Bytes, answerer: Answerer) {
        // Data nodes say again what they are to say, until the one here knows what it has.
        if !matches!(self, Self::Client | Self::Namenode)
            && let Err(why) = service.files.check_read()
        {
            return unanswered(&why, answerer);
        }
        match self {
            Self::Client => client::call(service, peer, method, body, answerer),
            Self::Datanode => datanode::call(service, method, body, answerer),
            Self::Namenode => namenode::call(service, method, answerer),
            Self::Nodes => nodes::call(service, peer, method, body, answerer),
            Self::Recovery => recovery::call(service, peer, method, body, answerer),
        }
    }
}

/// Nobody knows such a call.
fn no_such_method(method: &str, protocol: &str, answerer: Answerer) {
    let words = format!("Unknown method {method} called on {protocol} protocol.");
    answerer.refuse(exception::NO_SUCH_METHOD, &words, Detail::NoSuchMethod);
}

/// A call is refused, or not answered.
fn unanswered(why: &Unanswered, answerer: Answerer) {
    match why {
        Unanswered::Refused(error) => refuse(error, answerer),
        // The connection ends.
        Unanswered::Gone => drop(answerer),
    }
}

fn refuse(error: &FilesError, answerer: Answerer) {
    answerer.refuse(exception::class(error.class), &error.message, Detail::Application);
}

/// The message of a call. None if it is not that; the call is refused then.
fn message<M: Message + Default>(body: Bytes, answerer: Answerer) -> Option<(M, Answerer)> {
    match M::decode_length_delimited(body) {
        Ok(message) => Some((message, answerer)),
        Err(error) => {
            answerer.refuse(exception::RPC_SERVER, &format!("the call cannot be read: {error}"), Detail::Server);
            None
        }
    }
}

/// Reports that may be taken at the same time.
const REPORTS: usize = 2;

/// Checks that may be under way: each goes over all names that it is asked for.
const CHECKS: usize = 4;

impl Service {
    /// Files without ports and without an audit log, which admit no data nodes. To be called in a runtime.
    pub(crate) fn alone(files: Files) -> Self {
        Self {
            names: Arc::new(files.clone()),
            files,
            audit: None,
            transfer_port: 0,
            ipc_port: 0,
            http_port: 0,
            writes: Arc::default(),
            checks: Self::checks(),
            reports: Self::reports(),
            datanodes: Vec::new(),
            replication: 1,
            runtime: tokio::runtime::Handle::current(),
        }
    }

    /// Places of checks.
    pub(crate) fn checks() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(CHECKS))
    }

    /// Places of reports.
    pub(crate) fn reports() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(REPORTS))
    }

    /// Does a request, and notes what became of it.
    pub(crate) fn ask(
        &self,
        peer: &Arc<Peer>,
        call: Option<CallId>,
        request: &Request,
        answer: impl FnOnce(Answer) + Send + 'static,
    ) {
        let noted = self.audit.clone().and_then(|log| Some((log, Entry::of(request)?)));
        let to = Arc::clone(peer);
        let heard = move |outcome: Answer| {
            if let Some((log, entry)) = noted {
                log.note(&to, &entry, &outcome);
            }
            answer(outcome);
        };
        self.names.call(&peer.asker(call), request, Box::new(heard));
    }

    /// Does an errand.
    pub(crate) fn run(
        &self,
        peer: &Peer,
        errand: Errand,
        told: impl FnOnce(Result<Brought, Unanswered>) + Send + 'static,
    ) {
        self.names.run(&peer.asker(None), errand, Box::new(told));
    }

    /// Counts what is below a path.
    pub(crate) fn summary(
        self: &Arc<Self>,
        peer: &Arc<Peer>,
        command: &'static str,
        path: String,
        tell: impl FnOnce(Result<Summary, Unanswered>) + Send + 'static,
    ) {
        let (here, to, of) = (Arc::clone(self), Arc::clone(peer), path.clone());
        self.run(peer, Errand::Summary { path }, move |told| {
            let summary = told.and_then(Brought::summary);
            here.note(&to, command, &of, &summary);
            tell(summary);
        });
    }

    /// What is known of all names together; of the data node in a process the one here counts.
    pub(crate) fn statistics(
        self: &Arc<Self>,
        peer: &Peer,
        tell: impl FnOnce(Result<Statistics, Unanswered>) + Send + 'static,
    ) {
        let here = Arc::clone(self);
        self.run(peer, Errand::Statistics, move |told| {
            let space = here.files.space();
            tell(
                told.and_then(Brought::statistics)
                    .map(|told| Statistics { stats: Stats { space, ..told.stats }, ..told }),
            );
        });
    }

    /// Notes what became of a call on a path.
    pub(crate) fn note<T>(&self, peer: &Peer, command: &'static str, path: &str, outcome: &Result<T, Unanswered>) {
        if let Some(log) = &self.audit {
            let answer: Answer = outcome.as_ref().map(|_| Reply::Done).map_err(Clone::clone);
            log.note(peer, &Entry::on(command, path), &answer);
        }
    }

    /// The data node, for a client.
    pub(crate) fn node(&self, peer: &Peer) -> Node {
        let space = self.files.space();
        let address = peer.reached.to_string();
        let id = NodeId {
            address: address.clone(),
            host: address,
            uuid: self.node_uuid(),
            transfer_port: u32::from(self.transfer_port),
            info_port: u32::from(self.http_port),
            ipc_port: u32::from(self.ipc_port),
        };
        Node {
            id,
            capacity: Some(space.capacity),
            used: Some(space.used),
            remaining: Some(space.remaining),
            location: Some("/default-rack".to_owned()),
            state: Some(0),
            ..Node::default()
        }
    }

    /// The data node, for ever.
    pub(crate) fn node_uuid(&self) -> String {
        self.files.identity().cluster.trim_start_matches("CID-").to_owned()
    }

    /// Its only storage.
    pub(crate) fn storage(&self) -> String {
        format!("DS-{}", self.node_uuid())
    }
}

/// How long it is tried to tell who has the names of a replica.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Who has the names hears that the data node here has a replica: before anybody is told that it was written. Blocks, for a while also if the names are held.
pub(crate) fn received(names: &SharedNamesHandle, files: &Files, replica: Replica) -> Result<(), Unanswered> {
    let Replica { block, stamp, length } = replica;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (sender, told) = sync_channel(1);
        let errand = Errand::Received { replica: BlockName { id: block, stamp, length } };
        // Who waits is there.
        let hears = Box::new(move |brought| drop(sender.send(brought)));
        names.run(&Asker { user: "", machine: "", call: None }, errand, hears);
        match told.recv().unwrap_or(Err(Unanswered::Gone)).and_then(Brought::bool) {
            Ok(true) => files.is_known(block),
            // Its file was deleted while it was written.
            Ok(false) => files.discard(block),
            Err(Unanswered::Refused(error))
                if matches!(error.class, Class::Retriable | Class::Standby) && Instant::now() < deadline =>
            {
                std::thread::sleep(PAUSE);
                continue;
            }
            Err(why) => return Err(why),
        }
        return Ok(());
    }
}

/// A block as clients name it.
pub(crate) fn named(block: &Block) -> BlockName {
    BlockName { id: BlockId(block.id), stamp: Stamp(block.stamp), length: block.length.unwrap_or(0) }
}
