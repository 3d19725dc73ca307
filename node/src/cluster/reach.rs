//! Which of the nodes that work this one reaches.
//!
//! All nodes of a cluster share its directory, and each shows there, in `pulses/NAME`, that it works. So who does not answer, and shows all the same
//! that it works, is on the other side of a cut network. A node on the smaller side does not run the coordinator: it leaves it to the larger
//! side, and takes it from nobody. Of two halves the one that has it keeps it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use savanna_epoch::NodeId;

use crate::data_dir::create_private;

const FOLDER: &str = "pulses";
/// How often a node shows that it works.
const PERIOD: Duration = Duration::from_millis(200);
/// A node that has not shown for so long that it works, does not.
const STILL_TIME: Duration = Duration::from_secs(1);
/// How often a node that works may miss to answer.
const MISSES_MAX: u32 = 2;

/// Shows that this node works, for ever.
pub(super) async fn show(directory: PathBuf, node: NodeId, address: SocketAddr) {
    loop {
        let (directory, node) = (directory.clone(), node.clone());
        let shown = tokio::task::spawn_blocking(move || beat(&directory, &node, address)).await;
        if let Ok(Err(error)) = shown {
            tracing::warn!(%error, "other nodes cannot see that this one works");
        }
        tokio::time::sleep(PERIOD).await;
    }
}

fn beat(directory: &Path, node: &NodeId, address: SocketAddr) -> io::Result<()> {
    let folder = directory.join(FOLDER);
    let (path, text) = (folder.join(&node.0), address.to_string());
    if fs::read_to_string(&path).is_ok_and(|said| said == text) {
        return File::open(&path)?.set_modified(SystemTime::now());
    }
    create_private(&folder)?;
    let new = folder.join(format!("{node}.new"));
    fs::write(&new, text)?;
    fs::rename(new, path)
}

/// This node works no more, which need not be found out.
pub(super) fn end(directory: &Path, node: &NodeId) {
    // It is found out.
    let _ = fs::remove_file(directory.join(FOLDER).join(&node.0));
}

/// What another node shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pulse {
    pub(super) node: NodeId,
    /// Where it listens.
    pub(super) address: String,
    /// Changes for as long as it works.
    pub(super) at: SystemTime,
}

