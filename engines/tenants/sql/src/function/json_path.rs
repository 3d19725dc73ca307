//! What a `jsonpath` finds in a `jsonb`.
//!
//! An error of the data is told, unless the caller asks for silence; within a predicate it makes the predicate unknown. Errors of the path or of the
//! statement (a variable that there is not, a cancelled statement) are told always.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    cmp::Ordering,
    ops::ControlFlow,
    sync::Arc,
};

use bigdecimal::{BigDecimal, RoundingMode, ToPrimitive};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::{
        Value,
        json::{
            Json,
            path::{Chain, Head, Method, Operator, Path, Step},
        },
        numeric, size,
    },
};

use super::{Resolved, wrong_arguments};
use crate::expression::Facts;

/// What is asked of a value and another one, if there is one; none is for unknown.
type Test<'t> = dyn Fn(&Json, Option<&Json>) -> Result<Option<bool>> + 't;

/// A function of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonPathFunction {
    /// `jsonb_path_exists`, `@?`
    Exists,
    /// `jsonb_path_match`, `@@`: the value of a predicate
    Match,
    /// `jsonb_path_query_array`
    All,
    /// `jsonb_path_query_first`
    First,
}

/// The function of paths of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<JsonPathFunction>> {
    use JsonPathFunction as F;
    let (function, of) = match name.strip_suffix("_tz").unwrap_or(name) {
        "jsonb_path_exists" => (F::Exists, Type::Bool),
        "jsonb_path_match" => (F::Match, Type::Bool),
        "jsonb_path_query_array" => (F::All, Type::Jsonb),
        "jsonb_path_query_first" => (F::First, Type::Jsonb),
        _ => return None,
    };
    Some((function, wanted(arguments)?, of))
}

/// The types of the arguments of all of these functions: a value, a path, variables, whether to be silent.
pub(crate) fn wanted(arguments: &[Type]) -> Option<Vec<Type>> {
    let wanted = [Type::Jsonb, Type::Jsonpath, Type::Jsonb, Type::Bool];
    let fits = arguments.iter().zip(wanted).all(|(of, wanted)| *of == wanted || *of == Type::Unknown);
    (fits && (2..=4).contains(&arguments.len())).then(|| wanted[..arguments.len()].to_vec())
}

impl JsonPathFunction {
    /// Its value; no argument is NULL.
    pub(super) fn call(self, arguments: &[&Value], facts: &Facts) -> Result<Value> {
        let asked = Asked::of(arguments, facts)?.ok_or_else(|| wrong_arguments(self))?;
        let mut first = None;
        let found = match self {
            Self::Exists if !asked.path.strict => asked.find(facts, &mut |item| {
                first = Some(item);
                Ok(ControlFlow::Break(()))
            }),
            // What comes behind the first may be wrong, which matters.
            Self::Exists | Self::First => asked.find(facts, &mut |item| {
                first.get_or_insert(item);
                Ok(ControlFlow::Continue(()))
            }),
            Self::Match => {
                let mut items = Items::default();
                asked.find(facts, &mut |item| items.take(item))?;
                return match items.all.as_slice() {
                    [item] if let Json::Bool(holds) = **item => Ok(Value::Bool(holds)),
                    [item] if **item == Json::Null => Ok(Value::Null),
                    _ if asked.silent => Ok(Value::Null),
                    _ => Err(SqlError::new("22038", "single boolean result is expected")),
                };
            }
            Self::All => return Ok(value(Json::Array(asked.all(facts)?))),
        };
        Ok(match (self, found?, first) {
            (Self::Exists, Outcome::Failed, _) => Value::Null,
            (Self::Exists, Outcome::Done, first) => Value::Bool(first.is_some()),
            (_, _, first) => first.map_or(Value::Null, |item| value(item.into_owned())),
        })
    }
}

/// All that a path finds, as rows of `jsonb_path_query`. They are there before the first is given, as an error may be behind it.
pub(crate) fn query(arguments: &[&Value], facts: &Facts) -> Result<Vec<Value>> {
    // If an argument is NULL there is no row.
    let Some(asked) = Asked::of(arguments, facts)? else { return Ok(Vec::new()) };
    Ok(asked.all(facts)?.into_iter().map(value).collect())
}

