//! Tables in Kafka, over the client library's own imitation of a cluster. `tests/kafka` has real brokers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Int64Type};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use savanna_streams_api::StreamError;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_connectors::BuiltinConnectors;
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_model::source::{Connectors, Offset, Read, Repeats, ScanSpec, Source, SourceReader};

use crate::{checked, source, table};

type Cluster = MockCluster<'static, DefaultProducerContext>;

/// A cluster with a topic `t`.
fn cluster(partitions: i32) -> Cluster {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", partitions, 1).unwrap();
    cluster
}

fn declared(cluster: &Cluster, options: &[(&str, &str)]) -> TableDef {
    let servers = cluster.bootstrap_servers();
    let given =
        [("connector", "kafka"), ("topic", "t"), ("properties.bootstrap.servers", &servers), ("format", "json")];
    checked(table(&[("n", DataType::Int64)], &given.iter().chain(options).copied().collect::<Vec<_>>())).unwrap()
}

fn query(job: u64) -> QueryId {
    QueryId { code: "abc".into(), job }
}

fn sink(cluster: &Cluster, options: &[(&str, &str)]) -> Box<dyn Sink> {
    let table = declared(cluster, options);
    BuiltinConnectors::new().sink(&table, table.schema()).unwrap()
}

fn batch(cluster: &Cluster, values: &[i64]) -> Vec<RecordBatch> {
    let schema = declared(cluster, &[]).schema();
    vec![RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(values.to_vec()))]).unwrap()]
}

/// Writes values to the topic.
fn write(cluster: &Cluster, values: &[i64]) {
    let mut sink = sink(cluster, &[("sink.delivery-guarantee", "at-least-once")]);
    sink.commit(&query(99), Epoch(1), &batch(cluster, values)).unwrap();
}

fn open(source: &dyn Source, table: &TableDef, partition: usize, from: Option<&Offset>) -> Box<dyn SourceReader> {
    source.open(&ScanSpec::everything(table.clone()), partition, source.partitions(1).unwrap(), from).unwrap()
}

/// So many values, or all up to the end.
fn read(reader: &mut dyn SourceReader, most: usize) -> Vec<i64> {
    let (mut values, begun) = (Vec::new(), Instant::now());
    while values.len() < most {
        assert!(begun.elapsed() < Duration::from_secs(60), "no more came than {values:?}");
        match reader.read(most - values.len(), Duration::from_millis(20)).unwrap() {
            Read::Rows(batch) => {
                assert_eq!(batch.events, batch.rows.num_rows() as u64);
                values.extend(batch.rows.column(0).as_primitive::<Int64Type>().iter().flatten());
            }
            Read::Pending => {}
            Read::End => break,
            Read::Split(change) => panic!("{change:?}"),
        }
    }
    values
}

/// All values of a topic, sorted.
fn held(cluster: &Cluster) -> Vec<i64> {
    let table = declared(cluster, &[("scan.bounded.mode", "latest-offset")]);
    let source = source(&table).unwrap();
    let partitions = 0..source.partitions(1).unwrap();
    let mut values: Vec<i64> = partitions
        .flat_map(|partition| read(open(source.as_ref(), &table, partition, None).as_mut(), usize::MAX))
        .collect();
    values.sort_unstable();
    values
}

#[test]
fn what_was_written_is_read_and_the_next_process_leaves_out_what_is_there() {
    let cluster = cluster(3);
    let mut first = sink(&cluster, &[]);
    assert_eq!(first.delivery(), Delivery::ExactlyOnce);
    assert_eq!(first.last_committed(&query(1)).unwrap(), None);
    first.commit(&query(1), Epoch(1), &batch(&cluster, &[1, 2])).unwrap();
    first.commit(&query(1), Epoch(2), &[]).unwrap();
    first.commit(&query(1), Epoch(3), &batch(&cluster, &[3])).unwrap();
    first.commit(&query(1), Epoch(3), &batch(&cluster, &[3])).unwrap();
    assert_eq!(first.last_committed(&query(1)).unwrap(), Some(Epoch(3)));
    drop(first);
    keep_offset(&cluster, "savanna-abc-1-t", 3);
    let mut next = sink(&cluster, &[]);
    assert_eq!(next.last_committed(&query(1)).unwrap(), Some(Epoch(3)));
    next.commit(&query(1), Epoch(3), &batch(&cluster, &[3])).unwrap();
    next.commit(&query(1), Epoch(4), &batch(&cluster, &[4])).unwrap();
    assert_eq!(next.last_committed(&query(1)).unwrap(), Some(Epoch(4)));
    assert_eq!(next.last_committed(&query(2)).unwrap(), None, "queries have judges of their own");
    assert_eq!(held(&cluster), [1, 2, 3, 4]);
}

