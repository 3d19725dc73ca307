//! A table that is asked for the rows of keys, by one statement for all keys of a request.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, SchemaRef};
use savanna_streams_api::{Result, StreamError, type_name};
use savanna_streams_model::join::ByKey;
use savanna_streams_model::sink::GiveUp;
use savanna_streams_model::source::{KeyedReader, ScanSpec};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::client::{Failure, Patience, Tasks, connect, failed};
use super::columns::{Found, Way, columns, matching};
use super::names::quoted;
use super::settings::Settings;
use super::source::selected;
use super::text::texts;
use super::values::{Column, TEXTS};

/// Asks a table for rows.
pub(super) struct KeyReader {
    settings: Settings,
    schema: SchemaRef,
    /// The columns of the key.
    key: Vec<Field>,
    by_key: ByKey,
    giving_up: Arc<watch::Sender<bool>>,
    /// Made by the thread that asks first.
    session: Option<Session>,
    tasks: Option<Tasks>,
    retries: u64,
}

/// A connection, and how the table's keys are compared in it.
struct Session {
    client: Client,
    comparisons: Vec<Comparison>,
}

/// How the values of a column are compared with keys.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    /// The type of the keys in SQL. An index on the column is of use.
    sql: &'static str,
    /// Only such texts are values of the column; others have no rows.
    takes: fn(&str) -> bool,
}

impl KeyReader {
    /// # Errors
    /// A column of the key is none that is compared.
    pub(super) fn new(settings: Settings, scan: &ScanSpec, by_key: &ByKey) -> Result<Self> {
        let schema = scan.schema();
        let column = |name: &String| {
            let field =
                schema.field_with_name(name).map_err(|_| StreamError::Internal(format!("key {name} is not read")))?;
            match kinds(field.data_type()).is_empty() {
                false => Ok(field.clone()),
                true => Err(StreamError::invalid(format!(
                    "column {name} of table {}: expected a whole number, DECIMAL, VARCHAR, BOOLEAN, DATE or BYTES where rows are asked for by key, got {}; \
                     leave 'lookup.cache' out, so that the table is read as a whole",
                    scan.table.name,
                    type_name(field.data_type())
                ))),
            }
        };
        let key = by_key.columns.iter().map(column).collect::<Result<_>>()?;
        let giving_up = Arc::new(watch::channel(false).0);
        let (session, tasks, by_key) = (None, None, by_key.clone());
        Ok(Self { settings, schema, key, by_key, giving_up, session, tasks, retries: 0 })
    }
}

/// Types of PostgreSQL, as the catalog calls them, and how keys are compared with values of them.
type Kind = (&'static [&'static str], Comparison);

const fn like(sql: &'static str) -> Comparison {
    Comparison { sql, takes: |_| true }
}

// A key beyond what a smaller type holds has no rows, and is no error.
const WHOLE: &[Kind] = &[(&["int2", "int4", "int8"], like("int8"))];
const DECIMAL: &[Kind] = &[(&["numeric"], like("numeric"))];
const TRUTH: &[Kind] = &[(&["bool"], like("bool"))];
const DAY: &[Kind] = &[(&["date"], Comparison { sql: "date", takes: is_day })];
const BYTES: &[Kind] = &[(&["bytea"], like("bytea"))];
const TEXT: &[Kind] = &[
    (&["text", "varchar"], like("text")),
    (&["bpchar"], like("bpchar")),
    (&["uuid"], Comparison { sql: "uuid", takes: is_uuid }),
];

/// The types of PostgreSQL in which a key of a stream's type is looked for; none if it is none that is compared.
fn kinds(of: &DataType) -> &'static [Kind] {
    match of {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => WHOLE,
        DataType::Decimal128(..) => DECIMAL,
        DataType::Boolean => TRUTH,
        DataType::Date32 => DAY,
        DataType::BinaryView => BYTES,
        DataType::Utf8View => TEXT,
        _ => &[],
    }
}

/// Whether a text is a UUID as PostgreSQL writes it. Others are no values of a column of them, and none may fail the statement.
fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        })
}

/// Whether a day is one that PostgreSQL has.
fn is_day(text: &str) -> bool {
    let year = text.split_once('-').and_then(|(year, _)| year.parse::<u32>().ok());
    year.is_some_and(|year| if text.ends_with(" BC") { year <= 4713 } else { year <= 5_874_897 })
}

/// How the key's columns are compared in a table that has these.
fn comparisons(settings: &Settings, key: &[Field], found: &[&Found]) -> Result<Vec<Comparison>> {
    let comparison = |(field, found): (&Field, &&Found)| {
        let kinds = kinds(field.data_type());
        let kind = kinds.iter().find(|(names, _)| names.contains(&found.type_name.as_str()));
        kind.map(|(_, comparison)| *comparison).ok_or_else(|| {
            let names: Vec<&str> = kinds.iter().flat_map(|(names, _)| names.iter().copied()).collect();
            StreamError::invalid(format!(
                "column {} of {} in PostgreSQL: expected {} where rows are asked for by key and it is {} in the stream, found {}; declare it as \
                 the table has it, or leave 'lookup.cache' out, so that the table is read as a whole",
                field.name(),
                settings.table,
                names.join(" or "),
                type_name(field.data_type()),
                found.sql
            ))
        })
    };
    key.iter().zip(found).map(comparison).collect()
}

