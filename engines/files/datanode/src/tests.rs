use savanna_power_cut::Power;

use super::*;

const BLOCK: BlockId = BlockId(1 << 30);

fn sums(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(512).flat_map(|chunk| crc32c::crc32c(chunk).to_be_bytes()).collect()
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 % 251) as u8).collect()
}

/// The files of the bytes and of the checksums of the block.
fn files(directory: &Path) -> (PathBuf, PathBuf) {
    let folder = directory.join("00");
    (folder.join("blk_1073741824"), folder.join("blk_1073741824.meta"))
}

fn opened(directory: &Path) -> (Replicas, Vec<Replica>) {
    Replicas::open(directory).unwrap()
}

#[test]
fn what_was_written_is_read_with_its_checksums_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (replicas, found) = opened(folder.path());
    assert!(found.is_empty());
    let content = bytes(1_300);
    let mut writer = replicas.begin(BLOCK, Stamp(1_001), 512).unwrap();
    writer.write(0, &content[..1_024], &sums(&content[..1_024])).unwrap();
    writer.write(1_024, &content[1_024..], &sums(&content[1_024..])).unwrap();
    let whole = writer.finish().unwrap();
    assert_eq!(whole, Replica { block: BLOCK, stamp: Stamp(1_001), length: 1_300 });
    drop(replicas);
    let (replicas, found) = opened(folder.path());
    assert_eq!(found, [whole]);
    let reader = replicas.read(BLOCK, Stamp(1_001)).unwrap();
    assert_eq!(reader.read(0, 4_096).unwrap(), (content.clone(), sums(&content)));
    assert_eq!(reader.read(512, 512).unwrap(), (content[512..1_024].to_vec(), sums(&content[512..1_024])));
    let digest = reader.digest().unwrap();
    assert_eq!((digest.chunks, digest.md5), (3, md5::Md5::digest_of(&sums(&content))));
    assert_eq!(replicas.space().used, 1_300);
    replicas.remove(BLOCK).unwrap();
    assert_eq!((replicas.space().used, replicas.blocks()), (0, vec![]));
    assert!(opened(folder.path()).1.is_empty());
}

trait DigestOf {
    fn digest_of(bytes: &[u8]) -> [u8; 16];
}

impl DigestOf for md5::Md5 {
    fn digest_of(bytes: &[u8]) -> [u8; 16] {
        use md5::Digest as _;
        Self::digest(bytes).into()
    }
}

#[test]
fn what_is_damaged_on_its_way_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (replicas, _) = opened(folder.path());
    let mut writer = replicas.begin(BLOCK, Stamp(1), 512).unwrap();
    let content = bytes(600);
    assert!(matches!(writer.write(0, &content, &sums(&content[1..])), Err(ReplicaError::Damaged(_))));
    assert!(matches!(writer.write(0, &content, &sums(&content)[..4]), Err(ReplicaError::Damaged(_))));
    assert!(matches!(writer.write(1, &content, &[]), Err(ReplicaError::Damaged(_))), "a hole");
    writer.write(0, &content, &sums(&content)).unwrap();
}

/// A client that flushes often: each packet begins at the chunk that the one before it has begun.
#[test]
fn a_chunk_that_is_sent_again_longer_has_one_checksum() {
    let folder = tempfile::tempdir().unwrap();
    let (replicas, _) = opened(folder.path());
    let content = bytes(1_400);
    let mut writer = replicas.begin(BLOCK, Stamp(1), 512).unwrap();
    for end in [1, 100, 511, 512, 513, 1_024, 1_300, 1_400] {
        let begin = replicas.visible_length(BLOCK, Stamp(1)).unwrap() as usize / 512 * 512;
        writer.write(begin as u64, &content[begin..end], &sums(&content[begin..end])).unwrap();
        let reader = replicas.read(BLOCK, Stamp(1)).unwrap();
        assert_eq!(reader.read(0, 4_096).unwrap(), (content[..end].to_vec(), sums(&content[..end])), "up to {end}");
    }
    // And one that goes on in the middle of a chunk, and sends again what was there.
    writer.write(100, &content[100..700], &[]).unwrap();
    writer.finish().unwrap();
    let reader = replicas.read(BLOCK, Stamp(1)).unwrap();
    assert_eq!(reader.read(0, 4_096).unwrap(), (content.clone(), sums(&content)));
}

