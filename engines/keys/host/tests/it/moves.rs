//! Virtual nodes that change their node while they are used: what the engine does for it, in one process.

use std::time::{Duration, Instant};

use savanna_epoch::{NodeEpoch, NodeId, OwnerEpoch};
use savanna_journal::{Options, seal};
use savanna_keys::cluster::arrival::Attempt;
use savanna_keys::cluster::owners::{Owners, Peer, PeerId, Whose};
use savanna_keys::cluster::table::VIRTUAL_NODES;
use savanna_keys::log::Staging;
use savanna_keys::placement::{Routes, group_of};
use savanna_keys::session::Ticket;
use savanna_keys_host::{Leaving, MoveError};

use crate::nodes::{Client, MOVING, Node, Nodes, node_of};

const TIME: Duration = Duration::from_secs(60);

/// The attempt that leads to an epoch.
fn attempt(epoch: u64) -> Attempt {
    Attempt { place: epoch, id: epoch }
}

impl Nodes {
    /// Does what blocks, while the nodes go on.
    fn meanwhile<T: Send + 'static>(&mut self, act: impl FnOnce() -> T + Send + 'static) -> T {
        let acting = std::thread::spawn(act);
        while !acting.is_finished() {
            self.turn();
            std::thread::yield_now();
        }
        acting.join().expect("no panic")
    }

    fn depart(&mut self, from: usize, node: u16) -> Leaving {
        // What was changed before is appended, and is not noted as if it was changed meanwhile.
        self.turn();
        let hearer = self.nodes[from].service.hearer();
        self.meanwhile(move || hearer.depart(node)).expect("it leaves")
    }

    /// Has a node expect a virtual node, with what is in it as it is.
    fn expect(&mut self, to: usize, node: u16, epoch: u64, leaving: &Leaving) -> Staging {
        let hearer = self.nodes[to].service.hearer();
        self.meanwhile(move || hearer.expect(node, attempt(epoch), OwnerEpoch(epoch))).expect("it comes");
        let leaves = leaving.clone();
        assert_eq!(self.meanwhile(move || leaves.is_written(TIME)), Ok(true));
        let mut staging = Staging::new(1);
        staging.take(&leaving.take()).expect("deltas");
        staging
    }

    fn is_at_rest(&mut self, leaving: &Leaving) -> Result<bool, MoveError> {
        let leaves = leaving.clone();
        self.meanwhile(move || leaves.is_at_rest(TIME))
    }

    /// What has come is in a node's log.
    fn receive(&mut self, to: usize, node: u16, epoch: u64, staging: Staging) -> Result<(), MoveError> {
        let hearer = self.nodes[to].service.hearer();
        self.meanwhile(move || {
            let (keys, latest) = staging.end().expect("deltas");
            hearer.receive(node, attempt(epoch), keys, latest)
        })
    }

    fn serve(&mut self, to: usize, node: u16, epoch: u64) {
        let hearer = self.nodes[to].service.hearer();
        self.meanwhile(move || hearer.serve(node, Some(attempt(epoch)), OwnerEpoch(epoch))).expect("it serves");
    }

    fn discard(&mut self, to: usize, node: u16, epoch: u64) {
        let hearer = self.nodes[to].service.hearer();
        self.meanwhile(move || hearer.discard(node, attempt(epoch))).expect("it is void");
    }

    /// Moves a virtual node, with all that comes between.
    fn carry(&mut self, node: u16, from: usize, to: usize, epoch: u64) {
        let leaving = self.depart(from, node);
        let mut staging = self.expect(to, node, epoch, &leaving);
        leaving.freeze();
        assert_eq!(self.is_at_rest(&leaving), Ok(true));
        staging.take(&leaving.take()).expect("deltas");
        self.receive(to, node, epoch, staging).expect("it is in the log");
        leaving.go(&self.nodes[to].name, OwnerEpoch(epoch));
        self.serve(to, node, epoch);
    }

    /// A node starts again, with what is in its log.
    fn restart(&mut self, number: usize, threads: u16) {
        let Node { name, mut service, workers, .. } = self.nodes.remove(number);
        drop(workers);
        service.close().expect("a log");
        drop(service);
        let again = Node::start(MOVING, &self.board, &name.0, self.folder.path(), 2, threads);
        self.nodes.insert(number, again);
    }

    /// The log of a client's node is written once more, and what was before is dropped.
    fn rewrite(&mut self, client: Client) {
        assert!(!self.ask(client, "BGREWRITEAOF").starts_with('!'));
        // All threads hear of it.
        (0..10).for_each(|_| self.turn());
        let until = Instant::now() + TIME;
        while !self.ask(client, "INFO persistence").contains("aof_rewrite_in_progress:0") {
            assert!(Instant::now() < until, "it does not end");
            self.turn();
        }
        // The first thread hears that all have settled, and that it is durable.
        (0..20).for_each(|_| self.turn());
    }

    fn start_asking(&mut self, client: Client, line: &str) -> Ticket {
        let words: Vec<&str> = line.split(' ').collect();
        self.send(client, &words).expect_err("its reply comes later")
    }
}

