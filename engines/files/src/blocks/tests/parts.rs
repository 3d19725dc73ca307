//! What takes the longer the more blocks there are, in parts between which others come.

use super::*;
use crate::namespace::AT_ONCE;

fn blocks(ids: std::ops::RangeInclusive<u64>) -> Vec<Block> {
    ids.map(|id| block(id, 5, 100)).collect()
}

fn replicas(ids: std::ops::RangeInclusive<u64>) -> Vec<Replica> {
    ids.map(|id| replica(id, 5, 100)).collect()
}

/// Whether each of the first blocks is there.
fn are_there(world: &World, count: u64) -> Vec<bool> {
    (1..=count).map(|id| world.blocks.has(&block(id, 5, 100))).collect()
}

#[test]
fn what_is_said_while_a_report_is_compared_is_newer_than_it() {
    let mut world = World::with(1);
    world.change(None, Some(&file(1, &blocks(1..=7))));
    let place = world.place(1);
    world.report(place, &replicas(1..=5));
    // It lacks the last two of these by now, and knows nothing of what comes.
    let mut comparison = world.comparison(place, &replicas(1..=3));
    assert_eq!(world.blocks.compare(&mut comparison, 1), Ok(true));
    world.blocks.lost(place, BlockId(2), Some(Stamp(5)));
    world.blocks.held(place, replica(5, 5, 100), true);
    world.blocks.held(place, replica(6, 5, 100), true);
    while world.blocks.compare(&mut comparison, 1).unwrap() {}
    assert_eq!(are_there(&world, 7), [true, false, true, false, true, true, false]);
    // The next one knows of all that.
    world.report(place, &replicas(2..=2));
    assert_eq!(are_there(&world, 7), [false, true, false, false, false, false, false]);
}

#[test]
fn of_two_reports_that_are_compared_at_the_same_time_the_newer_one_counts() {
    let mut world = World::with(1);
    world.change(None, Some(&file(1, &blocks(1..=3))));
    let place = world.place(1);
    let mut first = world.comparison(place, &replicas(1..=1));
    world.blocks.held(place, replica(2, 5, 100), true);
    let mut second = world.comparison(place, &replicas(3..=3));
    assert_eq!(world.blocks.compare(&mut first, 1), Err(Outdated::ReportedAgain));
    while world.blocks.compare(&mut second, 1).unwrap() {}
    assert_eq!(are_there(&world, 3), [false, true, true], "what was said meanwhile is newer");
    // Also behind its end.
    assert_eq!(world.blocks.compare(&mut first, 1), Err(Outdated::ReportedAgain));
    assert_eq!(are_there(&world, 3), [false, true, true]);
}

#[test]
fn an_older_report_that_is_under_way_does_not_undo_a_newer_one() {
    let mut world = World::with(1);
    world.change(None, Some(&file(1, &blocks(1..=4))));
    let place = world.place(1);
    let mut older = world.comparison(place, &replicas(1..=4));
    assert_eq!(world.blocks.compare(&mut older, 1), Ok(true));
    world.report(place, &replicas(1..=2));
    while world.blocks.compare(&mut older, 1) == Ok(true) {}
    assert_eq!(are_there(&world, 4), [true, true, false, false]);
}

/// It is not there any more, and nothing is sure of it: a replica elsewhere stays.
#[test]
fn a_report_is_not_compared_behind_the_loss_of_its_storage() {
    let mut world = World::with(2);
    let four = blocks(1..=4);
    let (two, single) = (file(2, &four), file(1, &four));
    world.change(None, Some(&two));
    for number in [1, 2] {
        let place = world.place(number);
        world.report(place, &replicas(1..=4));
    }
    let place = world.place(1);
    let mut comparison = world.comparison(place, &replicas(1..=4));
    assert_eq!(world.blocks.compare(&mut comparison, 1), Ok(true));
    world.blocks.heard(Holder(1), Heartbeat::default());
    while world.blocks.compare(&mut comparison, 1).unwrap() {}
    world.blocks.all_reported(Holder(1));
    let holders = |world: &World| four.iter().map(|block| world.holders(block)).collect::<Vec<_>>();
    assert_eq!(holders(&world), [[2]; 4]);
    world.change(Some(&two), Some(&single));
    world.look();
    assert_eq!((world.blocks.leaving(), holders(&world)), (0, vec![vec![2]; 4]));
    // The next one counts.
    world.beat(Holder(1));
    world.report(place, &replicas(1..=1));
    assert_eq!(holders(&world), [vec![1, 2], vec![2], vec![2], vec![2]]);
}

