//! Moving: how granules of a source come into their new tables, in the transaction under way. Each is marked in
//! `bullfrog.moved` and then copied: after a crash at any point it is either moved and marked or neither, and of two
//! transactions that move the same one, the unique index of `moved` lets one go on.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use bullfrog_model::board::Failure;
use bullfrog_model::granule::Granule;
use pgrx::pg_sys::ItemPointerData;
use pgrx::prelude::*;
use pgrx::spi::SpiClient;

use crate::errors::raise;
use crate::failures::{in_subtransaction, is_violation};
use crate::flags::while_set;
use crate::flaws::{self, Flaw};
use crate::log::warn_of_source;
use crate::mover;
use crate::passing::remembering;
use crate::places::{page_start, place, place_of, runs};
use crate::quiet::quietly;
use crate::rights::{with_all_rights, with_rights_of};
use crate::source::{Copying, Source};
use crate::statements::{Unplanned, run};
use crate::stops::reach;
use crate::truth::Index;
use crate::wholes::{Chosen, Wholes};

/// How rows are copied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Care {
    /// All in one statement: a row that fails lets the move fail.
    Together,
    /// Each by itself: a row that fails is put aside.
    EachRow,
}

/// What a transaction moved.
#[derive(Clone, Copy, Default)]
pub(crate) struct Moved {
    /// Granules that nobody had moved before.
    pub(crate) granules: u64,
    /// Rows that new tables got.
    pub(crate) rows: u64,
}

/// Where rows lie that are copied together.
enum Rows {
    Range(ItemPointerData, ItemPointerData),
    Places(Vec<ItemPointerData>),
}

impl Source {
    /// Moves those of these granules that were not moved before. `are_kept`: hardly any other transaction takes them on.
    pub(crate) fn move_granules(&self, granules: &[i64], care: Care, are_kept: bool) -> Moved {
        self.lock_targets();
        // Of a range of places, a plan has to know how long it is.
        let _mode = (self.granule != Granule::Page).then(Unplanned::begin);
        let won = self.mark(granules, are_kept);
        let won = match &self.wholes {
            Some(wholes) => wholes.leave_out(won),
            None => won,
        };
        if won.is_empty() {
            return Moved::default();
        }
        marked();
        let rows = match self.granule {
            Granule::Page => runs(&won)
                .into_iter()
                .map(|(first, beyond)| Rows::Range(page_start(first), page_start(beyond)))
                .collect(),
            Granule::Tuple | Granule::Group => {
                vec![Rows::Places(won.iter().filter_map(|name| place_of(*name)).collect())]
            }
        };
        Moved { granules: won.len() as u64, rows: self.copy_all(&rows, &won, care) }
    }

    /// Moves pages as wholes whose rows move one by one otherwise. Gives how many rows new tables got, and what came of the pages.
    pub(crate) fn move_wholes(&self, wholes: &Wholes, pages: &[i64]) -> (u64, Chosen) {
        self.lock_targets();
        let _mode = Unplanned::begin();
        let mut taken = wholes.take(pages);
        let places = std::mem::take(&mut taken.places);
        if places.is_empty() {
            return (0, taken);
        }
        marked();
        (self.copy_all(&[Rows::Places(places)], &[], Care::Together), taken)
    }

    /// Copies rows to all new tables. Gives how many.
    fn copy_all(&self, places: &[Rows], won: &[i64], care: Care) -> u64 {
        let mut copied = 0;
        for copying in &self.copies {
            for rows in places {
                copied += match care {
                    Care::Together => self.copy(copying, rows, won),
                    Care::EachRow => self.copy_each(copying, rows),
                };
                reach("move: begun to copy");
            }
        }
        reach("move: copied");
        copied
    }

    /// Writes the truth: these granules are moved by this transaction. Gives those that were not moved before.
    fn mark(&self, granules: &[i64], are_kept: bool) -> Vec<i64> {
        let is_known = |granule: &i64| match self.granule {
            Granule::Page => (0..self.pages).contains(granule),
            Granule::Tuple | Granule::Group => {
                place_of(*granule).is_some() && (0..self.pages).contains(&(*granule >> 16))
            }
        };
        let known: Vec<i64> = granules.iter().copied().filter(is_known).collect();
        if are_kept
            && self.is_plain()
            // SAFETY: a transaction is under way.
            && let Some(won) = remembering(|| unsafe { Index::open().mark(self.id, &known) })
        {
            return won;
        }
        let mark = || {
            run(|client| {
                let marked = client.update(&self.mark, None, &[known.into()])?;
                let mut won = Vec::with_capacity(marked.len());
                for row in marked {
                    won.extend(row.get::<i64>(1)?);
                }
                won.sort_unstable();
                Ok(won)
            })
        };
        with_all_rights(mark)
    }

