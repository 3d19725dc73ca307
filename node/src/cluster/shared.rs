//! What all nodes of a cluster reach: the logs of its services, and the rows of its tenants.
//!
//! ```text
//!  a data directory, on one machine    a store, from any machine
//!  D/keys/                             URL/keys/log/             the log of keys, opened by each owner under a higher epoch
//!  D/tenants/store/                    URL/tenants/store/        the rows of tenants
//!  D/tenants/logs/n1.3/                URL/tenants/logs/n1.3/    the log of one tenure, which it alone appends to
//!  D/keys-logs/n1.4/                   URL/keys-logs/n1.4/       the same of keys that are spread
//! ```

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path as ObjectPath;
use savanna_epoch::{LogId, NodeEpoch};
use savanna_journal::{JournalError, Options as JournalOptions, SealedLog, newest_epoch, seal};
use savanna_manifest::LocalStore;
use savanna_manifest::s3::Bucket;
use savanna_ownership::logs::LogPlace;

use crate::data_dir::{create_private, high_water};

/// The folder, or prefix, with the logs of tenures: of tenants, and of keys that are spread.
const TENANTS_LOGS: &str = "tenants/logs/";
const KEYS_LOGS: &str = "keys-logs/";

/// Why a log is not to be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    /// The place.
    #[error("the log at {place} cannot be looked at, or ended: {source}")]
    Log {
        /// Where it is.
        place: String,
        /// Why.
        source: JournalError,
    },
    /// The store.
    #[error(
        "{url} cannot be used as the store of the cluster: {source}; check cluster.store and the credentials in the environment"
    )]
    Store {
        /// Where it is.
        url: String,
        /// Why.
        source: object_store::Error,
    },
    /// The directory could not be made.
    #[error("the directory {path} could not be created: {source}; check the permissions of the data directory")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The log was deleted, or not all of it.
    #[error("the log at {path} could not be deleted: {source}")]
    Delete {
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is somewhere else.
    #[error(
        "expected a log where the nodes of this cluster keep theirs, its record says {0:?}; a later release wrote it"
    )]
    Elsewhere(LogPlace),
}

/// Where the store of a cluster is: `s3://BUCKET/PATH`, or `file:///FOLDER` of one machine, for tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// A bucket, and the path in it.
    Bucket(Bucket, ObjectPath),
    /// A folder, by its absolute path.
    Folder(PathBuf),
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bucket(bucket, path) => write!(f, "s3://{}/{path}", bucket.name),
            Self::Folder(folder) => write!(f, "file://{}", folder.display()),
        }
    }
}

impl StoreUrl {
    /// The place that a URL names; none if it is no such URL.
    #[must_use]
    pub fn parse(url: &str) -> Option<Self> {
        match url.strip_prefix("file://") {
            Some(folder) => {
                let folder = Path::new(folder);
                folder.is_absolute().then(|| Self::Folder(folder.components().collect()))
            }
            None => Bucket::of_url(url).map(|(bucket, path)| Self::Bucket(bucket, path)),
        }
    }

    /// A client of its own. It asks nothing yet.
    pub(super) fn connect(&self) -> Result<Arc<dyn ObjectStore>, PlaceError> {
        let store = match self {
            Self::Bucket(bucket, _) => bucket.connect().map(|store| Arc::new(store) as Arc<dyn ObjectStore>),
            Self::Folder(folder) => LocalStore::open(folder).map(|store| Arc::new(store) as Arc<dyn ObjectStore>),
        };
        store.map_err(|source| self.failed(source))
    }

    /// What is below the URL, as its store names it.
    pub(super) fn path(&self, below: &str) -> ObjectPath {
        let base = match self {
            Self::Bucket(_, path) => path.clone(),
            Self::Folder(_) => ObjectPath::default(),
        };
        below.split('/').fold(base, |path, part| path.join(part))
    }

    pub(super) fn failed(&self, source: object_store::Error) -> PlaceError {
        PlaceError::Store { url: self.to_string(), source }
    }
}

/// Where a cluster keeps what all its nodes reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    /// A data directory.
    Directory(PathBuf),
    /// A store.
    Store(StoreUrl),
}

/// The name of the place of a log of its own.
pub(super) fn name_of(log: &LogId) -> String {
    // A node may be called anything.
    let node = log.node.0.replace('%', "%25").replace('/', "%2F");
    let logs = if log.service == "keys" { KEYS_LOGS } else { TENANTS_LOGS };
    format!("{logs}{node}.{}", log.number)
}

/// A store, and where in it the rows of tenants are.
pub(crate) type Rows = (Arc<dyn ObjectStore>, ObjectPath);

