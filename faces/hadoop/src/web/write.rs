//! Bytes of files on their way in: the client of the name node that writes them is here.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use parking_lot::{Condvar, Mutex, RwLock};
use savanna_files_host::blocks::Place;
use savanna_files_host::request::{BlockName, Create, LocatedBlock, Written};
use savanna_files_host::{Class, Errand, FilesError, ReplicaError, Replicas, Reply, Request, Unanswered, Writer};
use tokio::time::timeout;

use super::answer::Refusal;
use super::read::blocking;
use super::{Client, unexpected};
use crate::protocol::received;

/// Bytes that are written at once.
const PART: usize = 64 << 10;
/// Bytes of a chunk of new blocks.
const CHUNK: u32 = 512;
/// How long the end of a write is waited for.
const END_TIME: Duration = Duration::from_secs(10);
/// A client that sends nothing for so long has gone.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the name node hears that a writer is there.
const RENEWAL: Duration = Duration::from_secs(20);
/// How often it is asked to end a file, and how long in between.
const ATTEMPTS: u32 = 5;
const BETWEEN: Duration = Duration::from_millis(100);
/// A client hears that its bytes were refused after so long, even if what came of them is there yet.
const LEAVE_TIME: Duration = Duration::from_secs(2);

/// What a client that writes is called.
pub(super) fn client_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("webhdfs_{}_{}", since.as_nanos(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Client {
    /// Makes a file of what comes.
    pub(super) async fn create<B>(&self, create: Create, body: B) -> Result<(), Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let under_way = self.service.writes.begin();
        let (path, client, block_size) = (create.path.clone(), create.client.clone(), create.block_size);
        let Reply::Status(Some(status)) = self.ask(Request::Create(create)).await? else { return Err(unexpected()) };
        let file = Written { path, id: Some(status.id), client };
        let written = Upload::of(self, file.clone(), block_size).take(body).await;
        if let Err(Refusal::Refused(_)) = &written {
            // What is there was never acknowledged, and is not to look like a file that is whole.
            self.leave(file, true, under_way).await;
        }
        written
    }

    /// Adds what comes to a file.
    pub(super) async fn append<B>(&self, path: &str, body: B) -> Result<(), Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let under_way = self.service.writes.begin();
        let (path, client) = (path.to_owned(), client_name());
        let request = Request::Append {
            path: path.clone(),
            client: client.clone(),
            is_in_new_block: false,
            is_all_or_nothing: true,
        };
        let Reply::Appended(last, status) = self.ask(request).await? else { return Err(unexpected()) };
        let (id, block_size) = (status.id, status.block_size);
        let file = Written { path, id: Some(id), client };
        let written = Upload::of(self, file.clone(), block_size).go_on(last, body).await;
        if let Err(Refusal::Refused(_)) = &written {
            // Others want to write it.
            self.leave(file, false, under_way).await;
        }
        written
    }

    /// Ends a file that was not written to its end: a new one goes, another one is what it was before. What cannot be done now is tried
    /// again; until then the file is one that is being written, and if the process ends meanwhile, whoever closes it does the same.
    async fn leave(&self, file: Written, is_new: bool, under_way: UnderWay) {
        let client = self.clone();
        let leaving = tokio::spawn(async move {
            let mut pause = BETWEEN;
            while let Err(Refusal::Refused(error)) = client.left(&file, is_new).await {
                if !matches!(error.class, Class::Retriable | Class::SafeMode) {
                    tracing::debug!(path = file.path, %error, "what came of a file stays: it is not its writer's any more");
                    break;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RENEWAL);
                let renewed = client.run(Errand::RenewLease { client: file.client.clone() }).await;
                if matches!(renewed, Err(Refusal::Gone)) {
                    break;
                }
            }
            drop(under_way);
        });
        // It goes on without the client.
        let _ = timeout(LEAVE_TIME, leaving).await;
    }

    /// One attempt of that.
    async fn left(&self, file: &Written, is_new: bool) -> Result<(), Refusal> {
        let Some(id) = file.id.filter(|_| !is_new) else {
            return self.ask(Request::GiveUp { file: file.clone() }).await.map(drop);
        };
        let (leaving, client) = (self.clone(), file.client.clone());
        // Who ends the server waits for it: a block is ended.
        let closed = blocking(move || {
            leaving.service.writes.unless_ended(|| {
                let (sender, told) = sync_channel(1);
                leaving.service.run(&leaving.peer, Errand::Leave { file: id, client }, move |outcome| {
                    drop(sender.send(outcome));
                });
                told.recv().unwrap_or(Err(Unanswered::Gone))
            })
        });
        Ok(closed.await.ok_or(Refusal::Gone)?.map(drop)?)
    }
}

