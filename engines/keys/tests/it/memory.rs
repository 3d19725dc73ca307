//! What keys take, what is given up when that is too much, and which keys are asked for most.

use crate::world::{Client, NOW, World};

const REFUSED: &str = "!OOM command not allowed when used memory > 'maxmemory'.";

/// A line of `INFO` that is a number.
fn told(world: &mut World, client: Client, name: &str) -> usize {
    let info = world.call(client, &["INFO"]);
    let line = info.split("\r\n").find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("no {name} in {info}")).parse().expect("a number")
}

fn used(world: &mut World, client: Client) -> usize {
    told(world, client, "used_memory")
}

fn limit(world: &mut World, client: Client, bytes: usize, policy: &str) {
    let set = ["CONFIG", "SET", "maxmemory", &bytes.to_string(), "maxmemory-policy", policy];
    assert_eq!(world.call(client, &set), "OK");
}

/// A world of as many actors with a client at each.
fn world_of(actors: u16, seed: u64) -> (World, Vec<Client>) {
    let mut world = World::new(actors, seed);
    let clients = (0..usize::from(actors)).map(|actor| world.client(actor)).collect();
    (world, clients)
}

/// Which of the keys `{prefix}0`.. are there.
fn present(world: &mut World, client: Client, prefix: &str, count: usize) -> usize {
    (0..count).filter(|number| world.call(client, &["EXISTS", &format!("{prefix}{number}")]) == "1").count()
}

#[test]
fn copies_and_what_merges_are_counted_and_are_no_keys() {
    let (mut world, clients) = world_of(3, 1);
    for number in 0..500 {
        world.call(clients[0], &["SADD", "set", &format!("a member that is longer than others {number}")]);
    }
    world.call(clients[0], &["SET", "string", &"x".repeat(10_000), "EX", "1000"]);
    let before = used(&mut world, clients[0]);
    for key in ["set", "string"] {
        assert_eq!(world.call(clients[0], &["SAV.REPLICATE", key, "FULL"]), "OK");
    }
    world.quiesce().expect("an end");
    let with = used(&mut world, clients[0]);
    assert!((6 * before..9 * before).contains(&with), "three values, three states: {before} became {with}");
    assert_eq!(world.call(clients[1], &["DBSIZE"]), "2");
    let info = world.call(clients[1], &["INFO", "keyspace"]);
    assert!(info.contains("db0:keys=2,expires=1,"), "{info}");
    for key in ["set", "string"] {
        assert_eq!(world.call(clients[2], &["SAV.REPLICATE", key, "1"]), "OK");
    }
    world.quiesce().expect("an end");
    assert_eq!(used(&mut world, clients[0]), before, "nothing is left of it");
}

#[test]
fn a_limit_is_kept_as_soon_as_it_is_set() {
    for actors in [1, 3] {
        let (mut world, clients) = world_of(actors, 1);
        for number in 0..9_000 {
            world.call(clients[0], &["SET", &format!("key{number}"), "value"]);
        }
        let before = used(&mut world, clients[0]);
        limit(&mut world, clients[0], before / 4, "allkeys-random");
        // What is too much for one turn goes in the next ones.
        while world.actors().any(|actor| actor.owes_room()) {
            world.tick(NOW);
        }
        let after = used(&mut world, clients[0]);
        assert!(after <= before / 4 && after > before / 8, "{before} became {after}");
        assert!(told(&mut world, clients[0], "evicted_keys") > 6_000);
        world.call(clients[0], &["CONFIG", "RESETSTAT"]);
        for name in ["evicted_keys", "keyspace_hits", "keyspace_misses", "total_connections_received"] {
            assert_eq!(told(&mut world, clients[0], name), 0, "{name}");
        }
        assert!(told(&mut world, clients[0], "total_commands_processed") < 10);
    }
}

