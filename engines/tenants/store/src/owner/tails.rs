//! Which commits of a log are to be done again: those of the tenants whose history is there, behind the place that the history names.
//!
//! A history `(log, epoch)` begins behind the *last* record OWNED of the tenant and that epoch in the log. If there is none, because the
//! tenant was made here, a former release wrote the log, or it was cut behind that record, all commits of the tenant count that the log has.
//! What somebody left there who began to take the tenant over and did not come to the end is named by no history: records TAIL of another
//! epoch do not count, and those of the same one are before its last OWNED.

use std::collections::BTreeMap;

use savanna_epoch::OwnerEpoch;
use savanna_journal::Record;
use savanna_tenants_segments::TenantId;

use crate::{
    log::{COMMIT, OWNED, RecordError, TAIL, UNLINKED, link, owned, tail},
    owner::Tail,
};

/// The tenants whose histories are in a log, and what they have there.
#[derive(Debug, Default)]
pub(crate) struct Tails {
    since: BTreeMap<TenantId, OwnerEpoch>,
    tails: BTreeMap<TenantId, Tail>,
}

impl Tails {
    /// Of tenants with the epochs that their histories name.
    pub(crate) fn of(since: BTreeMap<TenantId, OwnerEpoch>) -> Self {
        Self { since, tails: BTreeMap::new() }
    }

    /// Takes the next record in. Whether it is about one of the tenants.
    pub(crate) fn take(&mut self, record: Record) -> Result<bool, RecordError> {
        let Record { shard, lsn, kind, payload, .. } = record;
        let Some(since) = self.since.get(&shard) else { return Ok(false) };
        match kind {
            COMMIT => self.push(shard, (lsn, payload)),
            UNLINKED => self.push(shard, (lsn, link(&payload).into())),
            TAIL => {
                let (epoch, commit) = tail(&payload)?;
                if epoch == *since {
                    self.push(shard, (lsn, commit));
                }
            }
            OWNED if owned(&payload)? == *since => drop(self.tails.remove(&shard)),
            _ => {}
        }
        Ok(true)
    }

    fn push(&mut self, tenant: TenantId, commit: (savanna_journal::Lsn, bytes::Bytes)) {
        self.tails.entry(tenant).or_default().push(commit);
    }

    pub(crate) fn into_tails(self) -> BTreeMap<TenantId, Tail> {
        self.tails
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use savanna_epoch::NodeEpoch;
    use savanna_journal::Lsn;

    use super::*;

    fn record(shard: TenantId, kind: u16, epoch: Option<u64>, commit: &[u8]) -> Record {
        let epoch = epoch.map(u64::to_le_bytes).unwrap_or_default();
        let payload = if kind == COMMIT { commit.to_vec() } else { [&epoch[..], commit].concat() };
        Record { stream: 0, epoch: NodeEpoch(1), lsn: Lsn(1), shard, kind, payload: Bytes::from(payload) }
    }

    #[test]
    fn what_counts_is_behind_the_last_beginning_that_the_history_names() {
        let log = [
            record(7, COMMIT, None, b"a"),
            // Somebody began to take it over under epoch 4, twice under 6, and did not come to the end.
            record(7, OWNED, Some(4), b""),
            record(7, TAIL, Some(4), b"b"),
            record(7, OWNED, Some(6), b""),
            record(7, TAIL, Some(6), b"c"),
            record(7, OWNED, Some(6), b""),
            record(7, TAIL, Some(6), b"d"),
            record(8, OWNED, Some(6), b""),
            record(7, COMMIT, None, b"e"),
            record(9, COMMIT, None, b"x"),
        ];
        let tail = |since| {
            let mut tails = Tails::of([(7, OwnerEpoch(since))].into());
            let mut about = 0;
            for record in log.clone() {
                about += u32::from(tails.take(record).expect("records"));
            }
            assert_eq!(about, 8);
            let tail = tails.into_tails().remove(&7).unwrap_or_default();
            String::from_utf8(tail.into_iter().flat_map(|(_, commit)| commit).collect()).expect("letters")
        };
        assert_eq!(tail(6), "de");
        assert_eq!(tail(4), "be", "until that was given up");
        assert_eq!(tail(1), "ae", "nobody said where that begins");
    }

    #[test]
    fn a_record_that_ends_early_is_refused() {
        for (kind, payload) in [(OWNED, &b"1234567"[..]), (OWNED, b"123456789"), (TAIL, b"1234567")] {
            let mut tails = Tails::of([(7, OwnerEpoch(1))].into());
            let record = Record { payload: Bytes::from(payload), ..record(7, kind, Some(1), b"") };
            assert!(tails.take(record).is_err(), "{kind} {payload:?}");
        }
    }
}
