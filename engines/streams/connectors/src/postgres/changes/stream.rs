//! The thread that follows the changes of a table, over as many connections as it takes, and hands them on.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use pgwire_replication::ReplicationEvent;
use savanna_streams_api::{Result, StreamError};
use tokio::runtime::Builder;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::copy::{self, Copied, Origin};
use super::decoder::{Change, Decoder, Kind, Wanted};
use super::pgoutput::Value;
use super::place::Place;
use super::publication::{Looks, is_as_before};
use super::session::Session;
use super::settings::Settings;
use super::slot;
use crate::postgres::client::{Failure, connect};
use crate::postgres::values::of_line;

/// Changes that wait to be read take so many bytes, and are so many, at most; one that is larger waits alone.
const WAITING_BYTES: usize = 32 << 20;
const WAITING: usize = 10_000;
/// What a change takes beside its bytes, about.
const BESIDE: usize = 128;
/// What has come is held for so long, at most, until it is looked whether others were left out before it. A look takes the server about as
/// long as a change.
const HOLD: Duration = Duration::from_millis(20);
/// And so many, or of so many bytes.
const HELD: usize = 2_000;
const HELD_BYTES: usize = 4 << 20;
/// What was lost is tried again after so long, and later less often.
const BACK_OFF: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// Microseconds from 1970 to 2000, from which the server counts.
const FROM_2000: i64 = 946_684_800_000_000;

/// A change that waits to be read.
pub(super) struct Waiting {
    pub(super) change: Change,
    _room: OwnedSemaphorePermit,
}

/// Changes that have come, and that nobody has yet: whether others were left out before them is not known.
struct Held {
    changes: Vec<Change>,
    bytes: usize,
    until: Instant,
}

impl Held {
    fn new() -> Self {
        Self { changes: Vec::new(), bytes: 0, until: Instant::now() }
    }

    fn push(&mut self, change: Change) {
        if self.changes.is_empty() {
            (self.bytes, self.until) = (0, Instant::now() + HOLD);
        }
        self.bytes += change.size + BESIDE;
        self.changes.push(change);
    }

    fn is_due(&self) -> bool {
        self.changes.len() >= HELD || self.bytes >= HELD_BYTES || Instant::now() >= self.until
    }
}

/// The changes that come. The thread ends when nobody takes them any more.
pub(super) type Changes = mpsc::Receiver<Result<Waiting>>;

/// Follows the changes from a place on, or from where the table's slot is. `forgotten` tells what nobody needs any more.
pub(super) fn follow(
    settings: Arc<Settings>,
    wanted: Wanted,
    place: Option<Place>,
    forgotten: watch::Receiver<Option<Place>>,
) -> Result<Changes> {
    let failed = |error: std::io::Error| StreamError::io("start a thread to read changes", &error);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (out, changes) = mpsc::channel(WAITING);
    // The future is made where it runs: it borrows what it follows with.
    let work = move || {
        runtime.block_on(async move {
            let closed = out.clone();
            let mut following = Following {
                slot: settings.slot.clone().unwrap_or_else(passing_name),
                settings: &settings,
                wanted: &wanted,
                place,
                began: false,
                out,
                room: Arc::new(Semaphore::new(WAITING_BYTES)),
                forgotten,
                confirmed: 0,
                has_copy: settings.has_copy && settings.slot.is_some(),
                heard: Instant::now(),
                back_off: BACK_OFF,
            };
            tokio::select! {
                biased;
                () = closed.closed() => {}
                error = following.follow() => drop(closed.send(Err(error)).await),
            }
        })
    };
    thread::Builder::new().name("postgres-changes".into()).spawn(work).map_err(failed)?;
    Ok(changes)
}

/// The name of a slot that goes with its connection.
fn passing_name() -> String {
    format!("savanna_{:x}", getrandom::u64().unwrap_or_default())
}

