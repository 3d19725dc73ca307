//! Makes the functions of a query, or finds them again.

use std::thread;
use std::time::{Duration, Instant};

use reqwest::Method;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_runtime::cloud::{CloudFunction, ENVIRONMENT};
use serde_json::{Value, json};

use crate::Lambda;
use crate::client::Answer;

const RUNTIME: &str = "provided.al2023";
/// A function that is being made or changed is waited for.
const SETTLING_MAX: Duration = Duration::from_secs(300);
const ASK_EVERY: Duration = Duration::from_millis(200);

impl Lambda {
    /// Sees to it that a function is there, with this program and this context.
    ///
    /// # Errors
    /// The host does not answer, or refuses it.
    pub(crate) fn deploy_one(&self, function: &CloudFunction) -> Result<()> {
        let name = &function.name;
        match self.configuration(name)? {
            None => self.create(function)?,
            Some(there) => self.update(function, &there)?,
        }
        self.settled(name)?;
        let path = format!("/2017-10-31/functions/{name}/concurrency");
        match function.concurrency {
            Some(count) => self.put(name, &path, &json!({ "ReservedConcurrentExecutions": count })),
            None => Ok(()),
        }
    }

    fn create(&self, function: &CloudFunction) -> Result<()> {
        let mut create = self.settings(function);
        create["FunctionName"] = json!(function.name);
        create["Code"] = json!({ "ZipFile": self.code.packed()? });
        if cfg!(target_arch = "aarch64") {
            create["Architectures"] = json!(["arm64"]);
        }
        tracing::info!(function = function.name, "a function is made");
        let answer = self.client.ask(Method::POST, "/2015-03-31/functions", Some(&create))?;
        // Somebody else may have made it meanwhile.
        if answer.status == 409 { self.settled(&function.name) } else { self.check(&function.name, answer).map(drop) }
    }

    fn update(&self, function: &CloudFunction, there: &Value) -> Result<()> {
        let name = &function.name;
        let wanted = self.settings(function);
        if there["Runtime"] != wanted["Runtime"] {
            return Err(StreamError::invalid(format!(
                "function {name} of {} is there, and is none of a query: its runtime is {}; remove it, or rename it",
                self.client.host(),
                there["Runtime"]
            )));
        }
        // The description is changed last, and says which code is there.
        if there["Description"] != wanted["Description"] {
            self.settled(name)?;
            tracing::info!(function = name, "a function gets the code of this release");
            let path = format!("/2015-03-31/functions/{name}/code");
            self.put(name, &path, &json!({ "ZipFile": self.code.packed()? }))?;
        }
        let is_same = |key: &str| there[key] == wanted[key];
        if ["Description", "MemorySize", "Timeout", "Environment", "Role"].into_iter().all(is_same) {
            return Ok(());
        }
        self.settled(name)?;
        self.put(name, &format!("/2015-03-31/functions/{name}/configuration"), &wanted)
    }

    fn settings(&self, function: &CloudFunction) -> Value {
        json!({
            "Runtime": RUNTIME,
            "Handler": "stage",
            "Role": self.role,
            "Description": format!("A stage of a Savanna query, program {}", self.code.hash()),
            "MemorySize": self.memory_mb,
            "Timeout": self.timeout.as_secs(),
            "Environment": { "Variables": { ENVIRONMENT: function.context } },
        })
    }

    /// What there is of a function; nothing if it is not there.
    fn configuration(&self, name: &str) -> Result<Option<Value>> {
        let answer = self.client.ask(Method::GET, &format!("/2015-03-31/functions/{name}/configuration"), None)?;
        if answer.status == 404 { Ok(None) } else { self.check(name, answer).map(Some) }
    }

    fn put(&self, name: &str, path: &str, body: &Value) -> Result<()> {
        let answer = self.client.ask(Method::PUT, path, Some(body))?;
        self.check(name, answer).map(drop)
    }

    /// Waits until a function can be called and changed.
    fn settled(&self, name: &str) -> Result<()> {
        let began = Instant::now();
        loop {
            let there = self.configuration(name)?.unwrap_or_default();
            let is = |key: &str, value: &str| there[key] == value;
            if is("State", "Failed") || is("LastUpdateStatus", "Failed") {
                return Err(
                    self.refused(name, &format!("{} {}", there["StateReason"], there["LastUpdateStatusReason"]))
                );
            }
            if !is("State", "Pending") && !is("LastUpdateStatus", "InProgress") && !there.is_null() {
                return Ok(());
            }
            if began.elapsed() > SETTLING_MAX {
                return Err(self.refused(name, "it is not ready"));
            }
            thread::sleep(ASK_EVERY);
        }
    }

    fn check(&self, name: &str, answer: Answer) -> Result<Value> {
        if (200..300).contains(&answer.status) {
            return Ok(answer.body);
        }
        let message = answer.body["Message"].as_str().or_else(|| answer.body["message"].as_str()).unwrap_or_default();
        Err(self.refused(name, &format!("{} {} {message}", answer.status, answer.kind)))
    }

    fn refused(&self, name: &str, why: &str) -> StreamError {
        StreamError::Io { what: format!("make function {name} of {}", self.client.host()), cause: why.to_owned() }
    }
}
