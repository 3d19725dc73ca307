//! The database behind the log: what is on its way there and back, and what is given up because it has it.

use std::sync::Arc;

use rand::Rng as _;
use savanna_files::flush::{Batch, Sent};
use savanna_files::ids::{InodeId, Txid};
use savanna_files::{Class, Fetched, Key, Namespace};
use savanna_journal::Lsn;

use super::database::Refusal;
use super::process::{Answered, Asking, Point, Told, Waiting, Work};
use super::tree::Answer;
use super::world::{Variant, World};

impl World {
    /// A batch of changes is on its way.
    pub(super) fn flush(&mut self, at: u64) {
        let rows = self.dice.random_range(1..30);
        let number = self.next_number();
        let variant = self.variant;
        let Some(process) = self.process_mut(at) else { return };
        // Without a lease another process may have the log already; it brings them.
        if process.writing.is_some() || !process.guard.serving() && variant != Variant::LeaseIgnored {
            return;
        }
        let durable = process.journal.durable();
        let is_durable = |lsn: Lsn| lsn <= durable || variant == Variant::FlushedBeforeLog;
        let Some(mut batch) = Batch::of(&process.state.unflushed.next(rows, is_durable)) else { return };
        if variant == Variant::RenamedNotDeleted {
            let Batch { removed, rows, .. } = &mut batch;
            removed.retain(|id| !rows.iter().any(|stored| stored.row.id == *id));
        }
        if variant == Variant::SentForgotten {
            process.sent = Sent::default();
        }
        process.writing = Some((number, process.sent.begin(batch.txid)));
        let (owner, base) = (process.owner, process.flushed);
        self.asked.push((at, owner, Asking::Write { number, base, batch: Arc::new(batch) }));
    }

    /// No answer has come for too long; the batch may be done yet.
    pub(super) fn flush_again(&mut self, at: u64) {
        if let Some(process) = self.process_mut(at) {
            process.writing = None;
        }
    }

    /// What waits for keys asks the database; what waits for room, or has waited for too long, goes on.
    pub(super) fn ask_for_keys(&mut self, at: u64) {
        let Some(process) = self.process_mut(at) else { return };
        let owner = process.owner;
        let mut asking = Vec::new();
        for waiting in process.waiting.iter_mut().filter(|waiting| !waiting.is_asked && !waiting.keys.is_empty()) {
            waiting.is_asked = true;
            asking.push((at, owner, Asking::Fetch { number: waiting.number, keys: waiting.keys.clone() }));
        }
        self.asked.extend(asking);
    }

    /// The database does something of what it is asked, in any order.
    pub(super) fn database_works(&mut self) -> Result<(), String> {
        if self.asked.is_empty() {
            return Ok(());
        }
        let next = self.dice.random_range(0..self.asked.len());
        let (at, owner, asking) = self.asked.swap_remove(next);
        let is_lost = self.dice.random_ratio(1, 15);
        // What is on its way when nobody reaches it may come later.
        if self.database.is_away {
            if matches!(asking, Asking::Write { .. }) && self.dice.random_ratio(1, 3) {
                self.asked.push((at, owner, asking.clone()));
            }
            self.answered.push((
                at,
                match asking {
                    Asking::Fetch { number, .. } => Answered::Fetched(number, None),
                    Asking::Write { number, .. } => Answered::Written(number, None),
                },
            ));
            return Ok(());
        }
        let lost = |refusal: &Refusal| Answered::Lost(format!("{owner:?}: {refusal:?}"));
        let answer = match asking {
            Asking::Fetch { number, keys } => match self.database.fetch(owner, &keys) {
                Ok(fetched) => Answered::Fetched(number, Some(fetched)),
                Err(refusal) => lost(&refusal),
            },
            Asking::Write { number, base, batch } => {
                let done = match self.variant {
                    Variant::MarkerApart => {
                        let is_reached = self.dice.random_ratio(4, 5);
                        self.database.is_away |= !is_reached;
                        self.database.write_apart(owner, base, &batch, is_reached)
                    }
                    _ => self.database.write(owner, base, &batch),
                };
                match done {
                    Ok(()) => Answered::Written(number, Some(batch.txid)),
                    Err(Refusal::NotUnique(words)) => return Err(format!("the database refuses a batch: {words}")),
                    Err(refusal) => {
                        self.happened.refused += 1;
                        // Nobody listens to what became of a batch that was given up.
                        let sent = self.process(at).and_then(|process| process.writing);
                        let Some((_, sending)) = sent.filter(|(sent, _)| *sent == number) else { return Ok(()) };
                        match refusal {
                            Refusal::WentBack(came) if sending.was_overtaken(came) => {
                                Answered::Written(number, Some(came))
                            }
                            _ => lost(&refusal),
                        }
                    }
                }
            }
        };
        self.answered.push((
            at,
            match answer {
                Answered::Fetched(number, _) if is_lost => Answered::Fetched(number, None),
                Answered::Written(number, _) if is_lost => Answered::Written(number, None),
                answer => answer,
            },
        ));
        Ok(())
    }