#[test]
fn of_a_replica_that_was_being_written_stays_what_its_checksums_vouch_for() {
    let folder = tempfile::tempdir().unwrap();
    let (replicas, _) = opened(folder.path());
    let content = bytes(1_400);
    let mut writer = replicas.begin(BLOCK, Stamp(1), 512).unwrap();
    writer.write(0, &content[..700], &sums(&content[..700])).unwrap();
    // The process ends between the bytes of a packet and its checksums.
    let begun = folder.path().join("00/blk_1073741824.begun");
    std::os::unix::fs::FileExt::write_all_at(&File::options().write(true).open(&begun).unwrap(), &content[700..], 700)
        .unwrap();
    let (replicas, whole) = opened(folder.path());
    assert!(whole.is_empty());
    assert_eq!(replicas.visible_length(BLOCK, Stamp(1)).unwrap(), 700, "what was acknowledged");
    let mut writer = replicas.resume(BLOCK, Stamp(2), 700).unwrap();
    writer.write(512, &content[512..], &sums(&content[512..])).unwrap();
    assert_eq!(writer.finish().unwrap().length, 1_400);
    let reader = opened(folder.path()).0.read(BLOCK, Stamp(2)).unwrap();
    assert_eq!(reader.read(0, 4_096).unwrap(), (content.clone(), sums(&content)));
}

#[test]
fn a_writer_that_was_replaced_writes_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let (replicas, _) = opened(folder.path());
    let mut first = replicas.begin(BLOCK, Stamp(1), 512).unwrap();
    first.write(0, b"abc", &[]).unwrap();
    assert!(matches!(replicas.begin(BLOCK, Stamp(1), 512), Err(ReplicaError::Exists { .. })));
    assert!(matches!(replicas.resume(BLOCK, Stamp(2), 4), Err(ReplicaError::Damaged(_))), "more was acknowledged");
    let mut second = replicas.resume(BLOCK, Stamp(2), 3).unwrap();
    assert!(matches!(first.write(3, b"x", &[]), Err(ReplicaError::Replaced { .. })));
    assert!(matches!(first.finish(), Err(ReplicaError::Replaced { .. })));
    second.write(3, b"def", &[]).unwrap();
    let ended = replicas.recover(BLOCK, Stamp(3), 6).unwrap().unwrap();
    assert_eq!((ended.stamp, ended.length), (Stamp(3), 6));
    assert!(matches!(second.write(6, b"x", &[]), Err(ReplicaError::Replaced { .. })));
    assert_eq!(replicas.recover(BLOCK, Stamp(4), 0).unwrap().unwrap().length, 6, "recovered again");
    assert_eq!(replicas.recover(BlockId(7), Stamp(4), 0).unwrap(), None);
    assert_eq!(opened(folder.path()).1.len(), 1);
}

#[test]
fn an_older_generation_does_not_take_the_place_of_a_newer_one() {
    let folder = tempfile::tempdir().unwrap();
    let (replicas, _) = opened(folder.path());
    replicas.begin(BLOCK, Stamp(1), 512).unwrap().write(0, b"abc", &[]).unwrap();
    assert!(matches!(replicas.recover(BLOCK, Stamp(2), 4), Err(ReplicaError::Damaged(_))), "more was acknowledged");
    let whole = replicas.recover(BLOCK, Stamp(3), 3).unwrap().unwrap();
    assert!(matches!(replicas.recover(BLOCK, Stamp(2), 0), Err(ReplicaError::Replaced { .. })));
    assert_eq!(opened(folder.path()).1, [whole]);
}

#[test]
fn a_replica_whose_end_failed_is_not_whole_until_it_was_checked() {
    let folder = tempfile::tempdir().unwrap();
    let (replicas, _) = opened(folder.path());
    let mut writer = replicas.begin(BLOCK, Stamp(1), 512).unwrap();
    writer.write(0, b"abc", &[]).unwrap();
    let in_the_way = folder.path().join("00/blk_1073741824");
    fs::create_dir(&in_the_way).unwrap();
    assert!(matches!(writer.finish(), Err(ReplicaError::Io(_))));
    fs::remove_dir(&in_the_way).unwrap();
    assert!(matches!(replicas.recover(BLOCK, Stamp(2), 0), Err(ReplicaError::Failed { .. })));
    assert_eq!(replicas.read(BLOCK, Stamp(1)).unwrap().read(0, 3).unwrap().0, b"abc");
    let (replicas, whole) = opened(folder.path());
    assert!(whole.is_empty());
    assert_eq!(replicas.recover(BLOCK, Stamp(3), 3).unwrap().unwrap().length, 3);
    assert_eq!(opened(folder.path()).1.len(), 1);
}

