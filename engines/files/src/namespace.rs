//! The namespace: what there is, and how a change changes it.

use std::sync::Arc;

use crate::acl;
use crate::blocks::Blocks;
use crate::cache::{Known, Missing, View};
use crate::change::{Change, Counters, File, Kind, More, Retry, Row};
use crate::error::FilesError;
use crate::ids::{InodeId, Millis, Txid};
use crate::lease::Leases;
use crate::path;
use crate::permission::{self, Access};
use crate::request::{Context, Modes};
use crate::retry::RetryCache;
use crate::tree::{Inode, Tree};

/// Inodes that one look at the namespace goes over, while writers wait.
pub const AT_ONCE: usize = 256;

/// Everything that a name node knows.
#[derive(Debug)]
pub struct Namespace {
    pub(crate) tree: Tree,
    /// Which file a block belongs to, and whether the data node has it.
    pub blocks: Blocks,
    /// Who writes what.
    pub leases: Leases,
    pub(crate) retries: RetryCache,
    counters: Counters,
    txid: Txid,
    /// Whether changes are refused because somebody said so.
    pub is_safe: bool,
    /// Whether they are until data nodes have reported.
    pub is_waiting: bool,
    /// Whether it is not known yet which replicas the data node in the process has: changes are refused, and what says where blocks are.
    pub is_reading: bool,
    /// What operations keep to.
    pub(crate) limits: Limits,
}

/// What operations keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The least that a client may choose as the size of blocks.
    pub block_size_min: u64,
    /// Entries of one answer to a listing.
    pub listing: usize,
    /// Names in one directory.
    pub names: usize,
    /// Blocks of one file.
    pub blocks: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { block_size_min: 16, listing: 1_000, names: 1 << 20, blocks: 10_000 }
    }
}

impl Namespace {
    /// One that is empty. The root belongs to who runs the process.
    #[must_use]
    pub fn new(superuser: &str, limits: Limits) -> Self {
        let mut tree = Tree::default();
        for (id, name) in [(InodeId::ROOT, ""), (InodeId::DOOMED, "doomed")] {
            let row = Row {
                id,
                parent: InodeId::NOWHERE,
                name: name.as_bytes().into(),
                owner: superuser.into(),
                group: "supergroup".into(),
                mode: 0o755,
                mtime: Millis(0),
                atime: Millis(0),
                kind: Kind::Directory,
                more: None,
            };
            tree.put(&row, Txid(0));
        }
        Self {
            tree,
            blocks: Blocks::default(),
            leases: Leases::default(),
            retries: RetryCache::default(),
            counters: Counters::default(),
            txid: Txid(0),
            is_safe: false,
            is_waiting: false,
            is_reading: false,
            limits,
        }
    }

    /// The newest change.
    #[must_use]
    pub const fn txid(&self) -> Txid {
        self.txid
    }

    /// The numbers that were given last.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// All inodes.
    #[must_use]
    pub const fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Files and directories that there are, without the two that nobody made.
    #[must_use]
    pub fn inode_count(&self) -> usize {
        self.tree.len() - 2
    }

    /// The path of an inode that is here; none if it is being taken apart.
    #[must_use]
    pub fn path(&self, id: InodeId) -> Option<String> {
        path_in(&self.tree, id)
    }

    /// Does a change. One that was done before changes nothing. What of it is not in its rows, for a database.
    pub fn apply(&mut self, change: &Change) -> Applied {
        let mut applied = Applied::default();
        if change.txid <= self.txid {
            return applied;
        }
        self.blocks.begins(change.txid);
        // What went had names that others may have now, and blocks.
        let gone: Vec<(InodeId, Option<File>)> = change
            .gone
            .iter()
            .filter_map(|id| Some((*id, self.tree.remove(*id, change.txid)?.file().cloned())))
            .collect();
        for row in &change.rows {
            let before = self.tree.put(row, change.txid);
            if before.has_moved {
                applied.moved.push(row.id);
            }
            if let Kind::File(file) = &row.kind {
                self.follow(row.id, before.file.as_ref(), Some(file), change.at);
            }
        }
        for (id, file) in gone {
            self.follow(id, file.as_ref(), None, change.at);
        }
        if self.tree.is_part() {
            let count = |row: &Row| self.tree.get(row.id).map_or(0, Inode::child_count);
            applied.children.extend(change.rows.iter().map(count));
        }
        self.counters = change.counters;
        if let Some(retry) = change.retry {
            self.answered(retry, change.txid, change.at);
        }
        self.txid = change.txid;
        applied
    }

