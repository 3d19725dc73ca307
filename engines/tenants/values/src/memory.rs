//! Memory that all tenants of a process share for what their statements keep: rows that they compute, and blocks that they wait for.

use std::{
    borrow::Cow,
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    error::{Result, SqlError, state},
    value::Value,
};

/// So much is taken at once; a session's first is not counted.
const PIECE: usize = 1 << 20;
/// Bytes of rows and values that one statement holds.
const STATEMENT_MAX: usize = 512 << 20;
/// From so many bytes on, who can keep its rows elsewhere does that. The rest is for what cannot.
const ROOMY: usize = 256 << 20;
/// Who has no more than this keeps it, so that what goes elsewhere goes there in pieces that are worth it.
const WORTH_IT: usize = 8 << 20;
/// Who keeps its rows elsewhere when all memory is taken leaves so much to its statement, for values that this computes.
const FOR_VALUES: usize = 2 << 20;
/// What an allocator needs beside the bytes of an allocation, about.
pub const ALLOCATION: usize = 16;

/// Bytes for all statements together.
#[derive(Debug)]
pub struct Pool {
    bytes: usize,
    taken: AtomicUsize,
    /// What transactions have of it.
    written: AtomicUsize,
    /// The pool that this one is a database's part of.
    above: Option<Arc<Self>>,
}

impl Pool {
    /// So many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, taken: AtomicUsize::new(0), written: AtomicUsize::new(0), above: None })
    }

    /// What the transactions of one database may have of a pool: half, and those of all databases three quarters. The rest is for statements.
    #[must_use]
    pub fn for_writes(of: &Arc<Self>) -> Arc<Self> {
        let (taken, written) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { bytes: of.bytes / 2, taken, written, above: Some(Arc::clone(of)) })
    }

    /// How much of it is taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> Result<()> {
        let Some(above) = &self.above else {
            return if add(&self.taken, bytes, self.bytes) { Ok(()) } else { Err(all_is_taken(self.bytes)) };
        };
        if !add(&self.taken, bytes, self.bytes) {
            return Err(all_is_written("this database", self.bytes));
        }
        let most = above.bytes / 4 * 3;
        let taken = match add(&above.written, bytes, most) {
            true => above.take(bytes).inspect_err(|_| _ = above.written.fetch_sub(bytes, Ordering::Relaxed)),
            false => Err(all_is_written("all databases", most)),
        };
        taken.inspect_err(|_| _ = self.taken.fetch_sub(bytes, Ordering::Relaxed))
    }

    fn give(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(above) = &self.above {
            above.written.fetch_sub(bytes, Ordering::Relaxed);
            above.give(bytes);
        }
    }
}

/// Counts so many more, if that is not too much.
fn add(count: &AtomicUsize, bytes: usize, most: usize) -> bool {
    let more = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= most);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

#[cold]
fn all_is_taken(most: usize) -> SqlError {
    let message = format!("the running statements of all databases use all of their {} MiB of memory", most >> 20);
    SqlError::new(state::OUT_OF_MEMORY, message)
        .hint("Try again when others have ended, read less at once, or give the server more memory for statements.")
}

#[cold]
fn all_is_written(whose: &str, most: usize) -> SqlError {
    let message = format!("the open transactions of {whose} have written as much as {} MiB of memory hold", most >> 20);
    SqlError::new(state::OUT_OF_MEMORY, message).hint(
        "Commit more often, try again when other transactions have ended, or give the server more memory (tenants.statements_memory).",
    )
}

/// What one session has of the pool; given back when it is dropped.
#[derive(Debug, Default)]
pub struct Lent {
    /// Nothing is taken from anybody without one.
    pool: Option<Arc<Pool>>,
    bytes: Cell<usize>,
    /// What the statement that runs holds.
    held: Cell<usize>,
    /// Bytes of large values that it has computed, whether it still holds them or not.
    computed: Cell<usize>,
}

impl Lent {
    /// What is taken from a pool; without one, from nobody.
    pub fn of(pool: Option<Arc<Pool>>) -> Self {
        Self { pool, bytes: Cell::new(0), held: Cell::new(0), computed: Cell::new(0) }
    }

    /// A statement begins, which holds nothing.
    pub fn begin(&self) {
        self.held.set(0);
        self.computed.set(0);
    }

    /// Bytes that the statement holds.
    pub fn held(&self) -> usize {
        self.held.get()
    }

    /// Bytes of large values that the statement has computed since it began.
    pub fn computed(&self) -> usize {
        self.computed.get()
    }

