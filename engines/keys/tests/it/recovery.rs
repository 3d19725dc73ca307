//! What is in the log comes back, once, whatever the number of actors.

use std::slice;

use savanna_epoch::NodeEpoch;
use savanna_journal::{Draft, Journal, Lsn, Options};
use savanna_keys::actor::Actor;
use savanna_keys::config::Config;
use savanna_keys::delta::{self, DeltaLog, Header};
use savanna_keys::keyspace::{Expiry, Keyspace, log_whole};
use savanna_keys::log::recover;
use savanna_keys::placement::{ActorId, Routes, group_of};
use savanna_keys::reply::Tape;
use savanna_keys::request::OwnedArgs;
use savanna_keys::session::SessionId;
use savanna_lattice::{Hlc, UnixMillis};

use crate::world::{NOW, World, new_actors};

const SCRIPT: [&str; 60] = [
    "MSET flushed 1 too 2 with 3 these 4 all 5",
    "SADD collections 1 2",
    "FLUSHDB",
    "SET a 1",
    "INCR a",
    "APPEND a xyz",
    "SETRANGE a 1 --",
    "SETBIT bits 100 1",
    "SETBIT bits 9 1",
    "SETRANGE gap 5 x",
    "SETRANGE gap 9 y",
    "SET gone 1",
    "DEL gone",
    "SET lives 1 EX 100",
    "PERSIST lives",
    "EXPIRE lives 200",
    "SET other 1 PX 5000000",
    "HSET h f 1 g 2 k 3",
    "HDEL h g",
    "HINCRBY h f 41",
    "SADD s 1 2 3 4",
    "SREM s 2",
    "SADD emptied x",
    "SREM emptied x",
    "RPUSH l a b c d e f",
    "LPOP l",
    "LSET l 0 B",
    "LINSERT l AFTER c c2",
    "LREM l 1 d",
    "LTRIM l 0 3",
    "ZADD z 1 a 2 b 3 c",
    "ZADD z 5 a",
    "ZREM z b",
    "RENAME s t",
    "COPY z z2",
    "GETEX other PERSIST",
    "BITFIELD fields SET u8 #3 200 INCRBY i5 7 3",
    "PFADD few 1 2 3 4",
    "PFADD few 5",
    "PFADD many x",
    "PFDEBUG TODENSE many",
    "PFADD many a b c d e f",
    "PFMERGE both few many",
    "GEOADD places 13.361389 38.115556 Palermo 15.087269 37.502669 Catania",
    "GEOSEARCHSTORE near places FROMLONLAT 15 37 BYRADIUS 100 km STOREDIST",
    "XADD stream 1-1 f a g b",
    "XADD stream 2-* f c g d",
    "XADD stream 2-* other field",
    "XADD stream * f e",
    "XGROUP CREATE stream readers 0",
    "XGROUP CREATE stream late $",
    "XGROUP DESTROY stream late",
    "XREADGROUP GROUP readers alice COUNT 3 STREAMS stream >",
    "XACK stream readers 2-0",
    "XCLAIM stream readers bob 0 2-1 RETRYCOUNT 5",
    "XREADGROUP GROUP readers carol NOACK STREAMS stream >",
    "XGROUP DELCONSUMER stream readers carol",
    "XDEL stream 2-0",
    "XTRIM stream MAXLEN = 2",
    "XGROUP CREATE empty g 5 MKSTREAM",
];

fn run(actor: &mut Actor, session: SessionId, line: &str) -> String {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let mut tape = Tape::new();
    actor.request(session, OwnedArgs::of_words(&words).args(), &mut tape);
    tape.to_string()
}

/// All keys with everything about them, in order: the deltas of a snapshot.
fn contents(keyspaces: &[&Keyspace]) -> Vec<String> {
    let mut deltas = Vec::new();
    for (number, database) in keyspaces.iter().flat_map(|keys| keys.databases()) {
        for entry in database.iter() {
            let mut log = DeltaLog::new();
            log.enable(true);
            let header = Header { database: number, key: &entry.key, base: Hlc::ZERO, version: entry.version };
            log_whole(&mut log, header, entry);
            deltas.push(log.bytes().escape_ascii().to_string());
        }
    }
    deltas.sort();
    deltas
}

fn new_actor() -> (Actor, SessionId) {
    let mut actor = Actor::new(ActorId(0), Routes::over(1), Config::default(), 0);
    actor.tick(NOW);
    let session = actor.open_session(String::new(), String::new());
    (actor, session)
}

fn scripted(actor: &mut Actor, session: SessionId) {
    for line in SCRIPT {
        let reply = run(actor, session, line);
        assert!(!reply.starts_with('!'), "{line}: {reply}");
    }
}

