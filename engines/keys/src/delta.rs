//! Changes of keys as bytes: what goes to the log and into snapshots.
//!
//! A delta belongs to one key and says from which version it leads to which. Format 1, little-endian:
//!
//! ```text
//! ┌────────┬──────┬────┬────────┬─────┬──────┬─────────┬─────────────────────────────┐
//! │ length │ kind │ db │ length │ key │ base │ version │ by kind                     │   length: of all that follows it;
//! └────────┴──────┴────┴────────┴─────┴──────┴─────────┴─────────────────────────────┘     of 4 GiB and more, ff ff ff ff and
//!  4 or 12  1      1    4              8      8                                            8 bytes
//!  1 whole       type 1, expiry 8, content: a string's bytes, or operations upon nothing
//!  2 operations  type 1, operations; of a string, where a part begins 8, length 4, the part: zeros are before it, if it begins
//!                behind the end
//!  3 delete
//!  4 expiry      when 8
//!  5 kept        as whole; the value stays in its life
//!  6 replicated  since 8, copies 8, writer 8, a part of the replicas' state (savanna_lattice::form), or nothing;
//!                0 copies: it has no replicas any more, and its value follows
//!  7 swap        the other db 1; the key is empty: all keys of the two, at all actors
//!  8 flush       1 if all dbs are meant, and not the one alone, 1; the key is empty: all keys, at all actors
//!  9 forget      the virtual node 2; the key is empty: its keys in all dbs, which are in another log from here on, or come from there
//! 10 lent        group 18; the keys, each length 4 and its bytes. Of one virtual node, as the key is, which is the first of them; the version is
//!                the loan's number
//! 11 returned    group 18; the key's virtual node has nothing lent to it any more
//! 12 committed   group 18; for each virtual node that has lent it keys: its number 8, the loan's 8, length 8, deltas that are to be written
//!                there. The key is one of the virtual node that leads
//! 13 ended       group 18; all of that is written
//! ```
//!
//! A group is the virtual node that leads it 2, the life 8 and the number 8.
//!
//! A *whole*, a *kept* and a *delete* apply if they are later than what is there; *operations* and *expiry* only exactly at
//! their base. What is *replicated* merges. So a log may be replayed from any point before a snapshot, and twice; one with a
//! *swap*, a *flush* or a *forget*, which apply to what is there, once.

use savanna_lattice::{Hlc, UnixMillis, WriterId};

use crate::changed::{ChangedKeys, Changes};
use crate::group::{Commit, GroupId, Lend};

/// The type tag of strings; collections have [`Collection::TAG`](crate::keyspace::Collection::TAG).
pub const STRING_TAG: u8 = 1;
/// That of operations on the registers of a HyperLogLog, which is a string. They are of keys with replicas, whose state takes them: the log
/// never has any.
pub const REGISTERS_TAG: u8 = 8;

/// Bytes that are no delta.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a change of a key, found {0}; the log was written by another version, or is damaged in a way that its checksums did not detect"
)]
pub struct Malformed(String);

impl Malformed {
    /// An operation that a type does not have.
    #[must_use]
    pub fn operation(of: &'static str, tag: u8) -> Self {
        Self(format!("operation {tag} on a {of}"))
    }

    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

/// What a delta is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The database's number.
    pub database: u8,
    /// The key.
    pub key: &'a [u8],
    /// The version before; [`Hlc::ZERO`] of a key that was not there.
    pub base: Hlc,
    /// The version after.
    pub version: Hlc,
}

