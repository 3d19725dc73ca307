//! Nodes that each have some of the keys: services in one process, which ask each other without a network.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::{Duration, Instant};

use savanna_epoch::{NodeEpoch, NodeId, OwnerEpoch};
use savanna_journal::{Filter, Options, Record, SealedLog, seal};
use savanna_keys::actor::Progress;
use savanna_keys::actor::message::Destination;
use savanna_keys::cluster::owners::{Owners, Peer, PeerId, Whose, virtual_node_of};
use savanna_keys::cluster::table::VIRTUAL_NODES;
use savanna_keys::config::{Config, Sync};
use savanna_keys::delta::{Body, read_all};
use savanna_keys::group::{GroupReply, GroupRequest};
use savanna_keys::handle::{Answer, HandleError, KeysHandle, KeysNodes, KeysRequest, SharedKeysHandle};
use savanna_keys::placement::group_of;
use savanna_keys::reply::Tape;
use savanna_keys::request::OwnedArgs;
use savanna_keys::session::{SessionId, Ticket};
use savanna_keys_host::{Clients, HostOptions, Meanwhile, Service, Spread, Worker};

/// How long something is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// What nodes are like.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// How long they ask for something again that nobody does.
    patience: Duration,
    may_move: bool,
    groups: bool,
}

impl Kind {
    pub(crate) const fn moves(self) -> bool {
        self.may_move
    }

    pub(crate) const fn makes_groups(self) -> bool {
        self.groups
    }
}

/// Nodes whose keys move.
pub(crate) const MOVING: Kind = Kind { patience: Duration::from_secs(20), may_move: true, groups: false };
/// Nodes whose keys stay.
pub(crate) const STAYING: Kind = Kind { may_move: false, ..MOVING };
/// Nodes that run requests about keys of several.
pub(crate) const GROUPING: Kind = Kind { groups: true, ..STAYING };
/// The same, whose keys move.
pub(crate) const MOVING_AND_GROUPING: Kind = Kind { groups: true, ..MOVING };

/// Which services there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switchboard(
    pub(crate) Arc<Mutex<HashMap<NodeId, SharedKeysHandle>>>,
    /// What becomes of what is said about groups, if it does not just come there.
    pub(crate) Option<Arc<Faults>>,
);

impl KeysNodes for Switchboard {
    fn at(&self, node: &NodeId) -> SharedKeysHandle {
        let handle = self.0.lock().unwrap().get(node).cloned().unwrap_or_else(|| Arc::new(Dead));
        match &self.1 {
            Some(faults) => Arc::new(Faulty { handle, faults: Arc::clone(faults) }),
            None => handle,
        }
    }
}

/// What goes wrong with what is said about groups, by chance from a seed.
#[derive(Debug)]
pub(crate) struct Faults {
    chance: Mutex<u64>,
    /// Copies that come late.
    late: Mutex<Vec<(SharedKeysHandle, GroupRequest)>>,
}

impl Faults {
    pub(crate) fn new(seed: u64) -> Self {
        Self { chance: Mutex::new(seed | 1), late: Mutex::default() }
    }

    fn below(&self, end: u64) -> u64 {
        let mut chance = self.chance.lock().unwrap();
        *chance ^= *chance << 13;
        *chance ^= *chance >> 7;
        *chance ^= *chance << 17;
        *chance % end
    }
}

/// A way to a node on which requests about groups and their answers are lost, come twice, or late.
#[derive(Debug)]
struct Faulty {
    handle: SharedKeysHandle,
    faults: Arc<Faults>,
}

impl KeysHandle for Faulty {
    fn call(&self, request: Arc<KeysRequest>, answer: Answer) {
        self.handle.call(request, answer);
    }