/// The offset of a group, which the imitation does not take from transactions.
fn keep_offset(cluster: &Cluster, group: &str, offset: i64) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", cluster.bootstrap_servers()).set("group.id", group);
    let client: BaseConsumer = config.create().unwrap();
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset("t", 0, KafkaOffset::Offset(offset)).unwrap();
    client.commit(&offsets, CommitMode::Sync).unwrap();
}

#[test]
fn a_query_goes_on_where_it_was_and_begins_where_it_began() {
    let cluster = cluster(1);
    write(&cluster, &[1, 2, 3]);
    let table = declared(&cluster, &[("scan.startup.mode", "latest")]);
    let before = source(&table).unwrap();
    assert_eq!(before.repeats(), Repeats::ByEvents);
    let mut reader = open(before.as_ref(), &table, 0, None);
    write(&cluster, &[4, 5, 6]);
    assert_eq!(read(reader.as_mut(), 2), [4, 5]);
    let (middle, rest) = (reader.offset(), read(reader.as_mut(), 1));
    assert_eq!(rest, [6]);
    let end = reader.offset();
    drop(reader);
    // What a new query would not read any more is read again by one that goes on.
    let again = source(&table).unwrap();
    let mut from_the_beginning = open(again.as_ref(), &table, 0, None);
    from_the_beginning.hurry(&end);
    assert!(from_the_beginning.comes_later());
    assert_eq!((read(from_the_beginning.as_mut(), 3), from_the_beginning.offset()), (vec![4, 5, 6], end.clone()));
    let again = source(&table).unwrap();
    let mut from_the_middle = open(again.as_ref(), &table, 0, Some(&middle));
    from_the_middle.hurry(&end);
    assert_eq!((read(from_the_middle.as_mut(), 1), from_the_middle.offset()), (vec![6], end));
}

#[test]
fn a_bounded_table_ends_where_it_ended_before() {
    let cluster = cluster(2);
    write(&cluster, &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(held(&cluster), [1, 2, 3, 4, 5, 6, 7, 8]);
    let table = declared(&cluster, &[("scan.bounded.mode", "latest-offset")]);
    let offsets: Vec<(Vec<i64>, Offset)> = (0..2)
        .map(|partition| {
            let source = source(&table).unwrap();
            let mut reader = open(source.as_ref(), &table, partition, None);
            (read(reader.as_mut(), usize::MAX), reader.offset())
        })
        .collect();
    write(&cluster, &[9, 10, 11, 12]);
    for (partition, (values, offset)) in offsets.into_iter().enumerate() {
        let source = source(&table).unwrap();
        let mut reader = open(source.as_ref(), &table, partition, None);
        reader.hurry(&offset);
        assert_eq!((read(reader.as_mut(), usize::MAX), reader.offset()), (values, offset));
    }
}

#[test]
fn messages_that_are_damaged_are_not_passed_over_and_brokers_that_are_busy_are_waited_for() {
    let cluster = cluster(1);
    write(&cluster, &[1, 2, 3]);
    let table = declared(&cluster, &[("scan.bounded.mode", "latest-offset")]);
    let open_anew = || open(source(&table).unwrap().as_ref(), &table, 0, None);
    cluster.request_errors(RDKafkaApiKey::Fetch, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT; 2]);
    assert_eq!(read(open_anew().as_mut(), 3), [1, 2, 3]);
    let mut reader = open_anew();
    cluster.request_errors(RDKafkaApiKey::Fetch, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_MSG; 2]);
    let begun = Instant::now();
    let error = loop {
        assert!(begun.elapsed() < Duration::from_secs(60), "no error");
        match reader.read(3, Duration::from_millis(20)) {
            Ok(Read::Pending) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("expected messages that are whole") && error.contains("partition 0, offset 0"), "{error}");
}

