//! A client, its front and the node that has its database, over a network that loses, repeats, delays and reorders what they say, while that node
//! dies and another has the database: each transaction of the client is done once. From a seed, with the cores that the product runs
//! ([`Side`], [`Unanswered`]); network, session and log are the simulation's own.

use std::collections::{BTreeSet, VecDeque};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    stream::{Part, Side, Which},
    unanswered::Unanswered,
};

/// Steps of a run with troubles, and then without.
const STEPS: (usize, usize) = (1_500, 4_000);
/// Few bytes in a part, so that messages are cut.
const PART_BYTES: usize = 23;

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Sound,
    /// What comes again is taken as what comes next: nothing is numbered.
    NoNumbers,
    /// Whoever may have committed is told that all was rolled back.
    DoubtIsRolledBack,
    /// An answer leaves before the log has what it tells.
    TellsAtOnce,
}

/// How often things happened.
#[derive(Debug, Default)]
struct Counts {
    done: u64,
    deaths: u64,
    /// Sessions that ended with something in doubt, without, and in the middle of an answer.
    in_doubt: u64,
    rolled_back: u64,
    cut: u64,
    lost: u64,
    repeated: u64,
}

/// A packet under way, of a session.
#[derive(Clone, Debug)]
enum Packet {
    ToBack(u64, Part),
    ToFront(u64, Part),
    /// There is no such session.
    Refused(u64),
}

#[derive(Default)]
struct Front {
    session: u64,
    side: Side,
    unanswered: Unanswered,
}

#[derive(Default)]
struct Back {
    session: u64,
    side: Side,
    input: Vec<u8>,
    transaction: Option<Vec<u64>>,
    /// What was committed, with its answer, and is not durable.
    logged: VecDeque<(Vec<u64>, Vec<u8>)>,
}

/// Does one transaction after the other, each until it is done.
#[derive(Default)]
struct Client {
    transaction: u64,
    /// What it has to say yet of the transaction, and how many of its statements were not answered.
    script: VecDeque<String>,
    unanswered: usize,
    /// Whether it was let in.
    is_welcome: bool,
    answer: Vec<u8>,
}

struct World {
    dice: ChaCha8Rng,
    variant: Variant,
    client: Client,
    front: Front,
    back: Option<Back>,
    sessions: u64,
    under_way: Vec<Packet>,
    /// What the log has.
    durable: Vec<u64>,
    counts: Counts,
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

/// Takes the first message out of bytes, if it is there whole.
fn next_message(bytes: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let length = u32::from_be_bytes(bytes.get(1..5)?.try_into().ok()?) as usize;
    if bytes.len() <= length {
        return None;
    }
    let rest = bytes.split_off(length + 1);
    let whole = std::mem::replace(bytes, rest);
    Some((whole[0], whole[5..].to_vec()))
}

fn answer(status: u8) -> Vec<u8> {
    [message(b'C', b"done\0"), message(b'Z', &[status])].concat()
}

impl Back {
    fn new(session: u64) -> Self {
        let mut back = Self { session, ..Self::default() };
        back.side.say(&message(b'Z', b"I"));
        back
    }

    /// Runs what was said in whole.
    fn run(&mut self, variant: Variant) -> Result<(), String> {
        while let Some((kind, body)) = next_message(&mut self.input) {
            let text =
                String::from_utf8(body).map_err(|error| format!("the session reads what nobody said: {error}"))?;
            let words: Vec<&str> = text.trim_end_matches('\0').split(' ').collect();
            let (committed, status) = match (kind, &words[..], &mut self.transaction) {
                (b'Q', ["BEGIN"], _) => {
                    self.transaction = Some(Vec::new());
                    (Vec::new(), b'T')
                }
                (b'Q', ["INSERT", number], transaction) => {
                    let number = number.parse().map_err(|_| format!("the session reads what nobody said: {text}"))?;
                    match transaction {
                        Some(done) => {
                            done.push(number);
                            (Vec::new(), b'T')
                        }
                        None => (vec![number], b'I'),
                    }
                }
                (b'Q', ["COMMIT"], transaction) => (transaction.take().unwrap_or_default(), b'I'),
                _ => return Err(format!("the session reads what nobody said: {text}")),
            };
            match variant {
                Variant::TellsAtOnce => {
                    self.side.say(&answer(status));
                    self.logged.push_back((committed, Vec::new()));
                }
                _ => self.logged.push_back((committed, answer(status))),
            }
        }
        Ok(())
    }
}

impl Client {
    /// The transaction begins, for the first time or again.
    fn begin(&mut self, dice: &mut ChaCha8Rng) {
        let insert = format!("INSERT {}", self.transaction);
        self.script = match dice.random() {
            true => [insert].into(),
            false => ["BEGIN".to_owned(), insert, "COMMIT".to_owned()].into(),
        };
        (self.unanswered, self.is_welcome) = (0, false);
        self.answer.clear();
    }
}

impl World {
    fn new(seed: u64, variant: Variant) -> Self {
        let mut world = Self {
            dice: ChaCha8Rng::seed_from_u64(seed),
            variant,
            client: Client::default(),
            front: Front::default(),
            back: None,
            sessions: 0,
            under_way: Vec::new(),
            durable: Vec::new(),
            counts: Counts::default(),
        };
        world.connect();
        world
    }

