//! The owner's handle: writes objects, switches versions, collects garbage.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::Mutex;
use savanna_epoch::OwnerEpoch;

use crate::access::{Access, RetryPolicy, Undecided};
use crate::collect::{Observed, Retention, plan};
use crate::error::{ManifestError, Result};
use crate::format::{CommitId, ObjectRef, Snapshot, UnixMillis, Version, WriterId};
use crate::layout::{ObjectName, PinName};
use crate::state::{Draft, OwnerState};
use crate::switch::{Outcome, Switch, Takeover, judge_takeover};

/// How often opening tries again when the owner before it commits in between.
const TAKEOVERS_MAX: u32 = 32;
/// How often a commit is made again on top of an earlier one of the same handle that turned out to have succeeded.
const REBASES_MAX: u32 = 4;

/// How a handle behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Requests to storage.
    pub retry: RetryPolicy,
    /// What the collector keeps.
    pub retention: Retention,
}

/// What a collection deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Superseded versions.
    pub versions: usize,
    /// Objects.
    pub objects: usize,
    /// Expired pins.
    pub pins: usize,
}

/// A manifest, opened by its owner. All methods take `&self`; commits wait for each other.
#[derive(Debug)]
pub struct Manifest {
    access: Access,
    retention: Retention,
    state: Mutex<OwnerState>,
    committing: tokio::sync::Mutex<()>,
    /// Versions read by earlier collections. They are immutable, so each is read once.
    collecting: tokio::sync::Mutex<BTreeMap<Version, Arc<Snapshot>>>,
}

impl Manifest {
    /// Takes the manifest under `prefix` over, or begins it. From then on storage refuses every handle that was opened
    /// before. `prefix` must belong to this manifest alone.
    ///
    /// # Errors
    /// `Fenced` if an owner with a higher epoch opened it, `Contended`, `Corrupt`, `UnsupportedFormat`, `Storage`, and
    /// `StoreIgnoresCreate` if the store cannot create only if absent.
    pub async fn open(
        store: Arc<dyn ObjectStore>,
        prefix: &Path,
        epoch: OwnerEpoch,
        options: Options,
        now: UnixMillis,
    ) -> Result<Self> {
        Self::open_as(WriterId::random(), store, prefix, epoch, options, now).await
    }

    /// As [`Manifest::open`] with a given id for the handle, so that a simulation can be repeated. No two handles may
    /// ever have the same.
    ///
    /// # Errors
    /// As [`Manifest::open`].
    pub async fn open_as(
        writer: WriterId,
        store: Arc<dyn ObjectStore>,
        prefix: &Path,
        epoch: OwnerEpoch,
        options: Options,
        now: UnixMillis,
    ) -> Result<Self> {
        let access = Access::new(store, prefix, options.retry);
        for attempt in 1..=TAKEOVERS_MAX {
            let base = match judge_takeover(access.newest().await?, epoch) {
                Takeover::Begin => None,
                Takeover::Continue(newest) => Some(newest),
                Takeover::Refused { theirs } => {
                    return Err(ManifestError::Fenced { prefix: prefix.to_string(), ours: epoch, theirs });
                }
            };
            let commit = CommitId { writer, attempt: u64::from(attempt) };
            let proposal = takeover(base.as_deref(), epoch, commit, now);
            let file = proposal.encode()?;
            let outcome = access
                .run(Switch::propose(&proposal), proposal.version, &file)
                .await
                .map_err(|undecided| undecided.error)?;
            if matches!(outcome, Outcome::Committed) {
                refuse_careless_store(&access, &proposal, &file).await?;
                tracing::debug!(%prefix, %epoch, version = %proposal.version, "opened the manifest");
                return Ok(Self {
                    access,
                    retention: options.retention,
                    state: Mutex::new(OwnerState::new(prefix.to_string(), Arc::new(proposal))),
                    committing: tokio::sync::Mutex::default(),
                    collecting: tokio::sync::Mutex::default(),
                });
            }
        }
        Err(ManifestError::Contended { operation: "opening the manifest", attempts: TAKEOVERS_MAX })
    }

    /// The version that this handle committed last. While the snapshot is held and this handle is the owner, nothing
    /// in it is collected. It says nothing about newer owners: only a commit does.
    #[must_use]
    pub fn current(&self) -> Arc<Snapshot> {
        Arc::clone(self.state.lock().current())
    }

