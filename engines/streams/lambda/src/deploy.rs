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
/// A function that is being made is waited for.
const SETTLING_MAX: Duration = Duration::from_secs(300);
const ASK_EVERY: Duration = Duration::from_millis(200);

impl Lambda {
    /// Sees to it that a function is there. What it is, is in its name, so that one which is there needs no change.
    ///
    /// # Errors
    /// The host does not answer, or refuses it.
    pub(crate) fn deploy_one(&self, function: &CloudFunction) -> Result<()> {
        let name = &function.name;
        if self.configuration(name)?.is_none() {
            self.create(function)?;
        }
        let there = self.settled(name)?;
        if there["Runtime"] != RUNTIME {
            return Err(StreamError::invalid(format!(
                "function {name} of {} is none of a query: its runtime is {}; remove it",
                self.client.host(),
                there["Runtime"]
            )));
        }
        let Some(count) = function.concurrency else { return Ok(()) };
        let reserve = json!({ "ReservedConcurrentExecutions": count });
        let answer = self.client.ask(Method::PUT, &concurrency(name), Some(&reserve))?;
        if answer.status == 400 {
            let why = "its calls cannot be kept apart from those of other functions; delete functions of queries that are over \
                       (savanna functions delete --query), use fewer members (group-size), or raise functions.concurrency";
            return Err(self.refused(name, &format!("{}: {why}", said(&answer))));
        }
        self.check(name, answer).map(drop)
    }

    /// Has the host hold nothing back for a function any more. Nothing rests on it, so that it may fail.
    pub(crate) fn release_one(&self, function: &CloudFunction) {
        if function.concurrency.is_none() {
            return;
        }
        if let Err(error) = self.client.ask(Method::DELETE, &concurrency(&function.name), None) {
            tracing::warn!(function = function.name, %error, "calls are still held back for a function of a query that is over");
        }
    }

    fn create(&self, function: &CloudFunction) -> Result<()> {
        let mut create = json!({
            "FunctionName": function.name,
            "Code": { "ZipFile": self.code.packed()? },
            "Runtime": RUNTIME,
            "Handler": "stage",
            "Role": self.role,
            "Description": "A stage of a Savanna query",
            "MemorySize": self.memory_mb,
            "Timeout": self.timeout.as_secs(),
            "Environment": { "Variables": { ENVIRONMENT: function.context } },
        });
        if cfg!(target_arch = "aarch64") {
            create["Architectures"] = json!(["arm64"]);
        }
        tracing::info!(function = function.name, "a function is made");
        let answer = self.client.ask(Method::POST, "/2015-03-31/functions", Some(&create))?;
        // Somebody else may have made it meanwhile: the same one, by its name.
        if answer.status == 409 { Ok(()) } else { self.check(&function.name, answer).map(drop) }
    }

    /// What there is of a function; nothing if it is not there.
    fn configuration(&self, name: &str) -> Result<Option<Value>> {
        let answer = self.client.ask(Method::GET, &format!("/2015-03-31/functions/{name}/configuration"), None)?;
        if answer.status == 404 { Ok(None) } else { self.check(name, answer).map(Some) }
    }

    /// Waits until a function can be called.
    fn settled(&self, name: &str) -> Result<Value> {
        let began = Instant::now();
        loop {
            if let Some(there) = self.configuration(name)? {
                let is = |key: &str, value: &str| there[key] == value;
                if is("State", "Failed") || is("LastUpdateStatus", "Failed") {
                    let reasons = format!("{} {}", there["StateReason"], there["LastUpdateStatusReason"]);
                    return Err(self.refused(name, &reasons));
                }
                if !is("State", "Pending") && !is("LastUpdateStatus", "InProgress") {
                    return Ok(there);
                }
            }
            if began.elapsed() > SETTLING_MAX {
                return Err(self.refused(name, "it is not ready"));
            }
            thread::sleep(ASK_EVERY);
        }
    }

    fn check(&self, name: &str, answer: Answer) -> Result<Value> {
        if (200..300).contains(&answer.status) { Ok(answer.body) } else { Err(self.refused(name, &said(&answer))) }
    }

    fn refused(&self, name: &str, why: &str) -> StreamError {
        StreamError::Io { what: format!("make function {name} of {}", self.client.host()), cause: why.to_owned() }
    }
}

fn concurrency(name: &str) -> String {
    format!("/2017-10-31/functions/{name}/concurrency")
}

/// What a host says that refuses.
fn said(answer: &Answer) -> String {
    let message = answer.body["Message"].as_str().or_else(|| answer.body["message"].as_str()).unwrap_or_default();
    format!("{} {} {message}", answer.status, answer.kind)
}
