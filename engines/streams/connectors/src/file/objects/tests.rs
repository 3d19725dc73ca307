use std::collections::BTreeMap;

use arrow::array::{ArrayRef, Int64Array, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema};
use futures::TryStreamExt as _;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::faulty::Faulty;

fn schema() -> Schema {
    Schema::new(vec![Field::new("n", DataType::Int64, true), Field::new("dt", DataType::Utf8View, true)])
}

/// Rows of an epoch: each third has none, and they lie in one to three folders.
fn rows(epoch: u64, of: i64) -> Vec<RecordBatch> {
    let count = (epoch % 3) * 2;
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..count).map(|row| row as i64 + of)));
    let folders = (0..count).map(|row| format!("{}", (epoch + row) % 3));
    let folders: ArrayRef = Arc::new(StringViewArray::from_iter_values(folders));
    vec![RecordBatch::try_new(Arc::new(schema()), vec![numbers, folders]).unwrap()]
}

fn open(store: &Arc<Faulty>, by: &[&str]) -> ObjectSink {
    open_rolling(store, by, Format::Csv, Rolling::default())
}

fn open_rolling(store: &Arc<Faulty>, by: &[&str], format: Format, rolling: Rolling) -> ObjectSink {
    let by: Vec<String> = by.iter().map(|column| (*column).to_owned()).collect();
    let store = Arc::clone(store) as Arc<dyn ObjectStore>;
    let bucket = Bucket::new(store, Path::from("a/b"), "s3://test/a/b", Duration::from_millis(200)).unwrap();
    let csv = CsvSettings { header: Some(false), ..CsvSettings::default() };
    ObjectSink::new(bucket, format, csv, Partitions::new(&by, &schema()).unwrap(), rolling)
}

fn query() -> QueryId {
    QueryId { code: "abc".into(), job: 1 }
}

/// All parts with what is in them.
fn parts(store: &Faulty) -> BTreeMap<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let listed: Vec<ObjectMeta> = store.store.list(None).try_collect().await.unwrap();
        let mut parts = BTreeMap::new();
        for object in listed.iter().filter(|object| object.location.as_ref().contains("/part-")) {
            let bytes = store.store.get(&object.location).await.unwrap().bytes().await.unwrap();
            parts.insert(object.location.to_string(), String::from_utf8(bytes.to_vec()).unwrap());
        }
        parts
    })
}

/// The parts of epochs that one sink has written without any fault.
fn expected(epochs: u64, by: &[&str]) -> BTreeMap<String, String> {
    let store = Faulty::new(0);
    let mut sink = open(&store, by);
    (1..=epochs).for_each(|epoch| sink.commit(&query(), Epoch(epoch), &rows(epoch, 0)).unwrap());
    parts(&store)
}

#[test]
fn an_epoch_has_an_object_for_each_folder_and_is_written_once() {
    let store = Faulty::new(1);
    let mut sink = open(&store, &["dt"]);
    assert_eq!(sink.last_committed(&query()).unwrap(), None);
    for epoch in [1, 2, 2, 3, 1] {
        sink.commit(&query(), Epoch(epoch), &rows(epoch, 0)).unwrap();
    }
    assert_eq!(sink.last_committed(&query()).unwrap(), Some(Epoch(3)), "one without rows, too");
    let found = parts(&store);
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    let part = |folder: u64, epoch: u64| format!("a/b/dt={folder}/part-abc-1-{epoch:020}.csv");
    assert_eq!(names, [part(0, 2), part(1, 1), part(1, 2), part(2, 1), part(2, 2)]);
    assert_eq!(found[&part(2, 2)], "0\n3\n");
    assert_eq!(found, expected(3, &["dt"]));
    let other = QueryId { code: "abc".into(), job: 11 };
    assert_eq!(open(&store, &["dt"]).last_committed(&other).unwrap(), None);
}

