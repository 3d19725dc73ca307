//! Sorted sets.

use std::ops::{Bound, Range};

use hashbrown::HashMap;

use super::generic::ScanOptions;
use super::{
    clamp_range, parse_chosen, parse_count, parse_count_limit, parse_cursor, parse_number_of_keys, parse_pop_count,
};
use crate::error::{CommandError, Outcome};
use crate::keyspace::events::EventClasses;
use crate::keyspace::{Collection, Keyspace, Score, ScoreRange, Set, SortedSet, Value};
use crate::number::{exact, float, parse_float, parse_integer, parse_timeout};
use crate::reply::Reply;
use crate::request::Args;

const NOT_A_RANGE: &str = "ERR min or max is not a float";

fn parse_score(text: &[u8]) -> Result<Score, CommandError> {
    Score::new(parse_float(text)?).ok_or(CommandError::NotFloat)
}

/// `ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]`
pub fn zadd(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (mut nx, mut xx, mut gt, mut lt, mut ch, mut incr) = (false, false, false, false, false, false);
    let mut first = 2;
    for option in args.from(2) {
        match option.to_ascii_lowercase().as_slice() {
            b"nx" => nx = true,
            b"xx" => xx = true,
            b"gt" => gt = true,
            b"lt" => lt = true,
            b"ch" => ch = true,
            b"incr" => incr = true,
            _ => break,
        }
        first += 1;
    }
    let words = args.len() - first;
    if words == 0 || !words.is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    if nx && xx {
        return Err(CommandError::text("ERR XX and NX options at the same time are not compatible"));
    }
    if nx && (gt || lt) || gt && lt {
        return Err(CommandError::text("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if incr && words > 2 {
        return Err(CommandError::text("ERR INCR option supports a single increment-element pair"));
    }
    let scores = args.from(first).step_by(2).map(parse_score).collect::<Result<Vec<_>, _>>()?;
    let members = args.from(first + 1).step_by(2);
    let (mut added, mut changed, mut sum) = (0, 0, None);
    let is_absent = keys.peek_collection::<SortedSet>(&args[1])?.is_none();
    if !(xx && is_absent) {
        keys.change::<SortedSet, _>(&args[1], |set| {
            for (score, member) in scores.iter().zip(members) {
                let present = set.score(member);
                let score = match present {
                    Some(present) if incr => added_scores(present, *score)?,
                    _ => *score,
                };
                let refused = match present {
                    None => xx,
                    Some(present) => nx || gt && score <= present || lt && score >= present,
                };
                if refused {
                    continue;
                }
                sum = Some(score);
                changed += usize::from(present != Some(score));
                added += usize::from(set.put(member, score));
            }
            Ok(())
        })?;
    }
    if changed > 0 {
        keys.note_event(EventClasses::SORTED_SET, if incr { "zincr" } else { "zadd" }, &args[1]);
    }
    if incr {
        match sum {
            Some(sum) => reply.double(sum.get()),
            None => reply.null(),
        }
    } else {
        reply.count(if ch { changed } else { added });
    }
    Ok(())
}

fn added_scores(a: Score, b: Score) -> Result<Score, CommandError> {
    Score::new(a.get() + b.get()).ok_or(CommandError::text("ERR resulting score is not a number (NaN)"))
}

/// `ZINCRBY key increment member`
pub fn zincrby(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let amount = parse_score(&args[2])?;
    let (sum, is_change) = keys.change::<SortedSet, _>(&args[1], |set| {
        let present = set.score(&args[3]);
        let sum = present.map_or(Ok(amount), |present| added_scores(present, amount))?;
        set.put(&args[3], sum);
        Ok((sum, present != Some(sum)))
    })?;
    if is_change {
        keys.note_event(EventClasses::SORTED_SET, "zincr", &args[1]);
    }
    reply.double(sum.get());
    Ok(())
}

/// `ZREM key member [member ...]`
pub fn zrem(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let removed = keys
        .change_present::<SortedSet, _>(&args[1], |set| Ok(args.from(2).filter(|member| set.remove(member)).count()))?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        keys.note_taken(EventClasses::SORTED_SET, "zrem", &args[1]);
    }
    reply.count(removed);
    Ok(())
}

/// `ZCARD key`
pub fn zcard(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    reply.count(keys.collection::<SortedSet>(&args[1])?.map_or(0, SortedSet::len));
    Ok(())
}

/// `ZSCORE key member`
pub fn zscore(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let set = keys.collection::<SortedSet>(&args[1])?;
    answer_score(set.and_then(|set| set.score(&args[2])), reply);
    Ok(())
}

/// `ZMSCORE key member [member ...]`
pub fn zmscore(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let set = keys.collection::<SortedSet>(&args[1])?;
    reply.array(args.len() - 2);
    args.from(2).for_each(|member| answer_score(set.and_then(|set| set.score(member)), reply));
    Ok(())
}

fn answer_score(score: Option<Score>, reply: &mut dyn Reply) {
    match score {
        Some(score) => reply.double(score.get()),
        None => reply.null(),
    }
}

/// `ZRANK key member [WITHSCORE]`
pub fn zrank(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    answer_rank(keys, args, reply, |rank, _| rank)
}

/// `ZREVRANK key member [WITHSCORE]`
pub fn zrevrank(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    answer_rank(keys, args, reply, |rank, length| length - 1 - rank)
}

fn answer_rank(
    keys: &mut Keyspace,
    args: Args<'_>,
    reply: &mut dyn Reply,
    shown: impl FnOnce(usize, usize) -> usize,
) -> Outcome {
    let with_score = match args.from(3).next() {
        None => false,
        Some(option) if option.eq_ignore_ascii_case(b"withscore") && args.len() == 4 => true,
        Some(_) => return Err(CommandError::Syntax),
    };
    let set = keys.collection::<SortedSet>(&args[1])?;
    let found = set.and_then(|set| Some((set.rank(&args[2])?, set.score(&args[2])?, set.len())));
    match (found, with_score) {
        (Some((rank, _, length)), false) => reply.count(shown(rank, length)),
        (Some((rank, score, length)), true) => {
            reply.array(2);
            reply.count(shown(rank, length));
            reply.double(score.get());
        }
        (None, true) => reply.null_array(),
        (None, false) => reply.null(),
    }
    Ok(())
}

fn parse_score_bound(text: &[u8]) -> Result<Bound<Score>, CommandError> {
    let (text, is_excluded) = text.strip_prefix(b"(").map_or((text, false), |text| (text, true));
    let score = float(text).and_then(Score::new).ok_or(CommandError::text(NOT_A_RANGE))?;
    Ok(if is_excluded { Bound::Excluded(score) } else { Bound::Included(score) })
}

fn parse_score_range(low: &[u8], high: &[u8]) -> Result<ScoreRange, CommandError> {
    Ok((parse_score_bound(low)?, parse_score_bound(high)?))
}

/// A bound of bytes: `-`, `+`, `[a`, `(a`. What is past the end on the wrong side makes the range empty.
#[derive(Clone, Copy)]
enum BytesBound<'a> {
    First,
    Last,
    At(Bound<&'a [u8]>),
}

fn parse_bytes_bound(text: &[u8]) -> Result<BytesBound<'_>, CommandError> {
    match text {
        b"-" => Ok(BytesBound::First),
        b"+" => Ok(BytesBound::Last),
        [b'[', bytes @ ..] => Ok(BytesBound::At(Bound::Included(bytes))),
        [b'(', bytes @ ..] => Ok(BytesBound::At(Bound::Excluded(bytes))),
        _ => Err(CommandError::text("ERR min or max not valid string range item")),
    }
}

