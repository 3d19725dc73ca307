//! Data nodes of other processes: what they say goes to the block manager, and what they are to do comes from there.
//!
//! Nobody is told to do anything who could not be told an answer: a process that was replaced gives no orders.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use savanna_files::blocks::{Copying, Duties, Heartbeat, Holder, Liveness, NodeShown, Place, Registration, Replica};
use savanna_files::ids::{BlockId, InodeId, Millis, Stamp, Txid};
use savanna_files::{Class, FilesError, Namespace, Reply, Request};
use savanna_files_database::DatabaseError;

use super::{AT_ONCE, Files, State, Unanswered, now};
use crate::behind;

/// The file with the names of data nodes, one a line: at the next start they are waited for before anything is removed.
const KEPT: &str = "nodes";
/// Looks at blocks in a turn, while writers wait each time.
const LOOKS: usize = 64;

/// What a data node says that a storage has: replicas, and whether each is whole.
#[derive(Debug)]
pub struct Report {
    /// The storage.
    pub storage: String,
    /// Of which kind it is, by the number that clients know.
    pub kind: i32,
    /// All that it has.
    pub replicas: Vec<(Replica, bool)>,
}

/// What a data node says of one replica.
#[derive(Clone, Copy, Debug)]
pub enum Told {
    /// It writes it.
    Begun(Replica),
    /// It has it.
    Whole(Replica),
    /// It has it no more.
    Gone(Replica),
}

/// What a data node hears when it says that it is there.
#[derive(Debug)]
pub struct Orders {
    /// What it has to do.
    pub duties: Duties,
    /// Under what number it may report all its replicas, 0 if it may not.
    pub lease: u64,
    /// The newest change.
    pub txid: Txid,
}

