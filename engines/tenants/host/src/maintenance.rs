//! What a thread does beside statements: its tenants are flushed when they have written much, hold up the log, take more memory
//! than their share, or have no clients; and those without clients fall asleep.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use savanna_journal::Lsn;
use savanna_tenants::{
    SqlError,
    error::{Result as SqlResult, state},
    flush::Flush,
    tenant::{NoRoom, Tenant},
};

use crate::{
    process::Crowd,
    room::{Condition, Room},
    thread::Here,
};

/// How often a thread looks after its tenants.
const ROUND: Duration = Duration::from_millis(100);
/// How often somebody asks how long the thread takes to come round.
const PROBE: Duration = Duration::from_millis(10);
/// Who has more rows in memory than its share keeps three quarters of that, so that it is not flushed again at once.
const KEPT: u64 = 3;
const KEPT_OF: u64 = 4;
/// Keys that are removed, flushed or forgotten at once.
const KEYS: usize = 1_000;
/// How long a round may remove what no table has any more before the rest of it comes.
const SWEEP_TIME: Duration = Duration::from_millis(50);
/// So many times what is flushed at once may wait for a storage that fails.
const WAITING_MAX: u64 = 4;
/// How long all that was committed may take to be in the storage, and how often that is asked.
const SAVE_TIME: Duration = Duration::from_secs(20);
const SAVE_ROUND: Duration = Duration::from_millis(10);
/// After the storage has failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Looks after the tenants of a thread as long as it lives.
pub(crate) async fn keep_house(here: Rc<Here>) {
    loop {
        tokio::time::sleep(ROUND).await;
        let snapshot_age = i64::try_from(here.process.keeping.snapshot_age.as_micros()).unwrap_or(i64::MAX);
        for (_, room) in here.rooms() {
            if !room.is_aside() {
                room.with(|tenant| tenant.end_old_snapshots(snapshot_age)).await;
            }
        }
        sweep(&here).await;
        report(&here);
        care(&here).await;
    }
}

/// Asks now and then how long what is ready waits for the thread.
pub(crate) async fn watch_lag(here: Rc<Here>) {
    loop {
        tokio::time::sleep(if here.connections.borrow().is_empty() { ROUND } else { PROBE }).await;
        let asked = Instant::now();
        tokio::task::yield_now().await;
        here.budget.borrow_mut().note_lag(asked.elapsed());
    }
}

/// Removes what no table has any more, a little at a time: of each tenant in its turn, and no longer than lets the rest of the round
/// come in time.
async fn sweep(here: &Here) {
    let began = Instant::now();
    let mut rooms: Vec<_> = here.rooms().into_iter().map(|(_, room)| room).collect();
    while !rooms.is_empty() && began.elapsed() < SWEEP_TIME {
        let mut unswept = Vec::new();
        for room in rooms {
            match room.sweep(KEYS).await {
                Ok(true) => {
                    unswept.push(room);
                    tokio::task::yield_now().await;
                }
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "what is to be removed of a tenant stays"),
            }
        }
        rooms = unswept;
    }
}

/// Says from where on the log is needed. What is committed from now on is behind that.
fn report(here: &Rc<Here>) {
    let behind = here.process.journal.appended().next();
    let rooms = here.rooms();
    let needs = rooms.iter().filter_map(|(_, room)| room.condition().needs_log_from);
    let floor = needs.chain(here.wakers_need_log_from()).chain([behind]).min().unwrap_or(Lsn::NONE);
    here.process.owner.lock().truncation.set_floor(here.number, floor);
}

