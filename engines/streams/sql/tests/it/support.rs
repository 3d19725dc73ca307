//! A catalog in memory, connectors that only push down, and short ways to plan.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::physical_plan::ExecutionPlan;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_functions::functions;
use savanna_streams_model::catalog::{TableDef, ViewDef};
use savanna_streams_model::graph::{Operator, StageGraph, WINDOW_COLUMNS};
use savanna_streams_model::join::ByKey;
use savanna_streams_model::plan::{Leaf, PlanBytes, leaves};
use savanna_streams_model::sink::{GiveUp, Sink};
use savanna_streams_model::source::{
    ConnectorInfo, Connectors, EqualTo, KeyedReader, Offset, ScanSpec, Source, SourceReader,
};
use savanna_streams_sql::{Catalog, Planner, Statement, explain, parse, placed, split};

#[derive(Default)]
pub(crate) struct Names {
    tables: Mutex<BTreeMap<String, TableDef>>,
    views: Mutex<BTreeMap<String, ViewDef>>,
}

impl Catalog for Names {
    fn table(&self, name: &str) -> Option<TableDef> {
        self.tables.lock().unwrap().get(name).cloned()
    }

    fn view(&self, name: &str) -> Option<ViewDef> {
        self.views.lock().unwrap().get(name).cloned()
    }

    fn names(&self) -> Vec<String> {
        let tables = self.tables.lock().unwrap();
        tables.keys().chain(self.views.lock().unwrap().keys()).cloned().collect()
    }
}

/// Pushes down `event_type = ..`, reads nothing.
#[derive(Debug)]
struct Stub;

impl Source for Stub {
    fn bounded(&self) -> bool {
        true
    }

    fn replayable(&self) -> bool {
        true
    }

    fn partitions(&self, wanted: usize) -> Result<usize> {
        Ok(wanted)
    }

    fn pushes_down(&self, condition: &EqualTo) -> bool {
        condition.path.0 == ["event_type"]
    }

    fn open(&self, _: &ScanSpec, _: usize, _: usize, _: Option<&Offset>) -> Result<Box<dyn SourceReader>> {
        Err(StreamError::invalid("a stub reads nothing"))
    }

    fn by_key(&self, _: &ScanSpec, _: &ByKey) -> Result<Box<dyn KeyedReader>> {
        Ok(Box::new(Self))
    }
}

/// A stub is asked nothing.
impl KeyedReader for Stub {
    fn rows(&mut self, _: &RecordBatch) -> Result<Vec<RecordBatch>> {
        Err(StreamError::invalid("a stub answers nothing"))
    }

    fn give_up(&self) -> GiveUp {
        Arc::new(|| {})
    }
}

impl Connectors for Stub {
    fn source(&self, _: &TableDef) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(Stub))
    }

    fn sink(&self, _: &TableDef, _: SchemaRef) -> Result<Box<dyn Sink>> {
        Err(StreamError::invalid("a stub writes nothing"))
    }

    fn check(&self, _: &mut TableDef) -> Result<()> {
        Ok(())
    }

    fn list(&self) -> Vec<ConnectorInfo> {
        Vec::new()
    }
}

/// The auction as the public benchmark declares it, in our words.
pub(crate) const AUCTION: &str = "
CREATE TABLE datagen (
    event_type int,
    person ROW<
        id BIGINT, name VARCHAR, emailAddress VARCHAR, creditCard VARCHAR, city VARCHAR, state VARCHAR,
        dateTime TIMESTAMP(3), extra VARCHAR>,
    auction ROW<
        id BIGINT, itemName VARCHAR, description VARCHAR, initialBid BIGINT, reserve BIGINT,
        dateTime TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra VARCHAR>,
    bid ROW<
        auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,
        dateTime TIMESTAMP(3), extra VARCHAR>,
    dateTime AS
        CASE
            WHEN event_type = 0 THEN person.dateTime
            WHEN event_type = 1 THEN auction.dateTime
            ELSE bid.dateTime
        END,
    WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND
) WITH ('connector' = 'nexmark');
CREATE VIEW person AS
SELECT person.id, person.name, person.emailAddress, person.creditCard, person.city, person.state, dateTime, person.extra
FROM datagen WHERE event_type = 0;
CREATE VIEW auction AS
SELECT auction.id, auction.itemName, auction.description, auction.initialBid, auction.reserve, dateTime,
       auction.expires, auction.seller, auction.category, auction.extra
