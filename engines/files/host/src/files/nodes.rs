//! Data nodes of other processes: what they say goes to the block manager, and what they are to do comes from there.
//!
//! Nobody is told to do anything who could not be told an answer: a process that was replaced gives no orders.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use savanna_files::blocks::{
    Comparison, Copying, Duties, Heartbeat, Here, Holder, Liveness, NodeShown, NotEnded, Outdated, Place,
    RecoveryOrder, Registration, Replica, State as ReplicaState,
};
use savanna_files::ids::{BlockId, InodeId, Millis, Stamp, Txid};
use savanna_files::{Class, FilesError, Namespace};
use savanna_files_database::DatabaseError;
use savanna_files_datanode::{Found, Recovered};
use savanna_journal::Lsn;

use super::{AT_ONCE, Files, State, Unanswered, now};
use crate::behind;

/// The file with the names of data nodes, one a line: at the next start they are waited for before anything is removed.
const KEPT: &str = "nodes";
/// Before the name of one that has not come back, and behind it, before the newest block that may be there: it is not waited for, and what was written
/// there may be nowhere else.
const LOST: char = '\t';
/// Replicas that are compared with their checksums in a turn.
const COMPARED: usize = 4;
/// Looks at blocks in a turn, while writers wait each time.
const LOOKS: usize = 64;
/// Parts of what is gone that are taken from their blocks in a turn, while writers wait each time.
const PARTS_GONE: usize = 256;
/// Parts of what a data node removes between two heartbeats: about 1,000 replicas, as Hadoop's name node tells it.
const PARTS_REMOVED: usize = 4;

