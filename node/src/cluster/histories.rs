//! In which log the commits of a service are: its owner says so before it serves anybody.

use savanna_epoch::{LogId, NodeId, OwnerEpoch, ShardId};
use savanna_ownership::logs::{self, LogPlace, LogRecord, LogRecordError, LogState, NewLog};
use savanna_ownership::{ClusterView, CoordinatorError, History, ShardRecord, Tenure, Transition};

use super::Joined;

/// Why a shard's commits were not taken over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeError {
    #[error("who owns {shard} could not be changed: {source}")]
    Coordinator { shard: ShardId, source: Box<CoordinatorError> },
    #[error("{shard} is not this node's any more")]
    NotOwner { shard: ShardId },
    #[error(transparent)]
    Log(#[from] LogRecordError),
}

impl Joined {
    /// Says in the record of a service's shard that its commits are in this node's log from now on, which is open and has all of them.
    /// Clients may be served from then on.
    ///
    /// # Errors
    /// [`TakeError`]: nobody may be served.
    pub(crate) async fn take_history(&self, service: &'static str, epoch: OwnerEpoch) -> Result<(), TakeError> {
        let shard = ShardId::new(service);
        let failed = |source| TakeError::Coordinator { shard: shard.clone(), source: Box::new(source) };
        let mut own_log = None;
        loop {
            let record = self.coordinator.shard(&shard).await.map_err(failed)?;
            let record = record.filter(|record| record.value.epoch_of(&self.tenure) == Some(epoch));
            let Some(record) = record else { return Err(TakeError::NotOwner { shard }) };
            if is_taken(&record.value, &self.tenure.node) {
                break;
            }
            let log = match own_log.take() {
                Some(log) => log,
                None => self.own_log(service).await?,
            };
            own_log = Some(log.clone());
            let history = Some(History { log, epoch });
            let transition = Transition {
                shard: shard.clone(),
                expected: record.version,
                record: record.value.with_history(history),
                by: Some(self.tenure.clone()),
            };
            match self.coordinator.transition(&transition).await {
                Ok(_) => break,
                // Whether it was done shows when the record is read again.
                Err(CoordinatorError::Conflict { .. } | CoordinatorError::Unavailable { .. }) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        if let Err(error) = self.forget_logs(service).await {
            tracing::debug!(%error, service, "the records of former logs are removed by the next owner");
        }
        Ok(())
    }

    /// A log of this tenure that no shard names, as an attempt before has left it; else a new one.
    async fn own_log(&self, service: &'static str) -> Result<LogId, TakeError> {
        let failed = |source| TakeError::Coordinator { shard: ShardId::new(service), source: Box::new(source) };
        let view = ClusterView::new(self.coordinator.snapshot().await.map_err(failed)?);
        match unnamed_log(&view, service, &self.tenure) {
            Some(log) => Ok(log),
            None => self.begin_log(service, &view).await,
        }
    }

    /// Begins a log of this node. All logs of a service lie in one folder, which the log's owner has fenced: nobody may seal what is there,
    /// so its place is told as one that only the node knows.
    async fn begin_log(&self, service: &'static str, view: &ClusterView) -> Result<LogId, TakeError> {
        let failed = |source| TakeError::Coordinator { shard: ShardId::new(service), source: Box::new(source) };
        let new = NewLog::allocate(&*self.coordinator, &self.tenure.node, service).await.map_err(failed)?;
        let log = new.id().clone();
        let place = LogPlace::Private(service.to_owned());
        let begun = logs::begin(view, new, place, self.tenure.clone())?;
        self.coordinator.apply(&begun.into()).await.map_err(failed)?;
        Ok(log)
    }

    /// Removes the records of logs whose owners are gone, and that no shard names any more. What was in them, this node has.
    async fn forget_logs(&self, service: &'static str) -> Result<(), TakeError> {
        let failed = |source| TakeError::Coordinator { shard: ShardId::new(service), source: Box::new(source) };
        let view = ClusterView::new(self.coordinator.snapshot().await.map_err(failed)?);
        let is_former = |(log, record): &(&LogId, &LogRecord)| {
            log.service == service
                && !view.lives(&record.holder)
                && matches!(record.place, LogPlace::Private(_))
                && logs::shards_in(&view, log).next().is_none()
        };
        let (all, _) = logs::readable(&view);
        for (log, record) in all.iter().filter(is_former) {
            if record.state == LogState::Open {
                self.coordinator.apply(&logs::seal(&view, log)?.into()).await.map_err(failed)?;
            }
            let view = ClusterView::new(self.coordinator.snapshot().await.map_err(failed)?);
            self.coordinator.apply(&logs::remove(&view, log)?.into()).await.map_err(failed)?;
        }
        Ok(())
    }
}

/// Whether a shard's commits are in a log of its owner, which this node is, and has said so under its grant.
fn is_taken(record: &ShardRecord, node: &NodeId) -> bool {
    record.history.as_ref().is_some_and(|history| history.epoch == record.epoch && history.log.node == *node)
}

/// A log of a service that this tenure has begun and no shard names.
fn unnamed_log(view: &ClusterView, service: &str, tenure: &Tenure) -> Option<LogId> {
    let is_left = |log: &LogId, record: &LogRecord| {
        log.service == service
            && record.holder == *tenure
            && record.state == LogState::Open
            // The engine of tenants keeps records of its own logs, in another place.
            && record.place == LogPlace::Private(service.to_owned())
            && logs::shards_in(view, log).next().is_none()
    };
    logs::readable(view).0.into_iter().find(|(log, record)| is_left(log, record)).map(|(log, _)| log)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use savanna_ownership::core::{CoordinatorCore, Reply, Request};
    use savanna_ownership::{Incarnation, MonoTime, NodeSpec, Revision};

    use super::*;

    #[test]
    fn a_log_that_no_shard_names_is_used_again_by_its_tenure_alone() {
        let mut core = CoordinatorCore::new(Duration::from_secs(3600));
        let spec = |incarnation| NodeSpec {
            name: NodeId::new("n1"),
            incarnation: Incarnation(incarnation),
            address: String::new(),
            labels: BTreeMap::new(),
        };
        let join = |core: &mut CoordinatorCore, incarnation| match core
            .step(&Request::Register(spec(incarnation)), MonoTime(0))
            .reply
        {
            Ok(Reply::Granted(grant)) => grant.tenure,
            other => panic!("expected a grant, came {other:?}"),
        };
        let first = join(&mut core, 1);
        let new = NewLog::numbered(&first.node, "keys", &(1..2)).unwrap();
        let log = new.id().clone();
        let view = |core: &CoordinatorCore| ClusterView::new(core.snapshot());
        let place = LogPlace::Private("keys".to_owned());
        let begun = logs::begin(&view(&core), new, place, first.clone()).unwrap();
        core.step(&Request::Apply(begun.into()), MonoTime(0)).reply.unwrap();
        let unnamed =
            |core: &CoordinatorCore, service: &str, tenure: &Tenure| unnamed_log(&view(core), service, tenure);
        assert_eq!(unnamed(&core, "keys", &first), Some(log.clone()));
        assert_eq!(unnamed(&core, "tenants", &first), None);
        let keys = ShardId::new("keys");
        let record = ShardRecord::serving(first.clone(), OwnerEpoch(1));
        let grant = Transition { shard: keys.clone(), expected: Revision::NONE, record, by: None };
        core.step(&Request::Apply(grant.into()), MonoTime(0)).reply.unwrap();
        let granted = core.shard(&keys).unwrap().clone();
        assert!(!is_taken(&granted.value, &first.node));
        let record = granted.value.with_history(Some(History { log, epoch: OwnerEpoch(1) }));
        assert!(is_taken(&record, &first.node));
        let taken = Transition { shard: keys, expected: granted.version, record, by: Some(first.clone()) };
        core.step(&Request::Apply(taken.into()), MonoTime(0)).reply.unwrap();
        assert_eq!(unnamed(&core, "keys", &first), None, "it is in use");
        core.step(&Request::Deregister(first), MonoTime(0)).reply.unwrap();
        let second = join(&mut core, 2);
        assert_eq!(unnamed(&core, "keys", &second), None, "an earlier process has begun it");
    }
}
