//! Every value that goes from node to node comes as it was sent, through the codec between nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use savanna_epoch::{NodeId, OwnerEpoch};
use savanna_rpc::{decode_value, encode_value};
use savanna_streams_api::handle::{
    CopyFormat, CursorId, HandleError, Parameter, Purpose, QueryState, QueryStatus, Rows, SessionId, StreamReply,
    StreamRequest,
};
use savanna_streams_api::ids::{Epoch, MemberId, QueryId, StageId};
use savanna_streams_api::{Position, StreamError};
use savanna_streams_model::catalog::{ColumnDef, TableDef, WatermarkDef};
use savanna_streams_model::graph::{
    Aggregate, Alignment, Exchange, Expand, LateRows, Lateness, Operator, Output, ProcessingTime, Scan, SinkSpec,
    Stage, StageGraph, Waiting, Watermark, WindowAggregate, WindowInput, WindowPlan,
};
use savanna_streams_model::join::{ByKey, CacheBounds, IntervalJoin, JoinCondition, JoinKind, JoinSide, Lookup};
use savanna_streams_model::payload::SetKey;
use savanna_streams_model::plan::PlanBytes;
use savanna_streams_model::source::{EqualTo, FieldPath, Literal, Offset, ScanSpec};
use savanna_streams_model::state::DeltaId;
use savanna_streams_model::time::{WindowSpec, Windows};
use serde::Serialize;
use serde::de::DeserializeOwned;

fn cross<T: Serialize + DeserializeOwned + Debug>(value: &T) -> T {
    let bytes = encode_value("test", value).unwrap_or_else(|error| panic!("{error}: {value:?}"));
    decode_value("test", &bytes).unwrap_or_else(|error| panic!("{error}: {value:?}"))
}

/// Of values that cannot be compared, the text is.
fn crosses<T: Serialize + DeserializeOwned + Debug>(value: &T) {
    assert_eq!(format!("{:?}", cross(value)), format!("{value:?}"));
}

fn schema() -> SchemaRef {
    let instant = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let inner = DataType::Struct(vec![Field::new("x", DataType::Decimal128(10, 2), true)].into());
    let list = DataType::List(Arc::new(Field::new("item", DataType::Utf8View, true)));
    let fields = vec![
        Field::new("at", instant, false),
        Field::new("row", inner, true),
        Field::new("list", list, true).with_metadata([("a".to_owned(), "b".to_owned())].into()),
    ];
    Arc::new(Schema::new(fields))
}

fn table() -> TableDef {
    let column = |name: &str, computed: Option<&str>| ColumnDef {
        name: name.to_owned(),
        data_type: DataType::Int64,
        nullable: true,
        computed: computed.map(str::to_owned),
    };
    TableDef {
        name: "events".to_owned(),
        columns: vec![column("a", None), column("b", Some("a + 1"))],
        watermark: Some(WatermarkDef { column: "a".to_owned(), delay: -5 }),
        partitioned_by: vec!["a".to_owned()],
        primary_key: vec!["a".to_owned()],
        options: BTreeMap::from([("connector".to_owned(), "file".to_owned())]),
        statement: "CREATE TABLE ..".to_owned(),
    }
}

fn plan() -> PlanBytes {
    PlanBytes(vec![0, 255, 128])
}

fn scan_spec() -> ScanSpec {
    let literals = [Literal::Integer(-1), Literal::Text("x".to_owned()), Literal::Boolean(true)];
    let path = || FieldPath(vec!["row".to_owned(), "x".to_owned()]);
    let equal_to = literals.map(|value| EqualTo { path: path(), value }).into();
    ScanSpec { table: table(), columns: vec![path()], equal_to }
}

fn aggregates() -> Vec<WindowAggregate> {
    let windows = [
        Windows::Fixed(WindowSpec::hop(10, 30).shifted(-7)),
        Windows::Fixed(WindowSpec::cumulate(10, 30)),
        Windows::Session { gap: 5 },
    ];
    windows.map(|windows| WindowAggregate { time_column: 1, windows, aggregate: plan() }).into()
}

