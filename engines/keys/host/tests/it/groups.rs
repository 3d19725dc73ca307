//! Requests about keys of several nodes: services in one process, which ask each other without a network.

use std::sync::Arc;
use std::time::Duration;

use savanna_epoch::NodeId;
use savanna_journal::{Filter, Record, SealedLog};
use savanna_keys::delta::{Body, read_all};
use savanna_keys::handle::SharedKeysHandle;

use crate::nodes::{Client, GROUPING, Kind, MOVING_AND_GROUPING, Nodes, Silent, key_of, node_of, third};

fn three() -> (Nodes, [Client; 3]) {
    three_of(GROUPING)
}

fn three_of(kind: Kind) -> (Nodes, [Client; 3]) {
    let mut nodes = Nodes::start(kind, &[1, 2, 3]);
    nodes.say(third, &[]);
    nodes.turn();
    let clients = [nodes.client(0, 0), nodes.client(1, 1), nodes.client(2, 0)];
    (nodes, clients)
}

/// Keys of the three nodes, in the order in which a group borrows them; the first of these nodes leads.
fn keys_led_by(leader: usize) -> [String; 3] {
    let [first, one, other] = [leader, (leader + 1) % 3, (leader + 2) % 3];
    let of = |node: usize, nodes: std::ops::Range<u16>| {
        let keys = (0..).map(|number| key_of(node, number));
        keys.into_iter().find(|key| nodes.contains(&node_of(key))).expect("a key")
    };
    [of(first, 0..300), of(one, 300..600), of(other, 600..1024)]
}

#[test]
fn what_is_about_keys_of_several_nodes_is_done_as_one_wherever_it_is_asked_for() {
    let (mut nodes, clients) = three();
    for (place, client) in clients.into_iter().enumerate() {
        let [a, b, c] = [0, 1, 2].map(|node| key_of(node, place));
        assert_eq!(nodes.ask(client, &format!("MSET {a} 1 {b} 2 {c} 3")), "OK");
        assert_eq!(nodes.ask(client, &format!("MGET {c} {b} {a} nothing")), "[4] \"3\" \"2\" \"1\" nil");
        assert_eq!(nodes.ask(client, &format!("MSETNX {a} 9 new{place} 9")), "0");
        assert_eq!(nodes.ask(client, &format!("EXISTS {a} {b} {c} new{place}")), "3");
        for words in ["MULTI", &format!("INCRBY {a} 10"), &format!("DECRBY {b} 10"), &format!("APPEND {c} 0")] {
            nodes.ask(client, words);
        }
        assert_eq!(nodes.ask(client, "EXEC"), "[3] 11 -8 2");
        let script = format!("EVAL return{}redis.call('INCRBY',KEYS[1],redis.call('GET',KEYS[2])) 2 {b} {c}", '\t');
        assert_eq!(nodes.ask(client, &script), "22");
        assert_eq!(nodes.ask(client, &format!("RENAME {b} {a}")), "OK");
        assert_eq!(nodes.ask(client, &format!("MGET {a} {b} {c}")), "[3] \"22\" nil \"30\"");
        assert_eq!(nodes.ask(client, &format!("DEL {a} {b} {c}")), "2");
        nodes.ask(client, &format!("SADD {a} x y z"));
        nodes.ask(client, &format!("SADD {b} y z w"));
        assert_eq!(nodes.ask(client, &format!("SINTERSTORE {c} {a} {b}")), "2");
        assert_eq!(nodes.ask(client, &format!("SMOVE {a} {b} x")), "1");
        assert_eq!(nodes.ask(client, &format!("SCARD {b}")), "4");
        assert_eq!(nodes.ask(client, &format!("EXPIRE {c} 1000")), "1");
        assert_eq!(nodes.ask(client, &format!("SUNIONSTORE {a} {a} {c}")), "2");
        assert_eq!(nodes.ask(client, &format!("COPY {c} {a} REPLACE")), "1");
        assert_eq!(nodes.ask(client, &format!("TTL {a}")), "1000", "with all that it has");
        assert_eq!(nodes.ask(client, &format!("INCR {a}")).chars().next(), Some('!'));
        for words in ["MULTI", &format!("SADD {b} v"), &format!("INCR {a}"), &format!("SCARD {b}")] {
            nodes.ask(client, words);
        }
        let told = nodes.ask(client, "EXEC");
        assert!(told.starts_with("[3] 1 !WRONGTYPE") && told.ends_with(" 5"), "{told}");
    }
    // At the nodes that have them, and each of them goes on.
    for client in clients {
        for node in 0..3 {
            assert_eq!(nodes.ask(client, &format!("DEL {}", key_of(node, client.node))), "1");
        }
    }
    assert_eq!(nodes.ask(clients[0], "DBSIZE"), "0");
}