/// A file that is written.
struct Upload<'a> {
    client: &'a Client,
    file: Written,
    block_size: u64,
    /// The block that is being written, and up to where.
    block: Option<(BlockName, Writer)>,
    /// The block that was ended last, unless the name node knows that already.
    last: Option<BlockName>,
    /// What is not written yet.
    rest: BytesMut,
    /// When the name node heard of the writer last.
    renewed: Instant,
}

impl<'a> Upload<'a> {
    fn of(client: &'a Client, file: Written, block_size: u64) -> Self {
        let (rest, renewed) = (BytesMut::new(), Instant::now());
        Self { client, file, block_size, block: None, last: None, rest, renewed }
    }

    /// Takes all that comes behind what is there, and ends the file.
    async fn go_on<B>(mut self, last: Option<LocatedBlock>, body: B) -> Result<(), Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        match last {
            Some(last) if last.is_there() => self.go_on_with(last).await?,
            Some(last) => self.last = Some(last.block),
            None => {}
        }
        self.take(body).await
    }

    /// Takes all that comes, and ends the file.
    async fn take<B>(mut self, mut body: B) -> Result<(), Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        loop {
            let Some(frame) = self.frame(&mut body).await? else { break };
            let Ok(mut bytes) = frame.into_data() else { continue };
            while !bytes.is_empty() {
                let count = bytes.len().min(PART - self.rest.len());
                self.rest.extend_from_slice(&bytes.split_to(count));
                if self.rest.len() == PART {
                    self.write().await?;
                }
            }
        }
        self.write().await?;
        self.end_block().await?;
        self.complete().await
    }

    /// What comes next. The name node hears now and then that the writer is there, however much comes at a time.
    async fn frame<B>(&mut self, body: &mut B) -> Result<Option<hyper::body::Frame<Bytes>>, Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let path = self.file.path.clone();
        let broken = |why: &dyn std::fmt::Display| {
            FilesError::new(Class::Io, format!("{path}: what was sent did not come to its end: {why}"))
        };
        let since = Instant::now();
        loop {
            if self.renewed.elapsed() >= RENEWAL {
                self.renew().await?;
            }
            match timeout(RENEWAL.saturating_sub(self.renewed.elapsed()), body.frame()).await {
                Ok(None) => return Ok(None),
                Ok(Some(Ok(frame))) => return Ok(Some(frame)),
                Ok(Some(Err(error))) => return Err(broken(&error).into()),
                Err(_) if since.elapsed() >= PATIENCE => {
                    return Err(broken(&format!("nothing came for {} s", PATIENCE.as_secs())).into());
                }
                Err(_) => {}
            }
        }
    }

    /// Writes what has come, into as many blocks as it needs.
    async fn write(&mut self) -> Result<(), Refusal> {
        while !self.rest.is_empty() {
            let (name, writer) = match self.block.take() {
                Some(block) => block,
                None => self.begin_block().await?,
            };
            let room = self.block_size.saturating_sub(name.length);
            let count = usize::try_from(room).unwrap_or(usize::MAX).min(self.rest.len());
            let bytes = self.rest.split_to(count).freeze();
            let at = name.length;
            let written = self.disk(move |_| {
                let mut writer = writer;
                writer.write(at, &bytes, &[]).map(|()| writer)
            });
            let writer = written.await?;
            let name = BlockName { length: at + count as u64, ..name };
            self.block = Some((name, writer));
            if name.length >= self.block_size {
                self.end_block().await?;
            }
        }
        Ok(())
    }

    /// Writes to the disk, unless the server ends. A slow one does not cost the lease.
    async fn disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Replicas) -> Result<T, ReplicaError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (files, writes) = (self.client.service.files.clone(), Arc::clone(&self.client.service.writes));
        // Without a lease the blocks may be somebody else's.
        let work = blocking(move || writes.unless_ended(|| files.may_tell().then(|| work(files.replicas()))));
        let mut work = pin!(work);
        let done = loop {
            match timeout(RENEWAL, &mut work).await {
                Ok(done) => break done.flatten().ok_or(Refusal::Gone)?,
                // Whether that is heard is noticed by what comes next.
                Err(_) => self.client.service.run(
                    &self.client.peer,
                    Errand::RenewLease { client: self.file.client.clone() },
                    drop,
                ),
            }
        };
        done.map_err(|error| FilesError::new(Class::Io, error.to_string()).into())
    }

    /// The name node hears that the writer is there.
    async fn renew(&mut self) -> Result<(), Refusal> {
        self.renewed = Instant::now();
        match self.client.run(Errand::RenewLease { client: self.file.client.clone() }).await {
            Err(Refusal::Gone) => Err(Refusal::Gone),
            // It is said again in time.
            Ok(_) | Err(Refusal::Refused(_)) => Ok(()),
        }
    }

    /// The next block of the file.
    async fn begin_block(&mut self) -> Result<(BlockName, Writer), Refusal> {
        let (file, previous) = (self.file.clone(), self.last.take());
        // Nothing is sent on from here: others get their replicas when the file is ended.
        let excluded = self.client.service.files.nodes().iter().map(|node| node.holder).collect();
        let request = Request::AddBlock { file, previous, excluded };
        let Reply::Block(located) = self.client.ask(request).await? else { return Err(unexpected()) };
        let name = located.block;
        Ok((name, self.disk(move |replicas| replicas.begin(name.id, name.stamp, CHUNK)).await?))
    }

    /// Goes on with the last block of the file, under a new generation.
    async fn go_on_with(&mut self, last: LocatedBlock) -> Result<(), Refusal> {
        let (old, client) = (last.block, self.file.client.clone());
        let request = Request::NewStamp { block: old, client: client.clone() };
        let Reply::Block(located) = self.client.ask(request).await? else { return Err(unexpected()) };
        let new = BlockName { length: old.length, ..located.block };
        let begun = self.disk(move |replicas| {
            let chunk = replicas.read(old.id, old.stamp)?.chunk();
            replicas.append(new.id, new.stamp, new.length, chunk)
        });
        let writer = begun.await?;
        let places = vec![Place::HERE];
        self.client.ask(Request::UpdatePipeline { client, old, new, places, are_all: true }).await?;
        self.block = Some((new, writer));
        Ok(())
    }

    /// Ends the block that is being written: it survives the loss of power then.
    async fn end_block(&mut self) -> Result<(), Refusal> {
        let Some((name, writer)) = self.block.take() else { return Ok(()) };
        let replica = self.disk(move |_| writer.finish()).await?;
        let service = Arc::clone(&self.client.service);
        blocking(move || received(&service.names, &service.files, replica)).await?;
        self.last = Some(name);
        Ok(())
    }

    /// Ends the file.
    async fn complete(self) -> Result<(), Refusal> {
        for _ in 0..ATTEMPTS {
            let request = Request::Complete { file: self.file.clone(), last: self.last };
            if self.client.ask(request).await? == Reply::Bool(true) {
                return Ok(());
            }
            tokio::time::sleep(BETWEEN).await;
        }
        let words = format!("{} could not be ended: the data node lacks a block", self.file.path);
        Err(FilesError::new(Class::Io, words).into())
    }
}

