//! Frames: what two nodes say to each other, and its bytes.
//!
//! ```text
//!  0       2       3      4              8                16
//! +-------+-------+------+--------------+----------------+
//! | "SR"  |version| kind | deadline_ms  |   request id   |
//! +-------+-------+------+--------------+----------------+
//! 16              20             24             28       32
//! +--------------+--------------+--------------+--------------+
//! | head length  | body length  | payload crc  | header crc   |
//! +--------------+--------------+--------------+--------------+
//! 32                     32+head                32+head+body
//! +----------------------+-----------------------+
//! | head (postcard)      | body (the method's)   |
//! +----------------------+-----------------------+
//! ```
//!
//! Integers are little endian. `deadline_ms` is the time the caller still waits, counted from the sending: the clocks of
//! two nodes are never compared. The header has a check sum of its own (crc32c of bytes 0..28), so that a broken length
//! is noticed at once and never waited for; the payload's (crc32c of head and body) is checked when it is complete.
//!
//! | kind | name    | request id        | head           | body           |
//! |------|---------|-------------------|----------------|----------------|
//! | 1    | request | new, ascending    | [`RequestHead`]| the request    |
//! | 2    | reply   | the request's     | empty          | the reply      |
//! | 3    | error   | the request's     | [`RpcError`]   | empty          |
//! | 4    | cancel  | the request's     | empty          | empty          |
//! | 5, 6 | ping, pong | 0              | empty          | empty          |
//! | 7    | hello   | 0                 | [`Hello`]      | empty          |
//! | 8    | proof   | 0                 | [`Proof`]      | empty          |

use std::{fmt, time::Duration};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use savanna_epoch::{OwnerEpoch, ShardId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Hello, Proof, RpcError};

/// The version of the frame format that this build writes, and the only one it reads.
pub const FRAME_VERSION: u8 = 1;
/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 32;
/// Largest head in bytes: names and an error's text, never data.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;

const MAGIC: [u8; 2] = *b"SR";
const HEADER_CRC_AT: usize = 28;

/// The number of a request on one connection, given in ascending order by the side that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// A shard as the asker knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShardAt {
    /// The shard.
    pub shard: ShardId,
    /// The owner's epoch in the asker's route. A node that holds the shard under another epoch says so with
    /// [`RpcError::Moved`] or serves it, as the service decides.
    pub epoch: OwnerEpoch,
}

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RequestHead {
    /// `service/method`, as in [`crate::Method::NAME`].
    pub method: String,
    /// The shard it is sent to, if the method is about one.
    pub shard: Option<ShardAt>,
    /// The method's mark: doing it twice is the same as doing it once.
    pub idempotent: bool,
}

/// One message and the request it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The request it belongs to; 0 for ping, pong and hello.
    pub request: RequestId,
    /// The message.
    pub message: Message,
}

/// The kinds of message. Printed, a long body is its length and check sum.
#[derive(Clone, PartialEq, Eq)]
pub enum Message {
    /// Please do this.
    Request {
        /// What for.
        head: RequestHead,
        /// How long the caller still waits.
        time_left: Duration,
        /// The method's request.
        body: Bytes,
    },
    /// It is done.
    Reply(Bytes),
    /// It failed.
    Error(RpcError),
    /// The caller no longer waits.
    Cancel,
    /// Are you there?
    Ping,
    /// I am.
    Pong,
    /// Who speaks to whom.
    Hello(Hello),
    /// That the side which connected knows the cluster's secret.
    Proof(Proof),
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { head, time_left, body } => {
                let shard = head.shard.as_ref().map(|at| (&at.shard.0, at.epoch.0));
                write!(f, "Request({}, {shard:?}, {time_left:?}, {})", head.method, Brief(body))
            }
            Self::Reply(body) => write!(f, "Reply({})", Brief(body)),
            Self::Error(error) => write!(f, "Error({error:?})"),
            Self::Cancel => f.write_str("Cancel"),
            Self::Ping => f.write_str("Ping"),
            Self::Pong => f.write_str("Pong"),
            Self::Hello(hello) => write!(f, "{hello:?}"),
            Self::Proof(_) => f.write_str("Proof"),
        }
    }
}

struct Brief<'a>(&'a Bytes);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() <= 24 {
            write!(f, "{:02x?}", &self.0[..])
        } else {
            write!(f, "{} bytes, crc32c {:08x}", self.0.len(), crc32c::crc32c(self.0))
        }
    }
}

