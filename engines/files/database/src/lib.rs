//! The names of a file system in an SQL database, over the PostgreSQL protocol.
//!
//! What is written is decided elsewhere ([`savanna_files::flush`]), and so is what is read ([`savanna_files::cache`]). A batch is one transaction, sent at once: first
//! the marker, which only the owner of the database changes, then deletes, then writes. Whatever is read says up to which change the database had all
//! at that instant.

mod link;
mod rows;
mod schema;

use std::fmt;
use std::str::FromStr as _;
use std::time::Duration;

use savanna_epoch::NodeEpoch;
use savanna_files::cache::Beginning;
use savanna_files::change::Counters;
use savanna_files::flush::Batch;
use savanna_files::ids::{BlockId, InodeId, Millis, Stamp, Txid};
use savanna_files::operation::{Rights, Summary};
use savanna_files::retry::KEPT;
use savanna_files::{Fetched, Key, Stored};
use tokio_postgres::Config;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use crate::link::{Connected, Link, connect};
use crate::rows::Columns;

/// The prefix of all names: the subtree of the root.
const PREFIX: i64 = InodeId::ROOT.0.cast_signed();
/// Rows of one answer to a question for children.
const PAGE: usize = 1_000;
/// Whatever takes longer is given up, and so is the connection.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why the database does not do something.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// It is no address.
    #[error("expected an address such as postgres://user:password@host/database, came one that cannot be read: {0}")]
    Address(tokio_postgres::Error),
    /// It refuses, or is away.
    #[error("the database of files: {}", reason(.0))]
    Sql(#[from] tokio_postgres::Error),
    /// It is away, perhaps.
    #[error("the database of files did not answer within {seconds} s")]
    Slow {
        /// How long that was waited for.
        seconds: u64,
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
    #[error("a later owner has the database of files; this process ends")]
    Replaced,
    /// A row says what it cannot.
    #[error("a row of the database of files has {came}; expected {what}. Nobody but the name node may write there")]
    Damaged {
        /// What was expected.
        what: &'static str,
        /// What came.
        came: i64,
    },
    /// A statement is not in the list of its connection.
    #[error("a statement was not prepared; this is a mistake in Savanna")]
    Unprepared,
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

/// Whose the database was, when it was taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The newest change that it has.
    pub txid: Txid,
    /// The numbers that were given last.
    pub counters: Counters,
}

/// The database.
pub struct Database {
    config: Config,
    reader: Link,
    writer: Link,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

impl Database {
    /// The database at an address. It need not be there yet.
    ///
    /// # Errors
    /// [`DatabaseError::Address`].
    pub fn new(address: &str) -> Result<Self, DatabaseError> {
        let mut config = Config::from_str(address).map_err(DatabaseError::Address)?;
        config.application_name("savanna files");
        let reader =
            Link::new(config.clone(), &[schema::PATH, schema::IDS, schema::CHILDREN, schema::SUBTREE, schema::BLOCKS]);
        let writer = Link::new(
            config.clone(),
            &[
                schema::MARK,
                schema::DELETE_BLOCKS,
                schema::DELETE,
                schema::WRITE,
                schema::WRITE_BLOCKS,
                schema::WRITE_RETRIES,
                schema::DELETE_RETRIES,
            ],
        );
        Ok(Self { config, reader, writer })
    }

    /// Makes the tables if they are missing, and takes the database over for an epoch. Batches of earlier owners are refused from then on.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn claim(&self, pool: &str, epoch: NodeEpoch) -> Result<Claimed, DatabaseError> {
        let client = connect(&self.config).await?;
        for statement in schema::TABLES {
            client.batch_execute(statement).await?;
        }
        client
            .execute(
                "INSERT INTO files_version (version) SELECT $1 WHERE NOT EXISTS (SELECT 1 FROM files_version)",
                &[&schema::VERSION],
            )
            .await?;
        let came: i32 = client.query_one("SELECT version FROM files_version", &[]).await?.try_get(0)?;
        if came != schema::VERSION {
            return Err(DatabaseError::Version { came });
        }
        let [make, claim] = schema::CLAIM;
        let mine = epoch.0.cast_signed();
        client.execute(make, &[&PREFIX, &pool, &mine]).await?;
        let row = client.query_one(claim, &[&PREFIX, &mine]).await?;
        let came: String = row.try_get(0)?;
        if came != pool {
            return Err(DatabaseError::Pool { expected: pool.to_owned(), came });
        }
        if row.try_get::<_, i64>(1)? != mine {
            return Err(DatabaseError::Replaced);
        }
        let number = |at: usize| Ok::<_, DatabaseError>(row.try_get::<_, i64>(at)?.cast_unsigned());
        let txid = Txid(number(2)?);
        let counters = match txid {
            Txid(0) => Counters::default(),
            _ => Counters { inode: InodeId(number(3)?), block: BlockId(number(4)?), stamp: Stamp(number(5)?) },
        };
        Ok(Claimed { txid, counters })
    }

    /// What is read when the process begins: of a database that was taken over.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn beginning(&self, claimed: Claimed, now: Millis) -> Result<Beginning, DatabaseError> {
        let client = connect(&self.config).await?;
        let rows = client.query(schema::WRITTEN, &[&PREFIX]).await?;
        let rows = rows.iter().filter_map(|row| rows::stored(row).transpose()).collect::<Result<_, _>>()?;
        let kept = now.0.saturating_sub(KEPT).cast_signed();
        let retries = client.query(schema::RETRIES, &[&kept]).await?;
        let retries = retries.iter().map(rows::retry).collect::<Result<_, _>>()?;
        let Claimed { txid, counters } = claimed;
        Ok(Beginning { txid, counters, rows, retries })
    }

    /// What there is for keys.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn fetch(&self, keys: &[Key]) -> Result<Vec<Fetched>, DatabaseError> {
        let connected = &self.reader.get().await?;
        patiently(&self.reader, async {
            let mut fetched = Vec::with_capacity(keys.len());
            for key in keys {
                if !matches!(key, Key::Id(_)) {
                    fetched.push(fetch(connected, key).await?);
                }
            }
            fetched.extend(fetch_ids(connected, keys).await?);
            Ok(fetched)
        })
        .await
    }

    /// What a subtree holds, and who may do what with its directories.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn subtree(&self, root: InodeId) -> Result<(Summary, Vec<Rights>), DatabaseError> {
        let connected = &self.reader.get().await?;
        patiently(&self.reader, async {
            let statement = connected.statement(schema::SUBTREE)?;
            let (mut summary, mut rights) = (Summary::default(), Vec::new());
            for row in connected.client.query(statement, &[&root.0.cast_signed()]).await? {
                let count = row.try_get::<_, i64>(4)?.cast_unsigned();
                if row.try_get(0)? {
                    summary.directories += count;
                    let mode = u16::try_from(row.try_get::<_, i32>(3)?).unwrap_or(0);
                    rights.push(Rights { owner: row.try_get(1)?, group: row.try_get(2)?, mode });
                } else {
                    summary.files += count;
                    summary.length += row.try_get::<_, i64>(5)?.cast_unsigned();
                    summary.space += row.try_get::<_, i64>(6)?.cast_unsigned();
                }
            }
            Ok((summary, rights))
        })
        .await
    }

    /// Those of some blocks that no file has.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn without_file(&self, blocks: &[BlockId]) -> Result<Vec<BlockId>, DatabaseError> {
        let connected = &self.reader.get().await?;
        patiently(&self.reader, async {
            let ids: Vec<i64> = blocks.iter().map(|block| block.0.cast_signed()).collect();
            let rows = connected.client.query(connected.statement(schema::BLOCKS)?, &[&ids]).await?;
            let there = rows.iter().map(|row| row.try_get::<_, i64>(0)).collect::<Result<Vec<_>, _>>()?;
            Ok(blocks.iter().copied().filter(|block| !there.contains(&block.0.cast_signed())).collect())
        })
        .await
    }

    /// Writes a batch, all of it or nothing. To write one twice changes nothing.
    ///
    /// # Errors
    /// [`DatabaseError`]; [`DatabaseError::Replaced`] if a later owner has the database.
    pub async fn write(&self, epoch: NodeEpoch, batch: &Batch) -> Result<(), DatabaseError> {
        let connected = self.writer.get().await?;
        patiently(&self.writer, write(&connected, epoch, batch)).await
    }

    /// Writes all that there is in place of what the database has, in batches of which only the last one has the marker.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub async fn replace(
        &self,
        epoch: NodeEpoch,
        parts: impl Iterator<Item = Batch>,
        last: &Batch,
    ) -> Result<(), DatabaseError> {
        let connected = self.writer.get().await?;
        let client = &connected.client;
        // One transaction of all: it may take a while.
        client.batch_execute("BEGIN; DELETE FROM block; DELETE FROM inode; DELETE FROM retry_answer").await?;
        for part in parts {
            write_rows(&connected, &part).await?;
        }
        let done = async {
            mark(&connected, epoch, last).await?;
            write_rows(&connected, last).await?;
            Ok(client.batch_execute("COMMIT").await?)
        };
        let done = done.await;
        if done.is_err() {
            self.writer.end().await;
        }
        done
    }
}

