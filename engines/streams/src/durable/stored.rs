//! The form of what is stored: one byte for its version, then JSON. Only SQL, options, settings and the columns that were found in files
//! are in it, nothing that another release would plan otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use savanna_streams_api::handle::Parameter;
use savanna_streams_api::ids::{Epoch, QueryId, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::ColumnDef;
use savanna_streams_runtime::snapshot::{FormerAggregates, Manifest, Taking};
use savanna_streams_sql::Statement;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::catalog::Relation;
use crate::views::Declared;

/// The version of the form.
const VERSION: u8 = 1;
/// That of a record that names a snapshot with changes: builds which do not know of them would leave them out.
const WITH_CHANGES: u8 = 2;

/// The version of when results are emitted. A release that emits a result in another epoch than those before has another one: it would
/// write that result twice or never, in a query that it goes on with.
pub(crate) const EMISSION: u32 = 0;

/// A change of the catalog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Entry {
    /// A table or view is there from now on, in the place of one of its name.
    Relation(StoredRelation),
    /// The table or view of this name is gone.
    RelationDropped(String),
    /// A materialized view and the query that fills it are there from now on.
    MaterializedView(StoredRelation, Box<StoredQuery>),
    /// A materialized view whose query has finished is there from now on.
    FinishedView(StoredRelation),
    /// The materialized view of this name is gone, and its query with it.
    MaterializedViewDropped(String),
    /// A query is there from now on.
    Query(Box<StoredQuery>),
    /// A query, by its job, stands elsewhere.
    Standing(u64, Standing),
    /// A query, by its job, is gone, and the records of its epochs with it.
    QueryDropped(u64),
}

/// A table or view: the statement that made it, and what was found out when it was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredRelation {
    pub(crate) name: String,
    pub(crate) statement: String,
    /// All options of a table as they were understood.
    #[serde(default)]
    options: BTreeMap<String, String>,
    /// The columns of a table whose statement leaves them to the connector, or of a materialized view.
    #[serde(default)]
    columns: Option<Vec<ColumnDef>>,
    /// The query that fills it, of a materialized view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) query: Option<QueryId>,
}

/// Whether a query runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Standing {
    /// It goes on in the next process.
    Running,
    /// A user stopped it.
    Stopped,
    /// It failed with this error.
    Failed(StreamError),
    /// It comes from a savepoint, and is not whole yet. The next process forgets it: the savepoint has it.
    TakingIn,
}

/// A query of `INSERT INTO`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredQuery {
    /// By which its sink knows it, in every process.
    pub(crate) id: QueryId,
    pub(crate) name: String,
    pub(crate) statement: String,
    pub(crate) parameters: Vec<Parameter>,
    /// How it runs: settings by name, all of them.
    pub(crate) settings: BTreeMap<String, String>,
    /// The tables and views that it names, as they were when it began.
    pub(crate) relations: Vec<StoredRelation>,
    pub(crate) standing: Standing,
    /// The [`EMISSION`] of the release that began it.
    #[serde(default)]
    pub(crate) emission: u32,
    /// Snapshots up to this epoch are those of a former text, and mean something else.
    #[serde(default)]
    pub(crate) anew_behind: Epoch,
    /// The folder of a bucket that has what it needs to go on; none if that is in the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kept_in: Option<KeptIn>,
    /// Of a text that counts from some epoch on.
    #[serde(default, skip_serializing_if = "Emptied::is_none")]
    pub(crate) emptied: Emptied,
}

/// What a text that counts from some epoch on has made of the state of the former one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Emptied {
    /// Snapshots up to this epoch are those of a former text.
    pub(crate) behind: Epoch,
    /// These stages take nothing of them.
    pub(crate) stages: BTreeSet<StageId>,
    /// These had other aggregates in them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) aggregates: BTreeMap<StageId, FormerAggregates>,
}

impl Emptied {
    /// What this and an earlier change, behind which no snapshot was made, have made together of the state of the text before both.
    pub(crate) fn together_with(self, earlier: &Self) -> Self {
        let behind = self.behind.max(earlier.behind);
        let stages: BTreeSet<StageId> = self.stages.union(&earlier.stages).copied().collect();
        let mut aggregates = earlier.aggregates.clone();
        for (stage, later) in self.aggregates {
            let of_both = aggregates.get(&stage).map_or(later.clone(), |former| former.then(&later));
            aggregates.insert(stage, of_both);
        }
        aggregates.retain(|stage, _| !stages.contains(stage));
        Self { behind, stages, aggregates }
    }

    /// What stages take of a snapshot of a former text.
    pub(crate) fn taking(&self) -> Taking {
        Taking { emptied: self.stages.clone(), aggregates: self.aggregates.clone() }
    }

    fn is_none(&self) -> bool {
        self.behind == Epoch::ZERO
    }
}

