//! Who ends blocks whose writers have gone.

use super::*;
use crate::change::RECOVERY;
use crate::operation::Recovery;

fn recovery(stamp: u64, old: Option<u64>, length: Option<u64>) -> Recovery {
    let block = Some((BlockId(1), Stamp(stamp)));
    Recovery { inode: FILE, block, old: old.map(Stamp), length, least: 10 }
}

/// What the data node in the process has that a client writes.
const fn begun(stamp: u64) -> Option<Here> {
    Some(Here { stamp: Stamp(stamp), length: 100, state: State::Begun })
}

#[test]
fn a_block_whose_writer_has_gone_is_ended_by_a_data_node_that_has_it() {
    let mut world = World::with(2);
    let open = written(3, &[block(1, 5, 10)]);
    world.change(None, Some(&open));
    let places = world.blocks.choose(BlockId(1), 100, 3, &[]);
    world.blocks.written_by(BlockId(1), places, true);
    assert_eq!(world.blocks.close(recovery(6, Some(5), None), begun(5)), Ended::Elsewhere);
    let told: Vec<RecoveryOrder> = [1, 2].into_iter().flat_map(|number| world.duties(number).recoveries).collect();
    let [order] = &*told else { panic!("{told:?}") };
    assert_eq!((order.block.stamp, order.stamp, order.cut, order.places.len()), (Stamp(5), Stamp(6), None, 3));
    assert!([1, 2].iter().all(|number| world.duties(*number).recoveries.is_empty()), "one is told, once");
    assert_eq!(world.blocks.closing(BlockId(1), Stamp(6)).unwrap().0, recovery(6, Some(5), None));
    assert!(world.blocks.is_closing(BlockId(1)) && world.blocks.overdue().is_empty());
    world.pass(61_000, &[]);
    assert_eq!(world.blocks.overdue(), [(recovery(6, Some(5), None), true)], "it takes too long");
    assert_eq!(world.blocks.generation_of_readers(BlockId(1)), Some(Stamp(5)), "data nodes know no other yet");
    // It is begun anew: what counts is still the generation of the writer.
    assert_eq!(world.blocks.close(recovery(7, None, None), begun(5)), Ended::Elsewhere);
    assert!(world.blocks.closing(BlockId(1), Stamp(6)).is_none(), "the one before comes too late");
    let told: Vec<RecoveryOrder> = [1, 2].into_iter().flat_map(|number| world.duties(number).recoveries).collect();
    assert_eq!((told[0].block.stamp, told[0].stamp), (Stamp(5), Stamp(7)));
    world.blocks.closed(BlockId(1));
    assert!(!world.blocks.is_closing(BlockId(1)));
}

#[test]
fn a_block_that_nobody_else_has_is_ended_here() {
    let mut world = World::new();
    assert_eq!(world.blocks.close(recovery(6, Some(5), None), begun(5)), Ended::Here);
    let mut world = World::with(1);
    world.change(None, Some(&written(1, &[block(1, 5, 10)])));
    world.blocks.written_by(BlockId(1), vec![Place::HERE], true);
    assert_eq!(world.blocks.close(recovery(6, Some(5), None), None), Ended::Here, "it was never begun");
    world.change(None, Some(&written(1, &[block(1, 5, 10)])));
    let place = world.place(1);
    world.blocks.written_by(BlockId(1), vec![place, Place::HERE], true);
    world.pass(700_000, &[1]);
    assert_eq!(world.blocks.close(recovery(6, Some(5), None), begun(5)), Ended::Here, "the other one is dead");
    assert_eq!(world.blocks.close(recovery(7, Some(5), None), begun(4)), Ended::Nobody, "this one missed a generation");
    assert_eq!(world.duties(1).recoveries, []);
    // The process began since, and waited for the others in vain.
    for (stamp, least) in [(begun(4), 10), (None, 10), (None, 0)] {
        let mut world = World::new();
        world.blocks.nodes.await_all(["node 1".to_owned()], NEWEST);
        let late = Recovery { least, ..recovery(7, Some(5), None) };
        assert_eq!(world.blocks.close(late, begun(5)), Ended::Nobody, "others may have more of it");
        world.blocks.await_nobody();
        assert_eq!(world.blocks.overdue(), [(late, false)], "nobody is waited for any more");
        assert_eq!(world.blocks.close(late, stamp), Ended::Nobody, "{stamp:?} {least}");
        world.pass(6_000, &[]);
        assert_eq!(world.blocks.overdue(), [(late, false)], "it is looked again, and nobody was told");
        assert_eq!(world.blocks.close(late, begun(5)), Ended::Here);
    }
}

