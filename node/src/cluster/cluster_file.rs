//! The file of a cluster: `cluster.toml` in its data directory says who belongs to it.
//!
//! ```text
//! format = 1                    2 if the keys are spread over the nodes: earlier releases would serve them from one
//! id = "5e2f.."                 told in each greeting between nodes
//! secret = "90ab.."             proved in each greeting; whoever can read the file can be a node
//! log_epochs_above = 57         the logs of shards are opened under this plus the epoch of the shard
//! lease_ttl_us = 3000000        for how long a node lives that is not heard of: each counts by it, the node and who gives its name away
//! lease_margin_us = 500000      so much earlier it stops by itself
//! ```
//!
//! The first process that holds the directory writes it, before anybody else can. A directory that `savanna dev` has used before has logs
//! that were opened under epochs of its lease; those of shards begin above.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use savanna_epoch::{NodeEpoch, OwnerEpoch};
use savanna_ownership::LeaseTerms;
use savanna_rpc::{Cluster, MutualTls};

const FILE: &str = "cluster.toml";
const FORMAT: i64 = 1;
/// That of a cluster whose keys are spread.
const SPREAD_FORMAT: i64 = 2;

/// Who belongs to a cluster.
#[derive(Clone, Debug)]
pub(crate) struct ClusterFile {
    /// Shown in greetings.
    pub(crate) cluster: Cluster,
    /// The epochs of logs of shards are above this one.
    log_epochs_above: NodeEpoch,
    /// Of all nodes.
    lease: LeaseTerms,
    /// Whether its keys are spread over the nodes.
    pub(super) spreads_keys: bool,
}

/// Why there is no file of the cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterFileError {
    /// The file cannot be read or written.
    #[error("{path}: {doing} failed: {source}; check the permissions of the data directory")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Others can read it.
    #[error("{path}: expected a file that only its owner can read, as it holds the cluster's secret; `chmod 600` it")]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// This node would count its lease by another time than others do.
    #[error(
        "{path}: expected the lease of the cluster, lease.ttl = {ttl:?} and lease.margin = {margin:?}, came {came_ttl:?} and \
         {came_margin:?}; give this node the same settings as the others, or stop all nodes and change the file"
    )]
    Lease {
        /// The file.
        path: PathBuf,
        /// The cluster's.
        ttl: Duration,
        /// The cluster's.
        margin: Duration,
        /// The node's.
        came_ttl: Duration,
        /// The node's.
        came_margin: Duration,
    },
    /// It holds something else.
    #[error(
        "{path}: expected the file of a cluster in format {FORMAT} or {SPREAD_FORMAT}, came: {came}; it is damaged, or a later release wrote it"
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        came: String,
    },
}

/// Whether a data directory is a cluster's.
pub(crate) fn are_in(directory: &Path) -> bool {
    directory.join(FILE).exists()
}

impl ClusterFile {
    /// What was agreed on.
    pub(super) const fn new(
        cluster: Cluster,
        log_epochs_above: NodeEpoch,
        lease: LeaseTerms,
        spreads_keys: bool,
    ) -> Self {
        Self { cluster, log_epochs_above, lease, spreads_keys }
    }

    /// The file of the cluster in a data directory, if there is one, for a node with this lease.
    ///
    /// # Errors
    /// [`ClusterFileError`].
    pub(crate) fn read(directory: &Path, lease: LeaseTerms) -> Result<Option<Self>, ClusterFileError> {
        let path = directory.join(FILE);
        let io = |doing| {
            let path = path.clone();
            move |source| ClusterFileError::Io { path, doing, source }
        };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(io("reading")(source)),
        };
        if fs::metadata(&path).map_err(io("reading"))?.permissions().mode() & 0o077 != 0 {
            return Err(ClusterFileError::Open { path });
        }
        let file = Self::parse(&text).map_err(|came| ClusterFileError::Malformed { path: path.clone(), came })?;
        let [(ttl, margin), (came_ttl, came_margin)] = [file.lease, lease].map(|lease| (lease.ttl(), lease.margin()));
        if (ttl.as_micros(), margin.as_micros()) != (came_ttl.as_micros(), came_margin.as_micros()) {
            return Err(ClusterFileError::Lease { path, ttl, margin, came_ttl, came_margin });
        }
        Ok(Some(file))
    }

    /// The file of the cluster in a data directory that this process holds. It is made if there is none, and then it `spreads_keys` or not; no log
    /// in the directory was opened under a later epoch than `newest`.
    ///
    /// # Errors
    /// [`ClusterFileError`].
    pub(crate) fn ensure(
        directory: &Path,
        newest: NodeEpoch,
        lease: LeaseTerms,
        spreads_keys: bool,
    ) -> Result<Self, ClusterFileError> {
        if let Some(file) = Self::read(directory, lease)? {
            return Ok(file);
        }
        let path = directory.join(FILE);
        let new = directory.join(format!("{FILE}.new"));
        let write = || -> io::Result<()> {
            // What a process that was killed has left may have any mode.
            fs::remove_file(&new).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })?;
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(text(newest, lease, spreads_keys).as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(directory)?.sync_all()
        };
        write().map_err(|source| ClusterFileError::Io { path: path.clone(), doing: "writing", source })?;
        let none = || ClusterFileError::Malformed { path, came: "nothing, right after it was written".to_owned() };
        Self::read(directory, lease)?.ok_or_else(none)
    }

    /// The same, for a node that encrypts, or does not.
    pub(super) fn encrypted_by(self, tls: Option<&MutualTls>) -> Self {
        Self { cluster: self.cluster.encrypted_by(tls), ..self }
    }

    /// Under which the log of a shard is opened by who owns it under `epoch`.
    pub(crate) const fn log_epoch(&self, epoch: OwnerEpoch) -> NodeEpoch {
        NodeEpoch(self.log_epochs_above.0 + epoch.0)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
        let number = |key: &str| {
            let number = table.get(key).and_then(toml::Value::as_integer);
            number.ok_or_else(|| format!("no whole number `{key}`"))
        };
        let word = |key: &str| {
            let word = table.get(key).and_then(toml::Value::as_str).filter(|word| !word.is_empty());
            word.ok_or_else(|| format!("no text `{key}`"))
        };
        let spreads_keys = match number("format")? {
            FORMAT => false,
            SPREAD_FORMAT => true,
            came => return Err(format!("format {came}")),
        };
        let cluster = Cluster::new(word("id")?, word("secret")?.as_bytes()).map_err(|error| error.to_string())?;
        let whole = |key: &str| u64::try_from(number(key)?).map_err(|error| format!("{key}: {error}"));
        let [ttl, margin] = [whole("lease_ttl_us")?, whole("lease_margin_us")?].map(Duration::from_micros);
        let lease = LeaseTerms::new(ttl, margin).map_err(|error| error.to_string())?;
        Ok(Self { cluster, log_epochs_above: NodeEpoch(whole("log_epochs_above")?), lease, spreads_keys })
    }
}

