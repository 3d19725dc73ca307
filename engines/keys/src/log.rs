//! The log of all actors of a node.
//!
//! One journal for all: what a transaction changes on several actors is one append, and all of them share a flush. An
//! actor appends at the end of its turn, before its messages and replies leave.
//!
//! So that the log does not grow for ever, it is *rewritten* while it serves: from some position on, each actor appends
//! all its keys once more, a few per turn, among its changes. Since a delta knows which version it leads to, the order does
//! not matter. When all actors are done and that is durable, the log before the position is not needed any more.
//! No process is forked, and nothing stands still.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use savanna_epoch::NodeEpoch;
use savanna_journal::{Draft, Filter, Journal, JournalError, Lsn, Options, Record, SealedLog};
use savanna_lattice::Hlc;

use crate::actor::{Actor, FIRST};
use crate::cluster::owners::virtual_node_of;
use crate::delta::{self, Body, Header, Malformed};
use crate::error::{CommandError, Outcome};
use crate::group::Records;
use crate::keyspace::adoption::Adopted;
use crate::keyspace::{Keyspace, is_of_library};
use crate::placement::{Routes, group_of};

/// The kinds of records: deltas, or a part of deltas that are too many for one record. Only what has an end counts.
const DELTAS: u16 = 1;
const BEGINNING: u16 = 2;
const MIDDLE: u16 = 3;
const END: u16 = 4;
/// A file is being put into the log: what is there before is of one that was not there as a whole, and void. And: it is there as a whole.
/// Builds that do not know these find no deltas in them.
const LOADING: u16 = 5;
const LOADED: u16 = 6;

/// Deltas that have to be in the log together are cut into records of at most so many bytes.
const RECORD_BYTES_MAX: usize = 32 << 20;

/// Opens the log and puts what is in it into the actors: all of a node, in the order of their numbers.
///
/// # Errors
/// Those of [`Journal::open`].
///
/// # Panics
/// If there are not as many actors as each of them knows of.
pub fn recover(options: Options, epoch: NodeEpoch, actors: &mut [Actor]) -> Result<Arc<Journal>, JournalError> {
    let routes = Routes::over(actors.len() as u16);
    let mut keyspaces: Vec<&mut Keyspace> = actors.iter_mut().map(|actor| &mut actor.keys).collect();
    let (journal, is_half_loaded) = recover_keyspaces(options, epoch, &routes, &mut keyspaces)?;
    actors[FIRST.index()].is_half_loaded = is_half_loaded;
    Actor::recover_libraries(actors);
    actors.iter_mut().for_each(Actor::hold_lent);
    Ok(journal)
}

/// Says in the log that a file is being put into it, which makes all void that is there. It has to have nothing, or a part of a file.
#[must_use]
pub const fn loading() -> Draft<'static> {
    Draft { shard: 0, kind: LOADING, payload: b"" }
}

/// Says in the log that the file is there as a whole. Without this behind it, nothing of it is kept.
#[must_use]
pub const fn loaded() -> Draft<'static> {
    Draft { shard: 0, kind: LOADED, payload: b"" }
}

/// Gives the log, and whether a file was not put into it as a whole: then there are no keys.
fn recover_keyspaces(
    options: Options,
    epoch: NodeEpoch,
    routes: &Routes,
    keyspaces: &mut [&mut Keyspace],
) -> Result<(Arc<Journal>, bool), JournalError> {
    let mut reading = Reading::begin(routes, keyspaces, &|_| true);
    let options = options.segment_bytes(SEGMENT_BYTES).patience(PATIENCE);
    let journal = Journal::open(options, epoch, &mut |record| reading.take(&record))?;
    let (latest, is_half_loaded) = reading.end();
    let journal = Arc::new(journal);
    let last = keyspaces.iter().map(|keyspace| keyspace.last_writer()).max().unwrap_or_default();
    for (keyspace, id) in keyspaces.iter_mut().zip(routes.all()) {
        keyspace.belong_to(id, last);
        // Also later than what was deleted, of which nothing is left.
        keyspace.observe(latest);
        keyspace.log.enable(true);
        keyspace.log_space = LogSpace::of(&journal);
    }
    for first in routes.all() {
        for recovered in keyspaces[first.index()].recovered() {
            keyspaces.iter_mut().for_each(|keyspace| keyspace.take_copy(first, &recovered));
        }
    }
    Ok((journal, is_half_loaded))
}

