//! Files whose writers have gone while data nodes are away that have more of them than the one in the process, over the ends of processes.

use savanna_files::blocks::{Heartbeat, Liveness, RecoveryOrder, Registration, State as ReplicaState, StorageFigures};
use savanna_files::ids::Stamp;
use savanna_files::request::LocatedBlock;

use super::super::nodes::{Orders, Report, Told};
use super::*;

pub(super) const NODE: &str = "node 1";
pub(super) const DISK: &str = "disk";

impl Running {
    /// A data node joins, and says what it writes.
    pub(super) fn join(&self, begun: &[Replica]) {
        let registration =
            Registration { uuid: NODE.to_owned(), address: "127.0.0.1".to_owned(), ..Registration::default() };
        self.files.register_node(registration).unwrap();
        let orders = self.beat();
        let replicas = begun.iter().map(|replica| (*replica, ReplicaState::Begun)).collect();
        let report = Report { storage: DISK.to_owned(), kind: 1, replicas };
        self.files.node_reports(NODE, orders.lease, vec![report], true).unwrap();
    }

    /// The data node ends a block as it is told to.
    fn end(&self, length: u64) -> RecoveryOrder {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            assert!(Instant::now() < end, "it is not told to end it");
            // The one that upkeep begins when the process begins may come in between.
            self.close_left().unwrap();
            let Some(order) = self.beat().duties.recoveries.pop() else { continue };
            let (block, stamp) = (order.block.id, order.stamp);
            assert!(self.files.synchronized(block, stamp, None, &[]).is_err(), "it has some");
            if self.files.synchronized(block, stamp, Some(length), &order.places).is_ok() {
                return order;
            }
        }
    }

    pub(super) fn beat(&self) -> Orders {
        let storage = StorageFigures { id: DISK.to_owned(), kind: 1, remaining: 1 << 40, ..StorageFigures::default() };
        let heartbeat = Heartbeat { storages: vec![storage], wants_to_report: true, ..Heartbeat::default() };
        self.files.node_heard(NODE, heartbeat).unwrap().unwrap()
    }

    /// Begins anew to close what is to be closed.
    fn close_left(&self) -> Result<(), Unanswered> {
        self.files.close_all_left(|namespace, _| namespace.leases.all_files().collect())
    }

    /// Nobody waits any more for who was there before.
    fn wait_for_nobody(&self) {
        let asker = Asker { user: "root", machine: "127.0.0.1", call: None };
        self.files.safe_mode(&asker, Some(false)).unwrap();
    }

    fn add(&self, file: &Written, without: &[Holder]) -> LocatedBlock {
        let request = Request::AddBlock { file: file.clone(), previous: None, excluded: without.to_vec() };
        let Ok(Reply::Block(located)) = self.call(&request) else { panic!("no block") };
        located
    }

    fn is_open(&self, file: &Written) -> bool {
        !self.files.is_closed(file.id.unwrap()).unwrap()
    }

    /// The data node is silent for too long.
    fn let_go(&self) {
        self.files.0.state.write().namespace.blocks.nodes.silence.dead = 0;
        std::thread::sleep(Duration::from_millis(2));
        self.files.tend_nodes().unwrap();
        assert_eq!(self.files.nodes()[0].liveness, Liveness::Dead);
    }
}

/// The data node here missed a generation; who has it is away when the process ends, and the next one waits in vain.
#[test]
fn a_file_waits_for_the_newest_generation_also_behind_a_restart() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    running.join(&[]);
    let file = running.create("/f");
    let block = running.add(&file, &[]).block;
    let mut writer = running.files.replicas().begin(block.id, block.stamp, 512).unwrap();
    writer.write(0, b"so far", &[]).unwrap();
    let client = "writer".to_owned();
    let Ok(Reply::Block(new)) = running.call(&Request::NewStamp { block, client: client.clone() }) else {
        panic!("no generation")
    };
    let new = BlockName { length: 2, ..new.block };
    let names = [(NODE, DISK), ("nobody", DISK)];
    let places_of = |count: usize| running.files.places_of(names.into_iter().take(count), "here");
    let ((places, are_all), in_part) = (places_of(1), places_of(2));
    assert_eq!(in_part, (places.clone(), false), "who is not known yet is missing");
    let request = Request::UpdatePipeline { client, old: block, new, places, are_all };
    assert_eq!((are_all, running.call(&request)), (true, Ok(Reply::Done)));
    running.let_go();
    running.files.leave(file.id.unwrap(), "writer").unwrap();
    assert!(running.is_open(&file));
    running.stop();
    for epoch in 2..4 {
        let running = opened(&disk, folder.path(), epoch);
        running.wait_for_nobody();
        running.close_left().unwrap();
        assert!(running.is_open(&file), "what is here is older than what was acknowledged");
        running.stop();
    }
    let running = opened(&disk, folder.path(), 4);
    let whole = Replica { block: block.id, stamp: new.stamp, length: 9 };
    running.join(&[whole]);
    let order = running.end(9);
    assert_eq!((order.block.stamp, order.places.len()), (new.stamp, 1));
    assert_eq!((running.is_open(&file), running.length("/f")), (false, Some(9)));
    running.stop();
}

