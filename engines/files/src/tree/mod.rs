//! The inodes in memory: a slab, found by (parent, name) and by number; a directory has its children in the order of their names.
//!
//! With a database behind it, it has a part of all inodes: with each one also the directories above it, and for each directory up to which name
//! it has all of what is there.

mod children;
mod eviction;
mod tombstones;
mod words;

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use hashbrown::{DefaultHashBuilder, HashTable};

use self::children::Children;
use self::eviction::Behind;
use self::words::{Word, Words};
use crate::change::{AclEntry, File, Kind, More, Quota, Row};
use crate::ids::{InodeId, Millis, Txid};

/// Where an inode is in the slab.
type Slot = u32;

/// A file or directory.
#[derive(Debug)]
pub struct Inode {
    /// Its number.
    pub id: InodeId,
    /// The directory that it is in.
    pub parent: InodeId,
    /// Its name there.
    pub name: Box<[u8]>,
    mode: ModeAndUse,
    mtime: Instant48,
    atime: Instant48,
    /// The change that it is as of.
    pub txid: Txid,
    owner: Word,
    group: Word,
    node: Node,
    /// What few inodes have.
    pub(crate) more: Option<Box<More>>,
}

/// There are millions of files: what a file has is in its inode.
#[derive(Debug)]
enum Node {
    Directory(Box<Directory>),
    File(File),
}

/// A mode, and in the bit that none has whether the inode was used since the clock's hand came by: a byte of its own would take eight.
#[derive(Debug)]
struct ModeAndUse(AtomicU16);

/// The bit.
const USED: u16 = 1 << 15;

impl ModeAndUse {
    const fn new(mode: u16, is_used: bool) -> Self {
        Self(AtomicU16::new(mode & !USED | if is_used { USED } else { 0 }))
    }

    fn mode(&self) -> u16 {
        self.0.load(Ordering::Relaxed) & !USED
    }

    /// Notes a use. Readers on other cores have the line, too: it is written as seldom as it can be.
    fn note_use(&self) {
        if self.0.load(Ordering::Relaxed) & USED == 0 {
            self.0.fetch_or(USED, Ordering::Relaxed);
        }
    }

    /// Forgets uses. Whether there was one.
    fn forget_use(&self) -> bool {
        self.0.fetch_and(!USED, Ordering::Relaxed) & USED != 0
    }
}

/// An instant in six bytes: milliseconds up to [`Millis::LATEST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instant48([u8; 6]);

impl From<Millis> for Instant48 {
    fn from(instant: Millis) -> Self {
        let [_, _, bytes @ ..] = instant.min(Millis::LATEST).0.to_be_bytes();
        Self(bytes)
    }
}

impl From<Instant48> for Millis {
    fn from(Instant48([a, b, c, d, e, f]): Instant48) -> Self {
        Self(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }
}

#[derive(Debug)]
struct Directory {
    /// Those that are here.
    children: Children,
    /// How many there are.
    count: usize,
    covered: Covered,
}

/// Which names of a directory are known: what is not here of them, is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Covered {
    /// All.
    All,
    /// All up to one; none if that is empty.
    UpTo(Box<[u8]>),
}

impl Covered {
    fn nothing() -> Self {
        Self::UpTo(Box::default())
    }

    /// Whether it reaches a name.
    #[must_use]
    pub fn reaches(&self, name: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::UpTo(last) => name <= &**last,
        }
    }
}

impl Inode {
    /// What it is found by.
    fn key(&self) -> (InodeId, &[u8]) {
        (self.parent, &self.name)
    }

    /// Whether it is a directory.
    #[must_use]
    pub const fn is_directory(&self) -> bool {
        matches!(self.node, Node::Directory(_))
    }

    /// Permission bits, with the sticky bit.
    #[must_use]
    pub fn mode(&self) -> u16 {
        self.mode.mode()
    }

    /// When its content changed last.
    #[must_use]
    pub fn mtime(&self) -> Millis {
        self.mtime.into()
    }

