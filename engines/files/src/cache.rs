//! A namespace that has a part of all inodes, because a database has all of them.
//!
//! An operation sees the namespace through a [`View`]. What it looks for and is not known to be there or not is noted; then nothing of what it
//! came to counts. Who hosts the namespace reads that from the database, has it taken in with [`Namespace::learn`], and runs the operation again in the
//! same write section, which so knows what was not found either.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Deref;

use crate::change::{Change, Counters, Kind, Retry, Row};
use crate::ids::{InodeId, Millis, Txid};
use crate::namespace::{Limits, Namespace};
use crate::tree::{Covered, Inode, Tree};

/// What an operation lacks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// What is below a directory by these names, each in the one before it.
    Path(InodeId, Vec<Box<[u8]>>),
    /// An inode, with the directories above it.
    Id(InodeId),
    /// The next of what is in a directory behind a name.
    Children(InodeId, Box<[u8]>),
    /// Whether the user may take away all that is in a directory: it is much, or not all here. [`Emptying`](crate::operation::Emptying) asks it.
    Emptying(InodeId),
    /// What a directory counts for with all that is in it: it is much, or not all here. [`Counting`](crate::counting::Counting) counts it.
    Usage(InodeId),
}

/// What has to be found out of a subtree before an operation can be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// Whether the user may take away all that is in a directory.
    Emptying(InodeId),
    /// What a directory counts for with all that is in it.
    Usage(InodeId),
}

impl Missing {
    /// The directories in which something was looked for.
    pub fn directories(&self) -> impl Iterator<Item = InodeId> + '_ {
        self.0.iter().filter_map(|key| match key {
            Key::Path(directory, _) | Key::Children(directory, _) => Some(*directory),
            Key::Id(_) | Key::Emptying(_) | Key::Usage(_) => None,
        })
    }

    /// What has to be found out of a subtree first, if anything has.
    #[must_use]
    pub fn asking(&self) -> Option<Asking> {
        self.0.iter().find_map(|key| match key {
            Key::Emptying(id) => Some(Asking::Emptying(*id)),
            Key::Usage(id) => Some(Asking::Usage(*id)),
            Key::Path(..) | Key::Id(_) | Key::Children(..) => None,
        })
    }
}

/// An operation lacks these. It changed nothing, and whatever it came to counts for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(pub Vec<Key>);

/// A row as the database has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The row.
    pub row: Row,
    /// If it is a directory, how many children it has.
    pub children: usize,
    /// The change that it is as of.
    pub txid: Txid,
}

/// What the database has for a key, read at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// What was asked for.
    pub key: Key,
    /// The newest change that the database had.
    pub txid: Txid,
    /// In any order.
    pub rows: Vec<Stored>,
    /// Of children, whether they are the last ones.
    pub is_end: bool,
}

/// What was not found either: for the operation that runs in the same write section.
#[derive(Debug, Default)]
pub struct Known {
    names: HashSet<(InodeId, Box<[u8]>)>,
    ids: HashSet<InodeId>,
    /// Up to which name a directory is here from another.
    pages: HashMap<(InodeId, Box<[u8]>), Covered>,
}

/// What was read from the database may be older than what was here and given up: it has to be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooOld;

/// What is read from the database when the process begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beginning {
    /// The newest change that the database has.
    pub txid: Txid,
    /// The numbers that were given last.
    pub counters: Counters,
    /// The root, if it was ever changed; the files that are being written, and the directories above them.
    pub rows: Vec<Stored>,
    /// Answers to calls that may come again, the oldest first, with their instants and changes.
    pub retries: Vec<(Millis, Txid, Retry)>,
}

impl Namespace {
    /// One of which a database has all. What the log has behind that is applied next; see [`Namespace::needs`].
    #[must_use]
    pub fn begin(superuser: &str, limits: Limits, beginning: Beginning) -> Self {
        let Beginning { txid, counters, rows, retries } = beginning;
        let mut namespace = Self::new(superuser, limits);
        namespace.tree.is_part_of_more(txid);
        match rows.iter().find(|stored| stored.row.id == InodeId::ROOT) {
            Some(root) => namespace.tree.learn_root(&root.row, root.children, root.txid),
            // Whatever is made in it changes it.
            None => namespace.tree.cover(InodeId::ROOT, b"", None),
        }
        namespace.learn_rows(rows.iter());
        for (at, txid, retry) in retries {
            namespace.answered(retry, txid, at);
        }
        namespace.begins_at(txid, counters);
        namespace
    }

    /// What has to be taken in before changes are applied that others made.
    #[must_use]
    pub fn needs(&self, changes: &[Change]) -> Vec<Key> {
        let rows = || changes.iter().flat_map(|change| &change.rows);
        let gone = changes.iter().flat_map(|change| &change.gone).copied();
        let ids: BTreeSet<InodeId> = rows().flat_map(|row| [row.id, row.parent]).chain(gone).collect();
        ids.into_iter().filter(|id| self.tree.get(*id).is_none()).map(Key::Id).collect()
    }