/// The statement that asks for the rows of keys; none if no key may have any.
fn statement(
    settings: &Settings,
    schema: &SchemaRef,
    key: &[Field],
    comparisons: &[Comparison],
    keys: &[StringViewArray],
) -> Option<String> {
    let rows = keys.first().map_or(0, Array::len);
    // No text of PostgreSQL has a character of code 0.
    let takes = |row: &usize| {
        keys.iter().zip(comparisons).all(|(keys, comparison)| {
            let text = keys.value(*row);
            !text.contains('\0') && (comparison.takes)(text)
        })
    };
    let rows: Vec<usize> = (0..rows).filter(takes).collect();
    if rows.is_empty() {
        return None;
    }
    let arrays: Vec<String> = (keys.iter().zip(comparisons))
        .map(|(keys, comparison)| format!("{}::{}[]", array(rows.iter().map(|row| keys.value(*row))), comparison.sql))
        .collect();
    let (columns, table) = (selected(schema), &settings.table);
    let names: Vec<String> = key.iter().map(|field| quoted(field.name())).collect();
    Some(match (names.as_slice(), arrays.as_slice()) {
        ([name], [keys]) => format!("SELECT {columns} FROM {table} WHERE {name} = ANY ({keys})"),
        _ => {
            // The names of the columns that keys have are those of none of the table's.
            let of_keys: Vec<String> = (0..names.len()).map(|at| format!("savanna_key_{at}")).collect();
            let equal: Vec<String> =
                names.iter().zip(&of_keys).map(|(name, key)| format!("t.{name} = k.{key}")).collect();
            let columns: Vec<String> =
                schema.fields().iter().map(|field| format!("t.{}", quoted(field.name()))).collect();
            format!(
                "SELECT {} FROM {table} AS t JOIN unnest({}) AS k({}) ON {}",
                columns.join(", "),
                arrays.join(", "),
                of_keys.join(", "),
                equal.join(" AND ")
            )
        }
    })
}

/// An array as it stands in SQL, whatever the server takes a backslash for.
fn array<'t>(texts: impl Iterator<Item = &'t str>) -> String {
    let mut sql = String::from("E'{");
    for (at, text) in texts.enumerate() {
        sql.push_str(if at > 0 { ",\"" } else { "\"" });
        for character in text.chars() {
            match character {
                '\'' => sql.push_str("''"),
                // Once for the array, and each of the two once more for the literal.
                '\\' => sql.push_str("\\\\\\\\"),
                '"' => sql.push_str("\\\\\""),
                other => sql.push(other),
            }
        }
        sql.push('"');
    }
    let _ = write!(sql, "}}'");
    sql
}

impl Session {
    async fn begin(settings: &Settings, schema: &SchemaRef, key: &[Field]) -> Result<Self, Failure> {
        let client = connect(settings).await?;
        let found = columns(&client, &settings.table).await.map_err(|error| failed(settings, "look at", &error))?;
        let fields: Vec<&Field> = schema.fields().iter().map(AsRef::as_ref).collect();
        matching(&settings.table, &fields, &found, Way::Out)?;
        let of_key = matching(&settings.table, &key.iter().collect::<Vec<_>>(), &found, Way::Out)?;
        let comparisons = comparisons(settings, key, &of_key)?;
        client.batch_execute(TEXTS).await.map_err(|error| failed(settings, "read", &error))?;
        Ok(Self { client, comparisons })
    }

    async fn ask(
        &self,
        settings: &Settings,
        schema: &SchemaRef,
        key: &[Field],
        keys: &[StringViewArray],
    ) -> Result<Vec<SimpleQueryMessage>, Failure> {
        let Some(statement) = statement(settings, schema, key, &self.comparisons, keys) else { return Ok(Vec::new()) };
        self.client.simple_query(&statement).await.map_err(|error| failed(settings, "look up in", &error))
    }
}

impl KeyedReader for KeyReader {
    fn rows(&mut self, keys: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let keys = keys.columns().iter().map(|column| text_of(column)).collect::<Result<Vec<_>>>()?;
        let patience = Patience { until: Instant::now() + self.by_key.patience, given_up: self.giving_up.subscribe() };
        let Self { settings, schema, key, session, tasks, retries, .. } = self;
        let tasks = match tasks {
            Some(tasks) => tasks,
            none => none.insert(Tasks::new()?),
        };
        let mut tries: u64 = 0;
        let answers = tasks.persist(settings, "look up in", &patience, async || {
            tries += 1;
            // One that does not answer is given up, however it comes to that.
            let known = match session.take() {
                Some(known) if !known.client.is_closed() => known,
                _ => Session::begin(settings, schema, key).await?,
            };
            let answers = known.ask(settings, schema, key, &keys).await?;
            *session = Some(known);
            Ok(answers)
        });
        *retries += u64::saturating_sub(tries, 1);
        let mut columns: Vec<Column> = schema.fields().iter().map(|field| Column::new(field)).collect();
        for answer in answers? {
            let SimpleQueryMessage::Row(row) = answer else { continue };
            for (at, column) in columns.iter_mut().enumerate() {
                column.push(row.get(at).map(str::as_bytes))?;
            }
        }
        let columns: Vec<ArrayRef> =
            columns.into_iter().map(|column| column.finish(settings)).collect::<Result<_>>()?;
        let rows = RecordBatch::try_new(Arc::clone(schema), columns)
            .map_err(|e| StreamError::invalid(format!("table {}: {e}", settings.table)))?;
        Ok(vec![rows])
    }

