//! Expressions over the rows of system tables: from syntax to nodes whose columns are found, and from nodes to values.

use std::cmp::Ordering;
use std::rc::Rc;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CastKind, DataType, DuplicateTreatment, Expr, Function as Call, FunctionArg,
    FunctionArgExpr, FunctionArguments, Ident, Query, Spanned, Subscript, TrimWhereField, UnaryOperator,
    Value as Literal,
};
use datafusion::sql::sqlparser::tokenizer::Span;
use regex::Regex;
use savanna_streams_api::{Result, StreamError};

use super::functions::{self, Function, Object};
use super::select::{Ctes, Plan};
use super::value::{Type, Value, ident_name, split_name, type_name};
use super::{World, pg_types};
use crate::parse::position;
use savanna_streams_model::names::hint;

/// A column that an expression may name.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) table: Option<String>,
    pub(super) name: String,
    pub(super) of: Type,
    /// Whether `*` leaves it out.
    pub(super) hidden: bool,
}

/// The columns in sight: those of the query, and of the queries around it.
#[derive(Clone, Copy)]
pub(super) struct Scope<'s> {
    pub(super) columns: &'s [Named],
    pub(super) outer: Option<&'s Scope<'s>>,
}

/// The rows in sight, as [`Scope`] has their columns.
#[derive(Clone, Copy)]
pub(super) struct Frame<'r> {
    pub(super) row: &'r [Value],
    pub(super) aggregates: &'r [Value],
    pub(super) outer: Option<&'r Frame<'r>>,
}

/// An expression whose names are found.
pub(super) enum Node {
    Constant(Value),
    /// A column of the query so many levels up.
    Column {
        up: usize,
        at: usize,
    },
    Call(&'static Function, Vec<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Not(Box<Node>),
    IsNull(Box<Node>),
    /// Whether it is true, or false; never NULL.
    Is(bool, Box<Node>),
    Compare(Comparison, Box<Node>, Box<Node>),
    /// Whether two are the same, NULLs too.
    Same(Box<Node>, Box<Node>),
    Arithmetic(fn(i64, i64) -> Option<i64>, Box<Node>, Box<Node>),
    Concat(Box<Node>, Box<Node>),
    Match(Box<Node>, Pattern),
    /// A comparison with the elements of an array, one of which must hold, or all.
    Elements {
        all: bool,
        comparison: Comparison,
        value: Box<Node>,
        array: Box<Node>,
    },
    /// The same with the rows of a query.
    Rows {
        all: bool,
        comparison: Comparison,
        value: Box<Node>,
        query: Rc<Plan>,
    },
    Exists(Rc<Plan>),
    Scalar(Rc<Plan>),
    ArrayOf(Rc<Plan>),
    List(Vec<Node>),
    Element(Box<Node>, Box<Node>),
    Case {
        conditions: Vec<(Node, Node)>,
        otherwise: Box<Node>,
    },
    Cast(Cast, Box<Node>),
    Aggregate(usize),
}

/// What a pattern is matched as.
#[derive(Clone, Copy)]
pub(super) struct How {
    like: bool,
    any_case: bool,
}

pub(super) enum Pattern {
    Known(Regex),
    Computed(How, Box<Node>),
}

#[derive(Clone, Copy)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Matches(How),
}

#[derive(Clone, Copy)]
pub(super) enum Cast {
    To(Type),
    /// To the number of an object, or from it to its name.
    Object(Object),
}

/// An aggregate of a query.
pub(super) struct Aggregate {
    pub(super) name: &'static str,
    pub(super) distinct: bool,
    pub(super) arguments: Vec<Node>,
    pub(super) filter: Option<Node>,
}

const AGGREGATES: [(&str, Type); 9] = [
    ("count", Type::Integer),
    ("sum", Type::Integer),
    ("min", Type::Unknown),
    ("max", Type::Unknown),
    ("string_agg", Type::Text),
    ("array_agg", Type::List),
    ("bool_and", Type::Boolean),
    ("every", Type::Boolean),
    ("bool_or", Type::Boolean),
];

