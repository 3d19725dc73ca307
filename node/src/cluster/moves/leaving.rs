//! The node that a database leaves: does what [`savanna_handover`] decides.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use futures::{StreamExt, stream};
use savanna_control::moving::{Proposals, Proposed, seen};
use savanna_handover::{Action, Answer, Change, Ending, Handover, Input, Obstacle, Source, ToSource, ToTarget};
use savanna_ownership::Revision;
use savanna_rpc::call;
use savanna_tenants_host::{Moved, SqlError, TenantId};
use tokio::task::JoinHandle;

use super::costs::{Costs, Told};
use super::points::reached;
use super::warming::Warming;
use super::{Ended, Moves, NotBegun, PART_BYTES, Report, SAY_TIME, Say, SendPart, Way, Words};

/// How long the other node is told what was decided.
const DECIDED_TIME: Duration = Duration::from_secs(5);
/// Between two looks at what did not come.
pub(super) const TICK: Duration = Duration::from_millis(20);
/// So many parts are on their way at once.
const PARTS_UNDER_WAY: usize = 4;

/// A tenant that leaves this node.
pub(super) struct Leaving<'a> {
    pub(super) moves: &'a Moves,
    pub(super) tenant: TenantId,
    pub(super) proposals: Proposals,
    pub(super) handover: Handover,
    pub(super) began: Instant,
    pub(super) frozen: Option<Instant>,
    /// From when until when nobody was served, when that is over.
    pub(super) window: Option<(Instant, Instant)>,
    /// Whether all nodes note what clients feel of it.
    pub(super) is_watched: bool,
    /// What the nodes say how long clients waited, when the window is over.
    pub(super) waits: Option<JoinHandle<Told>>,
    pub(super) costs: Costs,
    pub(super) warming: Warming,
    pub(super) drain: Option<JoinHandle<Result<Moved, SqlError>>>,
    pub(super) is_drained: bool,
    pub(super) way: Way,
    /// The attempt's place among those that moved the tenant.
    pub(super) attempt: u64,
    /// What goes along and was not taken yet, with the parts' numbers, and how many there are.
    pub(super) parts: VecDeque<(u32, Vec<u8>)>,
    pub(super) parts_count: u32,
    /// Of the record, as it was last seen.
    pub(super) version: Revision,
    /// Why it does not go.
    pub(super) why: String,
    /// What was decided, and when.
    pub(super) decided: Option<(Instant, Ending)>,
}