/// Each storage of a data node is reported in one message.
#[test]
fn what_is_said_of_a_storage_while_another_one_is_compared_is_newer_than_the_report() {
    let mut world = World::with(1);
    world.change(None, Some(&file(1, &blocks(1..=4))));
    let first = world.place(1);
    let second = world.blocks.storage(Holder(1), "other disk", 1).unwrap();
    world.blocks.held(second, replica(3, 5, 100), true);
    let mut comparisons = [world.comparison(first, &replicas(1..=2)), world.comparison(second, &replicas(3..=3))];
    assert_eq!(world.blocks.compare(&mut comparisons[0], 1), Ok(true));
    world.blocks.lost(second, BlockId(3), Some(Stamp(5)));
    world.blocks.held(second, replica(4, 5, 100), true);
    for comparison in &mut comparisons {
        while world.blocks.compare(comparison, 1).unwrap() {}
    }
    assert_eq!(are_there(&world, 4), [true, true, false, true]);
}

/// The one that is looked at is whole elsewhere.
#[test]
fn a_block_with_one_replica_that_is_damaged_and_one_that_is_gone_is_damaged() {
    let mut world = World::with(2);
    let one = block(1, 5, 100);
    world.change(None, Some(&file(2, &[one])));
    for number in [1, 2] {
        let place = world.place(number);
        world.report(place, &[replica(1, 5, 100)]);
    }
    world.blocks.found_corrupt(BlockId(1), Holder(1));
    assert!(!world.blocks.is_corrupt(BlockId(1)), "the other one is good");
    world.blocks.heard(Holder(2), Heartbeat::default());
    assert_eq!((world.holders(&one), world.blocks.is_corrupt(BlockId(1))), (vec![1], true));
    world.look();
    assert!(world.blocks.is_corrupt(BlockId(1)));
}

/// What was gone counts as long as nobody has looked: that is not known to be enough.
#[test]
fn replicas_that_are_gone_are_not_enough() {
    let mut world = World::with(2);
    world.change(None, Some(&file(1, &blocks(1..=4))));
    for (number, replicas) in [(1, replicas(1..=2)), (2, replicas(3..=4))] {
        let place = world.place(number);
        world.report(place, &replicas);
    }
    assert!(world.blocks.are_enough());
    world.blocks.heard(Holder(1), Heartbeat::default());
    assert_eq!((world.blocks.counts().lacking, world.blocks.are_enough()), (0, false));
    while world.blocks.take_gone(1) {}
    assert_eq!((world.blocks.counts().lacking, world.blocks.are_enough()), (2, false));
    // Nothing is gone anew of what is gone already.
    world.change(Some(&file(1, &blocks(1..=4))), Some(&file(1, &blocks(3..=4))));
    world.blocks.heard(Holder(1), Heartbeat::default());
    assert!(world.blocks.are_enough());
}

/// Those that come during a round, and behind its end, take nobody's place in it.
#[test]
fn each_block_is_looked_at_in_each_round() {
    let mut world = World::with(2);
    let place = world.place(1);
    let mut count = 0_u64;
    let mut come = |world: &mut World, more: u64| {
        for id in count + 1..=count + more {
            world.change(None, Some(&file(2, &[block(id, 5, 100)])));
            world.blocks.held(place, replica(id, 5, 100), true);
            // What comes is looked at for itself.
            world.blocks.unseen.remove(&BlockId(id));
        }
        count += more;
    };
    come(&mut world, 10);
    for round in 0..4 {
        let old: Vec<BlockId> = world.blocks.entries.part(0, usize::MAX).map(|(block, _)| block).collect();
        world.blocks.look_at_all();
        // It begins anew while it is under way.
        if round == 2 {
            assert_eq!((0..3).filter_map(|_| world.blocks.entries.next_of_round()).count(), 3);
            world.blocks.look_at_all();
        }
        let mut seen = Vec::new();
        while !world.blocks.entries.is_round_over() {
            seen.extend((0..2).filter_map(|_| world.blocks.entries.next_of_round()));
            come(&mut world, 1);
        }
        seen.sort_unstable();
        assert_eq!(seen, old, "in round {round}");
    }
}

