//! From a tree of names to expressions: columns are found, types are chosen as PostgreSQL chooses them, parameters learn theirs
//! from where they stand.

mod aggregate;
pub(crate) mod argument;
mod array;
mod call;
mod case;
mod convert;
mod json;
mod operator;
mod row;
mod set;
mod subquery;
mod window;

use savanna_tenants_catalog::{Domain, FIRST_RELATION, Name};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::{Span, Type},
    value::{Value, bits, datetime::Unit, numeric},
};
use sqlparser::ast::{self, CastKind, DateTimeField, Ident, TrimWhereField, Value as Literal};

use crate::{
    define::domain::domain_of,
    expression::{Comparison, Expr, aggregate::Aggregate, list::List},
    function::{Function, PatternFunction},
    parse::{
        data_type::{digits, type_of},
        name::name_of,
    },
    query::{
        scope::{Scope, Visible, no_table},
        select::Planner,
    },
    system,
};
use operator::{Pattern, row_of};
pub(crate) use operator::{common_type, comparison_type};
pub(crate) use set::Sets;
pub(crate) use window::Windows;

/// An expression and its type.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct Typed {
    pub(crate) expr: Expr,
    pub of: Type,
}

impl Typed {
    /// An expression of a type.
    pub fn new(expr: Expr, of: Type) -> Self {
        Self { expr, of }
    }
}

/// The types of a statement's parameters, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
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

/// Resolves the expressions of one scope.
pub struct Binder<'b, 'c> {
    pub(crate) scope: &'b Scope<'b>,
    pub(crate) planner: &'b mut Planner<'c>,
    /// The aggregates that were met; the place's name where there may be none.
    pub(crate) aggregates: std::result::Result<&'b mut Vec<Aggregate>, &'static str>,
    /// The window functions that were met; the place's name where there may be none.
    pub(crate) windows: std::result::Result<Windows<'b>, &'static str>,
    /// The functions that return rows that were met; the place's name where there may be none.
    pub(crate) sets: std::result::Result<&'b mut Sets, &'static str>,
    /// The place's name where there may be no queries.
    pub(crate) closed: Option<&'static str>,
    /// How many branches deep it is, of which not all will be taken. What fails in one fails when it is taken.
    pub(crate) branches: usize,
}

impl<'b, 'c> Binder<'b, 'c> {
    /// For a place where aggregates are refused.
    pub(crate) fn plain(scope: &'b Scope<'b>, planner: &'b mut Planner<'c>, place: &'static str) -> Self {
        Self {
            scope,
            planner,
            aggregates: Err(place),
            windows: Err(place),
            sets: Err(place),
            closed: None,
            branches: 0,
        }
    }

    /// For a place where aggregates and queries are refused.
    pub fn closed(scope: &'b Scope<'b>, planner: &'b mut Planner<'c>, place: &'static str) -> Self {
        Self { closed: Some(place), ..Self::plain(scope, planner, place) }
    }

    /// The name of a type, as messages have it.
    pub(crate) fn named(&self, of: Type) -> String {
        self.planner.catalog.type_name(of)
    }

