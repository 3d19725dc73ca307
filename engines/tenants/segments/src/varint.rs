//! Numbers of as many bytes as they need: seven bits each, the lowest first.

pub(crate) fn push(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The number at `at`, which moves behind it. `None` if there is none.
pub(crate) fn take(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_are_read_back() {
        for number in [0, 1, 127, 128, 300, 1 << 20, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            super::push(number, &mut bytes);
            let mut at = 0;
            assert_eq!((super::take(&bytes, &mut at), at), (Some(number), bytes.len()));
            assert_eq!(super::take(&bytes[..bytes.len() - 1], &mut 0), None);
        }
    }
}
