//! Closes a file whose writer has gone.
//!
//! First nobody but the recovery writes the file, and its last block gets a new generation. When that is durable, the data node
//! ends the block under that generation, so that the old writer is refused; what it has of it is what the file has. A file of which its writer
//! promised nothing goes then, or is cut to what it was.

use super::Outcome;
use crate::cache::{Known, Missing, View};
use crate::change::{CLOSERS, Change, File, RECOVERY, TRUNCATION, Unfinished};
use crate::error::{Class, FilesError};
use crate::ids::{BlockId, InodeId, Millis, Stamp};
use crate::lease::SOFT_LIMIT;
use crate::namespace::{Draft, Namespace, path_in};
use crate::permission::{self, Access};
use crate::quota;
use crate::request::Context;
use crate::tree::Inode;

/// What has to be done to close a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The file.
    pub inode: InodeId,
    /// The block that the data node has to end, under which generation.
    pub block: Option<(BlockId, Stamp)>,
    /// The generation under which it was written; not known if its end was begun before.
    pub old: Option<Stamp>,
    /// To how many bytes the data node cuts that block first, if it is to be cut.
    pub length: Option<u64>,
    /// How many bytes of it were acknowledged, as far as is known here.
    pub least: u64,
}

/// What becomes of a wish to close a file.
#[derive(Debug)]
pub enum Begun {
    /// It is closed.
    Closed,
    /// Data nodes are at it.
    UnderWay,
    /// This change first, then the recovery.
    Recovery(Change, Recovery),
}

impl Namespace {
    /// A client wants a file closed, to write it itself; refused if the file is not there, or not the client's to write, or its writer is alive.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn recover_lease(
        &self,
        context: &Context<'_>,
        path: &str,
        client: &str,
        known: Option<&Known>,
    ) -> Result<Result<Begun, FilesError>, Missing> {
        self.look(known, |view| view.recover_lease(context, path, client))
    }

    /// Begins to close a file that its writer has left.
    #[must_use]
    pub fn close_left(&self, id: InodeId, now: Millis) -> Option<(Change, Recovery)> {
        let inode = self.tree.get(id)?;
        inode.file()?.writer.as_ref()?;
        let (change, recovery) = self.begin_recovery(inode, now);
        Some((self.charged_anyway(change), recovery))
    }

    fn begin_recovery(&self, inode: &Inode, now: Millis) -> (Change, Recovery) {
        let mut draft = Draft::new(self, now);
        let stamp = draft.counters().stamp.next();
        let (mut block, mut old, mut length, mut least) = (None, None, None, 0);
        if let Some(file) = draft.file(inode) {
            let is_begun = file.writer.as_ref().is_some_and(|writer| CLOSERS.contains(&&*writer.client));
            close_for(file);
            // Whatever the data node has of it goes, too.
            let goes = file.writer.as_ref().is_some_and(|writer| writer.unfinished == Unfinished::Goes);
            let is_being_cut = file.is_being_cut();
            if let Some(last) = file.blocks.last_mut().filter(|_| !goes) {
                old = Some(last.stamp).filter(|_| !is_begun);
                last.stamp = stamp;
                block = Some((last.id, stamp));
                least = last.length;
                length = Some(last.length).filter(|_| is_being_cut);
            }
        }
        if block.is_some() {
            draft.counters().stamp = stamp;
        }
        (draft.done(None), Recovery { inode: inode.id, block, old, length, least })
    }

    /// Closes a file whose last block the data node has ended with a length; none if it has nothing of it. Nothing if somebody
    /// else has begun another recovery meanwhile, or the file has gone.
    #[must_use]
    pub fn finish_recovery(&self, recovery: Recovery, length: Option<u64>, now: Millis) -> Option<Change> {
        let inode = self.tree.get(recovery.inode)?;
        let file = inode.file()?;
        let last = file.blocks.last().map(|block| (block.id, block.stamp));
        let writer = file.writer.as_ref().filter(|writer| CLOSERS.contains(&&*writer.client))?;
        let mut draft = Draft::new(self, now);
        if writer.unfinished == Unfinished::Goes {
            // What is being taken apart goes anyway.
            path_in(&self.tree, inode.id)?;
            draft.touch(self.tree.get(inode.parent)?);
            draft.remove(inode.id);
            return Some(self.charged_anyway(draft.done(None)));
        }
        if last != recovery.block {
            return None;
        }
        let file = draft.file(inode)?;
        file.writer = None;
        match (file.blocks.last_mut(), length) {
            (Some(block), Some(length)) => (block.length, block.is_committed) = (length, true),
            // What it has lost is missing, and stays to be told.
            (Some(block), None) if block.length > 0 => block.is_committed = true,
            (Some(_), None) => drop(file.blocks.pop()),
            (None, _) => {}
        }
        draft.row(inode).mtime = now;
        Some(self.charged_anyway(draft.done(None)))
    }

    fn charged_anyway(&self, mut change: Change) -> Change {
        quota::charge_anyway(&View::new(self, None), &mut change);
        change
    }
}

