//! The names of a file system in an SQL database, over the PostgreSQL protocol.
//!
//! What is written is decided elsewhere ([`savanna_files::flush`]), and so is what is read ([`savanna_files::cache`]). A batch is one transaction, sent at once: first
//! the marker, which only the owner of the database changes, then deletes, then writes. Whatever is read says up to which change the database had all
//! at that instant.

mod link;
mod place;
mod rows;
mod schema;

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::time::Duration;

use savanna_epoch::NodeEpoch;
use savanna_files::cache::Beginning;
use savanna_files::change::{Counters, FormatError, More};
use savanna_files::flush::Batch;
use savanna_files::ids::{BlockId, InodeId, Millis, Stamp, Txid};
use savanna_files::operation::{Rights, Summary};
use savanna_files::retry::{ANSWERS_MAX, KEPT};
use savanna_files::{Fetched, Key, Stored};
use tokio::sync::Mutex;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use crate::link::{Connected, Link};
use crate::place::Way;
pub use crate::place::{Connecting, Inside, OWN, Place};
use crate::rows::Columns;

/// The prefix of all names: the subtree of the root.
const PREFIX: i64 = InodeId::ROOT.0.cast_signed();
/// Rows of one answer to a question for children.
const PAGE: usize = 1_000;
/// Whatever takes longer is given up, and so is the connection.
const PATIENCE: Duration = Duration::from_secs(20);
/// The server ends a statement somewhat earlier.
const LIMIT: Duration = Duration::from_secs(18);
/// So long a subtree is counted.
const PATIENCE_FOR_SUBTREES: Duration = Duration::from_secs(300);
/// The server's limit for that.
const LIMIT_FOR_SUBTREES: Duration = Duration::from_secs(290);
/// So long one waits for the one before it.
const TURN: Duration = Duration::from_secs(10);
/// Names are bytes; users, groups and clients are not.
const ENCODING: &str = "UTF8";
/// What is acknowledged is on the server's disk: the log is cut behind it.
const BEGIN: &str = "BEGIN; SET LOCAL synchronous_commit = on";

/// Why the database does not do something.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// It is no address.
    #[error(
        "expected an address such as postgres://user:password@host/database, came one that cannot be read (it is not shown: it may have a password)"
    )]
    Address,
    /// It refuses, or is away.
    #[error("the database of files: {}", reason(.0))]
    Sql(#[from] tokio_postgres::Error),
    /// It is away, perhaps.
    #[error("the database of files did not answer within {seconds} s")]
    Slow {
        /// How long that was waited for.
        seconds: u64,
    },
    /// That of this process does not take connections.
    #[error("the database of files in this process: {0}")]
    Inside(#[source] io::Error),
    /// It was away a moment ago.
    #[error("the database of files could not be reached a moment ago")]
    Away,
    /// It keeps texts in an encoding that lacks characters.
    #[error(
        "expected a database whose encoding is {ENCODING}, came {came}; make one with CREATE DATABASE .. ENCODING '{ENCODING}' TEMPLATE template0"
    )]
    Encoding {
        /// Its encoding.
        came: String,
    },
    /// Its tables are of another release.
    #[error("expected tables of files of version {}, came {came}; use the release that made them", schema::VERSION)]
    Version {
        /// Their version.
        came: i32,
    },
    /// It is somebody else's.
    #[error(
        "the database has the names of another installation ({came}, expected {expected}); give each a database of its own"
    )]
    Pool {
        /// What this one is called.
        expected: String,
        /// What the other is called.
        came: String,
    },
    /// A later owner has it.
    #[error("another process has taken the database of files over; this one serves files no more")]
    Replaced,
    /// It lacks changes that it had.
    #[error(
        "the database of files has changes up to {came}, expected up to {expected}: it went back to an older state, or somebody else wrote there"
    )]
    WentBack {
        /// What it has at least.
        expected: Txid,
        /// What it has.
        came: Txid,
    },
    /// A row says what it cannot.
    #[error("a row of the database of files has {came}; expected {what}. Nobody but the name node may write there")]
    Damaged {
        /// What was expected.
        what: &'static str,
        /// What came.
        came: i64,
    },
    /// What few inodes have cannot be read.
    #[error("a row of the database of files: {0}")]
    More(#[from] FormatError),
    /// A statement is not in the list of its connection.
    #[error("a statement was not prepared; this is a mistake in Savanna")]
    Unprepared,
}

