//! A client as its session sees it: what comes of it, and what goes to it.

use std::io;

use bytes::BytesMut;
use savanna_tenants_host::{Notice, Peer, value::zone::Zone};

use crate::{output::Output, socket::Socket};

/// A message that is longer is not read.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// A client's socket, what was read of it, and what is to be sent to it.
pub(crate) struct Wire {
    pub(crate) socket: Socket,
    pub(crate) input: BytesMut,
    pub(crate) output: Output,
}

impl Wire {
    /// Reads on, up to so many bytes, until the client has gone away.
    pub(crate) async fn gone_beyond(&mut self, bytes_max: usize) -> io::Error {
        while self.input.len() <= bytes_max {
            match self.socket.read(&mut self.input).await {
                Ok(0) => return io::ErrorKind::UnexpectedEof.into(),
                Ok(_) => {}
                Err(error) => return error,
            }
        }
        std::future::pending().await
    }
}

impl Peer for Wire {
    async fn gone(&mut self) -> io::Error {
        self.gone_beyond(MESSAGE_BYTES_MAX).await
    }

    fn notice(&mut self, notice: &Notice) {
        self.output.notice(notice);
    }

    fn zone(&mut self, zone: Zone) {
        self.output.zone(zone);
    }
}
