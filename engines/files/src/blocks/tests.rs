use super::*;
use crate::change::{Counters, Unfinished, Writer};

mod ending;
mod parts;

const fn block(id: u64, stamp: u64, length: u64) -> Block {
    Block { id: BlockId(id), stamp: Stamp(stamp), length, is_committed: true }
}

const fn replica(id: u64, stamp: u64, length: u64) -> Replica {
    Replica { block: BlockId(id), stamp: Stamp(stamp), length }
}

fn file(replication: u16, blocks: &[Block]) -> File {
    File { replication, block_size: 1_000.into(), blocks: blocks.to_vec().into(), writer: None }
}

fn written(replication: u16, blocks: &[Block]) -> File {
    let writer = Some(Box::new(Writer::new("writer", "127.0.0.1", Unfinished::Stays)));
    let mut file = File { writer, ..file(replication, blocks) };
    if let Some(last) = file.blocks.last_mut() {
        last.is_committed = false;
    }
    file
}

/// A block manager, with the changes that files make.
struct World {
    blocks: Blocks,
    now: u64,
    txid: u64,
}

const FILE: InodeId = InodeId(7);
/// The newest block that there is.
const NEWEST: BlockId = BlockId(100);

impl World {
    fn new() -> Self {
        Self { blocks: Blocks::default(), now: 0, txid: 0 }
    }

    /// With so many other data nodes, which have reported that they have nothing.
    fn with(nodes: u16) -> Self {
        let mut world = Self::new();
        for number in 1..=nodes {
            world.join(number);
        }
        world
    }

    fn join(&mut self, number: u16) -> Holder {
        let uuid = format!("node {number}");
        let holder = self.blocks.register(Registration { uuid, ..Registration::default() }).unwrap();
        assert_eq!(holder, Holder(number));
        self.beat(holder);
        let place = self.place(number);
        self.report(place, &[]);
        holder
    }

    fn beat(&mut self, holder: Holder) -> Option<u64> {
        let storages =
            vec![StorageFigures { id: "disk".to_owned(), kind: 1, remaining: 1 << 30, ..StorageFigures::default() }];
        self.blocks.heard(holder, Heartbeat { storages, ..Heartbeat::default() })
    }

    fn place(&mut self, number: u16) -> Place {
        self.blocks.storage(Holder(number), "disk", 1).unwrap()
    }

    /// A report of all that a storage has.
    fn report(&mut self, place: Place, replicas: &[Replica]) {
        let mut comparison = self.comparison(place, replicas);
        while self.blocks.compare(&mut comparison, 2).unwrap() {}
        self.blocks.all_reported(place.holder);
    }

    /// The same, which has come.
    fn comparison(&mut self, place: Place, replicas: &[Replica]) -> Comparison {
        let replicas = replicas.iter().map(|replica| (*replica, State::Whole)).collect();
        let (storage, kind) = self.blocks.nodes.storage_name(place).unwrap();
        let storage = storage.to_owned();
        Comparison::new(self.blocks.begin_comparing(place.holder, &storage, kind).unwrap(), replicas)
    }

    fn change(&mut self, before: Option<&File>, after: Option<&File>) {
        self.txid += 1;
        self.blocks.begins(Txid(self.txid));
        self.blocks.changed(FILE, before, after);
    }

    /// So many milliseconds pass; all data nodes but these are heard of.
    fn pass(&mut self, millis: u64, silent: &[u16]) {
        let end = self.now + millis;
        while self.now < end {
            self.now = end.min(self.now + 5_000);
            self.blocks.advance(Millis(self.now));
            for holder in self.blocks.nodes.holders().collect::<Vec<_>>() {
                if !silent.contains(&holder.0) {
                    self.beat(holder);
                }
            }
            self.blocks.bury(NEWEST);
        }
    }

    fn unchecked(&mut self) -> Vec<BlockId> {
        let newest = Counters { block: NEWEST, stamp: Stamp(100), ..Counters::default() };
        self.blocks.take_unchecked(9, newest)
    }

    fn look(&mut self) {
        while self.blocks.take_gone(2) {}
        self.blocks.begin_turn();
        while self.blocks.look(3) {}
    }

    fn duties(&mut self, number: u16) -> Duties {
        self.blocks.duties(Holder(number), Some(Txid(self.txid)))
    }

    /// Blocks whose replicas here are to be compared with their checksums.
    fn here(&mut self) -> Vec<BlockId> {
        self.blocks.duties_here(Txid(self.txid), 4)
    }

    /// Blocks that are missing or damaged.
    fn damaged(&self) -> Vec<(BlockId, InodeId, bool)> {
        damaged(&self.blocks)
    }

