//! Packets: the bytes of some chunks of a block, with their checksums.

use std::io::{self, Read, Write};

use prost::Message as _;

use super::{decode, invalid};
use crate::wire::transfer::PacketHeader;

/// The longest packet that is taken, as in Hadoop.
const PACKET_MAX: usize = 16 << 20;
/// The longest header of a packet.
const HEADER_MAX: usize = 256;

/// A packet that came.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) header: PacketHeader,
    content: Vec<u8>,
    sums: usize,
}

impl Packet {
    /// Reads one.
    ///
    /// # Errors
    /// The connection, or bytes that are no packet.
    pub(crate) fn read(reader: &mut impl Read) -> io::Result<Self> {
        let mut head = [0; 6];
        reader.read_exact(&mut head)?;
        let [a, b, c, d, high, low] = head;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let header_length = usize::from(u16::from_be_bytes([high, low]));
        if !(4..=PACKET_MAX).contains(&length) || header_length > HEADER_MAX {
            let words = format!(
                "expected a packet of 4 to {PACKET_MAX} bytes, came one of {length} with a header of {header_length}"
            );
            return Err(invalid(words));
        }
        let mut header = vec![0; header_length];
        reader.read_exact(&mut header)?;
        let header: PacketHeader = decode(&header)?;
        let content_length = length - 4;
        let bytes = usize::try_from(header.length).ok().filter(|bytes| *bytes <= content_length);
        let Some(bytes) = bytes else {
            let words =
                format!("expected a packet with at most {content_length} bytes of the block, came {}", header.length);
            return Err(invalid(words));
        };
        let mut content = vec![0; content_length];
        reader.read_exact(&mut content)?;
        Ok(Self { header, content, sums: content_length - bytes })
    }

    /// The checksums of its chunks.
    pub(crate) fn sums(&self) -> &[u8] {
        &self.content[..self.sums]
    }

    /// Bytes of the block.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.content[self.sums..]
    }
}

/// Writes a packet.
pub(crate) fn write(writer: &mut impl Write, header: PacketHeader, sums: &[u8], bytes: &[u8]) -> io::Result<()> {
    let encoded = header.encode_to_vec();
    let length = (4 + sums.len() + bytes.len()) as u32;
    writer.write_all(&length.to_be_bytes())?;
    writer.write_all(&(encoded.len() as u16).to_be_bytes())?;
    writer.write_all(&encoded)?;
    writer.write_all(sums)?;
    writer.write_all(bytes)
}

/// Reads bytes that have their length before them.
pub(crate) fn delimited(reader: &mut impl Read, longest: usize) -> io::Result<Vec<u8>> {
    let (mut length, mut shift) = (0_usize, 0);
    loop {
        let mut byte = [0];
        reader.read_exact(&mut byte)?;
        length |= usize::from(byte[0] & 0x7f) << shift;
        if byte[0] < 0x80 {
            break;
        }
        shift += 7;
        if shift > 28 {
            return Err(invalid("expected a length, came a longer number".to_owned()));
        }
    }
    if length > longest {
        return Err(invalid(format!("expected a message of at most {longest} bytes, came one of {length}")));
    }
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_read_as_it_was_written() {
        let header = PacketHeader { offset: 512, number: 7, is_last: false, length: 5, syncs: None };
        let mut bytes = Vec::new();
        write(&mut bytes, header, &[1, 2, 3, 4], b"hello").unwrap();
        let packet = Packet::read(&mut &bytes[..]).unwrap();
        assert_eq!((packet.header, packet.sums(), packet.bytes()), (header, &[1, 2, 3, 4][..], &b"hello"[..]));
        for end in 0..bytes.len() {
            assert!(Packet::read(&mut &bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        let refused = |bytes: &[u8]| Packet::read(&mut &*bytes).unwrap_err().to_string();
        assert!(refused(&[0, 0, 0, 3, 0, 0]).contains("expected a packet"));
        assert!(refused(&[0x7f, 0, 0, 0, 0, 0]).contains("expected a packet"));
        assert!(refused(&[0, 0, 0, 4, 1, 1]).contains("expected a packet"));
        for length in [-1, 1, i32::MAX] {
            let header = PacketHeader { offset: 0, number: 0, is_last: false, length, syncs: None }.encode_to_vec();
            let bytes = [&[0, 0, 0, 4, 0, header.len() as u8][..], &header].concat();
            assert!(refused(&bytes).contains("at most 0 bytes"), "{length}");
        }
        assert!(delimited(&mut &[0xff; 9][..], 10).is_err());
        assert!(delimited(&mut &[11, 0][..], 10).is_err());
        assert_eq!(delimited(&mut &[2, 7, 8, 9][..], 10).unwrap(), [7, 8]);
    }
}
