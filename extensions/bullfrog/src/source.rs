//! The rows of an old table that move together, and which of them are left.

use bullfrog_model::granule::Granule;
use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;
use pgrx::spi::OwnedPreparedStatement;

use crate::errors::{defect, raise};
use crate::places::page_start;
use crate::plain::Plain;
use crate::registry;
use crate::rights::with_rights_of;
use crate::statements::run;
use crate::wholes::Wholes;

/// Pages that a sweep looks at for untouched ones at a time.
const WINDOW: i64 = 1024;
/// Pages of a transaction in the background.
const BATCH: i64 = 16;

/// Rows of an old table, on their way to new tables.
pub(crate) struct Source {
    pub(crate) id: i32,
    /// Pages that the driving table had at the switch.
    pub(crate) pages: i64,
    /// What is moved at a time.
    pub(crate) granule: Granule,
    /// Rows that violate a constraint do not keep their neighbours: they are put aside.
    pub(crate) is_lenient: bool,
    /// Whose rights moves have.
    pub(crate) owner: Oid,
    /// Marks granules `$1`; gives those that were not marked before.
    pub(crate) mark: OwnedPreparedStatement,
    /// Untouched pages from `$1` to before `$2`, at most `$3`.
    untouched: OwnedPreparedStatement,
    pub(crate) copies: Vec<Copying>,
    /// What moves pages as wholes whose rows move one by one otherwise.
    pub(crate) wholes: Option<Wholes>,
}

/// Copies rows to a new table.
pub(crate) struct Copying {
    pub(crate) target: i32,
    new: Oid,
    /// Of pages: the rows that have a place from `$1` to before `$2`. Else: those of the places `$1`.
    pub(crate) copy: OwnedPreparedStatement,
    /// The text of this statement.
    pub(crate) text: String,
    /// How it goes without a statement, if it does.
    pub(crate) plain: Option<Plain>,
    /// Of tuples and groups: the granules of rows that have a place from `$1` to before `$2`.
    names: Option<OwnedPreparedStatement>,
}

