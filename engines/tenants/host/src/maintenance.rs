//! What a thread does beside statements: its tenants are flushed when they have written much, hold up the log, take more memory
//! than their share, or have no clients; and those without clients fall asleep. [`policy`](crate::policy) decides.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use savanna_tenants::tenant::Tenant;
use savanna_tenants_store::database::Database;
use savanna_tenants_values::error::{Result as SqlResult, SqlError, state};

use crate::{
    flushing::{Eviction, FlushRun, Step},
    policy::{self, Flush, Plan, storage_is_full},
    slot::TenantSlot,
    thread::ThreadContext,
};

/// How often a thread looks after its tenants.
const ROUND: Duration = Duration::from_millis(100);
/// How often somebody asks how long the thread takes to come round.
const PROBE: Duration = Duration::from_millis(10);
/// Keys that are removed, flushed or forgotten at once.
const KEYS: usize = 1_000;
/// How long a round may remove what no table has any more before the rest of it comes.
const SWEEP_TIME: Duration = Duration::from_millis(50);
/// How long all that was committed may take to be in the storage, and how often that is asked.
const SAVE_TIME: Duration = Duration::from_secs(20);
const SAVE_ROUND: Duration = Duration::from_millis(10);
/// How long what a session has left waits for it: no front seeks a session for longer.
const UNCLAIMED: Duration = Duration::from_secs(30);
/// After the storage has failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Looks after the tenants of a thread as long as it lives.
pub(crate) async fn maintain(thread: Rc<ThreadContext>) {
    loop {
        tokio::time::sleep(ROUND).await;
        let snapshot_age = i64::try_from(thread.process.keeping.snapshot_age.as_micros()).unwrap_or(i64::MAX);
        for slot in thread.slots() {
            if !slot.is_aside() {
                let is_late = slot.welcomes.get().elapsed() > UNCLAIMED;
                slot.with(|tenant| {
                    tenant.end_old_snapshots(snapshot_age);
                    if is_late {
                        tenant.end_unclaimed(UNCLAIMED);
                    }
                })
                .await;
            }
        }
        sweep(&thread).await;
        thread.wake_moved();
        thread.report_log_floor();
        maintain_tenants(&thread).await;
    }
}

/// Asks now and then how long what is ready waits for the thread.
pub(crate) async fn watch_lag(thread: Rc<ThreadContext>) {
    loop {
        tokio::time::sleep(if thread.sessions.borrow().is_empty() { ROUND } else { PROBE }).await;
        let asked = Instant::now();
        tokio::task::yield_now().await;
        thread.budget.borrow_mut().note_lag(asked.elapsed());
    }
}

/// Removes what no table has any more, a little at a time: of each tenant in its turn, and no longer than lets the rest of the round
/// come in time.
async fn sweep(thread: &ThreadContext) {
    let began = Instant::now();
    let mut slots = thread.slots();
    while !slots.is_empty() && began.elapsed() < SWEEP_TIME {
        let mut unswept = Vec::new();
        for slot in slots {
            match slot.sweep(KEYS).await {
                Ok(true) => {
                    unswept.push(slot);
                    tokio::task::yield_now().await;
                }
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "what is to be removed of a tenant stays"),
            }
        }
        slots = unswept;
    }
}

/// Flushes whom it is time for, puts to sleep who has no clients, and says who may write.
async fn maintain_tenants(thread: &Rc<ThreadContext>) {
    let horizon = thread.process.owner.lock().truncation.horizon();
    let slots = thread.slots();
    let rows = slots.iter().map(|slot| {
        let bytes = slot.condition().memory_bytes;
        slot.activity.takes(bytes);
        bytes
    });
    let rows = rows.sum();
    let pressure = thread.process.note_usage(thread.number, rows, slots.len());
    for slot in slots {
        slot.remove_litter();
        match policy::plan(&slot.found(), &thread.process.limits(), horizon, pressure) {
            Plan::Sleep => sleep(thread, &slot).await,
            Plan::Stay { refuses, flush } => {
                if !slot.is_aside() {
                    slot.with(|tenant| tenant.refuse_writes(refuses)).await;
                }
                if let Some(how) = flush {
                    begin_flush(thread, &slot, how);
                }
            }
        }
    }
}

