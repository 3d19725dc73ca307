//! The file of Redis that is read at the first start: a node without a log has what is in it.
//!
//! The file is read twice. What is wrong with it is found before anything is kept. While it is put into the log, a mark lies beside
//! it: a start that was cut off is done again.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use savanna_journal::{Journal, JournalError, Lsn};
use savanna_keys::actor::Actor;
use savanna_keys::actor::loading::{Loaded, Loading};
use savanna_keys::config::Sync;
use savanna_keys_rdb::{FileReader, Item};
use savanna_lattice::UnixMillis;

use crate::error::HostError;
use crate::log::Log;
use crate::saving::beside;

/// Of reads from the file.
const BUFFER_BYTES: usize = 1 << 20;
/// Changes of so many bytes are put into the log together.
const CHANGES_BYTES: usize = 1 << 20;

/// Reads the file at a place, if the log has nothing, or less than all of it. Says what there was.
pub(crate) fn load(
    place: &Path,
    journal: &Arc<Journal>,
    actors: &mut [Actor],
    now: UnixMillis,
) -> Result<Option<Loaded>, HostError> {
    let mark = beside(place, "loading");
    let was_cut_off = mark.exists();
    if !was_cut_off && (journal.appended() != Lsn::NONE || !place.exists()) {
        return Ok(None);
    }
    let failed = |reason: String| HostError::Dump { path: place.to_owned(), reason };
    read(place, &mut |item| check(&item)).map_err(failed)?;
    keep_mark(&mark).map_err(|error| failed(format!("{} could not be written: {error}", mark.display())))?;
    let mut loading = Loading::new(actors, now);
    let mut appended = Ok(());
    read(place, &mut |item| {
        let changed = match item {
            Item::Field { .. } => None,
            Item::Functions(text) => loading.library(text).map_err(|error| error.to_string())?,
            Item::Key(entry) => {
                let taken = loading.key(entry.database, &entry.key, entry.expires_at, &entry.payload);
                Some(taken.map_err(|reason| format!("the key {}: {reason}", entry.key.escape_ascii()))?)
            }
        };
        if let Some(actor) = changed.filter(|actor| actor.changes().len() >= CHANGES_BYTES) {
            appended = append(actor, journal);
        }
        appended.as_ref().map_or_else(|error| Err(error.to_string()), |()| Ok(()))
    })
    .map_err(failed)?;
    let loaded = loading.end();
    for actor in actors {
        append(actor, journal).map_err(HostError::Log)?;
    }
    wait(journal)?;
    std::fs::remove_file(&mark).map_err(|error| failed(format!("{} could not be removed: {error}", mark.display())))?;
    tracing::info!(
        path = %place.display(), keys = loaded.keys, libraries = loaded.libraries, expired = loaded.expired, again = was_cut_off,
        "a file of Redis was read, because there were no keys yet; from now on they are in the log, and the file is not read again"
    );
    Ok(Some(loaded))
}

/// Gives all that a file has to `take`, up to its end with the right checksum.
fn read(place: &Path, take: &mut dyn FnMut(Item) -> Result<(), String>) -> Result<(), String> {
    let file = File::open(place).map_err(|error| error.to_string())?;
    let mut reader =
        FileReader::new(BufReader::with_capacity(BUFFER_BYTES, file)).map_err(|error| error.to_string())?;
    while let Some(item) = reader.next_item().map_err(|error| error.to_string())? {
        take(item)?;
    }
    Ok(())
}

/// Whether something could be taken.
fn check(item: &Item) -> Result<(), String> {
    match item {
        Item::Key(entry) => savanna_keys::keyspace::payload::restore(&entry.payload)
            .map(drop)
            .map_err(|_| format!("the value of the key {} is of no type that there is here", entry.key.escape_ascii())),
        Item::Field { .. } | Item::Functions(_) => Ok(()),
    }
}

fn keep_mark(mark: &Path) -> std::io::Result<()> {
    File::create(mark)?.sync_all()?;
    let directory = mark.parent().map_or_else(PathBuf::new, Path::to_owned);
    File::open(directory)?.sync_all()
}

fn append(actor: &mut Actor, journal: &Arc<Journal>) -> Result<(), JournalError> {
    actor.append_changes(|draft| Log::append(journal, draft, Sync::EverySecond)).map(drop)
}

/// Waits until all that was appended is durable.
fn wait(journal: &Journal) -> Result<(), HostError> {
    let (sender, outcome) = std::sync::mpsc::channel();
    journal.gate().hold(journal.appended(), move |durable| drop(sender.send(durable)));
    match outcome.recv() {
        Ok(durable) => durable.map_err(HostError::Log),
        Err(_) => Err(HostError::Log(JournalError::Stopped { reason: "the log has ended".to_owned() })),
    }
}
