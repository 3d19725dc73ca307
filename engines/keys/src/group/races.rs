//! What may come late, twice, or not at all, each as a scenario: the leader's and the lender's decisions, without a network between.

use std::collections::BTreeMap;

use savanna_lattice::{Hlc, UnixMillis};

use super::follower::{Follower, OnLend, OnReturn, WAITED_FOR};
use super::leader::{Heard, Leader, PATIENCE, Step, Why};
use super::{GroupId, Lend, Records, Unit};

const GROUP: GroupId = GroupId { node: 1, life: 7, number: 1 };
/// The keys that it borrows in these scenarios.
const UNIT: Unit = (GROUP, 5);

fn number(count: u64) -> Hlc {
    Hlc::new(UnixMillis(count), 0)
}

/// Somebody who lends keys, with what its log says.
#[derive(Default)]
struct Lender {
    follower: Follower,
    records: Records,
    given: u64,
    requests: u64,
    /// Who has the keys of [`UNIT`] beside groups, so that a group waits.
    is_taken: bool,
    /// Bytes that were written, of each return that was taken.
    written: Vec<Vec<u8>>,
}

impl Lender {
    /// A `Lend` comes. Gives the number of the loan, if the keys are lent.
    fn lend(&mut self, unit: Unit) -> Option<Hlc> {
        self.requests += 1;
        match self.follower.hear_lend(&self.records, unit, self.requests) {
            OnLend::Again(number) => Some(number),
            OnLend::Waits(_) => None,
            OnLend::Begins => self.go_on(unit),
        }
    }

    /// The keys are lent if they are free and somebody waits for them.
    fn go_on(&mut self, unit: Unit) -> Option<Hlc> {
        if self.is_taken || self.records.lends.keys().any(|(_, node)| *node == unit.1) {
            return None;
        }
        self.follower.begin_lend(unit)?;
        self.given += 1;
        let lend = Lend { number: number(self.given), keys: vec![b"key"[..].into()] };
        self.records.lends.insert(unit, lend);
        Some(number(self.given))
    }

    /// A `Return` comes. Says whether the keys are not lent by it any more.
    fn take(&mut self, unit: Unit, loan: Option<Hlc>, from: u64, is_last: bool, writes: &[u8]) -> Heard {
        match self.follower.hear_return(&self.records, unit, loan, (from, is_last, writes.to_vec())) {
            OnReturn::Write(writes) => {
                if loan.is_some() {
                    self.written.push(writes);
                }
                self.free(unit);
                Heard::Returned
            }
            OnReturn::Has(bytes) => Heard::Has(bytes),
            OnReturn::Nothing(_) => Heard::Returned,
        }
    }

    fn free(&mut self, unit: Unit) {
        self.records.lends.remove(&unit);
        self.follower.end(unit);
    }

    /// The leader says that nothing came of it.
    fn hear_void(&mut self, unit: Unit, loan: Hlc) {
        if self.follower.hear_void(&self.records, unit, loan) {
            self.free(unit);
        }
    }

    fn is_free(&self) -> bool {
        self.records.lends.is_empty()
    }

    /// The process ends, and another one reads the log.
    fn dies(&mut self) {
        self.follower = Follower::default();
    }
}

/// A leader that holds its own first keys and asks for those of one lender.
fn leader() -> Leader {
    let (mut leader, steps) = Leader::new(2, 0);
    assert_eq!(steps, [Step::Borrow(0)]);
    assert_eq!(leader.hear(0, 0, Heard::Held), [Step::Borrow(1)]);
    leader
}

/// The same behind its commit.
fn committed(loan: Hlc) -> Leader {
    let mut leader = leader();
    assert_eq!(leader.hear(1, 1, Heard::Lent(loan)), [Step::Run]);
    assert_eq!(leader.ran(1, true), [Step::Return(1)]);
    leader
}

#[test]
fn a_lend_that_comes_again_behind_the_end_of_its_group_lends_to_nobody_and_the_return_of_before_does_not_free_it() {
    let mut lender = Lender::default();
    let first = lender.lend(UNIT).expect("free");
    let mut leader = committed(first);
    assert_eq!(lender.take(UNIT, Some(first), 0, true, b"1"), Heard::Returned);
    assert_eq!(leader.hear(2, 1, Heard::Returned), [Step::End]);
    // The second copy of the request, then the second copy of the return.
    let phantom = lender.lend(UNIT).expect("free again");
    assert_ne!(phantom, first, "a loan has a number of its own");
    assert_eq!(lender.take(UNIT, Some(first), 0, true, b"1"), Heard::Returned);
    assert!(!lender.is_free() && lender.written.len() == 1, "nothing is written twice");
    // Whoever leads knows nothing of the group any more, and says so.
    lender.hear_void(UNIT, phantom);
    assert!(lender.is_free());
}