#[test]
fn everything_in_the_log_comes_back_with_any_number_of_actors() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut actor, session) = new_actor();
    let journal =
        recover(Options::dir(folder.path()), NodeEpoch(1), slice::from_mut(&mut actor)).expect("an empty log");
    scripted(&mut actor, session);
    let append = |draft: Draft<'_>| journal.append(&[draft]);
    actor.append_changes(append).expect("takes it").expect("something changed");
    assert_eq!(actor.append_changes(append).expect("takes it"), None);
    journal.close().expect("flushes");
    drop(journal);
    let before = contents(&[actor.keys()]);
    assert!(before.len() > 8);
    for (opening, actors) in [(2, 1), (3, 4)] {
        let routes = Routes::over(actors);
        let mut recovered = new_actors(actors, &Config::default(), 0);
        recover(Options::dir(folder.path()), NodeEpoch(opening), &mut recovered).expect("reads");
        let keyspaces: Vec<&Keyspace> = recovered.iter().map(Actor::keys).collect();
        assert_eq!(contents(&keyspaces), before, "{actors} actors");
        for (actor, keys) in keyspaces.iter().enumerate() {
            for (_, database) in keys.databases() {
                for entry in database.iter() {
                    let owner = routes.actor_of(group_of(&entry.key));
                    assert_eq!(owner.index(), actor, "{:?}", entry.key);
                }
            }
            assert!(keys.latest_version() >= keyspaces[0].latest_version(), "clocks go on after all");
        }
    }
}

/// A fuzzy snapshot is the state at some time after the beginning of the log that is put on top of it.
#[test]
fn a_log_put_on_top_of_what_it_led_to_changes_nothing() {
    let (mut actor, session) = new_actor();
    actor.keep_changes();
    scripted(&mut actor, session);
    let log = actor.changes().to_vec();
    let whole = contents(&[actor.keys()]);
    // Every prefix of the log may be what the snapshot has seen.
    let mut lengths = vec![0];
    let mut at = 0;
    while at < log.len() {
        at += 4 + u32::from_le_bytes(log[at..at + 4].try_into().expect("four bytes")) as usize;
        lengths.push(at);
    }
    for seen in lengths {
        let mut keys = Keyspace::new(Routes::over(1), 0);
        keys.set_now(NOW);
        for part in [&log[..seen], &log, &log] {
            delta::read_all(part, &mut |header, body| keys.replay(header, body)).expect("replays");
        }
        assert_eq!(contents(&[&keys]), whole, "after {seen} of {} bytes", log.len());
    }
}

fn replayed(parts: &[&[u8]]) -> Keyspace {
    let mut keys = Keyspace::new(Routes::over(1), 0);
    keys.set_now(NOW);
    for part in parts {
        delta::read_all(part, &mut |header, body| keys.replay(header, body)).expect("replays");
    }
    keys
}

/// What a command writes into the log.
fn logged(actor: &mut Actor, session: SessionId, line: &str) -> Vec<u8> {
    actor.forget_changes();
    run(actor, session, line);
    actor.changes().to_vec()
}

#[test]
fn a_key_that_is_lent_while_all_others_are_written_once_more_is_written_when_it_comes_back() {
    let mut keys = Keyspace::new(Routes::over(1), 0);
    keys.set_now(NOW);
    keys.log.enable(true);
    for key in [&b"lent"[..], b"stays"] {
        keys.set_string(key, b"value", Expiry::At(UnixMillis::NEVER));
    }
    keys.log.clear();
    let entry = keys.lend(0, b"lent").expect("it is there");
    keys.begin_rewrite();
    while !keys.rewrite_some(1 << 20) {}
    keys.take_back(0, entry);
    keys.end_rewrite();
    // What is before the rewrite is not needed any more.
    let again = replayed(&[keys.log.bytes()]);
    assert!(again.contains(b"stays"));
    assert!(again.contains(b"lent"));
}

#[test]
fn an_expiry_of_another_version_is_not_applied() {
    let (mut actor, session) = new_actor();
    actor.keep_changes();
    let [set, append, expire] =
        ["SET key a", "APPEND key b", "PEXPIREAT key 99999999999999"].map(|line| logged(&mut actor, session, line));
    let all = contents(&[actor.keys()]);
    assert_eq!(contents(&[&replayed(&[&set, &append, &expire])]), all);
    let before = contents(&[&replayed(&[&set])]);
    assert_eq!(contents(&[&replayed(&[&set, &expire])]), before, "it is of what was appended to");
}

