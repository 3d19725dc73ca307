//! The messages of `pgoutput`, version 1, which tell the rows that a transaction has changed.
//!
//! Where transactions begin and end is told by the transport.

use bytes::{Buf, Bytes};

/// The value of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    /// A long one that is stored apart from its row (TOAST), and was not changed: it is not sent.
    Unchanged,
    /// As the type's output function writes it.
    Text(Bytes),
}

/// A row as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Old {
    /// The columns of its replica identity; others are NULL here, whatever they were.
    Key(Vec<Value>),
    Full(Vec<Value>),
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attribute {
    pub(super) name: String,
    pub(super) type_number: u32,
    pub(super) modifier: i32,
}

/// A table whose changes follow, as it is from there on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relation {
    pub(super) number: u32,
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) columns: Vec<Attribute>,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Relation(Relation),
    Insert {
        relation: u32,
        new: Vec<Value>,
    },
    Update {
        relation: u32,
        old: Option<Old>,
        new: Vec<Value>,
    },
    Delete {
        relation: u32,
        old: Old,
    },
    Truncate {
        relations: Vec<u32>,
    },
    /// It says nothing about rows: a type, or where a transaction came from.
    Other,
}

/// Reads a message.
///
/// # Errors
/// It is none: with what was expected.
pub(super) fn message(bytes: &Bytes) -> Result<Message, String> {
    let mut rest = Rest(bytes.clone());
    let message = match rest.letter("a message")? {
        b'R' => Message::Relation(rest.relation()?),
        b'I' => {
            let relation = rest.number("a table")?;
            rest.expect(b'N', "a new row")?;
            Message::Insert { relation, new: rest.row()? }
        }
        b'U' => {
            let relation = rest.number("a table")?;
            let (old, letter) = match rest.letter("a row")? {
                b'K' => (Some(Old::Key(rest.row()?)), rest.letter("a row")?),
                b'O' => (Some(Old::Full(rest.row()?)), rest.letter("a row")?),
                letter => (None, letter),
            };
            if letter != b'N' {
                return Err(wrong("a new row", letter));
            }
            Message::Update { relation, old, new: rest.row()? }
        }
        b'D' => {
            let relation = rest.number("a table")?;
            let old = match rest.letter("a row")? {
                b'K' => Old::Key(rest.row()?),
                b'O' => Old::Full(rest.row()?),
                letter => return Err(wrong("the row as it was", letter)),
            };
            Message::Delete { relation, old }
        }
        b'T' => {
            let count = rest.number("how many tables")? as usize;
            rest.letter("how they were emptied")?;
            let relations: Result<Vec<u32>, String> =
                (0..count.min(rest.0.len() / 4 + 1)).map(|_| rest.number("a table")).collect();
            Message::Truncate { relations: relations? }
        }
        b'Y' | b'O' => return Ok(Message::Other),
        letter => return Err(wrong("a change, a table or a type", letter)),
    };
    match rest.0.len() {
        0 => Ok(message),
        more => Err(format!("expected the end of a message, got {more} bytes more")),
    }
}

fn wrong(expected: &str, letter: u8) -> String {
    format!("expected {expected}, got '{}'", letter.escape_ascii())
}

/// What is left of a message.
struct Rest(Bytes);

impl Rest {
    fn need(&self, count: usize, what: &str) -> Result<(), String> {
        match self.0.len() {
            left if left < count => {
                Err(format!("expected {what} of {count} bytes, got the end of the message after {left}"))
            }
            _ => Ok(()),
        }
    }

    fn letter(&mut self, what: &str) -> Result<u8, String> {
        self.need(1, what)?;
        Ok(self.0.get_u8())
    }

    fn expect(&mut self, letter: u8, what: &str) -> Result<(), String> {
        match self.letter(what)? {
            found if found == letter => Ok(()),
            found => Err(wrong(what, found)),
        }
    }

    fn number(&mut self, what: &str) -> Result<u32, String> {
        self.need(4, what)?;
        Ok(self.0.get_u32())
    }

    fn count(&mut self, what: &str) -> Result<u16, String> {
        self.need(2, what)?;
        Ok(self.0.get_u16())
    }

    fn text(&mut self, what: &str) -> Result<String, String> {
        let end = memchr::memchr(0, &self.0).ok_or_else(|| format!("expected {what}, got a text without an end"))?;
        let text = self.0.split_to(end);
        self.0.advance(1);
        String::from_utf8(text.to_vec()).map_err(|_| format!("expected {what} in UTF-8, got other bytes"))
    }

    fn relation(&mut self) -> Result<Relation, String> {
        let number = self.number("a table")?;
        let (schema, name) = (self.text("a schema")?, self.text("the name of a table")?);
        self.letter("a replica identity")?;
        let count = self.count("how many columns")?;
        let column = |_| {
            self.letter("whether a column is part of the key")?;
            let name = self.text("the name of a column")?;
            let (type_number, modifier) = (self.number("a type")?, self.number("a modifier of a type")?);
            Ok(Attribute { name, type_number, modifier: modifier.cast_signed() })
        };
        let columns: Result<Vec<Attribute>, String> = (0..count).map(column).collect();
        Ok(Relation { number, schema, name, columns: columns? })
    }

    fn row(&mut self) -> Result<Vec<Value>, String> {
        let count = self.count("how many columns")?;
        (0..count).map(|_| self.value()).collect()
    }

