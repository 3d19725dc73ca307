//! Cursors of SQL: the rows of a query, and a place among them.

use std::{ops::Range, sync::Arc};

use savanna_tenants_execution::spill::{Shelf, Spool, SpoolRows};
use savanna_tenants_sql::{
    interrupt::Interrupts,
    plan::OutputColumn,
    prepare::cursor::{CursorOptions, Direction},
};
use savanna_tenants_store::spills::Spills;
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::Value,
};

use serde::{Deserialize, Serialize};

use crate::session::Suspended;

/// Bytes of rows that the cursors of a session keep.
const BYTES_MAX: usize = 256 << 20;

/// A cursor.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) columns: Vec<OutputColumn>,
    /// The statement that made it, and when.
    pub(crate) made_by: (String, i64),
    /// A query whose rows are read as they are asked for. None are kept then.
    pub(crate) coming: Option<Box<Suspended>>,
    rows: Shelf,
    /// Bytes of these that are in memory.
    bytes: usize,
    /// The number of the row that it is on, from 1; 0 before the first, and one more than there are behind the last.
    at: usize,
    pub(crate) options: CursorOptions,
    /// Whether it went behind the last row that comes.
    at_end: bool,
    /// Savepoints that were there when it was made; `None` once its transaction has committed.
    pub(crate) savepoints: Option<usize>,
}

/// What is there when a cursor comes to be.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) savepoints: usize,
    /// Bytes of the session's other cursors.
    pub(crate) others: usize,
    /// Where rows go that there is no memory for.
    pub(crate) spills: Option<&'a Arc<Spills>>,
    /// By what putting them there is ended.
    pub(crate) interrupts: &'a Interrupts,
}

/// A cursor of a session that goes on at another node, but for the query whose rows are still to come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CursorImage {
    name: String,
    columns: Vec<OutputColumn>,
    made_by: (String, i64),
    rows: Vec<Vec<Value>>,
    bytes: u64,
    at: u64,
    options: CursorOptions,
    at_end: bool,
    savepoints: Option<u64>,
}

impl CursorImage {
    /// The cursor and its name, with the query whose rows are still to come.
    pub(crate) fn restored(&self, coming: Option<Suspended>) -> (String, Cursor) {
        let cursor = Cursor {
            columns: self.columns.clone(),
            made_by: self.made_by.clone(),
            coming: coming.map(Box::new),
            rows: Spool::from(self.rows.clone()).into(),
            bytes: self.bytes as usize,
            at: self.at as usize,
            options: self.options,
            at_end: self.at_end,
            savepoints: self.savepoints.map(|savepoints| savepoints as usize),
        };
        (self.name.clone(), cursor)
    }
}

impl Cursor {
    /// The cursor of this name for another node, without what is still to come.
    pub(crate) fn into_image(self, name: String) -> CursorImage {
        let Self { columns, made_by, rows, bytes, at, options, at_end, savepoints, coming: _ } = self;
        let savepoints = savepoints.map(|savepoints| savepoints as u64);
        let rows = rows.kept().to_vec();
        CursorImage { name, columns, made_by, rows, bytes: bytes as u64, at: at as u64, options, at_end, savepoints }
    }

    /// A cursor before its first row.
    ///
    /// # Errors
    /// 53200.
    pub(crate) fn new(
        columns: Vec<OutputColumn>,
        rows: Spool,
        options: CursorOptions,
        around: Around<'_>,
    ) -> Result<Self> {
        let mut cursor = Self::empty(columns, None, options, around.savepoints);
        cursor.keep(rows, around)?;
        Ok(cursor)
    }

    /// A cursor before the first row of a query that was not run yet.
    pub(crate) fn suspended(
        columns: Vec<OutputColumn>,
        query: Suspended,
        options: CursorOptions,
        savepoints: usize,
    ) -> Self {
        Self::empty(columns, Some(Box::new(query)), options, savepoints)
    }

    fn empty(
        columns: Vec<OutputColumn>,
        coming: Option<Box<Suspended>>,
        options: CursorOptions,
        savepoints: usize,
    ) -> Self {
        let (made_by, savepoints) = ((String::new(), 0), Some(savepoints));
        Self { columns, made_by, coming, rows: Shelf::default(), bytes: 0, at: 0, at_end: false, options, savepoints }
    }

    /// Whether rows are more than the cursors of a session keep in memory: they go to a file when it keeps them.
    pub(crate) fn are_too_many(rows: &Spool, others: usize) -> bool {
        others + rows.bytes() > BYTES_MAX
    }

