//! What has to hold, whatever happens: of each answer when it is told, of each log that has ended, and of everything in the end.

use savanna_control::Loads;
use savanna_epoch::LogId;
use savanna_journal::{Options, SealedLog, seal};
use savanna_ownership::{Tenure, logs};
use savanna_tenants_store::shards;

use super::{NAMES, NODES, ROUNDS, World};

type Checked = Result<(), String>;

impl World {
    /// Somebody is told something of a tenant by a process of this tenure, out of this log: by the records, as they are at this instant, it is
    /// the one that may, and they name that log.
    pub(super) fn check_told(&self, name: &str, (tenure, log): (&Tenure, &LogId)) -> Checked {
        let view = self.view();
        let tenant = shards::named(&view, name).expect("a record");
        let record = tenant.and_then(|tenant| view.shard(&shards::shard(tenant))).map(|record| &record.value);
        let Some(record) = record else { return Err(format!("{name} is answered by {tenure}, and there is none")) };
        if record.owner() != Some(tenure) || !view.lives(tenure) {
            return Err(format!("{name} is answered by {tenure}, which has no right to it: {record:?}"));
        }
        match &record.history {
            Some(history) if history.log == *log => Ok(()),
            other => Err(format!("{name} is answered out of log {log}, and its history names another: {other:?}")),
        }
    }

    /// A log is ended, perhaps not for the first time: nothing has come to be in it since.
    pub(super) fn end_log(&mut self, place: &str, options: &Options, epoch: savanna_epoch::NodeEpoch) -> Ended {
        let sealed = seal(options, epoch).map_err(Failed::Journal)?;
        let last = sealed.last();
        let before = *self.ended.entry(place.to_owned()).or_insert(last);
        if before != last {
            return Err(Failed::Check(format!("the log {place} has ended at {before}, and has grown to {last}")));
        }
        Ok(sealed)
    }

    /// Nothing is left to do, and each tenant is served, with all that was told of it.
    pub(super) fn check_end(&mut self) -> Checked {
        let decision = savanna_control::step(&self.view(), &Loads::default());
        if !decision.intents.is_empty() || !decision.stuck.is_empty() {
            return Err(format!("after {ROUNDS} rounds there is still to do: {decision:?}"));
        }
        let open = logs::all(&self.view()).expect("records").len();
        if open != NODES {
            return Err(format!("expected a log for each of {NODES} nodes, found {open}"));
        }
        // Also those of which nobody was told.
        for (key, _) in self.view().roots(NAMES) {
            let name = key[NAMES.len()..].to_owned();
            if self.server(&name)?.is_none() {
                return Err(format!("{name} has a name, and nobody serves it"));
            }
        }
        for (name, told) in self.told.clone() {
            let Some(running) = self.server(&name)? else { return Err(format!("nobody serves {name}")) };
            let found = running.process.last_commit(&name)?;
            if !(told.certain..=told.tried).contains(&found) {
                return Err(format!("{name} is after commit {found}, expected {told:?}"));
            }
            let lsn = running.process.commit(&name, told.tried + 1);
            if !lsn.is_some_and(|lsn| running.may_tell(lsn)) {
                return Err(format!("the node that serves {name} takes no commit"));
            }
        }
        Ok(())
    }
}

/// Why a log was not ended.
pub(super) enum Failed {
    Journal(savanna_journal::JournalError),
    Check(String),
}

type Ended = Result<SealedLog, Failed>;
