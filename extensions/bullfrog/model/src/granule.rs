//! What is moved at a time. Each granule has a place in the driving table, by which it is named.

use std::fmt;
use std::str::FromStr;

/// What is moved at a time, and never in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granule {
    /// A page of the driving table, with all new rows that its rows are in. Its name is its number.
    Page,
    /// A row of the driving table, with all new rows that it is in. Its name is its place.
    Tuple,
    /// A group, which is one new row. Its name is the place of its first row.
    Group,
}

impl fmt::Display for Granule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Page => "page",
            Self::Tuple => "tuple",
            Self::Group => "group",
        })
    }
}

impl FromStr for Granule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "page" => Ok(Self::Page),
            "tuple" => Ok(Self::Tuple),
            "group" => Ok(Self::Group),
            other => Err(format!("expected a granule (page, tuple, group), got {other}")),
        }
    }
}

/// A place in a table as the name of a granule: the number of its page, then that of the row on it.
#[must_use]
pub fn name_of_place(page: u32, row: u16) -> i64 {
    i64::from(page) << 16 | i64::from(row)
}

/// The page and the row of a place; none if there is no such place in any table.
#[must_use]
pub fn place_of_name(name: i64) -> Option<(u32, u16)> {
    Some((u32::try_from(name >> 16).ok()?, (name & 0xffff) as u16))
}

/// The name of a page whose rows have names of their own: that of a place at which no row is.
#[must_use]
pub fn name_of_page(page: i64) -> i64 {
    page << 16
}

/// The page on which a place with this name is.
#[must_use]
pub fn page_of_name(name: i64) -> i64 {
    name >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granules_are_read_as_they_are_written() {
        for granule in [Granule::Page, Granule::Tuple, Granule::Group] {
            assert_eq!(granule.to_string().parse(), Ok(granule));
        }
        assert!("row".parse::<Granule>().is_err());
    }

    #[test]
    fn a_place_is_told_by_its_name() {
        for place in [(0, 1), (7, 291), (u32::MAX, u16::MAX)] {
            assert_eq!(place_of_name(name_of_place(place.0, place.1)), Some(place));
        }
        assert_eq!((place_of_name(-1), place_of_name(i64::MAX)), (None, None));
    }

    #[test]
    fn the_name_of_a_page_is_that_of_none_of_its_rows_and_comes_before_them() {
        for page in [0, 7, u32::MAX] {
            let name = name_of_page(page.into());
            assert_eq!(place_of_name(name), Some((page, 0)));
            assert!((1..=u16::MAX).all(
                |row| name_of_place(page, row) > name && page_of_name(name_of_place(page, row)) == i64::from(page)
            ));
            assert!(name_of_place(page, u16::MAX) < name_of_page(i64::from(page) + 1));
        }
    }
}
