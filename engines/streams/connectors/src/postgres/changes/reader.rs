//! The changes of a table as a source.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::source::{Forget, Offset, Read, Repeats, ScanSpec, Source, SourceBatch, SourceReader};
use tokio::sync::{mpsc, watch};

use super::decoder::Wanted;
use super::place::Place;
use super::prepare::prepare;
use super::rows::Rows;
use super::settings::{Meta, Settings};
use super::stream::{Changes, follow};
use crate::postgres::client::{PATIENCE, Patience, Tasks};

/// A read gives about so many bytes at most.
const READ_BYTES_MAX: usize = 4 << 20;
/// Whoever waits looks again after so long.
const POLL: Duration = Duration::from_millis(1);

/// A table whose changes are read.
#[derive(Debug)]
pub(super) struct ChangesSource {
    settings: Arc<Settings>,
}

impl ChangesSource {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings: Arc::new(settings) }
    }
}

impl Source for ChangesSource {
    fn bounded(&self) -> bool {
        false
    }

    fn replayable(&self) -> bool {
        self.settings.slot.is_some()
    }

    /// The server sends the same changes in the same order, from where its slot is.
    fn repeats(&self) -> Repeats {
        match self.settings.slot {
            Some(_) => Repeats::ByEvents,
            None => Repeats::Not("without 'slot.name' PostgreSQL does not keep changes for it"),
        }
    }

    fn partitions(&self, _: usize) -> Result<usize> {
        Ok(1)
    }

    fn open(&self, scan: &ScanSpec, _: usize, _: usize, from: Option<&Offset>) -> Result<Box<dyn SourceReader>> {
        let settings = Arc::clone(&self.settings);
        let place = from.map_or(Ok(None), Place::of)?;
        // Nobody can cancel what is looked at before the query is there.
        let (_running, given_up) = watch::channel(false);
        let patience = Patience { until: tokio::time::Instant::now() + PATIENCE, given_up };
        let schema = scan.schema();
        let (columns, before) = (settings.own(&schema), place.and_then(|place| place.published));
        let work = async || prepare(&settings, &columns, before).await;
        let published = Tasks::new()?.persist(&settings.server, "read the changes of", &patience, work)?;
        let takes_unchanged = schema.fields().iter().any(|field| settings.meta_of(field) == Some(Meta::Unchanged));
        let wanted = Wanted { published, columns, takes_unchanged };
        let (forget, forgotten) = watch::channel(None);
        let following = Following::Before { wanted, forgotten };
        Ok(Box::new(Reader { settings, schema, place, refused: None, forget: Arc::new(forget), following }))
    }
}

/// The thread that reads.
enum Following {
    /// It begins with the first read: where, may be told until then.
    Before {
        wanted: Wanted,
        forgotten: watch::Receiver<Option<Place>>,
    },
    Under(Changes),
}

struct Reader {
    settings: Arc<Settings>,
    schema: SchemaRef,
    place: Option<Place>,
    /// Why it does not go on.
    refused: Option<StreamError>,
    forget: Arc<watch::Sender<Option<Place>>>,
    following: Following,
}

impl Reader {
    fn changes(&mut self) -> Result<&mut Changes> {
        if let Following::Before { wanted, forgotten } = &self.following {
            let changes = follow(Arc::clone(&self.settings), wanted.clone(), self.place, forgotten.clone())?;
            self.following = Following::Under(changes);
        }
        match &mut self.following {
            Following::Under(changes) => Ok(changes),
            Following::Before { .. } => Err(StreamError::Internal("changes that do not come".into())),
        }
    }
}

impl SourceReader for Reader {
    fn read(&mut self, max_events: usize, wait: Duration) -> Result<Read> {
        let deadline = Instant::now() + wait;
        let settings = Arc::clone(&self.settings);
        let mut rows = Rows::new(&settings, &self.schema);
        let (mut events, mut bytes) = (0, 0);
        while self.refused.is_none() && events < max_events.max(1) && bytes < READ_BYTES_MAX {
            match self.changes()?.try_recv() {
                Ok(Ok(waiting)) => {
                    let change = &waiting.change;
                    rows.push(change)?;
                    self.place = Some(change.place);
                    (events, bytes) = (events + 1, bytes + change.size);
                }
                Ok(Err(error)) => self.refused = Some(error),
                Err(mpsc::error::TryRecvError::Empty) if events > 0 || Instant::now() >= deadline => break,
                Err(mpsc::error::TryRecvError::Empty) => sleep(POLL.min(wait)),
                Err(mpsc::error::TryRecvError::Disconnected) => {
                    self.refused = Some(StreamError::Internal("the thread that reads changes has ended".into()));
                }
            }
        }
        match &self.refused {
            // What came before is given first.
            Some(error) if events == 0 => Err(error.clone()),
            _ if events == 0 => Ok(Read::Pending),
            _ => Ok(Read::Rows(SourceBatch {
                split: 0,
                rows: rows.finish()?,
                left_out_time: None,
                events: events as u64,
            })),
        }
    }

    fn offset(&self) -> Offset {
        self.place.as_ref().map_or_else(Offset::default, Place::offset)
    }

    /// A query that goes on began where it did: not where the slot is now.
    fn hurry(&mut self, until: &Offset) {
        match (Place::of(until), self.place) {
            (Ok(Some(before)), None) => self.place = Some(before.beginning()),
            (Ok(_), _) => {}
            (Err(error), _) => self.refused = Some(error),
        }
    }

    fn forgets(&self) -> Option<Forget> {
        self.settings.slot.as_ref()?;
        let forget = Arc::clone(&self.forget);
        Some(Arc::new(move |offset| {
            if let Ok(Some(place)) = Place::of(offset) {
                forget.send_replace(Some(place));
            }
        }))
    }

    fn comes_later(&self) -> bool {
        true
    }
}