    /// When it was read last, as far as that is kept.
    #[must_use]
    pub fn atime(&self) -> Millis {
        self.atime.into()
    }

    /// What it has if it is a file.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        match &self.node {
            Node::Directory(_) => None,
            Node::File(file) => Some(file),
        }
    }

    /// What it keeps of an access control list, if it has one.
    #[must_use]
    pub fn acl(&self) -> &[AclEntry] {
        self.more.as_ref().map_or(&[], |more| &more.acl)
    }

    /// How many children it has, here or not; none if it is a file.
    #[must_use]
    pub fn child_count(&self) -> usize {
        self.directory().map_or(0, |directory| directory.count)
    }

    /// Which names in it are known; all if it is a file.
    pub(crate) fn covered(&self) -> &Covered {
        self.directory().map_or(&Covered::All, |directory| &directory.covered)
    }

    /// How much may be in it, if that is limited.
    #[must_use]
    pub fn quota(&self) -> Option<&Quota> {
        self.more.as_ref()?.quota.as_ref()
    }

    fn directory(&self) -> Option<&Directory> {
        match &self.node {
            Node::Directory(directory) => Some(directory),
            Node::File(_) => None,
        }
    }

    fn directory_mut(&mut self) -> Option<&mut Directory> {
        match &mut self.node {
            Node::Directory(directory) => Some(directory),
            Node::File(_) => None,
        }
    }
}

/// What was there before a change.
#[derive(Debug, Default)]
pub struct Before {
    /// It had another name.
    pub has_moved: bool,
    /// It was this file.
    pub file: Option<File>,
}

/// All inodes.
#[derive(Debug, Default)]
pub struct Tree {
    slots: Vec<Option<Inode>>,
    free: Vec<Slot>,
    by_name: HashTable<Slot>,
    by_id: HashTable<Slot>,
    hasher: DefaultHashBuilder,
    words: Words,
    /// How many inodes have what few have.
    special: usize,
    /// What is kept because a database has the rest.
    behind: Option<Behind>,
    /// How many children of directories were looked at.
    #[cfg(feature = "flaws")]
    looks: std::sync::atomic::AtomicUsize,
}

impl Tree {
    /// How many inodes are here.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The inode of a number.
    #[must_use]
    pub fn get(&self, id: InodeId) -> Option<&Inode> {
        self.used(self.slot_of(id)?)
    }

    /// Whether an inode is here, for somebody who does not need it.
    pub(crate) fn has(&self, id: InodeId) -> bool {
        self.slot_of(id).is_some()
    }

    /// What has a name in a directory.
    #[must_use]
    pub fn child(&self, parent: InodeId, name: &[u8]) -> Option<&Inode> {
        let is_it = |slot: &Slot| self.at(*slot).is_some_and(|inode| inode.parent == parent && *inode.name == *name);
        let slot = self.by_name.find(self.hasher.hash_one((parent, name)), is_it)?;
        self.used(*slot)
    }

