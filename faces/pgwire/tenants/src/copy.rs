//! What `COPY` sends and takes: rows as text, CSV or binary values.

mod binary;
mod csv;
mod lines;
mod text;

use savanna_tenants_host::{
    OutputColumn, SqlError,
    copy::{CopyField, CopyFormat, CopyKind, Header},
    error::{Result, state},
    value::{Value, style::Style},
};

use self::lines::Lines;

/// The rows of what a client has sent, read one after the other.
pub(crate) struct Rows<'a> {
    source: Source<'a>,
    format: &'a CopyFormat,
    columns: &'a [String],
    /// What the next row is to be as a header.
    header: Header,
    /// Whether more bytes come behind these.
    go_on: bool,
    /// Why a row cannot be read, if what comes behind it does not change that.
    wrong: Option<SqlError>,
}

/// What is known of the bytes of a COPY behind those that were read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    header: Header,
    end_of_lines: Option<&'static [u8]>,
    is_begun: bool,
}

impl Place {
    /// At the beginning.
    pub(crate) const fn begin(format: &CopyFormat) -> Self {
        Self { header: format.header, end_of_lines: None, is_begun: false }
    }
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Text(Lines<'a>),
    Csv(Lines<'a>),
    Binary(binary::Rows<'a>),
}

impl<'a> Rows<'a> {
    /// Rows for columns of these names, from a place on. If others come behind these bytes, only those rows are read that are whole for certain.
    ///
    /// # Errors
    /// 22P04 if the bytes do not begin as the format does.
    pub(crate) fn new(
        bytes: &'a [u8],
        columns: &'a [String],
        format: &'a CopyFormat,
        (place, go_on): (Place, bool),
    ) -> Result<Self> {
        let lines = |stray| Lines::new(bytes, place.end_of_lines, stray);
        let source = match format.kind {
            CopyKind::Text => Source::Text(lines("literal")),
            CopyKind::Csv => Source::Csv(lines("unquoted")),
            CopyKind::Binary if place.is_begun => Source::Binary(binary::Rows::behind(bytes, columns.len())),
            CopyKind::Binary => Source::Binary(binary::Rows::new(bytes, columns.len())?),
        };
        Ok(Self { source, format, columns, header: place.header, go_on, wrong: None })
    }

    /// The place behind what was read, how many bytes were not, and why the next row cannot be read yet, if it cannot.
    pub(crate) fn into_place(self) -> (Place, usize, Option<SqlError>) {
        let end_of_lines = match &self.source {
            Source::Text(lines) | Source::Csv(lines) => lines.end(),
            Source::Binary(_) => None,
        };
        (Place { header: self.header, end_of_lines, is_begun: true }, self.rest(), self.wrong)
    }

    /// Reads rows until these are at least so many bytes. Whether there are more.
    ///
    /// # Errors
    /// 22P04, 22021.
    pub(crate) fn read(&mut self, bytes: usize, rows: &mut Vec<Vec<CopyField>>) -> Result<bool> {
        let enough = self.rest().saturating_sub(bytes);
        while self.rest() > enough {
            let before = self.source;
            let next = self.next();
            // What comes next may belong to it.
            if self.go_on && (next.is_err() || self.rest() == 0) {
                self.source = before;
                self.wrong = next.err();
                return Ok(false);
            }
            let Some(row) = next? else { break };
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
pub(crate) fn row(values: &[Value], columns: &[OutputColumn], style: Style, format: &CopyFormat) -> Result<Vec<u8>> {
    let types = columns.iter().map(|column| column.of);
    if format.kind == CopyKind::Binary {
        return Ok(binary::row(values, types));
    }
    let shown = |(value, of): (&Value, _)| {
        let mut text = String::new();
        value.write_text(of, style, &mut text)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn format(kind: CopyKind, header: Header) -> CopyFormat {
        let (delimiter, null) = if kind == CopyKind::Csv { (b',', "") } else { (b'\t', "\\N") };
        CopyFormat { kind, header, delimiter, null: null.to_owned(), ..CopyFormat::default() }
    }

    /// The rows of bytes that come in pieces of so many.
    fn in_pieces(bytes: &[u8], size: usize, columns: &[String], format: &CopyFormat) -> Result<Vec<Vec<CopyField>>> {
        let (mut rows, mut text, mut place) = (Vec::new(), Vec::new(), Place::begin(format));
        let mut take = |text: &mut Vec<u8>, go_on| -> Result<()> {
            // Whoever takes a piece has more than the head.
            if go_on && text.len() < 40 {
                return Ok(());
            }
            let mut source = Rows::new(text, columns, format, (place, go_on))?;
            while source.read(3, &mut rows)? {}
            let (behind, rest, _) = source.into_place();
            place = behind;
            text.drain(..text.len() - rest);
            Ok(())
        };
        for piece in bytes.chunks(size) {
            text.extend(piece);
            take(&mut text, true)?;
        }
        take(&mut text, false)?;
        Ok(rows)
    }

    #[test]
    fn rows_are_the_same_however_they_are_cut() {
        let columns = ["a".to_owned(), "b".to_owned()];
        let field = |text: &str| CopyField::Text(text.to_owned());
        let values = ["x", "", "\n", "two\r\nlines", "\u{fc}\u{20ac}", "\\", "\"", "\\.", "a,b\tc"];
        let given: Vec<Vec<CopyField>> = values.iter().map(|value| vec![field(value), field("y")]).collect();
        let texts = given.iter().map(|row| {
            let text = |field: &CopyField| match field {
                CopyField::Text(text) => Some(text.clone()),
                _ => None,
            };
            row.iter().map(text).collect::<Vec<_>>()
        });
        let text = format(CopyKind::Text, Header::No);
        let plain: String = texts.clone().map(|row| text::line(&row, &text)).collect();
        let csv = format(CopyKind::Csv, Header::Match);
        let quoted: String = texts.map(|row| csv::line(&row, false, &csv)).collect();
        let mut binary = begin(&[], &format(CopyKind::Binary, Header::No));
        for value in values {
            binary.extend(2_i16.to_be_bytes());
            for value in [value, "y"] {
                binary.extend((value.len() as i32).to_be_bytes());
                binary.extend(value.as_bytes());
            }
        }
        binary.extend(end(&format(CopyKind::Binary, Header::No)));
        let as_bytes = |row: &Vec<CopyField>| {
            let bytes = |field: &CopyField| match field {
                CopyField::Text(text) => CopyField::Binary(text.clone().into_bytes()),
                other => other.clone(),
            };
            row.iter().map(bytes).collect::<Vec<_>>()
        };
        let expected: Vec<Vec<CopyField>> = given.iter().map(as_bytes).collect();
        for size in 1..200 {
            assert_eq!(in_pieces(plain.as_bytes(), size, &columns, &text).as_ref(), Ok(&given), "{size}");
            let windows = plain.replace('\n', "\r\n");
            assert_eq!(in_pieces(windows.as_bytes(), size, &columns, &text).as_ref(), Ok(&given), "{size}");
            let marked = format!("{plain}\\.\nnot\tread\n");
            assert_eq!(in_pieces(marked.as_bytes(), size, &columns, &text).as_ref(), Ok(&given), "{size}");
            let headed = format!("a,b\n{quoted}");
            assert_eq!(in_pieces(headed.as_bytes(), size, &columns, &csv).as_ref(), Ok(&given), "{size}");
            let binary_format = format(CopyKind::Binary, Header::No);
            assert_eq!(in_pieces(&binary, size, &columns, &binary_format).as_ref(), Ok(&expected), "{size}");
            // What is wrong is wrong wherever it is cut.
            let wrong = format!("{plain}a\tb\r\n");
            assert!(in_pieces(wrong.as_bytes(), size, &columns, &text).is_err(), "{size}");
        }
    }
}
