//! Which of the nodes that work this one reaches.
//!
//! All nodes of a cluster share its directory, and each shows there, in `pulses/NAME`, that it works. So who does not answer, and shows all the same
//! that it works, is on the other side of a cut network. A node on the smaller side does not run the coordinator: it leaves it to the larger
//! side, and takes it from nobody. Of two halves the one that has it keeps it; of three parts or more, none of which is half, none has it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use savanna_epoch::NodeId;
use savanna_rpc::{Cluster, MethodTable, Service, ServiceTable, TcpServer};
use serde::{Deserialize, Serialize};
use tokio::task::{JoinHandle, spawn_blocking};

use super::seat::{Ping, connections};
use crate::data_dir::create_private;

const FOLDER: &str = "pulses";
/// How often a node shows that it works.
const PERIOD: Duration = Duration::from_millis(200);
/// A node that has not shown for so long that it works, does not.
const STILL_TIME: Duration = Duration::from_secs(1);
/// How often a node that works may miss to answer.
const MISSES_MAX: u32 = 3;
/// So often a node that does not answer has shown that it works before that is believed: it may have died since the first time.
const CHANGES_MIN: u32 = 2;

/// What a node shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Shown {
    node: NodeId,
    /// Where it answers those who want to know whether they reach it.
    address: SocketAddr,
}

/// Under which name a node answers there.
pub(super) fn name_of(node: &NodeId) -> NodeId {
    NodeId::new(format!("pulse@{node}"))
}

/// A node that shows that it works, and answers who wants to know whether he reaches it, until it is dropped.
pub(super) struct Showing {
    beating: JoinHandle<()>,
    _server: TcpServer,
}

impl Showing {
    /// Begins, on the runtime of the caller: one that queries do not hold up.
    pub(super) async fn begin(
        directory: PathBuf,
        cluster: Cluster,
        node: NodeId,
        address: SocketAddr,
    ) -> io::Result<Self> {
        let answers = MethodTable::new().method(PhantomData::<Ping>, |_, ()| async { Ok(()) });
        let services = ServiceTable::new().service("seat", Arc::new(answers) as Arc<dyn Service>);
        let server = TcpServer::within(cluster, address, name_of(&node), Arc::new(services), connections()).await?;
        let shown = Shown { node, address: server.local_address() };
        Ok(Self { beating: tokio::spawn(beat_on(directory, shown)), _server: server })
    }
}

impl Drop for Showing {
    fn drop(&mut self) {
        self.beating.abort();
    }
}

/// Shows that the node works, for ever.
async fn beat_on(directory: PathBuf, shown: Shown) {
    let mut has_failed = false;
    loop {
        let (directory, shown) = (directory.clone(), shown.clone());
        let beaten = spawn_blocking(move || beat(&directory, &shown)).await;
        let failure = beaten.map_err(io::Error::other).and_then(|beaten| beaten).err();
        if let Some(error) = failure.as_ref().filter(|_| !has_failed) {
            tracing::warn!(%error, "other nodes cannot see in the data directory that this one works");
        }
        has_failed = failure.is_some();
        tokio::time::sleep(PERIOD).await;
    }
}

/// The file of a node. Its name is that of the node, with what may not be in a file's name as hexadecimal digits.
fn path_of(directory: &Path, node: &NodeId) -> PathBuf {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let letters = node.0.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02x}"),
    });
    directory.join(FOLDER).join(letters.collect::<String>())
}

fn beat(directory: &Path, shown: &Shown) -> io::Result<()> {
    let path = path_of(directory, &shown.node);
    if read(&path).is_some_and(|(said, _)| said == *shown) {
        return File::open(&path)?.set_modified(SystemTime::now());
    }
    create_private(&directory.join(FOLDER))?;
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(shown).map_err(io::Error::other)?)?;
    fs::rename(new, path)
}

fn read(path: &Path) -> Option<(Shown, SystemTime)> {
    let file = File::open(path).ok()?;
    Some((serde_json::from_reader(&file).ok()?, file.metadata().ok()?.modified().ok()?))
}

/// The node works no more, which others need not find out then.
pub(super) fn end(directory: &Path, node: &NodeId) {
    // If it stays, it shows nothing new.
    let _ = fs::remove_file(path_of(directory, node));
}

/// What another node shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pulse {
    pub(super) node: NodeId,
    /// Where it answers.
    pub(super) address: SocketAddr,
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
        let (Shown { node, address }, at) = read(&path)?;
        // One that is about to be renamed is nobody's.
        (path == path_of(directory, &node)).then_some(Pulse { node, address, at })
    };
    Ok(entries.filter_map(pulse).filter(|pulse| pulse.node != *own).collect())
}

/// The nodes that work, as one of them finds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sides {
    /// That answer, and itself.
    pub(super) reached: usize,
    /// That work, and do not answer.
    pub(super) beyond: usize,
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
    /// Its pulse, when it was seen to change, and how often since the node was missed.
    pulse: SystemTime,
    changed: Instant,
    changes: u32,
}

impl Missed {
    fn is_still(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.changed) >= STILL_TIME
    }
}

