//! The values of the control API, version 1. Fields are only ever added.

use std::collections::BTreeMap;

use savanna_streams_api::handle::{QueryState, QueryStatus};
use savanna_streams_api::ids::QueryId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::Problem;

/// A node: who it is, what it runs, and whether it may.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeStatus {
    /// The node's name, unique in its cluster.
    pub node: String,
    /// The version of Savanna that it runs.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_seconds: f64,
    /// Where its data is; none for a node that keeps nothing.
    pub data_dir: Option<String>,
    /// Its services, in the order of their start.
    pub services: Vec<ServiceStatus>,
    /// The lease under which it serves; none for a node that keeps nothing.
    pub lease: Option<LeaseStatus>,
}

impl NodeStatus {
    /// Why the node should not be given work now, or nothing.
    pub fn not_ready(&self) -> Option<String> {
        let lease = self.lease.iter().filter(|lease| !lease.serving).map(|_| "its lease has run out".to_owned());
        let services = self.services.iter().filter(|s| s.state != ServiceState::Running);
        let reasons: Vec<_> = lease.chain(services.map(|s| format!("{} is {}", s.service, s.state))).collect();
        (!reasons.is_empty()).then(|| reasons.join(", "))
    }
}

/// A service of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceStatus {
    /// Its name.
    pub service: String,
    /// Where it stands.
    pub state: ServiceState,
    /// Where it listens, as `host:port`, if it does.
    pub address: Option<String>,
    /// Why it failed and what to do.
    pub reason: Option<String>,
}

/// The nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Nodes {
    /// Those that hold their lease, by name; a node that is alone is the only one.
    pub nodes: Vec<ClusterNode>,
}

/// A node, as another one knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterNode {
    /// Its name.
    pub name: String,
    /// The fencing number of its lease; each process of that name has a higher one.
    pub epoch: u64,
    /// Where other nodes reach it, as `host:port`; none for a node that is alone.
    pub address: Option<String>,
    /// What it runs, or can be granted.
    pub services: Vec<String>,
    /// Whether it serves databases, so that some can go to it; none if the node that answers is of an earlier release, which does not say so.
    #[serde(default)]
    pub serves_databases: Option<bool>,
    /// Whether it is the one that answers.
    pub is_this: bool,
    /// Whether it gets nothing new.
    #[serde(default)]
    pub is_drained: bool,
    /// What it has done of late; none if it has not said so in the last seconds, or is alone.
    #[serde(default)]
    pub load: Option<NodeLoad>,
}

/// What a node does, averaged over some half a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeLoad {
    /// Microseconds of processors per second; 1000000 is a core.
    pub cpu_micros: u64,
    /// Transactions of its databases per second.
    pub transactions: u64,
    /// Bytes per second that its databases write to their log.
    pub log_bytes: u64,
    /// Bytes of memory that the rows of its databases take.
    pub memory_bytes: u64,
}

/// What the nodes of a cluster own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shards {
    /// By name; none where a node is alone.
    pub shards: Vec<ClusterShard>,
}

/// Something that one node at a time owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterShard {
    /// Its name.
    pub shard: String,
    /// The node that owns it.
    pub owner: Option<String>,
    /// The fencing number of its owner; the next one has a higher one.
    pub epoch: u64,
    /// `serving`, or what is missing.
    #[schema(example = "serving")]
    pub state: String,
    /// The log that has its latest commits.
    pub log: Option<String>,
    /// The node that it is on its way to, which does not own it yet.
    pub moving_to: Option<String>,
}

/// Which shards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ShardsQuery {
    /// Only those whose name begins so.
    pub prefix: Option<String>,
}

/// A move that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMove {
    /// What is to move: the shard of a database, or its name.
    #[schema(example = "tenants/7")]
    pub shard: String,
    /// The node that is to have it.
    pub to: String,
    /// How it is carried; `albatross` if nothing is said.
    pub technique: Option<MoveTechnique>,
}