/// What a log that has ended has of some virtual nodes.
#[derive(Debug)]
pub struct Inherited {
    /// Their keys.
    pub keys: Vec<Adopted>,
    /// What is lent of them to groups, and what groups owe that were led from them.
    pub groups: Records,
    /// The latest version of anything.
    pub latest: Hlc,
}

/// What a log that has ended has of the virtual nodes that are `wanted`. The call blocks.
///
/// # Errors
/// Those of [`SealedLog::read`].
pub fn inherit(log: &SealedLog, seed: u64, wanted: &dyn Fn(u16) -> bool) -> Result<Inherited, JournalError> {
    let routes = Routes::over(1);
    let mut keyspace = Keyspace::new(routes.clone(), seed);
    let mut keyspaces = [&mut keyspace];
    let is_wanted = |header: &Header<'_>| !is_of_library(header) && wanted(virtual_node_of(group_of(header.key)));
    let mut reading = Reading::begin(&routes, &mut keyspaces, &is_wanted);
    log.read(&Filter::default(), &mut |record| reading.take(&record))?;
    let (latest, _) = reading.end();
    let last = keyspace.last_writer();
    keyspace.belong_to(FIRST, last);
    // What was at several threads is merged: it is as a key of one.
    keyspace.recovered();
    let latest = latest.max(keyspace.latest_version());
    let groups = std::mem::take(&mut keyspace.groups);
    Ok(Inherited { keys: keyspace.take_out(), groups, latest })
}

/// The keys of a virtual node that comes from another node, as its deltas say. Nobody sees them here.
#[derive(Debug)]
pub struct Staging {
    keys: Box<Keyspace>,
    /// The beginning of a delta whose end has not come.
    rest: Vec<u8>,
}

impl Staging {
    /// Nothing has come.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { keys: Box::new(Keyspace::new(Routes::over(1), seed)), rest: Vec::new() }
    }

    /// Takes deltas, in the order in which they were written. They may be cut anywhere: what is next begins where this ends.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn take(&mut self, deltas: &[u8]) -> Result<(), Malformed> {
        self.rest.extend_from_slice(deltas);
        let whole = delta::whole_deltas(&self.rest);
        delta::read_all(&self.rest[..whole], &mut |header, body| self.keys.replay(header, body))?;
        self.rest.drain(..whole);
        Ok(())
    }

    /// All keys that have come, and the latest version of anything.
    ///
    /// # Errors
    /// [`Malformed`] if the end of the last delta has not come.
    pub fn end(self) -> Result<(Vec<Adopted>, Hlc), Malformed> {
        if !self.rest.is_empty() {
            return Err(Malformed::new("no end"));
        }
        let mut keyspace = *self.keys;
        let last = keyspace.last_writer();
        keyspace.belong_to(FIRST, last);
        keyspace.recovered();
        let latest = keyspace.latest_version();
        Ok((keyspace.take_out(), latest))
    }
}

/// Puts what is in a log into keyspaces.
struct Reading<'r, 'k> {
    routes: &'r Routes,
    keyspaces: &'r mut [&'k mut Keyspace],
    /// Which keys are.
    wanted: &'r dyn Fn(&Header<'_>) -> bool,
    begun: HashMap<u64, Vec<u8>>,
    latest: Hlc,
    is_half_loaded: bool,
}