fn value(json: Json) -> Value {
    Value::Json(Arc::new(json))
}

/// What a session has asked for lately, as a statement asks each row the same.
#[derive(Clone, Debug, Default)]
pub struct Paths(RefCell<Option<(String, Arc<Path>)>>);

impl Paths {
    /// The path of a value of `jsonpath`.
    fn get(&self, text: &str) -> Result<Arc<Path>> {
        if let Some((known, path)) = &*self.0.borrow()
            && known == text
        {
            return Ok(Arc::clone(path));
        }
        let path = Arc::new(Path::parse_again(text)?);
        *self.0.borrow_mut() = Some((text.to_owned(), Arc::clone(&path)));
        Ok(path)
    }
}

/// What is asked of a value.
struct Asked<'a> {
    root: &'a Json,
    path: Arc<Path>,
    variables: &'a [(String, Json)],
    silent: bool,
}

/// How a search ended that told of no error.
enum Outcome {
    Done,
    /// With an error that the caller did not want to hear of.
    Failed,
}

impl<'a> Asked<'a> {
    /// A value, a path, and perhaps variables and whether to be silent; without variables for an operator. `None` if one is NULL.
    fn of(arguments: &[&'a Value], facts: &Facts) -> Result<Option<Self>> {
        let [Value::Json(root), Value::Text(path), rest @ ..] = arguments else { return Ok(None) };
        let (variables, silent) = match rest {
            [] => (&[][..], false),
            [Value::Bool(silent)] => (&[][..], *silent),
            [Value::Json(variables), rest @ ..] => {
                let Json::Object(pairs) = &**variables else {
                    return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "\"vars\" argument is not an object")
                        .detail("Jsonpath parameters should be encoded as key-value pairs of \"vars\" object."));
                };
                match rest {
                    [] => (pairs.as_slice(), false),
                    [Value::Bool(silent)] => (pairs.as_slice(), *silent),
                    _ => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(Self { root, path: facts.paths.get(path)?, variables, silent }))
    }

    /// All that is found.
    fn all(&self, facts: &Facts) -> Result<Vec<Json>> {
        let (mut all, mut bytes) = (Vec::new(), 0);
        self.find(facts, &mut |item| {
            bytes += item.bytes();
            size::check_structure(bytes).map_err(Failure::Hard)?;
            all.push(item.into_owned());
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(all)
    }

    fn find<'s>(&'s self, facts: &'s Facts, take: &mut Take<'_, 's>) -> Result<Outcome> {
        let search = Search { asked: self, facts, depth: Cell::new(0) };
        let scope = Scope { current: Cow::Borrowed(self.root), last: None, lenient: !self.path.strict };
        match search.chain(&self.path.root, &scope, take) {
            Ok(_) => Ok(Outcome::Done),
            Err(Failure::Soft(_)) if self.silent => Ok(Outcome::Failed),
            Err(Failure::Soft(error) | Failure::Hard(error)) => Err(error),
        }
    }
}

/// Why a search ends early.
enum Failure {
    /// The data are not as the path expects them.
    Soft(SqlError),
    /// Something else is wrong, which nothing hides.
    Hard(SqlError),
}

type Found<T> = std::result::Result<T, Failure>;
type Item<'a> = Cow<'a, Json>;
/// What takes each item that is found, and says whether more are wanted.
type Take<'t, 'a> = dyn FnMut(Item<'a>) -> Found<ControlFlow<()>> + 't;

fn soft<T>(state: &'static str, message: impl Into<String>) -> Found<T> {
    Err(Failure::Soft(SqlError::new(state, message)))
}

/// Items that are gathered, which do not take more memory than a value may.
#[derive(Default)]
struct Items<'a> {
    all: Vec<Item<'a>>,
    bytes: usize,
}

impl<'a> Items<'a> {
    fn take(&mut self, item: Item<'a>) -> Found<ControlFlow<()>> {
        self.bytes += size_of::<Item<'_>>() + if let Cow::Owned(json) = &item { json.bytes() } else { 0 };
        size::check_structure(self.bytes).map_err(Failure::Hard)?;
        self.all.push(item);
        Ok(ControlFlow::Continue(()))
    }
}

/// What is around a part of a path.
#[derive(Clone)]
struct Scope<'a> {
    /// `@`
    current: Item<'a>,
    /// `last`, within subscripts.
    last: Option<usize>,
    /// Whether a structure that is not expected is nothing, and no error.
    lenient: bool,
}

/// A search in one value.
struct Search<'a> {
    asked: &'a Asked<'a>,
    facts: &'a Facts,
    /// How many steps are on the way.
    depth: Cell<usize>,
}