/// How a database is carried to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MoveTechnique {
    /// Nobody is served while all that is not in the storage is written down. Open transactions end.
    StopAndCopy,
    /// That is written down first, and the rest while nobody is served. Open transactions end.
    FlushAndMove,
    /// The same, and what is open goes along: transactions with their locks, cursors, temporary tables, advisory locks.
    Albatross,
    /// With others that sleep, at once: all of it is in the storage, and nobody is in it.
    Asleep,
}

/// Databases that are to move if they sleep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMovesAsleep {
    /// The shards of the databases. So many go at once, 63 at most; what is more is left where it is.
    pub shards: Vec<String>,
    /// The node that is to have them.
    pub to: String,
}

/// A move that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Move {
    /// What moved.
    pub shard: String,
    /// The name of the database, if there is one.
    pub database: Option<String>,
    /// The node that had it.
    pub from: String,
    /// The node that was to have it.
    pub to: String,
    /// How it was carried.
    pub technique: MoveTechnique,
    /// When it began, in milliseconds since 1970.
    pub began_unix_ms: u64,
    /// How long it took.
    pub took_ms: f64,
    /// For how long nobody was served: until the other node said that it serves, or the database stayed. If the other node is silent, until it was decided.
    pub window_ms: f64,
    /// Rounds that the other node has taken.
    pub rounds: u32,
    /// Bytes of commits that went along, as the storage may not have them yet.
    pub log_bytes: u64,
    /// Bytes of open transactions and locks that went along.
    pub open_bytes: u64,
    /// Bytes of blocks that the other node has read into its cache beforehand.
    pub block_bytes: u64,
    /// Statements that were under way while nobody was served.
    pub waited: u64,
    /// How long half of them waited for their answers at most, since nobody was served or they were asked; as their nodes noticed it.
    pub wait_p50_ms: f64,
    /// How long one of them waited.
    pub wait_max_ms: f64,
    /// Clients that were hung up on meanwhile.
    pub failed: u64,
    /// Requests of nodes for their clients that were sent again.
    pub sent_again: u64,
    /// Nodes that have not said what their clients have noticed: it is not counted.
    pub silent_nodes: u32,
    /// Why it is where it was; none if it moved.
    pub stayed: Option<String>,
}

/// Moves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Moves {
    /// The last of each node, oldest first.
    pub moves: Vec<Move>,
}

/// Why databases have moved by themselves, or stayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decisions {
    /// Whether the node that answers moves databases by itself when it is to decide.
    pub is_on: bool,
    /// The last of each node, oldest first.
    pub decisions: Vec<Decision>,
}

/// What a node has decided about moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// Milliseconds since 1970.
    pub at_unix_ms: u64,
    /// The node that has decided it.
    pub by: String,
    /// What moves; none if all stays.
    pub shard: Option<String>,
    /// The name of its database, if the node that answers knows it.
    pub database: Option<String>,
    /// The node that has it.
    pub from: Option<String>,
    /// The node that is to have it.
    pub to: Option<String>,
    /// The reason.
    pub why: String,
    /// What came of it; none of what stays, and while it moves.
    pub outcome: Option<String>,
}

/// Tenants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tenants {
    /// By name.
    pub tenants: Vec<Tenant>,
}

/// A tenant, and what went on in it since its process began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    /// The name of its database.
    pub name: String,
    /// Sessions that are open.
    pub sessions: u64,
    /// Transactions that were committed, those of single statements included.
    pub commits: u64,
    /// Transactions that were rolled back.
    pub rollbacks: u64,
}

/// A tenant that is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewTenant {
    /// The name of its database.
    pub name: String,
}

/// Where a service stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    /// It is being put together.
    Starting,
    /// It serves.
    Running,
    /// It could not start, or has ended by itself; the others go on.
    Failed,
    /// It was stopped.
    Stopped,
}

impl std::fmt::Display for ServiceState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        })
    }
}

