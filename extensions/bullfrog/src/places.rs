//! Where rows lie.

use bullfrog_model::granule::place_of_name;
use pgrx::pg_sys::ItemPointerData;

/// Runs of consecutive pages: where each begins, and where it has ended.
pub(crate) fn runs(pages: &[i64]) -> Vec<(i64, i64)> {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some((_, beyond)) if beyond == page => *beyond += 1,
            _ => runs.push((*page, page + 1)),
        }
    }
    runs
}

/// A place on a page.
pub(crate) fn place(page: u32, row: u16) -> ItemPointerData {
    let mut place = ItemPointerData::default();
    pgrx::itemptr::item_pointer_set_all(&mut place, page, row);
    place
}

/// Before all rows of a page. Behind the last page that a table can have is no page.
pub(crate) fn page_start(page: i64) -> ItemPointerData {
    place(u32::try_from(page).unwrap_or(u32::MAX), 0)
}

/// The place of a tuple or group by its name.
pub(crate) fn place_of(name: i64) -> Option<ItemPointerData> {
    place_of_name(name).filter(|(_, row)| *row > 0).map(|(page, row)| place(page, row))
}
