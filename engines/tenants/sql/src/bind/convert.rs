//! Expressions in other types, and the values of those that are known before a statement runs.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::{
        Context, Value, bits,
        cast::{self, Ease},
        text,
    },
};

use super::{
    Binder, Typed,
    operator::{common_type, comparison_type, no_operator},
};
use crate::expression::{Env, Expr, Facts, Operator};

/// Bytes of a value that a plan keeps instead of what it is computed from, unless that is as large itself. Plans are kept.
const FOLDED_BYTES_MAX: usize = 1 << 10;

/// Layers of an expression that are made at once.
const MADE_AT_ONCE: usize = 3;

impl Binder<'_, '_> {
    /// A typed expression as a value of a column.
    pub fn assign(&mut self, typed: Typed, of: Type, column: &str) -> Result<Expr> {
        if cast::ease(typed.of, of).is_none_or(|ease| ease > Ease::Assignment) {
            let message = format!(
                "column \"{column}\" is of type {} but expression is of type {}",
                self.named(of),
                self.named(typed.of)
            );
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message)
                .hint("You will need to rewrite or cast the expression."));
        }
        self.convert(typed, of, false)
    }

    pub(super) fn cast(&mut self, typed: Typed, of: Type) -> Result<Typed> {
        if cast::ease(typed.of, of).is_none() {
            let message = format!("cannot cast type {} to {}", self.named(typed.of), self.named(of));
            return Err(SqlError::new(state::CANNOT_COERCE, message));
        }
        Ok(Typed::new(self.convert(typed, of, true)?, of.exact()))
    }

    /// Computes what is made of constants alone, as PostgreSQL does before a statement runs. What is below was folded when it was made, but
    /// for a few layers that are made at once.
    pub(super) fn folded(&mut self, expr: Expr) -> Result<Expr> {
        self.folded_to(MADE_AT_ONCE, expr)
    }

    fn folded_to(&mut self, layers: usize, mut expr: Expr) -> Result<Expr> {
        match &mut expr {
            Expr::Constant(_) | Expr::Column(_) | Expr::Parameter(_) => return Ok(expr),
            // What is decided already never asks for the right side.
            Expr::And(a, _) if **a == Expr::Constant(Value::Bool(false)) => return Ok((**a).clone()),
            Expr::Or(a, _) if **a == Expr::Constant(Value::Bool(true)) => return Ok((**a).clone()),
            Expr::Case(..) | Expr::Coalesce(_) => return Ok(expr),
            other if layers > 0 => other.children_mut(&mut |child| {
                let whole = std::mem::replace(child, Expr::NULL);
                *child = self.folded_to(layers - 1, whole)?;
                Ok(())
            })?,
            _ => {}
        }
        if is_null(&expr) {
            return Ok(Expr::NULL);
        }
        if !is_constant(&expr) {
            return Ok(expr);
        }
        match expr.value(Env::nothing(&Facts::default())) {
            Ok(value) if value.bytes() <= FOLDED_BYTES_MAX.max(2 * constant_bytes(&expr)) => {
                Ok(Expr::Constant(value.into_owned()))
            }
            Ok(_) => Ok(expr),
            Err(error) => {
                self.fails(error);
                Ok(expr)
            }
        }
    }

    /// Notes what the statement fails with, unless that is in a branch that may not be taken.
    pub(super) fn fails(&mut self, error: SqlError) {
        if self.branches == 0 {
            self.planner.parameters.failure.get_or_insert(error);
        }
    }

    /// An expression of branches: the statement fails if one of them does.
    pub(super) fn branched(&mut self, expr: Expr) -> Expr {
        if let Err(error) = raise(&expr) {
            self.fails(error);
        }
        expr
    }

    /// A truth value.
    pub(super) fn boolean(&mut self, expr: Expr) -> Result<Typed> {
        Ok(Typed::new(self.folded(expr)?, Type::Bool))
    }

    /// The value of a literal. What is kept as it is written is read by everybody alike, so that it must mean the same to whoever writes it.
    fn literal(&self, content: &str, of: Type) -> Result<Value> {
        let context = self.planner.context();
        let value = text::parse(content, of, Context { style: self.style, ..context });
        if !self.planner.is_definition() || self.style == context.style {
            return value;
        }
        let meant = text::parse(content, of, context)?;
        if value.as_ref() == Ok(&meant) {
            return value;
        }
        let message = format!(
            "\"{content}\", which is another {} than without DateStyle or IntervalStyle, in a definition",
            self.named(of)
        );
        Err(SqlError::unsupported(message)
            .hint("Write it as with DateStyle \"ISO, MDY\" and IntervalStyle \"postgres\"."))
    }

    /// An expression in another type, if it becomes that by itself.
    pub(crate) fn implicit(&mut self, typed: Typed, of: Type) -> Result<Expr> {
        match cast::ease(typed.of, of) {
            Some(Ease::Implicit) => self.convert(typed, of.unbounded(), false),
            _ => {
                let message = format!("expected type {}, came {}", self.named(of), self.named(typed.of));
                Err(SqlError::new(state::DATATYPE_MISMATCH, message))
            }
        }
    }

    /// An expression in another type. Literals are read now, parameters learn their type, everything else is cast.
    pub(super) fn convert(&mut self, typed: Typed, of: Type, explicit: bool) -> Result<Expr> {
        let Typed { expr, of: from } = typed;
        if let (Type::Unknown, Expr::Parameter(at)) = (from, &expr) {
            // Lengths are checked where the value is stored.
            let known = &mut self.planner.parameters.types[*at];
            let bare = if matches!(of, Type::Char(_)) { Type::Text } else { of.unbounded() };
            match *known {
                Type::Unknown => *known = bare,
                other => return self.convert(Typed::new(expr, other), of, explicit),
            }
            return Ok(if bare == of { expr } else { wrapped(expr, bare, of, explicit) });
        }
        if let (Type::Unknown, Expr::Constant(value)) = (from, &expr) {
            if let Value::Text(content) = value
                && let Some(moment) = self.moment(content, of)?
            {
                return Ok(moment);
            }
            return Ok(Expr::Constant(match (value, of) {
                (Value::Text(content), Type::Char(_) | Type::Varchar(_)) => {
                    cast::fit(Value::Text(content.clone()), of, explicit)?
                }
                (Value::Text(content), Type::Bit(_) | Type::Varbit(_)) => {
                    cast::fit(Value::Text(bits::parse(content)?), of, explicit)?
                }
                (Value::Text(content), Type::Array(_)) if explicit && is_cut(of) => {
                    let (whole, context) = (of.unbounded(), self.planner.context());
                    cast::cast(self.literal(content, whole)?, whole, of, true, context)?
                }
                (Value::Text(content), of) => self.literal(content, of)?,
                (value, _) => value.clone(),
            }));
        }
        if let (Type::Record, Type::Composite(id)) = (from, of) {
            return self.row_as(expr, id, explicit);
        }
        // Shorter integers are longer ones; texts of any kind are texts unless a length is to be kept to.
        let same = from == of
            || (from.is_integer() && of.is_integer() && from.number_rank() <= of.number_rank() && of != Type::Oid)
            || (from.is_text() && of.is_text() && matches!(of, Type::Text | Type::Varchar(None)))
            || (from == Type::Float4 && of == Type::Float8)
            || (from == Type::Cidr && of == Type::Inet)
            || matches!((from, of), (Type::Char(a), Type::Char(b)) if a <= b)
            || (from.unbounded() == of && matches!(of, Type::Numeric(None)));
        if same {
            return Ok(expr);
        }
        self.folded(wrapped(expr, from, of, explicit))
    }

    /// What a literal of a date or time means by the clock: `now`, `today` and the days around it. It is no constant.
    pub(super) fn moment(&mut self, content: &str, of: Type) -> Result<Option<Expr>> {
        if !matches!(of.exact(), Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz) {
            return Ok(None);
        }
        let days = match content.trim().to_ascii_lowercase().as_str() {
            "now" => {
                let now = self.call("now", Vec::new())?;
                return self.convert(now, of, true).map(Some);
            }
            "today" => 0,
            "tomorrow" => 1,
            "yesterday" => -1,
            _ => return Ok(None),
        };
        if of.exact() == Type::Time {
            return Ok(None);
        }
        let today = self.call("current_date", Vec::new())?.expr;
        let days = Expr::Constant(Value::Int(days));
        let day = Expr::Arithmetic(Operator::Add, Type::Date, Box::new(today), Box::new(days));
        self.convert(Typed::new(day, Type::Date), of, true).map(Some)
    }

    /// Expressions in the one type that all of them become.
    pub(crate) fn common(&mut self, all: Vec<Typed>, place: &str) -> Result<(Vec<Expr>, Type)> {
        let mut of = all.first().map_or(Type::Unknown, |first| first.of);
        // As in PostgreSQL, more than one value is made an array of one type first.
        let is_compared = matches!((place, all.len()), ("IN" | "NULLIF", 2));
        for typed in all.iter().skip(1) {
            // Of several kinds of text the first stays.
            if place != "IN" && of.is_text() && typed.of.is_text() && of != typed.of {
                of = if matches!(of, Type::Char(_)) { Type::ANY_CHAR } else { of.unbounded() };
                continue;
            }
            let both = if is_compared { comparison_type(of, typed.of) } else { common_type(of, typed.of) };
            let both = both.or_else(|| comparison_type(of, typed.of).filter(|_| place == "IN"));
            of = both.ok_or_else(|| {
                if place == "IN" {
                    return no_operator(&format!("{} = {}", self.named(of), self.named(typed.of)));
                }
                let message =
                    format!("{place} types {} and {} cannot be matched", self.named(of), self.named(typed.of));
                SqlError::new(state::DATATYPE_MISMATCH, message)
            })?;
        }
        let of = if of == Type::Unknown { Type::Text } else { of };
        let all = all.into_iter().map(|typed| self.implicit(typed, of)).collect::<Result<_>>()?;
        Ok((all, of))
    }
}

