//! Answers what expressions want to know of queries.

use std::{borrow::Cow, collections::HashSet, ops::ControlFlow, rc::Rc, sync::Arc};

use savanna_tenants_catalog::Sequence;
use savanna_tenants_sql::{
    expression::{Comparison, Env, Expr, Queries, rows::fingerprint},
    function::{AdvisoryFunction, SleepFunction},
    plan::query::{Arguments, Hashed, Query, Subquery, Test},
};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    memory::Memory,
    value::{Value, array::Array},
};

use crate::{Run, query::project};

/// What a query came to that has the same answer for every row.
pub(crate) enum Answer {
    Value(Value),
    /// Its rows as bytes that are equal for equal ones, and those of them that have a NULL.
    Set {
        rows: HashSet<Vec<u8>>,
        incomplete: Vec<Vec<Value>>,
    },
    Rows(Vec<Vec<Value>>),
}

/// How often a query was asked for one row, and when it is tried to find its answer for all of them, if it is.
pub(crate) struct Asked {
    count: usize,
    next: Option<usize>,
}

/// A query is asked so often for one row at least.
const ASKED_MIN: usize = 64;
/// Rows that are read in the time that an answer for one row takes.
const ROWS_LIKE_AN_ANSWER: usize = 32;

impl Queries for Run<'_> {
    fn goes_on(&self) -> Result<()> {
        self.goes_on_after(0)
    }

    fn next_number(&self, sequence: &Sequence) -> Result<i128> {
        match self.facts.numbers.told(sequence) {
            Some(next) => Ok(next),
            None => self.database().sequence_next(self.txn, sequence),
        }
    }

    fn lock(&self, function: AdvisoryFunction, numbers: &[Cow<'_, Value>]) -> Result<Value> {
        let numbers: Vec<&Value> = numbers.iter().map(|number| &**number).collect();
        self.advisory(function, &numbers)
    }

    fn sleep(&self, argument: &Value) -> Result<Value> {
        self.sleep_for(SleepFunction::time(argument, self.facts.statement_began))
    }

    fn answer(&self, subquery: &Subquery, env: Env<'_>) -> Result<Value> {
        if !subquery.is_fixed {
            let known = subquery.hashed.as_ref().map(|hashed| self.is_among(subquery, hashed, env)).transpose()?;
            return known.flatten().map_or_else(|| self.test(subquery, env), |exists| Ok(Value::Bool(exists)));
        }
        let place = (subquery.id, subquery.test == Test::Array);
        let known = self.answers.borrow().get(&place).map(Rc::clone);
        let answer = match known {
            Some(answer) => answer,
            None => {
                let answer = Rc::new(self.whole(subquery, env)?);
                self.answers.borrow_mut().insert(place, Rc::clone(&answer));
                answer
            }
        };
        match (&*answer, &subquery.test) {
            (Answer::Value(value), _) => Ok(value.clone()),
            (Answer::Set { rows, incomplete }, test) => {
                let left = project(test.values(), env)?;
                let found = || Result::Ok(rows.contains(&fingerprint(&left)?));
                let negated = matches!(test, Test::All(..));
                if !left.iter().any(Value::is_null) && found()? {
                    return Ok(Value::Bool(!negated));
                }
                if rows.is_empty() && incomplete.is_empty() {
                    return Ok(Value::Bool(negated));
                }
                // Some row may be equal, as far as is known.
                if left.iter().any(Value::is_null) && left.len() == 1 {
                    return Ok(Value::Null);
                }
                if left.iter().any(Value::is_null) {
                    return self.test(subquery, env);
                }
                let unknown = incomplete.iter().any(|row| equal(&left, row).is_none());
                Ok(if unknown { Value::Null } else { Value::Bool(negated) })
            }
            (Answer::Rows(rows), test) => {
                let mut verdict = Verdict::new(test, env)?;
                for row in rows {
                    if verdict.hear(row).is_break() {
                        break;
                    }
                }
                Ok(verdict.value())
            }
        }
    }
}