    /// From now on a database has all that is here, so that it may be given up.
    pub fn is_kept(&mut self) {
        self.tree.is_behind(self.txid());
    }

    /// The database has all changes up to one.
    pub fn flushed(&mut self, txid: Txid) {
        self.tree.flushed(txid);
    }

    /// Takes in some rows that the database had when it had all up to a change, where there is nothing newer here. What they are in comes before. So
    /// [`Self::learn`] has little to do: others have their turns in between.
    ///
    /// # Errors
    /// [`TooOld`]; then nothing was taken in.
    pub fn learn_ahead(&mut self, txid: Txid, rows: &[Stored]) -> Result<(), TooOld> {
        if self.tree.is_too_old(txid) {
            return Err(TooOld);
        }
        self.learn_rows(rows.iter());
        Ok(())
    }

    /// Takes in what the database has, where there is nothing newer here.
    ///
    /// # Errors
    /// [`TooOld`]; then nothing was taken in.
    pub fn learn(&mut self, fetched: &[Fetched]) -> Result<Known, TooOld> {
        if fetched.iter().any(|fetched| self.tree.is_too_old(fetched.txid)) {
            return Err(TooOld);
        }
        let mut known = Known::default();
        // A directory may have been given up since its children were asked for: it comes with another key.
        self.learn_rows(fetched.iter().flat_map(|fetched| &fetched.rows));
        for Fetched { key, rows, is_end, .. } in fetched {
            match key {
                Key::Path(directory, names) => {
                    let row = |stored: &Stored| ((stored.row.parent, stored.row.name.clone()), stored.row.id);
                    let there: HashMap<_, InodeId> = rows.iter().map(row).collect();
                    let mut directory = *directory;
                    for name in names {
                        let key = (directory, name.clone());
                        let child = there.get(&key).copied();
                        known.names.insert(key);
                        let Some(child) = child else { break };
                        directory = child;
                    }
                }
                Key::Id(id) => drop(known.ids.insert(*id)),
                // Of one that is still not here nothing is, and nothing is known.
                Key::Children(directory, _) if self.tree.get(*directory).is_none() => {}
                Key::Children(directory, after) => {
                    let last = rows.iter().map(|stored| &stored.row.name).max().filter(|_| !is_end);
                    self.tree.cover(*directory, after, last.map(|name| &**name));
                    let covered = last.map_or(Covered::All, |name| Covered::UpTo(name.clone()));
                    known.pages.insert((*directory, after.clone()), covered);
                }
                // That is not known by rows.
                Key::Emptying(_) | Key::Usage(_) => {}
            }
        }
        Ok(known)
    }

    /// Takes rows in that are not here, each after its directory.
    fn learn_rows<'r>(&mut self, rows: impl Iterator<Item = &'r Stored>) {
        let mut below: HashMap<InodeId, Vec<&Stored>> = HashMap::new();
        let rows: Vec<&Stored> = rows.filter(|stored| !self.tree.has(stored.row.id)).collect();
        let ids: HashSet<InodeId> = rows.iter().map(|stored| stored.row.id).collect();
        let mut open: Vec<&Stored> = Vec::new();
        for stored in rows {
            if ids.contains(&stored.row.parent) {
                below.entry(stored.row.parent).or_default().push(stored);
            } else {
                open.push(stored);
            }
        }
        while let Some(stored) = open.pop() {
            let Stored { row, children, txid } = stored;
            if self.tree.learn(row, *children, *txid)
                && let Kind::File(file) = &row.kind
            {
                self.follow(row.id, None, Some(file), row.mtime);
            }
            open.extend(below.remove(&row.id).into_iter().flatten());
        }
    }

    /// Gives up what was not used for a while until no more than so many inodes are here, at most so many at once. How many it gave up.
    pub fn give_up(&mut self, inodes_max: usize, at_once: usize) -> usize {
        // Each is looked at twice at most before it goes, if nobody uses it.
        let mut looks = 4 * at_once;
        let mut count = 0;
        while count < at_once && self.tree.len() > inodes_max {
            let Some(inode) = self.tree.give_up(&mut looks) else { break };
            if let Some(file) = inode.file() {
                self.blocks.given_up(inode.id, &file.blocks);
            }
            count += 1;
        }
        count
    }
}

#[cfg(feature = "flaws")]
impl Namespace {
    /// Forgets which names changes took away, as if nobody needed that: what the database has of them comes back.
    pub fn forget_tombstones(&mut self) {
        self.tree.forget_tombstones();
    }

    /// How many inodes were looked at in directories since this was asked last.
    #[must_use]
    pub fn take_looks(&self) -> usize {
        self.tree.take_looks()
    }
}

/// A namespace as one operation sees it.
#[derive(Debug)]
pub struct View<'a> {
    namespace: &'a Namespace,
    pub(crate) tree: Names<'a>,
}