#[test]
fn keys_take_no_more_than_the_limit_and_the_log_has_what_was_given_up() {
    const LIMIT: usize = 300_000;
    for (seed, policy) in
        ["allkeys-lru", "allkeys-random", "volatile-lru", "volatile-random", "volatile-ttl"].into_iter().enumerate()
    {
        let (mut world, clients) = world_of(3, seed as u64);
        world.begin_log();
        limit(&mut world, clients[0], LIMIT, policy);
        for number in 0..4_000_usize {
            let (key, seconds) = (format!("key{number}"), (1_000 + number).to_string());
            let client = clients[number % 3];
            assert_eq!(world.call(client, &["SET", &key, &"x".repeat(200), "EX", &seconds]), "OK");
            let used: usize = world.actors().map(|actor| actor.keys().byte_count()).sum();
            assert!(used <= LIMIT + 3 * 400, "{policy}: {used} bytes");
        }
        let evicted = told(&mut world, clients[0], "evicted_keys");
        let left = present(&mut world, clients[1], "key", 4_000);
        assert_eq!(evicted + left, 4_000, "{policy}");
        assert!(left > 800, "{policy}: {left} keys are left");
        (0..3).for_each(|actor| world.append(actor));
        let records = world.log.records().to_vec();
        for (number, actor) in world.actors().enumerate() {
            let own: Vec<_> = records.iter().filter(|(of, _)| *of == number as u64).cloned().collect();
            assert_eq!(world.replayed(&own).key_count(), actor.keys().key_count(), "{policy}");
        }
    }
}

/// Of 1000 keys with one half that `prefer` is done to, how many of each half are left when four of ten have to go.
fn halves(policy: &str, mut prefer: impl FnMut(&mut World, Client, &str)) -> (usize, usize) {
    let (mut world, clients) = world_of(2, 7);
    for number in 0..1_000 {
        let prefix = if number % 2 == 0 { "a" } else { "b" };
        world.call(clients[0], &["SET", &format!("{prefix}{}", number / 2), &"x".repeat(100), "EX", "5000"]);
    }
    world.pass(60_000);
    for number in 0..500 {
        prefer(&mut world, clients[1], &format!("a{number}"));
    }
    world.pass(60_000);
    let bytes = used(&mut world, clients[0]);
    limit(&mut world, clients[0], bytes * 6 / 10, policy);
    // One for each actor, at least.
    for number in 0..20 {
        world.call(clients[0], &["SET", &format!("new{number}"), "x", "EX", "9000"]);
    }
    (present(&mut world, clients[0], "a", 500), present(&mut world, clients[0], "b", 500))
}

#[test]
fn what_was_not_used_for_long_goes_first() {
    for policy in ["allkeys-lru", "volatile-lru"] {
        let (used, unused) = halves(policy, |world, client, key| {
            world.call(client, &["GET", key]);
        });
        assert!(used > 430 && unused < 160, "{policy}: {used} that were used, {unused} that were not");
    }
    let (used, unused) = halves("allkeys-random", |world, client, key| {
        world.call(client, &["GET", key]);
    });
    assert!(used.abs_diff(unused) < 80, "at random: {used} and {unused}");
}

#[test]
fn what_expires_first_goes_first() {
    let (late, soon) = halves("volatile-ttl", |world, client, key| {
        world.call(client, &["EXPIRE", key, "8000"]);
    });
    assert!(late > 470 && soon < 130, "{late} that expire late, {soon} that expire soon");
}

#[test]
fn keys_that_do_not_expire_are_left_alone_by_volatile_policies() {
    for policy in ["volatile-lru", "volatile-random", "volatile-ttl"] {
        let (mut world, clients) = world_of(2, 3);
        for number in 0..300 {
            world.call(clients[0], &["SET", &format!("stays{number}"), "x"]);
            world.call(clients[0], &["SET", &format!("goes{number}"), "x", "EX", "100"]);
        }
        limit(&mut world, clients[0], 1_000, policy);
        let reply = (0..20).map(|number| world.call(clients[0], &["SET", &format!("new{number}"), "x"])).last();
        assert_eq!(reply.as_deref(), Some(REFUSED), "{policy}: nothing is left that may go");
        assert_eq!(present(&mut world, clients[0], "stays", 300), 300, "{policy}");
        assert_eq!(present(&mut world, clients[0], "goes", 300), 0, "{policy}");
    }
}