/// A range of a sorted set, as a request says it.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    Ranks(i64, i64),
    Scores(ScoreRange),
    Bytes(BytesBound<'a>, BytesBound<'a>),
}

impl<'a> Wanted<'a> {
    fn ranks(low: &[u8], high: &[u8]) -> Result<Self, CommandError> {
        Ok(Self::Ranks(parse_integer(low)?, parse_integer(high)?))
    }

    fn scores(low: &[u8], high: &[u8]) -> Result<Self, CommandError> {
        Ok(Self::Scores(parse_score_range(low, high)?))
    }

    fn bytes(low: &'a [u8], high: &'a [u8]) -> Result<Self, CommandError> {
        Ok(Self::Bytes(parse_bytes_bound(low)?, parse_bytes_bound(high)?))
    }

    /// The ranks from the lowest up; of `Ranks` in the reverse order if `is_reversed`.
    fn of(self, set: &SortedSet, is_reversed: bool) -> Range<usize> {
        match self {
            Self::Ranks(start, stop) => {
                let range = clamp_range(start, stop, set.len());
                if is_reversed { set.len() - range.end..set.len() - range.start } else { range }
            }
            Self::Scores(range) => set.ranks_by_score(range),
            Self::Bytes(low, high) => {
                let low = match low {
                    BytesBound::First => Bound::Unbounded,
                    BytesBound::Last => return 0..0,
                    BytesBound::At(bound) => bound,
                };
                let high = match high {
                    BytesBound::First => return 0..0,
                    BytesBound::Last => Bound::Unbounded,
                    BytesBound::At(bound) => bound,
                };
                set.ranks_by_bytes(low, high)
            }
        }
    }
}

