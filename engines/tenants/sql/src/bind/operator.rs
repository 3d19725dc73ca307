//! Operators: which types they take, and what they make of them.

use std::borrow::Cow;

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::Value,
};
use sqlparser::ast::{self, BinaryOperator, UnaryOperator, Value as Literal};

use super::{Binder, Typed, array::not_an_array, not, not_if};
use crate::{
    expression::{Comparison, Expr, Operator},
    function::{self, ArrayFunction, DateFunction, Function, PatternFunction, TextFunction},
};

impl Binder<'_, '_> {
    pub(super) fn unary(&mut self, operator: UnaryOperator, operand: &ast::Expr) -> Result<Typed> {
        // -9223372036854775808 is one literal.
        if let (UnaryOperator::Minus, ast::Expr::Value(value)) = (operator, operand)
            && let Literal::Number(digits, _) = &value.value
            && let Ok(value) = format!("-{digits}").parse::<i64>()
        {
            let of = if i32::try_from(value).is_ok() { Type::Int4 } else { Type::Int8 };
            return Ok(Typed::new(Expr::Constant(Value::Int(value)), of));
        }
        match operator {
            UnaryOperator::Not => {
                let value = not(self.condition(operand, "NOT")?);
                self.boolean(value)
            }
            UnaryOperator::Plus | UnaryOperator::Minus => {
                let typed = self.expr(operand)?;
                if typed.of == Type::Unknown {
                    return Err(not_unique(&format!("{operator} unknown")));
                }
                let of = typed.of.unbounded();
                if !of.is_number() && of != Type::Interval {
                    return Err(no_operator(&format!("{operator} {}", self.named(of))));
                }
                let negated = operator == UnaryOperator::Minus;
                let expr = if negated { Expr::Negate(Box::new(typed.expr), of) } else { typed.expr };
                Ok(Typed::new(self.folded(expr)?, of))
            }
            UnaryOperator::BitwiseNot
            | UnaryOperator::PGAbs
            | UnaryOperator::PGSquareRoot
            | UnaryOperator::PGCubeRoot => {
                let arguments = vec![self.expr(operand)?];
                self.operator_call(&operator.to_string(), arguments)
            }
            other => Err(SqlError::unsupported(format_args!("the operator {other}"))),
        }
    }

    /// An operator that is a function.
    pub(super) fn operator_call(&mut self, sign: &str, arguments: Vec<Typed>) -> Result<Typed> {
        let name = match (sign, arguments.len()) {
            ("^", _) => "power",
            ("@", _) => "abs",
            ("|/", _) => "sqrt",
            ("||/", _) => "cbrt",
            (other, _) => other,
        };
        let types: Vec<Type> = arguments.iter().map(|argument| argument.of).collect();
        if function::resolve(name, &types).is_none() {
            let shown: Vec<String> = types.iter().map(|of| self.named(*of)).collect();
            return Err(no_operator(&match shown.as_slice() {
                [a, b] => format!("{a} {sign} {b}"),
                other => format!("{sign} {}", other.concat()),
            }));
        }
        self.call(name, arguments)
    }

    /// `(a, b) OVERLAPS (c, d)`: two times each, or a time and a length.
    fn overlaps(&mut self, left: &ast::Expr, right: &ast::Expr) -> Result<Typed> {
        let (Some(left), Some(right)) = (row_of(left), row_of(right)) else {
            return Err(SqlError::new(state::SYNTAX_ERROR, "expected a pair on both sides of OVERLAPS"));
        };
        for (side, values) in [("left", &left), ("right", &right)] {
            if values.len() != 2 {
                let message = format!("wrong number of parameters on {side} side of OVERLAPS expression");
                return Err(SqlError::new(state::SYNTAX_ERROR, message));
            }
        }
        let mut arguments = Vec::new();
        for values in [&left, &right] {
            let (from, to) = (self.expr(&values[0])?, self.expr(&values[1])?);
            let lasts = to.of == Type::Interval;
            let to = if lasts { self.call_plus(from.clone(), to)? } else { to };
            arguments.extend([from, to]);
        }
        let (arguments, of) = self.common(arguments, "OVERLAPS")?;
        if !matches!(of, Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz) {
            let message = format!("function pg_catalog.overlaps({}, ..) does not exist", self.named(of));
            return Err(SqlError::new(state::UNDEFINED_FUNCTION, message));
        }
        self.boolean(Expr::Call(Function::Date(DateFunction::Overlaps), arguments))
    }

