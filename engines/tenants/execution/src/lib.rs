//! Runs the plans of tenants' SQL over the rows of one tenant.
//!
//! A [`Run`] is a statement that runs: whom it runs for, and what it keeps until it ends. What it reads comes from the store at once, or the
//! statement ends and runs again; what it writes is worked out as [`effects`] first, for tables as for the catalog.

mod advisory;
mod define;
mod distinct;
pub mod effects;
mod explain;
mod group;
mod join;
mod lock_table;
pub mod modify;
pub mod part;
mod query;
pub mod reference;
mod role;
mod rows;
mod set;
mod sleep;
mod sorted;
pub mod spill;
mod subquery;
#[cfg(test)]
mod test_run;
mod window;
mod with;

use std::{
    cell::{Cell, RefCell, RefMut},
    collections::HashMap,
    rc::Rc,
    sync::Arc,
};

use savanna_tenants_catalog::Table;
use savanna_tenants_sql::{
    define::reference::Deferral,
    expression::{Env, Facts},
};
use savanna_tenants_store::{
    database::{Database, Step},
    spills::Spills,
};
use savanna_tenants_values::{
    error::{Result, SqlError},
    memory::Memory,
    value::Value,
};
use savanna_transaction::{Isolation, RowLock, TxnId, Wait};

use crate::{
    explain::Counts,
    join::Kept,
    spill::Spool,
    subquery::{Answer, Asked},
};

/// Rows that a statement works on before it gives way: a few milliseconds.
pub const PATIENCE_ROWS: usize = 8_192;
/// To do something with so many bytes of a large value takes about as long as a row.
const BYTES_LIKE_A_ROW: usize = 256;

/// A statement that runs.
pub struct Run<'a> {
    database: RefCell<&'a mut Database>,
    pub(crate) txn: TxnId,
    pub(crate) isolation: Isolation,
    pub(crate) parameters: &'a [Value],
    pub(crate) facts: &'a Facts,
    pub(crate) deferral: &'a Deferral,
    /// Rows that are the same whenever they are asked for, by number.
    pub(crate) kept: RefCell<HashMap<usize, Rc<Kept>>>,
    /// Whether what runs may run for many rows, so that its joins stay in memory.
    pub(crate) repeats: Cell<bool>,
    /// Answers of queries in expressions that are the same for every row, by number, and whether they are arrays of all rows.
    pub(crate) answers: RefCell<HashMap<(usize, bool), Rc<Answer>>>,
    /// How often queries of EXISTS were asked for one row, by number.
    pub(crate) asked: RefCell<HashMap<usize, Asked>>,
    /// Rows that may still be read, if what is being computed is worth no more; below 0 if that was too few.
    pub(crate) budget: Cell<Option<isize>>,
    /// Rows of queries of WITH, by number.
    pub(crate) ctes: RefCell<HashMap<usize, Rc<Spool>>>,
    /// What the last steps of recursive queries added, by number.
    pub(crate) working: RefCell<HashMap<usize, Rc<Spool>>>,
    /// Tables whose definition was read.
    seen: RefCell<Vec<u32>>,
    waits: Cell<bool>,
    /// How often it came to where it sleeps.
    sleeps: Cell<usize>,
    /// How often the steps of the plan ran, if somebody wants to know.
    pub(crate) counts: Option<Counts>,
    /// Rows that it may still work on; any number if nobody waits for the thread.
    patience: Cell<Option<usize>>,
    /// Whether it may give way, as somebody outside runs it again then.
    may_give_way: bool,
    /// Large values that it has computed and that count as rows it has worked on.
    counted: Cell<usize>,
    /// Where it puts rows that it has no memory for.
    spills: Option<Arc<Spills>>,
}

impl<'a> Run<'a> {
    /// A statement of a transaction, over the rows of its tenant.
    pub fn new(
        database: &'a mut Database,
        (txn, isolation): (TxnId, Isolation),
        parameters: &'a [Value],
        facts: &'a Facts,
        deferral: &'a Deferral,
    ) -> Self {
        facts.lent.begin();
        let spills = database.spills().cloned();
        facts.searched.begin();
        Self {
            database: RefCell::new(database),
            txn,
            isolation,
            parameters,
            facts,
            deferral,
            kept: RefCell::default(),
            repeats: Cell::new(false),
            answers: RefCell::default(),
            asked: RefCell::default(),
            budget: Cell::new(None),
            ctes: RefCell::default(),
            working: RefCell::default(),
            seen: RefCell::default(),
            waits: Cell::new(false),
            sleeps: Cell::new(0),
            counts: None,
            patience: Cell::new(None),
            may_give_way: false,
            counted: Cell::new(0),
            spills,
        }
    }

