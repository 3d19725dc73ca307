//! Expressions as text, with every bracket.

use savanna_tenants_sql::{
    expression::{Comparison, Expr, Operator, aggregate::Aggregate},
    function::{ArrayFunction, Function},
    plan::{
        query::{Joined, Node, Query, Subquery, Test},
        window::{WindowCall, WindowFunction},
    },
};
use savanna_tenants_values::{
    types::Type,
    value::{Value, style::Style, text},
};

/// The names of a row's columns, and how many of them are those of the row around the query.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(pub(super) Vec<String>, pub(super) usize);

/// Queries that were met in expressions, with their names.
type Queries<'a> = Vec<(String, &'a Query)>;

impl Names {
    /// Takes the names of joined rows behind those of the row around them.
    pub(super) fn cover(&mut self, joined: &Joined, outer: usize) {
        self.0.truncate(outer);
        self.0.resize(joined.width, String::new());
        self.1 = outer;
        let mut parts = 0;
        parts_of(&joined.node, &mut |_, _, _| parts += 1);
        let qualified = parts > 1 || outer > 0;
        parts_of(&joined.node, &mut |base, alias, columns| {
            for (at, column) in columns.iter().enumerate() {
                if let Some(name) = self.0.get_mut(base + at) {
                    *name = if qualified { format!("{alias}.{column}") } else { (*column).to_owned() };
                }
            }
        });
    }

    /// The name of a column.
    pub(super) fn column(&self, at: usize) -> String {
        self.0.get(at).filter(|name| !name.is_empty()).cloned().unwrap_or_else(|| format!("column {at}"))
    }

    pub(super) fn text<'a>(&self, expr: &'a Expr, queries: &mut Queries<'a>) -> String {
        let mut of = |expr: &'a Expr| self.text(expr, queries);
        match expr {
            Expr::Constant(value) => constant(value),
            Expr::Column(at) | Expr::Aggregate(at) | Expr::Window(at) | Expr::Set(at) => self.column(*at),
            Expr::Parameter(at) => format!("${}", at + 1),
            Expr::Subquery(subquery) => self.subquery(subquery, queries),
            Expr::Negate(value, _) => format!("(- {})", of(value)),
            Expr::Not(value) => match &**value {
                Expr::IsNull(value) => format!("({} IS NOT NULL)", of(value)),
                value => format!("(NOT {})", of(value)),
            },
            Expr::And(..) | Expr::Or(..) => {
                let word = if matches!(expr, Expr::And(..)) { " AND " } else { " OR " };
                let mut sides = Vec::new();
                same(expr, matches!(expr, Expr::And(..)), &mut sides);
                format!("({})", sides.into_iter().map(of).collect::<Vec<_>>().join(word))
            }
            Expr::IsNull(value) => format!("({} IS NULL)", of(value)),
            Expr::Is(value, truth) => format!("({} IS {})", of(value), if *truth { "TRUE" } else { "FALSE" }),
            Expr::Compare(comparison, a, b) => format!("({} {} {})", of(a), sign(*comparison), of(b)),
            Expr::IsDistinct(a, b) => format!("({} IS DISTINCT FROM {})", of(a), of(b)),
            Expr::Arithmetic(operator, _, a, b) => {
                let sign = match operator {
                    Operator::Add => "+",
                    Operator::Subtract => "-",
                    Operator::Multiply => "*",
                    Operator::Divide => "/",
                    Operator::Remainder => "%",
                };
                format!("({} {sign} {})", of(a), of(b))
            }
            Expr::Concat(a, b) => format!("({} || {})", of(a), of(b)),
            Expr::Like { text, pattern, any_case } => {
                format!("({} {} {})", of(text), if *any_case { "~~*" } else { "~~" }, of(pattern))
            }
            Expr::In(value, list) => {
                let value = of(value);
                format!("({value} IN ({}))", list.iter().map(of).collect::<Vec<_>>().join(", "))
            }
            Expr::Case(branches, otherwise) => {
                let branches: Vec<String> =
                    branches.iter().map(|(when, then)| format!("WHEN {} THEN {} ", of(when), of(then))).collect();
                format!("CASE {}ELSE {} END", branches.concat(), of(otherwise))
            }
            Expr::Coalesce(values) => format!("COALESCE({})", values.iter().map(of).collect::<Vec<_>>().join(", ")),
            Expr::Domain(value, _) => of(value),
            Expr::Cast { value, to, .. } => format!("({})::{}", of(value), to.name()),
            Expr::Call(Function::Array(ArrayFunction::Any(comparison)), arguments) => {
                let arguments: Vec<String> = arguments.iter().map(of).collect();
                format!("({})", arguments.join(&format!(" {} ANY ", sign(*comparison))))
            }
            Expr::Call(Function::Array(ArrayFunction::All(comparison)), arguments) => {
                let arguments: Vec<String> = arguments.iter().map(of).collect();
                format!("({})", arguments.join(&format!(" {} ALL ", sign(*comparison))))
            }
            Expr::Call(function, arguments) => {
                let arguments: Vec<String> = arguments.iter().map(of).collect();
                format!("{}({})", words(&format!("{function:?}")), arguments.join(", "))
            }
        }
    }

    fn subquery<'a>(&self, subquery: &'a Subquery, queries: &mut Queries<'a>) -> String {
        let kind = if subquery.is_fixed { "InitPlan" } else { "SubPlan" };
        let name = format!("{kind} {}", subquery.id);
        let values: Vec<String> = subquery.test.values().iter().map(|value| self.text(value, queries)).collect();
        if !queries.iter().any(|(other, _)| *other == name) {
            queries.push((name.clone(), &subquery.query));
            queries.extend(subquery.hashed.iter().map(|hashed| (format!("hashed {name}"), &hashed.query)));
        }
        let left = if values.len() == 1 { values.concat() } else { format!("({})", values.join(", ")) };
        match &subquery.test {
            Test::Scalar(_) => format!("({name})"),
            Test::Array => format!("ARRAY({name})"),
            Test::Exists if subquery.hashed.is_some() => format!("(EXISTS({name}) or hashed {name})"),
            Test::Exists => format!("EXISTS({name})"),
            Test::Any(comparison, _) => format!("({left} {} ANY ({name}))", sign(*comparison)),
            Test::All(comparison, _) => format!("({left} {} ALL ({name}))", sign(*comparison)),
        }
    }

    pub(super) fn aggregate<'a>(&self, aggregate: &'a Aggregate, queries: &mut Queries<'a>) -> String {
        let argument = aggregate.argument.as_ref().map_or_else(|| "*".to_owned(), |expr| self.text(expr, queries));
        let distinct = if aggregate.distinct { "DISTINCT " } else { "" };
        let beside = aggregate.beside.as_ref().map(|expr| format!(", {}", self.text(expr, queries)));
        let filter = aggregate.filter.as_ref().map(|expr| format!(" FILTER (WHERE {})", self.text(expr, queries)));
        let (beside, filter) = (beside.unwrap_or_default(), filter.unwrap_or_default());
        format!("{}({distinct}{argument}{beside}){filter}", words(&format!("{:?}", aggregate.kind)))
    }

    pub(super) fn window<'a>(&self, window: &'a WindowCall, queries: &mut Queries<'a>) -> String {
        match &window.function {
            WindowFunction::Aggregate(aggregate) => format!("{} OVER (?)", self.aggregate(aggregate, queries)),
            function => {
                let arguments: Vec<String> = window.arguments.iter().map(|expr| self.text(expr, queries)).collect();
                format!("{}({}) OVER (?)", words(&format!("{function:?}")), arguments.join(", "))
            }
        }
    }
}