    /// A time and so much more.
    fn call_plus(&mut self, at: Typed, by: Typed) -> Result<Typed> {
        let of = match at.of {
            Type::Date => Type::Timestamp,
            of => of,
        };
        let at = self.implicit(at, of)?;
        let sum = Expr::Arithmetic(Operator::Add, of, Box::new(at), Box::new(by.expr));
        Ok(Typed::new(self.folded(sum)?, of))
    }

    pub(super) fn binary(&mut self, left: &ast::Expr, operator: &BinaryOperator, right: &ast::Expr) -> Result<Typed> {
        use BinaryOperator as B;
        if let Some(comparison) = comparison_of(operator) {
            if let (Some(left), Some(right)) = (row_of(left), row_of(right)) {
                return self.compare_rows(&left, comparison, &right);
            }
            if row_of(left).is_some() && matches!(right, ast::Expr::Subquery(_)) {
                return Err(SqlError::unsupported("a comparison of a row with a query"));
            }
            let (left, right, of) = self.comparable_in(left, right, &operator.to_string())?;
            return self.boolean(Self::comparison(comparison, of, left, right));
        }
        if let Some(typed) = self.json_operator(left, operator, right)? {
            return Ok(typed);
        }
        match operator {
            B::And | B::Or => {
                let place = if *operator == B::And { "AND" } else { "OR" };
                let left = Box::new(self.condition(left, place)?);
                // What is decided already never asks for the right side.
                let decided = *left == Expr::Constant(Value::Bool(*operator == B::Or));
                self.branches += usize::from(decided);
                let right = self.condition(right, place);
                self.branches -= usize::from(decided);
                let right = Box::new(right?);
                self.boolean(if *operator == B::And { Expr::And(left, right) } else { Expr::Or(left, right) })
            }
            B::Plus => self.arithmetic(left, Operator::Add, "+", right),
            B::Minus => self.arithmetic(left, Operator::Subtract, "-", right),
            B::Multiply => self.arithmetic(left, Operator::Multiply, "*", right),
            B::Divide => self.arithmetic(left, Operator::Divide, "/", right),
            B::Modulo => self.arithmetic(left, Operator::Remainder, "%", right),
            B::StringConcat => {
                let (left, right) = (self.expr(left)?, self.expr(right)?);
                if left.of == Type::Bytea && right.of == Type::Bytea {
                    return Ok(Typed::new(Expr::Concat(Box::new(left.expr), Box::new(right.expr)), Type::Bytea));
                }
                if left.of.is_bits() || right.of.is_bits() {
                    return self.concat_bits(left, right);
                }
                let is_typed_text = |of: Type| of != Type::Unknown && of.becomes_text();
                let beside_text = is_typed_text(left.of) || is_typed_text(right.of);
                if !beside_text && (left.of == Type::Jsonb || right.of == Type::Jsonb) {
                    return self.json_arithmetic(left, "||", right);
                }
                if let Some(typed) = self.array_operator(&left, "||", &right)? {
                    return Ok(typed);
                }
                let shown = format!("{} || {}", self.named(left.of), self.named(right.of));
                let is_byte = left.of == Type::Byte || right.of == Type::Byte;
                if is_byte && left.of.becomes_text() && right.of.becomes_text() {
                    return Err(not_unique(&shown));
                }
                if !left.of.becomes_text() && !right.of.becomes_text() {
                    return Err(no_operator(&shown));
                }
                let (left, right) = (self.convert(left, Type::Text, false)?, self.convert(right, Type::Text, false)?);
                Ok(Typed::new(self.folded(Expr::Concat(Box::new(left), Box::new(right)))?, Type::Text))
            }
            B::PGRegexMatch | B::PGRegexIMatch | B::PGRegexNotMatch | B::PGRegexNotIMatch => {
                let (left, right) = (self.expr(left)?, self.expr(right)?);
                if !left.of.becomes_text() || !right.of.becomes_text() {
                    return Err(no_operator(&format!("{} {operator} {}", self.named(left.of), self.named(right.of))));
                }
                let any_case = matches!(operator, B::PGRegexIMatch | B::PGRegexNotIMatch);
                let negated = matches!(operator, B::PGRegexNotMatch | B::PGRegexNotIMatch);
                let arguments = vec![self.convert(left, Type::Text, false)?, self.convert(right, Type::Text, false)?];
                let function = Function::Pattern(PatternFunction::Matches { any_case });
                self.boolean(not_if(negated, Expr::Call(function, arguments)))
            }
            B::BitwiseAnd
            | B::BitwiseOr
            | B::PGBitwiseXor
            | B::PGBitwiseShiftLeft
            | B::PGBitwiseShiftRight
            | B::PGExp => {
                let name = operator.to_string();
                let arguments = vec![self.expr(left)?, self.expr(right)?];
                self.operator_call(&name, arguments)
            }
            B::Overlaps => self.overlaps(left, right),
            B::PGOverlap => {
                let (left, right) = (self.expr(left)?, self.expr(right)?);
                let computed = |of: Type| of.is_network() || of.is_range();
                if computed(left.of) || computed(right.of) {
                    return self.operator_call("&&", vec![left, right]);
                }
                let shown = no_operator(&format!("{} && {}", self.named(left.of), self.named(right.of)));
                self.array_operator(&left, "&&", &right)?.ok_or(shown)
            }
            B::AndLt | B::AndGt => {
                let arguments = vec![self.expr(left)?, self.expr(right)?];
                self.operator_call(&operator.to_string(), arguments)
            }
            B::Custom(sign) if matches!(sign.as_str(), "<<=" | ">>=" | "-|-") => {
                let arguments = vec![self.expr(left)?, self.expr(right)?];
                self.operator_call(sign, arguments)
            }
            other => Err(SqlError::unsupported(format_args!("the operator {other}"))),
        }
    }