#[test]
fn a_report_is_not_compared_behind_a_registration_or_a_death() {
    let mut world = World::with(1);
    world.change(None, Some(&file(1, &blocks(1..=3))));
    let place = world.place(1);
    let mut comparison = world.comparison(place, &replicas(1..=3));
    assert_eq!(world.blocks.compare(&mut comparison, 1), Ok(true));
    world.blocks.register(Registration { uuid: "node 1".to_owned(), ..Registration::default() });
    assert_eq!(world.blocks.compare(&mut comparison, 1), Err(Outdated::RegisteredAgain));
    let mut comparison = world.comparison(place, &replicas(1..=3));
    world.pass(700_000, &[1]);
    assert_eq!(world.blocks.compare(&mut comparison, 9), Err(Outdated::RegisteredAgain));
    assert_eq!(are_there(&world, 3), [false; 3]);
}

#[test]
fn what_a_dead_data_node_had_does_not_count_before_it_is_taken_from_its_blocks() {
    let mut world = World::with(2);
    let four = blocks(1..=4);
    world.change(None, Some(&file(2, &four)));
    for number in [1, 2] {
        let place = world.place(number);
        world.report(place, &replicas(1..=4));
    }
    world.pass(700_000, &[1]);
    let holders = |world: &World| four.iter().map(|block| world.holders(block)).collect::<Vec<_>>();
    assert_eq!(holders(&world), [[2]; 4]);
    assert!(world.blocks.take_gone(1), "there is more");
    // It comes back without one, and with an older generation of another.
    world.blocks.register(Registration { uuid: "node 1".to_owned(), ..Registration::default() });
    world.beat(Holder(1));
    let place = world.place(1);
    world.report(place, &[replica(1, 5, 100), replica(2, 5, 100), replica(4, 4, 60)]);
    assert_eq!(holders(&world), [vec![1, 2], vec![1, 2], vec![2], vec![2]]);
    while world.blocks.take_gone(1) {}
    assert_eq!(holders(&world), [vec![1, 2], vec![1, 2], vec![2], vec![2]]);
    let [Held { stamp, .. }] =
        world.blocks.others(BlockId(4)).filter(|held| held.place == place).collect::<Vec<_>>()[..]
    else {
        panic!("it is not there");
    };
    assert_eq!(*stamp, Stamp(4), "what it says now takes the place of what it had");
    assert_eq!(world.blocks.counts(), all_counts(&world.blocks));
}

#[test]
fn nothing_is_removed_because_of_what_a_storage_had_that_is_gone() {
    let mut world = World::with(2);
    let one = block(1, 5, 100);
    let (two, single) = (file(2, &[one]), file(1, &[one]));
    world.change(None, Some(&two));
    for number in [1, 2] {
        let place = world.place(number);
        world.report(place, &[replica(1, 5, 100)]);
    }
    world.change(Some(&two), Some(&single));
    world.look();
    assert_eq!(world.blocks.leaving(), 1);
    let stays = world.holders(&one)[0];
    world.blocks.heard(Holder(stays), Heartbeat::default());
    assert_eq!(
        world.duties(3 - stays).removals,
        [],
        "it is the last one, though nobody has looked yet at what is gone"
    );
    assert_eq!(world.holders(&one), [3 - stays]);
    // It is there again before anybody has looked.
    let place = world.place(stays);
    world.report(place, &[replica(1, 5, 100)]);
    while world.blocks.take_gone(1) {}
    assert_eq!(world.holders(&one), [1, 2]);
}

