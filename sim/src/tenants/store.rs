//! An object store in memory that stops answering at a request that a simulation names.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, memory::InMemory, path::Path,
};

/// A store that can be told to fail.
#[derive(Clone, Debug, Default)]
pub(super) struct FailingStore {
    objects: Arc<InMemory>,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Works,
    /// So many changes are answered; the next is done or not, and neither it nor anything else is answered.
    Ends {
        changes: u32,
        is_done: bool,
    },
    Silent,
}

impl FailingStore {
    /// Stops answering after so many puts and deletions.
    pub(super) fn fail_after(&self, changes: u32, is_done: bool) {
        *self.state() = State::Ends { changes, is_done };
    }

    /// Answers again.
    pub(super) fn heal(&self) {
        *self.state() = State::Works;
    }

    /// Whether it has stopped answering.
    pub(super) fn is_silent(&self) -> bool {
        matches!(*self.state(), State::Silent)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panicked")
    }

    fn check(&self) -> Result<()> {
        if self.is_silent() { Err(silence()) } else { Ok(()) }
    }

    /// Does a change, unless it is the one with which the store stops answering, and answers.
    async fn change<T>(&self, change: impl Future<Output = Result<T>>) -> Result<T> {
        self.check()?;
        let ends = {
            let mut state = self.state();
            match *state {
                State::Ends { changes: 0, is_done } => {
                    *state = State::Silent;
                    Some(is_done)
                }
                State::Ends { changes, is_done } => {
                    *state = State::Ends { changes: changes - 1, is_done };
                    None
                }
                State::Works | State::Silent => None,
            }
        };
        if ends == Some(false) {
            return Err(silence());
        }
        let done = change.await;
        if ends == Some(true) { Err(silence()) } else { done }
    }
}

fn silence() -> Error {
    Error::Generic { store: "FailingStore", source: "no answer".into() }
}

impl fmt::Display for FailingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a store that may fail")
    }
}

#[async_trait::async_trait]
impl ObjectStore for FailingStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.change(self.objects.put_opts(location, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.check()?;
        self.objects.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.check()?;
        self.objects.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.check()?;
        self.objects.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let delete = move |location: Result<Path>| {
            let store = store.clone();
            async move {
                let location = location?;
                store.change(store.objects.delete(&location)).await.map(|()| location)
            }
        };
        locations.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.check() {
            Ok(()) => self.objects.list(prefix),
            Err(error) => Box::pin(futures::stream::once(async { Err(error) })),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.check()?;
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.check()?;
        self.objects.copy_opts(from, to, options).await
    }
}
