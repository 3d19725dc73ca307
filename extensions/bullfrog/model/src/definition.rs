//! Which queries can define a new table, in which portions their rows move, and which queries cannot yet.

use std::fmt;

use crate::granule::Granule;

/// What matters of the query that defines a new table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// What is in `FROM`.
    pub relations: Vec<Relation>,
    /// What its conditions equate.
    pub matches: Vec<Match>,
    /// `FULL JOIN`.
    pub full_join: bool,
    /// `GROUP BY`, `HAVING` or an aggregate.
    pub aggregates: bool,
    /// Relations whose columns `GROUP BY` uses.
    pub grouped_by: Vec<usize>,
    /// `GROUPING SETS`, `CUBE` or `ROLLUP`.
    pub grouping_sets: bool,
    /// An aggregate whose value depends on the order of rows, which it does not tell.
    pub unordered: bool,
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

/// An entry of `FROM`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relation {
    /// It is an ordinary table.
    pub is_table: bool,
    /// An outer join may give rows without one of it.
    pub is_nullable: bool,
    /// Its size.
    pub pages: i64,
    /// The columns of each of its unique keys.
    pub unique: Vec<Vec<i16>>,
    /// The columns with which an index of it begins: its rows are found by each of them without reading all.
    pub indexed: Vec<i16>,
    /// The user wants it to drive joins.
    pub is_chosen: bool,
    /// Another new table of the migration is made of it alone: who touches that would move the rows of a join that it drives.
    pub is_alone_elsewhere: bool,
}

/// A condition of every new row: a column of a relation is equal to a column of another one, or to a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// The relation.
    pub relation: usize,
    /// Its column.
    pub column: i16,
    /// The other relation; none: a constant.
    pub by: Option<usize>,
}

/// How the rows of a new table move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Movement {
    /// The relation in whose places granules are told. Each new row comes from one row of it, or from one group.
    pub driving: usize,
    /// What is moved at a time.
    pub granule: Granule,
    /// No row (or group) gives more than one new row.
    pub is_single: bool,
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

