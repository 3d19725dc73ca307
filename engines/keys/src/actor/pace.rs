//! How much comes in a second: requests, and bytes of clients.

use savanna_lattice::UnixMillis;

use super::Actor;

/// What came from clients and went to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that came.
    pub bytes_in: u64,
    /// Bytes that went.
    pub bytes_out: u64,
    /// How often was read.
    pub reads: u64,
    /// How often was written.
    pub writes: u64,
}

impl Traffic {
    const fn add(&mut self, other: Self) {
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.reads += other.reads;
        self.writes += other.writes;
    }
}

/// What there was when it was looked at last, and how much came per second before that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    looked_at: UnixMillis,
    requests: u64,
    traffic: Traffic,
    requests_per_second: u64,
    bytes_in_per_second: u64,
    bytes_out_per_second: u64,
}

impl Pace {
    /// When counting begins.
    pub(super) fn beginning(now: UnixMillis) -> Self {
        Self { looked_at: now, ..Self::default() }
    }

    /// Looks once a second.
    fn note(&mut self, now: UnixMillis, requests: u64, traffic: Traffic) {
        let millis = now.0.saturating_sub(self.looked_at.0);
        if millis < 1000 {
            return;
        }
        let per_second = |now: u64, before: u64| now.saturating_sub(before).saturating_mul(1000) / millis;
        *self = Self {
            looked_at: now,
            requests,
            traffic,
            requests_per_second: per_second(requests, self.requests),
            bytes_in_per_second: per_second(traffic.bytes_in, self.traffic.bytes_in),
            bytes_out_per_second: per_second(traffic.bytes_out, self.traffic.bytes_out),
        };
    }
}

impl Actor {
    /// Notes bytes that came from clients, and bytes that went to them, with how many system calls that took.
    pub const fn note_traffic(&mut self, traffic: Traffic) {
        self.traffic.add(traffic);
    }

    pub(super) fn note_pace(&mut self) {
        self.pace.note(self.keys.now(), self.counters.requests, self.traffic);
    }

    /// How many requests of its sessions there were in the last second.
    pub(crate) fn requests_per_second(&mut self) -> u64 {
        self.note_pace();
        self.pace.requests_per_second
    }

    /// How many bytes came in the last second, and how many went.
    pub(crate) const fn bytes_per_second(&self) -> (u64, u64) {
        (self.pace.bytes_in_per_second, self.pace.bytes_out_per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_is_divided_by_the_time_since_the_last_look() {
        let mut pace = Pace::beginning(UnixMillis(5_000));
        let traffic = Traffic { bytes_in: 4_000, bytes_out: 1_000, reads: 3, writes: 2 };
        pace.note(UnixMillis(5_999), 100, traffic);
        assert_eq!(pace.requests_per_second, 0, "too early");
        pace.note(UnixMillis(7_000), 100, traffic);
        assert_eq!((pace.requests_per_second, pace.bytes_in_per_second, pace.bytes_out_per_second), (50, 2_000, 500));
        pace.note(UnixMillis(8_000), 100, traffic);
        assert_eq!((pace.requests_per_second, pace.bytes_in_per_second), (0, 0));
    }
}
