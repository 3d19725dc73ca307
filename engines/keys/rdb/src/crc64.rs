//! The checksum of Redis: CRC-64 with Jones' polynomial, reflected, without inversions.

const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

const TABLE: [u64; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte as u64, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

/// The checksum of bytes.
#[must_use]
pub fn of(bytes: &[u8]) -> u64 {
    after(0, bytes)
}

/// The checksum of bytes that follow others, whose checksum is `sum`.
#[must_use]
pub fn after(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum: u64, byte| TABLE[usize::from(sum as u8 ^ byte)] ^ sum >> 8)
}

/// The checksum of bytes behind which so many zeros come, out of the one of the bytes.
#[must_use]
pub fn before_zeros(mut sum: u64, mut zeros: u64) -> u64 {
    // A zero changes each bit of the checksum for itself: here what becomes of each bit, for a power of 2 of zeros.
    let mut step: [u64; 64] = std::array::from_fn(|bit| after(1 << bit, &[0]));
    while zeros > 0 {
        if zeros & 1 == 1 {
            sum = changed(&step, sum);
        }
        step = std::array::from_fn(|bit| changed(&step, step[bit]));
        zeros >>= 1;
    }
    sum
}

fn changed(step: &[u64; 64], sum: u64) -> u64 {
    step.iter().enumerate().filter(|(bit, _)| sum >> bit & 1 == 1).fold(0, |all, (_, of_bit)| all ^ of_bit)
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_that_of_redis() {
        assert_eq!(super::of(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(super::after(super::of(b"1234"), b"56789"), super::of(b"123456789"));
    }

    #[test]
    fn zeros_need_not_be_counted_one_by_one() {
        for zeros in [0_usize, 1, 2, 7, 100, 65_537] {
            let bytes = [&b"some bytes"[..], &vec![0; zeros]].concat();
            assert_eq!(super::before_zeros(super::of(b"some bytes"), zeros as u64), super::of(&bytes), "{zeros}");
        }
    }
}