/// Checks that each new row comes from one granule, and is the same row whenever it is asked for. Tells how they move.
///
/// # Errors
/// A [`Refusal`]: the first thing that stands in the way.
pub fn check(shape: &Shape) -> Result<Movement, Refusal> {
    const PLAIN: &str = "Select from tables and their joins, with expressions over their columns, WHERE and GROUP BY.";
    const BY_ONE: &str = "Write GROUP BY over columns of one table; an outer join must keep all rows of that table.";
    let refusals = [
        (shape.set_operation, "UNION, INTERSECT and EXCEPT are not supported", PLAIN),
        (shape.with, "WITH is not supported", PLAIN),
        (shape.distinct, "DISTINCT is not supported", "Write GROUP BY over the same columns."),
        (shape.windows, "window functions are not supported", PLAIN),
        (shape.set_returning, "functions that return sets are not supported", PLAIN),
        (shape.sublinks, "subqueries are not supported", PLAIN),
        (
            shape.relations.is_empty(),
            "there is no table to take rows from",
            "Create such a table with CREATE TABLE before the migration.",
        ),
        (
            shape.relations.iter().any(|relation| !relation.is_table),
            "rows can be taken from an ordinary table only",
            PLAIN,
        ),
        (
            shape.full_join,
            "FULL JOIN is not supported",
            "Its rows belong to no one table: write two tables, or LEFT JOIN.",
        ),
        (shape.grouping_sets, "GROUPING SETS, CUBE and ROLLUP are not supported", "Write a table for each grouping."),
        (shape.aggregates && shape.grouped_by.is_empty(), "aggregates without GROUP BY are not supported", BY_ONE),
        (shape.grouped_by.len() > 1, "GROUP BY over columns of several tables is not supported", BY_ONE),
        (
            shape.unordered,
            "an aggregate depends on the order of rows",
            "Its value could differ between the switch and the move. Write ORDER BY within it: array_agg(x ORDER BY ..).",
        ),
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
    if let Some((_, what, hint)) = refusals.into_iter().find(|(refused, ..)| *refused) {
        return Err(Refusal { what, hint });
    }
    if shape.aggregates {
        let driving = shape.grouped_by[0];
        return if shape.relations[driving].is_nullable {
            Err(Refusal {
                what: "GROUP BY over columns that an outer join may leave out is not supported",
                hint: BY_ONE,
            })
        } else {
            Ok(Movement { driving, granule: Granule::Group, is_single: true })
        };
    }
    let candidates = (0..shape.relations.len()).filter(|number| !shape.relations[*number].is_nullable);
    let best = candidates
        .map(|driving| Movement { driving, granule: Granule::Page, is_single: is_single(shape, driving) })
        // Of a foreign-key join, the referring table: its rows give one new row each. Else one from whose rows those of the others
        // are found by an index. The larger the table, the fewer new rows a page of it gives.
        .max_by_key(|movement| {
            let relation = &shape.relations[movement.driving];
            let is_lazy = (movement.is_single, finds_others(shape, movement.driving), !relation.is_alone_elsewhere);
            (relation.is_chosen, is_lazy, relation.pages, std::cmp::Reverse(movement.driving))
        });
    best.ok_or(Refusal { what: "no table keeps all of its rows in this join", hint: PLAIN })
}

/// Whether indexes lead from the rows of a relation to those of all others.
fn finds_others(shape: &Shape, driving: usize) -> bool {
    let mut found = vec![driving];
    loop {
        let next = shape.matches.iter().find(|given| {
            !found.contains(&given.relation)
                && given.by.is_some_and(|by| found.contains(&by))
                && shape.relations[given.relation].indexed.contains(&given.column)
        });
        match next {
            Some(given) => found.push(given.relation),
            None => return found.len() == shape.relations.len(),
        }
    }
}

/// Whether the conditions leave at most one row of every other relation for a row of this one: each has a unique key
/// that is equal to columns of relations which are determined already.
fn is_single(shape: &Shape, driving: usize) -> bool {
    determine(shape, vec![driving], &[])
}

/// Whether one row of each relation at most is left, where the rows of some are determined, and some columns.
fn determine(shape: &Shape, mut determined: Vec<usize>, columns: &[(usize, i16)]) -> bool {
    loop {
        let next = (0..shape.relations.len()).find(|relation| {
            let is_matched = |column: &i16| {
                columns.contains(&(*relation, *column))
                    || shape.matches.iter().any(|given| {
                        given.relation == *relation
                            && given.column == *column
                            && given.by.is_none_or(|by| determined.contains(&by))
                    })
            };
            !determined.contains(relation)
                && shape.relations[*relation].unique.iter().any(|key| key.iter().all(is_matched))
        });
        match next {
            Some(relation) => determined.push(relation),
            None => return determined.len() == shape.relations.len(),
        }
    }
}

/// Whether new rows that are equal in some columns are one row: unique keys of all relations are equal to these columns, to constants, or
/// to columns of relations whose rows are determined already. `columns` are those of relations that the new columns are.
pub fn identifies(shape: &Shape, columns: &[(usize, i16)]) -> bool {
    determine(shape, Vec::new(), columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(pages: i64, unique: &[&[i16]]) -> Relation {
        let indexed = unique.iter().map(|key| key[0]).collect();
        let unique = unique.iter().map(|key| key.to_vec()).collect();
        Relation { is_table: true, pages, unique, indexed, ..Relation::default() }
    }

    fn plain() -> Shape {
        Shape { relations: vec![table(10, &[])], ..Shape::default() }
    }

    fn equal(left: (usize, i16), right: (usize, i16)) -> [Match; 2] {
        [
            Match { relation: left.0, column: left.1, by: Some(right.0) },
            Match { relation: right.0, column: right.1, by: Some(left.0) },
        ]
    }

    #[test]
    fn rows_of_one_table_move_by_its_pages() {
        assert_eq!(check(&plain()), Ok(Movement { driving: 0, granule: Granule::Page, is_single: true }));
    }

    #[test]
    fn what_could_move_a_row_twice_or_not_at_all_is_refused() {
        for (shape, what) in [
            (Shape { full_join: true, ..plain() }, "FULL JOIN"),
            (Shape { aggregates: true, ..plain() }, "without GROUP BY"),
            (Shape { aggregates: true, grouped_by: vec![0, 1], ..plain() }, "several tables"),
            (Shape { aggregates: true, grouped_by: vec![0], grouping_sets: true, ..plain() }, "CUBE"),
            (Shape { set_returning: true, ..plain() }, "sets"),
            (Shape { limit: true, ..plain() }, "LIMIT"),
            (Shape { distinct: true, ..plain() }, "DISTINCT"),
            (Shape { sampled: true, ..plain() }, "TABLESAMPLE"),
        ] {
            let refusal = check(&shape).expect_err(what);
            assert!(refusal.what.contains(what), "{refusal}");
        }
    }

    #[test]
    fn what_could_differ_between_the_switch_and_the_move_is_refused() {
        assert!(check(&Shape { mutable: true, ..plain() }).is_err_and(|refusal| refusal.what.contains("immutable")));
        assert!(
            check(&Shape { unordered: true, ..plain() }).is_err_and(|refusal| refusal.what.contains("order of rows"))
        );
        assert!(check(&Shape { whole_rows_or_system_columns: true, ..plain() }).is_err());
    }

    #[test]
    fn a_view_or_no_table_at_all_is_refused() {
        let view = Shape { relations: vec![Relation::default()], ..plain() };
        assert!(check(&view).is_err_and(|refusal| refusal.what.contains("ordinary table")));
        assert!(check(&Shape::default()).is_err_and(|refusal| refusal.what.contains("no table")));
    }

    #[test]
    fn groups_move_by_the_table_that_they_are_told_by() {
        let mut shape = Shape {
            relations: vec![table(1000, &[&[1]]), table(10, &[&[1]])],
            aggregates: true,
            grouped_by: vec![1],
            ..Shape::default()
        };
        assert_eq!(check(&shape), Ok(Movement { driving: 1, granule: Granule::Group, is_single: true }));
        shape.relations[1].is_nullable = true;
        assert!(check(&shape).is_err_and(|refusal| refusal.what.contains("leave out")));
    }

    #[test]
    fn a_foreign_key_join_moves_by_the_referring_table_whatever_its_size() {
        // order_line (order, ..) refers to orders (id).
        for pages in [1, 1000] {
            let shape = Shape {
                relations: vec![table(10, &[&[1]]), table(pages, &[&[1, 2]])],
                matches: equal((0, 1), (1, 1)).to_vec(),
                ..Shape::default()
            };
            assert_eq!(check(&shape), Ok(Movement { driving: 1, granule: Granule::Page, is_single: true }));
        }
    }

    #[test]
    fn a_join_moves_by_the_table_from_which_indexes_lead_to_the_others() {
        // The second table has a key of two columns that begins with the one that is equal; the first one has no index on it.
        let shape = Shape {
            relations: vec![table(10, &[&[7, 8]]), table(20, &[&[1, 2]])],
            matches: equal((0, 3), (1, 1)).to_vec(),
            ..Shape::default()
        };
        assert_eq!(check(&shape).map(|movement| movement.driving), Ok(0));
        let mut both = shape.clone();
        both.relations[0].indexed.push(3);
        assert_eq!(check(&both).map(|movement| movement.driving), Ok(1));
    }

    #[test]
    fn a_many_to_many_join_moves_by_the_larger_table_and_the_first_of_equals() {
        let join = |first, second| Shape {
            relations: vec![table(first, &[]), table(second, &[])],
            matches: equal((0, 2), (1, 2)).to_vec(),
            ..Shape::default()
        };
        assert_eq!(check(&join(10, 20)), Ok(Movement { driving: 1, granule: Granule::Page, is_single: false }));
        assert_eq!(check(&join(20, 10)), Ok(Movement { driving: 0, granule: Granule::Page, is_single: false }));
        assert_eq!(check(&join(10, 10)), Ok(Movement { driving: 0, granule: Granule::Page, is_single: false }));
    }

    #[test]
    fn a_table_that_is_moved_by_itself_drives_no_join_if_another_can() {
        let mut shape = Shape {
            relations: vec![table(10, &[]), table(20, &[])],
            matches: equal((0, 2), (1, 2)).to_vec(),
            ..plain()
        };
        shape.relations[1].is_alone_elsewhere = true;
        assert_eq!(check(&shape).map(|movement| movement.driving), Ok(0));
        // Not if its rows had to be looked up without an index then.
        shape.relations[0].indexed.push(2);
        assert_eq!(check(&shape).map(|movement| movement.driving), Ok(1));
    }

    #[test]
    fn a_join_moves_by_the_table_that_was_chosen_for_it_if_that_keeps_its_rows() {
        let mut shape = Shape {
            relations: vec![table(10, &[&[1]]), table(1000, &[&[1, 2]])],
            matches: equal((0, 1), (1, 1)).to_vec(),
            ..plain()
        };
        shape.relations[0].is_chosen = true;
        assert_eq!(check(&shape), Ok(Movement { driving: 0, granule: Granule::Page, is_single: false }));
        shape.relations[0].is_nullable = true;
        assert_eq!(check(&shape).map(|movement| movement.driving), Ok(1));
    }

    #[test]
    fn the_side_that_an_outer_join_may_leave_out_never_drives() {
        let mut shape = Shape { relations: vec![table(1, &[]), table(1000, &[])], ..Shape::default() };
        shape.relations[1].is_nullable = true;
        assert_eq!(check(&shape).map(|movement| movement.driving), Ok(0));
    }

    #[test]
    fn keys_along_a_chain_leave_one_row_and_keys_in_a_circle_do_not() {
        let chain = Shape {
            relations: vec![table(1, &[]), table(1, &[&[1]]), table(1, &[&[1, 2]])],
            matches: [equal((0, 5), (1, 1)), equal((1, 7), (2, 1))]
                .concat()
                .into_iter()
                .chain([Match { relation: 2, column: 2, by: None }])
                .collect(),
            ..Shape::default()
        };
        assert!(is_single(&chain, 0));
        // The second and the third determine each other, and nothing determines them.
        let circle = Shape {
            relations: vec![table(1, &[]), table(1, &[&[1]]), table(1, &[&[1]])],
            matches: equal((1, 1), (2, 1)).to_vec(),
            ..Shape::default()
        };
        assert!(!is_single(&circle, 0));
    }
    #[test]
    fn columns_identify_a_new_row_if_they_determine_a_key_of_each_relation() {
        // A key of two columns in each; the first of the second one's is equal to a column of the first relation.
        let shape = Shape {
            relations: vec![table(1, &[&[1, 2]]), table(1, &[&[1, 2]])],
            matches: equal((0, 5), (1, 1)).to_vec(),
            ..Shape::default()
        };
        assert!(identifies(&shape, &[(0, 1), (0, 2), (1, 2)]));
        assert!(identifies(&shape, &[(0, 1), (0, 2), (1, 1), (1, 2)]));
        // Some row of the second relation, a part of the key, or nothing of the first one.
        assert!(!identifies(&shape, &[(0, 1), (0, 2)]));
        assert!(!identifies(&shape, &[(0, 1), (1, 2)]));
        assert!(!identifies(&shape, &[(1, 1), (1, 2)]));
        assert!(!identifies(&Shape { matches: Vec::new(), ..shape }, &[(0, 1), (0, 2), (1, 2)]));
    }
}