/// What a data node says that a storage has: replicas, and what each is.
#[derive(Debug)]
pub struct Report {
    /// The storage.
    pub storage: String,
    /// Of which kind it is, by the number that clients know.
    pub kind: i32,
    /// All that it has.
    pub replicas: Vec<(Replica, ReplicaState)>,
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

/// The block manager hears of the data nodes that there were before, if there ever were any.
pub(super) fn recall(directory: &Path, namespace: &mut Namespace) -> io::Result<()> {
    let bytes = match fs::read(directory.join(KEPT)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let newest = namespace.counters().block;
    let nodes = &mut namespace.blocks.nodes;
    nodes.had_others();
    for name in String::from_utf8_lossy(&bytes).lines() {
        match name.strip_prefix(LOST) {
            Some(line) => {
                let (name, newest) = line.split_once(LOST).unwrap_or((line, ""));
                nodes.lose(name.to_owned(), BlockId(newest.parse().unwrap_or(u64::MAX)));
            }
            None => nodes.await_all([name.to_owned()], newest),
        }
    }
    Ok(())
}

/// Whether changes are refused until data nodes have reported that were there before.
pub(super) fn is_waiting(namespace: &Namespace) -> bool {
    !namespace.blocks.nodes.awaited().is_empty() && !namespace.blocks.are_enough()
}

/// What a process of a data node said before it ended does not count when the next one has registered.
fn check_connection(state: &State, uuid: &str, connection: u64) -> Result<(), Unanswered> {
    let nodes = &state.namespace.blocks.nodes;
    if nodes.find(uuid).is_some_and(|holder| nodes.is_late(holder, connection)) {
        let words = format!(
            "Expected what {uuid} says since it registered, came what it had said before over an older connection"
        );
        return Err(FilesError::new(Class::Io, words).into());
    }
    Ok(())
}

fn is_same(registration: &Registration, address: &str, ports: [u32; 2]) -> bool {
    registration.address == address && [registration.transfer_port, registration.ipc_port] == ports
}

fn keep(directory: &Path, lines: &BTreeSet<String>) -> io::Result<()> {
    let beside = directory.join("nodes.new");
    let mut file = File::create(&beside)?;
    for line in lines {
        writeln!(file, "{line}")?;
    }
    file.sync_all()?;
    fs::rename(&beside, directory.join(KEPT))?;
    File::open(directory)?.sync_all()
}

/// What the data node in the process has of a block that is to be ended.
pub(super) fn here(found: Found) -> Here {
    let Found { stamp, length, state } = found;
    let state = match state {
        Recovered::Whole => ReplicaState::Whole,
        Recovered::Begun => ReplicaState::Begun,
        Recovered::Left => ReplicaState::Left,
    };
    Here { stamp, length, state }
}

/// Why it does not count what a data node says of the end of a block with so many bytes, of at most so many.
fn not_ended(why: NotEnded, (block, stamp): (BlockId, Stamp), (length, most): (Option<u64>, u64)) -> String {
    match why {
        NotEnded::Unknown => format!(
            "Expected the end of a block that is to be ended, came block {block} under {stamp}; it was begun anew, or is done"
        ),
        NotEnded::Stranger(holder) => format!("Expected data nodes that have block {block}, came {holder:?}"),
        NotEnded::OfNobody => format!("Expected who has block {block} now, came nobody; it is begun anew"),
        NotEnded::SomebodyHas => {
            format!(
                "Expected the bytes of block {block} that a data node has, came that nobody has any; it is begun anew"
            )
        }
        NotEnded::Misfit(least) => {
            let came = length.unwrap_or(0);
            format!("Expected block {block} with {least} bytes, which were acknowledged, up to {most}, came {came}")
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
        let Registration { uuid, address, transfer_port, ipc_port, .. } = &registration;
        if uuid.is_empty() || uuid.contains(['\n', '\r', LOST]) {
            let words = format!("Expected a data node with a name on one line without tabs, came {uuid:?}");
            return Err(FilesError::new(Class::IllegalArgument, words).into());
        }
        let late = self.late();
        let mut state = self.0.state.write();
        state.namespace.blocks.advance(late);
        check_connection(&state, uuid, registration.connection)?;
        if let Some((other, Liveness::Live)) = state.namespace.blocks.nodes.registration(uuid)
            && !is_same(other, address, [*transfer_port, *ipc_port])
        {
            let words = format!(
                "Expected one data node of the name {uuid}, came another one; {} has it, and is there: was a disk copied?",
                other.address
            );
            return Err(FilesError::new(Class::Io, words).into());
        }
        drop(state);
        tracing::info!(%uuid, %address, transfer_port, "a data node registers");
        // Its name is on the disk before anything is, and nobody takes it away in between: the next start waits for it.
        let mut kept = self.0.nodes_kept.lock();
        self.keep_nodes_with(&mut kept, Some(uuid))
            .map_err(|error| FilesError::new(Class::Io, format!("the name of a data node cannot be kept: {error}")))?;
        let mut state = self.0.state.write();
        let registered = state.namespace.blocks.register(registration);
        drop(kept);
        let Some(_) = registered else {
            let words = "Expected at most 10000 data nodes since the process began, with names of at most 256 bytes, came another one";
            return Err(FilesError::new(Class::Io, words).into());
        };
        drop(state);
        self.wait(None)
    }

    /// Keeps the names of data nodes on the disk, with that of another one.
    fn keep_nodes_with(&self, kept: &mut Option<BTreeSet<String>>, new: Option<&str>) -> io::Result<()> {
        let state = self.0.state.read();
        let nodes = &state.namespace.blocks.nodes;
        let mut lines: BTreeSet<String> = nodes.awaited().clone();
        let there = nodes.shown().into_iter().filter(|node| node.liveness != Liveness::Dead);
        lines.extend(there.map(|node| node.registration.uuid));
        lines.extend(new.map(str::to_owned));
        let lost = nodes.lost().into_iter().filter(|(name, _)| !lines.contains(name));
        let lost: Vec<String> = lost.map(|(name, newest)| format!("{LOST}{name}{LOST}{newest}")).collect();
        lines.extend(lost);
        drop(state);
        if kept.as_ref() == Some(&lines) || !self.may_tell() {
            return Ok(());
        }
        keep(&self.0.directory, &lines)?;
        *kept = Some(lines);
        Ok(())
    }

    /// Whether a data node that says something over a connection is the one that registered under its name.
    ///
    /// # Errors
    /// [`Unanswered::Refused`], if it is not.
    pub fn check_node(&self, uuid: &str, address: &str, ports: [u32; 2], connection: u64) -> Result<(), Unanswered> {
        let state = self.0.state.read();
        check_connection(&state, uuid, connection)?;
        match state.namespace.blocks.nodes.registration(uuid) {
            Some((other, _)) if !is_same(other, address, ports) => {
                let words =
                    format!("Expected the data node that registered as {uuid}, at {}, came another one", other.address);
                Err(FilesError::new(Class::Io, words).into())
            }
            _ => Ok(()),
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
        let mut orders = blocks.heard(holder, heartbeat).map(|lease| {
            let duties = blocks.duties(holder, durable);
            Orders { duties, lease, txid }
        });
        let registered = blocks.nodes.registered(holder);
        drop(state);
        if let Some(orders) = &mut orders {
            self.remove_more(holder, registered, &mut orders.duties);
        }
        self.wait(None)?;
        Ok(orders)
    }

    /// What else a data node is to remove, a part at a time, as long as it has not registered again.
    fn remove_more(&self, holder: Holder, registered: u64, duties: &mut Duties) {
        for _ in 1..PARTS_REMOVED {
            let mut state = self.0.state.write();
            let is_same = state.namespace.blocks.nodes.registered(holder) == registered;
            if !duties.has_more || !is_same || self.is_quiet(&state) {
                return;
            }
            let durable = state.pending.durable(self.0.journal.durable(), state.namespace.txid());
            let (removals, has_more) = state.namespace.blocks.removals(holder, durable);
            duties.removals.extend(removals);
            duties.has_more = has_more;
        }
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
    pub fn node_reports(&self, uuid: &str, lease: u64, reports: Vec<Report>, is_last: bool) -> Result<(), Unanswered> {
        let late = self.late();
        let mut state = self.0.state.write();
        let holder = Self::holder(&state, uuid)?;
        state.namespace.blocks.advance(late);
        if !state.namespace.blocks.nodes.may_report(holder, lease) {
            let words =
                format!("Expected a report under a number that was given for it, came {lease}; it is given again");
            return Err(FilesError::new(Class::ReportLease, words).into());
        }
        let blocks = &mut state.namespace.blocks;
        let registered = blocks.nodes.registered(holder);
        // What is said of any of them from now on is newer than all of it.
        let begin =
            |Report { storage, kind, replicas }| Some((blocks.begin_comparing(holder, &storage, kind)?, replicas));
        let begun: Vec<_> = reports.into_iter().filter_map(begin).collect();
        drop(state);
        // What was said before a registration, or before a silence that was too long, does not count behind it; nor before a newer report.
        let old = |why: Outdated| Unanswered::from(FilesError::new(Class::Io, why.to_string()));
        for (begun, replicas) in begun {
            let mut comparison = Comparison::new(begun, replicas);
            while self.0.state.write().namespace.blocks.compare(&mut comparison, AT_ONCE).map_err(old)? {}
        }
        if is_last {
            let mut state = self.0.state.write();
            if state.namespace.blocks.nodes.registered(holder) != registered {
                return Err(old(Outdated::RegisteredAgain));
            }
            state.namespace.blocks.all_reported(holder);
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
            drop(state);
            let whole =
                some.iter().filter_map(|told| if let Told::Whole(replica) = told { Some(replica) } else { None });
            whole.for_each(|replica| self.0.awaited.reported(replica.block));
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

    /// Storages of data nodes by their names, and whether that are all: those that nobody knows are left out.
    #[must_use]
    pub fn places_of<'n>(&self, names: impl Iterator<Item = (&'n str, &'n str)>, own: &str) -> (Vec<Place>, bool) {
        let state = self.0.state.read();
        let nodes = &state.namespace.blocks.nodes;
        let place =
            |(uuid, storage): (&str, &str)| if uuid == own { Some(Place::HERE) } else { nodes.place(uuid, storage) };
        let places: Vec<Option<Place>> = names.map(place).collect();
        let are_all = places.iter().all(Option::is_some);
        (places.into_iter().flatten().collect(), are_all)
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
        // The disk is not waited for by anybody else.
        let here = self.0.replicas.look(block).map(here);
        let mut state = self.0.state.write();
        let inode = state.namespace.blocks.inode(block).and_then(|inode| state.namespace.tree().get(inode));
        let most = inode.and_then(|inode| inode.file()).map_or(0, |file| file.block_size.bytes());
        let ended = state.namespace.blocks.ended((block, stamp), (length, most), places, here);
        let recovery = match ended {
            Ok(recovery) => recovery,
            Err(why) => return refused(not_ended(why, (block, stamp), (length, most))),
        };
        let Some(change) = state.namespace.finish_recovery(recovery, length, now()) else {
            return refused(format!(
                "Expected a file that is to be closed with block {block}, came {stamp}; it was begun anew, or is gone"
            ));
        };
        let lsn = self.commit(&mut state, change)?;
        state.namespace.blocks.closed(block);
        drop(state);
        self.wait(Some(lsn))
    }

    /// What a data node was told to end of a block under a generation, if it has not yet: who says otherwise is none.
    #[must_use]
    pub fn to_be_ended(&self, block: BlockId, stamp: Stamp) -> Option<RecoveryOrder> {
        let state = self.0.state.read();
        let closing = state.namespace.blocks.closing(block, stamp).filter(|_| self.may_tell());
        closing.map(|(_, order)| order.clone())
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
        self.0.state.write().namespace.blocks.not_copied(copy.block.id);
    }

    /// The data node in the process was to send a replica, and has none, perhaps.
    pub fn is_lost_here(&self, block: BlockId) {
        if self.0.replicas.stamp(block).is_none() {
            tracing::warn!(%block, "a replica here is lost");
            self.0.state.write().namespace.blocks.lost_here(block);
        }
    }

    /// Whether a replica may be taken that another data node sends.
    #[must_use]
    pub fn expects_here(&self, block: BlockId, stamp: Stamp) -> bool {
        self.0.state.read().namespace.blocks.expects_here(block, stamp)
    }

    /// Replicas of blocks of which no file is here: they go if the database has none either.
    pub(crate) fn check_replicas(&self) -> Result<(), DatabaseError> {
        let some = self.take_unchecked();
        let Some(behind) = self.0.behind.as_ref().filter(|_| !some.is_empty()) else { return Ok(()) };
        match behind.without_file(&some) {
            Ok(unwanted) => {
                self.forget(&unwanted);
                Ok(())
            }
            Err(error) => {
                for part in some.chunks(AT_ONCE) {
                    self.0.state.write().namespace.blocks.check_again(part.iter().copied());
                }
                Err(error)
            }
        }
    }

    fn take_unchecked(&self) -> Vec<BlockId> {
        let mut taken = Vec::new();
        for _ in 0..behind::BATCH / AT_ONCE {
            let mut state = self.0.state.write();
            let newest = state.namespace.counters();
            taken.extend(state.namespace.blocks.take_unchecked(AT_ONCE, newest));
        }
        taken
    }

    /// No file has these blocks, as far as anybody but memory knows.
    fn forget(&self, blocks: &[BlockId]) {
        for part in blocks.chunks(AT_ONCE) {
            let mut part = part.to_vec();
            let mut state = self.0.state.write();
            part.retain(|block| state.namespace.blocks.inode(*block).is_none());
            state.namespace.blocks.forget(&part);
            let position = state.pending.position(state.namespace.txid());
            drop(state);
            self.remove_after(position, part);
        }
    }

    /// Compares replicas of the data node in the process with their checksums that are in doubt, a few at a time, and removes those that are damaged or old while
    /// others are sound. Blocks.
    fn mend_here(&self, is_quiet: bool) -> Result<(), Unanswered> {
        if is_quiet {
            return Ok(());
        }
        let mut state = self.0.state.write();
        let durable = state.pending.durable(self.0.journal.durable(), state.namespace.txid());
        let doubtful = state.namespace.blocks.duties_here(durable, COMPARED);
        drop(state);
        for block in doubtful {
            let replicas = &self.0.replicas;
            let is_sound = replicas.read(block, Stamp(0)).is_ok_and(|reader| reader.check().is_ok());
            self.wait(None)?;
            // It is decided again, with what is so by now.
            let Some(stamp) = self.0.state.write().namespace.blocks.compared_here(block, is_sound) else { continue };
            match replicas.remove_generation(block, stamp) {
                Ok(()) => {
                    tracing::warn!(%block, %stamp, "a replica here was damaged or old, and is removed: others are sound")
                }
                Err(error) => tracing::warn!(%block, %error, "a damaged replica could not be removed"),
            }
        }
        Ok(())
    }

    /// Changes are not refused any more if data nodes have reported enough of what there was before.
    fn end_waiting(&self) {
        let mut state = self.0.state.write();
        if state.namespace.is_waiting && !is_waiting(&state.namespace) {
            tracing::info!("data nodes have reported: safe mode ends");
            state.namespace.is_waiting = false;
        }
    }

    /// Looks after data nodes: who is dead, what has to be sent or removed, and whose work takes too long. Blocks.
    pub(crate) fn tend_nodes(&self) -> Result<(), Unanswered> {
        let late = self.late();
        let mut state = self.0.state.write();
        state.namespace.blocks.advance(late);
        let newest = state.namespace.counters().block;
        let nodes = &state.namespace.blocks.nodes;
        if nodes.are_alone() {
            return Ok(());
        }
        if !nodes.awaited().is_empty() && late.0 > nodes.silence.dead {
            tracing::warn!(nodes = ?nodes.awaited(), "data nodes that were there before did not come; they are not waited for any more");
            state.namespace.blocks.await_nobody();
        }
        let dead = state.namespace.blocks.bury(newest);
        let is_quiet = self.is_quiet(&state);
        drop(state);
        for holder in &dead {
            tracing::warn!(?holder, "a data node was silent for too long; its replicas do not count any more");
        }
        if let Err(error) = self.keep_nodes_with(&mut self.0.nodes_kept.lock(), None) {
            tracing::warn!(%error, "the names of data nodes could not be written");
        }
        if self.0.behind.is_none() {
            self.forget(&self.take_unchecked());
        }
        for _ in 0..PARTS_GONE {
            if !self.0.state.write().namespace.blocks.take_gone(AT_ONCE) {
                break;
            }
        }
        self.end_waiting();
        if !is_quiet {
            self.0.state.write().namespace.blocks.begin_turn();
            for _ in 0..LOOKS {
                if !self.0.state.write().namespace.blocks.look(AT_ONCE) {
                    break;
                }
            }
        }
        self.mend_here(is_quiet)?;
        let overdue = self.0.state.write().namespace.blocks.overdue();
        let (told, waiting): (Vec<_>, Vec<_>) = overdue.into_iter().partition(|(_, is_told)| *is_told);
        let mut done = Ok(());
        for (recovery, _) in waiting {
            // Nobody knows of it: its generation is still good.
            match self.close_left(Lsn(0), recovery) {
                Ok(_) => {}
                Err(Unanswered::Gone) => return Err(Unanswered::Gone),
                Err(error) => done = Err(error),
            }
        }
        let told: Vec<InodeId> = told.iter().map(|(recovery, _)| recovery.inode).collect();
        if told.is_empty() { done } else { self.close_all_left(|_, _| told.clone()).and(done) }
    }
}
