//! The keys that are asked for most.

use hashbrown::HashMap;

use crate::actor::{Actor, HOT_KEYS_KEPT};
use crate::error::{CommandError, Outcome};
use crate::number::integer;
use crate::reply::{Reply, Tape, Value};
use crate::request::Args;

/// `HOTKEYS [count]`, the part of one actor: how many are wanted, and keys with requests, for [`combine`].
pub fn hot_keys(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    const WANTED: i64 = 10;
    let wanted = match args.len() {
        1 => Some(WANTED),
        2 => integer(&args[1]).filter(|count| (1..=HOT_KEYS_KEPT as i64).contains(count)),
        _ => return Err(CommandError::Syntax),
    };
    let wanted = wanted.ok_or_else(|| {
        CommandError::from(format!("ERR expected a count from 1 to {HOT_KEYS_KEPT}, came '{}'", args[1].escape_ascii()))
    })?;
    let hot = actor.hot_keys();
    reply.array(1 + 2 * hot.len());
    reply.integer(wanted);
    for (key, requests) in hot {
        reply.bulk(key);
        reply.integer(requests as i64);
    }
    Ok(())
}

/// Adds up what the actors counted: replicas of a key are asked at several of them.
pub(crate) fn combine(parts: &[Tape], reply: &mut dyn Reply) {
    let (mut wanted, mut sums) = (0, HashMap::<Vec<u8>, i64>::new());
    for part in parts {
        let mut key = None;
        for value in part.values() {
            match (value, key.take()) {
                (Value::Bulk(name), _) => key = Some(name),
                (Value::Integer(requests), Some(key)) => *sums.entry_ref(key).or_default() += requests,
                (Value::Integer(count), None) => wanted = count as usize,
                _ => {}
            }
        }
    }
    let mut hot: Vec<(Vec<u8>, i64)> = sums.into_iter().collect();
    hot.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    hot.truncate(wanted);
    reply.array(hot.len());
    for (key, requests) in hot {
        reply.array(2);
        reply.bulk(&key);
        reply.integer(requests);
    }
}