fn text(newest: NodeEpoch, lease: LeaseTerms, spreads_keys: bool) -> String {
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    let (id, secret): ([u8; 8], [u8; 32]) = (rand::random(), rand::random());
    let format = if spreads_keys { SPREAD_FORMAT } else { FORMAT };
    format!(
        "# Who belongs to this cluster. Whoever knows the secret can be one of its nodes.\n\
         format = {format}\nid = \"{}\"\nsecret = \"{}\"\nlog_epochs_above = {newest}\n\
         lease_ttl_us = {}\nlease_margin_us = {}\n",
        hex(&id),
        hex(&secret),
        lease.ttl().as_micros(),
        lease.margin().as_micros()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> LeaseTerms {
        LeaseTerms::default()
    }

    #[test]
    fn keys_are_spread_if_the_cluster_was_made_so_and_earlier_releases_do_not_know_its_file() {
        for (made_so, format) in [(false, "format = 1\n"), (true, "format = 2\n")] {
            let directory = tempfile::tempdir().unwrap();
            ClusterFile::ensure(directory.path(), NodeEpoch(57), lease(), made_so).unwrap();
            let again = ClusterFile::ensure(directory.path(), NodeEpoch(57), lease(), !made_so).unwrap();
            assert_eq!(again.spreads_keys, made_so, "that was decided");
            assert!(fs::read_to_string(directory.path().join(FILE)).unwrap().contains(format));
        }
    }

    #[test]
    fn a_node_whose_lease_lasts_otherwise_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        ClusterFile::ensure(directory.path(), NodeEpoch(57), lease(), false).unwrap();
        let second = Duration::from_secs(1);
        for other in [(lease().ttl() * 2, lease().margin()), (lease().ttl(), lease().margin() * 2)] {
            let other = LeaseTerms::new(other.0, other.1).unwrap();
            for refused in [
                ClusterFile::read(directory.path(), other).map(drop),
                ClusterFile::ensure(directory.path(), NodeEpoch(58), other, false).map(drop),
            ] {
                assert!(matches!(refused, Err(ClusterFileError::Lease { .. })), "{refused:?}");
            }
        }
        let refused = ClusterFile::read(directory.path(), lease().with_ttl(second).unwrap()).unwrap_err().to_string();
        assert!(refused.contains("lease.ttl = 3s") && refused.contains("came 1s"), "{refused}");
    }

    #[test]
    fn papers_are_made_once_and_are_their_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        assert!(ClusterFile::read(directory.path(), lease()).unwrap().is_none() && !are_in(directory.path()));
        let made = ClusterFile::ensure(directory.path(), NodeEpoch(57), lease(), false).unwrap();
        assert!(are_in(directory.path()) && made.cluster.has_secret());
        assert_eq!(made.log_epoch(OwnerEpoch(1)), NodeEpoch(58));
        let path = directory.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = ClusterFile::ensure(directory.path(), NodeEpoch(90), lease(), false).unwrap();
        assert_eq!(again.log_epoch(OwnerEpoch(1)), NodeEpoch(58));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(ClusterFile::read(directory.path(), lease()), Err(ClusterFileError::Open { .. })));
    }

    #[test]
    fn what_are_no_papers_of_this_release_is_refused_with_the_reason() {
        let refused = |text: &str| ClusterFile::parse(text).unwrap_err();
        assert_eq!(refused("format = 3\n"), "format 3");
        assert_eq!(refused("id = 'x'"), "no whole number `format`");
        assert_eq!(refused("format = 1\nid = ''"), "no text `id`");
        assert!(refused("format = 1\nid = 'x'\nsecret = 'short'").contains("16 bytes"));
        let file = "format = 1\nid = 'x'\nsecret = '0123456789abcdef'\nlog_epochs_above = 1\n";
        assert_eq!(refused(file), "no whole number `lease_ttl_us`");
        assert!(refused("format =").contains("value"), "{}", refused("format ="));
    }
}
