//! From what a command changed in an ordinary value to what replicas merge.

use savanna_lattice::{Hlc, Incarnated, Incarnation, Lattice as _, Stamp, TypeTag, UnixMillis};

use super::content::Content;
use super::{Replica, State, log_state};
use crate::delta::{Body, DeltaLog, Header, Malformed, REGISTERS_TAG, STRING_TAG, read_all, read_each};
use crate::keyspace::types::Collection as _;
use crate::keyspace::{Entry, Keyspace, List, Stream, log_whole};
use crate::number::integer;

impl Keyspace {
    /// Tells replicas what changed since the last call, if it was about keys with replicas.
    pub fn translate_changes(&mut self) {
        if self.replicas.is_empty() || self.log.unseen().is_empty() {
            return self.log.note_seen();
        }
        let mut concerns_any = false;
        // These are this actor's own deltas: they are read as they were written.
        let _ = read_all(self.log.unseen(), &mut |header, _| {
            concerns_any |= self.replicas.get(header.database, header.key).is_some();
            Ok(())
        });
        if concerns_any {
            let changes = self.log.take_unseen();
            let _ = read_each(&changes, |delta, header, body| {
                let is_of_others = matches!(body, Body::Replicated { .. }) || body.is_of_group();
                if is_of_others || !self.translate(header, body)? {
                    self.log.copy(delta);
                }
                Ok(())
            });
        }
        self.log.note_seen();
    }

    /// Turns a delta of an ordinary value into one of the replicas' state. Says whether the key has any.
    fn translate(&mut self, header: Header<'_>, body: Body<'_>) -> Result<bool, Malformed> {
        let (spot, now) = (self.spot_of(header.key), self.now);
        let entry = self.databases[usize::from(header.database)].as_ref().and_then(|all| all.find(spot, header.key));
        let Some(replica) = self.replicas.get_mut(header.database, header.key) else { return Ok(false) };
        let writer = replica.writer;
        let stamp = Stamp::new(header.version, writer);
        let delta = match body {
            Body::Delete => Some(replica.deleted(stamp, now)),
            Body::Expiry(at) => replica.state.as_ref().map(|state| state.expiring(header.version, at)),
            Body::Whole { is_kept, tag, expires_at, content } => {
                let is_counted = is_kept && tag == STRING_TAG;
                match is_counted.then(|| replica.counted(content, stamp, now)).flatten() {
                    Some(counted) => Some(counted),
                    None => Some(replica.rewritten((tag, content), stamp, expires_at, now)?),
                }
            }
            // Changed in parts, but merged as a whole.
            Body::Operations { tag: STRING_TAG | List::TAG | Stream::TAG, .. } => Some(restated(entry, stamp)?),
            // What lives is no HyperLogLog to the replicas: its bytes are damaged, or an earlier build told of them.
            Body::Operations { tag: REGISTERS_TAG, .. }
                if header.base != Hlc::ZERO && !replica.lives_as(REGISTERS_TAG, now) =>
            {
                Some(restated(entry, stamp)?)
            }
            Body::Operations { tag, operations } => {
                let mut state = replica.changed(tag, operations, stamp, now)?;
                // It had become empty, so that there was no key; the one that begins does not expire.
                let expires = replica.state.as_ref().is_some_and(|state| state.expires_at() != UnixMillis::NEVER);
                if header.base == Hlc::ZERO && expires {
                    state.merge(state.expiring(header.version, UnixMillis::NEVER));
                }
                Some(state)
            }
            Body::Replicated { .. }
            | Body::Swap { .. }
            | Body::Flush { .. }
            | Body::Forget { .. }
            | Body::Lent { .. }
            | Body::Returned { .. }
            | Body::Committed { .. }
            | Body::Ended { .. } => None,
        };
        if let Some(delta) = delta {
            let bytes = log_state(&mut self.log, header, replica.vector, writer, Some(&delta));
            replica.note_change(delta, bytes);
            if !replica.is_borrowed {
                self.replicas.list(header.database, header.key);
                self.note_presence(header.database, header.key);
            }
            self.weigh(header.database, header.key);
        }
        Ok(true)
    }
}

impl Replica {
    /// The state of a life that goes on.
    fn living(&mut self, now: UnixMillis) -> Option<&mut State> {
        self.state.as_mut().filter(|state| state.value(now).is_some())
    }