#[test]
fn what_a_data_node_was_told_is_forgotten_in_the_order_of_time() {
    let mut world = World::with(1);
    let files: Vec<File> = (1..=600).map(|id| file(1, &[block(id, 5, 100)])).collect();
    let place = world.place(1);
    for (file, id) in files.iter().zip(1..) {
        world.change(None, Some(file));
        world.blocks.held(place, replica(id, 5, 100), true);
    }
    files.iter().for_each(|file| world.change(Some(file), None));
    let first = world.duties(1);
    assert_eq!((first.removals.len(), first.has_more), (AT_ONCE, true));
    let durable = Txid(world.txid);
    let (second, has_more) = world.blocks.removals(Holder(1), durable);
    assert_eq!((second.len(), has_more), (AT_ONCE, true));
    let (third, has_more) = world.blocks.removals(Holder(1), durable);
    assert_eq!((third.len(), has_more), (600 - 2 * AT_ONCE, false));
    let told = |world: &World| world.blocks.nodes.get(Holder(1)).unwrap().told.len();
    assert_eq!(told(&world), 600);
    world.pass(601_000, &[]);
    world.duties(1);
    assert_eq!(told(&world), 600 - AT_ONCE);
    world.duties(1);
    world.duties(1);
    assert_eq!(told(&world), 0);
}

/// Each counted by itself.
fn all_counts(blocks: &Blocks) -> Counts {
    let (mut counts, mut entries) = (Counts::default(), 0);
    for (_, entry) in blocks.entries.part(0, usize::MAX) {
        let is_closed = entry.wanted.is_some_and(|wanted| !wanted.is_open);
        let is_of_one = entry.wanted.is_some_and(|wanted| wanted.replication <= 1);
        let is_missing = entry.is_missing();
        counts.closed += u64::from(is_closed);
        counts.lacking += u64::from(is_closed && is_missing);
        counts.missing += u64::from(is_missing);
        counts.missing_of_one += u64::from(is_missing && is_of_one);
        counts.corrupt += u64::from(!is_missing && entry.is_corrupt());
        entries += 1;
    }
    assert_eq!(entries, blocks.len());
    counts
}

#[test]
fn counts_are_those_of_all_blocks() {
    let mut world = World::with(2);
    let mut files: Vec<Option<File>> = vec![None; 12];
    // Any numbers do, and the same each time.
    let mut number = 1_u64;
    let mut next = move |below: u64| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (number >> 33) % below
    };
    for _ in 0..10_000 {
        let at = next(12);
        let id = at + 1;
        let held = replica(id, 5 + next(2), 100);
        let place = world.place(u16::try_from(1 + next(2)).unwrap());
        match next(13) {
            0 => {
                let new = match next(3) {
                    0 => None,
                    1 => Some(written(1, &[block(id, 5, 100)])),
                    _ => Some(file(u16::try_from(1 + next(2)).unwrap(), &[block(id, 5 + next(2), 100)])),
                };
                let before = std::mem::replace(&mut files[usize::try_from(at).unwrap()], new.clone());
                world.change(before.as_ref(), new.as_ref());
            }
            1 => drop(world.blocks.received(held)),
            2 => world.blocks.held(place, held, next(3) > 0),
            3 => world.blocks.lost(place, BlockId(id), None),
            4 => world.blocks.found_corrupt(BlockId(id), Holder(u16::try_from(next(3)).unwrap())),
            5 => world.blocks.given_up(FILE, &[block(id, 5, 100)]),
            6 => world.blocks.lost_here(BlockId(id)),
            7 => world.report(place, &replicas(id..=12)),
            8 => world.look(),
            9 => drop(world.blocks.heard(place.holder, Heartbeat::default())),
            10 => drop(world.beat(place.holder)),
            11 => drop(world.blocks.take_gone(1)),
            _ if next(20) == 0 => {
                // One is dead, and comes back.
                world.pass(700_000, &[place.holder.0]);
                let uuid = format!("node {}", place.holder.0);
                world.blocks.register(Registration { uuid, ..Registration::default() });
            }
            _ => {}
        }
        assert_eq!(world.blocks.counts(), all_counts(&world.blocks));
    }
    world.look();
    let blocks = &world.blocks;
    for (block, entry) in blocks.entries.part(0, usize::MAX) {
        assert_eq!(blocks.is_corrupt(block), entry.is_corrupt(), "nothing is gone that was not taken from {block}");
    }
    let is_low = |(block, entry): &(BlockId, &Entry)| {
        let Some(wanted) = entry.wanted.filter(|wanted| !wanted.is_open) else { return false };
        let sound =
            blocks.replicas(*block, entry).filter(|held| !held.is_corrupt && is_all(held, wanted.stamp, wanted.length));
        let holders: BTreeSet<Holder> = sound.map(|held| held.place.holder).collect();
        let staying = holders.into_iter().filter(|holder| !blocks.nodes.is_leaving(*holder, *block));
        staying.count() < usize::from(wanted.replication)
    };
    let low = blocks.entries.part(0, usize::MAX).filter(is_low).map(|(block, _)| block);
    assert_eq!(blocks.low, low.collect());
}

