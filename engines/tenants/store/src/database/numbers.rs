//! Numbers that are given once: of sequences, and of rows in tables without primary key.

use savanna_journal::Lsn;
use savanna_tenants_catalog::{
    Sequence, TEMPORARY, row,
    sequence::{Reserved, exhausted, left},
    sequence_key,
};
use savanna_tenants_encoding::{KeyReader, Order};
use savanna_tenants_values::error::{Result, SqlError, state};
use savanna_transaction::{Change, Direction, Isolation, RowLock, TxnId, Wait};

use super::{Database, Step};

impl Database {
    /// Reserves numbers of a sequence, in a transaction of its own.
    pub fn reserve(&mut self, sequence: &Sequence, count: u64) -> Result<Reserved> {
        let mut first = 0;
        let mut reserved = 0;
        let logged = self.move_sequence(sequence, &mut |next| {
            let begin = if sequence.increment > 0 { sequence.min } else { sequence.max };
            first = if left(sequence, next) == 0 && sequence.cycle { i128::from(begin) } else { next };
            reserved = count.min(left(sequence, first));
            if reserved == 0 {
                return Err(exhausted(sequence));
            }
            Ok(first + i128::from(reserved) * i128::from(sequence.increment))
        })?;
        Ok(Reserved { first, count: reserved, logged })
    }

    /// Lets a sequence go on with a number, in a transaction of its own.
    pub fn set_sequence(&mut self, sequence: &Sequence, next: i128) -> Result<Lsn> {
        self.move_sequence(sequence, &mut |_| Ok(next))
    }

    /// The number that a sequence goes on with, as far as a transaction sees it.
    pub fn sequence_next(&mut self, txn: TxnId, sequence: &Sequence) -> Result<i128> {
        sequence_number(self.get(txn, &sequence_key(sequence.state))?, sequence)
    }

    fn move_sequence(&mut self, sequence: &Sequence, next: &mut dyn FnMut(i128) -> Result<i128>) -> Result<Lsn> {
        self.expect_rows_here()?;
        if sequence.state & TEMPORARY != 0 {
            let key = sequence_key(sequence.state);
            let next = next(sequence_number(self.temporary().get(&key), sequence)?)?;
            self.temporary().put(&key, Some(Box::from(next.to_le_bytes())));
            return Ok(Lsn::NONE);
        }
        let txn = self.begin(Isolation::ReadCommitted);
        let moved = self.move_sequence_in(txn, sequence, next);
        // Committed or not, it is over.
        self.abort(txn);
        moved
    }

    fn move_sequence_in(
        &mut self,
        txn: TxnId,
        sequence: &Sequence,
        next: &mut dyn FnMut(i128) -> Result<i128>,
    ) -> Result<Lsn> {
        self.statement(txn)?;
        let busy = || SqlError::new(state::LOCK_NOT_AVAILABLE, "the sequence is being changed or dropped");
        let key = sequence_key(sequence.state);
        if self.lock(txn, &key, RowLock::Update, Wait::Never)? != Step::Done(true) {
            return Err(busy());
        }
        let next = next(self.sequence_next(txn, sequence)?)?;
        self.write(txn, &key, Some(Box::from(next.to_le_bytes())), Change::Existence)?;
        match self.commit(txn)? {
            Step::Done(logged) => Ok(logged),
            Step::Wait => Err(busy()),
        }
    }

    /// A number for a new row of a table without primary key. One that is not used is lost.
    pub fn new_row_number(&mut self, txn: TxnId, relation: u32) -> Result<i64> {
        self.expect_rows_here()?;
        if relation & TEMPORARY != 0 {
            return Ok(self.temporary().new_row_number(relation));
        }
        if !self.next_numbers.contains_key(&relation) {
            // Nobody has inserted into the table since the process began, so that a snapshot of now sees all rows.
            let all = row::whole(relation);
            let newest = self.transactions.begin(Isolation::ReadCommitted);
            self.transactions.statement(newest)?;
            let mut found = None;
            for reader in [newest, txn] {
                let above = self.transactions.peek(reader, &all, Direction::Descending)?;
                found = found.max(above.map(|(key, _)| key.to_vec()).next());
            }
            let mut below = self.store.scan(&all, Direction::Descending, &mut self.reading);
            // Keys of one table are as long as each other, and the larger number is the larger key.
            match below.step() {
                Ok(true) => found = found.max(Some(below.key().to_vec())),
                Ok(false) => {}
                Err(error) => {
                    drop(below);
                    self.transactions.abort(newest);
                    return Err(error);
                }
            }
            drop(below);
            let last = match found {
                Some(key) => KeyReader::new(&key)?.int64(Order::Ascending)?.unwrap_or(0),
                None => 0,
            };
            self.transactions.abort(newest);
            self.next_numbers.insert(relation, last + 1);
        }
        let next = self.next_numbers.entry(relation).or_insert(1);
        *next += 1;
        Ok(*next - 1)
    }
}

/// The number that a sequence goes on with, by its row.
fn sequence_number(row: Option<&[u8]>, sequence: &Sequence) -> Result<i128> {
    let damaged = || SqlError::new(state::DATA_CORRUPTED, "a sequence's row is damaged");
    let Some(bytes) = row else { return Ok(sequence.first) };
    Ok(i128::from_le_bytes(bytes.try_into().map_err(|_| damaged())?))
}
