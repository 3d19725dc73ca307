//! `COPY .. TO STDOUT`: rows as lines of text.

use pgwire::messages::data::DataRow;
use savanna_streams_api::handle::CopyFormat;

/// The line with the names of the columns.
pub(crate) fn header<'a>(format: &CopyFormat, names: impl Iterator<Item = &'a str>) -> Vec<u8> {
    line_of(format, names.map(|name| Some(name.as_bytes())))
}

/// A row, whose values are in the text format of the protocol, as a line.
pub(crate) fn line(format: &CopyFormat, row: &DataRow) -> Vec<u8> {
    line_of(format, values(&row.data))
}

/// The values of a row as the protocol has them: a length, -1 for NULL, and that many bytes.
fn values(mut data: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    std::iter::from_fn(move || {
        let (length, rest) = data.split_first_chunk()?;
        let length = usize::try_from(i32::from_be_bytes(*length)).ok();
        let (value, rest) = rest.split_at_checked(length.unwrap_or(0))?;
        data = rest;
        Some(length.map(|_| value))
    })
}

fn line_of<'a>(format: &CopyFormat, values: impl Iterator<Item = Option<&'a [u8]>>) -> Vec<u8> {
    let mut line = Vec::new();
    let mut columns = 0;
    for value in values {
        if columns > 0 {
            line.push(format.delimiter as u8);
        }
        columns += 1;
        match value {
            None => line.extend(format.null.as_bytes()),
            Some(value) if format.csv => csv(format, value, &mut line),
            Some(value) => text(format, value, &mut line),
        }
    }
    // This alone would be the end of the data.
    if format.csv && columns == 1 && line == b"\\." {
        line = [&[format.quote as u8][..], b"\\.", &[format.quote as u8]].concat();
    }
    line.push(b'\n');
    line
}

fn csv(format: &CopyFormat, value: &[u8], line: &mut Vec<u8>) {
    let (delimiter, quote, escape) = (format.delimiter as u8, format.quote as u8, format.escape as u8);
    let special = |byte: &u8| [delimiter, quote, b'\n', b'\r'].contains(byte);
    if value != format.null.as_bytes() && !value.iter().any(special) {
        line.extend(value);
        return;
    }
    line.push(quote);
    for &byte in value {
        if byte == quote || byte == escape {
            line.push(escape);
        }
        line.push(byte);
    }
    line.push(quote);
}

fn text(format: &CopyFormat, value: &[u8], line: &mut Vec<u8>) {
    for &byte in value {
        let escaped = match byte {
            0x08 => b'b',
            0x0b => b'v',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            b'\\' => b'\\',
            _ if byte == format.delimiter as u8 => byte,
            _ => {
                line.push(byte);
                continue;
            }
        };
        line.extend([b'\\', escaped]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(csv: bool) -> CopyFormat {
        let (delimiter, null) = if csv { (',', "") } else { ('\t', "\\N") };
        CopyFormat { csv, header: false, delimiter, null: null.into(), quote: '"', escape: '"' }
    }

    fn lines(csv: bool, values: &[Option<&str>]) -> String {
        let line = line_of(&format(csv), values.iter().map(|value| value.map(str::as_bytes)));
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn values_are_escaped_as_postgresql_does() {
        let values = [Some("a\tb\\"), None, Some(""), Some("x,\"y\"\n")];
        assert_eq!(lines(false, &values), "a\\tb\\\\\t\\N\t\tx,\"y\"\\n\n");
        assert_eq!(lines(true, &values), "a\tb\\,,\"\",\"x,\"\"y\"\"\n\"\n");
        assert_eq!(lines(true, &[Some("\\.")]), "\"\\.\"\n");
    }

    #[test]
    fn a_row_of_the_protocol_is_read_value_by_value() {
        let data = [&1_i32.to_be_bytes()[..], b"a", &(-1_i32).to_be_bytes(), &0_i32.to_be_bytes()].concat();
        assert_eq!(values(&data).collect::<Vec<_>>(), [Some(&b"a"[..]), None, Some(&b""[..])]);
    }
}