FROM datagen WHERE event_type = 1;
CREATE VIEW bid AS
SELECT bid.auction, bid.bidder, bid.price, bid.channel, bid.url, dateTime, bid.extra
FROM datagen WHERE event_type = 2;
CREATE TABLE plain (id BIGINT, name VARCHAR, price DECIMAL(10, 2), ok BOOLEAN, at TIMESTAMP(3)) WITH ('connector' = 'file');
CREATE TABLE events (
    k BIGINT NOT NULL, s VARCHAR, v DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts
) WITH ('connector' = 'file');
";

pub(crate) struct World {
    names: Arc<Names>,
    planner: Planner,
}

impl World {
    pub(crate) fn new() -> Self {
        let names = Arc::new(Names::default());
        let planner = Planner::new(Arc::clone(&names) as Arc<dyn Catalog>, Arc::new(Stub));
        let world = Self { names, planner };
        world.run(AUCTION);
        world
    }

    /// Declares all tables and views of a text.
    pub(crate) fn run(&self, sql: &str) {
        for fragment in split(sql).unwrap() {
            match parse(&fragment.text).unwrap_or_else(|e| panic!("{e}\n{}", fragment.text)) {
                Statement::CreateTable { table, .. } => {
                    self.names.tables.lock().unwrap().insert(table.name.clone(), table);
                }
                Statement::CreateView { view, .. } => {
                    self.names.views.lock().unwrap().insert(view.name.clone(), view);
                }
                other => panic!("a declaration was expected, not {other:?}"),
            }
        }
    }

    pub(crate) fn try_plan(&self, sql: &str) -> Result<StageGraph> {
        match parse(sql)? {
            Statement::Query(query) => self.planner.plan(&query, None),
            Statement::Insert { table, columns, query } => {
                let sink = self.names.table(&table).expect("the sink is declared");
                self.planner.plan_insert(&query, &sink, &columns)
            }
            other => panic!("a query was expected, not {other:?}"),
        }
    }

    /// A query's stages, each of which was decoded again.
    pub(crate) fn plan(&self, sql: &str) -> StageGraph {
        let graph = self.try_plan(sql).unwrap_or_else(|e| panic!("{e}\n{sql}"));
        check_graph(&graph);
        graph
    }

    pub(crate) fn explain(&self, sql: &str) -> String {
        explain(&self.plan(sql), &functions())
    }

    pub(crate) fn error(&self, sql: &str) -> StreamError {
        match self.try_plan(sql) {
            Ok(graph) => panic!("an error was expected, but it planned:\n{}", explain(&graph, &functions())),
            Err(error) => error,
        }
    }

    /// How a statement of any kind fails; none if it does not, as far as it is planned.
    pub(crate) fn failure(&self, sql: &str) -> Option<StreamError> {
        let run = || match parse(sql)? {
            Statement::Query(query) => match self.planner.constant(&query)? {
                Some(_) => Ok(()),
                None => self.planner.plan(&query, None).map(drop),
            },
            Statement::Insert { .. } => self.try_plan(sql).map(drop),
            _ => Ok(()),
        };
        run().err().map(|error| placed(error, sql))
    }

    pub(crate) fn planner(&self) -> &Planner {
        &self.planner
    }
}

