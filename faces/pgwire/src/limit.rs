//! A bound on the length of messages after the login, so that a client cannot make the face buffer more, and on what is in
//! them, so that the decoder sees whole messages only.
//!
//! ```text
//!   type (1)    length (4 bytes, itself included)    body
//! ```

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use savanna_pgwire_frames::{Body, Malformed};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest message that is taken from a client, in bytes, without its type.
pub const MESSAGE_BYTES_MAX: u32 = 16 * 1024 * 1024;

/// The shortest length that a message may state: the length itself.
const LENGTH_BYTES: u32 = 4;

/// A message that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("expected a message of at most {MESSAGE_BYTES_MAX} bytes, got {0}; send less at once")]
    TooLong(u32),
    #[error("a message states its length as {0} bytes, but the length itself takes {LENGTH_BYTES}")]
    TooShort(u32),
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Follows the boundaries of the messages in a stream of bytes.
#[derive(Debug, Default)]
pub(crate) struct Boundaries {
    /// The bytes of a header that have come so far.
    header: Vec<u8>,
    /// The body under way, and how many bytes of it are still to come.
    body: Option<(Body, u32)>,
}

impl Boundaries {
    /// Takes the next bytes in.
    pub(crate) fn advance(&mut self, mut bytes: &[u8]) -> Result<(), Refused> {
        loop {
            if let Some((body, left)) = &mut self.body {
                let (part, rest) = bytes.split_at(bytes.len().min(*left as usize));
                body.advance(part)?;
                *left -= part.len() as u32;
                bytes = rest;
                if *left > 0 {
                    return Ok(());
                }
                self.body.take().map_or(Ok(()), |(body, _)| body.end())?;
            }
            let [first, rest @ ..] = bytes else { return Ok(()) };
            self.header.push(*first);
            bytes = rest;
            self.end_header()?;
        }
    }

    /// Looks at the header if it is complete.
    fn end_header(&mut self) -> Result<(), Refused> {
        if let [kind, a, b, c, d] = self.header[..] {
            self.body = Some((Body::new(kind), checked(u32::from_be_bytes([a, b, c, d]))? - LENGTH_BYTES));
            self.header.clear();
        }
        Ok(())
    }
}

fn checked(length: u32) -> Result<u32, Refused> {
    match length {
        0..LENGTH_BYTES => Err(Refused::TooShort(length)),
        LENGTH_BYTES..=MESSAGE_BYTES_MAX => Ok(length),
        _ => Err(Refused::TooLong(length)),
    }
}

/// A client's bytes, up to the first message that is refused.
#[derive(Debug)]
pub(crate) struct Limited<S> {
    /// What has come before.
    first: BytesMut,
    stream: S,
    boundaries: Boundaries,
}

impl<S> Limited<S> {
    /// The bytes of `first`, and then those of `stream`.
    pub(crate) fn new(first: BytesMut, stream: S) -> Self {
        Self { first, stream, boundaries: Boundaries::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Limited<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        if self.first.is_empty() {
            std::task::ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        } else {
            let count = into.remaining().min(self.first.len());
            into.put_slice(&self.first.split_to(count));
        }
        let read = self.boundaries.advance(&into.filled()[before..]);
        Poll::Ready(read.map_err(|refused| io::Error::new(io::ErrorKind::InvalidData, refused)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Limited<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(length: u32) -> Vec<u8> {
        let mut message = vec![b'Q'];
        message.extend(length.to_be_bytes());
        message
    }

    fn advance(parts: &[&[u8]]) -> Result<(), Refused> {
        let mut boundaries = Boundaries::default();
        parts.iter().try_for_each(|part| boundaries.advance(part))
    }

    #[test]
    fn messages_are_followed_however_they_are_cut() {
        let bytes = [query(7), b"ab\0".to_vec(), query(5), vec![0], query(MESSAGE_BYTES_MAX + 1)].concat();
        for cut in 0..bytes.len() - 1 {
            assert_eq!(advance(&[&bytes[..cut], &bytes[cut..bytes.len() - 1]]), Ok(()));
        }
        assert_eq!(advance(&[&bytes]), Err(Refused::TooLong(MESSAGE_BYTES_MAX + 1)));
    }

    #[test]
    fn a_length_shorter_than_itself_is_refused() {
        assert_eq!(advance(&[&query(3)]), Err(Refused::TooShort(3)));
        assert_eq!(advance(&[&query(0)]), Err(Refused::TooShort(0)));
    }

    #[test]
    fn a_message_whose_fields_end_elsewhere_than_it_says_is_refused() {
        let sync_with_more = [b'S', 0, 0, 0, 5, 0];
        assert_eq!(advance(&[&sync_with_more]), Err(Refused::Malformed(Malformed::Long("a Sync"))));
        let bind_without_counts = [b'B', 0, 0, 0, 6, 0, 0];
        assert_eq!(advance(&[&bind_without_counts]), Err(Refused::Malformed(Malformed::Short("a Bind"))));
    }

    #[test]
    fn the_longest_message_is_taken() {
        assert_eq!(advance(&[&query(MESSAGE_BYTES_MAX)]), Ok(()));
    }
}