    fn group(&self, request: GroupRequest, answer: Answer<GroupReply>) {
        let lost = || Err(HandleError::Unavailable { reason: "it is lost".to_owned(), may_have_run: true });
        let faults = &self.faults;
        if faults.below(4) == 0 {
            let mut late = faults.late.lock().unwrap();
            let place = faults.below(late.len().max(1) as u64) as usize;
            let copy = (!late.is_empty()).then(|| late.swap_remove(place));
            drop(late);
            copy.into_iter().for_each(|(handle, request)| handle.group(request, Answer::new(|_| {})));
        }
        match faults.below(12) {
            0 => return answer.give(lost()),
            1 => {
                self.handle.group(request, Answer::new(|_| {}));
                return answer.give(lost());
            }
            2 => self.handle.group(request.clone(), Answer::new(|_| {})),
            3 => faults.late.lock().unwrap().push((Arc::clone(&self.handle), request.clone())),
            _ => {}
        }
        self.handle.group(request, answer);
    }
}

/// A node that is gone: whether it did something nobody knows.
#[derive(Debug)]
struct Dead;

impl KeysHandle for Dead {
    fn call(&self, _: Arc<KeysRequest>, answer: Answer) {
        answer.give(Err(HandleError::Unavailable { reason: "the connection broke".to_owned(), may_have_run: true }));
    }
}

/// Nobody is served while scripts run.
#[derive(Debug)]
struct NoClients;

