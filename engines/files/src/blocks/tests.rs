use super::*;
use crate::change::{Counters, RECOVERY, Unfinished, Writer};
use crate::operation::Recovery;

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
        let mut known = self.blocks.known(place);
        for replica in replicas {
            known.remove(&replica.block);
            self.blocks.held(place, *replica, true);
        }
        known.into_iter().for_each(|block| self.blocks.lost(place, block, None));
        self.blocks.has_reported(place);
        self.blocks.all_reported(place.holder);
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

    /// The numbers of the data nodes that have all of a block.
    fn holders(&self, block: &Block) -> Vec<u16> {
        let mut holders: Vec<u16> = self.blocks.places(block).iter().map(|place| place.holder.0).collect();
        holders.sort_unstable();
        holders
    }
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
    assert_eq!((blocks.len(), blocks.damaged().collect::<Vec<_>>()), (1, vec![(BlockId(1), FILE, true)]));
    blocks.received(replica(1, 5, 1));
    assert_eq!(blocks.damaged().next(), None);
    blocks.found_corrupt(BlockId(1), Holder::HERE);
    assert_eq!(blocks.damaged().collect::<Vec<_>>(), [(BlockId(1), FILE, false)]);
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
    world.blocks.written_by(BlockId(1), places.clone());
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
    assert_eq!(world.blocks.damaged().next(), None);
    world.report(place, &[replica(2, 5, 100)]);
    assert_eq!(world.blocks.damaged().collect::<Vec<_>>(), [(BlockId(1), FILE, true)]);
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
    world.blocks.written_by(BlockId(1), places);
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
    world.blocks.written_by(BlockId(1), vec![Place::HERE]);
    assert_eq!(world.blocks.close(recovery(6, Some(5), None), None), Ended::Here, "it was never begun");
    world.change(None, Some(&written(1, &[block(1, 5, 10)])));
    let place = world.place(1);
    world.blocks.written_by(BlockId(1), vec![place, Place::HERE]);
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
        world.blocks.written_by(BlockId(1), places);
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
        world.blocks.written_by(BlockId(1), places);
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
    for silence in [5_000, 40_000] {
        let mut world = closing(0, silence);
        assert_eq!(world.blocks.close(none(7, 0), None), Ended::Elsewhere);
        assert_eq!(world.duties(2).recoveries.len(), 1);
        assert!(world.blocks.nobody_has(BlockId(1)));
    }
    let mut world = closing(0, 700_000);
    assert_eq!(world.blocks.close(none(7, 0), None), Ended::Nobody, "it is dead, and may come back with some");
    assert!(!world.blocks.nobody_has(BlockId(1)));
    // Some were acknowledged: those who wrote them have them no more, and what is left has to do.
    let mut world = closing(10, 5_000);
    assert_eq!(world.blocks.close(none(7, 10), None), Ended::Elsewhere);
    assert!(!world.blocks.nobody_has(BlockId(1)));
    assert_eq!(world.blocks.close(none(8, 10), None), Ended::Elsewhere);
    assert_eq!(world.duties(3).recoveries[0].block.stamp, Stamp(4));
}

#[test]
fn a_data_node_is_named_once_in_an_order_where_it_says_that_it_has_the_block() {
    let mut world = World::with(1);
    world.change(None, Some(&written(2, &[block(1, 5, 10)])));
    let (chosen, other) = (world.place(1), world.blocks.storage(Holder(1), "other", 1).unwrap());
    world.blocks.written_by(BlockId(1), vec![chosen, Place::HERE]);
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
    assert_eq!(world.blocks.close(none(10), begun(5)), Ended::Elsewhere);
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
