//! Frames between nodes: bytes that are none are refused, and what decodes encodes to the same bytes.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use savanna_rpc::frame::{decode, encode};

const FRAME_BYTES_MAX: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let mut input = BytesMut::from(bytes);
    while let Ok(Some(frame)) = decode(&mut input, FRAME_BYTES_MAX) {
        let mut again = BytesMut::new();
        encode(&frame, FRAME_BYTES_MAX, &mut again).expect("a frame that came in fits");
        let back = decode(&mut again, FRAME_BYTES_MAX).expect("a frame that was encoded is one");
        assert_eq!(back.map(|frame| frame.request), Some(frame.request));
    }
});
