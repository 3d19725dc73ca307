//! The publication: that it sends all changes of the table, and that it has done so all the time.
//!
//! For each change the server looks at the publication as it was at that place of the log. One that was altered, and altered back, has left
//! changes out, and nobody who looks later sees that in what it sends. But the rows of the catalog that say what it sends have versions
//! (`xmin`), which no alteration leaves as they were, and no tidying changes. So their checksum is kept with the query's place, and compared
//! behind all that has come before that is handed on: what was committed before what has come is seen by then.

use std::time::Duration;

use arrow::datatypes::Field;
use savanna_streams_api::{Result, StreamError};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

use super::settings::Settings;
use crate::postgres::client::{Failure, failed};
use crate::postgres::names::quoted;

/// While somebody alters it, it is looked at again after so long.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The first release in which schemas are published.
const HAS_SCHEMAS: i32 = 150_000;

/// Which table is published, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Published {
    /// The number of the table, which it keeps.
    pub(super) table: u32,
    /// A checksum over the versions of all rows of the catalog that say what is sent of it.
    pub(super) versions: u32,
}

/// A row of the catalog.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    kind: String,
    number: String,
    version: String,
    /// The transaction that has put another one in its place, or wants to, or has given that up; `0` for none.
    replaced_by: String,
}

/// The rows of the catalog that say what is sent, at one instant.
#[derive(Debug)]
struct Seen(Vec<Row>);

const TABLE: &str = "table";
const PUBLICATION: &str = "publication";

impl Seen {
    /// None if the table or the publication is not there.
    fn published(&self) -> Option<Published> {
        let find = |kind: &str| self.0.iter().find(|row| row.kind == kind);
        find(PUBLICATION)?;
        let table = find(TABLE)?.number.parse().ok()?;
        let mut rows: Vec<&Row> = self.0.iter().collect();
        rows.sort_unstable();
        let add = |sum: u32, row: &Row| {
            crc32c::crc32c_append(sum, format!("{} {} {}\n", row.kind, row.number, row.version).as_bytes())
        };
        Some(Published { table, versions: rows.into_iter().fold(0, add) })
    }

    /// The transactions that may have put others in their place.
    fn replaced_by(&self) -> Vec<String> {
        self.0.iter().map(|row| row.replaced_by.clone()).filter(|by| by != "0").collect()
    }
}

/// Looks at the publication, again and again.
pub(super) struct Looks<'s> {
    settings: &'s Settings,
    ask: Statement,
    /// Transactions that are over, and have replaced nothing.
    given_up: Vec<String>,
}

impl<'s> Looks<'s> {
    pub(super) async fn new(client: &Client, settings: &'s Settings) -> Result<Self, Failure> {
        let told = |error: tokio_postgres::Error| failed(&settings.server, "look at", &error);
        const VERSION: &str = "SELECT current_setting('server_version_num')::int";
        let version: i32 = client.query_typed(VERSION, &[]).await.map_err(told)?.first().map_or(0, |row| row.get(0));
        let schemas = match version >= HAS_SCHEMAS {
            true => {
                "UNION ALL SELECT 'schema', s.oid::text, s.xmin::text, s.xmax::text FROM pg_publication_namespace s \
                 WHERE s.pnpubid IN (SELECT oid FROM sent) \
                 AND s.pnnspid IN (SELECT c.relnamespace FROM pg_class c WHERE c.oid IN (SELECT oid FROM family))"
            }
            false => "",
        };
        // A partition is published with those that it is one of.
        let ask = format!(
            "WITH own AS (SELECT c.oid, c.relpersistence FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = $1 AND c.relname = $2), \
             family AS (SELECT oid FROM own UNION SELECT a.relid::oid FROM own, pg_partition_ancestors(own.oid::regclass) a(relid)), \
             sent AS (SELECT oid, xmin AS version, xmax AS replaced_by FROM pg_publication WHERE pubname = $3) \
             SELECT '{TABLE}', oid::text, relpersistence::text, '0' FROM own \
             UNION ALL SELECT '{PUBLICATION}', oid::text, version::text, replaced_by::text FROM sent \
             UNION ALL SELECT 'member', r.oid::text, r.xmin::text, r.xmax::text FROM pg_publication_rel r \
             WHERE r.prpubid IN (SELECT oid FROM sent) AND r.prrelid IN (SELECT oid FROM family) \
             UNION ALL SELECT 'partition', i.inhrelid::text || ' of ' || i.inhparent::text, i.xmin::text, i.xmax::text FROM pg_inherits i \
             WHERE i.inhrelid IN (SELECT oid FROM family) AND i.inhparent IN (SELECT oid FROM family) {schemas}"
        );
        let ask = client.prepare_typed(&ask, &[Type::TEXT, Type::TEXT, Type::TEXT]).await.map_err(told)?;
        Ok(Self { settings, ask, given_up: Vec::new() })
    }