impl Clients for NoClients {
    fn read(&mut self, _: &mut Meanwhile<'_>) {}

    fn write(&mut self, _: &mut Meanwhile<'_>) {}
}

/// A node that never answers.
#[derive(Debug, Default)]
pub(crate) struct Silent(Mutex<Vec<Answer>>);

impl KeysHandle for Silent {
    fn call(&self, _: Arc<KeysRequest>, answer: Answer) {
        self.0.lock().unwrap().push(answer);
    }

    fn group(&self, _: GroupRequest, answer: Answer<GroupReply>) {
        // Whoever asks asks again.
        let reason = "nobody hears it".to_owned();
        answer.give(Err(HandleError::Unavailable { reason, may_have_run: true }));
    }
}

pub(crate) struct Node {
    pub(crate) name: NodeId,
    pub(crate) folder: PathBuf,
    pub(crate) service: Service,
    pub(crate) workers: Vec<Worker>,
    /// By the thread, as each counts its sessions by itself.
    pub(crate) replies: HashMap<(usize, SessionId, Ticket), String>,
    pushed: Vec<String>,
}

impl Node {
    pub(crate) fn start(kind: Kind, board: &Switchboard, name: &str, folder: &Path, epoch: u64, threads: u16) -> Self {
        let Kind { patience, may_move, groups } = kind;
        let spread = Spread { nodes: Arc::new(board.clone()), patience, may_move, groups };
        let folder = folder.join(name);
        let config = Config { sync: Sync::Always, ..Config::default() };
        let log = Some((Options::dir(&folder), NodeEpoch(epoch)));
        let options = HostOptions { threads, config, log, lease: None, seed: 1, elsewhere: None, spread: Some(spread) };
        let (service, mut workers) =
            Service::open(options, vec![Waker::noop().clone(); usize::from(threads)]).expect("a log");
        for worker in &mut workers {
            let _ = worker.begin(Box::new(NoClients));
        }
        board.0.lock().unwrap().insert(NodeId::new(name), service.handle());
        let (replies, pushed) = (HashMap::new(), Vec::new());
        Self { name: NodeId::new(name), folder, service, workers, replies, pushed }
    }

    pub(crate) fn turn(&mut self) {
        for (thread, worker) in self.workers.iter_mut().enumerate() {
            worker.begin_turn();
            worker.finish_turn().expect("a log");
            // Nothing is told before it is durable.
            while worker.clear().expect("a log").held.is_some() {
                std::thread::yield_now();
            }
            let replies = worker.take_replies();
            for (to, part) in replies.iter() {
                match to {
                    Destination::Session(session, ticket) => {
                        self.replies.insert((thread, session, ticket), part.to_tape().to_string());
                    }
                    Destination::Push(_) => self.pushed.push(part.to_tape().to_string()),
                    other => panic!("expected a session, came {other:?}"),
                }
            }
            worker.recycle(replies);
        }
    }
}

/// A client, connected to a thread of a node.
#[derive(Clone, Copy)]
pub(crate) struct Client {
    pub(crate) node: usize,
    pub(crate) thread: usize,
    pub(crate) session: SessionId,
}

pub(crate) struct Nodes {
    pub(crate) board: Switchboard,
    pub(crate) nodes: Vec<Node>,
    pub(crate) folder: tempfile::TempDir,
}

impl Nodes {
    pub(crate) fn start(kind: Kind, threads: &[u16]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let board = Switchboard::default();
        let start = |(number, threads): (usize, &u16)| {
            Node::start(kind, &board, &format!("n{number}"), folder.path(), 1, *threads)
        };
        let nodes = threads.iter().enumerate().map(start).collect();
        Self { board, nodes, folder }
    }

    /// A node is gone, and another one without keys in its place. Gives its log.
    pub(crate) fn end(&mut self, number: usize) -> SealedLog {
        let Node { folder, mut service, workers, .. } = self.nodes.remove(number);
        drop(workers);
        service.close().expect("a log");
        drop(service);
        let spare = Node::start(STAYING, &self.board, &format!("spare{number}"), self.folder.path(), 1, 1);
        self.nodes.insert(number, spare);
        seal(&Options::dir(&folder), NodeEpoch(2)).expect("it has ended")
    }

    /// A node's service ends and begins anew, over its own log.
    pub(crate) fn begin_anew(&mut self, number: usize, kind: Kind) {
        let Node { name, mut service, workers, .. } = self.nodes.remove(number);
        let threads = workers.len() as u16;
        drop(workers);
        service.close().expect("a log");
        drop(service);
        let again = Node::start(kind, &self.board, &name.0, self.folder.path(), 2, threads);
        self.nodes.insert(number, again);
    }

    /// Each virtual node is that node's which `owner` says, if any; nodes in `gone` are not there.
    pub(crate) fn say(&self, owner: impl Fn(u16) -> Option<usize>, gone: &[usize]) {
        for myself in 0..self.nodes.len() {
            self.say_to(myself, &owner, gone);
        }
    }

    /// Each knows the others by their numbers, and itself by one that nobody has anything under.
    fn say_to(&self, myself: usize, owner: &dyn Fn(u16) -> Option<usize>, gone: &[usize]) {
        let peer = |(number, node): (usize, &Node)| Peer {
            node: node.name.clone(),
            is_there: number != myself && !gone.contains(&number),
            cluster_port: None,
        };
        let mut owners = Owners::among(self.nodes.iter().enumerate().map(peer).collect());
        for node in 0..VIRTUAL_NODES {
            let whose = match owner(node) {
                Some(number) if number == myself => Whose::Here,
                Some(number) => Whose::There(PeerId(number as u16)),
                None => Whose::Nobody,
            };
            owners.set(node, whose, OwnerEpoch(1));
        }
        self.nodes[myself].service.hearer().say(owners);
    }

    pub(crate) fn client(&mut self, node: usize, thread: usize) -> Client {
        let mut admission = self.nodes[node].workers[thread].admission();
        let session = admission.open(String::new(), "127.0.0.1:7000".to_owned(), None, false);
        Client { node, thread, session }
    }

    pub(crate) fn turn(&mut self) {
        self.nodes.iter_mut().for_each(Node::turn);
    }

    /// Sends a request. Gives its reply, or where that will be.
    pub(crate) fn send(&mut self, client: Client, words: &[&str]) -> Result<String, Ticket> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut reply = Tape::new();
        let worker = &mut self.nodes[client.node].workers[client.thread];
        match worker.request(client.session, OwnedArgs::of_words(&words).args(), &mut reply) {
            Progress::Answered => Ok(reply.to_string()),
            Progress::Later(ticket) | Progress::LaterAlone(ticket) => Err(ticket),
            other => panic!("expected a reply, came {other:?}"),
        }
    }

    pub(crate) fn hear(&mut self, client: Client, ticket: Ticket) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(reply) = self.nodes[client.node].replies.remove(&(client.thread, client.session, ticket)) {
                return reply;
            }
            assert!(Instant::now() < until, "no reply");
            self.turn();
            std::thread::yield_now();
        }
    }

    pub(crate) fn ask(&mut self, client: Client, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        match self.send(client, &words) {
            Ok(reply) => reply,
            Err(ticket) => self.hear(client, ticket),
        }
    }
}