    /// Two strings of bits as one.
    fn concat_bits(&mut self, left: Typed, right: Typed) -> Result<Typed> {
        let of = Type::Varbit(None);
        let is_bits = |of: Type| of.is_bits() || of == Type::Unknown;
        if !is_bits(left.of) || !is_bits(right.of) {
            return Err(no_operator(&format!("{} || {}", self.named(left.of), self.named(right.of))));
        }
        let (left, right) = (self.convert(left, of, false)?, self.convert(right, of, false)?);
        Ok(Typed::new(self.folded(Expr::Concat(Box::new(left), Box::new(right)))?, of))
    }

    /// `(a, b) = (c, d)`, which is true if all are equal.
    pub(super) fn compare_rows(
        &mut self,
        left: &[ast::Expr],
        comparison: Comparison,
        right: &[ast::Expr],
    ) -> Result<Typed> {
        if left.len() != right.len() {
            return Err(SqlError::new(state::SYNTAX_ERROR, "unequal number of entries in row expressions"));
        }
        if !matches!(comparison, Comparison::Equal | Comparison::NotEqual) {
            return self.order_rows(left, comparison, right);
        }
        let mut equal = Vec::new();
        for (left, right) in left.iter().zip(right) {
            let (left, right) = self.comparable(left, right, "=")?;
            equal.push(Expr::Compare(Comparison::Equal, Box::new(left), Box::new(right)));
        }
        let all = Expr::all(equal).unwrap_or(Expr::Constant(Value::Bool(true)));
        self.boolean(not_if(comparison == Comparison::NotEqual, all))
    }