impl Frame {
    /// A ping.
    #[must_use]
    pub fn ping() -> Self {
        Self { request: RequestId(0), message: Message::Ping }
    }

    /// An answer to `request`.
    #[must_use]
    pub fn answer(request: RequestId, result: Result<Bytes, RpcError>) -> Self {
        let message = match result {
            Ok(body) => Message::Reply(body),
            Err(error) => Message::Error(error),
        };
        Self { request, message }
    }
}

/// Why bytes are not a frame. A connection that receives one of these is closed: what follows cannot be trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The bytes are not Savanna's protocol.
    #[error("expected a frame to begin with {expected:02x?}, got {found:02x?}: is another program at this port?", expected = MAGIC)]
    Magic {
        /// The first two bytes that came.
        found: [u8; 2],
    },
    /// Another version of the format.
    #[error("expected frame version {expected}, got {found}: run the same release on both nodes", expected = FRAME_VERSION)]
    Version {
        /// The version that came.
        found: u8,
    },
    /// A check sum does not match.
    #[error(
        "the {part}'s check sum is {found:#010x} but its bytes give {computed:#010x}: the frame was damaged on its way"
    )]
    CheckSum {
        /// `header` or `payload`.
        part: &'static str,
        /// The sum in the frame.
        found: u32,
        /// The sum of the bytes.
        computed: u32,
    },
    /// A length above its bound.
    #[error(
        "a {part} of {bytes} bytes exceeds the limit of {limit} bytes: send less at once or raise the limit on both nodes"
    )]
    TooLarge {
        /// `head` or `frame`.
        part: &'static str,
        /// Its length.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A kind of message that this version does not have.
    #[error("expected a frame kind from 1 to 7, got {found}")]
    Kind {
        /// The kind that came.
        found: u8,
    },
    /// The head is not what the kind needs.
    #[error("the head of a {kind} frame cannot be decoded: {reason}")]
    Head {
        /// The kind's name.
        kind: &'static str,
        /// What postcard says.
        reason: String,
    },
}

/// Appends the bytes of `frame` to `out`.
///
/// # Errors
/// [`FrameError::TooLarge`] if the frame exceeds `frame_bytes_max`; `out` is then unchanged.
pub fn encode(frame: &Frame, frame_bytes_max: usize, out: &mut BytesMut) -> Result<(), FrameError> {
    let (kind, deadline_ms, head, body) = match &frame.message {
        Message::Request { head, time_left, body } => {
            (1, u32::try_from(time_left.as_millis()).unwrap_or(u32::MAX), encode_head("request", head)?, body.clone())
        }
        Message::Reply(body) => (2, 0, Vec::new(), body.clone()),
        Message::Error(error) => (3, 0, encode_head("error", error)?, Bytes::new()),
        Message::Cancel => (4, 0, Vec::new(), Bytes::new()),
        Message::Ping => (5, 0, Vec::new(), Bytes::new()),
        Message::Pong => (6, 0, Vec::new(), Bytes::new()),
        Message::Hello(hello) => (7, 0, encode_head("hello", hello)?, Bytes::new()),
        Message::Proof(proof) => (8, 0, encode_head("proof", proof)?, Bytes::new()),
    };
    check_size("head", head.len(), HEAD_BYTES_MAX)?;
    check_size("frame", HEADER_BYTES + head.len() + body.len(), frame_bytes_max)?;
    let head_len = u32::try_from(head.len()).map_err(|_| too_large("head", head.len(), HEAD_BYTES_MAX))?;
    let body_len = u32::try_from(body.len()).map_err(|_| too_large("frame", body.len(), frame_bytes_max))?;
    let payload_crc = crc32c::crc32c_append(crc32c::crc32c(&head), &body);

    let start = out.len();
    out.reserve(HEADER_BYTES + head.len() + body.len());
    out.put_slice(&MAGIC);
    out.put_u8(FRAME_VERSION);
    out.put_u8(kind);
    out.put_u32_le(deadline_ms);
    out.put_u64_le(frame.request.0);
    out.put_u32_le(head_len);
    out.put_u32_le(body_len);
    out.put_u32_le(payload_crc);
    let header_crc = crc32c::crc32c(&out[start..start + HEADER_CRC_AT]);
    out.put_u32_le(header_crc);
    out.put_slice(&head);
    out.put_slice(&body);
    Ok(())
}

