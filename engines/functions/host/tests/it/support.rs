//! A host in a directory of its own, and zips for it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::ObjectStore;
use savanna_epoch::NodeEpoch;
use savanna_functions_host::catalog::{Change, ConcurrencyRequest, EventConfigRequest};
use savanna_functions_host::meter::Prices;
use savanna_functions_host::names::{LATEST, Named};
use savanna_functions_host::{
    Abilities, Bounds, Functions, HostError, HostOptions, Invoked, Invoking, Isolation, Lineage, Refusal, unique,
};
use savanna_journal::Options;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::zips::zip_of;

/// What a host stands on.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) abilities: Abilities,
    pub(crate) bounds: Bounds,
    /// Where code is instead.
    pub(crate) store: Option<(Arc<dyn ObjectStore>, object_store::path::Path)>,
    /// What is in the log is durable only after this.
    pub(crate) linger: Duration,
    /// How long an instance may have nothing to do, if not for long.
    pub(crate) idle: Option<Duration>,
    /// The keys server whose streams are told.
    pub(crate) keys_url: Option<String>,
}

pub(crate) struct Host {
    pub(crate) functions: Functions,
    pub(crate) runtime: Runtime,
}

impl Host {
    pub(crate) fn open(directory: &Path, epoch: u64) -> Self {
        Self::open_with(directory, epoch, Isolation::Preferred, 8)
    }

    pub(crate) fn open_with(directory: &Path, epoch: u64, isolation: Isolation, concurrency: u32) -> Self {
        Self::try_open(directory, epoch, isolation, concurrency, Parts::default()).unwrap()
    }

    pub(crate) fn try_open(
        directory: &Path,
        epoch: u64,
        isolation: Isolation,
        concurrency: u32,
        parts: Parts,
    ) -> Result<Self, HostError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let options = HostOptions {
            log: Options::dir(directory.join("log")).linger(parts.linger),
            epoch: NodeEpoch(epoch),
            lease: None,
            directory: directory.join("functions"),
            store: parts.store,
            region: "us-east-1".to_owned(),
            launcher: env!("CARGO_BIN_EXE_savanna-instance").into(),
            isolation,
            abilities: parts.abilities,
            bounds: parts.bounds,
            ports: Vec::new(),
            concurrency,
            idle: parts.idle.unwrap_or(Duration::from_secs(300)),
            retry_minute: Duration::from_millis(100),
            keys_url: parts.keys_url,
            prices: Prices::default(),
        };
        let functions = Functions::open(options, runtime.handle())?;
        Ok(Self { functions, runtime })
    }

    /// Makes a function of one file of Python.
    pub(crate) fn python(&self, name: &str, source: &str) {
        self.python_with(name, source, &json!({}));
    }

    pub(crate) fn python_with(&self, name: &str, source: &str, settings: &Value) {
        self.make(name, "python3.11", &[("main.py", 0o100_644, source.as_bytes())], settings);
    }

    pub(crate) fn make(&self, name: &str, runtime: &str, files: &[(&str, u32, &[u8])], settings: &Value) {
        self.try_make(name, runtime, zip_of(files), settings).unwrap();
    }

    pub(crate) fn try_make(&self, name: &str, runtime: &str, zip: Vec<u8>, settings: &Value) -> Result<(), Refusal> {
        let mut request = json!({
            "FunctionName": name, "Role": "r", "Handler": "main.handler", "Runtime": runtime, "Code": {},
            "Timeout": 20, "MemorySize": 256,
        });
        settings.as_object().unwrap().iter().for_each(|(key, value)| request[key] = value.clone());
        let request = serde_json::from_value(request).unwrap();
        self.runtime.block_on(async {
            let code = self.functions.keep_code(zip).await?;
            let made = self.functions.change(|catalog, context| {
                Ok((Some(Change::Put(Box::new(catalog.create(&request, code.code().clone(), context)?))), ()))
            });
            made.await
        })
    }

    pub(crate) fn reserve(&self, name: &str, count: i64) {
        let request = ConcurrencyRequest { reserved_concurrent_executions: count };
        let reserved = self.functions.change(|catalog, context| {
            Ok((Some(Change::Put(Box::new(catalog.reserve(name, Some(request), context)?))), ()))
        });
        self.runtime.block_on(reserved).unwrap();
    }

    pub(crate) fn events(&self, name: &str, config: &Value) {
        let request: EventConfigRequest = serde_json::from_value(config.clone()).unwrap();
        let changed = self.functions.change(|catalog, context| {
            let function = catalog.function(name, context.region)?.clone();
            Ok((Some(Change::Put(Box::new(function.with_events(LATEST, &request, true, context)?))), ()))
        });
        self.runtime.block_on(changed).unwrap();
    }

    pub(crate) fn try_call(&self, name: &str, payload: &Value) -> Result<Invoked, Refusal> {
        self.runtime.block_on(self.functions.invoke(invoking(name, payload)))
    }

    pub(crate) fn call(&self, name: &str, payload: &Value) -> (bool, Value) {
        let invoked = self.try_call(name, payload).unwrap();
        (invoked.succeeded, serde_json::from_slice(&invoked.payload).unwrap())
    }

    /// What a function answers that succeeds.
    pub(crate) fn answer(&self, name: &str, payload: &Value) -> Value {
        let (succeeded, answer) = self.call(name, payload);
        assert!(succeeded, "{answer:#} {}", self.log(name));
        answer
    }

    /// What a function has printed.
    pub(crate) fn log(&self, name: &str) -> String {
        String::from_utf8_lossy(&self.runtime.block_on(self.functions.log(name)).unwrap()).into_owned()
    }

    pub(crate) fn send(&self, name: &str, payload: &Value) {
        self.runtime.block_on(self.functions.send(invoking(name, payload))).unwrap();
    }

    /// Waits until a function has printed something so often.
    pub(crate) fn wait_for_print(&self, name: &str, text: &str, count: usize) {
        wait(&format!("{count} times {text:?} of {name}"), || self.log(name).matches(text).count() >= count);
    }

    pub(crate) fn close(self) {
        self.functions.close().unwrap();
        self.runtime.shutdown_timeout(Duration::from_secs(5));
    }
}

pub(crate) fn invoking(name: &str, payload: &Value) -> Invoking {
    Invoking {
        named: Named::parse(name).unwrap(),
        payload: Bytes::from(payload.to_string()),
        client_context: None,
        lineage: Lineage::default(),
        request: unique(),
    }
}

pub(crate) fn wait(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what}: it has not come to be within 30 s");
}