#[test]
fn whatever_the_store_does_and_whenever_the_process_ends_each_epoch_is_there_once() {
    let epochs = 12;
    for seed in 0..60 {
        let by: &[&str] = if seed % 2 == 0 { &["dt"] } else { &[] };
        let store = Faulty::new(seed);
        let mut rng = ChaCha8Rng::seed_from_u64(seed + 1_000);
        let mut processes = 0;
        loop {
            processes += 1;
            store.state.lock().left = (processes < 8).then(|| rng.random_range(0..40));
            store.state.lock().one_in = [0, 9][processes % 2];
            let mut sink = open(&store, by);
            let Ok(held) = sink.last_committed(&query()) else { continue };
            let held = held.unwrap_or(Epoch::ZERO).0;
            let mut commits = (held + 1..=epochs).map(|epoch| sink.commit(&query(), Epoch(epoch), &rows(epoch, 0)));
            if commits.all(|committed| committed.is_ok()) {
                break;
            }
        }
        assert_eq!(parts(&store), expected(epochs, by), "seed {seed}");
    }
}

#[test]
fn what_meets_a_request_that_comes_to_nothing_is_created_all_the_same() {
    let store = Faulty::new(1);
    let mut sink = open(&store, &["dt"]);
    store.state.lock().conflicts = 2;
    assert_eq!(sink.last_committed(&query()).unwrap(), None);
    for epoch in 1..=3 {
        store.state.lock().conflicts = 2;
        sink.commit(&query(), Epoch(epoch), &rows(epoch, 0)).unwrap();
    }
    assert_eq!(parts(&store), expected(3, &["dt"]));
}

#[test]
fn the_folders_of_an_epoch_are_written_at_the_same_time() {
    let store = Faulty::new(1);
    let mut sink = open(&store, &["dt"]);
    store.state.lock().meet = 3;
    sink.commit(&query(), Epoch(2), &rows(2, 0)).unwrap();
    assert_eq!(parts(&store).len(), 3);
}

#[test]
fn who_was_shut_out_writes_nothing_that_counts() {
    for seed in 0..60 {
        let by: &[&str] = if seed % 2 == 0 { &["dt"] } else { &[] };
        let (store, mut rng) = (Faulty::new(seed), ChaCha8Rng::seed_from_u64(seed));
        let mut former = open(&store, by);
        let paused = rng.random_range(0..4);
        former.last_committed(&query()).unwrap();
        (1..=paused).for_each(|epoch| former.commit(&query(), Epoch(epoch), &rows(epoch, 0)).unwrap());
        // It ends, or is paused, within the next epoch.
        store.state.lock().left = Some(rng.random_range(0..8));
        let in_doubt = former.commit(&query(), Epoch(paused + 1), &rows(paused + 1, 0)).is_ok();
        store.state.lock().left = None;
        let mut sink = open(&store, by);
        let held = sink.last_committed(&query()).unwrap().unwrap_or(Epoch::ZERO).0;
        assert!(held == paused + 1 || held == paused && !in_doubt, "seed {seed}");
        for epoch in held + 1..=80 {
            sink.commit(&query(), Epoch(epoch), &rows(epoch, 0)).unwrap();
            if rng.random_range(0..20) == 0 {
                let error = former.commit(&query(), Epoch(held + 1), &rows(held + 1, 900)).unwrap_err().to_string();
                assert!(error.contains("another process has begun to write query"), "{error}");
            }
        }
        assert_eq!(parts(&store), expected(80, by), "seed {seed}");
    }
}

#[test]
fn a_part_that_somebody_was_about_to_write_over_is_not_written_over_when_it_counts() {
    let store = Faulty::new(1);
    let mut former = open(&store, &[]);
    let tenure = former.tenure(&query()).unwrap();
    let name = tenure.part("", Epoch(1), Format::Csv);
    // It has found its part there, and that nobody has opened the query since; then it is paused.
    former.bucket.create(&name, &"of a lost answer".into()).unwrap();
    let tag = former.bucket.tag(&name).unwrap().unwrap();
    former.check_last(&tenure).unwrap();
    let mut sink = open(&store, &[]);
    sink.commit(&query(), Epoch(1), &rows(1, 0)).unwrap();
    assert_eq!(former.bucket.replace(&name, &"too late".into(), &tag).unwrap(), Created::Before);
    assert_eq!(parts(&store), expected(1, &[]));
}