/// Takes one frame from the front of `input`; `Ok(None)` if it is not complete yet.
///
/// # Errors
/// Any [`FrameError`]; `input` is then not to be used further.
pub fn decode(input: &mut BytesMut, frame_bytes_max: usize) -> Result<Option<Frame>, FrameError> {
    if input.len() >= 2 && input[..2] != MAGIC {
        return Err(FrameError::Magic { found: [input[0], input[1]] });
    }
    if input.len() < HEADER_BYTES {
        return Ok(None);
    }
    let mut header = &input[2..HEADER_BYTES];
    let version = header.get_u8();
    let kind = header.get_u8();
    let deadline_ms = header.get_u32_le();
    let request = RequestId(header.get_u64_le());
    let head_len = header.get_u32_le() as usize;
    let body_len = header.get_u32_le() as usize;
    let payload_crc = header.get_u32_le();
    let header_crc = header.get_u32_le();
    // The version first: a later one may compute its sums differently.
    if version != FRAME_VERSION {
        return Err(FrameError::Version { found: version });
    }
    check_sum("header", header_crc, crc32c::crc32c(&input[..HEADER_CRC_AT]))?;
    check_size("head", head_len, HEAD_BYTES_MAX)?;
    let frame_len = HEADER_BYTES.saturating_add(head_len).saturating_add(body_len);
    check_size("frame", frame_len, frame_bytes_max)?;
    if input.len() < frame_len {
        input.reserve(frame_len - input.len());
        return Ok(None);
    }
    let mut payload = input.split_to(frame_len).freeze();
    payload.advance(HEADER_BYTES);
    check_sum("payload", payload_crc, crc32c::crc32c(&payload))?;
    let head = payload.split_to(head_len);
    let message = match kind {
        1 => Message::Request {
            head: decode_head("request", &head)?,
            time_left: Duration::from_millis(u64::from(deadline_ms)),
            body: payload,
        },
        2 => Message::Reply(payload),
        3 => Message::Error(decode_head("error", &head)?),
        4 => Message::Cancel,
        5 => Message::Ping,
        6 => Message::Pong,
        7 => Message::Hello(decode_head("hello", &head)?),
        8 => Message::Proof(decode_head("proof", &head)?),
        found => return Err(FrameError::Kind { found }),
    };
    Ok(Some(Frame { request, message }))
}

fn encode_head<T: Serialize>(kind: &'static str, head: &T) -> Result<Vec<u8>, FrameError> {
    postcard::to_stdvec(head).map_err(|error| FrameError::Head { kind, reason: error.to_string() })
}

fn decode_head<T: DeserializeOwned>(kind: &'static str, bytes: &[u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(bytes) {
        Ok((head, [])) => Ok(head),
        Ok((_, rest)) => Err(FrameError::Head { kind, reason: format!("{} bytes are left over", rest.len()) }),
        Err(error) => Err(FrameError::Head { kind, reason: error.to_string() }),
    }
}

fn check_sum(part: &'static str, found: u32, computed: u32) -> Result<(), FrameError> {
    if found == computed { Ok(()) } else { Err(FrameError::CheckSum { part, found, computed }) }
}

fn check_size(part: &'static str, bytes: usize, limit: usize) -> Result<(), FrameError> {
    if bytes <= limit { Ok(()) } else { Err(too_large(part, bytes, limit)) }
}