    fn give_up(&self) -> GiveUp {
        let giving_up = Arc::clone(&self.giving_up);
        Arc::new(move || {
            let _ = giving_up.send_replace(true);
        })
    }

    fn retries(&self) -> u64 {
        self.retries
    }
}

/// Values of a key as PostgreSQL reads them.
fn text_of(column: &ArrayRef) -> Result<StringViewArray> {
    match column.as_string_view_opt() {
        Some(texts) => Ok(texts.clone()),
        None => texts(column).map_err(|e| StreamError::Internal(format!("a key cannot be written as text: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Schema;

    use super::*;

    fn settings() -> Settings {
        let options = [("url", "postgresql://u@h/d"), ("table", "s.names")];
        let column = |name: &str, data_type| savanna_streams_model::catalog::ColumnDef {
            name: name.into(),
            data_type,
            nullable: true,
            computed: None,
        };
        Settings::new(&savanna_streams_model::catalog::TableDef {
            name: "names".into(),
            columns: vec![column("id", DataType::Int64), column("na\"me", DataType::Utf8View)],
            watermark: None,
            partitioned_by: Vec::new(),
            primary_key: Vec::new(),
            options: options.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            statement: String::new(),
        })
        .unwrap()
    }

    fn fields() -> [Field; 2] {
        [Field::new("id", DataType::Int64, true), Field::new("na\"me", DataType::Utf8View, true)]
    }

    fn asked(key: &[Field], of: &[Comparison], keys: &[&[&str]]) -> Option<String> {
        let schema: SchemaRef = Arc::new(Schema::new(fields().to_vec()));
        let keys: Vec<StringViewArray> = keys.iter().map(|keys| StringViewArray::from(keys.to_vec())).collect();
        statement(&settings(), &schema, key, of, &keys)
    }

    #[test]
    fn one_statement_asks_for_all_keys() {
        let [id, name] = fields();
        let [number, text] = [kinds(&DataType::Int64)[0].1, kinds(&DataType::Utf8View)[0].1];
        assert_eq!(
            asked(std::slice::from_ref(&id), &[number], &[&["7", "-8"]]).unwrap(),
            r#"SELECT "id", "na""me" FROM "s"."names" WHERE "id" = ANY (E'{"7","-8"}'::int8[])"#
        );
        assert_eq!(
            asked(&[name, id], &[text, number], &[&["a", "b"], &["1", "2"]]).unwrap(),
            r#"SELECT t."id", t."na""me" FROM "s"."names" AS t JOIN unnest(E'{"a","b"}'::text[], E'{"1","2"}'::int8[]) AS k(savanna_key_0, savanna_key_1) ON t."na""me" = k.savanna_key_0 AND t."id" = k.savanna_key_1"#
        );
    }

    #[test]
    fn a_key_ends_neither_its_array_nor_its_literal() {
        assert_eq!(array([r#"a'b"c\d,{}"#, ""].into_iter()), r#"E'{"a''b\\"c\\\\d,{}",""}'"#);
    }

    #[test]
    fn days_that_postgresql_has_not_are_not_asked_for() {
        for (text, is) in [
            ("2026-12-01", true),
            ("4713-02-01 BC", true),
            ("4714-11-24 BC", false),
            ("5874897-12-31", true),
            ("5874898-01-01", false),
        ] {
            assert_eq!(is_day(text), is, "{text}");
        }
    }

    #[test]
    fn a_key_that_no_value_of_the_column_equals_is_not_asked_for() {
        let [_, name] = fields();
        let key = std::slice::from_ref(&name);
        let [text, _, uuid] = [0, 1, 2].map(|at| kinds(&DataType::Utf8View)[at].1);
        let one = "0e37df36-f698-11e6-8dd4-cb9ced3df976";
        assert_eq!(asked(key, &[uuid], &[&["x", "0E37DF36-F698-11E6-8DD4-CB9CED3DF976", "a\0b"]]), None);
        assert!(asked(key, &[uuid], &[&["x", one]]).unwrap().ends_with(&format!(r#"ANY (E'{{"{one}"}}'::uuid[])"#)));
        assert_eq!(asked(key, &[text], &[&["a\0b"]]), None);
        assert_eq!(asked(key, &[text], &[&[]]), None);
    }
}