    /// Whether the life that goes on is of a type.
    fn lives_as(&mut self, tag: u8, now: UnixMillis) -> bool {
        self.living(now).is_some_and(|state| state.incarnation().tag == TypeTag(tag))
    }

    /// What this replica has seen is deleted, and nothing else: a collection goes on without elements, the life of
    /// anything else ends.
    pub(super) fn deleted(&mut self, stamp: Stamp, now: UnixMillis) -> State {
        let cleared = self.cleared(stamp, UnixMillis::NEVER, now);
        cleared.or_else(|| self.state.as_ref().map(Incarnated::ended)).unwrap_or_else(|| Incarnated::deleted(stamp))
    }

    /// Removes the elements that this replica has seen from a collection that lives; it expires at a time from now on.
    fn cleared(&mut self, stamp: Stamp, expires_at: UnixMillis, now: UnixMillis) -> Option<State> {
        let state = self.living(now)?;
        let change = state.value_mut()?.clear()?;
        let mut delta = state.delta(change);
        delta.merge(state.expiring(stamp.hlc, expires_at));
        Some(delta)
    }

    /// Writes a whole value in the place of what this replica has seen: into the present life if both are collections of
    /// one type, so that what others add at the same time survives.
    fn rewritten(
        &mut self,
        (tag, content): (u8, &[u8]),
        stamp: Stamp,
        expires_at: UnixMillis,
        now: UnixMillis,
    ) -> Result<State, Malformed> {
        let cleared = if self.lives_as(tag, now) { self.cleared(stamp, expires_at, now) } else { None };
        match (cleared, self.state.as_mut().and_then(Incarnated::value_mut)) {
            (Some(mut delta), Some(elements)) => {
                let change = elements.change(content, stamp)?;
                delta.merge(delta.delta(change));
                Ok(delta)
            }
            _ => Ok(begin(stamp, Content::of_whole(tag, content, stamp)?, expires_at)),
        }
    }

    /// A number counted to the one that is spelled; `None` if what lives is no number.
    fn counted(&mut self, spelled: &[u8], stamp: Stamp, now: UnixMillis) -> Option<State> {
        let state = self.living(now)?;
        let change = state.value_mut()?.count_to(integer(spelled)?, stamp)?;
        Some(state.delta(change))
    }

    /// Changes a collection, in the present life if that is of its type.
    fn changed(&mut self, tag: u8, operations: &[u8], stamp: Stamp, now: UnixMillis) -> Result<State, Malformed> {
        let same = self.living(now).map(|state| state.incarnation()).filter(|life| life.tag == TypeTag(tag));
        let incarnation = match same {
            Some(same) => same,
            None => {
                // All who know what was before begin the same.
                let before = self.state.as_ref().map(|state| state.ended().incarnation());
                let begun =
                    before.map_or_else(|| Incarnation::new(stamp, TypeTag(tag)), |dead| dead.revived(TypeTag(tag)));
                self.state.merge(Some(Incarnated::begin(begun, Content::empty(tag)?)));
                begun
            }
        };
        match self.state.as_mut().and_then(Incarnated::value_mut) {
            Some(content) => {
                let change = content.change(operations, stamp)?;
                Ok(Incarnated::begin(incarnation, change))
            }
            None => Ok(Incarnated::begin(incarnation, Content::empty(tag)?)),
        }
    }
}

/// The beginning of an incarnation that expires at a time.
fn begin(stamp: Stamp, content: Content, expires_at: UnixMillis) -> State {
    let mut state = Incarnated::begin(Incarnation::new(stamp, content.tag()), content);
    if expires_at != UnixMillis::NEVER {
        state.merge(state.expiring(stamp.hlc, expires_at));
    }
    state
}

/// A value that was changed in parts, written anew as a whole.
fn restated(entry: Option<&Entry>, stamp: Stamp) -> Result<State, Malformed> {
    let Some(entry) = entry else { return Ok(Incarnated::deleted(stamp)) };
    let mut scratch = DeltaLog::new();
    scratch.enable(true);
    let header = Header { database: 0, key: &entry.key, base: Hlc::ZERO, version: stamp.hlc };
    log_whole(&mut scratch, header, entry);
    let mut state = Incarnated::deleted(stamp);
    read_all(scratch.bytes(), &mut |_, body| {
        if let Body::Whole { tag, expires_at, content, .. } = body {
            state = begin(stamp, Content::of_whole(tag, content, stamp)?, expires_at);
        }
        Ok(())
    })?;
    Ok(state)
}
