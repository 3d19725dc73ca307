//! From a tree of names to expressions: columns are found, types are chosen as PostgreSQL chooses them, parameters learn theirs
//! from where they stand.

use sqlparser::ast::{
    self, BinaryOperator, CastKind, DateTimeField, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName,
    ObjectNamePart, TrimWhereField, UnaryOperator, Value as Literal,
};

use crate::{
    error::{Result, SqlError, state},
    sql::{
        aggregate::{self, Aggregate},
        expression::{Comparison, Env, Expr, Facts, Operator},
        function::{self, Function},
    },
    types::Type,
    value::{
        Value,
        cast::{self, Ease},
        text,
    },
};

/// An expression and its type.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub(crate) expr: Expr,
    pub(crate) of: Type,
}

impl Typed {
    pub(crate) fn new(expr: Expr, of: Type) -> Self {
        Self { expr, of }
    }
}

/// The types of a statement's parameters, as far as they are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters {
    pub(crate) types: Vec<Type>,
    /// What the statement fails with whenever it runs. Mistakes in names and types come first.
    pub(crate) failure: Option<SqlError>,
}

impl Parameters {
    /// What remains open is text.
    pub(crate) fn settled(self) -> Vec<Type> {
        self.types.into_iter().map(|of| if of == Type::Unknown { Type::Text } else { of }).collect()
    }
}

/// A column that expressions may name.
#[derive(Clone, Debug)]
pub(crate) struct Visible {
    /// The table's alias.
    pub(crate) table: String,
    pub(crate) name: String,
    pub(crate) of: Type,
    /// Whether `*` leaves it out: dropped columns keep their place, and USING shows one of two.
    pub(crate) hidden: bool,
}

/// The columns that expressions may name, in the order of the row that they are computed over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    pub(crate) columns: Vec<Visible>,
}

impl Scope {
    fn find(&self, table: Option<&str>, name: &str) -> Result<usize> {
        let mut found =
            self.columns.iter().enumerate().filter(|(_, column)| {
                column.name == name && table.map_or(!column.hidden, |table| column.table == table)
            });
        let shown = || table.map_or_else(|| format!("\"{name}\""), |table| format!("{table}.{name}"));
        match (found.next(), found.next()) {
            (Some((at, _)), None) => Ok(at),
            (Some(_), Some(_)) => {
                Err(SqlError::new(state::AMBIGUOUS_COLUMN, format!("column reference {} is ambiguous", shown())))
            }
            (None, _) => {
                if let Some(table) = table
                    && !self.columns.iter().any(|column| column.table == table)
                {
                    let message = format!("missing FROM-clause entry for table \"{table}\"");
                    return Err(SqlError::new(state::UNDEFINED_TABLE, message));
                }
                Err(SqlError::new(state::UNDEFINED_COLUMN, format!("column {} does not exist", shown())))
            }
        }
    }
}

/// A name as SQL takes it: in lower case unless it is quoted.
pub(crate) fn name_of(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// The name of a table, index or function. The one schema is `public`; what is built in is in `pg_catalog`.
pub(crate) fn object_name(name: &ObjectName) -> Result<String> {
    let parts: Vec<&Ident> = name
        .0
        .iter()
        .map(|part| match part {
            ObjectNamePart::Identifier(ident) => Ok(ident),
            ObjectNamePart::Function(_) => Err(SqlError::unsupported(format_args!("the name {name}"))),
        })
        .collect::<Result<_>>()?;
    match parts.as_slice() {
        [one] => Ok(name_of(one)),
        [schema, one] if matches!(name_of(schema).as_str(), "public" | "pg_catalog") => Ok(name_of(one)),
        [schema, _] => {
            Err(SqlError::new(state::INVALID_SCHEMA_NAME, format!("schema \"{}\" does not exist", name_of(schema))))
        }
        _ => Err(SqlError::unsupported(format_args!("the name {name}"))),
    }
}

/// Resolves the expressions of one scope.
pub(crate) struct Binder<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) parameters: &'a mut Parameters,
    /// The aggregates that were met; `None` where there may be none, with the place's name.
    pub(crate) aggregates: std::result::Result<&'a mut Vec<Aggregate>, &'static str>,
    /// How many branches deep it is, of which not all will be taken. What fails in one fails when it is taken.
    pub(crate) branches: usize,
}

impl<'a> Binder<'a> {
    /// For a place where aggregates are refused.
    pub(crate) fn plain(scope: &'a Scope, parameters: &'a mut Parameters, place: &'static str) -> Self {
        Self { scope, parameters, aggregates: Err(place), branches: 0 }
    }