    /// The answer to a call that may come again.
    pub(crate) fn answered(&mut self, retry: Retry, txid: Txid, at: Millis) {
        self.retries.add(retry, txid, at);
    }

    /// Answers to calls that may come again, the oldest first, with their instants and changes.
    pub(crate) fn kept_answers(&self) -> impl Iterator<Item = (Millis, Txid, Retry)> {
        let kept = self.retries.iter();
        kept.filter_map(|(at, retry)| Some((at, self.retries.get(&retry.call)?.1, retry)))
    }

    /// What is here is as of a change.
    pub(crate) const fn begins_at(&mut self, txid: Txid, counters: Counters) {
        (self.txid, self.counters) = (txid, counters);
    }

    /// What somebody comes to who looks, unless something is missing.
    pub(crate) fn look<T>(&self, known: Option<&Known>, see: impl FnOnce(&View<'_>) -> T) -> Result<T, Missing> {
        let view = View::new(self, known);
        let seen = see(&view);
        view.missing()?;
        Ok(seen)
    }

    /// Blocks and leases follow from what files are.
    pub(crate) fn follow(&mut self, id: InodeId, before: Option<&File>, after: Option<&File>, at: Millis) {
        self.blocks.changed(id, before, after);
        let [before, after] = [before, after].map(|file| file.and_then(|file| file.writer.as_ref()));
        if let Some(writer) = before
            && after.is_none_or(|after| after.client != writer.client)
        {
            self.leases.remove(&writer.client, id);
        }
        if let Some(writer) = after {
            self.leases.add(&writer.client, id, at);
        }
    }

    /// All that there is, as changes of so many rows that make it again out of nothing. None is the same as another
    /// namespace's: they are for a log that keeps nothing else.
    pub fn snapshot(&self, rows_max: usize) -> impl Iterator<Item = Change> {
        let Self { txid, counters, .. } = *self;
        let change = move |rows, retry, at| Change { txid, at, counters, rows, gone: Vec::new(), retry };
        let retries = self.retries.iter().map(move |(at, retry): (Millis, Retry)| change(Vec::new(), Some(retry), at));
        let mut rows = self.tree.rows();
        let parts = std::iter::from_fn(move || {
            let part: Vec<Row> = rows.by_ref().take(rows_max).collect();
            (!part.is_empty()).then(|| change(part, None, Millis(0)))
        });
        parts.chain(retries)
    }

    /// Takes a part of a snapshot in.
    pub fn restore(&mut self, part: &Change) {
        self.txid = Txid(0);
        self.apply(part);
        self.txid = part.txid;
    }

    /// Inodes of subtrees that were deleted, at most so many, each after what was in it: the change that removes them.
    ///
    /// # Errors
    /// [`Missing`], if there may be some that are not here.
    pub fn dismantle(&self, now: Millis, inodes_max: usize, known: Option<&Known>) -> Result<Option<Change>, Missing> {
        let view = View::new(self, known);
        let gone = view.dismantled(inodes_max);
        if gone.is_empty() {
            view.missing()?;
            return Ok(None);
        }
        let (txid, counters) = (self.txid.next(), self.counters);
        Ok(Some(Change { txid, at: now, counters, rows: Vec::new(), gone, retry: None }))
    }
}

impl View<'_> {
    /// Inodes of subtrees that were deleted, each after what was in it.
    fn dismantled(&self, inodes_max: usize) -> Vec<InodeId> {
        let mut gone = Vec::new();
        let Some(doomed) = self.tree.get(InodeId::DOOMED) else { return gone };
        // The directories from the doomed one down, each with the name that was looked at last.
        let mut open: Vec<(&Inode, Box<[u8]>)> = vec![(doomed, Box::default())];
        while let Some((directory, after)) = open.last_mut() {
            if gone.len() >= inodes_max {
                break;
            }
            let (next, is_whole) = self.tree.next_child(directory, after);
            match next {
                Some(inode) if inode.is_directory() => {
                    after.clone_from(&inode.name);
                    open.push((inode, Box::default()));
                }
                Some(inode) => {
                    after.clone_from(&inode.name);
                    gone.push(inode.id);
                }
                // More of it may be elsewhere.
                None if !is_whole => break,
                None => {
                    let Some((directory, _)) = open.pop() else { break };
                    if directory.id != InodeId::DOOMED {
                        gone.push(directory.id);
                    }
                }
            }
        }
        gone
    }