fn check_pool(expected: &str, came: String) -> Result<(), DatabaseError> {
    if came == expected { Ok(()) } else { Err(DatabaseError::Pool { expected: expected.to_owned(), came }) }
}

/// What an error says, with what the server said.
fn reason(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(
        || match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
        |said| format!("{} ({})", said.message(), said.code().code()),
    )
}

impl DatabaseError {
    /// Whether this process must not go on with the database.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Replaced | Self::WentBack { .. })
    }

    /// Whether it may be there later.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Sql(_) | Self::Slow { .. } | Self::Inside(_) | Self::Away)
    }

    /// Whether it was too much at once: this process gave it up, or the server did.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        match self {
            Self::Slow { .. } => true,
            Self::Sql(error) => {
                matches!(error.code(), Some(&SqlState::QUERY_CANCELED | &SqlState::PROGRAM_LIMIT_EXCEEDED))
            }
            _ => false,
        }
    }
}

/// Who owns a database, or wants to.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// Later ones replace earlier ones.
    pub epoch: NodeEpoch,
    /// A random number: a copy of a data directory has the same epoch.
    pub process: u64,
}

/// How far a database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The newest change that it has.
    pub txid: Txid,
    /// The numbers that were given last.
    pub counters: Counters,
}

/// The database.
pub struct Database {
    way: Way,
    owner: Owner,
    reader: Link,
    writer: Link,
    /// Counts subtrees, one at a time: that takes a while.
    counter: Mutex<Link>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

impl Database {
    /// The database at a place, for somebody. It need not be there yet.
    ///
    /// # Errors
    /// [`DatabaseError::Address`].
    pub fn new(place: &Place, owner: Owner) -> Result<Self, DatabaseError> {
        let way = Way::to(place)?;
        let reader = Link::new(way.clone(), LIMIT, &[schema::PATH, schema::IDS, schema::CHILDREN, schema::BLOCKS]);
        let counter = Mutex::new(Link::new(way.clone(), LIMIT_FOR_SUBTREES, &[schema::SUBTREE]));
        let writer = Link::new(
            way.clone(),
            LIMIT,
            &[
                schema::MARK,
                schema::DELETE_BLOCKS,
                schema::DELETE,
                schema::WRITE,
                schema::WRITE_BLOCKS,
                schema::WRITE_ANSWERS,
                schema::DELETE_ANSWERS,
                schema::FORGET,
                schema::CLEAR_SOME[0],
                schema::CLEAR_SOME[1],
                schema::CLEAR_SOME[2],
                schema::CLEAR_SOME[3],
            ],
        );
        Ok(Self { way, owner, reader, writer, counter })
    }

    /// Makes the tables if they are missing, and says how far the database is. Nobody is replaced.
    ///
    /// # Errors
    /// [`DatabaseError`]; [`DatabaseError::Replaced`] if a later owner has the database.
    pub async fn look(&self, pool: &str) -> Result<Found, DatabaseError> {
        let (client, _) = self.way.connect().await?;
        let came: String = client.query_one("SHOW server_encoding", &[]).await?.try_get(0)?;
        if came != ENCODING {
            return Err(DatabaseError::Encoding { came });
        }
        client.batch_execute(schema::VERSIONS).await?;
        client
            .execute(
                "INSERT INTO files_version (version) SELECT $1 WHERE NOT EXISTS (SELECT 1 FROM files_version)",
                &[&schema::VERSION],
            )
            .await?;
        let came: i32 = client.query_one("SELECT version FROM files_version", &[]).await?.try_get(0)?;
        if !(schema::OLDEST..=schema::VERSION).contains(&came) {
            return Err(DatabaseError::Version { came });
        }
        // Another installation's tables stay as they are.
        if client.query_one(schema::HAS_MARKER, &[]).await?.try_get(0)?
            && let Some(row) = client.query_opt(schema::POOL, &[&PREFIX]).await?
        {
            check_pool(pool, row.try_get(0)?)?;
        }
        for statement in schema::TABLES {
            client.batch_execute(statement).await?;
        }
        client.execute("UPDATE files_version SET version = $1", &[&schema::VERSION]).await?;
        client.execute(schema::BEGIN, &[&PREFIX, &pool]).await?;
        let marker = marker(&client).await?;
        check_pool(pool, marker.pool.clone())?;
        if marker.is_of_other(self.owner) {
            return Err(DatabaseError::Replaced);
        }
        Ok(marker.found)
    }