impl Run<'_> {
    /// Asks a query for one row around it.
    fn test(&self, subquery: &Subquery, env: Env<'_>) -> Result<Value> {
        self.repeated(|| self.test_once(subquery, env))
    }

    fn test_once(&self, subquery: &Subquery, env: Env<'_>) -> Result<Value> {
        let Subquery { query, arguments, .. } = subquery;
        let around = self.around(query, arguments, env.row)?;
        match &subquery.test {
            Test::Scalar(column) => {
                let mut value = None;
                self.produce(query, around, Some(2), &mut |mut row| {
                    if value.is_some() {
                        let message = "more than one row returned by a subquery used as an expression";
                        return Err(SqlError::new(state::CARDINALITY_VIOLATION, message));
                    }
                    value = Some(row.swap_remove(*column));
                    Ok(ControlFlow::Continue(()))
                })?;
                Ok(value.unwrap_or(Value::Null))
            }
            Test::Array => {
                let (mut elements, mut memory) = (Vec::new(), self.memory());
                self.produce(query, around, None, &mut |mut row| {
                    memory.take(&row)?;
                    elements.push(row.swap_remove(0));
                    Ok(ControlFlow::Continue(()))
                })?;
                Ok(Value::Array(Arc::new(Array::from(elements))))
            }
            Test::Exists => {
                let mut exists = false;
                self.produce(query, around, Some(1), &mut |_| {
                    exists = true;
                    Ok(ControlFlow::Break(()))
                })?;
                Ok(Value::Bool(exists))
            }
            test => {
                let mut verdict = Verdict::new(test, env)?;
                self.produce(query, around, Some(16), &mut |row| Ok(verdict.hear(&row)))?;
                Ok(verdict.value())
            }
        }
    }

    /// Whether EXISTS holds for one row around it, if that is known of all rows.
    fn is_among(&self, subquery: &Subquery, hashed: &Hashed, env: Env<'_>) -> Result<Option<bool>> {
        let known = self.answers.borrow().get(&(subquery.id, false)).map(Rc::clone);
        let known = known.map_or_else(|| self.ask_for_all(subquery.id, hashed), |known| Ok(Some(known)))?;
        let Some(Answer::Set { rows, .. }) = known.as_deref() else { return Ok(None) };
        // No row with NULL, which equals nothing, is among them.
        let probe = if are_in_place(&subquery.arguments) {
            fingerprint_in(&hashed.probe, env)?
        } else {
            let around = self.around(&subquery.query, &subquery.arguments, env.row)?;
            fingerprint_in(&hashed.probe, env.with_row(&around))?
        };
        Ok(Some(rows.contains(&probe)))
    }

    /// Looks for the answers of EXISTS for all rows, as soon as so many were asked that it takes no longer than these did.
    fn ask_for_all(&self, id: usize, hashed: &Hashed) -> Result<Option<Rc<Answer>>> {
        let mut asked = self.asked.borrow_mut();
        let Asked { count, next } = asked.entry(id).or_insert(Asked { count: 0, next: Some(ASKED_MIN) });
        *count += 1;
        if next.is_none_or(|next| *count < next) || self.budget.get().is_some() {
            return Ok(None);
        }
        *next = Some(4 * *count);
        self.budget.set(Some((ROWS_LIKE_AN_ANSWER * *count) as isize));
        drop(asked);
        let mut memory = self.memory();
        let set = self.all_rows(&hashed.query, &mut memory);
        if self.budget.take().is_some_and(|left| left < 0) {
            return Ok(None);
        }
        let set = match set {
            // There is room for one row's answer.
            Err(error) if error.state == state::OUT_OF_MEMORY => {
                drop(memory);
                self.asked.borrow_mut().insert(id, Asked { count: 0, next: None });
                return Ok(None);
            }
            set => set?,
        };
        memory.keep();
        let answer = Rc::new(set);
        self.answers.borrow_mut().insert((id, false), Rc::clone(&answer));
        Ok(Some(answer))
    }

    /// All rows of a query, to be looked up.
    fn all_rows(&self, query: &Query, memory: &mut Memory<'_>) -> Result<Answer> {
        let (mut rows, mut incomplete) = (HashSet::new(), Vec::new());
        let mut add = |row: Vec<Value>| {
            memory.take(&row)?;
            if row.iter().any(Value::is_null) {
                incomplete.push(row);
            } else {
                rows.insert(fingerprint(&row)?);
            }
            Ok(ControlFlow::Continue(()))
        };
        self.repeated(|| self.produce(query, vec![Value::Null; query.outer], None, &mut add))?;
        Ok(Answer::Set { rows, incomplete })
    }

    /// Asks a query that has the same answer for all rows around it.
    fn whole(&self, subquery: &Subquery, env: Env<'_>) -> Result<Answer> {
        let mut memory = self.memory();
        let answer = match &subquery.test {
            Test::Scalar(_) | Test::Array | Test::Exists => Answer::Value(self.test(subquery, env)?),
            Test::Any(Comparison::Equal, _) | Test::All(Comparison::NotEqual, _) => {
                self.all_rows(&subquery.query, &mut memory)?
            }
            Test::Any(..) | Test::All(..) => {
                let mut rows = Vec::new();
                let mut add = |row: Vec<Value>| {
                    memory.take(&row)?;
                    rows.push(row);
                    Ok(ControlFlow::Continue(()))
                };
                let around = vec![Value::Null; subquery.query.outer];
                self.repeated(|| self.produce(&subquery.query, around, None, &mut add))?;
                Answer::Rows(rows)
            }
        };
        memory.keep();
        Ok(answer)
    }
}