#[test]
fn what_cannot_be_used_is_neither_replaced_nor_said_to_be_none() {
    let folder = tempfile::tempdir().unwrap();
    let (replicas, _) = opened(folder.path());
    replicas.begin(BLOCK, Stamp(1), 512).unwrap().write(0, b"abc", &[]).unwrap();
    fs::write(folder.path().join("00/blk_1073741824.meta"), b"bad").unwrap();
    let (replicas, _) = opened(folder.path());
    assert!(matches!(replicas.recover(BLOCK, Stamp(2), 0), Err(ReplicaError::Damaged(_))));
    assert!(matches!(replicas.begin(BLOCK, Stamp(2), 512), Err(ReplicaError::Damaged(_))));
    assert_eq!(replicas.blocks(), [BLOCK]);
    replicas.remove(BLOCK).unwrap();
    assert_eq!(fs::read_dir(folder.path().join("00")).unwrap().count(), 0);
}

/// A process that had the directory before, and does not know that it lost it.
#[test]
fn files_of_somebody_else_are_not_truncated() {
    let folder = tempfile::tempdir().unwrap();
    let ((old, _), (new, _)) = (opened(folder.path()), opened(folder.path()));
    let mut writer = new.begin(BLOCK, Stamp(1), 512).unwrap();
    writer.write(0, b"abc", &[]).unwrap();
    writer.finish().unwrap();
    assert!(old.begin(BLOCK, Stamp(2), 512).is_err());
    assert_eq!(new.read(BLOCK, Stamp(1)).unwrap().read(0, 3).unwrap(), (b"abc".to_vec(), sums(b"abc")));
    assert_eq!(opened(folder.path()).1.len(), 1);
}

fn whole(replicas: &Replicas, content: &[u8]) -> Replica {
    let mut writer = replicas.begin(BLOCK, Stamp(1), 512).unwrap();
    writer.write(0, content, &sums(content)).unwrap();
    writer.finish().unwrap()
}

#[test]
fn a_whole_replica_is_written_on() {
    let folder = tempfile::tempdir().unwrap();
    let (replicas, _) = opened(folder.path());
    let content = bytes(1_400);
    whole(&replicas, &content[..700]);
    let before = replicas.read(BLOCK, Stamp(1)).unwrap();
    assert!(matches!(replicas.append(BLOCK, Stamp(0), 700, 512), Err(ReplicaError::Missing { .. })), "older");
    assert!(matches!(replicas.append(BLOCK, Stamp(2), 699, 512), Err(ReplicaError::Damaged(_))));
    assert!(matches!(replicas.append(BLOCK, Stamp(2), 700, 1_024), Err(ReplicaError::Damaged(_))));
    let mut writer = replicas.append(BLOCK, Stamp(2), 700, 512).unwrap();
    assert!(matches!(replicas.append(BLOCK, Stamp(3), 700, 512), Err(ReplicaError::Missing { .. })), "not whole");
    writer.write(700, &content[700..1_024], &crc32c::crc32c(&content[700..1_024]).to_be_bytes()).unwrap();
    assert_eq!(before.read(512, 4_096).unwrap(), (content[512..700].to_vec(), sums(&content[512..700])), "as it was");
    assert_eq!(before.digest().unwrap().md5, md5::Md5::digest_of(&sums(&content[..700])));
    // The process ends: what was acknowledged is there, and it is not whole.
    let (replicas, found) = opened(folder.path());
    assert!(found.is_empty());
    assert_eq!(replicas.visible_length(BLOCK, Stamp(2)).unwrap(), 1_024);
    let mut writer = replicas.resume(BLOCK, Stamp(3), 1_024).unwrap();
    writer.write(1_024, &content[1_024..], &sums(&content[1_024..])).unwrap();
    assert_eq!(writer.finish().unwrap(), Replica { block: BLOCK, stamp: Stamp(3), length: 1_400 });
    let reader = opened(folder.path()).0.read(BLOCK, Stamp(3)).unwrap();
    assert_eq!(reader.read(0, 4_096).unwrap(), (content.clone(), sums(&content)));
}