/// Two nodes with so many threads; the first has all.
fn two(threads: [u16; 2]) -> (Nodes, [Client; 2]) {
    let mut nodes = Nodes::start(MOVING, &threads);
    nodes.say(|_| Some(0), &[]);
    nodes.turn();
    let clients = [nodes.client(0, 0), nodes.client(1, 0)];
    (nodes, clients)
}

#[test]
fn a_virtual_node_moves_while_it_is_used_and_nothing_is_lost() {
    let (mut nodes, [near, far]) = two([3, 2]);
    let node = node_of("{k}");
    for number in 0..500 {
        nodes.ask(near, &format!("SET {{k}}:{number} {number}"));
    }
    nodes.ask(near, "RPUSH {k}list a b");
    nodes.ask(near, "SET {k}gone 1");
    nodes.ask(near, "SET {k}soon 1 PX 3600000");
    nodes.ask(near, "SET other 1");
    let leaving = nodes.depart(0, node);
    assert_eq!(nodes.ask(near, "INCR {k}count"), "1", "while it is written");
    let mut staging = nodes.expect(1, node, 2, &leaving);
    assert_eq!(nodes.ask(near, "INCR {k}count"), "2");
    assert_eq!(nodes.ask(far, "RPUSH {k}list c"), "3");
    assert_eq!(nodes.ask(near, "DEL {k}gone"), "1");
    staging.take(&leaving.take()).expect("deltas");
    assert_eq!(nodes.ask(near, "INCR {k}count"), "3");
    leaving.freeze();
    // Those of other keys go on, those of its keys wait, in their order and wherever they come: also in the midst of a request.
    nodes.turn();
    let others = nodes.start_asking(far, "INCR other");
    let mut waiting = vec![(far, nodes.start_asking(far, "INCR {k}count"))];
    let mut ask = |nodes: &mut Nodes, number: usize| {
        nodes.turn();
        let client = [near, far][number % 2];
        waiting.push((client, nodes.start_asking(client, "INCR {k}count")));
    };
    (0..3).for_each(|number| ask(&mut nodes, number));
    assert_eq!(nodes.hear(far, others), "2");
    assert_eq!(nodes.is_at_rest(&leaving), Ok(true));
    staging.take(&leaving.take()).expect("deltas");
    (0..2).for_each(|number| ask(&mut nodes, number));
    assert_eq!(nodes.ask(near, "INCR other"), "3");
    assert!(nodes.ask(near, "FLUSHALL").starts_with("!TRYAGAIN"), "nobody knows where it is by then");
    assert_eq!(nodes.ask(near, "DBSIZE"), "504", "as long as it is not decided they are counted here, and there alone");
    nodes.receive(1, node, 2, staging).expect("it is in the log");
    assert_eq!(nodes.ask(near, "DBSIZE"), "504");
    leaving.go(&NodeId::new("n1"), OwnerEpoch(2));
    nodes.serve(1, node, 2);
    let mut counted: Vec<u32> =
        waiting.into_iter().map(|(client, ticket)| nodes.hear(client, ticket).parse().expect("a number")).collect();
    counted.sort_unstable();
    assert_eq!(counted, [4, 5, 6, 7, 8, 9], "each was done once");
    for client in [near, far] {
        for number in 0..500 {
            assert_eq!(nodes.ask(client, &format!("GET {{k}}:{number}")), format!("\"{number}\""));
        }
        assert_eq!(nodes.ask(client, "LRANGE {k}list 0 -1"), "[3] \"a\" \"b\" \"c\"");
        assert_eq!(nodes.ask(client, "EXISTS {k}gone"), "0");
        let left: u64 = nodes.ask(client, "PTTL {k}soon").parse().expect("a number");
        assert!(left > 3_000_000);
        assert_eq!(nodes.ask(client, "DBSIZE"), "504");
    }
    // What was said before is known to be old, and what comes later counts.
    nodes.say(|_| Some(0), &[]);
    nodes.turn();
    assert_eq!(nodes.ask(near, "INCR {k}count"), "10");
    // It is in the log of the one, and not in that of the other.
    nodes.restart(1, 1);
    nodes.restart(0, 2);
    nodes.say(|of| Some(usize::from(of == node)), &[]);
    nodes.turn();
    let near = nodes.client(0, 1);
    assert_eq!(nodes.ask(near, "GET {k}count"), "\"10\"");
    assert_eq!(nodes.ask(near, "DBSIZE"), "504");
    nodes.say(|_| Some(0), &[]);
    nodes.turn();
    assert_eq!(nodes.ask(near, "EXISTS {k}count"), "0", "it has gone from there");
}

