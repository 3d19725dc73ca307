//! Keys that are asked for one by one, many in one request.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use redis::Connection;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::join::ByKey;
use savanna_streams_model::sink::GiveUp;
use savanna_streams_model::source::{KeyedReader, ScanSpec};

use super::rows;
use super::settings::Settings;
use super::source::{Keys, failed};
use super::trying::{Failure, Trying};

/// So many keys are asked for at once: a server need not keep more answers than these.
const KEYS_AT_ONCE: usize = 1_000;

/// Asks for keys.
pub(super) struct KeyReader {
    keys: Keys,
    connection: Option<Connection>,
    by_key: ByKey,
    /// The columns that come, by the names that they have in the table.
    key: SchemaRef,
    given_up: Arc<AtomicBool>,
    retries: u64,
}

impl KeyReader {
    /// # Errors
    /// Not all of what is in keys is compared.
    pub(super) fn new(settings: &Settings, scan: &ScanSpec, by_key: &ByKey) -> Result<Self> {
        if let Some(missing) = settings.key_fields.iter().find(|name| !by_key.columns.contains(name)) {
            return Err(StreamError::invalid(format!(
                "keys of table {} are made of {}, so that ON must say what each of them equals; add a condition for {missing}, or leave \
                 'lookup.cache' out, so that the table is read as a whole",
                scan.table.name,
                settings.key_fields.join(", ")
            )));
        }
        let physical = scan.table.physical_schema();
        let column = |name: &String| physical.field_with_name(name).map(Field::clone);
        let columns: Vec<Field> =
            by_key.columns.iter().map(column).collect::<Result<_, _>>().map_err(|_| {
                StreamError::Internal(format!("table {} has not the columns of its key", scan.table.name))
            })?;
        Ok(Self {
            keys: Keys::new(settings.clone(), scan)?,
            connection: None,
            by_key: by_key.clone(),
            key: Arc::new(Schema::new(columns)),
            given_up: Arc::default(),
            retries: 0,
        })
    }
}

/// What the server has for some keys.
fn ask(keys: &mut Keys, connection: &mut Option<Connection>, asked: &[Vec<u8>]) -> Result<Vec<RecordBatch>, Failure> {
    let mut open = match connection.take() {
        Some(open) => open,
        None => keys.settings.connect().map_err(|error| failed(&keys.settings, &error))?,
    };
    let rows = asked.chunks(KEYS_AT_ONCE).map(|asked| keys.rows(&mut open, asked)).collect::<Result<_, _>>()?;
    // One that failed is given up: an answer may still be on its way.
    *connection = Some(open);
    Ok(rows)
}

impl KeyedReader for KeyReader {
    fn rows(&mut self, keys: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let named = RecordBatch::try_new(Arc::clone(&self.key), keys.columns().to_vec());
        let named = named.map_err(|e| StreamError::Internal(format!("keys of other columns than the table's: {e}")))?;
        let settings = self.keys.settings.clone();
        // Several may be one where more is compared than what is in keys.
        let mut seen = HashSet::new();
        let asked: Vec<Vec<u8>> =
            rows::keys(&settings, &named)?.into_iter().flatten().filter(|key| seen.insert(key.clone())).collect();
        let Self { keys, connection, by_key, given_up, retries, .. } = self;
        let (server, patience) = (settings.server.as_str(), by_key.patience);
        let trying = Trying { what: "look up keys of", server, patience, option: "lookup.retry.timeout", given_up };
        let mut tries: u64 = 0;
        let rows = trying.run(|| {
            tries += 1;
            ask(keys, connection, &asked)
        });
        *retries += tries.saturating_sub(1);
        rows
    }

    fn give_up(&self) -> GiveUp {
        let given_up = Arc::clone(&self.given_up);
        Arc::new(move || given_up.store(true, Ordering::Release))
    }

    fn retries(&self) -> u64 {
        self.retries
    }
}