#[test]
fn a_replica_is_cut_with_its_last_checksum() {
    for length in [0, 1, 512, 700, 1_023, 1_024, 1_300] {
        let folder = tempfile::tempdir().unwrap();
        let (replicas, _) = opened(folder.path());
        let content = bytes(1_300);
        whole(&replicas, &content);
        assert!(matches!(replicas.cut(BLOCK, Stamp(2), 1_301), Err(ReplicaError::Damaged(_))));
        let cut = replicas.cut(BLOCK, Stamp(3), length as u64).unwrap().unwrap();
        assert_eq!(cut, Replica { block: BLOCK, stamp: Stamp(3), length: length as u64 });
        assert!(matches!(replicas.cut(BLOCK, Stamp(2), 0), Err(ReplicaError::Replaced { .. })));
        assert_eq!((replicas.cut(BlockId(7), Stamp(3), 0).unwrap(), replicas.space().used), (None, length as u64));
        let (replicas, found) = opened(folder.path());
        assert_eq!(found, [cut]);
        let reader = replicas.read(BLOCK, Stamp(3)).unwrap();
        assert_eq!(reader.read(0, 4_096).unwrap(), (content[..length].to_vec(), sums(&content[..length])));
    }
}

#[test]
fn a_cut_that_was_broken_off_is_done_again_and_damage_is_not_given_a_checksum() {
    let folder = tempfile::tempdir().unwrap();
    let (replicas, _) = opened(folder.path());
    let content = bytes(1_300);
    whole(&replicas, &content);
    let (data, meta) = (folder.path().join("00/blk_1073741824"), folder.path().join("00/blk_1073741824.meta"));
    let open = |path| File::options().read(true).write(true).open(path).unwrap();
    // The process ends behind the checksum, and behind the bytes.
    let sum = crc32c::crc32c(&content[512..700]).to_be_bytes();
    std::os::unix::fs::FileExt::write_all_at(&open(&meta), &sum, meta::place(1)).unwrap();
    for _ in 0..2 {
        let (replicas, _) = opened(folder.path());
        let again = replicas.cut(BLOCK, Stamp(2), 700).unwrap().unwrap();
        assert_eq!(again.length, 700);
        let reader = replicas.read(BLOCK, Stamp(2)).unwrap();
        assert_eq!(reader.read(0, 4_096).unwrap(), (content[..700].to_vec(), sums(&content[..700])));
    }
    std::os::unix::fs::FileExt::write_all_at(&open(&data), b"x", 600).unwrap();
    assert!(matches!(opened(folder.path()).0.cut(BLOCK, Stamp(3), 650), Err(ReplicaError::Damaged(_))));
}

#[test]
fn nothing_is_added_to_a_chunk_that_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let (replicas, _) = opened(folder.path());
    whole(&replicas, &bytes(700));
    let data = File::options().write(true).open(folder.path().join("00/blk_1073741824")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&data, b"x", 600).unwrap();
    assert!(matches!(replicas.append(BLOCK, Stamp(2), 700, 512), Err(ReplicaError::Damaged(_))));
    let (_, found) = opened(folder.path());
    assert_eq!(found, [Replica { block: BLOCK, stamp: Stamp(1), length: 700 }], "it is whole, as before");
}

#[test]
fn what_was_acknowledged_behind_damage_is_not_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let content = bytes(1_400);
    let (replicas, _) = opened(folder.path());
    whole(&replicas, &content[..1_300]);
    let mut writer = replicas.append(BLOCK, Stamp(2), 1_300, 512).unwrap();
    writer.write(1_300, &content[1_300..], &sums(&content[1_300..])).unwrap();
    let begun = File::options().read(true).write(true).open(folder.path().join("00/blk_1073741824.begun")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&begun, &[!content[9]], 9).unwrap();
    let (replicas, _) = opened(folder.path());
    assert!(matches!(replicas.recover(BLOCK, Stamp(3), 1_300), Err(ReplicaError::Damaged(_))));
    // Somebody mends it.
    std::os::unix::fs::FileExt::write_all_at(&begun, &[content[9]], 9).unwrap();
    let (replicas, _) = opened(folder.path());
    assert_eq!(replicas.recover(BLOCK, Stamp(3), 1_300).unwrap().unwrap().length, 1_400);
    assert_eq!(replicas.read(BLOCK, Stamp(3)).unwrap().read(0, 4_096).unwrap(), (content.clone(), sums(&content)));
}

