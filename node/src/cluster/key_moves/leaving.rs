//! The node that a virtual node leaves: does what [`savanna_handover`] decides.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use savanna_control::moving::{Proposals, Proposed, seen};
use savanna_handover::{Action, Answer, Change, Ending, Handover, Input, Obstacle, Source, ToSource, ToTarget};
use savanna_keys_host::{Leaving as Departing, MoveError};
use savanna_rpc::call;

use super::{KeyMoves, NotMoved, Report, SAY_TIME, Say, SendPart, unix_millis};
use crate::cluster::moves::points::reached;

/// How long the other node is told what was decided.
const DECIDED_TIME: Duration = Duration::from_secs(5);
/// Between two looks at what did not come.
const TICK: Duration = Duration::from_millis(2);
/// How long it is waited for what is under way, at once.
const WAIT_TIME: Duration = Duration::from_millis(20);
/// Bytes of a message with what goes along.
const PART_BYTES: usize = 2 << 20;
/// With more than this that was not sent when it is about to freeze, it stays.
const LAST_BYTES_MAX: usize = 8 << 20;
/// As long as this it may take to send the rest, which nobody waits longer for.
const LAST_TIME: Duration = Duration::from_secs(2);
/// So often a part is sent that is not taken.
const TRIES: usize = 3;

/// A virtual node that leaves this node.
pub(super) struct Leaving<'a> {
    moves: &'a KeyMoves,
    node: u16,
    proposals: Proposals,
    handover: Handover,
    attempt: u64,
    began: Instant,
    frozen: Option<Instant>,
    window: Duration,
    departing: Option<Departing>,
    /// How many parts were sent, and how many bytes.
    parts: u32,
    bytes: u64,
    rounds: u32,
    why: String,
    decided: Option<(Instant, Ending)>,
}

impl<'a> Leaving<'a> {
    pub(super) fn new(moves: &'a KeyMoves, node: u16, proposals: Proposals, handover: Handover, attempt: u64) -> Self {
        let (began, window, why) = (Instant::now(), Duration::ZERO, String::new());
        let (frozen, departing, decided) = (None, None, None);
        let (parts, bytes, rounds) = (0, 0, 0);
        Self {
            moves,
            node,
            proposals,
            handover,
            attempt,
            began,
            frozen,
            window,
            departing,
            parts,
            bytes,
            rounds,
            why,
            decided,
        }
    }

    pub(super) async fn carry_out(
        mut self,
        mut source: Source,
        mut actions: VecDeque<Action>,
    ) -> Result<Report, NotMoved> {
        let ending = loop {
            while let Some(action) = actions.pop_front() {
                if let Some(input) = self.act(action).await? {
                    actions.extend(source.step(self.now(), input));
                }
            }
            if let Some(ending) = source.ending().or_else(|| self.decided_long_ago()) {
                break ending;
            }
            tokio::time::sleep(TICK).await;
            actions.extend(source.step(self.now(), Input::Tick));
        };
        Ok(self.ended(ending))
    }

