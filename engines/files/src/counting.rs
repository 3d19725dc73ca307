//! What a subtree counts for in quotas, counted before the operation that needs it, a part at a time. What changes meanwhile is followed, so that what was
//! counted is what there is.
//!
//! The walk goes over the subtree by names, so of each inode it is known whether it was counted. Whatever changes, comes or goes is taken out of
//! what was counted and kept by its number, and the walk leaves it out from then on: so it makes no difference in which order names and changes are seen, nor
//! whether the walk sees an inode in memory or in the database, as long as that has all up to where the count began. A directory that moves within the subtree takes
//! along how far the walk has come in it. Of one that comes or goes with what is in it that is not known: then all is counted again.

use std::collections::{HashMap, HashSet};

use crate::cache::Stored;
use crate::change::{Change, File, Quota, Row, Usage};
use crate::ids::{InodeId, Txid};
use crate::namespace::Namespace;
use crate::quota::Delta;
use crate::tree::{Covered, Inode, Tree};

/// So many changes are followed; of more it is counted again.
const CHANGED_MAX: usize = 1 << 16;

/// A count that is under way, or done. Each change has to be [followed](Self::follow) until it is used.
#[derive(Debug)]
pub struct Counting {
    root: InodeId,
    /// The directories that are left, the next one last; of each that is in `after`, behind which name.
    open: Vec<InodeId>,
    after: HashMap<InodeId, Box<[u8]>>,
    /// What was counted and has not changed since.
    sum: Delta,
    /// What changed since it began, and what it counts for now.
    changed: HashMap<InodeId, Delta>,
    of_changed: Delta,
    /// Directories that were moved with what is in them. The walk goes into them all the same.
    moved: HashSet<InodeId>,
    since: Txid,
    is_over: bool,
}

/// How far a count has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There may be more.
    More,
    /// That is all.
    All,
    /// What is in this directory behind a name is not here.
    NotHere(InodeId, Box<[u8]>),
    /// Something moved: it has to be counted again.
    Over,
}

impl Counting {
    /// Of a directory without a quota, beginning now.
    #[must_use]
    pub fn of(namespace: &Namespace, root: InodeId) -> Self {
        Self {
            root,
            open: vec![root],
            after: HashMap::from([(root, Box::default())]),
            sum: Delta { names: 1, space: 0 },
            changed: HashMap::new(),
            of_changed: Delta::default(),
            moved: HashSet::new(),
            since: namespace.txid(),
            is_over: false,
        }
    }

    /// What it is a count of.
    #[must_use]
    pub const fn root(&self) -> InodeId {
        self.root
    }

    /// Whether it has to be counted again.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Nobody goes on with it: it has to be counted again.
    pub const fn give_up(&mut self) {
        self.is_over = true;
    }

    /// A database has to have all up to this change for what it has to be counted.
    #[must_use]
    pub const fn since(&self) -> Txid {
        self.since
    }

