//! Expressions whose names and types are resolved, and their values.

mod activity;
pub mod aggregate;
pub mod arithmetic;
pub mod index;
pub mod list;
pub(crate) mod nulls;
pub(crate) mod ordered_set;
pub mod regression;
pub mod rows;
pub(crate) mod sequence;
pub(crate) mod set_function;

use std::{borrow::Cow, cmp::Ordering, sync::Arc};

use savanna_tenants_catalog::{Catalog, Sequence, sequence::Numbers};
use savanna_tenants_values::{
    error::{Result, SqlError},
    memory::{Lent, Memory},
    types::Type,
    value::{Context, Value, cast, size, zone::Zone},
};
use savanna_transaction::Isolation;

use crate::{
    advisory::Advisory,
    backends::{Asker, Backend, Backends},
    define::domain::DomainRules,
    doing::Doing,
    expression::{
        arithmetic::{arithmetic, negate},
        list::{List, Searched},
        sequence::Given,
    },
    function::{self, AdvisoryFunction, Configured, Function, Paths, Patterns, Sleep},
    interrupt::Interrupts,
    notify::Notifying,
    plan::query::{Query, Subquery},
    settings::Settings,
};

/// A comparison.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    /// Whether it holds between values in this order.
    pub fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }

    /// The comparison with its sides exchanged.
    pub(crate) fn turned(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            same => same,
        }
    }
}

/// An operation on two numbers or times.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// An expression over a row's columns.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    Constant(Value),
    Column(usize),
    /// By its place, from 0.
    Parameter(usize),
    /// An aggregate, by its place among those of its SELECT. Only until the SELECT is planned.
    Aggregate(usize),
    /// A window function, by its place among those of its SELECT. Only until the SELECT is planned.
    Window(usize),
    /// A function that returns rows, by its place among those of its SELECT. Only until the SELECT is planned.
    Set(usize),
    Subquery(Box<Subquery>),
    Negate(Box<Expr>, Type),
    Not(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    IsNull(Box<Expr>),
    /// `IS TRUE`, `IS FALSE`
    Is(Box<Expr>, bool),
    Compare(Comparison, Box<Expr>, Box<Expr>),
    IsDistinct(Box<Expr>, Box<Expr>),
    Arithmetic(Operator, Type, Box<Expr>, Box<Expr>),
    Concat(Box<Expr>, Box<Expr>),
    Like {
        text: Box<Expr>,
        pattern: Box<Expr>,
        any_case: bool,
    },
    In(Box<Expr>, List),
    /// Conditions with their results, and the result otherwise.
    Case(Vec<(Expr, Expr)>, Box<Expr>),
    Coalesce(Vec<Expr>),
    Cast {
        value: Box<Expr>,
        from: Type,
        to: Type,
        explicit: bool,
    },
    Call(Function, Vec<Expr>),
    /// A value of a domain, which has to be one.
    Domain(Box<Expr>, Arc<DomainRules>),
}