#[test]
fn a_block_is_not_ended_before_those_have_reported_that_may_have_a_newer_generation() {
    let mut world = World::new();
    world.blocks.nodes.await_all(["node 1".to_owned()], NEWEST);
    let mut open = written(2, &[block(1, 6, 10)]);
    open.writer = Some(Box::new(Writer::new(RECOVERY, "127.0.0.1", Unfinished::Stays)));
    world.change(None, Some(&open));
    assert_eq!(world.blocks.close(recovery(7, None, None), begun(4)), Ended::Nobody);
    world.join(1);
    let place = world.place(1);
    world.blocks.held(place, replica(1, 5, 20), false);
    world.join(2);
    let older = world.place(2);
    world.blocks.held(older, replica(1, 4, 30), false);
    assert_eq!(world.blocks.close(recovery(8, None, None), begun(4)), Ended::Elsewhere);
    let told = world.duties(1).recoveries;
    assert_eq!((told[0].block.stamp, &*told[0].places), (Stamp(5), &[place][..]), "the older ones do not count");
}

#[test]
fn what_a_data_node_wrote_that_is_lost_is_waited_for() {
    let none = Recovery { least: 0, ..recovery(6, Some(5), None) };
    // An earlier process waited for it in vain, or this one does.
    for is_old in [true, false] {
        let mut world = World::new();
        match is_old {
            true => world.blocks.nodes.lose("node 1".to_owned(), NEWEST),
            false => {
                world.blocks.nodes.await_all(["node 1".to_owned()], NEWEST);
                world.blocks.await_nobody();
            }
        }
        world.change(None, Some(&written(1, &[block(1, 6, 0)])));
        let lost = vec![("node 1".to_owned(), NEWEST)];
        assert_eq!(world.blocks.nodes.lost().into_iter().collect::<Vec<_>>(), lost);
        assert_eq!(world.blocks.close(none, None), Ended::Nobody);
        assert!(!world.blocks.nobody_has(BlockId(1)), "it was not asked");
        world.join(1);
        assert!(world.blocks.nodes.lost().is_empty());
        assert_eq!(world.blocks.close(none, None), Ended::Here, "it has nothing, and nobody else may have");
        world.pass(700_000, &[1]);
        assert_eq!(world.blocks.nodes.lost().into_iter().collect::<Vec<_>>(), lost, "it is dead");
        assert_eq!(world.blocks.close(none, None), Ended::Nobody);
        let later = Recovery { block: Some((BlockId(NEWEST.0 + 1), Stamp(6))), ..none };
        assert_eq!(world.blocks.close(later, None), Ended::Here, "that it never had");
    }
}

#[test]
fn an_older_generation_has_to_do_when_all_have_said_that_they_lack_the_newer_one() {
    let mut world = World::with(2);
    world.change(None, Some(&written(2, &[block(1, 6, 10)])));
    let place = world.place(2);
    world.blocks.held(place, replica(1, 4, 30), false);
    world.pass(700_000, &[1]);
    assert_eq!(world.blocks.close(recovery(6, Some(5), None), None), Ended::Nobody, "one of them may have it");
    // It comes back without its disk.
    world.join(1);
    assert_eq!(world.blocks.close(recovery(7, Some(5), None), None), Ended::Elsewhere);
    let told = world.duties(2).recoveries;
    assert_eq!((told[0].block.stamp, &*told[0].places), (Stamp(4), &[place][..]));
    world.blocks.lost(place, BlockId(1), None);
    assert_eq!(world.blocks.close(recovery(8, Some(5), None), begun(4)), Ended::Here);
    assert_eq!(world.blocks.close(recovery(8, Some(5), None), None), Ended::Here, "nothing is left, which is told");
}