    fn value(&mut self) -> Result<Value, String> {
        match self.letter("a value")? {
            b'n' => Ok(Value::Null),
            b'u' => Ok(Value::Unchanged),
            b't' => {
                let length = self.number("the length of a value")? as usize;
                self.need(length, "a value")?;
                Ok(Value::Text(self.0.split_to(length)))
            }
            letter => Err(wrong("a value as text", letter)),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put_row(row: &[Value], to: &mut Vec<u8>) {
        to.extend_from_slice(&u16::try_from(row.len()).unwrap().to_be_bytes());
        for value in row {
            match value {
                Value::Null => to.push(b'n'),
                Value::Unchanged => to.push(b'u'),
                Value::Text(text) => {
                    to.push(b't');
                    to.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
                    to.extend_from_slice(text);
                }
            }
        }
    }

    fn put_old(old: &Old, to: &mut Vec<u8>) {
        match old {
            Old::Key(row) => (to.push(b'K'), put_row(row, to)).1,
            Old::Full(row) => (to.push(b'O'), put_row(row, to)).1,
        }
    }

    /// A message as the server writes it.
    pub(in crate::postgres::changes) fn written(message: &Message) -> Bytes {
        let mut to = Vec::new();
        match message {
            Message::Relation(Relation { number, schema, name, columns }) => {
                to.push(b'R');
                to.extend_from_slice(&number.to_be_bytes());
                for text in [schema, name] {
                    to.extend_from_slice(text.as_bytes());
                    to.push(0);
                }
                to.push(b'd');
                to.extend_from_slice(&u16::try_from(columns.len()).unwrap().to_be_bytes());
                for column in columns {
                    to.push(1);
                    to.extend_from_slice(column.name.as_bytes());
                    to.push(0);
                    to.extend_from_slice(&column.type_number.to_be_bytes());
                    to.extend_from_slice(&column.modifier.to_be_bytes());
                }
            }
            Message::Insert { relation, new } => {
                to.push(b'I');
                to.extend_from_slice(&relation.to_be_bytes());
                to.push(b'N');
                put_row(new, &mut to);
            }
            Message::Update { relation, old, new } => {
                to.push(b'U');
                to.extend_from_slice(&relation.to_be_bytes());
                old.iter().for_each(|old| put_old(old, &mut to));
                to.push(b'N');
                put_row(new, &mut to);
            }
            Message::Delete { relation, old } => {
                to.push(b'D');
                to.extend_from_slice(&relation.to_be_bytes());
                put_old(old, &mut to);
            }
            Message::Truncate { relations } => {
                to.push(b'T');
                to.extend_from_slice(&u32::try_from(relations.len()).unwrap().to_be_bytes());
                to.push(0);
                relations.iter().for_each(|relation| to.extend_from_slice(&relation.to_be_bytes()));
            }
            Message::Other => to.extend_from_slice(b"Y\0\0\0\x01x\0y\0"),
        }
        to.into()
    }

    fn row() -> impl Strategy<Value = Vec<Value>> {
        let value = prop_oneof![
            Just(Value::Null),
            Just(Value::Unchanged),
            proptest::collection::vec(any::<u8>(), 0..9).prop_map(|text| Value::Text(text.into())),
        ];
        proptest::collection::vec(value, 0..5)
    }

    fn old() -> impl Strategy<Value = Old> {
        prop_oneof![row().prop_map(Old::Key), row().prop_map(Old::Full)]
    }

    fn messages() -> impl Strategy<Value = Message> {
        let column = ("[a-z ]{0,5}", any::<u32>(), any::<i32>()).prop_map(|(name, type_number, modifier)| Attribute {
            name,
            type_number,
            modifier,
        });
        let relation = (any::<u32>(), "[a-z]{0,5}", "[a-zä]{0,5}", proptest::collection::vec(column, 0..4))
            .prop_map(|(number, schema, name, columns)| Relation { number, schema, name, columns });
        prop_oneof![
            relation.prop_map(Message::Relation),
            (any::<u32>(), row()).prop_map(|(relation, new)| Message::Insert { relation, new }),
            (any::<u32>(), proptest::option::of(old()), row()).prop_map(|(relation, old, new)| Message::Update {
                relation,
                old,
                new
            }),
            (any::<u32>(), old()).prop_map(|(relation, old)| Message::Delete { relation, old }),
            proptest::collection::vec(any::<u32>(), 0..4).prop_map(|relations| Message::Truncate { relations }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_message_is_read_as_it_was_written_and_no_part_of_it_is_one(message in messages()) {
            let bytes = written(&message);
            prop_assert_eq!(super::message(&bytes), Ok(message));
            for end in 0..bytes.len() {
                prop_assert!(super::message(&bytes.slice(..end)).is_err(), "the first {} bytes", end);
            }
            let more: Bytes = [bytes.as_ref(), b"x"].concat().into();
            prop_assert!(super::message(&more).is_err());
        }

        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = message(&bytes.into());
        }
    }

    #[test]
    fn what_is_no_message_is_told() {
        for (bytes, told) in [
            (&b""[..], "expected a message of 1 bytes, got the end"),
            (b"Z", "expected a change, a table or a type, got 'Z'"),
            (b"I\0\0\0\x01K", "expected a new row, got 'K'"),
            (b"I\0\0\0\x01N\0\x01t\0\0\0\x09abc", "expected a value of 9 bytes, got the end of the message after 3"),
            (b"I\0\0\0\x01N\0\x01b\0\0\0\x01a", "expected a value as text, got 'b'"),
            (b"T\xff\xff\xff\xff\0", "expected a table of 4 bytes"),
        ] {
            let error = message(&Bytes::from_static(bytes)).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
        assert_eq!(message(&written(&Message::Other)), Ok(Message::Other));
    }
}
