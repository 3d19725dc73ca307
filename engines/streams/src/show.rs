//! The answers of `SHOW`, `DESCRIBE` and `EXPLAIN`: small tables of text.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use savanna_streams_api::handle::{QueryState, QueryStatus, Rows};
use savanna_streams_api::ids::QueryId;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::sink::Delivery;
use savanna_streams_model::source::ConnectorInfo;

use crate::catalog::Relation;

/// Rows of text under the given column names. Each row has one value per column.
pub(crate) fn table(columns: &[&str], rows: &[Vec<String>]) -> Result<Rows> {
    let schema: SchemaRef =
        Arc::new(Schema::new(columns.iter().map(|name| Field::new(*name, DataType::Utf8, false)).collect::<Vec<_>>()));
    let column = |i: usize| -> ArrayRef { Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row[i]))) };
    let batch = RecordBatch::try_new(Arc::clone(&schema), (0..columns.len()).map(column).collect())
        .map_err(|e| StreamError::Internal(format!("a table of text cannot be made: {e}")))?;
    Ok(Rows { schema, batches: vec![batch] })
}

/// `SHOW TABLES` or `SHOW VIEWS`.
pub(crate) fn relations(all: &[(String, Relation)], kind: &str) -> Result<Rows> {
    let of_kind = all.iter().filter(|(_, relation)| relation.kind() == kind);
    let rows: Vec<Vec<String>> = of_kind
        .map(|(name, relation)| match relation {
            Relation::Table(table) => vec![name.clone(), table.connector().to_owned()],
            Relation::View(view) => vec![name.clone(), view.query.clone()],
            Relation::Materialized(view) => vec![name.clone(), view.table().statement.clone()],
        })
        .collect();
    table(&["name", if kind == "table" { "connector" } else { "query" }], &rows)
}

/// `SHOW QUERIES`.
///
/// `names` has the names of those that outlive the process, by id, `snapshots` which snapshots there are of those that run, and `deliveries`
/// what those promise.
pub(crate) fn queries(
    all: &[QueryStatus],
    names: &BTreeMap<QueryId, String>,
    snapshots: &BTreeMap<QueryId, String>,
    deliveries: &BTreeMap<QueryId, Delivery>,
) -> Result<Rows> {
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|q| {
            vec![
                q.query.to_string(),
                state(q.state).to_owned(),
                q.events.to_string(),
                q.result_rows.to_string(),
                q.late_rows.to_string(),
                q.epoch.to_string(),
                q.statement.clone(),
                names.get(&q.query).cloned().unwrap_or_default(),
                snapshots.get(&q.query).cloned().unwrap_or_default(),
                deliveries.get(&q.query).map_or_else(String::new, Delivery::to_string),
                q.error.as_ref().map_or_else(String::new, StreamError::to_string),
            ]
        })
        .collect();
    table(
        &[
            "query",
            "state",
            "events",
            "result_rows",
            "late_rows",
            "epoch",
            "statement",
            "name",
            "snapshot",
            "delivery",
            "error",
        ],
        &rows,
    )
}

pub(crate) fn state(state: QueryState) -> &'static str {
    match state {
        QueryState::Loading => "loading",
        QueryState::Running => "running",
        QueryState::Finished => "finished",
        QueryState::Cancelled => "cancelled",
        QueryState::Failed => "failed",
    }
}

/// `SHOW CONNECTORS`.
pub(crate) fn connectors(all: &[ConnectorInfo]) -> Result<Rows> {
    let delivery = |connector: &ConnectorInfo| connector.delivery.map_or_else(String::new, |of| of.to_string());
    let source = |connector: &ConnectorInfo| match (connector.source, connector.replayable) {
        (false, _) => "",
        (true, true) => "replayable",
        (true, false) => "not replayable",
    };
    let rows: Vec<Vec<String>> =
        all.iter().map(|c| vec![c.name.clone(), source(c).to_owned(), delivery(c), c.options.clone()]).collect();
    table(&["connector", "source", "sink", "options"], &rows)
}

/// `DESCRIBE` of a table.
pub(crate) fn describe_table(def: &TableDef) -> Result<Rows> {
    let rows: Vec<Vec<String>> = def
        .columns
        .iter()
        .map(|column| {
            let watermark = def.watermark.as_ref().filter(|w| w.column == column.name);
            vec![
                column.name.clone(),
                savanna_streams_api::type_name(&column.data_type),
                if column.nullable { "yes" } else { "no" }.to_owned(),
                column.computed.clone().map_or_else(String::new, |expression| format!("AS {expression}")),
                watermark.map_or_else(String::new, |w| format!("{} ms behind", w.delay / 1000)),
            ]
        })
        .collect();
    table(&["column", "type", "nullable", "computed", "watermark"], &rows)
}

/// `DESCRIBE` of a view.
pub(crate) fn describe_columns(schema: &Schema) -> Result<Rows> {
    let rows: Vec<Vec<String>> = schema
        .fields()
        .iter()
        .map(|field| {
            vec![
                field.name().clone(),
                savanna_streams_api::type_name(field.data_type()),
                if field.is_nullable() { "yes" } else { "no" }.to_owned(),
                String::new(),
                String::new(),
            ]
        })
        .collect();
    table(&["column", "type", "nullable", "computed", "watermark"], &rows)
}

/// One column of text lines.
pub(crate) fn lines(column: &str, text: &str) -> Result<Rows> {
    table(&[column], &text.lines().map(|line| vec![line.to_owned()]).collect::<Vec<_>>())
}