    /// The numbers of the data nodes that have all of a block.
    fn holders(&self, block: &Block) -> Vec<u16> {
        let mut holders: Vec<u16> = self.blocks.places(block).iter().map(|place| place.holder.0).collect();
        holders.sort_unstable();
        holders
    }
}

fn damaged(blocks: &Blocks) -> Vec<(BlockId, InodeId, bool)> {
    let (damaged, behind) = blocks.damaged(0, 100);
    assert_eq!(behind, None);
    let missing = damaged.iter().filter(|(.., is_missing)| *is_missing).count() as u64;
    assert_eq!((blocks.counts().missing, blocks.counts().corrupt), (missing, damaged.len() as u64 - missing));
    damaged
}

#[test]
fn a_block_is_there_when_a_data_node_has_all_of_its_newest_generation() {
    let mut blocks = Blocks::default();
    blocks.changed(FILE, None, Some(&file(1, &[block(1, 5, 100)])));
    assert!(!blocks.has(&block(1, 5, 100)));
    assert!(blocks.received(replica(1, 5, 99)));
    assert!(!blocks.has(&block(1, 5, 100)), "one byte is missing");
    assert!(blocks.received(replica(1, 6, 100)));
    assert!(blocks.received(replica(1, 5, 100)), "late");
    assert!(blocks.has(&block(1, 6, 100)) && !blocks.has(&block(1, 5, 100)));
}

#[test]
fn blocks_that_another_file_has_now_are_wanted() {
    let mut blocks = Blocks::default();
    let one = file(1, &[block(1, 5, 1)]);
    blocks.changed(FILE, None, Some(&one));
    blocks.received(replica(1, 5, 1));
    blocks.changed(InodeId(8), None, Some(&one));
    blocks.changed(FILE, Some(&one), None);
    assert_eq!((blocks.inode(BlockId(1)), blocks.take_unwanted()), (Some(InodeId(8)), vec![]));
    assert!(blocks.has(&block(1, 5, 1)));
}

#[test]
fn what_no_file_has_is_unwanted() {
    let mut blocks = Blocks::default();
    assert!(!blocks.received(replica(1, 5, 1)));
    let (two, one) = (file(1, &[block(1, 5, 1), block(2, 5, 1)]), file(1, &[block(1, 5, 1)]));
    blocks.changed(FILE, None, Some(&two));
    blocks.changed(FILE, Some(&two), Some(&one));
    assert_eq!((blocks.inode(BlockId(1)), blocks.inode(BlockId(2))), (Some(FILE), None));
    assert_eq!(blocks.take_unwanted(), [BlockId(2)]);
    assert_eq!(blocks.take_unwanted(), []);
    assert_eq!((blocks.len(), damaged(&blocks)), (1, vec![(BlockId(1), FILE, true)]));
    blocks.received(replica(1, 5, 1));
    assert_eq!(damaged(&blocks), []);
    blocks.found_corrupt(BlockId(1), Holder::HERE);
    assert_eq!(damaged(&blocks), [(BlockId(1), FILE, false)]);
    assert_eq!(blocks.places(&block(1, 5, 1)), [Place::HERE], "there is no other");
}

#[test]
fn a_new_block_is_written_here_and_at_others_that_are_there_and_have_room() {
    let mut world = World::with(3);
    let chosen = |world: &World, id: u64, replication, without: &[u16]| -> Vec<u16> {
        let without: Vec<Holder> = without.iter().copied().map(Holder).collect();
        world.blocks.choose(BlockId(id), 1_000, replication, &without).iter().map(|place| place.holder.0).collect()
    };
    assert_eq!(chosen(&world, 3, 1, &[]), [0], "here first");
    assert_eq!(
        chosen(&world, 3, 3, &[]),
        [1, 2, 0],
        "the one here sends nothing on, so it is the last of the pipeline"
    );
    assert_eq!(chosen(&world, 4, 3, &[]), [2, 3, 0], "each in its turn");
    assert_eq!(chosen(&world, 3, 9, &[]).len(), 4, "as many as there are");
    assert_eq!(chosen(&world, 3, 2, &[0]), [1, 2]);
    assert_eq!(chosen(&world, 3, 3, &[0, 1, 2, 3]), [] as [u16; 0]);
    world.pass(40_000, &[1]);
    assert_eq!(chosen(&world, 3, 9, &[]).len(), 3, "who is silent is not asked");
    let full = StorageFigures { id: "disk".to_owned(), remaining: 999, ..StorageFigures::default() };
    world.blocks.heard(Holder(2), Heartbeat { storages: vec![full], ..Heartbeat::default() });
    assert_eq!(chosen(&world, 3, 9, &[]), [3, 0], "nor who has no room");
    assert_eq!(world.blocks.choose(BlockId(3), 1_000, 0, &[]), [Place::HERE], "one replica at least");
}

