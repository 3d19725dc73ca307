//! Databases go from busy nodes to others, where `cluster.balance` is on: [`savanna_control::balance`] decides, on the node that has shard `tenants`, and the moves are
//! those that `savanna move` asks for.

use std::collections::{BTreeMap, VecDeque};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures::future::join_all;
use parking_lot::Mutex;
use savanna_control::balance::{Balance, Proposal};
use savanna_epoch::{NodeId, ShardId};
use savanna_ownership::ClusterView;
use savanna_rpc::{Method, MethodTable, Service, call};
use savanna_tenants_host::{SqlError, shards};
use serde::{Deserialize, Serialize};

use super::Joined;
use super::databases::{self, among};
use super::moves::{Moves, Report, UNKNOWN_END, Way};
use crate::roles::Role;

/// The first part of the methods' names.
pub(super) const SERVICE: &str = "balance";
/// The label of a node with the number of its processors.
pub(super) const PROCESSORS_LABEL: &str = "processors";
/// How often it is looked whether something is to move.
const PERIOD: Duration = Duration::from_secs(2);
/// How long another node has to say what it has decided.
const LIST_TIME: Duration = Duration::from_secs(2);
/// So many decisions are remembered.
const REMEMBERED: usize = 100;

/// What was decided, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Decided {
    /// Milliseconds since 1970.
    pub(crate) at: u64,
    /// By whom.
    pub(crate) by: NodeId,
    /// What goes, from where, and where to; nothing if all stays.
    pub(crate) moves: Option<(ShardId, NodeId, NodeId)>,
    /// The reason.
    pub(crate) why: String,
    /// What came of it, once that is known.
    pub(crate) outcome: Option<String>,
}

/// What a node has decided, oldest first.
struct List;

impl Method for List {
    const NAME: &'static str = "balance/list.1";
    const IDEMPOTENT: bool = true;
    type Request = ();
    type Reply = Vec<Decided>;
}

/// What this node has decided. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Decisions(Arc<Mutex<VecDeque<Decided>>>);

impl Decisions {
    /// What other nodes ask.
    pub(super) fn service(&self) -> Arc<dyn Service> {
        let own = self.clone();
        Arc::new(MethodTable::new().method(PhantomData::<List>, move |_, ()| {
            let listed = own.list();
            async { Ok(listed) }
        }))
    }

    fn list(&self) -> Vec<Decided> {
        self.0.lock().iter().cloned().collect()
    }

    /// Remembers a decision. Of several one after the other that all stays, the last is remembered.
    fn note(&self, decided: Decided) {
        let mut all = self.0.lock();
        let is_stay = |decided: &Decided| decided.moves.is_none();
        match all.back_mut().filter(|last| is_stay(last) && is_stay(&decided)) {
            Some(last) if last.why == decided.why => {}
            Some(last) => *last = decided,
            None => {
                if all.len() == REMEMBERED {
                    all.pop_front();
                }
                all.push_back(decided);
            }
        }
    }

    /// What came of the move that was decided last.
    fn came(&self, outcome: String) {
        if let Some(last) = self.0.lock().back_mut() {
            last.outcome = Some(outcome);
        }
    }
}

impl Joined {
    /// Whether this node moves databases when it is to decide.
    pub(crate) const fn balances(&self) -> bool {
        self.config.cluster_balance
    }

    /// What all nodes that answer have decided, oldest first.
    pub(crate) async fn decisions(&self) -> Vec<Decided> {
        let (view, transport) = (self.view.now(), self.transport());
        let asked = view.nodes().map(|node| {
            let (transport, node) = (Arc::clone(&transport), node.tenure.node.clone());
            async move { call::<List>(&*transport, &node, &(), LIST_TIME).await.unwrap_or_default() }
        });
        let mut all: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
        all.sort_by_key(|decided| decided.at);
        all
    }