#[test]
fn deletions_and_the_clock_outlive_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut actor, session) = new_actor();
    let journal =
        recover(Options::dir(folder.path()), NodeEpoch(1), slice::from_mut(&mut actor)).expect("an empty log");
    for line in ["SET deleted a", "SADD emptied a", "SREM emptied a", "DEL deleted", "SET last a"] {
        run(&mut actor, session, line);
    }
    actor.append_changes(|draft| journal.append(&[draft])).expect("takes it").expect("something changed");
    journal.close().expect("flushes");
    drop(journal);
    let routes = Routes::over(4);
    let mut recovered = new_actors(4, &Config::default(), 0);
    recover(Options::dir(folder.path()), NodeEpoch(2), &mut recovered).expect("reads");
    let keyspaces: Vec<&Keyspace> = recovered.iter().map(Actor::keys).collect();
    for key in [&b"deleted"[..], b"emptied"] {
        let of = routes.actor_of(group_of(key)).index();
        let version = actor.keys().deletion_version(key);
        assert!(version > Hlc::ZERO);
        assert_eq!(keyspaces[of].deletion_version(key), version, "an older copy from elsewhere would bring it back");
    }
    for keys in &keyspaces {
        assert!(keys.latest_version() >= actor.keys().latest_version(), "what comes is later than all that was");
    }
}

fn ask(actor: &mut Actor, session: SessionId, words: &[&str]) -> String {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let mut tape = Tape::new();
    actor.request(session, OwnedArgs::of_words(&words).args(), &mut tape);
    tape.to_string()
}

#[test]
fn libraries_of_functions_come_back_at_every_actor_also_when_all_was_written_once_more() {
    let library = |name: &str, number: u8| {
        format!("#!lua name={name}\nredis.register_function('f_{name}', function() return {number} end)")
    };
    for is_rewritten in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut actor, session) = new_actor();
        let journal =
            recover(Options::dir(folder.path()), NodeEpoch(1), slice::from_mut(&mut actor)).expect("an empty log");
        for (name, number) in [("stays", 1), ("replaced", 2), ("deleted", 3)] {
            ask(&mut actor, session, &["FUNCTION", "LOAD", &library(name, number)]);
        }
        ask(&mut actor, session, &["FUNCTION", "LOAD", "REPLACE", &library("replaced", 4)]);
        ask(&mut actor, session, &["FUNCTION", "DELETE", "deleted"]);
        ask(&mut actor, session, &["FLUSHALL"]);
        if is_rewritten {
            // What was there before is not needed any more.
            actor.append_changes(|_| Ok(Lsn(1))).expect("takes it");
            actor.begin_rewrite();
            while !actor.rewrite_some(1 << 20) {}
        }
        actor.append_changes(|draft| journal.append(&[draft])).expect("takes it").expect("something changed");
        journal.close().expect("flushes");
        drop(journal);
        let mut recovered = new_actors(4, &Config::default(), 0);
        recover(Options::dir(folder.path()), NodeEpoch(2), &mut recovered).expect("reads");
        for actor in &mut recovered {
            let session = actor.open_session(String::new(), String::new());
            assert_eq!(ask(actor, session, &["FCALL", "f_stays", "0"]), "1");
            assert_eq!(ask(actor, session, &["FCALL", "f_replaced", "0"]), "4");
            assert!(ask(actor, session, &["FCALL", "f_deleted", "0"]).contains("Function not found"));
        }
        let keys = recovered.iter().map(Actor::keys);
        assert_eq!(keys.map(|keys| keys.databases().count()).sum::<usize>(), 0, "they are no keys");
    }
}

#[test]
fn a_part_of_a_string_that_changes_takes_the_log_a_part() {
    let (mut actor, session) = new_actor();
    run(&mut actor, session, "SETBIT visited 8000000 1");
    actor.keep_changes();
    for line in ["SETBIT visited 3 1", "SETBIT visited 8800000 1", "SETRANGE visited 100 part", "APPEND visited end"] {
        run(&mut actor, session, line);
        let written = actor.changes().len();
        assert!(written < 100, "{line}: {written} bytes");
        actor.forget_changes();
    }
}

#[test]
fn records_that_are_no_deltas_are_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = Journal::open(Options::dir(folder.path()), NodeEpoch(1), &mut |_| Ok::<(), &str>(())).expect("opens");
    journal.append(&[Draft { shard: 0, kind: 1, payload: b"\x08\0\0\0nonsense" }]).expect("takes it");
    journal.close().expect("flushes");
    drop(journal);
    let (mut actor, _) = new_actor();
    let error = recover(Options::dir(folder.path()), NodeEpoch(2), slice::from_mut(&mut actor)).expect_err("no delta");
    assert!(error.to_string().contains("expected a change of a key"), "{error}");
}

#[test]
fn info_says_whether_any_actor_is_writing_its_keys_once_more() {
    let mut world = World::new(2, 1);
    let client = world.client(0);
    let is_rewriting = |world: &mut World| {
        let info = world.call(client, &["INFO", "persistence"]);
        info.contains("aof_rewrite_in_progress:1")
    };
    assert!(!is_rewriting(&mut world));
    world.actor_mut(1).begin_rewrite();
    assert!(is_rewriting(&mut world));
    world.actor_mut(1).settle_rewrite();
    assert!(!is_rewriting(&mut world));
}
