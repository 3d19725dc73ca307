//! Tables for people and JSON for programs, on standard output.

use std::io::{IsTerminal, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use savanna_http::rows::write_ndjson;
use serde::Serialize;

use crate::args::Format;
use crate::error::CliError;

/// Colours for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Red,
}

/// Text in a colour, if standard error is a terminal that wants colours.
pub(crate) fn paint(colour: Colour, text: &str) -> String {
    if !std::io::stderr().is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        return text.to_owned();
    }
    let code = match colour {
        Colour::Red => "1;31",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// Writes bytes to standard output at once.
pub(crate) fn write(bytes: &[u8]) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    written.map_err(CliError::io("writing to standard output"))
}

/// Writes one object as one line of JSON.
pub(crate) fn write_json(value: &impl Serialize) -> Result<(), CliError> {
    let mut line = serde_json::to_vec(value).map_err(|error| CliError::Refused(error.to_string()))?;
    line.push(b'\n');
    write(&line)
}

/// A table of text, widths made to fit.
pub(crate) fn text_table(headers: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([headers[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headers.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut out = line(&mut headers.iter().copied());
    for row in rows {
        out.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    out
}

/// A result on its way to standard output, a page at a time.
#[derive(Debug)]
pub(crate) struct ResultWriter {
    format: Format,
    schema: SchemaRef,
    /// Fixed with the first page, so that the columns of a stream stay where they are.
    widths: Option<Vec<usize>>,
    rows: u64,
}

/// Wider cells are written whole, but do not make their column wider.
const WIDTH_MAX: usize = 60;

impl ResultWriter {
    pub(crate) const fn new(format: Format, schema: SchemaRef) -> Self {
        Self { format, schema, widths: None, rows: 0 }
    }

    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }

    /// The text of a page.
    pub(crate) fn page(&mut self, batches: &[RecordBatch]) -> Result<Vec<u8>, ArrowError> {
        let mut out = Vec::new();
        self.rows += batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>();
        if self.format == Format::Json {
            for batch in batches {
                write_ndjson(batch, &mut out)?;
            }
            return Ok(out);
        }
        let mut rows = Vec::new();
        for batch in batches {
            cells(batch, &mut rows)?;
        }
        if !rows.is_empty() {
            self.header(&rows, &mut out);
        }
        for row in &rows {
            self.line(row, &mut out);
        }
        Ok(out)
    }

    /// What comes after the last page.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.format == Format::Table {
            self.header(&[], &mut out);
            let rows = self.rows;
            out.extend_from_slice(format!("({rows} {})\n", if rows == 1 { "row" } else { "rows" }).as_bytes());
        }
        out
    }

    fn header(&mut self, rows: &[Vec<String>], out: &mut Vec<u8>) {
        if self.widths.is_some() {
            return;
        }
        let names: Vec<String> = self.schema.fields().iter().map(|field| field.name().clone()).collect();
        let width = |column: usize, name: &String| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).min(WIDTH_MAX).max(name.chars().count())
        };
        let widths: Vec<usize> = names.iter().enumerate().map(|(column, name)| width(column, name)).collect();
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        self.widths = Some(widths);
        self.line(&names, out);
        out.extend_from_slice(format!("{}\n", rule.join("  ")).as_bytes());
    }

    fn line(&self, cells: &[String], out: &mut Vec<u8>) {
        let widths = self.widths.as_deref().unwrap_or_default();
        let padded = cells.iter().zip(widths).zip(self.schema.fields()).map(|((cell, width), field)| {
            if is_number(field.data_type()) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        let line = padded.collect::<Vec<_>>().join("  ");
        out.extend_from_slice(line.trim_end().as_bytes());
        out.push(b'\n');
    }
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric()
}

fn cells(batch: &RecordBatch, rows: &mut Vec<Vec<String>>) -> Result<(), ArrowError> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<ArrayFormatter<'_>> =
        batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options)).collect::<Result<_, _>>()?;
    for row in 0..batch.num_rows() {
        // A line break inside of a cell would break the table.
        let cell = |column: &ArrayFormatter<'_>| column.value(row).to_string().replace('\n', "\\n");
        rows.push(columns.iter().map(cell).collect());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{Field, Schema};

    use super::*;

    fn batch(ids: Vec<Option<i64>>, names: Vec<&str>) -> RecordBatch {
        let fields = vec![Field::new("id", DataType::Int64, true), Field::new("name", DataType::Utf8, false)];
        let columns = vec![Arc::new(Int64Array::from(ids)) as _, Arc::new(StringArray::from(names)) as _];
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }

    #[test]
    fn a_table_keeps_the_widths_of_its_first_page() {
        let first = batch(vec![Some(1), Some(1000)], vec!["a", "line\nbreak"]);
        let mut writer = ResultWriter::new(Format::Table, first.schema());
        let mut text = writer.page(&[first]).unwrap();
        text.extend(writer.page(&[batch(vec![None], vec!["z"])]).unwrap());
        text.extend(writer.end());
        let expected = "  id  name\n----  -----------\n   1  a\n1000  line\\nbreak\nNULL  z\n(3 rows)\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn an_empty_result_still_shows_its_columns() {
        let mut writer = ResultWriter::new(Format::Table, batch(vec![], vec![]).schema());
        assert!(writer.page(&[]).unwrap().is_empty());
        assert_eq!(String::from_utf8(writer.end()).unwrap(), "id  name\n--  ----\n(0 rows)\n");
    }

    #[test]
    fn json_is_rows_and_nothing_else() {
        let rows = batch(vec![Some(1)], vec!["a"]);
        let mut writer = ResultWriter::new(Format::Json, rows.schema());
        assert_eq!(writer.page(&[rows]).unwrap(), b"{\"op\":\"+I\",\"id\":1,\"name\":\"a\"}\n");
        assert!(writer.end().is_empty());
        assert_eq!(writer.rows(), 1);
    }

    #[test]
    fn columns_of_text_tables_line_up() {
        let table = text_table(&["a", "long"], &[vec!["xyz".into(), "1".into()], vec!["x".into(), String::new()]]);
        assert_eq!(table, "a    long\nxyz  1\nx\n");
    }
}