    /// Keeps all rows from here on. Those that memory is not for go to a file.
    ///
    /// # Errors
    /// 53200 if there is no place for files, 53100, 53400, 57014.
    pub(crate) fn keep(&mut self, mut rows: Spool, around: Around<'_>) -> Result<()> {
        if let Some(spills) = around.spills
            && Self::are_too_many(&rows, around.others)
        {
            rows.put_away(spills, || around.interrupts.check())?;
        }
        let bytes = rows.bytes();
        if around.others + bytes > BYTES_MAX {
            let message = format!("the cursors of a session keep at most {} MiB of rows", BYTES_MAX >> 20);
            return Err(
                SqlError::new(state::OUT_OF_MEMORY, message).hint("Read fewer rows or columns, or close cursors.")
            );
        }
        (self.rows, self.bytes, self.coming) = (rows.into(), bytes, None);
        Ok(())
    }

    /// Notes that so many rows more were met, and perhaps the end.
    pub(crate) fn passed(&mut self, rows: usize, end: bool) {
        self.at += rows + usize::from(end && !self.at_end);
        self.at_end |= end;
    }

    /// Bytes of its rows in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether its rows are in a file.
    pub(crate) fn is_filed(&self) -> bool {
        self.rows.is_filed()
    }

    /// Goes somewhere, over these rows. None of them is read for that.
    ///
    /// # Errors
    /// 55000 for a way back that it does not go.
    pub(crate) fn go(&mut self, direction: Direction) -> Result<SpoolRows> {
        let (count, at) = (self.rows.len() as i64, self.at as i64);
        // Numbers of the rows that are met, whether the last one comes first, and where it is then.
        let one = |to: i64| {
            let to = to.clamp(0, count + 1);
            let met = if (1..=count).contains(&to) { to..to + 1 } else { 0..0 };
            (met, false, to)
        };
        let forward = |steps: i64| {
            let to = at.saturating_add(steps);
            (at + 1..to.min(count) + 1, false, to.min(count + 1))
        };
        let backward = |steps: i64| {
            let to = at.saturating_sub(steps);
            (to.max(1)..at, true, to.max(0))
        };
        let (met, backwards, to): (Range<i64>, bool, i64) = match direction {
            Direction::Forward(0) | Direction::Relative(0) => one(at),
            Direction::Forward(steps) if steps > 0 => forward(steps),
            Direction::Forward(steps) => backward(steps.saturating_neg()),
            Direction::ForwardAll => forward(i64::MAX),
            Direction::BackwardAll => backward(i64::MAX),
            Direction::Absolute(number) if number < 0 => one((count + 1).saturating_add(number)),
            Direction::Absolute(number) => one(number),
            Direction::Relative(steps) => one(at.saturating_add(steps)),
        };
        let again = matches!(direction, Direction::Forward(0) | Direction::Relative(0)) && !met.is_empty();
        if !self.options.scroll && (to < at || again) {
            let error = SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, "cursor can only scan forward");
            return Err(error.hint("Declare it with SCROLL option to enable backward scan."));
        }
        self.at = to as usize;
        if met.is_empty() {
            return Ok(SpoolRows::default());
        }
        Ok(self.rows.part(met.start as usize - 1..met.end as usize - 1, backwards))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_goes_where_postgresqls_goes() {
        use Direction::{Absolute, BackwardAll, Forward, ForwardAll, Relative};
        let rows: Vec<_> = (1..=5).map(|number| vec![Value::Int(number)]).collect();
        let options = CursorOptions { scroll: true, hold: false };
        let around = Around { savepoints: 0, others: 0, spills: None, interrupts: &Interrupts::default() };
        let mut cursor = Cursor::new(Vec::new(), rows.into(), options, around).unwrap();
        let mut go = |direction| -> Vec<i64> {
            let number = |row: Result<Vec<Value>>| if let Value::Int(number) = row.unwrap()[0] { number } else { 0 };
            cursor.go(direction).unwrap().map(number).collect()
        };
        assert_eq!(go(Forward(2)), [1, 2]);
        assert_eq!(go(Forward(0)), [2]);
        assert_eq!(go(Forward(9)), [3, 4, 5]);
        assert_eq!(go(Forward(1)), [0; 0]);
        assert_eq!(go(Forward(-2)), [5, 4]);
        assert_eq!(go(Relative(-2)), [2]);
        assert_eq!(go(Absolute(-1)), [5]);
        assert_eq!(go(BackwardAll), [4, 3, 2, 1]);
        assert_eq!(go(Forward(0)), [0; 0]);
        assert_eq!(go(Relative(3)), [3]);
        assert_eq!(go(ForwardAll), [4, 5]);
        assert_eq!(go(Absolute(0)), [0; 0]);
        assert_eq!(go(Absolute(i64::MIN)), [0; 0]);
        assert_eq!(go(Forward(i64::MAX)), [1, 2, 3, 4, 5]);
    }
}
