//! A connection on which nothing leaves without a lease.
//!
//! The host asks the lease before it gives an answer. The process may be stopped behind that, for as long as another one needs to take over: so it is asked
//! again when bytes are given to the system. What the system has by then, it sends.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that is written as long as anybody may be told anything.
#[derive(Debug)]
pub(crate) struct Leased<S, F> {
    stream: S,
    may_tell: F,
}

impl<S, F: Fn() -> bool> Leased<S, F> {
    /// `may_tell` is asked before each write.
    pub(crate) const fn new(stream: S, may_tell: F) -> Self {
        Self { stream, may_tell }
    }

    fn check(&self) -> io::Result<()> {
        if (self.may_tell)() {
            Ok(())
        } else {
            Err(io::Error::other("the lease is over: nobody is told anything more"))
        }
    }
}

impl<S: AsyncRead + Unpin, F: Unpin> AsyncRead for Leased<S, F> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin, F: Fn() -> bool + Unpin> AsyncWrite for Leased<S, F> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: io::Write, F: Fn() -> bool> io::Write for Leased<S, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.check()?;
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// Bytes that the other side has not taken when the lease ends do not leave any more.
    #[tokio::test]
    async fn what_has_not_left_with_the_lease_does_not_leave() {
        for is_in_parts in [false, true] {
            let (may_tell, (stream, mut client)) = (Cell::new(true), duplex(4));
            let mut leased = Leased::new(stream, || may_tell.get());
            let parts = [io::IoSlice::new(b"some"), io::IoSlice::new(b" bytes")];
            let mut came = [0; 4];
            let told = async {
                if is_in_parts {
                    assert_eq!(leased.write_vectored(&parts).await?, 4);
                    leased.write_vectored(&parts[1..]).await.map(drop)
                } else {
                    leased.write_all(b"some bytes").await
                }
            };
            let heard = async {
                tokio::task::yield_now().await;
                may_tell.set(false);
                client.read_exact(&mut came).await
            };
            let (told, heard) = tokio::join!(told, heard);
            assert_eq!((heard.unwrap(), &came), (4, b"some"));
            assert!(told.unwrap_err().to_string().contains("the lease is over"));
            drop(leased);
            assert_eq!(client.read(&mut came).await.unwrap(), 0, "nothing came behind it");
        }
    }
}