    /// The epoch of this handle.
    #[must_use]
    pub fn epoch(&self) -> OwnerEpoch {
        self.state.lock().epoch()
    }

    /// Writes an immutable object. It is kept until a commit refers to it, it is abandoned, or another handle opens.
    ///
    /// # Errors
    /// `Fenced` if that is known already, `Storage`.
    pub async fn put_object(&self, content: Bytes) -> Result<ObjectRef> {
        let path = {
            let mut state = self.state.lock();
            state.check_ownership()?;
            state.name_object()
        };
        let object = ObjectRef { bytes: content.len() as u64, crc32c: crc32c::crc32c(&content), path };
        match self.access.create_unique(&self.access.layout().resolve(&object.path), &content).await {
            Ok(()) => Ok(object),
            Err(error) => {
                self.state.lock().abandon(&object.path);
                Err(error)
            }
        }
    }

    /// Gives up an object that was written and will not be committed; the collector removes it.
    pub fn abandon(&self, object: &ObjectRef) {
        self.state.lock().abandon(&object.path);
    }

    /// The content of an object, checked.
    ///
    /// # Errors
    /// `ObjectMissing`, `Corrupt`, `Storage`.
    pub async fn read(&self, object: &ObjectRef) -> Result<Bytes> {
        self.access.read_object(object).await
    }

    /// Changes the entries and makes the result the current version. `change` may run again on a newer base, if an
    /// earlier commit whose answer was lost turns out to have succeeded.
    ///
    /// # Errors
    /// `Fenced`, `InDoubt`, `ForeignObject`, `InvalidName`, `TooLarge`, `Contended`, `Storage`, `Corrupt`.
    pub async fn commit(&self, now: UnixMillis, mut change: impl FnMut(&mut Draft)) -> Result<Arc<Snapshot>> {
        let _turn = self.committing.lock().await;
        for _ in 0..REBASES_MAX {
            let mut draft = self.state.lock().draft();
            change(&mut draft);
            match self.publish(draft, now).await {
                Err(ManifestError::Conflict { .. }) => {}
                published => return published,
            }
        }
        Err(ManifestError::Contended { operation: "committing", attempts: REBASES_MAX })
    }

    /// As [`Manifest::commit`], but only if the current version is the expected one.
    ///
    /// # Errors
    /// Also `Conflict`.
    pub async fn switch(
        &self,
        expected: Version,
        now: UnixMillis,
        change: impl FnOnce(&mut Draft),
    ) -> Result<Arc<Snapshot>> {
        let _turn = self.committing.lock().await;
        let mut draft = self.state.lock().draft();
        let current = draft.base().version;
        if current != expected {
            return Err(ManifestError::Conflict { expected, current });
        }
        change(&mut draft);
        self.publish(draft, now).await
    }

    async fn publish(&self, draft: Draft, now: UnixMillis) -> Result<Arc<Snapshot>> {
        let expected = draft.base().version;
        let proposal = self.state.lock().propose(draft, now)?;
        let file = proposal.encode()?;
        match self.access.run(Switch::propose(&proposal), proposal.version, &file).await {
            Ok(Outcome::Committed) => Ok(self.adopt(Arc::new(proposal))),
            Ok(Outcome::Superseded(child)) => {
                let committed = self.adopt(Arc::new(proposal));
                let _fenced = self.state.lock().fence(child.epoch);
                Ok(committed)
            }
            Ok(Outcome::Lost(occupant)) if occupant.commit.writer == proposal.commit.writer => {
                let current = self.adopt_late_success(occupant).await?;
                Err(ManifestError::Conflict { expected, current })
            }
            Ok(Outcome::Lost(occupant)) => Err(self.state.lock().fence(occupant.epoch)),
            Ok(Outcome::Overtaken) => Err(self.fence_by_newest(proposal.version).await),
            Ok(Outcome::Unsettled) => Err(in_doubt(proposal.version, "the version exists and cannot be read")),
            Err(Undecided { possibly_written: true, error }) => Err(in_doubt(proposal.version, &error)),
            Err(Undecided { possibly_written: false, error }) => Err(error),
        }
    }

    fn adopt(&self, committed: Arc<Snapshot>) -> Arc<Snapshot> {
        self.state.lock().adopt(Arc::clone(&committed));
        committed
    }

