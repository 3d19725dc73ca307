//! Runs the nodes of a join: each fills its part of the row and gives it on, once for each of its rows.

mod kept;
mod parted;

use std::{cell::RefCell, collections::HashSet, ops::ControlFlow, rc::Rc};

use savanna_tenants_catalog::{Index, Table, row};
use savanna_tenants_sql::{
    expression::{Env, Expr, rows::fingerprint},
    plan::{
        access::{self, Bound, Each, Way},
        query::{FullJoin, Join, Joined, Keep, Node, Rows, Scan},
    },
};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    memory::Memory,
    value::Value,
};
use savanna_transaction::{Direction, KeyRange};

pub(crate) use self::kept::Kept;
use self::{
    kept::{InFiles, Keeping, KeptRows, parts},
    parted::{Waiting, kept_right},
};
use crate::{Run, query::project};

/// Rows of a scan that are read at once.
const BATCH_ROWS: usize = 1_024;

/// A joined row on its way.
pub(crate) struct Row {
    pub(crate) values: Vec<Value>,
    /// The keys of tables' rows, as far as they are noted.
    pub(crate) keys: Vec<Vec<u8>>,
    /// Rows that are the same as long as the row around the query is, by number.
    kept: Vec<(usize, Rc<Kept>)>,
    /// Bytes of memory that these hold.
    held: usize,
    /// Rows that a scan reads at first; then twice as many each time.
    ahead: usize,
    /// Whether rows have to come in the order of the first table.
    in_order: bool,
}

/// Whom rows are given to; it may stop their coming.
pub(crate) type Emit<'e> = dyn FnMut(&mut Row) -> Result<ControlFlow<()>> + 'e;

/// Whom rows are given to with a key of a range and that of the row.
pub(crate) type EmitKeyed<'e> = dyn FnMut(&[u8], &[u8], &mut Row) -> Flow + 'e;

pub(crate) type Flow = Result<ControlFlow<()>>;

pub(crate) const ON: Flow = Ok(ControlFlow::Continue(()));

/// Keys and values that were read, one behind the other, with their ends.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl Batch {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend(key);
        let key_end = self.bytes.len();
        self.bytes.extend(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let begins = std::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        begins.zip(&self.ends).map(|(begin, (key, end))| (&self.bytes[begin..*key], &self.bytes[*key..*end]))
    }
}