/// Visits the parts of a joined row: where each begins, its name, and its columns.
fn parts_of(node: &Node, visit: &mut dyn FnMut(usize, &str, &[&str])) {
    match node {
        Node::Scan(scan) => {
            let columns: Vec<&str> = scan.table.columns.iter().map(|column| column.name.as_str()).collect();
            visit(scan.base, &scan.alias, &columns);
        }
        Node::Rows(rows) => {
            let columns: Vec<&str> = rows.query.columns.iter().map(|column| column.name.as_str()).collect();
            visit(rows.base, &rows.alias, &columns);
        }
        node => node.inputs(&mut |input| parts_of(input, visit)),
    }
}

/// The sides of conditions that are put together in the same way.
fn same<'a>(expr: &'a Expr, and: bool, sides: &mut Vec<&'a Expr>) {
    match expr {
        Expr::And(a, b) if and => {
            same(a, and, sides);
            same(b, and, sides);
        }
        Expr::Or(a, b) if !and => {
            same(a, and, sides);
            same(b, and, sides);
        }
        other => sides.push(other),
    }
}

fn sign(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "=",
        Comparison::NotEqual => "<>",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
    }
}

fn constant(value: &Value) -> String {
    let of = match value {
        Value::Null => return "NULL".to_owned(),
        Value::Bool(value) => return value.to_string(),
        Value::Int(value) => return value.to_string(),
        Value::Numeric(value) => return value.to_plain_string(),
        Value::Float(_) => Type::Float8,
        Value::Date(_) => Type::Date,
        Value::Time(_) => Type::Time,
        Value::Timestamp(_) => Type::Timestamp,
        Value::Interval(_) => Type::Interval,
        Value::Uuid(_) => Type::Uuid,
        Value::Bytes(_) => Type::Bytea,
        Value::Network(_) => Type::Inet,
        Value::Json(_) => Type::Jsonb,
        Value::Array(array) => {
            return format!("ARRAY[{}]", array.elements.iter().map(constant).collect::<Vec<_>>().join(", "));
        }
        _ => Type::Text,
    };
    format!("'{}'::{}", text::shown(value, of, Style::PLAIN).replace('\'', "''"), of.name())
}

/// A name out of that of a variant, the innermost: `Text(StartsWith)` is `starts_with`.
fn words(variant: &str) -> String {
    let name = variant.rsplit('(').next().unwrap_or_default().trim_end_matches(')');
    let mut words = String::new();
    for character in name.chars() {
        if character.is_ascii_uppercase() && !words.is_empty() {
            words.push('_');
        }
        words.push(character.to_ascii_lowercase());
    }
    words
}