#[test]
fn what_a_group_cannot_do_is_refused_and_nothing_of_it_is_done() {
    let (mut nodes, [client, ..]) = three();
    let [here, there, beyond] = [0, 1, 2].map(|node| key_of(node, 0));
    assert!(nodes.ask(client, &format!("BLPOP {there} {beyond} 1")).starts_with("!CROSSNODE"));
    nodes.ask(client, &format!("WATCH {here}"));
    for words in ["MULTI", &format!("SET {here} 1"), &format!("SET {there} 1")] {
        nodes.ask(client, words);
    }
    assert!(nodes.ask(client, "EXEC").starts_with("!ELSEWHERE"));
    for words in ["MULTI", &format!("SET {here} 1"), &format!("SET {there} 1"), "PUBLISH news x"] {
        nodes.ask(client, words);
    }
    assert!(nodes.ask(client, "EXEC").starts_with("!ELSEWHERE"));
    let long = "x".repeat(13 << 20);
    assert!(nodes.ask(client, &format!("MSET {here} {long} {there} 1")).starts_with("!ERR the request is too long"));
    assert_eq!(nodes.ask(client, "DBSIZE"), "0");
    let port = nodes.client(0, 0);
    nodes.nodes[0].workers[0].admission().note_cluster_port(port.session);
    assert!(nodes.ask(port, &format!("MSET {here} 1 {there} 1")).starts_with("!CROSSSLOT"), "as Redis Cluster");
}

#[test]
fn a_session_s_requests_are_done_in_their_order_though_it_does_not_wait_for_their_replies() {
    let (mut nodes, [client, other, _]) = three();
    for round in 0..20 {
        let [a, b, c] = [0, 1, 2].map(|node| key_of(node, round % 4));
        let requests = [
            format!("SET {b} 1"),
            format!("INCR {c}"),
            format!("MSET {a} 5 {b} 5 {c} 5"),
            format!("INCR {b}"),
            format!("MGET {a} {b} {c}"),
            format!("DEL {a} {b} {c}"),
        ];
        // Somebody else keeps the ways busy.
        let busy = nodes.send(other, &["INCR", &c]).err();
        let mut told: Vec<Result<String, _>> = Vec::new();
        for request in &requests {
            let words: Vec<&str> = request.split(' ').collect();
            told.push(nodes.send(client, &words));
            // What has to wait for the reply waits in the connection.
            if let Some(Err(ticket)) = told.last().filter(|_| words[0].starts_with('M') || words[0] == "DEL") {
                let reply = nodes.hear(client, *ticket);
                *told.last_mut().expect("one") = Ok(reply);
            }
        }
        let told: Vec<String> =
            told.into_iter().map(|reply| reply.unwrap_or_else(|ticket| nodes.hear(client, ticket))).collect();
        busy.map(|ticket| nodes.hear(other, ticket));
        assert_eq!((&*told[0], &*told[2], &*told[3]), ("OK", "OK", "6"), "round {round}: {told:?}");
        assert!(told[4].starts_with("[3] \"5\" \"6\" "), "round {round}: {told:?}");
        nodes.ask(client, &format!("DEL {c}"));
    }
}