pub(crate) fn node_of(key: &str) -> u16 {
    virtual_node_of(group_of(key.as_bytes()))
}

/// Each of three nodes has every third virtual node.
pub(crate) fn third(node: u16) -> Option<usize> {
    Some(usize::from(node % 3))
}

/// A key of a node, where each has a third.
pub(crate) fn key_of(node: usize, number: usize) -> String {
    let keys = (0..).map(|number| format!("key{number}"));
    keys.filter(|key| third(node_of(key)) == Some(node)).nth(number).expect("a key")
}

fn three() -> (Nodes, [Client; 3]) {
    let mut nodes = Nodes::start(STAYING, &[1, 2, 3]);
    nodes.say(third, &[]);
    nodes.turn();
    let clients = [nodes.client(0, 0), nodes.client(1, 1), nodes.client(2, 0)];
    (nodes, clients)
}

#[test]
fn any_node_does_what_is_about_keys_of_one() {
    let (mut nodes, clients) = three();
    for client in clients {
        for node in 0..3 {
            let key = key_of(node, client.node);
            assert_eq!(nodes.ask(client, &format!("SET {key} 1")), "OK");
            assert_eq!(nodes.ask(client, &format!("INCRBY {key} 41")), "42");
        }
    }
    for client in clients {
        for key in (0..3).flat_map(|node| (0..3).map(move |number| key_of(node, number))) {
            assert_eq!(nodes.ask(client, &format!("GET {key}")), "\"42\"", "{key}");
        }
    }
    // Of several keys, and as one.
    let [one, other] = [0, 1].map(|number| key_of(2, number));
    assert_eq!(nodes.ask(clients[0], &format!("MSET {one} a {other} b")), "OK");
    assert_eq!(nodes.ask(clients[1], &format!("MGET {other} {one}")), "[2] \"b\" \"a\"");
    for client in clients {
        assert_eq!(nodes.ask(client, "MULTI"), "OK");
        assert_eq!(nodes.ask(client, &format!("SET {one} 5")), "QUEUED");
        assert_eq!(nodes.ask(client, &format!("INCR {one}")), "QUEUED");
        assert_eq!(nodes.ask(client, "EXEC"), "[2] OK 6");
        let script = format!("EVAL return+redis.call('INCR',KEYS[1]) 1 {one}").replace('+', "\t");
        assert_eq!(nodes.ask(client, &script), "7");
    }
}

#[test]
fn what_needs_keys_of_several_nodes_is_refused_and_says_where_they_are() {
    let (mut nodes, [client, ..]) = three();
    let [here, there, beyond] = [0, 1, 2].map(|node| key_of(node, 0));
    let refused = nodes.ask(client, &format!("MSET {here} 1 {there} 2"));
    assert!(refused.starts_with("!CROSSNODE"), "{refused}");
    assert!(refused.contains(&format!("'{here}' is on this node, '{there}' is on n1")), "{refused}");
    assert!(nodes.ask(client, &format!("RENAME {there} {beyond}")).starts_with("!CROSSNODE"));
    nodes.ask(client, "MULTI");
    nodes.ask(client, &format!("SET {here} 1"));
    nodes.ask(client, &format!("SET {there} 1"));
    assert!(nodes.ask(client, "EXEC").starts_with("!CROSSNODE"));
    assert_eq!(nodes.ask(client, "DBSIZE"), "0", "nothing of it was done");
    for words in ["SWAPDB 0 1", "SAVE", "FUNCTION LOAD x", "WAIT 0 0", "CLIENT TRACKING ON"] {
        assert!(nodes.ask(client, words).starts_with("!CROSSNODE"), "{words}");
    }
    assert!(nodes.ask(client, &format!("WATCH {there}")).starts_with("!ELSEWHERE"));
    let script = format!("EVAL return{}redis.call('SET','{there}','1') 0", '\t');
    assert!(nodes.ask(client, &script).contains("did not declare"), "also where a node has one thread");
}