#[test]
fn bytes_of_a_write_that_failed_are_no_part_of_what_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (replicas, _) = opened(folder.path());
    let content = bytes(700);
    let mut writer = replicas.begin(BLOCK, Stamp(1), 512).unwrap();
    writer.write(0, &content, &sums(&content)).unwrap();
    let begun = File::options().write(true).open(folder.path().join("00/blk_1073741824.begun")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&begun, &[7; 900], 700).unwrap();
    assert_eq!(writer.finish().unwrap().length, 700);
    let (replicas, found) = opened(folder.path());
    assert_eq!(found, [Replica { block: BLOCK, stamp: Stamp(1), length: 700 }]);
    assert_eq!(replicas.read(BLOCK, Stamp(1)).unwrap().read(0, 4_096).unwrap(), (content.clone(), sums(&content)));
}

#[test]
fn a_replica_that_others_end_is_written_by_nobody_and_ended_as_they_agree() {
    let folder = tempfile::tempdir().unwrap();
    let (replicas, _) = opened(folder.path());
    assert_eq!(replicas.begin_recovery(BLOCK, Stamp(9)).unwrap(), None);
    let mut writer = replicas.begin(BLOCK, Stamp(5), 512).unwrap();
    let content = bytes(1_300);
    writer.write(0, &content, &sums(&content)).unwrap();
    assert!(matches!(replicas.begin_recovery(BLOCK, Stamp(5)), Err(ReplicaError::Replaced { .. })), "not newer");
    let found = replicas.begin_recovery(BLOCK, Stamp(6)).unwrap();
    assert_eq!(found, Some(Found { stamp: Stamp(5), length: 1_300, state: Recovered::Begun }));
    assert!(matches!(writer.write(1_300, &content, &[]), Err(ReplicaError::Replaced { .. })));
    assert!(matches!(writer.finish(), Err(ReplicaError::Replaced { .. })));
    assert!(matches!(replicas.resume(BLOCK, Stamp(7), 0), Err(ReplicaError::Missing { .. })));
    // It is begun anew: who began before comes too late.
    assert!(replicas.begin_recovery(BLOCK, Stamp(8)).unwrap().is_some());
    assert!(matches!(replicas.begin_recovery(BLOCK, Stamp(7)), Err(ReplicaError::Replaced { .. })));
    assert!(matches!(replicas.end_recovery(BLOCK, Stamp(6), 1_300), Err(ReplicaError::Replaced { .. })));
    assert!(matches!(replicas.end_recovery(BLOCK, Stamp(8), 1_301), Err(ReplicaError::Damaged(_))));
    let ended = replicas.end_recovery(BLOCK, Stamp(8), 700).unwrap();
    assert_eq!(ended, Replica { block: BLOCK, stamp: Stamp(8), length: 700 });
    assert!(matches!(replicas.end_recovery(BLOCK, Stamp(8), 700), Err(ReplicaError::Replaced { .. })), "it is done");
    assert_eq!(replicas.stamp(BLOCK), Some(Stamp(8)));
    let found = replicas.begin_recovery(BLOCK, Stamp(9)).unwrap().unwrap();
    assert_eq!((found.state, found.length), (Recovered::Whole, 700));
    assert_eq!(replicas.read(BLOCK, Stamp(8)).unwrap().read(0, 4_096).unwrap().0, content[..700]);
    drop(replicas);
    let (replicas, found) = opened(folder.path());
    assert_eq!(found, [ended], "what was only begun leaves no trace");
    let mut writer = replicas.append(BLOCK, Stamp(9), 700, 512).unwrap();
    writer.write(700, b"more", &[]).unwrap();
    drop((writer, replicas));
    // A process ended, and then the machine, and then a process once more: what the end of the machine left is still that.
    for (stamp, state) in [(10, Recovered::Begun), (11, Recovered::Left), (12, Recovered::Left)] {
        let (replicas, _) = opened(folder.path());
        assert_eq!(replicas.look(BLOCK), Some(Found { stamp: Stamp(9), length: 704, state }));
        let found = replicas.begin_recovery(BLOCK, Stamp(stamp)).unwrap().unwrap();
        assert_eq!((found.state, found.length), (state, 704));
        if stamp == 10 {
            fs::write(folder.path().join("boot"), "another").unwrap();
        }
    }
}