#[test]
fn what_did_not_come_to_count_goes() {
    let store = Faulty::new(1);
    let mut former = open(&store, &["dt"]);
    former.commit(&query(), Epoch(1), &rows(1, 0)).unwrap();
    let tenure = former.tenure(&query()).unwrap();
    // Parts of the next epoch by a former text: it has other folders now, or none.
    for (folder, epoch) in [("dt=7", 2), ("dt=8", 3)] {
        let name = tenure.part(folder, Epoch(epoch), Format::Csv);
        former.bucket.create(&name, &"of another text".into()).unwrap();
    }
    let other = "a/b/dt=7/part-abc-11-00000000000000000002.csv";
    former.bucket.create(&other[4..], &"of another query".into()).unwrap();
    let mut sink = open(&store, &["dt"]);
    (2..=3).for_each(|epoch| sink.commit(&query(), Epoch(epoch), &rows(epoch, 0)).unwrap());
    let mut found = parts(&store);
    assert_eq!(found.remove(other).as_deref(), Some("of another query"));
    assert_eq!(found, expected(3, &["dt"]));
}

#[test]
fn a_store_that_stays_away_is_told_of_and_waiting_for_it_can_be_given_up() {
    let store = Faulty::new(1);
    store.state.lock().one_in = 1;
    let error = open(&store, &[]).last_committed(&query()).unwrap_err().to_string();
    assert!(
        error.contains("s3://test/a/b/_epochs/abc-1/")
            && error.contains("it is away")
            && error.contains("'retry.timeout'"),
        "{error}"
    );
    let mut sink = open(&store, &[]);
    (sink.remote().unwrap().give_up)();
    assert_eq!(sink.last_committed(&query()), Err(StreamError::Cancelled));
}

/// All rows that are seen, by folder, one part behind the other.
fn seen(store: &Faulty) -> BTreeMap<String, String> {
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for (name, text) in parts(store) {
        *seen.entry(name.rsplit_once('/').unwrap().0.to_owned()).or_default() += &text;
    }
    seen
}

/// The names of all that is gathered.
fn open_pieces(store: &Faulty) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let listed: Vec<ObjectMeta> = runtime.block_on(store.store.list(None).try_collect()).unwrap();
    listed.iter().map(|object| object.location.to_string()).filter(|name| name.contains("/_open/")).collect()
}

fn of_bytes(bytes: u64) -> Rolling {
    Rolling { bytes: Some(bytes), age: None }
}

#[test]
fn rows_of_several_epochs_are_one_part_when_there_are_enough_of_them_or_the_query_ends() {
    let store = Faulty::new(1);
    let mut sink = open_rolling(&store, &["dt"], Format::Csv, of_bytes(8));
    for epoch in 1..=5 {
        sink.commit(&query(), Epoch(epoch), &rows(epoch, 0)).unwrap();
    }
    let part = |folder: u64, epoch: u64| format!("a/b/dt={folder}/part-abc-1-{epoch:020}.csv");
    // Two bytes for each row; a part has the name of the epoch in which it became whole.
    assert_eq!(parts(&store).into_keys().collect::<Vec<_>>(), [part(1, 5), part(2, 4)]);
    assert_eq!(sink.last_committed(&query()).unwrap(), Some(Epoch(5)));
    sink.finish().unwrap();
    assert_eq!(seen(&store), {
        let store = Faulty::new(0);
        let mut sink = open(&store, &["dt"]);
        (1..=5).for_each(|epoch| sink.commit(&query(), Epoch(epoch), &rows(epoch, 0)).unwrap());
        seen(&store)
    });
    assert_eq!(open_pieces(&store), [""; 0], "what is whole leaves nothing behind");
    sink.finish().unwrap();
    assert_eq!(parts(&store).into_keys().collect::<Vec<_>>(), [part(0, 5), part(1, 5), part(2, 4), part(2, 5)]);
}

