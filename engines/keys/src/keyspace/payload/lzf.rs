//! Strings that Redis compressed: LZF.

use super::{NoValue, Read};

/// Whether so many bytes may have been compressed: each byte stands for 88 at most (3 for 264).
pub(super) fn check(from: &[u8], length: usize) -> Read<()> {
    if length > from.len().saturating_mul(88) { Err(NoValue::Format) } else { Ok(()) }
}

/// The `length` bytes that were compressed.
pub(super) fn expand(mut from: &[u8], length: usize) -> Read<Vec<u8>> {
    check(from, length)?;
    let mut bytes = Vec::with_capacity(length);
    let mut next = |count: usize| {
        let (part, rest) = from.split_at_checked(count)?;
        from = rest;
        Some(part)
    };
    while let Some(&[control]) = next(1) {
        let control = usize::from(control);
        if control < 32 {
            bytes.extend_from_slice(next(control + 1).ok_or(NoValue::Format)?);
            continue;
        }
        let mut count = control >> 5;
        if count == 7 {
            count += usize::from(next(1).ok_or(NoValue::Format)?[0]);
        }
        let low = usize::from(next(1).ok_or(NoValue::Format)?[0]);
        let back = ((control & 0x1f) << 8 | low) + 1;
        let start = bytes.len().checked_sub(back).ok_or(NoValue::Format)?;
        // What is copied may overlap what is written.
        for at in start..start + count + 2 {
            bytes.push(bytes[at]);
        }
        if bytes.len() > length {
            return Err(NoValue::Format);
        }
    }
    if bytes.len() == length { Ok(bytes) } else { Err(NoValue::Format) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_is_copied() {
        // "ab" and then fifteen bytes from two back.
        assert_eq!(expand(b"\x01ab\xe0\x06\x01", 17).as_deref(), Ok(&b"abababababababababab"[..17]));
        for (bytes, length) in
            [(&b"\x01ab\xe0\x06\x01"[..], 16), (b"\x20\x05", 3), (b"\x05ab", 6), (b"", 1), (b"", usize::MAX)]
        {
            assert_eq!(expand(bytes, length), Err(NoValue::Format), "{bytes:?}");
        }
    }
}
