//! Which segments become one: neighbours of about the same size, so that every key is written anew about once for each
//! fourfold growth of its tenant.

use std::ops::Range;

/// Segments that a reader looks through at most.
pub const DEPTH_MAX: usize = 8;
/// Segments that are merged at once, at least.
const WIDTH_MIN: usize = 4;

/// Which of the segments with these lengths, newest first, are to be merged. Only neighbours are: what is newer than the
/// result must be newer than each of its parts.
#[must_use]
pub fn compaction(bytes: &[u64]) -> Option<Range<usize>> {
    // The longest row of neighbours none of which is much larger than the newer ones of the row together.
    let alike = |start: usize| {
        let mut sum = bytes[start];
        let mut end = start + 1;
        while end < bytes.len() && bytes[end] <= sum.saturating_mul(2) {
            sum += bytes[end];
            end += 1;
        }
        start..end
    };
    let row = (0..bytes.len()).map(alike).find(|row| row.len() >= WIDTH_MIN);
    row.or_else(|| {
        let cost = |row: &Range<usize>| bytes[row.clone()].iter().sum::<u64>();
        let width = WIDTH_MIN.min(bytes.len());
        let rows = (0..=bytes.len() - width).map(|start| start..start + width);
        rows.filter(|_| bytes.len() > DEPTH_MAX).min_by_key(cost)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_segments_and_those_of_different_sizes_stay() {
        assert_eq!(compaction(&[]), None);
        assert_eq!(compaction(&[1, 1, 1]), None);
        assert_eq!(compaction(&[1, 10, 100, 1_000, 10_000, 100_000]), None);
    }

    #[test]
    fn neighbours_of_about_one_size_are_merged() {
        assert_eq!(compaction(&[1, 1, 1, 1]), Some(0..4));
        assert_eq!(compaction(&[1, 1, 1, 1, 100]), Some(0..4), "what is much larger stays");
        assert_eq!(compaction(&[1, 10, 12, 11, 9, 500]), Some(1..5));
        assert_eq!(compaction(&[1, 2, 4, 8, 16, 32]), Some(0..6));
    }

    #[test]
    fn too_many_are_merged_where_it_costs_least() {
        let bytes = [1, 3, 10, 31, 100, 310, 1_000, 3_100, 10_000].map(|size| size * 1_000);
        assert_eq!(compaction(&bytes), Some(0..4));
    }

    #[test]
    fn a_tenant_that_is_flushed_again_and_again_stays_shallow_and_writes_little() {
        let (mut segments, mut written) = (Vec::new(), 0);
        for _ in 0..4_000 {
            segments.insert(0, 1_u64);
            while let Some(row) = compaction(&segments) {
                let sum: u64 = segments[row.clone()].iter().sum();
                written += sum;
                segments.splice(row, [sum]);
            }
            assert!(segments.len() <= DEPTH_MAX, "{segments:?}");
        }
        assert_eq!(segments.iter().sum::<u64>(), 4_000);
        assert!(written < 4_000 * 8, "every byte is written {} times", written / 4_000);
    }
}