fn operators() -> Vec<Operator> {
    let scan = |watermark, processing_time| Operator::Scan(Scan { source: scan_spec(), watermark, processing_time });
    let watermark = |lateness| Watermark {
        time: plan(),
        delay: 3,
        lateness,
        late_rows: Some(LateRows { table: table(), projection: plan() }),
        waiting: Waiting { idle_after: Some(1), alignment: Some(Alignment { group: "g".to_owned(), max_drift: 2 }) },
    };
    let side = || JoinSide { stages: vec![StageId(0)], schema: schema(), keys: vec![0, 2], time: 0 };
    let condition = JoinCondition { left: vec![0], right: vec![1], holds: plan() };
    let join = |kind| IntervalJoin {
        kind,
        left: side(),
        right: side(),
        earliest: i64::MIN,
        latest: i64::MAX,
        condition: Some(condition.clone()),
    };
    let mut operators = vec![
        scan(None, None),
        scan(Some(watermark(Lateness::Never)), Some(ProcessingTime::Column)),
        scan(Some(watermark(Lateness::Windows(WindowSpec::tumble(10)))), Some(ProcessingTime::Watermark)),
        scan(Some(watermark(Lateness::Time)), None),
        Operator::Window(WindowPlan {
            inputs: vec![
                WindowInput { stage: StageId(1), schema: schema(), window_end: 2, first_rows: Some(plan()) },
                WindowInput { stage: StageId(1), schema: schema(), window_end: 2, first_rows: None },
            ],
            plan: plan(),
        }),
        Operator::Sink(SinkSpec { inputs: vec![StageId(3)], table: Some(table()) }),
        Operator::Sink(SinkSpec { inputs: Vec::new(), table: None }),
    ];
    let inputs = vec![StageId(0), StageId(u16::MAX)];
    operators.extend(
        aggregates().into_iter().map(|aggregate| Operator::Aggregate(Aggregate { inputs: inputs.clone(), aggregate })),
    );
    let kinds = [JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full, JoinKind::Semi, JoinKind::Anti];
    operators.extend(kinds.map(|kind| Operator::IntervalJoin(join(kind))));
    // Whoever adds a kind, adds it above too.
    let kind = |operator: &Operator| match operator {
        Operator::Scan(_) => 0,
        Operator::Aggregate(_) => 1,
        Operator::Window(_) => 2,
        Operator::IntervalJoin(_) => 3,
        Operator::Sink(_) => 4,
    };
    assert_eq!(operators.iter().map(kind).collect::<BTreeSet<_>>().len(), 5);
    operators
}

fn outputs() -> Vec<Option<Output>> {
    let condition = Some(JoinCondition { left: vec![0], right: Vec::new(), holds: plan() });
    let lookup = Lookup {
        table: scan_spec(),
        refresh: Some(Duration::from_secs(600)),
        by_key: Some(ByKey {
            columns: vec!["id".into()],
            cache: Some(CacheBounds { max_rows: 7, ttl: Duration::from_millis(5) }),
            patience: Duration::from_secs(1),
        }),
        chain: plan(),
        outer: true,
        stream_keys: vec![1],
        table_keys: vec![0],
        condition,
        after: plan(),
    };
    let expand = Expand { time_column: 0, window: WindowSpec::tumble(5), after: plan() };
    vec![
        None,
        Some(Output::rows(plan())),
        Some(Output { lookups: vec![lookup], expand: Some(expand), ..Output::rows(plan()) }),
        Some(Output { aggregate: aggregates().pop(), first_rows: Some(plan()), ..Output::rows(plan()) }),
    ]
}

#[test]
fn a_stage_graph_crosses_and_its_text_is_what_it_was() {
    let exchanges = [Exchange::Single, Exchange::KeyGroup { columns: vec![0, 1] }];
    let mut stages = Vec::new();
    for operator in operators() {
        for output in outputs() {
            for exchange in &exchanges {
                let (id, next) = (StageId(stages.len() as u16), output.as_ref().map(|_| StageId(7)));
                let stage =
                    Stage { id, operator: operator.clone(), output: output.clone(), exchange: exchange.clone(), next };
                stages.push(stage);
            }
        }
    }
    let graph = StageGraph { stages, output: schema().as_ref().clone() };
    assert_eq!(cross(&graph), graph);
    let text = serde_json::to_value(&graph).unwrap();
    assert_eq!(text["stages"][0]["operator"]["kind"], "scan");
    assert_eq!(text["stages"].as_array().unwrap().last().unwrap()["operator"]["kind"], "interval-join");
    assert_eq!(serde_json::from_value::<StageGraph>(text).unwrap(), graph);
}