    async fn seen(&self, client: &Client) -> Result<Seen, Failure> {
        let table = &self.settings.server.table;
        let rows = client.query(&self.ask, &[&table.schema, &table.name, &self.settings.publication]).await;
        let rows = rows.map_err(|error| failed(&self.settings.server, "look at", &error))?;
        let row = |row: &tokio_postgres::Row| Row {
            kind: row.get(0),
            number: row.get(1),
            version: row.get(2),
            replaced_by: row.get(3),
        };
        Ok(Seen(rows.iter().map(row).collect()))
    }

    /// What is published now; none if the table or the publication is not there.
    pub(super) async fn found(&self, client: &Client) -> Result<Option<Published>, Failure> {
        Ok(self.seen(client).await?.published())
    }

    /// Waits until it is known that nothing was left out of what was committed before this was asked.
    ///
    /// # Errors
    /// The publication is not what it was, or the table is another one.
    pub(super) async fn check(&mut self, client: &Client, before: Published) -> Result<(), Failure> {
        loop {
            let seen = self.seen(client).await?;
            is_as_before(self.settings, before, seen.published())?;
            // One that waits for a standby is committed in the log, and seen by nobody yet.
            let replaced_by = seen.replaced_by();
            if replaced_by.iter().all(|by| self.given_up.contains(by)) {
                return Ok(());
            }
            match self.run(client, &replaced_by).await? {
                true => sleep(LOOK_AGAIN).await,
                // What they did is seen by the next look.
                false => self.given_up = replaced_by,
            }
        }
    }

    /// Whether one of these transactions runs.
    async fn run(&self, client: &Client, transactions: &[String]) -> Result<bool, Failure> {
        // Their numbers have lost how often numbers were used up.
        const ASK: &str = "WITH next AS (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS number), \
            near AS (SELECT n.number, (n.number >> 32 << 32) + t.number::bigint AS found FROM next n, unnest($1) t(number)), \
            known AS (SELECT found + CASE WHEN found - number > 2147483648 THEN -4294967296 WHEN number - found > 2147483648 THEN 4294967296 \
            ELSE 0 END AS number FROM near) \
            SELECT EXISTS (SELECT FROM known WHERE pg_xact_status(number::text::xid8) = 'in progress')";
        let rows = client.query_typed(ASK, &[(&transactions as _, Type::TEXT_ARRAY)]).await;
        let rows = rows.map_err(|error| failed(&self.settings.server, "look at", &error))?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }
}

/// Whether what is published is still what it was when the query began.
///
/// # Errors
/// It is not.
pub(super) fn is_as_before(settings: &Settings, before: Published, now: Option<Published>) -> Result<()> {
    let (table, place, publication) = (&settings.server.table, settings.server.place(), quoted(&settings.publication));
    let slot = settings
        .slot
        .as_ref()
        .map(|slot| format!(", replication slot {slot}, and table {} if it is there", settings.copy()));
    let anew =
        format!("changes of {table} may be missing: drop the query{}, and start it again", slot.unwrap_or_default());
    let message = match now {
        Some(now) if now == before => return Ok(()),
        Some(now) if now.table != before.table => format!(
            "expected the changes of the table {table} at {place} that was there when the query began (number {}), got another one of its name (number \
             {}); {anew}",
            before.table, now.table
        ),
        Some(_) => format!(
            "expected publication {publication} at {place} as it was when the query began, but it was altered or made anew since, perhaps more than once, \
             and {anew}"
        ),
        None => format!(
            "expected table {table} and publication {publication} at {place}, but one of them is not there under this name. If the table was renamed, give it \
             its name back and RESUME QUERY; otherwise {anew}"
        ),
    };
    Err(StreamError::invalid(message))
}