/// What the runtime relies on in any graph: every piece can be decoded and reads exactly what the piece before it gives.
fn check_graph(graph: &StageGraph) {
    let functions = functions();
    let decode = |plan: &PlanBytes| plan.decode(&functions).expect("a planned stage can be decoded");
    let reads = |plan: &Arc<dyn ExecutionPlan>| leaves(plan)[0].schema();
    let (sink, others) = graph.stages.split_last().expect("a graph has a sink");
    let Operator::Sink(sink_spec) = &sink.operator else { panic!("a graph ends in its sink") };
    assert!(sink.next.is_none());
    let mut outputs: Vec<SchemaRef> = Vec::new();
    for (i, stage) in others.iter().enumerate() {
        assert_eq!(usize::from(stage.id.0), i);
        let next = stage.next.expect("every stage but the sink has a receiver");
        assert!(next > stage.id, "inputs come before the stages that read them");
        let operator = match &stage.operator {
            Operator::Scan(scan) => {
                if let Some(watermark) = &scan.watermark {
                    let time = decode(&watermark.time);
                    assert_eq!(reads(&time), scan.schema());
                    assert_eq!(time.schema().fields().len(), 1);
                    if let Some(late) = &watermark.late_rows {
                        let projection = decode(&late.projection);
                        assert_eq!(reads(&projection), scan.schema());
                        assert_same_types(&projection.schema(), &late.table.physical_schema());
                    }
                }
                scan.schema()
            }
            Operator::Aggregate(aggregate) => {
                for input in &aggregate.inputs {
                    let from = &graph.stages[usize::from(input.0)];
                    assert_eq!(from.next, Some(stage.id));
                    let panes = from.output.as_ref().and_then(|output| output.aggregate.as_ref());
                    assert_eq!(panes, Some(&aggregate.aggregate), "all inputs send the same partial aggregate");
                }
                Arc::clone(&outputs[usize::from(aggregate.inputs[0].0)])
            }
            Operator::Window(window) => {
                let plan = decode(&window.plan);
                for leaf in leaves(&plan) {
                    let index = leaf.downcast_ref::<Leaf>().expect("a leaf").index();
                    assert_eq!(leaf.schema(), window.inputs[index].schema);
                }
                for input in &window.inputs {
                    assert_eq!(input.schema, outputs[usize::from(input.stage.0)]);
                    assert_eq!(input.schema.field(input.window_end).name(), "window_end");
                    assert_eq!(graph.stages[usize::from(input.stage.0)].next, Some(stage.id));
                }
                plan.schema()
            }
            Operator::IntervalJoin(join) => {
                for side in [&join.left, &join.right] {
                    for input in &side.stages {
                        assert_same_types(&outputs[usize::from(input.0)], &side.schema);
                        assert_eq!(graph.stages[usize::from(input.0)].next, Some(stage.id));
                    }
                }
                join.schema()
            }
            Operator::Sink(_) => panic!("one sink, at the end"),
        };
        let output = stage.output.as_ref().expect("every stage but the sink has an output");
        let chain = decode(&output.chain);
        assert_eq!(reads(&chain), operator);
        let rows = output.lookups.iter().fold(chain.schema(), |rows, lookup| {
            let after = decode(&lookup.after);
            assert_eq!(
                reads(&after).fields()[..rows.fields().len()],
                rows.fields()[..],
                "the stream's columns come first"
            );
            after.schema()
        });
        let output = match (&output.expand, &output.aggregate) {
            (None, None) => rows,
            (Some(expand), None) => {
                let after = decode(&expand.after);
                assert_eq!(*reads(&after), with_window(&rows, &rows, expand.time_column));
                after.schema()
            }
            (None, Some(panes)) => {
                let aggregate = decode(&panes.aggregate);
                assert_eq!(reads(&aggregate), rows);
                Arc::new(with_window(&aggregate.schema(), &rows, panes.time_column))
            }
            (Some(_), Some(_)) => panic!("an output expands windows or aggregates them"),
        };
        outputs.push(output);
    }
    for input in &sink_spec.inputs {
        assert_eq!(others[usize::from(input.0)].next, Some(sink.id));
        assert_same_types(&outputs[usize::from(input.0)], &graph.output);
    }
    let text = serde_json::to_string(graph).expect("a graph is plain data");
    let back: StageGraph = serde_json::from_str(&text).expect("and comes back");
    assert_eq!(back, *graph);
}

fn with_window(schema: &Schema, rows: &Schema, time_column: usize) -> Schema {
    let time = rows.field(time_column).data_type();
    let window = WINDOW_COLUMNS.map(|name| Arc::new(Field::new(name, time.clone(), false)));
    Schema::new(schema.fields().iter().cloned().chain(window).collect::<Vec<_>>())
}

/// Names and types; a column may be less often NULL than is declared.
#[track_caller]
fn assert_same_types(have: &Schema, declared: &Schema) {
    let columns = |s: &Schema| s.fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect::<Vec<_>>();
    assert_eq!(columns(have), columns(declared));
}