/// A folder of a bucket in which a query is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptIn {
    /// Its URL, for this query alone.
    pub(crate) url: String,
    /// What this node is called there: who has it last by this name goes on with the query.
    pub(crate) holder: String,
}

impl StoredQuery {
    /// # Errors
    /// It was begun by a release that emits results in other epochs.
    pub(crate) fn check_emission(&self) -> Result<()> {
        if self.emission == EMISSION {
            return Ok(());
        }
        Err(StreamError::invalid(format!(
            "query {} was begun by a release that emits results in other epochs (expected version {EMISSION}, got {}), so they could be \
             written twice or never; go on with that release, or drop the query and start it again with another place for its rows",
            self.name, self.emission
        )))
    }
}

impl StoredRelation {
    pub(crate) fn of(relation: &Relation) -> Result<Self> {
        let (name, statement) = (relation.name().to_owned(), relation.statement().to_owned());
        let table = match relation {
            Relation::Table(table) => table,
            Relation::View(_) => {
                return Ok(Self { name, statement, options: BTreeMap::new(), columns: None, query: None });
            }
            Relation::Materialized(view) => {
                let (columns, query) = (Some(view.table().columns.clone()), Some(view.id().clone()));
                return Ok(Self { name, statement, options: BTreeMap::new(), columns, query });
            }
        };
        let declared = match savanna_streams_sql::parse(&statement)? {
            Statement::CreateTable { table, .. } => table.columns,
            _ => return Err(broken(&name)),
        };
        let columns = (declared != table.columns).then(|| table.columns.clone());
        Ok(Self { name, statement, options: table.options.clone(), columns, query: None })
    }

    /// It with other options.
    pub(crate) fn with_options(&self, options: BTreeMap<String, String>) -> Self {
        Self { options, ..self.clone() }
    }

    /// What a materialized view is, with the columns that it had when it was made.
    ///
    /// # Errors
    /// Its statement makes none.
    pub(crate) fn declared(&self) -> Result<Declared> {
        let (Statement::CreateMaterializedView { view, options, .. }, Some(columns)) =
            (savanna_streams_sql::parse(&self.statement)?, &self.columns)
        else {
            return Err(broken(&self.name));
        };
        let field = |column: &ColumnDef| Field::new(&column.name, column.data_type.clone(), column.nullable);
        Declared::new(view, Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>())), options)
    }

    /// The table or view again. Its files and options are looked at when it is used.
    pub(crate) fn relation(&self) -> Result<Relation> {
        match savanna_streams_sql::parse(&self.statement)? {
            Statement::CreateTable { mut table, .. } => {
                table.options = self.options.clone();
                if let Some(columns) = &self.columns {
                    table.columns = columns.clone();
                }
                Ok(Relation::Table(table))
            }
            Statement::CreateView { view, .. } => Ok(Relation::View(view)),
            _ => Err(broken(&self.name)),
        }
    }
}

fn broken(name: &str) -> StreamError {
    StreamError::Internal(format!("the statement of {name} makes neither a table nor a view"))
}

/// The bytes of a record.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    encode_as(VERSION, value)
}

/// The bytes of a record in which there is perhaps a snapshot.
pub(super) fn encode_with<T: Serialize>(snapshot: Option<&Manifest>, value: &T) -> Result<Vec<u8>> {
    encode_as(if snapshot.is_some_and(Manifest::has_changes) { WITH_CHANGES } else { VERSION }, value)
}

fn encode_as<T: Serialize>(version: u8, value: &T) -> Result<Vec<u8>> {
    let mut bytes = vec![version];
    serde_json::to_writer(&mut bytes, value)
        .map_err(|e| StreamError::Internal(format!("a record cannot be written: {e}")))?;
    Ok(bytes)
}

/// What the bytes of a record say.
///
/// # Errors
/// What was expected and what came; the caller knows where.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    decode_up_to(VERSION, bytes)
}

/// What the bytes of a record say in which there is perhaps a snapshot.
///
/// # Errors
/// As [`decode`].
pub(super) fn decode_with_snapshot<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    decode_up_to(WITH_CHANGES, bytes)
}