impl Shared {
    /// The log of keys, which each owner opens under a higher epoch.
    pub(crate) fn keys_log(&self) -> Result<JournalOptions, PlaceError> {
        match self {
            Self::Directory(directory) => {
                let path = directory.join("keys");
                create_private(&path).map_err(|source| PlaceError::Directory { path: path.clone(), source })?;
                Ok(JournalOptions::dir(path).high_water(high_water(directory, "keys")))
            }
            Self::Store(url) => Ok(JournalOptions::store(url.connect()?, url.path("keys/log"))),
        }
    }

    /// Whether there is no log of keys that one node has for all.
    pub(crate) fn has_no_keys_log(&self) -> Result<bool, PlaceError> {
        let Self::Directory(directory) = self else { return Ok(true) };
        let place = LogPlace::Folder("keys".to_owned());
        let newest = newest_epoch(&directory.join("keys")).map_err(|source| self.failed(&place, source))?;
        Ok(newest == NodeEpoch::NONE)
    }

    /// The store of the rows of tenants; none if it is in the data directory.
    pub(crate) fn rows(&self) -> Result<Option<Rows>, PlaceError> {
        match self {
            Self::Directory(_) => Ok(None),
            Self::Store(url) => Ok(Some((url.connect()?, url.path("tenants/store")))),
        }
    }

    /// Where a log of its own is that a tenure begins.
    pub(crate) fn place_of(&self, log: &LogId) -> LogPlace {
        let place = name_of(log);
        match self {
            Self::Directory(_) => LogPlace::Folder(place),
            Self::Store(_) => LogPlace::Prefix(place),
        }
    }

    /// Makes the folder in which the log of a tenure is to be, for this user alone.
    pub(crate) fn make_private(&self, place: &LogPlace) -> Result<(), PlaceError> {
        let (Self::Directory(directory), LogPlace::Folder(folder)) = (self, place) else { return Ok(()) };
        let path = directory.join(folder);
        let parent = path.parent().unwrap_or(&path);
        create_private(parent).map_err(|source| PlaceError::Directory { path: parent.to_owned(), source })
    }

    /// How a log is opened.
    pub(crate) fn log(&self, place: &LogPlace) -> Result<JournalOptions, PlaceError> {
        match (self, place) {
            (Self::Directory(directory), LogPlace::Folder(folder)) => {
                let notes = high_water(directory, &notes(folder));
                Ok(JournalOptions::dir(directory.join(folder)).high_water(notes))
            }
            (Self::Store(url), LogPlace::Prefix(prefix)) => Ok(JournalOptions::store(url.connect()?, url.path(prefix))),
            (_, place) => Err(PlaceError::Elsewhere(place.clone())),
        }
    }

    /// An epoch above all under which a log was opened, at least this one. Those in a store belong to one tenure, and have no other.
    pub(crate) fn epoch_above(&self, place: &LogPlace, least: NodeEpoch) -> Result<NodeEpoch, PlaceError> {
        match (self, place) {
            (Self::Directory(directory), LogPlace::Folder(folder)) => {
                let newest = newest_epoch(&directory.join(folder)).map_err(|source| self.failed(place, source))?;
                Ok(least.max(newest.next()))
            }
            _ => Ok(least),
        }
    }

    /// Ends a log whose record says that it is sealed. Blocks.
    pub(crate) fn seal(&self, place: &LogPlace, epoch: NodeEpoch) -> Result<SealedLog, PlaceError> {
        let (options, epoch) = (self.log(place)?, self.epoch_above(place, epoch)?);
        seal(&options, epoch).map_err(|source| self.failed(place, source))
    }

    /// Deletes a log that nobody needs, if it is there. Of one in a store, what ends it stays. Blocks.
    pub(crate) fn delete(&self, place: &LogPlace) -> Result<(), PlaceError> {
        match (self, place) {
            (Self::Directory(directory), LogPlace::Folder(folder)) => {
                for path in [directory.join(folder), directory.join("high-water").join(notes(folder))] {
                    match std::fs::remove_dir_all(&path) {
                        Err(source) if source.kind() != io::ErrorKind::NotFound => {
                            return Err(PlaceError::Delete { path, source });
                        }
                        _ => {}
                    }
                }
                Ok(())
            }
            // It has ended: any epoch will do.
            _ => match self.seal(place, NodeEpoch(1)) {
                Ok(log) => log.empty().map_err(|source| self.failed(place, source)),
                Err(PlaceError::Log { source: JournalError::NoLog { .. }, .. }) => Ok(()),
                Err(error) => Err(error),
            },
        }
    }

    fn failed(&self, place: &LogPlace, source: JournalError) -> PlaceError {
        let (LogPlace::Folder(below) | LogPlace::Prefix(below) | LogPlace::Private(below)) = place;
        let place = match self {
            Self::Directory(directory) => directory.join(below).display().to_string(),
            Self::Store(url) => format!("{url}/{below}"),
        };
        PlaceError::Log { place, source }
    }
}

