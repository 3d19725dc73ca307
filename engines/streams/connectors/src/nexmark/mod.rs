//! The `nexmark` source: people, auctions and bids of an auction site, as the public Nexmark generator makes them.
//!
//! Every value is a function of the seed, the event's number and the column (`random`), so a query gets the same
//! events whatever it projects, in however many partitions and batches.

mod config;
mod generator;
mod reader;
mod schema;
mod selection;
mod text;
mod timeline;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use savanna_streams_api::Result;
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::source::{EqualTo, Literal, Offset, Repeats, ScanSpec, Source, SourceReader};

use crate::connector::{Connector, Promise};
use crate::options::OptionSpec;
use config::Config;
use generator::{Generator, Projection};
use reader::{Deal, Reader};
use schema::EventKind;
use selection::{Selection, Wanted};
use timeline::Timeline;

/// The connector.
#[derive(Debug)]
pub(crate) struct Nexmark;

impl Connector for Nexmark {
    fn name(&self) -> &'static str {
        config::NAME
    }

    fn options(&self) -> &'static [OptionSpec] {
        config::OPTIONS
    }

    fn promise(&self) -> Promise {
        Promise { replayable: Some(true), delivery: None }
    }

    fn check(&self, table: &mut TableDef) -> Result<()> {
        config::fix_base_time(&mut table.options);
        Config::new(&table.options)?;
        schema::check(table)
    }

    fn source(&self, table: &TableDef) -> Result<Arc<dyn Source>> {
        let mut options = table.options.clone();
        config::fix_base_time(&mut options);
        Ok(Arc::new(NexmarkSource { generator: Arc::new(Generator::new(Config::new(&options)?)) }))
    }
}

#[derive(Debug)]
struct NexmarkSource {
    generator: Arc<Generator>,
}

impl Source for NexmarkSource {
    fn bounded(&self) -> bool {
        self.generator.config.events.is_some() && !self.generator.config.keep_alive
    }

    fn replayable(&self) -> bool {
        true
    }

    fn repeats(&self) -> Repeats {
        Repeats::ByEvents
    }

    fn partitions(&self, wanted: usize) -> Result<usize> {
        let config = &self.generator.config;
        let blocks = config.events.map_or(u64::MAX, |events| events.div_ceil(config.block));
        Ok(wanted.min(usize::try_from(blocks).unwrap_or(usize::MAX)).max(1))
    }

    fn pushes_down(&self, condition: &EqualTo) -> bool {
        condition.path.0 == ["event_type"] && matches!(condition.value, Literal::Integer(_))
    }

    fn open(
        &self,
        scan: &ScanSpec,
        partition: usize,
        partitions: usize,
        from: Option<&Offset>,
    ) -> Result<Box<dyn SourceReader>> {
        let projection = Projection::new(scan.schema())?;
        let deal = Deal {
            block: self.generator.config.block,
            partition: partition as u64,
            partitions: partitions.max(1) as u64,
        };
        let reader = Reader::open(Arc::clone(&self.generator), projection, wanted(&scan.equal_to), deal, from)?;
        Ok(Box::new(reader))
    }
}

/// What the pushed-down conditions leave.
fn wanted(conditions: &[EqualTo]) -> Wanted {
    conditions.iter().fold(Wanted::All, |wanted, condition| {
        let kind = match condition.value {
            Literal::Integer(number) => EventKind::ALL.into_iter().find(|k| *k as i64 == number),
            Literal::Text(_) | Literal::Boolean(_) => None,
        };
        match (wanted, kind) {
            (Wanted::All, Some(kind)) => Wanted::Only(kind),
            (Wanted::Only(one), Some(kind)) if one == kind => Wanted::Only(kind),
            _ => Wanted::Nothing,
        }
    })
}

/// The declaration of a table with all columns of the generator's events and these options.
///
/// # Errors
/// An option is unknown or has a wrong value.
pub fn nexmark_table(name: &str, options: &BTreeMap<String, String>) -> Result<TableDef> {
    let mut options = options.clone();
    options.entry("connector".to_owned()).or_insert_with(|| config::NAME.to_owned());
    let mut table = TableDef {
        name: name.to_owned(),
        columns: Vec::new(),
        watermark: None,
        partitioned_by: Vec::new(),
        primary_key: Vec::new(),
        options,
        statement: String::new(),
    };
    Nexmark.check(&mut table)?;
    Ok(table)
}

/// The events at places `range` of the stream that a `nexmark` table with these options reads, all columns, in order.
/// Places beyond `'events.num'` hold no events. A range of up to a million events is made at once.
///
/// # Errors
/// An option is unknown or has a wrong value, or the range is longer than that.
pub fn generate_events(options: &BTreeMap<String, String>, range: Range<u64>) -> Result<RecordBatch> {
    let table = nexmark_table("events", options)?;
    let generator = Generator::new(Config::new(&table.options)?);
    let end = range.end.min(generator.config.events.unwrap_or(u64::MAX));
    if end.saturating_sub(range.start) > Timeline::SPAN / 4 {
        return Err(savanna_streams_api::StreamError::invalid(format!(
            "events {}..{end} are too many at once; ask for at most {}",
            range.start,
            Timeline::SPAN / 4
        )));
    }
    let ranges: Vec<Range<u64>> = (range.start < end).then_some(range.start..end).into_iter().collect();
    let selection = Selection::new(&generator.config, &ranges, Wanted::All);
    generator.batch(&Projection::new(table.physical_schema())?, &selection)
}