#[test]
fn groups_that_want_the_same_keys_do_not_wait_in_a_circle_and_none_is_lost() {
    let (mut nodes, clients) = three();
    let keys: Vec<String> = (0..3).flat_map(|node| (0..3).map(move |number| key_of(node, number))).collect();
    let mut waiting = Vec::new();
    let mut chance = 7_usize;
    for round in 0..300 {
        let (node, thread) = (round % 3, round % (round % 3 + 1));
        let client = nodes.client(node, thread);
        nodes.ask(client, "MULTI");
        for _ in 0..3 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            nodes.ask(client, &format!("INCR {}", keys[(chance >> 33) % keys.len()]));
        }
        waiting.push((client, nodes.send(client, &["EXEC"])));
        if round % 4 == 0 {
            nodes.turn();
        }
    }
    for (client, told) in waiting {
        let told = told.unwrap_or_else(|ticket| nodes.hear(client, ticket));
        assert!(told.starts_with("[3] "), "{told}");
    }
    let all: i64 = keys
        .iter()
        .map(|key| nodes.ask(clients[0], &format!("GET {key}")).trim_matches('"').parse().unwrap_or(0))
        .sum();
    assert_eq!(all, 900);
}

#[test]
fn who_asks_for_a_key_that_a_group_has_waits_for_its_end() {
    let (mut nodes, clients) = three();
    let [first, second, third] = keys_led_by(0);
    nodes.ask(clients[0], &format!("MSET {first} old {second} old {third} old"));
    // The third node does not move, so that the group has the keys of the first two.
    let group =
        nodes.send(clients[0], &["MSET", &first, "new", &second, "new", &third, "new"]).expect_err("several nodes");
    for _ in 0..10 {
        nodes.nodes[0].turn();
        nodes.nodes[1].turn();
    }
    let waiting = nodes.send(clients[1], &["GET", &second]);
    let ticket = match waiting {
        Ok(reply) => panic!("it is answered {reply}"),
        Err(ticket) => ticket,
    };
    for _ in 0..10 {
        nodes.nodes[0].turn();
        nodes.nodes[1].turn();
    }
    assert!(
        !nodes.nodes[1].replies.contains_key(&(clients[1].thread, clients[1].session, ticket)),
        "neither the old value nor the new one"
    );
    assert_eq!(nodes.hear(clients[0], group), "OK");
    assert_eq!(nodes.hear(clients[1], ticket), "\"new\"");
}

#[test]
fn a_flush_waits_for_groups_and_groups_for_a_flush() {
    let (mut nodes, clients) = three();
    let mut waiting = Vec::new();
    for round in 0..60 {
        let client = nodes.client(round % 3, 0);
        let [a, b, c] = [0, 1, 2].map(|node| key_of(node, round % 5));
        waiting.push((client, nodes.send(client, &["MSET", &a, "1", &b, "1", &c, "1"])));
        if round % 10 == 5 {
            let flushing = nodes.client(round % 3, 0);
            waiting.push((flushing, nodes.send(flushing, &["FLUSHALL"])));
        }
        nodes.turn();
    }
    for (client, told) in waiting {
        assert_eq!(told.unwrap_or_else(|ticket| nodes.hear(client, ticket)), "OK");
    }
    assert_eq!(nodes.ask(clients[0], "FLUSHALL"), "OK");
    assert_eq!(nodes.ask(clients[1], "DBSIZE"), "0");
}

/// A node takes over what another one had, out of its sealed log.
fn adopt(nodes: &mut Nodes, sealed: &SealedLog, heir: usize, former: usize) {
    take_in(nodes, sealed, heir, former);
    nodes.say(|node| third(node).map(|owner| if owner == former { heir } else { owner }), &[former]);
}

/// The same, of which nobody hears.
fn take_in(nodes: &mut Nodes, sealed: &SealedLog, heir: usize, former: usize) {
    let (hearer, sealed) = (nodes.nodes[heir].service.hearer(), sealed.clone());
    let adopting = std::thread::spawn(move || hearer.adopt(&sealed, &|node| third(node) == Some(former)));
    while !adopting.is_finished() {
        nodes.turn();
        std::thread::yield_now();
    }
    adopting.join().expect("no panic").expect("a log");
}