fn too_large(part: &'static str, bytes: usize, limit: usize) -> FrameError {
    FrameError::TooLarge { part, bytes: bytes as u64, limit: limit as u64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use savanna_epoch::NodeId;

    use super::*;

    const LIMIT: usize = 64 * 1024;

    fn bytes_of(frame: &Frame) -> BytesMut {
        let mut out = BytesMut::new();
        encode(frame, LIMIT, &mut out).expect("fits the limit");
        out
    }

    fn any_frame() -> impl Strategy<Value = Frame> {
        let body = proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from);
        let shard = proptest::option::of(("[a-z/]{1,20}", any::<u64>())).prop_map(|shard| {
            shard.map(|(name, epoch)| ShardAt { shard: ShardId::new(name), epoch: OwnerEpoch(epoch) })
        });
        let message = prop_oneof![
            ("[a-z/]{0,20}", shard, any::<bool>(), any::<u32>(), body.clone()).prop_map(
                |(method, shard, idempotent, ms, body)| Message::Request {
                    head: RequestHead { method, shard, idempotent },
                    time_left: Duration::from_millis(u64::from(ms)),
                    body
                }
            ),
            body.prop_map(Message::Reply),
            (".{0,40}").prop_map(|reason| Message::Error(RpcError::Refused { reason })),
            Just(Message::Cancel),
            Just(Message::Ping),
            Just(Message::Pong),
            ("[a-z]{1,9}", "[a-z]{1,9}")
                .prop_map(|(from, to)| Message::Hello(Hello::new(NodeId::new(from), NodeId::new(to)))),
            any::<[u8; 32]>().prop_map(Message::Proof),
        ];
        (any::<u64>(), message).prop_map(|(id, message)| Frame { request: RequestId(id), message })
    }

    proptest! {
        #[test]
        fn a_frame_decodes_to_itself_however_its_bytes_are_cut(
            frames in proptest::collection::vec(any_frame(), 1..6), cut in 1_usize..50
        ) {
            let mut all = BytesMut::new();
            for frame in &frames {
                encode(frame, LIMIT, &mut all).expect("fits the limit");
            }
            let mut input = BytesMut::new();
            let mut decoded = Vec::new();
            for piece in all.chunks(cut) {
                input.extend_from_slice(piece);
                while let Some(frame) = decode(&mut input, LIMIT).expect("well formed") {
                    decoded.push(frame);
                }
            }
            prop_assert_eq!(decoded, frames);
            prop_assert!(input.is_empty());
        }

        #[test]
        fn a_flipped_bit_is_never_taken_for_a_frame(frame in any_frame(), at in any::<prop::sample::Index>(), bit in 0_u8..8) {
            let mut bytes = bytes_of(&frame);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(decode(&mut bytes, LIMIT).is_err());
        }

        #[test]
        fn random_bytes_give_an_error_or_wait_and_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut input = BytesMut::from(&bytes[..]);
            prop_assert!(!matches!(decode(&mut input, LIMIT), Ok(Some(_))));
        }

        #[test]
        fn a_well_summed_frame_with_a_random_payload_never_panics(
            kind in any::<u8>(), head in proptest::collection::vec(any::<u8>(), 0..100)
        ) {
            let mut bytes = BytesMut::new();
            bytes.put_slice(&MAGIC);
            bytes.put_u8(FRAME_VERSION);
            bytes.put_u8(kind);
            bytes.put_u32_le(5);
            bytes.put_u64_le(7);
            bytes.put_u32_le(u32::try_from(head.len()).expect("short"));
            bytes.put_u32_le(0);
            bytes.put_u32_le(crc32c::crc32c(&head));
            let crc = crc32c::crc32c(&bytes);
            bytes.put_u32_le(crc);
            bytes.put_slice(&head);
            // Whatever comes out, it came out without a panic and took the whole frame or none of it.
            if decode(&mut bytes, LIMIT).is_ok() {
                prop_assert!(bytes.is_empty());
            }
        }
    }

    #[test]
    fn an_oversize_length_is_refused_from_the_header_alone() {
        let body = Bytes::from(vec![0; LIMIT + 1]);
        let mut out = BytesMut::new();
        let frame = Frame { request: RequestId(1), message: Message::Reply(body) };
        assert!(matches!(encode(&frame, LIMIT, &mut out), Err(FrameError::TooLarge { .. })));
        assert!(out.is_empty(), "nothing half written");
        encode(&frame, LIMIT * 2, &mut out).expect("fits the doubled limit");
        out.truncate(HEADER_BYTES);
        assert!(matches!(decode(&mut out, LIMIT), Err(FrameError::TooLarge { part: "frame", .. })));
    }

    #[test]
    fn the_bytes_of_a_ping_are_pinned() {
        let bytes = bytes_of(&Frame::ping());
        assert_eq!(&bytes[..4], b"SR\x01\x05");
        assert_eq!(bytes.len(), HEADER_BYTES);
        assert_eq!(&bytes[4..HEADER_CRC_AT], &[0; 24]);
        assert_eq!(bytes[HEADER_CRC_AT..], crc32c::crc32c(&bytes[..HEADER_CRC_AT]).to_le_bytes());
    }
}
