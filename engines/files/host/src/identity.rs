//! What an installation is called, for ever: data nodes keep it beside their blocks, and clients name blocks by it.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use crate::options::HostError;

/// What an installation is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Of all its name nodes and data nodes.
    pub cluster: String,
    /// Of its blocks.
    pub pool: String,
    /// Of the namespace.
    pub namespace: u32,
}

impl Identity {
    /// Reads it from a file, which is made if it is missing.
    pub(crate) fn of(directory: &Path, now: u64) -> Result<Self, HostError> {
        let path = directory.join("identity");
        let failed = |source| HostError::Directory { path: path.clone(), source };
        match fs::read_to_string(&path) {
            Ok(text) => Self::read(&text).ok_or_else(|| HostError::Identity { path: path.clone(), came: text }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let [a, b]: [u64; 2] = rand::random();
                let namespace = rand::random::<u32>() & 0x7fff_ffff;
                let cluster = format!("CID-{a:016x}{b:016x}");
                let pool = format!("BP-{}-127.0.0.1-{now}", rand::random::<u32>() & 0x7fff_ffff);
                let identity = Self { cluster, pool, namespace };
                let beside = directory.join("identity.new");
                let mut file = File::create(&beside).map_err(failed)?;
                let Self { cluster, pool, namespace } = &identity;
                writeln!(file, "{cluster}\n{pool}\n{namespace}").map_err(failed)?;
                file.sync_all().map_err(failed)?;
                fs::rename(&beside, &path).map_err(failed)?;
                File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)?;
                Ok(identity)
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let (cluster, pool) = (lines.next()?.to_owned(), lines.next()?.to_owned());
        let namespace = lines.next()?.parse().ok()?;
        (!cluster.is_empty() && !pool.is_empty()).then_some(Self { cluster, pool, namespace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let first = Identity::of(folder.path(), 1).unwrap();
        assert_eq!(Identity::of(folder.path(), 2).unwrap(), first);
        fs::write(folder.path().join("identity"), "half\n").unwrap();
        assert!(matches!(Identity::of(folder.path(), 3), Err(HostError::Identity { .. })));
    }
}