/// From now on it is the name node that closes a file. What its writer promised nothing of is not there any more.
fn close_for(file: &mut File) {
    let Some(writer) = &mut file.writer else { return };
    match writer.unfinished {
        Unfinished::CutTo(length) => {
            (writer.client, writer.unfinished) = (TRUNCATION.into(), Unfinished::Stays);
            let mut end = 0;
            file.blocks.edit(|blocks| {
                blocks.retain_mut(|block| {
                    let room = length - end;
                    block.length = block.length.min(room);
                    end += block.length;
                    room > 0
                });
            });
            // The data node may have more of it, whatever was said of its length.
            if let Some(last) = file.blocks.last_mut() {
                last.is_committed = false;
            }
        }
        Unfinished::Stays | Unfinished::Goes if *writer.client == *TRUNCATION => {}
        Unfinished::Stays | Unfinished::Goes => writer.client = RECOVERY.into(),
    }
}

impl View<'_> {
    /// Whether a client may begin to write a file that is there. If its writer has gone, that begins to be closed, and the client is refused.
    pub(super) fn take_turn(
        &self,
        context: &Context<'_>,
        (what, path): (&str, &str),
        inode: &Inode,
        client: &str,
    ) -> Result<Option<Outcome>, FilesError> {
        let Some(writer) = inode.file().and_then(|file| file.writer.as_ref()) else { return Ok(None) };
        let refusal = |class, why: String| {
            let machine = context.machine;
            FilesError::new(class, format!("Failed to {what} {path} for {client} on {machine} because {why}"))
        };
        if *writer.client == *client {
            let why = format!("{client} is already the current lease holder.");
            return Err(refusal(Class::AlreadyBeingCreated, why));
        }
        let owner = format!("{} on {}", writer.client, writer.machine);
        if CLOSERS.contains(&&*writer.client) {
            let why = format!("another recovery is in progress by {owner}");
            return Err(refusal(Class::RecoveryInProgress, why));
        }
        if !self.leases.is_over(&writer.client, SOFT_LIMIT, context.now) {
            let why = format!("this file lease is currently owned by {owner}");
            return Err(refusal(Class::AlreadyBeingCreated, why));
        }
        let (change, recovery) = self.begin_recovery(inode, context.now);
        let why = "lease recovery is in progress. Try again later.".to_owned();
        Ok(Some(Outcome::Closing(Err(refusal(Class::RecoveryInProgress, why)), change, recovery)))
    }

    fn recover_lease(&self, context: &Context<'_>, path: &str, client: &str) -> Result<Begun, FilesError> {
        let path = &*self.named_path(path)?;
        let at = self.resolve(path, context)?;
        let inode = at.existing()?;
        let file = inode.file().ok_or_else(|| super::status::not_a_file(path))?;
        permission::check(&self.tree, inode, Access::WRITE, context)?;
        let Some(writer) = &file.writer else { return Ok(Begun::Closed) };
        if *writer.client == *client && !self.leases.is_over(client, SOFT_LIMIT, context.now) {
            let words = format!("Failed to RECOVER_LEASE {path} for {client} because it is already the lease owner");
            return Err(FilesError::new(Class::AlreadyBeingCreated, words));
        }
        let is_at_it = |block: &crate::change::Block| self.blocks.is_closing(block.id);
        if CLOSERS.contains(&&*writer.client) && file.blocks.last().is_some_and(is_at_it) {
            return Ok(Begun::UnderWay);
        }
        let (mut change, recovery) = self.begin_recovery(inode, context.now);
        quota::charge_anyway(self, &mut change);
        Ok(Begun::Recovery(change, recovery))
    }
}
