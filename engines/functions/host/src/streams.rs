//! Tells streams of a keys server what has become of events. To the core a stream is a function whose instances have no process: so it has the log, the queue and the retries of
//! all events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::{Client, Connection, RedisError, cmd};
use savanna_functions::core::{Build, EventSettings, Input, InstanceId, Outcome, Route, Settings};
use savanna_functions::names::{LATEST, stream};

use crate::driver::Slot;
use crate::functions::{Functions, State};
use crate::options::HostError;
use crate::runtime_api::Delivery;

/// The server answers within this, or it is tried again later.
const STEP: Duration = Duration::from_secs(5);
/// What the core waits for an attempt: a connection, a request and an answer, and some more.
const TIMEOUT_SECONDS: u32 = 30;
/// No function has a build of this number: theirs are counted up from one.
const BUILD: u64 = u64::MAX;

/// The keys server.
pub(crate) struct Streams(Client);

impl Streams {
    /// The server at an address. It is connected to when there is something to tell.
    pub(crate) fn of(url: &str) -> Result<Self, HostError> {
        // The error of the library has no password in it; nor has this one the address.
        Client::open(url).map(Self).map_err(|error| HostError::Keys(format!("got what is none: {error}")))
    }

    /// An entry at the end of a stream, by a connection that is there or a new one; the entry's id.
    fn add(&self, open: Option<Connection>, key: &str, told: &Delivery) -> Result<(Connection, String), RedisError> {
        if let Some(mut connection) = open {
            match entry(&mut connection, key, told) {
                Ok(entry) => return Ok((connection, entry)),
                // The server may have begun anew since it was used last.
                Err(error) if error.is_io_error() => {}
                Err(error) => return Err(error),
            }
        }
        let mut connection = self.0.get_connection_with_timeout(STEP)?;
        connection.set_read_timeout(Some(STEP))?;
        connection.set_write_timeout(Some(STEP))?;
        let entry = entry(&mut connection, key, told)?;
        Ok((connection, entry))
    }
}

/// Adds an entry. Its `request` is the same each time that it is tried: whoever reads knows by it what came twice.
fn entry(connection: &mut Connection, key: &str, told: &Delivery) -> Result<String, RedisError> {
    let mut add = cmd("XADD");
    add.arg(key).arg("*").arg("request").arg(&told.request).arg("event").arg(told.payload.as_ref());
    add.query(connection)
}

/// An instance of a stream, as the host knows it.
pub(crate) fn slot(name: &str) -> Slot {
    Slot { function: name.to_owned(), version: LATEST.to_owned(), timeout: TIMEOUT_SECONDS, ..Slot::default() }
}

/// Tells a stream one thing after the other, until there was nothing to tell for a while.
pub(crate) async fn run(functions: Functions, id: InstanceId, key: String) {
    let mut connection = None;
    while let Some(waiting) = functions.next(id) {
        let Ok(told) = waiting.await else { break };
        let request = told.request.clone();
        let (shared, key_of) = (Arc::clone(&functions.0), key.clone());
        let added = tokio::task::spawn_blocking(move || match &shared.streams {
            Some(streams) => streams.add(connection, &key_of, &told).map_err(|error| error.to_string()),
            None => Err("functions.keys_url is none".to_owned()),
        });
        let added = added.await.unwrap_or_else(|error| Err(error.to_string()));
        let (outcome, said) = match added {
            Ok((open, entry)) => {
                connection = Some(open);
                (Outcome::Success, entry)
            }
            Err(error) => {
                tracing::warn!(
                    stream = key,
                    error,
                    "a stream could not be told what became of an event, and is told later; look whether the keys server of functions.keys_url is up"
                );
                connection = None;
                (Outcome::Failed, error)
            }
        };
        if !functions.answered(id, &request, outcome, Bytes::from(said)) {
            break;
        }
    }
    functions.over(id, ("Runtime.ExitError", "it was not used any more".to_owned()));
}

impl Functions {
    /// Has the core know a stream, if it is the name of one.
    pub(crate) fn know_stream(&self, state: &mut State, name: &str) {
        if stream(name).is_none() || !state.streams.insert(name.to_owned()) {
            return;
        }
        let build = Build { number: BUILD, timeout: u64::from(TIMEOUT_SECONDS) * 1_000_000, megabytes: 0 };
        let latest: Arc<str> = Arc::from(LATEST);
        let settings = Settings {
            routes: BTreeMap::from([(Arc::clone(&latest), Route { build, other: None })]),
            // As often as fits into its age.
            events: BTreeMap::from([(latest, EventSettings { attempts: u32::MAX, ..EventSettings::default() })]),
            ..Settings::default()
        };
        self.step(state, Input::Configure { function: Arc::from(name), settings });
    }
}
