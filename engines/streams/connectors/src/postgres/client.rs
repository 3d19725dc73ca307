//! Connections to a server, and what an error means to a user.

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::time::Duration;

use savanna_streams_api::{Result, StreamError};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::{Client, Error};

use super::settings::Settings;
use super::tls::Tls;

/// So long a query that starts waits for the server.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// What was tried first is tried again after so long, and later less often.
const BACK_OFF: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);

/// Holds for a connection. A process that is paused between the statements of a transaction, or a machine that is gone, keeps its rows from
/// nobody for long, and no epoch counts that a crash of the server may take back. Not every server has all settings.
const SETTLE: &str = "SET idle_in_transaction_session_timeout = '60s'; \
    SELECT set_config('tcp_keepalives_idle', '30', false) WHERE current_setting('tcp_keepalives_idle', true) IS NOT NULL; \
    SELECT set_config('tcp_keepalives_interval', '5', false) WHERE current_setting('tcp_keepalives_interval', true) IS NOT NULL; \
    SELECT set_config('tcp_keepalives_count', '6', false) WHERE current_setting('tcp_keepalives_count', true) IS NOT NULL; \
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit', true) = 'off'";

/// Why something was not done.
#[derive(Debug)]
pub(super) enum Failure {
    /// It may be tried again over a new connection.
    Again(String),
    /// It will not go.
    Final(StreamError),
}

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Self {
        Self::Final(error)
    }
}

/// How long one who waits for a server goes on with it.
#[derive(Clone)]
pub(super) struct Patience {
    pub(super) until: Instant,
    /// True when nobody needs the answer any more.
    pub(super) given_up: watch::Receiver<bool>,
}

/// What runs the work of one thread with its connections.
pub(super) struct Tasks(Option<Runtime>);

impl Tasks {
    pub(super) fn new() -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Self(Some(runtime.map_err(|e| StreamError::io("preparing connections to PostgreSQL", &e))?)))
    }

    /// Waits for some work, as long as there is patience.
    pub(super) fn run<T>(
        &self,
        patience: &Patience,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let Some(runtime) = &self.0 else { return Err(StreamError::Internal("a client that has ended".into()).into()) };
        let mut given_up = patience.given_up.clone();
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = given_up.wait_for(|is_given_up| *is_given_up) => Err(StreamError::Cancelled.into()),
                done = timeout_at(patience.until, work) => {
                    done.unwrap_or_else(|_| Err(Failure::Again("the server did not answer in time".into())))
                }
            }
        })
    }

    /// Does some work until it is done, or fails for another reason than that the server is away.
    ///
    /// # Errors
    /// What is final, or the last failure when patience is over.
    pub(super) fn persist<T>(
        &self,
        settings: &Settings,
        what: &str,
        patience: &Patience,
        mut work: impl AsyncFnMut() -> Result<T, Failure>,
    ) -> Result<T> {
        let mut back_off = BACK_OFF;
        loop {
            let cause = match self.run(patience, work()) {
                Ok(done) => return Ok(done),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Again(cause)) => cause,
            };
            if Instant::now() + back_off >= patience.until {
                let cause = format!("{cause}; look whether the server is up, and whether the table's options name it");
                return Err(StreamError::io(format!("{what} {} at {}", settings.table, settings.place()), &cause));
            }
            tracing::warn!(server = settings.place(), table = %settings.table, cause, "PostgreSQL does not do what it should; it is tried again");
            let rest = async {
                tokio::time::sleep(back_off).await;
                Ok(())
            };
            if let Err(Failure::Final(error)) = self.run(patience, rest) {
                return Err(error);
            }
            back_off = (back_off * 2).min(BACK_OFF_MAX);
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        // A name that is still being looked up is not waited for.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A new connection.
pub(super) async fn connect(settings: &Settings) -> Result<Client, Failure> {
    let tls = Tls::new(settings.verifies)?;
    let (client, connection) =
        settings.server.connect(tls).await.map_err(|error| failed(settings, "connect to", &error))?;
    tokio::spawn(async {
        // Whoever uses the client hears of it.
        let _ = connection.await;
    });
    client.batch_execute(SETTLE).await.map_err(|error| failed(settings, "prepare a session for", &error))?;
    Ok(client)
}

/// What an error means, where `what` was tried with the table.
pub(super) fn failed(settings: &Settings, what: &str, error: &Error) -> Failure {
    let Settings { table, .. } = settings;
    let (place, user) = (settings.place(), settings.user());
    let Some(told) = error.as_db_error() else {
        let words = words(error);
        return match is_lost(error) {
            true => Failure::Again(words),
            false => StreamError::io(format!("{what} {table} at {place}"), &words).into(),
        };
    };
    let (code, message) = (told.code().code(), told.message());
    let details: Vec<&str> = [told.detail(), told.where_()].into_iter().flatten().collect();
    let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join("; ")) };
    let error = match code {
        _ if passes(code) => return Failure::Again(format!("{message}{details}")),
        _ if code.starts_with("28") => StreamError::Denied {
            message: format!(
                "PostgreSQL at {place} does not let user '{user}' in ({message}); correct 'username' and 'password', or the server's users"
            ),
        },
        "42501" => StreamError::Denied {
            message: format!(
                "PostgreSQL at {place} does not let user '{user}' {what} {table} ({message}); grant it to that user, or choose another"
            ),
        },
        _ if ["21", "22", "23", "54"].iter().any(|class| code.starts_with(class)) => {
            let advice = match code {
                "23505" if settings.key.is_empty() => {
                    "; declare the table with PRIMARY KEY (..) NOT ENFORCED to write over the rows of its keys"
                }
                "21000" => "; two keys that are different for streams are the same for PostgreSQL",
                _ => "",
            };
            StreamError::Data {
                place: format!("table {table} at {place}"),
                message: format!(
                    "expected rows that the table takes, and PostgreSQL refuses them: {message}{details}{advice}"
                ),
            }
        }
        _ => StreamError::invalid(format!("PostgreSQL at {place} cannot {what} {table}: {message}{details} ({code})")),
    };
    Failure::Final(error)
}

/// Whether an error of the server passes by itself, by its SQLSTATE: it has no room, starts, ends, or takes only readers, or another
/// transaction was in the way.
pub(super) fn passes(code: &str) -> bool {
    ["08", "40", "53", "57", "58"].iter().any(|class| code.starts_with(class))
        || matches!(code, "25006" | "25P03" | "25P04" | "55006" | "55P03")
}

/// Whether the connection was lost, or never made. A certificate that is not trusted stays so.
fn is_lost(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return !matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput);
        }
        cause = error.source();
    }
    error.is_closed()
}

/// An error with its causes.
fn words(error: &Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words += &format!(": {error}");
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_by_itself_is_tried_again() {
        for code in ["57P01", "57P03", "53300", "53100", "40001", "40P01", "55P03", "25006", "25P04", "08006", "58030"]
        {
            assert!(passes(code), "{code}");
        }
        for code in ["22P02", "23505", "42P01", "42501", "28P01", "3D000", "25P02", "XX001"] {
            assert!(!passes(code), "{code}");
        }
    }
}
