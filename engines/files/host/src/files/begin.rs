//! The beginning: what the log says, and the database.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use savanna_epoch::NodeEpoch;
use savanna_files::ids::{BlockId, Txid};
use savanna_files::{Fetched, Key, Limits};
use savanna_files_database::DatabaseError;
use savanna_journal::{Journal, JournalError, Lsn, Options as LogOptions};

use super::emptying::Questions;
use super::errands::Errands;
use super::locked::Locked;
use super::own::{self, Hearing, Own};
use super::{Files, Shared, State, nodes, now};
use crate::behind::{self, Behind};
use crate::groups::Groups;
use crate::identity::Identity;
use crate::options::{HostError, HostOptions};
use crate::recovery::{Logged, recover};
use crate::upkeep::Upkeep;

const NO_DATABASE: &str = "it was read for a database, and there is none; this is a mistake in Savanna";

impl Files {
    /// Reads the log, and begins to read the replicas and to look after them. Blocks while it reads the log.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn open(options: HostOptions) -> Result<(Self, Upkeep), HostError> {
        let HostOptions { log, epoch, lease, directory, superuser, limits, trash, silence, database } = options;
        let failed = |path: &std::path::Path| {
            let path = path.to_owned();
            move |source| HostError::Directory { path, source }
        };
        std::fs::create_dir_all(&directory).map_err(failed(&directory))?;
        let identity = Identity::of(&directory, now().0)?;
        let behind = database.map(|database| Behind::new(&database.place, epoch, database.inodes_max)).transpose()?;
        // Who opens the log ends whoever had it before; only then the replicas are ours.
        let (journal, mut state, needed) = match &behind {
            Some(behind) => begin_with(behind, &identity.pool, log, epoch, &superuser, limits)?,
            None => match recover(log, epoch, &superuser, limits, None)? {
                (journal, Logged::All(namespace), _) => (journal, State::new(namespace), None),
                (_, Logged::Behind(_), _) => {
                    return Err(JournalError::Stopped { reason: NO_DATABASE.to_owned() }.into());
                }
            },
        };
        let namespace = &mut state.namespace;
        let deleted: HashSet<BlockId> = namespace.blocks.take_unwanted().into_iter().collect();
        // Who may not use it is told so now.
        let blocks = directory.join("blocks");
        std::fs::create_dir_all(&blocks).and_then(|()| std::fs::read_dir(&blocks)).map_err(failed(&blocks))?;
        namespace.leases.renew_all(now());
        namespace.blocks.nodes.silence = silence;
        nodes::recall(&directory, namespace).map_err(failed(&directory))?;
        namespace.is_waiting = nodes::is_waiting(namespace);
        namespace.is_reading = true;
        let (tasks, upkeep) = std::sync::mpsc::channel();
        let state = Locked::new(state);
        let groups = Groups::default();
        let questions = Questions::new().map_err(failed(&directory))?;
        let errands = Errands::new().map_err(failed(&directory))?;
        let behind = behind.map(Arc::new);
        let (needed, lost) = (Mutex::new(needed), OnceLock::new());
        let shared = Shared {
            state,
            journal,
            lease,
            replicas: Own::default(),
            orphans: Mutex::default(),
            identity,
            directory: directory.clone(),
            superuser,
            trash_minutes: trash,
            groups,
            tasks,
            behind,
            needed,
            lost,
            begun: Hearing::default(),
            nodes_kept: Mutex::default(),
            awaited: Arc::default(),
            questions,
            errands,
        };
        let files = Self(Arc::new(shared));
        files.cut();
        if files.0.behind.is_some() {
            behind::begin(files.clone()).map_err(failed(&directory))?;
        }
        let upkeep = Upkeep::begin(files.clone(), upkeep, deleted).map_err(failed(&directory))?;
        let begun = Instant::now();
        files.wait_until_read(|| begun.elapsed() >= own::PATIENCE);
        Ok((files, upkeep))
    }
}

/// The log, the names and what the database lacks of them, and from where on the log is needed for it.
type Read = (Arc<Journal>, State, Option<Lsn>);

/// Begins with what the database has, and what the log has beside it. Blocks.
fn begin_with(
    behind: &Behind,
    pool: &str,
    log: LogOptions,
    epoch: NodeEpoch,
    superuser: &str,
    limits: Limits,
) -> Result<Read, HostError> {
    // Who has the database is replaced only by somebody who can go on.
    let found = behind.look(pool)?;
    let (journal, logged, needed) = recover(log, epoch, superuser, limits, Some(found.txid))?;
    let found = behind.claim(found, logged.txid(found.txid))?;
    behind.flushed(found.txid);
    let state = match logged {
        Logged::All(mut namespace) => {
            if namespace.txid() > Txid(0) {
                tracing::info!(inodes = namespace.inode_count(), "the database of files gets all names");
                behind.replace(found.txid, &namespace)?;
            }
            namespace.is_kept();
            behind.flushed(namespace.txid());
            State::new(namespace)
        }
        Logged::Behind(changes) => {
            let fetch = |keys: &[Key]| -> Result<Vec<Fetched>, DatabaseError> {
                let parts = keys.chunks(behind::BATCH).map(|keys| behind.fetch_at_start(keys));
                parts.collect::<Result<Vec<_>, _>>().map(|parts| parts.into_iter().flatten().collect())
            };
            State::begin(superuser, limits, behind.beginning(found, now())?, changes, fetch)?
        }
    };
    Ok((journal, state, needed))
}
