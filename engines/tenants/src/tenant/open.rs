//! What is open in a session that leaves with its tenant: its transaction, cursors and portals, temporary tables, advisory locks.
//!
//! What is common to all sessions, as transactions with their locks, goes with the tenant, in an [`OpenImage`]; the session's own goes with its client, in an
//! [`Open`]. A [`Ticket`] brings both together again, at the next node or here, if the tenant stays. What nobody claims in time is rolled back.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use savanna_journal::Lsn;
use savanna_tenants_execution::{part::Place, reference::Checks};
use savanna_tenants_sql::{advisory::Advisory, define::reference::Deferral, notify::Notifying, settings::Settings};
use savanna_tenants_store::database::{Database, DatabaseImage, RECORD_BYTES_MAX, SessionId, TemporaryImage};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::Value,
};
use savanna_transaction::{HolderId, Isolation, QueuePlace, TxnId, View};
use serde::{Deserialize, Serialize};

use super::{Bound, InTransaction, Tenant, notify::Untold, transactions::snapshot_too_old};
use crate::{
    activity::Activity,
    cursor::{Cursor, CursorImage},
    session::{Current, InParts, Portal, Prepared, Progress, SavepointOf, Session, Status, Suspended},
};

/// A session whose own part is larger stays where it is, in bytes.
const OPEN_BYTES_MAX: usize = 8 << 20;
/// The version of images that is written.
const IMAGE_VERSION: u8 = 3;

/// Names what a session has left with its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ticket {
    /// The attempt to move the tenant, whose number nobody else has.
    pub attempt: u64,
    /// The session's number where it was.
    pub session: u64,
}

/// What a session has left with its tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Left {
    txn: Option<TxnId>,
    holder: Option<HolderId>,
    /// What it says to other sessions and to what it listens, and what it has heard since it left.
    pub(super) notifying: Notifying,
    pub(super) untold: Untold,
    /// What that depends on in the log here.
    #[serde(skip)]
    pub(super) untold_after: Lsn,
    /// Since when it waits for its session here, in microseconds since 2000-01-01 UTC.
    since: i64,
}

/// What is open in a tenant that moves, beside its sessions' own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenImage {
    database: DatabaseImage,
    left: BTreeMap<Ticket, Left>,
}

impl OpenImage {
    /// Its bytes.
    ///
    /// # Errors
    /// XX000, which cannot be.
    pub fn encode(&self) -> Result<Vec<u8>> {
        postcard::to_extend(self, vec![IMAGE_VERSION]).map_err(SqlError::internal)
    }

    /// What somebody has [encoded](Self::encode), as far as it could do harm.
    ///
    /// # Errors
    /// XX001 if it is something else.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = |reason: String| {
            SqlError::new(
                state::DATA_CORRUPTED,
                format!("expected what is open in a database that moves, came {reason}"),
            )
        };
        let image: Self = match bytes.split_first() {
            Some((&IMAGE_VERSION, image)) => postcard::from_bytes(image).map_err(|error| damaged(error.to_string()))?,
            Some((version, _)) => return Err(damaged(format!("version {version}, which this release does not know"))),
            None => return Err(damaged("nothing".to_owned())),
        };
        // Transactions that have failed need not live.
        image.database.living()?;
        Ok(image)
    }

    /// What the rows go on with.
    #[must_use]
    pub const fn database(&self) -> &DatabaseImage {
        &self.database
    }
}

/// What of a session is open, and its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Open {
    ticket: Ticket,
    transaction: Option<TransactionImage>,
    transaction_began: i64,
    portals: Vec<PortalImage>,
    cursors: Vec<(CursorImage, Option<SuspendedImage>)>,
    temporary: Option<TemporaryImage>,
    advisory: Advisory,
    /// Whether it listens to other sessions.
    listens: bool,
}

