//! Where a table of Delta lies.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::sink::GiveUp;

use crate::bucket::{Bucket, Created, unique};
use crate::roots::is_url;

/// The folder of the log.
pub(super) const LOG: &str = "_delta_log";
/// An entry or a checkpoint of the log that is longer is none.
const LOG_FILE_MAX: u64 = 1 << 30;

/// A folder of a bucket, or a directory.
#[derive(Debug)]
pub(super) enum Place {
    Bucket(Box<Bucket>),
    Directory(PathBuf),
}

impl Place {
    pub(super) fn new(path: &str, retry: Duration) -> Result<Self> {
        Ok(match is_url(path) {
            true => Self::Bucket(Box::new(Bucket::of_url(path, retry)?)),
            false => Self::Directory(path.into()),
        })
    }

    /// How messages name what is there.
    pub(super) fn describe(&self, name: &str) -> String {
        match self {
            Self::Bucket(bucket) => bucket.describe(name),
            Self::Directory(directory) => directory.join(name).display().to_string(),
        }
    }

    /// Creates a file, durably, if there is none of its name.
    ///
    /// # Errors
    /// The store or the disk refuses it.
    pub(super) fn create(&self, name: &str, bytes: &Bytes) -> Result<Created> {
        match self {
            Self::Bucket(bucket) => bucket.create(name, bytes),
            Self::Directory(directory) => {
                let failed = |e: io::Error| StreamError::io(format!("write {}", self.describe(name)), &e);
                create(&directory.join(name), bytes, &unique()?).map_err(failed)
            }
        }
    }

    /// Whether a store refuses to create what is there already; a disk does.
    ///
    /// # Errors
    /// It does not, or does not answer.
    pub(super) fn check_conditions(&self) -> Result<()> {
        let Self::Bucket(bucket) = self else { return Ok(()) };
        // Nobody else has this name, and readers of Delta pass it over.
        let name = in_log(&format!("_probe-{}", unique()?));
        bucket.create(&name, &Bytes::from_static(b"a"))?;
        let again = bucket.create(&name, &Bytes::from_static(b"b"))?;
        bucket.remove(std::slice::from_ref(&name))?;
        match again {
            Created::Before => Ok(()),
            Created::Now => Err(StreamError::invalid(format!(
                "{} was written over: the store does not honour `If-None-Match: *`, without which rows could be lost; use one that does",
                bucket.describe(&name)
            ))),
        }
    }