#[test]
fn who_has_less_than_was_acknowledged_takes_no_part_in_the_end_of_a_block() {
    for (states, ended) in [([State::Whole, State::Left], Ended::Here), ([State::Begun, State::Left], Ended::Elsewhere)]
    {
        let mut world = World::with(2);
        world.change(None, Some(&written(3, &[block(1, 5, 10)])));
        let places = world.blocks.choose(BlockId(1), 100, 3, &[]);
        world.blocks.written_by(BlockId(1), places, true);
        for (number, state) in [1, 2].into_iter().zip(states) {
            let place = world.place(number);
            world.blocks.held_as(place, replica(1, 5, 9), state);
        }
        assert_eq!(world.blocks.close(recovery(6, Some(5), None), begun(5)), ended, "{states:?}");
        let told: Vec<Place> = world.duties(1).recoveries.into_iter().flat_map(|order| order.places).collect();
        // How much there is by now of what is being written its data node says when it is asked.
        assert_eq!(told.iter().map(|place| place.holder.0).collect::<Vec<_>>(), [0, 1][..told.len()]);
        if ended == Ended::Here {
            assert_eq!(world.blocks.close(recovery(7, Some(5), None), None), Ended::Nobody, "what there is stays");
        }
    }
}

#[test]
fn that_nobody_has_any_bytes_is_believed_when_all_have_said_so_of_themselves_who_may_have_some() {
    let none = |stamp, least| Recovery { least, ..recovery(stamp, Some(5), None) };
    // The second data node is live, or silent for so long.
    let closing = |least: u64, silence: u64| {
        let mut world = World::with(3);
        world.change(None, Some(&written(3, &[block(1, 6, least)])));
        let places = [1, 2].map(|number| world.place(number)).to_vec();
        world.blocks.written_by(BlockId(1), places, true);
        // It left the pipeline with bytes that nobody acknowledged.
        let left = world.place(3);
        world.blocks.held(left, replica(1, 4, 100), false);
        world.pass(silence, &[2]);
        assert_eq!(world.blocks.close(none(6, least), None), Ended::Elsewhere);
        assert_eq!(world.duties(1).recoveries.len(), 1, "who was heard of last");
        assert!(!world.blocks.nobody_has(BlockId(1)), "it has not reached the other one, perhaps");
        assert_eq!(world.blocks.overdue(), [(none(6, least), true)], "the other one is asked at once");
        world
    };
    // Each is asked alone, one that is silent last.
    let ask = |world: &mut World, number: u16, (stamp, least): (u64, u64)| {
        assert_eq!(world.blocks.close(none(stamp, least), None), Ended::Elsewhere);
        let told = world.duties(number).recoveries;
        assert_eq!(told[0].places.iter().map(|place| place.holder.0).collect::<Vec<_>>(), [number]);
        world.blocks.nobody_has(BlockId(1))
    };
    for (silence, numbers) in [(5_000, [2, 1]), (40_000, [1, 2])] {
        let mut world = closing(0, silence);
        assert!(!ask(&mut world, numbers[0], (7, 0)));
        assert!(ask(&mut world, numbers[1], (8, 0)));
    }
    let mut world = closing(0, 700_000);
    assert_eq!(world.blocks.close(none(7, 0), None), Ended::Nobody, "it is dead, and may come back with some");
    assert!(!world.blocks.nobody_has(BlockId(1)));
    // Some were acknowledged: those who wrote them have them no more, and what is left has to do.
    let mut world = closing(10, 5_000);
    assert!(!ask(&mut world, 2, (7, 10)) && !ask(&mut world, 1, (8, 10)));
    assert_eq!(world.blocks.close(none(9, 10), None), Ended::Elsewhere);
    assert_eq!(world.duties(3).recoveries[0].block.stamp, Stamp(4));
}

#[test]
fn a_data_node_is_named_once_in_an_order_where_it_says_that_it_has_the_block() {
    let mut world = World::with(1);
    world.change(None, Some(&written(2, &[block(1, 5, 10)])));
    let (chosen, other) = (world.place(1), world.blocks.storage(Holder(1), "other", 1).unwrap());
    world.blocks.written_by(BlockId(1), vec![chosen, Place::HERE], true);
    world.blocks.held(other, replica(1, 5, 0), false);
    assert_eq!(world.blocks.close(recovery(6, Some(5), None), begun(5)), Ended::Elsewhere);
    assert_eq!(world.duties(1).recoveries[0].places, [Place::HERE, other]);
    world.blocks.held_as(other, replica(1, 5, 9), State::Left);
    assert_eq!(world.blocks.close(recovery(7, Some(5), None), begun(5)), Ended::Here, "it has too little");
}

