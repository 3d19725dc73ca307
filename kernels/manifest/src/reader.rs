//! Readers in any process, and the pins that keep what they read.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::access::{Access, RetryPolicy};
use crate::error::{ManifestError, Result};
use crate::format::{ObjectRef, Snapshot, UnixMillis, WriterId};
use crate::layout::PinName;

/// How often a pin is tried when a newer version appears meanwhile.
const PINS_MAX: u32 = 16;

/// Reads a manifest that somebody else owns.
#[derive(Clone, Debug)]
pub struct Reader {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    access: Access,
    id: WriterId,
    pins: AtomicU64,
}

impl Reader {
    /// A reader of the manifest under `prefix`. `id` is unique, see [`WriterId::random`]. Asks storage nothing yet.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &Path, retry: RetryPolicy, id: WriterId) -> Self {
        Self { shared: Arc::new(Shared { access: Access::new(store, prefix, retry), id, pins: AtomicU64::new(0) }) }
    }

    /// The newest version. What it refers to stays for the owner's grace period after it is superseded; pin it to keep
    /// it longer.
    ///
    /// # Errors
    /// `NoManifest`, `Contended`, `Corrupt`, `UnsupportedFormat`, `Storage`.
    pub async fn current(&self) -> Result<Arc<Snapshot>> {
        let access = &self.shared.access;
        access.newest().await?.ok_or_else(|| ManifestError::NoManifest { prefix: access.layout().prefix().to_string() })
    }

    /// The content of an object, checked.
    ///
    /// # Errors
    /// `ObjectMissing`, `Corrupt`, `Storage`.
    pub async fn read(&self, object: &ObjectRef) -> Result<Bytes> {
        self.shared.access.read_object(object).await
    }

    /// A part of an object's content. The reference has no checksum of a part, so what is read must have its own.
    ///
    /// # Errors
    /// `ObjectMissing`, `Storage`.
    pub async fn read_range(&self, object: &ObjectRef, range: Range<u64>) -> Result<Bytes> {
        self.shared.access.read_range(object, range).await
    }

    /// Pins the newest version for `ttl` from `now` on.
    ///
    /// The pin is written first, then the version is checked to be still the newest: whoever collects afterwards either
    /// sees the pin or regards the version as current.
    ///
    /// # Errors
    /// As [`Reader::current`]; `Contended` if versions follow each other faster than a pin can be written;
    /// `PinExpired` if that took longer than `ttl`.
    pub async fn pin(&self, now: UnixMillis, ttl: Duration) -> Result<Pin> {
        let started = Instant::now();
        for _ in 0..PINS_MAX {
            let snapshot = self.current().await?;
            let name = self.shared.write_pin(&snapshot, now.after(ttl)).await?;
            let access = &self.shared.access;
            if access.list_versions(Some(snapshot.version)).await?.is_empty() {
                let pin = Pin {
                    shared: Arc::clone(&self.shared),
                    snapshot,
                    state: Mutex::new(PinState { expires: name.expires, written: vec![name] }),
                };
                pin.check(now.after(started.elapsed()))?;
                return Ok(pin);
            }
            if let Err(error) = access.delete(vec![access.layout().pin(&name)]).await {
                tracing::debug!(%error, "a pin that was not needed stays until it expires");
            }
        }
        Err(ManifestError::Contended { operation: "pinning the newest version", attempts: PINS_MAX })
    }
}

impl Shared {
    async fn write_pin(&self, snapshot: &Snapshot, expires: UnixMillis) -> Result<PinName> {
        let sequence = self.pins.fetch_add(1, Ordering::Relaxed) + 1;
        let name = PinName { version: snapshot.version, expires, reader: self.id, sequence };
        self.access.create_unique(&self.access.layout().pin(&name), &Bytes::new()).await?;
        Ok(name)
    }
}

/// A version that is not collected before the pin expires. Dropping it without [`Pin::release`] leaves the expiry to
/// time.
#[derive(Debug)]
pub struct Pin {
    shared: Arc<Shared>,
    snapshot: Arc<Snapshot>,
    state: Mutex<PinState>,
}

#[derive(Debug)]
struct PinState {
    expires: UnixMillis,
    /// The pin objects of this pin. A renewal writes a new one and leaves the older to expire, so that no listing can
    /// miss both.
    written: Vec<PinName>,
}

impl Pin {
    /// The pinned version.
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Until when the version is readable, by the reader's clock.
    #[must_use]
    pub fn expires(&self) -> UnixMillis {
        self.state.lock().expires
    }

    /// The content of an object of the pinned version, checked.
    ///
    /// # Errors
    /// `PinExpired`, `ObjectMissing`, `Corrupt`, `Storage`.
    pub async fn read(&self, object: &ObjectRef, now: UnixMillis) -> Result<Bytes> {
        self.check(now)?;
        let started = Instant::now();
        match self.shared.access.read_object(object).await {
            Err(ManifestError::ObjectMissing { path }) => {
                self.check(now.after(started.elapsed()))?;
                Err(ManifestError::ObjectMissing { path })
            }
            read => read,
        }
    }

    /// Extends the pin to `ttl` from `now` on. After an error the former expiry stands. Renew well before it: a renewal
    /// that is confirmed only after the former expiry does not count.
    ///
    /// # Errors
    /// `PinExpired`, `Storage`.
    pub async fn renew(&self, now: UnixMillis, ttl: Duration) -> Result<()> {
        self.check(now)?;
        let started = Instant::now();
        let name = self.shared.write_pin(&self.snapshot, now.after(ttl)).await?;
        self.check(now.after(started.elapsed()))?;
        let mut state = self.state.lock();
        state.expires = state.expires.max(name.expires);
        state.written.retain(|written| written.expires > now);
        state.written.push(name);
        Ok(())
    }

    /// Gives the version up before the pin expires.
    ///
    /// # Errors
    /// `Storage`; the pin then expires by itself.
    pub async fn release(self) -> Result<()> {
        let written = std::mem::take(&mut self.state.lock().written);
        let layout = self.shared.access.layout();
        self.shared.access.delete(written.iter().map(|name| layout.pin(name)).collect()).await
    }

    fn check(&self, now: UnixMillis) -> Result<()> {
        let expired = self.expires();
        if now < expired {
            Ok(())
        } else {
            Err(ManifestError::PinExpired { version: self.snapshot.version, expired, now })
        }
    }
}