#[test]
fn what_is_under_way_when_it_begins_to_wait_goes_along() {
    let (mut nodes, _) = two([3, 1]);
    let routes = Routes::over(3);
    let key = |number: usize| format!("{{{number}}}");
    let at = |actor: usize| {
        (0..).map(key).find(|key| routes.actor_of(group_of(key.as_bytes())).index() == actor).expect("a key")
    };
    let (mine, other) = (at(0), at(2));
    let (node, client) = (node_of(&mine), nodes.client(0, 1));
    let leaving = nodes.depart(0, node);
    let mut staging = nodes.expect(1, node, 2, &leaving);
    // The thread that has it hears this behind the word that nobody begins anything with it.
    let counted = nodes.start_asking(client, &format!("INCR {mine}"));
    let both = nodes.start_asking(client, &format!("MSET {mine}x 1 {other}x 1"));
    leaving.freeze();
    assert_eq!(nodes.is_at_rest(&leaving), Ok(true));
    staging.take(&leaving.take()).expect("deltas");
    assert_eq!(nodes.hear(client, counted), "1");
    assert_eq!(nodes.hear(client, both), "OK");
    nodes.receive(1, node, 2, staging).expect("it is in the log");
    leaving.go(&NodeId::new("n1"), OwnerEpoch(2));
    nodes.serve(1, node, 2);
    assert_eq!(nodes.ask(client, &format!("MGET {mine} {mine}x")), "[2] \"1\" \"1\"");
    assert_eq!(nodes.ask(client, &format!("GET {other}x")), "\"1\"");
}

#[test]
fn a_virtual_node_that_stays_is_served_on_and_nothing_is_left_of_it_elsewhere() {
    let (mut nodes, [near, far]) = two([2, 1]);
    let node = node_of("{k}");
    nodes.ask(near, "SET {k}1 before");
    nodes.ask(near, "SET {k}2 before");
    let leaving = nodes.depart(0, node);
    let staging = nodes.expect(1, node, 2, &leaving);
    leaving.freeze();
    assert_eq!(nodes.is_at_rest(&leaving), Ok(true));
    let waiting = [near, far].map(|client| (client, nodes.start_asking(client, "INCR {k}count")));
    nodes.receive(1, node, 2, staging).expect("it is in the log");
    leaving.stay();
    nodes.discard(1, node, 2);
    let mut counted: Vec<String> = waiting.into_iter().map(|(client, ticket)| nodes.hear(client, ticket)).collect();
    counted.sort();
    assert_eq!(counted, ["1", "2"]);
    assert_eq!(nodes.ask(far, "DEL {k}1"), "1");
    assert_eq!(nodes.ask(near, "DBSIZE"), "2");
    // The node dies, and the other one has what its log has: not what had come before.
    let gone = nodes.nodes.remove(0);
    let Node { folder, mut service, workers, .. } = gone;
    drop(workers);
    service.close().expect("a log");
    drop(service);
    nodes.nodes.insert(0, Node::start(MOVING, &nodes.board, "spare", nodes.folder.path(), 1, 1));
    let sealed = seal(&Options::dir(&folder), NodeEpoch(2)).expect("it has ended");
    let hearer = nodes.nodes[1].service.hearer();
    assert_eq!(nodes.meanwhile(move || hearer.adopt(&sealed, &|_| true)).expect("a log"), 2);
    nodes.restart(1, 1);
    nodes.say(|_| Some(1), &[]);
    nodes.turn();
    let client = nodes.client(1, 0);
    assert_eq!(nodes.ask(client, "GET {k}2"), "\"before\"");
    assert_eq!(nodes.ask(client, "EXISTS {k}1"), "0", "it was deleted");
    assert_eq!(nodes.ask(client, "DBSIZE"), "2");
}