    /// A condition.
    pub fn condition(&mut self, ast: &ast::Expr, place: &str) -> Result<Expr> {
        let typed = self.expr(ast)?;
        if typed.of != Type::Bool && typed.of != Type::Unknown {
            let message = format!("argument of {place} must be type boolean, not type {}", self.named(typed.of));
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
    pub fn assigned(&mut self, ast: &ast::Expr, of: Type, column: &str) -> Result<Expr> {
        let typed = self.expr(ast)?;
        self.assign(typed, of, column)
    }

    /// An expression.
    pub fn expr(&mut self, ast: &ast::Expr) -> Result<Typed> {
        self.planner.interrupts.check()?;
        if let Some(other) = system::rewrite(ast)? {
            return self.expr(&other);
        }
        match ast {
            ast::Expr::Identifier(ident) => self.column(None, ident),
            ast::Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [table, column] => self.column(Some(name_of(table)), column),
                [schema, table, column] => self.column_of(name_of(schema), name_of(table), column),
                _ => Err(SqlError::unsupported(format_args!("the name {ast}"))),
            },
            ast::Expr::Nested(inner) => self.expr(inner),
            ast::Expr::Value(value) => self.literal(&value.value),
            ast::Expr::TypedString(typed) => {
                let Some(content) = typed.value.value.clone().into_string() else {
                    return Err(SqlError::unsupported(format_args!("the literal {ast}")));
                };
                if let Some(domain) = domain_of(&typed.data_type, self.planner.catalog) {
                    return self.as_domain(unknown(&content), domain);
                }
                let of = match &typed.data_type {
                    // As long as what follows.
                    ast::DataType::Bit(None) => Type::Bit(None),
                    data_type => type_of(data_type, self.planner.catalog)?,
                };
                Ok(Typed::new(self.convert(unknown(&content), of, true)?, of.exact()))
            }
            ast::Expr::Interval(interval) => self.interval(interval),
            ast::Expr::UnaryOp { op, expr } => self.unary(*op, expr),
            ast::Expr::BinaryOp { left, op, right } if let Some((pattern, negated)) = system::pattern_of(op, right) => {
                self.like(left, Pattern::One(&pattern, None), negated, false)
            }
            ast::Expr::BinaryOp { left, op, right } => self.binary(left, op, right),
            ast::Expr::Tuple(values) => self.row_value(values),
            ast::Expr::IsNull(inner) => self.is_null(inner, false),
            ast::Expr::IsNotNull(inner) => self.is_null(inner, true),
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
                let distinct = self.is_distinct(a, b)?;
                self.boolean(distinct)
            }
            ast::Expr::IsNotDistinctFrom(a, b) => {
                let same = not(self.is_distinct(a, b)?);
                self.boolean(same)
            }
            ast::Expr::InList { expr, list, negated } if let Some(row) = row_of(expr) => {
                self.in_rows(&row, list, *negated)
            }
            ast::Expr::InList { expr, list, negated } => {
                let value = self.expr(expr)?;
                let list = list.iter().map(|other| self.expr(other)).collect::<Result<Vec<_>>>()?;
                let mut all = vec![value];
                all.extend(list);
                let (mut all, of) = self.common(all, "IN")?;
                let value = all.remove(0);
                if of.is_row() {
                    let equal = |other| Self::comparison(Comparison::Equal, of, value.clone(), other);
                    let any =
                        Expr::any(all.into_iter().map(equal).collect()).unwrap_or(Expr::Constant(Value::Bool(false)));
                    return self.boolean(not_if(*negated, any));
                }
                self.boolean(not_if(*negated, Expr::In(Box::new(value), List::new(all))))
            }
            ast::Expr::Between { expr, negated, low, high } => {
                let (a, low, of) = self.comparable_in(expr, low, ">=")?;
                let from = Self::comparison(Comparison::GreaterOrEqual, of, a, low);
                let (b, high, of) = self.comparable_in(expr, high, "<=")?;
                let to = Self::comparison(Comparison::LessOrEqual, of, b, high);
                self.boolean(not_if(*negated, Expr::And(Box::new(from), Box::new(to))))
            }
            ast::Expr::Like { negated, any, expr, pattern, escape_char } => {
                self.like(expr, Pattern::of(pattern, *any, escape_char.as_ref())?, *negated, false)
            }
            ast::Expr::ILike { negated, any, expr, pattern, escape_char } => {
                self.like(expr, Pattern::of(pattern, *any, escape_char.as_ref())?, *negated, true)
            }
            ast::Expr::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            ast::Expr::SimilarTo { negated, expr, pattern, escape_char } => {
                let mut arguments = vec![self.expr(expr)?, self.expr(pattern)?];
                if let Some(escape) = escape_char {
                    arguments.push(self.literal(&escape.value)?);
                }
                let convert = |typed| self.implicit(typed, Type::Text);
                let arguments = arguments.into_iter().map(convert).collect::<Result<_>>()?;
                let similar = Expr::Call(Function::Pattern(PatternFunction::Similar), arguments);
                self.boolean(not_if(*negated, similar))
            }
            ast::Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let mut arguments = vec![self.expr(expr)?, self.expr(overlay_what)?, self.expr(overlay_from)?];
                if let Some(length) = overlay_for {
                    arguments.push(self.expr(length)?);
                }
                self.call("overlay", arguments)
            }
            ast::Expr::AtTimeZone { timestamp, time_zone } => {
                let arguments = vec![self.expr(time_zone)?, self.expr(timestamp)?];
                self.call("timezone", arguments)
            }
            ast::Expr::Array(array) => self.array(&array.elem, None),
            ast::Expr::CompoundFieldAccess { root, access_chain } => self.subscripts(root, access_chain),
            ast::Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr,
                data_type,
                array: false,
                format: None,
            } => {
                if let Some(domain) = domain_of(data_type, self.planner.catalog) {
                    let typed = self.cast_to(expr, domain.of)?;
                    return self.as_domain(typed, domain);
                }
                let of = type_of(data_type, self.planner.catalog)?;
                self.cast_to(expr, of)
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
            ast::Expr::Subquery(query) => self.scalar(query),
            ast::Expr::Exists { subquery, negated } => self.exists(subquery, *negated),
            ast::Expr::InSubquery { expr, subquery, negated } => self.in_query(expr, subquery, *negated),
            ast::Expr::AnyOp { left, compare_op, right, .. } => self.any_or_all(left, compare_op, right, false),
            ast::Expr::AllOp { left, compare_op, right } => self.any_or_all(left, compare_op, right, true),
            other => Err(SqlError::unsupported(format_args!("the expression {other}"))),
        }
    }

    /// A cast: what is written out as an array or a row is made of values of the right types.
    fn cast_to(&mut self, ast: &ast::Expr, of: Type) -> Result<Typed> {
        match (ast, of.element()) {
            (ast::Expr::Array(array), Some(element)) => self.array(&array.elem, Some(element)),
            (ast, _) if let (Type::Composite(id), Some(values)) = (of, row_of(ast)) => self.row_of_type(&values, id),
            _ => {
                let typed = self.expr(ast)?;
                self.cast(typed, of)
            }
        }
    }

    /// A value of a domain. It has the type that this is over.
    fn as_domain(&mut self, typed: Typed, domain: &Domain) -> Result<Typed> {
        let typed = self.cast(typed, domain.of)?;
        let rules = self.planner.domain_rules(domain)?;
        self.planner.acts |= rules.act();
        Ok(Typed::new(Expr::Domain(Box::new(typed.expr), rules), typed.of))
    }

    /// A column of a table that is named with its schema.
    fn column_of(&mut self, schema: String, table: String, column: &Ident) -> Result<Typed> {
        let name = Name { schema: Some(schema), name: table };
        let missing = || no_table(&name.to_string());
        let table = self.planner.catalog.table(&name).map(|table| table.id);
        let relation = table.or_else(|| self.planner.catalog.view(&name).map(|view| view.id)).ok_or_else(missing)?;
        let is_of = |column: &Visible| column.table == name.name && column.origin.0 == relation;
        let mut scope = Some(self.scope);
        while let Some(here) = scope.filter(|here| !here.columns.iter().any(is_of)) {
            scope = here.outer;
        }
        scope.ok_or_else(missing)?;
        self.column(Some(name.name), column)
    }

    fn column(&mut self, table: Option<String>, column: &Ident) -> Result<Typed> {
        let name = name_of(column);
        match self.scope.find(table.as_deref(), &name) {
            Ok(column) => {
                self.planner.names_column(column.origin);
                Ok(Typed::new(column.expr.clone(), column.of))
            }
            // Functions without brackets.
            Err(error) => match (table, name.as_str()) {
                (None, "current_user" | "session_user" | "user" | "current_date" | "current_schema") => {
                    self.call(&name, Vec::new())
                }
                (None, "current_timestamp" | "current_time" | "localtimestamp" | "localtime") => {
                    self.call(&name, Vec::new())
                }
                (table, "tableoid") => self.table_number(table.as_deref()).ok_or(error),
                (None, _) => self.whole_row(&ast::Expr::Identifier(column.clone()))?.ok_or(error),
                _ => Err(error),
            },
        }
    }

    /// The number of the table that a row is of, which PostgreSQL has in a column that `*` does not show.
    fn table_number(&self, table: Option<&str>) -> Option<Typed> {
        let mut scope = Some(self.scope);
        while let Some(here) = scope {
            let is_of = |column: &&Visible| table.is_none_or(|table| column.table == table);
            let mut columns = here.columns.iter().filter(is_of);
            if let Some(first) = columns.next() {
                let one = columns.all(|column| column.table == first.table);
                let number = Expr::Constant(Value::Int(first.origin.0.into()));
                let number = match first.optional {
                    // The first column of a table of the catalog is never NULL otherwise.
                    true => {
                        Expr::Case(vec![(Expr::IsNull(Box::new(first.expr.clone())), Expr::NULL)], Box::new(number))
                    }
                    false => number,
                };
                let known = first.origin.0 != 0 && (!first.optional || first.origin.0 < FIRST_RELATION);
                return (one && known).then(|| Typed::new(number, Type::Oid));
            }
            scope = here.outer;
        }
        None
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
                    Typed::new(Expr::Constant(Value::Numeric(numeric::parse(digits)?)), of)
                }
            },
            Literal::Placeholder(name) => {
                let number = name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
                let Some(at) = number.filter(|number| (1..=65_535).contains(number)).map(|number| number - 1) else {
                    return Err(SqlError::new(state::UNDEFINED_PARAMETER, format!("there is no parameter {name}")));
                };
                if self.planner.parameters.types.len() <= at {
                    self.planner.parameters.types.resize(at + 1, Type::Unknown);
                }
                Typed::new(Expr::Parameter(at), self.planner.parameters.types[at])
            }
            Literal::SingleQuotedString(content)
            | Literal::EscapedStringLiteral(content)
            | Literal::UnicodeStringLiteral(content) => unknown(content),
            Literal::SingleQuotedByteStringLiteral(digits) => bit_string(&format!("b{digits}"))?,
            Literal::HexStringLiteral(digits) => bit_string(&format!("x{digits}"))?,
            Literal::DollarQuotedString(content) => unknown(&content.value),
            other => return Err(SqlError::unsupported(format_args!("the literal {other}"))),
        })
    }

    fn interval(&mut self, interval: &ast::Interval) -> Result<Typed> {
        let content = match &*interval.value {
            ast::Expr::Value(value) => value.value.clone().into_string(),
            _ => None,
        };
        let unsupported = || SqlError::unsupported(format_args!("the literal {interval}"));
        let content = content.ok_or_else(unsupported)?;
        let unit = |field: &DateTimeField| Unit::named(&field_name(field)).ok_or_else(unsupported);
        let first = interval.leading_field.as_ref().map(unit).transpose()?;
        let last = interval.last_field.as_ref().map(unit).transpose()?.or(first);
        let written = match last {
            // `SECOND (2)` has its digits where another field has its precision, which PostgreSQL does not know.
            Some(Unit::Second) => interval.fractional_seconds_precision.or(interval.leading_precision),
            _ if interval.leading_precision.is_some() || interval.fractional_seconds_precision.is_some() => {
                return Err(unsupported());
            }
            _ => None,
        };
        let of = match first.zip(last) {
            None => Type::Interval,
            Some(units) => {
                let wrong = || {
                    let message =
                        format!("expected fields of an interval from a longer to a shorter one, came {interval}");
                    SqlError::new(state::SYNTAX_ERROR, message)
                };
                Type::Spanned(Span::of_units(units).ok_or_else(wrong)?, written.map(digits))
            }
        };
        Ok(Typed::new(self.convert(unknown(&content), of, true)?, Type::Interval))
    }
}

/// The field of a date that `EXTRACT` names.
fn field_name(field: &DateTimeField) -> String {
    field.to_string().to_ascii_lowercase().trim_matches('"').trim_matches('\'').to_owned()
}

fn not(expr: Expr) -> Expr {
    Expr::Not(Box::new(expr))
}

fn not_if(negated: bool, expr: Expr) -> Expr {
    if negated { not(expr) } else { expr }
}

/// A literal of bits.
fn bit_string(content: &str) -> Result<Typed> {
    Ok(Typed::new(Expr::Constant(Value::Text(bits::parse(content)?)), Type::Bit(None)))
}

fn unknown(content: &str) -> Typed {
    Typed::new(Expr::Constant(Value::Text(content.to_owned())), Type::Unknown)
}