/// Decides on which side of a cut network a node is.
#[derive(Debug, Default)]
pub(super) struct Reach(BTreeMap<NodeId, Missed>);

impl Reach {
    /// Whether a node is to be asked: not if it did not answer, and has shown nothing for long.
    pub(super) fn asks(&self, pulse: &Pulse, now: Instant) -> bool {
        self.0.get(&pulse.node).is_none_or(|missed| missed.pulse != pulse.at || !missed.is_still(now))
    }

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
            let first = Missed { times: 0, pulse: pulse.at, changed: now, changes: 0 };
            let missed = self.0.entry(pulse.node.clone()).or_insert(first);
            missed.times += 1;
            if missed.pulse != pulse.at {
                (missed.pulse, missed.changed, missed.changes) = (pulse.at, now, missed.changes + 1);
            }
            if !missed.is_still(now) {
                let is_beyond = missed.times >= MISSES_MAX && missed.changes >= CHANGES_MIN;
                *(if is_beyond { &mut sides.beyond } else { &mut sides.unsure }) += 1;
            }
        }
        sides
    }

    /// The coordinator answers: what was missed before counts no more.
    pub(super) fn forget(&mut self) {
        self.0.clear();
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
            (Pulse { node: NodeId::new(*name), address: ([127, 0, 0, 1], 1).into(), at }, *answers)
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
        assert!(!after(2, &cut).is_smaller(), "it may be busy");
        assert!(after(3, &cut).is_smaller() && after(100, &cut).is_smaller());
        let on_the_larger_side = [("b", true, false), ("c", true, true)];
        assert!((1..100).all(|rounds| !after(rounds, &on_the_larger_side).may_be_smaller()));
    }

    #[test]
    fn who_does_not_work_is_on_no_side_after_a_while() {
        let dead = [("b", false, false), ("c", false, false)];
        assert!((1..100).all(|rounds| !after(rounds, &dead).is_smaller()));
        let may_be_smaller = |rounds| after(rounds, &dead).may_be_smaller();
        assert!(may_be_smaller(10) && !may_be_smaller(11), "nobody is sure before");
    }

    #[test]
    fn who_was_beyond_a_cut_and_died_is_on_no_side_after_a_while_and_is_asked_no_more() {
        let (mut reach, began) = (Reach::default(), Instant::now());
        let at = |round: u32| found(round.min(5), &[("b", true, false), ("c", true, false)]);
        let sides: Vec<_> = (0..17).map(|round| reach.step(&at(round), began + round * ROUND)).collect();
        assert!(sides[5].is_smaller() && sides[14].is_smaller(), "{sides:?}");
        assert!(!sides[15].is_smaller() && !sides[15].may_be_smaller() && !sides[16].may_be_smaller(), "{sides:?}");
        let (asks, now) = (|pulses: &[(Pulse, bool)], now| reach.asks(&pulses[0].0, now), began + 16 * ROUND);
        assert!(!asks(&at(5), now) && asks(&found(6, &[("b", true, false)]), now), "it has come back");
        assert!(asks(&at(5), began + 14 * ROUND));
    }

    #[test]
    fn of_two_halves_none_is_the_smaller_and_of_three_parts_all_are() {
        let two = [("b", true, false)];
        let four = [("b", true, true), ("c", true, false), ("d", true, false)];
        assert!((1..100).all(|rounds| !after(rounds, &two).may_be_smaller()));
        assert!((1..100).all(|rounds| !after(rounds, &four).may_be_smaller()));
        let five = [("b", true, true), ("c", true, false), ("d", true, false), ("e", true, false)];
        assert!(after(3, &five).is_smaller());
    }

    #[test]
    fn who_has_answered_in_between_is_missed_anew() {
        let (mut reach, began) = (Reach::default(), Instant::now());
        let mut step = |round, answers| {
            let found = found(round, &[("b", true, answers), ("c", true, answers)]);
            reach.step(&found, began + round * ROUND).is_smaller()
        };
        assert!(
            !step(0, false)
                && !step(1, false)
                && !step(2, true)
                && !step(3, false)
                && !step(4, false)
                && step(5, false)
        );
        reach.forget();
        let found = found(6, &[("b", true, false), ("c", true, false)]);
        assert!(!reach.step(&found, began + 6 * ROUND).is_smaller(), "the coordinator has answered in between");
    }

    #[test]
    fn a_pulse_is_seen_by_others_until_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let shown = |name: &str| Shown { node: NodeId::new(name), address: "127.0.0.1:7400".parse().unwrap() };
        let (own, other) = (shown("a"), shown("../b %/ü"));
        let seen = || pulses(directory.path(), &own.node).unwrap();
        assert_eq!(seen(), []);
        beat(directory.path(), &other).unwrap();
        beat(directory.path(), &own).unwrap();
        let [first] = &seen()[..] else { panic!("one node shows that it works, seen were {:?}", seen()) };
        assert_eq!((&first.node, first.address), (&other.node, other.address));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "a name leads nowhere else");
        std::thread::sleep(Duration::from_millis(20));
        beat(directory.path(), &other).unwrap();
        assert!(seen()[0].at > first.at);
        end(directory.path(), &other.node);
        assert_eq!(seen(), []);
    }
}
