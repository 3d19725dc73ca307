//! A stage graph as text: one block per stage, one line per operator.

use std::sync::{Arc, LazyLock};

use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use regex::Regex;
use savanna_streams_model::graph::{
    Exchange, Lateness, Operator, Output, ProcessingTime, Scan, SinkSpec, Stage, StageGraph, WindowAggregate,
    WindowPlan,
};
use savanna_streams_model::join::{ByKey, IntervalJoin, JoinKind, JoinSide, Lookup};
use savanna_streams_model::plan::PlanBytes;
use savanna_streams_model::source::Literal;
use savanna_streams_model::state::StateKind;
use savanna_streams_model::time::{WindowSpec, Windows};

/// Tells what the stages of a graph do: what the source applies and reads, filters, projections, windows, aggregates, the
/// kind of state, and how rows reach the next stage. `functions` is [`functions`](crate::functions()).
pub fn explain(graph: &StageGraph, functions: &TaskContext) -> String {
    let mut text = String::new();
    graph.stages.iter().for_each(|stage| text.push_str(&explain_stage(stage, functions)));
    let columns: Vec<String> = graph
        .output
        .fields()
        .iter()
        .map(|f| format!("{} {}", f.name(), savanna_streams_api::type_name(f.data_type())))
        .collect();
    line(&mut text, &format!("output: {}", columns.join(", ")));
    text
}

/// What one stage does, its title first.
pub(crate) fn explain_stage(stage: &Stage, functions: &TaskContext) -> String {
    let mut text = String::new();
    Block { text: &mut text, functions }.stage(stage);
    text
}

/// How a table is asked by key.
fn asked(by_key: &ByKey) -> String {
    let cache = by_key.cache.map_or_else(
        || "no answers are kept".to_owned(),
        |cache| format!("answers of {} rows are kept for {:?}", cache.max_rows, cache.ttl),
    );
    format!("asked by key ({}), {cache}", by_key.columns.join(", "))
}

/// What an operator is.
pub(crate) fn title(operator: &Operator) -> String {
    match operator {
        Operator::Scan(scan) => {
            format!("scan {} ('{}'), one instance per partition", scan.source.table.name, scan.source.table.connector())
        }
        Operator::Aggregate(_) => "merge panes, close windows".to_owned(),
        Operator::Window(_) => "plan over each closed window".to_owned(),
        Operator::IntervalJoin(join) => format!("{} join within bounds of time", kind(join.kind)),
        Operator::Sink(SinkSpec { table: Some(table), .. }) => {
            format!("sink {} ('{}')", table.name, table.connector())
        }
        Operator::Sink(_) => "rows to the client".to_owned(),
    }
}

fn line(text: &mut String, content: &str) {
    text.push_str(content);
    text.push('\n');
}

struct Block<'a> {
    text: &'a mut String,
    functions: &'a TaskContext,
}

