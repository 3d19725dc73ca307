//! The `datagen` source: rows of made-up values by the columns of the table, the same for the same seed.

mod fields;
mod reader;

use std::collections::BTreeMap;
use std::sync::Arc;

use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::source::{Offset, ScanSpec, Source, SourceReader};

use crate::connector::{Connector, Promise};
use crate::format::declares_none;
use crate::options::{ENGINE_OPTIONS, Kind, OptionSpec, Options, Presence, instant_ms};
use fields::Field;
use reader::{Pace, Reader};

const NAME: &str = "datagen";

/// Options of a column; `#` stands for its name, with dots for fields of a `ROW`.
const FIELD: &str = "fields.";

const fn option(name: &'static str, kind: Kind, presence: Presence, help: &'static str) -> OptionSpec {
    OptionSpec { name, kind, presence, help }
}

const OPTIONS: &[OptionSpec] = &[
    option(
        "rows-per-second",
        Kind::Integer { min: 1, max: 1_000_000_000 },
        Presence::Default("10000"),
        "How many rows come in a second, over all partitions.",
    ),
    option(
        "number-of-rows",
        Kind::Integer { min: 0, max: i64::MAX },
        Presence::Optional,
        "How many rows there are; without it, and without a sequence, they never end.",
    ),
    option("seed", Kind::Integer { min: 0, max: i64::MAX }, Presence::Default("0"), "Other seeds give other values."),
    option(
        "start-time",
        Kind::Instant,
        Presence::Default("now"),
        "The time of the first row. Times go on with the rate of rows; 'now' is when the query starts.",
    ),
    option(
        "fields.#.kind",
        Kind::Choice(&["random", "sequence"]),
        Presence::Default("random"),
        "Random values, or whole numbers one after the other.",
    ),
    option("fields.#.min", Kind::Text, Presence::Optional, "The smallest random number; by default the type's."),
    option("fields.#.max", Kind::Text, Presence::Optional, "The largest random number; by default the type's."),
    option(
        "fields.#.length",
        Kind::Integer { min: 0, max: 1 << 20 },
        Presence::Default("100"),
        "The length of a random text.",
    ),
    option("fields.#.var-len", Kind::Boolean, Presence::Default("false"), "Whether texts may be shorter."),
    option(
        "fields.#.start",
        Kind::Integer { min: i64::MIN, max: i64::MAX },
        Presence::Optional,
        "Where a sequence begins.",
    ),
    option("fields.#.end", Kind::Integer { min: i64::MIN, max: i64::MAX }, Presence::Optional, "Its last number."),
    option(
        "fields.#.max-past",
        Kind::Duration,
        Presence::Default("0s"),
        "How far a time may lie before that of its row.",
    ),
    option("fields.#.null-rate", Kind::Text, Presence::Default("0"), "The share of NULLs, from 0 to 1."),
];

/// The connector.
#[derive(Debug)]
pub(crate) struct Datagen;

/// What a table's options say.
#[derive(Debug)]
struct Settings {
    rows_per_second: u64,
    rows: Option<u64>,
    /// Milliseconds since 1970; none for the start of the query.
    start_ms: Option<i64>,
    fields: Vec<Field>,
}

impl Settings {
    fn new(table: &TableDef) -> Result<Self> {
        if declares_none(table) {
            return Err(StreamError::invalid(format!(
                "table {} has no columns; declare those that connector {NAME} is to fill",
                table.name
            )));
        }
        let of_fields = |name: &String| name.starts_with(FIELD) && !ENGINE_OPTIONS.contains(&name.as_str());
        let (of_fields, of_table): (BTreeMap<String, String>, BTreeMap<String, String>) =
            table.options.clone().into_iter().partition(|(name, _)| of_fields(name));
        let options = Options::check(NAME, OPTIONS, &of_table)?;
        let seed = options.integer("seed")?;
        let mut of_fields = of_fields;
        let schema = table.physical_schema();
        let fields = schema
            .fields()
            .iter()
            .map(|field| Field::new(field, field.name(), seed, &mut of_fields))
            .collect::<Result<Vec<_>>>()?;
        if let Some(name) = of_fields.keys().next() {
            let known: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            return Err(StreamError::Unknown {
                kind: "option".into(),
                name: name.clone(),
                position: None,
                hint: format!("such an option is fields.<column>.<option>, with the columns {}", known.join(", ")),
            });
        }
        let given: Option<u64> = options.find("number-of-rows", |text| text.trim().parse().ok())?;
        let start_ms =
            options.find("start-time", |text| if text == "now" { Some(None) } else { instant_ms(text).map(Some) })?;
        Ok(Self {
            rows_per_second: options.integer("rows-per-second")?,
            rows: fields.iter().filter_map(Field::rows).chain(given).min(),
            start_ms: start_ms.flatten(),
            fields,
        })
    }
}

impl Connector for Datagen {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn promise(&self) -> Promise {
        Promise { replayable: Some(true), delivery: None }
    }

    fn check(&self, table: &mut TableDef) -> Result<()> {
        Settings::new(table).map(|_| ())
    }

    fn source(&self, table: &TableDef) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(DatagenSource { settings: Settings::new(table)? }))
    }
}

#[derive(Debug)]
struct DatagenSource {
    settings: Settings,
}

impl Source for DatagenSource {
    fn bounded(&self) -> bool {
        self.settings.rows.is_some()
    }

    fn replayable(&self) -> bool {
        true
    }

    fn partitions(&self, wanted: usize) -> Result<usize> {
        Ok(wanted.max(1))
    }

    fn open(
        &self,
        scan: &ScanSpec,
        partition: usize,
        partitions: usize,
        from: Option<&Offset>,
    ) -> Result<Box<dyn SourceReader>> {
        let wanted = scan.schema();
        let fields = wanted
            .fields()
            .iter()
            .filter_map(|field| self.settings.fields.iter().find(|made| made.name() == field.name())?.pruned(field))
            .collect();
        let pace = Pace { rows_per_second: self.settings.rows_per_second, rows: self.settings.rows };
        let share = (partition as u64, partitions.max(1) as u64);
        Ok(Box::new(Reader::open(fields, wanted, pace, share, self.settings.start_ms, from)?))
    }
}
