//! The random values of TPC-C (clauses 2.1.6, 4.3.2 and 4.3.3).

use rand::Rng;
use rand::rngs::SmallRng;

/// Items of a catalogue.
pub(crate) const ITEMS: i32 = 100_000;
/// Districts of a warehouse.
pub(crate) const DISTRICTS: i32 = 10;
/// Customers of a district, and orders that it has at the beginning.
pub(crate) const CUSTOMERS: i32 = 3000;
/// The constants C of `NURand`: any will do, but the last names of the load and of the run must be some way apart.
const C_LAST_OF_LOAD: i32 = 157;
const C_LAST_OF_RUN: i32 = 223;
const C_CUSTOMER: i32 = 259;
const C_ITEM: i32 = 7911;

fn non_uniform(rng: &mut SmallRng, a: i32, c: i32, low: i32, high: i32) -> i32 {
    (((rng.random_range(0..=a) | rng.random_range(low..=high)) + c) % (high - low + 1)) + low
}

/// A customer's number within its district.
pub(crate) fn customer(rng: &mut SmallRng) -> i32 {
    non_uniform(rng, 1023, C_CUSTOMER, 1, CUSTOMERS)
}

/// An item's number.
pub(crate) fn item(rng: &mut SmallRng) -> i32 {
    non_uniform(rng, 8191, C_ITEM, 1, ITEMS)
}

/// A last name that customers have.
pub(crate) fn last_name(rng: &mut SmallRng) -> String {
    name_of(non_uniform(rng, 255, C_LAST_OF_RUN, 0, 999))
}

/// The last name of a customer when the tables are loaded.
pub(crate) fn last_name_of(rng: &mut SmallRng, customer: i32) -> String {
    name_of(if customer <= 1000 { customer - 1 } else { non_uniform(rng, 255, C_LAST_OF_LOAD, 0, 999) })
}

fn name_of(number: i32) -> String {
    const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    [number / 100, number / 10 % 10, number % 10].map(|digit| SYLLABLES[digit as usize]).concat()
}

/// Letters and digits, so many to so many.
pub(crate) fn text(rng: &mut SmallRng, low: usize, high: usize) -> String {
    const CHARACTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789ab";
    let length = rng.random_range(low..=high);
    (0..length).map(|_| char::from(CHARACTERS[rng.random_range(0..CHARACTERS.len())])).collect()
}

/// So many digits.
pub(crate) fn digits(rng: &mut SmallRng, length: usize) -> String {
    (0..length).map(|_| char::from(rng.random_range(b'0'..=b'9'))).collect()
}

/// What items and stock say of themselves: one of ten is original.
pub(crate) fn data(rng: &mut SmallRng) -> String {
    let mut text = text(rng, 26, 50);
    if rng.random_range(0..10) == 0 {
        let at = rng.random_range(0..=text.len() - 8);
        text.replace_range(at..at + 8, "ORIGINAL");
    }
    text
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn last_names_are_made_of_three_syllables() {
        assert_eq!(name_of(371), "PRICALLYOUGHT");
    }

    #[test]
    fn customers_and_items_are_those_that_there_are() {
        let mut rng = SmallRng::seed_from_u64(1);
        assert!(
            (0..100_000)
                .all(|_| (1..=CUSTOMERS).contains(&customer(&mut rng)) && (1..=ITEMS).contains(&item(&mut rng)))
        );
    }
}