impl Block<'_> {
    fn stage(&mut self, stage: &Stage) {
        let title = title(&stage.operator);
        let state = match stage.operator.state() {
            StateKind::Stateless => "no state",
            StateKind::Merge => "merge state",
            StateKind::Weighted => "weighted state",
            StateKind::Sequence => "sequence state",
        };
        line(self.text, &format!("stage {}: {title}; {state}", stage.id));
        match &stage.operator {
            Operator::Scan(scan) => self.scan(scan),
            Operator::Aggregate(aggregate) => self.panes("aggregate", &aggregate.aggregate),
            Operator::Window(plan) => self.window_plan(plan),
            Operator::IntervalJoin(join) => self.interval_join(join),
            Operator::Sink(sink) => {
                let inputs: Vec<String> = sink.inputs.iter().map(ToString::to_string).collect();
                self.item("from", &format!("stage {}", inputs.join(", ")));
            }
        }
        let mut leaving = Vec::new();
        if let Some(output) = &stage.output {
            self.output(output);
            leaving = self.leaving(output);
        }
        if let Some(next) = stage.next {
            let exchange = match &stage.exchange {
                Exchange::Single => "to its only member".to_owned(),
                Exchange::KeyGroup { columns } => {
                    let name = |column: &usize| leaving.get(*column).map_or("?", String::as_str);
                    format!("by key group of {}", columns.iter().map(name).collect::<Vec<_>>().join(", "))
                }
            };
            self.item("exchange", &format!("stage {next}, {exchange}"));
        }
    }

    /// The names of the columns that leave a stage; of a partial aggregate, its keys.
    fn leaving(&self, output: &Output) -> Vec<String> {
        let last = match (&output.expand, &output.aggregate) {
            (Some(expand), _) => &expand.after,
            (_, Some(panes)) => &panes.aggregate,
            _ => &output.chain,
        };
        let plan = self.decode(last);
        plan.iter().flat_map(|plan| plan.schema().fields().to_vec()).map(|field| field.name().clone()).collect()
    }

    fn item(&mut self, name: &str, content: &str) {
        line(self.text, &format!("  {name}: {content}"));
    }

    fn scan(&mut self, scan: &Scan) {
        let columns: Vec<String> = scan.source.columns.iter().map(|p| p.0.join(".")).collect();
        self.item("columns", &columns.join(", "));
        if !scan.source.equal_to.is_empty() {
            let conditions: Vec<String> = scan
                .source
                .equal_to
                .iter()
                .map(|c| {
                    let value = match &c.value {
                        Literal::Integer(number) => number.to_string(),
                        Literal::Text(text) => format!("'{text}'"),
                        Literal::Boolean(truth) => truth.to_string(),
                    };
                    format!("{} = {value}", c.path.0.join("."))
                })
                .collect();
            self.item("pushed down", &conditions.join(" AND "));
        }
        if scan.processing_time == Some(ProcessingTime::Watermark) {
            self.item("watermark", "processing time");
        }
        if let Some(watermark) = &scan.watermark {
            let time = self.projected(&watermark.time);
            self.item("watermark", &format!("{time} - {}", length(watermark.delay)));
            if let Some(idle_after) = watermark.waiting.idle_after {
                self.item("idle", &format!("a partition without rows for {}", length(idle_after)));
            }
            if let Some(alignment) = &watermark.waiting.alignment {
                let drift = length(alignment.max_drift);
                self.item("aligned", &format!("group {}, at most {drift} ahead", alignment.group));
            }
            if let Some(late) = &watermark.late_rows {
                self.item("late rows", &format!("to table {}", late.table.name));
            } else if watermark.lateness != Lateness::Never {
                self.item("late rows", "dropped and counted");
            }
        }
    }

    fn interval_join(&mut self, join: &IntervalJoin) {
        let name = |side: &JoinSide, column: usize| side.schema.field(column).name().clone();
        let (left, right) = (&join.left, &join.right);
        let keys = left.keys.iter().zip(&right.keys).map(|(l, r)| format!("{} = {}", name(left, *l), name(right, *r)));
        let keys: Vec<String> = keys.collect();
        if !keys.is_empty() {
            self.item("keys", &keys.join(" AND "));
        }
        let times = format!("{} - {}", name(left, left.time), name(right, right.time));
        let bound = |micros: i64| if micros < 0 { format!("-{}", length(-micros)) } else { length(micros) };
        self.item("bounds", &format!("{times} from {} to {}", bound(join.earliest), bound(join.latest)));
        if let Some(condition) = &join.condition {
            let holds = self.projected(&condition.holds);
            self.item("condition", &holds);
        }
    }

    fn lookup(&mut self, lookup: &Lookup) {
        let kind = if lookup.outer { "left look-up" } else { "look-up" };
        let read = match (&lookup.by_key, lookup.refresh) {
            (Some(by_key), _) => asked(by_key),
            (None, Some(every)) => format!("read anew every {every:?}"),
            (None, None) => "read once".to_owned(),
        };
        self.item(kind, &format!("table {}, {read}", lookup.table.table.name));
        if let Some(condition) = &lookup.condition {
            let holds = self.projected(&condition.holds);
            self.item("condition", &holds);
        }
        self.chain(&lookup.after);
    }

    fn output(&mut self, output: &Output) {
        self.chain(&output.chain);
        output.lookups.iter().for_each(|lookup| self.lookup(lookup));
        if let Some(expand) = &output.expand {
            self.item("windows as columns", &window(&expand.window));
            self.chain(&expand.after);
        }
        if let Some(panes) = &output.aggregate {
            self.panes("partial aggregate", panes);
        }
        if let Some(first_rows) = &output.first_rows {
            self.first_rows(first_rows);
        }
    }

    /// Which rows leave, by their number in their window.
    fn first_rows(&mut self, plan: &PlanBytes) {
        let mut at = self.decode(plan);
        while let Some(plan) = at {
            if let Some(filter) = plan.downcast_ref::<FilterExec>() {
                let needed = readable(&filter.predicate().to_string());
                self.item("keeps", &format!("rows with {needed} in each window"));
            }
            at = plan.children().first().map(|child| Arc::clone(child));
        }
    }

    fn panes(&mut self, name: &str, panes: &WindowAggregate) {
        let windows = match &panes.windows {
            Windows::Fixed(spec) => format!("{}, panes of {}", window(spec), length(spec.pane())),
            Windows::Session { gap } => format!("SESSION with a gap of {}", length(*gap)),
        };
        self.item("window", &windows);
        let Some(plan) = self.decode(&panes.aggregate) else {
            return;
        };
        let Some(exec) = plan.downcast_ref::<AggregateExec>() else {
            return;
        };
        let keys: Vec<String> = exec.group_expr().expr().iter().map(|(e, _)| readable(&e.to_string())).collect();
        let functions: Vec<String> = exec
            .aggr_expr()
            .iter()
            .zip(exec.filter_expr())
            .map(|(function, filter)| aggregate_function(function, filter.as_ref()))
            .collect();
        let keys = if keys.is_empty() { "window alone".to_owned() } else { keys.join(", ") };
        let functions = if functions.is_empty() { "distinct keys".to_owned() } else { functions.join(", ") };
        self.item(name, &format!("{functions} by {keys}"));
    }

    /// The steps of a chain, in the order of the data.
    fn chain(&mut self, chain: &PlanBytes) {
        let Some(plan) = self.decode(chain) else {
            return;
        };
        let mut steps = Vec::new();
        let mut at = Some(&plan);
        while let Some(plan) = at {
            if let Some(filter) = plan.downcast_ref::<FilterExec>() {
                steps.push(("filter", readable(&filter.predicate().to_string())));
            } else if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
                steps.push(("project", columns(projection)));
            }
            at = plan.children().first().copied();
        }
        for (name, content) in steps.into_iter().rev() {
            self.item(name, &content);
        }
    }

    fn window_plan(&mut self, plan: &WindowPlan) {
        for (i, input) in plan.inputs.iter().enumerate() {
            let names: Vec<&str> = input.schema.fields().iter().map(|f| f.name().as_str()).collect();
            self.item(&format!("input {i}"), &format!("stage {} ({})", input.stage, names.join(", ")));
        }
        let Some(decoded) = self.decode(&plan.plan) else {
            return;
        };
        let text = displayable(decoded.as_ref()).indent(false).to_string();
        text.lines().for_each(|l| line(self.text, &format!("    {}", readable(l))));
    }

    fn projected(&self, plan: &PlanBytes) -> String {
        let Some(plan) = self.decode(plan) else {
            return String::new();
        };
        match plan.downcast_ref::<ProjectionExec>() {
            Some(projection) => {
                projection.expr().iter().map(|c| readable(&c.expr.to_string())).collect::<Vec<_>>().join(", ")
            }
            None => plan.schema().fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>().join(", "),
        }
    }

    fn decode(&self, plan: &PlanBytes) -> Option<Arc<dyn ExecutionPlan>> {
        plan.decode(self.functions).ok()
    }
}