    /// Memory for rows and values of the statement, which is given back when it is dropped.
    pub fn memory(&self) -> Memory<'_> {
        Memory { lent: self, mine: 0 }
    }

    /// Bytes that were [kept](Memory::keep), to be given back before the statement ends.
    pub fn adopt(&self, bytes: usize) -> Memory<'_> {
        Memory { lent: self, mine: bytes }
    }

    /// Takes as much as is missing for so many bytes in all.
    ///
    /// # Errors
    /// 53200.
    pub fn cover(&self, bytes: usize) -> Result<()> {
        let Some(missing) = bytes.checked_sub(self.bytes.get() + PIECE).filter(|missing| *missing > 0) else {
            return Ok(());
        };
        if let Some(pool) = &self.pool {
            let pieces = missing.next_multiple_of(PIECE);
            pool.take(pieces)?;
            self.bytes.set(self.bytes.get() + pieces);
        }
        Ok(())
    }

    /// Gives back what is more than the statement holds: it has put the rest elsewhere.
    pub fn give_back_rest(&self) {
        let rest = self.bytes.get().saturating_sub(self.held.get()) / PIECE * PIECE;
        if let Some(pool) = &self.pool
            && rest > 0
        {
            self.bytes.set(self.bytes.get() - rest);
            pool.give(rest);
        }
    }

    /// Gives back what is more than is missing for so many bytes in all.
    pub fn lower_to(&self, bytes: usize) {
        let needed = bytes.saturating_sub(PIECE).next_multiple_of(PIECE);
        if let Some(pool) = &self.pool
            && let Some(rest) = self.bytes.get().checked_sub(needed)
        {
            self.bytes.set(needed);
            pool.give(rest);
        }
    }

    /// Gives back all that was taken.
    pub fn give_back(&self) {
        if let Some(pool) = &self.pool
            && self.bytes.get() > 0
        {
            pool.give(self.bytes.take());
        }
    }
}

/// A part of a statement's memory.
pub struct Memory<'r> {
    lent: &'r Lent,
    mine: usize,
}

impl<'r> Memory<'r> {
    /// Takes what a row needs.
    pub fn take(&mut self, row: &[Value]) -> Result<()> {
        self.take_bytes(row_bytes(row))
    }

    /// Takes so many bytes, if there is room for them; `false` if whoever asks is to put what it has elsewhere first.
    ///
    /// # Errors
    /// 53200 if it has nothing that would be worth it.
    pub fn take_if_roomy(&mut self, bytes: usize) -> Result<bool> {
        if self.mine >= WORTH_IT && self.lent.held.get().saturating_add(bytes) > ROOMY {
            return Ok(false);
        }
        let held = self.lent.held.get().saturating_add(bytes);
        if self.mine >= PIECE && self.lent.cover(held.saturating_add(FOR_VALUES)).is_err() {
            return Ok(false);
        }
        match self.take_bytes(bytes) {
            Err(_) if self.mine >= PIECE => Ok(false),
            taken => taken.map(|()| true),
        }
    }

    /// Takes what a value needs that an expression came to and that is somebody's own.
    #[expect(clippy::ptr_arg, reason = "what is borrowed was counted by who owns it")]
    pub fn take_computed(&mut self, value: &Cow<'_, Value>) -> Result<()> {
        match value {
            Cow::Owned(value) if value.is_large() => {
                let bytes = value.bytes();
                self.lent.computed.set(self.lent.computed.get().saturating_add(bytes));
                self.take_bytes(bytes)
            }
            _ => Ok(()),
        }
    }

    /// Takes so many bytes.
    ///
    /// # Errors
    /// 53200.
    pub fn take_bytes(&mut self, bytes: usize) -> Result<()> {
        let held = self.lent.held.get().saturating_add(bytes);
        if held > STATEMENT_MAX {
            let message = format!("the rows of one statement take more than {} MiB", STATEMENT_MAX >> 20);
            return Err(SqlError::new(state::OUT_OF_MEMORY, message).hint("Read fewer rows or columns at once."));
        }
        self.lent.cover(held)?;
        self.mine += bytes;
        self.lent.held.set(held);
        Ok(())
    }

    /// Takes what is missing for so many bytes in all.
    ///
    /// # Errors
    /// 53200.
    pub fn covers(&mut self, bytes: usize) -> Result<()> {
        self.take_bytes(bytes.saturating_sub(self.mine))
    }

