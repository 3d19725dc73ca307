//! The `print` sink: one line per row on standard output.

use std::io::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use parking_lot::Mutex;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::sink::{Delivery, Sink};

use crate::connector::{Connector, Promise};
use crate::format::csv::CsvSettings;
use crate::format::{Format, csv, ndjson};
use crate::options::{Kind, OptionSpec, Options, Presence};

const NAME: &str = "print";

const OPTIONS: &[OptionSpec] = &[OptionSpec {
    name: "format",
    kind: Kind::Choice(&["table", "json", "ndjson", "csv"]),
    presence: Presence::Default("table"),
    help: "How rows look: aligned columns under a header, one JSON object per line, or CSV. Each begins with the row's \
           operation: '+I', an insertion.",
}];

/// Every row is an insertion.
const INSERT: &str = "+I";

/// Where lines are printed.
pub(crate) type Output = Arc<Mutex<dyn Write + Send>>;

/// The connector.
pub(crate) struct Print {
    pub(crate) output: Output,
}

impl std::fmt::Debug for Print {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Print")
    }
}

impl Connector for Print {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn promise(&self) -> Promise {
        Promise { replayable: None, delivery: Some(Delivery::AtLeastOnce) }
    }

    fn check(&self, table: &mut TableDef) -> Result<()> {
        let options = Options::check(NAME, OPTIONS, &table.options)?;
        if options.text("format") == Some("csv") { Format::Csv.check(&table.columns) } else { Ok(()) }
    }

    fn sink(&self, table: &TableDef, schema: SchemaRef) -> Result<Box<dyn Sink>> {
        let options = Options::check(NAME, OPTIONS, &table.options)?;
        let look = match options.text("format") {
            Some("json" | "ndjson") => Look::Json,
            Some("csv") => Look::Csv,
            _ => Look::Table(Vec::new()),
        };
        Ok(Box::new(PrintSink { output: Arc::clone(&self.output), schema, look, begun: false }))
    }
}

/// How rows look.
enum Look {
    /// The widths of the columns so far.
    Table(Vec<usize>),
    Json,
    Csv,
}

struct PrintSink {
    output: Output,
    schema: SchemaRef,
    look: Look,
    /// Whether a header was printed.
    begun: bool,
}

impl PrintSink {
    /// The lines of some rows.
    fn lines(&mut self, rows: &RecordBatch) -> Result<String, String> {
        let first = !std::mem::replace(&mut self.begun, true);
        match &mut self.look {
            Look::Json => {
                let objects = ndjson::write(Vec::new(), std::slice::from_ref(rows))?;
                let objects = String::from_utf8_lossy(&objects);
                // An object begins with a brace; the operation is its first field.
                let line = |object: &str| match &object[1..] {
                    "}" => format!("{{\"op\":\"{INSERT}\"}}\n"),
                    fields => format!("{{\"op\":\"{INSERT}\",{fields}\n"),
                };
                Ok(objects.lines().map(line).collect())
            }
            Look::Csv => {
                let settings = CsvSettings { header: Some(first), ..CsvSettings::default() };
                let (schema, rows) = with_operation(&self.schema, rows).map_err(|e| e.to_string())?;
                let lines = csv::write(Vec::new(), &schema, &[rows], settings)?;
                String::from_utf8(lines).map_err(|e| e.to_string())
            }
            Look::Table(widths) => table(&self.schema, rows, widths, first).map_err(|e| e.to_string()),
        }
    }
}

/// Rows with the operation as their first column.
fn with_operation(
    schema: &SchemaRef,
    rows: &RecordBatch,
) -> Result<(SchemaRef, RecordBatch), arrow::error::ArrowError> {
    use arrow::array::{ArrayRef, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};
    let fields = std::iter::once(Arc::new(Field::new("op", DataType::Utf8, false)));
    let schema = Arc::new(Schema::new(fields.chain(schema.fields().iter().cloned()).collect::<Vec<_>>()));
    let operations: ArrayRef = Arc::new(StringArray::from(vec![INSERT; rows.num_rows()]));
    let columns = std::iter::once(operations).chain(rows.columns().iter().cloned()).collect();
    Ok((Arc::clone(&schema), RecordBatch::try_new(schema, columns)?))
}

/// Aligned columns. A header comes first, and again when a column gets wider, so that values stay under their names.
fn table(
    schema: &SchemaRef,
    rows: &RecordBatch,
    widths: &mut Vec<usize>,
    first: bool,
) -> Result<String, arrow::error::ArrowError> {
    let options = FormatOptions::new().with_null("NULL");
    let formatters =
        rows.columns().iter().map(|c| ArrayFormatter::try_new(c, &options)).collect::<Result<Vec<_>, _>>()?;
    let cells: Vec<Vec<String>> =
        (0..rows.num_rows()).map(|row| formatters.iter().map(|f| f.value(row).to_string()).collect()).collect();
    let names: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
    widths.resize(names.len(), 0);
    let mut wider = first;
    for row in cells.iter().chain([&names]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            let length = cell.chars().count();
            if length > *width {
                (*width, wider) = (length, true);
            }
        }
    }
    let mut lines = String::new();
    let mut push = |operation: &str, row: &[String]| {
        let start = lines.len();
        lines.push_str(operation);
        for ((cell, width), field) in row.iter().zip(widths.iter()).zip(schema.fields()) {
            lines.push_str("  ");
            if field.data_type().is_numeric() {
                lines.push_str(&format!("{cell:>width$}"));
            } else {
                lines.push_str(&format!("{cell:<width$}"));
            }
        }
        let end = start + lines[start..].trim_end().len();
        lines.truncate(end);
        lines.push('\n');
    };
    if wider {
        push("op", &names);
    }
    for row in &cells {
        push(INSERT, row);
    }
    Ok(lines)
}

impl Sink for PrintSink {
    fn last_committed(&mut self, _: &QueryId) -> Result<Option<Epoch>> {
        Ok(None)
    }

    fn commit(&mut self, _: &QueryId, _: Epoch, rows: &[RecordBatch]) -> Result<()> {
        let mut lines = String::new();
        for batch in rows.iter().filter(|batch| batch.num_rows() > 0) {
            lines += &self.lines(batch).map_err(|e| StreamError::Internal(format!("rows cannot be printed: {e}")))?;
        }
        if lines.is_empty() {
            return Ok(());
        }
        let mut output = self.output.lock();
        output
            .write_all(lines.as_bytes())
            .and_then(|()| output.flush())
            .map_err(|e| StreamError::io("print rows to standard output", &e))
    }

    fn finish(&mut self) -> Result<()> {
        self.output.lock().flush().map_err(|e| StreamError::io("print rows to standard output", &e))
    }

    fn delivery(&self) -> Delivery {
        Delivery::AtLeastOnce
    }
}