impl<'r, 'k> Reading<'r, 'k> {
    fn begin(
        routes: &'r Routes,
        keyspaces: &'r mut [&'k mut Keyspace],
        wanted: &'r dyn Fn(&Header<'_>) -> bool,
    ) -> Self {
        Self { routes, keyspaces, wanted, begun: HashMap::new(), latest: Hlc::ZERO, is_half_loaded: false }
    }

    fn take(&mut self, record: &Record) -> Result<(), Malformed> {
        let wanted = self.wanted;
        let Self { routes, keyspaces, begun, latest, is_half_loaded, .. } = self;
        let mut whole;
        let deltas: &[u8] = match record.kind {
            BEGINNING => {
                begun.insert(record.shard, record.payload.to_vec());
                return Ok(());
            }
            // What has no beginning was shortened away, and is in the log once more.
            MIDDLE => {
                if let Some(beginning) = begun.get_mut(&record.shard) {
                    beginning.extend_from_slice(&record.payload);
                }
                return Ok(());
            }
            END => match begun.remove(&record.shard) {
                None => return Ok(()),
                Some(beginning) => {
                    whole = beginning;
                    whole.extend_from_slice(&record.payload);
                    &whole
                }
            },
            LOADING => {
                *is_half_loaded = true;
                begun.clear();
                keyspaces.iter_mut().for_each(|keyspace| keyspace.forget_all());
                return Ok(());
            }
            LOADED => {
                *is_half_loaded = false;
                return Ok(());
            }
            _ => &record.payload,
        };
        delta::read_all(deltas, &mut |header, body| {
            *latest = (*latest).max(header.version);
            if matches!(body, Body::Swap { .. } | Body::Flush { .. } | Body::Forget { .. }) {
                return keyspaces.iter_mut().try_for_each(|keyspace| keyspace.replay(header, body));
            }
            if !wanted(&header) {
                return Ok(());
            }
            let actor = match is_of_library(&header) {
                true => FIRST,
                false => routes.actor_of(group_of(header.key)),
            };
            keyspaces[actor.index()].replay(header, body)
        })
    }

    /// The latest version of anything, and whether a file was not put into the log as a whole: then nothing of it is kept.
    fn end(self) -> (Hlc, bool) {
        if self.is_half_loaded {
            self.keyspaces.iter_mut().for_each(|keyspace| keyspace.forget_all());
        }
        (self.latest, self.is_half_loaded)
    }
}

/// How long changes wait for company before they are flushed, where replies do not wait for that.
const PATIENCE: Duration = Duration::from_millis(50);

/// The bytes of a log's segments.
pub const SEGMENT_BYTES: usize = 1 << 30;