#[test]
fn whatever_the_store_does_and_whenever_the_process_ends_each_row_is_in_one_part() {
    let epochs = 150;
    for seed in 0..30 {
        let by: &[&str] = if seed % 2 == 0 { &["dt"] } else { &[] };
        let store = Faulty::new(seed);
        let mut rng = ChaCha8Rng::seed_from_u64(seed + 1_000);
        let mut processes = 0;
        loop {
            processes += 1;
            store.state.lock().left = (processes < 12).then(|| rng.random_range(0..400));
            store.state.lock().one_in = [0, 29][processes % 2];
            // Another one of them rolls by time.
            let rolling = match rng.random_range(0..3) {
                0 => Rolling { bytes: Some(40), age: Some(Duration::ZERO) },
                _ => of_bytes([40, 400][seed as usize / 2 % 2]),
            };
            let mut sink = open_rolling(&store, by, Format::Csv, rolling);
            let Ok(held) = sink.last_committed(&query()) else { continue };
            let held = held.unwrap_or(Epoch::ZERO).0;
            let mut commits = (held + 1..=epochs).map(|epoch| sink.commit(&query(), Epoch(epoch), &rows(epoch, 0)));
            if commits.all(|committed| committed.is_ok()) && sink.finish().is_ok() {
                break;
            }
        }
        let undisturbed = Faulty::new(0);
        let mut sink = open(&undisturbed, by);
        (1..=epochs).for_each(|epoch| sink.commit(&query(), Epoch(epoch), &rows(epoch, 0)).unwrap());
        assert_eq!(seen(&store), seen(&undisturbed), "seed {seed}");
        assert_eq!(open_pieces(&store), [""; 0], "seed {seed}");
    }
}

#[test]
fn a_part_whose_pieces_go_is_not_made_again_and_one_that_was_not_made_is() {
    for is_made in [false, true] {
        let store = Faulty::new(1);
        let mut former = open_rolling(&store, &[], Format::Csv, of_bytes(20));
        former.commit(&query(), Epoch(1), &rows(1, 0)).unwrap();
        let mut tenure = former.tenure(&query()).unwrap();
        let over = former.gather(&mut tenure, Epoch(2), &[(String::new(), rows(2, 0).remove(0))]).unwrap();
        assert!(over.is_empty() && tenure.open.is_empty() && tenure.whole.len() == 1);
        let whole = tenure.whole.clone();
        let names = whole.keys().cloned().collect();
        former.advance(&mut tenure, Epoch(2), names).unwrap();
        if is_made {
            // A consumer has taken the part away, and one of its pieces is gone.
            let gone = whole.values().next().unwrap().pieces(&query());
            former.bucket.remove(&gone[..1]).unwrap();
        }
        let mut sink = open_rolling(&store, &[], Format::Csv, of_bytes(20));
        assert_eq!(sink.last_committed(&query()).unwrap(), Some(Epoch(2)));
        assert_eq!(parts(&store).len(), usize::from(!is_made));
        assert_eq!(open_pieces(&store), [""; 0]);
    }
}

#[test]
fn parquet_is_made_of_what_was_gathered() {
    let store = Faulty::new(1);
    let mut sink = open_rolling(&store, &["dt"], Format::Parquet, of_bytes(1 << 20));
    // Some of its pieces were joined.
    (1..=300).for_each(|epoch| sink.commit(&query(), Epoch(epoch), &rows(epoch, 0)).unwrap());
    assert!(open_pieces(&store).len() < 3 * 70, "{}", open_pieces(&store).len());
    sink.finish().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let listed: Vec<ObjectMeta> = runtime.block_on(store.store.list(None).try_collect()).unwrap();
    let mut counted = 0;
    let directory = tempfile::tempdir().unwrap();
    for object in listed.iter().filter(|object| object.location.as_ref().contains("/part-")) {
        let bytes = runtime.block_on(async { store.store.get(&object.location).await.unwrap().bytes().await.unwrap() });
        let file = directory.path().join("part.parquet");
        std::fs::write(&file, bytes).unwrap();
        counted += crate::format::parquet::row_groups(&file).unwrap().iter().sum::<u64>();
    }
    assert_eq!(counted, (1..=300).map(|epoch| epoch % 3 * 2).sum::<u64>());
}
