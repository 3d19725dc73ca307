//! What `COPY` sends and takes: rows as text, CSV or binary values.

mod binary;
mod csv;
mod lines;
mod text;

use savanna_tenants_host::{
    OutputColumn, SqlError,
    copy::{CopyField, CopyFormat, CopyKind, Header},
    error::{Result, state},
    value::{Value, zone::Zone},
};

use self::lines::Lines;

/// The rows of what a client has sent, read one after the other.
pub(crate) struct Rows<'a> {
    source: Source<'a>,
    format: &'a CopyFormat,
    columns: &'a [String],
    /// What the next row is to be as a header.
    header: Header,
}

enum Source<'a> {
    Text(Lines<'a>),
    Csv(Lines<'a>),
    Binary(binary::Rows<'a>),
}

impl<'a> Rows<'a> {
    /// Rows for columns of these names.
    ///
    /// # Errors
    /// 22P04 if the bytes do not begin as the format does.
    pub(crate) fn new(bytes: &'a [u8], columns: &'a [String], format: &'a CopyFormat) -> Result<Self> {
        let source = match format.kind {
            CopyKind::Text => Source::Text(Lines::new(bytes, "literal")),
            CopyKind::Csv => Source::Csv(Lines::new(bytes, "unquoted")),
            CopyKind::Binary => Source::Binary(binary::Rows::new(bytes, columns.len())?),
        };
        Ok(Self { source, format, columns, header: format.header })
    }

    /// Reads rows until these are at least so many bytes. Whether there are more.
    ///
    /// # Errors
    /// 22P04, 22021.
    pub(crate) fn read(&mut self, bytes: usize, rows: &mut Vec<Vec<CopyField>>) -> Result<bool> {
        let enough = self.rest().saturating_sub(bytes);
        while self.rest() > enough {
            let Some(row) = self.next()? else { break };
            match std::mem::take(&mut self.header) {
                Header::No => rows.push(row),
                Header::Yes => {}
                Header::Match => check_header(&row, self.columns)?,
            }
        }
        let more = self.rest() > 0;
        if !more && self.header == Header::Match {
            check_header(&[], self.columns)?;
        }
        Ok(more)
    }

    fn next(&mut self) -> Result<Option<Vec<CopyField>>> {
        match &mut self.source {
            Source::Text(lines) => text::next(lines, self.format),
            Source::Csv(lines) => csv::next(lines, self.format),
            Source::Binary(rows) => rows.next(),
        }
    }

    /// Bytes that are not read.
    const fn rest(&self) -> usize {
        match &self.source {
            Source::Text(lines) | Source::Csv(lines) => lines.rest(),
            Source::Binary(rows) => rows.rest(),
        }
    }
}

fn check_header(header: &[CopyField], columns: &[String]) -> Result<()> {
    let wrong = |message: String| Err(SqlError::new(state::BAD_COPY_FILE_FORMAT, message));
    if header.len() != columns.len() {
        return wrong(format!(
            "wrong number of fields in header line: got {}, expected {}",
            header.len(),
            columns.len()
        ));
    }
    for (at, (field, column)) in header.iter().zip(columns).enumerate() {
        match field {
            CopyField::Text(name) if name == column => {}
            CopyField::Text(name) => {
                let message = format!("column name mismatch in header line field {}: got \"{name}\"", at + 1);
                return wrong(format!("{message}, expected \"{column}\""));
            }
            _ => {
                let message = format!("column name mismatch in header line field {}: got null value", at + 1);
                return wrong(format!("{message}, expected \"{column}\""));
            }
        }
    }
    Ok(())
}

/// What is sent before the rows.
pub(crate) fn begin(columns: &[OutputColumn], format: &CopyFormat) -> Vec<u8> {
    let names = || columns.iter().map(|column| Some(column.name.clone())).collect::<Vec<_>>();
    match format.kind {
        CopyKind::Binary => binary::begin(),
        _ if format.header == Header::No => Vec::new(),
        CopyKind::Text => text::line(&names(), format).into_bytes(),
        CopyKind::Csv => csv::line(&names(), true, format).into_bytes(),
    }
}

/// A row.
///
/// # Errors
/// 54000 if the text of a value would be too long.
pub(crate) fn row(values: &[Value], columns: &[OutputColumn], zone: Zone, format: &CopyFormat) -> Result<Vec<u8>> {
    let types = columns.iter().map(|column| column.of);
    if format.kind == CopyKind::Binary {
        return Ok(binary::row(values, types));
    }
    let shown = |(value, of): (&Value, _)| {
        let mut text = String::new();
        value.write_text(of, zone, &mut text)?;
        Ok((!value.is_null()).then_some(text))
    };
    let texts: Vec<Option<String>> = values.iter().zip(types).map(shown).collect::<Result<_>>()?;
    Ok(match format.kind {
        CopyKind::Csv => csv::line(&texts, false, format).into_bytes(),
        _ => text::line(&texts, format).into_bytes(),
    })
}

/// What is sent behind the rows.
pub(crate) fn end(format: &CopyFormat) -> Vec<u8> {
    if format.kind == CopyKind::Binary { binary::end() } else { Vec::new() }
}

fn utf8(bytes: Vec<u8>) -> Result<String> {
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    let wrong = || SqlError::new(state::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\"");
    text.ok_or_else(wrong)
}