    /// Looks a path up as far as it goes.
    pub(crate) fn resolve<'t, 'p>(
        &'t self,
        path: &'p str,
        context: &Context<'_>,
    ) -> Result<Resolved<'t, 'p>, FilesError> {
        let names = path::names(path)?;
        let Some(root) = self.tree.get(InodeId::ROOT) else { return Err(FilesError::no_file("/")) };
        let (mut found, mut depends) = (vec![root], root.txid);
        let mut at = root;
        for (depth, name) in names.iter().enumerate() {
            if !at.is_directory() {
                break;
            }
            permission::check(&self.tree, at, Access::EXECUTE, context)?;
            let Some(next) = self.tree.child(at, name, &names[depth + 1..]) else { break };
            depends = depends.max(next.txid);
            found.push(next);
            at = next;
        }
        Ok(Resolved { path, names, found, depends })
    }
}

/// What a change did that is not in its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// What was there under another name.
    pub moved: Vec<InodeId>,
    /// How many children the inode of each row has now; nothing without a database.
    pub children: Vec<usize>,
}

/// A path, and the inodes along it.
#[derive(Debug)]
pub(crate) struct Resolved<'t, 'p> {
    pub(crate) path: &'p str,
    pub(crate) names: Vec<&'p [u8]>,
    /// The root, and what follows as far as it is there.
    pub(crate) found: Vec<&'t Inode>,
    /// The newest change of what was found.
    pub(crate) depends: Txid,
}

impl<'t, 'p> Resolved<'t, 'p> {
    /// What the path names, if that is there.
    pub(crate) fn inode(&self) -> Option<&'t Inode> {
        self.found.get(self.names.len()).copied()
    }

    /// The last inode along the path that is there.
    pub(crate) fn nearest(&self) -> &'t Inode {
        self.found[self.found.len() - 1]
    }

    /// The directory of what the path names, if that is there and the path is not that of the root.
    pub(crate) fn parent(&self) -> Option<&'t Inode> {
        self.found.get(self.names.len().checked_sub(1)?).copied()
    }

    /// The names that are missing.
    pub(crate) fn missing(&self) -> &[&'p [u8]] {
        &self.names[self.found.len() - 1..]
    }

    /// Whether what the path names may be taken from where it is, or could be if it were there. Of the root that is not asked.
    pub(crate) fn check_removal(&self, tree: &Tree, context: &Context<'_>) -> Result<(), FilesError> {
        match (self.parent(), self.inode()) {
            (Some(parent), Some(inode)) => permission::check_removal(tree, parent, inode, context),
            (Some(parent), None) if parent.is_directory() => permission::check(tree, parent, Access::WRITE, context),
            _ => Ok(()),
        }
    }

    /// Whether something may be made where the path leads, or on the way there. Of the root, and in a file, that is not asked.
    pub(crate) fn check_making(&self, tree: &Tree, context: &Context<'_>) -> Result<(), FilesError> {
        let above = self.parent().unwrap_or_else(|| self.nearest());
        let is_asked = !self.names.is_empty() && above.is_directory();
        if is_asked { permission::check(tree, above, Access::WRITE, context) } else { Ok(()) }
    }

    /// The file or directory.
    pub(crate) fn existing(&self) -> Result<&'t Inode, FilesError> {
        self.inode().ok_or_else(|| FilesError::no_file(self.path))
    }
}

