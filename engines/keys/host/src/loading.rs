//! The file of Redis that is read at the first start: a node without a log has what is in it.
//!
//! The file is read twice. What is wrong with it is found before anything is kept. The log itself says when that begins and that all is
//! there: what has begun and not ended is void, whoever opens the log next, and is done again.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use savanna_journal::{Draft, Journal, JournalError, Lsn};
use savanna_keys::actor::Actor;
use savanna_keys::actor::loading::{Check, Loaded, Loading, is_half_loaded};
use savanna_keys::config::Sync;
use savanna_keys::log::{loaded, loading};
use savanna_keys_rdb::{FileReader, Item};
use savanna_lattice::UnixMillis;

use crate::error::HostError;
use crate::log::Log;

/// Of reads from the file.
const BUFFER_BYTES: usize = 1 << 20;
/// Changes of so many bytes are put into the log together.
const CHANGES_BYTES: usize = 1 << 20;

/// Reads the file at a place, if there is one and the log has nothing, or less than all of such a file. Says what there was.
pub(crate) fn load(
    place: Option<&Path>,
    journal: &Arc<Journal>,
    actors: &mut [Actor],
    now: UnixMillis,
) -> Result<Option<Loaded>, HostError> {
    let was_cut_off = is_half_loaded(actors);
    let place = place.map(|place| {
        place.try_exists().map(|is_there| is_there.then_some(place)).map_err(|error| failed(place, &error))
    });
    let place = place.transpose()?.flatten();
    if !was_cut_off && journal.appended() != Lsn::NONE {
        if let Some(place) = place {
            tracing::info!(
                path = %place.display(),
                "a file of Redis is there, and is not read, because the log has what the keys are; `savanna keys import` brings its keys"
            );
        }
        return Ok(None);
    }
    let Some(place) = place else {
        if was_cut_off {
            tracing::warn!(
                "a file of Redis was not read as a whole before, and is not there any more: there are no keys"
            );
            note(journal, loading()).and_then(|()| note(journal, loaded())).map_err(HostError::Log)?;
            wait(journal)?;
        }
        return Ok(None);
    };
    check(place).map_err(|reason| failed(place, &reason))?;
    note(journal, loading()).map_err(HostError::Log)?;
    let had = take(place, journal, actors, now).map_err(|reason| failed(place, &reason))?;
    for actor in actors {
        append(actor, journal).map_err(HostError::Log)?;
    }
    note(journal, loaded()).map_err(HostError::Log)?;
    wait(journal)?;
    tracing::info!(
        path = %place.display(), keys = had.keys, libraries = had.libraries, expired = had.expired, again = was_cut_off,
        "a file of Redis was read, because there were no keys yet; from now on they are in the log, and the file is not read again"
    );
    Ok(Some(had))
}

fn failed(place: &Path, reason: &dyn std::fmt::Display) -> HostError {
    HostError::Dump { path: place.to_owned(), reason: reason.to_string() }
}

/// Whether all that a file has can be taken.
fn check(place: &Path) -> Result<(), String> {
    let mut check = Check::default();
    read(place, &mut |item| match item {
        Item::Key(entry) => check
            .key(entry.database, &entry.payload)
            .map_err(|reason| format!("the key {}: {reason}", entry.key.escape_ascii())),
        Item::Functions(text) => check.library(text).map_err(|error| error.to_string()),
        Item::Field { .. } => Ok(()),
    })
}