/// A delta's kind and content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// The whole value.
    Whole {
        /// Whether it was changed within its life, and not written anew.
        is_kept: bool,
        /// Its type.
        tag: u8,
        /// When it expires.
        expires_at: UnixMillis,
        /// A string's bytes, or operations.
        content: &'a [u8],
    },
    /// Changes of a value's parts.
    Operations {
        /// Its type.
        tag: u8,
        /// The operations.
        operations: &'a [u8],
    },
    /// The key is deleted.
    Delete,
    /// The key expires at another time.
    Expiry(UnixMillis),
    /// A change of a key with several replicas.
    Replicated {
        /// Since when it has so many.
        since: Hlc,
        /// How many.
        copies: u16,
        /// Who made the change.
        writer: WriterId,
        /// What changed, as the replicas keep it; empty if only their number did.
        state: &'a [u8],
    },
    /// All keys of the database, at all actors, are those of another one, and the other way round.
    Swap {
        /// The other one.
        with: u8,
    },
    /// All keys of the database, at all actors, are deleted.
    Flush {
        /// Whether those of all databases are.
        is_all: bool,
    },
    /// What is before this of the keys of a virtual node is void: they went to another node, or come from there as they are behind this.
    Forget {
        /// The virtual node.
        node: u16,
    },
    /// Keys are lent to a group, under the version as the loan's number.
    Lent {
        /// The group.
        group: GroupId,
        /// The keys.
        keys: &'a [u8],
    },
    /// They are free again.
    Returned {
        /// The group.
        group: GroupId,
    },
    /// A group is committed.
    Committed {
        /// The group.
        group: GroupId,
        /// What is to be written of keys that were lent to it.
        owed: &'a [u8],
    },
    /// All of that is written.
    Ended {
        /// The group.
        group: GroupId,
    },
}

impl Body<'_> {
    /// Whether it says something of a group, and nothing of a key's value.
    #[must_use]
    pub const fn is_of_group(&self) -> bool {
        matches!(self, Self::Lent { .. } | Self::Returned { .. } | Self::Committed { .. } | Self::Ended { .. })
    }
}

const WHOLE: u8 = 1;
const OPERATIONS: u8 = 2;
const DELETE: u8 = 3;
const EXPIRY: u8 = 4;
const KEPT: u8 = 5;
const REPLICATED: u8 = 6;
const SWAP: u8 = 7;
const FLUSH: u8 = 8;
const FORGET: u8 = 9;
const LENT: u8 = 10;
const RETURNED: u8 = 11;
const COMMITTED: u8 = 12;
const ENDED: u8 = 13;

/// Deltas that wait to be appended.
#[derive(Debug, Default)]
pub struct DeltaLog {
    bytes: Vec<u8>,
    /// Where the delta begins that is being written.
    open_at: usize,
    /// Where what waits may be cut into several appends.
    cuts: Vec<usize>,
    /// How many bytes of the first part are appended already.
    appended: usize,
    /// Where the changes begin that replicas have not seen.
    unseen_at: usize,
    enabled: bool,
    /// Keys of what is written, if anybody wants to hear of them.
    changed: Option<Box<ChangedKeys>>,
}

/// In the place of a length: it is in the 8 bytes that follow.
const LONG: u32 = u32::MAX;

/// Less than this is not worth an append of its own.
const PART_BYTES: usize = 8 << 20;

