//! Rows from their texts and bytes.

use crate::{
    composite::{Attribute, Composite},
    error::{Result, SqlError, state},
    value::{Context, Value, binary, record::Field, size::check_structure, text},
};

impl Composite {
    /// The row of a text: `(1,,"a ""b""")`.
    ///
    /// # Errors
    /// 22P02, and those of the values.
    pub(crate) fn parse(&self, text: &str, context: Context<'_>) -> Result<Value> {
        let malformed = |detail: &'static str| malformed(text, detail);
        let rest = text.trim_start_matches(is_blank).strip_prefix('(');
        let mut rest = rest.ok_or_else(|| malformed("Missing left parenthesis."))?;
        let (mut values, mut bytes) = (Vec::with_capacity(self.attributes.len()), 0);
        for (at, Attribute { name, of, .. }) in self.live().enumerate() {
            if at > 0 {
                rest = rest.strip_prefix(',').ok_or_else(|| malformed("Too few columns."))?;
            }
            let value = match rest.chars().next() {
                Some(',' | ')') => Value::Null,
                _ => {
                    let (word, behind) = word(rest).ok_or_else(|| malformed("Unexpected end of input."))?;
                    rest = behind;
                    text::parse(&word, *of, context)?
                }
            };
            bytes += size_of::<Field>() + name.len() + value.bytes();
            check_structure(bytes)?;
            values.push(value);
        }
        let rest = rest.strip_prefix(')').ok_or_else(|| malformed("Too many columns."))?;
        if !rest.trim_start_matches(is_blank).is_empty() {
            return Err(malformed("Junk after right parenthesis."));
        }
        Ok(self.row(values))
    }

    /// The row of the binary format's bytes.
    ///
    /// # Errors
    /// 42804 for columns of other types, 22P03, and those of the values.
    pub(crate) fn from_wire(&self, whole: &[u8], context: Context<'_>) -> Result<Value> {
        let mut reader = Reader(whole);
        let (count, expected) = (reader.number()?, self.live().count());
        if usize::try_from(count) != Ok(expected) {
            let message = format!("wrong number of columns: {count}, expected {expected}");
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
        }
        let (mut values, mut bytes) = (Vec::with_capacity(expected), 0);
        for (at, Attribute { name, of, .. }) in self.live().enumerate() {
            let came = reader.number()? as u32;
            if came != of.oid() {
                let (at, of) = (at + 1, of.oid());
                let message = format!("binary data has type {came} instead of expected {of} in record column {at}");
                return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
            }
            let value = match reader.number()? {
                -1 => Value::Null,
                length => binary::parse(reader.take(length)?, *of, context)?,
            };
            bytes += size_of::<Field>() + name.len() + value.bytes();
            check_structure(bytes)?;
            values.push(value);
        }
        if !reader.0.is_empty() {
            let message = "improper binary format in a record";
            return Err(SqlError::new(state::INVALID_BINARY_REPRESENTATION, message));
        }
        Ok(self.row(values))
    }
}

fn malformed(text: &str, detail: &'static str) -> SqlError {
    let message = format!("malformed record literal: \"{text}\"");
    SqlError::new(state::INVALID_TEXT_REPRESENTATION, message).detail(detail)
}

/// As C's `isspace`, which PostgreSQL asks.
const fn is_blank(character: char) -> bool {
    character.is_ascii_whitespace() || character == '\u{b}'
}

/// A value's text without its quotes, and what is behind it; `None` if it does not end.
fn word(text: &str) -> Option<(String, &str)> {
    let (mut word, mut quoted) = (String::new(), false);
    let mut rest = text.char_indices();
    while let Some((at, character)) = rest.next() {
        match character {
            ',' | ')' if !quoted => return Some((word, &text[at..])),
            '\\' => word.push(rest.next()?.1),
            // Two quotes within quotes are one.
            '"' if quoted && text[at + 1..].starts_with('"') => {
                rest.next();
                word.push('"');
            }
            '"' => quoted = !quoted,
            other => word.push(other),
        }
    }
    None
}

