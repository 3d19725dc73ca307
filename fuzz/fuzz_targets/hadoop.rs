//! A client of files that sends anything, in pieces as the first byte says: what is decoded does not depend on the pieces.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use savanna_hadoop::ipc::decoder::{Decoder, Event};

/// All events of bytes that come in pieces, up to the end.
fn events(bytes: &[u8], piece: usize) -> Vec<Event> {
    let (mut decoder, mut buffer, mut events) = (Decoder::default(), BytesMut::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.next(&mut buffer) {
                Event::More => break,
                Event::End(last) => {
                    events.push(Event::End(last));
                    return events;
                }
                event => events.push(event),
            }
        }
    }
    events
}

fuzz_target!(|bytes: &[u8]| {
    let Some((piece, bytes)) = bytes.split_first() else { return };
    let (at_once, in_pieces) = (events(bytes, bytes.len().max(1)), events(bytes, usize::from(*piece).max(1)));
    assert_eq!(at_once, in_pieces);
});