#[test]
fn a_virtual_node_that_is_lost_on_its_way_is_read_out_of_the_log_by_who_has_it() {
    let (mut nodes, [near, _]) = two([2, 1]);
    let node = node_of("{k}");
    nodes.ask(near, "SET {k} 1");
    let leaving = nodes.depart(0, node);
    leaving.freeze();
    assert_eq!(nodes.is_at_rest(&leaving), Ok(true));
    leaving.lose(OwnerEpoch(2));
    let waits = nodes.start_asking(near, "GET {k}");
    (0..3).for_each(|_| nodes.turn());
    assert!(!nodes.nodes[0].replies.contains_key(&(near.thread, near.session, waits)), "somebody else has it");
    let sealed = nodes.end(0);
    let hearer = nodes.nodes[1].service.hearer();
    assert_eq!(nodes.meanwhile(move || hearer.adopt(&sealed, &|_| true)).expect("a log"), 1);
    nodes.say(|_| Some(1), &[]);
    nodes.turn();
    let client = nodes.client(1, 0);
    assert_eq!(nodes.ask(client, "GET {k}"), "\"1\"");
}

#[test]
fn a_virtual_node_comes_back_as_it_is_elsewhere() {
    let (mut nodes, [near, far]) = two([2, 2]);
    let node = node_of("{k}");
    nodes.ask(near, "SET {k}1 a");
    nodes.ask(near, "SET {k}2 a");
    nodes.carry(node, 0, 1, 2);
    assert_eq!(nodes.ask(near, "DEL {k}1"), "1");
    assert_eq!(nodes.ask(far, "APPEND {k}2 b"), "2");
    nodes.carry(node, 1, 0, 3);
    assert_eq!(nodes.ask(far, "GET {k}2"), "\"ab\"");
    assert_eq!(nodes.ask(far, "EXISTS {k}1"), "0");
    assert_eq!(nodes.ask(near, "APPEND {k}2 c"), "3");
    nodes.turn();
    nodes.restart(0, 3);
    nodes.say(|_| Some(0), &[]);
    nodes.turn();
    let near = nodes.client(0, 0);
    assert_eq!(nodes.ask(near, "GET {k}2"), "\"abc\"");
    assert_eq!(nodes.ask(near, "EXISTS {k}1"), "0", "what the log has of before is void");
    assert_eq!(nodes.ask(near, "DBSIZE"), "1");
}

#[test]
fn a_flush_takes_what_moves_or_it_does_not_move() {
    let (mut nodes, [near, far]) = two([2, 2]);
    let node = node_of("{k}");
    nodes.ask(near, "SET {k} 1");
    let leaving = nodes.depart(0, node);
    let staging = nodes.expect(1, node, 2, &leaving);
    assert_eq!(nodes.ask(far, "FLUSHALL"), "OK");
    leaving.freeze();
    assert!(matches!(nodes.is_at_rest(&leaving), Err(MoveError::Failed(_))));
    assert!(nodes.receive(1, node, 2, staging).is_err(), "it was flushed there as well");
    leaving.stay();
    nodes.discard(1, node, 2);
    assert_eq!(nodes.ask(near, "DBSIZE"), "0");
    nodes.ask(near, "SET {k} 2");
    nodes.carry(node, 0, 1, 2);
    assert_eq!(nodes.ask(near, "GET {k}"), "\"2\"");
    assert_eq!(nodes.ask(near, "FLUSHALL"), "OK");
    assert_eq!(nodes.ask(far, "DBSIZE"), "0");
}

#[test]
fn who_waits_for_a_key_or_watches_one_hears_that_it_has_moved() {
    let (mut nodes, [near, far]) = two([2, 1]);
    let node = node_of("{k}");
    let waiter = nodes.client(0, 1);
    let popped = nodes.start_asking(waiter, "BLPOP {k}list 20");
    nodes.turn();
    nodes.ask(near, "SET {k} 1");
    assert_eq!(nodes.ask(near, "WATCH {k} {k}absent"), "OK");
    assert_eq!(nodes.ask(near, "MULTI"), "OK");
    assert_eq!(nodes.ask(near, "INCR {k}"), "QUEUED");
    nodes.carry(node, 0, 1, 2);
    assert!(nodes.ask(near, "EXEC").starts_with("!TRYAGAIN"));
    assert_eq!(nodes.ask(far, "GET {k}"), "\"1\"");
    assert_eq!(nodes.ask(far, "RPUSH {k}list a"), "1");
    assert_eq!(nodes.hear(waiter, popped), "[2] \"{k}list\" \"a\"");
    assert_eq!(nodes.ask(far, "LLEN {k}list"), "0");
    // It comes back before it is done: it has changed.
    let there = nodes.client(1, 0);
    assert_eq!(nodes.ask(there, "WATCH {k}"), "OK");
    nodes.carry(node, 1, 0, 3);
    nodes.ask(near, "SET {k} 5");
    nodes.carry(node, 0, 1, 4);
    assert_eq!(nodes.ask(there, "MULTI"), "OK");
    assert_eq!(nodes.ask(there, "INCR {k}"), "QUEUED");
    assert_eq!(nodes.ask(there, "EXEC"), "nil");
}