/// So many steps, filters and levels of a document may be within each other.
const DEPTH_MAX: usize = 10_000;

/// One level of a search.
struct Deeper<'s>(&'s Cell<usize>);

impl Drop for Deeper<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The elements of an array, each as an item of its own.
fn elements<'a>(array: Item<'a>) -> Box<dyn Iterator<Item = Item<'a>> + 'a> {
    match array {
        Cow::Borrowed(Json::Array(elements)) => Box::new(elements.iter().map(Cow::Borrowed)),
        Cow::Owned(Json::Array(elements)) => Box::new(elements.into_iter().map(Cow::Owned)),
        _ => Box::new(std::iter::empty()),
    }
}

/// What is directly below an array or an object.
fn children<'a>(of: Item<'a>) -> Box<dyn Iterator<Item = Item<'a>> + 'a> {
    match of {
        Cow::Borrowed(Json::Object(pairs)) => Box::new(pairs.iter().map(|(_, value)| Cow::Borrowed(value))),
        Cow::Owned(Json::Object(pairs)) => Box::new(pairs.into_iter().map(|(_, value)| Cow::Owned(value))),
        array => elements(array),
    }
}

/// Does something with each item, until no more is wanted.
fn each<'a>(
    items: impl Iterator<Item = Item<'a>>,
    mut with: impl FnMut(Item<'a>) -> Found<ControlFlow<()>>,
) -> Found<ControlFlow<()>> {
    for item in items {
        if with(item)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

impl<'a> Search<'a> {
    /// Goes one level deeper, until what comes is dropped.
    fn deeper(&self) -> Found<Deeper<'_>> {
        self.depth.set(self.depth.get() + 1);
        let deeper = Deeper(&self.depth);
        if self.depth.get() <= DEPTH_MAX {
            return Ok(deeper);
        }
        let message = format!("a jsonpath goes more than {DEPTH_MAX} levels deep into a value");
        Err(Failure::Hard(SqlError::new("54001", message)))
    }

    fn is_lax(&self) -> bool {
        !self.asked.path.strict
    }

    /// All that a chain leads to.
    fn chain(&self, chain: &'a Chain, scope: &Scope<'a>, take: &mut Take<'_, 'a>) -> Found<ControlFlow<()>> {
        let item = match &chain.head {
            Head::Null => Cow::Owned(Json::Null),
            Head::Bool(value) => Cow::Owned(Json::Bool(*value)),
            Head::Number(number) => Cow::Owned(Json::Number(number.clone())),
            Head::String(text) => Cow::Owned(Json::String(text.clone())),
            Head::Variable(name) => {
                let missing = || {
                    let message = format!("could not find jsonpath variable \"{name}\"");
                    Failure::Hard(SqlError::new(state::UNDEFINED_OBJECT, message))
                };
                let found = self.asked.variables.iter().find(|(other, _)| other == name);
                Cow::Borrowed(&found.ok_or_else(missing)?.1)
            }
            Head::Root => Cow::Borrowed(self.asked.root),
            Head::Current => scope.current.clone(),
            Head::Last => {
                let last = scope.last.map_or(-1, |length| length as i64 - 1);
                Cow::Owned(Json::Number(last.into()))
            }
            Head::Binary(operator @ (Operator::Add | Operator::Subtract), left, right)
            | Head::Binary(operator @ (Operator::Multiply | Operator::Divide | Operator::Remainder), left, right) => {
                Cow::Owned(Json::Number(self.arithmetic(*operator, left, right, scope)?))
            }
            Head::Sign { negative, of } => {
                return each(self.items(of, true, scope)?.into_iter(), |item| match item.into_owned() {
                    Json::Number(number) => {
                        let number = if *negative { -number } else { number };
                        self.steps(&chain.steps, scope, Cow::Owned(Json::Number(number)), self.is_lax(), take)
                    }
                    _ => {
                        let sign = if *negative { "-" } else { "+" };
                        soft("2203B", format!("operand of unary jsonpath operator {sign} is not a numeric value"))
                    }
                });
            }
            _ => Cow::Owned(self.predicate(chain, scope)?.map_or(Json::Null, Json::Bool)),
        };
        self.steps(&chain.steps, scope, item, self.is_lax(), take)
    }

    /// All that a chain leads to, in a list. `unwrap`: arrays among it are taken apart in lax mode.
    fn items(&self, chain: &'a Chain, unwrap: bool, scope: &Scope<'a>) -> Found<Vec<Item<'a>>> {
        let mut items = Items::default();
        let unwrap = unwrap && self.is_lax();
        let _all = self.chain(chain, scope, &mut |item| match &*item {
            Json::Array(_) if unwrap => each(elements(item), |element| items.take(element)),
            _ => items.take(item),
        })?;
        Ok(items.all)
    }

    fn arithmetic(
        &self,
        operator: Operator,
        left: &'a Chain,
        right: &'a Chain,
        scope: &Scope<'a>,
    ) -> Found<BigDecimal> {
        let operand = |of, side| match self.items(of, true, scope)?.as_slice() {
            [item] if let Json::Number(number) = &**item => Ok(number.clone()),
            _ => {
                let sign = operator.sign();
                soft("22038", format!("{side} operand of jsonpath operator {sign} is not a single numeric value"))
            }
        };
        let (a, b) = (operand(left, "left")?, operand(right, "right")?);
        let result = match operator {
            Operator::Add => numeric::sum(&a, &b),
            Operator::Subtract => numeric::difference(&a, &b),
            Operator::Multiply => numeric::product(&a, &b),
            Operator::Divide => numeric::divide(&a, &b),
            _ => numeric::remainder(&a, &b),
        };
        result.map_err(Failure::Soft)
    }

    /// Goes the steps from an item on. `unwrap`: if it is an array, the first step may be meant for its elements.
    fn steps(
        &self,
        steps: &'a [Step],
        scope: &Scope<'a>,
        item: Item<'a>,
        unwrap: bool,
        take: &mut Take<'_, 'a>,
    ) -> Found<ControlFlow<()>> {
        self.facts.interrupts.check().map_err(Failure::Hard)?;
        let Some((step, rest)) = steps.split_first() else { return take(item) };
        let _deeper = self.deeper()?;
        let is_for_elements = match step {
            Step::Key(_) | Step::AnyKey | Step::Filter(_) => true,
            Step::Method(method) => !matches!(method, Method::Size | Method::Type),
            _ => false,
        };
        if unwrap && is_for_elements && matches!(*item, Json::Array(_)) {
            return each(elements(item), |element| self.steps(steps, scope, element, false, take));
        }
        let mut go_on = |item| self.steps(rest, scope, item, self.is_lax(), take);
        match step {
            Step::Key(key) => match (&*item, item.get(key).is_some()) {
                (Json::Object(_), true) => go_on(match item {
                    Cow::Borrowed(object) => object.get(key).map_or(Cow::Owned(Json::Null), Cow::Borrowed),
                    Cow::Owned(object) => Cow::Owned(object.get(key).cloned().unwrap_or(Json::Null)),
                }),
                _ if scope.lenient => Ok(ControlFlow::Continue(())),
                (Json::Object(_), false) => soft("2203A", format!("JSON object does not contain key \"{key}\"")),
                _ => soft("2203A", "jsonpath member accessor can only be applied to an object"),
            },
            Step::AnyKey => match &*item {
                Json::Object(_) => each(children(item), go_on),
                _ if scope.lenient => Ok(ControlFlow::Continue(())),
                _ => soft("2203C", "jsonpath wildcard member accessor can only be applied to an object"),
            },
            Step::AnyElement => match &*item {
                Json::Array(_) => each(elements(item), go_on),
                _ if self.is_lax() => go_on(item),
                _ if scope.lenient => Ok(ControlFlow::Continue(())),
                _ => soft("22039", "jsonpath wildcard array accessor can only be applied to an array"),
            },
            Step::Elements(subscripts) => {
                let length = match &*item {
                    Json::Array(elements) => elements.len(),
                    _ if self.is_lax() => 1,
                    _ if scope.lenient => return Ok(ControlFlow::Continue(())),
                    _ => return soft("22039", "jsonpath array accessor can only be applied to an array"),
                };
                let inner = Scope { last: Some(length), ..scope.clone() };
                for (from, to) in subscripts {
                    let from = self.subscript(from, &inner)?;
                    let to = to.as_ref().map_or(Ok(from), |to| self.subscript(to, &inner))?;
                    if !scope.lenient && (from < 0 || from > to || to >= length as i64) {
                        return soft("22033", "jsonpath array subscript is out of bounds");
                    }
                    for at in from.max(0)..=to.min(length as i64 - 1) {
                        let element = match &item {
                            Cow::Borrowed(Json::Array(elements)) => Cow::Borrowed(&elements[at as usize]),
                            Cow::Owned(Json::Array(elements)) => Cow::Owned(elements[at as usize].clone()),
                            other => other.clone(),
                        };
                        if go_on(element)?.is_break() {
                            return Ok(ControlFlow::Break(()));
                        }
                    }
                }
                Ok(ControlFlow::Continue(()))
            }
            Step::Any { from, to } => {
                let scope = Scope { lenient: true, ..scope.clone() };
                let mut go_on = |item| self.steps(rest, &scope, item, self.is_lax(), take);
                if *from == Some(0) && go_on(item.clone())?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                self.below(item, 1, (*from, *to), &mut go_on)
            }
            Step::Filter(condition) => {
                let inner = Scope { current: item.clone(), ..scope.clone() };
                match self.predicate(condition, &inner)? {
                    Some(true) => go_on(item),
                    _ => Ok(ControlFlow::Continue(())),
                }
            }
            Step::Method(Method::Type) => go_on(Cow::Owned(Json::String(item.kind().to_owned()))),
            Step::Method(Method::Size) => match &*item {
                Json::Array(elements) => go_on(Cow::Owned(Json::Number((elements.len() as u64).into()))),
                _ if self.is_lax() => go_on(Cow::Owned(Json::Number(1.into()))),
                _ if scope.lenient => Ok(ControlFlow::Continue(())),
                _ => soft("22039", "jsonpath item method .size() can only be applied to an array"),
            },
            Step::Method(Method::Double) => go_on(double(item)?),
            Step::Method(method @ (Method::Abs | Method::Floor | Method::Ceiling)) => match &*item {
                Json::Number(number) => go_on(Cow::Owned(Json::Number(match method {
                    Method::Abs => number.abs(),
                    Method::Floor => number.with_scale_round(0, RoundingMode::Floor),
                    _ => number.with_scale_round(0, RoundingMode::Ceiling),
                }))),
                _ => {
                    let name = method.name();
                    soft("22036", format!("jsonpath item method .{name}() can only be applied to a numeric value"))
                }
            },
            Step::Method(Method::KeyValue) => match &*item {
                Json::Object(pairs) => {
                    let id = Json::Number(object_number(&item, self.asked.root).into());
                    let pair = |(key, value): &(String, Json)| {
                        let member = |name: &str, of: Json| (name.to_owned(), of);
                        Cow::Owned(Json::object(vec![
                            member("key", Json::String(key.clone())),
                            member("value", value.clone()),
                            member("id", id.clone()),
                        ]))
                    };
                    each(pairs.iter().map(pair), go_on)
                }
                _ => soft("2203C", "jsonpath item method .keyvalue() can only be applied to an object"),
            },
            Step::Datetime(_) => Err(Failure::Hard(SqlError::unsupported("the method .datetime() of a jsonpath"))),
        }
    }

    /// All that is below an item, on some levels; `None` to `None` is what has nothing below it.
    fn below(
        &self,
        of: Item<'a>,
        level: u32,
        (from, to): (Option<u32>, Option<u32>),
        take: &mut dyn FnMut(Item<'a>) -> Found<ControlFlow<()>>,
    ) -> Found<ControlFlow<()>> {
        if to.is_some_and(|to| level > to) {
            return Ok(ControlFlow::Continue(()));
        }
        let _deeper = self.deeper()?;
        each(children(of), |child| {
            let is_scalar = !matches!(*child, Json::Array(_) | Json::Object(_));
            let is_wanted = match from {
                Some(from) => level >= from,
                None => to.is_none() && is_scalar,
            };
            if is_wanted && take(child.clone())?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if is_scalar { Ok(ControlFlow::Continue(())) } else { self.below(child, level + 1, (from, to), take) }
        })
    }

    /// The value of a subscript.
    fn subscript(&self, chain: &'a Chain, scope: &Scope<'a>) -> Found<i64> {
        match self.items(chain, false, scope)?.as_slice() {
            [item] if let Json::Number(number) = &**item => {
                let whole = number.with_scale_round(0, RoundingMode::Down).to_i32();
                whole.map_or_else(
                    || soft("22033", "jsonpath array subscript is out of integer range"),
                    |at| Ok(at.into()),
                )
            }
            _ => soft("22033", "jsonpath array subscript is not a single numeric value"),
        }
    }

    /// Whether a predicate holds; `None` is unknown.
    fn predicate(&self, chain: &'a Chain, scope: &Scope<'a>) -> Found<Option<bool>> {
        Ok(match &chain.head {
            Head::Binary(Operator::And, left, right) => match self.predicate(left, scope)? {
                Some(false) => Some(false),
                left => match self.predicate(right, scope)? {
                    Some(true) => left,
                    right => right,
                },
            },
            Head::Binary(Operator::Or, left, right) => match self.predicate(left, scope)? {
                Some(true) => Some(true),
                left => match self.predicate(right, scope)? {
                    Some(false) => left,
                    right => right,
                },
            },
            Head::Not(of) => self.predicate(of, scope)?.map(|holds| !holds),
            Head::IsUnknown(of) => Some(self.predicate(of, scope)?.is_none()),
            Head::Exists(of) => {
                let mut exists = false;
                let found = self.chain(of, scope, &mut |_| {
                    exists = true;
                    // In strict mode what comes behind may be wrong.
                    Ok(if self.is_lax() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                });
                hidden(found)?.map(|_| exists)
            }
            Head::Binary(Operator::StartsWith, text, prefix) => {
                self.holds(text, Some((prefix, false)), scope, &|text, prefix| match (text, prefix) {
                    (Json::String(text), Some(Json::String(prefix))) => Ok(Some(text.starts_with(prefix.as_str()))),
                    _ => Ok(None),
                })?
            }
            Head::Like { of, pattern, flags } => {
                let flags = match (flags.contains('q'), flags.contains('m'), flags.contains('s')) {
                    (true, ..) => "q",
                    // A point is no line break unless it is said, and ^ and $ are at lines only if it is said.
                    (false, false, false) => "p",
                    (false, true, false) => "n",
                    (false, false, true) => "s",
                    (false, true, true) => "w",
                }
                .to_owned()
                    + if flags.contains('i') { "i" } else { "" };
                self.holds(of, None, scope, &|text, _| match text {
                    Json::String(text) => Ok(Some(self.facts.patterns.get(pattern, &flags, "")?.is_match(text))),
                    _ => Ok(None),
                })?
            }
            Head::Binary(operator, left, right) => {
                self.holds(left, Some((right, true)), scope, &|a, b| Ok(b.and_then(|b| compare(*operator, a, b))))?
            }
            _ => None,
        })
    }

    /// Whether something holds for a pair of items of two chains; in strict mode no pair may be unknown.
    fn holds(
        &self,
        left: &'a Chain,
        right: Option<(&'a Chain, bool)>,
        scope: &Scope<'a>,
        test: &Test<'_>,
    ) -> Found<Option<bool>> {
        let Some(left) = hidden(self.items(left, true, scope))? else { return Ok(None) };
        let right = match right {
            None => vec![None],
            Some((right, unwrap)) => match hidden(self.items(right, unwrap, scope))? {
                Some(items) => items.into_iter().map(Some).collect(),
                None => return Ok(None),
            },
        };
        let (mut holds, mut unknown) = (false, false);
        for a in &left {
            for b in &right {
                self.facts.interrupts.check().map_err(Failure::Hard)?;
                match test(a, b.as_deref()).map_err(Failure::Hard)? {
                    None if !self.is_lax() => return Ok(None),
                    None => unknown = true,
                    Some(true) if self.is_lax() => return Ok(Some(true)),
                    Some(found) => holds |= found,
                }
            }
        }
        Ok(if unknown && !holds { None } else { Some(holds) })
    }
}

/// What a part of a predicate found; an error of the data is nothing.
fn hidden<T>(found: Found<T>) -> Found<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Failure::Soft(_)) => Ok(None),
        Err(hard) => Err(hard),
    }
}

