//! Stores that change what another store does: the places where faults and sabotage are put in.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use savanna_manifest::{OwnerEpoch, Snapshot, WriterId};

/// The four operations that the manifest uses; each passes through unless it is overridden.
#[async_trait]
pub(crate) trait Layer: fmt::Debug + Send + Sync + 'static {
    fn inner(&self) -> &Arc<dyn ObjectStore>;

    async fn put(&self, path: Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner().put_opts(&path, payload, options).await
    }

    async fn get(&self, path: Path, options: GetOptions) -> Result<GetResult> {
        self.inner().get_opts(&path, options).await
    }

    async fn delete(&self, path: Path) -> Result<()> {
        delete_from(self.inner(), path).await
    }

    async fn list(&self, folder: Option<Path>, offset: Option<Path>) -> Result<Vec<ObjectMeta>> {
        list_from(self.inner(), folder, offset).await
    }
}

pub(crate) async fn delete_from(store: &Arc<dyn ObjectStore>, path: Path) -> Result<()> {
    let paths = futures::stream::once(async { Ok(path) }).boxed();
    store.delete_stream(paths).try_for_each(|_| async { Ok(()) }).await
}

pub(crate) async fn list_from(
    store: &Arc<dyn ObjectStore>,
    folder: Option<Path>,
    offset: Option<Path>,
) -> Result<Vec<ObjectMeta>> {
    match offset {
        Some(offset) => store.list_with_offset(folder.as_ref(), &offset).try_collect().await,
        None => store.list(folder.as_ref()).try_collect().await,
    }
}

/// A layer as a store.
#[derive(Debug)]
pub(crate) struct Layered<L>(pub(crate) Arc<L>);

pub(crate) fn store_of<L: Layer>(layer: L) -> Arc<dyn ObjectStore> {
    Arc::new(Layered(Arc::new(layer)))
}

impl<L: fmt::Debug> fmt::Display for Layered<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl<L: Layer> Layered<L> {
    fn listed(&self, folder: Option<&Path>, offset: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (layer, folder, offset) = (Arc::clone(&self.0), folder.cloned(), offset.cloned());
        futures::stream::once(async move {
            layer.list(folder, offset).await.map(|found| futures::stream::iter(found.into_iter().map(Ok)))
        })
        .try_flatten()
        .boxed()
    }
}

#[async_trait]
impl<L: Layer> ObjectStore for Layered<L> {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.0.put(location.clone(), payload, options).await
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(unused("put_multipart_opts"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get(location.clone(), options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let layer = Arc::clone(&self.0);
        locations
            .then(move |path| {
                let layer = Arc::clone(&layer);
                async move {
                    let path = path?;
                    layer.delete(path.clone()).await.map(|()| path)
                }
            })
            .boxed()
    }

    fn list(&self, folder: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(folder, None)
    }

    fn list_with_offset(&self, folder: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(folder, Some(offset))
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(unused("list_with_delimiter"))
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(unused("copy_opts"))
    }
}

fn unused(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_owned(), implementer: "Layered".to_owned() }
}

/// A store that overwrites where it is asked to create.
#[derive(Debug)]
pub(crate) struct Overwriting(pub(crate) Arc<dyn ObjectStore>);

#[async_trait]
impl Layer for Overwriting {
    fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.0
    }

    async fn put(&self, path: Path, payload: PutPayload, _: PutOptions) -> Result<PutResult> {
        self.0.put_opts(&path, payload, PutMode::Overwrite.into()).await
    }
}

/// Sabotage: the owner sees every version as written by itself under no epoch, as if epochs were not checked.
#[derive(Debug)]
pub(crate) struct EpochBlind {
    pub(crate) inner: Arc<dyn ObjectStore>,
    pub(crate) writer: WriterId,
}

#[async_trait]
impl Layer for EpochBlind {
    fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.inner
    }

    async fn get(&self, path: Path, options: GetOptions) -> Result<GetResult> {
        let got = self.inner.get_opts(&path, options).await?;
        if !path.as_ref().contains("/manifest/") {
            return Ok(got);
        }
        let meta = got.meta.clone();
        let mut snapshot =
            Snapshot::decode(path.as_ref(), &got.bytes().await?).expect("only sound versions are stored here");
        snapshot.epoch = OwnerEpoch::NONE;
        snapshot.commit.writer = self.writer;
        Ok(result_of(meta, snapshot.encode().expect("it was stored, so it is small enough")))
    }
}

fn result_of(meta: ObjectMeta, content: Bytes) -> GetResult {
    let size = content.len() as u64;
    GetResult {
        payload: GetResultPayload::Stream(futures::stream::once(async { Ok(content) }).boxed()),
        meta: ObjectMeta { size, ..meta },
        range: 0..size,
        attributes: object_store::Attributes::default(),
    }
}

/// Sabotage: some listings show nothing.
#[derive(Debug)]
pub(crate) struct ListBlind {
    pub(crate) inner: Arc<dyn ObjectStore>,
    pub(crate) hidden: Hidden,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// The collector sees no pins.
    Pins,
    /// A writer does not look above the version it created.
    VersionsAbove,
}

#[async_trait]
impl Layer for ListBlind {
    fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.inner
    }

    async fn list(&self, folder: Option<Path>, offset: Option<Path>) -> Result<Vec<ObjectMeta>> {
        let hidden = match self.hidden {
            Hidden::Pins => folder.as_ref().and_then(Path::filename) == Some("pins"),
            Hidden::VersionsAbove => offset.is_some(),
        };
        if hidden { Ok(Vec::new()) } else { list_from(&self.inner, folder, offset).await }
    }
}