#[test]
fn without_eviction_what_needs_memory_is_refused_wherever_its_keys_are() {
    let (mut world, clients) = world_of(2, 5);
    // Only one of the two is full.
    let full = (0..)
        .map(|number| format!("key{number}"))
        .find(|key| world.actor(1).keys().routes().actor_of(savanna_keys::placement::group_of(key.as_bytes())).0 == 1);
    let full = full.expect("a key of the second actor");
    let free = (0..).map(|number| format!("key{number}")).find(|key| {
        *key < full
            || *key > full && {
                world.actor(1).keys().routes().actor_of(savanna_keys::placement::group_of(key.as_bytes())).0 == 0
            }
    });
    let free = free.expect("a key of the first actor");
    world.call(clients[0], &["SET", &full, &"x".repeat(1_000)]);
    limit(&mut world, clients[0], 1_500, "noeviction");
    for client in clients.clone() {
        assert_eq!(world.call(client, &["SET", &free, "1"]), "OK");
        assert_eq!(world.call(client, &["APPEND", &full, "1"]), REFUSED);
        assert_eq!(world.call(client, &["MSET", &free, "2", &full, "2"]), REFUSED);
        for words in [&["MULTI"][..], &["SET", &free, "3"], &["SET", &full, "3"]] {
            world.request(client, words).expect("at once");
        }
        // Where the full thread collects it, it is refused earlier.
        let refused = world.call(client, &["EXEC"]);
        let causes = [format!("because of: {}", &REFUSED[1..]), "because of previous errors.".to_owned()];
        let is_expected = causes.iter().any(|cause| refused == format!("!EXECABORT Transaction discarded {cause}"));
        assert!(is_expected, "{refused}");
        assert_eq!(world.call(client, &["GET", &free]), "\"1\"", "all or nothing");
        assert_eq!(world.call(client, &["STRLEN", &full]), "1000");
        for words in [&["MULTI"][..], &["GET", &full], &["TTL", &free]] {
            world.request(client, words).expect("at once");
        }
        assert!(world.call(client, &["EXEC"]).starts_with("[2] "), "what only reads needs no memory");
    }
    assert_eq!(world.call(clients[0], &["DEL", &full]), "1");
    assert_eq!(world.call(clients[0], &["MSET", &free, "2", &full, "2"]), "OK");
    assert_eq!(told(&mut world, clients[0], "evicted_keys"), 0);
}

#[test]
fn copies_go_before_keys_under_every_policy_and_are_read_where_the_first_replica_is() {
    for policy in ["noeviction", "allkeys-lru", "volatile-ttl"] {
        let (mut world, clients) = world_of(2, 9);
        for number in 0..40 {
            let key = format!("hot{number}");
            world.call(clients[0], &["SET", &key, &"x".repeat(1_000)]);
            assert_eq!(world.call(clients[0], &["SAV.REPLICATE", &key, "FULL"]), "OK");
        }
        world.quiesce().expect("an end");
        let bytes = used(&mut world, clients[0]);
        limit(&mut world, clients[0], bytes * 3 / 4, policy);
        for client in clients.clone() {
            for number in 0..10 {
                assert_eq!(world.call(client, &["SET", &format!("new{number}"), "x"]), "OK", "{policy}");
            }
        }
        assert_eq!(told(&mut world, clients[0], "evicted_keys"), 0, "{policy}");
        assert!(told(&mut world, clients[0], "evicted_replicas") >= 10, "{policy}");
        assert!(used(&mut world, clients[0]) <= bytes * 3 / 4 + 400, "{policy}");
        world.quiesce().expect("an end");
        for client in clients.clone() {
            assert_eq!(present(&mut world, client, "hot", 40), 40, "{policy}");
            assert_eq!(world.call(client, &["DBSIZE"]), "50", "{policy}");
        }
        // Written at the first replica, read where the copy was.
        for number in 0..40 {
            let key = format!("hot{number}");
            world.call(clients[0], &["SET", &key, "new"]);
            world.quiesce().expect("an end");
            for client in clients.clone() {
                assert_eq!(world.call(client, &["GET", &key]), "\"new\"", "{policy}");
            }
        }
    }
}