/// Cuts a range to what LIMIT leaves, counted from where the reader begins.
fn limited(range: Range<usize>, limit: Option<(i64, i64)>, is_reversed: bool) -> Range<usize> {
    let Some((offset, count)) = limit else { return range };
    let Ok(offset) = usize::try_from(offset) else { return 0..0 };
    let skipped = offset.min(range.len());
    let taken = usize::try_from(count).unwrap_or(usize::MAX).min(range.len() - skipped);
    if is_reversed {
        range.end - skipped - taken..range.end - skipped
    } else {
        range.start + skipped..range.start + skipped + taken
    }
}

/// What the commands of the form `ZRANGE` were asked for.
struct Selection<'a> {
    wanted: Wanted<'a>,
    is_reversed: bool,
    limit: Option<(i64, i64)>,
    with_scores: bool,
}

impl<'a> Selection<'a> {
    /// The words of `ZRANGE` from the key's on: `key low high [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]`.
    fn parse(args: Args<'a>, key: usize, may_have_scores: bool) -> Result<Self, CommandError> {
        let (mut by_score, mut by_bytes, mut is_reversed, mut with_scores) = (false, false, false, false);
        let mut limit = None;
        let mut options = args.from(key + 3);
        while let Some(option) = options.next() {
            match option.to_ascii_lowercase().as_slice() {
                b"byscore" => by_score = true,
                b"bylex" => by_bytes = true,
                b"rev" => is_reversed = true,
                b"withscores" if may_have_scores => with_scores = true,
                b"limit" => limit = Some(parse_limit(&mut options)?),
                _ => return Err(CommandError::Syntax),
            }
        }
        // A limit without a count is none here.
        let is_limited = limit.is_some_and(|(_, count)| count != -1);
        if is_limited && !by_score && !by_bytes {
            return Err(CommandError::text(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && by_bytes {
            return Err(CommandError::text("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        let (mut low, mut high) = (args.at(key + 1), args.at(key + 2));
        if is_reversed && (by_score || by_bytes) {
            (low, high) = (high, low);
        }
        let wanted = match (by_score, by_bytes) {
            (false, false) => Wanted::ranks(low, high)?,
            (true, false) => Wanted::scores(low, high)?,
            (false, true) => Wanted::bytes(low, high)?,
            (true, true) => return Err(CommandError::Syntax),
        };
        let limit = limit.filter(|_| by_score || by_bytes);
        Ok(Self { wanted, is_reversed, limit, with_scores })
    }

    fn of(&self, set: &SortedSet) -> Range<usize> {
        limited(self.wanted.of(set, self.is_reversed), self.limit, self.is_reversed)
    }

    fn answer(&self, keys: &mut Keyspace, key: &[u8], reply: &mut dyn Reply) -> Outcome {
        let Some(set) = keys.collection::<SortedSet>(key)? else {
            reply.array(0);
            return Ok(());
        };
        let range = self.of(set);
        let length = range.len();
        if self.is_reversed {
            answer_members(set.range(range).rev(), length, self.with_scores, reply);
        } else {
            answer_members(set.range(range), length, self.with_scores, reply);
        }
        Ok(())
    }
}

fn parse_limit<'a>(options: &mut impl Iterator<Item = &'a [u8]>) -> Result<(i64, i64), CommandError> {
    let (offset, count) = options.next().zip(options.next()).ok_or(CommandError::Syntax)?;
    Ok((parse_integer(offset)?, parse_integer(count)?))
}

fn answer_members<'a>(
    members: impl Iterator<Item = (&'a [u8], Score)>,
    length: usize,
    with_scores: bool,
    reply: &mut dyn Reply,
) {
    if with_scores {
        reply.pairs(length)
    } else {
        reply.array(length)
    }
    for (member, score) in members {
        if with_scores {
            reply.pair();
        }
        reply.bulk(member);
        if with_scores {
            reply.double(score.get());
        }
    }
}

/// `ZRANGE key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]`
pub fn zrange(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    Selection::parse(args, 1, true)?.answer(keys, &args[1], reply)
}

/// `ZRANGESTORE destination source min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]`
pub fn zrangestore(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let selection = Selection::parse(args, 2, false)?;
    keys.ask_for_memory_of(args.from(2).take(1))?;
    let selected: SortedSet = match keys.collection::<SortedSet>(&args[2])? {
        Some(set) => set.range(selection.of(set)).collect(),
        None => SortedSet::default(),
    };
    store(keys, &args[1], selected, reply, "zrangestore")
}

/// Keeps a result, and answers with how many members it has.
pub(super) fn store(
    keys: &mut Keyspace,
    key: &[u8],
    set: SortedSet,
    reply: &mut dyn Reply,
    event: &'static str,
) -> Outcome {
    let count = set.len();
    keys.store(key, (count > 0).then(|| set.into_value()), EventClasses::SORTED_SET, event)?;
    reply.count(count);
    Ok(())
}

/// The older commands, each a `ZRANGE` with options in its name.
fn older<'a>(
    keys: &mut Keyspace,
    args: Args<'a>,
    reply: &mut dyn Reply,
    wanted: Wanted<'a>,
    is_reversed: bool,
    may_have_scores: bool,
) -> Outcome {
    let mut selection = Selection { wanted, is_reversed, limit: None, with_scores: false };
    let may_be_limited = !matches!(wanted, Wanted::Ranks(..));
    let mut options = args.from(4);
    while let Some(option) = options.next() {
        match option.to_ascii_lowercase().as_slice() {
            b"withscores" if may_have_scores => selection.with_scores = true,
            b"limit" if may_be_limited => selection.limit = Some(parse_limit(&mut options)?),
            _ => return Err(CommandError::Syntax),
        }
    }
    selection.answer(keys, &args[1], reply)
}

/// `ZREVRANGE key start stop [WITHSCORES]`
pub fn zrevrange(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    older(keys, args, reply, Wanted::ranks(args.at(2), args.at(3))?, true, true)
}

/// `ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]`
pub fn zrangebyscore(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    older(keys, args, reply, Wanted::scores(args.at(2), args.at(3))?, false, true)
}

/// `ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]`
pub fn zrevrangebyscore(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    older(keys, args, reply, Wanted::scores(args.at(3), args.at(2))?, true, true)
}

/// `ZRANGEBYLEX key min max [LIMIT offset count]`
pub fn zrangebylex(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    older(keys, args, reply, Wanted::bytes(args.at(2), args.at(3))?, false, false)
}

/// `ZREVRANGEBYLEX key max min [LIMIT offset count]`
pub fn zrevrangebylex(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    older(keys, args, reply, Wanted::bytes(args.at(3), args.at(2))?, true, false)
}

/// `ZCOUNT key min max`
pub fn zcount(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    count(keys, args, reply, Wanted::scores(args.at(2), args.at(3))?)
}

/// `ZLEXCOUNT key min max`
pub fn zlexcount(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    count(keys, args, reply, Wanted::bytes(args.at(2), args.at(3))?)
}

fn count(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply, wanted: Wanted<'_>) -> Outcome {
    let set = keys.collection::<SortedSet>(&args[1])?;
    reply.count(set.map_or(0, |set| wanted.of(set, false).len()));
    Ok(())
}

/// `ZREMRANGEBYRANK key start stop`
pub fn zremrangebyrank(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    remove_range(keys, args, reply, Wanted::ranks(args.at(2), args.at(3))?, "zremrangebyrank")
}

/// `ZREMRANGEBYSCORE key min max`
pub fn zremrangebyscore(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    remove_range(keys, args, reply, Wanted::scores(args.at(2), args.at(3))?, "zremrangebyscore")
}

/// `ZREMRANGEBYLEX key min max`
pub fn zremrangebylex(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    remove_range(keys, args, reply, Wanted::bytes(args.at(2), args.at(3))?, "zremrangebylex")
}

fn remove_range(
    keys: &mut Keyspace,
    args: Args<'_>,
    reply: &mut dyn Reply,
    wanted: Wanted<'_>,
    event: &'static str,
) -> Outcome {
    let count = keys.peek_collection::<SortedSet>(&args[1])?.map_or(0, |set| wanted.of(set, false).len());
    keys.ask_for_log_of_elements(&args[1], count)?;
    let removed = keys.change_present::<SortedSet, _>(&args[1], |set| {
        let members: Vec<Box<[u8]>> = set.range(wanted.of(set, false)).map(|(member, _)| member.into()).collect();
        Ok(members.iter().filter(|member| set.remove(member)).count())
    })?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        keys.note_taken(EventClasses::SORTED_SET, event, &args[1]);
    }
    reply.count(removed);
    Ok(())
}

/// `ZPOPMIN key [count]`
pub fn zpopmin(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    pop(keys, args, reply, false)
}

/// `ZPOPMAX key [count]`
pub fn zpopmax(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    pop(keys, args, reply, true)
}

type Popped = Vec<(Box<[u8]>, Score)>;

fn take_from_end(
    keys: &mut Keyspace,
    key: &[u8],
    count: usize,
    is_highest: bool,
) -> Result<Option<Popped>, CommandError> {
    keys.ask_for_log_of_elements(key, count)?;
    let taken = keys.change_present::<SortedSet, Popped>(key, |set| {
        let count = count.min(set.len());
        let taken: Popped = if is_highest {
            let range = set.len() - count..set.len();
            set.range(range).rev().map(|(member, score)| (member.into(), score)).collect()
        } else {
            set.range(0..count).map(|(member, score)| (member.into(), score)).collect()
        };
        for (member, _) in &taken {
            set.remove(member);
        }
        Ok(taken)
    })?;
    if taken.as_ref().is_some_and(|taken| !taken.is_empty()) {
        keys.note_taken(EventClasses::SORTED_SET, if is_highest { "zpopmax" } else { "zpopmin" }, key);
    }
    Ok(taken)
}

fn pop(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply, is_highest: bool) -> Outcome {
    if args.len() > 3 {
        return Err(CommandError::Syntax);
    }
    let refusal = "ERR value is out of range, must be positive";
    let count = args.from(2).next().map(|count| parse_count(count, refusal)).transpose()?;
    let taken = take_from_end(keys, &args[1], count.unwrap_or(1), is_highest)?.unwrap_or_default();
    if count.is_some() {
        reply.pairs(taken.len());
    } else {
        reply.array(2 * taken.len());
    }
    for (member, score) in taken {
        if count.is_some() {
            reply.pair();
        }
        reply.bulk(&member);
        reply.double(score.get());
    }
    Ok(())
}

/// `ZMPOP numkeys key [key ...] MIN | MAX [COUNT count]`
pub fn zmpop(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    pop_several(keys, args, None, reply)
}

/// `ZMPOP`, with a time-out that is read after all else is right.
fn pop_several(keys: &mut Keyspace, args: Args<'_>, timeout: Option<&[u8]>, reply: &mut dyn Reply) -> Outcome {
    let (number, rest) = parse_number_of_keys(args, 1)?;
    let is_highest = match args.from(rest).next().map(<[u8]>::to_ascii_lowercase).as_deref() {
        Some(b"min") => false,
        Some(b"max") => true,
        _ => return Err(CommandError::Syntax),
    };
    let count = parse_pop_count(args.skip(rest + 1))?;
    timeout.map(parse_timeout).transpose()?;
    for key in args.from(2).take(number) {
        let Some(taken) = take_from_end(keys, key, count, is_highest)? else { continue };
        reply.array(2);
        reply.bulk(key);
        reply.array(taken.len());
        for (member, score) in taken {
            reply.array(2);
            reply.bulk(&member);
            reply.double(score.get());
        }
        return Ok(());
    }
    reply.null_array();
    Ok(())
}

/// `BZMPOP timeout numkeys key [key ...] MIN | MAX [COUNT count]`, without the waiting
pub fn bzmpop(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    pop_several(keys, args.skip(1), Some(args.at(1)), reply)
}

/// `BZPOPMIN key [key ...] timeout`, without the waiting
pub fn bzpopmin(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    pop_first(keys, args, reply, false)
}

/// `BZPOPMAX key [key ...] timeout`, without the waiting
pub fn bzpopmax(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    pop_first(keys, args, reply, true)
}

fn pop_first(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply, is_highest: bool) -> Outcome {
    let timeout = args.len() - 1;
    parse_timeout(&args[timeout])?;
    for key in args.from(1).take(timeout - 1) {
        let taken = take_from_end(keys, key, 1, is_highest)?.unwrap_or_default();
        let Some((member, score)) = taken.first() else { continue };
        reply.array(3);
        reply.bulk(key);
        reply.bulk(member);
        reply.double(score.get());
        return Ok(());
    }
    reply.null_array();
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            // Infinity and its negative cancel out.
            Self::Sum if (a + b).is_nan() => 0.0,
            Self::Sum => a + b,
            Self::Min => a.min(b),
            Self::Max => a.max(b),
        }
    }
}

/// The result of `numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]`, from the word `at`
/// on, and whether scores are wanted.
fn combine(
    keys: &mut Keyspace,
    args: Args<'_>,
    at: usize,
    operation: Operation,
    may_have_scores: bool,
) -> Result<(SortedSet, bool), CommandError> {
    let (number, rest) = look_at_inputs(keys, args, at)?;
    let mut weights = vec![1.0; number];
    let (mut aggregate, mut with_scores) = (Aggregate::Sum, false);
    let mut options = args.from(rest);
    while let Some(option) = options.next() {
        match option.to_ascii_lowercase().as_slice() {
            b"weights" if operation != Operation::Difference => {
                for weight in &mut weights {
                    let text = options.next().ok_or(CommandError::Syntax)?;
                    *weight = float(text).ok_or(CommandError::text("ERR weight value is not a float"))?;
                }
            }
            b"aggregate" if operation != Operation::Difference => {
                aggregate = match options.next().map(<[u8]>::to_ascii_lowercase).as_deref() {
                    Some(b"sum") => Aggregate::Sum,
                    Some(b"min") => Aggregate::Min,
                    Some(b"max") => Aggregate::Max,
                    _ => return Err(CommandError::Syntax),
                };
            }
            b"withscores" if may_have_scores => with_scores = true,
            _ => return Err(CommandError::Syntax),
        }
    }
    keys.ask_for_memory_of(args.from(at + 1).take(number))?;
    let mut inputs = args.from(at + 1).take(number).zip(weights);
    let (first, weight) = inputs.next().ok_or(CommandError::Syntax)?;
    let mut result = weighted(keys, first, weight)?;
    for (key, weight) in inputs {
        let other = weighted(keys, key, weight)?;
        match operation {
            Operation::Union => {
                for (member, score) in other {
                    result.entry(member).and_modify(|mine| *mine = aggregate.of(*mine, score)).or_insert(score);
                }
            }
            Operation::Intersection => result.retain(|member, mine| match other.get(member) {
                Some(score) => {
                    *mine = aggregate.of(*mine, *score);
                    true
                }
                None => false,
            }),
            Operation::Difference => result.retain(|member, _| !other.contains_key(member)),
        }
    }
    let scored = result.iter().filter_map(|(member, score)| Some((&**member, Score::new(*score)?)));
    Ok((scored.collect(), with_scores))
}

/// How many keys `numkeys key [key ...]` names, from the word `at` on, and the first word behind them. All have to be sorted
/// sets or sets.
fn look_at_inputs(keys: &mut Keyspace, args: Args<'_>, at: usize) -> Result<(usize, usize), CommandError> {
    if parse_integer(&args[at])? <= 0 {
        return Err(CommandError::from(format!(
            "ERR at least 1 input key is needed for '{}' command",
            String::from_utf8_lossy(&args[0]).to_lowercase()
        )));
    }
    let (number, rest) = parse_number_of_keys(args, at)?;
    for key in args.from(at + 1).take(number) {
        let value = keys.get(key);
        if value.is_some_and(|value| SortedSet::of(value).is_none() && Set::of(value).is_none()) {
            return Err(CommandError::WrongType);
        }
    }
    Ok((number, rest))
}

/// The members of a sorted set, or of a set with scores of 1.
fn weighted(keys: &Keyspace, key: &[u8], weight: f64) -> Result<HashMap<Box<[u8]>, f64>, CommandError> {
    let product = |score: f64| if (score * weight).is_nan() { 0.0 } else { score * weight };
    let Some(value) = keys.peek(key).map(|entry| &entry.value) else { return Ok(HashMap::new()) };
    if let Some(set) = SortedSet::of(value) {
        return Ok(set.iter().map(|(member, score)| (member.into(), product(score.get()))).collect());
    }
    let set = Set::of(value).ok_or(CommandError::WrongType)?;
    Ok(set.iter().map(|member| (member.into(), product(1.0))).collect())
}

fn answer_combined(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply, operation: Operation) -> Outcome {
    let (set, with_scores) = combine(keys, args, 1, operation, true)?;
    answer_members(set.iter(), set.len(), with_scores, reply);
    Ok(())
}

fn store_combined(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply, operation: Operation) -> Outcome {
    let (set, _) = combine(keys, args, 2, operation, false)?;
    let stored = match operation {
        Operation::Union => "zunionstore",
        Operation::Intersection => "zinterstore",
        Operation::Difference => "zdiffstore",
    };
    store(keys, &args[1], set, reply, stored)
}

/// `ZUNION numkeys key [key ...] [WEIGHTS ...] [AGGREGATE ...] [WITHSCORES]`
pub fn zunion(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    answer_combined(keys, args, reply, Operation::Union)
}

/// `ZINTER numkeys key [key ...] [WEIGHTS ...] [AGGREGATE ...] [WITHSCORES]`
pub fn zinter(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    answer_combined(keys, args, reply, Operation::Intersection)
}

/// `ZINTERCARD numkeys key [key ...] [LIMIT limit]`
pub fn zintercard(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (number, rest) = look_at_inputs(keys, args, 1)?;
    let limit = parse_count_limit(args.skip(rest))?;
    let names = args.from(2).take(number);
    let mut inputs: Vec<Option<&Value>> = names.map(|name| keys.peek(name).map(|entry| &entry.value)).collect();
    inputs.sort_by_key(|input| input.map_or(0, Value::element_count));
    let is_in_all = |member: &&[u8]| inputs[1..].iter().flatten().all(|other| is_member(other, member));
    reply.count(match inputs[0] {
        None => 0,
        Some(Value::Set(smallest)) => smallest.iter().filter(is_in_all).take(limit).count(),
        Some(Value::SortedSet(smallest)) => {
            smallest.iter().map(|(member, _)| member).filter(is_in_all).take(limit).count()
        }
        Some(_) => return Err(CommandError::WrongType),
    });
    Ok(())
}

fn is_member(value: &Value, member: &[u8]) -> bool {
    match value {
        Value::Set(set) => set.contains(member),
        Value::SortedSet(set) => set.score(member).is_some(),
        _ => false,
    }
}

/// `ZDIFF numkeys key [key ...] [WITHSCORES]`
pub fn zdiff(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    answer_combined(keys, args, reply, Operation::Difference)
}

/// `ZUNIONSTORE destination numkeys key [key ...] [WEIGHTS ...] [AGGREGATE ...]`
pub fn zunionstore(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    store_combined(keys, args, reply, Operation::Union)
}

/// `ZINTERSTORE destination numkeys key [key ...] [WEIGHTS ...] [AGGREGATE ...]`
pub fn zinterstore(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    store_combined(keys, args, reply, Operation::Intersection)
}

/// `ZDIFFSTORE destination numkeys key [key ...]`
pub fn zdiffstore(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    store_combined(keys, args, reply, Operation::Difference)
}

/// `ZRANDMEMBER key [count [WITHSCORES]]`
pub fn zrandmember(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (count, with_scores) = parse_chosen(args.skip(2), "withscores")?;
    let mut random = keys.random.clone();
    let set = keys.collection::<SortedSet>(&args[1])?;
    // Not copied: a member may be long, and be wanted many times.
    fn at(set: &SortedSet, rank: usize) -> Option<(&[u8], Score)> {
        set.range(rank..rank + 1).next()
    }
    match (set, count) {
        (None, None) => reply.null(),
        (None, Some(_)) => reply.array(0),
        (Some(set), None) => reply.bulk_or_null(at(set, random.below(set.len())).map(|(member, _)| member)),
        (Some(set), Some(count)) => {
            let chosen: Vec<_> = random.choose(set.len(), count).into_iter().filter_map(|rank| at(set, rank)).collect();
            answer_members(chosen.iter().copied(), chosen.len(), with_scores, reply);
        }
    }
    keys.random = random;
    Ok(())
}

/// `ZSCAN key cursor [MATCH pattern] [COUNT count]`
pub fn zscan(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let options = ScanOptions::parse(args, 3)?;
    let cursor = usize::try_from(parse_cursor(&args[2])?).unwrap_or(usize::MAX);
    let limits = keys.encodings;
    let set = keys.collection::<SortedSet>(&args[1])?;
    let (next, found): (usize, Vec<_>) = match set.filter(|set| limits.is_packed_sorted_set(set)) {
        Some(set) => (0, set.iter().filter(|(member, _)| options.wants(member)).collect()),
        None => {
            let range = options.walk(cursor, set.map_or(0, SortedSet::len));
            let next = range.start;
            let members = range.rev().filter_map(|index| set?.at(index));
            (next, members.filter(|(member, _)| options.wants(member)).collect())
        }
    };
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(2 * found.len());
    for (member, score) in found {
        reply.bulk(member);
        reply.bulk(exact(score.get()).as_bytes());
    }
    Ok(())
}