/// What expressions may know beside their row.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// When the transaction began, in microseconds since 2000-01-01 UTC.
    pub transaction_began: i64,
    /// When the statement began.
    pub statement_began: i64,
    pub user: String,
    pub database: String,
    /// Whether the user may make and remove tenants, and roles of this one.
    pub administrator: bool,
    /// Whether the session may read and do nothing else.
    pub only_reads: bool,
    /// The connection's number.
    pub pid: i32,
    /// All connections, if anybody knows them.
    pub backends: Option<Arc<dyn Backends>>,
    /// Those on other nodes, once these were asked for the statement.
    pub elsewhere: Option<Arc<[Backend]>>,
    pub settings: Settings,
    /// What the statement has set of them.
    pub configured: std::cell::RefCell<Vec<Configured>>,
    /// The transaction's isolation, and whether it only reads; `None` outside of one.
    pub modes: Option<(Isolation, bool)>,
    /// What the session has, for statements that ask.
    pub listing: Listing,
    /// Patterns that were met lately.
    pub patterns: Patterns,
    /// The path of JSON that was asked for last.
    pub paths: Paths,
    /// The array that was searched last.
    pub searched: Searched,
    /// Random numbers come from here; it moves with each.
    pub random: std::cell::Cell<u64>,
    pub numbers: Numbers,
    /// What its rows take of the memory that all share.
    pub lent: Lent,
    /// Whether the statement is to end.
    pub interrupts: Arc<Interrupts>,
    /// What the connection does, as others see it.
    pub doing: Arc<Doing>,
    /// What the session was given of them.
    pub given: std::cell::RefCell<Given>,
    pub advisory: std::cell::RefCell<Advisory>,
    /// What its transaction tells other sessions, and to what it listens.
    pub notifying: std::cell::RefCell<Notifying>,
    pub sleep: std::cell::Cell<Sleep>,
    /// The tables and sequences that the statement sees.
    pub catalog: Arc<Catalog>,
}

impl Facts {
    /// The same for a statement that [only reads](crate::plan::Statement::only_reads), on another thread: nothing that it does there is to
    /// be known here.
    #[must_use]
    pub fn for_reader(&self) -> Self {
        let (advisory, notifying) = (std::cell::RefCell::default(), std::cell::RefCell::default());
        Self { numbers: Numbers::default(), advisory, notifying, ..self.clone() }
    }

    /// Whom its statements ask for, where they ask for other connections.
    pub(crate) fn asker(&self) -> Asker<'_> {
        Asker { user: &self.user, database: &self.database, administrator: self.administrator }
    }

    /// Whether other nodes are to be asked for their connections before the statement runs. Whoever is no administrator sees those of its own database
    /// alone, which are all here.
    #[must_use]
    pub fn lacks_elsewhere(&self) -> bool {
        self.administrator && self.elsewhere.is_none() && self.backends.as_ref().is_some_and(|all| all.has_others())
    }

    /// What texts mean here.
    pub fn context(&self) -> Context<'_> {
        self.catalog.context(self.settings.style)
    }

    /// Where the session's clocks are.
    pub fn zone(&self) -> Zone {
        self.settings.style.zone
    }
}

/// Rows of what a session has.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Of `pg_prepared_statements`
    pub statements: Vec<Vec<Value>>,
    /// Of `pg_cursors`
    pub cursors: Vec<Vec<Value>>,
}

/// Whoever runs the queries in expressions, and takes the locks that they ask for.
pub trait Queries {
    /// What a query comes to, for the row of `env`.
    fn answer(&self, subquery: &Subquery, env: Env<'_>) -> Result<Value>;

    /// Takes advisory locks or gives them back.
    fn lock(&self, function: AdvisoryFunction, numbers: &[Cow<'_, Value>]) -> Result<Value>;

    /// Sleeps if the statement has not yet.
    fn sleep(&self, argument: &Value) -> Result<Value>;

    /// The number that a sequence goes on with.
    fn next_number(&self, sequence: &Sequence) -> Result<i128>;

    /// Whether the statement goes on here: asked before something is done with large values.
    fn goes_on(&self) -> Result<()>;
}

/// Where an expression is computed.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy)]
pub struct Env<'a> {
    pub row: &'a [Value],
    pub parameters: &'a [Value],
    pub facts: &'a Facts,
    /// `None` where there are no queries in expressions.
    pub queries: Option<&'a dyn Queries>,
}

impl<'a> Env<'a> {
    /// For expressions of constants.
    pub(crate) fn nothing(facts: &'a Facts) -> Self {
        Self { row: &[], parameters: &[], facts, queries: None }
    }

    /// Whether the statement goes on here with what it has computed.
    fn goes_on_with(self, computed: &Memory<'_>) -> Result<()> {
        match self.queries {
            Some(queries) if computed.is_used() => queries.goes_on(),
            _ => Ok(()),
        }
    }

    /// The same over another row.
    pub fn with_row(self, row: &'a [Value]) -> Self {
        Self { row, ..self }
    }
}

/// Two values, and the memory that they hold meanwhile.
fn both<'a>(a: &'a Expr, b: &'a Expr, env: Env<'a>) -> Result<(Cow<'a, Value>, Cow<'a, Value>, Memory<'a>)> {
    let mut held = env.facts.lent.memory();
    let a = a.value(env)?;
    held.take_computed(&a)?;
    let b = b.value(env)?;
    held.take_computed(&b)?;
    env.goes_on_with(&held)?;
    Ok((a, b, held))
}

const NULL: Cow<'static, Value> = Cow::Owned(Value::Null);

fn truth(value: bool) -> Cow<'static, Value> {
    Cow::Owned(Value::Bool(value))
}