/// An aggregate in the user's terms.
pub(crate) fn aggregate_function(function: &AggregateFunctionExpr, filter: Option<&Arc<dyn PhysicalExpr>>) -> String {
    let args: Vec<String> = function.expressions().iter().map(|e| readable(&e.to_string())).collect();
    let distinct = if function.is_distinct() { "DISTINCT " } else { "" };
    let filter = filter.map_or_else(String::new, |f| format!(" FILTER (WHERE {})", readable(&f.to_string())));
    format!("{}({distinct}{}){filter}", function.fun().name(), args.join(", "))
}

fn columns(projection: &ProjectionExec) -> String {
    let columns: Vec<String> = projection
        .expr()
        .iter()
        .map(|column| {
            let text = readable(&column.expr.to_string());
            if text == column.alias { text } else { format!("{text} AS {}", column.alias) }
        })
        .collect();
    columns.join(", ")
}

fn window(spec: &WindowSpec) -> String {
    let mut text = if !spec.has_one_size() {
        format!("CUMULATE {} in steps of {}", length(spec.size()), length(spec.step()))
    } else if spec.size() == spec.slide() {
        format!("TUMBLE {}", length(spec.size()))
    } else {
        format!("HOP {} every {}", length(spec.size()), length(spec.slide()))
    };
    if spec.offset() != 0 {
        text.push_str(&format!(", offset {}", length(spec.offset())));
    }
    text
}

fn kind(kind: JoinKind) -> &'static str {
    match kind {
        JoinKind::Inner => "inner",
        JoinKind::Left => "left",
        JoinKind::Right => "right",
        JoinKind::Full => "full",
        JoinKind::Semi => "semi",
        JoinKind::Anti => "anti",
    }
}

/// A length of time in the largest unit that leaves no rest.
fn length(micros: i64) -> String {
    for (unit, name) in
        [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms")]
    {
        if micros != 0 && micros % unit == 0 {
            return format!("{} {name}", micros / unit);
        }
    }
    if micros == 0 { "0 s".into() } else { format!("{micros} us") }
}

static COLUMN_NUMBER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"@\d+").expect("a constant pattern"));
static FIELD: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"get_field\(([\w.]+), ([\w]+(?:, [\w]+)*)\)").expect("a constant pattern"));

/// DataFusion's text of an expression in the user's terms: no column numbers, fields with a dot.
fn readable(text: &str) -> String {
    let mut text = COLUMN_NUMBER.replace_all(text, "").into_owned();
    while let Some(found) = FIELD.captures(&text) {
        let path = format!("{}.{}", &found[1], found[2].replace(", ", "."));
        let at = found.get(0).map_or(0..0, |m| m.range());
        text.replace_range(at, &path);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_read_like_sql() {
        assert_eq!(readable("get_field(bid@3, auction) > a@0"), "bid.auction > a");
        assert_eq!(readable("get_field(get_field(a@0, b), c, d)"), "a.b.c.d");
    }

    #[test]
    fn lengths_are_in_the_largest_whole_unit() {
        assert_eq!(length(90_000_000), "90 s");
        assert_eq!(length(3_600_000_000), "1 h");
        assert_eq!(length(1), "1 us");
    }
}
