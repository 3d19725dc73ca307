//! The text format of `COPY`: a line per row, a tab between columns, `\N` for NULL, backslashes before what would be
//! misunderstood.

use savanna_tenants::{
    SqlError,
    error::{Result, state},
    types::Type,
    value::Value,
};

/// The rows of a text, as the texts of their columns.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<Vec<Option<String>>>> {
    let mut rows = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (line, after) = match rest.iter().position(|byte| *byte == b'\n') {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => (rest, &[][..]),
        };
        rest = after;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line == b"\\." {
            break;
        }
        rows.push(line.split(|byte| *byte == b'\t').map(column).collect::<Result<Vec<_>>>()?);
    }
    Ok(rows)
}

fn column(bytes: &[u8]) -> Result<Option<String>> {
    if bytes == b"\\N" {
        return Ok(None);
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
    let text = String::from_utf8(value).ok().filter(|text| !text.contains('\0'));
    let wrong = || SqlError::new(state::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\"");
    text.map(Some).ok_or_else(wrong)
}

/// A row's line.
pub(crate) fn line(row: &[Value], types: impl Iterator<Item = Type>) -> String {
    let mut line = String::new();
    let mut text = String::new();
    for (at, (value, of)) in row.iter().zip(types).enumerate() {
        if at > 0 {
            line.push('\t');
        }
        if value.is_null() {
            line.push_str("\\N");
            continue;
        }
        text.clear();
        value.write_text(of, &mut text);
        for character in text.chars() {
            match character {
                '\\' => line.push_str("\\\\"),
                '\u{8}' => line.push_str("\\b"),
                '\u{c}' => line.push_str("\\f"),
                '\n' => line.push_str("\\n"),
                '\r' => line.push_str("\\r"),
                '\t' => line.push_str("\\t"),
                '\u{b}' => line.push_str("\\v"),
                other => line.push(other),
            }
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(row: &[Option<String>]) -> Vec<Option<&str>> {
        row.iter().map(Option::as_deref).collect()
    }

    #[test]
    fn lines_are_rows_and_tabs_part_columns() {
        let rows = parse(b"1\ta b\t\\N\n2\t\t\\\\N\n").unwrap();
        assert_eq!(texts(&rows[0]), [Some("1"), Some("a b"), None]);
        assert_eq!(texts(&rows[1]), [Some("2"), Some(""), Some("\\N")]);
        assert_eq!(parse(b"").unwrap().len(), 0);
        assert_eq!(parse(b"\n").unwrap(), [[Some(String::new())]], "an empty line is a row with an empty column");
        assert_eq!(parse(b"1\r\n\\.\n2\n").unwrap(), [[Some("1".to_owned())]]);
    }

    #[test]
    fn what_is_written_is_read() {
        let text = "tab\t line\n back\\slash \u{b} ü \\N";
        let line = line(&[Value::Text(text.to_owned()), Value::Null], [Type::Text; 2].into_iter());
        assert_eq!(texts(&parse(line.as_bytes()).unwrap()[0]), [Some(text), None]);
    }

    #[test]
    fn bytes_can_be_written_as_numbers() {
        assert_eq!(parse(b"\\101\\x42\\x\\7").unwrap(), [[Some("ABx\u{7}".to_owned())]]);
        assert!(parse(b"\\xff").is_err() && parse(b"\\000").is_err());
    }
}
