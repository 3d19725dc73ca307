//! Closes files whose writers do not come to their end: those of clients that have gone, and those that a writer over HTTP leaves.
//!
//! First nobody but the recovery writes the file; when the log has that, the data node ends its last block; then the file is closed.

use parking_lot::RwLockWriteGuard;
use savanna_files::blocks::Ended;
use savanna_files::ids::{InodeId, Millis};
use savanna_files::operation::{Begun, Recovery};
use savanna_files::{Class, FilesError, Known, Namespace};
use savanna_files_datanode::ReplicaError;
use savanna_journal::Lsn;

use super::{Asker, Files, State, Unanswered, nodes, now};
use crate::behind;

/// What a client's wish to close a file comes to: what has to be done, or whether it is closed.
type Wish = Result<Result<Recovery, bool>, FilesError>;

impl Files {
    /// Closes a file whose writer has gone, for a client that wants to write it. Whether it is closed. Blocks.
    pub(super) fn recover_lease(&self, asker: &Asker<'_>, path: &str, client: &str) -> Result<bool, Unanswered> {
        let groups = self.0.groups.of(asker.user);
        let context = self.context(asker, &groups);
        let begin = |state: &mut RwLockWriteGuard<'_, State>, known: Option<&Known>| {
            let told = |state: &State, outcome: Wish| (state.pending.position(state.namespace.txid()), outcome);
            Ok(match state.namespace.recover_lease(&context, path, client, known)? {
                Ok(Begun::Recovery(change, recovery)) => {
                    self.commit(state, change).map(|lsn| (Some(lsn), Ok(Ok(recovery))))
                }
                Ok(Begun::Closed) => Ok(told(state, Ok(Err(true)))),
                Ok(Begun::UnderWay) => Ok(told(state, Ok(Err(false)))),
                Err(error) => Ok(told(state, Err(error))),
            })
        };
        let begun = begin(&mut self.0.state.write(), None);
        let begun = begun
            .or_else(|missing| self.with_all(missing, behind::deadline(), |mut state, known| begin(&mut state, known)));
        match begun?? {
            (Some(begun), Ok(Ok(recovery))) => self.close_left(begun, recovery),
            (position, outcome) => {
                self.wait(position)?;
                Ok(outcome? == Err(true))
            }
        }
    }

    /// Closes the files of writers that have gone for good. Blocks.
    pub(crate) fn close_all_left(&self, left: impl Fn(&Namespace, Millis) -> Vec<InodeId>) -> Result<(), Unanswered> {
        let now = now();
        let files = left(&self.0.state.read().namespace, now);
        let mut done = Ok(());
        for file in files {
            let mut state = self.0.state.write();
            let Some((change, recovery)) = state.namespace.close_left(file, now) else { continue };
            let lsn = self.commit(&mut state, change)?;
            drop(state);
            match self.close_left(lsn, recovery) {
                Ok(true) => tracing::info!(inode = %file, "closed a file whose writer has gone"),
                Ok(false) => {}
                // The others can be closed all the same.
                Err(error @ Unanswered::Refused(_)) => done = Err(error),
                Err(Unanswered::Gone) => return Err(Unanswered::Gone),
            }
        }
        done
    }

    /// Ends the last block of a file whose recovery was begun at a position of the log, and closes the file.
    /// Whether it is closed.
    pub(crate) fn close_left(&self, begun: Lsn, recovery: Recovery) -> Result<bool, Unanswered> {
        self.wait(Some(begun))?;
        let replicas = self.replicas();
        let here = recovery.block.and_then(|(block, _)| replicas.look(block)).map(nodes::here);
        if self.0.state.write().namespace.blocks.close(recovery, here) != Ended::Here {
            return Ok(false);
        }
        let ended = recovery.block.map(|(block, stamp)| match recovery.length {
            Some(length) => replicas.cut(block, stamp, length),
            None => replicas.recover(block, stamp, recovery.least),
        });
        let ended = ended.transpose();
        let ended = match ended {
            Ok(ended) => ended.flatten(),
            // Another recovery has begun since, and goes on with it.
            Err(ReplicaError::Replaced { .. }) => return self.is_closed(recovery.inode),
            Err(error) => return Err(FilesError::new(Class::Io, error.to_string()).into()),
        };
        let mut state = self.0.state.write();
        if let Some(replica) = ended {
            state.namespace.blocks.received(replica);
        }
        let length = ended.map(|replica| replica.length);
        let Some(change) = state.namespace.finish_recovery(recovery, length, now()) else {
            drop(state);
            return self.is_closed(recovery.inode);
        };
        let lsn = self.commit(&mut state, change)?;
        drop(state);
        self.wait(Some(lsn))?;
        Ok(true)
    }

    /// Closes a file that a client writes and goes on with no more: with what the data node has of it, or as it was before, as the client said when it
    /// opened it. Nothing if somebody else writes it by now. Blocks.
    pub(super) fn leave(&self, file: InodeId, client: &str) -> Result<(), Unanswered> {
        let mut state = self.0.state.write();
        let is_its = state.namespace.leases.files(client).any(|id| id == file);
        let Some((change, recovery)) = is_its.then(|| state.namespace.close_left(file, now())).flatten() else {
            let position = state.pending.position(state.namespace.txid());
            drop(state);
            return self.wait(position);
        };
        let lsn = self.commit(&mut state, change)?;
        drop(state);
        self.close_left(lsn, recovery).map(drop)
    }

    /// Whether a file has no writer, and the log says so.
    pub(super) fn is_closed(&self, file: InodeId) -> Result<bool, Unanswered> {
        let state = self.0.state.read();
        let inode = state.namespace.tree().get(file);
        // Nobody writes one that is not here: those that are written are.
        let is_closed = inode.and_then(|inode| inode.file()).is_none_or(|file| file.writer.is_none());
        let position = state.pending.position(state.namespace.txid());
        drop(state);
        self.wait(position)?;
        Ok(is_closed)
    }
}