/// A node's lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseStatus {
    /// The name that is leased.
    pub name: String,
    /// The fencing number of this grant; the next holder has a higher one.
    pub epoch: u64,
    /// Whether the node may serve now.
    pub serving: bool,
    /// Milliseconds that a grant lasts when it is not renewed.
    pub ttl_ms: u64,
}

/// A setting in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Setting {
    /// Its key, such as `http.port`.
    pub key: String,
    /// Its value, with the unit.
    pub value: String,
    /// Where the value came from: `default`, a file and line, a variable, or a flag.
    pub source: String,
}

/// All settings in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Settings {
    /// By key.
    pub settings: Vec<Setting>,
}

/// Where a query is that was stopped and written to a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Savepoint {
    /// A directory of the node's machine that tables may use; empty, or not there yet, when it is written.
    #[schema(example = "/backup/hot-items")]
    pub directory: String,
}

/// All queries, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Queries {
    /// Running and lately ended.
    pub queries: Vec<Query>,
}

/// A query and its counters since its start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Query {
    /// Its id, `<code>-<job>`.
    pub query: String,
    /// Its name, if it outlives its process.
    #[serde(default)]
    pub name: Option<String>,
    /// `running`, `finished`, `cancelled` or `failed`.
    #[schema(value_type = String, example = "running")]
    pub state: QueryState,
    /// Its statement.
    pub statement: String,
    /// Why it failed.
    pub error: Option<Problem>,
    /// Events read, left-out ones included.
    pub events: u64,
    /// Rows given to the sink.
    pub result_rows: u64,
    /// Rows dropped because they were too late.
    pub late_rows: u64,
    /// Rows skipped because they were malformed.
    pub skipped_rows: u64,
    /// The last committed epoch.
    pub epoch: u64,
    /// The lowest watermark, in microseconds since 1970.
    pub watermark: Option<i64>,
    /// Windows closed.
    pub windows: u64,
    /// Bytes of state held.
    pub state_bytes: u64,
    /// Seconds since the start, or that it took.
    pub seconds: f64,
    /// CPU seconds, generators included.
    pub cpu_seconds: f64,
    /// CPU seconds of generators alone.
    pub generator_cpu_seconds: f64,
    /// Function invocations.
    pub invocations: u64,
    /// Milliseconds that a function platform would have billed.
    pub billed_ms: u64,
    /// Further counters by name.
    pub more: BTreeMap<String, f64>,
}

impl From<QueryStatus> for Query {
    fn from(status: QueryStatus) -> Self {
        Self {
            query: status.query.to_string(),
            name: None,
            state: status.state,
            statement: status.statement,
            error: status.error.map(Problem::from),
            events: status.events,
            result_rows: status.result_rows,
            late_rows: status.late_rows,
            skipped_rows: status.skipped_rows,
            epoch: status.epoch,
            watermark: status.watermark,
            windows: status.windows,
            state_bytes: status.state_bytes,
            seconds: status.seconds,
            cpu_seconds: status.cpu_seconds,
            generator_cpu_seconds: status.generator_cpu_seconds,
            invocations: status.invocations,
            billed_ms: status.billed_ms,
            more: status.more,
        }
    }
}

impl Query {
    /// The same as the engine's own value, or nothing if the id is not one.
    pub fn into_status(self) -> Option<QueryStatus> {
        Some(QueryStatus {
            query: parse_query_id(&self.query)?,
            state: self.state,
            statement: self.statement,
            error: self.error.and_then(Problem::into_stream_error),
            events: self.events,
            result_rows: self.result_rows,
            late_rows: self.late_rows,
            skipped_rows: self.skipped_rows,
            epoch: self.epoch,
            watermark: self.watermark,
            windows: self.windows,
            state_bytes: self.state_bytes,
            seconds: self.seconds,
            cpu_seconds: self.cpu_seconds,
            generator_cpu_seconds: self.generator_cpu_seconds,
            invocations: self.invocations,
            billed_ms: self.billed_ms,
            more: self.more,
        })
    }
}