#[test]
fn a_client_of_the_cluster_port_waits_and_is_sent_on() {
    let (mut nodes, [near, far]) = two([2, 1]);
    let node = node_of("{k}");
    for myself in 0..2 {
        let port = savanna_keys::cluster::ClusterNode {
            id: savanna_keys::cluster::node_id("n1"),
            address: "127.0.0.1:7001".parse().expect("an address"),
        };
        let peer = |number: usize| Peer {
            node: NodeId::new(format!("n{number}")),
            is_there: number != myself,
            cluster_port: Some(port.clone().into()),
        };
        let mut owners = Owners::among((0..2).map(peer).collect());
        let whose = if myself == 0 { Whose::Here } else { Whose::There(PeerId(0)) };
        (0..VIRTUAL_NODES).for_each(|node| owners.set(node, whose, OwnerEpoch(1)));
        nodes.nodes[myself].service.hearer().say(owners);
    }
    nodes.turn();
    nodes.nodes[0].workers[0].admission().note_cluster_port(near.session);
    assert_eq!(nodes.ask(near, "SET {k} 1"), "OK");
    let leaving = nodes.depart(0, node);
    let mut staging = nodes.expect(1, node, 2, &leaving);
    leaving.freeze();
    assert_eq!(nodes.is_at_rest(&leaving), Ok(true));
    let waits = nodes.start_asking(near, "INCR {k}");
    staging.take(&leaving.take()).expect("deltas");
    nodes.receive(1, node, 2, staging).expect("it is in the log");
    leaving.go(&NodeId::new("n1"), OwnerEpoch(2));
    nodes.serve(1, node, 2);
    assert_eq!(nodes.hear(near, waits), "2");
    assert!(nodes.ask(near, "INCR {k}").starts_with("!MOVED"));
    assert_eq!(nodes.ask(far, "GET {k}"), "\"2\"");
}

#[test]
fn keys_with_replicas_go_without_them() {
    let (mut nodes, [near, far]) = two([3, 1]);
    let node = node_of("{k}");
    assert_eq!(nodes.ask(near, "SET {k} 1"), "OK");
    assert_eq!(nodes.ask(near, "SAV.REPLICATE {k} 3"), "OK");
    for _ in 0..20 {
        nodes.turn();
    }
    assert_eq!(nodes.ask(near, "APPEND {k} 2"), "2");
    nodes.carry(node, 0, 1, 2);
    assert_eq!(nodes.ask(near, "GET {k}"), "\"12\"");
    assert_eq!(nodes.ask(far, "GET {k}"), "\"12\"");
    assert_eq!(nodes.ask(near, "DBSIZE"), "1");
}

#[test]
fn much_and_what_is_long_goes_in_parts_that_are_cut_anywhere() {
    let (mut nodes, [near, far]) = two([2, 1]);
    let node = node_of("{k}");
    let long = "v".repeat(100 << 10);
    for number in 0..100 {
        nodes.ask(near, &format!("SET {{k}}:{number} {long}"));
    }
    let very_long = "w".repeat(5 << 20);
    nodes.ask(near, &format!("SET {{k}}long {very_long}"));
    let leaving = nodes.depart(0, node);
    let hearer = nodes.nodes[1].service.hearer();
    nodes.meanwhile(move || hearer.expect(node, attempt(2), OwnerEpoch(2))).expect("it comes");
    let (mut staging, mut sent) = (Staging::new(1), 0);
    loop {
        let leaves = leaving.clone();
        let is_written = nodes.meanwhile(move || leaves.is_written(Duration::ZERO)).expect("it goes on");
        assert!(leaving.waiting_bytes() < 64 << 20);
        for part in leaving.take().chunks(1_000_003) {
            sent += part.len();
            staging.take(part).expect("deltas");
        }
        if is_written && leaving.waiting_bytes() == 0 {
            break;
        }
    }
    assert!(sent > 14 << 20);
    leaving.freeze();
    assert_eq!(nodes.is_at_rest(&leaving), Ok(true));
    staging.take(&leaving.take()).expect("deltas");
    nodes.receive(1, node, 2, staging).expect("it is in the log");
    leaving.go(&NodeId::new("n1"), OwnerEpoch(2));
    nodes.serve(1, node, 2);
    assert_eq!(nodes.ask(far, "STRLEN {k}long"), very_long.len().to_string());
    assert_eq!(nodes.ask(near, "STRLEN {k}:99"), long.len().to_string());
    assert_eq!(nodes.ask(near, "DBSIZE"), "101");
    let mut cut = Staging::new(1);
    cut.take(&[9, 0]).expect("the beginning of something");
    assert!(cut.end().is_err(), "its end has not come");
}

