//! The packed forms of small values: listpacks, ziplists, sets of whole numbers.

use super::reader::Reader;
use super::{NoValue, Read};

const END: u8 = 0xff;

fn digits(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// A whole number of three bytes.
fn of_three([low, middle, high]: [u8; 3]) -> i64 {
    i64::from(i32::from_le_bytes([0, low, middle, high]) >> 8)
}

/// The elements of a listpack.
pub(super) fn listpack(bytes: &[u8]) -> Read<Vec<Vec<u8>>> {
    let mut reader = Reader::new(bytes);
    let (length, _count) = (u32::from_le_bytes(reader.chunk()?), u16::from_le_bytes(reader.chunk()?));
    if length as usize != bytes.len() {
        return Err(NoValue::Format);
    }
    let mut elements = Vec::new();
    loop {
        let first = reader.byte()?;
        if first == END {
            return if reader.is_at_end() { Ok(elements) } else { Err(NoValue::Format) };
        }
        let text = |reader: &mut Reader<'_>, length: usize| reader.take(length).map(<[u8]>::to_vec);
        // How long the element is, and what it is.
        let (length, element) = match first {
            0..0x80 => (1, digits(i64::from(first))),
            0x80..0xc0 => {
                let length = usize::from(first & 0x3f);
                (1 + length, text(&mut reader, length)?)
            }
            0xc0..0xe0 => {
                let low = i64::from(reader.byte()?);
                let number = i64::from(first & 0x1f) << 8 | low;
                (2, digits(if number >= 1 << 12 { number - (1 << 13) } else { number }))
            }
            0xe0..0xf0 => {
                let length = usize::from(first & 0xf) << 8 | usize::from(reader.byte()?);
                (2 + length, text(&mut reader, length)?)
            }
            0xf0 => {
                let length = u32::from_le_bytes(reader.chunk()?) as usize;
                (5 + length, text(&mut reader, length)?)
            }
            0xf1 => (3, digits(i64::from(i16::from_le_bytes(reader.chunk()?)))),
            0xf2 => (4, digits(of_three(reader.chunk()?))),
            0xf3 => (5, digits(i64::from(i32::from_le_bytes(reader.chunk()?)))),
            0xf4 => (9, digits(i64::from_le_bytes(reader.chunk()?))),
            _ => return Err(NoValue::Format),
        };
        reader.take(back_bytes(length))?;
        elements.push(element);
    }
}

/// How many bytes behind an element say how long it is.
const fn back_bytes(length: usize) -> usize {
    match length {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    }
}

/// A listpack that is being written.
pub(super) struct Listpack {
    bytes: Vec<u8>,
    count: usize,
}

impl Listpack {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; 6], count: 0 }
    }

    fn end(&mut self, start: usize) {
        let length = self.bytes.len() - start;
        let back = back_bytes(length);
        // Seven bits in each byte, the highest first; all but the first are marked.
        for place in (0..back).rev() {
            let bits = (length >> (7 * place)) as u8 & 0x7f;
            self.bytes.push(if place == back - 1 { bits } else { bits | 0x80 });
        }
        self.count += 1;
    }

    pub(super) fn number(&mut self, number: i64) {
        let start = self.bytes.len();
        if let Ok(small @ 0..0x80) = u8::try_from(number) {
            self.bytes.push(small);
        } else if let Ok(number) = i16::try_from(number) {
            self.bytes.push(0xf1);
            self.bytes.extend_from_slice(&number.to_le_bytes());
        } else if let Ok(number) = i32::try_from(number) {
            self.bytes.push(0xf3);
            self.bytes.extend_from_slice(&number.to_le_bytes());
        } else {
            self.bytes.push(0xf4);
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.end(start);
    }

    pub(super) fn text(&mut self, text: &[u8]) {
        let start = self.bytes.len();
        match text.len() {
            length @ 0..0x40 => self.bytes.push(0x80 | length as u8),
            length @ 0x40..0x1000 => self.bytes.extend([0xe0 | (length >> 8) as u8, length as u8]),
            length => {
                self.bytes.push(0xf0);
                self.bytes.extend_from_slice(&(length as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(text);
        self.end(start);
    }

    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_le_bytes());
        // The highest says that nobody counted.
        let count = u16::try_from(self.count).unwrap_or(u16::MAX);
        self.bytes[4..6].copy_from_slice(&count.to_le_bytes());
        self.bytes
    }
}

/// The elements of a ziplist, which Redis before 7.0 wrote.
pub(super) fn ziplist(bytes: &[u8]) -> Read<Vec<Vec<u8>>> {
    let mut reader = Reader::new(bytes);
    let length = u32::from_le_bytes(reader.chunk()?);
    // Where the last element is, and how many there are.
    reader.take(6)?;
    if length as usize != bytes.len() {
        return Err(NoValue::Format);
    }
    let mut elements = Vec::new();
    loop {
        match reader.byte()? {
            END => return if reader.is_at_end() { Ok(elements) } else { Err(NoValue::Format) },
            // How long the one before is.
            0xfe => drop(reader.take(4)?),
            _ => {}
        }
        let first = reader.byte()?;
        let text = |reader: &mut Reader<'_>, length: usize| reader.take(length).map(<[u8]>::to_vec);
        elements.push(match first {
            0..0x40 => text(&mut reader, usize::from(first))?,
            0x40..0x80 => {
                let length = usize::from(first & 0x3f) << 8 | usize::from(reader.byte()?);
                text(&mut reader, length)?
            }
            0x80 => {
                let length = u32::from_be_bytes(reader.chunk()?) as usize;
                text(&mut reader, length)?
            }
            0xc0 => digits(i64::from(i16::from_le_bytes(reader.chunk()?))),
            0xd0 => digits(i64::from(i32::from_le_bytes(reader.chunk()?))),
            0xe0 => digits(i64::from_le_bytes(reader.chunk()?)),
            0xf0 => digits(of_three(reader.chunk()?)),
            0xfe => digits(i64::from(i8::from_le_bytes(reader.chunk()?))),
            0xf1..=0xfd => digits(i64::from(first & 0xf) - 1),
            _ => return Err(NoValue::Format),
        });
    }
}

/// The members of a set of whole numbers.
pub(super) fn intset(bytes: &[u8]) -> Read<Vec<Vec<u8>>> {
    let mut reader = Reader::new(bytes);
    let (width, count) = (u32::from_le_bytes(reader.chunk()?), u32::from_le_bytes(reader.chunk()?));
    let mut members = Vec::new();
    for _ in 0..count {
        members.push(digits(match width {
            2 => i64::from(i16::from_le_bytes(reader.chunk()?)),
            4 => i64::from(i32::from_le_bytes(reader.chunk()?)),
            8 => i64::from_le_bytes(reader.chunk()?),
            _ => return Err(NoValue::Format),
        }));
    }
    if reader.is_at_end() { Ok(members) } else { Err(NoValue::Format) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listpack_is_read_as_it_was_written() {
        let mut pack = Listpack::new();
        let numbers = [0, 127, 128, -1, -4096, 32_767, -32_769, 1 << 20, i64::MAX, i64::MIN];
        let texts = [0, 1, 63, 64, 126, 127, 128, 4095, 4096, 16_400].map(|length| vec![b'x'; length]);
        numbers.iter().for_each(|number| pack.number(*number));
        texts.iter().for_each(|text| pack.text(text));
        let expected: Vec<Vec<u8>> = numbers.iter().map(|number| digits(*number)).chain(texts).collect();
        assert_eq!(listpack(&pack.into_bytes()), Ok(expected));
    }

    #[test]
    fn numbers_of_every_width_are_read() {
        // 13 bits and three bytes are not written here, but Redis does.
        let pack = b"\x12\x00\x00\x00\x03\x00\xdf\xff\x02\xc1\x00\x02\xf2\xff\xff\xff\x04\xff";
        assert_eq!(listpack(pack), Ok(vec![b"-1".to_vec(), b"256".to_vec(), b"-1".to_vec()]));
        let list = b"\x19\x00\x00\x00\x14\x00\x00\x00\x04\x00\x00\x01a\x03\xf4\x02\xc0\xe8\x03\x04\xfe\xff\xff";
        assert_eq!(
            ziplist(&[&[list.len() as u8], &list[1..]].concat()),
            Ok(vec![b"a".to_vec(), b"3".to_vec(), b"1000".to_vec(), b"-1".to_vec()])
        );
        assert_eq!(ziplist(b""), Err(NoValue::Format));
    }
}
