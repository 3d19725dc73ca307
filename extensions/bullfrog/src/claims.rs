//! Which granules a transaction takes on. A claim in the ledger keeps others from doing the same work for nothing; that no
//! granule moves twice does not depend on it, but on the unique index of `bullfrog.moved`.

use bullfrog_model::board::Xid;
use pgrx::prelude::*;
use savanna_ledger::Claim;

use crate::flaws::{self, Flaw};
use crate::settings::{CONFLICTS, Conflicts};
use crate::shared::{database, has_ended, is_own, with_board, with_ledger};

/// Whether a client moves a granule in a transaction that has not ended. Movers are not waited for for long, and count for nobody.
#[pg_extern(sql = false, strict)]
fn is_in_progress(source: i32, granule: i64) -> bool {
    let database = database();
    let holder = with_ledger(|ledger| ledger.holder((database, source, granule)));
    holder.is_some_and(|holder| !is_own(holder) && !has_ended(holder) && !is_of_mover(holder))
}

/// Whether a transaction is one of a mover of this database.
pub(crate) fn is_of_mover(transaction: Xid) -> bool {
    with_board(|board| board.movers_of(database()).any(|mover| mover.xid == transaction))
}

/// What came of a transaction's claims.
pub(crate) struct Claims {
    source: i32,
    owner: Xid,
    /// What it may move now.
    pub(crate) won: Vec<i64>,
    /// The rest, and who has it in progress.
    pub(crate) busy: Vec<(i64, Xid)>,
    /// All of what was won is in the ledger, so that hardly anybody else comes to it.
    pub(crate) are_kept: bool,
}

impl Claims {
    /// Claims granules of a source for the transaction under way. To be called before it takes its snapshot: what an earlier owner
    /// committed is then seen to be done.
    pub(crate) fn of(source: i32, granules: &[i64]) -> Self {
        // SAFETY: a transaction is under way.
        let owner = unsafe { pg_sys::GetCurrentTransactionId() }.into_inner();
        let (won, busy) = (Vec::with_capacity(granules.len()), Vec::new());
        let mut claims = Self { source, owner, won, busy, are_kept: true };
        if CONFLICTS.get() == Conflicts::OnConflict {
            claims.are_kept = false;
            claims.won.extend(granules);
            return claims;
        }
        if flaws::is_set(Flaw::ClaimsUnseen) {
            claims.won.extend(granules);
            return claims;
        }
        let database = database();
        with_ledger(|ledger| {
            for granule in granules {
                match ledger.claim((database, source, *granule), owner, has_ended) {
                    Claim::Won => claims.won.push(*granule),
                    Claim::Full => {
                        claims.are_kept = false;
                        claims.won.push(*granule);
                    }
                    Claim::Busy(holder) => claims.busy.push((*granule, holder)),
                }
            }
        });
        claims
    }

    /// Gives the claims up, and gives what others had in progress. To be called when the transaction has ended.
    pub(crate) fn release(self) -> Vec<(i64, Xid)> {
        let database = database();
        with_ledger(|ledger| {
            for granule in self.won {
                ledger.release((database, self.source, granule), self.owner);
            }
        });
        self.busy
    }
}
