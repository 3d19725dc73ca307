//! While the actors are paused nothing changes; afterwards everything goes on.

use savanna_keys::session::Ticket;

use crate::world::{Client, NOW, World};

/// A client with at most one request under way.
struct Worker {
    client: Client,
    awaited: Option<Ticket>,
    /// A request that was held back.
    held: Option<&'static [&'static str]>,
}

/// What clients do, over keys of all actors.
const REQUESTS: [&[&str]; 8] = [
    &["INCR", "a"],
    &["MSET", "a", "1", "b", "2", "c", "3", "d", "4"],
    &["RPUSH", "l", "x", "y"],
    &["BLPOP", "l", "m", "0"],
    &["RPOPLPUSH", "l", "m"],
    &["BLMOVE", "m", "n", "LEFT", "RIGHT", "0"],
    &["SET", "e", "x", "PX", "5"],
    &["EVAL", "redis.call('INCR', KEYS[1]) return redis.call('INCR', KEYS[2])", "2", "f", "g"],
];

fn changes(world: &World) -> u64 {
    world.actors().map(|actor| actor.keys().counters.changes).sum()
}

/// One step of the world: a message, some time, or a client's next request.
fn step(world: &mut World, workers: &mut [Worker]) {
    match world.chance.below(8) {
        0..5 => drop(world.deliver_one()),
        5 => world.pass(1),
        _ => {
            let index = world.chance.below(workers.len());
            let request = REQUESTS[world.chance.below(REQUESTS.len())];
            let worker = &mut workers[index];
            worker.awaited.take_if(|ticket| world.arrived(worker.client, *ticket).is_some());
            if worker.awaited.is_none() {
                let request = worker.held.unwrap_or(request);
                let sent = world.try_request(worker.client, request);
                worker.held = sent.is_none().then_some(request);
                worker.awaited = sent.and_then(Result::err);
            }
        }
    }
}

/// Lets clients work, pauses, and counts what changed between the acknowledgement of the pause, or the moment when the first
/// actor has heard of it, and its end. Says also how many requests were held back.
fn changes_in_pause(seed: u64, looks_early: bool) -> (u64, usize) {
    let actors = 1 + (seed % 4) as u16;
    let mut world = World::new(actors, seed);
    let mut workers: Vec<Worker> = (0..8)
        .map(|index| Worker { client: world.client(index % usize::from(actors)), awaited: None, held: None })
        .collect();
    let operator = world.client(if looks_early { 0 } else { seed as usize / 4 % usize::from(actors) });
    for _ in 0..300 {
        step(&mut world, &mut workers);
    }
    let paused = world.request(operator, &["CLIENT", "PAUSE", "1000", "WRITE"]);
    if let Err(ticket) = paused
        && !looks_early
    {
        while world.arrived(operator, ticket).is_none() {
            step(&mut world, &mut workers);
        }
    }
    let before = changes(&world);
    for _ in 0..500 {
        step(&mut world, &mut workers);
    }
    let during = changes(&world) - before;
    let held = workers.iter().filter(|worker| worker.held.is_some()).count();
    if seed.is_multiple_of(2) {
        assert_eq!(world.call(operator, &["CLIENT", "UNPAUSE"]), "OK");
    } else {
        world.pass(1000);
    }
    assert!(world.actors().all(|actor| !actor.is_paused()));
    let pusher = world.client(0);
    for _ in 0..2 * workers.len() {
        for list in ["l", "m"] {
            world.call(pusher, &["RPUSH", list, "z"]);
        }
        world.settle();
    }
    for worker in &mut workers {
        if let Some(request) = worker.held {
            assert!(world.try_request(worker.client, request).is_some(), "the pause is over");
        }
        let is_answered = worker.awaited.is_none_or(|ticket| world.arrived(worker.client, ticket).is_some());
        assert!(is_answered, "seed {seed}: somebody waits for ever");
    }
    (during, held)
}

#[test]
fn nothing_changes_from_the_acknowledgement_of_a_pause_to_its_end() {
    let mut held = 0;
    for seed in 0..400 {
        let (changes, held_back) = changes_in_pause(seed, false);
        assert_eq!(changes, 0, "seed {seed}");
        held += held_back;
    }
    assert!(held > 400, "the clients had something to write: {held}");
}

#[test]
fn before_the_acknowledgement_something_may_change() {
    assert!((0..400).any(|seed| changes_in_pause(seed, true).0 > 0));
}

#[test]
fn keys_whose_time_has_come_are_gone_for_readers_and_are_counted_until_the_pause_ends() {
    for actors in [1, 3] {
        let mut world = World::new(actors, 1);
        let client = world.client(0);
        for key in ["a", "b", "c", "d"] {
            world.call(client, &["SET", key, "x", "PX", "10"]);
        }
        world.call(client, &["CLIENT", "PAUSE", "100", "WRITE"]);
        world.tick(savanna_lattice::UnixMillis(NOW.0 + 50));
        assert_eq!(world.call(client, &["EXISTS", "a", "b", "c", "d"]), "0");
        assert_eq!(world.call(client, &["DBSIZE"]), "4");
        world.tick(savanna_lattice::UnixMillis(NOW.0 + 100));
        assert_eq!(world.call(client, &["DBSIZE"]), "0");
    }
}

#[test]
fn a_later_pause_makes_an_earlier_one_longer_and_wider_and_never_shorter() {
    let mut world = World::new(3, 1);
    let client = world.client(1);
    for (millis, mode) in [("50", "ALL"), ("100", "WRITE"), ("10", "WRITE")] {
        let pause = ["CLIENT", "PAUSE", millis, mode];
        let Some(sent) = world.try_request(client, &pause) else { continue };
        assert!(sent.is_err(), "all actors have to hear of it");
        world.settle();
    }
    // The pauses behind the first one are requests themselves.
    assert!(world.try_request(client, &["GET", "a"]).is_none());
    world.tick(savanna_lattice::UnixMillis(NOW.0 + 50));
    assert!(world.try_request(client, &["GET", "a"]).is_some());
}

#[test]
fn nothing_expires_for_a_transaction_over_all_keys_that_runs_in_a_pause() {
    for actors in 1..4 {
        let mut world = World::new(actors, 7);
        let client = world.client(0);
        for key in ["a", "b", "c", "d", "e", "f"] {
            world.call(client, &["SET", key, "x", "PX", "50"]);
        }
        assert_eq!(world.call(client, &["CLIENT", "PAUSE", "60000", "WRITE"]), "OK");
        let before = changes(&world);
        world.pass(100);
        let count = world.call(client, &["DBSIZE"]);
        world.call(client, &["MULTI"]);
        world.call(client, &["DBSIZE"]);
        world.call(client, &["KEYS", "*"]);
        assert_eq!(world.call(client, &["EXEC"]), format!("[2] {count} [0]"));
        world.settle();
        assert_eq!(changes(&world), before);
        world.call(client, &["CLIENT", "UNPAUSE"]);
        assert_eq!(world.call(client, &["DBSIZE"]), "0");
    }
}