    /// A condition.
    pub(crate) fn condition(&mut self, ast: &ast::Expr, place: &str) -> Result<Expr> {
        let typed = self.expr(ast)?;
        if typed.of != Type::Bool && typed.of != Type::Unknown {
            let message = format!("argument of {place} must be type boolean, not type {}", typed.of.base_name());
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
        }
        self.implicit(typed, Type::Bool)
    }

    /// An expression whose type is settled: what is still open is text.
    pub(crate) fn settled(&mut self, ast: &ast::Expr) -> Result<Typed> {
        let typed = self.expr(ast)?;
        if typed.of != Type::Unknown {
            return Ok(typed);
        }
        Ok(Typed::new(self.implicit(typed, Type::Text)?, Type::Text))
    }

    /// An expression as a value of a column.
    pub(crate) fn assigned(&mut self, ast: &ast::Expr, of: Type, column: &str) -> Result<Expr> {
        let typed = self.expr(ast)?;
        self.assign(typed, of, column)
    }

    /// A typed expression as a value of a column.
    pub(crate) fn assign(&mut self, typed: Typed, of: Type, column: &str) -> Result<Expr> {
        if cast::ease(typed.of, of).is_none_or(|ease| ease > Ease::Assignment) {
            let message = format!(
                "column \"{column}\" is of type {} but expression is of type {}",
                of.base_name(),
                typed.of.base_name()
            );
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message)
                .hint("You will need to rewrite or cast the expression."));
        }
        self.convert(typed, of, false)
    }

    /// An expression.
    pub(crate) fn expr(&mut self, ast: &ast::Expr) -> Result<Typed> {
        match ast {
            ast::Expr::Identifier(ident) => self.column(None, ident),
            ast::Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [table, column] => self.column(Some(name_of(table)), column),
                [schema, table, column] if name_of(schema) == "public" => self.column(Some(name_of(table)), column),
                _ => Err(SqlError::unsupported(format_args!("the name {ast}"))),
            },
            ast::Expr::Nested(inner) => self.expr(inner),
            ast::Expr::Value(value) => self.literal(&value.value),
            ast::Expr::TypedString(typed) => {
                let Some(content) = typed.value.value.clone().into_string() else {
                    return Err(SqlError::unsupported(format_args!("the literal {ast}")));
                };
                let of = Type::of_ast(&typed.data_type)?;
                Ok(Typed::new(Expr::Constant(text::parse(&content, of)?), of))
            }
            ast::Expr::Interval(interval) => self.interval(interval),
            ast::Expr::UnaryOp { op, expr } => self.unary(*op, expr),
            ast::Expr::BinaryOp { left, op, right } => self.binary(left, op, right),
            ast::Expr::IsNull(inner) => {
                let value = Expr::IsNull(Box::new(self.expr(inner)?.expr));
                self.boolean(value)
            }
            ast::Expr::IsNotNull(inner) => {
                let value = not(Expr::IsNull(Box::new(self.expr(inner)?.expr)));
                self.boolean(value)
            }
            ast::Expr::IsTrue(inner) => {
                let value = Expr::Is(Box::new(self.condition(inner, "IS TRUE")?), true);
                self.boolean(value)
            }
            ast::Expr::IsNotTrue(inner) => {
                let value = not(Expr::Is(Box::new(self.condition(inner, "IS TRUE")?), true));
                self.boolean(value)
            }
            ast::Expr::IsFalse(inner) => {
                let value = Expr::Is(Box::new(self.condition(inner, "IS FALSE")?), false);
                self.boolean(value)
            }
            ast::Expr::IsNotFalse(inner) => {
                let value = not(Expr::Is(Box::new(self.condition(inner, "IS FALSE")?), false));
                self.boolean(value)
            }
            ast::Expr::IsUnknown(inner) => {
                let value = Expr::IsNull(Box::new(self.condition(inner, "IS UNKNOWN")?));
                self.boolean(value)
            }
            ast::Expr::IsNotUnknown(inner) => {
                let value = not(Expr::IsNull(Box::new(self.condition(inner, "IS UNKNOWN")?)));
                self.boolean(value)
            }
            ast::Expr::IsDistinctFrom(a, b) => {
                let (a, b) = self.comparable(a, b, "IS DISTINCT FROM")?;
                self.boolean(Expr::IsDistinct(Box::new(a), Box::new(b)))
            }
            ast::Expr::IsNotDistinctFrom(a, b) => {
                let (a, b) = self.comparable(a, b, "IS DISTINCT FROM")?;
                self.boolean(not(Expr::IsDistinct(Box::new(a), Box::new(b))))
            }
            ast::Expr::InList { expr, list, negated } => {
                let value = self.expr(expr)?;
                let list = list.iter().map(|other| self.expr(other)).collect::<Result<Vec<_>>>()?;
                let mut all = vec![value];
                all.extend(list);
                let (mut all, _) = self.common(all, "IN")?;
                let value = all.remove(0);
                self.boolean(not_if(*negated, Expr::In(Box::new(value), all)))
            }
            ast::Expr::Between { expr, negated, low, high } => {
                let (a, low) = self.comparable(expr, low, ">=")?;
                let (b, high) = self.comparable(expr, high, "<=")?;
                let from = Expr::Compare(Comparison::GreaterOrEqual, Box::new(a), Box::new(low));
                let to = Expr::Compare(Comparison::LessOrEqual, Box::new(b), Box::new(high));
                self.boolean(not_if(*negated, Expr::And(Box::new(from), Box::new(to))))
            }
            ast::Expr::Like { negated, any: false, expr, pattern, escape_char: None } => {
                self.like(expr, pattern, *negated, false)
            }
            ast::Expr::ILike { negated, any: false, expr, pattern, escape_char: None } => {
                self.like(expr, pattern, *negated, true)
            }
            ast::Expr::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            ast::Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr,
                data_type,
                array: false,
                format: None,
            } => {
                let of = Type::of_ast(data_type)?;
                let typed = self.expr(expr)?;
                self.cast(typed, of)
            }
            ast::Expr::Extract { field, expr, .. } => {
                let typed = self.expr(expr)?;
                let field = Typed::new(Expr::Constant(Value::Text(field_name(field))), Type::Text);
                self.call("extract", vec![field, typed])
            }
            ast::Expr::Ceil { expr, field: ast::CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
                let typed = self.expr(expr)?;
                self.call("ceil", vec![typed])
            }
            ast::Expr::Floor { expr, field: ast::CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
                let typed = self.expr(expr)?;
                self.call("floor", vec![typed])
            }
            ast::Expr::Position { expr, r#in } => {
                let (part, whole) = (self.expr(expr)?, self.expr(r#in)?);
                self.call("position", vec![whole, part])
            }
            ast::Expr::Substring { expr, substring_from, substring_for, .. } => {
                let mut arguments = vec![self.expr(expr)?];
                arguments.push(match substring_from {
                    Some(from) => self.expr(from)?,
                    None => Typed::new(Expr::Constant(Value::Int(1)), Type::Int4),
                });
                if let Some(length) = substring_for {
                    arguments.push(self.expr(length)?);
                }
                self.call("substring", arguments)
            }
            ast::Expr::Trim { trim_where, trim_what, expr, trim_characters } => {
                let name = match trim_where {
                    None | Some(TrimWhereField::Both) => "btrim",
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                };
                let mut arguments = vec![self.expr(expr)?];
                let characters = trim_characters.iter().flatten();
                for what in trim_what.iter().map(|what| &**what).chain(characters) {
                    arguments.push(self.expr(what)?);
                }
                self.call(name, arguments)
            }
            ast::Expr::Function(function) => self.function(function),
            ast::Expr::Subquery(_) | ast::Expr::InSubquery { .. } | ast::Expr::Exists { .. } => {
                Err(SqlError::unsupported("a subquery in an expression"))
            }
            other => Err(SqlError::unsupported(format_args!("the expression {other}"))),
        }
    }

    fn column(&mut self, table: Option<String>, column: &Ident) -> Result<Typed> {
        let name = name_of(column);
        match self.scope.find(table.as_deref(), &name) {
            Ok(at) => Ok(Typed::new(Expr::Column(at), self.scope.columns[at].of)),
            // Functions without brackets.
            Err(error) => match (table, name.as_str()) {
                (None, "current_user" | "session_user" | "user" | "current_date" | "current_schema") => {
                    self.call(&name, Vec::new())
                }
                (None, "current_timestamp" | "localtimestamp") => self.call(&name, Vec::new()),
                _ => Err(error),
            },
        }
    }

    fn literal(&mut self, literal: &Literal) -> Result<Typed> {
        Ok(match literal {
            Literal::Null => Typed::new(Expr::NULL, Type::Unknown),
            Literal::Boolean(value) => Typed::new(Expr::Constant(Value::Bool(*value)), Type::Bool),
            Literal::Number(digits, _) => match digits.parse::<i64>() {
                Ok(value) => {
                    let of = if i32::try_from(value).is_ok() { Type::Int4 } else { Type::Int8 };
                    Typed::new(Expr::Constant(Value::Int(value)), of)
                }
                Err(_) => {
                    let of = Type::Numeric(None);
                    Typed::new(Expr::Constant(text::parse(digits, of)?), of)
                }
            },
            Literal::Placeholder(name) => {
                let number = name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
                let Some(at) = number.filter(|number| (1..=65_535).contains(number)).map(|number| number - 1) else {
                    return Err(SqlError::new(state::UNDEFINED_PARAMETER, format!("there is no parameter {name}")));
                };
                if self.parameters.types.len() <= at {
                    self.parameters.types.resize(at + 1, Type::Unknown);
                }
                Typed::new(Expr::Parameter(at), self.parameters.types[at])
            }
            Literal::SingleQuotedString(content)
            | Literal::EscapedStringLiteral(content)
            | Literal::UnicodeStringLiteral(content) => unknown(content),
            Literal::DollarQuotedString(content) => unknown(&content.value),
            other => return Err(SqlError::unsupported(format_args!("the literal {other}"))),
        })
    }

    fn interval(&mut self, interval: &ast::Interval) -> Result<Typed> {
        let content = match &*interval.value {
            ast::Expr::Value(value) => value.value.clone().into_string(),
            _ => None,
        };
        let Some(content) = content.filter(|_| interval.last_field.is_none()) else {
            return Err(SqlError::unsupported(format_args!("the literal {interval}")));
        };
        let text = match &interval.leading_field {
            Some(field) => format!("{content} {field}"),
            None => content,
        };
        Ok(Typed::new(Expr::Constant(text::parse(&text, Type::Interval)?), Type::Interval))
    }

    fn unary(&mut self, operator: UnaryOperator, operand: &ast::Expr) -> Result<Typed> {
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
                    let message = format!("operator is not unique: {operator} unknown");
                    return Err(SqlError::new(state::AMBIGUOUS_FUNCTION, message).hint(
                        "Could not choose a best candidate operator. You might need to add explicit type casts.",
                    ));
                }
                let of = typed.of.unbounded();
                if !of.is_number() && of != Type::Interval {
                    return Err(no_operator(&format!("{operator} {}", of.base_name())));
                }
                let negated = operator == UnaryOperator::Minus;
                let expr = if negated { Expr::Negate(Box::new(typed.expr), of) } else { typed.expr };
                Ok(Typed::new(self.folded(expr)?, of))
            }
            other => Err(SqlError::unsupported(format_args!("the operator {other}"))),
        }
    }

    fn binary(&mut self, left: &ast::Expr, operator: &BinaryOperator, right: &ast::Expr) -> Result<Typed> {
        use BinaryOperator as B;
        let comparison = match operator {
            B::Eq => Some(Comparison::Equal),
            B::NotEq => Some(Comparison::NotEqual),
            B::Lt => Some(Comparison::Less),
            B::LtEq => Some(Comparison::LessOrEqual),
            B::Gt => Some(Comparison::Greater),
            B::GtEq => Some(Comparison::GreaterOrEqual),
            _ => None,
        };
        if let Some(comparison) = comparison {
            if let (ast::Expr::Tuple(left), ast::Expr::Tuple(right)) = (left, right) {
                return self.compare_rows(left, comparison, right);
            }
            let (left, right) = self.comparable(left, right, &operator.to_string())?;
            return self.boolean(Expr::Compare(comparison, Box::new(left), Box::new(right)));
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
                let texty = |of: Type| of.is_text() || of == Type::Unknown;
                if !texty(left.of) && !texty(right.of) {
                    let shown = format!("{} || {}", left.of.base_name(), right.of.base_name());
                    return Err(no_operator(&shown));
                }
                let (left, right) = (self.convert(left, Type::Text, false)?, self.convert(right, Type::Text, false)?);
                Ok(Typed::new(self.folded(Expr::Concat(Box::new(left), Box::new(right)))?, Type::Text))
            }
            other => Err(SqlError::unsupported(format_args!("the operator {other}"))),
        }
    }

    /// `(a, b) = (c, d)`, which is true if all are equal.
    fn compare_rows(&mut self, left: &[ast::Expr], comparison: Comparison, right: &[ast::Expr]) -> Result<Typed> {
        if left.len() != right.len() {
            return Err(SqlError::new(state::SYNTAX_ERROR, "unequal number of entries in row expressions"));
        }
        if !matches!(comparison, Comparison::Equal | Comparison::NotEqual) {
            return Err(SqlError::unsupported("a comparison of rows by order"));
        }
        let mut equal = Vec::new();
        for (left, right) in left.iter().zip(right) {
            let (left, right) = self.comparable(left, right, "=")?;
            equal.push(Expr::Compare(Comparison::Equal, Box::new(left), Box::new(right)));
        }
        let all = Expr::all(equal).unwrap_or(Expr::Constant(Value::Bool(true)));
        self.boolean(not_if(comparison == Comparison::NotEqual, all))
    }

    fn comparable(&mut self, left: &ast::Expr, right: &ast::Expr, operator: &str) -> Result<(Expr, Expr)> {
        let (left, right) = (self.expr(left)?, self.expr(right)?);
        let shown = format!("{} {operator} {}", left.of.base_name(), right.of.base_name());
        let Some(of) = comparison_type(left.of, right.of) else { return Err(no_operator(&shown)) };
        Ok((self.implicit(left, of)?, self.implicit(right, of)?))
    }

    fn arithmetic(&mut self, left: &ast::Expr, operator: Operator, sign: &str, right: &ast::Expr) -> Result<Typed> {
        use Type::{Date, Float8, Int4, Interval, Time, Timestamp, Timestamptz, Unknown};
        let (left, right) = (self.expr(left)?, self.expr(right)?);
        let shown = format!("{} {sign} {}", left.of.base_name(), right.of.base_name());
        let sum = matches!(operator, Operator::Add | Operator::Subtract);
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
            (Timestamp | Timestamptz | Date, Timestamp | Timestamptz) | (Timestamp | Timestamptz, Date)
                if operator == Operator::Subtract =>
            {
                (Timestamp, Timestamp, Interval)
            }
            (Date, Date) if operator == Operator::Subtract => (Date, Date, Int4),
            (Date, b) if sum && b.is_integer() => (Date, Int4, Date),
            (a, Date) if operator == Operator::Add && a.is_integer() => (Int4, Date, Date),
            (Date, Interval) if sum => (Timestamp, Interval, Timestamp),
            (Time, Interval) if sum => (Time, Interval, Time),
            (Interval, Interval | Unknown) | (Unknown, Interval) if sum => (Interval, Interval, Interval),
            (Interval, b) if matches!(operator, Operator::Multiply | Operator::Divide) && b.is_number() => {
                (Interval, Float8, Interval)
            }
            (a, Interval) if operator == Operator::Multiply && a.is_number() => (Float8, Interval, Interval),
            (Unknown, Unknown) => {
                let message = format!("operator is not unique: {shown}");
                return Err(SqlError::new(state::AMBIGUOUS_FUNCTION, message)
                    .hint("Could not choose a best candidate operator. You might need to add explicit type casts."));
            }
            _ => return Err(no_operator(&shown)),
        };
        if operator == Operator::Remainder && matches!(of, Type::Float4 | Float8) {
            return Err(no_operator(&shown));
        }
        let convert = |binder: &mut Self, typed: Typed, to: Type| match (typed.of, to) {
            (Timestamptz, Timestamp) | (Timestamp, Timestamptz) => Ok(typed.expr),
            _ => binder.convert(typed, to, false),
        };
        let (a, b) = (convert(self, left, a)?, convert(self, right, b)?);
        let expr = Expr::Arithmetic(operator, of, Box::new(a), Box::new(b));
        Ok(Typed::new(self.folded(expr)?, of))
    }

    fn like(&mut self, text: &ast::Expr, pattern: &ast::Expr, negated: bool, any_case: bool) -> Result<Typed> {
        let (text, pattern) = (self.expr(text)?, self.expr(pattern)?);
        let texty = |of: Type| of.is_text() || of == Type::Unknown;
        if !texty(text.of) || !texty(pattern.of) {
            let sign = if any_case { "~~*" } else { "~~" };
            return Err(no_operator(&format!("{} {sign} {}", text.of.base_name(), pattern.of.base_name())));
        }
        // A pattern meets the blanks of a `character`.
        let padded = if let Type::Char(length) = text.of { Some(i64::from(length)) } else { None };
        let mut text = self.implicit(text, Type::Text)?;
        if let Some(length) = padded {
            text = self.folded(Expr::Call(Function::Pad, vec![text, Expr::Constant(Value::Int(length))]))?;
        }
        let text = Box::new(text);
        let pattern = Box::new(self.implicit(pattern, Type::Text)?);
        self.boolean(not_if(negated, Expr::Like { text, pattern, any_case }))
    }

    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        cases: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
    ) -> Result<Typed> {
        self.branches += 1;
        let bound = self.case_branches(operand, cases, otherwise);
        self.branches -= 1;
        let (conditions, results) = bound?;
        let (mut results, of) = self.common(results, "CASE")?;
        let mut otherwise = results.pop().unwrap_or(Expr::NULL);
        // Conditions that are known decide now.
        let mut cases = Vec::new();
        for (condition, result) in conditions.into_iter().zip(results) {
            match condition {
                Expr::Constant(Value::Bool(true)) => {
                    otherwise = result;
                    break;
                }
                Expr::Constant(_) => {}
                condition => cases.push((condition, result)),
            }
        }
        let expr = if cases.is_empty() { otherwise } else { Expr::Case(cases, Box::new(otherwise)) };
        Ok(Typed::new(self.branched(expr), of))
    }

    /// The conditions of a CASE, and its results with the last one.
    fn case_branches(
        &mut self,
        operand: Option<&ast::Expr>,
        cases: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
    ) -> Result<(Vec<Expr>, Vec<Typed>)> {
        let mut conditions = Vec::new();
        let mut results = Vec::new();
        for case in cases {
            conditions.push(match operand {
                Some(operand) => {
                    let (a, b) = self.comparable(operand, &case.condition, "=")?;
                    self.folded(Expr::Compare(Comparison::Equal, Box::new(a), Box::new(b)))?
                }
                None => self.condition(&case.condition, "CASE/WHEN")?,
            });
            results.push(self.expr(&case.result)?);
        }
        results.push(match otherwise {
            Some(otherwise) => self.expr(otherwise)?,
            None => Typed::new(Expr::NULL, Type::Unknown),
        });
        Ok((conditions, results))
    }

    /// Expressions in the one type that all of them become.
    pub(crate) fn common(&mut self, all: Vec<Typed>, place: &str) -> Result<(Vec<Expr>, Type)> {
        let mut of = all.first().map_or(Type::Unknown, |first| first.of);
        for typed in all.iter().skip(1) {
            // Of several kinds of text the first stays.
            if place != "IN" && of.is_text() && typed.of.is_text() && of != typed.of {
                of = if matches!(of, Type::Char(_)) { Type::ANY_CHAR } else { of.unbounded() };
                continue;
            }
            of = comparison_type(of, typed.of).ok_or_else(|| {
                if place == "IN" {
                    return no_operator(&format!("{} = {}", of.base_name(), typed.of.base_name()));
                }
                let message =
                    format!("{place} types {} and {} cannot be matched", of.base_name(), typed.of.base_name());
                SqlError::new(state::DATATYPE_MISMATCH, message)
            })?;
        }
        let of = if of == Type::Unknown { Type::Text } else { of };
        let all = all.into_iter().map(|typed| self.implicit(typed, of)).collect::<Result<_>>()?;
        Ok((all, of))
    }

    fn function(&mut self, function: &ast::Function) -> Result<Typed> {
        let name = object_name(&function.name)?;
        let unsupported = || SqlError::unsupported(format_args!("the call {function}"));
        if function.over.is_some() || !function.within_group.is_empty() || function.null_treatment.is_some() {
            return Err(unsupported());
        }
        let (arguments, distinct) = match &function.args {
            FunctionArguments::None => (&[][..], false),
            FunctionArguments::List(list) if list.clauses.is_empty() => {
                (&list.args[..], list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct))
            }
            _ => return Err(unsupported()),
        };
        if aggregate::is_name(&name) {
            return self.aggregate(&name, arguments, distinct, function.filter.as_deref());
        }
        if distinct || function.filter.is_some() {
            let message = format!("DISTINCT or FILTER specified, but {name} is not an aggregate function");
            return Err(SqlError::new(state::WRONG_OBJECT_TYPE, message));
        }
        let mut typed = Vec::new();
        for argument in arguments {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument else { return Err(unsupported()) };
            self.branches += usize::from(name == "coalesce");
            let bound = self.expr(argument);
            self.branches -= usize::from(name == "coalesce");
            typed.push(bound?);
        }
        match name.as_str() {
            "coalesce" | "greatest" | "least" if typed.is_empty() => {
                Err(SqlError::new(state::SYNTAX_ERROR, format!("{name} needs an argument")))
            }
            "coalesce" => {
                let (mut values, of) = self.common(typed, "COALESCE")?;
                values.retain(|value| *value != Expr::NULL);
                if let Some(known) = values.iter().position(|value| matches!(value, Expr::Constant(_))) {
                    values.truncate(known + 1);
                }
                let expr = match values.len() {
                    0 => Expr::NULL,
                    1 => values.remove(0),
                    _ => Expr::Coalesce(values),
                };
                Ok(Typed::new(self.branched(expr), of))
            }
            "greatest" | "least" => {
                let function = if name == "greatest" { Function::Greatest } else { Function::Least };
                let (values, of) = self.common(typed, &name.to_uppercase())?;
                Ok(Typed::new(Expr::Call(function, values), of))
            }
            "nullif" if typed.len() == 2 => {
                let of = typed[0].of;
                let (values, common) = self.common(typed, "NULLIF")?;
                Ok(Typed::new(Expr::Call(Function::NullIf, values), if of == Type::Unknown { common } else { of }))
            }
            _ => self.call(&name, typed),
        }
    }

    fn aggregate(
        &mut self,
        name: &str,
        arguments: &[FunctionArg],
        distinct: bool,
        filter: Option<&ast::Expr>,
    ) -> Result<Typed> {
        let place = match &self.aggregates {
            Ok(_) => None,
            Err(place) => Some(*place),
        };
        if let Some(place) = place {
            let message = format!("aggregate functions are not allowed in {place}");
            return Err(SqlError::new(state::GROUPING_ERROR, message));
        }
        // Aggregates of aggregates are refused.
        let nested = "an aggregate's argument";
        let mut inner = Binder {
            scope: self.scope,
            parameters: &mut *self.parameters,
            aggregates: Err(nested),
            branches: self.branches,
        };
        let (argument, kind, of) = match arguments {
            [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] if name == "count" => {
                (None, aggregate::Kind::Count, Type::Int8)
            }
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] => {
                let typed = inner.expr(argument)?;
                let Some((kind, wanted, of)) = aggregate::resolve(name, typed.of) else {
                    return Err(no_function(name, &[typed.of]));
                };
                let argument = if wanted == Type::Unknown { typed.expr } else { inner.implicit(typed, wanted)? };
                (Some(argument), kind, of)
            }
            _ => {
                let message = format!("function {name} with {} arguments does not exist", arguments.len());
                return Err(SqlError::new(state::UNDEFINED_FUNCTION, message));
            }
        };
        let filter = filter.map(|filter| inner.condition(filter, "FILTER")).transpose()?;
        let aggregate = Aggregate { kind, argument, distinct, filter, of };
        let Ok(aggregates) = &mut self.aggregates else { return Err(SqlError::internal("an aggregate out of place")) };
        let at = aggregates.iter().position(|other| *other == aggregate).unwrap_or_else(|| {
            aggregates.push(aggregate);
            aggregates.len() - 1
        });
        Ok(Typed::new(Expr::Aggregate(at), of))
    }

    fn call(&mut self, name: &str, arguments: Vec<Typed>) -> Result<Typed> {
        if name == "localtimestamp" {
            let now = self.call("now", arguments)?;
            return self.cast(now, Type::Timestamp);
        }
        let types: Vec<Type> = arguments.iter().map(|argument| argument.of).collect();
        let Some((function, wanted, of)) = function::resolve(name, &types) else {
            return Err(no_function(name, &types));
        };
        let arguments = arguments.into_iter().zip(wanted);
        let arguments = arguments.map(|(argument, of)| self.convert(argument, of, false)).collect::<Result<_>>()?;
        let call = self.folded(Expr::Call(function, arguments))?;
        // The one function of integers whose result may be too long for them.
        let narrow = function == Function::Abs && matches!(of, Type::Int2 | Type::Int4);
        let call = if narrow { self.folded(wrapped(call, Type::Int8, of, false))? } else { call };
        Ok(Typed::new(call, of))
    }

    fn cast(&mut self, typed: Typed, of: Type) -> Result<Typed> {
        if cast::ease(typed.of, of).is_none() {
            let message = format!("cannot cast type {} to {}", typed.of.base_name(), of.base_name());
            return Err(SqlError::new(state::CANNOT_COERCE, message));
        }
        Ok(Typed::new(self.convert(typed, of, true)?, of))
    }

    /// Computes what is made of constants alone, as PostgreSQL does before a statement runs.
    fn folded(&mut self, mut expr: Expr) -> Result<Expr> {
        match &mut expr {
            // What is decided already never asks for the right side.
            Expr::And(a, _) if **a == Expr::Constant(Value::Bool(false)) => return Ok((**a).clone()),
            Expr::Or(a, _) if **a == Expr::Constant(Value::Bool(true)) => return Ok((**a).clone()),
            Expr::Case(..) | Expr::Coalesce(_) => return Ok(expr),
            other => other.children_mut(&mut |child| {
                let whole = std::mem::replace(child, Expr::NULL);
                *child = self.folded(whole)?;
                Ok(())
            })?,
        }
        if is_null(&expr) {
            return Ok(Expr::NULL);
        }
        if !is_constant(&expr) {
            return Ok(expr);
        }
        match expr.value(Env { row: &[], parameters: &[], facts: &Facts::default() }) {
            Ok(value) => Ok(Expr::Constant(value.into_owned())),
            Err(error) => {
                self.fails(error);
                Ok(expr)
            }
        }
    }

    /// Notes what the statement fails with, unless that is in a branch that may not be taken.
    fn fails(&mut self, error: SqlError) {
        if self.branches == 0 {
            self.parameters.failure.get_or_insert(error);
        }
    }

    /// An expression of branches: the statement fails if one of them does.
    fn branched(&mut self, expr: Expr) -> Expr {
        if let Err(error) = raise(&expr) {
            self.fails(error);
        }
        expr
    }

    /// A truth value.
    fn boolean(&mut self, expr: Expr) -> Result<Typed> {
        Ok(Typed::new(self.folded(expr)?, Type::Bool))
    }

    /// An expression in another type, if it becomes that by itself.
    pub(crate) fn implicit(&mut self, typed: Typed, of: Type) -> Result<Expr> {
        match cast::ease(typed.of, of) {
            Some(Ease::Implicit) => self.convert(typed, of.unbounded(), false),
            _ => {
                let message = format!("expected type {}, came {}", of.base_name(), typed.of.base_name());
                Err(SqlError::new(state::DATATYPE_MISMATCH, message))
            }
        }
    }

    /// An expression in another type. Literals are read now, parameters learn their type, everything else is cast.
    fn convert(&mut self, typed: Typed, of: Type, explicit: bool) -> Result<Expr> {
        let Typed { expr, of: from } = typed;
        if let (Type::Unknown, Expr::Parameter(at)) = (from, &expr) {
            // Lengths are checked where the value is stored.
            let known = &mut self.parameters.types[*at];
            let bare = if matches!(of, Type::Char(_)) { Type::Text } else { of.unbounded() };
            match *known {
                Type::Unknown => *known = bare,
                other => return self.convert(Typed::new(expr, other), of, explicit),
            }
            return Ok(if bare == of { expr } else { wrapped(expr, bare, of, explicit) });
        }
        if let (Type::Unknown, Expr::Constant(value)) = (from, &expr) {
            return Ok(Expr::Constant(match (value, of) {
                (Value::Text(content), Type::Char(_) | Type::Varchar(_)) => {
                    cast::fit(Value::Text(content.clone()), of, explicit)?
                }
                (Value::Text(content), of) => text::parse(content, of)?,
                (value, _) => value.clone(),
            }));
        }
        // Shorter integers are longer ones; texts of any kind are texts unless a length is to be kept to.
        let same = from == of
            || (from.is_integer() && of.is_integer() && from.number_rank() <= of.number_rank())
            || (from.is_text() && of.is_text() && matches!(of, Type::Text | Type::Varchar(None)))
            || (from == Type::Float4 && of == Type::Float8)
            || matches!((from, of), (Type::Char(a), Type::Char(b)) if a <= b)
            || (from.unbounded() == of && matches!(of, Type::Numeric(None)));
        if same {
            return Ok(expr);
        }
        self.folded(wrapped(expr, from, of, explicit))
    }
}