#[test]
fn a_copy_takes_the_place_of_what_is_left_of_another_and_of_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (replicas, _) = opened(folder.path());
    let content = bytes(1_300);
    let mut broken = replicas.begin_copy(BLOCK, Stamp(5), 512, true).unwrap();
    broken.write(0, &content[..600], &[]).unwrap();
    let mut writer = replicas.begin_copy(BLOCK, Stamp(5), 512, true).unwrap();
    assert!(matches!(broken.write(600, b"late", &[]), Err(ReplicaError::Replaced { .. })));
    writer.write(0, &content, &[]).unwrap();
    let whole = writer.finish().unwrap();
    assert!(matches!(replicas.begin_copy(BLOCK, Stamp(6), 512, true), Err(ReplicaError::Exists { .. })));
    assert!(replicas.read(BLOCK, Stamp(5)).unwrap().check().is_ok());
    assert_eq!(replicas.space().used, 1_300);
    drop(replicas);
    // Its bytes are lost, its checksums are not.
    let (data, meta) = files(folder.path());
    fs::remove_file(data).unwrap();
    let (replicas, found) = opened(folder.path());
    assert!(found.is_empty() && meta.exists());
    let mut writer = replicas.begin_copy(BLOCK, Stamp(5), 512, true).unwrap();
    writer.write(0, &content, &[]).unwrap();
    assert_eq!(writer.finish().unwrap(), whole);
}

#[test]
fn a_copy_for_a_pipeline_counts_for_nothing_before_its_client_goes_on_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let content = bytes(1_300);
    let copy = |replicas: &Replicas, length: usize| {
        let mut copy = replicas.begin_copy(BLOCK, Stamp(5), 512, false).unwrap();
        copy.write(0, &content[..length], &[]).unwrap();
        copy
    };
    let is_nothing = |replicas: &Replicas| {
        let read = replicas.read(BLOCK, Stamp(5)).map(drop);
        let length = replicas.visible_length(BLOCK, Stamp(5));
        replicas.stamp(BLOCK).is_none()
            && matches!((read, length), (Err(ReplicaError::Missing { .. }), Err(ReplicaError::Missing { .. })))
    };
    let is_empty = || fs::read_dir(folder.path().join("00")).unwrap().next().is_none();
    let (replicas, _) = opened(folder.path());

    // It breaks off.
    let half = copy(&replicas, 600);
    assert!(is_nothing(&replicas));
    assert!(matches!(replicas.resume(BLOCK, Stamp(6), 0), Err(ReplicaError::Missing { .. })), "not all has come");
    replicas.break_off(half).unwrap();
    assert_eq!((is_empty(), replicas.space().used), (true, 0));
    // A later attempt is not that which broke off.
    let first = copy(&replicas, 600);
    let second = copy(&replicas, 1_300);
    replicas.break_off(first).unwrap();
    second.has_come().unwrap();
    assert!(is_nothing(&replicas));
    // The process ends.
    let (replicas, found) = opened(folder.path());
    assert_eq!((found, replicas.blocks(), is_empty()), (vec![], vec![], true));

    // Others end the block.
    for end in 0..3 {
        copy(&replicas, 1_300).has_come().unwrap();
        let is_none = match end {
            0 => replicas.begin_recovery(BLOCK, Stamp(6)).unwrap().is_none(),
            1 => replicas.recover(BLOCK, Stamp(6), 0).unwrap().is_none(),
            _ => replicas.cut(BLOCK, Stamp(6), 0).unwrap().is_none(),
        };
        assert!(is_none && is_empty(), "{end}");
        assert!(matches!(replicas.resume(BLOCK, Stamp(6), 0), Err(ReplicaError::Missing { .. })), "too late");
    }

    // Its client goes on with it.
    copy(&replicas, 1_300).has_come().unwrap();
    assert!(matches!(replicas.resume(BLOCK, Stamp(6), 1_301), Err(ReplicaError::Damaged(_))));
    let mut writer = replicas.resume(BLOCK, Stamp(6), 1_300).unwrap();
    assert_eq!(replicas.stamp(BLOCK), Some(Stamp(6)));
    writer.write(1_300, b"more", &[]).unwrap();
    let (replicas, _) = opened(folder.path());
    let found = replicas.begin_recovery(BLOCK, Stamp(7)).unwrap().unwrap();
    assert_eq!(found, Found { stamp: Stamp(6), length: 1_304, state: Recovered::Begun });
}

