//! Ends behind each step of the blocks of a file: each call of its client and of the data node in the process, and each write of the log.

use super::*;

const CONTENT: [&[u8]; 2] = [b"the first block", b"and the second"];

/// What a client was told of its file.
#[derive(Debug, Default)]
struct Heard {
    is_made: bool,
    /// Bytes that the data node acknowledged.
    acknowledged: usize,
    is_closed: bool,
}

/// Writes a file of two blocks, until nobody is told anything more, or for so many steps. Nothing comes if that was not all.
fn write(running: &Running, mut steps: usize, heard: &mut Heard) -> Option<()> {
    let mut step = || {
        steps = steps.checked_sub(1)?;
        Some(())
    };
    let client = "writer".to_owned();
    let create = Request::Create(Create {
        path: "/f".to_owned(),
        mode: 0o644.into(),
        client: client.clone(),
        overwrites: false,
        creates: true,
        with_parents: true,
        replication: 1,
        block_size: 1 << 20,
        is_all_or_nothing: false,
    });
    step()?;
    let Ok(Reply::Status(Some(status))) = running.call(&create) else { return None };
    heard.is_made = true;
    let file = Written { path: "/f".to_owned(), id: Some(status.id), client };
    let mut previous = None;
    for content in CONTENT {
        step()?;
        let add = Request::AddBlock { file: file.clone(), previous, excluded: Vec::new() };
        let Ok(Reply::Block(located)) = running.call(&add) else { return None };
        let block = located.block;
        step()?;
        let mut writer = running.files.replicas().begin(block.id, block.stamp, 512).unwrap();
        let (one, other) = content.split_at(7);
        for (at, bytes) in [(0, one), (7, other)] {
            step()?;
            writer.write(at, bytes, &[]).unwrap();
            heard.acknowledged += bytes.len();
        }
        step()?;
        // It is flushed and gets its name.
        let replica = writer.finish().unwrap();
        step()?;
        running.files.received(replica);
        previous = Some(BlockName { length: content.len() as u64, ..block });
    }
    step()?;
    if running.call(&Request::Complete { file, last: previous }) != Ok(Reply::Bool(true)) {
        return None;
    }
    heard.is_closed = true;
    Some(())
}

/// What was told is there, once, and nothing else is.
fn check(running: &Running, heard: &Heard, what: &str) {
    let Some(length) = running.length("/f") else { return assert!(!heard.is_made, "{what}: the file was made") };
    let all: usize = CONTENT.iter().map(|content| content.len()).sum();
    let is_written = || {
        let locations = Request::BlockLocations { path: "/f".to_owned(), offset: 0, length: u64::MAX };
        let Ok(Reply::Blocks(blocks)) = running.call(&locations) else { panic!("{what}: no blocks") };
        blocks.is_written
    };
    if heard.is_closed {
        assert!(!is_written() && length == all as u64, "{what}: it was closed");
    }
    let other = Asker { user: "root", machine: "127.0.0.2", call: None };
    until(|| running.files.recover_lease(&other, "/f", "other") == Ok(true));
    assert_eq!((is_written(), running.length("/f")), (false, Some(heard.acknowledged as u64)), "{what}: {heard:?}");
    let locations = Request::BlockLocations { path: "/f".to_owned(), offset: 0, length: u64::MAX };
    let Ok(Reply::Blocks(located)) = running.call(&locations) else { panic!("{what}: no blocks") };
    let mut bytes = Vec::new();
    for located in &located.blocks {
        let reader = running.files.replicas().read(located.block.id, located.block.stamp).unwrap();
        reader.check().unwrap();
        bytes.extend(reader.read(0, 512).unwrap().0);
    }
    assert_eq!(bytes, &CONTENT.concat()[..heard.acknowledged], "{what}: {heard:?}");
    let mut blocks: Vec<BlockId> = located.blocks.iter().map(|located| located.block.id).collect();
    // One of no bytes stays, too.
    blocks.extend(located.last.map(|located| located.block.id).filter(|id| !blocks.contains(id)));
    let there = || {
        let mut there = running.files.replicas().blocks();
        there.sort_unstable();
        there
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while there() != blocks {
        assert!(Instant::now() < deadline, "{what}: {:?} are there, and the file has {blocks:?}", there());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(running.files.stats().missing, 0, "{what}");
}

#[test]
fn what_was_told_of_a_file_is_there_whichever_step_of_its_blocks_was_the_last() {
    let mut is_whole = false;
    let mut steps = 0;
    while !is_whole {
        let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
        let (running, mut heard) = (opened(&disk, folder.path(), 1), Heard::default());
        is_whole = write(&running, steps, &mut heard).is_some();
        disk.crash();
        drop(running);
        let running = opened(&disk, folder.path(), 2);
        check(&running, &heard, &format!("after {steps} steps"));
        running.stop();
        steps += 1;
    }
    assert_eq!(steps, 15, "each step was the last once, and none");
}

#[test]
fn what_was_told_of_a_file_is_there_whichever_write_of_the_log_was_the_last() {
    let (mut writes, mut is_whole) = (0, false);
    while !is_whole {
        writes += 1;
        let (disk, folder) = (SimDisk::new(writes), tempfile::tempdir().unwrap());
        let (running, mut heard) = (opened(&disk, folder.path(), 1), Heard::default());
        disk.fail(writes, Fault::PowerCut);
        is_whole = write(&running, usize::MAX, &mut heard).is_some();
        disk.crash();
        drop(running);
        let running = opened(&disk, folder.path(), 2);
        check(&running, &heard, &format!("write {writes}"));
        running.stop();
    }
    assert!(writes > 4, "{writes} writes are those of four changes");
}