/// A group led by the first node that is committed, of which its other nodes have not heard; and a client that waits for one of its keys.
fn committed_and_told_to_nobody() -> (Nodes, [Client; 3], [String; 3]) {
    let (nodes, clients, keys, others) = committed_and_silent(GROUPING);
    others.into_iter().for_each(|(name, handle)| drop(nodes.board.0.lock().unwrap().insert(name, handle)));
    (nodes, clients, keys)
}

/// The same, as long as nobody hears of the other nodes, whose handles it gives.
fn committed_and_silent(kind: Kind) -> (Nodes, [Client; 3], [String; 3], Vec<(NodeId, SharedKeysHandle)>) {
    let (mut nodes, clients) = three_of(kind);
    let keys = keys_led_by(0);
    let [first, second, third] = &keys;
    nodes.ask(clients[0], &format!("MSET {first} old {second} old {third} old"));
    for _ in 0..20 {
        nodes.turn();
    }
    let group =
        nodes.send(clients[0], &["MSET", first, "new", second, "new", third, "new"]).expect_err("several nodes");
    let others = [1, 2].map(|number| NodeId::new(format!("n{number}")));
    let handles = others.clone().map(|name| nodes.board.0.lock().unwrap()[&name].clone());
    // Each lends its keys, and is not heard of any more before the leader goes on.
    for node in [1, 2] {
        nodes.nodes[0].turn();
        nodes.nodes[0].turn();
        nodes.nodes[1].turn();
        nodes.nodes[2].turn();
        if node == 2 {
            for name in &others {
                nodes.board.0.lock().unwrap().insert(name.clone(), Arc::new(Silent::default()));
            }
        }
        nodes.nodes[1].turn();
        nodes.nodes[2].turn();
    }
    let mut told = None;
    for _ in 0..10 {
        nodes.nodes[0].turn();
        told = told.or(nodes.nodes[0].replies.remove(&(clients[0].thread, clients[0].session, group)));
    }
    assert_eq!(told.as_deref(), Some("OK"), "it is committed");
    (nodes, clients, keys, others.into_iter().zip(handles).collect())
}

#[test]
fn what_a_leader_that_is_gone_has_committed_is_written_by_whoever_takes_over_from_it() {
    let (mut nodes, clients, [first, second, third]) = committed_and_told_to_nobody();
    let waiting = nodes.send(clients[1], &["GET", &second]).expect_err("the group has it");
    let sealed = nodes.end(0);
    for _ in 0..20 {
        nodes.turn();
    }
    assert!(
        !nodes.nodes[1].replies.contains_key(&(clients[1].thread, clients[1].session, waiting)),
        "nobody knows yet what became of it"
    );
    adopt(&mut nodes, &sealed, 2, 0);
    assert_eq!(nodes.hear(clients[1], waiting), "\"new\"");
    assert_eq!(nodes.ask(clients[2], &format!("MGET {first} {second} {third}")), "[3] \"new\" \"new\" \"new\"");
}

#[test]
fn what_a_leader_that_is_gone_has_not_committed_has_not_happened_and_its_keys_are_free() {
    let (mut nodes, clients) = three();
    let [first, second, third] = keys_led_by(0);
    nodes.ask(clients[1], &format!("MSET {first} old {second} old {third} old"));
    // The third node does not move: the group has the keys of the first two.
    let _ = nodes.send(clients[0], &["MSET", &first, "new", &second, "new", &third, "new"]).expect_err("several nodes");
    for _ in 0..10 {
        nodes.nodes[0].turn();
        nodes.nodes[1].turn();
    }
    let waiting = nodes.send(clients[1], &["INCR", &second]);
    let sealed = nodes.end(0);
    adopt(&mut nodes, &sealed, 2, 0);
    let told = waiting.unwrap_or_else(|ticket| nodes.hear(clients[1], ticket));
    assert!(told.starts_with("!ERR value is not an integer"), "{told}");
    assert_eq!(nodes.ask(clients[2], &format!("MGET {first} {second} {third}")), "[3] \"old\" \"old\" \"old\"");
}