/// Whether a query reads the row around it as it is.
fn are_in_place(arguments: &Arguments) -> bool {
    arguments.iter().all(|(place, value)| matches!(value, Expr::Column(at) if at == place))
}

/// Bytes that are equal for equal values of expressions.
fn fingerprint_in(exprs: &[Expr], env: Env<'_>) -> Result<Vec<u8>> {
    match exprs {
        [one] => fingerprint([&*one.value(env)?]),
        all => fingerprint(&project(all, env)?),
    }
}

/// Whether all values are equal; `None` if a NULL leaves it open.
fn equal(left: &[Value], right: &[Value]) -> Option<bool> {
    let mut open = false;
    for (a, b) in left.iter().zip(right) {
        if a.is_null() || b.is_null() {
            open = true;
        } else if a.compare(b).is_ne() {
            return Some(false);
        }
    }
    if open { None } else { Some(true) }
}

/// What `ANY` or `ALL` comes to, row by row.
struct Verdict {
    left: Vec<Value>,
    comparison: Comparison,
    /// Whether one row that does not fit decides, and not one that does.
    all: bool,
    decided: bool,
    unknown: bool,
}

impl Verdict {
    fn new(test: &Test, env: Env<'_>) -> Result<Self> {
        let (comparison, values, all): (_, &[Expr], _) = match test {
            Test::Any(comparison, values) => (*comparison, values, false),
            Test::All(comparison, values) => (*comparison, values, true),
            Test::Scalar(_) | Test::Array | Test::Exists => return Err(SqlError::internal("nothing is compared")),
        };
        Ok(Self { left: project(values, env)?, comparison, all, decided: false, unknown: false })
    }

    fn hear(&mut self, row: &[Value]) -> ControlFlow<()> {
        let fits = match (self.comparison, self.left.as_slice(), row) {
            (Comparison::Equal, left, right) => equal(left, right),
            (Comparison::NotEqual, left, right) => equal(left, right).map(|equal| !equal),
            (comparison, [left], [right]) if !left.is_null() && !right.is_null() => {
                Some(comparison.holds(left.compare(right)))
            }
            _ => None,
        };
        match fits {
            None => self.unknown = true,
            Some(fits) if fits != self.all => {
                self.decided = true;
                return ControlFlow::Break(());
            }
            Some(_) => {}
        }
        ControlFlow::Continue(())
    }

    fn value(&self) -> Value {
        match (self.decided, self.unknown) {
            (true, _) => Value::Bool(!self.all),
            (false, true) => Value::Null,
            (false, false) => Value::Bool(self.all),
        }
    }
}