#[test]
fn a_place_of_another_partition_is_refused() {
    let cluster = cluster(2);
    let table = declared(&cluster, &[]);
    let source = source(&table).unwrap();
    let offset = open(source.as_ref(), &table, 1, None).offset();
    let opened = source.open(&ScanSpec::everything(table.clone()), 0, 2, Some(&offset));
    assert!(opened.is_err_and(|error| error.to_string().contains("expected a place in partition 0")));
    let mut reader = open(source.as_ref(), &table, 0, None);
    reader.hurry(&offset);
    assert!(reader.read(1, Duration::ZERO).is_err());
}

#[test]
fn who_was_fenced_writes_nothing_and_is_told_also_by_an_epoch_without_rows() {
    for values in [vec![2], vec![]] {
        let cluster = cluster(1);
        let mut sink = sink(&cluster, &[]);
        sink.commit(&query(1), Epoch(1), &batch(&cluster, &[1])).unwrap();
        cluster.request_errors(RDKafkaApiKey::EndTxn, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_PRODUCER_FENCED; 3]);
        let error = sink.commit(&query(1), Epoch(2), &batch(&cluster, &values)).unwrap_err().to_string();
        assert!(error.contains("is being written to by another process of the query"), "{error}");
    }
}

#[test]
fn an_epoch_is_tried_again_where_that_makes_sense() {
    let cluster = cluster(1);
    let mut sink = sink(&cluster, &[]);
    sink.commit(&query(1), Epoch(1), &batch(&cluster, &[1])).unwrap();
    cluster.request_errors(
        RDKafkaApiKey::TxnOffsetCommit,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS; 3],
    );
    sink.commit(&query(1), Epoch(2), &batch(&cluster, &[2])).unwrap();
    assert_eq!(sink.last_committed(&query(1)).unwrap(), Some(Epoch(2)));
}

#[test]
fn a_former_process_is_fenced_before_it_is_asked_what_it_wrote() {
    let cluster = cluster(1);
    // Which of two errors comes tells what was asked first.
    cluster.request_errors(
        RDKafkaApiKey::InitProducerId,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED; 3],
    );
    cluster
        .request_errors(RDKafkaApiKey::OffsetFetch, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED; 3]);
    let error = sink(&cluster, &[]).last_committed(&query(1)).unwrap_err().to_string();
    assert!(error.contains("write to") && !error.contains("ask for the epoch"), "{error}");
}

#[test]
fn whether_a_commit_that_was_refused_counts_is_asked_and_not_guessed() {
    let cluster = cluster(1);
    let mut sink = sink(&cluster, &[]);
    sink.commit(&query(1), Epoch(1), &batch(&cluster, &[1])).unwrap();
    // As if the commit had been done and its answer were lost: the imitation itself keeps no offset of a transaction.
    keep_offset(&cluster, "savanna-abc-1-t", 2);
    cluster.request_errors(RDKafkaApiKey::EndTxn, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING]);
    sink.commit(&query(1), Epoch(2), &batch(&cluster, &[2])).unwrap();
    assert_eq!(held(&cluster), [1, 2], "it was not written again");
    sink.commit(&query(1), Epoch(3), &batch(&cluster, &[3])).unwrap();
    assert_eq!(held(&cluster), [1, 2, 3]);
}