#[test]
fn what_is_changed_faster_than_it_is_taken_stays() {
    let (mut nodes, [near, _]) = two([1, 1]);
    let node = node_of("{k}");
    let leaving = nodes.depart(0, node);
    let value = "v".repeat(1 << 20);
    for _ in 0..80 {
        assert_eq!(nodes.ask(near, &format!("SET {{k}} {value}")), "OK");
        assert!(leaving.waiting_bytes() <= 64 << 20);
    }
    leaving.freeze();
    assert!(matches!(nodes.is_at_rest(&leaving), Err(MoveError::Failed(_))));
    leaving.stay();
    assert_eq!(nodes.ask(near, "STRLEN {k}"), value.len().to_string());
}

#[test]
fn who_waits_for_a_key_that_leaves_takes_one_element() {
    let (mut nodes, [near, _]) = two([2, 1]);
    let routes = Routes::over(2);
    let key = (0..).map(|number| format!("{{{number}}}"));
    let key = key.into_iter().find(|key| routes.actor_of(group_of(key.as_bytes())).index() == 0).expect("a key");
    let (node, waiter) = (node_of(&key), nodes.client(0, 1));
    let popped = nodes.start_asking(waiter, &format!("BLPOP {key} 20"));
    (0..3).for_each(|_| nodes.turn());
    let leaving = nodes.depart(0, node);
    let mut staging = nodes.expect(1, node, 2, &leaving);
    // The other thread hears that it is to freeze, and then that its client is called.
    leaving.freeze();
    let pushed = nodes.send(near, &["RPUSH", &key, "a", "b"]);
    let worker = &mut nodes.nodes[0].workers[0];
    worker.finish_turn().expect("a log");
    assert_eq!(nodes.is_at_rest(&leaving), Ok(true));
    let until = Instant::now() + Duration::from_millis(100);
    while Instant::now() < until {
        nodes.turn();
    }
    staging.take(&leaving.take()).expect("deltas");
    nodes.receive(1, node, 2, staging).expect("it is in the log");
    leaving.go(&NodeId::new("n1"), OwnerEpoch(2));
    nodes.serve(1, node, 2);
    assert_eq!(pushed, Ok("2".to_owned()));
    assert_eq!(nodes.hear(waiter, popped), format!("[2] \"{key}\" \"a\""));
    let until = Instant::now() + Duration::from_millis(100);
    while Instant::now() < until {
        nodes.turn();
    }
    assert_eq!(nodes.ask(near, &format!("LRANGE {key} 0 -1")), "[1] \"b\"");
}

#[test]
fn a_client_of_the_cluster_port_is_served_in_order_when_a_virtual_node_stays() {
    let (mut nodes, [near, far]) = two([1, 1]);
    let node = node_of("{k}");
    nodes.nodes[0].workers[0].admission().note_cluster_port(near.session);
    let leaving = nodes.depart(0, node);
    leaving.freeze();
    nodes.turn();
    let first = nodes.start_asking(near, "SET {k} 1");
    // What waited is asked again at the end of a turn, and the next comes before.
    leaving.stay();
    let worker = &mut nodes.nodes[0].workers[0];
    worker.begin_turn();
    let second = nodes.send(near, &["SET", "{k}", "2"]);
    assert_eq!(nodes.hear(near, first), "OK");
    match second {
        Ok(reply) => assert_eq!(reply, "OK"),
        Err(ticket) => assert_eq!(nodes.hear(near, ticket), "OK"),
    }
    assert_eq!(nodes.ask(far, "GET {k}"), "\"2\"");
    assert_eq!(nodes.send(near, &["SET", "{k}", "3"]), Ok("OK".to_owned()), "at once, when nothing waits");
}