    /// The client connects, and begins its transaction.
    fn connect(&mut self) {
        self.sessions += 1;
        self.front = Front { session: self.sessions, ..Front::default() };
        self.back = Some(Back::new(self.sessions));
        self.client.begin(&mut self.dice);
    }

    fn step(&mut self, has_trouble: bool) -> Result<(), String> {
        match self.dice.random_range(0..100) {
            0..15 => self.speak(),
            15..25 => self.send_to_back(),
            25..32 => self.send_to_front(),
            32..45 => self.flush(),
            45 if has_trouble => self.die(),
            _ => return self.deliver(has_trouble),
        }
        Ok(())
    }

    /// The client says more: it waits for each answer, or does not.
    fn speak(&mut self) {
        if self.client.unanswered > 0 && self.dice.random() {
            return;
        }
        if let Some(text) = self.client.script.pop_front() {
            self.client.unanswered += 1;
            let bytes = message(b'Q', &[text.as_bytes(), b"\0"].concat());
            self.front.unanswered.ask(&bytes);
            self.front.side.say(&bytes);
        }
    }

    fn which(&mut self) -> Which {
        if self.dice.random() { Which::News } else { Which::Unheard }
    }

    fn send_to_back(&mut self) {
        let which = self.which();
        let part = self.front.side.part(which, PART_BYTES);
        self.under_way.push(Packet::ToBack(self.front.session, part));
    }

    fn send_to_front(&mut self) {
        let which = self.which();
        if let Some(back) = &mut self.back {
            let part = back.side.part(which, PART_BYTES);
            self.under_way.push(Packet::ToFront(back.session, part));
        }
    }

    /// The log has what was committed; it may be told.
    fn flush(&mut self) {
        if let Some(back) = &mut self.back {
            for (committed, answer) in back.logged.drain(..) {
                self.durable.extend(committed);
                back.side.say(&answer);
            }
        }
    }

    /// The node dies. What was on its way to the log is there up to any place.
    fn die(&mut self) {
        let Some(back) = self.back.take() else { return };
        self.counts.deaths += 1;
        let survive = self.dice.random_range(0..=back.logged.len());
        self.durable.extend(back.logged.into_iter().take(survive).flat_map(|(committed, _)| committed));
    }

    /// Something that is under way arrives, perhaps to arrive once more later, or is lost.
    fn deliver(&mut self, has_trouble: bool) -> Result<(), String> {
        if self.under_way.is_empty() {
            return Ok(());
        }
        let at = if has_trouble { self.dice.random_range(0..self.under_way.len()) } else { 0 };
        let fate = if has_trouble { self.dice.random_range(0..10) } else { 9 };
        let packet = match fate {
            0 => {
                self.counts.repeated += 1;
                self.under_way[at].clone()
            }
            _ => self.under_way.remove(at),
        };
        if fate == 1 {
            self.counts.lost += 1;
            return Ok(());
        }
        match packet {
            Packet::ToBack(session, part) => self.reaches_back(session, part),
            Packet::ToFront(session, part) if session == self.front.session => self.reaches_front(&part),
            Packet::Refused(session) if session == self.front.session => {
                self.hang_up();
                Ok(())
            }
            Packet::ToFront(..) | Packet::Refused(_) => Ok(()),
        }
    }