    /// What the subtree counts for at this instant, if all of it was counted.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        let count =
            |of: fn(Delta) -> i128| u64::try_from((of(self.sum) + of(self.of_changed)).max(0)).unwrap_or(u64::MAX);
        let is_done = !self.is_over && self.after.is_empty();
        is_done.then(|| Usage { names: count(|it| it.names), space: count(|it| it.space) })
    }

    /// Counts some more inodes of what is in memory.
    pub fn go_on(&mut self, namespace: &Namespace, inodes: usize) -> Progress {
        let tree = &namespace.tree;
        let mut left = inodes;
        while let Some(directory) = self.open.pop() {
            if self.is_over {
                return Progress::Over;
            }
            // It may have gone.
            let Some(mut after) = self.after.remove(&directory) else { continue };
            let is_here = tree.get(directory).is_some_and(|inode| *inode.covered() == Covered::All);
            if tree.is_part() && !is_here {
                self.go_back_to(directory, after.clone());
                return Progress::NotHere(directory, after);
            }
            let mut below = Vec::new();
            for inode in tree.children(directory, &after).take(left) {
                left -= 1;
                let is_opened = inode.child_count() > 0 && inode.quota().is_none();
                if self.count(inode.id, Delta::of(inode.quota(), inode.file())) && is_opened {
                    below.push(inode.id);
                }
                after.clone_from(&inode.name);
            }
            if left == 0 {
                // Behind what was counted there may be more.
                self.go_back_to(directory, after);
            }
            below.into_iter().for_each(|directory| self.go_back_to(directory, Box::default()));
            if left == 0 {
                return Progress::More;
            }
        }
        if self.is_over { Progress::Over } else { Progress::All }
    }

    /// Counts what a database has of a directory behind a name, in the order of names: some of it, or the rest. Nothing if it was counted already.
    pub fn take(&mut self, directory: InodeId, after: &[u8], children: &[Stored], is_end: bool) {
        if self.after.get(&directory).is_none_or(|counted| **counted != *after) {
            return;
        }
        let mut below = Vec::new();
        for Stored { row, children, .. } in children {
            let is_opened = *children > 0 && quota_of(row).is_none();
            if self.count(row.id, Delta::of(quota_of(row), row.file())) && is_opened {
                below.push(row.id);
            }
        }
        match children.last() {
            _ if is_end => drop(self.after.remove(&directory)),
            Some(last) => drop(self.after.insert(directory, last.row.name.clone())),
            None => {}
        }
        below.into_iter().for_each(|directory| self.go_back_to(directory, Box::default()));
    }

    fn go_back_to(&mut self, directory: InodeId, after: Box<[u8]>) {
        self.open.push(directory);
        self.after.insert(directory, after);
    }

    /// Counts an inode, unless it changed since this began: then that is known already. Whether it did.
    fn count(&mut self, id: InodeId, usage: Delta) -> bool {
        let is_new = !self.changed.contains_key(&id);
        if is_new {
            self.sum += usage;
        }
        is_new
    }

    /// A change is done next, with these rows.
    pub fn follow(&mut self, tree: &Tree, change: &Change, rows: &Rows<'_>) {
        if self.is_over {
            return;
        }
        let (root, mut inside) = (self.root, HashMap::new());
        for row in change.rows.iter().filter(|row| row.id != root) {
            let before = tree.get(row.id);
            let was_inside = before.is_some_and(|inode| self.is_inside(tree, None, inode.parent, &mut HashMap::new()));
            let is_inside = self.is_inside(tree, Some(rows), row.parent, &mut inside);
            if !was_inside && !is_inside {
                continue;
            }
            if let Some(inode) = before.filter(|inode| inode.is_directory()) {
                let moves = (inode.parent, &inode.name) != (row.parent, &row.name);
                let is_limited = inode.quota().is_some();
                let is_full = !is_limited && inode.child_count() > 0;
                // What is in it would have to say by itself where it is now.
                if is_limited != quota_of(row).is_some() || moves && is_full && was_inside != is_inside {
                    self.is_over = true;
                    return;
                }
                if !moves && !is_limited {
                    continue;
                }
                if is_full {
                    self.move_within(tree, inode);
                    continue;
                }
            }
            let now = if is_inside { Delta::of(quota_of(row), row.file()) } else { Delta::default() };
            self.change(tree, row.id, before.filter(|_| was_inside), now);
        }
        for inode in change.gone.iter().filter_map(|id| tree.get(*id)) {
            if self.is_inside(tree, None, inode.parent, &mut HashMap::new()) {
                self.change(tree, inode.id, Some(inode), Delta::default());
            }
        }
        self.is_over |= self.changed.len() > CHANGED_MAX;
    }

    /// A directory moves with what is in it, within the subtree.
    fn move_within(&mut self, tree: &Tree, directory: &Inode) {
        let (id, one) = (directory.id, Delta { names: 1, space: 0 });
        // What is in one that is new is known by itself.
        if self.changed.contains_key(&id) {
            return;
        }
        let was_counted = self.was_counted(tree, directory);
        self.changed.insert(id, one);
        self.of_changed += one;
        self.moved.insert(id);
        if was_counted {
            self.sum -= one;
        } else {
            // Where it is now the walk leaves it out.
            self.go_back_to(id, Box::default());
        }
    }

    /// An inode counts for this from now on. `before` is what it was, if it was in the subtree.
    fn change(&mut self, tree: &Tree, id: InodeId, before: Option<&Inode>, now: Delta) {
        let known = self.changed.insert(id, now);
        if known.is_none()
            && let Some(inode) = before
            && self.was_counted(tree, inode)
        {
            self.sum -= Delta::of(inode.quota(), inode.file());
        }
        self.of_changed += now;
        self.of_changed -= known.unwrap_or_default();
        // What comes into it from now on is new.
        self.after.remove(&id);
    }

    /// Whether what is in a directory counts by itself: it is in the subtree, and none of the directories on the way has a quota. With the rows of a change,
    /// when that is done.
    fn is_inside(
        &self,
        tree: &Tree,
        rows: Option<&Rows<'_>>,
        directory: InodeId,
        seen: &mut HashMap<InodeId, bool>,
    ) -> bool {
        let (mut at, mut way) = (directory, Vec::new());
        let is_inside = loop {
            if let Some(known) = seen.get(&at) {
                break *known;
            }
            if at == self.root {
                break true;
            }
            let row = rows.and_then(|rows| rows.get(&at));
            let above = match (row, tree.get(at)) {
                (Some(row), _) => quota_of(row).is_none().then_some(row.parent),
                (None, Some(inode)) => inode.quota().is_none().then_some(inode.parent),
                (None, None) => None,
            };
            way.push(at);
            let Some(above) = above else { break false };
            at = above;
        };
        seen.extend(way.into_iter().map(|id| (id, is_inside)));
        is_inside
    }

    /// Whether the walk has come by an inode that has not changed since it began.
    fn was_counted(&self, tree: &Tree, inode: &Inode) -> bool {
        let mut at = inode;
        loop {
            if let Some(after) = self.after.get(&at.parent) {
                return at.name <= *after;
            }
            if at.parent == self.root {
                return true;
            }
            if self.moved.contains(&at.parent) {
                return true;
            }
            // Into what is new, the walk does not go.
            if self.changed.contains_key(&at.parent) {
                return false;
            }
            match tree.get(at.parent) {
                Some(above) => at = above,
                None => return false,
            }
        }
    }
}

/// The rows of a change, by their numbers.
pub type Rows<'c> = HashMap<InodeId, &'c Row>;

/// The rows of a change, by their numbers.
#[must_use]
pub fn rows_of(change: &Change) -> Rows<'_> {
    change.rows.iter().map(|row| (row.id, row)).collect()
}

fn quota_of(row: &Row) -> Option<&Quota> {
    row.more.as_ref()?.quota.as_ref()
}

impl Delta {
    /// What an inode counts for: a directory with a quota for all that is in it.
    fn of(quota: Option<&Quota>, file: Option<&File>) -> Self {
        quota.map_or_else(|| Self { names: 1, space: file.map_or(0, File::space).into() }, |quota| quota.used.into())
    }
}
