//! The handle of faces.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use savanna_epoch::NodeEpoch;
use savanna_functions::catalog::{Catalog, Change, Context, Language, Recursion, RuntimeKind};
use savanna_functions::core::{CallId, Core, Counts, EventId, Input, InstanceId, Options};
use savanna_functions::meter::{Meter, Micros, Prices, Usage};
use savanna_functions::names::{LATEST, Named};
use savanna_functions::record::{Accepted, Numbers, json, kind};
use savanna_functions::{Refusal, RefusalKind};
use savanna_journal::{Journal, Lsn, Stats as LogStats};
use savanna_ownership::guard::LeaseGuard;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};

use crate::clock::Clock;
use crate::code::{self, CodeStore, PinnedCode};
use crate::crash::crash_at;
use crate::driver::{self, Call, Item, Settled, Slot, weight};
use crate::instance::{self, Machine};
use crate::leftovers;
use crate::lineage::{LOOPS_MAX, Lineage};
use crate::logs::FunctionLog;
use crate::options::{Bounds, HostError, HostOptions};
use crate::recovery::{draft, recover};
use crate::streams::Streams;
use crate::zip::ZipError;

/// Zips that are read at once for clients.
const ZIPS_AT_ONCE: usize = 4;

/// What a client asks a function.
#[derive(Clone, Debug)]
pub struct Invoking {
    /// The function, with a version or an alias or without.
    pub named: Named,
    /// What it gets: JSON.
    pub payload: Bytes,
    /// What the client says of itself.
    pub client_context: Option<String>,
    /// The functions on the way.
    pub lineage: Lineage,
    /// The request, as its client knows it.
    pub request: String,
}

/// What a function has answered.
#[derive(Clone, Debug)]
pub struct Invoked {
    /// The version that ran.
    pub version: String,
    /// Whether it did what it was to do.
    pub succeeded: bool,
    /// The answer, or what went wrong.
    pub payload: Bytes,
    /// The last that it has printed.
    pub tail: Vec<u8>,
    /// What it used.
    pub usage: Usage,
}

/// Figures for whoever watches.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Functions that there are.
    pub functions: usize,
    /// What runs and waits.
    pub counts: Counts,
    /// What each function has used since the host began.
    pub meters: Vec<(String, Meter)>,
    /// What the log did since then.
    pub log: LogStats,
}

/// What is behind the lock.
pub(crate) struct State {
    pub(crate) catalog: Catalog,
    /// The newest change of it.
    pub(crate) changed: Lsn,
    pub(crate) core: Core,
    pub(crate) numbers: Numbers,
    pub(crate) next_call: u64,
    pub(crate) calls: BTreeMap<CallId, Call>,
    pub(crate) events: BTreeMap<EventId, Arc<Item>>,
    /// Bytes of events that have not ended, also of those that are on the way into the log.
    pub(crate) event_bytes: u64,
    pub(crate) slots: BTreeMap<InstanceId, Slot>,
    pub(crate) logs: BTreeMap<String, Arc<FunctionLog>>,
    /// Streams that the core knows.
    pub(crate) streams: BTreeSet<String>,
    pub(crate) clock: Clock,
    /// When the timer looks again.
    pub(crate) armed: Option<Micros>,
    /// From here on nothing is decided any more.
    pub(crate) is_closing: bool,
}

pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    pub(crate) journal: Arc<Journal>,
    lease: Option<LeaseGuard>,
    pub(crate) code: CodeStore,
    pub(crate) machine: Machine,
    pub(crate) streams: Option<Streams>,
    pub(crate) region: String,
    /// The epoch under which the log is open.
    pub(crate) epoch: NodeEpoch,
    bounds: Bounds,
    pub(crate) concurrency: u32,
    prices: Prices,
    /// Who has one may read a zip: they are in memory as a whole.
    zips: Semaphore,
    pub(crate) settled: mpsc::UnboundedSender<Settled>,
    pub(crate) runtime: Handle,
    pub(crate) timer: Notify,
    /// Why the host has ended.
    pub(crate) ended: watch::Sender<Option<String>>,
}