#[test]
fn a_lend_that_comes_again_while_its_group_ends_elsewhere_is_not_taken_for_the_loan_that_ended() {
    let mut lender = Lender::default();
    let first = lender.lend(UNIT).expect("free");
    let (mut leader, _) = Leader::committed([first, number(99)], 0);
    lender.take(UNIT, Some(first), 0, true, b"1");
    let phantom = lender.lend(UNIT).expect("free again");
    assert!(!leader.wants(0, phantom), "it is told at once that nothing came of it");
    assert!(leader.wants(1, number(99)));
    lender.hear_void(UNIT, phantom);
    assert!(lender.is_free());
    // And when the answer of the first return has come.
    let _ = leader.hear(1, 0, Heard::Returned);
    assert!(!leader.wants(0, first) && !leader.wants(0, phantom));
}

#[test]
fn an_end_that_overtakes_the_lend_is_no_end_of_what_is_lent_then() {
    let mut lender = Lender::default();
    assert_eq!(lender.take(UNIT, None, 0, true, b""), Heard::Returned, "of what was never lent");
    let late = lender.lend(UNIT).expect("free");
    let mut leader = leader();
    let steps = leader.tick(PATIENCE);
    assert_eq!(steps, [Step::GiveUp(Why::Late), Step::Return(1)]);
    assert!(!leader.wants(1, late), "whoever asks is told that nothing came of it");
    lender.hear_void(UNIT, late);
    assert!(lender.is_free());
}

#[test]
fn who_waits_for_keys_of_a_group_that_was_given_up_gets_none() {
    let mut lender = Lender { is_taken: true, ..Lender::default() };
    assert_eq!(lender.lend(UNIT), None);
    assert_eq!(lender.take(UNIT, None, 0, true, b""), Heard::Returned);
    lender.is_taken = false;
    assert_eq!(lender.go_on(UNIT), None, "nobody waits any more");
    assert!(lender.is_free());
}

#[test]
fn copies_of_a_lend_that_waits_are_one_loan() {
    let mut lender = Lender { is_taken: true, ..Lender::default() };
    assert_eq!((lender.lend(UNIT), lender.lend(UNIT)), (None, None));
    lender.is_taken = false;
    let loan = lender.go_on(UNIT).expect("free");
    assert_eq!(lender.go_on(UNIT), None);
    assert_eq!(lender.lend(UNIT), Some(loan), "and the third copy is answered as the others were");
}

#[test]
fn a_lost_answer_is_asked_for_again_and_is_the_same() {
    let mut lender = Lender::default();
    let mut leader = leader();
    let loan = lender.lend(UNIT).expect("free");
    assert_eq!(leader.tick(500), []);
    assert_eq!(leader.tick(1_000), [Step::Borrow(1)], "nothing was heard");
    assert_eq!(lender.lend(UNIT), Some(loan));
    assert_eq!(leader.hear(1_001, 1, Heard::Lent(loan)), [Step::Run]);
    assert_eq!(leader.hear(1_002, 1, Heard::Lent(number(9))), [], "the first one counts");
    assert_eq!(leader.ran(1_002, true), [Step::Return(1)]);
    assert_eq!(leader.loan(1).0, Some(loan));
}

#[test]
fn a_lost_acknowledgement_is_asked_for_again_until_it_comes_however_long_that_takes() {
    let mut lender = Lender::default();
    let loan = lender.lend(UNIT).expect("free");
    let mut leader = committed(loan);
    lender.take(UNIT, Some(loan), 0, true, b"1");
    let mut now = 1;
    for _ in 0..1_000 {
        now += 1_000;
        assert_eq!(leader.tick(now), [Step::Return(1)]);
    }
    assert_eq!(lender.take(UNIT, Some(loan), 0, true, b"1"), Heard::Returned);
    assert_eq!(lender.written.len(), 1);
    assert_eq!(leader.hear(now, 1, Heard::Returned), [Step::End]);
    assert_eq!(leader.tick(now + 1_000_000), []);
}

