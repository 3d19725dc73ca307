//! The connectors through their public face.

mod datagen;
mod delta;
mod files;
mod following;
mod fuzz;
mod kafka;
mod nexmark;
mod postgres;
mod redis;
mod registry;
mod stdin_print;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, TimeUnit};
use savanna_streams_api::Result;
use savanna_streams_connectors::BuiltinConnectors;
use savanna_streams_model::catalog::{ColumnDef, TableDef, varchar};
use savanna_streams_model::source::{Connectors, Offset, Read, ScanSpec, Source, SourceReader};

const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// A table of these columns and options.
fn table(columns: &[(&str, DataType)], pairs: &[(&str, &str)]) -> TableDef {
    let column = |(name, data_type): &(&str, DataType)| ColumnDef {
        name: (*name).to_owned(),
        data_type: data_type.clone(),
        nullable: true,
        computed: None,
    };
    TableDef {
        name: "t".into(),
        columns: columns.iter().map(column).collect(),
        watermark: None,
        partitioned_by: Vec::new(),
        primary_key: Vec::new(),
        options: options(pairs),
        statement: String::new(),
    }
}

/// The table after its declaration was checked, which may have filled in columns.
fn checked(mut table: TableDef) -> Result<TableDef> {
    BuiltinConnectors::new().check(&mut table)?;
    Ok(table)
}

fn source(table: &TableDef) -> Result<Arc<dyn Source>> {
    BuiltinConnectors::new().source(table)
}

/// Opens the only partition of a table.
fn open(table: &TableDef, from: Option<&Offset>) -> Result<Box<dyn SourceReader>> {
    source(table)?.open(&ScanSpec::everything(table.clone()), 0, 1, from)
}

/// Reads a reader to its end.
fn drain(reader: &mut dyn SourceReader, max_events: usize) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    loop {
        match reader.read(max_events, Duration::from_millis(20))? {
            Read::Rows(batch) => batches.push(batch.rows),
            Read::Pending | Read::Split(_) => {}
            Read::End => return Ok(batches),
        }
    }
}

/// All rows of a table, as CSV without header.
fn read_all(table: &TableDef) -> Result<Vec<String>> {
    Ok(lines(&drain(open(table, None)?.as_mut(), 1_000)?))
}

/// Rows as JSON lines.
fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let mut writer = arrow::json::LineDelimitedWriter::new(Vec::new());
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap();
    String::from_utf8(writer.into_inner()).unwrap().lines().map(ToOwned::to_owned).collect()
}

fn concat(batches: &[RecordBatch]) -> RecordBatch {
    concat_batches(&batches[0].schema(), batches).unwrap()
}

/// The columns of a small table of bids.
fn bid_columns() -> Vec<(&'static str, DataType)> {
    vec![("auction", DataType::Int64), ("price", DataType::Int64), ("channel", varchar()), ("time", TIMESTAMP)]
}