fn errors() -> Vec<StreamError> {
    let text = |text: &str| text.to_owned();
    let position = Some(Position { line: 1, column: u64::MAX });
    let errors = vec![
        StreamError::Syntax { message: text("m"), position },
        StreamError::Unsupported { what: text("w"), position: None, instead: text("i") },
        StreamError::Unknown { kind: text("table"), name: text("n"), position, hint: text("h") },
        StreamError::Exists { kind: text("view"), name: text("n"), position },
        StreamError::Invalid { message: text("m"), position },
        StreamError::Data { place: text("p"), message: text("m") },
        StreamError::Io { what: text("w"), cause: text("c") },
        StreamError::Denied { message: text("m") },
        StreamError::Cancelled,
        StreamError::TimedOut { limit_ms: 5 },
        StreamError::Limit { message: text("m") },
        StreamError::TooComplex { message: text("m") },
        StreamError::Internal(text("m")),
    ];
    let kind = |error: &StreamError| match error {
        StreamError::Syntax { .. } => 0,
        StreamError::Unsupported { .. } => 1,
        StreamError::Unknown { .. } => 2,
        StreamError::Exists { .. } => 3,
        StreamError::Invalid { .. } => 4,
        StreamError::Data { .. } => 5,
        StreamError::Io { .. } => 6,
        StreamError::Denied { .. } => 7,
        StreamError::Cancelled => 8,
        StreamError::TimedOut { .. } => 9,
        StreamError::Limit { .. } => 10,
        StreamError::TooComplex { .. } => 11,
        StreamError::Internal(_) => 12,
    };
    assert_eq!(errors.iter().map(kind).collect::<BTreeSet<_>>().len(), 13);
    errors
}

fn requests() -> Vec<StreamRequest> {
    let (session, cursor) = (SessionId(1), CursorId(u64::MAX));
    let sql = || "SELECT $1".to_owned();
    let query = QueryId { code: "0123456789ab".to_owned(), job: 3 };
    let parameter = |text: Option<&str>| Parameter { data_type: DataType::Int32, text: text.map(str::to_owned) };
    let requests = vec![
        StreamRequest::OpenSession { user: "u".to_owned() },
        StreamRequest::CloseSession { session },
        StreamRequest::Split { sql: sql() },
        StreamRequest::Describe { session, sql: sql(), parameters: vec![None, Some(DataType::Date32)] },
        StreamRequest::Execute { session, sql: sql(), parameters: vec![parameter(None), parameter(Some("5"))] },
        StreamRequest::Fetch { session, cursor, max_rows: usize::MAX, wait_ms: 10 },
        StreamRequest::CloseCursor { session, cursor },
        StreamRequest::CancelQuery { query },
        StreamRequest::ListQueries,
    ];
    let kind = |request: &StreamRequest| match request {
        StreamRequest::OpenSession { .. } => 0,
        StreamRequest::CloseSession { .. } => 1,
        StreamRequest::Split { .. } => 2,
        StreamRequest::Describe { .. } => 3,
        StreamRequest::Execute { .. } => 4,
        StreamRequest::Fetch { .. } => 5,
        StreamRequest::CloseCursor { .. } => 6,
        StreamRequest::CancelQuery { .. } => 7,
        StreamRequest::ListQueries => 8,
    };
    assert_eq!(requests.iter().map(kind).collect::<BTreeSet<_>>().len(), 9);
    requests
}