impl Open {
    /// The transaction that the session is in.
    pub(super) fn transaction(&self) -> Option<InTransaction> {
        let transaction = self.transaction.as_ref()?;
        Some(InTransaction { is_explicit: transaction.explicit, has_failed: transaction.failed })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct TransactionImage {
    id: TxnId,
    isolation: Isolation,
    read_only: bool,
    explicit: bool,
    failed: bool,
    /// It was ended because its snapshot was too old, and the client has not heard of it.
    ended: bool,
    snapshot_taken: Option<i64>,
    views: Vec<(View, i64)>,
    used: bool,
    defines: bool,
    bytes: u64,
    savepoints: Vec<SavepointOf>,
    deferral: Deferral,
    deferred: Checks,
    settings_before: Option<[Vec<(String, String)>; 2]>,
    local_settings: Vec<(String, String)>,
    /// Where it waited for a lock.
    place: Option<QueuePlace>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PreparedImage {
    text: String,
    declared: Vec<Type>,
    made_by: Option<String>,
    at: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SuspendedImage {
    text: String,
    declared: Vec<Type>,
    parameters: Vec<Value>,
    view: View,
    place: Place,
    began: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PortalImage {
    name: String,
    prepared: PreparedImage,
    parameters: Vec<Value>,
    formats: Vec<i16>,
    bytes: u64,
    progress: ProgressImage,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum ProgressImage {
    Ready,
    Sending { verb: String, counted: bool, rows: Vec<Vec<Value>>, sent: u64 },
    Suspended(SuspendedImage, u64),
    Over,
}

impl Tenant {
    /// A tenant that goes on with what was open at another node.
    #[must_use]
    pub fn taking_over(database: Database, activity: Arc<Activity>, open: &OpenImage, now: i64) -> Self {
        let mut tenant = Self::new(database, activity);
        tenant.left = open.left.iter().map(|(ticket, left)| (*ticket, Left { since: now, ..left.clone() })).collect();
        tenant
    }

    /// What is open in it, beside its sessions' own; nothing if nothing is. Nothing changes.
    ///
    /// # Errors
    /// 55006 while a session is here, or a commit is not durable.
    pub fn open_image(&mut self) -> Result<Option<OpenImage>> {
        if !self.sessions.is_empty() {
            return Err(SqlError::new("55006", "the database has sessions that have not left"));
        }
        // Who comes with temporary objects has numbers that nobody else may be given.
        if self.left.is_empty() && !self.database.has_numbered_temporary() {
            return Ok(None);
        }
        Ok(Some(OpenImage { database: self.database.image()?, left: self.left.clone() }))
    }

    /// Whether something waits here for a session that has left.
    #[must_use]
    pub fn awaits_sessions(&self) -> bool {
        !self.left.is_empty()
    }

    /// Rolls back what has waited for its session for so long.
    pub fn end_unclaimed(&mut self, age: Duration) {
        let oldest = self.now.saturating_sub(i64::try_from(age.as_micros()).unwrap_or(i64::MAX));
        let over: Vec<_> =
            self.left.iter().filter(|(_, left)| left.since <= oldest).map(|(ticket, _)| *ticket).collect();
        for ticket in over {
            if let Some(left) = self.left.remove(&ticket) {
                left.txn.into_iter().for_each(|txn| self.database.abort(txn));
                left.holder.into_iter().for_each(|holder| self.database.remove_holder(holder));
            }
        }
        self.settle();
    }

    /// What of a session keeps it where it is even if what is open goes along.
    #[must_use]
    pub fn is_fixed(&self, id: SessionId) -> Option<Bound> {
        let session = self.sessions.get(&id)?;
        if session.copying.is_some() {
            return Some(Bound::Copy);
        }
        let style = session.facts.settings.style;
        let defines = session.txn.as_ref().is_some_and(|txn| txn.defines);
        let coming = session.cursors.values().filter_map(|cursor| cursor.coming.as_deref());
        let portals = session.portals.values().filter_map(|portal| match &portal.progress {
            Progress::Suspended(suspended, _) => Some(&**suspended),
            _ => None,
        });
        // It would be planned otherwise there.
        if coming.chain(portals).any(|suspended| defines || suspended.statement.style != style) {
            return Some(Bound::Cursors);
        }
        let sends_filed =
            |portal: &Portal| matches!(&portal.progress, Progress::Sending { rows, .. } if rows.is_filed());
        if session.portals.values().any(sends_filed) || session.cursors.values().any(Cursor::is_filed) {
            return Some(Bound::Size);
        }
        if session.txn.as_ref().is_some_and(|txn| !txn.failed && txn.bytes > RECORD_BYTES_MAX) {
            return Some(Bound::Size);
        }
        let portals: usize = session.portals.values().map(|portal| portal.bytes).sum();
        let cursors: usize = session.cursors.values().map(Cursor::bytes).sum();
        let texts: usize = session.prepared.values().map(|prepared| prepared.text.len()).sum();
        let txn = session.txn.as_ref();
        let put_off =
            txn.map_or(0, |txn| bytes_of(&txn.deferred) + bytes_of(&txn.deferral) + bytes_of(&txn.savepoints));
        let coming = session.cursors.values().filter_map(|cursor| cursor.coming.as_deref());
        let queries = coming.map(|coming| coming.text.len() + bytes_of(&coming.parameters) + bytes_of(&coming.place));
        let said = session.untold.bytes() + session.facts.notifying.borrow().bytes();
        let all =
            portals + cursors + texts + put_off + said + queries.sum::<usize>() + self.database.temporary_bytes(id);
        (all > OPEN_BYTES_MAX).then_some(Bound::Size)
    }

    /// Takes back the statement of a session that waits for a lock or the storage, sleeps or gives way, as if it had not begun, or the `whole` transaction that the client did not begin; the client
    /// asks for it again. Whether it could be.
    pub fn take_back(&mut self, id: SessionId, whole: bool) -> bool {
        let sleeps = self.sleeps(id).is_some();
        if !self.waits_for_lock(id) && !self.gives_way(id) && !self.waits_for_blocks(id) && !sleeps {
            return false;
        }
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        // What it did to the session's own locks stays done.
        if whole && session.facts.advisory.get_mut().holder.is_some() {
            return false;
        }
        // Its wait is about to end, and its client to hear why: whoever interrupts it later comes too late.
        if session.interrupted.is_some() || !session.facts.interrupts.end_unless_interrupted() {
            return false;
        }
        (session.simple, session.waits, session.aside, session.interrupted) = (None, false, false, None);
        (session.gives_way, session.until_it_misses, session.reads) = (false, false, None);
        session.facts.advisory.get_mut().begin();
        session.facts.sleep.take();
        session.reading = savanna_tenants_store::Reading::default();
        if let Some(txn) = session.txn.as_mut() {
            let (id, is_read_committed) = (txn.id, txn.isolation == Isolation::ReadCommitted);
            if is_read_committed {
                txn.snapshot_taken = None;
            }
            // One that has its lock by now has none; one that has not come to it again has the one from before.
            txn.place = self.database.place(id);
            self.waiting.remove(&id);
            // A wait that has just ended needs no end.
            _ = self.database.cancel_wait(id);
            _ = self.database.end_statement(id);
        }
        self.give_up_fetch(id);
        if whole && self.status(id) == Status::Idle {
            self.roll_back(id);
        }
        self.settle();
        true
    }

    /// What of a session is open, taken out of it: it is left here for whoever comes with the ticket.
    pub(super) fn leave_open(&mut self, id: SessionId, attempt: u64) -> Result<Open> {
        let now = self.now;
        let temporary = self.database.take_temporary(id);
        let session = self.session(id)?;
        let ticket = Ticket { attempt, session: id.0 };
        let transaction = session.txn.take();
        let advisory = session.facts.advisory.take();
        let notifying = session.facts.notifying.take();
        let listens = notifying.listens() || !session.untold.is_empty();
        let left = Left {
            txn: transaction.as_ref().map(|txn| txn.id),
            holder: advisory.holder,
            notifying,
            untold: std::mem::take(&mut session.untold),
            untold_after: session.untold_after,
            since: now,
        };
        let portals = session.portals.drain().map(|(name, portal)| portal_image(name, portal)).collect();
        let cursors = session.cursors.drain().map(|(name, mut cursor)| {
            let coming = cursor.coming.take().map(|coming| suspended_image(*coming));
            (cursor.into_image(name), coming)
        });
        let open = Open {
            ticket,
            transaction_began: session.facts.transaction_began,
            portals,
            cursors: cursors.collect(),
            temporary,
            advisory,
            listens,
            transaction: transaction.map(transaction_image),
        };
        if left.txn.is_some() || left.holder.is_some() || listens {
            self.left.insert(ticket, left);
        }
        Ok(open)
    }

    /// What is open in a session that comes is its again, but for what needs its transaction. Nothing is changed if it is not here.
    pub(super) fn claim(&mut self, id: SessionId, open: &Open) -> Result<()> {
        let left = self.left.remove(&open.ticket);
        let txn = open.transaction.as_ref().map(|txn| txn.id);
        let mine = left.as_ref().map_or((None, None), |left| (left.txn, left.holder));
        if mine != (txn, open.advisory.holder) || (open.listens && left.is_none()) {
            self.left.extend(left.map(|left| (open.ticket, left)));
            return Err(SqlError::new("57P01", "the node that the database has moved to has ended, and with it what was open in this session")
                .hint("Connect again. A transaction that was open is rolled back; temporary tables, advisory locks and what was listened to are gone."));
        }
        if let Some(temporary) = &open.temporary {
            self.database.put_temporary(id, temporary);
        }
        let session = self.session(id)?;
        session.facts.transaction_began = open.transaction_began;
        session.facts.advisory.replace(open.advisory.clone());
        if let Some(Left { notifying, untold, untold_after, .. }) = left {
            let hears = !untold.is_empty();
            session.facts.notifying.replace(notifying);
            (session.untold, session.untold_after) = (untold, untold_after);
            self.heard.extend(hears.then_some(id));
        }
        Ok(())
    }

    /// A session cannot go on with what was its: that is rolled back.
    pub(super) fn give_up(&mut self, open: &Open) {
        if let Some(txn) = &open.transaction {
            self.database.abort(txn.id);
        }
    }

    /// The session is in its transaction again, if it was in one.
    pub(super) fn reenter(&mut self, id: SessionId, open: &Open) -> Result<()> {
        let lent = self.database.lent();
        let session = self.session(id)?;
        let Some(txn) = &open.transaction else { return Ok(()) };
        let bytes = usize::try_from(txn.bytes).unwrap_or(usize::MAX);
        // It was there before, and is not refused now; what others have taken meanwhile is counted when it writes again.
        _ = lent.cover(bytes.saturating_sub(RECORD_BYTES_MAX));
        let administrator = session.facts.administrator;
        let before = txn.settings_before.as_ref().map(|written| Settings::restored(administrator, written));
        session.txn = Some(Current {
            id: txn.id,
            isolation: txn.isolation,
            read_only: txn.read_only,
            explicit: txn.explicit,
            failed: txn.failed,
            ended: txn.ended.then(snapshot_too_old),
            snapshot_taken: txn.snapshot_taken,
            views: txn.views.clone(),
            used: txn.used,
            defines: txn.defines,
            bytes,
            savepoints: txn.savepoints.clone(),
            deferral: txn.deferral.clone(),
            deferred: txn.deferred.clone(),
            settings_before: before.transpose()?,
            local_settings: txn.local_settings.clone(),
            place: txn.place,
            parts: InParts::Not,
            memory: bytes,
            lent: Some(lent),
        });
        txn.place.into_iter().for_each(|place| self.database.keep_place(txn.id, place));
        Ok(())
    }

    /// The session has its portals and cursors again. One that cannot be planned any more is not there. In a transaction that has failed, what reads on is there if
    /// the transaction may go on from a savepoint.
    pub(super) fn reopen(&mut self, id: SessionId, open: &Open) -> Result<()> {
        let failed = open.transaction.as_ref().filter(|txn| txn.failed);
        let reads_on = failed.is_none_or(|txn| !txn.savepoints.is_empty() && !txn.ended);
        // As it was when they were made: in one that has failed nothing is planned.
        self.note_failed(id, false)?;
        let reopened = self.reopen_all(id, open, reads_on);
        self.note_failed(id, failed.is_some())?;
        reopened
    }

    fn note_failed(&mut self, id: SessionId, failed: bool) -> Result<()> {
        self.session(id)?.txn.iter_mut().for_each(|txn| txn.failed = failed);
        Ok(())
    }

    fn reopen_all(&mut self, id: SessionId, open: &Open, reads_on: bool) -> Result<()> {
        for image in open.portals.iter().filter(|_| reads_on) {
            if let Err(error) = self.reopen_portal(id, image) {
                self.session(id)?.warn(error.state, &format!("portal \"{}\" is gone: {}", image.name, error.message));
            }
        }
        for (image, coming) in open.cursors.iter().filter(|(_, coming)| reads_on || coming.is_none()) {
            match coming.as_ref().map(|coming| self.resumed(id, coming)).transpose() {
                Ok(coming) => {
                    let (name, cursor) = image.restored(coming);
                    self.session(id)?.cursors.insert(name, cursor);
                }
                Err(error) => self.session(id)?.warn(error.state, &format!("a cursor is gone: {}", error.message)),
            }
        }
        Ok(())
    }

    fn reopen_portal(&mut self, id: SessionId, image: &PortalImage) -> Result<()> {
        let PreparedImage { text, declared, made_by, at } = &image.prepared;
        let prepared = self.prepared(id, text, declared.clone())?;
        let prepared = Prepared { made_by: made_by.as_deref().map(Arc::from), at: *at, ..prepared };
        let progress = match &image.progress {
            ProgressImage::Ready => Progress::Ready,
            ProgressImage::Sending { verb, counted, rows, sent } => Progress::Sending {
                verb: verb.clone(),
                counted: *counted,
                rows: rows.clone().into(),
                sent: *sent as usize,
            },
            ProgressImage::Suspended(suspended, sent) => {
                Progress::Suspended(Box::new(self.resumed(id, suspended)?), *sent as usize)
            }
            ProgressImage::Over => Progress::Over,
        };
        let (parameters, formats, bytes) = (image.parameters.clone(), image.formats.clone(), image.bytes as usize);
        self.session(id)?.portals.insert(image.name.clone(), Portal { prepared, parameters, formats, bytes, progress });
        Ok(())
    }

    /// A query that goes on where it was, planned with the catalog that it sees.
    fn resumed(&mut self, id: SessionId, image: &SuspendedImage) -> Result<Suspended> {
        let SuspendedImage { text, declared, parameters, view, place, began } = image;
        let session = self.session(id)?;
        let style = session.facts.settings.style;
        let txn = session.txn.as_ref().map(|txn| (txn.id, txn.defines));
        let txn = txn.ok_or_else(|| SqlError::internal("a query that goes on in no transaction"))?;
        let catalog = self.catalog_at(id, txn, view.snapshot())?;
        let statement = self.planned(id, text, (catalog, style), declared)?;
        let (text, declared, parameters) = (text.as_str().into(), declared.clone(), parameters.clone());
        Ok(Suspended { text, declared, statement, parameters, view: *view, place: place.clone(), began: *began })
    }
}

/// Bytes of something when it goes along.
fn bytes_of(value: &impl Serialize) -> usize {
    postcard::experimental::serialized_size(value).unwrap_or(usize::MAX / 8)
}

fn transaction_image(txn: Current) -> TransactionImage {
    TransactionImage {
        id: txn.id,
        isolation: txn.isolation,
        read_only: txn.read_only,
        explicit: txn.explicit,
        failed: txn.failed,
        ended: txn.ended.is_some(),
        snapshot_taken: txn.snapshot_taken,
        views: txn.views,
        used: txn.used,
        defines: txn.defines,
        bytes: txn.bytes as u64,
        // How much was written before them is not known there.
        savepoints: txn.savepoints.into_iter().map(|of| SavepointOf { written: None, ..of }).collect(),
        deferral: txn.deferral,
        deferred: txn.deferred,
        settings_before: txn.settings_before.map(|settings| settings.written()),
        local_settings: txn.local_settings,
        place: txn.place,
    }
}

fn suspended_image(suspended: Suspended) -> SuspendedImage {
    let Suspended { text, declared, parameters, view, place, began, .. } = suspended;
    SuspendedImage { text: text.to_string(), declared, parameters, view, place, began }
}

fn portal_image(name: String, portal: Portal) -> PortalImage {
    let Portal { prepared, parameters, formats, bytes, progress } = portal;
    let progress = match progress {
        Progress::Ready => ProgressImage::Ready,
        Progress::Sending { verb, counted, rows, sent } => {
            ProgressImage::Sending { verb, counted, rows: rows.kept().to_vec(), sent: sent as u64 }
        }
        Progress::Suspended(suspended, sent) => ProgressImage::Suspended(suspended_image(*suspended), sent as u64),
        Progress::Over => ProgressImage::Over,
    };
    let Prepared { text, declared, made_by, at, .. } = prepared;
    let prepared =
        PreparedImage { text: text.to_string(), declared, made_by: made_by.map(|made_by| made_by.to_string()), at };
    PortalImage { name, prepared, parameters, formats, bytes: bytes as u64, progress }
}

impl Session {
    /// Whether nothing is open in it.
    pub(super) fn is_closed(&self) -> bool {
        self.txn.is_none()
            && self.portals.is_empty()
            && self.cursors.is_empty()
            && self.facts.advisory.borrow().holder.is_none()
            && self.untold.is_empty()
            && !self.facts.notifying.borrow().listens()
    }
}