#[test]
fn whoever_cannot_lend_is_told_of_the_end_too_since_a_copy_of_the_request_may_come_to_be_granted() {
    for (heard, why) in [(Heard::Busy, Why::Busy), (Heard::Refused, Why::Refused)] {
        let mut lender = Lender::default();
        let mut leader = leader();
        let steps = leader.hear(1, 1, heard);
        assert_eq!(steps, [Step::GiveUp(why), Step::Return(1)]);
        let late = lender.lend(UNIT).expect("the second copy finds it free");
        assert_eq!(leader.hear(2, 1, Heard::Lent(late)), [], "it is not taken any more");
        assert_eq!(lender.take(UNIT, leader.loan(1).0, 0, true, b""), Heard::Returned);
        assert!(lender.is_free() && lender.written.is_empty());
        assert_eq!(leader.hear(3, 1, Heard::Returned), [Step::End]);
    }
}

#[test]
fn a_lender_that_dies_knows_what_it_has_lent_and_does_not_free_it_by_itself() {
    let mut lender = Lender::default();
    let loan = lender.lend(UNIT).expect("free");
    let mut leader = committed(loan);
    lender.dies();
    assert_eq!(lender.lend((GroupId { number: 2, ..GROUP }, UNIT.1)), None, "another group waits");
    assert!(lender.follower.due(&lender.records, 0).is_empty());
    let asked = lender.follower.due(&lender.records, 1_000_000_000);
    assert_eq!(asked, [(UNIT, loan)], "however long it takes, it asks");
    assert!(leader.wants(1, loan));
    assert_eq!(leader.remind(5, 1), [Step::Return(1)], "and is told");
    assert_eq!(lender.take(UNIT, Some(loan), 0, true, b"1"), Heard::Returned);
    assert!(lender.is_free() && lender.written == [b"1"]);
}

#[test]
fn keys_whose_leader_is_not_heard_of_are_lent_still_and_nobody_is_to_wait_for_them_for_ever() {
    let mut lender = Lender::default();
    let loan = lender.lend(UNIT).expect("free");
    assert!(lender.follower.due(&lender.records, 5).is_empty());
    assert_eq!(lender.follower.overdue(5 + WAITED_FOR - 1).next(), None);
    let mut asked = 0;
    for now in (5..=5 + WAITED_FOR).step_by(100) {
        asked += lender.follower.due(&lender.records, now).len();
    }
    assert!(asked > 2, "whoever knows is asked all the time");
    assert!(lender.follower.overdue(5 + WAITED_FOR).eq([UNIT]) && !lender.is_free());
    assert_eq!(lender.take(UNIT, Some(loan), 0, true, b"1"), Heard::Returned);
    assert_eq!((lender.follower.overdue(1_000_000).next(), &*lender.written), (None, &[b"1".to_vec()][..]));
}

#[test]
fn who_takes_over_from_a_leader_that_died_before_its_commit_knows_nothing_and_keys_are_free() {
    let mut lender = Lender::default();
    let loan = lender.lend(UNIT).expect("free");
    // As long as it lives, it says that it goes on, also if the number of the loan is not there yet.
    let leader = leader();
    assert!(leader.wants(1, loan));
    drop(leader);
    let records = Records::default();
    assert!(!records.commits.contains_key(&GROUP));
    lender.hear_void(UNIT, loan);
    assert!(lender.is_free() && lender.written.is_empty());
}

#[test]
fn who_takes_over_from_a_leader_that_died_behind_its_commit_tells_all_again() {
    let mut lender = Lender::default();
    let loan = lender.lend(UNIT).expect("free");
    drop(committed(loan));
    let (mut heir, steps) = Leader::committed([loan], 0);
    assert_eq!(steps, [Step::Return(0)]);
    assert_eq!(lender.take(UNIT, heir.loan(0).0, 0, true, b"1"), Heard::Returned);
    assert_eq!(heir.hear(1, 0, Heard::Returned), [Step::End]);
    assert_eq!(lender.written, [b"1"]);
}

#[test]
fn what_is_written_comes_in_parts_and_from_the_beginning_if_the_lender_has_died_among_them() {
    let mut lender = Lender::default();
    let loan = lender.lend(UNIT).expect("free");
    let mut leader = committed(loan);
    let first = lender.take(UNIT, Some(loan), 0, false, b"12");
    assert_eq!(first, Heard::Has(2));
    assert_eq!(leader.hear(2, 1, first), [Step::Return(1)]);
    assert_eq!(leader.loan(1), (Some(loan), 2));
    lender.dies();
    let lost = lender.take(UNIT, Some(loan), 2, true, b"3");
    assert_eq!(lost, Heard::Has(0), "nothing is written in part");
    assert_eq!(leader.hear(3, 1, lost), [Step::Return(1)]);
    assert_eq!(lender.take(UNIT, Some(loan), 0, false, b"12"), Heard::Has(2));
    assert_eq!(lender.take(UNIT, Some(loan), 0, false, b"12"), Heard::Has(2), "twice is once");
    assert_eq!(lender.take(UNIT, Some(loan), 2, true, b"3"), Heard::Returned);
    assert_eq!(lender.written, [b"123"]);
}