/// Waits for something on a connection, which is given up when it takes too long.
async fn patiently<T>(link: &Link, work: impl Future<Output = Result<T, DatabaseError>>) -> Result<T, DatabaseError> {
    if let Ok(done) = tokio::time::timeout(PATIENCE, work).await {
        return done;
    }
    link.end().await;
    Err(DatabaseError::Slow { seconds: PATIENCE.as_secs() })
}

/// What one row of the marker and rows beside it say.
fn read(rows: &[tokio_postgres::Row]) -> Result<(Txid, Vec<Stored>), DatabaseError> {
    let first = rows.first().ok_or(DatabaseError::Replaced)?;
    let txid = Txid(first.try_get::<_, i64>(0)?.cast_unsigned());
    let stored = rows.iter().filter_map(|row| rows::stored(row).transpose());
    Ok((txid, stored.collect::<Result<_, _>>()?))
}

async fn fetch(connected: &Connected, key: &Key) -> Result<Fetched, DatabaseError> {
    let client = &connected.client;
    let (rows, page) = match key {
        Key::Path(directory, names) => {
            let names: Vec<&[u8]> = names.iter().map(|name| &**name).collect();
            let statement = connected.statement(schema::PATH)?;
            (client.query(statement, &[&directory.0.cast_signed(), &names]).await?, usize::MAX)
        }
        Key::Id(id) => {
            (client.query(connected.statement(schema::IDS)?, &[&vec![id.0.cast_signed()]]).await?, usize::MAX)
        }
        Key::Children(directory, after) => {
            let statement = connected.statement(schema::CHILDREN)?;
            let limit = i64::try_from(PAGE).unwrap_or(i64::MAX);
            let parameters: [&(dyn ToSql + Sync); 3] = [&directory.0.cast_signed(), &&**after, &limit];
            (client.query(statement, &parameters).await?, PAGE)
        }
    };
    let (txid, rows) = read(&rows)?;
    let is_end = rows.len() < page;
    Ok(Fetched { key: key.clone(), txid, rows, is_end })
}

