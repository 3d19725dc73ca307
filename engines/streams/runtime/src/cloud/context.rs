//! What a function is specialised with: one stage of one query, as text.

use savanna_ownership::stable_hash;
use savanna_streams_api::ids::{QueryId, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::{Aggregate, Exchange, Operator, Output, StageGraph, WindowPlan};
use savanna_streams_model::join::IntervalJoin;
use serde::{Deserialize, Serialize};

use super::ENVIRONMENT_MAX;
use super::wire::{VERSION, pack, unpack};
use crate::error::broken;
use crate::options::RuntimeOptions;
use crate::topology::{Place, Topology};

/// Before the hash of a context that is too long for an environment; base64 never begins so.
pub(crate) const HASH: char = '#';

/// One stage of a query. Of tables it has nothing: neither places nor passwords.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StageContext {
    version: u32,
    /// The query's code.
    pub(crate) code: String,
    pub(crate) place: Place,
    pub(crate) work: Work,
    pub(crate) output: Output,
    pub(crate) exchange: Exchange,
    /// Whether windows are counted where they close here.
    pub(crate) counts_windows: bool,
    pub(crate) batch_rows: usize,
}

/// What the stage does with what it gets, before its output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::large_enum_variant, reason = "a function holds one")]
pub(crate) enum Work {
    /// Nothing: a scan has read rows, and holds back none.
    Rows,
    /// As in the graph.
    Aggregate(Aggregate),
    /// As in the graph.
    Window(WindowPlan),
    /// As in the graph.
    IntervalJoin(IntervalJoin),
}

/// A context on its way: as text, and by its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Specialised {
    pub(crate) text: String,
    pub(crate) hash: String,
}

impl StageContext {
    /// That of a stage which is no sink.
    ///
    /// # Errors
    /// It cannot run in a function.
    pub(crate) fn of(
        query: &QueryId,
        graph: &StageGraph,
        topology: &Topology,
        stage: StageId,
        options: &RuntimeOptions,
    ) -> Result<Self> {
        let stage = graph.stages.get(usize::from(stage.0)).ok_or_else(|| broken("a stage that is not in its graph"))?;
        let work = match &stage.operator {
            Operator::Scan(_) => Work::Rows,
            Operator::Aggregate(aggregate) => Work::Aggregate(aggregate.clone()),
            Operator::Window(window) => Work::Window(window.clone()),
            Operator::IntervalJoin(join) => Work::IntervalJoin(join.clone()),
            Operator::Sink(_) => return Err(broken("a sink is no function")),
        };
        let output = stage.output.clone().ok_or_else(|| broken("a stage without output is no function"))?;
        if let Some(lookup) = output.lookups.first() {
            return Err(StreamError::Unsupported {
                what: format!("looking rows up in table {} on functions", lookup.table.table.name),
                position: None,
                instead: "run the query in this process, or on a node".into(),
            });
        }
        let next = stage.next.and_then(|next| graph.stages.get(usize::from(next.0)));
        Ok(Self {
            version: VERSION,
            code: query.code.clone(),
            place: topology.place(stage.id),
            work,
            output,
            exchange: stage.exchange.clone(),
            counts_windows: !next.is_some_and(|next| matches!(next.operator, Operator::Window(_))),
            batch_rows: options.batch_rows,
        })
    }

    /// As text.
    ///
    /// # Errors
    /// It has no text.
    pub(crate) fn specialise(&self) -> Result<Specialised> {
        let json = serde_json::to_vec(self).map_err(|e| broken(format!("a stage has no text: {e}")))?;
        Ok(Specialised { text: pack(&json)?, hash: hash(&json) })
    }

    /// The opposite of [`Self::specialise`], with the hash.
    ///
    /// # Errors
    /// It is no context, or one of another release.
    pub(crate) fn decode(text: &str) -> Result<(Self, String)> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let json = unpack(text)?;
        let failed = |e: serde_json::Error| broken(format!("expected the context of a stage: {e}"));
        let Version { version } = serde_json::from_slice(&json).map_err(failed)?;
        if version != VERSION {
            return Err(StreamError::invalid(format!(
                "expected the context of a stage of version {VERSION}, got version {version}; driver and functions must be of one release"
            )));
        }
        Ok((serde_json::from_slice(&json).map_err(failed)?, hash(&json)))
    }
}

impl Specialised {
    /// What the environment of a function gets: the hash alone if it is too long for that.
    pub(crate) fn environment(&self) -> String {
        if self.text.len() <= ENVIRONMENT_MAX { self.text.clone() } else { format!("{HASH}{}", self.hash) }
    }
}

fn hash(json: &[u8]) -> String {
    format!("{:016x}", stable_hash(json))
}
