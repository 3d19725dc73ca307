//! Whether the operating system has the memory that a command is going to take.
//!
//! An allocation that fails ends the process. What may take much therefore asks before it begins, when it can still be
//! refused; replies are refused where they are written.

use crate::error::{CommandError, Outcome};

/// Less than this is taken without asking.
const LARGE_BYTES: usize = 4 << 20;

/// What a long reply or request leaves to others: what cannot be refused takes memory, too.
const LEFT_BYTES: usize = 64 << 20;

/// How many times a value is there while it is changed: as it was, as it becomes, among the changes, and in the log's records.
const COPIES: usize = 4;

/// Asks for memory for a value of so many bytes that is going to be written.
///
/// # Errors
/// If there is none.
#[inline]
pub(crate) fn ask_for_value(bytes: usize) -> Outcome {
    ask(bytes.saturating_mul(COPIES))
}

/// Asks for memory for a change of so many bytes, for which the changes that wait for the log move to a place of `moved` bytes.
///
/// # Errors
/// If there is none.
pub(crate) fn ask_for_change(bytes: usize, moved: usize) -> Outcome {
    ask(bytes.saturating_mul(COPIES).saturating_add(moved))
}

#[inline]
fn ask(needed: usize) -> Outcome {
    if needed < LARGE_BYTES { Ok(()) } else { ask_for_much(needed) }
}

fn ask_for_much(needed: usize) -> Outcome {
    if is_there(needed) {
        return Ok(());
    }
    Err(CommandError::from(format!(
        "OOM the operating system does not have the memory for this command, which needs about {} MiB; set maxmemory \
         below what the process may take",
        needed >> 20
    )))
}

fn is_there(bytes: usize) -> bool {
    let mut probe: Vec<u8> = Vec::new();
    let is_there = probe.try_reserve_exact(bytes).is_ok();
    // Otherwise the compiler may leave an allocation out that nobody writes to.
    std::hint::black_box(&probe);
    is_there
}

/// Takes memory for `bytes` more, and leaves some to everybody else. Says whether there was enough; if not, nothing has changed.
pub fn reserve(buffer: &mut Vec<u8>, bytes: usize) -> bool {
    if buffer.capacity() - buffer.len() >= bytes {
        return true;
    }
    // Vectors double, which a long one may not have the memory for; by the least that is needed, it would be copied each time.
    let at_least = bytes.max(buffer.len() / 8);
    let was_taken = buffer.try_reserve(bytes).is_ok() || buffer.try_reserve_exact(at_least).is_ok();
    was_taken && (buffer.capacity() < LARGE_BYTES || is_there(LEFT_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_is_refused() {
        assert!(ask_for_value(1 << 20).is_ok());
        let refused = ask_for_value(usize::MAX / 2).expect_err("no memory").to_string();
        assert!(refused.starts_with("OOM "), "{refused}");
        let mut buffer = b"kept".to_vec();
        assert!(!reserve(&mut buffer, usize::MAX / 2) && reserve(&mut buffer, 100));
        assert_eq!(buffer, b"kept");
    }
}