#[test]
fn hot_keys_are_those_that_all_actors_together_are_asked_for_most() {
    for actors in [1, 3] {
        let (mut world, clients) = world_of(actors, 11);
        assert_eq!(world.call(clients[0], &["HOTKEYS"]), "[0]");
        assert_eq!(world.call(clients[0], &["SAV.REPLICATE", "hot", "FULL"]), "OK");
        world.quiesce().expect("an end");
        for number in 0..60_000 {
            let client = clients[number % clients.len()];
            let cold = format!("cold{number}");
            let words: &[&str] = match number % 10 {
                0..4 => &["GET", "hot"],
                4..6 => &["SET", "warm", "x"],
                _ => &["EXISTS", &cold],
            };
            world.call(client, words);
        }
        let hot = world.call(clients[0], &["HOTKEYS", "2"]);
        let words: Vec<&str> = hot.split(' ').collect();
        let requests = |word: &str| word.parse::<usize>().expect("a number");
        assert_eq!((words[0], words[2], words[5]), ("[2]", "\"hot\"", "\"warm\""), "{hot}");
        assert!(requests(words[3]).abs_diff(24_000) < 8_000 && requests(words[6]).abs_diff(12_000) < 6_000, "{hot}");
        world.call(clients[0], &["SELECT", "1"]);
        assert_eq!(world.call(clients[0], &["HOTKEYS"]), "[0]", "of one database");
        assert!(world.call(clients[0], &["HOTKEYS", "0"]).starts_with("!ERR expected a count from 1"));
    }
}

#[test]
fn a_script_that_says_what_it_needs_runs_as_a_whole_or_not_at_all() {
    let (mut world, clients) = world_of(1, 1);
    let client = clients[0];
    world.call(client, &["SET", "a", "1"]);
    limit(&mut world, client, 1, "noeviction");
    let run = |flags: &str, what: &str| format!("{flags}{what} return 'ran'");
    let (set, get) = ("redis.call('SET', 'a', 2)", "redis.call('GET', 'a')");
    for (flags, what, is_refused) in [
        ("", set, true),
        ("", get, false),
        ("#!lua\n", get, true),
        ("#!lua flags=allow-oom\n", set, false),
        ("#!lua flags=no-writes\n", get, false),
    ] {
        let reply = world.call(client, &["EVAL", &run(flags, what), "1", "a"]);
        assert_eq!(reply.starts_with("!OOM "), is_refused, "{flags:?} {what}: {reply}");
    }
    // What one may do that needs no room the next one of a transaction may not.
    world.call(client, &["MULTI"]);
    world.call(client, &["EVAL", &run("#!lua flags=allow-oom\n", set), "1", "a"]);
    world.call(client, &["EVAL", &run("", set), "1", "a"]);
    let replies = world.call(client, &["EXEC"]);
    assert!(replies.starts_with("[2] \"ran\" !OOM "), "{replies}");
}

#[test]
fn restored_keys_have_been_idle_for_as_long_as_they_were() {
    let (mut world, clients) = world_of(1, 1);
    let client = clients[0];
    world.call(client, &["SET", "a", "1"]);
    for (option, seconds) in [("1000", "1000"), ("1000000", "65535")] {
        let script = "redis.call('RESTORE', KEYS[2], 0, redis.call('DUMP', KEYS[1]), 'REPLACE', 'IDLETIME', ARGV[1]) \
                      return redis.call('OBJECT', 'IDLETIME', KEYS[2])";
        assert_eq!(world.call(client, &["EVAL", script, "2", "a", "b", option]), seconds);
    }
}