/// Nothing was written here, and who wrote is dead when the process ends.
#[test]
fn a_block_that_only_the_dead_have_stays_also_behind_a_restart() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    running.join(&[]);
    let file = running.create("/f");
    let located = running.add(&file, &[Holder::HERE]);
    assert_eq!(located.places.len(), 1);
    let begun = Replica { block: located.block.id, stamp: located.block.stamp, length: 7 };
    running.files.node_tells(NODE, DISK, 1, &[Told::Begun(begun)]).unwrap();
    running.let_go();
    running.files.leave(file.id.unwrap(), "writer").unwrap();
    running.stop();
    for epoch in 2..4 {
        let running = opened(&disk, folder.path(), epoch);
        running.close_left().unwrap();
        assert!(running.is_open(&file) && running.files.nodes().is_empty(), "nobody is waited for");
        running.stop();
    }
    let running = opened(&disk, folder.path(), 4);
    running.join(&[begun]);
    assert_eq!(running.end(7).places.len(), 1);
    assert_eq!((running.is_open(&file), running.length("/f")), (false, Some(7)));
    running.stop();
}

/// Those that were there before are given up: what has all of a block is not waited for.
#[test]
fn a_file_is_closed_when_nobody_is_waited_for_any_more() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("nodes"), format!("{NODE}\n")).unwrap();
    let running = opened(&disk, folder.path(), 1);
    let file = running.create("/f");
    let block = running.add(&file, &[]).block;
    let mut writer = running.files.replicas().begin(block.id, block.stamp, 512).unwrap();
    writer.write(0, b"so far", &[]).unwrap();
    running.files.leave(file.id.unwrap(), "writer").unwrap();
    running.files.tend_nodes().unwrap();
    assert!(running.is_open(&file), "who is waited for may have more");
    running.wait_for_nobody();
    until(|| !running.is_open(&file));
    assert_eq!(running.length("/f"), Some(6));
    running.stop();
}

/// Less is left than was acknowledged.
#[test]
fn what_is_left_of_a_file_that_cannot_be_closed_is_read() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    let file = running.create("/f");
    let block = running.add(&file, &[]).block;
    let mut writer = running.files.replicas().begin(block.id, block.stamp, 512).unwrap();
    writer.write(0, &[7; 600], &[]).unwrap();
    assert_eq!(running.call(&Request::Fsync { file: file.clone(), length: Some(1_000) }), Ok(Reply::Done));
    let read = |running: &Running| {
        let request = Request::BlockLocations { path: "/f".to_owned(), offset: 0, length: 1 };
        let Ok(Reply::Blocks(blocks)) = running.call(&request) else { panic!("no blocks") };
        let BlockName { id, stamp, .. } = blocks.blocks[0].block;
        let (replicas, limit) = (running.files.replicas(), 1 << 20);
        assert_eq!(replicas.visible_length(id, stamp).unwrap(), 600);
        assert_eq!(replicas.read(id, stamp).unwrap().read(0, limit).unwrap().0, [7; 600]);
    };
    read(&running);
    assert!(running.files.leave(file.id.unwrap(), "writer").is_err());
    read(&running);
    running.stop();
    let running = opened(&disk, folder.path(), 2);
    read(&running);
    running.stop();
}

/// One reports and loses its disk before the next one reports: what it had is missing, whoever has not looked yet.
#[test]
fn changes_are_refused_while_what_was_reported_is_gone_again() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    let blocks: Vec<BlockName> = (0..2)
        .map(|number| {
            let path = format!("/{number}");
            let file = running.create(&path);
            let mut block = running.add_block(&file, None);
            block.length = 7;
            let replica = Replica { block: block.id, stamp: block.stamp, length: 7 };
            running.files.received(replica);
            let request = Request::Complete { file, last: Some(block) };
            assert_eq!(running.call(&request), Ok(Reply::Bool(true)));
            block
        })
        .collect();
    running.stop();
    let names = ["node 1", "node 2", "node 3"];
    std::fs::write(folder.path().join("nodes"), names.map(|name| format!("{name}\n")).concat()).unwrap();
    let running = opened(&disk, folder.path(), 2);
    let is_waiting = || running.files.0.state.read().namespace.is_waiting;
    assert!(is_waiting());
    for (name, block) in names.into_iter().zip(&blocks) {
        let registration = Registration { uuid: name.to_owned(), ..Registration::default() };
        running.files.register_node(registration).unwrap();
        let storage = StorageFigures { id: DISK.to_owned(), kind: 1, ..StorageFigures::default() };
        let heartbeat = Heartbeat { storages: vec![storage], wants_to_report: true, ..Heartbeat::default() };
        let lease = running.files.node_heard(name, heartbeat).unwrap().unwrap().lease;
        let replica = Replica { block: block.id, stamp: block.stamp, length: 7 };
        let report = Report { storage: DISK.to_owned(), kind: 1, replicas: vec![(replica, ReplicaState::Whole)] };
        running.files.node_reports(name, lease, vec![report], true).unwrap();
        // Its disk is gone.
        if name == names[0] {
            running.files.node_heard(name, Heartbeat::default()).unwrap().unwrap();
        }
    }
    for _ in 0..3 {
        running.files.tend_nodes().unwrap();
        assert!(is_waiting());
    }
    // It was found again.
    let replica = Replica { block: blocks[0].id, stamp: blocks[0].stamp, length: 7 };
    running.files.node_tells(names[0], DISK, 1, &[Told::Whole(replica)]).unwrap();
    running.files.tend_nodes().unwrap();
    assert!(!is_waiting());
    running.stop();
}