    /// `(a, b) < (c, d)`: the first values that differ decide.
    fn order_rows(&mut self, left: &[ast::Expr], comparison: Comparison, right: &[ast::Expr]) -> Result<Typed> {
        let strict = match comparison {
            Comparison::LessOrEqual => Comparison::Less,
            Comparison::GreaterOrEqual => Comparison::Greater,
            strict => strict,
        };
        let mut pairs = Vec::new();
        for (left, right) in left.iter().zip(right) {
            pairs.push(self.comparable(left, right, "<")?);
        }
        let compare =
            |comparison, (a, b): &(Expr, Expr)| Expr::Compare(comparison, Box::new(a.clone()), Box::new(b.clone()));
        let Some(last) = pairs.last() else {
            return Err(SqlError::new(state::SYNTAX_ERROR, "cannot compare rows of zero length"));
        };
        let mut whole = compare(comparison, last);
        for pair in pairs.iter().rev().skip(1) {
            let rest = Expr::And(Box::new(compare(Comparison::Equal, pair)), Box::new(whole));
            whole = Expr::Or(Box::new(compare(strict, pair)), Box::new(rest));
        }
        // What follows for the first values alone, an index can use.
        if let [first, _, ..] = pairs.as_slice() {
            let bound = if strict == Comparison::Less { Comparison::LessOrEqual } else { Comparison::GreaterOrEqual };
            whole = Expr::And(Box::new(compare(bound, first)), Box::new(whole));
        }
        self.boolean(whole)
    }

    /// `(a, b) IN ((c, d), ..)`.
    pub(super) fn in_rows(&mut self, row: &[ast::Expr], list: &[ast::Expr], negated: bool) -> Result<Typed> {
        let mut equal = Vec::with_capacity(list.len());
        for other in list {
            let Some(other) = row_of(other) else {
                return Err(SqlError::unsupported("a list that compares a row with something else"));
            };
            equal.push(self.compare_rows(row, Comparison::Equal, &other)?.expr);
        }
        let any = Expr::any(equal).unwrap_or(Expr::Constant(Value::Bool(false)));
        self.boolean(not_if(negated, any))
    }

    pub(super) fn comparable(&mut self, left: &ast::Expr, right: &ast::Expr, operator: &str) -> Result<(Expr, Expr)> {
        self.comparable_in(left, right, operator).map(|(left, right, _)| (left, right))
    }

    /// Two values in the type that they are compared in.
    pub(super) fn comparable_in(
        &mut self,
        left: &ast::Expr,
        right: &ast::Expr,
        operator: &str,
    ) -> Result<(Expr, Expr, Type)> {
        let (left, right) = (self.expr(left)?, self.expr(right)?);
        let shown = format!("{} {operator} {}", self.named(left.of), self.named(right.of));
        let Some(of) = comparison_type(left.of, right.of).filter(|of| of.is_comparable()) else {
            return Err(no_operator(&shown));
        };
        Ok((self.implicit(left, of)?, self.implicit(right, of)?, of))
    }

