//! What functions print: the last of it for each function, and for the invocation that a client waits for.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use parking_lot::Mutex;
use tokio::net::unix::pipe::Receiver;

/// Bytes of an invocation's output that its client may ask for.
pub(crate) const TAIL_MAX: usize = 4 << 10;
/// Bytes that are kept of each function.
const KEPT_MAX: usize = 256 << 10;
/// Bytes that are read at an answer: what a pipe holds, and then some.
const DRAIN_MAX: usize = 256 << 10;

/// The last bytes of what was printed.
#[derive(Debug)]
pub(crate) struct Ring {
    bytes: VecDeque<u8>,
    max: usize,
}

impl Ring {
    fn new(max: usize) -> Self {
        Self { bytes: VecDeque::new(), max }
    }

    fn add(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(self.max)..];
        let over = (self.bytes.len() + bytes.len()).saturating_sub(self.max);
        self.bytes.drain(..over);
        self.bytes.extend(bytes);
    }

    fn all(&self) -> Vec<u8> {
        self.bytes.iter().copied().collect()
    }
}

/// The last of what all instances of a function have printed.
#[derive(Debug)]
pub(crate) struct FunctionLog(Mutex<Ring>);

impl Default for FunctionLog {
    fn default() -> Self {
        Self(Mutex::new(Ring::new(KEPT_MAX)))
    }
}

impl FunctionLog {
    pub(crate) fn add(&self, bytes: &[u8]) {
        self.0.lock().add(bytes);
    }

    pub(crate) fn all(&self) -> Vec<u8> {
        self.0.lock().all()
    }
}

/// What an instance prints.
#[derive(Debug)]
pub(crate) struct InstanceLog {
    pipe: Receiver,
    /// Who reads keeps what he has read before anybody reads on.
    reading: Mutex<()>,
    function: std::sync::Arc<FunctionLog>,
    tail: Mutex<Ring>,
}

impl InstanceLog {
    /// Reads from a pipe. Needs a runtime of Tokio.
    pub(crate) fn new(pipe: OwnedFd, function: std::sync::Arc<FunctionLog>) -> io::Result<Self> {
        Ok(Self {
            pipe: Receiver::from_owned_fd(pipe)?,
            reading: Mutex::new(()),
            function,
            tail: Mutex::new(Ring::new(TAIL_MAX)),
        })
    }

    /// Adds what the host says.
    pub(crate) fn say(&self, line: &str) {
        self.took(line.as_bytes());
    }

    fn took(&self, bytes: &[u8]) {
        self.tail.lock().add(bytes);
        self.function.add(bytes);
    }

    /// An invocation begins: what was printed before is not its own.
    pub(crate) fn begin(&self) {
        self.drain();
        self.tail.lock().bytes.clear();
    }

    /// The last that the invocation has printed.
    pub(crate) fn tail(&self) -> Vec<u8> {
        self.tail.lock().all()
    }

    /// Takes what is in the pipe by now, so that it is there before the answer which followed it.
    pub(crate) fn drain(&self) {
        let (mut buffer, mut taken) = ([0; 8 << 10], 0);
        while taken < DRAIN_MAX {
            match self.read(&mut buffer) {
                Ok(count) if count > 0 => taken += count,
                _ => return,
            }
        }
    }

    /// Reads what is there and keeps it; how many bytes that were.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let _one = self.reading.lock();
        let count = self.pipe.try_read(buffer)?;
        self.took(&buffer[..count]);
        Ok(count)
    }

    /// Takes what comes until all who print have ended.
    pub(crate) async fn follow(&self) {
        let mut buffer = [0; 8 << 10];
        while self.pipe.readable().await.is_ok() {
            match self.read(&mut buffer) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_is_kept() {
        let mut ring = Ring::new(4);
        ring.add(b"ab");
        ring.add(b"cde");
        assert_eq!(ring.all(), b"bcde");
        ring.add(b"0123456789");
        assert_eq!(ring.all(), b"6789");
    }
}
