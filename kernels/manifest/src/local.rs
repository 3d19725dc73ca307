//! Objects in a local directory that survive a crash of the operating system.
//!
//! `object_store`'s own [`LocalFileSystem`] never flushes, so what it acknowledged may be empty or gone after a power
//! cut. Here a put is acknowledged once it is on disk:
//!
//! ```text
//! write NAME#N  ->  fsync file  ->  link or rename to NAME  ->  fsync directory  ->  acknowledged
//! ```
//!
//! A name appears only with its whole content. A listing flushes the directory before it answers, so that nobody acts
//! on a name that a crash could take back. It survives crashes of the process and of the operating system, not the
//! loss of the disk.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

/// Staged files older than this belong to a process that died while writing.
const STAGED_AGE_MAX: Duration = Duration::from_secs(3600);

const STORE: &str = "LocalStore";

/// An object store in a directory. See the module's description for what it survives.
#[derive(Clone, Debug)]
pub struct LocalStore {
    files: Arc<LocalFileSystem>,
    root: Arc<FilePath>,
    staged: Arc<AtomicU64>,
    /// Set by the first failed flush: what the disk holds is unknown from then on, and flushing again would not tell.
    failed: Arc<AtomicBool>,
    /// Directories whose names are known to be on disk.
    durable: Arc<Mutex<HashSet<PathBuf>>>,
}

impl LocalStore {
    /// The store in a directory, which is created if absent. Removes what writers that died left half-written.
    ///
    /// # Errors
    /// If the directory cannot be created, flushed or read.
    pub fn open(root: &FilePath) -> Result<Self> {
        create_directories(root).map_err(|error| failure("create the directory", root, &error))?;
        let root = fs::canonicalize(root).map_err(|error| failure("open the directory", root, &error))?;
        remove_stale_stages(&root).map_err(|error| failure("clean up the directory", &root, &error))?;
        Ok(Self {
            files: Arc::new(LocalFileSystem::new_with_prefix(&root)?),
            root: root.into(),
            staged: Arc::new(AtomicU64::new(0)),
            failed: Arc::new(AtomicBool::new(false)),
            durable: Arc::default(),
        })
    }

    fn check(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) {
            return Err(unsupported(format!(
                "a flush to `{}` failed earlier, so what it holds is unknown: stop the process, check the disk, start again",
                self.root.display()
            )));
        }
        Ok(())
    }

    /// Runs a flush; the first that fails stops the store.
    fn flush(&self, path: &FilePath, flush: impl FnOnce() -> io::Result<()>) -> Result<()> {
        flush().map_err(|error| {
            self.failed.store(true, Ordering::Release);
            failure("flush", path, &error)
        })
    }

    fn flush_directory(&self, directory: &FilePath) -> Result<()> {
        self.flush(directory, || match File::open(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            opened => opened?.sync_all(),
        })
    }

    fn put_blocking(&self, target: &FilePath, payload: &PutPayload, mode: &PutMode) -> Result<()> {
        let directory =
            target.parent().ok_or_else(|| unsupported(format!("`{}` has no directory", target.display())))?;
        self.ensure_directory(directory)?;
        let stage = self.stage_path(target);
        let placed = self.write_stage(&stage, payload).and_then(|()| match mode {
            PutMode::Create => place_if_absent(&stage, target),
            _ => fs::rename(&stage, target).map_err(|error| failure("rename into place", target, &error)),
        });
        // Gone already after a rename. What cannot be removed now is removed by a later `open`.
        let _ = fs::remove_file(&stage);
        // Also when the name was taken: whoever is told that it exists may rely on it.
        self.flush_directory(directory)?;
        placed
    }

    /// Creates a directory and makes it durable, once per store: another process may have created it and not flushed
    /// it yet.
    fn ensure_directory(&self, directory: &FilePath) -> Result<()> {
        if self.durable.lock().contains(directory) {
            return Ok(());
        }
        fs::create_dir_all(directory).map_err(|error| failure("create the directory", directory, &error))?;
        for above in directory.ancestors().skip(1) {
            self.flush_directory(above)?;
            if *above == *self.root {
                break;
            }
        }
        self.durable.lock().insert(directory.to_owned());
        Ok(())
    }

    fn write_stage(&self, stage: &FilePath, payload: &PutPayload) -> Result<()> {
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).open(stage)?;
            payload.iter().try_for_each(|chunk| file.write_all(chunk)).map(|()| file)
        };
        let file = write().map_err(|error| failure("write", stage, &error))?;
        self.flush(stage, || file.sync_all())
    }

    /// A name that listings of [`LocalFileSystem`] hide: the target, `#`, digits.
    fn stage_path(&self, target: &FilePath) -> PathBuf {
        let count = self.staged.fetch_add(1, Ordering::Relaxed);
        let mut stage = target.as_os_str().to_owned();
        stage.push(format!("#{:010}{:010}{:06}", std::process::id(), count, rand::random_range(0..1_000_000)));
        stage.into()
    }

    fn list_durably(
        &self,
        prefix: Option<&Path>,
        listed: BoxStream<'static, Result<ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let store = self.clone();
        let directory =
            prefix.map_or_else(|| Ok(self.root.to_path_buf()), |prefix| self.files.path_to_filesystem(prefix));
        futures::stream::once(async move {
            store.check()?;
            let found: Vec<_> = listed.try_collect().await?;
            let directory = directory?;
            blocking(move || store.flush_directory(&directory)).await?;
            Ok::<_, Error>(futures::stream::iter(found.into_iter().map(Ok)))
        })
        .try_flatten()
        .boxed()
    }
}

