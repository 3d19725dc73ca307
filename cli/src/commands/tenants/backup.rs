//! Backups of tenants: from the node to a file or an object, and back. What is not whole has no name there.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::aws::AmazonS3;
use object_store::buffered::BufWriter;
use object_store::{ObjectStoreExt, path::Path as ObjectPath};
use reqwest::{Body, Method};
use savanna_manifest::s3::Bucket;
use tempfile::NamedTempFile;
use tokio::io::AsyncWriteExt;

use crate::client::{Client, path_part, send};
use crate::error::CliError;
use crate::progress::LiveLine;

/// What is read of a file at once.
const PIECE_BYTES: usize = 1 << 20;

/// Where a backup is, or is to be.
enum Place {
    File(PathBuf),
    Object(Arc<AmazonS3>, ObjectPath),
}

impl Place {
    fn of(text: &str) -> Result<Self, CliError> {
        if !text.contains("://") {
            return Ok(Self::File(PathBuf::from(text)));
        }
        let (bucket, path) = Bucket::of_url(text).filter(|(_, path)| !path.as_ref().is_empty()).ok_or_else(|| {
            CliError::Usage(format!("expected the path of a file or s3://BUCKET/PATH, but `{text}` came"))
        })?;
        let store = bucket.connect().map_err(|error| failed(text, error))?;
        Ok(Self::Object(Arc::new(store), path))
    }

    /// Its bytes and their number.
    async fn read(self, text: &str) -> Result<(u64, BoxStream<'static, io::Result<Bytes>>), CliError> {
        match self {
            Self::File(path) => {
                let file = File::open(&path).map_err(CliError::io(format!("opening {text}")))?;
                let length = file.metadata().map_err(CliError::io(format!("opening {text}")))?.len();
                Ok((length, stream::try_unfold(file, next_piece).boxed()))
            }
            Self::Object(store, path) => {
                let object = store.get(&path).await.map_err(|error| failed(text, error))?;
                Ok((object.meta.size, object.into_stream().map_err(io::Error::other).boxed()))
            }
        }
    }
}

async fn next_piece(mut file: File) -> io::Result<Option<(Bytes, File)>> {
    let mut piece = vec![0; PIECE_BYTES];
    let length = file.read(&mut piece)?;
    piece.truncate(length);
    Ok((length > 0).then(|| (Bytes::from(piece), file)))
}

/// A backup that comes to be. Dropped, it leaves nothing under its name.
enum Target {
    File { file: NamedTempFile, path: PathBuf },
    Object(BufWriter),
}

impl Target {
    async fn new(place: Place, text: &str) -> Result<Self, CliError> {
        let occupied = || CliError::Usage(format!("{text} is there already; name another place, or remove it"));
        match place {
            Place::File(path) if path.exists() => Err(occupied()),
            Place::File(path) => {
                let file = NamedTempFile::new_in(directory(&path)).map_err(CliError::io(format!("making {text}")))?;
                Ok(Self::File { file, path })
            }
            Place::Object(store, path) => match store.head(&path).await {
                Ok(_) => Err(occupied()),
                Err(object_store::Error::NotFound { .. }) => Ok(Self::Object(BufWriter::new(store, path))),
                Err(error) => Err(failed(text, error)),
            },
        }
    }

    async fn write(&mut self, piece: Bytes) -> io::Result<()> {
        match self {
            Self::File { file, .. } => file.write_all(&piece),
            Self::Object(writer) => writer.put(piece).await.map_err(io::Error::other),
        }
    }

    /// All of it is written: it gets its name.
    async fn finish(self) -> io::Result<()> {
        match self {
            Self::File { file, path } => {
                file.as_file().sync_all()?;
                file.persist_noclobber(&path)?;
                File::open(directory(&path))?.sync_all()
            }
            Self::Object(mut writer) => writer.shutdown().await,
        }
    }

    async fn give_up(self) {
        if let Self::Object(mut writer) = self {
            // What was sent has no name; the store's own rules remove it.
            drop(writer.abort().await);
        }
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

fn failed(text: &str, error: object_store::Error) -> CliError {
    CliError::Io { doing: format!("using {text}"), source: io::Error::other(error) }
}

/// Writes a tenant's backup. Returns its length.
pub(super) async fn write(client: &Client, tenant: &str, text: &str) -> Result<u64, CliError> {
    let mut target = Target::new(Place::of(text)?, text).await?;
    let copied = copy(client, tenant, text, &mut target).await;
    match copied {
        Ok(bytes) => {
            target.finish().await.map_err(CliError::io(format!("writing {text}")))?;
            Ok(bytes)
        }
        Err(error) => {
            target.give_up().await;
            Err(error)
        }
    }
}

async fn copy(client: &Client, tenant: &str, text: &str, target: &mut Target) -> Result<u64, CliError> {
    let cut = |reason: String| CliError::NoNode { url: client.url().to_owned(), reason };
    let request = client.long_request(Method::GET, &format!("tenants/{}/backup", path_part(tenant)));
    let mut answer = send(request).await.map_err(|error| client.explain(error))?;
    let all = answer.content_length().ok_or_else(|| cut("it did not say how long the backup is".to_owned()))?;
    let (mut done, mut line) = (0, LiveLine::new());
    while let Some(piece) = answer.chunk().await.map_err(|error| cut(format!("the backup was cut short: {error}")))? {
        done += piece.len() as u64;
        target.write(piece).await.map_err(CliError::io(format!("writing {text}")))?;
        if line.due() {
            line.show_bytes(done, all);
        }
    }
    line.clear();
    if done == all { Ok(all) } else { Err(cut(format!("the backup was cut short: {done} of {all} bytes came"))) }
}

/// Makes a tenant of a backup.
pub(super) async fn restore(client: &Client, tenant: &str, text: &str) -> Result<(), CliError> {
    let (all, pieces) = Place::of(text)?.read(text).await?;
    let mut line = LiveLine::new();
    let mut done = 0;
    let pieces = pieces.inspect_ok(move |piece| {
        done += piece.len() as u64;
        if done == all {
            line.clear();
        } else if line.due() {
            line.show_bytes(done, all);
        }
    });
    let path = format!("tenants/{}/restore", path_part(tenant));
    let request = client.long_request(Method::POST, &path).body(Body::wrap_stream(pieces));
    send(request).await.map_err(|error| client.explain(error))?;
    Ok(())
}