fn decode_up_to<T: DeserializeOwned>(last: u8, bytes: &[u8]) -> Result<T, String> {
    let expected = if last == VERSION { VERSION.to_string() } else { format!("{VERSION} or {last}") };
    match bytes.split_first() {
        Some((version, text)) if (VERSION..=last).contains(version) => {
            serde_json::from_slice(text).map_err(|e| format!("expected a record of version {version}: {e}"))
        }
        Some((version, _)) => Err(format!(
            "expected a record of version {expected}, got version {version}; start the release that wrote it"
        )),
        None => Err(format!("expected a record of version {expected}, got nothing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(statement: &str) -> Relation {
        match savanna_streams_sql::parse(statement).unwrap() {
            Statement::CreateTable { table, .. } => Relation::Table(table),
            Statement::CreateView { view, .. } => Relation::View(view),
            _ => unreachable!(),
        }
    }

    fn crossed(relation: &Relation) -> Relation {
        let bytes = encode(&Entry::Relation(StoredRelation::of(relation).unwrap())).unwrap();
        match decode(&bytes).unwrap() {
            Entry::Relation(stored) => stored.relation().unwrap(),
            _ => unreachable!(),
        }
    }

    #[test]
    fn a_table_comes_back_with_what_was_found_out_when_it_was_made() {
        let mut made = table("CREATE TABLE t WITH ('connector' = 'file', 'path' = '/a', 'format' = 'csv')");
        let Relation::Table(def) = &mut made else { unreachable!() };
        def.options.insert("base-time".into(), "123".into());
        def.columns =
            match table("CREATE TABLE t (a BIGINT, r ROW<b VARCHAR, c TIMESTAMP(3)>) WITH ('connector' = 'file')") {
                Relation::Table(other) => other.columns,
                _ => unreachable!(),
            };
        let Relation::Table(again) = crossed(&made) else { unreachable!() };
        let Relation::Table(def) = made else { unreachable!() };
        assert_eq!(again, def);
        let Relation::View(view) = crossed(&table("CREATE VIEW v AS SELECT a FROM t")) else { unreachable!() };
        assert_eq!(view.query, "SELECT a FROM t");
    }

    #[test]
    fn a_record_of_another_version_or_none_says_so() {
        let text = |bytes: &[u8]| decode::<Entry>(bytes).unwrap_err();
        assert!(text(&[9, b'{']).contains("expected a record of version 1, got version 9"));
        assert!(text(&[]).contains("got nothing"));
        assert!(text(b"\x01{\"relation\"").contains("expected a record of version 1: EOF"));
    }

    /// The bytes that the first release with them wrote.
    #[test]
    fn records_of_version_1_are_read() {
        let entry: Entry = decode(b"\x01{\"relation\":{\"name\":\"v\",\"statement\":\"CREATE VIEW v AS SELECT 1\",\"options\":{},\"columns\":null}}").unwrap();
        assert!(matches!(&entry, Entry::Relation(stored) if stored.name == "v"), "{entry:?}");
        let entry: Entry = decode(b"\x01{\"standing\":[7,\"stopped\"]}").unwrap();
        assert_eq!(entry, Entry::Standing(7, Standing::Stopped));
        let query = b"\x01{\"query\":{\"id\":{\"code\":\"0123456789ab\",\"job\":7},\"name\":\"out\",\"statement\":\"INSERT INTO o SELECT a FROM t\",\
            \"parameters\":[],\"settings\":{\"parallelism\":\"2\"},\"relations\":[],\"standing\":\"running\"}}";
        assert!(
            matches!(decode(query).unwrap(), Entry::Query(query) if query.id.job == 7 && query.standing == Standing::Running)
        );
        assert_eq!(decode::<Entry>(b"\x01{\"query-dropped\":7}").unwrap(), Entry::QueryDropped(7));
        assert_eq!(decode::<Entry>(b"\x01{\"relation-dropped\":\"v\"}").unwrap(), Entry::RelationDropped("v".into()));
    }

    #[test]
    fn of_two_changes_the_state_before_both_is_what_is_taken() {
        let former = |signature: &str, of: &[Option<usize>]| FormerAggregates {
            signature: signature.into(),
            widths: vec![1, 2],
            of: of.to_vec(),
        };
        let emptied = |behind: u64, stages: &[u16], aggregates: Vec<(u16, FormerAggregates)>| Emptied {
            behind: Epoch(behind),
            stages: stages.iter().map(|stage| StageId(*stage)).collect(),
            aggregates: aggregates.into_iter().map(|(stage, former)| (StageId(stage), former)).collect(),
        };
        let first = emptied(
            5,
            &[1],
            vec![(2, former("a", &[None, Some(1)])), (3, former("b", &[Some(1)])), (4, former("c", &[Some(0)]))],
        );
        let then = emptied(
            7,
            &[3],
            vec![(2, former("x", &[Some(1), Some(0)])), (1, former("y", &[Some(0)])), (5, former("z", &[Some(1)]))],
        );
        let both = emptied(
            7,
            &[1, 3],
            vec![(2, former("a", &[Some(1), None])), (4, former("c", &[Some(0)])), (5, former("z", &[Some(1)]))],
        );
        assert_eq!(then.together_with(&first), both);
        // Those that were stored before there were others.
        let stored: Emptied = serde_json::from_str(r#"{"behind":3,"stages":[1]}"#).unwrap();
        assert_eq!(stored, emptied(3, &[1], Vec::new()));
        let bytes = encode(&both).unwrap();
        assert_eq!(decode::<Emptied>(&bytes).unwrap(), both);
    }
}