    /// Lets the statement work on so many rows only; then it waits, to be run again where it is in nobody's way. If it is there, it waits when it is called away.
    pub fn give_way_after(mut self, rows: Option<usize>) -> Self {
        self.patience.set(rows);
        self.may_give_way = true;
        self
    }

    /// Whether it waits because it takes long, or was called away.
    pub fn gives_way(&self) -> bool {
        self.patience.get() == Some(0)
    }

    /// Where it puts rows that it has no memory for.
    pub fn spills(&self) -> Option<&Arc<Spills>> {
        self.spills.as_ref()
    }

    /// Whether it may use files: where others wait for the thread it gives way first, and the error ends what is being computed.
    fn give_way_to_spill(&self) -> Result<()> {
        if self.patience.get().is_none() {
            return Ok(());
        }
        self.patience.set(Some(0));
        self.waits.set(true);
        Err(taken_for_error())
    }

    /// Does what may be done again for another row.
    pub(crate) fn repeated<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.repeats.replace(true);
        let result = work();
        self.repeats.set(before);
        result
    }

    /// Where expressions are computed that read no row.
    pub(crate) fn env(&self) -> Env<'_> {
        Env { row: &[], parameters: self.parameters, facts: self.facts, queries: Some(self) }
    }

    /// The rows below. No expression that may contain a query is computed while they are borrowed.
    pub(crate) fn database(&self) -> RefMut<'_, &'a mut Database> {
        self.database.borrow_mut()
    }

    /// Whether the statement goes on: asked with every row that it works on.
    pub(crate) fn goes_on(&self) -> Result<()> {
        self.goes_on_after(1)
    }

    /// Whether the statement goes on after so many rows. If it gives way, the error ends what is being computed, and [`Self::step`]
    /// says so.
    pub(crate) fn goes_on_after(&self, rows: usize) -> Result<()> {
        self.facts.interrupts.check()?;
        if let Some(patience) = self.patience.get() {
            let computed = self.facts.lent.computed();
            let rows = rows + (computed - self.counted.replace(computed)) / BYTES_LIKE_A_ROW;
            self.patience.set(Some(patience.saturating_sub(rows)));
            if patience <= rows {
                self.waits.set(true);
                return Err(taken_for_error());
            }
        } else if self.may_give_way && self.facts.interrupts.take_call() {
            self.patience.set(Some(0));
            self.waits.set(true);
            return Err(taken_for_error());
        }
        if let Some(budget) = self.budget.get() {
            let left = budget - rows as isize;
            self.budget.set(Some(left));
            if left < 0 {
                return Err(taken_for_error());
            }
        }
        Ok(())
    }

    /// What a part of the statement came to; or that the statement waits, if that is why it failed.
    pub fn step<T>(&self, result: Result<Step<T>>) -> Result<Step<T>> {
        if self.waits.get() { Ok(Step::Wait) } else { result }
    }

    /// Locks a row. If it has to wait, the error ends what is being computed, and [`Self::step`] says so.
    pub(crate) fn lock(&self, key: &[u8], mode: RowLock, wait: Wait) -> Result<bool> {
        let step = self.database().lock(self.txn, key, mode, wait)?;
        self.unless_waiting(step)
    }

    /// What was done, if it has not to wait.
    pub(crate) fn unless_waiting<T>(&self, step: Step<T>) -> Result<T> {
        match step {
            Step::Done(done) => Ok(done),
            Step::Wait => {
                self.waits.set(true);
                Err(taken_for_error())
            }
        }
    }

    /// Notes that a table's rows are read. A serializable transaction reads its definition: a table that is changed or emptied
    /// meanwhile was not as it was read.
    pub(crate) fn reads(&self, table: &Table) -> Result<()> {
        if self.isolation == Isolation::Serializable && !self.seen.borrow().contains(&table.id) {
            self.database().get(self.txn, &table.lock_key())?;
            self.seen.borrow_mut().push(table.id);
        }
        Ok(())
    }

    /// Memory for rows, which is given back when it is dropped.
    pub(crate) fn memory(&self) -> Memory<'_> {
        self.facts.lent.memory()
    }
}

#[cold]
fn taken_for_error() -> SqlError {
    SqlError::internal("a wait was taken for an error")
}