    pub(super) fn arithmetic(
        &mut self,
        left: &ast::Expr,
        operator: Operator,
        sign: &str,
        right: &ast::Expr,
    ) -> Result<Typed> {
        use Type::{Date, Float8, Int4, Interval, Time, Timestamp, Timestamptz, Unknown};
        let (left, right) = (self.expr(left)?, self.expr(right)?);
        if left.of == Type::Jsonb {
            return self.json_arithmetic(left, sign, right);
        }
        let computed = |of: Type| of.is_network() || of.is_range();
        if computed(left.of) || computed(right.of) {
            return self.operator_call(sign, vec![left, right]);
        }
        let shown = format!("{} {sign} {}", self.named(left.of), self.named(right.of));
        let sum = matches!(operator, Operator::Add | Operator::Subtract);
        let (left, right) = match (left.of, right.of) {
            (Interval, Date | Time) | (Time, Date) if operator == Operator::Add => (right, left),
            _ => (left, right),
        };
        // What is taken from a time is one, too, unless it says something else.
        let right = match (left.of, right.of) {
            (of @ (Date | Time), Unknown) if operator == Operator::Subtract => {
                Typed::new(self.convert(right, of, false)?, of)
            }
            _ => right,
        };
        let (a, b, of) = match (left.of, right.of) {
            (a, b) if a.is_number() && b.is_number() => {
                let of = if a.number_rank() >= b.number_rank() { a.unbounded() } else { b.unbounded() };
                // PostgreSQL computes with both kinds of floats in the longer.
                let of = if of == Type::Float4 && (a != b) { Float8 } else { of };
                (of, of, of)
            }
            (a, Unknown) if a.is_number() => (a.unbounded(), a.unbounded(), a.unbounded()),
            (Unknown, b) if b.is_number() => (b.unbounded(), b.unbounded(), b.unbounded()),
            (a @ (Timestamp | Timestamptz), Interval) if sum => (a, Interval, a),
            (a @ (Timestamp | Timestamptz), Unknown) if operator == Operator::Add => (a, Interval, a),
            (a @ (Timestamp | Timestamptz), Unknown) if operator == Operator::Subtract => (a, a, Interval),
            (Interval, b @ (Timestamp | Timestamptz)) if operator == Operator::Add => (Interval, b, b),
            (Timestamptz, Timestamp | Timestamptz | Date) | (Timestamp | Date, Timestamptz)
                if operator == Operator::Subtract =>
            {
                (Timestamptz, Timestamptz, Interval)
            }
            (Timestamp | Date, Timestamp) | (Timestamp, Date) if operator == Operator::Subtract => {
                (Timestamp, Timestamp, Interval)
            }
            (Date, Date) if operator == Operator::Subtract => (Date, Date, Int4),
            (Date, b) if sum && b.is_integer() => (Date, Int4, Date),
            (a, Date) if operator == Operator::Add && a.is_integer() => (Int4, Date, Date),
            (Date, Interval) if sum => (Timestamp, Interval, Timestamp),
            (Date, Time) if operator == Operator::Add => (Timestamp, Interval, Timestamp),
            (Time, Interval) if sum => (Time, Interval, Time),
            (Time, Time) if operator == Operator::Subtract => (Interval, Interval, Interval),
            (Interval, Interval | Unknown) | (Unknown, Interval) if sum => (Interval, Interval, Interval),
            (Interval, b) if matches!(operator, Operator::Multiply | Operator::Divide) && b.is_number() => {
                (Interval, Float8, Interval)
            }
            (a, Interval) if operator == Operator::Multiply && a.is_number() => (Float8, Interval, Interval),
            (Unknown, Unknown) => return Err(not_unique(&shown)),
            _ => return Err(no_operator(&shown)),
        };
        if operator == Operator::Remainder && matches!(of, Type::Float4 | Float8) {
            return Err(no_operator(&shown));
        }
        let (a, b) = (self.convert(left, a, false)?, self.convert(right, b, false)?);
        let expr = Expr::Arithmetic(operator, of, Box::new(a), Box::new(b));
        Ok(Typed::new(self.folded(expr)?, of))
    }