impl Expr {
    /// NULL.
    pub const NULL: Self = Self::Constant(Value::Null);

    /// Whether the expression holds: NULL does not.
    pub fn holds(&self, env: Env<'_>) -> Result<bool> {
        Ok(matches!(*self.value(env)?, Value::Bool(true)))
    }

    /// Its value as one of the caller's own.
    pub fn owned(&self, env: Env<'_>) -> Result<Value> {
        Ok(self.value(env)?.into_owned())
    }

    /// Its value.
    pub fn value<'a>(&'a self, env: Env<'a>) -> Result<Cow<'a, Value>> {
        Ok(match self {
            Self::Constant(value) => Cow::Borrowed(value),
            Self::Column(at) => match env.row.get(*at) {
                Some(value) => Cow::Borrowed(value),
                None => return Err(SqlError::internal(format_args!("a row has no column {at}"))),
            },
            Self::Parameter(at) => Cow::Borrowed(env.parameters.get(*at).unwrap_or(&Value::Null)),
            Self::Aggregate(_) | Self::Window(_) | Self::Set(_) => {
                return Err(SqlError::internal("an aggregate was left in a plan"));
            }
            Self::Subquery(subquery) => match env.queries {
                Some(queries) => Cow::Owned(queries.answer(subquery, env)?),
                None => return Err(SqlError::internal("a query where there may be none")),
            },
            Self::Negate(value, of) => Cow::Owned(negate(&*value.value(env)?, *of)?),
            Self::Not(value) => match *value.value(env)? {
                Value::Bool(value) => truth(!value),
                _ => NULL,
            },
            Self::And(a, b) => match (a.value(env)?.as_ref(), &**b) {
                (Value::Bool(false), _) => truth(false),
                (Value::Bool(true), b) => b.value(env)?,
                (_, b) => match *b.value(env)? {
                    Value::Bool(false) => truth(false),
                    _ => NULL,
                },
            },
            Self::Or(a, b) => match (a.value(env)?.as_ref(), &**b) {
                (Value::Bool(true), _) => truth(true),
                (Value::Bool(false), b) => b.value(env)?,
                (_, b) => match *b.value(env)? {
                    Value::Bool(true) => truth(true),
                    _ => NULL,
                },
            },
            Self::IsNull(value) => truth(value.value(env)?.is_null()),
            Self::Is(value, expected) => truth(*value.value(env)? == Value::Bool(*expected)),
            Self::Compare(comparison, a, b) => {
                let (a, b, _held) = both(a, b, env)?;
                if a.is_null() || b.is_null() { NULL } else { truth(comparison.holds(a.compare(&b))) }
            }
            Self::IsDistinct(a, b) => {
                let (a, b, _held) = both(a, b, env)?;
                truth(a.compare(&b).is_ne())
            }
            Self::Arithmetic(operator, of, a, b) => {
                let (a, b, _held) = both(a, b, env)?;
                if a.is_null() || b.is_null() {
                    NULL
                } else {
                    Cow::Owned(arithmetic(*operator, *of, &a, &b, env.facts.zone())?)
                }
            }
            Self::Concat(a, b) => {
                let (a, b, _held) = both(a, b, env)?;
                match (a.as_ref(), b.as_ref()) {
                    (Value::Text(a), Value::Text(b)) => {
                        size::check(a.len() + b.len())?;
                        Cow::Owned(Value::Text([a.as_str(), b].concat()))
                    }
                    (Value::Bytes(a), Value::Bytes(b)) => {
                        size::check(a.len() + b.len())?;
                        Cow::Owned(Value::Bytes([a.as_slice(), b].concat()))
                    }
                    _ => NULL,
                }
            }
            Self::Like { text, pattern, any_case } => {
                let (text, pattern, _held) = both(text, pattern, env)?;
                match (text.as_ref(), pattern.as_ref()) {
                    (Value::Text(text), Value::Text(pattern)) => truth(function::like(text, pattern, *any_case)?),
                    _ => NULL,
                }
            }
            Self::In(value, list) => {
                let value = value.value(env)?;
                if value.is_null() {
                    return Ok(NULL);
                }
                let mut held = env.facts.lent.memory();
                held.take_computed(&value)?;
                if let Some(has) = list.has(&value) {
                    return Ok(has.map_or(NULL, truth));
                }
                let mut unknown = false;
                for other in list.iter() {
                    let other = other.value(env)?;
                    if other.is_null() {
                        unknown = true;
                    } else if value.compare(&other).is_eq() {
                        return Ok(truth(true));
                    }
                }
                if unknown { NULL } else { truth(false) }
            }
            Self::Case(cases, otherwise) => {
                for (condition, result) in cases {
                    if condition.holds(env)? {
                        return result.value(env);
                    }
                }
                otherwise.value(env)?
            }
            Self::Coalesce(values) => {
                for value in values {
                    let value = value.value(env)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                NULL
            }
            Self::Cast { value, from, to, explicit } => {
                let value = value.value(env)?;
                if value.is_null() {
                    NULL
                } else {
                    let mut held = env.facts.lent.memory();
                    held.take_computed(&value)?;
                    env.goes_on_with(&held)?;
                    let value = cast::cast(value.into_owned(), *from, *to, *explicit, env.facts.context())?;
                    Cow::Owned(size::checked(value)?)
                }
            }
            Self::Domain(value, rules) => {
                let value = value.value(env)?;
                rules.check(&value, env)?;
                value
            }
            Self::Call(function, arguments) => {
                let mut held = env.facts.lent.memory();
                let argument = |argument: &'a Self| {
                    let value = argument.value(env)?;
                    held.take_computed(&value)?;
                    Ok(value)
                };
                let arguments = arguments.iter().map(argument).collect::<Result<Vec<_>>>()?;
                env.goes_on_with(&held)?;
                match (function, env.queries) {
                    (Function::Advisory(function), Some(queries)) => Cow::Owned(queries.lock(*function, &arguments)?),
                    (Function::Sleep(_), Some(queries)) => match arguments.as_slice() {
                        [time] if !time.is_null() => Cow::Owned(queries.sleep(time)?),
                        _ => NULL,
                    },
                    (Function::NextNumber, Some(queries)) => {
                        let sequence = sequence::find(&arguments[0], &env.facts.catalog)?;
                        Cow::Owned(Value::Numeric(queries.next_number(&sequence)?.into()))
                    }
                    _ => Cow::Owned(function.call(&arguments, env.facts)?),
                }
            }
        })
    }