#[test]
fn who_may_not_write_is_told_at_once() {
    for (request, answer) in [
        (RDKafkaApiKey::AddPartitionsToTxn, RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED),
        (RDKafkaApiKey::AddOffsetsToTxn, RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED),
    ] {
        let cluster = cluster(1);
        let mut sink = sink(&cluster, &[]);
        sink.commit(&query(1), Epoch(1), &batch(&cluster, &[1])).unwrap();
        cluster.request_errors(request, &[answer; 3]);
        let begun = Instant::now();
        let error = sink.commit(&query(1), Epoch(2), &batch(&cluster, &[2])).unwrap_err();
        assert!(matches!(error, StreamError::Denied { .. }), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    }
}

#[test]
fn a_sink_that_is_given_up_ends_soon() {
    let cluster = cluster(1);
    let mut sink = sink(&cluster, &[]);
    sink.commit(&query(1), Epoch(1), &batch(&cluster, &[1])).unwrap();
    let give_up = sink.remote().expect("it is on other machines").give_up;
    cluster.broker_down(1).unwrap();
    let (begun, rows) = (Instant::now(), batch(&cluster, &[2]));
    std::thread::scope(|threads| {
        let failed = threads.spawn(|| sink.commit(&query(1), Epoch(2), &rows));
        std::thread::sleep(Duration::from_millis(300));
        give_up();
        failed.join().unwrap().unwrap_err();
    });
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn brokers_that_are_not_there_are_named() {
    let table = checked(table(
        &[("n", DataType::Int64)],
        &[("connector", "kafka"), ("topic", "t"), ("properties.bootstrap.servers", "127.0.0.1:1"), ("format", "json")],
    ))
    .unwrap();
    let source = source(&table).unwrap();
    let error = source.partitions(4).unwrap_err().to_string();
    assert!(error.contains("Kafka at 127.0.0.1:1") && error.contains("look whether the brokers are up"), "{error}");
}

#[test]
fn changes_that_debezium_writes_are_rows_and_places_count_messages() {
    let cluster = cluster(1);
    let servers = cluster.bootstrap_servers();
    let declared = |columns: &[(&str, DataType)], format: &str, more: &[(&str, &str)]| {
        let given =
            [("connector", "kafka"), ("topic", "t"), ("properties.bootstrap.servers", &servers), ("format", format)];
        checked(table(columns, &given.iter().chain(more).copied().collect::<Vec<_>>())).unwrap()
    };
    let raw = declared(&[("m", DataType::Utf8View)], "raw", &[("sink.delivery-guarantee", "at-least-once")]);
    let messages = [
        Some(r#"{"after":{"n":1},"op":"r"}"#),
        Some(r#"{"schema":{},"payload":{"before":{"n":1},"after":{"n":2},"op":"u"}}"#),
        Some(r#"{"before":{"n":2},"after":null,"op":"d"}"#),
        None,
        Some(r#"{"after":{"n":3},"op":"c"}"#),
        // Half of it is malformed.
        Some(r#"{"before":{"n":3},"after":{"n":"x"},"op":"u"}"#),
        Some(r#"{"before":{"n":"x"},"after":{"n":3},"op":"u"}"#),
        Some(r#"{"after":{"n":4},"op":"c"}"#),
    ];
    let rows = RecordBatch::try_new(raw.schema(), vec![Arc::new(StringViewArray::from_iter(messages))]).unwrap();
    let mut sink = BuiltinConnectors::new().sink(&raw, raw.schema()).unwrap();
    sink.commit(&query(99), Epoch(1), &[rows]).unwrap();
    let options = [("op.column", "op"), ("scan.bounded.mode", "latest-offset"), ("on-error", "skip")];
    let changes = declared(&[("n", DataType::Int64), ("op", DataType::Utf8View)], "debezium-json", &options);
    let source = source(&changes).unwrap();
    let mut reader = open(source.as_ref(), &changes, 0, None);
    let (mut found, mut events, begun) = (Vec::new(), 0, Instant::now());
    loop {
        assert!(begun.elapsed() < Duration::from_secs(60), "no more came than {found:?}");
        match reader.read(2, Duration::from_millis(20)).unwrap() {
            Read::Rows(batch) => {
                events += batch.events;
                let (n, op) = (batch.rows.column(0).as_primitive::<Int64Type>(), batch.rows.column(1).as_string_view());
                found.extend((0..batch.rows.num_rows()).map(|row| format!("{} {}", op.value(row), n.value(row))));
            }
            Read::End => break,
            Read::Pending => {}
            Read::Split(change) => panic!("{change:?}"),
        }
    }
    assert_eq!(found, ["read 1", "update_before 1", "update_after 2", "delete 2", "insert 3", "insert 4"]);
    assert_eq!((events, reader.skipped()), (8, 2));
    let error = BuiltinConnectors::new().sink(&changes, changes.schema()).err().unwrap().to_string();
    assert!(error.contains("which is read and not written"), "{error}");
}

#[test]
fn rows_that_are_gone_are_messages_without_values_and_those_are_rows_that_are_gone() {
    let cluster = cluster(1);
    let servers = cluster.bootstrap_servers();
    let given =
        [("connector", "kafka"), ("topic", "t"), ("properties.bootstrap.servers", &servers), ("format", "json")];
    let keyed = [("key.fields", "id"), ("op.column", "op")];
    let columns = [("id", DataType::Int64), ("a", DataType::Utf8View), ("op", DataType::Utf8View)];
    let declared = |more: &[(&str, &str)]| {
        checked(table(&columns, &given.iter().chain(&keyed).chain(more).copied().collect::<Vec<_>>())).unwrap()
    };
    let writes = declared(&[("sink.delivery-guarantee", "at-least-once")]);
    let texts = |texts: &[Option<&str>]| Arc::new(StringViewArray::from(texts.to_vec()));
    let rows = RecordBatch::try_new(
        writes.schema(),
        vec![
            Arc::new(Int64Array::from(vec![1, 2, 1, 2])),
            texts(&[Some("x"), Some("y"), Some("x"), Some("z")]),
            texts(&[Some("insert"), None, Some("delete"), Some("update_before")]),
        ],
    )
    .unwrap();
    let mut sink = BuiltinConnectors::new().sink(&writes, writes.schema()).unwrap();
    sink.commit(&query(1), Epoch(1), &[rows]).unwrap();
    let reads = declared(&[("scan.bounded.mode", "latest-offset")]);
    let mut reader = open(source(&reads).unwrap().as_ref(), &reads, 0, None);
    let (mut found, begun) = (Vec::new(), Instant::now());
    loop {
        assert!(begun.elapsed() < Duration::from_secs(60), "{found:?}");
        match reader.read(10, Duration::from_millis(20)).unwrap() {
            Read::Rows(batch) => {
                let column = |at: usize| batch.rows.column(at).as_string_view();
                let ids = batch.rows.column(0).as_primitive::<Int64Type>();
                found.extend((0..batch.rows.num_rows()).map(|row| {
                    let a = column(1).iter().nth(row).flatten().map(str::to_owned);
                    (ids.value(row), a, column(2).value(row).to_owned())
                }));
            }
            Read::End => break,
            _ => {}
        }
    }
    let row = |id: i64, a: Option<&str>, op: &str| (id, a.map(str::to_owned), op.to_owned());
    assert_eq!(
        found,
        [row(1, Some("x"), "upsert"), row(2, Some("y"), "upsert"), row(1, None, "delete"), row(2, None, "delete")]
    );
}

#[test]
fn a_partition_that_came_to_be_is_read_from_its_beginning_also_if_its_broker_is_away() {
    let cluster = cluster(2);
    let mut keyed = sink(&cluster, &[("sink.delivery-guarantee", "at-least-once"), ("key.fields", "n")]);
    let values: Vec<i64> = (0..40).collect();
    keyed.commit(&query(99), Epoch(1), &batch(&cluster, &values)).unwrap();
    let table = declared(&cluster, &[("scan.startup.mode", "latest")]);
    let source = source(&table).unwrap();
    let scan = ScanSpec::everything(table.clone());
    cluster.partition_leader("t", 1, None).unwrap();
    // The query began with one partition.
    let mut first = source.open(&scan, 0, 1, None).unwrap();
    let mut second = source.open(&scan, 1, 2, None).unwrap();
    assert!(matches!(first.read(10, Duration::from_millis(20)).unwrap(), Read::Pending), "it begins at the end");
    cluster.partition_leader("t", 1, Some(1)).unwrap();
    assert!(second.offset().0.contains(r#""begin":0,"next":0"#), "{:?}", second.offset());
    assert_eq!(read(second.as_mut(), 10).len(), 10);
}