#[test]
fn a_program_that_has_written_nothing_elsewhere_frees_what_was_lent_by_any_number() {
    let mut lender = Lender::default();
    let loan = lender.lend(UNIT).expect("free");
    let mut leader = leader();
    assert_eq!(leader.hear(1, 1, Heard::Lent(loan)), [Step::Run]);
    assert_eq!(leader.ran(1, false), [Step::Return(1)]);
    assert_eq!(leader.loan(1).0, None);
    assert_eq!(lender.take(UNIT, None, 0, true, b""), Heard::Returned);
    assert!(lender.is_free() && lender.written.is_empty());
    // Who does not hear of it asks: it is told for a while only.
    assert_eq!(leader.tick(20_000), [Step::End]);
}

#[test]
fn keys_are_borrowed_one_virtual_node_after_the_other_in_their_order_so_that_nobody_waits_in_a_circle() {
    let (mut one, _) = Leader::new(3, 0);
    assert_eq!(one.hear(0, 1, Heard::Lent(number(1))), [], "it was not asked for");
    assert_eq!(one.hear(0, 0, Heard::Lent(number(1))), [Step::Borrow(1)]);
    assert_eq!(one.hear(0, 1, Heard::Waits), []);
    assert!(one.awaits(1) && !one.awaits(2), "nothing of the rest is asked for meanwhile");
    assert_eq!(one.hear(0, 1, Heard::Failed), []);
    assert_eq!(one.tick(5), [Step::Borrow(1)], "after a pause");
    assert_eq!(one.hear(5, 1, Heard::Lent(number(2))), [Step::Borrow(2)]);
    assert_eq!(one.hear(5, 2, Heard::Held), [Step::Run]);
    assert_eq!(one.tick(1_000_000), [], "what has all its keys is not given up");
}

/// Groups of two lenders each, whose messages are lost, come twice, and in any order, and whose lenders and leaders die. Each that is committed is written
/// once at both, and in the end everything is free.
#[test]
fn whatever_is_lost_or_comes_twice_a_group_is_written_at_all_or_none_and_everything_is_free_in_the_end() {
    let mut commits = 0;
    for seed in 1..200 {
        let mut world = World::new(seed);
        for _ in 0..400 {
            world.step(true);
        }
        for _ in 0..4_000 {
            world.step(false);
        }
        world.check(seed);
        commits += world.committed.len();
    }
    assert!(commits > 500, "{commits} groups were committed");
}

/// A message between leaders and lenders.
#[derive(Clone, Debug)]
enum Said {
    Lend(Unit),
    Lent(Unit, Hlc),
    Return(Unit, Option<Hlc>),
    Returned(Unit),
    Ask(Unit, Hlc),
    Void(Unit, Hlc),
}

