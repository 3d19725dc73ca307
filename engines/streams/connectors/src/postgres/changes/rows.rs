//! From changes to rows that say what happened.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use savanna_streams_api::{Result, StreamError};

use super::decoder::{Change, Kind};
use super::pgoutput::Value;
use super::settings::{Meta, Settings};
use crate::postgres::values::Column;

/// Rows that are being gathered.
pub(super) struct Rows<'s> {
    settings: &'s Settings,
    schema: SchemaRef,
    /// The columns of the scan, and what goes into them.
    columns: Vec<(Column, Part)>,
    count: usize,
}

/// What goes into a column.
enum Part {
    /// So many of the table's own.
    Own(usize),
    Meta(Meta),
    /// The time of a change, in this unit.
    Time(TimeUnit),
}

impl<'s> Rows<'s> {
    pub(super) fn new(settings: &'s Settings, schema: &SchemaRef) -> Self {
        let mut own = 0..;
        let part = |field: &Arc<Field>| match (settings.meta_of(field), field.data_type()) {
            (None, _) => Part::Own(own.next().unwrap_or_default()),
            (Some(Meta::Time), DataType::Timestamp(unit, _)) => Part::Time(*unit),
            (Some(meta), _) => Part::Meta(meta),
        };
        let parts: Vec<Part> = schema.fields().iter().map(part).collect();
        let columns = schema.fields().iter().map(|field| Column::new(field)).zip(parts).collect();
        Self { settings, schema: Arc::clone(schema), columns, count: 0 }
    }

    /// Adds the rows of a change: of an update the one before it, if it is known, and the one behind it.
    pub(super) fn push(&mut self, change: &Change) -> Result<()> {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        match change.kind {
            Kind::Beat => Ok(()),
            Kind::Read => self.row("read", change, new),
            Kind::Insert => self.row("insert", change, new),
            Kind::Delete => self.row("delete", change, old),
            Kind::Truncate => self.row("truncate", change, None),
            Kind::Update => {
                if old.is_some() {
                    self.row("update_before", change, old)?;
                }
                self.row("update_after", change, new)
            }
        }
    }

    fn row(&mut self, kind: &str, change: &Change, row: Option<&[Value]>) -> Result<()> {
        let text = |at: usize| match row.and_then(|row| row.get(at)) {
            Some(Value::Text(text)) => Some(text.as_ref()),
            _ => None,
        };
        for (column, part) in &mut self.columns {
            match part {
                Part::Own(at) => column.push(text(*at))?,
                Part::Meta(Meta::Kind) => column.push(Some(kind.as_bytes()))?,
                Part::Meta(Meta::Position) => column.push(Some(change.place.commit.to_string().as_bytes()))?,
                Part::Meta(Meta::Unchanged) => {
                    let names = unchanged(self.settings, &self.schema, row);
                    column.push((!names.is_empty()).then_some(names.as_bytes()))?;
                }
                Part::Time(unit) => {
                    let time = change
                        .time
                        .map(|time| if *unit == TimeUnit::Millisecond { time.div_euclid(1000) } else { time });
                    column.push(time.map(|time| time.to_string()).as_deref().map(str::as_bytes))?;
                }
                // Its type was checked with the options.
                Part::Meta(Meta::Time) => column.push(None)?,
            }
        }
        self.count += 1;
        Ok(())
    }

    /// All of them.
    ///
    /// # Errors
    /// A value is none of its column's type.
    pub(super) fn finish(self) -> Result<RecordBatch> {
        let server = &self.settings.server;
        let columns = self.columns.into_iter().map(|(column, _)| column.finish(server)).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.count));
        RecordBatch::try_new_with_options(self.schema, columns, &options).map_err(|error| {
            StreamError::invalid(format!(
                "changes of {}: {error}; of a row that goes only the columns of its replica identity are known: declare the others without NOT NULL",
                server.table
            ))
        })
    }
}

/// The names of the columns whose values are not known.
fn unchanged(settings: &Settings, schema: &SchemaRef, row: Option<&[Value]>) -> String {
    let own = schema.fields().iter().filter(|field| settings.meta_of(field).is_none());
    let unknown = own.zip(row.unwrap_or_default()).filter(|(_, value)| **value == Value::Unchanged);
    unknown.map(|(field, _)| field.name().as_str()).collect::<Vec<_>>().join(",")
}