    /// Takes the database over, if it is as far as it was found, or farther, but not beyond what the log has. How far it is. Batches of earlier owners
    /// are refused from then on.
    ///
    /// # Errors
    /// [`DatabaseError`]; [`DatabaseError::Replaced`] if a later owner has the database, and [`DatabaseError::WentBack`] if it is not as far.
    pub async fn claim(&self, found: Found, log: Txid) -> Result<Found, DatabaseError> {
        let (client, _) = self.way.connect().await?;
        let [epoch, process, from, to] =
            [self.owner.epoch.0, self.owner.process, found.txid.0, log.0].map(u64::cast_signed);
        let taken = client.execute(schema::CLAIM, &[&PREFIX, &epoch, &process, &from, &to]).await?;
        let marker = marker(&client).await?;
        if marker.process != process {
            return Err(match marker.is_of_other(self.owner) {
                true => DatabaseError::Replaced,
                false => DatabaseError::WentBack { expected: found.txid, came: marker.found.txid },
            });
        }
        // It had been taken, and the answer was lost; then it went elsewhere.
        if taken == 0 {
            return Err(DatabaseError::WentBack { expected: found.txid, came: marker.found.txid });
        }
        Ok(marker.found)
    }

    /// What is read when the process begins: of a database that was taken over.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn beginning(&self, found: Found, now: Millis) -> Result<Beginning, DatabaseError> {
        let (client, _) = self.way.connect().await?;
        let rows = client.query(schema::WRITTEN, &[&PREFIX]).await?;
        let rows = rows.iter().filter_map(|row| rows::stored(row).transpose()).collect::<Result<_, _>>()?;
        let kept = now.0.saturating_sub(KEPT).cast_signed();
        let of_before = client.query(schema::RETRIES, &[&kept]).await?;
        let mut retries = of_before.iter().map(rows::retry).collect::<Result<Vec<_>, _>>()?;
        let bytes_max = i64::try_from(rows::ANSWER_BYTES * ANSWERS_MAX).unwrap_or(i64::MAX);
        for row in client.query(schema::ANSWERS, &[&kept, &bytes_max]).await? {
            retries.extend(rows::answers(row.try_get(0)?)?);
        }
        client.execute(schema::DELETE_RETRIES, &[&kept]).await?;
        let Found { txid, counters } = found;
        Ok(Beginning { txid, counters, rows, retries })
    }