#[test]
fn of_what_is_left_only_the_longest_can_have_all_that_was_acknowledged() {
    let none = |stamp| Recovery { least: 0, ..recovery(stamp, Some(5), None) };
    let left = |length| Some(Here { stamp: Stamp(5), length, state: State::Left });
    let mut world = World::with(2);
    world.change(None, Some(&written(2, &[block(1, 6, 0)])));
    let place = world.place(1);
    world.blocks.held_as(place, replica(1, 5, 100), State::Left);
    assert_eq!(world.blocks.close(none(6), left(1_000)), Ended::Here, "what is here is not cut to what is there");
    assert_eq!(world.blocks.close(none(7), left(99)), Ended::Elsewhere);
    let order = world.duties(1).recoveries.remove(0);
    assert_eq!((&*order.places, order.fits(99), order.fits(100)), (&[place][..], false, true));
    // Somebody may have more who is away; who writes and is there has all.
    world.pass(700_000, &[2]);
    assert_eq!(world.blocks.close(none(8), left(99)), Ended::Nobody);
    assert_eq!(world.blocks.close(none(9), left(1_000)), Ended::Nobody);
    assert_eq!(world.blocks.close(none(10), begun(5)), Ended::Here);
    let whole = Here { stamp: Stamp(9), length: 99, state: State::Whole };
    assert_eq!(world.blocks.close(none(10), Some(whole)), Ended::Here, "what was ended here is all that counted then");
    let cut = Recovery { length: Some(50), least: 50, ..none(10) };
    assert_eq!(world.blocks.close(cut, left(99)), Ended::Elsewhere, "both have all to which it is cut");
    world.blocks.closed(BlockId(1));
    world.blocks.lost(place, BlockId(1), None);
    assert_eq!(world.blocks.close(none(11), left(1_000)), Ended::Nobody);
    assert_eq!(world.blocks.close(none(12), begun(5)), Ended::Here);
}

#[test]
fn a_recovery_that_comes_late_does_not_take_the_place_of_a_newer_one() {
    let mut world = World::new();
    world.blocks.nodes.await_all(["node 1".to_owned()], NEWEST);
    assert_eq!(world.blocks.close(recovery(7, Some(5), None), begun(5)), Ended::Nobody);
    assert_eq!(world.blocks.close(recovery(6, Some(5), None), begun(5)), Ended::Nobody);
    assert!(world.blocks.closing(BlockId(1), Stamp(7)).is_some());
}

impl World {
    /// With so many other data nodes, the first of which write a block of which no bytes were acknowledged as far as the row says.
    fn writing(nodes: u16, pipeline: u16) -> Self {
        let mut world = Self::with(nodes);
        world.change(None, Some(&written(3, &[block(1, 6, 0)])));
        let places = (1..=pipeline).map(|number| world.place(number)).collect();
        world.blocks.written_by(BlockId(1), places, true);
        world
    }

    /// A data node begins anew, and has not reported yet.
    fn begin_anew(&mut self, number: u16) {
        self.blocks.register(Registration { uuid: format!("node {number}"), ..Registration::default() }).unwrap();
        self.beat(Holder(number));
    }

    /// It reports what a writer left there, and nothing else.
    fn report_left(&mut self, number: u16, stamp: u64, length: u64) {
        let place = self.place(number);
        self.blocks.held_as(place, replica(1, stamp, length), State::Left);
        self.blocks.has_reported(place);
        self.blocks.all_reported(place.holder);
    }

    /// Who is named when a data node is told to end the block; nobody if it is not.
    fn told(&mut self, number: u16) -> Vec<u16> {
        let orders = self.duties(number).recoveries;
        orders.into_iter().flat_map(|order| order.places).map(|place| place.holder.0).collect()
    }
}

/// Of a block whose writer wrote under 5, and of which the row says nothing.
fn none(stamp: u64) -> Recovery {
    Recovery { least: 0, ..recovery(stamp, Some(5), None) }
}

