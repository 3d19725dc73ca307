//! Statements over a transaction manager: what an executor does, as far as isolation is concerned.

use std::{fmt::Debug, rc::Rc};

use savanna_transaction::{
    Change, Commit, ConflictKind, Direction, Isolation, KeyRange, Lock, Prepared, RowLock, Savepoint, Seen,
    TransactionError, Transactions, TxnId, Validation, Wait,
};

pub(crate) type Key = Vec<u8>;

/// What a row becomes: `None` if it does not qualify, `Some(None)` if it goes.
pub(crate) type Rule<V> = Rc<dyn Fn(Option<&V>) -> Option<Option<V>>>;

#[derive(Clone)]
pub(crate) enum Statement<V> {
    Read(Key),
    Scan(KeyRange),
    /// `UPDATE` or `DELETE` of one key, which need not be there.
    ChangeKey(Key, Rule<V>),
    /// `UPDATE` or `DELETE` of the rows of a range that qualify.
    ChangeRange(KeyRange, Rule<V>),
    /// `INSERT` under a unique key.
    Insert(Key, V),
    /// `INSERT` of a row that refers to another.
    Refer {
        child: Key,
        parent: Key,
        value: V,
    },
    /// `DELETE` of a row that others may refer to.
    Remove {
        parent: Key,
        children: KeyRange,
    },
    /// `SELECT .. FOR ..`; the answer is the row's newest value.
    Lock(Key, RowLock, Wait),
    Savepoint,
    /// `ROLLBACK TO` the savepoint with this number.
    RollBackTo(usize),
    Commit,
    Abort,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer<V> {
    Done,
    Value(Option<V>),
    Rows(Vec<(Key, V)>),
    Changed(usize),
    Waits,
    Busy,
    Duplicate,
    Missing,
    Referred,
    Conflict(ConflictKind),
    Deadlock,
}

/// Who commits: at once, or in steps that somebody else takes.
pub(crate) enum Committing<'a, V> {
    AtOnce,
    InSteps(&'a mut Vec<Validation<V>>),
}

/// A client's connection: at most one transaction, at most one statement.
pub(crate) struct Session<V> {
    pub(crate) isolation: Isolation,
    pub(crate) txn: Option<TxnId>,
    savepoints: Vec<Savepoint>,
    running: Option<Running<V>>,
}

struct Running<V> {
    statement: Statement<V>,
    /// The keys that are still to be changed, once they are known.
    targets: Option<Vec<Key>>,
    changed: usize,
}

impl<V: Clone + Debug + PartialEq> Session<V> {
    pub(crate) fn new(isolation: Isolation) -> Self {
        Self { isolation, txn: None, savepoints: Vec::new(), running: None }
    }

    /// Runs a statement, in a transaction that it begins if there is none.
    pub(crate) fn run(
        &mut self,
        database: &mut Transactions<V>,
        statement: Statement<V>,
        committing: Committing<'_, V>,
    ) -> Answer<V> {
        assert!(self.running.is_none(), "one statement at a time");
        let txn = *self.txn.get_or_insert_with(|| database.begin(self.isolation));
        database.statement(txn).expect("it does not wait");
        self.running = Some(Running { statement, targets: None, changed: 0 });
        self.go_on(database, committing)
    }

    /// Goes on with a statement that waited.
    pub(crate) fn go_on(&mut self, database: &mut Transactions<V>, committing: Committing<'_, V>) -> Answer<V> {
        let mut running = self.running.take().expect("a statement that waits");
        let txn = self.txn.expect("a statement belongs to a transaction");
        let answer = match self.step(database, txn, &mut running, committing) {
            Ok(answer) => answer,
            Err(TransactionError::Conflict(conflict)) => Answer::Conflict(conflict.kind),
            Err(TransactionError::Deadlock(_)) => Answer::Deadlock,
            Err(error) => panic!("{error}"),
        };
        if answer == Answer::Waits {
            self.running = Some(running);
        }
        answer
    }

    /// Its wait was ended for it.
    pub(crate) fn give_up(&mut self) {
        self.running = None;
    }

    /// Whether its transaction is certain to fail when it commits.
    pub(crate) fn is_overtaken(&self, database: &mut Transactions<V>) -> bool {
        let overtaken = self.txn.map(|txn| database.overtaken(txn, self.savepoints.first().copied()));
        overtaken.is_some_and(|overtaken| overtaken.expect("it does not wait").is_some())
    }

    /// Its transaction is over.
    pub(crate) fn leave(&mut self) {
        self.txn = None;
        self.savepoints.clear();
    }

    fn locks_first(&self) -> bool {
        self.isolation == Isolation::ReadCommitted
    }