/// A node and its type.
pub(super) struct Typed {
    pub(super) node: Node,
    pub(super) of: Type,
}

/// Finds the names of expressions.
pub(super) struct Compiler<'c> {
    pub(super) world: &'c World<'c>,
    pub(super) ctes: &'c Ctes,
    pub(super) scope: Scope<'c>,
    /// Where aggregates may stand, those that were met.
    pub(super) aggregates: Option<Vec<Aggregate>>,
}

impl Compiler<'_> {
    pub(super) fn expr(&mut self, expr: &Expr) -> Result<Typed> {
        let truth = |node| Ok(Typed { node, of: Type::Boolean });
        match expr {
            Expr::Identifier(name) => self.column(None, name),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [.., table, name] => self.column(Some(table), name),
                [name] => self.column(None, name),
                [] => Err(unsupported("an empty name", expr.span())),
            },
            Expr::Value(value) => literal(&value.value, value.span),
            Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => self.expr(inner),
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => truth(Node::Not(self.boxed(expr)?)),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
                let zero = Box::new(Node::Constant(Value::from(0)));
                Ok(Typed { node: Node::Arithmetic(i64::checked_sub, zero, self.boxed(expr)?), of: Type::Integer })
            }
            Expr::UnaryOp { op: UnaryOperator::Plus, expr } => self.expr(expr),
            Expr::BinaryOp { left, op, right } => self.binary(left, op, right, expr.span()),
            Expr::IsNull(inner) => truth(Node::IsNull(self.boxed(inner)?)),
            Expr::IsNotNull(inner) => truth(Node::Not(Box::new(Node::IsNull(self.boxed(inner)?)))),
            Expr::IsTrue(inner) => truth(Node::Is(true, self.boxed(inner)?)),
            Expr::IsNotTrue(inner) => truth(Node::Not(Box::new(Node::Is(true, self.boxed(inner)?)))),
            Expr::IsFalse(inner) => truth(Node::Is(false, self.boxed(inner)?)),
            Expr::IsNotFalse(inner) => truth(Node::Not(Box::new(Node::Is(false, self.boxed(inner)?)))),
            Expr::IsNotDistinctFrom(a, b) => truth(Node::Same(self.boxed(a)?, self.boxed(b)?)),
            Expr::IsDistinctFrom(a, b) => truth(Node::Not(Box::new(Node::Same(self.boxed(a)?, self.boxed(b)?)))),
            Expr::InList { expr, list, negated } => {
                let list = list.iter().map(|item| Ok(self.expr(item)?.node)).collect::<Result<Vec<_>>>()?;
                let (value, array) = (self.boxed(expr)?, Box::new(Node::List(list)));
                let node = Node::Elements { all: false, comparison: Comparison::Equal, value, array };
                truth(negate(*negated, node))
            }
            Expr::InSubquery { expr, subquery, negated } => {
                let (value, query) = (self.boxed(expr)?, self.one_column(subquery)?.0);
                truth(negate(*negated, Node::Rows { all: false, comparison: Comparison::Equal, value, query }))
            }
            Expr::Between { expr, negated, low, high } => {
                let low = Node::Compare(Comparison::GreaterOrEqual, self.boxed(expr)?, self.boxed(low)?);
                let high = Node::Compare(Comparison::LessOrEqual, self.boxed(expr)?, self.boxed(high)?);
                truth(negate(*negated, Node::And(Box::new(low), Box::new(high))))
            }
            Expr::Like { negated, expr, pattern, .. } => self.matched(expr, pattern, LIKE, *negated),
            Expr::ILike { negated, expr, pattern, .. } => {
                self.matched(expr, pattern, How { any_case: true, ..LIKE }, *negated)
            }
            Expr::AnyOp { left, compare_op, right, .. } => self.elements(false, left, compare_op, right),
            Expr::AllOp { left, compare_op, right } => self.elements(true, left, compare_op, right),
            Expr::Exists { subquery, negated } => truth(negate(*negated, Node::Exists(self.subquery(subquery)?))),
            Expr::Subquery(query) => {
                let (query, of) = self.one_column(query)?;
                Ok(Typed { node: Node::Scalar(query), of })
            }
            Expr::Array(array) => {
                let items = array.elem.iter().map(|item| Ok(self.expr(item)?.node)).collect::<Result<Vec<_>>>()?;
                Ok(Typed { node: Node::List(items), of: Type::List })
            }
            Expr::CompoundFieldAccess { root, access_chain } => match access_chain.as_slice() {
                [AccessExpr::Subscript(Subscript::Index { index })] => {
                    Ok(Typed { node: Node::Element(self.boxed(root)?, self.boxed(index)?), of: Type::Text })
                }
                _ => Err(unsupported("this access to a part of a value", expr.span())),
            },
            Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, .. } => {
                self.cast(expr, data_type)
            }
            Expr::Case { operand, conditions, else_result, .. } => {
                let mut of = Type::Unknown;
                let mut compiled = Vec::new();
                for when in conditions {
                    let condition = match operand {
                        None => self.expr(&when.condition)?.node,
                        Some(operand) => {
                            Node::Compare(Comparison::Equal, self.boxed(operand)?, self.boxed(&when.condition)?)
                        }
                    };
                    let result = self.expr(&when.result)?;
                    of = of.or(result.of);
                    compiled.push((condition, result.node));
                }
                let otherwise = match else_result {
                    Some(otherwise) => self.expr(otherwise)?,
                    None => Typed { node: Node::Constant(Value::Null), of: Type::Unknown },
                };
                let of = of.or(otherwise.of);
                Ok(Typed { node: Node::Case { conditions: compiled, otherwise: Box::new(otherwise.node) }, of })
            }
            Expr::Function(call) => self.call(call),
            Expr::Trim { expr, trim_where, trim_what, trim_characters } => {
                let name = match trim_where {
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                    Some(TrimWhereField::Both) | None => "btrim",
                };
                let what = trim_what.as_deref().or_else(|| trim_characters.as_ref().and_then(|all| all.first()));
                self.known(name, [Some(expr.as_ref()), what].into_iter().flatten(), expr.span())
            }
            Expr::Substring { expr, substring_from, substring_for, .. } => {
                let arguments = [Some(expr), substring_from.as_ref(), substring_for.as_ref()];
                self.known("substring", arguments.into_iter().flatten().map(AsRef::as_ref), expr.span())
            }
            Expr::Position { expr, r#in } => {
                self.known("strpos", [r#in.as_ref(), expr.as_ref()].into_iter(), expr.span())
            }
            other => Err(unsupported(&format!("{other}"), other.span())),
        }
    }

    fn boxed(&mut self, expr: &Expr) -> Result<Box<Node>> {
        Ok(Box::new(self.expr(expr)?.node))
    }

    fn column(&self, table: Option<&Ident>, name: &Ident) -> Result<Typed> {
        let (table_name, column) = (table.map(ident_name), ident_name(name));
        let is_it = |named: &Named| {
            named.name == column && table_name.as_ref().is_none_or(|table| named.table.as_ref() == Some(table))
        };
        let mut scope = Some(&self.scope);
        let mut up = 0;
        while let Some(here) = scope {
            if let Some(at) = here.columns.iter().position(is_it) {
                return Ok(Typed { node: Node::Column { up, at }, of: here.columns[at].of });
            }
            (scope, up) = (here.outer, up + 1);
        }
        // Clients write `current_user` without brackets.
        if table.is_none()
            && functions::is_of_the_system_alone(&column)
            && let Some(function) = functions::find(&column).filter(|function| function.takes.contains(&0))
        {
            return Ok(Typed { node: Node::Call(function, Vec::new()), of: function.of });
        }
        let known = self.scope.columns.iter().filter(|named| !named.hidden).map(|named| named.name.as_str());
        Err(StreamError::Unknown {
            kind: "column".into(),
            name: table.map_or_else(|| name.to_string(), |table| format!("{table}.{name}")),
            position: position(table.unwrap_or(name).span.start),
            hint: hint(&column, known, "columns here"),
        })
    }

    fn binary(&mut self, left: &Expr, op: &BinaryOperator, right: &Expr, span: Span) -> Result<Typed> {
        let arithmetic: Option<fn(i64, i64) -> Option<i64>> = match op {
            BinaryOperator::Plus => Some(i64::checked_add),
            BinaryOperator::Minus => Some(i64::checked_sub),
            BinaryOperator::Multiply => Some(i64::checked_mul),
            BinaryOperator::Divide => Some(i64::checked_div),
            BinaryOperator::Modulo => Some(i64::checked_rem),
            _ => None,
        };
        if let Some(run) = arithmetic {
            let node = Node::Arithmetic(run, self.boxed(left)?, self.boxed(right)?);
            return Ok(Typed { node, of: Type::Integer });
        }
        match op {
            BinaryOperator::And => {
                Ok(Typed { node: Node::And(self.boxed(left)?, self.boxed(right)?), of: Type::Boolean })
            }
            BinaryOperator::Or => {
                Ok(Typed { node: Node::Or(self.boxed(left)?, self.boxed(right)?), of: Type::Boolean })
            }
            BinaryOperator::StringConcat => {
                let (left, right) = (self.expr(left)?, self.expr(right)?);
                let list = left.of == Type::List || right.of == Type::List;
                let of = if list { Type::List } else { Type::Text };
                Ok(Typed { node: Node::Concat(Box::new(left.node), Box::new(right.node)), of })
            }
            other => match comparison(other) {
                Some((Comparison::Matches(how), negated)) => self.matched(left, right, how, negated),
                Some((comparison, _)) => {
                    let node = Node::Compare(comparison, self.boxed(left)?, self.boxed(right)?);
                    Ok(Typed { node, of: Type::Boolean })
                }
                None => Err(unsupported(&format!("the operator {other}"), span)),
            },
        }
    }

    fn matched(&mut self, text: &Expr, pattern: &Expr, how: How, negated: bool) -> Result<Typed> {
        let text = self.boxed(text)?;
        let pattern = match self.expr(pattern)?.node {
            Node::Constant(Value::Text(pattern)) => Pattern::Known(how.regex(&pattern)?),
            computed => Pattern::Computed(how, Box::new(computed)),
        };
        Ok(Typed { node: negate(negated, Node::Match(text, pattern)), of: Type::Boolean })
    }

    fn elements(&mut self, all: bool, left: &Expr, op: &BinaryOperator, right: &Expr) -> Result<Typed> {
        let (comparison, negated) = match comparison(op) {
            Some((comparison, false)) => (comparison, false),
            Some((comparison, true)) => (comparison, true),
            None => return Err(unsupported(&format!("the operator {op}"), left.span())),
        };
        let value = self.boxed(left)?;
        let node = match unnested(right) {
            Expr::Subquery(query) => Node::Rows { all, comparison, value, query: self.one_column(query)?.0 },
            array => Node::Elements { all, comparison, value, array: self.boxed(array)? },
        };
        // Only patterns are negated, and `!~ ALL` is rare.
        Ok(Typed { node: negate(negated, node), of: Type::Boolean })
    }

    fn cast(&mut self, expr: &Expr, data_type: &DataType) -> Result<Typed> {
        let typed = self.expr(expr)?;
        let cast = |cast, of| Typed { node: Node::Cast(cast, Box::new(typed.node)), of };
        let (_, name) = type_name(data_type);
        if let Some(object) = Object::of(&name) {
            // A number becomes a name, a name a number.
            let of = if typed.of == Type::Integer { Type::Text } else { Type::Integer };
            return Ok(cast(Cast::Object(object), of));
        }
        let of = match data_type {
            DataType::Array(_) => Type::List,
            DataType::Boolean | DataType::Bool => Type::Boolean,
            _ if name.ends_with("[]") || name.starts_with('_') => Type::List,
            _ => match name.split('(').next().unwrap_or_default().trim() {
                "oid" | "int" | "integer" | "bigint" | "smallint" | "int2" | "int4" | "int8" | "xid" => Type::Integer,
                "bool" => Type::Boolean,
                _ if pg_types::named(&name).is_some() || is_text(data_type) => Type::Text,
                _ => return Err(unsupported(&format!("the type {data_type} here"), expr.span())),
            },
        };
        Ok(cast(Cast::To(of), of))
    }

    fn subquery(&self, query: &Query) -> Result<Rc<Plan>> {
        Plan::within(query, self.world, self.ctes, Some(&self.scope)).map(Rc::new)
    }

    fn one_column(&self, query: &Query) -> Result<(Rc<Plan>, Type)> {
        let plan = self.subquery(query)?;
        if plan.width() != 1 {
            return Err(StreamError::Invalid {
                message: format!("a subquery for one value has {} columns; name one", plan.width()),
                position: position(query.span().start),
            });
        }
        let of = plan.type_of(0);
        Ok((plan, of))
    }

    fn call(&mut self, call: &Call) -> Result<Typed> {
        let (_, name) = split_name(&call.name);
        let span = call.name.span();
        let list = match &call.args {
            FunctionArguments::Subquery(query) if name == "array" => {
                return Ok(Typed { node: Node::ArrayOf(self.one_column(query)?.0), of: Type::List });
            }
            FunctionArguments::Subquery(_) => return Err(unsupported("a query as an argument", span)),
            FunctionArguments::None => None,
            FunctionArguments::List(list) => Some(list),
        };
        if call.over.is_some() || !call.within_group.is_empty() {
            return Err(unsupported("OVER and WITHIN GROUP", span));
        }
        let mut arguments = Vec::new();
        let mut star = false;
        for argument in list.iter().flat_map(|list| &list.args) {
            match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => arguments.push(expr),
                FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => star = true,
                _ => return Err(unsupported("a named argument", span)),
            }
        }
        let Some((aggregate, of)) = AGGREGATES.iter().find(|(aggregate, _)| *aggregate == name) else {
            return self.known(&name, arguments.into_iter(), span);
        };
        let Some(met) = self.aggregates.take() else {
            return Err(unsupported("an aggregate in this place", span));
        };
        // Aggregates do not stand in each other.
        let arguments = arguments.into_iter().map(|argument| self.expr(argument)).collect::<Result<Vec<_>>>()?;
        let filter = call.filter.as_ref().map(|filter| Ok(self.expr(filter)?.node)).transpose()?;
        if arguments.is_empty() && !(star && *aggregate == "count") {
            return Err(wrong_number(&name, "arguments", 0, span));
        }
        let of = if *of == Type::Unknown { arguments[0].of } else { *of };
        let distinct = list.and_then(|list| list.duplicate_treatment) == Some(DuplicateTreatment::Distinct);
        let arguments = arguments.into_iter().map(|argument| argument.node).collect();
        let met = self.aggregates.insert(met);
        met.push(Aggregate { name: aggregate, distinct, arguments, filter });
        Ok(Typed { node: Node::Aggregate(met.len() - 1), of })
    }

    /// A call of one of the system's functions.
    fn known<'e>(&mut self, name: &str, arguments: impl Iterator<Item = &'e Expr>, span: Span) -> Result<Typed> {
        let Some(function) = functions::find(name) else {
            return Err(StreamError::Unknown {
                kind: "function".into(),
                name: name.into(),
                position: position(span.start),
                hint: match hint(name, functions::names(), "functions of the system") {
                    near if near.starts_with("did you mean") => near,
                    _ => "over system tables only functions that clients of PostgreSQL call are known".into(),
                },
            });
        };
        let arguments = arguments.map(|argument| self.expr(argument)).collect::<Result<Vec<_>>>()?;
        if !function.takes.contains(&arguments.len()) {
            let (least, most) = (function.takes.start(), function.takes.end());
            let takes = if least == most { most.to_string() } else { format!("{least} to {most}") } + " arguments";
            return Err(wrong_number(name, &takes, arguments.len(), span));
        }
        let of = match function.of {
            Type::Unknown => arguments.iter().fold(Type::Unknown, |of, argument| of.or(argument.of)),
            of => of,
        };
        Ok(Typed { node: Node::Call(function, arguments.into_iter().map(|argument| argument.node).collect()), of })
    }
}

