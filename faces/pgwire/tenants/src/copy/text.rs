//! The text format: a line per row, with backslashes before what would be misunderstood.

use savanna_tenants_host::{
    SqlError,
    copy::{CopyField, CopyFormat},
    error::{Result, state},
};

use super::{lines::Lines, utf8};

/// The next row.
pub(super) fn next(lines: &mut Lines<'_>, format: &CopyFormat) -> Result<Option<Vec<CopyField>>> {
    // A backslash makes the next byte a part of the value, an end of a line too.
    let step = &mut |bytes: &[u8], at: usize| if bytes[at] == b'\\' { at + 2 } else { at + 1 };
    let Some(line) = lines.next(step)? else { return Ok(None) };
    let row = match end_marker(line) {
        None => return columns(line, format).map(Some),
        Some(at) if at + 2 < line.len() => {
            return Err(SqlError::new(state::BAD_COPY_FILE_FORMAT, "end-of-copy marker corrupt"));
        }
        Some(0) => None,
        Some(at) => Some(columns(&line[..at], format)?),
    };
    lines.end_here();
    Ok(row)
}

/// Where a line has the mark behind which nothing is read.
fn end_marker(line: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < line.len() {
        match line[at..] {
            [b'\\', b'.', ..] => return Some(at),
            [b'\\', ..] => at += 2,
            _ => at += 1,
        }
    }
    None
}

fn columns(line: &[u8], format: &CopyFormat) -> Result<Vec<CopyField>> {
    let mut columns = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < line.len() {
        if line[at] == format.delimiter {
            columns.push(column(&line[start..at], format)?);
            start = at + 1;
        }
        at += if line[at] == b'\\' { 2 } else { 1 };
    }
    columns.push(column(&line[start..], format)?);
    Ok(columns)
}

fn column(bytes: &[u8], format: &CopyFormat) -> Result<CopyField> {
    if bytes == format.null.as_bytes() {
        return Ok(CopyField::Null);
    }
    let mut value = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        if byte != b'\\' {
            value.push(byte);
            continue;
        }
        let Some(&letter) = bytes.get(at) else {
            value.push(byte);
            break;
        };
        at += 1;
        // At most so many digits that follow.
        let mut digits = |mut number: u32, radix: u32, most: usize| {
            let mut read = 0;
            while read < most
                && let Some(digit) = bytes.get(at).and_then(|byte| char::from(*byte).to_digit(radix))
            {
                number = number * radix + digit;
                (at, read) = (at + 1, read + 1);
            }
            (number as u8, read)
        };
        value.push(match letter {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'0'..=b'7' => digits(u32::from(letter - b'0'), 8, 2).0,
            b'x' => match digits(0, 16, 2) {
                (_, 0) => b'x',
                (byte, _) => byte,
            },
            other => other,
        });
    }
    utf8(value).map(CopyField::Text)
}

/// A row's line.
pub(super) fn line(columns: &[Option<String>], format: &CopyFormat) -> String {
    let mut line = String::new();
    for (at, text) in columns.iter().enumerate() {
        if at > 0 {
            line.push(char::from(format.delimiter));
        }
        let Some(text) = text else {
            line.push_str(&format.null);
            continue;
        };
        for character in text.chars() {
            let letter = match character {
                '\\' => '\\',
                '\u{8}' => 'b',
                '\u{c}' => 'f',
                '\n' => 'n',
                '\r' => 'r',
                '\t' => 't',
                '\u{b}' => 'v',
                other if other == char::from(format.delimiter) => other,
                other => {
                    line.push(other);
                    continue;
                }
            };
            line.push('\\');
            line.push(letter);
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8], format: &CopyFormat) -> Result<Vec<Vec<CopyField>>> {
        let mut lines = Lines::new(bytes, None, "literal");
        std::iter::from_fn(|| next(&mut lines, format).transpose()).collect()
    }

    fn texts(bytes: &[u8]) -> Vec<Vec<Option<String>>> {
        let text = |field: CopyField| match field {
            CopyField::Text(text) => Some(text),
            _ => None,
        };
        let rows = parse(bytes, &CopyFormat::default()).unwrap();
        rows.into_iter().map(|row| row.into_iter().map(text).collect()).collect()
    }

    fn row(texts: &[Option<&str>]) -> Vec<Option<String>> {
        texts.iter().map(|text| text.map(str::to_owned)).collect()
    }

    #[test]
    fn lines_are_rows_and_tabs_part_columns() {
        let expected = [row(&[Some("1"), Some("a b"), None]), row(&[Some("2"), Some(""), Some("\\N")])];
        assert_eq!(texts(b"1\ta b\t\\N\n2\t\t\\\\N\n"), expected);
        assert_eq!(texts(b"").len(), 0);
        assert_eq!(texts(b"\n"), [row(&[Some("")])], "an empty line is a row with an empty column");
        assert_eq!(texts(b"1\r\n\\.\r\n2\r\n"), [row(&[Some("1")])]);
        assert_eq!(texts(b"1\r2\r"), [row(&[Some("1")]), row(&[Some("2")])]);
        assert_eq!(texts(b"a\\\nb\\\tc\n"), [row(&[Some("a\nb\tc")])]);
        assert!(parse(b"1\n2\r\n", &CopyFormat::default()).is_err(), "ends of lines are alike");
    }

    #[test]
    fn what_is_written_is_read() {
        let text = "tab\t line\n back\\slash \u{b} \u{fc} \\N | ";
        for delimiter in [b'\t', b'|'] {
            let format = CopyFormat { delimiter, ..CopyFormat::default() };
            let line = line(&[Some(text.to_owned()), None], &format);
            let expected = [[CopyField::Text(text.to_owned()), CopyField::Null]];
            assert_eq!(parse(line.as_bytes(), &format).unwrap(), expected);
        }
    }

    #[test]
    fn bytes_can_be_written_as_numbers() {
        assert_eq!(texts(b"\\101\\x42\\x\\7"), [row(&[Some("ABx\u{7}")])]);
        assert!(parse(b"\\xff", &CopyFormat::default()).is_err() && parse(b"\\000", &CopyFormat::default()).is_err());
    }
}
