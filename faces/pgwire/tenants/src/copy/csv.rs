//! CSV: values in quotes where they would be misunderstood, which may then have ends of lines in them.

use savanna_tenants_host::{
    SqlError,
    copy::{CopyField, CopyFormat},
    error::{Result, state},
};

use super::{lines::Lines, utf8};

/// The next row.
pub(super) fn next(lines: &mut Lines<'_>, format: &CopyFormat) -> Result<Option<Vec<CopyField>>> {
    let mut quoted = false;
    // An end of a line inside of quotes is a part of the value.
    let mut skip = |bytes: &[u8], at: usize| {
        let mut next = at + 1;
        if quoted && bytes[at] == format.escape && followed(&bytes[next..], format) {
            next += 1;
        } else if bytes[at] == format.quote {
            quoted = !quoted;
        }
        next + bytes[next..].iter().take_while(|byte| quoted && matches!(byte, b'\r' | b'\n')).count()
    };
    let Some(line) = lines.next(&mut skip)? else { return Ok(None) };
    if line == b"\\." {
        lines.end_here();
        return Ok(None);
    }
    columns(line, format).map(Some)
}

/// Whether what follows an escape is what can be escaped.
fn followed(rest: &[u8], format: &CopyFormat) -> bool {
    rest.first().is_some_and(|next| *next == format.quote || *next == format.escape)
}

fn columns(line: &[u8], format: &CopyFormat) -> Result<Vec<CopyField>> {
    let mut columns = Vec::new();
    let mut value = Vec::new();
    let (mut quoted, mut was_quoted, mut at) = (false, false, 0);
    loop {
        let byte = line.get(at).copied();
        match byte {
            None if quoted => return Err(SqlError::new(state::BAD_COPY_FILE_FORMAT, "unterminated CSV quoted field")),
            Some(byte) if quoted && byte == format.escape && followed(&line[at + 1..], format) => {
                at += 1;
                value.push(line[at]);
            }
            Some(byte) if quoted && byte == format.quote => quoted = false,
            Some(byte) if quoted => value.push(byte),
            Some(byte) if byte == format.quote => (quoted, was_quoted) = (true, true),
            Some(byte) if byte != format.delimiter => value.push(byte),
            Some(_) | None => {
                columns.push(column(std::mem::take(&mut value), was_quoted, columns.len(), format)?);
                was_quoted = false;
                if byte.is_none() {
                    return Ok(columns);
                }
            }
        }
        at += 1;
    }
}

fn column(value: Vec<u8>, was_quoted: bool, at: usize, format: &CopyFormat) -> Result<CopyField> {
    let may_be_null = match was_quoted {
        true => format.force_null.contains(&at),
        false => !format.force_not_null.contains(&at),
    };
    if may_be_null && value == format.null.as_bytes() {
        return Ok(CopyField::Null);
    }
    utf8(value).map(CopyField::Text)
}

/// A row's line; `is_header` if it has the columns' names.
pub(super) fn line(columns: &[Option<String>], is_header: bool, format: &CopyFormat) -> String {
    let [delimiter, quote, escape] = [format.delimiter, format.quote, format.escape].map(char::from);
    let mut line = String::new();
    for (at, value) in columns.iter().enumerate() {
        if at > 0 {
            line.push(delimiter);
        }
        let Some(value) = value else {
            line.push_str(&format.null);
            continue;
        };
        let special = |c: char| c == delimiter || c == quote || c == '\n' || c == '\r';
        let forced = !is_header && format.force_quote.contains(&at);
        let ends = columns.len() == 1 && value == "\\.";
        if !forced && !ends && *value != format.null && !value.contains(special) {
            line.push_str(value);
            continue;
        }
        line.push(quote);
        for character in value.chars() {
            if character == quote || character == escape {
                line.push(escape);
            }
            line.push(character);
        }
        line.push(quote);
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8], format: &CopyFormat) -> Result<Vec<Vec<CopyField>>> {
        let mut lines = Lines::new(bytes, None, "unquoted");
        std::iter::from_fn(|| next(&mut lines, format).transpose()).collect()
    }

    fn format() -> CopyFormat {
        CopyFormat { delimiter: b',', null: String::new(), ..CopyFormat::default() }
    }

    fn fields(texts: &[Option<&str>]) -> Vec<CopyField> {
        texts.iter().map(|text| text.map_or(CopyField::Null, |text| CopyField::Text(text.to_owned()))).collect()
    }

    #[test]
    fn quotes_keep_what_would_be_misunderstood() {
        let rows = parse(b"1,a b,\r\n\"2\n\",\"say \"\"hi\"\"\",\"\"\r\n", &format()).unwrap();
        assert_eq!(
            rows,
            [fields(&[Some("1"), Some("a b"), None]), fields(&[Some("2\n"), Some("say \"hi\""), Some("")])]
        );
        assert_eq!(parse(b"a\n\\.\nb\n", &format()).unwrap().len(), 1);
        assert_eq!(parse(b"\"open", &format()).unwrap_err().state, state::BAD_COPY_FILE_FORMAT);
        let forced = CopyFormat { force_null: vec![0], force_not_null: vec![1], ..format() };
        assert_eq!(parse(b"\"\",\n", &forced).unwrap(), [fields(&[None, Some("")])]);
    }

    #[test]
    fn what_is_written_is_read() {
        let other = CopyFormat { delimiter: b';', null: "-".into(), quote: b'\'', escape: b'\\', ..format() };
        for format in [format(), other] {
            let row = [Some("a,;b"), None, Some(""), Some("-"), Some("it's \"\\\r\n"), Some("plain")];
            let text = line(&row.map(|value| value.map(str::to_owned)), false, &format);
            assert_eq!(parse(text.as_bytes(), &format).unwrap(), [fields(&row)], "{text}");
        }
        let forced = CopyFormat { force_quote: vec![0], ..format() };
        assert_eq!(line(&[Some("a".to_owned()), Some("b".to_owned())], false, &forced), "\"a\",b\n");
        assert_eq!(line(&[Some("\\.".to_owned())], true, &forced), "\"\\.\"\n");
    }
}