/// What all others show.
pub(super) fn pulses(directory: &Path, own: &NodeId) -> io::Result<Vec<Pulse>> {
    let entries = match fs::read_dir(directory.join(FOLDER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let pulse = |entry: io::Result<fs::DirEntry>| {
        let path = entry.ok()?.path();
        let node = NodeId::new(path.file_name()?.to_str()?);
        let address = fs::read_to_string(&path).ok()?;
        // A file that is about to be renamed is nobody's.
        address.parse::<SocketAddr>().ok()?;
        Some(Pulse { node, address, at: fs::metadata(&path).ok()?.modified().ok()? })
    };
    Ok(entries.filter_map(pulse).filter(|pulse| pulse.node != *own).collect())
}

/// The nodes that work, as one of them finds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sides {
    /// That answer, and itself.
    reached: usize,
    /// That work, and do not answer.
    beyond: usize,
    /// That do not answer, and may work.
    unsure: usize,
}

impl Sides {
    /// Whether the node is on the smaller side.
    pub(super) const fn is_smaller(self) -> bool {
        self.reached < self.beyond
    }

    /// Whether it may be.
    pub(super) const fn may_be_smaller(self) -> bool {
        self.reached < self.beyond + self.unsure
    }
}

/// A node that has not answered.
#[derive(Clone, Copy, Debug)]
struct Missed {
    times: u32,
    /// Its pulse, and when it was seen to change.
    pulse: SystemTime,
    changed: Instant,
    /// Whether it has changed since the node was missed.
    works: bool,
}

/// Decides on which side of a cut network a node is.
#[derive(Debug, Default)]
pub(super) struct Reach(BTreeMap<NodeId, Missed>);

impl Reach {
    /// Takes in what others show, and whether they have answered.
    pub(super) fn step(&mut self, found: &[(Pulse, bool)], now: Instant) -> Sides {
        self.0.retain(|node, _| found.iter().any(|(pulse, _)| pulse.node == *node));
        let mut sides = Sides { reached: 1, ..Sides::default() };
        for (pulse, answered) in found {
            if *answered {
                self.0.remove(&pulse.node);
                sides.reached += 1;
                continue;
            }
            let first = Missed { times: 0, pulse: pulse.at, changed: now, works: false };
            let missed = self.0.entry(pulse.node.clone()).or_insert(first);
            missed.times += 1;
            if missed.pulse != pulse.at {
                (missed.pulse, missed.changed, missed.works) = (pulse.at, now, true);
            }
            let is_still = now.saturating_duration_since(missed.changed) >= STILL_TIME;
            sides.beyond += usize::from(!is_still && missed.works && missed.times >= MISSES_MAX);
            sides.unsure += usize::from(!is_still && !(missed.works && missed.times >= MISSES_MAX));
        }
        sides
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(100);

    /// What others show in a round: those that work change their pulses.
    fn found(round: u32, others: &[(&str, bool, bool)]) -> Vec<(Pulse, bool)> {
        let found = |(name, works, answers): &(&str, bool, bool)| {
            let at = SystemTime::UNIX_EPOCH + if *works { round * ROUND } else { Duration::ZERO };
            (Pulse { node: NodeId::new(*name), address: String::new(), at }, *answers)
        };
        others.iter().map(found).collect()
    }

    /// How it stands after so many rounds of the same.
    fn after(rounds: u32, others: &[(&str, bool, bool)]) -> Sides {
        let (mut reach, began) = (Reach::default(), Instant::now());
        let mut step = |round| reach.step(&found(round, others), began + round * ROUND);
        (0..rounds).map(&mut step).last().unwrap_or_default()
    }

    #[test]
    fn who_does_not_answer_and_shows_that_it_works_is_beyond_a_cut() {
        let cut = [("b", true, false), ("c", true, false)];
        assert!(!after(1, &cut).is_smaller(), "it may be busy");
        assert!(after(2, &cut).is_smaller() && after(100, &cut).is_smaller());
        let on_the_larger_side = [("b", true, false), ("c", true, true)];
        assert!((1..100).all(|rounds| !after(rounds, &on_the_larger_side).may_be_smaller()));
    }

    #[test]
    fn who_does_not_work_is_on_no_side_after_a_while() {
        let dead = [("b", false, false), ("c", false, false)];
        assert!((1..100).all(|rounds| !after(rounds, &dead).is_smaller()));
        let stops = |rounds| after(rounds, &dead).may_be_smaller();
        assert!(stops(10) && !stops(11), "nobody is sure before");
    }

    #[test]
    fn of_two_halves_none_is_the_smaller() {
        let two = [("b", true, false)];
        let four = [("b", true, true), ("c", true, false), ("d", true, false)];
        assert!((1..100).all(|rounds| !after(rounds, &two).may_be_smaller()));
        assert!((1..100).all(|rounds| !after(rounds, &four).may_be_smaller()));
        let five = [("b", true, true), ("c", true, false), ("d", true, false), ("e", true, false)];
        assert!(after(2, &five).is_smaller());
    }

    #[test]
    fn who_answers_again_is_missed_anew() {
        let (mut reach, began) = (Reach::default(), Instant::now());
        let mut step = |round, answers| {
            let found = found(round, &[("b", true, answers), ("c", true, answers)]);
            reach.step(&found, began + round * ROUND).is_smaller()
        };
        assert_eq!([step(0, false), step(1, true), step(2, false), step(3, false)], [false, false, false, true]);
    }

    #[test]
    fn a_pulse_is_seen_by_others_until_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let (own, other, address) = (NodeId::new("a"), NodeId::new("b"), "127.0.0.1:7400".parse().unwrap());
        let seen = || pulses(directory.path(), &own).unwrap();
        assert_eq!(seen(), []);
        beat(directory.path(), &other, address).unwrap();
        beat(directory.path(), &own, address).unwrap();
        let [first] = &seen()[..] else { panic!("one node shows that it works, seen were {:?}", seen()) };
        assert_eq!((&first.node, &*first.address), (&other, "127.0.0.1:7400"));
        std::thread::sleep(Duration::from_millis(20));
        beat(directory.path(), &other, address).unwrap();
        assert!(seen()[0].at > first.at);
        end(directory.path(), &other);
        assert_eq!(seen(), []);
    }
}