/// All inodes that are asked for by their numbers, at once.
async fn fetch_ids(connected: &Connected, keys: &[Key]) -> Result<Vec<Fetched>, DatabaseError> {
    let id = |key: &Key| if let Key::Id(id) = key { Some(id.0.cast_signed()) } else { None };
    let ids: Vec<i64> = keys.iter().filter_map(id).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows = connected.client.query(connected.statement(schema::IDS)?, &[&ids]).await?;
    let (txid, mut rows) = read(&rows)?;
    let keys = keys.iter().filter(|key| id(key).is_some());
    let fetched = keys.map(|key| Fetched { key: key.clone(), txid, rows: std::mem::take(&mut rows), is_end: false });
    Ok(fetched.collect())
}

/// Sends a transaction at once.
async fn write(connected: &Connected, epoch: NodeEpoch, batch: &Batch) -> Result<(), DatabaseError> {
    let client = &connected.client;
    let (begun, marked, written, committed) = tokio::join!(
        client.batch_execute("BEGIN"),
        mark(connected, epoch, batch),
        write_rows(connected, batch),
        client.batch_execute("COMMIT"),
    );
    begun?;
    marked?;
    written?;
    Ok(committed?)
}

async fn mark(connected: &Connected, epoch: NodeEpoch, batch: &Batch) -> Result<(), DatabaseError> {
    let Counters { inode, block, stamp } = batch.counters;
    let numbers = [epoch.0, batch.txid.0, inode.0, block.0, stamp.0].map(u64::cast_signed);
    let parameters: [&(dyn ToSql + Sync); 6] =
        [&PREFIX, &numbers[0], &numbers[1], &numbers[2], &numbers[3], &numbers[4]];
    match connected.client.execute(connected.statement(schema::MARK)?, &parameters).await {
        Ok(1) => Ok(()),
        Ok(_) => Err(DatabaseError::Replaced),
        Err(error) if error.code() == Some(&SqlState::DIVISION_BY_ZERO) => Err(DatabaseError::Replaced),
        Err(error) => Err(error.into()),
    }
}

