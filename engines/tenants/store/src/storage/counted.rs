//! A store whose requests are counted, for whoever watches it.

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, path::Path,
};

/// What was asked of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// An object, or a part of one.
    Get,
    /// To keep an object.
    Put,
    /// To delete one.
    Delete,
    /// Which objects there are.
    List,
}

/// Counts of requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFigures {
    /// Requests.
    pub requests: u64,
    /// Bytes of objects that came or went.
    pub bytes: u64,
    /// Requests that failed. That an object is not there, or there already, is an answer.
    pub errors: u64,
}

#[derive(Debug, Default)]
struct Count {
    requests: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
}

impl Count {
    /// Notes a request and what came of it.
    fn note<T>(&self, outcome: &Result<T>, bytes: impl FnOnce(&T) -> u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match outcome {
            Ok(done) => drop(self.bytes.fetch_add(bytes(done), Ordering::Relaxed)),
            Err(error) => self.failed(error),
        }
    }

    fn failed(&self, error: &Error) {
        let is_answer = matches!(
            error,
            Error::NotFound { .. }
                | Error::AlreadyExists { .. }
                | Error::Precondition { .. }
                | Error::NotModified { .. }
        );
        self.errors.fetch_add(u64::from(!is_answer), Ordering::Relaxed);
    }
}

/// A store that counts.
#[derive(Clone, Debug)]
pub(super) struct CountedStore {
    store: Arc<dyn ObjectStore>,
    counts: Arc<[Count; 4]>,
}

impl CountedStore {
    pub(super) fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, counts: Arc::default() }
    }

    /// What was asked of it so far.
    pub(super) fn figures(&self, asked: Asked) -> StoreFigures {
        let Count { requests, bytes, errors } = self.count(asked);
        let [requests, bytes, errors] = [requests, bytes, errors].map(|count| count.load(Ordering::Relaxed));
        StoreFigures { requests, bytes, errors }
    }

    fn count(&self, asked: Asked) -> &Count {
        &self.counts[asked as usize]
    }

    /// Counts a request for a list, and its end if that is an error.
    fn listed(&self, list: BoxStream<'static, Result<ObjectMeta>>) -> BoxStream<'static, Result<ObjectMeta>> {
        let counts = Arc::clone(&self.counts);
        self.count(Asked::List).note(&Ok(()), |()| 0);
        list.inspect_err(move |error| counts[Asked::List as usize].failed(error)).boxed()
    }
}

impl fmt::Display for CountedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait::async_trait]
impl ObjectStore for CountedStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let bytes = payload.content_length() as u64;
        let put = self.store.put_opts(location, payload, options).await;
        self.count(Asked::Put).note(&put, |_| bytes);
        put
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let put = self.store.put_multipart_opts(location, options).await;
        self.count(Asked::Put).note(&put, |_| 0);
        put
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head;
        let got = self.store.get_opts(location, options).await;
        self.count(Asked::Get).note(&got, |got| if is_head { 0 } else { got.range.end - got.range.start });
        got
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let got = self.store.get_ranges(location, ranges).await;
        self.count(Asked::Get).note(&got, |got| got.iter().map(|bytes| bytes.len() as u64).sum());
        got
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let counts = Arc::clone(&self.counts);
        let deleted = self.store.delete_stream(locations);
        deleted.inspect(move |deleted| counts[Asked::Delete as usize].note(deleted, |_| 0)).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(self.store.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(self.store.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let listed = self.store.list_with_delimiter(prefix).await;
        self.count(Asked::List).note(&listed, |_| 0);
        listed
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let copied = self.store.copy_opts(from, to, options).await;
        self.count(Asked::Put).note(&copied, |()| 0);
        copied
    }
}

#[cfg(test)]
mod tests {
    use object_store::{ObjectStoreExt as _, memory::InMemory};

    use super::*;

    #[tokio::test]
    async fn requests_are_counted_by_kind_and_an_object_that_is_not_there_is_an_answer() {
        let store = CountedStore::new(Arc::new(InMemory::new()));
        let (here, nowhere) = (Path::from("here"), Path::from("nowhere"));
        store.put(&here, PutPayload::from_static(b"four")).await.unwrap();
        assert_eq!(store.get(&here).await.unwrap().bytes().await.unwrap().len(), 4);
        assert_eq!(store.get_range(&here, 1..3).await.unwrap().len(), 2);
        store.get(&nowhere).await.unwrap_err();
        assert_eq!(store.list(None).try_collect::<Vec<_>>().await.unwrap().len(), 1);
        store.delete(&here).await.unwrap();
        let figures = [Asked::Get, Asked::Put, Asked::Delete, Asked::List].map(|asked| {
            let StoreFigures { requests, bytes, errors } = store.figures(asked);
            (requests, bytes, errors)
        });
        assert_eq!(figures, [(3, 6, 0), (1, 4, 0), (1, 0, 0), (1, 0, 0)]);
        store.copy(&nowhere, &here).await.unwrap_err();
        let failed = Error::Generic { store: "a store", source: "no answer".into() };
        store.count(Asked::Put).failed(&failed);
        assert_eq!(store.figures(Asked::Put), StoreFigures { requests: 2, bytes: 4, errors: 1 });
    }
}