#[test]
fn what_is_about_all_keys_is_about_those_of_all_nodes() {
    let (mut nodes, clients) = three();
    for number in 0..60 {
        let client = clients[number % 3];
        assert_eq!(nodes.ask(client, &format!("SET key{number} value")), "OK");
    }
    for client in clients {
        assert_eq!(nodes.ask(client, "DBSIZE"), "60");
        assert_eq!(nodes.ask(client, "KEYS key1?").matches("\"key1").count(), 10);
        assert!(nodes.ask(client, "RANDOMKEY").starts_with("\"key"));
        let (mut cursor, mut found, mut steps) = ("0".to_owned(), Vec::new(), 0);
        loop {
            let reply = nodes.ask(client, &format!("SCAN {cursor} COUNT 7"));
            let mut words = reply.split('"');
            cursor = words.nth(1).expect("a cursor").to_owned();
            found.extend(words.skip(1).step_by(2).map(str::to_owned));
            steps += 1;
            if cursor == "0" {
                break;
            }
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 60, "{found:?}");
        assert!(steps < 20, "a step finds as many as were asked for, whoever has them: {steps}");
    }
    let listener = nodes.client(2, 2);
    assert!(nodes.ask(listener, "SUBSCRIBE news").contains("subscribe"));
    nodes.turn();
    assert_eq!(nodes.ask(clients[0], "PUBLISH news hello"), "0", "of those at other nodes nobody waits to hear");
    for _ in 0..3 {
        nodes.turn();
    }
    assert_eq!(nodes.nodes[2].pushed, [">3 \"message\" \"news\" \"hello\""]);
    assert_eq!(nodes.ask(clients[1], "FLUSHALL"), "OK");
    assert_eq!(nodes.ask(clients[2], "DBSIZE"), "0");
}