#[test]
fn what_is_given_up_does_not_lack_replicas_for_ever() {
    let mut world = World::with(1);
    let one = block(1, 5, 100);
    world.change(None, Some(&file(2, &[one])));
    world.look();
    assert_eq!(world.blocks.low(), 1);
    world.blocks.given_up(FILE, &[one]);
    world.look();
    assert_eq!((world.blocks.low(), world.blocks.len()), (0, 0));
}

const MANY: u64 = 3_000;

/// With so many blocks, all of which two of three data nodes have.
fn many() -> World {
    let mut world = World::with(3);
    for id in 1..=MANY {
        world.change(None, Some(&file(2, &[block(id, 5, 100)])));
    }
    for number in [1, 2] {
        let place = world.place(number);
        world.report(place, &replicas(1..=MANY));
    }
    world.look();
    world
}

/// Each block that is looked at for a part is looked at so often at most.
const LOOKS: usize = 8;

#[test]
fn nobody_looks_at_more_than_256_blocks_while_others_wait() {
    let mut world = many();
    let longest = |world: &World, what: &str| {
        let looks = world.blocks.take_looks();
        assert!(looks <= LOOKS * AT_ONCE, "{looks} for {what}");
        looks
    };
    let _ = world.blocks.take_looks();
    let all = |world: &mut World, what: &str, part: fn(&mut Blocks) -> bool| {
        let mut looks = 0;
        while part(&mut world.blocks) {
            looks += longest(world, what);
        }
        looks += longest(world, what);
        assert!(looks >= usize::try_from(MANY).unwrap(), "{looks} for {what}: each is looked at");
    };
    // A full report of one that has everything, and one of nothing.
    for replicas in [replicas(1..=MANY), Vec::new()] {
        let place = world.place(1);
        let mut comparison = world.comparison(place, &replicas);
        longest(&world, "the beginning of a report");
        let mut looks = 0;
        while world.blocks.compare(&mut comparison, AT_ONCE).unwrap() {
            looks += longest(&world, "a report");
        }
        assert!(looks >= usize::try_from(MANY).unwrap() / 2, "{looks}: each is looked at");
        world.blocks.all_reported(Holder(1));
        longest(&world, "the end of a report");
    }
    // One joins, and all are looked at.
    world.blocks.register(Registration { uuid: "node 1".to_owned(), ..Registration::default() });
    longest(&world, "a registration");
    world.blocks.all_reported(Holder(1));
    longest(&world, "the end of a report");
    world.blocks.begin_turn();
    all(&mut world, "a turn", |blocks| blocks.look(AT_ONCE));
    // A disk is gone.
    world.blocks.heard(Holder(2), Heartbeat::default());
    longest(&world, "a heartbeat");
    all(&mut world, "what is gone", |blocks| blocks.take_gone(AT_ONCE));
    // One is dead.
    let place = world.place(1);
    world.report(place, &replicas(1..=MANY));
    let _ = world.blocks.take_looks();
    world.now += 9_000;
    world.blocks.nodes.silence.dead = 5_000;
    world.blocks.advance(Millis(world.now));
    assert!(world.blocks.bury(NEWEST).contains(&Holder(1)));
    longest(&world, "a death");
    all(&mut world, "what is gone", |blocks| blocks.take_gone(AT_ONCE));
    assert_eq!(world.blocks.counts().missing, MANY);
    assert!(!world.blocks.are_enough());
    longest(&world, "whether they are enough");
    let mut next = Some(0);
    while let Some(from) = next {
        next = world.blocks.damaged(from, AT_ONCE).1;
        longest(&world, "what is damaged");
    }
}
