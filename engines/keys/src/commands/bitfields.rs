//! Whole numbers of any width in the bits of a string.

use crate::error::{CommandError, Outcome};
use crate::keyspace::events::EventClasses;
use crate::keyspace::{Keyspace, STRING_BYTES_MAX};
use crate::memory;
use crate::number::{integer, parse_integer};
use crate::reply::Reply;
use crate::request::Args;

/// A number's width, and whether it has a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Width {
    bits: u32,
    is_signed: bool,
}

impl Width {
    fn parse(text: &[u8]) -> Result<Self, CommandError> {
        let refusal = CommandError::text(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        );
        let Some((mark @ (b'i' | b'u'), digits)) = text.split_first() else { return Err(refusal) };
        let is_signed = *mark == b'i';
        let widest = if is_signed { 64 } else { 63 };
        let bits = integer(digits).and_then(|bits| u32::try_from(bits).ok());
        match bits.filter(|bits| (1..=widest).contains(bits)) {
            Some(bits) => Ok(Self { bits, is_signed }),
            None => Err(refusal),
        }
    }

    /// Where a number begins: at a bit, or (`#n`) behind `n` numbers of this width.
    fn parse_offset(self, text: &[u8]) -> Result<usize, CommandError> {
        let (digits, step) = match text {
            [b'#', digits @ ..] => (digits, i64::from(self.bits)),
            digits => (digits, 1),
        };
        let offset = integer(digits).and_then(|offset| usize::try_from(offset.checked_mul(step)?).ok());
        offset
            .filter(|offset| offset / 8 < STRING_BYTES_MAX)
            .ok_or(CommandError::text("ERR bit offset is not an integer or out of range"))
    }

    /// The largest number.
    const fn max(self) -> i128 {
        if self.is_signed { (1 << (self.bits - 1)) - 1 } else { (1 << self.bits) - 1 }
    }

    /// The smallest number.
    const fn min(self) -> i128 {
        if self.is_signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    /// The number that has the lowest bits of `number`.
    const fn wrapped(self, number: i128) -> i128 {
        let low = number & ((1 << self.bits) - 1);
        if self.is_signed && low > self.max() { low - (1 << self.bits) } else { low }
    }

    /// The number at a bit; behind the end are zeros.
    fn read(self, bytes: &[u8], offset: usize) -> i128 {
        let number = (offset..offset + self.bits as usize).fold(0_i128, |number, at| {
            let byte = bytes.get(at / 8).copied().unwrap_or(0);
            number << 1 | i128::from(byte >> (7 - at % 8) & 1)
        });
        self.wrapped(number)
    }

    /// Writes a number at a bit.
    fn write(self, bytes: &mut [u8], offset: usize, number: i128) {
        for (place, at) in (offset..offset + self.bits as usize).enumerate() {
            let mask = 0x80 >> (at % 8);
            if number >> (self.bits as usize - 1 - place) & 1 == 1 {
                bytes[at / 8] |= mask;
            } else {
                bytes[at / 8] &= !mask;
            }
        }
    }
}

/// What becomes of a number that is too large or too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

impl Overflow {
    fn parse(text: &[u8]) -> Result<Self, CommandError> {
        match text.to_ascii_lowercase().as_slice() {
            b"wrap" => Ok(Self::Wrap),
            b"sat" => Ok(Self::Saturate),
            b"fail" => Ok(Self::Fail),
            _ => Err(CommandError::text("ERR Invalid OVERFLOW type specified")),
        }
    }