/// Writes of all clients: who ends the server waits for those that are under way, so that nobody meets them who begins anew.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    has_ended: RwLock<bool>,
    /// Files that are being written.
    under_way: Mutex<usize>,
    less: Condvar,
}

/// A file that is being written.
#[derive(Debug)]
struct UnderWay(Arc<Writes>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        *self.0.under_way.lock() -= 1;
        self.0.less.notify_all();
    }
}

impl Writes {
    /// A file begins to be written.
    fn begin(self: &Arc<Self>) -> UnderWay {
        *self.under_way.lock() += 1;
        UnderWay(Arc::clone(self))
    }

    /// Whether no file is being written.
    pub(crate) fn are_done(&self) -> bool {
        *self.under_way.lock() == 0
    }

    /// Waits for a while until no file is being written. Those whose clients were sent away are given up meanwhile, which the log has to take.
    pub(crate) fn wait(&self) {
        let mut under_way = self.under_way.lock();
        if self.less.wait_while_for(&mut under_way, |count| *count > 0, END_TIME).timed_out() {
            tracing::warn!(
                "{under_way} files that clients write over HTTP do not end; they are closed with what came of them"
            );
        }
    }

    /// Does something, unless the server ends.
    fn unless_ended<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let has_ended = self.has_ended.read();
        (!*has_ended).then(work)
    }

    /// Lets nobody write any more.
    pub(crate) fn end(&self) {
        match self.has_ended.try_write_for(END_TIME) {
            Some(mut has_ended) => *has_ended = true,
            None => tracing::warn!("a write of a client over HTTP does not end"),
        }
    }
}