    fn reaches_back(&mut self, session: u64, mut part: Part) -> Result<(), String> {
        let Some(back) = self.back.as_mut().filter(|back| back.session == session) else {
            self.under_way.push(Packet::Refused(session));
            return Ok(());
        };
        if self.variant == Variant::NoNumbers {
            part.at = back.side.part(Which::Unheard, 0).heard;
        }
        let new = back.side.hear(&part).map_err(|error| error.to_string())?;
        back.input.extend_from_slice(&new);
        back.run(self.variant)?;
        let reply = back.side.part(Which::Unheard, PART_BYTES);
        self.under_way.push(Packet::ToFront(session, reply));
        Ok(())
    }

    fn reaches_front(&mut self, part: &Part) -> Result<(), String> {
        let new = match self.front.side.hear(part) {
            Ok(new) => new,
            // Without numbers, more is heard than was said.
            Err(_) if self.variant == Variant::NoNumbers => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        self.front.unanswered.answer(&new);
        self.client.answer.extend_from_slice(&new);
        while let Some((kind, _)) = next_message(&mut self.client.answer) {
            if kind == b'Z' && std::mem::replace(&mut self.client.is_welcome, true) {
                self.client.unanswered = self.client.unanswered.saturating_sub(1);
            }
        }
        if self.client.is_welcome && self.client.unanswered == 0 && self.client.script.is_empty() {
            return self.acknowledged();
        }
        Ok(())
    }

    /// The client has heard that its transaction is done, and begins the next in the same session.
    fn acknowledged(&mut self) -> Result<(), String> {
        let transaction = self.client.transaction;
        if !self.durable.contains(&transaction) {
            return Err(format!("transaction {transaction} was acknowledged, and is not there"));
        }
        self.counts.done += 1;
        self.client.transaction += 1;
        self.client.begin(&mut self.dice);
        self.client.is_welcome = true;
        self.check()
    }

    /// The front has heard that the session is gone. What it tells the client, and what that makes of it.
    fn hang_up(&mut self) {
        let is_whole = self.front.unanswered.are_answers_whole();
        let is_in_doubt = self.front.unanswered.may_have_committed() && self.variant != Variant::DoubtIsRolledBack;
        let count = match (is_whole, is_in_doubt) {
            (false, _) => &mut self.counts.cut,
            (true, true) => &mut self.counts.in_doubt,
            (true, false) => &mut self.counts.rolled_back,
        };
        *count += 1;
        // Who was told that it was rolled back does it again; any other looks.
        let looks = !is_whole || is_in_doubt;
        if looks && self.durable.contains(&self.client.transaction) {
            self.client.transaction += 1;
        }
        self.connect();
    }

    fn check(&self) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        match self.durable.iter().find(|transaction| !seen.insert(**transaction)) {
            Some(transaction) => Err(format!("transaction {transaction} was done twice")),
            None => Ok(()),
        }
    }

    fn run(mut self) -> Result<Counts, String> {
        for _ in 0..STEPS.0 {
            self.step(true)?;
            self.check()?;
        }
        let before = self.counts.done;
        for _ in 0..STEPS.1 {
            self.step(false)?;
        }
        self.check()?;
        match self.counts.done > before {
            true => Ok(self.counts),
            false => Err("nothing more is done, though nothing fails any more".to_owned()),
        }
    }
}

fn seeds() -> u64 {
    std::env::var("SAVANNA_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100)
}

#[test]
fn a_transaction_is_done_once_whatever_is_lost_repeated_or_late_and_whoever_dies() {
    let mut sum = [0; 7];
    for seed in 0..seeds() {
        let ran = World::new(seed, Variant::Sound).run();
        let Counts { done, deaths, in_doubt, rolled_back, cut, lost, repeated } =
            ran.unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        let counts = [done, deaths, in_doubt, rolled_back, cut, lost, repeated];
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    // What never happened was not tested.
    assert!(sum.iter().all(|count| *count > seeds() / 2), "{sum:?}");
}

#[test]
fn what_makes_a_transaction_happen_twice_or_not_at_all_is_noticed() {
    let wrong = [
        (Variant::NoNumbers, "was done twice"),
        (Variant::DoubtIsRolledBack, "was done twice"),
        (Variant::TellsAtOnce, "is not there"),
    ];
    for (variant, words) in wrong {
        let says = |seed| World::new(seed, variant).run().is_err_and(|wrong| wrong.contains(words));
        assert!((0..100).any(says), "{variant:?}");
    }
}