    /// The number that is written for this one; `None` for nothing.
    fn fitted(self, width: Width, number: i128) -> Option<i128> {
        let fitting = number.clamp(width.min(), width.max());
        match self {
            _ if fitting == number => Some(number),
            Self::Wrap => Some(width.wrapped(number)),
            Self::Saturate => Some(fitting),
            Self::Fail => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

/// One of the operations of a request.
#[derive(Clone, Copy, Debug)]
struct Operation {
    action: Action,
    width: Width,
    offset: usize,
    overflow: Overflow,
}

impl Operation {
    fn parse_all(args: Args<'_>) -> Result<Vec<Self>, CommandError> {
        let (mut operations, mut overflow) = (Vec::new(), Overflow::Wrap);
        let mut words = args.from(2);
        while let Some(name) = words.next() {
            let name = name.to_ascii_lowercase();
            let needed = match name.as_slice() {
                b"overflow" => 1,
                b"get" => 2,
                b"set" | b"incrby" => 3,
                _ => return Err(CommandError::Syntax),
            };
            if words.len() < needed {
                return Err(CommandError::Syntax);
            }
            let mut next = || words.next().unwrap_or_default();
            if name == b"overflow" {
                overflow = Overflow::parse(next())?;
                continue;
            }
            let width = Width::parse(next())?;
            let offset = width.parse_offset(next())?;
            let action = match name.as_slice() {
                b"get" => Action::Get,
                b"set" => Action::Set(parse_integer(next())?),
                _ => Action::Add(parse_integer(next())?),
            };
            operations.push(Self { action, width, offset, overflow });
        }
        Ok(operations)
    }

    /// How long a string has to be for it.
    fn end(&self) -> usize {
        (self.offset + self.width.bits as usize).div_ceil(8)
    }

    /// Does it. Gives the answer, and whether a number was changed.
    fn run(&self, bytes: &mut [u8]) -> (Option<i128>, bool) {
        let before = self.width.read(bytes, self.offset);
        let wanted = match self.action {
            Action::Get => return (Some(before), false),
            // A number without a sign is that of the same 64 bits.
            Action::Set(number) if !self.width.is_signed => i128::from(number as u64),
            Action::Set(number) => i128::from(number),
            Action::Add(amount) => before + i128::from(amount),
        };
        let Some(after) = self.overflow.fitted(self.width, wanted) else { return (None, false) };
        self.width.write(bytes, self.offset, after);
        let told = if matches!(self.action, Action::Set(_)) { before } else { after };
        (Some(told), before != after)
    }
}

/// Whether a request changes nothing.
pub(crate) fn only_reads(args: Args<'_>) -> bool {
    Operation::parse_all(args)
        .is_ok_and(|operations| operations.iter().all(|operation| operation.action == Action::Get))
}

/// `BITFIELD key [GET encoding offset | [OVERFLOW WRAP | SAT | FAIL] SET encoding offset value | INCRBY encoding offset increment ...]`
pub fn bitfield(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let operations = Operation::parse_all(args)?;
    let changing = || operations.iter().filter(|operation| operation.action != Action::Get);
    let Some(longest) = changing().max_by_key(|operation| operation.end()) else {
        return read(keys, args, &operations, reply);
    };
    let end = longest.end();
    let present = keys.peek_string(&args[1])?.map_or(0, <[u8]>::len);
    memory::ask_for_value(present.max(end))?;
    let (answers, is_changed) = keys.change_string(&args[1], |bytes| {
        let before = bytes.len();
        if before < end {
            bytes.resize(end, 0);
        }
        let mut part = (before < end).then_some(longest.offset / 8..end);
        let mut answers = Vec::with_capacity(operations.len());
        for operation in &operations {
            let (answer, is_changed) = operation.run(bytes);
            answers.push(answer);
            if is_changed {
                let written = operation.offset / 8..operation.end();
                part = Some(match part {
                    None => written,
                    Some(part) => part.start.min(written.start)..part.end.max(written.end),
                });
            }
        }
        let is_changed = part.is_some();
        (part, (answers, is_changed))
    })?;
    if is_changed {
        keys.note_event(EventClasses::STRING, "setbit", &args[1]);
    }
    answer(&answers, reply);
    Ok(())
}

/// `BITFIELD_RO key [GET encoding offset ...]`
pub fn bitfield_ro(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let operations = Operation::parse_all(args)?;
    if operations.iter().any(|operation| operation.action != Action::Get) {
        return Err(CommandError::text("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    read(keys, args, &operations, reply)
}

fn read(keys: &mut Keyspace, args: Args<'_>, operations: &[Operation], reply: &mut dyn Reply) -> Outcome {
    let bytes = keys.string(&args[1])?.unwrap_or_default();
    let read = |operation: &Operation| Some(operation.width.read(bytes, operation.offset));
    answer(&operations.iter().map(read).collect::<Vec<_>>(), reply);
    Ok(())
}

fn answer(answers: &[Option<i128>], reply: &mut dyn Reply) {
    reply.array(answers.len());
    for answer in answers {
        match answer {
            Some(number) => reply.integer(*number as i64),
            None => reply.null(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::Expiry;
    use crate::placement::Routes;
    use crate::reply::Tape;
    use crate::request::OwnedArgs;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for (bits, is_signed) in [(1, true), (1, false), (5, true), (8, false), (33, true), (63, false), (64, true)] {
            let width = Width { bits, is_signed };
            for offset in [0, 3, 13] {
                for number in [width.min(), width.max(), 0, width.max() / 3] {
                    let mut bytes = vec![0xa5; 12];
                    let before = bytes.clone();
                    width.write(&mut bytes, offset, number);
                    assert_eq!(width.read(&bytes, offset), number, "{width:?} {offset}");
                    let outside = |at: usize| at < offset || at >= offset + bits as usize;
                    let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
                    assert!((0..96).filter(|at| outside(*at)).all(|at| bit(&bytes, at) == bit(&before, at)));
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_wrapped_or_cut_or_left() {
        let (signed, unsigned) = (Width { bits: 8, is_signed: true }, Width { bits: 2, is_signed: false });
        for (width, number, wrapped, saturated) in
            [(signed, 128, -128, 127), (signed, -129, 127, -128), (unsigned, 5, 1, 3), (unsigned, -1, 3, 0)]
        {
            assert_eq!(Overflow::Wrap.fitted(width, number), Some(wrapped));
            assert_eq!(Overflow::Saturate.fitted(width, number), Some(saturated));
            assert_eq!(Overflow::Fail.fitted(width, number), None);
        }
    }

    #[test]
    fn zeros_behind_the_longest_string_are_logged_from_within() {
        let mut keys = Keyspace::new(Routes::over(1), 1);
        keys.log.enable(true);
        keys.set_string(b"k", b"x", Expiry::Keep);
        let (before, mut tape) = (keys.log.bytes().len(), Tape::new());
        let words: &[&[u8]] = &[b"BITFIELD", b"k", b"SET", b"i64", b"79999", b"0"];
        bitfield(&mut keys, OwnedArgs::of_words(words).args(), &mut tape).expect("it is right");
        // The whole number, not its last byte alone: that may be beyond where a part of a string may begin.
        let logged = &keys.log.bytes()[before..];
        assert!(logged.windows(8).any(|part| part == (79_999_u64 / 8).to_le_bytes()), "{logged:?}");
        assert_eq!(keys.peek_string(b"k").expect("a string").map(<[u8]>::len), Some((79_999_usize + 64).div_ceil(8)));
    }

    #[test]
    fn offsets_are_bits_or_numbers() {
        let width = Width::parse(b"u10").expect("a width");
        assert_eq!((width.parse_offset(b"7"), width.parse_offset(b"#7")), (Ok(7), Ok(70)));
        for text in ["", "#", "-1", "#-1", "x", "4294967296", "#9223372036854775807"] {
            assert!(width.parse_offset(text.as_bytes()).is_err(), "{text}");
        }
        for text in ["", "u", "i", "u0", "u64", "i65", "x8", "u08", "U8"] {
            assert!(Width::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
