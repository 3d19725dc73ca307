//! The fields of each message (PostgreSQL's documentation, "Message Formats"), followed byte by byte.

/// The protocol's major version, which a startup message begins with.
const STARTUP_MAJOR: u32 = 3;

/// A body that is none of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It ends inside of a field.
    #[error("{0} message ends in the middle of a field; send the whole field, and a length that counts it")]
    Short(&'static str),
    /// It goes on after its last field.
    #[error("{0} message goes on after its last field; send a length that counts the fields alone")]
    Long(&'static str),
    /// A value is shorter than nothing.
    #[error("{0} message has a value of {1} bytes; a length is -1 for NULL, 0 or more")]
    Negative(&'static str, i32),
}

/// A part of a body.
#[derive(Clone, Copy, Debug)]
enum Field {
    Byte,
    Four,
    /// Text, and a zero behind it.
    Text,
    /// Names, each with a value, up to an empty name.
    Settings,
    /// A count in two bytes, and so many items.
    List(Item),
    /// Anything.
    Rest,
}

/// A part of a list.
#[derive(Clone, Copy, Debug)]
enum Item {
    Two,
    Four,
    /// A length in four bytes, which is -1 for NULL, and so many bytes.
    Value,
}

/// What a message of a type is called, and its fields.
const fn message(kind: u8) -> (&'static str, &'static [Field]) {
    use Field::{Byte, Four, List, Rest, Text};
    match kind {
        b'Q' => ("a Query", &[Text]),
        b'P' => ("a Parse", &[Text, Text, List(Item::Four)]),
        b'B' => ("a Bind", &[Text, Text, List(Item::Two), List(Item::Value), List(Item::Two)]),
        b'D' => ("a Describe", &[Byte, Text]),
        b'E' => ("an Execute", &[Text, Four]),
        b'C' => ("a Close", &[Byte, Text]),
        b'S' => ("a Sync", &[]),
        b'H' => ("a Flush", &[]),
        b'X' => ("a Terminate", &[]),
        b'c' => ("a CopyDone", &[]),
        b'f' => ("a CopyFail", &[Text]),
        // A part of a COPY, a proof of who the client is, or no type that there is.
        _ => ("a", &[Rest]),
    }
}

/// Follows the body of one message.
#[derive(Clone, Debug)]
pub struct Body {
    name: &'static str,
    /// What is still to come, the field under way first.
    fields: &'static [Field],
    /// The list under way, and how many items of it are to come.
    list: Option<(Item, u16)>,
    /// Bytes to come that may be anything.
    any: usize,
    /// The number under way, and how many bytes of it have come.
    number: (u32, usize),
    /// Whether something of the text under way has come.
    in_text: bool,
    /// Whether a setting's value is under way.
    in_value: bool,
}

impl Body {
    /// The body of a message of this type, which comes after its type and length.
    #[must_use]
    pub const fn new(kind: u8) -> Self {
        let (name, fields) = message(kind);
        Self::of(name, fields)
    }

    /// What comes after the length and the code of a message without a type.
    #[must_use]
    pub const fn untyped(code: u32) -> Self {
        Self::of("a startup", if code >> 16 == STARTUP_MAJOR { &[Field::Settings] } else { &[Field::Rest] })
    }

    const fn of(name: &'static str, fields: &'static [Field]) -> Self {
        Self { name, fields, list: None, any: 0, number: (0, 0), in_text: false, in_value: false }
    }

    /// Takes the next bytes in.
    ///
    /// # Errors
    /// They are more than the fields, or no length.
    pub fn advance(&mut self, mut bytes: &[u8]) -> Result<(), Malformed> {
        loop {
            let any = self.any.min(bytes.len());
            self.any -= any;
            bytes = &bytes[any..];
            if self.any > 0 {
                return Ok(());
            }
            if let Some((item, left)) = self.list {
                if !self.item(item, left, &mut bytes)? {
                    return Ok(());
                }
                continue;
            }
            let [field, rest @ ..] = self.fields else {
                return if bytes.is_empty() { Ok(()) } else { Err(Malformed::Long(self.name)) };
            };
            let is_done = match field {
                Field::Rest => return Ok(()),
                Field::Byte => self.skip(1),
                Field::Four => self.skip(4),
                Field::Text => self.text(&mut bytes).is_some(),
                Field::Settings => match self.text(&mut bytes) {
                    Some(is_empty) if is_empty && !self.in_value => true,
                    Some(_) => {
                        self.in_value = !self.in_value;
                        continue;
                    }
                    None => false,
                },
                Field::List(item) => match self.number(2, &mut bytes) {
                    Some(count) => {
                        self.list = Some((*item, count as u16));
                        true
                    }
                    None => false,
                },
            };
            if !is_done {
                return Ok(());
            }
            self.fields = rest;
        }
    }

    /// Says that the message ends here.
    ///
    /// # Errors
    /// Something of its fields has not come.
    pub fn end(mut self) -> Result<(), Malformed> {
        self.advance(&[])?;
        match self.fields {
            [] | [Field::Rest] if self.any == 0 && self.list.is_none() => Ok(()),
            _ => Err(Malformed::Short(self.name)),
        }
    }

    fn skip(&mut self, bytes: usize) -> bool {
        self.any = bytes;
        true
    }

    /// Goes on with a list; whether to look further.
    fn item(&mut self, item: Item, left: u16, bytes: &mut &[u8]) -> Result<bool, Malformed> {
        self.list = None;
        match item {
            Item::Two => Ok(self.skip(2 * usize::from(left))),
            Item::Four => Ok(self.skip(4 * usize::from(left))),
            Item::Value if left == 0 => Ok(true),
            Item::Value => {
                self.list = Some((item, left));
                let Some(length) = self.number(4, bytes) else { return Ok(false) };
                self.list = Some((item, left - 1));
                match length.cast_signed() {
                    -1 => Ok(true),
                    length @ 0.. => Ok(self.skip(length as usize)),
                    length => Err(Malformed::Negative(self.name, length)),
                }
            }
        }
    }

    /// Goes on with a number of so many bytes, which it gives when they have all come.
    fn number(&mut self, length: usize, bytes: &mut &[u8]) -> Option<u32> {
        while let [first, rest @ ..] = bytes {
            *bytes = rest;
            self.number = (self.number.0 << 8 | u32::from(*first), self.number.1 + 1);
            if self.number.1 == length {
                return Some(std::mem::take(&mut self.number).0);
            }
        }
        None
    }

    /// Goes on with a text; when it has ended, whether it was empty.
    fn text(&mut self, bytes: &mut &[u8]) -> Option<bool> {
        let Some(end) = bytes.iter().position(|byte| *byte == 0) else {
            self.in_text |= !bytes.is_empty();
            *bytes = &[];
            return None;
        };
        *bytes = &bytes[end + 1..];
        let is_empty = end == 0 && !self.in_text;
        self.in_text = false;
        Some(is_empty)
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Buf, BufMut, BytesMut};
    use pgwire::messages::{DecodeContext, PgWireFrontendMessage, ProtocolVersion};
    use proptest::prelude::*;

    use super::*;

    fn followed(mut body: Body, parts: &[&[u8]]) -> Result<(), Malformed> {
        parts.iter().try_for_each(|part| body.advance(part))?;
        body.end()
    }

    /// One body of each type, with every kind of field in it.
    fn samples() -> Vec<(u8, Vec<u8>)> {
        vec![
            (b'Q', b"SELECT 1\0".to_vec()),
            (b'P', b"name\0SELECT $1\0\0\x02\0\0\0\x17\0\0\0\x19".to_vec()),
            (b'B', b"\0name\0\0\x02\0\x01\0\0\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\0\0\x01\0\x01".to_vec()),
            (b'B', b"\0\0\0\0\0\0\0\0".to_vec()),
            (b'D', b"Sname\0".to_vec()),
            (b'E', b"\0\0\0\0\x07".to_vec()),
            (b'C', b"P\0".to_vec()),
            (b'S', Vec::new()),
            (b'H', Vec::new()),
            (b'X', Vec::new()),
            (b'c', Vec::new()),
            (b'f', b"enough\0".to_vec()),
        ]
    }

    #[test]
    fn whole_messages_are_followed_however_they_are_cut() {
        for (kind, body) in samples() {
            for cut in 0..=body.len() {
                assert_eq!(followed(Body::new(kind), &[&body[..cut], &body[cut..]]), Ok(()), "{body:?} at {cut}");
            }
            let bytes: Vec<&[u8]> = body.chunks(1).collect();
            assert_eq!(followed(Body::new(kind), &bytes), Ok(()), "{body:?}");
        }
    }

    #[test]
    fn what_ends_early_or_goes_on_is_refused() {
        for (kind, body) in samples() {
            for end in 0..body.len() {
                let short = followed(Body::new(kind), &[&body[..end]]);
                assert!(matches!(short, Err(Malformed::Short(_))), "{body:?} to {end}: {short:?}");
            }
            let long = followed(Body::new(kind), &[&body, b"S"]);
            assert!(matches!(long, Err(Malformed::Long(_))), "{body:?}: {long:?}");
        }
    }

    #[test]
    fn a_value_is_not_shorter_than_null() {
        let refused = followed(Body::new(b'B'), &[b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0"]);
        assert_eq!(refused, Err(Malformed::Negative("a Bind", -2)));
    }

    #[test]
    fn settings_of_a_startup_message_end_with_an_empty_name() {
        let startup = Body::untyped(196_608);
        let whole = b"user\0me\0options\0\0\0";
        for cut in 0..=whole.len() {
            assert_eq!(followed(startup.clone(), &[&whole[..cut], &whole[cut..]]), Ok(()));
        }
        for end in 0..whole.len() {
            assert_eq!(followed(startup.clone(), &[&whole[..end]]), Err(Malformed::Short("a startup")), "to {end}");
        }
        assert_eq!(followed(startup, &[whole, b"x"]), Err(Malformed::Long("a startup")));
    }

    #[test]
    fn of_parts_of_copy_and_proofs_nothing_is_expected() {
        for kind in [b'd', b'p', b'?'] {
            assert_eq!(followed(Body::new(kind), &[b"anything"]), Ok(()));
            assert_eq!(followed(Body::new(kind), &[]), Ok(()));
        }
    }

    fn bytes_of_messages() -> impl Strategy<Value = Vec<u8>> {
        // Mostly what counts and lengths are made of.
        prop::collection::vec(prop_oneof![4 => Just(0), 2 => 0..4_u8, 1 => any::<u8>()], 0..40)
    }

    fn running() -> DecodeContext {
        let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
        context.awaiting_frontend_ssl = false;
        context.awaiting_frontend_startup = false;
        context
    }

    proptest! {
        #[test]
        fn the_decoder_takes_what_is_followed_and_nothing_behind_it(
            kind in prop::sample::select(b"QPBDECSHXcfd".to_vec()),
            body in bytes_of_messages(),
        ) {
            for body in (0..=body.len()).map(|end| &body[..end]) {
                if followed(Body::new(kind), &[body]).is_err() {
                    continue;
                }
                let mut message = BytesMut::new();
                message.put_u8(kind);
                message.put_u32(body.len() as u32 + 4);
                message.extend_from_slice(body);
                message.put_slice(b"next");
                let decoded = PgWireFrontendMessage::decode(&mut message, &running());
                prop_assert!(matches!(decoded, Ok(Some(_))), "{decoded:?}");
                prop_assert_eq!(message.chunk(), b"next");
            }
        }

        #[test]
        fn where_bytes_are_cut_changes_nothing(kind in any::<u8>(), body in bytes_of_messages(), cut in 0..40_usize) {
            let cut = cut.min(body.len());
            let whole = followed(Body::new(kind), &[&body]);
            let cut = followed(Body::new(kind), &[&body[..cut], &body[cut..]]);
            prop_assert_eq!(whole.is_ok(), cut.is_ok());
        }
    }
}