    pub(super) fn like(
        &mut self,
        text: &ast::Expr,
        pattern: Pattern<'_>,
        negated: bool,
        any_case: bool,
    ) -> Result<Typed> {
        let (pattern, escape) = match pattern {
            Pattern::One(pattern, escape) => (pattern, escape),
            Pattern::Any(patterns) => return self.like_elements(text, patterns, false, (negated, any_case)),
            Pattern::All(patterns) => return self.like_elements(text, patterns, true, (negated, any_case)),
        };
        let (text, mut pattern) = (self.expr(text)?, self.expr(pattern)?);
        if let Some(escape) = escape {
            let escape = self.literal(&escape.value)?;
            pattern = self.call("like_escape", vec![pattern, escape])?;
        }
        if !text.of.becomes_text() || !pattern.of.becomes_text() {
            let sign = if any_case { "~~*" } else { "~~" };
            return Err(no_operator(&format!("{} {sign} {}", self.named(text.of), self.named(pattern.of))));
        }
        let text = Box::new(self.with_blanks(text)?);
        let pattern = Box::new(self.implicit(pattern, Type::Text)?);
        self.boolean(not_if(negated, Expr::Like { text, pattern, any_case }))
    }

    /// `LIKE ANY (array)`, or `ALL`.
    pub(super) fn like_elements(
        &mut self,
        text: &ast::Expr,
        patterns: &ast::Expr,
        all: bool,
        (negated, any_case): (bool, bool),
    ) -> Result<Typed> {
        let mut array = patterns;
        while let ast::Expr::Nested(inner) = array {
            array = inner;
        }
        if matches!(array, ast::Expr::Subquery(_)) {
            return Err(SqlError::unsupported("LIKE with ANY or ALL of a query's rows"));
        }
        let (text, patterns) = (self.expr(text)?, self.expr(array)?);
        let element = match (patterns.of.element(), patterns.of) {
            (Some(element), _) => element,
            (None, Type::Unknown) => Type::Text,
            _ => return Err(not_an_array()),
        };
        if !text.of.becomes_text() || !element.becomes_text() {
            let sign = ["~~", "!~~", "~~*", "!~~*"][usize::from(any_case) * 2 + usize::from(negated)];
            return Err(no_operator(&format!("{} {sign} {}", self.named(text.of), self.named(element))));
        }
        let texts = Type::Text.array().ok_or_else(|| SqlError::internal("an array of nothing"))?;
        let arguments = vec![self.with_blanks(text)?, self.convert(patterns, texts, false)?];
        self.boolean(Expr::Call(Function::Array(ArrayFunction::Like { all, negated, any_case }), arguments))
    }

    /// A text as patterns meet it: with the blanks of a `character`.
    fn with_blanks(&mut self, text: Typed) -> Result<Expr> {
        let Type::Char(length) = text.of else { return self.implicit(text, Type::Text) };
        let arguments = vec![self.implicit(text, Type::Text)?, Expr::Constant(Value::Int(i64::from(length)))];
        self.folded(Expr::Call(Function::Text(TextFunction::Pad), arguments))
    }
}

/// What a text is to be like.
pub(super) enum Pattern<'a> {
    /// A pattern, with its escape character, if it has one of its own.
    One(&'a ast::Expr, Option<&'a ast::ValueWithSpan>),
    /// One of an array's.
    Any(&'a ast::Expr),
    /// All of an array's.
    All(&'a ast::Expr),
}

impl<'a> Pattern<'a> {
    /// What stands behind `LIKE`. `ALL` and `SOME`, which the parser takes for functions, are no names of such.
    ///
    /// # Errors
    /// 42601 for an escape character of several patterns.
    pub(super) fn of(ast: &'a ast::Expr, any: bool, escape: Option<&'a ast::ValueWithSpan>) -> Result<Self> {
        let patterns = if any { Some(Self::Any(ast)) } else { Self::of_call(ast) };
        match (patterns, escape) {
            (None, _) => Ok(Self::One(ast, escape)),
            (Some(patterns), None) => Ok(patterns),
            (Some(_), Some(_)) => {
                let message = "expected no ESCAPE behind LIKE ANY or ALL; write the patterns with backslashes";
                Err(SqlError::new(state::SYNTAX_ERROR, message))
            }
        }
    }

    fn of_call(ast: &'a ast::Expr) -> Option<Self> {
        let ast::Expr::Function(function) = ast else { return None };
        let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
        let ast::FunctionArguments::List(list) = &function.args else { return None };
        let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(array))] = list.args.as_slice() else { return None };
        match name.value.to_ascii_lowercase().as_str() {
            _ if name.quote_style.is_some() => None,
            "all" => Some(Self::All(array)),
            "some" => Some(Self::Any(array)),
            _ => None,
        }
    }
}