/// Where it is noted how far the log in a folder has been durable.
fn notes(folder: &str) -> String {
    match (folder.strip_prefix(TENANTS_LOGS), folder.strip_prefix(KEYS_LOGS)) {
        (Some(own), _) => format!("tenants-{own}"),
        (None, Some(own)) => format!("keys-{own}"),
        (None, None) => "tenants".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use savanna_epoch::NodeId;
    use savanna_journal::Journal;

    use super::*;

    fn log(node: &str) -> LogId {
        LogId::new(NodeId::new(node), 3, "tenants").unwrap()
    }

    fn open(shared: &Shared, place: &LogPlace, epoch: u64) -> Result<Journal, JournalError> {
        Journal::open(shared.log(place).unwrap(), NodeEpoch(epoch), &mut |_| Ok::<(), io::Error>(()))
    }

    #[test]
    fn each_log_has_a_folder_and_a_note_of_its_own_whatever_its_node_is_called() {
        let shared = Shared::Directory(PathBuf::from("/d"));
        let place = |node: &str| match shared.place_of(&log(node)) {
            LogPlace::Folder(folder) => (notes(&folder), folder),
            place => panic!("{place:?}"),
        };
        assert_eq!(place("n1"), ("tenants-n1.3".to_owned(), "tenants/logs/n1.3".to_owned()));
        assert_eq!(place("../a%").1, "tenants/logs/..%2Fa%25.3");
        assert_eq!(notes("tenants/log"), "tenants");
    }

    #[test]
    fn a_log_is_opened_and_ended_above_all_epochs_that_it_had_and_deleted_once() {
        let directory = tempfile::tempdir().unwrap();
        let shared = Shared::Directory(directory.path().to_owned());
        let place = LogPlace::Folder("tenants/logs/n1.1".to_owned());
        assert!(matches!(
            shared.seal(&place, NodeEpoch(1)),
            Err(PlaceError::Log { source: JournalError::NoLog { .. }, .. })
        ));
        assert_eq!(shared.epoch_above(&place, NodeEpoch(7)).unwrap(), NodeEpoch(7));
        open(&shared, &place, 7).unwrap().close().unwrap();
        assert_eq!(shared.epoch_above(&place, NodeEpoch(2)).unwrap(), NodeEpoch(8));
        shared.seal(&place, NodeEpoch(1)).unwrap();
        shared.seal(&place, NodeEpoch(1)).unwrap();
        assert!(directory.path().join("tenants/logs/n1.1").exists());
        for _ in 0..2 {
            shared.delete(&place).unwrap();
            assert!(!directory.path().join("tenants/logs/n1.1").exists());
            assert!(!directory.path().join("high-water/tenants-n1.1").exists());
        }
        shared.delete(&LogPlace::Private("a".to_owned())).unwrap_err();
    }

    #[test]
    fn a_log_in_a_store_leaves_what_ends_it_for_an_owner_that_wakes_up() {
        let directory = tempfile::tempdir().unwrap();
        let url = StoreUrl::parse(&format!("file://{}", directory.path().display())).unwrap();
        let shared = Shared::Store(url);
        let place = shared.place_of(&log("a/b"));
        shared.delete(&place).unwrap();
        let owner = open(&shared, &place, 7).unwrap();
        let draft = savanna_journal::Draft { shard: 1, kind: 1, payload: b"x" };
        owner.append(&[draft]).unwrap();
        let told = owner.append(&[draft]).unwrap();
        futures::executor::block_on(owner.wait_durable(told)).unwrap();
        assert_eq!(shared.seal(&place, NodeEpoch(8)).unwrap().last(), told);
        for _ in 0..2 {
            shared.delete(&place).unwrap();
            let folder = std::fs::read_dir(directory.path().join("tenants/logs")).unwrap().next().unwrap().unwrap();
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        }
        assert!(matches!(open(&shared, &place, 9), Err(JournalError::Sealed { .. })));
        let late = owner.append(&[draft]).unwrap();
        futures::executor::block_on(owner.wait_durable(late)).unwrap_err();
        shared.seal(&LogPlace::Folder("a".to_owned()), NodeEpoch(1)).unwrap_err();
    }

    #[test]
    fn a_url_names_a_bucket_or_a_folder() {
        for url in ["s3://shop/", "s3://shop/a/b", "file:///srv/a"] {
            assert_eq!(StoreUrl::parse(url).unwrap().to_string(), url);
        }
        assert_eq!(StoreUrl::parse("file:///srv//a/").unwrap().to_string(), "file:///srv/a");
        for url in ["", "/srv", "file://srv", "s3://", "http://a"] {
            assert_eq!(StoreUrl::parse(url), None, "{url}");
        }
        let path = |url: &str| StoreUrl::parse(url).unwrap().path("tenants/logs/..%2Fa.3").to_string();
        assert_eq!(path("s3://shop/x"), "x/tenants/logs/..%252Fa.3");
    }
}
