//! What is computed of a row, or of the rows of a group.

use std::ops::{Add, Div, Mul, Neg, Not, Rem, Sub};

use crate::{path, quoted};

/// An expression: a column, a constant, or what is made of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an expression does nothing until it is a part of a frame"]
pub struct Expression {
    sql: String,
    alias: Option<String>,
}

/// A column by its name; `a.id` is column `id` of the frame that is called `a`, or field `id` of column `a`.
pub fn col(name: &str) -> Expression {
    Expression::of(path(name))
}

/// A constant.
pub fn lit(value: impl IntoLiteral) -> Expression {
    Expression::of(value.into_literal())
}

/// A function of SQL, one's own included.
pub fn call(function: &str, arguments: impl IntoIterator<Item = Expression>) -> Expression {
    let arguments: Vec<String> = arguments.into_iter().map(|argument| argument.sql).collect();
    Expression::of(format!("{}({})", quoted(function), arguments.join(", ")))
}

/// SQL as it is, for what there is no function of Rust for: `raw("CASE WHEN price > 100 THEN 'dear' END")`. It is not looked at here: never put together from
/// what others send.
pub fn raw(sql: &str) -> Expression {
    Expression::of(format!("({sql})"))
}

/// How many rows.
pub fn count() -> Expression {
    Expression::of("count(*)".to_owned())
}

/// How many rows in which it is not NULL.
pub fn count_of(of: Expression) -> Expression {
    of.within("count")
}

/// The sum.
pub fn sum(of: Expression) -> Expression {
    of.within("sum")
}

/// The least.
pub fn min(of: Expression) -> Expression {
    of.within("min")
}

/// The greatest.
pub fn max(of: Expression) -> Expression {
    of.within("max")
}

/// The mean.
pub fn avg(of: Expression) -> Expression {
    of.within("avg")
}

impl Expression {
    fn of(sql: String) -> Self {
        Self { sql, alias: None }
    }

    fn within(self, function: &str) -> Self {
        Self::of(format!("{function}({})", self.sql))
    }

    fn with(self, operator: &str, other: &Self) -> Self {
        Self::of(format!("({} {operator} {})", self.sql, other.sql))
    }

    /// The same under another name, as a column of the frame's result.
    pub fn alias(self, name: &str) -> Self {
        Self { alias: Some(name.to_owned()), ..self }
    }

    /// Whether both are equal.
    pub fn eq(self, other: Self) -> Self {
        self.with("=", &other)
    }

    /// Whether they differ.
    pub fn not_eq(self, other: Self) -> Self {
        self.with("<>", &other)
    }

    /// Whether it is less.
    pub fn lt(self, other: Self) -> Self {
        self.with("<", &other)
    }

    /// Whether it is at most as much.
    pub fn lt_eq(self, other: Self) -> Self {
        self.with("<=", &other)
    }

    /// Whether it is more.
    pub fn gt(self, other: Self) -> Self {
        self.with(">", &other)
    }

    /// Whether it is at least as much.
    pub fn gt_eq(self, other: Self) -> Self {
        self.with(">=", &other)
    }

    /// Whether both are so.
    pub fn and(self, other: Self) -> Self {
        self.with("AND", &other)
    }

    /// Whether one of both is so.
    pub fn or(self, other: Self) -> Self {
        self.with("OR", &other)
    }

    /// Whether there is no value.
    pub fn is_null(self) -> Self {
        Self::of(format!("({} IS NULL)", self.sql))
    }

    /// Whether there is a value.
    pub fn is_not_null(self) -> Self {
        Self::of(format!("({} IS NOT NULL)", self.sql))
    }

    /// As another type of SQL, such as `BIGINT`.
    pub fn cast(self, to: &str) -> Self {
        Self::of(format!("CAST({} AS {to})", self.sql))
    }

    /// Of an aggregate: over those rows alone for which this is so.
    pub fn filter(self, condition: Self) -> Self {
        Self::of(format!("{} FILTER (WHERE {})", self.sql, condition.sql))
    }

    /// As it is computed, without its name.
    pub(crate) fn sql(&self) -> &str {
        &self.sql
    }

    /// As it stands among the columns of a result.
    pub(crate) fn selected(&self) -> String {
        match &self.alias {
            Some(alias) => format!("{} AS {}", self.sql, quoted(alias)),
            None => self.sql.clone(),
        }
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $sql:literal) => {
        impl $trait for Expression {
            type Output = Self;

            fn $method(self, other: Self) -> Self {
                self.with($sql, &other)
            }
        }
    };
}

operator!(Add, add, "+");
operator!(Sub, sub, "-");
operator!(Mul, mul, "*");
operator!(Div, div, "/");
operator!(Rem, rem, "%");

impl Neg for Expression {
    type Output = Self;

    fn neg(self) -> Self {
        Self::of(format!("(- {})", self.sql))
    }
}

impl Not for Expression {
    type Output = Self;

    fn not(self) -> Self {
        Self::of(format!("(NOT {})", self.sql))
    }
}

/// What is a constant of SQL.
pub trait IntoLiteral {
    /// As SQL writes it.
    fn into_literal(self) -> String;
}

impl IntoLiteral for i64 {
    fn into_literal(self) -> String {
        // The lowest number has no positive counterpart that a minus could stand before.
        if self < 0 { format!("CAST('{self}' AS BIGINT)") } else { self.to_string() }
    }
}

impl IntoLiteral for i32 {
    fn into_literal(self) -> String {
        i64::from(self).into_literal()
    }
}

impl IntoLiteral for f64 {
    fn into_literal(self) -> String {
        format!("CAST('{self}' AS DOUBLE)")
    }
}

impl IntoLiteral for bool {
    fn into_literal(self) -> String {
        if self { "TRUE" } else { "FALSE" }.to_owned()
    }
}

impl IntoLiteral for &str {
    fn into_literal(self) -> String {
        format!("'{}'", self.replace('\'', "''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_those_of_sql() {
        assert_eq!(col("a.id").sql(), "`a`.`id`");
        assert_eq!((col("price") * lit(2) + lit(1)).sql(), "((`price` * 2) + 1)");
        assert_eq!((!col("a").gt(lit(1)).and(col("b").is_null())).sql(), "(NOT ((`a` > 1) AND (`b` IS NULL)))");
        assert_eq!(sum(col("price")).filter(col("x").eq(lit(true))).sql(), "sum(`price`) FILTER (WHERE (`x` = TRUE))");
        assert_eq!(max(col("price")).alias("most").selected(), "max(`price`) AS `most`");
        assert_eq!(call("lower", [col("channel")]).sql(), "`lower`(`channel`)");
    }

    #[test]
    fn names_and_constants_stay_what_they_are_whatever_is_in_them() {
        assert_eq!(col("a`b").sql(), "`a``b`");
        assert_eq!(lit("it's").sql(), "'it''s'");
        assert_eq!(lit(i64::MIN).sql(), "CAST('-9223372036854775808' AS BIGINT)");
        assert_eq!(col("a").alias("b` FROM x").selected(), "`a` AS `b`` FROM x`");
    }
}