#[test]
fn keys_that_are_lent_are_lent_still_when_their_node_is_gone_and_are_written_where_they_are_then() {
    let (mut nodes, clients, [first, second, third]) = committed_and_told_to_nobody();
    let sealed = nodes.end(1);
    adopt(&mut nodes, &sealed, 2, 1);
    assert_eq!(nodes.ask(clients[2], &format!("MGET {first} {second} {third}")), "[3] \"new\" \"new\" \"new\"");
    assert_eq!(nodes.ask(clients[2], &format!("APPEND {second} er")), "5");
    // And in the log of whoever has them.
    let sealed = nodes.end(2);
    let (hearer, of_both) = (nodes.nodes[0].service.hearer(), sealed.clone());
    let adopting = std::thread::spawn(move || hearer.adopt(&of_both, &|node| crate::nodes::third(node) != Some(0)));
    while !adopting.is_finished() {
        nodes.turn();
        std::thread::yield_now();
    }
    adopting.join().expect("no panic").expect("a log");
    nodes.say(|_| Some(0), &[1, 2]);
    assert_eq!(nodes.ask(clients[0], &format!("MGET {first} {second} {third}")), "[3] \"new\" \"newer\" \"new\"");
}

#[test]
fn leader_and_lender_are_gone_at_once_and_what_was_committed_is_written() {
    let (mut nodes, clients, [first, second, third]) = committed_and_told_to_nobody();
    let sealed = [nodes.end(0), nodes.end(1)];
    for (former, sealed) in sealed.iter().enumerate() {
        take_in(&mut nodes, sealed, 2, former);
    }
    nodes.say(|_| Some(2), &[0, 1]);
    assert_eq!(nodes.ask(clients[2], &format!("MGET {first} {second} {third}")), "[3] \"new\" \"new\" \"new\"");
    assert_eq!(nodes.ask(clients[2], &format!("MSET {first} 1 {second} 2 {third} 3")), "OK", "they are free");
}

#[test]
fn a_service_that_begins_anew_knows_what_it_has_lent_and_what_it_owes() {
    let (mut nodes, clients, [first, second, third]) = committed_and_told_to_nobody();
    // Leader and lender, each over its own log.
    for number in [0, 1] {
        nodes.begin_anew(number, GROUPING);
    }
    nodes.say(crate::nodes::third, &[]);
    let client = nodes.client(1, 0);
    let read = nodes.send(client, &["GET", &second]);
    assert!(read.is_err(), "it is lent still: {read:?}");
    assert_eq!(nodes.hear(client, read.expect_err("it waits")), "\"new\"");
    assert_eq!(nodes.ask(clients[2], &format!("MGET {first} {second} {third}")), "[3] \"new\" \"new\" \"new\"");
}

#[test]
fn a_log_that_is_written_once_more_knows_what_is_lent_and_what_is_owed() {
    let (mut nodes, clients, [first, second, third]) = committed_and_told_to_nobody();
    let others: Vec<_> = [0, 1, 2].map(|number| NodeId::new(format!("n{number}"))).into();
    let handles: Vec<_> = others.iter().map(|name| nodes.board.0.lock().unwrap()[name].clone()).collect();
    // Nobody hears of anybody while the logs are written.
    others
        .iter()
        .for_each(|name| drop(nodes.board.0.lock().unwrap().insert(name.clone(), Arc::new(Silent::default()))));
    for node in 0..3 {
        let client = nodes.client(node, 0);
        nodes.ask(client, "BGREWRITEAOF");
    }
    for _ in 0..200 {
        nodes.turn();
        std::thread::yield_now();
    }
    let sealed = [nodes.end(0), nodes.end(1)];
    nodes.board.0.lock().unwrap().insert(others[2].clone(), handles[2].clone());
    for (former, sealed) in sealed.iter().enumerate() {
        take_in(&mut nodes, sealed, 2, former);
    }
    nodes.say(|_| Some(2), &[0, 1]);
    assert_eq!(nodes.ask(clients[2], &format!("MGET {first} {second} {third}")), "[3] \"new\" \"new\" \"new\"");
}