/// A query's id from its text `<code>-<job>`.
pub fn parse_query_id(text: &str) -> Option<QueryId> {
    let (code, job) = text.rsplit_once('-')?;
    if code.is_empty() {
        return None;
    }
    Some(QueryId { code: code.to_owned(), job: job.parse().ok()? })
}

/// Asks for a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenSession {
    /// Who asks, for `SHOW QUERIES` and logs.
    #[serde(default)]
    pub user: Option<String>,
}

/// A session. It ends when it is deleted, or after some time without requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// Its id.
    pub session: u64,
    /// Milliseconds without requests after which it ends.
    pub idle_timeout_ms: u64,
}

/// SQL text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Sql {
    /// The text.
    #[schema(example = "SELECT auction, price FROM bid WHERE price > 1000")]
    pub sql: String,
}

/// The statements of a text, without the `;`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Statements {
    /// In order.
    pub statements: Vec<String>,
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type in SQL, such as `ARRAY<BIGINT>`.
    #[serde(rename = "type")]
    pub data_type: String,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// Its Arrow type, for programs.
    pub arrow_type: serde_json::Value,
}

/// What a statement would return.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Description {
    /// The columns, or none if the statement returns no rows.
    pub columns: Option<Vec<Column>>,
}

/// What became of a statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// It is done and has no rows.
    Done {
        /// The command tag, such as `CREATE TABLE`.
        tag: String,
    },
    /// It has rows, to be fetched from the cursor.
    Rows {
        /// The columns.
        columns: Vec<Column>,
        /// The cursor, within the session.
        cursor: u64,
        /// The query that feeds it, if it is a stream.
        query: Option<String>,
    },
    /// It was `INSERT INTO`: the query runs until it ends or is cancelled, whatever becomes of the session.
    Started {
        /// The query.
        query: String,
    },
}

/// How much to fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FetchLimits {
    /// At most this many rows, 1 to 100000 (default 1000).
    pub max_rows: Option<usize>,
    /// How long to wait for the first of them, in milliseconds, at most 10000 (default 1000).
    pub wait_ms: Option<u64>,
}

/// All tables and views.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tables {
    /// One object per table, as `SHOW TABLES` tells it.
    #[schema(value_type = Vec<Object>)]
    pub tables: Vec<serde_json::Map<String, serde_json::Value>>,
}

/// One table or view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Table {
    /// Its name.
    pub table: String,
    /// One object per column, as `DESCRIBE` tells it.
    #[schema(value_type = Vec<Object>)]
    pub columns: Vec<serde_json::Map<String, serde_json::Value>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_id_is_read_back_from_its_text() {
        let id = QueryId { code: "0123456789ab".into(), job: 7 };
        assert_eq!(parse_query_id(&id.to_string()), Some(id));
        for bad in ["", "-", "x", "-7", "abc-", "abc-x"] {
            assert_eq!(parse_query_id(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_node_is_ready_when_every_service_runs_under_a_valid_lease() {
        let service = |state| ServiceStatus { service: "pgwire".into(), state, address: None, reason: None };
        let lease = |serving| Some(LeaseStatus { name: "dev".into(), epoch: 1, serving, ttl_ms: 3000 });
        let mut status = NodeStatus {
            node: "dev".into(),
            version: "0".into(),
            pid: 1,
            uptime_seconds: 0.0,
            data_dir: None,
            services: vec![service(ServiceState::Running)],
            lease: lease(true),
        };
        assert_eq!(status.not_ready(), None);
        status.services = vec![service(ServiceState::Failed)];
        assert_eq!(status.not_ready().as_deref(), Some("pgwire is failed"));
        status.lease = lease(false);
        assert_eq!(status.not_ready().as_deref(), Some("its lease has run out, pgwire is failed"));
    }
}