    /// What there is for keys.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn fetch(&self, keys: &[Key]) -> Result<Vec<Fetched>, DatabaseError> {
        let connected = &self.reader.get().await?;
        patiently(connected, PATIENCE, async {
            let mut fetched = Vec::with_capacity(keys.len());
            for key in keys {
                if !matches!(key, Key::Id(_)) {
                    fetched.push(self.fetch_one(connected, key).await?);
                }
            }
            fetched.extend(self.fetch_ids(connected, keys).await?);
            Ok(fetched)
        })
        .await
    }

    /// What a subtree holds, and who may do what with its directories. One at a time: others wait for a while.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn subtree(&self, root: InodeId) -> Result<(Summary, Vec<Rights>), DatabaseError> {
        let turn = tokio::time::timeout(TURN, self.counter.lock()).await;
        let link = turn.map_err(|_| DatabaseError::Slow { seconds: TURN.as_secs() })?;
        let connected = &link.get().await?;
        patiently(connected, PATIENCE_FOR_SUBTREES, async {
            let statement = connected.statement(schema::SUBTREE)?;
            let (mut summary, mut found) = (Summary::default(), Vec::new());
            for row in connected.client.query(statement, &[&root.0.cast_signed()]).await? {
                self.check_owner(row.try_get(7)?)?;
                let count = row.try_get::<_, i64>(4)?.cast_unsigned();
                if row.try_get(0)? {
                    summary.directories += count;
                    found.push(rights(row.try_get(1)?, row.try_get(2)?, row.try_get(3)?, row.try_get(8)?)?);
                } else {
                    summary.files += count;
                    summary.length += row.try_get::<_, i64>(5)?.cast_unsigned();
                    summary.space += row.try_get::<_, i64>(6)?.cast_unsigned();
                }
            }
            Ok((summary, found))
        })
        .await
    }

    /// Those of some blocks that no file has, by a database that has all changes up to `base`.
    ///
    /// # Errors
    /// [`DatabaseError`]; [`DatabaseError::WentBack`] if it has less: files that it lacks may have them.
    pub async fn without_file(&self, base: Txid, blocks: &[BlockId]) -> Result<Vec<BlockId>, DatabaseError> {
        let connected = &self.reader.get().await?;
        patiently(connected, PATIENCE, async {
            let ids: Vec<i64> = blocks.iter().map(|block| block.0.cast_signed()).collect();
            let rows = connected.client.query(connected.statement(schema::BLOCKS)?, &[&ids]).await?;
            let first = rows.first().ok_or(DatabaseError::Replaced)?;
            self.check_owner(first.try_get(1)?)?;
            let came = Txid(first.try_get::<_, i64>(2)?.cast_unsigned());
            if came < base {
                return Err(DatabaseError::WentBack { expected: base, came });
            }
            let there = rows.iter().map(|row| row.try_get::<_, Option<i64>>(0)).collect::<Result<HashSet<_>, _>>()?;
            Ok(blocks.iter().copied().filter(|block| !there.contains(&Some(block.0.cast_signed()))).collect())
        })
        .await
    }

    /// Writes a batch, all of it or nothing, to a database that has all changes up to `base`, or more. To write one twice changes nothing.
    ///
    /// # Errors
    /// [`DatabaseError`]; [`DatabaseError::Replaced`] if somebody else has the database, [`DatabaseError::WentBack`] if it has less, or more than the batch.
    pub async fn write(&self, base: Txid, batch: &Batch) -> Result<(), DatabaseError> {
        let connected = &self.writer.get().await?;
        patiently(
            connected,
            PATIENCE,
            Box::pin(async {
                let client = &connected.client;
                let (begun, marked, written, committed) = tokio::join!(
                    client.batch_execute(BEGIN),
                    self.mark(connected, base, batch),
                    write_rows(connected, batch),
                    client.batch_execute("COMMIT"),
                );
                begun?;
                if !marked? {
                    return Err(self.refusal(connected, base).await?);
                }
                written?;
                Ok(committed?)
            }),
        )
        .await
    }

    /// Writes all that there is in place of what the database has, which is all up to `base`, in many transactions. It has nothing until the last one
    /// says how far it is; whatever a process that ended left in between goes first.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn replace(
        &self,
        base: Txid,
        parts: impl Iterator<Item = Batch>,
        last: &Batch,
    ) -> Result<(), DatabaseError> {
        self.forget(base, last.txid).await?;
        while self.clear_some().await? > 0 {}
        for part in parts {
            self.write(Txid(0), &part).await?;
        }
        self.write(Txid(0), last).await
    }

    /// From now on the database has nothing, whatever rows it has.
    async fn forget(&self, base: Txid, last: Txid) -> Result<(), DatabaseError> {
        let connected = &self.writer.get().await?;
        patiently(connected, PATIENCE, async {
            let [process, base_at, last] = [self.owner.process, base.0, last.0].map(u64::cast_signed);
            let statement = connected.statement(schema::FORGET)?;
            match connected.client.execute(statement, &[&PREFIX, &process, &base_at, &last]).await? {
                1 => Ok(()),
                _ => Err(self.refusal(connected, base).await?),
            }
        })
        .await
    }

    /// Deletes some of what a database has that has nothing. How many rows.
    async fn clear_some(&self) -> Result<u64, DatabaseError> {
        let connected = &self.writer.get().await?;
        patiently(connected, PATIENCE, async {
            let client = &connected.client;
            client.batch_execute(BEGIN).await?;
            if !self.mark(connected, Txid(0), &Batch::default()).await? {
                client.batch_execute("ROLLBACK").await?;
                return Err(self.refusal(connected, Txid(0)).await?);
            }
            let mut count = 0;
            for statement in schema::CLEAR_SOME {
                count += client.execute(connected.statement(statement)?, &[]).await?;
            }
            client.batch_execute("COMMIT").await?;
            Ok(count)
        })
        .await
    }

    /// Sets the marker. False if that was refused, and the transaction with it.
    async fn mark(&self, connected: &Connected, base: Txid, batch: &Batch) -> Result<bool, DatabaseError> {
        let Counters { inode, block, stamp } = batch.counters;
        let numbers = [self.owner.process, batch.txid.0, inode.0, block.0, stamp.0, base.0].map(u64::cast_signed);
        let [process, txid, inode, block, stamp, base] = &numbers;
        let parameters: [&(dyn ToSql + Sync); 7] = [&PREFIX, process, txid, inode, block, stamp, base];
        match connected.client.execute(connected.statement(schema::MARK)?, &parameters).await {
            Ok(count) => Ok(count == 1),
            Err(error) if error.code() == Some(&SqlState::DIVISION_BY_ZERO) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Why the marker was not set.
    async fn refusal(&self, connected: &Connected, base: Txid) -> Result<DatabaseError, DatabaseError> {
        let marker = marker(&connected.client).await?;
        self.check_owner(marker.process)?;
        Ok(DatabaseError::WentBack { expected: base, came: marker.found.txid })
    }

    /// Whether this process owns the database.
    fn check_owner(&self, process: i64) -> Result<(), DatabaseError> {
        if process == self.owner.process.cast_signed() { Ok(()) } else { Err(DatabaseError::Replaced) }
    }

    /// What one row of the marker and rows beside it say.
    fn read(&self, rows: &[tokio_postgres::Row]) -> Result<(Txid, Vec<Stored>), DatabaseError> {
        let first = rows.first().ok_or(DatabaseError::Replaced)?;
        self.check_owner(first.try_get(20)?)?;
        let txid = Txid(first.try_get::<_, i64>(0)?.cast_unsigned());
        let stored = rows.iter().filter_map(|row| rows::stored(row).transpose());
        Ok((txid, stored.collect::<Result<_, _>>()?))
    }

    async fn fetch_one(&self, connected: &Connected, key: &Key) -> Result<Fetched, DatabaseError> {
        let client = &connected.client;
        let (rows, page) = match key {
            Key::Path(directory, names) => {
                let names: Vec<&[u8]> = names.iter().map(|name| &**name).collect();
                let statement = connected.statement(schema::PATH)?;
                (client.query(statement, &[&directory.0.cast_signed(), &names]).await?, usize::MAX)
            }
            Key::Id(id) | Key::Emptying(id) | Key::Usage(id) => {
                (client.query(connected.statement(schema::IDS)?, &[&vec![id.0.cast_signed()]]).await?, usize::MAX)
            }
            Key::Children(directory, after) => {
                let statement = connected.statement(schema::CHILDREN)?;
                let limit = i64::try_from(PAGE).unwrap_or(i64::MAX);
                let parameters: [&(dyn ToSql + Sync); 3] = [&directory.0.cast_signed(), &&**after, &limit];
                (client.query(statement, &parameters).await?, PAGE)
            }
        };
        let (txid, rows) = self.read(&rows)?;
        let is_end = rows.len() < page;
        Ok(Fetched { key: key.clone(), txid, rows, is_end })
    }

    /// All inodes that are asked for by their numbers, at once.
    async fn fetch_ids(&self, connected: &Connected, keys: &[Key]) -> Result<Vec<Fetched>, DatabaseError> {
        let id = |key: &Key| if let Key::Id(id) = key { Some(id.0.cast_signed()) } else { None };
        let ids: Vec<i64> = keys.iter().filter_map(id).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let rows = connected.client.query(connected.statement(schema::IDS)?, &[&ids]).await?;
        let (txid, mut rows) = self.read(&rows)?;
        let keys = keys.iter().filter(|key| id(key).is_some());
        let fetched =
            keys.map(|key| Fetched { key: key.clone(), txid, rows: std::mem::take(&mut rows), is_end: false });
        Ok(fetched.collect())
    }
}

/// Who may do what with a directory, as a row says it.
fn rights(owner: String, group: String, mode: i32, more: Option<&[u8]>) -> Result<Rights, DatabaseError> {
    let acl = more.map(More::decode).transpose()?.map(|more| more.acl).unwrap_or_default();
    Ok(Rights { owner, group, mode: u16::try_from(mode).unwrap_or(0), acl })
}

/// What the marker says.
struct Marker {
    pool: String,
    epoch: i64,
    process: i64,
    found: Found,
}

impl Marker {
    /// Whether somebody has the database whom an owner cannot replace.
    const fn is_of_other(&self, owner: Owner) -> bool {
        let epoch = owner.epoch.0.cast_signed();
        self.epoch > epoch || self.epoch == epoch && self.process != owner.process.cast_signed()
    }
}

async fn marker(client: &Client) -> Result<Marker, DatabaseError> {
    let row = client.query_one(schema::LOOK, &[&PREFIX]).await?;
    let number = |at: usize| Ok::<_, DatabaseError>(row.try_get::<_, i64>(at)?.cast_unsigned());
    let txid = Txid(number(3)?);
    let counters = match txid {
        Txid(0) => Counters::default(),
        _ => Counters { inode: InodeId(number(4)?), block: BlockId(number(5)?), stamp: Stamp(number(6)?) },
    };
    let found = Found { txid, counters };
    Ok(Marker { pool: row.try_get(0)?, epoch: row.try_get(1)?, process: row.try_get(2)?, found })
}

/// Waits for something on a connection, which is ended when it takes too long.
async fn patiently<T>(
    connected: &Connected,
    patience: Duration,
    work: impl Future<Output = Result<T, DatabaseError>>,
) -> Result<T, DatabaseError> {
    if let Ok(done) = tokio::time::timeout(patience, work).await {
        return done;
    }
    connected.end();
    Err(DatabaseError::Slow { seconds: patience.as_secs() })
}

async fn write_rows(connected: &Connected, batch: &Batch) -> Result<(), DatabaseError> {
    let client = &connected.client;
    let removed: Vec<i64> = batch.removed.iter().map(|id| id.0.cast_signed()).collect();
    let ids = batch.rows.iter().filter(|stored| stored.row.kind != savanna_files::change::Kind::Directory);
    let files: Vec<i64> = ids.map(|stored| stored.row.id.0.cast_signed()).chain(removed.iter().copied()).collect();
    let (blocks, inodes): (Vec<i64>, Vec<i64>) =
        batch.blocks().map(|(block, inode)| (block.0.cast_signed(), inode.0.cast_signed())).unzip();
    let columns = Columns::of(&batch.rows);
    let answers = rows::answers_as_bytes(&batch.retries);
    let newest = batch.retries.iter().map(|(at, txid, _)| (at.0.cast_signed(), txid.0.cast_signed()));
    let newest = newest.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1))).unwrap_or_default();
    let old = batch.at.0.saturating_sub(KEPT).cast_signed();
    let parameters = columns.parameters();
    let answer_columns: [&(dyn ToSql + Sync); 3] = [&newest.0, &newest.1, &answers];
    let block_columns: [&(dyn ToSql + Sync); 2] = [&blocks, &inodes];
    let [file_ids, removed_ids, old_at]: [[&(dyn ToSql + Sync); 1]; 3] = [[&files], [&removed], [&old]];
    let done = tokio::join!(
        client.execute(connected.statement(schema::DELETE_BLOCKS)?, &file_ids),
        client.execute(connected.statement(schema::DELETE)?, &removed_ids),
        client.execute(connected.statement(schema::WRITE)?, &parameters),
        client.execute(connected.statement(schema::WRITE_BLOCKS)?, &block_columns),
        client.execute(connected.statement(schema::WRITE_ANSWERS)?, &answer_columns),
        client.execute(connected.statement(schema::DELETE_ANSWERS)?, &old_at),
    );
    for result in [done.0, done.1, done.2, done.3, done.4, done.5] {
        result?;
    }
    Ok(())
}