/// Others say something between two parts of a report.
#[test]
fn what_a_data_node_tells_during_its_report_of_several_disks_is_newer() {
    const MANY: u64 = 40_000;
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    running.join(&[]);
    let replica = |number: u64| Replica { block: BlockId(1 << 40 | number), stamp: Stamp(1 << 40), length: 1 };
    let report = |id: &str, numbers: std::ops::Range<u64>| Report {
        storage: id.to_owned(),
        kind: 1,
        replicas: numbers.map(|number| (replica(number), ReplicaState::Whole)).collect(),
    };
    let figures = |id: &str| StorageFigures { id: id.to_owned(), kind: 1, ..StorageFigures::default() };
    let storages = vec![figures(DISK), figures("other disk")];
    let orders =
        running.files.node_heard(NODE, Heartbeat { storages, wants_to_report: true, ..Heartbeat::default() }).unwrap();
    let lease = orders.unwrap().lease;
    let of_other = || running.files.nodes()[0].blocks;
    std::thread::scope(|scope| {
        let reports = vec![report(DISK, 0..MANY), report("other disk", MANY..MANY + 1)];
        let done = scope.spawn(|| running.files.node_reports(NODE, lease, reports, true));
        until(|| of_other() > 0);
        running.files.node_tells(NODE, "other disk", 1, &[Told::Whole(replica(MANY + 1))]).unwrap();
        assert!((of_other() as u64) < MANY, "the report was compared too fast");
        done.join().unwrap().unwrap();
    });
    assert_eq!(of_other() as u64, MANY + 2);
    running.stop();
}

/// A part of 256 blocks, each of which is looked at a few times.
const LONGEST: usize = 8 * 256;

/// Reports, a death and a disk that is gone: others have their turn in between.
#[test]
fn nobody_waits_for_more_than_256_blocks_of_a_data_node() {
    const MANY: u64 = 3_000;
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    let longest = |what: &str| {
        let longest = running.files.0.state.longest();
        assert!((256..LONGEST).contains(&longest), "{longest} for {what}");
    };
    let replica = |number: u64| Replica { block: BlockId(1 << 40 | number), stamp: Stamp(1 << 40), length: 1 };
    let replicas: Vec<Replica> = (0..MANY).map(replica).collect();
    let report = |replicas: &[Replica]| {
        let lease = running.beat().lease;
        let replicas = replicas.iter().map(|replica| (*replica, ReplicaState::Whole)).collect();
        let report = Report { storage: DISK.to_owned(), kind: 1, replicas };
        running.files.node_reports(NODE, lease, vec![report], true).unwrap();
    };
    let blocks = || running.files.nodes()[0].blocks;
    running.join(&[]);
    running.files.0.state.longest();
    report(&replicas);
    longest("a report");
    assert_eq!(blocks(), 3_000);
    report(&replicas[..1_000]);
    longest("a report of less");
    assert_eq!(blocks(), 1_000);
    let told: Vec<Told> = replicas.iter().map(|replica| Told::Whole(*replica)).collect();
    running.files.node_tells(NODE, DISK, 1, &told).unwrap();
    longest("what a data node tells");
    let disks = || (running.files.stats().failed_disks, running.files.stats().others.remaining);
    assert_eq!(disks(), (0, 1 << 40));
    // Its disk is gone.
    running.files.node_heard(NODE, Heartbeat { failed_disks: 1, ..Heartbeat::default() }).unwrap().unwrap();
    assert_eq!(disks(), (1, 0));
    running.files.tend_nodes().unwrap();
    longest("a disk that is gone");
    assert_eq!(blocks(), 0);
    report(&replicas);
    running.files.tend_nodes().unwrap();
    longest("a turn");
    running.let_go();
    longest("a death");
    assert_eq!(blocks(), 0);
    until(|| running.files.0.state.read().namespace.blocks.is_empty());
    running.stop();
}