    /// Gives back so many of the bytes that it has taken.
    pub fn give(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.mine, "they were taken");
        self.mine -= bytes;
        self.lent.held.set(self.lent.held.get().saturating_sub(bytes));
    }

    /// How much was taken.
    pub fn bytes(&self) -> usize {
        self.mine
    }

    /// Another part, of which nothing is taken.
    pub fn another(&self) -> Memory<'r> {
        self.lent.memory()
    }

    /// Whether anything was taken.
    pub fn is_used(&self) -> bool {
        self.mine > 0
    }

    /// Gives back all that it has taken.
    pub fn give_back(&mut self) {
        self.give(self.mine);
    }

    /// Gives to others what its statement does not hold any more: nothing is left of what it was taken for.
    pub fn share_rest(&self) {
        self.lent.give_back_rest();
    }

    /// Takes over what another part has taken.
    pub fn join(&mut self, mut other: Self) {
        self.mine += std::mem::take(&mut other.mine);
    }

    /// Keeps it until the statement ends.
    pub fn keep(mut self) {
        self.mine = 0;
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// About how many bytes a row takes among others: itself, its place in a list that grows, and what its values point to.
#[must_use]
pub fn row_bytes(row: &[Value]) -> usize {
    2 * size_of::<Vec<Value>>() + ALLOCATION + row.iter().map(Value::bytes).sum::<usize>()
}

/// Something else of the same pool.
impl Clone for Lent {
    fn clone(&self) -> Self {
        Self::of(self.pool.clone())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_beyond_what_there_is_is_refused_until_others_give_back() {
        let pool = Pool::new(10 * PIECE);
        let (one, other) = (Lent::of(Some(Arc::clone(&pool))), Lent::of(Some(Arc::clone(&pool))));
        assert!(one.cover(PIECE).is_ok() && one.cover(8 * PIECE).is_ok() && one.cover(3 * PIECE).is_ok());
        assert_eq!(pool.taken(), 7 * PIECE);
        assert_eq!(other.cover(5 * PIECE).unwrap_err().state, state::OUT_OF_MEMORY);
        assert!(other.cover(4 * PIECE).is_ok() && one.clone().cover(3 * PIECE).is_err());
        drop(one);
        assert!(other.cover(11 * PIECE).is_ok());
        other.give_back();
        assert_eq!(pool.taken(), 0);
    }

    #[test]
    fn what_was_put_elsewhere_is_for_others() {
        let pool = Pool::new(10 * PIECE);
        let (one, other) = (Lent::of(Some(Arc::clone(&pool))), Lent::of(Some(Arc::clone(&pool))));
        let (mut rows, mut kept) = (one.memory(), one.memory());
        assert_eq!((rows.take_bytes(8 * PIECE), kept.take_bytes(2 * PIECE)), (Ok(()), Ok(())));
        assert_eq!(rows.take_bytes(2 * PIECE).unwrap_err().state, state::OUT_OF_MEMORY);
        assert_eq!((rows.bytes(), one.held()), (8 * PIECE, 10 * PIECE), "what was refused is not held");
        rows.give_back();
        assert!(other.cover(3 * PIECE).is_err(), "it may be an answer that is not sent yet");
        rows.share_rest();
        assert_eq!(pool.taken(), 2 * PIECE);
        assert!(other.cover(8 * PIECE).is_ok());
        drop(kept);
    }

    #[test]
    fn transactions_leave_some_memory_to_statements_and_to_other_databases() {
        let pool = Pool::new(16 * PIECE);
        let databases = [(); 3].map(|()| Pool::for_writes(&pool));
        let lent = databases.each_ref().map(|database| Lent::of(Some(Arc::clone(database))));
        assert!(lent[0].cover(9 * PIECE).is_ok());
        let error = Lent::of(Some(Arc::clone(&databases[0]))).cover(2 * PIECE).unwrap_err();
        assert!(error.message.contains("this database have written as much as 8 MiB"), "{error}");
        assert!(lent[1].cover(5 * PIECE).is_ok());
        let error = lent[2].cover(2 * PIECE).unwrap_err();
        assert!(error.message.contains("all databases have written as much as 12 MiB"), "{error}");
        assert_eq!((pool.taken(), databases[2].taken()), (12 * PIECE, 0), "what was refused is not taken");
        let statement = Lent::of(Some(Arc::clone(&pool)));
        assert!(statement.cover(5 * PIECE).is_ok());
        drop(lent);
        assert_eq!((pool.taken(), databases[0].taken(), pool.written.load(Ordering::Relaxed)), (4 * PIECE, 0, 0));
    }
}