/// The field of a date that `EXTRACT` names.
fn field_name(field: &DateTimeField) -> String {
    field.to_string().to_ascii_lowercase().trim_matches('"').trim_matches('\'').to_owned()
}

fn wrapped(expr: Expr, from: Type, to: Type, explicit: bool) -> Expr {
    Expr::Cast { value: Box::new(expr), from, to, explicit }
}

/// Whether an expression is made of constants alone, directly.
fn is_constant(expr: &Expr) -> bool {
    let mut constant = match expr {
        Expr::Column(_) | Expr::Parameter(_) | Expr::Aggregate(_) => false,
        Expr::Call(function, _) => function.is_immutable(),
        _ => true,
    };
    expr.children(&mut |child| constant &= matches!(child, Expr::Constant(_)));
    constant
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
    let mut failed = Ok(());
    expr.children(&mut |child| {
        if failed.is_ok() {
            failed = raise(child);
        }
    });
    failed?;
    if is_constant(expr) {
        expr.value(Env { row: &[], parameters: &[], facts: &Facts::default() })?;
    }
    Ok(())
}

/// The type in which values of two types are compared or put together.
fn comparison_type(a: Type, b: Type) -> Option<Type> {
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
        (Date, Timestamp) | (Timestamp, Date) => Timestamp,
        (Date | Timestamp, Timestamptz) | (Timestamptz, Date | Timestamp) => Timestamptz,
        _ => return None,
    })
}

fn not(expr: Expr) -> Expr {
    Expr::Not(Box::new(expr))
}

fn not_if(negated: bool, expr: Expr) -> Expr {
    if negated { not(expr) } else { expr }
}

fn unknown(content: &str) -> Typed {
    Typed::new(Expr::Constant(Value::Text(content.to_owned())), Type::Unknown)
}

fn no_operator(shown: &str) -> SqlError {
    SqlError::new(state::UNDEFINED_FUNCTION, format!("operator does not exist: {shown}"))
        .hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
}

fn no_function(name: &str, arguments: &[Type]) -> SqlError {
    let arguments: Vec<String> = arguments.iter().map(|of| of.base_name()).collect();
    let message = format!("function {name}({}) does not exist", arguments.join(", "));
    SqlError::new(state::UNDEFINED_FUNCTION, message)
        .hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}