/// Puts a tenant to sleep, unless it has something to be flushed now.
async fn sleep(thread: &ThreadContext, slot: &Rc<TenantSlot>) {
    if slot.with(|tenant| tenant.awaits_sessions()).await || slot.has_litter() {
        return;
    }
    match slot.with(Tenant::give_numbers_back).await {
        // That is flushed first.
        Ok(true) => return,
        Ok(false) => {}
        Err(error) => tracing::warn!(%error, "numbers that a tenant has reserved are lost"),
    }
    // Somebody may have come meanwhile.
    if slot.is_empty() {
        thread.sleep(slot.id);
    }
}

/// Flushes a tenant in a task of its own, unless it is being flushed.
fn begin_flush(thread: &Rc<ThreadContext>, slot: &Rc<TenantSlot>, how: Flush) {
    if !slot.flushing.replace(true) {
        tokio::task::spawn_local(flush(Rc::clone(thread), Rc::clone(slot), how));
    }
}

async fn flush(thread: Rc<ThreadContext>, slot: Rc<TenantSlot>, how: Flush) {
    let flushed = flush_once(&thread, &slot).await;
    let unflushed = slot.with(|tenant| tenant.database().unflushed_bytes()).await;
    slot.storage_full.set(storage_is_full(flushed.is_err(), unflushed, &thread.process.limits()));
    if let Err(error) = flushed {
        tracing::warn!(%error, "a tenant could not be flushed; its commits are in the log");
        tokio::time::sleep(PAUSE).await;
    } else if let Some(bytes) = how.keeps_bytes {
        evict(&slot, bytes).await;
    }
    slot.flushing.set(false);
}

/// Forgets rows that the storage has until no more than so many bytes are in memory, each time from where it stopped the last time.
async fn evict(slot: &Rc<TenantSlot>, bytes: u64) {
    let mut eviction = Eviction::new(bytes, KEYS, slot.evicted_to.take());
    while slot.with(|tenant| eviction.step(tenant.database())).await {
        tokio::task::yield_now().await;
    }
    slot.evicted_to.replace(eviction.into_place());
}

/// Flushes a tenant until its storage has all that was committed by now, or what of it no open snapshot holds up.
///
/// # Errors
/// 55000 if that takes too long.
pub(crate) async fn save(thread: &Rc<ThreadContext>, slot: &Rc<TenantSlot>, all: bool) -> SqlResult<()> {
    let began = Instant::now();
    let upto =
        slot.with(|tenant| if all { tenant.database().published() } else { tenant.database().may_be_stored() }).await;
    let is_enough = |database: &Database| {
        database.flushed() >= upto || if all { database.is_clean() } else { database.is_written_down() }
    };
    while !slot.with(|tenant| is_enough(tenant.database())).await {
        if began.elapsed() > SAVE_TIME {
            let message = "the database could not be written to its storage in time";
            let hint = "A transaction with an old snapshot may delay it, or the storage is slow or fails. Try again.";
            return Err(SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message).hint(hint));
        }
        begin_flush(thread, slot, Flush::default());
        tokio::time::sleep(SAVE_ROUND).await;
    }
    Ok(())
}

/// Flushes a tenant that nobody uses, without putting its storage in order: whoever has it next does that.
///
/// # Errors
/// 58030 if the storage does not take it.
pub(crate) async fn flush_for_good(thread: &ThreadContext, slot: &Rc<TenantSlot>) -> SqlResult<()> {
    let flushed = flush_until(thread, slot, |step| matches!(step, Step::Compact | Step::CollectGarbage)).await;
    flushed.map_err(|error| {
        SqlError::new(state::IO_ERROR, format!("the database could not be written to its storage: {error}"))
    })
}

async fn flush_once(thread: &ThreadContext, slot: &Rc<TenantSlot>) -> Result<(), Box<dyn std::error::Error>> {
    flush_until(thread, slot, |_| false).await
}

async fn flush_until(
    thread: &ThreadContext,
    slot: &Rc<TenantSlot>,
    is_enough: impl Fn(&Step) -> bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut run = FlushRun::new(KEYS);
    let mut next = Step::Collect;
    while !is_enough(&next) {
        next = match next {
            Step::Collect => {
                let next = slot.with(|tenant| run.collect(tenant.database())).await?;
                tokio::task::yield_now().await;
                next
            }
            Step::WaitDurable(lsn) => {
                thread.process.journal.wait_durable(lsn).await?;
                Step::Collect
            }
            Step::Save => {
                slot.store(|home| async move { home.save().await }).await?;
                run.saved()
            }
            Step::Compact => run.compacted(slot.store(|home| async move { home.compact().await }).await?),
            Step::CollectGarbage => {
                slot.store(|home| async move { home.collect_garbage().await }).await?;
                Step::Done
            }
            Step::Done => break,
        };
    }
    Ok(())
}