const LIKE: How = How { like: true, any_case: false };

impl How {
    fn regex(self, pattern: &str) -> Result<Regex> {
        functions::pattern(pattern, self.like, self.any_case)
    }
}

fn negate(negated: bool, node: Node) -> Node {
    if negated { Node::Not(Box::new(node)) } else { node }
}

fn unnested(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => unnested(inner),
        other => other,
    }
}

fn is_text(data_type: &DataType) -> bool {
    use DataType::{Char, CharVarying, Character, CharacterVarying, String, Text, Varchar};
    matches!(data_type, Char(_) | CharVarying(_) | Character(_) | CharacterVarying(_) | String(_) | Text | Varchar(_))
}

/// A comparison by its operator, and whether it is negated.
fn comparison(op: &BinaryOperator) -> Option<(Comparison, bool)> {
    let regex = |any_case| Comparison::Matches(How { like: false, any_case });
    let like = |any_case| Comparison::Matches(How { like: true, any_case });
    Some(match op {
        BinaryOperator::Eq => (Comparison::Equal, false),
        BinaryOperator::NotEq => (Comparison::NotEqual, false),
        BinaryOperator::Lt => (Comparison::Less, false),
        BinaryOperator::LtEq => (Comparison::LessOrEqual, false),
        BinaryOperator::Gt => (Comparison::Greater, false),
        BinaryOperator::GtEq => (Comparison::GreaterOrEqual, false),
        BinaryOperator::PGRegexMatch => (regex(false), false),
        BinaryOperator::PGRegexIMatch => (regex(true), false),
        BinaryOperator::PGRegexNotMatch => (regex(false), true),
        BinaryOperator::PGRegexNotIMatch => (regex(true), true),
        BinaryOperator::PGLikeMatch => (like(false), false),
        BinaryOperator::PGILikeMatch => (like(true), false),
        BinaryOperator::PGNotLikeMatch => (like(false), true),
        BinaryOperator::PGNotILikeMatch => (like(true), true),
        // `OPERATOR(pg_catalog.~)`
        BinaryOperator::PGCustomBinaryOperator(parts) => match parts.last()?.as_str() {
            "=" => (Comparison::Equal, false),
            "<>" | "!=" => (Comparison::NotEqual, false),
            "~" => (regex(false), false),
            "~*" => (regex(true), false),
            "!~" => (regex(false), true),
            "!~*" => (regex(true), true),
            "~~" => (like(false), false),
            "~~*" => (like(true), false),
            "!~~" => (like(false), true),
            _ => return None,
        },
        _ => return None,
    })
}

