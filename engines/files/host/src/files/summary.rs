//! What a subtree holds, counted in memory, or by the database where not all of it is there.

use savanna_files::ids::{InodeId, Txid};
use savanna_files::namespace::AT_ONCE;
use savanna_files::operation::{Counted, Summary, Walk};
use savanna_files::{Context, Known};
use savanna_files_database::DatabaseError;

use super::lacking::busy;
use super::{Asker, Files, State, Unanswered};
use crate::behind::{self, Behind};

impl Files {
    /// Counts what a subtree holds. Blocks as long as that takes; what changes meanwhile may be counted or not.
    pub(super) fn summary(
        &self,
        asker: &Asker<'_>,
        path: &str,
        answer: impl FnOnce(Result<Summary, Unanswered>) + Send + 'static,
    ) {
        let groups = self.0.groups.of(asker.user);
        let context = self.context(asker, &groups);
        let begin = |state: &State, known: Option<&Known>| {
            let walk = Walk::begin(&state.namespace, &context, path, known)?;
            Ok((walk, state.pending.position(state.namespace.txid())))
        };
        let begun = begin(&self.0.state.read(), None);
        let begun =
            begun.or_else(|missing| self.with_all(missing, behind::deadline(), |state, known| begin(&state, known)));
        let mut walk = match begun {
            Ok((Ok(walk), _)) => walk,
            Ok((Err(error), position)) => return self.hold(position, Err(error.into()), answer),
            Err(error) => return self.hold(None, Err(error), answer),
        };
        let (outcome, position) = loop {
            let state = self.0.state.read();
            match walk.go_on(&state.namespace, &context, AT_ONCE) {
                Ok(Counted::More) => {}
                Ok(Counted::All(summary, depends)) => break (Ok(summary), state.pending.position(depends)),
                Ok(Counted::NotHere(root)) => {
                    let txid = state.namespace.txid();
                    drop(state);
                    // What the database has is durable.
                    let counted = self.summary_of_database(&context, root, txid);
                    break (counted.map(|summary| Summary { quota: walk.quota(), ..summary }), None);
                }
                Err(error) => break (Err(Unanswered::from(error)), state.pending.position(state.namespace.txid())),
            }
        };
        self.hold(position, outcome, answer);
    }

    /// The same by the database, when it has all up to a change. Blocks.
    fn summary_of_database(&self, context: &Context<'_>, root: InodeId, txid: Txid) -> Result<Summary, Unanswered> {
        let (summary, rights) = self.ask_when_flushed(txid, |behind| behind.subtree(root))?;
        for rights in rights {
            rights.check_list(context)?;
        }
        Ok(summary)
    }

    /// Asks the database something when it has all up to a change. Blocks.
    fn ask_when_flushed<T>(
        &self,
        txid: Txid,
        ask: impl FnOnce(&Behind) -> Result<T, DatabaseError>,
    ) -> Result<T, Unanswered> {
        let Some(behind) = &self.0.behind else { return Err(busy("there is none")) };
        let deadline = behind::deadline();
        loop {
            // Looked at once: behind the last change there may be no more to wait for.
            let before = behind.flushed_up_to();
            if before >= txid {
                break;
            }
            behind.hurry();
            if !behind.wait_for_more(before, deadline) {
                return Err(busy("it is too far behind"));
            }
        }
        ask(behind).map_err(|error| {
            if error.is_final() {
                self.end(&error);
                return Unanswered::Gone;
            }
            busy(&error.to_string())
        })
    }
}
