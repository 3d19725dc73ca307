//! What ends a statement after its time. The statement's own thread may be busy with it, so another one watches the clock.

use std::{sync::Arc, time::Duration};

use savanna_tenants_sql::interrupt::{Interrupts, Reason};
use tokio::task::AbortHandle;

use crate::process::{Key, Process};

/// How often a statement is ended that goes on.
const AGAIN: Duration = Duration::from_millis(100);

/// Ends the next statement of a connection if it takes longer; not if this is dropped before.
pub(crate) struct Alarm(AbortHandle);

impl Alarm {
    pub(crate) fn set(process: &Arc<Process>, key: Key, interrupts: &Arc<Interrupts>, time: Duration) -> Self {
        let (process, interrupts) = (Arc::clone(process), Arc::clone(interrupts));
        let statement = interrupts.statement();
        let background = process.background.clone();
        let ring = async move {
            tokio::time::sleep(time).await;
            // It may wait for its turn, and not have begun yet.
            loop {
                interrupts.interrupt_statement(statement, Reason::StatementTimeout);
                process.connections.stop_waiting(key);
                tokio::time::sleep(AGAIN).await;
            }
        };
        Self(background.spawn(ring).abort_handle())
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.abort();
    }
}
