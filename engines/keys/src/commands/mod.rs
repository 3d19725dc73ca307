//! The commands' functions, a file per type. What is to be known of each command is in [`crate::command::TABLE`].

pub mod acl;
pub mod bitfields;
pub mod bitmaps;
pub mod clients;
pub mod cluster;
pub mod connection;
pub mod dump;
pub mod expiry;
pub mod field_expiry;
pub mod functions;
pub mod generic;
pub mod geo;
pub mod hashes;
pub mod hot_keys;
pub mod hyperloglogs;
pub mod latency;
pub mod lcs;
pub mod lists;
pub mod memory;
pub mod pubsub;
pub mod replication;
pub mod saving;
pub mod scripts;
pub mod server;
pub mod sets;
pub mod settings;
pub mod slowlog;
pub mod sort;
pub mod sorted_sets;
pub mod streams;
pub mod strings;
mod tracking;
pub mod transactions;

use crate::access::subcommands_of;
use crate::error::CommandError;
use crate::number::{integer, parse_integer};
use crate::reply::Reply;
use crate::request::Args;

/// A range of indices, of which negative ones count from the end, as indices of something of this length.
fn clamp_range(start: i64, end: i64, length: usize) -> std::ops::Range<usize> {
    let length = length as i64;
    let from_end = |index: i64| if index < 0 { index.saturating_add(length).max(0) } else { index };
    // An end before the first element is no end at all.
    if end < -length {
        return 0..0;
    }
    let start = from_end(start).min(length);
    let end = from_end(end).min(length - 1) + 1;
    start as usize..end.max(start) as usize
}

/// As [`clamp_range`] for the parts of strings, where an end before the first byte is the first byte.
fn clamp_part(start: i64, end: i64, length: usize) -> std::ops::Range<usize> {
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    clamp_range(start, end.max(-(length as i64)), length)
}

/// An index, negative ones from the end, of something of this length.
fn index_in(index: i64, length: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(length as i64)? } else { index };
    usize::try_from(index).ok().filter(|index| *index < length)
}

/// Answers `HELP` of a command: its subcommands.
fn help(command: &str, reply: &mut dyn Reply) {
    let name = command.to_uppercase();
    let subcommands: Vec<&str> = subcommands_of(command).collect();
    reply.array(1 + subcommands.len());
    reply.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    subcommands.into_iter().for_each(|subcommand| reply.simple(&subcommand.to_uppercase()));
}

/// Which of the known subcommands a request is of; each has so many words, or at least so many (`-n`).
fn check_subcommand(
    command: &str,
    known: &[(&'static str, i16)],
    args: Args<'_>,
) -> Result<&'static str, CommandError> {
    let found = known.iter().find(|(name, _)| args[1].eq_ignore_ascii_case(name.as_bytes()));
    let Some((name, arity)) = found else {
        return Err(CommandError::from(format!(
            "ERR unknown subcommand '{}'. Try {} HELP.",
            args[1].escape_ascii(),
            command.to_uppercase()
        )));
    };
    let needed = usize::from(arity.unsigned_abs());
    let is_right = if *arity >= 0 { args.len() == needed } else { args.len() >= needed };
    if is_right { Ok(name) } else { Err(CommandError::Arity(format!("{command}|{name}"))) }
}

/// A number that must not be negative; anything else is refused with this text.
fn parse_count(text: &[u8], refusal: &'static str) -> Result<usize, CommandError> {
    let count = integer(text).and_then(|count| usize::try_from(count).ok());
    count.ok_or_else(|| CommandError::text(refusal))
}

/// A cursor as Redis reads it: no digits are 0, and negative ones count down from the largest. One that no scan gave may go
/// on anywhere, or end.
pub(crate) fn parse_cursor(text: &[u8]) -> Result<u64, CommandError> {
    let (is_negative, digits) = match text {
        [sign @ (b'+' | b'-'), digits @ ..] if !digits.is_empty() => (*sign == b'-', digits),
        digits => (false, digits),
    };
    let cursor = digits.iter().try_fold(0_u64, |number, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    });
    let cursor = cursor.ok_or(CommandError::text("ERR invalid cursor"))?;
    Ok(if is_negative { cursor.wrapping_neg() } else { cursor })
}

/// The number of keys at a word, and the first word behind them.
fn parse_number_of_keys(args: Args<'_>, at: usize) -> Result<(usize, usize), CommandError> {
    let number = parse_positive(&args[at], "ERR numkeys should be greater than 0")?;
    if at.saturating_add(number) >= args.len() {
        return Err(CommandError::Syntax);
    }
    Ok((number, at + 1 + number))
}

/// Up to how many elements are counted: `[LIMIT limit]` and nothing else, 0 for all.
fn parse_count_limit(options: Args<'_>) -> Result<usize, CommandError> {
    let limit = match options.len() {
        0 => 0,
        2 if options[0].eq_ignore_ascii_case(b"limit") => parse_count(&options[1], "ERR LIMIT can't be negative")?,
        _ => return Err(CommandError::Syntax),
    };
    Ok(if limit == 0 { usize::MAX } else { limit })
}

/// How many elements to take: `[COUNT count]` and nothing else, 1 if it is not said.
fn parse_pop_count(options: Args<'_>) -> Result<usize, CommandError> {
    match options.len() {
        0 => Ok(1),
        2 if options[0].eq_ignore_ascii_case(b"count") => {
            parse_positive(&options[1], "ERR count should be greater than 0")
        }
        _ => Err(CommandError::Syntax),
    }
}

/// How many elements to take by chance, and whether what belongs to them is wanted, too, which `with` asks for: `[count [with]]`.
fn parse_chosen(options: Args<'_>, with: &str) -> Result<(Option<i64>, bool), CommandError> {
    if options.is_empty() {
        return Ok((None, false));
    }
    let count = parse_integer(&options[0])?;
    // Its absolute value is no number.
    if count == i64::MIN {
        return Err(CommandError::from(format!(
            "ERR value is out of range, value must between {} and {}",
            -i64::MAX,
            i64::MAX
        )));
    }
    match options.len() {
        1 => Ok((Some(count), false)),
        // Two words for each.
        2 if options[1].eq_ignore_ascii_case(with.as_bytes()) && count.abs() <= i64::MAX / 2 => Ok((Some(count), true)),
        2 if options[1].eq_ignore_ascii_case(with.as_bytes()) => Err(CommandError::text("ERR value is out of range")),
        _ => Err(CommandError::Syntax),
    }
}

fn parse_positive(text: &[u8], refusal: &'static str) -> Result<usize, CommandError> {
    parse_count(text, refusal).and_then(|number| if number > 0 { Ok(number) } else { Err(CommandError::text(refusal)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_clamped_as_in_redis() {
        for (start, end, expected) in [
            (0, -1, 0..5),
            (1, 2, 1..3),
            (-2, -1, 3..5),
            (-100, 100, 0..5),
            (3, 1, 3..3),
            (5, 9, 5..5),
            (0, -6, 0..0),
            (0, -5, 0..1),
        ] {
            assert_eq!(clamp_range(start, end, 5), expected, "{start} {end}");
        }
        assert!(clamp_range(0, -1, 0).is_empty());
        assert_eq!((index_in(-1, 3), index_in(3, 3), index_in(-4, 3)), (Some(2), None, None));
    }
}