#[test]
fn a_data_node_that_is_silent_is_asked_last_and_dead_at_last() {
    let mut world = World::with(2);
    let one = block(1, 5, 100);
    world.change(None, Some(&file(2, &[one])));
    for number in [1, 2] {
        let place = world.place(number);
        world.blocks.held(place, replica(1, 5, 100), true);
    }
    let places = |world: &World| world.blocks.places(&one).iter().map(|place| place.holder.0).collect::<Vec<_>>();
    assert_eq!(places(&world), [1, 2]);
    world.pass(30_001, &[1]);
    assert_eq!((places(&world), world.blocks.nodes.liveness(Holder(1))), (vec![2, 1], Liveness::Stale));
    world.pass(600_000, &[1]);
    assert_eq!((places(&world), world.blocks.nodes.liveness(Holder(1))), (vec![2], Liveness::Dead));
    assert_eq!(world.beat(Holder(1)), None, "it has to say who it is");
    world.join(1);
    let place = world.place(1);
    world.report(place, &[replica(1, 5, 100)]);
    assert_eq!(places(&world), [1, 2], "it brings its replicas back");
}

#[test]
fn replicas_that_are_lost_are_made_anew() {
    let mut world = World::with(2);
    let one = block(1, 5, 100);
    world.change(None, Some(&file(2, &[one])));
    world.blocks.received(replica(1, 5, 100));
    let place = world.place(1);
    world.blocks.held(place, replica(1, 5, 100), true);
    world.look();
    assert_eq!((world.blocks.low(), world.duties(1).copies, world.duties(2).copies), (0, vec![], vec![]));
    world.pass(700_000, &[1]);
    world.look();
    assert_eq!(world.blocks.low(), 1);
    let copies = world.blocks.take_copies_here();
    assert_eq!(copies.iter().map(|copy| (copy.block.id.0, copy.to.holder.0)).collect::<Vec<_>>(), [(1, 2)]);
    world.look();
    assert_eq!(world.blocks.take_copies_here(), [], "it is under way");
    world.pass(400_000, &[1]);
    world.look();
    assert_eq!(world.blocks.take_copies_here(), [], "it did not come; there is a pause");
    world.pass(6_000, &[1]);
    world.look();
    assert_eq!(world.blocks.take_copies_here().len(), 1);
    let place = world.place(2);
    world.blocks.held(place, replica(1, 5, 100), true);
    world.look();
    assert_eq!((world.blocks.low(), world.holders(&one)), (0, vec![0, 2]));
}

#[test]
fn what_is_lost_here_is_sent_by_others() {
    let mut world = World::with(1);
    let one = block(1, 5, 100);
    world.change(None, Some(&file(2, &[one])));
    let place = world.place(1);
    world.blocks.held(place, replica(1, 5, 100), true);
    world.look();
    let withheld = world.blocks.duties(Holder(1), None);
    assert_eq!(withheld, Duties::default(), "nothing is sent in safe mode");
    let copies = world.duties(1).copies;
    assert_eq!(copies.iter().map(|copy| copy.to).collect::<Vec<_>>(), [Place::HERE]);
    world.blocks.received(replica(1, 5, 100));
    world.look();
    assert_eq!((world.blocks.low(), world.duties(1)), (0, Duties::default()));
}

#[test]
fn one_replica_at_a_time_and_of_a_data_node_so_many_at_once() {
    let mut world = World::with(1);
    let blocks: Vec<Block> = (1..=9).map(|id| block(id, 5, 100)).collect();
    world.change(None, Some(&file(2, &blocks)));
    let place = world.place(1);
    for id in 1..=9 {
        world.blocks.held(place, replica(id, 5, 100), true);
    }
    world.look();
    let first = world.duties(1).copies.len();
    assert_eq!((first, world.duties(1).copies.len()), (4, 0), "the others wait");
    for id in 1..=9 {
        world.blocks.received(replica(id, 5, 100));
    }
    world.look();
    assert_eq!(world.blocks.low(), 0);
}