/// Takes all that a file has, and appends most of it.
fn take(place: &Path, journal: &Arc<Journal>, actors: &mut [Actor], now: UnixMillis) -> Result<Loaded, String> {
    let mut loading = Loading::new(actors, now);
    read(place, &mut |item| {
        let changed = match item {
            Item::Field { .. } => None,
            Item::Functions(text) => loading.library(text).map_err(|error| error.to_string())?,
            Item::Key(entry) => {
                let taken = loading.key(entry.database, &entry.key, entry.expires_at, &entry.payload);
                Some(taken.map_err(|reason| format!("the key {}: {reason}", entry.key.escape_ascii()))?)
            }
        };
        match changed.filter(|actor| actor.changes().len() >= CHANGES_BYTES) {
            Some(actor) => append(actor, journal).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    })?;
    Ok(loading.end())
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

fn note(journal: &Arc<Journal>, draft: Draft<'_>) -> Result<(), JournalError> {
    Log::append(journal, draft, Sync::EverySecond).map(drop)
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use savanna_epoch::NodeEpoch;
    use savanna_journal::Options;
    use savanna_keys::config::Config;
    use savanna_keys::log::recover;
    use savanna_keys::placement::Routes;
    use savanna_keys_rdb::{FileWriter, Pieces};

    use super::*;
    use crate::service::{HostOptions, Service};
    use crate::worker::unix_now;

    /// A folder with a log and a file; each opening has its own epoch.
    struct Node {
        folder: tempfile::TempDir,
        epoch: u64,
    }

    impl Node {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().expect("a folder"), epoch: 0 }
        }

        fn file(&self) -> std::path::PathBuf {
            self.folder.path().join("dump.rdb")
        }

        fn log(&mut self) -> (Options, NodeEpoch) {
            self.epoch += 1;
            (Options::dir(self.folder.path().join("log")), NodeEpoch(self.epoch))
        }

        /// Puts keys into a database of the file, with a library.
        fn write(&self, database: u64, keys: &[&str], library: Option<&str>) {
            let mut pieces = Pieces::default();
            library.into_iter().for_each(|text| pieces.library(text.as_bytes()));
            for key in keys {
                pieces.key(database, key.as_bytes(), None, 0, |writer| writer.string(b"value"));
            }
            let mut writer = FileWriter::new(File::create(self.file()).expect("a file")).expect("a disk");
            writer.pieces(&pieces).expect("a disk");
            writer.end().expect("a disk");
        }

        /// Starts it and ends it. Says how many keys there are.
        fn start(&mut self) -> Result<u64, String> {
            let config = Config { dump_directory: Some(self.folder.path().to_owned()), ..Config::default() };
            let log = Some(self.log());
            let options = HostOptions { threads: 2, config, log, lease: None, seed: 1, elsewhere: None, spread: None };
            let opened = Service::open(options, vec![Waker::noop().clone(); 2]).map_err(|error| error.to_string());
            let (mut service, workers) = opened?;
            let count = workers.iter().map(|worker| worker.actor().figures().keys).sum();
            drop(workers);
            service.close().expect("a log");
            Ok(count)
        }

        /// A start that is cut off when it has put the file into the log but for the last word.
        fn start_in_part(&mut self) {
            let routes = Routes::over(2);
            let mut actors: Vec<Actor> =
                routes.all().map(|id| Actor::new(id, routes.clone(), Config::default(), 1)).collect();
            let (options, epoch) = self.log();
            let journal = recover(options, epoch, &mut actors).expect("a log");
            note(&journal, loading()).expect("a log");
            take(&self.file(), &journal, &mut actors, unix_now()).expect("a file");
            actors.iter_mut().for_each(|actor| append(actor, &journal).expect("a log"));
            wait(&journal).expect("a log");
            journal.close().expect("a log");
        }
    }

    #[test]
    fn what_cannot_be_taken_stops_the_start_and_leaves_nothing() {
        let broken = "#!lua name=broken\nerror('not now')";
        for (database, library, reason) in [(20, None, "database"), (0, Some(broken), "not now")] {
            let mut node = Node::new();
            node.write(database, &["a", "b"], library);
            let refusal = node.start().expect_err("it cannot be taken");
            assert!(refusal.contains(reason), "{refusal}");
            let mut actors = [Actor::new(savanna_keys::placement::ActorId(0), Routes::over(1), Config::default(), 1)];
            let (options, epoch) = node.log();
            let journal = recover(options, epoch, &mut actors).expect("a log");
            assert_eq!(journal.appended(), Lsn::NONE, "nothing was put into the log");
        }
    }

    #[test]
    fn a_file_of_which_a_part_was_loaded_is_not_served_in_part() {
        let mut node = Node::new();
        node.write(0, &["a", "b", "c"], None);
        node.start_in_part();
        std::fs::remove_file(node.file()).expect("it is there");
        assert_eq!(node.start(), Ok(0));
        assert_eq!(node.start(), Ok(0));
        node.write(0, &["later"], None);
        assert_eq!(node.start(), Ok(0), "the node has begun without it");
    }

    #[test]
    fn a_load_that_was_cut_off_is_done_again_with_the_file_that_is_there() {
        let mut node = Node::new();
        node.write(0, &["a", "b", "c"], None);
        node.start_in_part();
        node.start_in_part();
        node.write(0, &["d", "e"], None);
        assert_eq!(node.start(), Ok(2));
        node.write(0, &["f"], None);
        assert_eq!(node.start(), Ok(2), "it is not read again");
        std::fs::remove_file(node.file()).expect("it is there");
        assert_eq!(node.start(), Ok(2));
    }
}