fn literal(value: &Literal, span: Span) -> Result<Typed> {
    let (value, of) = match value {
        Literal::Null => (Value::Null, Type::Unknown),
        Literal::Boolean(truth) => (Value::from(*truth), Type::Boolean),
        Literal::Number(digits, _) => match digits.parse::<i64>() {
            Ok(number) => (Value::from(number), Type::Integer),
            Err(_) => return Err(unsupported(&format!("the number {digits} in a query over system tables"), span)),
        },
        other => match other.clone().into_string() {
            Some(text) => (Value::from(text), Type::Text),
            None => return Err(unsupported(&format!("the constant {other}"), span)),
        },
    };
    Ok(Typed { node: Node::Constant(value), of })
}

pub(super) fn unsupported(what: &str, span: Span) -> StreamError {
    StreamError::Unsupported {
        what: what.into(),
        position: position(span.start),
        instead: "write a plain SELECT over system tables".into(),
    }
}

fn wrong_number(name: &str, takes: &str, came: usize, span: Span) -> StreamError {
    let message = format!("function {name} takes {takes}, but got {came}");
    StreamError::Invalid { message, position: position(span.start) }
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> Result<Option<bool>> {
        if let Self::Matches(how) = self {
            let (Some(text), Some(pattern)) = (left.text(), right.text()) else { return Ok(None) };
            return Ok(Some(how.regex(&pattern)?.is_match(&text)));
        }
        let Some(ordering) = left.compared(right)? else { return Ok(None) };
        Ok(Some(match self {
            Self::Equal => ordering == Ordering::Equal,
            Self::NotEqual => ordering != Ordering::Equal,
            Self::Less => ordering == Ordering::Less,
            Self::LessOrEqual => ordering != Ordering::Greater,
            Self::Greater => ordering == Ordering::Greater,
            Self::GreaterOrEqual | Self::Matches(_) => ordering != Ordering::Less,
        }))
    }

    /// Whether it holds for one of many values, or for all; NULL where one that is NULL leaves it open.
    fn holds_for(self, all: bool, value: &Value, others: impl Iterator<Item = Value>) -> Result<Value> {
        let mut open = false;
        for other in others {
            match self.holds(value, &other)? {
                None => open = true,
                Some(holds) if holds != all => return Ok(holds.into()),
                Some(_) => {}
            }
        }
        Ok(if open { Value::Null } else { all.into() })
    }
}