#[test]
fn a_file_that_was_just_closed_is_given_time_to_be_reported() {
    let mut world = World::with(1);
    let (open, closed) = (written(2, &[block(1, 5, 0)]), file(2, &[block(1, 5, 100)]));
    world.change(None, Some(&open));
    let places = world.blocks.choose(BlockId(1), 100, 2, &[]);
    world.blocks.written_by(BlockId(1), places.clone(), true);
    assert_eq!(world.blocks.pipeline(BlockId(1)), places);
    world.blocks.received(replica(1, 5, 100));
    world.look();
    assert_eq!(world.blocks.take_copies_here(), [], "who writes it sees to its replicas");
    world.change(Some(&open), Some(&closed));
    world.look();
    assert_eq!(world.blocks.take_copies_here(), []);
    world.pass(6_000, &[]);
    world.look();
    assert_eq!(world.blocks.take_copies_here().len(), 1);
}

#[test]
fn what_is_too_much_is_removed_elsewhere_once_the_log_says_so() {
    let mut world = World::with(3);
    let one = block(1, 5, 100);
    let (three, two) = (file(3, &[one]), file(1, &[one]));
    world.change(None, Some(&three));
    world.blocks.received(replica(1, 5, 100));
    for number in [1, 2] {
        let place = world.place(number);
        world.blocks.held(place, replica(1, 5, 100), true);
    }
    world.look();
    world.change(Some(&three), Some(&two));
    world.look();
    let early = world.blocks.duties(Holder(1), Some(Txid(world.txid - 1)));
    assert_eq!(early, Duties::default(), "a crash would bring the wish for three back");
    assert_eq!(world.holders(&one), [0], "who asks is not sent there any more");
    assert_eq!(world.duties(1).removals, [(BlockId(1), Stamp(5))]);
    assert_eq!(world.duties(2).removals, [(BlockId(1), Stamp(5))]);
    assert_eq!((world.holders(&one), world.duties(1), world.blocks.leaving()), (vec![0], Duties::default(), 0));
    let place = world.place(1);
    world.blocks.held(place, replica(1, 5, 100), true);
    assert_eq!(world.holders(&one), [0], "it says what it had before it was told");
    world.blocks.lost(place, BlockId(1), Some(Stamp(5)));
    world.blocks.held(place, replica(1, 5, 100), true);
    assert_eq!(world.holders(&one), [0, 1], "it has done it, and has it again");
}

#[test]
fn what_is_too_much_is_not_removed_if_others_were_lost_meanwhile() {
    let mut world = World::with(2);
    let one = block(1, 5, 100);
    let (two, single) = (file(2, &[one]), file(1, &[one]));
    world.change(None, Some(&two));
    for number in [1, 2] {
        let place = world.place(number);
        world.blocks.held(place, replica(1, 5, 100), true);
    }
    world.change(Some(&two), Some(&single));
    world.look();
    assert_eq!(world.blocks.leaving(), 1);
    let stays = world.holders(&one)[0];
    let place = world.place(stays);
    world.blocks.lost(place, BlockId(1), None);
    assert_eq!(world.duties(3 - stays).removals, [], "it is the last one");
    assert_eq!(world.holders(&one), [3 - stays]);
}

#[test]
fn replicas_of_a_data_node_that_has_not_reported_do_not_count_for_removals() {
    let mut world = World::with(2);
    let one = block(1, 5, 100);
    let (two, single) = (file(2, &[one]), file(1, &[one]));
    world.change(None, Some(&two));
    for number in [1, 2] {
        let place = world.place(number);
        world.blocks.held(place, replica(1, 5, 100), true);
    }
    // It has begun anew, perhaps without its disk.
    world.blocks.register(Registration { uuid: "node 1".to_owned(), ..Registration::default() });
    world.change(Some(&two), Some(&single));
    world.look();
    assert_eq!(world.blocks.leaving(), 0);
    let place = world.place(1);
    world.report(place, &[replica(1, 5, 100)]);
    world.look();
    assert_eq!(world.blocks.leaving(), 1);
}

#[test]
fn what_a_machine_lost_that_had_reported_it_does_not_count() {
    let mut world = World::with(2);
    let one = block(1, 6, 100);
    let (two, single) = (file(2, &[one]), file(1, &[one]));
    world.change(None, Some(&two));
    for number in [1, 2] {
        let place = world.place(number);
        world.blocks.held(place, replica(1, 6, 100), true);
    }
    // Its generation was not on its disk yet.
    world.blocks.register(Registration { uuid: "node 1".to_owned(), ..Registration::default() });
    let place = world.place(1);
    world.report(place, &[replica(1, 5, 60)]);
    world.look();
    assert_eq!((world.holders(&one), world.blocks.low(), world.duties(2).copies.len()), (vec![2], 1, 1));
    world.change(Some(&two), Some(&single));
    world.look();
    assert_eq!(world.duties(2).removals, [], "it is the only one");
}

