//! The log: what the actor changed goes there, and replies wait for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use savanna_journal::{Journal, JournalError, Lsn};
use savanna_keys::config::Sync;
use savanna_keys::log::{append_changes, stage_changes};

use super::{REWRITE_PAUSE, REWRITE_PERIOD, Thread, ThreadError};
use crate::mailbox::Mail;

/// Bytes of keys that are written again at once: a fraction of a millisecond.
const REWRITE_BYTES: usize = 256 << 10;
/// No key is written again while the disk is so many bytes behind: what clients change goes first.
const REWRITE_AHEAD: usize = 4 << 20;
/// How long to wait before a log that takes nothing more is tried again.
const BACKLOG_PAUSE: Duration = Duration::from_millis(1);

impl Thread {
    /// Appends what the actor changed: before anybody hears of it, the operating system has it at least.
    pub(super) fn append(&mut self) -> Result<(), ThreadError> {
        let Some(journal) = &self.journal else {
            self.actor.keys.log.clear();
            return Ok(());
        };
        if self.actor.keys.log.bytes().is_empty() {
            return Ok(());
        }
        let append = if self.actor.config.sync == Sync::Always { append_changes } else { stage_changes };
        loop {
            match append(journal, &mut self.actor.keys) {
                Ok(Some(lsn)) => self.state.depends = lsn,
                Ok(None) => {}
                Err(JournalError::Backlog { .. }) => {
                    // The disk is behind: clients wait with this thread.
                    std::thread::sleep(BACKLOG_PAUSE);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            return Ok(());
        }
    }

    /// Notes whether the log has space for changes.
    pub(super) fn note_space(&mut self) {
        match self.journal.as_ref().and_then(|journal| journal.full()) {
            None => self.actor.log_full = None,
            Some(_) if self.actor.log_full.is_some() => {}
            Some(full) => self.actor.log_full = Some(full.to_string().into()),
        }
    }

    /// Goes on with a rewrite of the log, if there is one; the first thread also sees whether one is due or done.
    pub(super) fn rewrite(&mut self) -> Result<(), ThreadError> {
        let Some(journal) = self.journal.clone() else { return Ok(()) };
        if std::mem::take(&mut self.actor.is_rewrite_wanted) {
            self.door.slots[0].put(Mail::WantRewrite);
        }
        let is_written = self.may_rewrite(&journal) && self.rewrite_some();
        if is_written || std::mem::take(&mut self.state.has_settled) {
            self.append()?;
            self.state.is_rewritten = true;
        }
        if self.actor.id().index() != 0 {
            return Ok(());
        }
        let appended = journal.stats().bytes;
        if self.state.rewrites.is_due(appended) {
            self.begin_rewrite();
        }
        if let Some(oldest) = self.state.rewrites.finish(journal.durable(), appended) {
            journal.truncate_before(oldest)?;
            tracing::info!(%oldest, "the log of the keys service was shortened");
        }
        Ok(())
    }

    /// Whether keys are to be written again now.
    fn may_rewrite(&mut self, journal: &Journal) -> bool {
        if !self.actor.keys.is_rewriting() || Instant::now() < self.state.rewrite_at {
            return false;
        }
        let has_space = self.actor.log_full.is_none();
        self.state.rewrite_at = Instant::now() + if has_space { REWRITE_PERIOD } else { REWRITE_PAUSE };
        has_space && journal.backlog() < REWRITE_AHEAD
    }

    /// Writes some keys again. Says whether that were the last.
    fn rewrite_some(&mut self) -> bool {
        let before = self.actor.keys.log.bytes().len();
        let is_written = self.actor.rewrite_some(REWRITE_BYTES);
        let has_written = is_written || self.actor.keys.log.bytes().len() > before;
        self.state.rewrite_at = Instant::now() + if has_written { REWRITE_PERIOD } else { REWRITE_PAUSE };
        is_written
    }

    pub(super) fn begin_rewrite(&mut self) {
        let Some(journal) = &self.journal else { return };
        if self.state.rewrites.begin(journal.appended(), journal.stats().bytes, self.door.slots.len()) {
            self.door.slots.iter().for_each(|slot| slot.put(Mail::Rewrite));
        }
    }

    /// What replies of this turn wait for; asks the log to wake this thread when it is durable.
    pub(super) fn gate(&mut self) -> Result<Option<Lsn>, ThreadError> {
        let Some(journal) = &self.journal else { return Ok(None) };
        if self.state.has_log_failed.load(Ordering::Acquire) {
            return Err(JournalError::Stopped { reason: "a flush failed".to_owned() }.into());
        }
        let depends = self.state.depends;
        let is_enough = match self.actor.config.sync {
            Sync::Always => depends <= journal.durable(),
            Sync::EverySecond | Sync::No => journal.survives(depends),
        };
        if is_enough {
            return Ok(None);
        }
        if self.state.asked < depends {
            self.state.asked = depends;
            let (bell, failed) = (self.mailbox.bell(), Arc::clone(&self.state.has_log_failed));
            journal.gate().hold(depends, move |outcome| {
                if outcome.is_err() {
                    failed.store(true, Ordering::Release);
                }
                bell.ring();
            });
        }
        Ok(Some(depends))
    }
}
