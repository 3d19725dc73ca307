//! Guarantees that a build for tests can be told to break, to show that tests notice it. Builds for production have none of this.

use pgrx::guc::PostgresGucEnum;

use crate::settings::FLAW;

/// What is broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, PostgresGucEnum)]
pub(crate) enum Flaw {
    #[name = c"none"]
    None,
    /// Movers are READ COMMITTED.
    #[name = c"movers_read_committed"]
    MoversReadCommitted,
    /// Serializable statements do not note that they read tables whose rows move inside of others' transactions.
    #[name = c"reads_not_noted"]
    ReadsNotNoted,
    /// Who needs rows that another has in progress goes on without them.
    #[name = c"nobody_waits"]
    NobodyWaits,
    /// Movers commit that rows are moved before they copy them.
    #[name = c"marks_first"]
    MarksFirst,
    /// Who moves a row does not look whether its page is moved as a whole.
    #[name = c"pages_unseen"]
    PagesUnseen,
    /// Who marks a row without a statement does not leave it to the index whether another one has.
    #[name = c"marks_at_once"]
    MarksAtOnce,
    /// Who needs rows sees no claims of others, and takes them all on: nothing but marks keep them apart.
    #[name = c"claims_unseen"]
    ClaimsUnseen,
    /// Who has waited for a row of others marks all rows of its statement again.
    #[name = c"marks_again"]
    MarksAgain,
    /// Who finds a row marked by a transaction that has not ended goes on without it.
    #[name = c"marks_unwaited"]
    MarksUnwaited,
    /// Who has waited for another's mark does not write it, whatever became of that one.
    #[name = c"marks_once"]
    MarksOnce,
    /// A lock on what was moved counts as held when the part of the transaction that took it was undone.
    #[name = c"lock_forgotten"]
    LockForgotten,
    /// News do not change what a session knows of tables.
    #[name = c"news_unheard"]
    NewsUnheard,
    /// Who moves a page as a whole does not look which of its rows were moved.
    #[name = c"rows_unseen"]
    RowsUnseen,
    /// Conditions of clients see rows that were moved.
    #[name = c"no_barrier"]
    NoBarrier,
    /// Old rows that are a member of an append are also those that were moved.
    #[name = c"moved_appended"]
    MovedAppended,
    /// At REPEATABLE READ every statement that has rows moved gives its transaction a new snapshot.
    #[name = c"anew_at_any_time"]
    AnewAtAnyTime,
    /// What a statement touches by its joins is looked for once, with a snapshot that it does not run with.
    #[name = c"looks_once"]
    LooksOnce,
    /// Rows that are locked ahead count whatever comes before them.
    #[name = c"any_order"]
    AnyOrder,
    /// While rows move no triggers fire at all, of whatever table.
    #[name = c"all_quiet"]
    AllQuiet,
    /// What was moved is read as of now, not with the snapshot of the statement.
    #[name = c"newest_truth"]
    NewestTruth,
    /// A statement that names the columns of any index is about one row.
    #[name = c"any_index_is_a_key"]
    AnyIndexIsAKey,
    /// What the transaction has written itself counts as the row that has a key.
    #[name = c"own_rows_count"]
    OwnRowsCount,
    /// Rows that were written while rows were looked at before the switch are not looked at.
    #[name = c"written_forgotten"]
    WrittenForgotten,
    /// Rows that were deleted meanwhile count as if they were there.
    #[name = c"gone_forgotten"]
    GoneForgotten,
    /// Nor are those of transactions that had not ended when it began.
    #[name = c"writers_forgotten"]
    WritersForgotten,
    /// Where a condition is true of no row that lacks another one, nobody asks by what that one was joined.
    #[name = c"lacking_forgotten"]
    LackingForgotten,
}

/// Whether `bullfrog.flaw` names this one.
pub(crate) fn is_set(flaw: Flaw) -> bool {
    cfg!(debug_assertions) && FLAW.get() == flaw
}