    /// Moves databases from busy nodes to others as long as this node is the controller and serves databases itself. Another controller begins anew, and so waits.
    pub(crate) async fn balance(self: Arc<Self>, moves: Arc<Moves>) {
        let (role, mut balance) = (self.role(databases::CONTROLLER), Balance::default());
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let is_controller = matches!(*role.borrow(), Role::Owner(_));
            if !is_controller || !self.guard.serving() {
                balance = Balance::default();
                continue;
            }
            let view = self.view.now();
            let loads = among(&view, self.loads.loads(&view));
            match balance.step(Instant::now(), &view, &loads, &processors(&view)) {
                Err(stays) => self.decisions.note(self.decided(None, stays.to_string())),
                Ok(proposal) => {
                    self.carry(&moves, &proposal).await;
                    balance.ended(Instant::now(), &proposal.shard);
                }
            }
        }
    }

    /// Moves what is to move, and remembers what came of it.
    async fn carry(&self, moves: &Moves, proposal: &Proposal) {
        let Proposal { shard, from, to, .. } = proposal;
        let why = proposal.to_string();
        tracing::info!(%shard, %from, %to, why, "a database is to move, as its node is busier than another");
        self.decisions.note(self.decided(Some((shard.clone(), from.clone(), to.clone())), why));
        let outcome = match shards::tenant_of(shard) {
            None => "it is no database".to_owned(),
            Some(tenant) => outcome(moves.ask(tenant, to, Way::Albatross).await),
        };
        self.decisions.came(outcome);
    }

    fn decided(&self, moves: Option<(ShardId, NodeId, NodeId)>, why: String) -> Decided {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Decided { at: since_1970.as_millis() as u64, by: self.tenure.node.clone(), moves, why, outcome: None }
    }
}

/// What came of a move, in words. One whose end nobody has said goes on perhaps: the records say where the database is.
fn outcome(moved: Result<Report, SqlError>) -> String {
    match moved {
        Ok(report) => report.stayed.map_or_else(|| "moved".to_owned(), |why| format!("stayed: {why}")),
        Err(error) if error.state == UNKNOWN_END => format!("not known: {error}"),
        Err(error) => format!("stayed: {error}"),
    }
}

/// How many processors nodes have, as far as they say so.
fn processors(view: &ClusterView) -> BTreeMap<NodeId, u64> {
    let of = |label: &String| label.parse().ok();
    let known = view.nodes().filter_map(|node| {
        let processors = node.labels.get(PROCESSORS_LABEL).and_then(of)?;
        Some((node.tenure.node.clone(), processors))
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(moves: bool, why: &str) -> Decided {
        let [n1, n2] = ["n1", "n2"].map(NodeId::new);
        let moves = moves.then(|| (shards::shard(7), n1.clone(), n2));
        Decided { at: 1, by: n1, moves, why: why.to_owned(), outcome: None }
    }

    #[test]
    fn a_move_whose_end_nobody_has_said_is_not_told_as_stayed() {
        let error = |state| SqlError::new(state, "the node does not answer");
        assert_eq!(outcome(Err(error(UNKNOWN_END))), "not known: the node does not answer");
        assert_eq!(outcome(Err(error("55000"))), "stayed: the node does not answer");
    }

    #[test]
    fn each_move_is_remembered_and_of_what_stays_the_last_reason() {
        let decisions = Decisions::default();
        let whys = || decisions.list().into_iter().map(|decided| decided.why).collect::<Vec<_>>();
        for why in ["even", "even", "not yet"] {
            decisions.note(decided(false, why));
        }
        decisions.note(decided(true, "busy"));
        decisions.came("moved".to_owned());
        assert_eq!(decisions.list()[1].outcome.as_deref(), Some("moved"));
        decisions.note(decided(false, "cools down"));
        decisions.note(decided(true, "busy"));
        decisions.note(decided(true, "busy"));
        assert_eq!(whys(), ["not yet", "busy", "cools down", "busy", "busy"]);
        for _ in 0..REMEMBERED {
            decisions.note(decided(true, "more"));
        }
        assert_eq!(whys(), ["more"; REMEMBERED]);
    }
}
