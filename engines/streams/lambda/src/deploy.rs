//! Makes the functions of a query, or finds them again.

use std::sync::atomic::Ordering;
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
        Ok(())
    }

    fn create(&self, function: &CloudFunction) -> Result<()> {
        let packed = self.code.packed()?;
        tracing::info!(function = function.name, "a function is made");
        if self.takes_hashes.load(Ordering::Relaxed) {
            let answer = self.create_with(function, &json!({ "SavannaCodeSha256": packed.sha256 }))?;
            if answer.status != 400 {
                return self.made(function, answer);
            }
            // It has got the zip from here, and does not know it: it is no host of Savanna's.
            if self.has_sent.load(Ordering::Relaxed) {
                self.takes_hashes.store(false, Ordering::Relaxed);
            }
        }
        let answer = self.create_with(function, &json!({ "ZipFile": packed.zip }))?;
        self.made(function, answer)?;
        self.has_sent.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn create_with(&self, function: &CloudFunction, code: &Value) -> Result<Answer> {
        let mut create = json!({
            "FunctionName": function.name,
            "Code": code,
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
        self.client.ask(Method::POST, "/2015-03-31/functions", Some(&create))
    }

    fn made(&self, function: &CloudFunction, answer: Answer) -> Result<()> {
        // Somebody else may have made it meanwhile: the same one, by its name.
        if answer.status == 409 { Ok(()) } else { self.check(&function.name, answer).map(drop) }
    }

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

/// What a host says that refuses.
fn said(answer: &Answer) -> String {
    let message = answer.body["Message"].as_str().or_else(|| answer.body["message"].as_str()).unwrap_or_default();
    format!("{} {} {message}", answer.status, answer.kind)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::{Arc, Mutex};

    use savanna_streams_runtime::cloud::Cloud as _;

    use super::*;
    use crate::LambdaOptions;

    /// How functions came by their code, in the order of the requests.
    type Sources = Arc<Mutex<Vec<&'static str>>>;

    /// A host that finds code by its hash once it has got it, or never.
    fn host(knows_hashes: bool) -> (String, Sources) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, sources) = (listener.local_addr().unwrap(), Sources::default());
        let (there, told) = (Arc::new(Mutex::new(BTreeSet::new())), Arc::clone(&sources));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (there, told) = (Arc::clone(&there), Arc::clone(&told));
                thread::spawn(move || serve(stream.unwrap(), knows_hashes, &there, &told));
            }
        });
        (format!("http://{address}"), sources)
    }

    fn serve(stream: TcpStream, knows_hashes: bool, there: &Mutex<BTreeSet<String>>, told: &Mutex<Vec<&'static str>>) {
        let mut reader = BufReader::new(stream);
        loop {
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
                head += &line;
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let path = head.split(' ').nth(1).unwrap();
            let (status, answer) = match path.strip_prefix("/2015-03-31/functions/") {
                Some(name) if there.lock().unwrap().contains(name.trim_end_matches("/configuration")) => {
                    (200, json!({ "Runtime": RUNTIME, "State": "Active" }))
                }
                Some(_) => (404, json!({})),
                None => {
                    let request: Value = serde_json::from_slice(&body).unwrap();
                    let is_zip = request["Code"]["ZipFile"].is_string();
                    let mut told = told.lock().unwrap();
                    let has_it = knows_hashes && told.contains(&"zip");
                    told.push(if is_zip { "zip" } else { "hash" });
                    if is_zip || has_it {
                        there.lock().unwrap().insert(request["FunctionName"].as_str().unwrap().to_owned());
                        (201, json!({}))
                    } else {
                        (400, json!({ "message": "there is no such code" }))
                    }
                }
            };
            let answer = answer.to_string();
            let head = format!("HTTP/1.1 {status} -\r\nContent-Length: {}\r\n\r\n", answer.len());
            reader.get_mut().write_all((head + &answer).as_bytes()).unwrap();
        }
    }

    fn sent_to(knows_hashes: bool) -> Vec<&'static str> {
        let (endpoint, sources) = host(knows_hashes);
        let lambda = Lambda::new(LambdaOptions {
            endpoint,
            region: "us-east-1".into(),
            key: None,
            role: "r".into(),
            memory_mb: 512,
            timeout: Duration::from_secs(1),
            stage: concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").into(),
        });
        let functions = ["a", "b", "c"].map(|name| CloudFunction { name: name.into(), context: String::new() });
        lambda.unwrap().deploy(&functions).unwrap();
        let sources = sources.lock().unwrap().clone();
        sources
    }

    #[test]
    fn the_program_is_sent_once_where_it_is_known_by_its_hash() {
        assert_eq!(sent_to(true), ["hash", "zip", "hash", "hash"]);
        assert_eq!(
            sent_to(false),
            ["hash", "zip", "hash", "zip", "zip"],
            "who does not know hashes is not asked again"
        );
    }
}
