//! The lock that says of a query that it is being written to a directory.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use savanna_streams_api::{Result, StreamError};

/// A lock of a query. It goes with its process.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
    _locked: File,
}

impl Claim {
    /// None if somebody else holds it.
    pub(super) fn of(directory: &Path, query: &str) -> Result<Option<Self>> {
        let path = directory.join(format!("._writer-{query}"));
        let failed = |what: &str, e: &std::io::Error| StreamError::io(format!("{what} {}", path.display()), e);
        loop {
            let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
            let file = open.map_err(|e| failed("open", &e))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(e)) => return Err(failed("lock", &e)),
            }
            // Whoever held it before has removed its file meanwhile: another one would lock nothing.
            let locked = file.metadata().map_err(|e| failed("look at", &e))?;
            if fs::metadata(&path).is_ok_and(|named| (named.dev(), named.ino()) == (locked.dev(), locked.ino())) {
                return Ok(Some(Self { path, _locked: file }));
            }
        }
    }

    /// The lock of a query that is about to be written.
    ///
    /// # Errors
    /// Somebody else holds it: two that write would write rows twice.
    pub(super) fn of_writer(directory: &Path, query: &str) -> Result<Self> {
        Self::of(directory, query)?.ok_or_else(|| {
            StreamError::invalid(format!(
                "query {query} is being written to {} by another process, or by itself before it was stopped; wait for its end, or end that \
                 process, then RESUME QUERY",
                directory.display()
            ))
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A file that stays locks nothing.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_written_by_one() {
        let directory = tempfile::tempdir().unwrap();
        let first = Claim::of_writer(directory.path(), "q").unwrap();
        let error = Claim::of_writer(directory.path(), "q").unwrap_err().to_string();
        assert!(error.contains("query q is being written to"), "{error}");
        assert!(Claim::of(directory.path(), "other").unwrap().is_some());
        drop(first);
        Claim::of_writer(directory.path(), "q").unwrap();
    }
}
