//! Programs that cannot begin yet, because somebody has them open for writing.
//!
//! Whoever has written a program has closed it. But a process that another thread has forked meanwhile has it open, too, until it becomes the program that it is
//! to be, and as long as one has, the kernel begins it for nobody (`ETXTBSY`, "text file busy").

use std::io;
use std::time::{Duration, Instant};

/// So long it is tried: many times what a fork takes, and well within the time that a function has to get ready.
const BUSY_MAX: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);

/// Begins a program as soon as nobody has it open for writing.
///
/// # Errors
/// It is so for too long, or it cannot begin at all.
pub(crate) fn begin_when_free<T>(mut begin: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let begun = Instant::now();
    loop {
        match begin() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && begun.elapsed() < BUSY_MAX => {
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
}