/// The names of data nodes that were there before.
pub(super) fn known(directory: &Path) -> io::Result<Vec<String>> {
    match fs::read_to_string(directory.join(KEPT)) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Whether changes are refused until data nodes have reported that were there before.
pub(super) fn is_waiting(namespace: &Namespace) -> bool {
    !namespace.blocks.nodes.awaited().is_empty() && !namespace.blocks.are_enough()
}

fn keep(directory: &Path, names: &BTreeSet<String>) -> io::Result<()> {
    let beside = directory.join("nodes.new");
    let mut file = File::create(&beside)?;
    for name in names {
        writeln!(file, "{name}")?;
    }
    file.sync_all()?;
    fs::rename(&beside, directory.join(KEPT))?;
    File::open(directory)?.sync_all()
}

impl State {
    /// What a client was told of who writes a block holds from now on.
    pub(super) fn follow_pipeline(&mut self, request: &Request, reply: &Reply) {
        let blocks = &mut self.namespace.blocks;
        match (request, reply) {
            (Request::AddBlock { .. }, Reply::Block(located)) | (_, Reply::Appended(Some(located), _)) => {
                blocks.written_by(located.block.id, located.places.clone());
            }
            (Request::UpdatePipeline { new, places, .. }, Reply::Done) => blocks.written_by(new.id, places.clone()),
            _ => {}
        }
    }
}

impl Files {
    /// Milliseconds since the process began.
    fn late(&self) -> Millis {
        Millis(u64::try_from(self.0.begun.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// A data node says who it is. Blocks.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn register_node(&self, registration: Registration) -> Result<(), Unanswered> {
        let Registration { uuid, address, transfer_port, .. } = &registration;
        if uuid.is_empty() || uuid.contains(['\n', '\r']) {
            let words = format!("Expected a data node with a name on one line, came {uuid:?}");
            return Err(FilesError::new(Class::IllegalArgument, words).into());
        }
        tracing::info!(%uuid, %address, transfer_port, "a data node registers");
        let late = self.late();
        let mut state = self.0.state.write();
        state.namespace.blocks.advance(late);
        let Some(_) = state.namespace.blocks.register(registration) else {
            let words = "Expected at most 65535 data nodes since the process began, came one more; start it again";
            return Err(FilesError::new(Class::Io, words).into());
        };
        drop(state);
        self.keep_nodes();
        self.wait(None)
    }

    /// Keeps the names of data nodes on the disk.
    fn keep_nodes(&self) {
        let mut kept = self.0.nodes_kept.lock();
        let state = self.0.state.read();
        let nodes = &state.namespace.blocks.nodes;
        let mut names: BTreeSet<String> = nodes.awaited().clone();
        let there = nodes.shown().into_iter().filter(|node| node.liveness != Liveness::Dead);
        names.extend(there.map(|node| node.registration.uuid));
        drop(state);
        if *kept == names || !self.may_tell() {
            return;
        }
        match keep(&self.0.directory, &names) {
            Ok(()) => *kept = names,
            Err(error) => {
                tracing::warn!(%error, "the names of data nodes could not be written; the next start does not wait for them");
            }
        }
    }

    fn holder(state: &State, uuid: &str) -> Result<Holder, Unanswered> {
        let nodes = &state.namespace.blocks.nodes;
        nodes.find(uuid).filter(|holder| nodes.liveness(*holder) != Liveness::Dead).ok_or_else(|| {
            let words = format!("Expected a data node that has registered, came {uuid}; it has to register first");
            FilesError::new(Class::Io, words).into()
        })
    }

    /// A data node is there. What it has to do; nothing if it has to say who it is first.
    ///
    /// # Errors
    /// [`Unanswered::Gone`].
    pub fn node_heard(&self, uuid: &str, heartbeat: Heartbeat) -> Result<Option<Orders>, Unanswered> {
        let late = self.late();
        let mut state = self.0.state.write();
        let txid = state.namespace.txid();
        let durable = state.pending.durable(self.0.journal.durable(), txid);
        let durable = Some(durable).filter(|_| !self.is_quiet(&state));
        let blocks = &mut state.namespace.blocks;
        blocks.advance(late);
        let Some(holder) = blocks.nodes.find(uuid) else {
            drop(state);
            return self.wait(None).map(|()| None);
        };
        let orders = blocks.heard(holder, heartbeat).map(|lease| {
            let duties = blocks.duties(holder, durable);
            Orders { duties, lease, txid }
        });
        drop(state);
        self.wait(None)?;
        Ok(orders)
    }

    /// Whether nothing may be removed, and nothing sent: somebody said so, the database is away, or data nodes that were there have not reported yet.
    fn is_quiet(&self, state: &State) -> bool {
        state.namespace.is_safe
            || !state.namespace.blocks.nodes.awaited().is_empty()
            || self.0.behind.as_ref().is_some_and(|behind| behind.is_away())
    }

    /// A data node reports all that some of its storages have; with the last ones it has reported all. Blocks for a while.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn node_reports(&self, uuid: &str, lease: u64, reports: &[Report], is_last: bool) -> Result<(), Unanswered> {
        let late = self.late();
        let mut state = self.0.state.write();
        let holder = Self::holder(&state, uuid)?;
        state.namespace.blocks.advance(late);
        if !state.namespace.blocks.nodes.may_report(holder, lease) {
            let words =
                format!("Expected a report under a number that was given for it, came {lease}; it is given again");
            return Err(FilesError::new(Class::ReportLease, words).into());
        }
        drop(state);
        for report in reports {
            let mut state = self.0.state.write();
            let Some(place) = state.namespace.blocks.storage(holder, &report.storage, report.kind) else { continue };
            let mut unseen = state.namespace.blocks.known(place);
            drop(state);
            for some in report.replicas.chunks(AT_ONCE) {
                let mut state = self.0.state.write();
                for (replica, is_whole) in some {
                    unseen.remove(&replica.block);
                    state.namespace.blocks.held(place, *replica, *is_whole);
                }
            }
            let unseen: Vec<BlockId> = unseen.into_iter().collect();
            for some in unseen.chunks(AT_ONCE) {
                let mut state = self.0.state.write();
                some.iter().for_each(|block| state.namespace.blocks.lost(place, *block, None));
            }
            self.0.state.write().namespace.blocks.has_reported(place);
        }
        if is_last {
            self.0.state.write().namespace.blocks.all_reported(holder);
        }
        self.wait(None)
    }

    /// A data node has replicas that it had not before, or has some no more.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn node_tells(&self, uuid: &str, storage: &str, kind: i32, told: &[Told]) -> Result<(), Unanswered> {
        for some in told.chunks(AT_ONCE) {
            let mut state = self.0.state.write();
            let holder = Self::holder(&state, uuid)?;
            let blocks = &mut state.namespace.blocks;
            let Some(place) = blocks.storage(holder, storage, kind) else { continue };
            for told in some {
                match told {
                    Told::Begun(replica) => blocks.held(place, *replica, false),
                    Told::Whole(replica) => blocks.held(place, *replica, true),
                    Told::Gone(replica) => blocks.lost(place, replica.block, Some(replica.stamp)),
                }
            }
        }
        self.wait(None)
    }

    /// The data node of a name; the one in the process has its own.
    #[must_use]
    pub fn holder_of(&self, uuid: &str, own: &str) -> Option<Holder> {
        if uuid == own {
            return Some(Holder::HERE);
        }
        self.0.state.read().namespace.blocks.nodes.find(uuid)
    }

    /// Storages of data nodes by their names. Those that nobody knows are left out.
    #[must_use]
    pub fn places_of<'n>(&self, names: impl Iterator<Item = (&'n str, &'n str)>, own: &str) -> Vec<Place> {
        let state = self.0.state.read();
        let nodes = &state.namespace.blocks.nodes;
        let place =
            |(uuid, storage): (&str, &str)| if uuid == own { Some(Place::HERE) } else { nodes.place(uuid, storage) };
        names.filter_map(place).collect()
    }

    /// Where more replicas of a block may be that is being written.
    #[must_use]
    pub fn choose_more(&self, block: BlockId, count: usize, without: &[Holder]) -> Vec<Place> {
        self.0.state.read().namespace.blocks.choose_more(block, count, without)
    }

    /// All data nodes of other processes.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeShown> {
        self.0.state.read().namespace.blocks.nodes.shown()
    }

    /// A data node has ended a block with the others that have it: so many bytes, or nothing if nobody has any. Blocks.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn synchronized(
        &self,
        block: BlockId,
        stamp: Stamp,
        length: Option<u64>,
        places: &[Place],
    ) -> Result<(), Unanswered> {
        let refused = |words: String| Err(FilesError::new(Class::Io, words).into());
        let mut state = self.0.state.write();
        let Some(recovery) = state.namespace.blocks.closing(block, stamp) else {
            return refused(format!(
                "Expected the end of a block that is to be ended, came block {block} under {stamp}; it was begun anew, or is done"
            ));
        };
        let expected = recovery.length.unwrap_or(recovery.least);
        let fits = |length: u64| if recovery.length.is_some() { length == expected } else { length >= expected };
        if let Some(length) = length.filter(|length| !fits(*length)) {
            return refused(format!(
                "Expected block {block} with {expected} bytes, which were acknowledged, came {length}"
            ));
        }
        if let Some(length) = length {
            for place in places.iter().filter(|place| place.holder != Holder::HERE) {
                state.namespace.blocks.held(*place, Replica { block, stamp, length }, true);
            }
        }
        let change = state.namespace.finish_recovery(recovery, length, now());
        let lsn = change.map(|change| self.commit(&mut state, change)).transpose()?;
        state.namespace.blocks.closed(block);
        let position = lsn.or_else(|| state.pending.position(state.namespace.txid()));
        drop(state);
        self.wait(position)
    }

    /// What the data node in the process has to send to others.
    #[must_use]
    pub fn take_copies(&self) -> Vec<Copying> {
        if !self.may_tell() || self.is_quiet(&self.0.state.read()) {
            return Vec::new();
        }
        self.0.state.write().namespace.blocks.take_copies_here()
    }

    /// What was to be sent could not be.
    pub fn not_copied(&self, copy: Copying) {
        self.0.state.write().namespace.blocks.copied(copy.block.id, copy.to.holder);
    }

    /// Replicas of blocks of which no file is here: they go if the database has none either.
    pub(crate) fn check_replicas(&self) -> Result<(), DatabaseError> {
        let some = self.take_unchecked();
        let Some(behind) = self.0.behind.as_ref().filter(|_| !some.is_empty()) else { return Ok(()) };
        match behind.without_file(&some) {
            Ok(unwanted) => {
                self.forget(unwanted);
                Ok(())
            }
            Err(error) => {
                self.0.state.write().namespace.blocks.check_again(some);
                Err(error)
            }
        }
    }

    fn take_unchecked(&self) -> Vec<BlockId> {
        let mut state = self.0.state.write();
        let newest = state.namespace.counters();
        state.namespace.blocks.take_unchecked(behind::BATCH, newest)
    }

    /// No file has these blocks, as far as anybody but memory knows.
    fn forget(&self, mut blocks: Vec<BlockId>) {
        let mut state = self.0.state.write();
        blocks.retain(|block| state.namespace.blocks.inode(*block).is_none());
        state.namespace.blocks.forget(&blocks);
        let position = state.pending.position(state.namespace.txid());
        drop(state);
        self.remove_after(position, blocks);
    }

    /// Looks at replicas of the data node in the process that others found damaged, and removes those that are, or are of an older generation. Blocks.
    fn mend_here(&self, is_quiet: bool) -> Result<(), Unanswered> {
        if is_quiet {
            return Ok(());
        }
        let mut state = self.0.state.write();
        let durable = state.pending.durable(self.0.journal.durable(), state.namespace.txid());
        let doubtful = state.namespace.blocks.duties_here(durable);
        drop(state);
        for (block, stamp) in doubtful {
            self.wait(None)?;
            let replicas = &self.0.replicas;
            // Of that generation it may be sound; if it is older, it goes.
            let wanted = self.0.state.read().namespace.blocks.wanted_stamp(block);
            if wanted == Some(stamp) && replicas.read(block, stamp).is_ok_and(|reader| reader.check().is_ok()) {
                self.0.state.write().namespace.blocks.is_sound_here(block);
                continue;
            }
            match replicas.remove(block) {
                Ok(()) => {
                    tracing::warn!(%block, %stamp, "a replica here was damaged or old, and is removed: others are sound");
                    self.0.state.write().namespace.blocks.lost_here(block);
                }
                Err(error) => tracing::warn!(%block, %error, "a damaged replica could not be removed"),
            }
        }
        Ok(())
    }

    /// Looks after data nodes: who is dead, what has to be sent or removed, and whose work takes too long. Blocks.
    pub(crate) fn tend_nodes(&self) -> Result<(), Unanswered> {
        let late = self.late();
        let mut state = self.0.state.write();
        state.namespace.blocks.advance(late);
        let nodes = &mut state.namespace.blocks.nodes;
        if nodes.is_empty() && nodes.awaited().is_empty() {
            return Ok(());
        }
        if !nodes.awaited().is_empty() && late.0 > nodes.silence.dead {
            tracing::warn!(nodes = ?nodes.awaited(), "data nodes that were there before did not come; they are not waited for any more");
            nodes.await_nobody();
        }
        let dead = state.namespace.blocks.bury();
        if state.namespace.is_waiting && !is_waiting(&state.namespace) {
            tracing::info!("data nodes have reported: safe mode ends");
            state.namespace.is_waiting = false;
        }
        let is_quiet = self.is_quiet(&state);
        drop(state);
        for holder in &dead {
            tracing::warn!(?holder, "a data node was silent for too long; its replicas do not count any more");
        }
        self.keep_nodes();
        if self.0.behind.is_none() {
            let some = self.take_unchecked();
            if !some.is_empty() {
                self.forget(some);
            }
        }
        if !is_quiet {
            for _ in 0..LOOKS {
                if !self.0.state.write().namespace.blocks.look(AT_ONCE) {
                    break;
                }
            }
        }
        self.mend_here(is_quiet)?;
        let late: Vec<InodeId> = self.0.state.write().namespace.blocks.overdue().iter().map(|it| it.inode).collect();
        if late.is_empty() { Ok(()) } else { self.close_all_left(|_, _| late.clone()) }
    }
}