    /// Whether its value depends on its row and parameters alone.
    pub(crate) fn is_immutable(&self) -> bool {
        let mut immutable = match self {
            Self::Call(function, _) => function.is_immutable(),
            // As in PostgreSQL, whatever `IntervalStyle` says.
            Self::Cast { from, to, .. } if from.exact() == Type::Interval && to.is_text() => true,
            other => !other.asks_session(),
        };
        self.children(&mut |child| immutable &= child.is_immutable());
        immutable
    }

    /// Whether its value depends on the session's time zone or its style of dates and intervals, or on types that the tenant has made.
    pub(crate) fn asks_session(&self) -> bool {
        let texty = |of: Type| of.element().unwrap_or(of).is_text();
        let zoned = |of: Type| of.exact() == Type::Timestamptz || of.element() == Some(Type::Timestamptz);
        match self {
            Self::Cast { from, to, .. } => {
                let styled = texty(*from) && is_styled(*to) || is_styled(*from) && texty(*to);
                styled || zoned(*from) != zoned(*to) || to.own().is_some()
            }
            Self::Arithmetic(_, of, ..) => *of == Type::Timestamptz,
            Self::Domain(..) => true,
            _ => false,
        }
    }

    /// Visits the expressions that it is made of directly.
    pub fn children<'a>(&'a self, visit: &mut dyn FnMut(&'a Self)) {
        match self {
            Self::Constant(_) | Self::Column(_) | Self::Parameter(_) => {}
            Self::Aggregate(_) | Self::Window(_) | Self::Set(_) => {}
            Self::Negate(a, _)
            | Self::Not(a)
            | Self::IsNull(a)
            | Self::Is(a, _)
            | Self::Cast { value: a, .. }
            | Self::Domain(a, _) => visit(a),
            Self::And(a, b)
            | Self::Or(a, b)
            | Self::Compare(_, a, b)
            | Self::IsDistinct(a, b)
            | Self::Arithmetic(_, _, a, b)
            | Self::Concat(a, b)
            | Self::Like { text: a, pattern: b, .. } => {
                visit(a);
                visit(b);
            }
            Self::In(value, list) => {
                visit(value);
                list.iter().for_each(visit);
            }
            Self::Case(cases, otherwise) => {
                for (condition, result) in cases {
                    visit(condition);
                    visit(result);
                }
                visit(otherwise);
            }
            Self::Coalesce(values) | Self::Call(_, values) => values.iter().for_each(visit),
            Self::Subquery(subquery) => {
                subquery.test.values().iter().for_each(&mut *visit);
                subquery.arguments.iter().for_each(|(_, value)| visit(value));
            }
        }
    }