pub(super) fn wrapped(expr: Expr, from: Type, to: Type, explicit: bool) -> Expr {
    Expr::Cast { value: Box::new(expr), from, to, explicit }
}

/// Whether an expression is made of constants alone, directly.
fn is_constant(expr: &Expr) -> bool {
    let mut constant = match expr {
        Expr::Column(_) | Expr::Parameter(_) | Expr::Aggregate(_) | Expr::Window(_) | Expr::Set(_) => false,
        Expr::Subquery(_) => false,
        Expr::Call(function, _) => function.is_immutable(),
        other => !other.asks_session(),
    };
    expr.children(&mut |child| constant &= matches!(child, Expr::Constant(_)));
    constant
}

/// Bytes of the constants that an expression is made of directly.
fn constant_bytes(expr: &Expr) -> usize {
    let mut bytes = 0;
    expr.children(&mut |child| bytes += if let Expr::Constant(value) = child { value.bytes() } else { 0 });
    bytes
}

/// Whether an expression is NULL because a part of it is.
fn is_null(expr: &Expr) -> bool {
    let strict = match expr {
        Expr::Negate(..)
        | Expr::Compare(..)
        | Expr::Arithmetic(..)
        | Expr::Concat(..)
        | Expr::Like { .. }
        | Expr::Cast { .. } => true,
        Expr::Call(function, _) => function.is_strict(),
        _ => false,
    };
    let mut null = false;
    expr.children(&mut |child| null |= *child == Expr::NULL);
    strict && null
}

/// Raises what a branch that may be taken fails with anyway.
fn raise(expr: &Expr) -> Result<()> {
    if matches!(expr, Expr::Constant(_) | Expr::Column(_) | Expr::Parameter(_)) {
        return Ok(());
    }
    let mut failed = Ok(());
    expr.children(&mut |child| {
        if failed.is_ok() {
            failed = raise(child);
        }
    });
    failed?;
    if is_constant(expr) {
        expr.value(Env::nothing(&Facts::default()))?;
    }
    Ok(())
}

/// Whether the elements of an array lose what is too much for them.
fn is_cut(of: Type) -> bool {
    matches!(of.element(), Some(Type::Bit(Some(_)) | Type::Varbit(Some(_)) | Type::Varchar(Some(_))))
}