/// How two items compare, if they can be compared.
fn compare(operator: Operator, a: &Json, b: &Json) -> Option<bool> {
    let order = match (a, b) {
        (Json::Null, Json::Null) => Ordering::Equal,
        (Json::Bool(a), Json::Bool(b)) => a.cmp(b),
        (Json::Number(a), Json::Number(b)) => a.cmp(b),
        (Json::String(a), Json::String(b)) => a.as_bytes().cmp(b.as_bytes()),
        // null is equal to nothing else, and has no order.
        (Json::Null, _) | (_, Json::Null) => return Some(operator == Operator::NotEqual),
        _ => return None,
    };
    Some(match operator {
        Operator::Equal => order.is_eq(),
        Operator::NotEqual => order.is_ne(),
        Operator::Less => order.is_lt(),
        Operator::LessOrEqual => order.is_le(),
        Operator::Greater => order.is_gt(),
        _ => order.is_ge(),
    })
}

/// `.double()`
fn double(item: Item<'_>) -> Found<Item<'_>> {
    // With the digits that PostgreSQL makes of such a number as a numeric.
    let number = |text: &str| {
        let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite())?;
        numeric::parse(&format!("{number:.14e}")).ok().map(|number| number.normalized())
    };
    match &*item {
        Json::Number(exact) => match number(&exact.to_plain_string()) {
            Some(_) => Ok(item),
            None => soft(
                "22036",
                "numeric argument of jsonpath item method .double() is out of range for type double precision",
            ),
        },
        Json::String(text) => match number(text) {
            Some(number) => Ok(Cow::Owned(Json::Number(number))),
            None => soft(
                "22036",
                "string argument of jsonpath item method .double() is not a valid representation of a double precision number",
            ),
        },
        _ => soft("22036", "jsonpath item method .double() can only be applied to a string or numeric value"),
    }
}

/// A number that only this object of a value has: the root has 0. Objects that the path made have one number together.
fn object_number(object: &Item<'_>, root: &Json) -> u64 {
    /// Larger than the number of any part of a value.
    const MADE: u64 = 10_000_000_000;
    fn place(within: &Json, wanted: &Json, at: &mut u64) -> bool {
        if std::ptr::eq(within, wanted) {
            return true;
        }
        *at += 1;
        match within {
            Json::Array(elements) => elements.iter().any(|element| place(element, wanted, at)),
            Json::Object(pairs) => pairs.iter().any(|(_, value)| place(value, wanted, at)),
            _ => false,
        }
    }
    let mut at = 0;
    match object {
        Cow::Borrowed(wanted) if place(root, wanted, &mut at) => at,
        _ => MADE,
    }
}