/// The path of an inode; none if it is not there, or is being taken apart.
pub(crate) fn path_in(tree: &Tree, id: InodeId) -> Option<String> {
    let mut names = Vec::new();
    let mut at = tree.get(id)?;
    while at.id != InodeId::ROOT {
        if at.id == InodeId::DOOMED {
            return None;
        }
        names.push(String::from_utf8_lossy(&at.name));
        at = tree.get(at.parent)?;
    }
    if names.is_empty() {
        return Some("/".to_owned());
    }
    names.reverse();
    Some(names.iter().flat_map(|name| ["/", name]).collect())
}

/// Collects what an operation changes.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    tree: &'a Tree,
    change: Change,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(namespace: &'a Namespace, now: Millis) -> Self {
        let (txid, counters) = (namespace.txid.next(), namespace.counters);
        let change = Change { txid, at: now, counters, rows: Vec::new(), gone: Vec::new(), retry: None };
        Self { tree: &namespace.tree, change }
    }

    /// The numbers that were given last, to give the next.
    pub(crate) const fn counters(&mut self) -> &mut Counters {
        &mut self.change.counters
    }

    /// An inode as it will be, to be changed.
    pub(crate) fn row(&mut self, inode: &Inode) -> &mut Row {
        let at = self.change.rows.iter().position(|row| row.id == inode.id).unwrap_or_else(|| {
            self.change.rows.push(self.tree.row(inode));
            self.change.rows.len() - 1
        });
        &mut self.change.rows[at]
    }

    /// A file as it will be, to be changed; none if it is a directory.
    pub(crate) fn file(&mut self, inode: &Inode) -> Option<&mut File> {
        match &mut self.row(inode).kind {
            Kind::File(file) => Some(file),
            Kind::Directory => None,
        }
    }

    /// A directory has other names than before.
    pub(crate) fn touch(&mut self, directory: &Inode) {
        let now = self.change.at;
        self.row(directory).mtime = now;
    }

    /// A new inode, with what default entries of its directory say.
    pub(crate) fn add(
        &mut self,
        parent: InodeId,
        name: &[u8],
        modes: Modes,
        owner: &str,
        group: &Arc<str>,
        kind: Kind,
    ) -> &Row {
        let id = self.change.counters.inode.next();
        self.change.counters.inode = id;
        let (owner, group, now) = (owner.into(), Arc::clone(group), self.change.at);
        let made = self.change.rows.iter().find(|row| row.id == parent).map(|row| &row.more);
        let of_parent = made.or_else(|| self.tree.get(parent).map(|inode| &inode.more));
        let of_parent = of_parent.and_then(Option::as_ref).map_or(&[][..], |more| &more.acl);
        let (acl, mode) = acl::inherited(of_parent, modes, kind == Kind::Directory);
        let more = (!acl.is_empty()).then(|| Box::new(More { acl, ..More::default() }));
        let atime = if kind == Kind::Directory { Millis(0) } else { now };
        self.change.rows.push(Row { id, parent, name: name.into(), owner, group, mode, mtime: now, atime, kind, more });
        &self.change.rows[self.change.rows.len() - 1]
    }

    /// An inode that goes, with nothing in it.
    pub(crate) fn remove(&mut self, id: InodeId) {
        self.change.gone.push(id);
    }

    /// The change, and how its call is answered when it comes again.
    pub(crate) fn done(self, retry: Option<Retry>) -> Change {
        Change { retry, ..self.change }
    }
}
