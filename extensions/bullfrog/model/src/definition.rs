//! Which queries can define a new table, and which cannot yet.

use std::fmt;

/// What matters of the query that defines a new table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Tables in `FROM`, subqueries and functions counted.
    pub relations: usize,
    /// Of these, ordinary tables.
    pub tables: usize,
    /// `GROUP BY`, `HAVING` or an aggregate.
    pub aggregates: bool,
    /// `DISTINCT`.
    pub distinct: bool,
    /// A window function.
    pub windows: bool,
    /// `UNION`, `INTERSECT` or `EXCEPT`.
    pub set_operation: bool,
    /// `ORDER BY`.
    pub order: bool,
    /// `LIMIT` or `OFFSET`.
    pub limit: bool,
    /// A function in the select list that gives several rows.
    pub set_returning: bool,
    /// A subquery in an expression.
    pub sublinks: bool,
    /// `WITH`.
    pub with: bool,
    /// `FOR UPDATE` and its like.
    pub row_locks: bool,
    /// `TABLESAMPLE`.
    pub sampled: bool,
    /// The row as a whole, or a system column such as `ctid`.
    pub whole_rows_or_system_columns: bool,
    /// A function that is not immutable: its value may change between the switch and the move.
    pub mutable: bool,
}

/// Why a query cannot define a new table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What stands in the way.
    pub what: &'static str,
    /// What to do.
    pub hint: &'static str,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

/// Checks that each row of one table gives at most one row of the new table (kind 1:1; several such queries over the same
/// table make 1:n), and the same row whenever it is asked for.
///
/// # Errors
/// A [`Refusal`]: the first thing that stands in the way.
pub fn check(shape: &Shape) -> Result<(), Refusal> {
    const ONE_TABLE: &str = "Select from one table, with expressions over its columns and a WHERE.";
    let refusals = [
        (shape.set_operation, "UNION, INTERSECT and EXCEPT are not supported", ONE_TABLE),
        (shape.with, "WITH is not supported", ONE_TABLE),
        (shape.aggregates, "aggregates are not supported yet", ONE_TABLE),
        (shape.distinct, "DISTINCT is not supported", ONE_TABLE),
        (shape.windows, "window functions are not supported", ONE_TABLE),
        (shape.set_returning, "functions that return sets are not supported", ONE_TABLE),
        (shape.sublinks, "subqueries are not supported", ONE_TABLE),
        (shape.relations > 1, "joins are not supported yet", ONE_TABLE),
        (
            shape.relations == 0,
            "there is no table to take rows from",
            "Create such a table with CREATE TABLE before the migration.",
        ),
        (shape.tables != shape.relations, "rows can be taken from an ordinary table only", ONE_TABLE),
        (shape.limit, "LIMIT is not supported", "A migration moves all rows; choose them with WHERE."),
        (shape.order, "ORDER BY is not supported", "Rows move in the order in which they are needed."),
        (shape.row_locks, "row locks are not supported", "Leave out FOR UPDATE or FOR SHARE."),
        (shape.sampled, "TABLESAMPLE is not supported", "Choose rows with WHERE."),
        (
            shape.whole_rows_or_system_columns,
            "whole rows and system columns are not supported",
            "Name the columns; a row's place and version do not move with it.",
        ),
        (
            shape.mutable,
            "an expression is not immutable",
            "Its value could differ between the switch and the move. Write a constant, or cast with an explicit time zone or format.",
        ),
    ];
    match refusals.into_iter().find(|(refused, ..)| *refused) {
        Some((_, what, hint)) => Err(Refusal { what, hint }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Shape = Shape {
        relations: 1,
        tables: 1,
        aggregates: false,
        distinct: false,
        windows: false,
        set_operation: false,
        order: false,
        limit: false,
        set_returning: false,
        sublinks: false,
        with: false,
        row_locks: false,
        sampled: false,
        whole_rows_or_system_columns: false,
        mutable: false,
    };

    #[test]
    fn expressions_over_the_columns_of_one_table_are_taken() {
        assert_eq!(check(&PLAIN), Ok(()));
    }

    #[test]
    fn what_could_move_a_row_twice_or_not_at_all_is_refused() {
        for (shape, what) in [
            (Shape { relations: 2, tables: 2, ..PLAIN }, "joins"),
            (Shape { aggregates: true, ..PLAIN }, "aggregates"),
            (Shape { set_returning: true, ..PLAIN }, "sets"),
            (Shape { limit: true, ..PLAIN }, "LIMIT"),
            (Shape { distinct: true, ..PLAIN }, "DISTINCT"),
            (Shape { sampled: true, ..PLAIN }, "TABLESAMPLE"),
        ] {
            let refusal = check(&shape).expect_err(what);
            assert!(refusal.what.contains(what), "{refusal}");
        }
    }

    #[test]
    fn what_could_differ_between_the_switch_and_the_move_is_refused() {
        assert!(check(&Shape { mutable: true, ..PLAIN }).is_err_and(|refusal| refusal.what.contains("immutable")));
        assert!(check(&Shape { whole_rows_or_system_columns: true, ..PLAIN }).is_err());
    }

    #[test]
    fn a_view_or_no_table_at_all_is_refused() {
        assert!(check(&Shape { tables: 0, ..PLAIN }).is_err_and(|refusal| refusal.what.contains("ordinary table")));
        assert!(
            check(&Shape { relations: 0, tables: 0, ..PLAIN }).is_err_and(|refusal| refusal.what.contains("no table"))
        );
    }
}
