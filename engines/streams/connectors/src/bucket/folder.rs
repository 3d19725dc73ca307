//! A folder of a file system as an object store: what was created is on disk, what was removed stays removed, and names come in order.

use std::fmt;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use savanna_manifest::LocalStore;
use tokio::task::spawn_blocking;

/// The folder.
#[derive(Debug)]
pub(super) struct Folder {
    files: LocalStore,
    root: Arc<FilePath>,
}

impl Folder {
    /// The folder, which is made if it is not there, for nobody but its owner.
    ///
    /// # Errors
    /// It cannot be made or read.
    pub(super) fn open(root: &FilePath) -> Result<Self> {
        make(root).map_err(|error| failed("make", root, &error))?;
        Ok(Self { files: LocalStore::open(root)?, root: root.into() })
    }
}

/// Makes a folder and what is missing above it, each with its name made durable.
fn make(folder: &FilePath) -> io::Result<()> {
    let missing: Vec<&FilePath> = folder.ancestors().take_while(|above| above.symlink_metadata().is_err()).collect();
    for folder in missing.iter().rev() {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        if let Some(above) = folder.parent() {
            File::open(above)?.sync_all()?;
        }
    }
    Ok(())
}

/// Makes durable which files a folder has, and which it has not any more.
async fn flush(folder: PathBuf) -> Result<()> {
    let flushed = spawn_blocking(move || (File::open(&folder).and_then(|open| open.sync_all()), folder)).await?;
    flushed.0.map_err(|error| failed("flush", &flushed.1, &error))
}

fn failed(what: &str, folder: &FilePath, error: &io::Error) -> Error {
    Error::Generic { store: "folder", source: format!("could not {what} `{}`: {error}", folder.display()).into() }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

#[async_trait::async_trait]
impl ObjectStore for Folder {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.files.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.files.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.files.get_opts(location, options).await
    }

    /// A name that comes back when the power fails would be one of an entry that counts no more.
    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let root = Arc::clone(&self.root);
        let deleted = self.files.delete_stream(locations).and_then(move |location| {
            let file = root.join(location.as_ref());
            async move {
                flush(file.parent().unwrap_or(&file).to_owned()).await?;
                Ok(location)
            }
        });
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        // The root has no name.
        let listed = self.files.list(prefix.filter(|prefix| !prefix.as_ref().is_empty()));
        stream::once(async move {
            let mut found: Vec<ObjectMeta> = listed.try_collect().await?;
            found.sort_unstable_by(|one, other| one.location.cmp(&other.location));
            Ok::<_, Error>(stream::iter(found.into_iter().map(Ok)))
        })
        .try_flatten()
        .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.files.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use savanna_power_cut::Power;

    use super::super::{Bucket, Created};

    #[test]
    fn objects_of_a_folder_are_created_once_listed_in_order_and_removed() {
        let all = tempfile::tempdir().unwrap();
        let root = all.path().join("a/b");
        let bucket = Bucket::of_url(&format!("file://{}", root.display()), Duration::from_secs(1)).unwrap();
        assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o700);
        let names: Vec<String> = (0..300).rev().map(|number| format!("log/{number:020}")).collect();
        for name in &names {
            assert_eq!(bucket.create(name, &"one".into()).unwrap(), Created::Now);
        }
        assert_eq!(bucket.create(&names[0], &"two".into()).unwrap(), Created::Before);
        assert_eq!(bucket.read(&names[0], 3).unwrap(), "one");
        let behind = bucket.list_behind("log", &names[200]).unwrap();
        assert!(behind.len() == 200 && behind.is_sorted() && behind[0] == names[199], "{behind:?}");
        assert_eq!(bucket.some_behind("", "log", 2).unwrap(), [names[299].clone(), names[298].clone()]);
        bucket.remove(&names[..298]).unwrap();
        bucket.remove(&names[..1]).unwrap();
        assert_eq!(bucket.list_behind("", "").unwrap(), [names[299].clone(), names[298].clone()]);
        assert!(bucket.claim("claim").unwrap() && !bucket.claim("claim").unwrap());
        // Another client of the same folder.
        let other = Bucket::of_url(&format!("file://{}/", root.display()), Duration::from_secs(1)).unwrap();
        assert_eq!(other.create("claim", &"three".into()).unwrap(), Created::Before);
        assert_eq!(other.describe("claim"), format!("file://{}/claim", root.display()));
    }

    #[test]
    fn what_was_created_outlives_a_loss_of_power_and_what_was_removed_does_not_come_back() {
        let machine = tempfile::tempdir().unwrap();
        let power = Power::of(machine.path()).unwrap();
        let at = |root: &std::path::Path| {
            Bucket::of_url(&format!("file://{}/kept/q", root.display()), Duration::from_secs(1)).unwrap()
        };
        let bucket = at(machine.path());
        let names = ["log/1", "log/2", "snapshots/1"].map(str::to_owned);
        for name in &names {
            assert_eq!(bucket.create(name, &"one".into()).unwrap(), Created::Now);
        }
        let left = || {
            let left = tempfile::tempdir().unwrap();
            power.cut(left.path()).unwrap();
            at(left.path()).list_behind("", "").unwrap()
        };
        assert_eq!(left(), names);
        bucket.remove(&names[..1]).unwrap();
        assert_eq!(left(), names[1..]);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_told_by_its_name() {
        let all = tempfile::tempdir().unwrap();
        let file = all.path().join("file");
        fs::write(&file, "x").unwrap();
        let url = format!("file://{}/below", file.display());
        let error = Bucket::of_url(&url, Duration::from_secs(1)).map(drop).unwrap_err().to_string();
        assert!(error.contains(&url) && error.contains("could not make"), "{error}");
        for url in ["file://a/b", "file:/a", "file://", "gs://a/b"] {
            let error = Bucket::of_url(url, Duration::from_secs(1)).map(drop).unwrap_err().to_string();
            assert!(error.contains("expected s3://BUCKET/FOLDER or file:///FOLDER"), "{error}");
        }
    }
}