impl Node {
    /// The value over a row.
    pub(super) fn value(&self, frame: &Frame<'_>, world: &World<'_>) -> Result<Value> {
        let of = |node: &Node| node.value(frame, world);
        Ok(match self {
            Self::Constant(value) => value.clone(),
            Self::Column { up, at } => {
                let mut frame = frame;
                for _ in 0..*up {
                    frame = frame.outer.ok_or_else(|| StreamError::Internal("a row is out of sight".into()))?;
                }
                frame.row[*at].clone()
            }
            Self::Call(function, arguments) => {
                let arguments = arguments.iter().map(of).collect::<Result<Vec<_>>>()?;
                functions::bounded(function.call(&arguments, world)?)?
            }
            Self::And(left, right) => match of(left)?.truth()? {
                Some(false) => false.into(),
                left => match (left, of(right)?.truth()?) {
                    (_, Some(false)) => false.into(),
                    (Some(true), Some(true)) => true.into(),
                    _ => Value::Null,
                },
            },
            Self::Or(left, right) => match of(left)?.truth()? {
                Some(true) => true.into(),
                left => match (left, of(right)?.truth()?) {
                    (_, Some(true)) => true.into(),
                    (Some(false), Some(false)) => false.into(),
                    _ => Value::Null,
                },
            },
            Self::Not(inner) => of(inner)?.truth()?.map(|truth| !truth).into(),
            Self::IsNull(inner) => (of(inner)? == Value::Null).into(),
            Self::Is(truth, inner) => (of(inner)?.truth()? == Some(*truth)).into(),
            Self::Compare(comparison, left, right) => comparison.holds(&of(left)?, &of(right)?)?.into(),
            Self::Same(left, right) => {
                let (left, right) = (of(left)?, of(right)?);
                (left == right || left.compared(&right)? == Some(Ordering::Equal)).into()
            }
            Self::Arithmetic(run, left, right) => match (of(left)?.integer()?, of(right)?.integer()?) {
                (Some(left), Some(right)) => {
                    let result = run(left, right);
                    result.ok_or_else(|| StreamError::invalid("a number is out of range, or the divisor is 0; use smaller numbers, or NULLIF(.., 0) as the divisor"))?.into()
                }
                _ => Value::Null,
            },
            Self::Concat(left, right) => match (of(left)?, of(right)?) {
                (Value::Null, Value::Null) => Value::Null,
                (Value::List(mut left), Value::List(right)) => {
                    left.extend(right);
                    functions::bounded(Value::List(left))?
                }
                (Value::List(list), Value::Null) | (Value::Null, Value::List(list)) => Value::List(list),
                (left, right) => match (left.text(), right.text()) {
                    (Some(left), Some(right)) => functions::bounded((left + &right).into())?,
                    _ => Value::Null,
                },
            },
            Self::Match(text, pattern) => {
                let Some(text) = of(text)?.text() else { return Ok(Value::Null) };
                match pattern {
                    Pattern::Known(regex) => regex.is_match(&text).into(),
                    Pattern::Computed(how, pattern) => match of(pattern)?.text() {
                        Some(pattern) => how.regex(&pattern)?.is_match(&text).into(),
                        None => Value::Null,
                    },
                }
            }
            Self::Elements { all, comparison, value, array } => {
                let elements = match array.as_ref() {
                    Self::List(items) => Some(items.iter().map(of).collect::<Result<Vec<_>>>()?),
                    array => of(array)?.elements()?,
                };
                match elements {
                    Some(elements) => comparison.holds_for(*all, &of(value)?, elements.into_iter())?,
                    None => Value::Null,
                }
            }
            Self::Rows { all, comparison, value, query } => {
                let rows = query.rows_within(Some(frame), world)?;
                comparison.holds_for(*all, &of(value)?, rows.into_iter().map(|mut row| row.swap_remove(0)))?
            }
            Self::Exists(query) => (!query.rows_within(Some(frame), world)?.is_empty()).into(),
            Self::Scalar(query) => {
                let mut rows = query.rows_within(Some(frame), world)?;
                if rows.len() > 1 {
                    return Err(StreamError::invalid(
                        "a subquery for one value has more than one row; add a condition",
                    ));
                }
                rows.pop().map_or(Value::Null, |mut row| row.swap_remove(0))
            }
            Self::ArrayOf(query) => {
                let rows = query.rows_within(Some(frame), world)?;
                Value::List(rows.into_iter().map(|mut row| row.swap_remove(0)).collect())
            }
            Self::List(items) => Value::List(items.iter().map(of).collect::<Result<Vec<_>>>()?),
            Self::Element(array, index) => {
                let (elements, index) = (of(array)?.elements()?, of(index)?.integer()?);
                let at = index.and_then(|index| usize::try_from(index - 1).ok());
                at.and_then(|at| elements?.get(at).cloned()).unwrap_or(Value::Null)
            }
            Self::Case { conditions, otherwise } => {
                for (condition, result) in conditions {
                    if of(condition)?.truth()? == Some(true) {
                        return of(result);
                    }
                }
                of(otherwise)?
            }
            Self::Cast(cast, inner) => cast.value(of(inner)?, world)?,
            Self::Aggregate(at) => frame.aggregates.get(*at).cloned().unwrap_or(Value::Null),
        })
    }

