//! Whatever words stand behind a command's name: they are answered, held back or waited for, and nothing breaks.

use std::panic::{AssertUnwindSafe, catch_unwind};

use savanna_keys::command::TABLE;

use crate::world::{Chance, World};

/// Keys of each type, what options look like, and numbers at the edge.
const WORDS: [&str; 58] = [
    "string",
    "number",
    "list",
    "set",
    "hash",
    "zset",
    "bits",
    "absent",
    "0",
    "1",
    "2",
    "3",
    "7",
    "-1",
    "1.5",
    "inf",
    "nan",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "4294967295",
    "",
    "*",
    "[",
    "(",
    "(1",
    "-",
    "+",
    "$",
    "#",
    "LEFT",
    "RIGHT",
    "MIN",
    "MAX",
    "COUNT",
    "LIMIT",
    "WITHSCORES",
    "WEIGHTS",
    "AGGREGATE",
    "SUM",
    "BYSCORE",
    "BYLEX",
    "REV",
    "NX",
    "XX",
    "GT",
    "EX",
    "PXAT",
    "KEEPTTL",
    "GET",
    "BY",
    "MATCH",
    "TYPE",
    "ID",
    "REPLACE",
    "HELP",
    "LIST",
    "return 1",
];

const PREPARED: [&[&str]; 7] = [
    &["SET", "string", "some bytes"],
    &["SET", "number", "41"],
    &["RPUSH", "list", "a", "b", "3"],
    &["SADD", "set", "a", "b", "3"],
    &["HSET", "hash", "a", "1", "b", "2"],
    &["ZADD", "zset", "1", "a", "2", "b"],
    &["SETBIT", "bits", "77", "1"],
];

/// Runs requests of random words behind each command's name.
fn storm(actors: u16, seed: u64, rounds: usize) {
    let mut chance = Chance::new(seed);
    for command in TABLE {
        let mut world = World::new(actors, seed);
        for round in 0..rounds {
            let client = world.client(round % usize::from(actors));
            if round % 8 == 0 {
                for words in PREPARED {
                    let _ = world.try_request(client, words);
                }
                world.settle();
            }
            let mut words = vec![command.name];
            words.extend((0..chance.below(8)).map(|_| WORDS[chance.below(WORDS.len())]));
            let run = AssertUnwindSafe(|| {
                let _ = world.try_request(client, &words);
                world.settle();
            });
            assert!(catch_unwind(run).is_ok(), "seed {seed}: {words:?}");
        }
    }
}

#[test]
fn any_words_behind_a_command_are_answered() {
    storm(1, 1, 1_000);
    storm(3, 2, 150);
}