#[cfg(test)]
mod tests {
    use savanna_journal::sim::SimDisk;

    use super::super::unconnected;
    use super::*;
    use crate::tests::{lease, leased, started};

    #[test]
    fn who_ends_the_server_waits_for_what_is_being_written() {
        let writes = Arc::new(Writes::default());
        let (writing, (begun, at_it)) = (Arc::clone(&writes), std::sync::mpsc::channel());
        let writer = std::thread::spawn(move || {
            let write = || {
                begun.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(100));
                Instant::now()
            };
            writing.unless_ended(write).unwrap()
        });
        at_it.recv().unwrap();
        writes.end();
        let ended = Instant::now();
        assert!(writer.join().unwrap() <= ended);
        assert_eq!(writes.unless_ended(|| ()), None);
    }

    #[test]
    fn who_ends_the_server_waits_for_files_to_be_given_up() {
        let writes = Arc::new(Writes::default());
        assert!(writes.are_done());
        let under_way = writes.begin();
        assert!(!writes.are_done());
        let giving_up = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            let before = Instant::now();
            drop(under_way);
            before
        });
        writes.wait();
        let ended = Instant::now();
        assert!(giving_up.join().unwrap() <= ended && writes.are_done());
    }

    fn upload(client: &Client) -> Upload<'_> {
        Upload::of(client, Written { path: "/f".to_owned(), id: None, client: client_name() }, 1 << 20)
    }

    #[tokio::test]
    async fn who_sends_a_little_at_a_time_keeps_the_lease() {
        let folder = tempfile::tempdir().unwrap();
        let server = started(&SimDisk::new(1), folder.path(), 1);
        let client = unconnected(server.files());
        let mut upload = upload(&client);
        let long_ago = Instant::now().checked_sub(RENEWAL).unwrap();
        upload.renewed = long_ago;
        let mut body = http_body_util::Full::new(Bytes::from_static(b"a"));
        assert!(upload.frame(&mut body).await.unwrap().is_some());
        assert!(upload.renewed > long_ago, "the name node has not heard of it");
    }

    #[tokio::test]
    async fn without_a_lease_no_replica_changes() {
        let (folder, guard) = (tempfile::tempdir().unwrap(), lease());
        let server = leased(&SimDisk::new(1), folder.path(), 1, Some(guard.clone()));
        let client = unconnected(server.files());
        let upload = upload(&client);
        assert!(upload.disk(|_| Ok(())).await.is_ok());
        guard.revoke();
        let changed: Result<(), Refusal> = upload.disk(|_| panic!("this changes somebody else's replicas")).await;
        assert!(matches!(changed, Err(Refusal::Gone)));
    }

    #[test]
    fn two_writers_are_not_called_the_same() {
        assert_ne!(client_name(), client_name());
    }
}