#[test]
fn a_flush_during_a_freeze_empties_no_other_node_or_says_so() {
    let (mut nodes, _) = two([2, 1]);
    let node = node_of("{k}");
    // Each has a half, but what leaves is the first one's.
    nodes.say(|of| Some(usize::from(of % 2 == 1 && of != node)), &[]);
    nodes.turn();
    let [near, far] = [nodes.client(0, 0), nodes.client(1, 0)];
    let other = (0..).map(|number: u32| format!("o{number}")).find(|key| node_of(key) % 2 == 1).expect("a key");
    nodes.ask(near, "SET {k} 1");
    nodes.ask(near, &format!("SET {other} 1"));
    let leaving = nodes.depart(0, node);
    leaving.freeze();
    (0..3).for_each(|_| nodes.turn());
    assert!(nodes.ask(near, "FLUSHALL").starts_with("!TRYAGAIN nothing was done"));
    assert_eq!(nodes.ask(far, &format!("EXISTS {other}")), "1", "nothing was");
    let told = nodes.ask(far, "FLUSHALL");
    assert!(told.starts_with("!PARTIAL"), "{told}");
    leaving.stay();
    (0..3).for_each(|_| nodes.turn());
    assert_eq!(nodes.ask(near, "GET {k}"), "\"1\"");
    assert_eq!(nodes.ask(far, "FLUSHALL"), "OK");
    assert_eq!(nodes.ask(near, "EXISTS {k}"), "0");
}

#[test]
fn what_is_said_of_an_earlier_attempt_concerns_nothing_that_came_by_a_later_one() {
    let (mut nodes, [near, far]) = two([2, 1]);
    let node = node_of("{k}");
    nodes.ask(near, "SET {k}1 old");
    nodes.ask(near, "SET {k}2 old");
    let first = nodes.depart(0, node);
    let old = nodes.expect(1, node, 2, &first);
    first.stay();
    assert_eq!(nodes.ask(near, "DEL {k}1"), "1");
    let second = nodes.depart(0, node);
    let mut staging = nodes.expect(1, node, 3, &second);
    assert!(nodes.receive(1, node, 2, old).is_err(), "it comes by another attempt");
    second.freeze();
    assert_eq!(nodes.is_at_rest(&second), Ok(true));
    staging.take(&second.take()).expect("deltas");
    nodes.receive(1, node, 3, staging).expect("it is in the log");
    nodes.discard(1, node, 2);
    let hearer = nodes.nodes[1].service.hearer();
    let (served, expected) = nodes.meanwhile(move || {
        let served = hearer.serve(node, Some(attempt(2)), OwnerEpoch(2));
        (served, hearer.expect(node, attempt(2), OwnerEpoch(2)))
    });
    assert!(served.is_err() && expected.is_err());
    second.go(&NodeId::new("n1"), OwnerEpoch(3));
    nodes.serve(1, node, 3);
    assert_eq!(nodes.ask(near, "GET {k}2"), "\"old\"");
    assert_eq!(nodes.ask(far, "EXISTS {k}1"), "0", "it was deleted in between");
    nodes.restart(1, 1);
    nodes.say(|of| Some(usize::from(of == node)), &[]);
    nodes.turn();
    let far = nodes.client(1, 0);
    assert_eq!(nodes.ask(far, "EXISTS {k}1 {k}2"), "1");
}

#[test]
fn what_a_record_says_is_here_is_served_with_what_has_come_and_not_without() {
    let (mut nodes, [near, far]) = two([2, 1]);
    let node = node_of("{k}");
    nodes.ask(near, "SET {k} 1");
    let leaving = nodes.depart(0, node);
    let mut staging = nodes.expect(1, node, 2, &leaving);
    leaving.freeze();
    assert_eq!(nodes.is_at_rest(&leaving), Ok(true));
    staging.take(&leaving.take()).expect("deltas");
    nodes.receive(1, node, 2, staging).expect("it is in the log");
    let by_record = |nodes: &mut Nodes, epoch: u64| {
        let hearer = nodes.nodes[1].service.hearer();
        nodes.meanwhile(move || hearer.serve(node, None, OwnerEpoch(epoch)))
    };
    assert!(by_record(&mut nodes, 3).is_err(), "by another move");
    leaving.go(&NodeId::new("n1"), OwnerEpoch(2));
    assert_eq!(by_record(&mut nodes, 2), Ok(()));
    assert_eq!(nodes.ask(far, "GET {k}"), "\"1\"");
    // Said twice, it is the same.
    nodes.serve(1, node, 2);
    assert_eq!(nodes.ask(near, "GET {k}"), "\"1\"");
}