/// Whether a virtual node comes to rest that is about to leave a node.
fn comes_to_rest(nodes: &mut Nodes, number: usize, node: u16) -> bool {
    let hearer = nodes.nodes[number].service.hearer();
    let departing = std::thread::spawn(move || {
        let leaving = hearer.depart(node).expect("it leaves");
        assert_eq!(leaving.is_written(Duration::from_secs(20)), Ok(true));
        leaving.freeze();
        let is_at_rest = leaving.is_at_rest(Duration::from_millis(300));
        leaving.stay();
        is_at_rest.expect("it goes on")
    });
    while !departing.is_finished() {
        nodes.nodes[number].turn();
        std::thread::yield_now();
    }
    let is_at_rest = departing.join().expect("no panic");
    nodes.nodes[number].turn();
    is_at_rest
}

#[test]
fn a_virtual_node_does_not_leave_while_a_group_has_keys_of_it_or_owes_something_that_was_led_from_it() {
    let (mut nodes, clients, keys, others) = committed_and_silent(MOVING_AND_GROUPING);
    let [first, second, third] = &keys;
    assert!(!comes_to_rest(&mut nodes, 0, node_of(first)), "whoever has it knows of the commit");
    assert!(!comes_to_rest(&mut nodes, 1, node_of(second)), "the group has a key of it");
    others.into_iter().for_each(|(name, handle)| drop(nodes.board.0.lock().unwrap().insert(name, handle)));
    assert_eq!(nodes.ask(clients[0], &format!("MGET {first} {second} {third}")), "[3] \"new\" \"new\" \"new\"");
    for _ in 0..50 {
        nodes.turn();
    }
    assert!(comes_to_rest(&mut nodes, 0, node_of(first)) && comes_to_rest(&mut nodes, 1, node_of(second)));
}

#[test]
fn the_log_of_whoever_leads_has_changes_of_its_own_keys_alone() {
    let (mut nodes, clients) = three();
    let [first, second, third] = keys_led_by(0);
    assert_eq!(nodes.ask(clients[0], &format!("MSET {first} 1 {second} 2 {third} 3")), "OK");
    for _ in 0..20 {
        nodes.turn();
    }
    let (mut seen, mut of_groups) = (Vec::new(), 0);
    let read = nodes.end(0).read(&Filter::default(), &mut |record: Record| {
        read_all(&record.payload, &mut |header, body| {
            match body {
                Body::Whole { .. } => seen.push(String::from_utf8_lossy(header.key).into_owned()),
                body => of_groups += usize::from(body.is_of_group()),
            }
            Ok(())
        })
    });
    read.expect("a log");
    assert_eq!(
        (seen, of_groups),
        (vec![first], 2),
        "what others have would be taken for its own; committed, and ended"
    );
}

#[test]
fn where_groups_are_off_nothing_is_as_they_make_it() {
    let mut nodes = Nodes::start(crate::nodes::STAYING, &[1, 1, 1]);
    nodes.say(third, &[]);
    nodes.turn();
    let client = nodes.client(0, 0);
    let [here, there] = [0, 1].map(|node| key_of(node, 0));
    assert!(nodes.ask(client, &format!("MSET {here} 1 {there} 1")).starts_with("!CROSSNODE"));
    // Nor for a node where they are on.
    nodes.begin_anew(0, GROUPING);
    nodes.say(third, &[]);
    let client = nodes.client(0, 0);
    let [first, second, _] = keys_led_by(0);
    assert!(nodes.ask(client, &format!("MSET {first} 1 {second} 1")).starts_with("!CROSSNODE keys.groups"));
    assert_eq!(nodes.ask(client, &format!("SET {first} 2")), "OK", "it is free again");
}