    /// How many of the query's columns must be known before the value is: none if that is not easily told.
    pub(super) fn reach(&self) -> Option<usize> {
        match self {
            Self::Constant(_) => Some(0),
            Self::Column { up, at } => Some(if *up == 0 { at + 1 } else { 0 }),
            Self::Not(inner) | Self::IsNull(inner) | Self::Is(_, inner) | Self::Cast(_, inner) => inner.reach(),
            Self::Match(text, Pattern::Known(_)) => text.reach(),
            Self::Call(_, nodes) | Self::List(nodes) => {
                nodes.iter().try_fold(0, |most, node| Some(node.reach()?.max(most)))
            }
            Self::Compare(_, a, b) | Self::And(a, b) | Self::Or(a, b) => Some(a.reach()?.max(b.reach()?)),
            Self::Elements { value, array, .. } => Some(value.reach()?.max(array.reach()?)),
            _ => None,
        }
    }

    /// The conditions that must hold together.
    pub(super) fn conjuncts(self, into: &mut Vec<Node>) {
        match self {
            Self::And(left, right) => {
                left.conjuncts(into);
                right.conjuncts(into);
            }
            other => into.push(other),
        }
    }
}

impl Cast {
    fn value(self, value: Value, world: &World<'_>) -> Result<Value> {
        if value == Value::Null {
            return Ok(Value::Null);
        }
        Ok(match self {
            Self::To(Type::Boolean) => value.truth()?.into(),
            Self::To(Type::Integer) => value.integer()?.into(),
            Self::To(Type::List) => value.elements()?.map_or(Value::Null, Value::List),
            Self::To(Type::Text | Type::Unknown) => value.text().into(),
            Self::Object(object) => match value {
                Value::Integer(oid) => object.name(oid, world).into(),
                named => functions::object(&object, &named, world)?.into(),
            },
        })
    }
}