impl<'a> View<'a> {
    /// With what is known beside what is here.
    pub(crate) const fn new(namespace: &'a Namespace, known: Option<&'a Known>) -> Self {
        let tree = Names { tree: &namespace.tree, known, missing: RefCell::new(Vec::new()) };
        Self { namespace, tree }
    }

    /// What was looked for, and is not known to be there or not.
    pub(crate) fn missing(self) -> Result<(), Missing> {
        let missing = self.tree.missing.into_inner();
        if missing.is_empty() { Ok(()) } else { Err(Missing(missing)) }
    }
}

impl Deref for View<'_> {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        self.namespace
    }
}

/// A tree as one operation sees it: what it lacks is noted.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    tree: &'a Tree,
    known: Option<&'a Known>,
    missing: RefCell<Vec<Key>>,
}

impl Deref for Names<'_> {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        self.tree
    }
}

impl<'a> Names<'a> {
    fn lacks(&self, key: Key) {
        let mut missing = self.missing.borrow_mut();
        if !missing.contains(&key) {
            missing.push(key);
        }
    }

    /// It is not known whether the user may take away all that is in a directory.
    pub(crate) fn lacks_rights(&self, directory: InodeId) {
        self.lacks(Key::Emptying(directory));
    }

    /// It is not known what a directory counts for.
    pub(crate) fn lacks_usage(&self, directory: InodeId) {
        self.lacks(Key::Usage(directory));
    }

    /// The inode of a number.
    pub(crate) fn get(&self, id: InodeId) -> Option<&'a Inode> {
        let inode = self.tree.get(id);
        if inode.is_none() && self.tree.is_part() && self.known.is_none_or(|known| !known.ids.contains(&id)) {
            self.lacks(Key::Id(id));
        }
        inode
    }

    /// What has a name in a directory. `rest` are the names behind it on the way: they are looked for, too, where this one is.
    pub(crate) fn child(&self, directory: &Inode, name: &[u8], rest: &[&[u8]]) -> Option<&'a Inode> {
        let inode = self.tree.child(directory.id, name);
        if inode.is_none() && !self.is_known(directory, name) {
            let names = std::iter::once(&name).chain(rest).map(|name| Box::from(*name)).collect();
            self.lacks(Key::Path(directory.id, names));
        }
        inode
    }

    fn is_known(&self, directory: &Inode, name: &[u8]) -> bool {
        let key = || (directory.id, Box::from(name));
        !self.tree.is_part()
            || directory.covered().reaches(name)
            || self.tree.was_taken(directory.id, name)
            || self.known.is_some_and(|known| known.names.contains(&key()))
    }

    /// Up to where a directory is here behind a name.
    fn extent(&self, directory: &Inode, after: &[u8]) -> Covered {
        let reach = |covered: &Covered, from: &[u8]| match covered {
            Covered::UpTo(last) if **last <= *from => Covered::UpTo(from.into()),
            covered => covered.clone(),
        };
        let mut extent = reach(directory.covered(), after);
        while let Covered::UpTo(last) = &extent {
            let page = self.known.and_then(|known| known.pages.get(&(directory.id, last.clone())));
            match page {
                Some(page) if !last_is(page, last) => extent = page.clone(),
                _ => break,
            }
        }
        extent
    }

    /// What a directory has behind a name, in the order of names, as far as it is here; one of them at least, if there is any.
    pub(crate) fn children(&self, directory: &Inode, after: &[u8]) -> impl Iterator<Item = &'a Inode> + use<'a> {
        let extent = if self.tree.is_part() { self.extent(directory, after) } else { Covered::All };
        let is_here = {
            let extent = extent.clone();
            move |inode: &&Inode| extent.reaches(&inode.name)
        };
        let children = self.tree.children(directory.id, after);
        if let Covered::UpTo(last) = extent
            && self.tree.children(directory.id, after).next().is_none_or(|first| *first.name > *last)
        {
            self.lacks(Key::Children(directory.id, last));
        }
        children.take_while(is_here)
    }

    /// The next of what a directory has behind a name; if there is none, whether that is sure.
    pub(crate) fn next_child(&self, directory: &Inode, after: &[u8]) -> (Option<&'a Inode>, bool) {
        let next = self.children(directory, after).next();
        let is_whole = !self.tree.is_part() || self.extent(directory, after) == Covered::All;
        (next, is_whole)
    }

    /// How much a directory has behind a name; of what is not here only whether there may be any.
    pub(crate) fn count_after(&self, directory: &Inode, after: &[u8]) -> usize {
        let here = self.tree.count_after(directory.id, after);
        let is_all = !self.tree.is_part() || self.extent(directory, after) == Covered::All;
        if is_all { here } else { here.max(1) }
    }
}

/// Whether a page ends where it begins, which one without rows does.
fn last_is(page: &Covered, name: &[u8]) -> bool {
    matches!(page, Covered::UpTo(last) if **last == *name)
}