#[test]
fn who_waits_for_a_key_of_another_node_gets_what_comes_and_takes_nothing_behind_its_time() {
    let (mut nodes, [client, pushing, _]) = three();
    let key = key_of(1, 0);
    let ticket = nodes.send(client, &["BLPOP", &key, "20"]).expect_err("there is nothing yet");
    for _ in 0..20 {
        nodes.turn();
    }
    assert_eq!(nodes.ask(pushing, &format!("RPUSH {key} a b")), "2");
    assert_eq!(nodes.hear(client, ticket), format!("[2] \"{key}\" \"a\""));
    assert_eq!(nodes.ask(pushing, &format!("LPOP {key}")), "\"b\"");
    assert_eq!(nodes.ask(client, &format!("BLPOP {key} 0.1")), "nil");
    assert_eq!(nodes.ask(pushing, &format!("RPUSH {key} c")), "1");
    for _ in 0..50 {
        nodes.turn();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(nodes.ask(pushing, &format!("LLEN {key}")), "1", "nobody waits any more");
}

#[test]
fn who_knows_an_owner_of_before_is_sent_on_and_order_is_kept() {
    let mut nodes = Nodes::start(STAYING, &[1, 1, 2]);
    nodes.say(|_| Some(2), &[]);
    nodes.say_to(0, &|_| Some(1), &[]);
    nodes.turn();
    let client = nodes.client(0, 0);
    let tickets: Vec<Ticket> = (0..50)
        .map(|number| {
            if number == 25 {
                // In the midst of it the asker hears who has the key.
                nodes.turn();
                nodes.say_to(0, &|_| Some(2), &[]);
                nodes.turn();
            }
            nodes.send(client, &["RPUSH", "list", &number.to_string()]).expect_err("elsewhere")
        })
        .collect();
    let lengths: Vec<String> = tickets.into_iter().map(|ticket| nodes.hear(client, ticket)).collect();
    let expected: Vec<String> = (1..=50).map(|length| length.to_string()).collect();
    assert_eq!(lengths, expected);
    let list = nodes.ask(client, "LRANGE list 0 -1");
    let expected: Vec<String> = (0..50).map(|number| format!("\"{number}\"")).collect();
    assert_eq!(list, format!("[50] {}", expected.join(" ")));
}

#[test]
fn who_has_what_is_believed_of_the_records_alone_where_nothing_moves() {
    for kind in [STAYING, MOVING] {
        let mut nodes = Nodes::start(kind, &[1, 1, 1]);
        nodes.say(|_| Some(1), &[]);
        // The second node knows already that the third has all.
        let peer =
            |number: usize| Peer { node: NodeId::new(format!("n{number}")), is_there: number != 1, cluster_port: None };
        let mut owners = Owners::among((0..3).map(peer).collect());
        (0..VIRTUAL_NODES).for_each(|node| owners.set(node, Whose::There(PeerId(2)), OwnerEpoch(2)));
        nodes.nodes[1].service.hearer().say(owners);
        nodes.say_to(2, &|_| Some(2), &[]);
        nodes.turn();
        let client = nodes.client(0, 0);
        let ticket = nodes.send(client, &["SET", "a", "1"]).expect_err("it is at another node");
        for _ in 0..100 {
            nodes.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_done = nodes.nodes[0].replies.contains_key(&(client.thread, client.session, ticket));
        assert_eq!(is_done, kind.may_move, "{}", nodes.nodes[0].replies.len());
        nodes.say_to(0, &|_| Some(2), &[]);
        assert_eq!(nodes.hear(client, ticket), "OK");
    }
}

#[test]
fn what_nobody_has_waits_and_then_is_refused() {
    let mut nodes = Nodes::start(Kind { patience: Duration::from_secs(1), ..STAYING }, &[1, 1]);
    nodes.say(|_| Some(1), &[]);
    nodes.turn();
    let client = nodes.client(0, 0);
    assert_eq!(nodes.ask(client, "SET a 1"), "OK");
    nodes.say(|_| None, &[]);
    nodes.turn();
    assert!(nodes.ask(client, "SET a 2").starts_with("!TRYAGAIN"));
    for words in ["DBSIZE", "FLUSHALL"] {
        assert!(nodes.ask(client, words).starts_with("!TRYAGAIN"), "{words}");
    }
}

#[test]
fn what_is_about_several_keys_that_nobody_has_waits_for_who_gets_them() {
    for kind in [STAYING, MOVING] {
        let mut nodes = Nodes::start(kind, &[1, 1]);
        nodes.say(|_| None, &[]);
        nodes.turn();
        let client = nodes.client(0, 0);
        let (one, other) = ("a", "b");
        assert_ne!(node_of(one) % 8, node_of(other) % 8);
        let single = nodes.send(client, &["SET", one, "1"]).expect_err("nobody has it");
        let several = nodes.send(client, &["MSET", one, "2", other, "2"]).expect_err("nobody has them");
        nodes.turn();
        nodes.say(|_| Some(1), &[]);
        assert_eq!(nodes.hear(client, single), "OK", "somebody has it by now");
        assert_eq!(nodes.hear(client, several), "OK", "and the others");
        assert_eq!(nodes.ask(client, &format!("MGET {one} {other}")), "[2] \"2\" \"2\"");
    }
}

#[test]
fn what_a_node_was_asked_that_is_gone_is_in_doubt_and_others_go_on() {
    let (mut nodes, [client, ..]) = three();
    let (lost, other) = (key_of(1, 0), key_of(2, 0));
    nodes.board.0.lock().unwrap().insert(NodeId::new("n1"), Arc::new(Silent::default()));
    let write = nodes.send(client, &["INCR", &lost]).expect_err("elsewhere");
    nodes.turn();
    // It waits behind that.
    let read = nodes.send(client, &["GET", &lost]).expect_err("elsewhere");
    for _ in 0..10 {
        assert!(!nodes.ask(client, &format!("INCR {other}")).starts_with('!'), "of others nobody waits");
    }
    nodes.say(|node| third(node).filter(|owner| *owner != 1), &[1]);
    assert!(nodes.hear(client, write).starts_with("!UNKNOWN"));
    nodes.say(|node| third(node).map(|owner| if owner == 1 { 2 } else { owner }), &[1]);
    assert_eq!(nodes.hear(client, read), "nil");
}

#[test]
fn what_a_node_was_asked_about_all_its_keys_is_asked_of_no_other() {
    let (mut nodes, [client, ..]) = three();
    let lost = key_of(1, 0);
    nodes.board.0.lock().unwrap().insert(NodeId::new("n1"), Arc::new(Silent::default()));
    let write = nodes.send(client, &["INCR", &lost]).expect_err("elsewhere");
    nodes.turn();
    // They wait behind that, and go with what is about a key that somebody else has by then.
    let read = nodes.send(client, &["GET", &lost]).expect_err("elsewhere");
    let size = nodes.send(client, &["DBSIZE"]).expect_err("of all nodes");
    nodes.say(|node| third(node).map(|owner| if owner == 1 { 2 } else { owner }), &[1]);
    assert!(nodes.hear(client, write).starts_with("!UNKNOWN"));
    assert_eq!(nodes.hear(client, read), "nil");
    assert!(nodes.hear(client, size).starts_with("!PARTIAL"), "one node is counted twice");
}

#[test]
fn keys_of_a_node_that_is_gone_are_taken_in_out_of_its_log() {
    let (mut nodes, clients) = three();
    for number in 0..200 {
        nodes.ask(clients[number % 3], &format!("SET key{number} {number}"));
    }
    let gone = nodes.nodes.remove(1);
    let Node { folder, mut service, workers, .. } = gone;
    drop(workers);
    service.close().expect("a log");
    drop(service);
    // The rest has other numbers from here on: that of the node that is gone stays.
    nodes.nodes.insert(1, Node::start(STAYING, &nodes.board, "spare", nodes.folder.path(), 1, 1));
    let heir = |node: u16| match third(node) {
        Some(1) if node.is_multiple_of(2) => Some(0),
        Some(1) => Some(2),
        owner => owner,
    };
    let sealed = seal(&Options::dir(&folder), NodeEpoch(2)).expect("it has ended");
    for number in [0, 2] {
        let hearer = nodes.nodes[number].service.hearer();
        let sealed = sealed.clone();
        let adopting = std::thread::spawn(move || {
            let wanted = move |node: u16| third(node) == Some(1) && heir(node) == Some(number);
            hearer.adopt(&sealed, &wanted)
        });
        while !adopting.is_finished() {
            nodes.turn();
            std::thread::yield_now();
        }
        assert!(adopting.join().expect("no panic").expect("a log") > 10);
    }
    nodes.say(heir, &[1]);
    nodes.turn();
    for number in 0..200 {
        for client in [clients[0], clients[2]] {
            assert_eq!(nodes.ask(client, &format!("GET key{number}")), format!("\"{number}\""));
        }
    }
    assert_eq!(nodes.ask(clients[0], "DBSIZE"), "200");
    let changed = (0..200).map(|number| format!("key{number}")).filter(|key| third(node_of(key)) == Some(1));
    let changed: Vec<String> = changed.collect();
    for key in &changed {
        assert_eq!(nodes.ask(clients[2], &format!("APPEND {key} x")).len(), 1);
    }
    // What was taken in, and changed since, is in the logs of those who have it.
    for (number, threads) in [(0, 2), (2, 1)] {
        let name = nodes.nodes[number].name.clone();
        let Node { mut service, workers, .. } = nodes.nodes.remove(number);
        drop(workers);
        service.close().expect("a log");
        drop(service);
        let again = Node::start(STAYING, &nodes.board, &name.0, nodes.folder.path(), 2, threads);
        nodes.nodes.insert(number, again);
    }
    nodes.say(heir, &[1]);
    nodes.turn();
    let client = nodes.client(0, 0);
    for key in &changed {
        let value = nodes.ask(client, &format!("GET {key}"));
        assert!(value.ends_with("x\"") && value.len() > 3, "{key} {value}");
    }
    assert_eq!(nodes.ask(client, "DBSIZE"), "200");
}

#[test]
fn where_nothing_moves_what_is_taken_in_again_is_in_a_log_that_earlier_releases_read() {
    let (mut nodes, clients) = three();
    let lost = key_of(1, 0);
    nodes.ask(clients[0], &format!("SET {lost} value"));
    let sealed = nodes.end(1);
    // Who was interrupted before the record says that it has them takes them in once more.
    for _ in 0..2 {
        let (hearer, sealed) = (nodes.nodes[0].service.hearer(), sealed.clone());
        let adopting = std::thread::spawn(move || hearer.adopt(&sealed, &|node| third(node) == Some(1)));
        while !adopting.is_finished() {
            nodes.turn();
            std::thread::yield_now();
        }
        assert_eq!(adopting.join().expect("no panic").expect("a log"), 1);
    }
    let (log, mut keys) = (nodes.end(0), 0);
    let read = log.read(&Filter::default(), &mut |record: Record| {
        read_all(&record.payload, &mut |_, body| {
            assert!(!matches!(body, Body::Forget { .. }) && !body.is_of_group(), "they do not know it");
            keys += 1;
            Ok(())
        })
    });
    read.expect("a log");
    assert_eq!(keys, 2);
}

#[test]
fn keys_that_are_taken_in_are_not_flushed_by_what_was_flushed_before() {
    let (mut nodes, clients) = three();
    let lost = key_of(1, 0);
    nodes.ask(clients[0], &format!("SET {lost} value"));
    let mut gone = nodes.nodes.remove(1);
    drop(std::mem::take(&mut gone.workers));
    gone.service.close().expect("a log");
    nodes.nodes.insert(1, Node::start(STAYING, &nodes.board, "spare", nodes.folder.path(), 1, 1));
    let heir = |node: u16| if third(node) == Some(1) { Some(0) } else { third(node) };
    // The others are emptied while nobody has its keys: the asker is told that not all are.
    nodes.say(|node| third(node).filter(|owner| *owner != 1), &[1]);
    nodes.turn();
    let flushing = nodes.client(0, 0);
    nodes.nodes[0].workers[0].admission().note_cluster_port(flushing.session);
    assert_eq!(nodes.ask(flushing, "FLUSHALL"), "OK", "a client of the cluster port asks for this node alone");
    let sealed = seal(&Options::dir(&gone.folder), NodeEpoch(2)).expect("it has ended");
    let hearer = nodes.nodes[0].service.hearer();
    let adopting = std::thread::spawn(move || hearer.adopt(&sealed, &|node| third(node) == Some(1)));
    while !adopting.is_finished() {
        nodes.turn();
        std::thread::yield_now();
    }
    assert_eq!(adopting.join().expect("no panic").expect("a log"), 1);
    let Node { mut service, workers, .. } = nodes.nodes.remove(0);
    drop(workers);
    service.close().expect("a log");
    drop(service);
    nodes.nodes.insert(0, Node::start(STAYING, &nodes.board, "n0", nodes.folder.path(), 2, 2));
    nodes.say(heir, &[1]);
    nodes.turn();
    let client = nodes.client(0, 1);
    assert_eq!(nodes.ask(client, &format!("GET {lost}")), "\"value\"");
}