fn status(state: QueryState, error: Option<StreamError>) -> QueryStatus {
    QueryStatus {
        query: QueryId { code: "0123456789ab".to_owned(), job: 3 },
        state,
        statement: "SELECT ..".to_owned(),
        error,
        events: 1,
        result_rows: 2,
        late_rows: 3,
        skipped_rows: 4,
        epoch: 5,
        watermark: Some(i64::MIN),
        windows: 6,
        state_bytes: 7,
        seconds: 0.1,
        cpu_seconds: f64::MAX,
        generator_cpu_seconds: 0.0,
        invocations: 8,
        billed_ms: 9,
        more: BTreeMap::from([("lookup_rows".to_owned(), 95.5)]),
    }
}

fn replies() -> Vec<StreamReply> {
    let numbers: SchemaRef = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
    let column = Arc::new(Int64Array::from(vec![Some(1), None]));
    let batch = RecordBatch::try_new(Arc::clone(&numbers), vec![column]).unwrap();
    let query = QueryId { code: "0123456789ab".to_owned(), job: 3 };
    let copy = CopyFormat { csv: true, header: false, delimiter: ',', null: String::new(), quote: '"', escape: '\\' };
    let states =
        [QueryState::Loading, QueryState::Running, QueryState::Finished, QueryState::Cancelled, QueryState::Failed];
    let queries =
        states.map(|state| status(state, None)).into_iter().chain([status(QueryState::Failed, errors().pop())]);
    let rows = [Purpose::Select, Purpose::Fetch, Purpose::Move, Purpose::Copy(copy)].map(|purpose| StreamReply::Rows {
        schema: schema(),
        cursor: CursorId(1),
        query: (purpose == Purpose::Select).then(|| query.clone()),
        purpose,
    });
    let mut replies = vec![
        StreamReply::Session { session: SessionId(1) },
        StreamReply::Statements { statements: vec!["a".to_owned()] },
        StreamReply::Described { schema: Some(schema()), parameters: vec![DataType::Utf8] },
        StreamReply::Described { schema: None, parameters: Vec::new() },
        StreamReply::Done { tag: "CREATE TABLE".to_owned() },
        StreamReply::Started { query: query.clone() },
        StreamReply::Fetched { rows: Rows { schema: numbers, batches: vec![batch.clone(), batch] }, end: true },
        StreamReply::Fetched { rows: Rows::none(schema()), end: false },
        StreamReply::Queries { queries: queries.collect() },
    ];
    replies.extend(rows);
    let kind = |reply: &StreamReply| match reply {
        StreamReply::Session { .. } => 0,
        StreamReply::Statements { .. } => 1,
        StreamReply::Described { .. } => 2,
        StreamReply::Done { .. } => 3,
        StreamReply::Rows { .. } => 4,
        StreamReply::Started { .. } => 5,
        StreamReply::Fetched { .. } => 6,
        StreamReply::Queries { .. } => 7,
    };
    assert_eq!(replies.iter().map(kind).collect::<BTreeSet<_>>().len(), 8);
    replies
}

#[test]
fn requests_replies_and_errors_cross() {
    requests().iter().for_each(crosses);
    for reply in replies() {
        crosses::<Result<StreamReply, HandleError>>(&Ok(reply));
    }
    let mut refusals: Vec<HandleError> = errors().into_iter().map(HandleError::Stream).collect();
    refusals.extend([
        HandleError::Moved { to: NodeId::new("n2"), epoch: OwnerEpoch(4) },
        HandleError::Frozen { retry_after_ms: 5 },
        HandleError::Unavailable("no".to_owned()),
    ]);
    for refusal in refusals {
        crosses::<Result<StreamReply, HandleError>>(&Err(refusal));
    }
}

#[test]
fn names_and_places_cross() {
    let query = QueryId { code: "0123456789ab".to_owned(), job: 3 };
    crosses(&SetKey { query: query.clone(), epoch: Epoch(u64::MAX), from: StageId(1), shuffle: 2 });
    crosses(&Offset("file 3, byte 9".to_owned()));
    crosses(&Epoch::ZERO);
    crosses(&DeltaId { epoch: Epoch::ZERO, stage: StageId(1), sender: 2 });
    crosses(&MemberId { query, stage: StageId(1), member: 2 });
}