#[test]
fn what_a_service_that_ended_has_left_is_void_where_no_record_says_it_is_here() {
    let (mut nodes, [near, _]) = two([2, 2]);
    let node = node_of("{k}");
    nodes.ask(near, "SET {k}1 a");
    nodes.ask(near, "SET {k}2 a");
    let leaving = nodes.depart(0, node);
    let mut staging = nodes.expect(1, node, 2, &leaving);
    leaving.freeze();
    assert_eq!(nodes.is_at_rest(&leaving), Ok(true));
    staging.take(&leaving.take()).expect("deltas");
    nodes.receive(1, node, 2, staging).expect("it is in the log");
    // The target begins anew before it is decided, and the source gives up.
    nodes.restart(1, 2);
    leaving.stay();
    nodes.say(|_| Some(0), &[]);
    nodes.turn();
    let hearer = nodes.nodes[1].service.hearer();
    assert_eq!(nodes.meanwhile(move || hearer.clear(0..VIRTUAL_NODES, false)), Ok(()));
    assert_eq!(nodes.ask(near, "DBSIZE"), "2");
    assert_eq!(nodes.ask(near, "DEL {k}1"), "1");
    nodes.restart(1, 1);
    // It comes after all, as it is by then; also where nobody has said that what was left is void.
    nodes.say(|_| Some(0), &[]);
    nodes.turn();
    nodes.carry(node, 0, 1, 2);
    assert_eq!(nodes.ask(near, "EXISTS {k}1 {k}2"), "1");
    nodes.restart(1, 1);
    nodes.say(|of| Some(usize::from(of == node)), &[]);
    nodes.turn();
    let far = nodes.client(1, 0);
    assert_eq!(nodes.ask(far, "EXISTS {k}1 {k}2"), "1");
}

#[test]
fn keys_of_a_node_that_is_gone_are_taken_in_without_what_is_left_of_them() {
    let (mut nodes, [near, _]) = two([2, 1]);
    let node = node_of("{k}");
    nodes.ask(near, "SET {k}1 a");
    nodes.ask(near, "SET {k}2 a");
    let leaving = nodes.depart(0, node);
    let staging = nodes.expect(1, node, 2, &leaving);
    nodes.receive(1, node, 2, staging).expect("it is in the log");
    leaving.stay();
    // Nobody says there that it does not come. A key is deleted, and its node dies.
    assert_eq!(nodes.ask(near, "DEL {k}1"), "1");
    nodes.turn();
    let Node { folder, mut service, workers, .. } = nodes.nodes.remove(0);
    drop(workers);
    service.close().expect("a log");
    drop(service);
    nodes.nodes.insert(0, Node::start(MOVING, &nodes.board, "spare", nodes.folder.path(), 1, 1));
    let sealed = seal(&Options::dir(&folder), NodeEpoch(2)).expect("it has ended");
    let hearer = nodes.nodes[1].service.hearer();
    assert_eq!(nodes.meanwhile(move || hearer.adopt(&sealed, &|_| true)).expect("a log"), 1);
    nodes.say(|_| Some(1), &[]);
    nodes.turn();
    let client = nodes.client(1, 0);
    assert_eq!(nodes.ask(client, "EXISTS {k}1 {k}2"), "1");
    nodes.turn();
    nodes.restart(1, 1);
    nodes.say(|_| Some(1), &[]);
    nodes.turn();
    let client = nodes.client(1, 0);
    assert_eq!(nodes.ask(client, "EXISTS {k}1 {k}2"), "1", "nor does the log bring it back");
}

#[test]
fn what_has_come_is_in_a_log_that_was_rewritten_meanwhile() {
    let (mut nodes, [near, far]) = two([2, 1]);
    let node = node_of("{k}");
    let value = "v".repeat(1 << 10);
    for number in 0..3_000 {
        nodes.ask(near, &format!("SET {{k}}:{number} {value}"));
    }
    let leaving = nodes.depart(0, node);
    let mut staging = nodes.expect(1, node, 2, &leaving);
    leaving.freeze();
    assert_eq!(nodes.is_at_rest(&leaving), Ok(true));
    staging.take(&leaving.take()).expect("deltas");
    nodes.receive(1, node, 2, staging).expect("it is in the log");
    nodes.rewrite(far);
    leaving.go(&NodeId::new("n1"), OwnerEpoch(2));
    nodes.serve(1, node, 2);
    nodes.turn();
    nodes.restart(1, 1);
    nodes.say(|of| Some(usize::from(of == node)), &[]);
    nodes.turn();
    let far = nodes.client(1, 0);
    assert_eq!(nodes.ask(far, "STRLEN {k}:2999"), value.len().to_string());
    assert_eq!(nodes.ask(far, "DBSIZE"), "3000");
}
