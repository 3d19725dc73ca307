//! What reads bytes of clients and data nodes and is not the decoder of calls: for the fuzz targets, which see nothing else of it.

use prost::Message as _;

use crate::protocol::reports;
use crate::transfer::packet::{self, Packet};
use crate::wire::datanode::BlockReport;
use crate::wire::transfer::{BlockChecksum, ReadBlock, TransferBlock, WriteBlock};

/// The longest header of an operation that is tried.
const HEADER_MAX: usize = 1 << 20;

/// Packets one after the other, up to the first that is none, written again.
#[must_use]
pub fn packets(mut bytes: &[u8]) -> Vec<u8> {
    let mut again = Vec::new();
    while let Ok(packet) = Packet::read(&mut bytes) {
        if packet::write(&mut again, packet.header, packet.sums(), packet.bytes()).is_err() {
            break;
        }
    }
    again
}

/// The header of an operation with its length before it: as how many operations it can be read.
#[must_use]
pub fn operation(mut bytes: &[u8]) -> usize {
    let Ok(header) = packet::delimited(&mut bytes, HEADER_MAX) else { return 0 };
    let header = &*header;
    let read = [
        WriteBlock::decode(header).is_ok(),
        ReadBlock::decode(header).is_ok(),
        BlockChecksum::decode(header).is_ok(),
        TransferBlock::decode(header).is_ok(),
    ];
    read.into_iter().filter(|is_read| *is_read).count()
}

/// A report of all replicas: how many it names; nothing if it is none.
#[must_use]
pub fn report(bytes: &[u8]) -> Option<usize> {
    let BlockReport { reports, .. } = BlockReport::decode(bytes).ok()?;
    reports.iter().map(|report| Some(reports::replicas(report).ok()?.len())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What fuzzing begins with.
    macro_rules! seed {
        ($name:literal) => {
            include_bytes!(concat!("../../../fuzz/seeds/", $name))
        };
    }

    #[test]
    fn seeds_are_read_as_what_they_are_called() {
        assert_eq!(packets(seed!("hadoop_packets/packets")), seed!("hadoop_packets/packets"));
        assert_eq!(packets(seed!("hadoop_packets/heartbeat")).len(), 31);
        assert!(operation(seed!("hadoop_packets/operation")) > 0);
        let reports: [&[u8]; 3] =
            [seed!("hadoop_reports/bytes"), seed!("hadoop_reports/parts"), seed!("hadoop_reports/numbers")];
        assert_eq!(reports.map(report), [Some(2); 3]);
        assert_eq!((packets(b"none").len(), operation(b""), report(b"\x0a")), (0, 0, None));
    }
}
