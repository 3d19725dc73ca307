//! What clients of other nodes are answered is what those of this one are.

use std::sync::{Arc, Mutex};

use savanna_keys::command::{Command, CommandNumber};
use savanna_keys::handle::{Answer, HandleError, KeysReply, KeysRequest};
use savanna_keys::reply::Tape;
use savanna_keys::request::OwnedArgs;

use crate::world::World;

/// Each runs after those before it.
const COMMANDS: [&[&str]; 31] = [
    &["SET", "a", "1"],
    &["MSET", "b", "2", "c", "3", "d", "4", "e", "5"],
    &["MGET", "a", "b", "c", "d", "e", "none"],
    &["INCR", "a"],
    &["GETSET", "a", "7"],
    &["RENAME", "a", "f"],
    &["COPY", "f", "g"],
    &["DBSIZE"],
    &["EXISTS", "a", "b", "c", "f", "g"],
    &["RPUSH", "numbers", "3", "1", "2"],
    &["SORT", "numbers", "BY", "weight:*", "GET", "name:*"],
    &["MSET", "weight:1", "9", "weight:2", "8", "weight:3", "7", "name:1", "one", "name:2", "two", "name:3", "three"],
    &["SORT", "numbers", "BY", "weight:*", "GET", "name:*"],
    &["SORT", "numbers", "BY", "weight:*", "STORE", "sorted"],
    &["LRANGE", "sorted", "0", "-1"],
    &["SADD", "s", "x", "y"],
    &["SADD", "t", "y", "z"],
    &["SINTERSTORE", "u", "s", "t"],
    &["SMEMBERS", "u"],
    &["HSET", "h", "field", "value"],
    &["HGETALL", "h"],
    &["ZADD", "z", "1.5", "m"],
    &["ZRANGE", "z", "0", "-1", "WITHSCORES"],
    &["EVAL", "return {redis.call('INCR', KEYS[1]), redis.call('GET', KEYS[2])}", "2", "counted", "b"],
    &["GET", "h"],
    &["SCAN", "nowhere"],
    &["SORT", "h"],
    &["BLPOP", "numbers", "never"],
    &[
        "DEL", "a", "b", "c", "d", "e", "f", "g", "numbers", "sorted", "s", "t", "u", "h", "z", "counted", "name:1",
        "name:2",
    ],
    &["DEL", "weight:1", "weight:2", "weight:3"],
    // One is left.
    &["RANDOMKEY"],
];

/// Sends a request from elsewhere to an actor, and lets everything happen until it is answered.
fn call(world: &mut World, actor: usize, request: KeysRequest) -> KeysReply {
    let outcome: Arc<Mutex<Option<Result<KeysReply, HandleError>>>> = Arc::default();
    let heard = Arc::clone(&outcome);
    let answer = Answer::new(move |outcome| *heard.lock().expect("of one thread") = Some(outcome));
    world.call_from_elsewhere(actor, request, answer);
    for _ in 0..1_000 {
        world.deliver_one();
        (0..world.actor_count()).for_each(|actor| world.append(actor));
        world.log.flush(usize::MAX);
        for actor in 0..world.actor_count() {
            world.clear(actor);
        }
        if let Some(outcome) = outcome.lock().expect("of one thread").take() {
            return outcome.expect("the keys are here");
        }
    }
    panic!("no answer, and nothing is on its way");
}

fn texts(reply: &KeysReply) -> Vec<String> {
    let text = |outcome: Result<savanna_keys::handle::Answered<'_>, &HandleError>| {
        let mut tape = Tape::new();
        outcome.expect("an answer").play(&mut tape);
        tape.to_string()
    };
    reply.outcomes().map(text).collect()
}

fn number(words: &[&str]) -> (CommandNumber, OwnedArgs) {
    let command = Command::find(words[0].as_bytes()).and_then(CommandNumber::of).expect("a command");
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    (command, OwnedArgs::of_words(&words))
}

fn single(words: &[&str]) -> KeysRequest {
    let (command, args) = number(words);
    let mut request = KeysRequest::default();
    request.push(0, command, args.args());
    request
}

#[test]
fn from_elsewhere_commands_do_what_they_do_here() {
    for actors in [1, 2, 5] {
        let (mut here, mut abroad) = (World::new(actors, 7), World::new(actors, 7));
        let client = here.client(0);
        for (place, words) in COMMANDS.iter().enumerate() {
            let expected = here.call(client, words);
            let reply = call(&mut abroad, place % usize::from(actors), single(words));
            assert_eq!(texts(&reply), [expected], "{words:?} with {actors} actors");
        }
    }
}

#[test]
fn a_walk_from_elsewhere_finds_all_keys() {
    for actors in [1, 3] {
        let mut world = World::new(actors, 7);
        for key in 0..50 {
            call(&mut world, 0, single(&["SET", &format!("key{key}"), "value"]));
        }
        let (mut cursor, mut found) = ("0".to_owned(), 0);
        loop {
            let reply = texts(&call(&mut world, 0, single(&["SCAN", &cursor])));
            found += reply[0].matches("\"key").count();
            cursor = reply[0].split('"').nth(1).expect("a cursor").to_owned();
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(found, 50);
        assert!(texts(&call(&mut world, 0, single(&["RANDOMKEY"])))[0].starts_with("\"key"));
    }
}

#[test]
fn the_parts_of_a_request_are_done_in_order_for_each_key() {
    for seed in 0..50 {
        let mut world = World::new(3, seed);
        let mut request = KeysRequest::default();
        let keys = ["a", "b", "c", "d"];
        for (place, key) in keys.iter().cycle().take(40).enumerate() {
            let (command, args) = number(&["INCR", key]);
            if place % 7 == 6 {
                // All keys, of several actors.
                let steps: Vec<_> = keys.iter().map(|key| number(&["INCRBY", key, "0"])).collect();
                request.push_transaction(0, steps.iter().map(|(command, args)| (*command, args.args())));
            }
            request.push(0, command, args.args());
        }
        let count = request.len();
        let replies = texts(&call(&mut world, (seed % 3) as usize, request));
        assert_eq!(replies.len(), count);
        let mut counted = [0; 4];
        let singles = replies.iter().filter(|reply| !reply.starts_with('['));
        for (place, reply) in singles.enumerate() {
            counted[place % 4] += 1;
            assert_eq!(*reply, counted[place % 4].to_string(), "seed {seed}");
        }
    }
}

#[test]
fn what_a_pause_holds_back_is_not_done_and_nothing_after_it() {
    let mut world = World::new(2, 3);
    let client = world.client(0);
    world.call(client, &["CLIENT", "PAUSE", "500", "WRITE"]);
    let mut request = single(&["GET", "a"]);
    for words in [&["INCR", "a"][..], &["GET", "a"]] {
        let (command, args) = number(words);
        request.push(0, command, args.args());
    }
    let reply = call(&mut world, 0, request.clone());
    let outcomes: Vec<_> = reply.outcomes().map(|outcome| outcome.err()).collect();
    let frozen = Some(&HandleError::Frozen { retry_after_ms: 500 });
    assert_eq!(outcomes, [None, frozen, frozen]);
    world.pass(500);
    assert_eq!(texts(&call(&mut world, 0, request)), ["nil", "1", "\"1\""]);
}
