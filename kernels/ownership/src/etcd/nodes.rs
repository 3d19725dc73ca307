//! Nodes and their leases in etcd.

use std::time::Duration;

use etcd_client::{KeyValue, PutOptions, TxnOp};
use savanna_epoch::NodeEpoch;

use super::codec::{Area, StoredNode, decode, encode};
use super::{ATTEMPTS, EtcdCoordinator, at_version, too_busy};
use crate::coordinator::{ClaimOutcome, Grant};
use crate::error::{CoordinatorError, check_node};
use crate::record::{Incarnation, NodeRecord, NodeSpec, Tenure};

/// A name's keys, read at one revision.
struct NameState {
    node: Option<(KeyValue, StoredNode)>,
    epoch: (Option<KeyValue>, NodeEpoch),
    claim: (Option<KeyValue>, Option<Incarnation>),
}

impl EtcdCoordinator {
    async fn name_state(&self, name: &str) -> Result<NameState, CoordinatorError> {
        let keys = [Area::Nodes, Area::Epochs, Area::Claims].map(|area| self.keys.key(area, name));
        let mut read = self.get_all(keys.map(|key| TxnOp::get(key, None)).into()).await?.into_iter();
        let [node, epoch, claim] = std::array::from_fn(|_| read.next().flatten());
        let newest = epoch.as_ref().map(decode).transpose()?.unwrap_or(NodeEpoch::NONE);
        let claimant = claim.as_ref().map(decode).transpose()?;
        let node = match node {
            Some(kv) => {
                let stored = decode(&kv)?;
                Some((kv, stored))
            }
            None => None,
        };
        Ok(NameState { node, epoch: (epoch, newest), claim: (claim, claimant) })
    }

    pub(super) async fn register_node(&self, spec: &NodeSpec) -> Result<Grant, CoordinatorError> {
        check_node(spec)?;
        for _ in 0..ATTEMPTS {
            let state = self.name_state(&spec.name.0).await?;
            let claimed = state.claim.1.filter(|by| *by != spec.incarnation);
            match &state.node {
                Some((kv, stored)) if stored.record.incarnation == spec.incarnation => {
                    return self.renew_unclaimed(kv, stored, state.claim.1).await;
                }
                None if claimed.is_none() => {
                    if let Some(grant) = self.try_grant(spec, &state).await? {
                        return Ok(grant);
                    }
                }
                held => {
                    let remaining = match held {
                        Some((kv, _)) => self.remaining(kv.lease()).await?,
                        None => Duration::ZERO,
                    };
                    let tenure = held.as_ref().map(|(_, stored)| stored.record.tenure.epoch);
                    return Err(CoordinatorError::Held { node: spec.name.clone(), tenure, remaining });
                }
            }
        }
        Err(too_busy(&spec.name.0))
    }

    pub(super) async fn claim_node(&self, spec: &NodeSpec) -> Result<ClaimOutcome, CoordinatorError> {
        check_node(spec)?;
        for _ in 0..ATTEMPTS {
            let state = self.name_state(&spec.name.0).await?;
            match &state.node {
                None => {
                    if let Some(grant) = self.try_grant(spec, &state).await? {
                        return Ok(ClaimOutcome::Granted(grant));
                    }
                }
                Some((kv, stored)) if stored.record.incarnation == spec.incarnation => {
                    let grant = self.renew_unclaimed(kv, stored, state.claim.1).await?;
                    return Ok(ClaimOutcome::Granted(grant));
                }
                Some((kv, _)) => {
                    if state.claim.1 == Some(spec.incarnation) || self.try_claim(spec, &state).await? {
                        return Ok(ClaimOutcome::Pending { retry_after: self.remaining(kv.lease()).await? });
                    }
                }
            }
        }
        Err(too_busy(&spec.name.0))
    }

    /// Writes a claim against the holder that was read; false if something changed.
    async fn try_claim(&self, spec: &NodeSpec, state: &NameState) -> Result<bool, CoordinatorError> {
        let claim = self.keys.key(Area::Claims, &spec.name.0);
        let unchanged = vec![
            at_version(self.keys.key(Area::Nodes, &spec.name.0), state.node.as_ref().map(|(kv, _)| kv)),
            at_version(claim.clone(), state.claim.0.as_ref()),
        ];
        let write = TxnOp::put(claim, encode(&spec.incarnation), None);
        Ok(self.commit(unchanged, vec![write]).await?.is_some())
    }