#[test]
fn who_was_cut_is_not_named_beside_somebody_who_may_have_all() {
    let mut world = World::writing(2, 2);
    world.report_left(1, 5, 100);
    world.pass(40_000, &[2]);
    assert_eq!(world.blocks.close(none(6), None), Ended::Elsewhere);
    assert_eq!((world.told(1), world.told(2)), (vec![], vec![2]), "it is silent, and has all");
    // An end that did not count has made it whole.
    let place = world.place(1);
    world.blocks.held(place, replica(1, 6, 100), true);
    assert_eq!(world.blocks.close(none(7), None), Ended::Elsewhere);
    assert_eq!((world.told(1), world.told(2)), (vec![], vec![2]));
    world.pass(700_000, &[2]);
    let here = Here { stamp: Stamp(5), length: 600, state: State::Left };
    for here in [None, Some(here)] {
        assert_eq!(world.blocks.close(none(8), here), Ended::Nobody, "it may come back with more");
    }
    // It comes back without its disk, and says so: what is left has to do.
    world.join(2);
    assert_eq!(world.blocks.close(none(9), None), Ended::Elsewhere);
    assert_eq!(world.told(1), [1]);
}

#[test]
fn who_has_an_older_generation_behind_its_end_is_asked_for_that() {
    let mut world = World::writing(1, 1);
    let place = world.place(1);
    world.blocks.held(place, replica(1, 5, 40), false);
    world.begin_anew(1);
    // The new one was not on its disk yet.
    world.report_left(1, 4, 30);
    assert_eq!(world.blocks.close(none(6), None), Ended::Elsewhere);
    let order = world.duties(1).recoveries.remove(0);
    assert_eq!((order.block.stamp, order.block.length), (Stamp(4), 30));
}

#[test]
fn what_is_whole_behind_the_end_of_its_machine_may_lack_its_end() {
    let mut world = World::writing(2, 2);
    let place = world.place(1);
    world.blocks.held(place, replica(1, 5, 1_000), true);
    world.pass(700_000, &[2]);
    assert_eq!(world.blocks.close(none(6), None), Ended::Elsewhere, "it has all");
    world.begin_anew(1);
    world.report(place, &[replica(1, 5, 600)]);
    assert_eq!(world.blocks.close(none(7), None), Ended::Nobody, "the other one may have more");
}

#[test]
fn who_begins_anew_is_told_nothing_before_it_has_reported() {
    let mut world = World::writing(1, 1);
    world.pass(40_000, &[1]);
    assert_eq!(world.blocks.close(none(6), None), Ended::Elsewhere, "it is silent");
    world.begin_anew(1);
    assert_eq!(world.told(1), [], "it may have less than before");
    assert_eq!(world.blocks.overdue(), [(none(6), false)], "nobody was told");
    assert_eq!(world.blocks.close(none(6), None), Ended::Nobody);
    world.report_left(1, 5, 100);
    assert_eq!(world.blocks.overdue(), [(none(6), false)], "it is looked again at once");
    assert_eq!(world.blocks.close(none(6), None), Ended::Elsewhere);
    let order = world.duties(1).recoveries.remove(0);
    assert_eq!((order.fits(99), order.fits(100)), (false, true));
    // Who was told has one fewer that it can believe.
    let mut world = World::writing(2, 2);
    world.pass(5_000, &[2]);
    assert_eq!(world.blocks.close(none(6), None), Ended::Elsewhere);
    assert_eq!(world.told(1), [1, 2]);
    assert!(world.blocks.closing(BlockId(1), Stamp(6)).is_some());
    world.begin_anew(2);
    assert!(world.blocks.closing(BlockId(1), Stamp(6)).is_none(), "what comes of it does not count");
    assert_eq!(world.blocks.overdue(), [(none(6), true)]);
}

#[test]
fn an_older_generation_does_not_do_while_somebody_was_not_heard_who_may_have_the_newer_one() {
    let mut world = World::with(1);
    world.change(None, Some(&written(1, &[block(1, 5, 10)])));
    world.blocks.written_by(BlockId(1), vec![Place::HERE], true);
    world.begin_anew(1);
    assert_eq!(world.blocks.close(recovery(6, Some(5), None), begun(4)), Ended::Nobody);
    world.report_left(1, 5, 100);
    assert_eq!(world.blocks.overdue(), [(recovery(6, Some(5), None), false)], "it is looked again at once");
    assert_eq!(world.blocks.close(recovery(6, Some(5), None), begun(4)), Ended::Elsewhere);
    assert_eq!(world.duties(1).recoveries[0].block.stamp, Stamp(5));
}

