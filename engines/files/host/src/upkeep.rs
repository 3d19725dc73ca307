//! What nobody asks for: replicas that no file has any more, subtrees that were deleted, files whose writers have gone, the trash of users.

use std::collections::HashSet;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use savanna_files::change::CLOSERS;
use savanna_files::ids::{BlockId, InodeId, Millis};
use savanna_files::lease::HARD_LIMIT;
use savanna_files::operation::Recovery;
use savanna_journal::Lsn;

use crate::files::{Files, Unanswered, now};
use crate::trash::Emptier;

/// How often it looks whether there is something to do.
const INTERVAL: Duration = Duration::from_millis(500);

/// What it is told to do.
#[derive(Debug)]
pub(crate) enum Task {
    /// These blocks have no file any more, and the log says so.
    Remove(Vec<BlockId>),
    /// This file is to be closed, once the log has all up to a position.
    Close(Lsn, Recovery),
    /// To end.
    End,
}

/// The thread that does it.
#[derive(Debug)]
pub struct Upkeep(JoinHandle<()>);

impl Upkeep {
    /// Begins with the replicas; see [`Files::begin_replicas`].
    pub(crate) fn begin(files: Files, tasks: Receiver<Task>, deleted: HashSet<BlockId>) -> io::Result<Self> {
        let mut emptier = Emptier::new(files.trash_minutes(), now());
        let thread = std::thread::Builder::new().name("files-upkeep".to_owned());
        Ok(Self(thread.spawn(move || {
            if files.begin_replicas(&deleted) {
                run(&files, &tasks, emptier.as_mut());
            }
        })?))
    }

    /// Waits until it has ended, which it does when the files are closed, and when the log ends by itself.
    pub fn wait(self) {
        if self.0.join().is_err() {
            tracing::error!("the thread that looks after files panicked");
        }
    }
}

fn run(files: &Files, tasks: &Receiver<Task>, mut emptier: Option<&mut Emptier>) {
    // A recovery that was under way when the process ended is begun again.
    let mut done = files.close_all_left(|namespace, _| {
        CLOSERS.into_iter().flat_map(|client| namespace.leases.files(client)).collect::<Vec<InodeId>>()
    });
    let mut next = Instant::now() + INTERVAL;
    // There may be more to take apart of what was deleted.
    let mut has_more = false;
    loop {
        // Without a lease it goes on when there is one again.
        if done == Err(Unanswered::Gone) && files.has_ended() {
            return;
        }
        if let Err(Unanswered::Refused(error)) = &done {
            tracing::warn!(%error, "could not clean up; it is tried again");
        }
        // Removals come without end, perhaps, and what was deleted may be large; the rest has its turn all the same.
        let patience = if has_more { Duration::ZERO } else { next.saturating_duration_since(Instant::now()) };
        done = match tasks.recv_timeout(patience) {
            Ok(Task::Remove(blocks)) => {
                remove(files, &blocks);
                Ok(())
            }
            Ok(Task::Close(begun, recovery)) => files.close_left(begun, recovery).map(drop),
            Ok(Task::End) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => Ok(()),
        };
        let is_due = Instant::now() >= next;
        if is_due {
            let tidied = tidy(files, emptier.as_deref_mut());
            done = if tidied == Err(Unanswered::Gone) { tidied } else { done.and(tidied) };
        }
        if is_due || has_more {
            // A part at a time, so that neither waits for the other. What fails is tried again with the rest.
            let taken = if done == Err(Unanswered::Gone) { Ok(false) } else { files.dismantle() };
            has_more = taken == Ok(true);
            done = done.and(taken.map(drop));
        }
        if is_due {
            // Behind all of that, which may have waited for the database for long: tasks have as much time in between.
            next = Instant::now() + INTERVAL;
        }
    }
}

fn tidy(files: &Files, emptier: Option<&mut Emptier>) -> Result<(), Unanswered> {
    files.probe()?;
    let tended = files.tend_nodes();
    if tended == Err(Unanswered::Gone) {
        return tended;
    }
    let left = |namespace: &savanna_files::Namespace, now: Millis| namespace.leases.over(HARD_LIMIT, now).collect();
    let closed = files.close_all_left(left).and(tended);
    if closed == Err(Unanswered::Gone) {
        return closed;
    }
    // A file that cannot be closed holds up nothing else.
    if let Some(emptier) = emptier {
        emptier.turn(files, now())?;
    }
    closed
}

fn remove(files: &Files, blocks: &[BlockId]) {
    // Without a lease the blocks may be somebody else's; ours are found at the next start.
    #[cfg(test)]
    files.note_removal();
    for block in blocks.iter().take_while(|_| files.may_tell()) {
        if let Err(error) = files.replicas().remove(*block) {
            tracing::warn!(%block, %error, "a replica that no file has could not be removed; it is tried again at the next start");
        }
    }
}