/// The values of `(a, b)` or `ROW(a, b)`.
pub(super) fn row_of(ast: &ast::Expr) -> Option<Cow<'_, [ast::Expr]>> {
    match ast {
        ast::Expr::Tuple(values) => Some(Cow::Borrowed(values)),
        ast::Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("row") => {
            let ast::FunctionArguments::List(list) = &function.args else { return None };
            let value = |argument: &ast::FunctionArg| match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(value)) => Some(value.clone()),
                _ => None,
            };
            list.args.iter().map(value).collect::<Option<Vec<_>>>().map(Cow::Owned)
        }
        _ => None,
    }
}

/// The comparison that an operator is.
pub(super) fn comparison_of(operator: &BinaryOperator) -> Option<Comparison> {
    Some(match operator {
        BinaryOperator::Eq => Comparison::Equal,
        BinaryOperator::NotEq => Comparison::NotEqual,
        BinaryOperator::Lt => Comparison::Less,
        BinaryOperator::LtEq => Comparison::LessOrEqual,
        BinaryOperator::Gt => Comparison::Greater,
        BinaryOperator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

/// The type in which values of two types are compared.
pub(crate) fn comparison_type(a: Type, b: Type) -> Option<Type> {
    if (a == Type::Byte && b.is_text()) || (b == Type::Byte && a.is_text()) {
        return Some(Type::Text);
    }
    // Rows of several types are rows.
    if a != b && a.is_row() && b.is_row() {
        return Some(Type::Record);
    }
    let of = common_type(a, b)?;
    // Networks are compared as what both kinds become.
    if of == Type::Cidr {
        return Some(Type::Inet);
    }
    // A `real` is compared with another number as what both become.
    Some(if of == Type::Float4 && a.is_number() && b.is_number() && a != b { Type::Float8 } else { of })
}

/// The type that values of two types have in one column, if there is one.
pub(crate) fn common_type(a: Type, b: Type) -> Option<Type> {
    use Type::{Date, Timestamp, Timestamptz};
    Some(match (a, b) {
        (a, b) if a == b => a,
        // Blanks at the end do not count, and nothing is too long.
        (Type::Unknown | Type::Char(_), Type::Char(_)) | (Type::Char(_), Type::Unknown) => Type::ANY_CHAR,
        (Type::Unknown, of) | (of, Type::Unknown) => of.unbounded(),
        (a, b) if a.unbounded() == b.unbounded() => a.unbounded(),
        (a, b) if a.is_number() && b.is_number() => {
            if a.number_rank() >= b.number_rank() {
                a.unbounded()
            } else {
                b.unbounded()
            }
        }
        (a, b) if a.is_text() && b.is_text() => Type::Text,
        (a, b) if a.is_network() && b.is_network() => Type::Inet,
        (a, b) if a.is_bits() && b.is_bits() => Type::Varbit(None),
        (Date, Timestamp) | (Timestamp, Date) => Timestamp,
        (Date | Timestamp, Timestamptz) | (Timestamptz, Date | Timestamp) => Timestamptz,
        _ => return None,
    })
}

fn not_unique(shown: &str) -> SqlError {
    SqlError::new(state::AMBIGUOUS_FUNCTION, format!("operator is not unique: {shown}"))
        .hint("Could not choose a best candidate operator. You might need to add explicit type casts.")
}

pub(super) fn no_operator(shown: &str) -> SqlError {
    SqlError::new(state::UNDEFINED_FUNCTION, format!("operator does not exist: {shown}"))
        .hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
}
