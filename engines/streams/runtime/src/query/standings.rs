//! How far the source partitions of a query have come, seen by one another: partitions that are idle do not hold windows back,
//! and those of an aligned group do not run away from each other.

use parking_lot::Mutex;
use savanna_streams_model::graph::Alignment;
use savanna_streams_model::time::EventTime;

/// All partitions of a query.
#[derive(Debug)]
pub struct Standings {
    partitions: Mutex<Vec<Standing>>,
}

/// One partition.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Its running watermark; none if its table declares none.
    watermark: Option<EventTime>,
    /// It has given nothing for so long that nobody waits for it.
    idle: bool,
    ended: bool,
    /// The group that it keeps step with.
    alignment: Option<Alignment>,
}

impl Standing {
    /// A partition that has not begun.
    pub fn new(has_watermark: bool, alignment: Option<Alignment>) -> Self {
        Self { watermark: has_watermark.then_some(EventTime::MIN), idle: false, ended: false, alignment }
    }

    /// Whether the others wait for it.
    fn counts(&self) -> bool {
        !self.idle && !self.ended
    }
}

impl Standings {
    /// In the order of the scans.
    pub fn new(partitions: Vec<Standing>) -> Self {
        Self { partitions: Mutex::new(partitions) }
    }

    /// One more partition, which stands here.
    pub fn join(&self, standing: Standing, watermark: EventTime) {
        let watermark = standing.watermark.map(|before| before.max(watermark));
        self.partitions.lock().push(Standing { watermark, ..standing });
    }

    /// Where a partition stands now.
    pub fn tell(&self, partition: usize, watermark: EventTime, idle: bool, ended: bool) {
        let mut partitions = self.partitions.lock();
        let standing = &mut partitions[partition];
        standing.watermark = standing.watermark.map(|before| before.max(watermark));
        (standing.idle, standing.ended) = (idle, ended);
    }

    /// The query's watermark without the idle partitions: the lowest of those that others wait for; where there is none, the
    /// highest of all.
    pub fn watermark(&self) -> EventTime {
        let partitions = self.partitions.lock();
        let waited =
            partitions.iter().filter(|standing| standing.counts()).filter_map(|standing| standing.watermark).min();
        let all = || partitions.iter().filter_map(|standing| standing.watermark).max();
        waited.or_else(all).unwrap_or(EventTime::MIN)
    }

    /// Whether a partition stands below the query's watermark, to which it is raised at the end of an epoch if it is idle.
    pub fn is_behind(&self, partition: usize) -> bool {
        let reached = self.watermark();
        self.partitions.lock()[partition].watermark.is_some_and(|watermark| watermark < reached)
    }

    /// Whether a partition must let the others of its group catch up.
    pub fn is_ahead(&self, partition: usize) -> bool {
        ahead(&self.partitions.lock(), partition)
    }
}

fn ahead(partitions: &[Standing], partition: usize) -> bool {
    let Some(Alignment { group, max_drift }) = &partitions[partition].alignment else { return false };
    let of_group = |other: &&Standing| other.alignment.as_ref().is_some_and(|alignment| alignment.group == *group);
    let lowest =
        partitions.iter().filter(of_group).filter(|other| other.counts()).filter_map(|other| other.watermark).min();
    match (partitions[partition].watermark, lowest) {
        // One that has not begun yet may take long; until it is idle, the others wait for it.
        (Some(own), Some(lowest)) => own > EventTime(lowest.0.saturating_add(*max_drift)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standings(drift: Option<i64>) -> Standings {
        let standing = || Standing::new(true, drift.map(|max_drift| Alignment { group: "g".into(), max_drift }));
        Standings::new(vec![standing(), standing(), Standing::new(false, None)])
    }

    #[test]
    fn idle_and_ended_partitions_hold_nothing_back() {
        let standings = standings(None);
        standings.tell(0, EventTime(50), false, false);
        assert_eq!(standings.watermark(), EventTime::MIN);
        standings.tell(1, EventTime(10), true, false);
        assert_eq!(standings.watermark(), EventTime(50));
        standings.tell(0, EventTime(60), true, false);
        assert_eq!(standings.watermark(), EventTime(60), "all are idle: the highest");
        assert!(standings.is_behind(1) && !standings.is_behind(0));
        assert!(!standings.is_behind(2), "one without a watermark is nowhere");
        standings.tell(1, EventTime(70), false, false);
        standings.tell(0, EventTime(60), false, true);
        assert_eq!(standings.watermark(), EventTime(70));
    }

    #[test]
    fn a_partition_waits_for_the_others_of_its_group() {
        let standings = standings(Some(10));
        assert!(!standings.is_ahead(0));
        standings.tell(0, EventTime(5), false, false);
        assert!(standings.is_ahead(0), "the other has not begun");
        standings.tell(1, EventTime(0), false, false);
        assert!(!standings.is_ahead(0));
        standings.tell(0, EventTime(11), false, false);
        assert!(standings.is_ahead(0) && !standings.is_ahead(1));
        standings.tell(1, EventTime(0), true, false);
        assert!(!standings.is_ahead(0), "nobody waits for an idle one");
    }
}