async fn write_rows(connected: &Connected, batch: &Batch) -> Result<(), DatabaseError> {
    let client = &connected.client;
    let removed: Vec<i64> = batch.removed.iter().map(|id| id.0.cast_signed()).collect();
    let ids = batch.rows.iter().filter(|stored| stored.row.kind != savanna_files::change::Kind::Directory);
    let files: Vec<i64> = ids.map(|stored| stored.row.id.0.cast_signed()).chain(removed.iter().copied()).collect();
    let (blocks, inodes): (Vec<i64>, Vec<i64>) =
        batch.blocks().map(|(block, inode)| (block.0.cast_signed(), inode.0.cast_signed())).unzip();
    let columns = Columns::of(&batch.rows);
    let clients: Vec<&[u8]> = batch.retries.iter().map(|(_, _, retry)| &retry.call.client[..]).collect();
    let calls: Vec<i32> = batch.retries.iter().map(|(_, _, retry)| retry.call.call).collect();
    let ats: Vec<i64> = batch.retries.iter().map(|(at, ..)| at.0.cast_signed()).collect();
    let txids: Vec<i64> = batch.retries.iter().map(|(_, txid, _)| txid.0.cast_signed()).collect();
    let (answers, created): (Vec<i32>, Vec<i64>) =
        batch.retries.iter().map(|(_, _, retry)| rows::answer(retry.answer)).unzip();
    let old = batch.at.0.saturating_sub(KEPT).cast_signed();
    let parameters = columns.parameters();
    let retries: [&(dyn ToSql + Sync); 6] = [&clients, &calls, &ats, &txids, &answers, &created];
    let block_columns: [&(dyn ToSql + Sync); 2] = [&blocks, &inodes];
    let (file_ids, removed_ids, old_at): (
        [&(dyn ToSql + Sync); 1],
        [&(dyn ToSql + Sync); 1],
        [&(dyn ToSql + Sync); 1],
    ) = ([&files], [&removed], [&old]);
    let done = tokio::join!(
        client.execute(connected.statement(schema::DELETE_BLOCKS)?, &file_ids),
        client.execute(connected.statement(schema::DELETE)?, &removed_ids),
        client.execute(connected.statement(schema::WRITE)?, &parameters),
        client.execute(connected.statement(schema::WRITE_BLOCKS)?, &block_columns),
        client.execute(connected.statement(schema::WRITE_RETRIES)?, &retries),
        client.execute(connected.statement(schema::DELETE_RETRIES)?, &old_at),
    );
    for result in [done.0, done.1, done.2, done.3, done.4, done.5] {
        result?;
    }
    Ok(())
}
