//! Strings that Redis compressed: LZF.

/// Whether so many bytes may have been compressed: each byte stands for 88 at most (3 for 264).
#[must_use]
pub const fn may_have(from: &[u8], length: usize) -> bool {
    length <= from.len().saturating_mul(88)
}

/// The `length` bytes that were compressed; `None` if these are not so many, or no bytes that were compressed.
#[must_use]
pub fn expand(mut from: &[u8], length: usize) -> Option<Vec<u8>> {
    if !may_have(from, length) {
        return None;
    }
    let mut bytes = Vec::with_capacity(length);
    let mut next = |count: usize| {
        let (part, rest) = from.split_at_checked(count)?;
        from = rest;
        Some(part)
    };
    while let Some(&[control]) = next(1) {
        let control = usize::from(control);
        if control < 32 {
            bytes.extend_from_slice(next(control + 1)?);
            continue;
        }
        let mut count = control >> 5;
        if count == 7 {
            count += usize::from(next(1)?[0]);
        }
        let low = usize::from(next(1)?[0]);
        let back = ((control & 0x1f) << 8 | low) + 1;
        let start = bytes.len().checked_sub(back)?;
        // What is copied may overlap what is written.
        for at in start..start + count + 2 {
            bytes.push(bytes[at]);
        }
        if bytes.len() > length {
            return None;
        }
    }
    (bytes.len() == length).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_is_copied() {
        // "ab" and then fifteen bytes from two back.
        assert_eq!(expand(b"\x01ab\xe0\x06\x01", 17).as_deref(), Some(&b"abababababababababab"[..17]));
        for (bytes, length) in
            [(&b"\x01ab\xe0\x06\x01"[..], 16), (b"\x20\x05", 3), (b"\x05ab", 6), (b"", 1), (b"", usize::MAX)]
        {
            assert_eq!(expand(bytes, length), None, "{bytes:?}");
        }
    }
}