#[test]
fn what_a_deleted_file_had_is_removed_once_the_log_says_so() {
    let mut world = World::with(1);
    let one = file(2, &[block(1, 5, 100)]);
    world.change(None, Some(&one));
    world.blocks.received(replica(1, 5, 100));
    let place = world.place(1);
    world.blocks.held(place, replica(1, 5, 100), true);
    world.change(Some(&one), None);
    assert_eq!(world.blocks.take_unwanted(), [BlockId(1)]);
    let early = world.blocks.duties(Holder(1), Some(Txid(world.txid - 1)));
    assert_eq!(early, Duties::default(), "a crash would bring the file back");
    assert_eq!(world.blocks.duties(Holder(1), None), Duties::default(), "in safe mode nothing is removed");
    assert_eq!(world.duties(1).removals, [(BlockId(1), Stamp(5))]);
    assert!(world.blocks.is_empty());
}

#[test]
fn what_is_unknown_stays_until_somebody_says_that_there_is_no_file() {
    let mut world = World::with(1);
    let place = world.place(1);
    world.report(place, &[replica(1, 5, 100), replica(2, 5, 100)]);
    world.look();
    assert_eq!(world.duties(1), Duties::default());
    assert_eq!(world.unchecked(), [BlockId(1), BlockId(2)]);
    assert_eq!(world.unchecked(), []);
    // The file of one is read.
    world.change(None, Some(&file(1, &[block(1, 5, 100)])));
    assert!(world.blocks.has(&block(1, 5, 100)));
    world.blocks.forget(&[BlockId(2)]);
    let early = world.blocks.duties(Holder(1), Some(Txid(world.txid - 1)));
    assert_eq!(early, Duties::default(), "what says that there is none may not be durable");
    assert_eq!(world.duties(1).removals, [(BlockId(2), Stamp(5))]);
    world.report(place, &[replica(1, 5, 100)]);
    world.blocks.check_again([BlockId(1)]);
    assert_eq!(world.unchecked(), [], "it has a file");
}

#[test]
fn what_is_newer_than_anything_that_was_given_stays() {
    let mut world = World::with(1);
    let place = world.place(1);
    world.report(place, &[replica(101, 5, 1), replica(5, 101, 1), replica(6, 100, 1)]);
    assert_eq!((world.unchecked(), world.blocks.newer()), (vec![BlockId(6)], 2), "the log is that of a backup");
    world.report(place, &[replica(6, 100, 1)]);
    assert_eq!(world.blocks.newer(), 0);
}

#[test]
fn what_a_file_that_is_not_here_any_more_has_is_looked_after_all_the_same() {
    let mut world = World::with(2);
    let one = block(1, 5, 100);
    world.change(None, Some(&file(2, &[one])));
    world.blocks.received(replica(1, 5, 100));
    world.blocks.given_up(FILE, &[one]);
    assert_eq!(world.blocks.inode(BlockId(1)), None);
    world.look();
    assert_eq!(world.blocks.take_copies_here().len(), 1);
    let place = world.place(1);
    world.blocks.held(place, replica(1, 5, 100), true);
    assert_eq!(world.unchecked(), [], "it is known that there is a file");
}

#[test]
fn a_report_of_all_says_what_is_lost() {
    let mut world = World::with(1);
    let both = [block(1, 5, 100), block(2, 5, 100)];
    world.change(None, Some(&file(1, &both)));
    let place = world.place(1);
    world.report(place, &[replica(1, 5, 100), replica(2, 5, 100)]);
    assert_eq!(world.damaged(), []);
    world.report(place, &[replica(2, 5, 100)]);
    assert_eq!(world.damaged(), [(BlockId(1), FILE, true)]);
    world.blocks.lost(place, BlockId(2), Some(Stamp(4)));
    assert!(world.blocks.has(&both[1]), "what is removed late is of an older generation");
}

#[test]
fn damaged_replicas_are_replaced_and_removed_when_there_are_enough_good_ones() {
    let mut world = World::with(3);
    let one = block(1, 5, 100);
    world.change(None, Some(&file(2, &[one])));
    for number in [1, 2] {
        let place = world.place(number);
        world.blocks.held(place, replica(1, 5, 100), true);
    }
    world.blocks.found_corrupt(BlockId(1), Holder(1));
    assert_eq!((world.holders(&one), world.blocks.is_corrupt(BlockId(1))), (vec![2], false));
    world.look();
    assert_eq!(world.duties(1).removals, [], "there are too few good ones");
    let copies = world.duties(2).copies;
    assert_eq!(copies.iter().map(|copy| copy.to.holder.0).collect::<Vec<_>>(), [0]);
    world.blocks.received(replica(1, 5, 100));
    world.look();
    assert_eq!(world.duties(1).removals, [(BlockId(1), Stamp(5))]);
    // Whoever says that all are damaged has none of them removed.
    for number in [0, 2] {
        world.blocks.found_corrupt(BlockId(1), Holder(number));
    }
    world.look();
    assert_eq!((world.duties(2), world.here()), (Duties::default(), vec![]));
    assert!(world.blocks.is_corrupt(BlockId(1)));
    assert_eq!(world.holders(&one), [0, 2], "better than nothing");
}