    /// Copies rows to one new table, all in one statement, or without one. Gives how many.
    fn copy(&self, copying: &Copying, rows: &Rows, won: &[i64]) -> u64 {
        if let (Some(plain), Rows::Places(places)) = (&copying.plain, rows)
            // SAFETY: nobody changes a closed table, and new ones are locked.
            && let Some(count) = while_set(&COPIES, || remembering(|| unsafe { plain.copy(places) }))
        {
            return count;
        }
        let mut groups = Vec::new();
        let statement = |client: &mut SpiClient<'_>| {
            let copied = match rows {
                Rows::Range(first, beyond) => {
                    client.update(&copying.copy, None, &[(*first).into(), (*beyond).into()])?
                }
                Rows::Places(places) => client.update(&copying.copy, None, &[places.clone().into()])?,
            };
            let count = copied.len() as u64;
            if self.granule == Granule::Group {
                for row in copied {
                    groups.extend(row.get::<i64>(1)?);
                }
            }
            Ok(count)
        };
        let copied = while_set(&COPIES, || quietly(&copying.text, || with_rights_of(self.owner, || run(statement))));
        groups.sort_unstable();
        // A group is marked by the place of its first row: under another name it would be moved again.
        if self.granule == Granule::Group && groups != won {
            raise(
                PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                "a place was named at which no group begins",
                "bullfrog.sweep(source, pages) has the groups of all rows on pages moved.",
            );
        }
        copied
    }

    /// Copies rows to one new table, one by one; what violates a constraint goes to quarantine. Gives how many were copied.
    fn copy_each(&self, copying: &Copying, rows: &Rows) -> u64 {
        let mut copied = 0;
        let each = match rows {
            Rows::Range(first, beyond) => self.rows(copying, *first, *beyond),
            Rows::Places(places) => places.clone(),
        };
        for row in each {
            let (page, number) = pgrx::itemptr::item_pointer_get_both(row);
            let one = match self.granule {
                Granule::Page => Rows::Range(row, place(page, number + 1)),
                Granule::Tuple | Granule::Group => Rows::Places(vec![row]),
            };
            match in_subtransaction(|| self.copy(copying, &one, &[])) {
                Ok(count) => copied += count,
                Err(failure) if is_violation(failure.code) => self.put_aside(copying.target, row, &failure),
                Err(failure) => {
                    raise(PgSqlErrorCode::from(failure.code), failure.message(), "The move may be tried again.")
                }
            }
        }
        copied
    }

    /// Puts a row into quarantine: it violates a constraint.
    fn put_aside(&self, target: i32, row: ItemPointerData, failure: &Failure) {
        run(|client| {
            let arguments = [target.into(), row.into(), failure.message().into()];
            client.update("SELECT bullfrog.put_aside($1, $2, $3)", None, &arguments).map(|_| ())
        });
        let (page, number) = pgrx::itemptr::item_pointer_get_both(row);
        warn_of_source(self.id, &format!("the row at ({page},{number}) of {{}} is in quarantine"), failure);
    }

    /// The places of the rows in a range, as far as they give rows of the new table.
    fn rows(&self, copying: &Copying, first: ItemPointerData, beyond: ItemPointerData) -> Vec<ItemPointerData> {
        let query = format!(
            "SELECT bullfrog_tid FROM bullfrog.transformed_{} WHERE bullfrog_tid >= $1 AND bullfrog_tid < $2 ORDER BY 1",
            copying.target
        );
        with_rights_of(self.owner, || {
            run(|client| {
                let rows = client.select(&query, None, &[first.into(), beyond.into()])?;
                rows.into_iter().filter_map(|row| row.get(1).transpose()).collect()
            })
        })
    }
}

/// What follows when granules were marked, before they are copied.
fn marked() {
    reach("move: marked");
    if flaws::is_set(Flaw::MarksFirst) {
        mover::commit_early();
    } else if flaws::is_set(Flaw::NobodyWaits) {
        // Long enough for somebody to come by who should have waited.
        thread::sleep(Duration::from_millis(5));
    }
}

thread_local! {
    static COPIES: Cell<bool> = const { Cell::new(false) };
}

/// Whether rows are being copied by this process: their keys are those of rows that move now.
pub(crate) fn copies() -> bool {
    COPIES.get()
}