    fn ended(mut self, ending: Ending) -> Report {
        self.close_window();
        let took = self.began.elapsed();
        let Self { node, handover, rounds, bytes, window, why, .. } = self;
        let stayed = (ending != Ending::Moved).then_some(why);
        let (from, to) = (handover.from, handover.to);
        match &stayed {
            None => tracing::info!(node, %to, ?took, ?window, bytes, "a virtual node of keys has moved"),
            Some(why) => tracing::warn!(node, %to, why, "a virtual node of keys did not move"),
        }
        Report { node, from, to, began: unix_millis(took), took, window, rounds, bytes, stayed }
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// What was decided, if the other node has not answered for long: the records have it, so that it finds that there, or is gone.
    fn decided_long_ago(&self) -> Option<Ending> {
        self.decided.filter(|(since, _)| since.elapsed() > DECIDED_TIME).map(|(_, ending)| ending)
    }

    fn close_window(&mut self) {
        if let Some(frozen) = self.frozen.take() {
            self.window = frozen.elapsed();
        }
    }

    fn failed(&mut self, error: &MoveError) -> Input {
        self.why = error.to_string();
        Input::Failed
    }

    async fn act(&mut self, action: Action) -> Result<Option<Input>, NotMoved> {
        Ok(match action {
            Action::Propose(version, change) => self.propose(version, change).await?,
            Action::Read => self.read().await,
            Action::Send(said) => self.send(said).await,
            Action::Pin => None,
            Action::Round(round) => Some(self.round(round).await),
            Action::Freeze => {
                if let Some(departing) = &self.departing {
                    if departing.waiting_bytes() > LAST_BYTES_MAX {
                        "too much was changed in the last round: nobody would be served for too long"
                            .clone_into(&mut self.why);
                        return Ok(Some(Input::Failed));
                    }
                    departing.freeze();
                }
                self.frozen.get_or_insert_with(Instant::now);
                reached("source: frozen");
                Some(Input::Frozen)
            }
            Action::Drain => Some(self.drain().await),
            Action::Export => Some(self.export().await),
            // Nothing is noted any more, whether it was frozen or not.
            Action::Resume | Action::Unpin => {
                self.close_window();
                if let Some(departing) = self.departing.take() {
                    departing.stay();
                }
                None
            }
            Action::Release => {
                reached("source: decided");
                // Those who wait are sent there.
                if let Some(departing) = self.departing.take() {
                    departing.go(&self.handover.to, self.handover.next_epoch());
                }
                reached("source: released");
                None
            }
            Action::Stop => {
                self.close_window();
                "another node has it, or this one has lost it".clone_into(&mut self.why);
                if let Some(departing) = self.departing.take() {
                    let since = self.handover.next_epoch();
                    departing.lose(since);
                    self.moves.leftovers.note_lost(self.node, since);
                }
                None
            }
        })
    }

    async fn propose(&mut self, version: u64, change: Change) -> Result<Option<Input>, NotMoved> {
        if let Change::Commit(_) = change {
            reached("source: ready");
        }
        let batch = self.proposals.batch(version, &change);
        let proposed = self.moves.joined.coordinator.apply(&batch).await;
        let answer = match self.proposals.proposed(&change, &proposed) {
            Proposed::Answered(answer) => answer,
            Proposed::TargetChanged => {
                let to = &self.handover.to;
                return Err(NotMoved::Refused(format!(
                    "node {to} was drained a moment ago, or is not any more: try again"
                )));
            }
            Proposed::NeverAnnounced(why) => return Err(NotMoved::Refused(why)),
            Proposed::Refused(why) => {
                self.why = why;
                Answer::Unknown
            }
        };
        if let (Change::Announce, Answer::Won(_)) = (&change, answer) {
            reached("source: announced");
        }
        Ok(Some(Input::Proposed(change, answer)))
    }

    async fn read(&self) -> Option<Input> {
        let read = self.moves.joined.coordinator.shard(&self.proposals.shard).await.ok()??;
        Some(Input::Read(read.version.0, seen(&read.value)))
    }

    async fn send(&mut self, said: ToTarget) -> Option<Input> {
        match said {
            ToTarget::Commit => drop(self.decided.get_or_insert_with(|| (Instant::now(), Ending::Moved))),
            ToTarget::Abort => drop(self.decided.get_or_insert_with(|| (Instant::now(), Ending::Stayed))),
            ToTarget::Prepare(_) => reached("source: sent"),
            ToTarget::Begin | ToTarget::Round(_) => {}
        }
        let request = (self.node, self.handover.clone(), (self.attempt, self.parts), said);
        let heard = call::<Say>(&*self.moves.joined.transport(), &self.handover.to, &request, SAY_TIME).await;
        let heard = match heard {
            Ok(heard) => heard?,
            Err(error) => {
                self.why = error.to_string();
                return None;
            }
        };
        match &heard {
            ToSource::Refuse(why) => self.why = format!("node {} does not take it: {why}", self.handover.to),
            ToSource::Synced(round) => self.rounds = round + 1,
            ToSource::Saved => self.close_window(),
            _ => {}
        }
        Some(Input::Heard(heard))
    }

    /// Sends what there is to be sent: in the first round the keys as they are, with what is changed meanwhile.
    async fn round(&mut self, round: u32) -> Input {
        let before = self.bytes;
        match self.send_round().await {
            Ok(()) => {
                reached(&format!("source: round {round}"));
                Input::Round(round, self.bytes - before)
            }
            Err(error) => self.failed(&error),
        }
    }

    async fn send_round(&mut self) -> Result<(), MoveError> {
        if self.departing.is_none() {
            let (hearer, node) = (self.moves.hearer.clone(), self.node);
            self.departing = Some(blocking(move || hearer.depart(node)).await?);
        }
        loop {
            let Some(departing) = self.departing.clone() else { return Ok(()) };
            let looks = departing.clone();
            let is_written = blocking(move || looks.is_written(WAIT_TIME)).await?;
            self.send_parts(departing.take()).await?;
            if is_written {
                return Ok(());
            }
        }
    }

    /// Whether nothing is under way any more.
    async fn drain(&mut self) -> Input {
        let Some(departing) = self.departing.clone() else { return Input::Failed };
        match blocking(move || departing.is_at_rest(WAIT_TIME)).await {
            Ok(true) => Input::InTheWay(Vec::new()),
            Ok(false) => Input::InTheWay(vec![Obstacle::Commit]),
            Err(error) => self.failed(&error),
        }
    }

    /// Sends the rest.
    async fn export(&mut self) -> Input {
        let Some(departing) = self.departing.clone() else { return Input::Failed };
        match self.send_parts(departing.take()).await {
            Ok(()) => Input::Exported,
            Err(error) => self.failed(&error),
        }
    }

    /// Sends deltas in their order. What was taken goes, or the move does not.
    async fn send_parts(&mut self, bytes: Vec<u8>) -> Result<(), MoveError> {
        let transport = self.moves.joined.transport();
        for part in bytes.chunks(PART_BYTES) {
            let request = (self.handover.id, self.parts, part.to_vec());
            let mut tries = 0;
            loop {
                if self.frozen.is_some_and(|frozen| frozen.elapsed() > LAST_TIME) {
                    return Err(MoveError::Failed(format!(
                        "the other node has not taken the rest within {LAST_TIME:?}"
                    )));
                }
                tries += 1;
                match call::<SendPart>(&*transport, &self.handover.to, &request, SAY_TIME).await {
                    Ok(true) => break,
                    Ok(false) => return Err(MoveError::Failed("the other node knows nothing of the move".to_owned())),
                    Err(error) if tries >= TRIES => return Err(MoveError::Failed(error.to_string())),
                    Err(_) => {}
                }
            }
            self.parts += 1;
            self.bytes += part.len() as u64;
        }
        Ok(())
    }
}

/// Does what blocks, elsewhere.
pub(super) async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, MoveError> + Send + 'static,
) -> Result<T, MoveError> {
    tokio::task::spawn_blocking(act).await.unwrap_or_else(|error| Err(MoveError::Failed(error.to_string())))
}
