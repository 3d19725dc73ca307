//! What faces ask that is no operation ([`Errand`]). What waits for the log or a disk, or takes long, is done on threads of its own.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use savanna_files::blocks::Replica;
use savanna_files::ids::BlockId;
use savanna_files::request::BlockName;
use savanna_files::{Class, FilesError};
use tokio::runtime::{Builder, Handle, Runtime};

use super::{Asker, Files, Unanswered, now};
use crate::handle::{Brought, Errand};

/// The threads for errands: summaries, which take long, are not in the way of files that are to be closed.
#[derive(Debug)]
pub(super) struct Errands {
    summaries: Pool,
    ends: Pool,
}

/// Threads for some errands.
#[derive(Debug)]
struct Pool {
    runtime: Option<Runtime>,
    handle: Handle,
    count: AtomicUsize,
    /// How many may be under way, or wait for a thread.
    most: usize,
}

impl Errands {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { summaries: Pool::new("files-summaries", 16, 512)?, ends: Pool::new("files-ends", 64, 4_096)? })
    }
}

impl Pool {
    fn new(name: &str, threads: usize, most: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().max_blocking_threads(threads).thread_name(name).build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime), count: AtomicUsize::new(0), most })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // It may be dropped where nobody may block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

type Outcome = Result<Brought, Unanswered>;

/// A place of a pool, given back also if the work fails.
struct Place<P: Fn(&Errands) -> &Pool> {
    files: Files,
    pool: P,
}

impl<P: Fn(&Errands) -> &Pool> Drop for Place<P> {
    fn drop(&mut self) {
        (self.pool)(&self.files.0.errands).count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Files {
    /// Does an errand. `told` gets what came of it when that may be told: on any thread, also before this returns.
    pub fn run(&self, asker: &Asker<'_>, errand: Errand, told: impl FnOnce(Outcome) + Send + 'static) {
        if matches!(errand, Errand::Leave { .. } | Errand::RecoverLease { .. })
            && let Err(why) = self.check_read()
        {
            return self.hold(None, Err(why), told);
        }
        match errand {
            Errand::RenewLease { client } => {
                self.0.state.write().namespace.leases.renew(&client, now());
                self.hold(None, Ok(Brought::Done), told);
            }
            Errand::Statistics => self.hold(None, Ok(Brought::Statistics(Box::new(self.statistics()))), told),
            Errand::SafeMode { wanted } => told(self.safe_mode(asker, wanted).map(Brought::Bool)),
            Errand::Received { replica: BlockName { id: block, stamp, length } } => {
                let mut state = self.0.state.write();
                let is_wanted = state.namespace.blocks.received(Replica { block, stamp, length });
                // Until then a crash brings its file back.
                let position = if is_wanted { None } else { state.pending.position(state.namespace.txid()) };
                drop(state);
                self.hold(position, Ok(Brought::Bool(is_wanted)), told);
            }
            Errand::Leave { file, client } => {
                self.aside(
                    |it| &it.ends,
                    asker,
                    told,
                    move |files, _, told| told(files.leave(file, &client).map(|()| Brought::Done)),
                );
            }
            Errand::RecoverLease { path, client } => self.aside(
                |it| &it.ends,
                asker,
                told,
                move |files, asker, told| {
                    told(files.recover_lease(asker, &path, &client).map(Brought::Bool));
                },
            ),
            Errand::Summary { path } => self.aside(
                |it| &it.summaries,
                asker,
                told,
                move |files, asker, told| {
                    files.summary(asker, &path, move |summary| told(summary.map(Brought::Summary)));
                },
            ),
        }
    }

    /// Does something on a thread of its own.
    fn aside<T: FnOnce(Outcome) + Send + 'static>(
        &self,
        pool: impl Fn(&Errands) -> &Pool + Send + 'static,
        asker: &Asker<'_>,
        told: T,
        work: impl FnOnce(&Self, &Asker<'_>, T) + Send + 'static,
    ) {
        let at = pool(&self.0.errands);
        let place = Place { files: self.clone(), pool };
        if at.count.fetch_add(1, Ordering::Relaxed) >= at.most {
            let words = format!("Expected at most {} of these calls under way, came one more; try again", at.most);
            return told(Err(FilesError::new(Class::Retriable, words).into()));
        }
        let (user, machine, call) = (asker.user.to_owned(), asker.machine.to_owned(), asker.call);
        at.handle.spawn_blocking(move || work(&place.files, &Asker { user: &user, machine: &machine, call }, told));
    }

    /// Who has the names knows that the data node in this process has a replica: who waits for that hears it.
    pub fn is_known(&self, block: BlockId) {
        self.0.awaited.reported(block);
    }

    /// No file wants what the data node in this process has of a block, and who has the names is sure of that.
    pub fn discard(&self, block: BlockId) {
        self.remove(vec![block]);
    }
}