#[test]
fn what_a_client_writes_is_not_replaced_by_a_copy_of_the_same_generation() {
    let folder = tempfile::tempdir().unwrap();
    let (replicas, _) = opened(folder.path());
    let mut writer = replicas.begin(BLOCK, Stamp(5), 512).unwrap();
    writer.write(0, b"flushed", &[]).unwrap();
    let copied = |replicas: &Replicas, is_closed| replicas.begin_copy(BLOCK, Stamp(5), 512, is_closed).map(drop);
    assert!(matches!(copied(&replicas, true), Err(ReplicaError::Exists { .. })));
    drop((writer, replicas));
    let (replicas, _) = opened(folder.path());
    assert!(matches!(copied(&replicas, false), Err(ReplicaError::Exists { .. })), "it may be gone on with");
    assert_eq!(replicas.visible_length(BLOCK, Stamp(5)).unwrap(), 7);
    for stamp in [6, 7] {
        assert!(matches!(replicas.visible_length(BLOCK, Stamp(stamp)), Err(ReplicaError::Missing { .. })));
        assert!(matches!(replicas.read(BLOCK, Stamp(stamp)), Err(ReplicaError::Missing { .. })), "others have more");
    }
    replicas.begin_copy(BLOCK, Stamp(5), 512, true).unwrap().finish().unwrap();
    replicas.remove_generation(BLOCK, Stamp(4)).unwrap();
    assert_eq!(replicas.stamp(BLOCK), Some(Stamp(5)));
    replicas.remove_generation(BLOCK, Stamp(5)).unwrap();
    assert_eq!(replicas.stamp(BLOCK), None);
}

#[test]
fn all_bytes_are_compared_with_their_checksums() {
    let folder = tempfile::tempdir().unwrap();
    let (replicas, _) = opened(folder.path());
    let content = bytes(3 << 20);
    let mut writer = replicas.begin(BLOCK, Stamp(5), 512).unwrap();
    writer.write(0, &content, &[]).unwrap();
    writer.finish().unwrap();
    let check = || replicas.read(BLOCK, Stamp(5)).unwrap().check();
    assert!(check().is_ok());
    let (data, _) = files(folder.path());
    File::options().write(true).open(data).unwrap().write_all_at(b"x", (2 << 20) + 7).unwrap();
    assert!(check().is_err());
}

#[test]
fn a_new_generation_survives_the_end_of_the_machine_before_its_client_hears_of_it() {
    let (folder, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let power = Power::of(folder.path()).unwrap();
    let (replicas, _) = opened(folder.path());
    let mut writer = replicas.begin(BLOCK, Stamp(1), 512).unwrap();
    writer.write(0, &bytes(600), &[]).unwrap();
    writer.sync().unwrap();
    writer = replicas.resume(BLOCK, Stamp(2), 600).unwrap();
    writer.write(600, b"not flushed", &[]).unwrap();
    power.cut(left.path()).unwrap();
    let (replicas, _) = opened(left.path());
    let found = replicas.look(BLOCK).unwrap();
    assert_eq!((found.stamp, found.length), (Stamp(2), 600));
    assert_eq!(replicas.visible_length(BLOCK, Stamp(2)).unwrap(), 600, "readers are told of this generation");
}

#[test]
fn replicas_are_read_also_where_nothing_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    // What the file about the run of the machine is made of cannot be written.
    fs::create_dir(folder.path().join("boot.new")).unwrap();
    let (replicas, _) = opened(folder.path());
    replicas.begin(BLOCK, Stamp(1), 512).unwrap().write(0, &bytes(600), &[]).unwrap();
    let state = |folder: &Path| opened(folder).0.look(BLOCK).map(|found| found.state);
    assert_eq!(state(folder.path()), Some(Recovered::Left), "in which run it was written is not known");
    fs::remove_dir(folder.path().join("boot.new")).unwrap();
    assert_eq!(state(folder.path()), Some(Recovered::Left), "nor will it be");
}