#[test]
fn a_damaged_replica_gives_its_place_to_a_good_one_if_there_is_no_other() {
    let mut world = World::with(1);
    let one = block(1, 5, 100);
    world.change(None, Some(&file(2, &[one])));
    world.blocks.received(replica(1, 5, 100));
    let place = world.place(1);
    world.blocks.held(place, replica(1, 5, 100), true);
    world.blocks.found_corrupt(BlockId(1), Holder(1));
    world.look();
    assert_eq!(world.duties(1).removals, [], "that here is compared first: it would be the last one");
    assert_eq!((world.here(), world.blocks.compared_here(BlockId(1), true)), (vec![BlockId(1)], None));
    world.look();
    assert_eq!(world.duties(1).removals, [(BlockId(1), Stamp(5))]);
    world.blocks.lost(place, BlockId(1), Some(Stamp(5)));
    world.look();
    assert_eq!(world.blocks.take_copies_here().len(), 1);
    world.blocks.held(place, replica(1, 5, 100), true);
    world.look();
    assert_eq!(world.holders(&one), [0, 1]);
    // And the same here, which is compared before it goes.
    let doubt = |world: &mut World| {
        world.blocks.found_corrupt(BlockId(1), Holder::HERE);
        world.look();
        assert_eq!(world.here(), [BlockId(1)]);
    };
    doubt(&mut world);
    assert_eq!(world.blocks.compared_here(BlockId(1), true), None, "who said so was wrong");
    assert_eq!(world.holders(&one), [0, 1]);
    doubt(&mut world);
    world.blocks.lost(place, BlockId(1), None);
    assert_eq!(world.blocks.compared_here(BlockId(1), false), None, "the other one was lost meanwhile");
    world.blocks.held(place, replica(1, 5, 100), true);
    doubt(&mut world);
    assert_eq!(world.blocks.compared_here(BlockId(1), false), Some(Stamp(5)));
    assert_eq!(world.holders(&one), [1], "it does not count any more");
    world.look();
    assert_eq!(world.duties(1).copies.len(), 1, "it is brought back");
    world.blocks.received(replica(1, 6, 100));
    assert_eq!(world.blocks.compared_here(BlockId(1), false), None, "it has another generation by now");
}

#[test]
fn damaged_replicas_stay_while_it_is_not_known_what_others_have() {
    let mut world = World::with(2);
    let one = block(1, 5, 100);
    world.change(None, Some(&file(1, &[one])));
    for number in [1, 2] {
        let place = world.place(number);
        world.blocks.held(place, replica(1, 5, 100), true);
    }
    world.blocks.register(Registration { uuid: "node 2".to_owned(), ..Registration::default() });
    world.blocks.found_corrupt(BlockId(1), Holder(1));
    world.look();
    assert_eq!(world.blocks.leaving(), 0);
    let place = world.place(2);
    world.report(place, &[replica(1, 5, 100)]);
    world.look();
    assert_eq!(world.duties(1).removals, [(BlockId(1), Stamp(5))]);
}

#[test]
fn replicas_of_older_generations_do_not_count_and_go() {
    let mut world = World::with(2);
    let one = block(1, 6, 120);
    world.change(None, Some(&file(2, &[one])));
    world.blocks.received(replica(1, 6, 120));
    let (first, second) = (world.place(1), world.place(2));
    world.blocks.held(first, replica(1, 5, 100), true);
    assert_eq!(world.holders(&one), [0]);
    world.look();
    assert_eq!(world.duties(1).removals, [], "not before there are enough");
    world.blocks.held(second, replica(1, 6, 120), true);
    world.look();
    assert_eq!(world.duties(1).removals, [(BlockId(1), Stamp(5))]);
    world.blocks.held(second, replica(1, 5, 100), true);
    world.blocks.held(second, replica(1, 6, 120), false);
    assert_eq!(world.holders(&one), [0, 2], "what comes late says nothing");
}

