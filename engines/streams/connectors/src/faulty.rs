//! A store for tests that fails as stores do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use rand::{Rng as _, RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// A store that fails: before a write, behind it, or for good.
#[derive(Debug)]
pub(crate) struct Faulty {
    pub(crate) store: InMemory,
    pub(crate) state: parking_lot::Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    rng: ChaCha8Rng,
    /// Of so many requests, one fails for a while.
    pub(crate) one_in: u32,
    /// The requests that are answered before the process is gone.
    pub(crate) left: Option<u32>,
    /// So many creations meet another one that is under way and comes to nothing.
    pub(crate) conflicts: u32,
    /// Parts wait for so many others that are being written.
    pub(crate) meet: usize,
    pub(crate) being_written: usize,
    /// It writes over what was to be created.
    pub(crate) forgets_conditions: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Before,
    Behind,
}

fn away() -> Error {
    Error::Generic { store: "the test's", source: "it is away".into() }
}

fn gone() -> Error {
    Error::PermissionDenied { path: String::new(), source: "the process is gone".into() }
}

impl Faulty {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let state =
            State { rng, one_in: 0, left: None, conflicts: 0, meet: 0, being_written: 0, forgets_conditions: false };
        Arc::new(Self { store: InMemory::new(), state: parking_lot::Mutex::new(state) })
    }

    fn conflicts(&self) -> bool {
        let state = &mut *self.state.lock();
        let conflicts = state.conflicts > 0;
        state.conflicts = state.conflicts.saturating_sub(1);
        conflicts
    }

    fn has_met(&self) -> bool {
        let state = self.state.lock();
        state.being_written >= state.meet
    }

    fn fault(&self) -> object_store::Result<Fault> {
        let state = &mut *self.state.lock();
        if let Some(left) = &mut state.left {
            *left = left.checked_sub(1).ok_or_else(gone)?;
        }
        let fails = state.one_in > 0 && state.rng.next_u32().is_multiple_of(state.one_in);
        Ok(match fails {
            false => Fault::None,
            true if state.rng.random() => Fault::Before,
            true => Fault::Behind,
        })
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait::async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        let fault = self.fault()?;
        if fault == Fault::Before {
            return Err(away());
        }
        if matches!(options.mode, PutMode::Create) && self.conflicts() {
            let source = "ConditionalRequestConflict".into();
            return Err(Error::AlreadyExists { path: location.to_string(), source });
        }
        if location.as_ref().contains("/part-") {
            self.state.lock().being_written += 1;
            while !self.has_met() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        let options = if self.state.lock().forgets_conditions { PutMode::Overwrite.into() } else { options };
        let put = self.store.put_opts(location, payload, options).await;
        if fault == Fault::Behind { Err(away()) } else { put }
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        unreachable!("objects are put as a whole")
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        if self.fault()? != Fault::None {
            return Err(away());
        }
        self.store.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}
