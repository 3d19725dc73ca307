//! Numbers of sequences for statements that take some.

use savanna_tenants_store::database::{SessionId, Step};
use savanna_tenants_values::error::{Result, state};

use super::Tenant;

/// Numbers of a sequence that are reserved at once, and at most if a statement needs many.
const NUMBERS_AT_ONCE: u64 = 32;
const NUMBERS_AT_ONCE_MAX: u64 = 1 << 20;

impl Tenant {
    /// Gives back the numbers that were reserved and that nobody was given. Whether there were any; then there is something to be flushed.
    ///
    /// # Errors
    /// Those of the log.
    pub fn give_numbers_back(&mut self) -> Result<bool> {
        if !self.sessions.is_empty() {
            return Ok(false);
        }
        let catalog = self.database.newest_catalog();
        let mut any = false;
        for (sequence, next) in self.numbers.unused() {
            if catalog.sequence_by_id(sequence.id).is_some_and(|now| now.state == sequence.state) {
                match self.database.set_sequence(&sequence, next) {
                    Ok(_) => any = true,
                    // Whoever changes or drops it is not here, and comes back: its numbers are lost, as if the process had ended.
                    Err(error) if error.state == state::LOCK_NOT_AVAILABLE => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(any)
    }

    /// Runs what may take numbers of sequences. If one has none left, more are reserved and it runs again; it has done
    /// nothing.
    pub(super) fn numbered<T>(
        &mut self,
        id: SessionId,
        attempt: impl FnMut(&mut Self) -> Result<Step<T>>,
    ) -> Result<Step<T>> {
        let step = self.fetching(id, |tenant| tenant.with_numbers(id, attempt));
        if !matches!(step, Ok(Step::Wait)) {
            self.settle_statement(id);
        }
        step
    }

    fn with_numbers<T>(
        &mut self,
        id: SessionId,
        mut attempt: impl FnMut(&mut Self) -> Result<Step<T>>,
    ) -> Result<Step<T>> {
        let mut count = NUMBERS_AT_ONCE;
        loop {
            let before = self.numbers.save();
            let step = attempt(self);
            if let Some(sequence) = self.numbers.wanted() {
                self.numbers.restore(before);
                let reserved = self.database.reserve(&sequence, count.max(sequence.cache.unsigned_abs()))?;
                self.numbers.add(&sequence, reserved);
                count = (2 * count).min(NUMBERS_AT_ONCE_MAX);
                continue;
            }
            // It has done nothing, and runs again.
            if matches!(step, Ok(Step::Wait)) || self.database.reading().misses_block() {
                self.numbers.restore(before);
                return step;
            }
            // As in PostgreSQL, what a statement did to sequences stays if it fails.
            let mut after = self.numbers.after();
            for (sequence, next) in self.numbers.taken_set() {
                after = after.max(self.database.set_sequence(&sequence, next)?);
            }
            let session = self.session(id)?;
            session.reply_after = session.reply_after.max(after);
            return step;
        }
    }
}