/// Functions, and what runs them. Cheap to clone.
#[derive(Clone)]
pub struct Functions(pub(crate) Arc<Shared>);

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Functions").field("region", &self.0.region).finish_non_exhaustive()
    }
}

impl State {
    pub(crate) fn log_of(&mut self, function: &str) -> Arc<FunctionLog> {
        Arc::clone(self.logs.entry(function.to_owned()).or_default())
    }
}

/// A number that nobody guesses, in the form of a UUID.
#[must_use]
pub fn unique() -> String {
    let bits = rand::random::<u128>() & !(0xf << 76) & !(0b11 << 62) | 0x4 << 76 | 0b10 << 62;
    let digits = format!("{bits:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

impl Functions {
    /// Reads the log, and begins to run what waits. Blocks while it reads; what runs does so on the runtime.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn open(options: HostOptions, runtime: &Handle) -> Result<Self, HostError> {
        let failed = |source| HostError::Directory { path: options.directory.clone(), source };
        std::fs::create_dir_all(&options.directory).map_err(failed)?;
        // Who opens the log ends whoever had it before; only then the code is ours.
        let (journal, image) = recover(options.log, options.epoch)?;
        let wanted: BTreeSet<String> = image.catalog.codes().map(|code| code.sha256.clone()).collect();
        leftovers::put_aside(&options.directory, &[code::TASKS, instance::BASES]).map_err(failed)?;
        let code = CodeStore::open(&options.directory, &wanted, options.bounds.unpacked, options.store, runtime)
            .map_err(failed)?;
        let machine =
            Machine::open(&options.directory, options.launcher, options.isolation, &options.abilities, options.ports)?;
        let streams = options.keys_url.as_deref().map(Streams::of).transpose()?;
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let minute = micros(options.retry_minute);
        let core_options = Options {
            concurrency: options.concurrency,
            idle: micros(options.idle),
            waits: [minute, minute.saturating_mul(2)],
            ..Options::default()
        };
        let (settled, settling) = mpsc::unbounded_channel();
        let state = State {
            catalog: image.catalog,
            changed: Lsn(0),
            core: Core::new(core_options, rand::random()),
            numbers: image.numbers,
            next_call: 1,
            calls: BTreeMap::new(),
            events: BTreeMap::new(),
            event_bytes: 0,
            slots: BTreeMap::new(),
            logs: BTreeMap::new(),
            streams: BTreeSet::new(),
            clock: Clock::begin(),
            armed: None,
            is_closing: false,
        };
        let functions = Self(Arc::new(Shared {
            state: Mutex::new(state),
            journal,
            lease: options.lease,
            code,
            machine,
            streams,
            region: options.region,
            epoch: options.epoch,
            bounds: options.bounds,
            concurrency: options.concurrency,
            prices: options.prices,
            zips: Semaphore::new(ZIPS_AT_ONCE),
            settled,
            runtime: runtime.clone(),
            timer: Notify::new(),
            ended: watch::Sender::new(None),
        }));
        functions.begin(image.events);
        runtime.spawn(driver::settle(functions.clone(), settling));
        runtime.spawn(driver::keep_time(functions.clone()));
        runtime.spawn(instance::watch_memory(functions.clone()));
        Ok(functions)
    }

    /// Goes on with what the log says.
    fn begin(&self, events: BTreeMap<EventId, savanna_functions::record::Pending>) {
        let state = &mut *self.0.state.lock();
        let settings: Vec<_> =
            state.catalog.after("").map(|f| (Arc::from(f.name.as_str()), f.core_settings())).collect();
        for (function, settings) in settings {
            self.step(state, Input::Configure { function, settings });
        }
        for (event, pending) in events {
            let accepted = pending.accepted;
            let input = Input::Accept {
                event,
                function: Arc::from(accepted.function.as_str()),
                qualifier: Arc::from(accepted.qualifier.as_str()),
                accepted: accepted.at,
                attempts: pending.attempts,
                due: pending.due,
            };
            let item = Item::of(accepted);
            self.know_stream(state, &item.function);
            state.event_bytes += item.weight();
            state.events.insert(event, Arc::new(item));
            self.step(state, input);
        }
    }

    /// The region in ARNs.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.0.region
    }

    /// Invocations that all functions may have at once.
    #[must_use]
    pub fn concurrency(&self) -> u32 {
        self.0.concurrency
    }

    /// Prices of what is used.
    #[must_use]
    pub fn prices(&self) -> Prices {
        self.0.prices
    }

    /// What instances are kept from, and who sees to their memory, in words.
    #[must_use]
    pub fn isolation(&self) -> String {
        self.0.machine.described()
    }

    /// Keeps a zip, for as long as a function or whoever has asked has it; durable when this is ready.
    ///
    /// # Errors
    /// It cannot be unpacked, or kept; or there is too much code.
    pub async fn keep_code(&self, zip: Vec<u8>) -> Result<PinnedCode, Refusal> {
        let max = self.0.bounds.code;
        let kept: u64 = {
            let state = self.0.state.lock();
            state.catalog.codes().map(|code| (&code.sha256, code.size)).collect::<BTreeMap<_, _>>().values().sum()
        };
        if kept.saturating_add(zip.len() as u64) > max {
            return Err(Refusal::new(
                RefusalKind::CodeStorage,
                format!(
                    "Code storage limit exceeded: {kept} of {max} bytes are in use; delete versions that nobody needs"
                ),
            ));
        }
        let functions = self.clone();
        let kept = tokio::task::spawn_blocking(move || {
            let pinned = PinnedCode::new(functions.clone(), CodeStore::code_of(&zip));
            functions.0.code.keep(pinned.code(), &zip).map(|()| pinned)
        });
        match kept.await {
            Ok(Ok(code)) => Ok(code),
            Ok(Err(ZipError::Io(error)))
                if error.kind() != std::io::ErrorKind::AlreadyExists
                    && error.kind() != std::io::ErrorKind::NotADirectory =>
            {
                Err(Refusal::new(RefusalKind::Service, format!("the code cannot be kept: {error}")))
            }
            Ok(Err(error)) => Err(Refusal::new(
                RefusalKind::InvalidZip,
                format!("Could not unzip uploaded file. Please check your file, then try to upload again. ({error})"),
            )),
            Err(error) => Err(Refusal::new(RefusalKind::Service, error.to_string())),
        }
    }

    /// Code that a function has already, by its hash, for as long as another one or whoever has asked has it.
    ///
    /// # Errors
    /// No function has such code, or it is damaged: its zip has to be sent.
    pub async fn known_code(&self, sha256: &str) -> Result<PinnedCode, Refusal> {
        let lacks =
            || Refusal::parameter(format!("No function here has code of SHA-256 {sha256}; send the zip as ZipFile"));
        let known = |catalog: &Catalog| catalog.codes().find(|code| code.sha256 == sha256).cloned();
        let code = self.read(|catalog| known(catalog).ok_or_else(lacks)).await?;
        let functions = self.clone();
        let _one = self.0.zips.acquire().await;
        let found = tokio::task::spawn_blocking(move || {
            let pinned = PinnedCode::new(functions.clone(), code);
            let is_wanted = || functions.0.state.lock().catalog.codes().any(|code| code == pinned.code());
            functions.0.code.has(pinned.code(), is_wanted).then_some(pinned)
        });
        match found.await {
            Ok(Some(pinned)) => Ok(pinned),
            // What has gone since is told when its end is durable.
            Ok(None) => self.read(|_| Err(lacks())).await,
            Err(error) => Err(Refusal::new(RefusalKind::Service, error.to_string())),
        }
    }

    /// A zip by its hash.
    ///
    /// # Errors
    /// No function has such code.
    pub async fn zip(&self, sha256: &str) -> Result<Vec<u8>, Refusal> {
        let known = |catalog: &Catalog| {
            let known = catalog.codes().find(|code| code.sha256 == sha256).cloned();
            known.ok_or_else(|| Refusal::not_found("There is no such code"))
        };
        let pinned = PinnedCode::new(self.clone(), self.read(known).await?);
        let _one = self.0.zips.acquire().await;
        let read = tokio::task::spawn_blocking(move || pinned.functions().0.code.zip(&pinned.code().sha256));
        match read.await {
            Ok(Ok(zip)) => Ok(zip),
            Ok(Err(error)) => Err(Refusal::new(RefusalKind::Service, format!("the code cannot be read: {error}"))),
            Err(error) => Err(Refusal::new(RefusalKind::Service, error.to_string())),
        }
    }

    /// Removes code that neither a function nor anybody else wants any more. What removed it from the catalog is durable before that.
    pub(crate) fn remove_unwanted(&self, hashes: Vec<String>) {
        if hashes.is_empty() {
            return;
        }
        let functions = self.clone();
        self.0.runtime.spawn(async move {
            // Others may change the catalog meanwhile; what is left in the end is removed at the next start.
            for _ in 0..100 {
                let changed = functions.0.state.lock().changed;
                if functions.durable(changed).await.is_err() {
                    return;
                }
                let (removes, left) = (functions.clone(), hashes.clone());
                let removed = tokio::task::spawn_blocking(move || removes.try_remove(&left)).await;
                if removed.unwrap_or(true) {
                    return;
                }
            }
        });
    }

    /// Whether that was possible: not while a change of the catalog is on the way into the log, which may be lost and want it back.
    fn try_remove(&self, hashes: &[String]) -> bool {
        let mut is_settled = true;
        for hash in hashes {
            let removed = self.0.code.remove(hash, || {
                let state = self.0.state.lock();
                is_settled &= state.changed <= self.0.journal.durable();
                !is_settled || state.catalog.codes().any(|code| code.sha256 == *hash)
            });
            if let Err(error) = removed {
                tracing::warn!(%error, code = hash, "code that no function has any more cannot be removed; from the data directory it is at the next start, in a bucket it stays");
            }
        }
        is_settled
    }

    /// Whether this machine can run a runtime, such as `python3.13` or `nodejs22.x`.
    ///
    /// # Errors
    /// It has no such program.
    pub async fn check_runtime(&self, runtime: &str) -> Result<(), Refusal> {
        let Some(RuntimeKind::Interpreted(language, version)) = RuntimeKind::of(runtime) else { return Ok(()) };
        let program = match language {
            Language::Python => format!("install that Python, so that `{runtime}` is on the path of the node"),
            Language::Node => {
                format!("install Node.js {version}, so that `node` (or `node{version}`) is on the path of the node")
            }
        };
        let shared = Arc::clone(&self.0);
        let found = tokio::task::spawn_blocking(move || shared.machine.interpreters.find(language, &version)).await;
        found.ok().flatten().map(drop).ok_or_else(|| {
            Refusal::parameter(format!("Runtime {runtime} is not on this machine: {program}, or choose another"))
        })
    }

    /// Looks at the catalog, and changes it. Ready when that may be told.
    ///
    /// # Errors
    /// What `make` refuses; or nobody may be told anything.
    pub async fn change<T>(
        &self,
        make: impl FnOnce(&Catalog, &Context<'_>) -> Result<(Option<Change>, T), Refusal>,
    ) -> Result<T, Refusal> {
        let (lsn, made, dropped, is_changed) = {
            let state = &mut *self.0.state.lock();
            let revision = unique();
            let context = Context {
                now: state.clock.machine(),
                build: state.numbers.build + 1,
                revision: &revision,
                region: &self.0.region,
                concurrency: self.0.concurrency,
                has_streams: self.0.streams.is_some(),
            };
            let (change, made) = match make(&state.catalog, &context) {
                Ok((change, value)) => (change, Ok(value)),
                // What was refused is told when that for which it was is as durable.
                Err(refusal) => (None, Err(refusal)),
            };
            let (mut dropped, is_changed) = (Vec::new(), change.is_some());
            if let Some(change) = change {
                self.has_space()?;
                dropped = state.catalog.dropped_by(&change);
                state.numbers.build += 2;
                let lsn = self.0.journal.append(&[draft(kind::CHANGE, &json(&change))]);
                state.changed = lsn.map_err(|error| self.unavailable(&error.to_string()))?;
                crash_at("change-appended");
                let input = match &change {
                    Change::Put(function) => Input::Configure {
                        function: Arc::from(function.name.as_str()),
                        settings: function.core_settings(),
                    },
                    Change::Remove(name) => {
                        state.logs.remove(name);
                        Input::Forget { function: Arc::from(name.as_str()) }
                    }
                };
                state.catalog.apply(change);
                self.step(state, input);
            }
            (state.changed, made, dropped, is_changed)
        };
        self.durable(lsn).await?;
        if is_changed {
            crash_at("change-durable");
        }
        self.remove_unwanted(dropped);
        made
    }

    /// Looks at the catalog.
    ///
    /// # Errors
    /// What `look` refuses; or nobody may be told anything.
    pub async fn read<T>(&self, look: impl FnOnce(&Catalog) -> Result<T, Refusal>) -> Result<T, Refusal> {
        self.change(|catalog, _| Ok((None, look(catalog)?))).await
    }

    fn unavailable(&self, reason: &str) -> Refusal {
        Refusal::new(RefusalKind::Service, format!("the host of functions cannot answer: {reason}"))
    }

    /// Where the disk is full, who asks is told so instead of waiting; what goes on in the log waits for space.
    fn has_space(&self) -> Result<(), Refusal> {
        self.0.journal.full().map_or(Ok(()), |error| Err(self.unavailable(&error.to_string())))
    }

    /// Ready when what depends on a position of the log may be told.
    async fn durable(&self, lsn: Lsn) -> Result<(), Refusal> {
        if lsn > self.0.journal.durable() {
            self.0.journal.wait_durable(lsn).await.map_err(|error| self.unavailable(&error.to_string()))?;
        }
        self.serving()
    }

    pub(crate) fn may_tell(&self) -> bool {
        self.0.lease.as_ref().is_none_or(LeaseGuard::serving)
    }

    fn serving(&self) -> Result<(), Refusal> {
        if self.may_tell() { Ok(()) } else { Err(self.unavailable("another process may have its place")) }
    }

    /// Checks that there is such a function, version or alias; what it is called, and what calls it now.
    fn found(&self, state: &State, asked: &Invoking) -> Result<(String, String), Refusal> {
        let function = state.catalog.function(&asked.named.function, &self.0.region)?;
        let qualifier = asked.named.qualifier.as_deref().unwrap_or(LATEST);
        function.check_qualifier(qualifier, &self.0.region)?;
        let (lineage, count) = asked.lineage.clone().with(&function.name);
        if count > LOOPS_MAX && function.recursion == Recursion::Terminate {
            return Err(Refusal::new(
                RefusalKind::Recursive,
                format!(
                    "Function {} has called itself {LOOPS_MAX} times and is stopped; PutFunctionRecursionConfig allows it",
                    function.name
                ),
            ));
        }
        Ok((qualifier.to_owned(), lineage.to_string()))
    }

    /// Whether a function can be invoked, without invoking it.
    ///
    /// # Errors
    /// It cannot.
    pub async fn try_invoke(&self, asked: &Invoking) -> Result<(), Refusal> {
        let (changed, found) = {
            let state = self.0.state.lock();
            (state.changed, self.found(&state, asked))
        };
        self.durable(changed).await?;
        found.map(drop)
    }

    /// Runs a function, and waits for its answer.
    ///
    /// # Errors
    /// There is no such function, or as many run as may. What a function does wrong is none.
    pub async fn invoke(&self, asked: Invoking) -> Result<Invoked, Refusal> {
        self.try_invoke(&asked).await?;
        let (changed, begun) = {
            let state = &mut *self.0.state.lock();
            (state.changed, self.begin_call(state, asked))
        };
        let answer = match begun {
            Ok(answered) => answered.await.unwrap_or_else(|_| Err(self.unavailable("it is ending"))),
            Err(refusal) => Err(refusal),
        };
        // What ran may be newer than what was durable when it was asked for.
        self.durable(changed).await?;
        answer
    }

    fn begin_call(
        &self,
        state: &mut State,
        asked: Invoking,
    ) -> Result<oneshot::Receiver<Result<Invoked, Refusal>>, Refusal> {
        let (qualifier, lineage) = self.found(state, &asked)?;
        let (reply, answered) = oneshot::channel();
        let call = CallId(state.next_call);
        state.next_call += 1;
        let function: Arc<str> = Arc::from(asked.named.function.as_str());
        let item = Item {
            function: asked.named.function,
            qualifier: qualifier.clone(),
            request: asked.request,
            client_context: asked.client_context,
            lineage,
            payload: asked.payload,
        };
        state.core.count_payload(&function, item.payload.len());
        state.calls.insert(call, Call { item: Arc::new(item), reply });
        self.step(state, Input::Invoke { call, function, qualifier: Arc::from(qualifier) });
        Ok(answered)
    }

    /// Accepts an event. It is in the log when this is ready.
    ///
    /// # Errors
    /// There is no such function, or nobody may be told anything.
    pub async fn send(&self, asked: Invoking) -> Result<(), Refusal> {
        let (lsn, accepted) = {
            let state = &mut *self.0.state.lock();
            match self.append_event(state, asked) {
                Ok(lsn) => (lsn, Ok(())),
                Err(refusal) => (state.changed, Err(refusal)),
            }
        };
        self.durable(lsn).await?;
        accepted
    }

    fn append_event(&self, state: &mut State, asked: Invoking) -> Result<Lsn, Refusal> {
        let (qualifier, lineage) = self.found(state, &asked)?;
        self.has_space()?;
        let accepted = Accepted {
            event: state.numbers.event + 1,
            function: asked.named.function,
            qualifier,
            request: asked.request,
            at: state.clock.machine(),
            client_context: asked.client_context,
            lineage,
            payload: asked.payload.to_vec(),
        };
        let weight = weight(&accepted.payload);
        if state.event_bytes.saturating_add(weight) > self.0.bounds.events {
            return Err(Refusal::new(
                RefusalKind::Busy,
                format!(
                    "Rate Exceeded. Events that wait have {} bytes, the most that they may have",
                    state.event_bytes
                ),
            ));
        }
        let lsn = self.0.journal.append(&[draft(kind::ACCEPTED, &accepted.encode())]);
        let lsn = lsn.map_err(|error| self.unavailable(&error.to_string()))?;
        crash_at("event-appended");
        state.numbers.event += 1;
        state.event_bytes += weight;
        state.core.count_payload(&accepted.function, accepted.payload.len());
        self.hold(lsn, Settled::Accepted(accepted));
        Ok(lsn)
    }

    /// The last that a function has printed.
    ///
    /// # Errors
    /// There is no such function.
    pub async fn log(&self, function: &str) -> Result<Vec<u8>, Refusal> {
        self.read(|catalog| catalog.function(function, &self.0.region).map(drop)).await?;
        Ok(self.0.state.lock().log_of(function).all())
    }

    /// What a function runs and has waiting, and what it has used since the host began.
    #[must_use]
    pub fn usage(&self, function: &str) -> (Counts, Meter) {
        let state = self.0.state.lock();
        (state.core.counts_of(function), state.core.meter(function))
    }

    /// Figures for whoever watches.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let state = self.0.state.lock();
        let meters = state.core.meters().map(|(name, meter)| (name.to_string(), *meter)).collect();
        let (functions, counts) = (state.catalog.len(), state.core.counts());
        Totals { functions, counts, meters, log: self.0.journal.stats() }
    }

    /// Ready when the host has ended by itself or was closed, with the reason if there is one.
    pub async fn ended(&self) -> String {
        let mut ended = self.0.ended.subscribe();
        let reason = ended.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        reason.unwrap_or_default()
    }

    /// Ends all instances, and makes everything durable that was accepted. What they worked on has not ended with them: events run again.
    ///
    /// # Errors
    /// The log had ended before.
    pub fn close(&self) -> Result<(), HostError> {
        {
            let mut state = self.0.state.lock();
            state.is_closing = true;
            state.slots.values_mut().for_each(Slot::kill);
            state.calls.clear();
        }
        self.0.ended.send_if_modified(|reason| reason.is_none().then(|| *reason = Some(String::new())).is_some());
        Ok(self.0.journal.close()?)
    }
}