struct Following<'s> {
    settings: &'s Settings,
    wanted: &'s Wanted,
    slot: String,
    /// Behind what was handed on, once it is known where the query begins.
    place: Option<Place>,
    /// This process has been within the changes: a slot that goes with its connection is gone when that is.
    began: bool,
    out: mpsc::Sender<Result<Waiting>>,
    room: Arc<Semaphore>,
    forgotten: watch::Receiver<Option<Place>>,
    /// What the server was told last.
    confirmed: u64,
    /// There may be a copy of the rows that were there.
    has_copy: bool,
    /// When something came last.
    heard: Instant,
    back_off: Duration,
}

impl Following<'_> {
    /// Follows until it does not go on.
    async fn follow(&mut self) -> StreamError {
        loop {
            let cause = match Box::pin(self.once()).await {
                Ok(never) => match never {},
                Err(Failure::Final(error)) => return error,
                Err(Failure::Again(cause)) => cause,
            };
            let server = &self.settings.server;
            let what = format!("read the changes of {} at {}", server.table, server.place());
            if self.settings.slot.is_none() && self.began {
                let cause = format!("{cause}; name a slot in 'slot.name', which outlives a connection");
                return StreamError::io(what, &cause);
            }
            if self.heard.elapsed() >= self.settings.retry {
                let cause = format!("{cause}; look whether the server is up, and whether the table's options name it");
                return StreamError::io(what, &cause);
            }
            tracing::warn!(server = server.place(), table = %server.table, cause, "changes of PostgreSQL do not come; they are asked for again");
            sleep(self.back_off).await;
            self.back_off = (self.back_off * 2).min(BACK_OFF_MAX);
        }
    }

    /// Follows over one connection.
    async fn once(&mut self) -> Result<Infallible, Failure> {
        let client = connect(&self.settings.server).await?;
        let (mut session, place, snapshot) = match self.place {
            Some(place) => (self.go_on(&client, place).await?, place, None),
            None => self.begin(&client).await?,
        };
        self.place = Some(place);
        self.began = true;
        let mut looks = Looks::new(&client, self.settings).await?;
        self.look(&client, &mut looks).await?;
        if place.is_in_copy() {
            self.read_copy(&client, place, snapshot.as_deref()).await?;
        }
        session.start(self.settings).await?;
        self.read_changes(&client, &mut session, &mut looks).await
    }

    /// Waits until it is known that nothing was left out of what has come.
    async fn look(&self, client: &Client, looks: &mut Looks<'_>) -> Result<(), Failure> {
        let before = self.place.and_then(|place| place.published).unwrap_or(self.wanted.published);
        looks.check(client, before).await
    }

    /// Connects where the query was.
    async fn go_on(&mut self, client: &Client, place: Place) -> Result<Session, Failure> {
        let (settings, slot) = (self.settings, self.slot.as_str());
        let found = slot::find(client, settings, slot).await?.ok_or_else(|| slot::gone(settings, slot))?;
        found.check(settings, slot, place)?;
        self.confirmed = found.confirmed;
        let session = Session::open(settings, slot, place.commit, self.confirmed).await?;
        if session.system != place.system {
            let cause = format!(
                "is one of another cluster of databases ({}, and not {}); drop the query and start it again",
                session.system, place.system
            );
            return Err(slot::wrong(settings, slot, &cause));
        }
        Ok(session)
    }

    /// Finds or makes the slot of a query that has no place yet. Rows that are there are copied, or can be read with the snapshot.
    async fn begin(&mut self, client: &Client) -> Result<(Session, Place, Option<String>), Failure> {
        let (settings, slot) = (self.settings, self.slot.clone());
        let mut session = Session::open(settings, &slot, 0, 0).await?;
        let published = self.wanted.published;
        let place = |session: &Session, at| Place::at(session.system, at, settings.has_copy).publishing(published);
        let copied = if self.has_copy { copy::find(client, settings).await? } else { Copied::Nothing };
        if let Some(found) = slot::find(client, settings, &slot).await? {
            self.confirmed = found.confirmed;
            match copied {
                _ if !settings.has_copy => {
                    let place = place(&session, found.confirmed);
                    return Ok((session, place, None));
                }
                Copied::Filled { at, published: before } if at == found.confirmed => {
                    if let Some(before) = before {
                        is_as_before(settings, before, Some(published))?;
                    }
                    let place = place(&session, at);
                    return Ok((session, place, None));
                }
                // A process ended between the two.
                Copied::Begun => slot::remove(client, settings, &slot).await?,
                _ => {
                    return Err(slot::wrong(
                        settings,
                        &slot,
                        "is there already, but no copy of the rows that were there when it was made: another query reads it, or has read it; name another \
                         one in 'slot.name', remove it with pg_drop_replication_slot, or set 'scan.startup.mode' = 'latest' to go on where it is",
                    ));
                }
            }
        }
        if copied != Copied::Nothing {
            copy::remove(client, settings).await?;
        }
        if self.has_copy {
            copy::make(client, settings).await?;
        }
        let made = session.make_slot(settings, &slot).await?;
        if self.has_copy {
            copy::fill(client, settings, &made.snapshot, made.at, published).await?;
        }
        self.confirmed = made.at;
        let place = place(&session, made.at);
        Ok((session, place, Some(made.snapshot)))
    }

    /// Hands on the rows that were there, behind those that were read.
    async fn read_copy(&mut self, client: &Client, mut place: Place, snapshot: Option<&str>) -> Result<(), Failure> {
        let settings = self.settings;
        let names: Vec<String> = self.wanted.columns.iter().map(|field| field.name().clone()).collect();
        let origin = match (self.has_copy, snapshot) {
            (true, _) => {
                if !matches!(copy::find(client, settings).await?, Copied::Filled { at, .. } if at == place.begin) {
                    return Err(slot::wrong(
                        settings,
                        &self.slot,
                        "has no copy any more of the rows that were there; drop the query and start it again",
                    ));
                }
                Origin::Copy(place.copied.unwrap_or_default())
            }
            (false, Some(snapshot)) => Origin::Table { snapshot },
            (false, None) => return Err(slot::gone(settings, &self.slot)),
        };
        copy::read(client, settings, &names, origin, async |line| {
            place.pass_row(line);
            let values =
                if names.is_empty() { Vec::new() } else { line.split(|byte| *byte == b'\t').map(value).collect() };
            let new = Some(values);
            self.hand_on(Change { kind: Kind::Read, place, time: None, old: None, new, size: line.len() }).await
        })
        .await
    }

    async fn read_changes(
        &mut self,
        client: &Client,
        session: &mut Session,
        looks: &mut Looks<'_>,
    ) -> Result<Infallible, Failure> {
        let settings = self.settings;
        let Some(place) = self.place else {
            return Err(StreamError::Internal("changes without a place".into()).into());
        };
        let mut decoder = Decoder::new(settings, self.wanted, place);
        self.forget(client, session).await;
        let mut beats = interval(settings.heartbeat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        beats.reset();
        let (mut is_quiet, mut held) = (true, Held::new());
        loop {
            let event = tokio::select! {
                event = session.next(settings) => event?,
                () = sleep_until(held.until), if !held.changes.is_empty() => {
                    self.release(client, looks, &mut held).await?;
                    continue;
                }
                changed = self.forgotten.changed() => {
                    if changed.is_err() {
                        return Err(StreamError::Cancelled.into());
                    }
                    self.forget(client, session).await;
                    continue;
                }
                _ = beats.tick() => {
                    // Without it the server never hears that its log may go, and one that is to stop waits for this reader.
                    if client.is_closed() {
                        return Err(Failure::Again("the connection that keeps the slot in motion is closed".to_owned()));
                    }
                    if std::mem::replace(&mut is_quiet, true) && settings.slot.is_some() {
                        self.beat(client).await;
                    }
                    // Where nothing comes, something may be left out.
                    self.release(client, looks, &mut held).await?;
                    continue;
                }
            };
            (self.heard, self.back_off) = (Instant::now(), BACK_OFF);
            match self.change(&mut decoder, session, event) {
                Ok(None) => {}
                Ok(Some(change)) => {
                    is_quiet = false;
                    held.push(change);
                }
                Err(error) => {
                    // What came before is given first.
                    self.release(client, looks, &mut held).await?;
                    return Err(error.into());
                }
            }
            if !held.changes.is_empty() && held.is_due() {
                self.release(client, looks, &mut held).await?;
            }
        }
    }

    /// What an event says about the table.
    fn change(&self, decoder: &mut Decoder<'_>, session: &Session, event: ReplicationEvent) -> Result<Option<Change>> {
        // Nobody comes again to a slot that goes with its connection.
        let confirm = |at: u64| {
            if self.settings.slot.is_none() {
                session.confirm(at);
            }
        };
        match event {
            ReplicationEvent::Begin { final_lsn, commit_time_micros, .. } => {
                decoder.begin(final_lsn.0, commit_time_micros.saturating_add(FROM_2000))?;
            }
            ReplicationEvent::Commit { end_lsn, .. } => {
                decoder.commit()?;
                confirm(end_lsn.0);
            }
            ReplicationEvent::XLogData { data, .. } => return decoder.message(&data),
            ReplicationEvent::Message { transactional: true, prefix, .. } => return decoder.beat(&prefix),
            ReplicationEvent::KeepAlive { wal_end, .. } => confirm(wal_end.0),
            ReplicationEvent::Message { .. } | ReplicationEvent::StoppedAt { .. } => {}
        }
        Ok(None)
    }

    /// Hands on what was held, when it is known that nothing was left out before it.
    async fn release(&mut self, client: &Client, looks: &mut Looks<'_>, held: &mut Held) -> Result<(), Failure> {
        self.look(client, looks).await?;
        for change in held.changes.drain(..) {
            self.hand_on(change).await?;
        }
        Ok(())
    }

    /// Waits until there is room.
    async fn hand_on(&mut self, change: Change) -> Result<(), Failure> {
        let bytes = (change.size + BESIDE).min(WAITING_BYTES);
        let room = Arc::clone(&self.room).acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX)).await;
        let room = room.map_err(|_| StreamError::Cancelled)?;
        let place = change.place;
        self.out.send(Ok(Waiting { change, _room: room })).await.map_err(|_| StreamError::Cancelled)?;
        (self.place, self.heard) = (Some(place), Instant::now());
        Ok(())
    }

    /// Tells the server what nobody needs any more.
    async fn forget(&mut self, client: &Client, session: &Session) {
        let Some(place) = *self.forgotten.borrow_and_update() else { return };
        if self.has_copy && !place.is_in_copy() {
            match copy::remove(client, self.settings).await {
                Ok(()) => self.has_copy = false,
                Err(cause) => {
                    tracing::warn!(table = %self.settings.copy(), ?cause, "a copy that is not needed any more stays")
                }
            }
        }
        // Not behind it: the transaction is sent again, since not all of it may have been read.
        if place.commit > self.confirmed {
            self.confirmed = place.commit;
            session.confirm(place.commit);
        }
    }

    /// Moves the place, where the table is quiet.
    async fn beat(&self, client: &Client) {
        const BEAT: &str = "SELECT pg_logical_emit_message(true, $1, '')";
        let prefix = self.settings.beat();
        if let Err(error) = client.query_typed(BEAT, &[(&prefix as _, Type::TEXT)]).await {
            tracing::warn!(table = %self.settings.server.table, %error, "no message could be put into the log; the server keeps it until the table changes");
        }
    }
}

/// A value of a line.
fn value(text: &[u8]) -> Value {
    of_line(text).map_or(Value::Null, |text| Value::Text(Bytes::from(text)))
}