impl DeltaLog {
    /// A log that keeps nothing until it is enabled.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            open_at: 0,
            cuts: Vec::new(),
            appended: 0,
            unseen_at: 0,
            enabled: false,
            changed: None,
        }
    }

    /// Whether deltas are kept at all.
    pub const fn enable(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// Notes the keys that are changed from now on, or not any more.
    pub fn note_changed_keys(&mut self, is_wanted: bool) {
        match (is_wanted, &self.changed) {
            (true, None) => self.changed = Some(Box::default()),
            (false, Some(_)) => self.changed = None,
            _ => {}
        }
    }

    /// Whether keys that are changed are noted.
    #[inline]
    #[must_use]
    pub const fn notes_changed_keys(&self) -> bool {
        self.changed.is_some()
    }

    /// Says which client changes keys from now on, if that is known.
    #[inline]
    pub fn set_author(&mut self, by: Option<i64>) {
        if let Some(changed) = &mut self.changed {
            changed.set_author(by);
        }
    }

    /// Notes that a key was changed of which no delta is written here.
    #[inline]
    pub fn note_changed(&mut self, key: &[u8]) {
        if let Some(changed) = &mut self.changed {
            changed.note(key);
        }
    }

    /// Takes the keys that were changed.
    #[must_use]
    pub fn take_changed_keys(&mut self) -> Changes {
        self.changed.as_mut().map(|changed| changed.take()).unwrap_or_default()
    }

    /// Writes deltas of all keys, of which nobody is told one by one.
    pub(crate) fn write_all(&mut self, write: impl FnOnce(&mut Self)) {
        let mut changed = self.changed.take();
        write(self);
        if let Some(changed) = &mut changed {
            changed.note_all();
        }
        self.changed = changed;
    }

    /// Whether deltas are kept.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// What waits.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Says that what comes belongs to another request, so that the log may hold one without the other.
    pub fn note_request(&mut self) {
        if self.bytes.len() - self.cuts.last().copied().unwrap_or(0) >= PART_BYTES {
            self.cuts.push(self.bytes.len());
        }
    }

    /// What is left of the first part of what waits, and whether some of it is appended already. All of a part has to be
    /// in the log, or nothing.
    #[must_use]
    pub fn first_part(&self) -> (bool, &[u8]) {
        let end = self.cuts.first().copied().unwrap_or(self.bytes.len());
        (self.appended > 0, &self.bytes[self.appended..end])
    }

    /// Hears that so much of the first part is appended.
    pub fn drop_first(&mut self, count: usize) {
        self.appended += count;
        if self.appended < self.cuts.first().copied().unwrap_or(self.bytes.len()) {
            return;
        }
        self.appended = 0;
        if self.cuts.is_empty() {
            return self.clear();
        }
        let end = self.cuts.remove(0);
        self.bytes.drain(..end);
        self.unseen_at = self.unseen_at.saturating_sub(end);
        self.cuts.iter_mut().for_each(|cut| *cut -= end);
    }

    /// Forgets what waits; its memory is used again unless it is much.
    pub fn clear(&mut self) {
        self.cuts.clear();
        (self.appended, self.unseen_at) = (0, 0);
        self.bytes.clear();
        self.bytes.shrink_to(1 << 20);
    }

    /// The changes that replicas have not seen.
    #[must_use]
    pub fn unseen(&self) -> &[u8] {
        &self.bytes[self.unseen_at..]
    }

    /// Says that replicas have seen everything.
    pub const fn note_seen(&mut self) {
        self.unseen_at = self.bytes.len();
    }

    /// Takes out what replicas have not seen, to be put back with [`DeltaLog::copy`] or in another form.
    #[must_use]
    pub fn take_unseen(&mut self) -> Vec<u8> {
        let unseen_at = self.unseen_at;
        self.cuts.retain(|cut| *cut <= unseen_at);
        self.bytes.split_off(unseen_at)
    }

    /// How much memory is taken at once for a delta of so many bytes: all that waits moves, unless there is room behind it.
    #[must_use]
    pub fn moves(&self, bytes: usize) -> usize {
        let fits = self.bytes.capacity() - self.bytes.len() >= bytes;
        if !self.enabled || fits { 0 } else { self.bytes.len().saturating_add(bytes) }
    }

    /// Takes memory for a long delta at once: what grows little by little is there twice in between.
    pub fn reserve(&mut self, bytes: usize) {
        if self.enabled && bytes > PART_BYTES {
            self.bytes.reserve_exact(bytes);
        }
    }

    /// Takes out what was written from a place on, but for the deltas that are to stay.
    pub(crate) fn retain_from(&mut self, from: usize, stays: impl Fn(&Header<'_>) -> bool) {
        let written = self.bytes.split_off(from.min(self.bytes.len()));
        self.cuts.retain(|cut| *cut <= from);
        // These are this log's own deltas: they are read as they were written.
        let _ = read_each(&written, |delta, header, _| {
            if stays(&header) {
                self.bytes.extend_from_slice(delta);
            }
            Ok(())
        });
        self.unseen_at = self.unseen_at.min(self.bytes.len());
    }

    /// Puts a delta in as it is.
    pub fn copy(&mut self, delta: &[u8]) {
        self.bytes.extend_from_slice(delta);
    }

    /// The whole value of a string; `is_kept` if it was changed within its life.
    pub fn string(&mut self, header: Header<'_>, expires_at: UnixMillis, value: &[u8], is_kept: bool) {
        if let Some(mut writer) = self.begin(if is_kept { KEPT } else { WHOLE }, header) {
            writer.tag(STRING_TAG);
            writer.number(expires_at.0);
            writer.0.extend_from_slice(value);
            self.end();
        }
    }

    /// The whole value of a collection.
    pub fn whole(
        &mut self,
        header: Header<'_>,
        tag: u8,
        expires_at: UnixMillis,
        write: impl FnOnce(&mut OpWriter<'_>),
    ) {
        if let Some(mut writer) = self.begin(WHOLE, header) {
            writer.tag(tag);
            writer.number(expires_at.0);
            write(&mut writer);
            self.end();
        }
    }

    /// A change of a key with several replicas.
    pub fn replicated(&mut self, header: Header<'_>, since: Hlc, copies: u16, writer: WriterId, state: &[u8]) {
        if let Some(mut to) = self.begin(REPLICATED, header) {
            to.number(hlc_bits(since));
            to.number(u64::from(copies));
            to.number(u64::from(writer.0));
            to.0.extend_from_slice(state);
            self.end();
        }
    }

    /// A deletion.
    pub fn delete(&mut self, header: Header<'_>) {
        if self.begin(DELETE, header).is_some() {
            self.end();
        }
    }

    /// A swap with another database.
    pub fn swap(&mut self, header: Header<'_>, with: u8) {
        if let Some(mut writer) = self.begin(SWAP, header) {
            writer.tag(with);
            self.end();
        }
    }

    /// A deletion of all keys of a database, or of all.
    pub fn flush(&mut self, header: Header<'_>, is_all: bool) {
        if let Some(mut writer) = self.begin(FLUSH, header) {
            writer.tag(u8::from(is_all));
            self.end();
        }
    }

    /// The end of what is before of the keys of a virtual node.
    pub fn forget(&mut self, version: Hlc, node: u16) {
        let header = Header { database: 0, key: b"", base: Hlc::ZERO, version };
        if let Some(writer) = self.begin(FORGET, header) {
            writer.0.extend_from_slice(&node.to_le_bytes());
            self.end();
        }
    }

    /// Keys are lent to a group.
    pub(crate) fn lent(&mut self, group: GroupId, lend: &Lend) {
        let Some(first) = lend.keys.first() else { return };
        self.of_group(LENT, first, lend.number, group, |to| lend.keys.iter().for_each(|key| to.bytes(key)));
    }

    /// What was lent to a group with this key is free.
    pub(crate) fn returned(&mut self, key: &[u8], version: Hlc, group: GroupId) {
        self.of_group(RETURNED, key, version, group, |_| {});
    }

    /// A group is committed.
    pub(crate) fn committed(&mut self, version: Hlc, group: GroupId, commit: &Commit) {
        self.of_group(COMMITTED, &commit.key, version, group, |to| {
            for owed in &commit.owed {
                to.number(u64::from(owed.node));
                to.number(hlc_bits(owed.number));
                to.long_bytes(&owed.writes);
            }
        });
    }

    /// Nothing is owed by a group any more.
    pub(crate) fn ended(&mut self, key: &[u8], version: Hlc, group: GroupId) {
        self.of_group(ENDED, key, version, group, |_| {});
    }

    fn of_group(&mut self, kind: u8, key: &[u8], version: Hlc, group: GroupId, write: impl FnOnce(&mut OpWriter<'_>)) {
        // From a version to itself: no value of the key changes by it.
        if let Some(mut to) = self.begin(kind, Header { database: 0, key, base: version, version }) {
            to.0.extend_from_slice(&group.node.to_le_bytes());
            to.number(group.life);
            to.number(group.number);
            write(&mut to);
            self.end();
        }
    }

    /// A change of the expiry.
    pub fn expiry(&mut self, header: Header<'_>, at: UnixMillis) {
        if let Some(mut writer) = self.begin(EXPIRY, header) {
            writer.number(at.0);
            self.end();
        }
    }

    /// Begins a delta of operations, to be ended by [`DeltaLog::end`].
    pub fn begin_operations(&mut self, header: Header<'_>, tag: u8) {
        if let Some(mut writer) = self.begin(OPERATIONS, header) {
            writer.tag(tag);
        }
    }

    /// More operations of the delta that was begun.
    pub fn operation(&mut self, write: impl FnOnce(&mut OpWriter<'_>)) {
        if self.enabled {
            write(&mut OpWriter(&mut self.bytes));
        }
    }

    fn begin(&mut self, kind: u8, header: Header<'_>) -> Option<OpWriter<'_>> {
        if let Some(changed) = &mut self.changed
            && header.base != header.version
        {
            changed.note(header.key);
        }
        if !self.enabled {
            return None;
        }
        self.open_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        let mut writer = OpWriter(&mut self.bytes);
        writer.tag(kind);
        writer.tag(header.database);
        writer.bytes(header.key);
        writer.0.extend_from_slice(&hlc_bits(header.base).to_le_bytes());
        writer.0.extend_from_slice(&hlc_bits(header.version).to_le_bytes());
        Some(writer)
    }

    /// Ends the delta that was begun.
    pub fn end(&mut self) {
        self.end_long_from(LONG as usize);
    }

    /// As [`DeltaLog::end`]; the length takes 8 bytes more if it is not below `long`.
    fn end_long_from(&mut self, long: usize) {
        if !self.enabled {
            return;
        }
        let behind = self.open_at + 4;
        let length = self.bytes.len() - behind;
        let short = if length < long { length as u32 } else { LONG };
        self.bytes[self.open_at..behind].copy_from_slice(&short.to_le_bytes());
        if short == LONG {
            self.bytes.splice(behind..behind, (length as u64).to_le_bytes());
        }
    }
}

const fn hlc_bits(hlc: Hlc) -> u64 {
    hlc.at().0 << 16 | hlc.counter() as u64
}

const fn hlc_of(bits: u64) -> Hlc {
    Hlc::new(UnixMillis(bits >> 16), bits as u16)
}

/// Writes the operations of a delta.
#[derive(Debug)]
pub struct OpWriter<'a>(&'a mut Vec<u8>);

impl<'a> OpWriter<'a> {
    /// Writes behind these bytes.
    pub const fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Which operation follows.
    pub fn tag(&mut self, tag: u8) {
        self.0.push(tag);
    }

    /// A number.
    pub fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// A byte string.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.0.extend_from_slice(bytes);
    }

    /// A byte string of any length.
    fn long_bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

/// Reads what [`OpWriter`] wrote.
#[derive(Clone, Debug)]
pub struct OpReader<'a>(&'a [u8]);

impl<'a> OpReader<'a> {
    /// Reads these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next operation, if there is one.
    pub fn tag(&mut self) -> Option<u8> {
        let (&tag, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(tag)
    }

    /// A number.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes end.
    pub fn number(&mut self) -> Result<u64, Malformed> {
        let (number, rest) = self.0.split_first_chunk().ok_or_else(|| Malformed::new("no end"))?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    /// A byte string.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes end.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let (length, rest) = self.0.split_first_chunk().ok_or_else(|| Malformed::new("no end"))?;
        let length = u32::from_le_bytes(*length) as usize;
        let (bytes, rest) = rest.split_at_checked(length).ok_or_else(|| Malformed::new("no end"))?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Whether nothing follows.
    pub(crate) const fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    /// A byte string of any length.
    pub(crate) fn long_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.number()?).ok();
        let (bytes, rest) =
            length.and_then(|length| self.0.split_at_checked(length)).ok_or_else(|| Malformed::new("no end"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn group(&mut self) -> Result<GroupId, Malformed> {
        let node = u16::from_le_bytes([self.byte()?, self.byte()?]);
        Ok(GroupId { node, life: self.number()?, number: self.number()? })
    }

    /// A delta, without its length.
    fn delta(&mut self) -> Result<&'a [u8], Malformed> {
        let (short, rest) = self.0.split_first_chunk().ok_or_else(|| Malformed::new("no end"))?;
        let mut length = u64::from(u32::from_le_bytes(*short));
        self.0 = rest;
        if length == u64::from(LONG) {
            length = self.number()?;
        }
        let delta = usize::try_from(length).ok().and_then(|length| self.0.split_at_checked(length));
        let (delta, rest) = delta.ok_or_else(|| Malformed::new("no end"))?;
        self.0 = rest;
        Ok(delta)
    }

    /// A number of a narrower type.
    pub(crate) fn number_below<T: TryFrom<u64>>(&mut self) -> Result<T, Malformed> {
        T::try_from(self.number()?).map_err(|_| Malformed::new("a number that is too large"))
    }

    pub(crate) fn hlc(&mut self) -> Result<Hlc, Malformed> {
        self.number().map(hlc_of)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.tag().ok_or_else(|| Malformed::new("no end"))
    }
}

/// Reads the deltas of one append.
///
/// # Errors
/// [`Malformed`] for what is none, or with the error of `apply`.
pub fn read_all(
    bytes: &[u8],
    apply: &mut dyn FnMut(Header<'_>, Body<'_>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    read_each(bytes, |_, header, body| apply(header, body))
}

/// How many of these bytes are whole deltas: what is behind them is the beginning of one.
#[must_use]
pub fn whole_deltas(bytes: &[u8]) -> usize {
    let mut reader = OpReader(bytes);
    let mut whole = 0;
    while reader.delta().is_ok() {
        whole = bytes.len() - reader.0.len();
    }
    whole
}

/// As [`read_all`], with the bytes of each delta.
///
/// # Errors
/// As [`read_all`].
pub fn read_each(
    mut bytes: &[u8],
    mut apply: impl FnMut(&[u8], Header<'_>, Body<'_>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    while !bytes.is_empty() {
        let mut reader = OpReader(bytes);
        let delta = reader.delta()?;
        let whole = &bytes[..bytes.len() - reader.0.len()];
        bytes = reader.0;
        let (header, body) = read_one(delta)?;
        apply(whole, header, body)?;
    }
    Ok(())
}

fn read_one(delta: &[u8]) -> Result<(Header<'_>, Body<'_>), Malformed> {
    let mut reader = OpReader(delta);
    let kind = reader.byte()?;
    let header = Header { database: reader.byte()?, key: reader.bytes()?, base: reader.hlc()?, version: reader.hlc()? };
    let body = match kind {
        WHOLE | KEPT => Body::Whole {
            is_kept: kind == KEPT,
            tag: reader.byte()?,
            expires_at: UnixMillis(reader.number()?),
            content: reader.0,
        },
        OPERATIONS => Body::Operations { tag: reader.byte()?, operations: reader.0 },
        DELETE => Body::Delete,
        EXPIRY => Body::Expiry(UnixMillis(reader.number()?)),
        REPLICATED => Body::Replicated {
            since: reader.hlc()?,
            copies: reader.number_below()?,
            writer: WriterId(reader.number_below()?),
            state: reader.0,
        },
        SWAP => Body::Swap { with: reader.byte()? },
        FLUSH => Body::Flush { is_all: reader.byte()? != 0 },
        FORGET => Body::Forget { node: u16::from_le_bytes([reader.byte()?, reader.byte()?]) },
        LENT => Body::Lent { group: reader.group()?, keys: reader.0 },
        RETURNED => Body::Returned { group: reader.group()? },
        COMMITTED => Body::Committed { group: reader.group()?, owed: reader.0 },
        ENDED => Body::Ended { group: reader.group()? },
        other => return Err(Malformed::new(format!("a delta of kind {other}"))),
    };
    Ok((header, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_is_cut_between_requests() {
        let header = Header { database: 0, key: b"k", base: Hlc::ZERO, version: Hlc::ZERO };
        let mut log = DeltaLog::new();
        log.enable(true);
        let long = vec![b'x'; PART_BYTES];
        for value in [&b"a"[..], &long, b"b", b"c"] {
            log.string(header, UnixMillis::NEVER, value, false);
            log.note_request();
        }
        let mut parts = Vec::new();
        while !log.bytes().is_empty() {
            let mut count = 0;
            let (_, part) = log.first_part();
            let length = part.len();
            read_all(part, &mut |_, _| {
                count += 1;
                Ok(())
            })
            .expect("whole deltas");
            parts.push(count);
            log.drop_first(length);
        }
        assert_eq!(parts, [2, 2]);
    }

    #[test]
    fn a_long_delta_is_read_as_it_was_written() {
        let header = Header { database: 0, key: b"k", base: Hlc::ZERO, version: Hlc::ZERO };
        let mut log = DeltaLog::new();
        log.enable(true);
        log.delete(header);
        log.begin_operations(header, 3);
        log.operation(|operations| operations.bytes(&[b'x'; 100]));
        log.end_long_from(100);
        log.delete(header);
        let mut seen = Vec::new();
        let read = read_each(log.bytes(), |whole, came, body| {
            assert_eq!(came, header);
            seen.push((whole.len(), matches!(body, Body::Operations { operations, .. } if operations.len() == 104)));
            Ok(())
        });
        read.expect("whole deltas");
        let [(first, false), (long, true), (last, false)] = seen[..] else { panic!("{seen:?}") };
        assert_eq!((first, first + long + last), (last, log.bytes().len()));
        for cut in 1..log.bytes().len() {
            let _ = read_all(&log.bytes()[..cut], &mut |_, _| Ok(()));
        }
    }

    #[test]
    fn deltas_are_read_as_they_were_written() {
        let at = |ms| Hlc::new(UnixMillis(ms), 3);
        let header = Header { database: 2, key: b"key", base: at(1), version: at(2) };
        let mut log = DeltaLog::new();
        log.string(header, UnixMillis::NEVER, b"ignored before it is enabled", false);
        log.enable(true);
        log.string(header, UnixMillis(9), b"value", false);
        log.begin_operations(header, 7);
        log.operation(|operations| operations.bytes(b"a"));
        log.operation(|operations| operations.number(5));
        log.end();
        log.delete(header);
        log.expiry(header, UnixMillis(11));
        let mut seen = Vec::new();
        read_all(log.bytes(), &mut |came, body| {
            assert_eq!(came, header);
            seen.push(format!("{body:?}"));
            Ok(())
        })
        .expect("reads");
        assert_eq!(seen.len(), 4);
        assert!(seen[0].contains("Whole { is_kept: false, tag: 1, expires_at: UnixMillis(9)"), "{}", seen[0]);
        assert!(seen[1].starts_with("Operations { tag: 7"), "{}", seen[1]);
        assert_eq!(seen[2..], ["Delete", "Expiry(UnixMillis(11))"]);
        for cut in 1..log.bytes().len() {
            // Whatever is cut off is an error or a shorter list, and no panic.
            let _ = read_all(&log.bytes()[..cut], &mut |_, _| Ok(()));
        }
    }
}
