//! Statements that wait for blocks of the storage. Somebody outside fetches them; then the statements run again.

use std::sync::Arc;

use savanna_tenants_segments::{Block, PageId};
use savanna_tenants_store::{
    Reading, Want,
    database::{SessionId, Step},
};
use savanna_tenants_values::error::Result;

use super::Tenant;
use crate::session::Interruption;

/// Blocks that are being fetched, and for whom.
#[derive(Debug)]
pub(super) struct Fetch {
    want: Want,
    sessions: Vec<SessionId>,
    /// Whether somebody was told to fetch them.
    begun: bool,
}

impl Fetch {
    pub(super) fn is_for(&self, id: SessionId) -> bool {
        self.sessions.contains(&id)
    }
}

impl Tenant {
    /// Blocks that are to be fetched, each want once: answer with [`arrived`](Self::arrived).
    pub fn wants(&mut self) -> Vec<Want> {
        let new = self.fetches.iter_mut().filter(|fetch| !fetch.begun);
        new.map(|fetch| {
            fetch.begun = true;
            fetch.want.clone()
        })
        .collect()
    }

    /// Blocks have come, or will not come. Those who waited for them are woken.
    pub fn arrived(&mut self, want: &Want, blocks: &Result<Vec<(PageId, Arc<Block>)>>) {
        let Some(at) = self.fetches.iter().position(|fetch| fetch.want == *want) else { return };
        for id in self.fetches.swap_remove(at).sessions {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            let taken = match blocks {
                Ok(blocks) => {
                    session.reading.share(&session.facts.lent);
                    session.reading.arrived(blocks)
                }
                Err(error) => Err(error.clone()),
            };
            if let Err(error) = taken {
                session.interrupted.get_or_insert(Interruption::Failed(error));
            }
            self.woken.push(id);
        }
    }

    /// Runs a statement with what its session has fetched for it. If it misses a block it has done nothing, and waits.
    pub(super) fn fetching<T>(
        &mut self,
        id: SessionId,
        run: impl FnOnce(&mut Self) -> Result<Step<T>>,
    ) -> Result<Step<T>> {
        let reading = std::mem::take(&mut self.session(id)?.reading);
        self.database.swap_reading(reading);
        self.database.set_session(id);
        let step = run(self);
        let wanted = self.database.reading().wanted();
        let reading = self.database.swap_reading(Reading::default());
        if let Some(want) = wanted {
            let session = self.session(id)?;
            session.gives_way = session.until_it_misses && session.reads.is_some();
            if !session.gives_way {
                session.reading = reading;
                self.fetch(id, want);
            }
            return Ok(Step::Wait);
        }
        if matches!(step, Ok(Step::Wait)) {
            self.session(id)?.reading = reading;
        }
        step
    }

    fn fetch(&mut self, id: SessionId, want: Want) {
        match self.fetches.iter_mut().find(|fetch| fetch.want == want) {
            Some(fetch) => fetch.sessions.push(id),
            None => self.fetches.push(Fetch { want, sessions: vec![id], begun: false }),
        }
    }

    /// Lets a session wait for blocks no longer; whether it did.
    pub(super) fn give_up_fetch(&mut self, id: SessionId) -> bool {
        let mut waited = false;
        for fetch in &mut self.fetches {
            waited |= fetch.is_for(id);
            fetch.sessions.retain(|other| *other != id);
        }
        waited
    }
}