impl Source {
    /// A source, with its statements prepared. None if the transaction does not see such a source.
    pub(crate) fn read(id: i32) -> Option<Self> {
        run(|client| {
            let found = client.select(
                "SELECT s.pages, s.granule, s.lenient, c.relowner, c.oid, o.live, EXISTS (SELECT FROM pg_catalog.pg_attribute a
                    WHERE a.attrelid = 'bullfrog.moved'::pg_catalog.regclass AND a.attname = 'tuples')
                 FROM bullfrog.source s JOIN bullfrog.old o ON o.old_table = s.old_table
                 JOIN pg_catalog.pg_class c ON c.oid = s.old_table WHERE s.id = $1",
                None,
                &[id.into()],
            )?;
            if found.is_empty() {
                return Ok(None);
            }
            let found = found.first();
            let granule = found.get::<String>(2)?.unwrap_or_default().parse().unwrap_or_else(|error| defect(&error));
            let owner = found.get(4)?.unwrap_or(Oid::INVALID);
            let is_lenient = found.get(3)?.unwrap_or(false);
            let table = found.get(5)?.unwrap_or(Oid::INVALID);
            // Of a table that stays in use rows are found by where they were at the switch; and a row that is put aside is alone.
            let marks = !is_lenient && !found.get(6)?.unwrap_or(false) && found.get(7)?.unwrap_or(false);
            let tid = PgOid::from(pg_sys::TIDOID);
            let (bigint, bigints) = (PgOid::from(pg_sys::INT8OID), PgOid::from(pg_sys::INT8ARRAYOID));
            let place = if granule == Granule::Page { vec![tid, tid] } else { vec![PgOid::from(pg_sys::TIDARRAYOID)] };
            let mut copies = Vec::new();
            // All columns are columns of the one old table and stored in it, each of whose rows gives a row that is not put aside.
            let targets = "SELECT t.id, t.copy, t.names, t.new_table::oid, CASE WHEN t.complete AND pg_catalog.cardinality(t.old_tables) = 1
                    AND pg_catalog.cardinality(t.live_tables) = 0 AND pg_catalog.to_regclass('bullfrog.all_' || t.id) IS NULL AND NOT EXISTS (
                        SELECT FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attribute o ON o.attrelid = t.old_tables[1] AND o.attnum > 0
                            AND o.attnum = t.origins[a.attnum] AND (o.atttypid, o.atttypmod) = (a.atttypid, a.atttypmod) AND o.attgenerated <> 'v'
                        WHERE a.attrelid = t.new_table AND a.attnum > 0 AND (a.attisdropped OR o.attnum IS NULL))
                THEN t.origins END
                FROM bullfrog.target t WHERE t.source = $1 ORDER BY t.id";
            for row in client.select(targets, None, &[id.into()])? {
                if let (Some(target), Some(copy)) = (row.get(1)?, row.get::<String>(2)?) {
                    let names = row.get::<String>(3)?;
                    let new = row.get(4)?.unwrap_or(Oid::INVALID);
                    let columns: Option<Vec<i16>> = row.get(5)?;
                    let plain =
                        columns.filter(|_| granule == Granule::Tuple).map(|columns| Plain { columns, old: table, new });
                    lock(new, id);
                    copies.push(with_rights_of(owner, || {
                        let (text, copy) = (copy.clone(), client.prepare_mut(copy.as_str(), &place)?.keep());
                        let prepare =
                            |names: String| client.prepare(names.as_str(), &[tid, tid]).map(|names| names.keep());
                        Ok::<_, spi::Error>(Copying {
                            target,
                            new,
                            copy,
                            text,
                            plain,
                            names: names.map(prepare).transpose()?,
                        })
                    })?);
                }
            }
            let mark = format!(
                "INSERT INTO bullfrog.moved (source, granule) SELECT {id}, n FROM pg_catalog.unnest($1) n \
                 ON CONFLICT DO NOTHING RETURNING granule"
            );
            let untouched = format!(
                "SELECT p FROM pg_catalog.generate_series($1, $2 - 1) p \
                 EXCEPT SELECT granule FROM bullfrog.moved WHERE source = {id} AND granule >= $1 AND granule < $2 ORDER BY p LIMIT $3"
            );
            Ok(Some(Self {
                id,
                pages: found.get(1)?.unwrap_or(0),
                granule,
                is_lenient,
                owner,
                mark: client.prepare_mut(mark.as_str(), &[bigints])?.keep(),
                untouched: client.prepare(untouched.as_str(), &[bigint, bigint, bigint])?.keep(),
                copies,
                wholes: match granule {
                    Granule::Tuple => Some(Wholes::prepare(client, id, table, marks)?),
                    Granule::Page | Granule::Group => None,
                },
            }))
        })
    }

    /// Whether all of it is copied as it is.
    pub(crate) fn is_plain(&self) -> bool {
        self.copies.iter().all(|copying| copying.plain.is_some())
    }

    /// Locks the new tables as copies to them do. To be called before views of the migration are used: who ends it has locked its tables,
    /// and then drops these.
    pub(crate) fn lock_targets(&self) {
        self.copies.iter().for_each(|copying| lock(copying.new, self.id));
    }

    /// The granules that have a row on the pages from one to before another.
    pub(crate) fn granules_of(&self, first: i64, beyond: i64) -> Vec<i64> {
        if self.granule == Granule::Page {
            return (first..beyond).collect();
        }
        self.lock_targets();
        let mut granules = Vec::new();
        for names in self.copies.iter().filter_map(|copying| copying.names.as_ref()) {
            with_rights_of(self.owner, || {
                run(|client| {
                    for row in client.select(names, None, &[page_start(first).into(), page_start(beyond).into()])? {
                        granules.extend(row.get::<i64>(1)?);
                    }
                    Ok(())
                })
            });
        }
        granules.sort_unstable();
        granules.dedup();
        granules
    }

    /// A place among these at which no row is that moves or has moved.
    pub(crate) fn place_of_no_row(&self, places: &[i64]) -> Option<i64> {
        let mut pages: Vec<i64> = places.iter().map(|place| place >> 16).collect();
        pages.dedup();
        let pages = pages.into_iter().filter(|page| (0..self.pages).contains(page));
        let unmoved: Vec<i64> = pages.flat_map(|page| self.granules_of(page, page + 1)).collect();
        let rest: Vec<i64> = places.iter().copied().filter(|place| unmoved.binary_search(place).is_err()).collect();
        // In this order: what moves meanwhile is found, before or after.
        run(|client| {
            let unknown = "SELECT n FROM pg_catalog.unnest($1) n WHERE NOT EXISTS (\
                SELECT FROM bullfrog.moved v WHERE v.source = $2 AND v.granule IN (n, n >> 16 << 16)) LIMIT 1";
            let mut unknown = client.select(unknown, Some(1), &[rest.into(), self.id.into()])?;
            unknown.next().map_or(Ok(None), |row| row.get(1))
        })
    }

    /// The next pages that a sweep has to do, from one to before another at most, and where it goes on after them.
    pub(crate) fn next_pages(&self, from: i64, end: i64) -> (Vec<i64>, i64) {
        if self.granule != Granule::Page {
            let beyond = (from + BATCH).min(end);
            return ((from..beyond).collect(), beyond);
        }
        let beyond = (from + WINDOW).min(end);
        let pages = run(|client| {
            let rows = client.select(&self.untouched, None, &[from.into(), beyond.into(), BATCH.into()])?;
            rows.into_iter().filter_map(|row| row.get(1).transpose()).collect::<Result<Vec<i64>, _>>()
        });
        let next = if pages.len() as i64 == BATCH { pages.last().map_or(beyond, |last| last + 1) } else { beyond };
        (pages, next)
    }

    /// Notes that a sweep has done these pages, so that a new mover does not begin at the first one.
    pub(crate) fn mark_swept(&self, first: i64, beyond: i64) {
        run(|client| {
            client
                .update(
                    "UPDATE bullfrog.source SET swept = $3 WHERE id = $1 AND swept >= $2 AND swept < $3",
                    None,
                    &[self.id.into(), first.into(), beyond.into()],
                )
                .map(|_| ())
        });
    }
}

/// Ends a move of a source that the transaction does not see.
pub(crate) fn unknown_source() -> ! {
    raise(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "its migration was not committed yet, or has ended",
        "Commit the transaction that called bullfrog.migrate first.",
    )
}

/// Locks a new table of a source. Ends the move if the migration has ended meanwhile: its views are gone.
fn lock(table: Oid, source: i32) {
    // SAFETY: waits for others; an error leaves nothing behind.
    unsafe { pg_sys::LockRelationOid(table, pg_sys::RowExclusiveLock as pg_sys::LOCKMODE) };
    if !registry::current().targets().iter().any(|target| target.source == source) {
        unknown_source();
    }
}