    /// The expressions that it is made of directly, to be changed.
    pub(crate) fn children_mut(&mut self, visit: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<()> {
        match self {
            Self::Constant(_) | Self::Column(_) | Self::Parameter(_) => Ok(()),
            Self::Aggregate(_) | Self::Window(_) | Self::Set(_) => Ok(()),
            Self::Negate(a, _)
            | Self::Not(a)
            | Self::IsNull(a)
            | Self::Is(a, _)
            | Self::Cast { value: a, .. }
            | Self::Domain(a, _) => visit(a),
            Self::And(a, b)
            | Self::Or(a, b)
            | Self::Compare(_, a, b)
            | Self::IsDistinct(a, b)
            | Self::Arithmetic(_, _, a, b)
            | Self::Concat(a, b)
            | Self::Like { text: a, pattern: b, .. } => {
                visit(a)?;
                visit(b)
            }
            Self::In(value, list) => {
                visit(value)?;
                list.exprs_mut().iter_mut().try_for_each(visit)
            }
            Self::Case(cases, otherwise) => {
                for (condition, result) in cases {
                    visit(condition)?;
                    visit(result)?;
                }
                visit(otherwise)
            }
            Self::Coalesce(values) | Self::Call(_, values) => values.iter_mut().try_for_each(visit),
            Self::Subquery(subquery) => {
                subquery.test.values_mut().iter_mut().try_for_each(&mut *visit)?;
                subquery.arguments.iter_mut().try_for_each(|(_, value)| visit(value))
            }
        }
    }

    /// Notes the columns that it reads.
    pub fn columns(&self, note: &mut dyn FnMut(usize)) {
        if let Self::Column(at) = self {
            note(*at);
        }
        self.children(&mut |child| child.columns(note));
    }

    /// The first column behind all that it reads.
    pub(crate) fn columns_end(&self) -> usize {
        let mut end = 0;
        self.columns(&mut |column| end = end.max(column + 1));
        end
    }

    /// Whether there is a query in it.
    pub(crate) fn asks(&self) -> bool {
        let mut found = matches!(self, Self::Subquery(_));
        self.children(&mut |child| found |= child.asks());
        found
    }

    /// Visits the queries in it.
    pub(crate) fn queries(&self, visit: &mut dyn FnMut(&Query)) {
        if let Self::Subquery(subquery) = self {
            visit(&subquery.query);
        }
        self.children(&mut |child| child.queries(visit));
    }

    /// Whether it may have another value for the same row.
    pub fn is_volatile(&self) -> bool {
        let mut volatile = matches!(self, Self::Call(function, _) if function.is_volatile());
        self.children(&mut |child| volatile |= child.is_volatile());
        volatile
    }

    /// The conditions that hold together if it holds.
    pub(crate) fn conjuncts(self, into: &mut Vec<Self>) {
        match self {
            Self::And(a, b) => {
                a.conjuncts(into);
                b.conjuncts(into);
            }
            other => into.push(other),
        }
    }

    /// What this condition is the alternative of, if it is one of at least two and at most `count`: each as conditions that hold
    /// together.
    pub(crate) fn alternatives(&self, count: usize) -> Option<Vec<Vec<Self>>> {
        // Of many constants each is looked up as an element of an array.
        if matches!(self, Self::In(value, list) if list.constants().is_some() && matches!(**value, Self::Column(_))) {
            return None;
        }
        let mut found = Vec::new();
        self.add_alternatives(&mut found, count);
        (2..=count).contains(&found.len()).then_some(found)
    }

    fn add_alternatives(&self, into: &mut Vec<Vec<Self>>, count: usize) {
        match self {
            _ if into.len() > count => {}
            Self::Or(a, b) => {
                a.add_alternatives(into, count);
                b.add_alternatives(into, count);
            }
            Self::In(value, list) if list.len() <= count => {
                let equal = |other: &Self| Self::Compare(Comparison::Equal, value.clone(), Box::new(other.clone()));
                into.extend(list.iter().map(|other| vec![equal(other)]));
            }
            other => {
                let mut together = Vec::new();
                other.clone().conjuncts(&mut together);
                into.push(together);
            }
        }
    }

    /// One condition out of several, of which one has to hold; `None` out of none.
    pub(crate) fn any(mut conditions: Vec<Self>) -> Option<Self> {
        // Halves, so that the expression is not deep.
        while conditions.len() > 1 {
            let mut rest = conditions.into_iter();
            let mut pairs = Vec::new();
            while let Some(a) = rest.next() {
                pairs.push(match rest.next() {
                    Some(b) => Self::Or(Box::new(a), Box::new(b)),
                    None => a,
                });
            }
            conditions = pairs;
        }
        conditions.pop()
    }

    /// One condition out of several.
    pub(crate) fn all(conditions: impl IntoIterator<Item = Self>) -> Option<Self> {
        conditions.into_iter().reduce(|a, b| Self::And(Box::new(a), Box::new(b)))
    }
}

/// Whether texts of a type are read or shown as `DateStyle` or `IntervalStyle` says.
pub(crate) fn is_styled(of: Type) -> bool {
    let of = match of.element().unwrap_or(of) {
        Type::Range(kind) | Type::Multirange(kind) => kind.element(),
        of => of.exact(),
    };
    matches!(of, Type::Date | Type::Timestamp | Type::Timestamptz | Type::Interval | Type::Record | Type::Composite(_))
}