#[test]
fn so_many_data_nodes_report_at_once() {
    let mut world = World::with(8);
    let ask = |world: &mut World, number: u16| {
        world.blocks.heard(Holder(number), Heartbeat { wants_to_report: true, ..Heartbeat::default() }).unwrap()
    };
    let leases: Vec<u64> = (1..=8).map(|number| ask(&mut world, number)).collect();
    assert_eq!(leases, [1, 2, 3, 4, 5, 6, 0, 0]);
    assert_eq!(ask(&mut world, 3), 3, "the same again");
    assert!(world.blocks.nodes.may_report(Holder(3), 3) && world.blocks.nodes.may_report(Holder(7), 0));
    assert!(!world.blocks.nodes.may_report(Holder(3), 2), "that of another");
    world.blocks.all_reported(Holder(3));
    assert!(!world.blocks.nodes.may_report(Holder(3), 3), "it has done so");
    assert_eq!(ask(&mut world, 7), 7);
    world.pass(301_000, &[]);
    assert!(!world.blocks.nodes.may_report(Holder(4), 4), "it took too long");
    assert_eq!(ask(&mut world, 8), 8);
}

#[test]
fn those_that_were_there_before_are_waited_for() {
    let mut world = World::new();
    world.blocks.nodes.await_all(["node 1".to_owned(), "node 2".to_owned()], NEWEST);
    world.join(1);
    assert_eq!(world.blocks.nodes.awaited().iter().collect::<Vec<_>>(), ["node 2"]);
    world.blocks.await_nobody();
    assert!(world.blocks.nodes.awaited().is_empty());
}

#[test]
fn nobody_was_silent_while_this_process_was_stopped() {
    let mut world = World::with(1);
    world.blocks.advance(Millis(3_600_000));
    assert_eq!((world.blocks.bury(NEWEST), world.blocks.nodes.liveness(Holder(1))), (vec![], Liveness::Live));
    world.now = 3_600_000;
    world.pass(31_000, &[1]);
    assert_eq!(world.blocks.nodes.liveness(Holder(1)), Liveness::Stale);
}

#[test]
fn a_storage_that_is_not_there_any_more_has_nothing() {
    let mut world = World::with(1);
    let both = [block(1, 5, 100), block(2, 5, 100)];
    world.change(None, Some(&file(1, &both)));
    let disk = world.place(1);
    let lost = world.blocks.storage(Holder(1), "lost", 1).unwrap();
    world.blocks.held(disk, replica(1, 5, 100), true);
    world.blocks.held(lost, replica(2, 5, 100), true);
    assert!(world.blocks.has(&both[1]));
    // Its disk fails while it runs.
    world.beat(Holder(1));
    assert!(world.blocks.has(&both[0]) && !world.blocks.has(&both[1]));
    // Or it begins anew without it.
    world.blocks.held(lost, replica(2, 5, 100), true);
    world.blocks.register(Registration { uuid: "node 1".to_owned(), ..Registration::default() });
    world.report(disk, &[replica(1, 5, 100)]);
    assert!(world.blocks.has(&both[0]) && !world.blocks.has(&both[1]));
    assert!(world.blocks.nodes.is_sure(Holder(1)));
}

#[test]
fn who_has_not_reported_yet_is_sent_nothing() {
    let mut world = World::new();
    let one = block(1, 5, 100);
    world.change(None, Some(&file(2, &[one])));
    world.blocks.received(replica(1, 5, 100));
    world.blocks.register(Registration { uuid: "node 1".to_owned(), ..Registration::default() }).unwrap();
    world.beat(Holder(1));
    world.blocks.received(replica(1, 5, 100));
    world.look();
    assert_eq!(world.blocks.take_copies_here(), [], "it may have it");
    let place = world.place(1);
    world.report(place, &[]);
    world.look();
    assert_eq!(world.blocks.take_copies_here().len(), 1);
}

#[test]
fn who_has_much_to_send_is_given_no_more_and_who_failed_is_asked_last() {
    let mut world = World::with(2);
    let blocks: Vec<Block> = (1..=5_000).map(|id| block(id, 5, 100)).collect();
    world.change(None, Some(&file(3, &blocks)));
    let place = world.place(1);
    for id in 1..=5_000 {
        world.blocks.received(replica(id, 5, 100));
        world.blocks.held(place, replica(id, 5, 100), true);
    }
    world.look();
    assert_eq!((world.blocks.copies.len(), world.blocks.low()), (16, 5_000));
    let first = world.blocks.take_copies_here();
    assert_eq!((first.len(), world.blocks.take_copies_here().len()), (4, 4), "a few at a time");
    // It could not be sent from here: the other one is asked.
    let failed = first[0].block.id;
    world.blocks.not_copied(failed);
    world.look();
    assert!(!world.blocks.copies.contains_key(&failed), "there is a pause");
    let target = world.place(2);
    for _ in 0..100 {
        for id in world.blocks.copies.keys().copied().filter(|id| *id != failed).collect::<Vec<_>>() {
            world.blocks.held(target, Replica { block: id, stamp: Stamp(5), length: 100 }, true);
        }
        world.pass(1_000, &[]);
        world.look();
    }
    assert_eq!(world.blocks.copies[&failed].from, Holder(1));
    assert!(world.blocks.low() < 4_500, "others have had their turn");
}