/// Flushes whom it is time for, forgets who sleeps, and says who may write.
async fn care(here: &Rc<Here>) {
    let keeping = &here.process.keeping;
    let horizon = here.process.owner.lock().truncation.horizon();
    let rooms = here.rooms();
    let rows: u64 = rooms.iter().map(|(_, room)| room.condition().memory_bytes).sum();
    let crowd = here.process.note_usage(here.number, rows, rooms.len());
    for (id, room) in rooms {
        let Condition { clean, unflushed_bytes, memory_bytes, needs_log_from } = room.condition();
        let idle = room.is_idle(keeping.idle);
        if idle && clean && !room.flushing.get() {
            match room.with(Tenant::give_numbers_back).await {
                // That is flushed first.
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "numbers that a tenant has reserved are lost"),
            }
            // Somebody may have come meanwhile.
            if room.is_empty() {
                here.forget(id);
            }
            continue;
        }
        let crowd = crowd.filter(|crowd| memory_bytes > crowd.share);
        if !room.is_aside() {
            let why = match crowd {
                _ if room.storage_full.get() => Some(NoRoom::Storage),
                Some(Crowd { full: true, .. }) => Some(NoRoom::Memory),
                _ => None,
            };
            room.with(|tenant| tenant.refuse_writes(why)).await;
        }
        let holds_up_log = needs_log_from.is_some_and(|first| first < horizon);
        let due = unflushed_bytes >= keeping.flush_bytes || holds_up_log || crowd.is_some() || (idle && !clean);
        if due && !room.flushing.replace(true) {
            tokio::task::spawn_local(flush(Rc::clone(here), room, crowd.map(|crowd| crowd.share)));
        }
    }
}

/// Flushes a tenant once. One that has more rows in memory than its share keeps some less than that.
async fn flush(here: Rc<Here>, room: Rc<Room>, share: Option<u64>) {
    let flushed = flush_once(&here, &room).await;
    let unflushed = room.with(|tenant| tenant.database().unflushed_bytes()).await;
    room.storage_full.set(flushed.is_err() && unflushed >= WAITING_MAX * here.process.keeping.flush_bytes);
    if let Err(error) = flushed {
        tracing::warn!(%error, "a tenant could not be flushed; its commits are in the log");
        tokio::time::sleep(PAUSE).await;
    } else if let Some(share) = share {
        evict(&room, share / KEPT_OF * KEPT).await;
    }
    room.flushing.set(false);
}

/// Forgets rows that the storage has until no more than so many bytes are in memory, each time from where it stopped the last time.
async fn evict(room: &Rc<Room>, bytes: u64) {
    let mut from = room.evicted_to.take();
    // What is behind that place, and then from the beginning.
    let mut rounds = 0;
    while rounds < 2 && room.with(|tenant| tenant.database().memory_bytes() > bytes).await {
        let next = room.with(|tenant| tenant.database().evict(from, KEYS)).await;
        rounds += usize::from(next.is_none());
        from = next.unwrap_or_default();
        tokio::task::yield_now().await;
    }
    room.evicted_to.replace(from);
}

/// Flushes a tenant until its storage has all that was committed by now.
///
/// # Errors
/// 55000 if that takes too long.
pub(crate) async fn save(here: Rc<Here>, room: &Rc<Room>) -> SqlResult<()> {
    let began = Instant::now();
    let upto = room.with(|tenant| tenant.database().published()).await;
    while room.with(|tenant| tenant.database().flushed() < upto && !tenant.database().is_clean()).await {
        if began.elapsed() > SAVE_TIME {
            let message = "the database could not be written to its storage in time";
            let hint = "A transaction with an old snapshot may hold it up, or the storage is slow or fails: try again.";
            return Err(SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message).hint(hint));
        }
        if !room.flushing.replace(true) {
            tokio::task::spawn_local(flush(Rc::clone(&here), Rc::clone(room), None));
        }
        tokio::time::sleep(SAVE_ROUND).await;
    }
    Ok(())
}

async fn flush_once(here: &Here, room: &Rc<Room>) -> Result<(), Box<dyn std::error::Error>> {
    let mut saved = false;
    loop {
        match room.with(|tenant| tenant.database().flush(KEYS)).await? {
            Flush::Clean => break,
            Flush::Done if saved => break,
            Flush::More | Flush::Done => tokio::task::yield_now().await,
            Flush::Wait(lsn) => here.process.journal.wait_durable(lsn).await?,
            Flush::Sealed => {
                room.store(|home| async move { home.save().await }).await?;
                saved = true;
            }
        }
    }
    let mut compacted = false;
    while room.store(|home| async move { home.compact().await }).await? {
        compacted = true;
    }
    // That is when there is something to be removed.
    if compacted {
        room.store(|home| async move { home.collect_garbage().await }).await?;
    }
    Ok(())
}