    /// An answer of the database comes.
    pub(super) fn hear_database(&mut self) -> Result<(), String> {
        if self.answered.is_empty() {
            return Ok(());
        }
        let next = self.dice.random_range(0..self.answered.len());
        let (at, answered) = self.answered.swap_remove(next);
        let now = self.now();
        let Some(process) = self.process_mut(at) else { return Ok(()) };
        match answered {
            Answered::Lost(words) => {
                if at == self.epoch {
                    return Err(format!("the newest owner has lost the database: {words}"));
                }
                self.end(at);
                Ok(())
            }
            Answered::Written(number, txid) => {
                if process.writing.is_none_or(|(sent, _)| sent != number) {
                    return Ok(());
                }
                process.writing = None;
                let Some(txid) = txid else { return Ok(()) };
                process.flushed = process.flushed.max(txid);
                let needed = process.state.flushed(txid);
                process.needed = needed.or(process.needed);
                let crowded = process.waiting.extract_if(.., |waiting| waiting.keys.is_empty());
                let crowded: Vec<Waiting> = crowded.collect();
                self.happened.flushes += 1;
                self.give_up(at);
                crowded.into_iter().try_for_each(|waiting| self.attempt(at, waiting, None))
            }
            Answered::Fetched(number, fetched) => {
                let Some(index) = process.waiting.iter().position(|waiting| waiting.number == number) else {
                    return Ok(());
                };
                let Some(fetched) = fetched else {
                    process.waiting[index].is_asked = false;
                    if process.waiting[index].deadline >= now {
                        return Ok(());
                    }
                    let Work::Ask(call) = process.waiting.remove(index).work else { return Ok(()) };
                    let told = Told { call, answer: Answer::Refused(Class::Retriable), point: Point::Refused };
                    return self.hold(at, None, told);
                };
                let Ok(known) = process.state.namespace.learn(&fetched) else {
                    process.waiting[index].is_asked = false;
                    self.happened.too_old += 1;
                    return Ok(());
                };
                let waiting = process.waiting.remove(index);
                self.attempt(at, waiting, Some(&known))?;
                self.give_up(at);
                Ok(())
            }
        }
    }

    /// What is not used is given up, but for very little.
    pub(super) fn give_up(&mut self, at: u64) {
        let here = self.cache;
        let variant = self.variant;
        let Some(process) = self.process_mut(at) else { return };
        let namespace = &mut process.state.namespace;
        let whole = if variant == Variant::CompleteSurvives { whole_directories(namespace) } else { Vec::new() };
        let mut count = 0;
        loop {
            let given_up = namespace.give_up(here, 3);
            if given_up == 0 {
                break;
            }
            count += u32::try_from(given_up).expect("a few");
        }
        if count > 0 && variant == Variant::TombstonesDropped {
            namespace.forget_tombstones();
        }
        pretend_whole(namespace, &whole);
        self.happened.given_up += count;
    }

    /// Drops what of the log the database has.
    pub(super) fn cut(&mut self, at: u64) {
        if let Some(process) = self.process_mut(at)
            && let Some(lsn) = process.needed.take()
        {
            process.journal.truncate_before(lsn);
            self.happened.cuts += 1;
        }
    }
}

/// Directories of which everything is here.
fn whole_directories(namespace: &Namespace) -> Vec<InodeId> {
    let tree = namespace.tree();
    let rows = tree.rows().filter(|row| row.file().is_none());
    let is_whole =
        |id: &InodeId| tree.get(*id).is_some_and(|inode| inode.child_count() == tree.children(*id, b"").count());
    rows.map(|row| row.id).filter(is_whole).collect()
}

/// Has directories count as all here, as if the database had said so.
fn pretend_whole(namespace: &mut Namespace, directories: &[InodeId]) {
    for directory in directories {
        let txid = Txid(u64::MAX);
        let key = Key::Children(*directory, Box::default());
        let _ = namespace.learn(&[Fetched { key, txid, rows: Vec::new(), is_end: true }]);
    }
}