/// What a publication says of a table.
#[derive(Debug)]
struct Sends {
    has_table: bool,
    /// Whether it sends these.
    operations: [(&'static str, bool); 4],
    /// The condition of rows.
    rows: Option<String>,
    /// The columns; none for all of them.
    columns: Vec<String>,
}

/// Makes the publication. `is_known` says whether PostgreSQL knows the rows of the table apart.
///
/// # Errors
/// It does not: then it would refuse changes of the table.
pub(super) async fn make(client: &Client, settings: &Settings, is_known: bool) -> Result<(), Failure> {
    let (table, name) = (&settings.server.table, quoted(&settings.publication));
    if !is_known {
        return Err(Failure::Final(StreamError::invalid(format!(
            "the changes of {table} at {} cannot be read: expected a primary key, or another replica identity, got none: PostgreSQL would refuse UPDATE and \
             DELETE once changes are sent; add a key, or ALTER TABLE {table} REPLICA IDENTITY FULL",
            settings.server.place()
        ))));
    }
    let make = format!("CREATE PUBLICATION {name} FOR TABLE {table} WITH (publish_via_partition_root = true)");
    client.batch_execute(&make).await.map_err(|error| match error.code().map(|code| code.code()) {
        Some("42710") => Failure::Again("another query makes the same publication".into()),
        _ => failed(&settings.server, "publish changes of", &error),
    })
}

/// Whether the publication sends all that is wanted.
///
/// # Errors
/// It does not.
pub(super) async fn check(client: &Client, settings: &Settings, wanted: &[Field]) -> Result<(), Failure> {
    let (table, name) = (&settings.server.table, &settings.publication);
    // Releases before 15 have neither conditions nor columns.
    const ASK: &str = "SELECT t.pubname IS NOT NULL, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, to_jsonb(t)->>'rowfilter', \
        ARRAY(SELECT jsonb_array_elements_text(CASE jsonb_typeof(to_jsonb(t)->'attnames') WHEN 'array' THEN to_jsonb(t)->'attnames' END)) \
        FROM pg_publication p LEFT JOIN pg_publication_tables t ON t.pubname = p.pubname AND t.schemaname = $2 AND t.tablename = $3 \
        WHERE p.pubname = $1";
    let names = [(name as _, Type::TEXT), (&table.schema as _, Type::TEXT), (&table.name as _, Type::TEXT)];
    let rows = client.query_typed(ASK, &names).await.map_err(|error| failed(&settings.server, "look at", &error))?;
    let Some(row) = rows.first() else { return Err(Failure::Again("the publication has just gone".into())) };
    let operations = [("insert", 1), ("update", 2), ("delete", 3), ("truncate", 4)];
    let sends = Sends {
        has_table: row.get(0),
        operations: operations.map(|(name, at)| (name, row.get(at))),
        rows: row.get(5),
        columns: row.get(6),
    };
    Ok(is_enough(settings, wanted, &sends)?)
}

/// Whether a publication sends all changes, of all rows, with all columns that are read.
///
/// # Errors
/// It does not.
fn is_enough(settings: &Settings, wanted: &[Field], sends: &Sends) -> Result<()> {
    let (table, publication) = (&settings.server.table, quoted(&settings.publication));
    let wrong = |what: &str, advice: &str| {
        let place = settings.server.place();
        let other = "or name another one in 'publication.name'";
        Err(StreamError::invalid(format!("publication {publication} at {place} {what}; {advice}, {other}")))
    };
    if !sends.has_table {
        let advice = format!(
            "ALTER PUBLICATION {publication} ADD TABLE {table} (of a table with partitions, with publish_via_partition_root)"
        );
        return wrong(&format!("does not send changes of {table}"), &advice);
    }
    let missing: Vec<&str> = sends.operations.iter().filter(|(_, is_sent)| !is_sent).map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        let what = format!(
            "does not send all changes of {table}: expected insert, update, delete and truncate, got it without {}",
            missing.join(" and ")
        );
        let advice = format!("ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete, truncate')");
        return wrong(&what, &advice);
    }
    if let Some(rows) = &sends.rows {
        let what = format!("does not send all rows of {table}: expected no condition, got WHERE {rows}");
        return wrong(&what, "publish the table without it, and have the query leave rows out");
    }
    let is_sent = |field: &&Field| sends.columns.is_empty() || sends.columns.iter().any(|name| name == field.name());
    match wanted.iter().find(|field| !is_sent(field)) {
        Some(field) => {
            let columns = sends.columns.join(", ");
            let what = format!("does not send column {} of {table}: it has {columns}", field.name());
            wrong(&what, "publish the table with it, leave the column out of the query (generated ones are never sent)")
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;
    use savanna_streams_model::catalog::{ColumnDef, TableDef};

    use super::*;

    fn settings() -> Settings {
        let given = [("url", "postgresql://ann@h/shop"), ("table", "t"), ("slot.name", "s"), ("publication.name", "p")];
        let column = ColumnDef { name: "id".into(), data_type: DataType::Int64, nullable: true, computed: None };
        Settings::new(&TableDef {
            name: "t".into(),
            columns: vec![column],
            watermark: None,
            partitioned_by: Vec::new(),
            primary_key: Vec::new(),
            options: given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            statement: String::new(),
        })
        .unwrap()
    }

    fn row(kind: &str, number: &str, version: &str, replaced_by: &str) -> Row {
        Row { kind: kind.into(), number: number.into(), version: version.into(), replaced_by: replaced_by.into() }
    }

    fn rows() -> Vec<Row> {
        vec![row(TABLE, "16400", "p", "0"), row(PUBLICATION, "16500", "740", "0"), row("member", "16501", "740", "0")]
    }

    #[test]
    fn any_other_version_of_a_row_is_another_publication_and_who_wants_to_replace_one_is_known() {
        let published = Seen(rows()).published().unwrap();
        assert_eq!(published.table, 16400);
        let mut turned = rows();
        turned.reverse();
        turned[0].replaced_by = "800".into();
        let turned = Seen(turned);
        assert_eq!(turned.published(), Some(published), "neither their order nor what others only want");
        assert_eq!(turned.replaced_by(), ["800"]);
        for (at, other) in [
            (0, row(TABLE, "16400", "u", "0")),
            (1, row(PUBLICATION, "16500", "741", "0")),
            (1, row(PUBLICATION, "16600", "740", "0")),
            (2, row("member", "16501", "741", "0")),
            (2, row("schema", "16501", "740", "0")),
        ] {
            let mut rows = rows();
            rows[at] = other;
            assert_ne!(Seen(rows).published(), Some(published));
        }
        let mut more = rows();
        more.push(row("partition", "16400 of 16300", "750", "0"));
        assert_ne!(Seen(more).published(), Some(published));
        assert_eq!(Seen(rows()[..1].to_vec()).published(), None);
        assert_eq!(Seen(rows()[1..].to_vec()).published(), None);
    }

    #[test]
    fn what_is_not_as_before_is_said_by_its_name() {
        let (settings, before) = (settings(), Published { table: 7, versions: 1 });
        let told = |now| is_as_before(&settings, before, now).map_err(|error| error.to_string());
        assert_eq!(told(Some(before)), Ok(()));
        for (now, expected) in [
            (Some(Published { table: 8, versions: 1 }), "(number 7), got another one of its name (number 8)"),
            (
                Some(Published { table: 7, versions: 2 }),
                "expected publication \"p\" at h:5432/shop as it was when the query began, but it was altered or made anew",
            ),
            (None, "one of them is not there under this name"),
        ] {
            let error = told(now).unwrap_err();
            assert!(
                error.contains(expected)
                    && error.contains("replication slot s, and table \"public\".\"savanna_copy_s\""),
                "{error}"
            );
        }
    }

    #[test]
    fn a_publication_that_sends_less_than_is_wanted_is_refused_with_what_is_missing() {
        let settings = settings();
        let sends = |change: fn(&mut Sends)| {
            let operations = ["insert", "update", "delete", "truncate"].map(|name| (name, true));
            let mut sends = Sends { has_table: true, operations, rows: None, columns: Vec::new() };
            change(&mut sends);
            is_enough(&settings, &settings.columns, &sends).map_err(|error| error.to_string())
        };
        assert_eq!(sends(|_| {}), Ok(()));
        assert_eq!(sends(|sends| sends.columns = vec!["more".into(), "id".into()]), Ok(()));
        for (change, expected) in [
            (
                (|sends| sends.has_table = false) as fn(&mut Sends),
                "does not send changes of \"public\".\"t\"; ALTER PUBLICATION \"p\" ADD TABLE",
            ),
            (
                |sends| sends.operations[3].1 = false,
                "expected insert, update, delete and truncate, got it without truncate; ALTER PUBLICATION \"p\" SET",
            ),
            (|sends| sends.rows = Some("(id > 1)".into()), "expected no condition, got WHERE (id > 1)"),
            (|sends| sends.columns = vec!["more".into()], "does not send column id of \"public\".\"t\": it has more"),
        ] {
            let error = sends(change).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