    /// Grants a free name under the next epoch; none if something changed.
    async fn try_grant(&self, spec: &NodeSpec, state: &NameState) -> Result<Option<Grant>, CoordinatorError> {
        let mut leases = self.client.lease_client();
        let seconds = i64::try_from(self.ttl.as_nanos().div_ceil(1_000_000_000)).unwrap_or(i64::MAX);
        let lease = leases.grant(seconds, None).await.map_err(CoordinatorError::from)?;
        let ttl = Duration::from_secs(lease.ttl().try_into().unwrap_or(0));

        let name = &spec.name.0;
        let record = NodeRecord::granted(spec, state.epoch.1.next());
        let tenure = record.tenure.clone();
        let stored = StoredNode { record, ttl_ms: ttl.as_millis().try_into().unwrap_or(u64::MAX) };
        let [node, epoch, claim] = [Area::Nodes, Area::Epochs, Area::Claims].map(|area| self.keys.key(area, name));
        let unchanged = vec![
            at_version(node.clone(), None),
            at_version(epoch.clone(), state.epoch.0.as_ref()),
            at_version(claim.clone(), state.claim.0.as_ref()),
        ];
        let writes = vec![
            TxnOp::put(node, encode(&stored), Some(PutOptions::new().with_lease(lease.id()))),
            TxnOp::put(epoch, encode(&tenure.epoch), None),
            TxnOp::delete(claim, None),
        ];
        if self.commit(unchanged, writes).await?.is_some() {
            return Ok(Some(Grant { tenure, ttl }));
        }
        // Nothing hangs on this lease; if revoking fails, it runs out by itself.
        if let Err(error) = leases.revoke(lease.id()).await {
            tracing::debug!(%error, "an unused etcd lease was not revoked");
        }
        Ok(None)
    }

    pub(super) async fn renew_node(&self, tenure: &Tenure) -> Result<Duration, CoordinatorError> {
        let state = self.name_state(&tenure.node.0).await?;
        match &state.node {
            Some((kv, stored)) if stored.record.tenure == *tenure => {
                Ok(self.renew_unclaimed(kv, stored, state.claim.1).await?.ttl)
            }
            _ => Err(CoordinatorError::TenureOver { tenure: tenure.clone() }),
        }
    }

    /// Extends the etcd lease of a node. A claim that is placed between reading and extending delays the claimant by the
    /// time of one request.
    async fn renew_unclaimed(
        &self,
        kv: &KeyValue,
        stored: &StoredNode,
        claim: Option<Incarnation>,
    ) -> Result<Grant, CoordinatorError> {
        let tenure = stored.record.tenure.clone();
        if let Some(by) = claim {
            return Err(CoordinatorError::Claimed { tenure, by });
        }
        match self.client.lease_client().keep_alive(kv.lease()).await {
            // The client answers only after the first renewal was acknowledged.
            Ok(_renewed) => Ok(Grant { tenure, ttl: Duration::from_millis(stored.ttl_ms) }),
            Err(etcd_client::Error::LeaseKeepAliveError(_)) => Err(CoordinatorError::TenureOver { tenure }),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn end_node(&self, tenure: &Tenure) -> Result<(), CoordinatorError> {
        let state = self.name_state(&tenure.node.0).await?;
        if let Some((kv, stored)) = &state.node
            && stored.record.tenure == *tenure
        {
            // Revoking the lease deletes the key that hangs on it; an unknown lease has done so already.
            match self.client.lease_client().revoke(kv.lease()).await {
                Ok(_) => {}
                Err(etcd_client::Error::GRpcStatus(status)) if status.message().contains("lease not found") => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn remaining(&self, lease: i64) -> Result<Duration, CoordinatorError> {
        let response = self.client.lease_client().time_to_live(lease, None).await.map_err(CoordinatorError::from)?;
        Ok(Duration::from_secs(response.ttl().try_into().unwrap_or(0)))
    }
}