#[test]
fn what_a_data_node_only_began_keeps_no_place() {
    let mut world = World::with(1);
    let one = block(1, 6, 100);
    world.change(None, Some(&file(2, &[one])));
    world.blocks.received(replica(1, 6, 100));
    let place = world.place(1);
    for (stamp, state) in [(5, State::Begun), (5, State::Left), (6, State::Left)] {
        world.blocks.held_as(place, replica(1, stamp, 40), state);
        world.look();
        assert_eq!(world.here(), [BlockId(1)]);
        world.blocks.compared_here(BlockId(1), true);
        world.look();
        assert_eq!(world.duties(1).removals, [(BlockId(1), Stamp(stamp))], "{state:?}");
        world.blocks.lost(place, BlockId(1), Some(Stamp(stamp)));
        world.look();
        assert_eq!(world.blocks.take_copies_here().len(), 1, "{state:?}");
        world.blocks.copied(BlockId(1), Holder(1));
    }
    world.blocks.held_as(place, replica(1, 6, 40), State::Begun);
    world.look();
    assert_eq!((world.here(), world.duties(1).removals), (vec![], vec![]), "it may be a copy that comes");
}

#[test]
fn what_was_said_before_a_registration_does_not_count_behind_it() {
    let mut world = World::with(1);
    let before = world.blocks.nodes.registered(Holder(1));
    world.pass(700_000, &[1]);
    let place = world.place(1);
    world.change(None, Some(&file(1, &[block(1, 5, 100)])));
    world.blocks.held(place, replica(1, 5, 100), true);
    assert!(!world.blocks.has(&block(1, 5, 100)), "it is dead");
    world.join(1);
    assert!(world.blocks.nodes.registered(Holder(1)) > before);
    // It has another process by now.
    let (uuid, connection) = ("node 1".to_owned(), 7);
    world.blocks.register(Registration { uuid, connection, ..Registration::default() });
    assert_eq!([6, 7, 8].map(|connection| world.blocks.nodes.is_late(Holder(1), connection)), [true, false, false]);
}

#[test]
fn names_and_storages_have_bounds() {
    let mut world = World::with(1);
    let long = "x".repeat(257);
    assert_eq!(world.blocks.register(Registration { uuid: long.clone(), ..Registration::default() }), None);
    assert_eq!(world.blocks.storage(Holder(1), &long, 1), None);
    for number in 1..512 {
        assert!(world.blocks.storage(Holder(1), &number.to_string(), 1).is_some());
    }
    assert_eq!(world.blocks.storage(Holder(1), "one more", 1), None);
}

#[test]
fn one_block_of_a_thousand_may_be_missing() {
    let mut world = World::with(1);
    let blocks: Vec<Block> = (1..=1_000).map(|id| block(id, 5, 1)).collect();
    assert!(world.blocks.are_enough(), "there is none");
    world.change(None, Some(&file(1, &blocks)));
    let place = world.place(1);
    for id in 1..=998 {
        world.blocks.held(place, replica(id, 5, 1), true);
    }
    assert!(!world.blocks.are_enough());
    world.blocks.held(place, replica(999, 5, 1), true);
    assert!(world.blocks.are_enough());
}

#[test]
fn that_a_replica_was_compared_counts_when_it_is_looked_at_next_and_not_for_long() {
    let mut world = World::with(1);
    world.change(None, Some(&file(2, &[block(1, 5, 100)])));
    world.blocks.received(replica(1, 5, 100));
    let place = world.place(1);
    world.blocks.held(place, replica(1, 5, 100), true);
    let compared = |world: &mut World| {
        world.look();
        assert_eq!((world.here(), world.duties(1).removals), (vec![BlockId(1)], vec![]));
        world.blocks.compared_here(BlockId(1), true);
    };
    // Somebody was wrong, a while ago.
    world.blocks.found_corrupt(BlockId(1), Holder::HERE);
    compared(&mut world);
    world.look();
    world.blocks.found_corrupt(BlockId(1), Holder(1));
    compared(&mut world);
    world.pass(61_000, &[]);
    compared(&mut world);
    world.look();
    assert_eq!(world.duties(1).removals, [(BlockId(1), Stamp(5))]);
}