    /// An earlier proposal of this handle occupies the place of the next version: its put took effect after all.
    async fn adopt_late_success(&self, occupant: Arc<Snapshot>) -> Result<Version> {
        let version = occupant.version;
        match self.access.run(Switch::verify(&occupant), version, &Bytes::new()).await {
            Ok(Outcome::Committed) => Ok(self.adopt(occupant).version),
            Ok(Outcome::Superseded(child)) => {
                self.adopt(occupant);
                Err(self.state.lock().fence(child.epoch))
            }
            Ok(_) => Err(self.fence_by_newest(version).await),
            Err(undecided) => Err(in_doubt(version, &undecided.error)),
        }
    }

    /// The error for a version that has newer ones above it which do not continue it.
    async fn fence_by_newest(&self, version: Version) -> ManifestError {
        match self.access.newest().await {
            Ok(Some(newest)) => self.state.lock().fence(newest.epoch),
            Ok(None) => in_doubt(version, "the newer versions disappeared"),
            Err(error) => in_doubt(version, &error),
        }
    }

    /// Deletes the versions, objects and pins that nobody needs at `now`, as [`Retention`] says. May run at any time
    /// beside commits; failing half-way leaves garbage for the next run and does no harm.
    ///
    /// # Errors
    /// `Fenced`: only the owner collects. `Corrupt` if a version cannot be read: what it refers to is unknown, so
    /// nothing is deleted. `Storage`.
    pub async fn collect_garbage(&self, now: UnixMillis) -> Result<Collected> {
        let mut known = self.collecting.lock().await;
        let holds = {
            let state = self.state.lock();
            state.check_ownership()?;
            state.holds()
        };
        // The order of the three listings is what makes the decision safe; `collect` says why.
        let objects = self.list_objects().await?;
        *known = self.access.read_versions(&known).await?;
        let pins = self.list_pins().await?;
        let observed = Observed { objects, versions: known.clone(), pins };
        let held = self.state.lock().held_versions();
        let plan = plan(&observed, &holds, &held, &self.retention, now)
            .map_err(|not_owner| self.state.lock().fence(not_owner.theirs))?;

        let layout = self.access.layout();
        self.access.delete(plan.versions.iter().map(|version| layout.version(*version)).collect()).await?;
        self.access.delete(plan.objects.iter().map(|path| layout.resolve(path)).collect()).await?;
        self.access.delete(plan.pins.iter().map(|pin| layout.pin(pin)).collect()).await?;
        Ok(Collected { versions: plan.versions.len(), objects: plan.objects.len(), pins: plan.pins.len() })
    }

    async fn list_objects(&self) -> Result<BTreeMap<String, ObjectName>> {
        let names = self.access.list(&self.access.layout().objects(), None).await?;
        Ok(names.iter().filter_map(|name| ObjectName::parse(name)).map(|name| (name.relative(), name)).collect())
    }

    async fn list_pins(&self) -> Result<Vec<PinName>> {
        let names = self.access.list(&self.access.layout().pins(), None).await?;
        Ok(names.iter().filter_map(|name| PinName::parse(name)).collect())
    }
}

/// The version by which a new owner fences the older ones: the same entries under the new epoch.
fn takeover(base: Option<&Snapshot>, epoch: OwnerEpoch, commit: CommitId, now: UnixMillis) -> Snapshot {
    Snapshot {
        version: base.map_or(Version(1), |base| base.version.next()),
        epoch,
        commit,
        parent: base.map(|base| base.commit),
        created: base.map_or(now, |base| now.max(base.created)),
        entries: base.map_or_else(BTreeMap::new, |base| base.entries.clone()),
    }
}

/// Makes sure that the store creates only if absent; without that no owner is ever fenced.
async fn refuse_careless_store(access: &Access, opened: &Snapshot, file: &Bytes) -> Result<()> {
    let path = access.layout().version(opened.version).to_string();
    if access.refuses_to_create_again(opened.version, file).await? {
        return Ok(());
    }
    // The version may be gone for a good reason: a newer owner took over and collected it.
    match access.newest().await? {
        Some(newest) if newest.version > opened.version => Err(ManifestError::Fenced {
            prefix: access.layout().prefix().to_string(),
            ours: opened.epoch,
            theirs: newest.epoch,
        }),
        _ => Err(ManifestError::StoreIgnoresCreate { path }),
    }
}

fn in_doubt(version: Version, reason: &(impl ToString + ?Sized)) -> ManifestError {
    ManifestError::InDoubt { version, reason: reason.to_string() }
}