impl Keyspace {
    /// Appends what was changed; each request's part all or nothing. Gives the position of the last record; `None` if nothing
    /// was changed.
    ///
    /// # Errors
    /// That of `append`. The changes that were not taken wait.
    pub(crate) fn append_changes(
        &mut self,
        append: impl FnMut(Draft<'_>) -> Result<Lsn, JournalError>,
    ) -> Result<Option<Lsn>, JournalError> {
        self.translate_changes();
        self.note_departures();
        append_in_records(self, RECORD_BYTES_MAX, append)
    }
}

fn append_in_records(
    keys: &mut Keyspace,
    record_bytes: usize,
    mut append: impl FnMut(Draft<'_>) -> Result<Lsn, JournalError>,
) -> Result<Option<Lsn>, JournalError> {
    // Other actors append meanwhile.
    let shard = u64::from(keys.actor().0);
    let mut last = None;
    while !keys.log.bytes().is_empty() {
        let (is_begun, rest) = keys.log.first_part();
        let payload = &rest[..rest.len().min(record_bytes)];
        let kind = match (is_begun, payload.len() == rest.len()) {
            (false, true) => DELTAS,
            (false, false) => BEGINNING,
            (true, false) => MIDDLE,
            (true, true) => END,
        };
        let draft = Draft { shard, kind, payload };
        last = Some(append(draft)?);
        let (changes, written) = (payload.len(), Journal::written_bytes(&[draft]));
        keys.log.drop_first(changes);
        keys.log_space.note_appended(written);
    }
    Ok(last)
}

/// Space in the log for what an actor changes next. It is taken before anything is changed: a change that finds none would wait,
/// and whoever reads what was changed with it.
#[derive(Debug, Default)]
pub struct LogSpace {
    journal: Option<Arc<Journal>>,
    /// What was taken for changes that are not appended.
    taken: usize,
}

impl LogSpace {
    /// So much is taken at once, so that most changes need not ask.
    const PORTION: usize = 256 << 10;

    fn of(journal: &Arc<Journal>) -> Self {
        Self { journal: Some(Arc::clone(journal)), taken: 0 }
    }

    /// Asks for space for changes of so many bytes, those that wait to be appended included.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn ask(&mut self, bytes: usize) -> Outcome {
        let missing =
            (bytes + Journal::written_bytes(&[Draft { shard: 0, kind: 0, payload: b"" }])).saturating_sub(self.taken);
        let Some(journal) = self.journal.as_ref().filter(|_| missing > 0) else { return Ok(()) };
        // A disk that is nearly full may have what is missing, and no more.
        let portion = missing.max(Self::PORTION);
        let taken = journal.take_space(portion).map(|()| portion);
        self.taken +=
            taken.or_else(|_| journal.take_space(missing).map(|()| missing)).map_err(|full| no_space(&full))?;
        Ok(())
    }

    fn note_appended(&mut self, bytes: usize) {
        let Some(journal) = &self.journal else { return };
        let left = self.taken.saturating_sub(bytes).min(2 * Self::PORTION);
        journal.give_back(self.taken - left);
        self.taken = left;
    }
}

/// What a change is told that the log has no space for.
pub(crate) fn no_space(cause: &dyn std::fmt::Display) -> CommandError {
    CommandError::from(format!("MISCONF writes are refused because the log cannot take them; reads go on. {cause}"))
}

#[cfg(test)]
mod tests {
    use savanna_lattice::UnixMillis;

    use super::*;
    use crate::keyspace::Expiry;

    fn opened(folder: &std::path::Path, epoch: u64, keys: &mut Keyspace) -> Arc<Journal> {
        recover_keyspaces(Options::dir(folder), NodeEpoch(epoch), &Routes::over(1), &mut [keys]).expect("a log").0
    }

    #[test]
    fn what_is_too_much_for_a_record_is_there_in_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut keys = Keyspace::new(Routes::over(1), 1);
        let journal = opened(folder.path(), 1, &mut keys);
        let never = Expiry::At(UnixMillis::NEVER);
        keys.set_string(b"a", &[b'a'; 1000], never);
        keys.set_string(b"b", &[b'b'; 1000], never);
        append_in_records(&mut keys, 300, |draft| journal.append(&[draft])).expect("takes it");
        assert!(keys.log.bytes().is_empty());
        // The process ends in the midst of the next change.
        keys.set_string(b"c", &[b'c'; 1000], never);
        let (is_begun, rest) = keys.log.first_part();
        assert!(!is_begun);
        journal.append(&[Draft { shard: 0, kind: BEGINNING, payload: &rest[..300] }]).expect("takes it");
        journal.close().expect("flushes");
        drop(journal);
        let mut again = Keyspace::new(Routes::over(1), 1);
        let journal = opened(folder.path(), 2, &mut again);
        assert_eq!(again.string(b"a").expect("a string"), Some(&[b'a'; 1000][..]));
        assert!(again.contains(b"b") && !again.contains(b"c"));
        // What comes behind it does not belong to it.
        again.set_string(b"d", b"d", never);
        again.append_changes(|draft| journal.append(&[draft])).expect("takes it");
        again.set_string(b"e", &[b'e'; 1000], never);
        append_in_records(&mut again, 300, |draft| journal.append(&[draft])).expect("takes it");
        journal.close().expect("flushes");
        drop(journal);
        let mut last = Keyspace::new(Routes::over(1), 1);
        opened(folder.path(), 3, &mut last);
        assert!(last.contains(b"d") && last.contains(b"e") && !last.contains(b"c"));
    }
}