impl fmt::Display for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{STORE}({})", self.root.display())
    }
}

#[async_trait]
impl ObjectStore for LocalStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.check()?;
        if matches!(options.mode, PutMode::Update(_)) || !options.attributes.is_empty() {
            return Err(unsupported(
                "conditional updates and attributes are not supported: create a new object instead".to_owned(),
            ));
        }
        let target = self.files.path_to_filesystem(location)?;
        let store = self.clone();
        blocking(move || store.put_blocking(&target, &payload, &options.mode)).await?;
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn put_multipart_opts(
        &self,
        _location: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(unsupported("multi-part uploads are not supported: write the object with one put".to_owned()))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.check()?;
        self.files.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.check()?;
        self.files.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.files.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_durably(prefix, self.files.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_durably(prefix, self.files.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.check()?;
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(unsupported("copies are not supported: read the object and put it under the new name".to_owned()))
    }
}

/// Links the staged file to its name, unless the name is taken.
fn place_if_absent(stage: &FilePath, target: &FilePath) -> Result<()> {
    fs::hard_link(stage, target).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Error::AlreadyExists { path: target.display().to_string(), source: error.into() }
        }
        _ => failure("link into place", target, &error),
    })
}

/// Creates a directory and those above it, each flushed into its parent.
fn create_directories(directory: &FilePath) -> io::Result<()> {
    if directory.as_os_str().is_empty() || directory.is_dir() {
        return Ok(());
    }
    let parent = directory.parent().unwrap_or_else(|| FilePath::new("/"));
    create_directories(parent)?;
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let parent = if parent.as_os_str().is_empty() { FilePath::new(".") } else { parent };
    File::open(parent)?.sync_all()
}

fn remove_stale_stages(directory: &FilePath) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_stale_stages(&entry.path())?;
        } else if is_stage(&entry.file_name().to_string_lossy()) && is_older_than(&entry, STAGED_AGE_MAX) {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

fn is_stage(name: &str) -> bool {
    name.rsplit_once('#').is_some_and(|(_, count)| count.len() == 26 && count.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_older_than(entry: &fs::DirEntry, age: Duration) -> bool {
    let modified = entry.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|elapsed| elapsed > age))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await?
}

fn failure(operation: &str, path: &FilePath, error: &io::Error) -> Error {
    let text = format!("could not {operation} `{}`: {error}", path.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            Error::PermissionDenied { path: path.display().to_string(), source: text.into() }
        }
        _ => Error::Generic { store: STORE, source: text.into() },
    }
}

fn unsupported(text: String) -> Error {
    Error::NotSupported { source: text.into() }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;

    use super::*;

    #[tokio::test]
    async fn a_name_is_created_once_and_keeps_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let store = LocalStore::open(directory.path()).unwrap();
        let path = Path::from("a/b");
        store.put_opts(&path, "one".into(), PutMode::Create.into()).await.unwrap();
        let again = store.put_opts(&path, "two".into(), PutMode::Create.into()).await;
        assert!(matches!(again, Err(Error::AlreadyExists { .. })), "{again:?}");
        assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "one");
        let names: Vec<_> =
            fs::read_dir(directory.path().join("a")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["b"], "no staged file is left");
    }

    #[tokio::test]
    async fn after_a_failed_flush_nothing_is_answered_any_more() {
        let directory = tempfile::tempdir().unwrap();
        let store = LocalStore::open(directory.path()).unwrap();
        store.flush(directory.path(), || Err(io::Error::other("disk on fire"))).unwrap_err();
        let refused = store.put(&Path::from("a"), "one".into()).await.unwrap_err();
        assert!(refused.to_string().contains("stop the process"), "{refused}");
        assert!(store.get(&Path::from("a")).await.is_err());
        assert!(store.list(None).try_collect::<Vec<_>>().await.is_err());
    }

    #[tokio::test]
    async fn staged_files_are_hidden_and_the_stale_are_removed_on_open() {
        let directory = tempfile::tempdir().unwrap();
        let store = LocalStore::open(directory.path()).unwrap();
        let (fresh, stale) =
            (store.stage_path(&directory.path().join("x")), store.stage_path(&directory.path().join("y")));
        fs::write(&fresh, "half").unwrap();
        fs::write(&stale, "half").unwrap();
        let long_ago = std::time::SystemTime::now() - 2 * STAGED_AGE_MAX;
        File::options().write(true).open(&stale).unwrap().set_modified(long_ago).unwrap();
        let store = LocalStore::open(directory.path()).unwrap();
        assert!(fresh.exists() && !stale.exists());
        assert!(store.list(None).try_collect::<Vec<_>>().await.unwrap().is_empty());
    }
}