#[test]
fn who_is_not_known_of_a_pipeline_is_waited_for() {
    let mut world = World::with(1);
    world.blocks.nodes.await_all(["node 2".to_owned()], NEWEST);
    world.change(None, Some(&written(3, &[block(1, 6, 0)])));
    let place = world.place(1);
    world.blocks.written_by(BlockId(1), vec![place], false);
    world.report_left(1, 5, 100);
    assert_eq!(world.blocks.close(none(6), None), Ended::Nobody, "it may have more");
    world.join(2);
    let other = world.place(2);
    world.blocks.held(other, replica(1, 5, 1_000), false);
    world.pass(700_000, &[2]);
    assert_eq!(world.blocks.close(none(7), None), Ended::Nobody, "it has, and is dead");
    // The same if the one that is known has nothing.
    world.blocks.lost(place, BlockId(1), None);
    assert_eq!(world.blocks.close(none(8), None), Ended::Elsewhere);
    assert_eq!((world.told(1), world.blocks.nobody_has(BlockId(1))), (vec![1], false));
    assert_eq!(world.blocks.close(none(9), None), Ended::Nobody);
}

#[test]
fn what_a_pipeline_that_is_known_in_part_has_is_not_cut_to_what_others_had_before() {
    let mut world = World::with(3);
    world.change(None, Some(&written(3, &[block(1, 6, 0)])));
    // Two of them wrote under 4, of which one goes on with a third, which is not known.
    let [first, second] = [1, 2].map(|number| world.place(number));
    world.blocks.held(first, replica(1, 4, 100), false);
    world.blocks.held(second, replica(1, 4, 100), false);
    world.blocks.written_by(BlockId(1), vec![first], false);
    assert_eq!(world.blocks.close(none(6), None), Ended::Elsewhere);
    assert_eq!(world.told(1), [1]);
}

#[test]
fn that_nobody_has_any_bytes_is_not_believed_of_who_has_reported_some() {
    let mut world = World::writing(2, 2);
    let place = world.place(1);
    world.blocks.held(place, replica(1, 5, 1_000), false);
    world.pass(5_000, &[2]);
    // It fails to look at its own, and the other one has none.
    assert_eq!(world.blocks.close(none(6), None), Ended::Elsewhere);
    assert_eq!((world.told(1), world.blocks.nobody_has(BlockId(1))), (vec![1, 2], false));
    assert_eq!(world.blocks.close(none(7), None), Ended::Elsewhere);
    assert_eq!((world.told(2), world.blocks.nobody_has(BlockId(1))), (vec![2], false));
    assert_eq!(world.blocks.close(none(8), None), Ended::Elsewhere);
    assert_eq!((world.told(1), world.blocks.nobody_has(BlockId(1))), (vec![1], false));
    assert_eq!(world.blocks.overdue(), [], "it is not asked without end");
    assert_eq!(world.blocks.close(none(9), None), Ended::Elsewhere, "it is not closed without it");
    world.blocks.lost(place, BlockId(1), None);
    assert_eq!((world.told(1), world.blocks.nobody_has(BlockId(1))), (vec![1], true));
    // What it reports later counts for more than what it has said.
    world.blocks.held(place, replica(1, 5, 1_000), false);
    assert_eq!(world.blocks.close(none(10), None), Ended::Elsewhere);
    assert_eq!(world.told(1), [1]);
}

#[test]
fn what_a_replica_was_under_a_generation_comes_late() {
    for before in [State::Begun, State::Whole] {
        let mut world = World::writing(1, 1);
        let place = world.place(1);
        world.blocks.held_as(place, replica(1, 5, 1_000), before);
        world.begin_anew(1);
        world.report_left(1, 5, 100);
        world.blocks.held_as(place, replica(1, 5, 1_000), before);
        assert_eq!(world.blocks.close(none(6), None), Ended::Elsewhere);
        let order = world.duties(1).recoveries.remove(0);
        assert_eq!((order.fits(99), order.fits(100)), (false, true), "{before:?}");
    }
}

#[test]
fn what_is_written_here_under_the_generation_of_a_whole_replica_is_not_cut_to_that() {
    let mut world = World::writing(1, 1);
    let place = world.place(1);
    world.blocks.held(place, replica(1, 5, 99), true);
    assert_eq!(world.blocks.close(none(6), begun(5)), Ended::Here);
    world.blocks.held(place, replica(1, 5, 100), true);
    assert_eq!(world.blocks.close(none(7), begun(5)), Ended::Elsewhere, "both have as much");
}