    /// What a directory has behind a name, in the order of names; all of it behind the empty one.
    pub fn children<'a>(&'a self, directory: InodeId, after: &[u8]) -> impl Iterator<Item = &'a Inode> + use<'a> {
        let directory = self.get(directory).and_then(Inode::directory);
        let slots = directory.map(|directory| directory.children.after(after, |slot| self.name(slot)));
        slots.into_iter().flatten().filter_map(|slot| self.looked_at(slot))
    }

    /// The same, which is counted where somebody asks how long looks are.
    fn looked_at(&self, slot: Slot) -> Option<&Inode> {
        #[cfg(feature = "flaws")]
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.at(slot)
    }

    /// How many children of directories were looked at since this was asked last.
    #[cfg(feature = "flaws")]
    pub(crate) fn take_looks(&self) -> usize {
        self.looks.swap(0, Ordering::Relaxed)
    }

    /// How much a directory has behind a name, of what is here.
    #[must_use]
    pub fn count_after(&self, directory: InodeId, after: &[u8]) -> usize {
        let directory = self.get(directory).and_then(Inode::directory);
        directory.map_or(0, |directory| directory.children.count_after(after, |slot| self.name(slot)))
    }

    /// Whether any inode here has what few have.
    pub(crate) const fn has_special(&self) -> bool {
        self.special > 0
    }

    /// On what blocks of an inode should be, if it or a directory above it says so.
    pub(crate) fn policy(&self, inode: &Inode) -> Option<u8> {
        let above = |inode: &&Inode| self.get(inode.parent);
        let mut on_the_way = std::iter::successors(Some(inode).filter(|_| self.has_special()), above);
        on_the_way.find_map(|inode| inode.more.as_ref()?.policy)
    }

    /// Who owns an inode.
    #[must_use]
    pub fn owner(&self, inode: &Inode) -> &Arc<str> {
        self.words.text(inode.owner)
    }

    /// The group of an inode.
    #[must_use]
    pub fn group(&self, inode: &Inode) -> &Arc<str> {
        self.words.text(inode.group)
    }

    /// All inodes that are here, a directory before what is in it.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        let mut open = vec![InodeId::NOWHERE];
        let mut level: Vec<InodeId> = Vec::new();
        std::iter::from_fn(move || {
            loop {
                if let Some(id) = level.pop() {
                    let inode = self.get(id)?;
                    if inode.is_directory() {
                        open.push(id);
                    }
                    return Some(self.row(inode));
                }
                let directory = open.pop()?;
                level.extend(self.children_of(directory).map(|inode| inode.id));
            }
        })
    }

    /// The children of a directory, and the fixed ones of nowhere.
    fn children_of(&self, directory: InodeId) -> impl Iterator<Item = &Inode> {
        let fixed = [InodeId::ROOT, InodeId::DOOMED].into_iter().filter(move |_| directory == InodeId::NOWHERE);
        fixed.filter_map(|id| self.get(id)).chain(self.children(directory, b""))
    }

    /// An inode as it is kept.
    #[must_use]
    pub fn row(&self, inode: &Inode) -> Row {
        let kind = match &inode.node {
            Node::Directory(_) => Kind::Directory,
            Node::File(file) => Kind::File(Box::new(file.clone())),
        };
        Row {
            id: inode.id,
            parent: inode.parent,
            name: inode.name.clone(),
            owner: Arc::clone(self.owner(inode)),
            group: Arc::clone(self.group(inode)),
            mode: inode.mode(),
            mtime: inode.mtime(),
            atime: inode.atime(),
            kind,
            more: inode.more.clone(),
        }
    }

    /// Makes an inode, or changes it to be as a row says. What was there before.
    pub fn put(&mut self, row: &Row, txid: Txid) -> Before {
        let Some(slot) = self.slot_of(row.id) else {
            let slot = self.add(row, txid, Covered::All);
            self.arrive(slot);
            return Before::default();
        };
        let mut before = None;
        let (owner, group) = (self.words.word(&row.owner), self.words.word(&row.group));
        let moves = self.at(slot).is_some_and(|inode| inode.parent != row.parent || inode.name != row.name);
        if moves {
            self.leave(slot, txid);
        }
        if let Some(inode) = self.slots[slot as usize].as_mut() {
            (inode.parent, inode.owner, inode.group) = (row.parent, owner, group);
            inode.mode = ModeAndUse::new(row.mode, true);
            (inode.mtime, inode.atime, inode.txid) = (row.mtime.into(), row.atime.into(), txid);
            self.special -= usize::from(inode.more.is_some());
            self.special += usize::from(row.more.is_some());
            inode.more.clone_from(&row.more);
            if let Kind::File(file) = &row.kind {
                if let Node::File(file) = std::mem::replace(&mut inode.node, Node::File(File::clone(file))) {
                    before = Some(file);
                }
            }
            if moves {
                inode.name.clone_from(&row.name);
            }
        }
        if moves {
            self.arrive(slot);
        }
        Before { has_moved: moves, file: before }
    }

    /// Removes an inode by a change. What is in it has to go before.
    pub fn remove(&mut self, id: InodeId, txid: Txid) -> Option<Inode> {
        let slot = self.slot_of(id)?;
        self.leave(slot, txid);
        self.drop_slot(slot)
    }

    /// A change gives an inode its name.
    fn arrive(&mut self, slot: Slot) {
        self.link(slot);
        let Some(inode) = self.slots[slot as usize].as_ref() else { return };
        let parent = inode.parent;
        if let Some(behind) = &mut self.behind {
            behind.tombstones.remove(parent, &inode.name);
        }
        self.count(parent, |count| count + 1);
    }

    /// A change takes an inode away from its name.
    fn leave(&mut self, slot: Slot, txid: Txid) {
        self.unlink(slot);
        let Some(inode) = self.slots[slot as usize].as_ref() else { return };
        let parent = inode.parent;
        if let Some(behind) = &mut self.behind {
            behind.tombstones.add(parent, &inode.name, txid);
        }
        self.count(parent, |count| count.saturating_sub(1));
    }

    /// Changes how many children a directory has.
    fn count(&mut self, directory: InodeId, change: impl FnOnce(usize) -> usize) {
        let Some(slot) = self.slot_of(directory) else { return };
        if let Some(directory) = self.slots[slot as usize].as_mut().and_then(Inode::directory_mut) {
            directory.count = change(directory.count);
        }
    }

    /// Makes the number of an inode unknown, and its place in the slab free.
    fn drop_slot(&mut self, slot: Slot) -> Option<Inode> {
        let inode = self.slots[slot as usize].take()?;
        if let Ok(entry) = self.by_id.find_entry(self.hasher.hash_one(inode.id), |other| *other == slot) {
            entry.remove();
        }
        self.free.push(slot);
        self.special -= usize::from(inode.more.is_some());
        Some(inode)
    }

    fn at(&self, slot: Slot) -> Option<&Inode> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// The same for somebody who needs it.
    fn used(&self, slot: Slot) -> Option<&Inode> {
        let inode = self.at(slot)?;
        if self.behind.is_some() {
            inode.mode.note_use();
        }
        Some(inode)
    }

    fn name(&self, slot: Slot) -> &[u8] {
        self.at(slot).map_or(&[], |inode| &inode.name)
    }

    fn slot_of(&self, id: InodeId) -> Option<Slot> {
        let is_it = |slot: &Slot| self.at(*slot).is_some_and(|inode| inode.id == id);
        self.by_id.find(self.hasher.hash_one(id), is_it).copied()
    }

    /// Puts an inode into the slab, and makes its number known.
    fn add(&mut self, row: &Row, txid: Txid, covered: Covered) -> Slot {
        let id = row.id;
        let inode = Inode {
            id,
            parent: row.parent,
            name: row.name.clone(),
            mode: ModeAndUse::new(row.mode, true),
            mtime: row.mtime.into(),
            atime: row.atime.into(),
            txid,
            owner: self.words.word(&row.owner),
            group: self.words.word(&row.group),
            node: match &row.kind {
                Kind::Directory => {
                    Node::Directory(Box::new(Directory { children: Children::default(), count: 0, covered }))
                }
                Kind::File(file) => Node::File(File::clone(file)),
            },
            more: row.more.clone(),
        };
        self.special += usize::from(inode.more.is_some());
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot::try_from(self.slots.len() - 1).unwrap_or(Slot::MAX)
        });
        self.slots[slot as usize] = Some(inode);
        let Self { slots, by_id, hasher, .. } = self;
        let hash = |slot: &Slot| hasher.hash_one(slots[*slot as usize].as_ref().map_or(InodeId::NOWHERE, |i| i.id));
        by_id.insert_unique(hasher.hash_one(id), slot, hash);
        slot
    }

    /// Makes the name of an inode known.
    fn link(&mut self, slot: Slot) {
        let Some((parent, name)) = self.at(slot).map(Inode::key) else { return };
        let hash = self.hasher.hash_one((parent, name));
        let Self { slots, by_name, hasher, .. } = self;
        let key = |slot: &Slot| slots[*slot as usize].as_ref().map_or((InodeId::NOWHERE, &[][..]), Inode::key);
        by_name.insert_unique(hash, slot, |slot| hasher.hash_one(key(slot)));
        if let Some((directory, mut children)) = self.take_children(parent) {
            children.insert(slot, |slot| self.name(slot));
            self.give_children(directory, children);
        }
    }

    /// Makes the name of an inode unknown.
    fn unlink(&mut self, slot: Slot) {
        let Some((parent, name)) = self.at(slot).map(Inode::key) else { return };
        let hash = self.hasher.hash_one((parent, name));
        if let Ok(entry) = self.by_name.find_entry(hash, |other| *other == slot) {
            entry.remove();
        }
        if let Some((directory, mut children)) = self.take_children(parent) {
            children.remove(slot, |slot| self.name(slot));
            self.give_children(directory, children);
        }
    }

    /// Takes the children of a directory, so that they can be changed while names are looked up.
    fn take_children(&mut self, directory: InodeId) -> Option<(Slot, Children)> {
        let slot = self.slot_of(directory)?;
        let directory = self.slots[slot as usize].as_mut().and_then(Inode::directory_mut)?;
        Some((slot, std::mem::take(&mut directory.children)))
    }

    fn give_children(&mut self, slot: Slot, given: Children) {
        if let Some(directory) = self.slots[slot as usize].as_mut().and_then(Inode::directory_mut) {
            directory.children = given;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u64, parent: InodeId, name: &str, kind: Kind) -> Row {
        let (owner, group): (Arc<str>, Arc<str>) = ("ann".into(), "staff".into());
        let (mtime, atime, name) = (Millis(0), Millis(0), name.as_bytes().into());
        Row { id: InodeId(id), parent, name, owner, group, mode: 0o755, mtime, atime, kind, more: None }
    }

    #[test]
    fn an_inode_is_found_by_its_name_and_its_number_wherever_it_is_moved() {
        let mut tree = Tree::default();
        for (id, parent, name) in [(10, 0, "a"), (11, 0, "b"), (12, 10, "x")] {
            tree.put(&row(id, InodeId(parent), name, Kind::Directory), Txid(1));
        }
        tree.put(&row(13, InodeId(12), "deep", Kind::Directory), Txid(1));
        tree.put(&row(12, InodeId(11), "y", Kind::Directory), Txid(2));
        assert!(tree.child(InodeId(10), b"x").is_none());
        assert_eq!(tree.child(InodeId(11), b"y").unwrap().id, InodeId(12));
        assert_eq!(tree.child(InodeId(12), b"deep").unwrap().id, InodeId(13), "what is in it came along");
        assert_eq!(
            (tree.get(InodeId(10)).unwrap().child_count(), tree.get(InodeId(11)).unwrap().child_count()),
            (0, 1)
        );
        assert!(tree.remove(InodeId(13), Txid(3)).is_some());
        assert!(tree.remove(InodeId(13), Txid(3)).is_none());
        assert_eq!(tree.len(), 3);
    }

    #[test]
    fn a_file_takes_little_beside_its_name() {
        assert_eq!(size_of::<Option<Inode>>(), 104);
        let instants = [0, 1, 1 << 40, Millis::LATEST.0, u64::MAX].map(Millis);
        let came = instants.map(|instant| Millis::from(Instant48::from(instant)));
        assert_eq!(came, instants.map(|instant| instant.min(Millis::LATEST)));
    }

    #[test]
    fn what_is_put_again_stays_as_it_is() {
        let mut tree = Tree::default();
        for _ in 0..2 {
            tree.put(&row(10, InodeId(0), "a", Kind::Directory), Txid(1));
            tree.put(&row(11, InodeId(10), "b", Kind::Directory), Txid(1));
        }
        assert_eq!(tree.len(), 2);
        assert_eq!(tree.children(InodeId(10), b"").count(), 1);
    }
}
