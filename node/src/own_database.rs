//! The database of files among the tenants of this process.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use savanna_files_host::{Connecting, OWN};
use savanna_pgwire_tenants::Inside;
use savanna_tenants_host::Tenants;

/// The way of files to their database, while the tenants of this process run.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnDatabase(Arc<Mutex<Option<Inside>>>);

impl OwnDatabase {
    /// The tenants run, or no more.
    pub(crate) fn is_among(&self, tenants: Option<&Tenants>) {
        *self.0.lock() = tenants.map(|tenants| Inside::new(tenants.clone(), OWN));
    }

    /// Whether they run.
    pub(crate) fn is_there(&self) -> bool {
        self.0.lock().is_some()
    }
}

impl savanna_files_host::Inside for OwnDatabase {
    fn connect(&self) -> Connecting<'_> {
        let inside = self.0.lock().clone();
        Box::pin(async move {
            let inside = inside.ok_or_else(|| io::Error::other("the service tenants, which has it, does not run"));
            inside?.connect().await
        })
    }
}
