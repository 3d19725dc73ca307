//! An object store in memory that stops answering at a request that a simulation names.

use std::{
    fmt,
    ops::Range,
    sync::{Mutex, MutexGuard},
};

use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, memory::InMemory, path::Path,
};

/// A store that can be told to fail.
#[derive(Debug, Default)]
pub(super) struct FailingStore {
    objects: InMemory,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Works,
    /// So many puts are answered; the next is done or not, and neither it nor anything else is answered.
    Ends {
        puts: u32,
        is_done: bool,
    },
    Silent,
}

impl FailingStore {
    /// Stops answering after so many puts.
    pub(super) fn fail_after(&self, puts: u32, is_done: bool) {
        *self.state() = State::Ends { puts, is_done };
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
        self.check()?;
        let ends = {
            let mut state = self.state();
            match *state {
                State::Ends { puts: 0, is_done } => {
                    *state = State::Silent;
                    Some(is_done)
                }
                State::Ends { puts, is_done } => {
                    *state = State::Ends { puts: puts - 1, is_done };
                    None
                }
                State::Works | State::Silent => None,
            }
        };
        if ends == Some(false) {
            return Err(silence());
        }
        let done = self.objects.put_opts(location, payload, options).await;
        if ends == Some(true) { Err(silence()) } else { done }
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
        self.objects.delete_stream(locations)
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