    fn step(
        &mut self,
        database: &mut Transactions<V>,
        txn: TxnId,
        running: &mut Running<V>,
        committing: Committing<'_, V>,
    ) -> Result<Answer<V>, TransactionError> {
        Ok(match running.statement.clone() {
            Statement::Read(key) => Answer::Value(database.get(txn, &key)?.value().cloned()),
            Statement::Scan(range) => Answer::Rows(rows(database.scan(txn, &range, Direction::Ascending)?)),
            Statement::ChangeKey(key, rule) => {
                let targets = vec![key];
                self.change(database, txn, running, targets, &rule)?
            }
            Statement::ChangeRange(range, rule) => {
                let mut targets = Vec::new();
                if running.targets.is_none() {
                    let rows = rows(database.scan(txn, &range, Direction::Descending)?);
                    targets = rows.into_iter().filter(|(_, v)| rule(Some(v)).is_some()).map(|(key, _)| key).collect();
                }
                self.change(database, txn, running, targets, &rule)?
            }
            Statement::Insert(key, value) => self.insert(database, txn, &key, value)?,
            Statement::Refer { child, parent, value } => {
                if self.locks_first() && waits(database.lock(txn, &parent, RowLock::KeyShare, Wait::Queue)?) {
                    return Ok(Answer::Waits);
                }
                if database.probe(txn, &parent)?.value().is_none() {
                    return Ok(Answer::Missing);
                }
                self.insert(database, txn, &child, value)?
            }
            Statement::Remove { parent, children } => self.remove(database, txn, &parent, &children)?,
            Statement::Lock(key, mode, wait) => match database.lock(txn, &key, mode, wait)? {
                Lock::Granted { .. } => Answer::Value(database.latest(txn, &key)?.value().cloned()),
                Lock::Waiting => Answer::Waits,
                Lock::Busy => Answer::Busy,
            },
            Statement::Savepoint => {
                self.savepoints.push(database.savepoint(txn)?);
                Answer::Done
            }
            Statement::RollBackTo(number) => {
                database.roll_back_to(txn, self.savepoints[number])?;
                Answer::Done
            }
            Statement::Commit => return self.commit(database, txn, committing),
            Statement::Abort => {
                database.abort(txn);
                self.leave();
                Answer::Done
            }
        })
    }

    /// Changes those of the targets that qualify. READ COMMITTED looks again at each once it has the lock.
    fn change(
        &self,
        database: &mut Transactions<V>,
        txn: TxnId,
        running: &mut Running<V>,
        targets: Vec<Key>,
        rule: &Rule<V>,
    ) -> Result<Answer<V>, TransactionError> {
        let targets = running.targets.get_or_insert(targets);
        while let Some(key) = targets.last() {
            let mut seen = database.get(txn, key)?.value().cloned();
            let mut held = None;
            while let Some(value) = rule(seen.as_ref()) {
                let change = if seen.is_none() || value.is_none() { Change::Existence } else { Change::Content };
                if !self.locks_first() || held >= Some(change.lock()) {
                    database.write(txn, key, value, change)?;
                    running.changed += 1;
                    break;
                }
                if waits(database.lock(txn, key, change.lock(), Wait::Queue)?) {
                    return Ok(Answer::Waits);
                }
                held = Some(change.lock());
                seen = database.latest(txn, key)?.value().cloned();
            }
            targets.pop();
        }
        Ok(Answer::Changed(running.changed))
    }

    fn insert(
        &self,
        database: &mut Transactions<V>,
        txn: TxnId,
        key: &Key,
        value: V,
    ) -> Result<Answer<V>, TransactionError> {
        if self.locks_first() && waits(database.lock(txn, key, RowLock::Update, Wait::Queue)?) {
            return Ok(Answer::Waits);
        }
        if database.probe(txn, key)?.value().is_some() {
            return Ok(Answer::Duplicate);
        }
        database.write(txn, key, Some(value), Change::Existence)?;
        Ok(Answer::Changed(1))
    }

    fn remove(
        &self,
        database: &mut Transactions<V>,
        txn: TxnId,
        parent: &Key,
        children: &KeyRange,
    ) -> Result<Answer<V>, TransactionError> {
        if self.locks_first() {
            if waits(database.lock(txn, parent, RowLock::Update, Wait::Queue)?) {
                return Ok(Answer::Waits);
            }
            database.statement(txn)?;
        }
        database.probe_range(txn, children.clone())?;
        if !rows(database.peek(txn, children, Direction::Ascending)?).is_empty() {
            return Ok(Answer::Referred);
        }
        database.write(txn, parent, None, Change::Existence)?;
        Ok(Answer::Changed(1))
    }

    fn commit(
        &mut self,
        database: &mut Transactions<V>,
        txn: TxnId,
        committing: Committing<'_, V>,
    ) -> Result<Answer<V>, TransactionError> {
        match committing {
            Committing::InSteps(numbered) => match database.prepare(txn)? {
                Prepared::Waiting => return Ok(Answer::Waits),
                Prepared::ReadOnly(_) => {}
                Prepared::Numbered(validation) => numbered.push(validation),
            },
            Committing::AtOnce => {
                let outcome = database.commit(txn);
                if matches!(outcome, Err(TransactionError::Conflict(_))) {
                    self.leave();
                }
                match outcome? {
                    Commit::Waiting => return Ok(Answer::Waits),
                    Commit::ReadOnly(_) => {}
                    Commit::Committed(committed) => {
                        let csn = committed.csn();
                        database.install(committed);
                        database.durable(csn)?;
                    }
                }
            }
        }
        self.leave();
        Ok(Answer::Done)
    }
}

fn waits(lock: Lock) -> bool {
    lock == Lock::Waiting
}

fn rows<'a, V: Clone + 'a>(scan: impl Iterator<Item = (&'a [u8], Seen<'a, V>)>) -> Vec<(Key, V)> {
    scan.filter_map(|(key, seen)| Some((key.to_vec(), seen.value()?.clone()))).collect()
}