impl Leaving<'_> {
    pub(super) async fn carry_out(
        &mut self,
        mut source: Source,
        mut actions: VecDeque<Action>,
    ) -> Result<Ending, NotBegun> {
        loop {
            while let Some(action) = actions.pop_front() {
                if let Some(input) = self.act(action).await? {
                    actions.extend(source.step(self.now(), input));
                }
            }
            if let Some(ending) = source.ending() {
                return Ok(ending);
            }
            if let Some(ending) = self.decided_long_ago() {
                return Ok(ending);
            }
            tokio::time::sleep(TICK).await;
            actions.extend(source.step(self.now(), Input::Tick));
        }
    }

    /// The move has ended: its report, without what clients have noticed.
    pub(super) async fn ended(mut self, ending: Ending) -> Ended {
        self.close_window(Instant::now());
        let window = self.window.map_or(Duration::ZERO, |(began, ended)| ended.duration_since(began));
        if ending == Ending::Moved {
            reached("source: saved");
            self.moves.back.handed_over(self.tenant).await;
        }
        let stayed = (ending != Ending::Moved).then_some(self.why);
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let took = self.began.elapsed();
        let report = Report {
            tenant: self.tenant,
            from: self.handover.from,
            to: self.handover.to,
            way: self.way,
            began: since_1970.saturating_sub(took).as_millis() as u64,
            took,
            window,
            stayed,
            costs: self.costs,
        };
        let shard = &self.proposals.shard;
        match &report.stayed {
            None => tracing::info!(%shard, to = %report.to, ?took, ?window, "a database has moved"),
            Some(why) => tracing::warn!(%shard, to = %report.to, why, "a database did not move"),
        }
        Ended { id: self.handover.id, report, waits: self.waits }
    }

    /// What was decided, if the other node has not answered for long: the records have it, so that it finds that there, or is gone.
    pub(super) fn decided_long_ago(&mut self) -> Option<Ending> {
        let (since, ending) = self.decided.filter(|(since, _)| since.elapsed() > DECIDED_TIME)?;
        // Whether the other node serves is not known.
        self.close_window(since);
        Some(ending)
    }

    /// Somebody is served again, since a moment. What clients have waited is asked for at once, as nodes do not keep it for long.
    pub(super) fn close_window(&mut self, ended: Instant) {
        if let Some(frozen) = self.frozen.take() {
            let window = (frozen, ended);
            self.window = Some(window);
            if self.way == Way::Asleep {
                return;
            }
            self.waits = Some(tokio::spawn(self.moves.felt(self.handover.id, Some(window))));
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    pub(super) async fn act(&mut self, action: Action) -> Result<Option<Input>, NotBegun> {
        let tenants = &self.moves.tenants;
        Ok(match action {
            Action::Propose(version, change) => self.propose(version, change).await?,
            Action::Read => self.read().await,
            Action::Send(said) => self.send(said).await,
            // The storage keeps what its last manifest has, and nobody writes another one.
            Action::Pin | Action::Unpin => None,
            Action::Round(round) if self.is_drained => Some(Input::Round(round, 0)),
            Action::Round(round) if self.way == Way::Albatross => {
                if round == 0 {
                    self.note_storage().await;
                }
                match tenants.save_some(self.tenant).await {
                    Ok(()) => Some(Input::Round(round, self.warm().await)),
                    Err(error) => Some(self.failed(&error)),
                }
            }
            Action::Round(round) => match tenants.save(self.tenant).await {
                Ok(()) => Some(Input::Round(round, 0)),
                Err(error) => Some(self.failed(&error)),
            },
            Action::Freeze => self.freeze().await,
            Action::Drain => self.drain().await,
            Action::Export => {
                reached("source: exported");
                Some(Input::Exported)
            }
            Action::Resume => {
                self.close_window(Instant::now());
                tenants.resume(self.tenant, self.handover.id.0);
                tenants.note_version(self.tenant, self.version);
                None
            }
            Action::Release => {
                self.moves.back.expect_sessions();
                tenants.release(self.tenant, self.handover.id.0);
                reached("source: released");
                None
            }
            Action::Stop => {
                self.close_window(Instant::now());
                self.why = "it was dropped, or another node has it".to_owned();
                tenants.release(self.tenant, self.handover.id.0);
                None
            }
        })
    }

    fn failed(&mut self, error: &SqlError) -> Input {
        self.why = error.to_string();
        Input::Failed
    }

    pub(super) async fn propose(&mut self, version: u64, change: Change) -> Result<Option<Input>, NotBegun> {
        if let Change::Commit(_) = change {
            reached("source: ready");
        }
        let batch = self.proposals.batch(version, &change);
        let proposed = self.moves.joined.coordinator.apply(&batch).await;
        let answer = match self.proposals.proposed(&change, &proposed) {
            Proposed::Answered(Answer::Won(version)) => return Ok(Some(self.won(Revision(version), change))),
            Proposed::Answered(answer) => answer,
            Proposed::TargetChanged => {
                let to = &self.handover.to;
                return Err(NotBegun::Refused(format!(
                    "node {to} was drained a moment ago, or is not any more: try again"
                )));
            }
            Proposed::NeverAnnounced(why) => return Err(NotBegun::Refused(why)),
            Proposed::Refused(why) => {
                self.why = why;
                Answer::Unknown
            }
        };
        Ok(Some(Input::Proposed(change, answer)))
    }

    /// The record was changed, and has this version.
    pub(super) fn won(&mut self, version: Revision, change: Change) -> Input {
        match change {
            Change::Announce => reached("source: announced"),
            Change::Commit(_) => reached("source: decided"),
            Change::GiveUp => reached("source: given up"),
        }
        self.version = version;
        self.moves.tenants.note_version(self.tenant, version);
        Input::Proposed(change, Answer::Won(version.0))
    }

    async fn read(&mut self) -> Option<Input> {
        let read = self.moves.joined.coordinator.shard(&self.proposals.shard).await.ok()??;
        self.version = read.version;
        if read.value.owner() == Some(&self.proposals.tenures.0) {
            self.moves.tenants.note_version(self.tenant, read.version);
        }
        Some(Input::Read(read.version.0, seen(&read.value)))
    }

    async fn send(&mut self, said: ToTarget) -> Option<Input> {
        self.begin_saying(&said);
        if let ToTarget::Prepare(_) = said {
            if !self.send_parts().await {
                return None;
            }
            reached("source: sent");
        }
        let request = self.words(said);
        let transport = self.moves.joined.transport();
        match call::<Say>(&*transport, &self.handover.to, &request, SAY_TIME).await {
            Ok(heard) => self.heard(heard),
            Err(error) => {
                self.why = error.to_string();
                None
            }
        }
    }

    /// What is said is noted.
    pub(super) fn begin_saying(&mut self, said: &ToTarget) {
        match said {
            ToTarget::Commit => drop(self.decided.get_or_insert_with(|| (Instant::now(), Ending::Moved))),
            ToTarget::Abort => drop(self.decided.get_or_insert_with(|| (Instant::now(), Ending::Stayed))),
            ToTarget::Begin if self.way != Way::Asleep && !std::mem::replace(&mut self.is_watched, true) => {
                self.moves.watch(self.handover.id, self.tenant)
            }
            ToTarget::Begin | ToTarget::Prepare(_) => {}
            ToTarget::Round(round) => reached(&format!("source: round {round}")),
        }
    }

    /// What the other node is asked.
    pub(super) fn words(&self, said: ToTarget) -> Words {
        (self.tenant, self.handover.clone(), (self.attempt, self.parts_count), said)
    }

    /// What the other node has answered, if it has anything to say, is noted.
    pub(super) fn heard(&mut self, heard: Option<ToSource>) -> Option<Input> {
        match &heard {
            Some(ToSource::Refuse(why)) => {
                self.why = format!("node {} does not take it: {why}", self.handover.to);
            }
            Some(ToSource::Synced(round)) => self.costs.rounds = round + 1,
            Some(ToSource::Saved) => self.close_window(Instant::now()),
            _ => {}
        }
        heard.map(Input::Heard)
    }

    /// Sends what goes along and was not taken yet; each answer is the credit for one more part. Nothing more goes to a node that has not answered. Whether all of it is there.
    async fn send_parts(&mut self) -> bool {
        let transport = self.moves.joined.transport();
        let (id, count, to) = (self.handover.id, self.parts_count, &self.handover.to);
        let is_silent = AtomicBool::new(false);
        let mut sent = stream::iter(std::mem::take(&mut self.parts))
            .map(|(number, bytes)| {
                let (transport, is_silent, request) = (&transport, &is_silent, (id, number, count, bytes));
                async move {
                    if is_silent.load(Ordering::Relaxed) {
                        return (None, (number, request.3));
                    }
                    let answer = call::<SendPart>(&**transport, to, &request, SAY_TIME).await;
                    is_silent.fetch_or(answer.is_err(), Ordering::Relaxed);
                    (Some(answer), (number, request.3))
                }
            })
            .buffered(PARTS_UNDER_WAY);
        let mut left = VecDeque::new();
        while let Some((outcome, part)) = sent.next().await {
            match outcome {
                Some(Ok(true)) => {}
                // The next message is refused, and says so.
                Some(Ok(false)) => return true,
                Some(Err(error)) => {
                    self.why = error.to_string();
                    left.push_back(part);
                }
                None => left.push_back(part),
            }
        }
        drop(sent);
        self.parts = left;
        self.parts.is_empty()
    }

    async fn freeze(&mut self) -> Option<Input> {
        self.moves.back.expect_sessions();
        let (tenants, tenant, attempt) = (&self.moves.tenants, self.tenant, self.handover.id.0);
        let freezing = match self.way {
            Way::Asleep => tenants.freeze_asleep(tenant, attempt).await,
            way => tenants.freeze(tenant, attempt, way == Way::Albatross).await,
        };
        match freezing {
            Ok(()) => {
                self.frozen.get_or_insert_with(Instant::now);
                reached("source: frozen");
                Some(Input::Frozen)
            }
            // It is waking up, or has commits that it has not done again, which it does when it wakes.
            Err(error) if error.state == "55006" && self.way != Way::Asleep => {
                self.why = error.to_string();
                self.moves.tenants.save_some(self.tenant).await.err().map(|error| self.failed(&error))
            }
            Err(error) => Some(self.failed(&error)),
        }
    }

    /// Cuts what goes along into parts.
    fn take_along(&mut self, moved: &Moved) -> Result<(), SqlError> {
        if *moved == Moved::default() {
            return Ok(());
        }
        self.costs.tail_bytes = moved.tail.iter().map(|commit| commit.len() as u64).sum();
        self.costs.image_bytes = moved.image.as_ref().map_or(0, |image| image.len() as u64);
        let bytes = moved.encode()?;
        self.parts = (0..).zip(bytes.chunks(PART_BYTES).map(<[u8]>::to_vec)).collect();
        self.parts_count = self.parts.len() as u32;
        Ok(())
    }

    async fn drain(&mut self) -> Option<Input> {
        let (tenants, tenant, attempt) = (self.moves.tenants.clone(), self.tenant, self.handover.id.0);
        let drain = self.drain.get_or_insert_with(|| tokio::spawn(async move { tenants.drain(tenant, attempt).await }));
        match tokio::time::timeout(TICK, drain).await {
            Err(_) => Some(Input::InTheWay(vec![Obstacle::Statement])),
            Ok(Ok(Ok(moved))) => match self.take_along(&moved) {
                Ok(()) => {
                    self.is_drained = true;
                    Some(Input::InTheWay(Vec::new()))
                }
                Err(error) => Some(self.failed(&error)),
            },
            Ok(Ok(Err(error))) => Some(self.failed(&error)),
            Ok(Err(error)) => {
                self.why = error.to_string();
                Some(Input::Failed)
            }
        }
    }
}