struct World {
    chance: crate::random::Random,
    now: u64,
    next: u64,
    lenders: [Lender; 2],
    leaders: BTreeMap<GroupId, Leader>,
    /// As the leaders' log has it: the numbers of the loans.
    committed: BTreeMap<GroupId, [Hlc; 2]>,
    ended: Vec<GroupId>,
    under_way: Vec<Said>,
    /// Which groups were written, by lender.
    written: [Vec<GroupId>; 2],
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            chance: crate::random::Random::new(seed),
            now: 0,
            next: 0,
            lenders: Default::default(),
            leaders: BTreeMap::new(),
            committed: BTreeMap::new(),
            ended: Vec::new(),
            under_way: Vec::new(),
            written: Default::default(),
        }
    }

    fn step(&mut self, is_faulty: bool) {
        self.now += 20;
        match self.chance.below(12) {
            0 if is_faulty => {
                self.next += 1;
                let id = GroupId { number: self.next, ..GROUP };
                let (leader, steps) = Leader::new(2, self.now);
                self.leaders.insert(id, leader);
                self.carry_out(id, steps);
            }
            // All leaders die; what their log says goes on.
            1 if is_faulty && self.chance.below(6) == 0 => {
                self.leaders.clear();
                for (id, loans) in self.committed.clone() {
                    if !self.ended.contains(&id) {
                        let (leader, steps) = Leader::committed(loans, self.now);
                        self.leaders.insert(id, leader);
                        self.carry_out(id, steps);
                    }
                }
            }
            2 if is_faulty && self.chance.below(6) == 0 => {
                let place = self.chance.below(2);
                self.lenders[place].dies();
            }
            3 | 4 => {
                let ids: Vec<GroupId> = self.leaders.keys().copied().collect();
                for id in ids {
                    let now = self.now;
                    let steps = self.leaders.get_mut(&id).map(|leader| leader.tick(now)).unwrap_or_default();
                    self.carry_out(id, steps);
                }
                for lender in &mut self.lenders {
                    let asks = lender.follower.due(&lender.records, self.now);
                    self.under_way.extend(asks.into_iter().map(|(unit, loan)| Said::Ask(unit, loan)));
                }
            }
            _ if self.under_way.is_empty() => {}
            _ => {
                let place = self.chance.below(self.under_way.len());
                let said = match is_faulty && self.chance.below(4) == 0 {
                    // It comes once more, some time.
                    true => self.under_way[place].clone(),
                    false => self.under_way.swap_remove(place),
                };
                if !is_faulty || self.chance.below(8) > 0 {
                    self.hear(said);
                }
            }
        }
    }

    fn carry_out(&mut self, id: GroupId, steps: Vec<Step>) {
        let mut steps = std::collections::VecDeque::from(steps);
        while let Some(step) = steps.pop_front() {
            match step {
                Step::Borrow(place) => self.under_way.push(Said::Lend((id, place as u16))),
                Step::Return(place) => {
                    let Some(leader) = self.leaders.get(&id) else { return };
                    self.under_way.push(Said::Return((id, place as u16), leader.loan(place).0));
                }
                Step::Run => {
                    let Some(leader) = self.leaders.get_mut(&id) else { return };
                    let loans = [0, 1].map(|place| leader.loan(place).0.expect("it was lent"));
                    self.committed.insert(id, loans);
                    steps.extend(leader.ran(self.now, true));
                }
                Step::End => {
                    self.leaders.remove(&id);
                    self.ended.push(id);
                }
                Step::GiveUp(_) => {}
            }
        }
    }

    fn hear(&mut self, said: Said) {
        match said {
            Said::Lend(unit) => {
                if let Some(loan) = self.lenders[usize::from(unit.1)].lend(unit) {
                    self.under_way.push(Said::Lent(unit, loan));
                }
            }
            Said::Lent(unit, loan) => self.tell(unit, Heard::Lent(loan)),
            Said::Return(unit, loan) => {
                let lender = &mut self.lenders[usize::from(unit.1)];
                let before = lender.written.len();
                lender.take(unit, loan, 0, true, b"");
                if lender.written.len() > before {
                    self.written[usize::from(unit.1)].push(unit.0);
                }
                self.under_way.push(Said::Returned(unit));
                self.go_on(unit.1);
            }
            Said::Returned(unit) => self.tell(unit, Heard::Returned),
            Said::Ask(unit, loan) => {
                let wants = match self.leaders.get(&unit.0) {
                    Some(leader) => leader.wants(usize::from(unit.1), loan),
                    None => false,
                };
                if !wants {
                    self.under_way.push(Said::Void(unit, loan));
                }
            }
            Said::Void(unit, loan) => {
                self.lenders[usize::from(unit.1)].hear_void(unit, loan);
                self.go_on(unit.1);
            }
        }
    }

    /// Whoever waits for keys of a lender gets them if they are free.
    fn go_on(&mut self, node: u16) {
        let waiting: Vec<Unit> = (1..=self.next).map(|number| (GroupId { number, ..GROUP }, node)).collect();
        for unit in waiting {
            if let Some(loan) = self.lenders[usize::from(node)].go_on(unit) {
                self.under_way.push(Said::Lent(unit, loan));
            }
        }
    }

    fn tell(&mut self, unit: Unit, heard: Heard) {
        let now = self.now;
        let steps = self
            .leaders
            .get_mut(&unit.0)
            .map(|leader| leader.hear(now, usize::from(unit.1), heard))
            .unwrap_or_default();
        self.carry_out(unit.0, steps);
    }

    fn check(&self, seed: u64) {
        for (place, lender) in self.lenders.iter().enumerate() {
            assert!(lender.is_free(), "seed {seed}: {:?} is lent", lender.records.lends);
            let mut written = self.written[place].clone();
            written.sort();
            let committed: Vec<GroupId> = self.committed.keys().copied().collect();
            assert_eq!(written, committed, "seed {seed}: each that is committed is written once, and no other");
        }
    }
}