impl Run<'_> {
    /// Gives joined rows to `emit`, after the columns `around` the query. Scans begin with so many rows.
    pub(crate) fn joined(
        &self,
        joined: &Joined,
        around: Vec<Value>,
        ahead: Option<usize>,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let Some(mut row) = self.begin_row(joined, around, ahead)? else { return Ok(()) };
        let joined = self.each(&joined.node, &mut row, emit);
        drop(self.facts.lent.adopt(row.held));
        joined.map(drop)
    }

    /// A row to be joined, unless there is none because of a condition that no table has to do with.
    pub(crate) fn begin_row(&self, joined: &Joined, around: Vec<Value>, ahead: Option<usize>) -> Result<Option<Row>> {
        let mut values = around;
        values.resize(joined.width, Value::Null);
        if let Some(condition) = &joined.condition
            && !condition.holds(self.env().with_row(&values))?
        {
            return Ok(None);
        }
        let ahead = ahead.map_or(BATCH_ROWS, |rows| rows.clamp(1, BATCH_ROWS));
        Ok(Some(Row {
            values,
            keys: vec![Vec::new(); joined.keys],
            kept: Vec::new(),
            held: 0,
            ahead,
            in_order: joined.in_order,
        }))
    }

    fn each(&self, node: &Node, row: &mut Row, emit: &mut Emit<'_>) -> Flow {
        let Some(counts) = &self.counts else { return self.run_node(node, row, emit) };
        counts.begin(node);
        self.run_node(node, row, &mut |row| {
            counts.row(node);
            emit(row)
        })
    }

    fn run_node(&self, node: &Node, row: &mut Row, emit: &mut Emit<'_>) -> Flow {
        match node {
            Node::One => emit(row),
            Node::Scan(scan) => self.scan(scan, row, emit),
            Node::Rows(rows) => self.rows(rows, row, emit),
            Node::Filter { input, condition } => self.each(input, row, &mut |row| match self.holds(condition, row)? {
                true => emit(row),
                false => ON,
            }),
            Node::Join(join) => self.join(join, row, emit),
            Node::Full(join) => self.full(join, row, emit),
            Node::Keep(keep) => {
                let kept = self.keep(keep, InFiles::No, row)?;
                let Kept::Here(kept) = &*kept else {
                    return Err(SqlError::internal("a part of rows is asked for all"));
                };
                for place in kept.matches(self, keep, row)? {
                    self.goes_on()?;
                    kept.show(place, keep, row)?;
                    if emit(row)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                ON
            }
        }
    }

    pub(crate) fn holds(&self, condition: &Expr, row: &Row) -> Result<bool> {
        condition.holds(self.env().with_row(&row.values))
    }

    /// Whether the rows of a join may be in files: it runs once, and nobody wants them in the order of the first table. From files each part is read and hashed
    /// again for whoever asks for a single row, or that row by itself.
    fn may_use_files(&self, row: &Row) -> bool {
        !row.in_order && !self.repeats.get() && self.spills.is_some()
    }

    fn join(&self, join: &Join, row: &mut Row, emit: &mut Emit<'_>) -> Flow {
        let Some(keep) = kept_right(join).filter(|_| self.may_use_files(row)) else {
            return self.each(&join.left, row, &mut |row| self.join_right(join, row, emit));
        };
        // Not known before the first row of the left side; then the parts of the right side, or none if it is in memory.
        let mut right: Option<Rc<Kept>> = None;
        let mut waiting = None;
        let flow = self.each(&join.left, row, &mut |row| {
            let kept = match &right {
                Some(kept) => kept,
                None => right.insert(self.keep(keep, InFiles::AndParted, row)?),
            };
            if let Kept::Here(_) = &**kept {
                return self.join_right(join, row, emit);
            }
            self.wait(keep, &mut waiting, row, &mut |row| match &join.optional {
                Some(part) => {
                    row.values[part.clone()].fill(Value::Null);
                    emit(row)
                }
                None => ON,
            })
        })?;
        let Some(waiting) = waiting.filter(|_| flow.is_continue()) else { return Ok(flow) };
        // Nobody asks for them again, so their file is closed as soon as they are read.
        self.forget_kept(keep, row);
        let right = right.map_or_else(Vec::new, parts);
        self.join_parts(join, keep, self.beside(waiting, keep, right)?, row, emit)
    }

    /// Puts a row of the left side to those that wait for their part of the right side, unless it has none.
    fn wait<'r>(&'r self, keep: &Keep, waiting: &mut Option<Waiting<'r>>, row: &mut Row, alone: &mut Emit<'_>) -> Flow {
        let key = match &keep.lookup {
            Some(lookup) => self.fingerprint_of(&lookup.probe, row)?,
            None => None,
        };
        let Some(key) = key else { return alone(row) };
        let waiting = match waiting {
            Some(waiting) => waiting,
            None => waiting.insert(Waiting::new(self, 0)?),
        };
        waiting.add(key, row)?;
        ON
    }

    /// Joins a row of the left side with those of the right side.
    pub(crate) fn join_right(&self, join: &Join, row: &mut Row, emit: &mut Emit<'_>) -> Flow {
        let mut any = false;
        let flow = self.repeated(|| {
            self.each(&join.right, row, &mut |row| {
                any = true;
                emit(row)
            })
        })?;
        match &join.optional {
            Some(part) if !any => {
                row.values[part.clone()].fill(Value::Null);
                emit(row)
            }
            _ => Ok(flow),
        }
    }

    fn full(&self, join: &FullJoin, row: &mut Row, emit: &mut Emit<'_>) -> Flow {
        let in_files = if self.may_use_files(row) { InFiles::AndParted } else { InFiles::No };
        let right = self.keep(&join.right, in_files, row)?;
        match &*right {
            Kept::Here(right) => {
                let (mut matched, _memory) = self.unmatched(right)?;
                let mut each = |row: &mut Row| self.full_row(join, (right, &mut matched), row, emit);
                let flow = self.each(&join.left, row, &mut each)?;
                if flow.is_break() { Ok(flow) } else { self.full_rest(join, (right, &matched), row, emit) }
            }
            Kept::Parted(_) => {
                let mut waiting = Some(Waiting::new(self, 0)?);
                let flow = self.each(&join.left, row, &mut |row| {
                    self.wait(&join.right, &mut waiting, row, &mut |row| {
                        row.values[join.right.part.clone()].fill(Value::Null);
                        emit(row)
                    })
                })?;
                let Some(waiting) = waiting.filter(|_| flow.is_continue()) else { return Ok(flow) };
                self.forget_kept(&join.right, row);
                self.full_parts(join, self.beside(waiting, &join.right, parts(right))?, row, emit)
            }
        }
    }

    /// Which of the rows of the right side have one on the left side: none yet.
    fn unmatched(&self, right: &KeptRows) -> Result<(Vec<bool>, Memory<'_>)> {
        let mut memory = self.memory();
        memory.take_bytes(right.rows.len())?;
        Ok((vec![false; right.rows.len()], memory))
    }

    /// Joins a row of the left side with all that it has on the right side.
    fn full_row(
        &self,
        join: &FullJoin,
        (right, matched): (&KeptRows, &mut [bool]),
        row: &mut Row,
        emit: &mut Emit<'_>,
    ) -> Flow {
        let mut any = false;
        for place in right.matches(self, &join.right, row)? {
            self.goes_on()?;
            right.show(place, &join.right, row)?;
            if join.condition.as_ref().map_or(Ok(true), |condition| self.holds(condition, row))? {
                any = true;
                matched[place] = true;
                if emit(row)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        if any {
            return ON;
        }
        row.values[join.right.part.clone()].fill(Value::Null);
        emit(row)
    }

    /// Gives the rows of the right side that have none on the left side.
    fn full_rest(
        &self,
        join: &FullJoin,
        (right, matched): (&KeptRows, &[bool]),
        row: &mut Row,
        emit: &mut Emit<'_>,
    ) -> Flow {
        row.values[join.left_part.clone()].fill(Value::Null);
        for place in (0..matched.len()).filter(|place| !matched[*place]) {
            self.goes_on_after(0)?;
            right.show(place, &join.right, row)?;
            if emit(row)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        ON
    }

    /// The rows of a node that are kept; they are read when somebody asks first. If there is no memory for them they go to files, if they may.
    fn keep(&self, keep: &Keep, in_files: InFiles, row: &mut Row) -> Result<Rc<Kept>> {
        let found = match keep.varies {
            true => row.kept.iter().find(|(id, _)| *id == keep.id).map(|(_, kept)| Rc::clone(kept)),
            false => self.kept.borrow().get(&keep.id).map(Rc::clone),
        };
        if let Some(kept) = found {
            return Ok(kept);
        }
        let mut keeping = Keeping::new(self, keep, in_files, 0);
        // They are read once if they may be in files.
        let repeats = self.repeats.replace(matches!(in_files, InFiles::No));
        let ahead = std::mem::replace(&mut row.ahead, BATCH_ROWS);
        let all = self.each(&keep.input, row, &mut |row| {
            let key = match &keep.lookup {
                Some(lookup) => self.fingerprint_of(&lookup.own, row)?,
                None => None,
            };
            let keys = keep.keys.iter().map(|key| Value::Bytes(row.keys[*key].clone()));
            keeping.add(key, row.values[keep.part.clone()].iter().cloned().chain(keys).collect())?;
            ON
        });
        self.repeats.set(repeats);
        all.map(drop)?;
        row.ahead = ahead;
        let (kept, memory) = keeping.finish()?;
        let kept = Rc::new(kept);
        if keep.varies {
            row.held += memory.bytes();
        }
        memory.keep();
        self.put_kept(keep, &kept, row);
        Ok(kept)
    }

    /// Makes these the rows of a node that are kept.
    fn put_kept(&self, keep: &Keep, kept: &Rc<Kept>, row: &mut Row) {
        let kept = Rc::clone(kept);
        match keep.varies {
            true => row.kept.push((keep.id, kept)),
            false => _ = self.kept.borrow_mut().insert(keep.id, kept),
        }
    }

    /// Keeps the rows of a node no longer.
    fn forget_kept(&self, keep: &Keep, row: &mut Row) {
        self.kept.borrow_mut().remove(&keep.id);
        row.kept.retain(|(id, _)| *id != keep.id);
    }

    /// Bytes that are equal for equal values; `None` if one is NULL, which equals nothing.
    fn fingerprint_of(&self, exprs: &[Expr], row: &Row) -> Result<Option<Vec<u8>>> {
        let env = self.env().with_row(&row.values);
        let values = project(exprs, env)?;
        if values.iter().any(Value::is_null) {
            return Ok(None);
        }
        fingerprint(&values).map(Some)
    }

    /// The rows of a query in FROM.
    fn rows(&self, rows: &Rows, row: &mut Row, emit: &mut Emit<'_>) -> Flow {
        let around = self.around(&rows.query, &rows.arguments, &row.values)?;
        let ahead = Some(row.ahead);
        let mut flow = ControlFlow::Continue(());
        self.produce(&rows.query, around, ahead, &mut |values| {
            for (at, value) in values.into_iter().enumerate() {
                row.values[rows.base + at] = value;
            }
            flow = emit(row)?;
            Ok(flow)
        })?;
        Ok(flow)
    }

    fn scan(&self, scan: &Scan, row: &mut Row, emit: &mut Emit<'_>) -> Flow {
        self.reads(&scan.table)?;
        if let Some(each) = &scan.access.each {
            return self.scan_each(scan, each, row, emit);
        }
        if let [way] = scan.access.ways.as_slice() {
            return self.find(scan, way, row, &mut |_, row| emit(row));
        }
        let (mut met, mut memory) = (HashSet::new(), self.memory());
        for way in &scan.access.ways {
            let flow = self.find(scan, way, row, &mut |key, row| {
                if !met.insert(key.to_vec()) {
                    return ON;
                }
                memory.take_bytes(size_of::<Vec<u8>>() + key.len())?;
                emit(row)
            })?;
            if flow.is_break() {
                return Ok(flow);
            }
        }
        ON
    }

    /// The rows that have one of an array's elements in a column: those of each element, which are others than those of the next.
    fn scan_each(&self, scan: &Scan, each: &Each, row: &mut Row, emit: &mut Emit<'_>) -> Flow {
        let Value::Array(array) = each.array.owned(self.env().with_row(&row.values))? else { return ON };
        let mut elements: Vec<&Value> = array.elements.iter().filter(|element| !element.is_null()).collect();
        elements.sort_by(|a, b| a.compare(b));
        elements.dedup_by(|a, b| a.compare(b).is_eq());
        if each.at_most.is_some_and(|count| elements.len() > count) {
            return self.find(scan, &Way::ALL, row, &mut |_, row| {
                let is_one = elements.binary_search_by(|element| element.compare(&row.values[each.column])).is_ok();
                if is_one { emit(row) } else { ON }
            });
        }
        for element in elements {
            for way in &scan.access.ways {
                row.values[each.column] = element.clone();
                if self.find(scan, way, row, &mut |_, row| emit(row))?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        ON
    }

    /// The rows of one way with their keys.
    fn find(&self, scan: &Scan, way: &Way, row: &mut Row, emit: &mut dyn FnMut(&[u8], &mut Row) -> Flow) -> Flow {
        let table = &*scan.table;
        let env = self.env();
        match way {
            Way::Key(key) => {
                let columns = primary_columns(table);
                match access::key(table.relation, &columns, key, env.with_row(&row.values))? {
                    Some(key) if self.read(scan, &key, row)? => emit(&key, row),
                    _ => ON,
                }
            }
            Way::Unique { index, key } => {
                let index = &table.indexes[*index];
                let entry = access::key(index.relation, &index.parts, key, env.with_row(&row.values))?;
                let Some(entry) = entry else { return ON };
                let key = self.database().get(self.txn, &entry)?.map(|suffix| row_key(table, suffix));
                match key {
                    Some(key) if self.read(scan, &key, row)? => emit(&key, row),
                    _ => ON,
                }
            }
            Way::Range { index, equal, lower, upper } => {
                let index = index.map(|index| &table.indexes[index]);
                match range_of(table, index, equal, (lower, upper), env.with_row(&row.values))? {
                    Some(range) => self.find_range(scan, index, range, row, &mut |_, key, row| emit(key, row)),
                    None => ON,
                }
            }
        }
    }

    /// The rows of a range of the table or an index: the keys of the range, and those of the rows.
    pub(crate) fn find_range(
        &self,
        scan: &Scan,
        index: Option<&Index>,
        range: KeyRange,
        row: &mut Row,
        emit: &mut EmitKeyed<'_>,
    ) -> Flow {
        let direction = if scan.backwards { Direction::Descending } else { Direction::Ascending };
        let in_entries = index.and_then(|index| scan.in_entries(index));
        self.batches(range, direction, row.ahead, &mut |batch| {
            for (place, bytes) in batch.iter() {
                let flow = match index {
                    None => {
                        show(scan, place, bytes, row)?;
                        emit(place, place, row)?
                    }
                    Some(index) => {
                        let key = row_key(&scan.table, bytes);
                        if let Some(columns) = in_entries {
                            let part = scan.base..scan.base + scan.table.columns.len();
                            columns.read(place, bytes, &mut row.values[part])?;
                        } else if !self.read(scan, &key, row)? {
                            let message = format!("index \"{}\" has an entry without a row", index.name);
                            return Err(SqlError::new(state::DATA_CORRUPTED, message));
                        }
                        emit(place, &key, row)?
                    }
                };
                if flow.is_break() {
                    return Ok(flow);
                }
            }
            ON
        })
    }

    /// Reads the row of a key, if it is there.
    fn read(&self, scan: &Scan, key: &[u8], row: &mut Row) -> Result<bool> {
        let mut database = self.database();
        let bytes = database.get(self.txn, key)?;
        bytes.map(|bytes| show(scan, key, bytes, row)).transpose().map(|read| read.is_some())
    }

    /// The keys of a range with their values, some at a time: what reads them may read others meanwhile.
    fn batches(
        &self,
        mut range: KeyRange,
        direction: Direction,
        mut count: usize,
        each: &mut dyn FnMut(&Batch) -> Flow,
    ) -> Flow {
        let batch = RefCell::new(Batch::default());
        loop {
            let mut last = Vec::new();
            self.database().scan(self.txn, &range, direction, &mut |key, value| {
                let mut batch = batch.borrow_mut();
                batch.push(key, value);
                if batch.ends.len() < count {
                    return ON;
                }
                last = key.to_vec();
                Ok(ControlFlow::Break(()))
            })?;
            let read = batch.take();
            self.goes_on_after(read.ends.len())?;
            if each(&read)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if last.is_empty() {
                return ON;
            }
            match direction {
                Direction::Ascending => {
                    last.push(0);
                    range.start = last;
                }
                Direction::Descending => range.end = Some(last),
            }
            count = (2 * count).min(BATCH_ROWS);
        }
    }
}

/// Reads what is wanted of a table's row.
fn show(scan: &Scan, key: &[u8], bytes: &[u8], row: &mut Row) -> Result<()> {
    let part = scan.base..scan.base + scan.table.columns.len();
    row::decode(&scan.table, bytes, &scan.wanted, &mut row.values[part])?;
    if let Some(place) = scan.key {
        row.keys[place] = key.to_vec();
    }
    Ok(())
}

/// The range of a table's rows, or of an index's entries.
pub(crate) fn range_of(
    table: &Table,
    index: Option<&Index>,
    equal: &[Expr],
    bounds: (&Bound, &Bound),
    env: Env<'_>,
) -> Result<Option<KeyRange>> {
    match index {
        None => access::range(table.relation, &primary_columns(table), equal, bounds, env),
        Some(index) => access::range(index.relation, &index.parts, equal, bounds, env),
    }
}

fn primary_columns(table: &Table) -> Vec<(usize, bool)> {
    let columns = table.primary.iter().flat_map(|primary| &primary.columns);
    columns.map(|column| (*column, false)).collect()
}

/// The key of the row that an entry of an index leads to.
pub(crate) fn row_key(table: &Table, suffix: &[u8]) -> Vec<u8> {
    [&table.relation.to_be_bytes()[..], suffix].concat()
}
