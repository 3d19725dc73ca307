//! What two strings have in common.

use std::ops::Range;

use crate::error::{CommandError, Outcome};
use crate::keyspace::{Keyspace, STRING_BYTES_MAX};
use crate::memory;
use crate::number::parse_integer;
use crate::reply::Reply;
use crate::request::Args;

/// Lengths of the longest common subsequences of all beginnings of two strings.
struct Lengths {
    lengths: Vec<u32>,
    width: usize,
}

impl Lengths {
    fn of(a: &[u8], b: &[u8]) -> Self {
        let width = b.len() + 1;
        let mut table = Self { lengths: vec![0; (a.len() + 1) * width], width };
        for (i, one) in a.iter().enumerate() {
            for (j, other) in b.iter().enumerate() {
                table.lengths[(i + 1) * width + j + 1] =
                    if one == other { table.at(i, j) + 1 } else { table.at(i, j + 1).max(table.at(i + 1, j)) };
            }
        }
        table
    }

    /// Of the first `i` and `j` bytes.
    fn at(&self, i: usize, j: usize) -> u32 {
        self.lengths[i * self.width + j]
    }
}

/// Parts of two strings that are equal and belong to their longest common subsequence.
struct Match {
    a: Range<usize>,
    b: Range<usize>,
}

/// The matches of two strings, the last first.
fn matches(a: &[u8], b: &[u8], lengths: &Lengths) -> Vec<Match> {
    let (mut i, mut j) = (a.len(), b.len());
    let mut matches: Vec<Match> = Vec::new();
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            match matches.last_mut().filter(|last| (last.a.start, last.b.start) == (i, j)) {
                Some(last) => (last.a.start, last.b.start) = (i - 1, j - 1),
                None => matches.push(Match { a: i - 1..i, b: j - 1..j }),
            }
            (i, j) = (i - 1, j - 1);
        } else if lengths.at(i - 1, j) > lengths.at(i, j - 1) {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    matches
}

/// `LCS key1 key2 [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]`
pub fn lcs(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let are_strings = args.from(1).take(2).all(|key| keys.get(key).is_none_or(|value| value.as_string().is_some()));
    if !are_strings {
        return Err(CommandError::text("ERR The specified keys must contain string values"));
    }
    let (mut only_length, mut with_places, mut with_lengths, mut length_min) = (false, false, false, 0);
    let mut options = args.from(3);
    while let Some(option) = options.next() {
        match option.to_ascii_lowercase().as_slice() {
            b"len" => only_length = true,
            b"idx" => with_places = true,
            b"withmatchlen" => with_lengths = true,
            b"minmatchlen" => length_min = parse_integer(options.next().ok_or(CommandError::Syntax)?)?,
            _ => return Err(CommandError::Syntax),
        }
    }
    if only_length && with_places {
        return Err(CommandError::text("ERR If you want both the length and indexes, please just use IDX."));
    }
    let a = keys.peek_string(&args[1])?.unwrap_or_default();
    let b = keys.peek_string(&args[2])?.unwrap_or_default();
    let table_bytes = (a.len() + 1).saturating_mul(b.len() + 1).saturating_mul(size_of::<u32>());
    if table_bytes > STRING_BYTES_MAX {
        return Err(CommandError::text("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"));
    }
    memory::ask_for_value(table_bytes)?;
    let lengths = Lengths::of(a, b);
    let length = lengths.at(a.len(), b.len());
    if only_length {
        reply.integer(i64::from(length));
        return Ok(());
    }
    let mut matches = matches(a, b, &lengths);
    if !with_places {
        let common: Vec<u8> = matches.iter().rev().flat_map(|found| &a[found.a.clone()]).copied().collect();
        reply.bulk(&common);
        return Ok(());
    }
    matches.retain(|found| found.a.len() as i64 >= length_min);
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(matches.len());
    for found in &matches {
        reply.array(2 + usize::from(with_lengths));
        for place in [&found.a, &found.b] {
            reply.array(2);
            reply.count(place.start);
            reply.count(place.end - 1);
        }
        if with_lengths {
            reply.count(found.a.len());
        }
    }
    reply.bulk(b"len");
    reply.integer(i64::from(length));
    Ok(())
}