    /// Makes the directory of a table that is made, durably.
    ///
    /// # Errors
    /// The disk refuses it.
    pub(super) fn make(&self) -> Result<()> {
        let Self::Directory(directory) = self else { return Ok(()) };
        let log = directory.join(LOG);
        let failed = |e: io::Error| StreamError::io(format!("make {}", log.display()), &e);
        fs::create_dir_all(&log).map_err(failed)?;
        // A former process may have made some of them and ended before they were on disk.
        let whole = std::path::absolute(&log).map_err(failed)?;
        for made in whole.ancestors() {
            match sync(made) {
                // Not ours to make durable, or a file system whose folders cannot be synced, which has made none of them.
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::Unsupported
                    ) =>
                {
                    break;
                }
                synced => synced.map_err(failed)?,
            }
        }
        Ok(())
    }

    /// Whether a file of the log is there.
    ///
    /// # Errors
    /// The store or the disk does not tell.
    pub(super) fn has(&self, name: &str) -> Result<bool> {
        match self {
            Self::Bucket(bucket) => Ok(bucket.tag(name)?.is_some()),
            Self::Directory(directory) => {
                let found = fs::exists(directory.join(name));
                found.map_err(|e| StreamError::io(format!("look at {}", self.describe(name)), &e))
            }
        }
    }

    /// Removes a file, durably.
    ///
    /// # Errors
    /// The store or the disk refuses it.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        match self {
            Self::Bucket(bucket) => bucket.remove(&[name.to_owned()]),
            Self::Directory(directory) => {
                let path = directory.join(name);
                let removed = fs::remove_file(&path).and_then(|()| path.parent().map_or(Ok(()), sync));
                removed.map_err(|e| StreamError::io(format!("remove {}", self.describe(name)), &e))
            }
        }
    }

    /// A file of the log.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(&self, name: &str) -> Result<Bytes> {
        match self {
            Self::Bucket(bucket) => bucket.read(name, LOG_FILE_MAX),
            Self::Directory(directory) => {
                let read = fs::read(directory.join(name));
                read.map(Bytes::from).map_err(|e| StreamError::io(format!("read {}", self.describe(name)), &e))
            }
        }
    }

    /// Some files of the log, in their order.
    ///
    /// # Errors
    /// One cannot be read.
    pub(super) fn read_all(&self, names: &[String]) -> Result<Vec<Bytes>> {
        match self {
            Self::Bucket(bucket) => bucket.read_all(names, LOG_FILE_MAX),
            Self::Directory(_) => names.iter().map(|name| self.read(name)).collect(),
        }
    }

    /// The names of the files of the log that come behind one, in order.
    ///
    /// # Errors
    /// The store or the disk does not tell.
    pub(super) fn log_behind(&self, name: &str) -> Result<Vec<String>> {
        let mut names = match self {
            Self::Bucket(bucket) => bucket.list_behind(LOG, &in_log(name))?,
            Self::Directory(directory) => {
                let failed = |e: io::Error| StreamError::io(format!("list {}", self.describe(LOG)), &e);
                match fs::read_dir(directory.join(LOG)) {
                    Ok(files) => {
                        let names = files.map(|file| Ok(in_log(&file?.file_name().to_string_lossy())));
                        names.collect::<io::Result<Vec<_>>>().map_err(failed)?
                    }
                    Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
                    Err(e) => return Err(failed(e)),
                }
            }
        };
        names.retain(|found| *found > in_log(name));
        names.sort_unstable();
        Ok(names)
    }

    /// Ends waiting for a bucket, now and later; none for a disk.
    pub(super) fn give_up(&self) -> Option<GiveUp> {
        match self {
            Self::Bucket(bucket) => Some(std::sync::Arc::new(bucket.give_up())),
            Self::Directory(_) => None,
        }
    }
}

/// The name of a file of the log.
pub(super) fn in_log(name: &str) -> String {
    if name.is_empty() { LOG.to_owned() } else { format!("{LOG}/{name}") }
}

/// Creates a file with all that is in it: who sees its name sees that, also after a loss of power.
fn create(path: &Path, bytes: &Bytes, unique: &str) -> io::Result<Created> {
    let parent = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent)?;
    // What a crash leaves of it in the table's directory goes with VACUUM, which passes other beginnings over.
    let hidden = parent.join(if parent.ends_with(LOG) { format!("_{unique}.tmp") } else { format!("tmp-{unique}") });
    let mut file = File::create_new(&hidden)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let linked = written.and_then(|()| match fs::hard_link(&hidden, path) {
        Ok(()) => Ok(Created::Now),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(Created::Before),
        Err(e) => Err(e),
    });
    let removed = fs::remove_file(&hidden);
    let created = linked?;
    removed?;
    sync(parent)?;
    Ok(created)
}

fn sync(directory: &Path) -> io::Result<()> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_created_once_and_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::new(&directory.path().join("a/b").to_string_lossy(), Duration::ZERO).unwrap();
        assert_eq!(place.log_behind("").unwrap(), [""; 0]);
        assert_eq!(place.create("_delta_log/2", &Bytes::from_static(b"x")).unwrap(), Created::Now);
        assert_eq!(place.create("_delta_log/2", &Bytes::from_static(b"y")).unwrap(), Created::Before);
        assert_eq!(place.create("_delta_log/1", &Bytes::from_static(b"z")).unwrap(), Created::Now);
        assert_eq!(place.read("_delta_log/2").unwrap(), "x");
        assert_eq!(place.log_behind("").unwrap(), ["_delta_log/1", "_delta_log/2"]);
        assert_eq!(place.log_behind("1").unwrap(), ["_delta_log/2"]);
        assert!(place.create("part", &Bytes::new()).is_ok() && place.make().is_ok());
        assert!(place.has("_delta_log/2").unwrap() && !place.has("_delta_log/3").unwrap());
        place.remove("_delta_log/2").unwrap();
        assert_eq!(place.log_behind("").unwrap(), ["_delta_log/1"]);
    }
}
