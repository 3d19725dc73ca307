//! Where the database is: at an address, or inside of this process.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, NoTls};

use crate::DatabaseError;

/// The database of the process that is asked for, if it serves one itself; and its user.
pub const OWN: &str = "savanna_files";

/// A database that takes longer to accept a connection is not there.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);
/// What was sent is confirmed within this, or the connection is gone.
const SILENCE: Duration = Duration::from_secs(20);
/// Whether the server is there is asked after so long without a word, and again as often.
const ASK_AFTER: Duration = Duration::from_secs(5);
/// So often.
const ASKED_MAX: u32 = 3;
/// How addresses begin.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// A connection that comes about, or does not.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<DuplexStream>> + Send + 'a>>;

/// A server inside of this process, which trusts it.
pub trait Inside: fmt::Debug + Send + Sync {
    /// Connects to its database [`OWN`], which is made if there is none.
    fn connect(&self) -> Connecting<'_>;
}

/// Where the database is.
#[derive(Clone)]
pub enum Place {
    /// At `postgres://user:password@host/database`.
    Address(String),
    /// Inside of this process.
    Inside(Arc<dyn Inside>),
}

/// The address has a password.
impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address(_) => "Address",
            Self::Inside(_) => "Inside",
        })
    }
}

/// How connections are made.
#[derive(Clone)]
pub(crate) struct Way {
    config: Config,
    inside: Option<Arc<dyn Inside>>,
}

impl Way {
    pub(crate) fn to(place: &Place) -> Result<Self, DatabaseError> {
        let (mut config, inside) = match place {
            Place::Address(address) => {
                // Words of other forms would be read as `keyword=value`, and be in the error.
                if !SCHEMES.iter().any(|scheme| address.starts_with(scheme)) {
                    return Err(DatabaseError::Address);
                }
                (Config::from_str(address).map_err(|_| DatabaseError::Address)?, None)
            }
            Place::Inside(inside) => {
                let mut config = Config::new();
                config.user(OWN).dbname(OWN);
                (config, Some(Arc::clone(inside)))
            }
        };
        // Connections notice that nobody is there, also where a statement may take as long as it takes.
        config.tcp_user_timeout(SILENCE).keepalives_idle(ASK_AFTER).keepalives_interval(ASK_AFTER);
        config.keepalives_retries(ASKED_MAX).application_name("savanna files");
        Ok(Self { config, inside })
    }

    /// A connection of its own, and what ends it.
    pub(crate) async fn connect(&self) -> Result<(Client, AbortHandle), DatabaseError> {
        let made = timeout(CONNECT, self.begin()).await;
        made.map_err(|_| DatabaseError::Slow { seconds: CONNECT.as_secs() })?
    }

    async fn begin(&self) -> Result<(Client, AbortHandle), DatabaseError> {
        let Some(inside) = &self.inside else {
            let (client, connection) = self.config.connect(NoTls).await?;
            return Ok((client, run(connection)));
        };
        let stream = inside.connect().await.map_err(DatabaseError::Inside)?;
        let (client, connection) = self.config.connect_raw(stream, NoTls).await?;
        Ok((client, run(connection)))
    }
}

/// Runs a connection until it ends.
fn run(connection: impl Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static) -> AbortHandle {
    let task = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the database of files ended");
        }
    });
    task.abort_handle()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Silent;

    impl Inside for Silent {
        /// Takes what is said, and answers nothing.
        fn connect(&self) -> Connecting<'_> {
            Box::pin(async {
                let (here, there) = tokio::io::duplex(1 << 10);
                tokio::spawn(async move {
                    let _here = here;
                    std::future::pending::<()>().await;
                });
                Ok(there)
            })
        }
    }

    #[derive(Debug)]
    struct Stopped;

    impl Inside for Stopped {
        fn connect(&self) -> Connecting<'_> {
            Box::pin(async { Err(io::Error::other("it stops")) })
        }
    }

    #[tokio::test]
    async fn one_in_the_process_that_says_nothing_is_not_there() {
        let way = Way::to(&Place::Inside(Arc::new(Silent))).unwrap();
        assert!(matches!(way.connect().await, Err(DatabaseError::Slow { .. })));
    }

    #[tokio::test]
    async fn one_in_the_process_that_is_stopped_may_be_there_later() {
        let way = Way::to(&Place::Inside(Arc::new(Stopped))).unwrap();
        let Err(error) = way.connect().await else { panic!("it is there") };
        assert!(error.is_passing() && error.to_string().contains("it stops"), "{error}");
    }
}
