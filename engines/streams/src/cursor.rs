//! Results that are fetched: a stream of rows, or a few rows known at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use savanna_streams_api::handle::Rows;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::sink::{Delivery, Room, Sink};
use savanna_streams_runtime::Query;
use tokio::sync::mpsc;

/// With so many batches in a cursor, its query seals no epoch before the reader has taken some.
const BATCHES_AHEAD: usize = 16;

/// The writing end of a cursor: the sink of a `SELECT`.
pub(crate) struct CursorSink {
    /// There until the last row is committed; the reader sees its end.
    rows: Option<mpsc::UnboundedSender<RecordBatch>>,
    /// Batches that the reader has not taken.
    ahead: Arc<AtomicUsize>,
}

impl Sink for CursorSink {
    fn last_committed(&mut self, _: &QueryId) -> Result<Option<Epoch>> {
        Ok(None)
    }

    fn commit(&mut self, _: &QueryId, _: Epoch, rows: &[RecordBatch]) -> Result<()> {
        let Some(reader) = &self.rows else { return Err(StreamError::Cancelled) };
        for batch in rows.iter().filter(|batch| batch.num_rows() > 0) {
            self.ahead.fetch_add(1, Ordering::Relaxed);
            reader.send(batch.clone()).map_err(|_| StreamError::Cancelled)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.rows = None;
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        Delivery::AtLeastOnce
    }

    fn room(&self) -> Option<Room> {
        let ahead = Arc::clone(&self.ahead);
        Some(Arc::new(move || ahead.load(Ordering::Relaxed) < BATCHES_AHEAD))
    }
}

/// The reading end.
pub(crate) struct Cursor {
    schema: SchemaRef,
    waiting: VecDeque<RecordBatch>,
    feed: Option<Feed>,
}

/// Where a stream's rows come from.
struct Feed {
    rows: Reader,
    query: Arc<Query>,
}

/// What reads the rows that a sink takes.
pub(crate) struct Reader {
    rows: mpsc::UnboundedReceiver<RecordBatch>,
    ahead: Arc<AtomicUsize>,
}

impl Reader {
    async fn next(&mut self) -> Option<RecordBatch> {
        let batch = self.rows.recv().await?;
        self.ahead.fetch_sub(1, Ordering::Relaxed);
        Some(batch)
    }

    fn next_there(&mut self) -> Result<RecordBatch, mpsc::error::TryRecvError> {
        let batch = self.rows.try_recv()?;
        self.ahead.fetch_sub(1, Ordering::Relaxed);
        Ok(batch)
    }
}

/// A channel for the rows of a query that is about to start.
pub(crate) fn channel() -> (CursorSink, Reader) {
    let (sender, rows) = mpsc::unbounded_channel();
    let ahead = Arc::new(AtomicUsize::new(0));
    (CursorSink { rows: Some(sender), ahead: Arc::clone(&ahead) }, Reader { rows, ahead })
}

impl Cursor {
    /// Over rows that are known.
    pub(crate) fn of_rows(rows: Rows) -> Self {
        Self { schema: rows.schema, waiting: rows.batches.into(), feed: None }
    }

    /// Over the rows of a query.
    pub(crate) fn of_query(schema: SchemaRef, rows: Reader, query: Arc<Query>) -> Self {
        Self { schema, waiting: VecDeque::new(), feed: Some(Feed { rows, query }) }
    }

    /// At most `max_rows` rows, waiting at most `wait` for the first. The second value tells whether that was all.
    pub(crate) async fn fetch(&mut self, max_rows: usize, wait: Duration) -> Result<(Rows, bool)> {
        let mut rows = Rows::none(Arc::clone(&self.schema));
        let mut room = max_rows;
        if room == 0 {
            return Ok((rows, false));
        }
        let mut ended = self.wait_for_rows(wait).await?;
        while room > 0 {
            let Some(batch) = self.waiting.pop_front() else { break };
            let taken = batch.num_rows().min(room);
            if taken < batch.num_rows() {
                self.waiting.push_front(batch.slice(taken, batch.num_rows() - taken));
            }
            rows.batches.push(batch.slice(0, taken));
            room -= taken;
            if self.waiting.is_empty() && room > 0 {
                ended = self.take_what_is_there()?;
            }
        }
        Ok((rows, ended && self.waiting.is_empty()))
    }

    /// Waits until there is a batch. Returns whether the feed has ended.
    async fn wait_for_rows(&mut self, wait: Duration) -> Result<bool> {
        let Some(feed) = &mut self.feed else { return Ok(true) };
        if !self.waiting.is_empty() {
            return Ok(false);
        }
        match tokio::time::timeout(wait, feed.rows.next()).await {
            Ok(Some(batch)) => {
                self.waiting.push_back(batch);
                Ok(false)
            }
            Ok(None) => ended(feed),
            Err(_) => Ok(false),
        }
    }

    fn take_what_is_there(&mut self) -> Result<bool> {
        let Some(feed) = &mut self.feed else { return Ok(true) };
        match feed.rows.next_there() {
            Ok(batch) => {
                self.waiting.push_back(batch);
                Ok(false)
            }
            Err(mpsc::error::TryRecvError::Empty) => Ok(false),
            Err(mpsc::error::TryRecvError::Disconnected) => ended(feed),
        }
    }

    /// Lets go of the query behind the cursor.
    pub(crate) fn close(&mut self) {
        if let Some(mut feed) = self.feed.take() {
            feed.rows.rows.close();
            feed.query.cancel();
        }
    }
}

/// The sink is gone: the query has ended, one way or the other.
fn ended(feed: &Feed) -> Result<bool> {
    match feed.query.status().error {
        Some(error) => Err(error),
        None => Ok(true),
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.close();
    }
}