/// Bytes that are being read from their start.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Result<i32> {
        let (number, rest) = self.0.split_first_chunk().ok_or_else(cut)?;
        self.0 = rest;
        Ok(i32::from_be_bytes(*number))
    }

    fn take(&mut self, length: i32) -> Result<&'a [u8]> {
        let length = usize::try_from(length).map_err(|_| cut())?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(cut)?;
        self.0 = rest;
        Ok(taken)
    }
}

fn cut() -> SqlError {
    SqlError::new(state::INVALID_BINARY_REPRESENTATION, "insufficient data left in message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        own::OwnTypes,
        types::Type,
        value::{record::Record, style::Style},
    };

    fn pair() -> Composite {
        let attributes = vec![Attribute::new("a".to_owned(), Type::Int4), Attribute::new("b".to_owned(), Type::Text)];
        Composite { id: 20_000, name: "pair".to_owned(), schema: 0, attributes, comment: None }
    }

    fn own() -> OwnTypes {
        let (mut own, of) = (OwnTypes::new(), Type::Composite(20_000));
        own.add_composite(pair());
        let attributes = vec![
            Attribute::new("p".to_owned(), of),
            Attribute::new("all".to_owned(), of.array().expect("arrays of rows")),
        ];
        own.add_composite(Composite { id: 20_001, name: "outer".to_owned(), attributes, ..pair() });
        own
    }

    #[test]
    fn texts_of_rows_are_read_and_written_as_in_postgresql() {
        let own = own();
        let context = Context { own: &own, style: Style::PLAIN };
        for (id, text, shown) in [
            (20_000, "(1,b)", "(1,b)"),
            (20_000, "  ( 7 , x y )  ", "(7,\" x y \")"),
            (20_000, "(,)", "(,)"),
            (20_000, "(,\"\")", "(,\"\")"),
            (20_000, "(1,\"a\"\"b\\\\c\\\"\")", "(1,\"a\"\"b\\\\c\"\"\")"),
            (20_000, "(1,a\"b,c\"d)", "(1,\"ab,cd\")"),
            (
                20_001,
                "(\"(1,\"\"x,y\"\")\",\"{\"\"(1,b)\"\",\"\"(,)\"\"}\")",
                "(\"(1,\"\"x,y\"\")\",\"{\"\"(1,b)\"\",\"\"(,)\"\"}\")",
            ),
        ] {
            let of = Type::Composite(id);
            let value = text::parse(text, of, context).unwrap();
            assert_eq!(text::shown(&value, of, Style::PLAIN), shown);
            let mut bytes = Vec::new();
            binary::write(&value, of, &mut bytes);
            assert_eq!(binary::parse(&bytes, of, context), Ok(value));
        }
    }

    #[test]
    fn malformed_rows_are_refused() {
        let own = own();
        let context = Context { own: &own, style: Style::PLAIN };
        for (text, detail) in [
            ("1,b", "Missing left parenthesis."),
            ("(1)", "Too few columns."),
            ("(1,b,c)", "Too many columns."),
            ("(1,b", "Unexpected end of input."),
            ("(1,\"b)", "Unexpected end of input."),
            ("(1,b)x", "Junk after right parenthesis."),
        ] {
            let refused = text::parse(text, Type::Composite(20_000), context).unwrap_err();
            assert_eq!((refused.state, refused.detail.as_deref()), ("22P02", Some(detail)), "{text}");
        }
        let mut bytes = Vec::new();
        let Value::Record(row) = pair().parse("(1,b)", context).unwrap() else { panic!("a row") };
        row.to_wire(&mut bytes);
        for cut in 0..bytes.len() {
            assert!(pair().from_wire(&bytes[..cut], context).is_err());
        }
        bytes[7] = 20;
        assert_eq!(pair().from_wire(&bytes, context).unwrap_err().state, state::DATATYPE_MISMATCH);
        let empty = Record::default();
        bytes.clear();
        empty.to_wire(&mut bytes);
        assert_eq!(pair().from_wire(&bytes, context).unwrap_err().state, state::DATATYPE_MISMATCH);
    }
}
