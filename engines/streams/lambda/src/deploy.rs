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
const FUNCTIONS: &str = "/2015-03-31/functions";
/// A function that is being made is waited for.
const SETTLING_MAX: Duration = Duration::from_secs(300);
const ASK_EVERY: Duration = Duration::from_millis(200);

impl Lambda {
    /// Sees to it that all calls of a query can be under way at once, if the host says how many invocations it has.
    ///
    /// # Errors
    /// They cannot: each call would end the process of another function, which is about to be called.
    pub(crate) fn check_room(&self, functions: &[CloudFunction]) -> Result<()> {
        let answer = self.client.ask_unsure(Method::GET, "/2016-08-19/account-settings", None)?;
        let most = answer.body["AccountLimit"]["UnreservedConcurrentExecutions"].as_u64();
        let at_once: usize = functions.iter().map(|function| function.at_once).sum();
        match most.filter(|most| answer.status == 200 && at_once as u64 > *most) {
            None => Ok(()),
            Some(most) => Err(StreamError::Limit {
                message: format!(
                    "the query makes {at_once} calls at once of its functions ({}), and {} runs {most} invocations at once; use fewer \
                     source partitions (parallelism) or members (group-size), or raise functions.concurrency",
                    functions.len(),
                    self.client.host()
                ),
            }),
        }
    }

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
            if self.is_known(function, &packed.sha256)? {
                return Ok(());
            }
            // It has got the zip from here, and does not know it: it is no host of Savanna's.
            if self.has_sent.load(Ordering::Relaxed) {
                self.takes_hashes.store(false, Ordering::Relaxed);
            }
        }
        let create = self.request(function, &json!({ "ZipFile": packed.zip }));
        let answer = self.client.ask(Method::POST, FUNCTIONS, Some(&create))?;
        self.made(function, answer)?;
        self.has_sent.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a function of code that the host has by this hash. Whether it is there now: what any other host says to that is all the same.
    fn is_known(&self, function: &CloudFunction, sha256: &str) -> Result<bool> {
        let create = self.request(function, &json!({ "SavannaCodeSha256": sha256 }));
        let answer = self.client.ask_unsure(Method::POST, FUNCTIONS, Some(&create))?;
        match answer.status {
            // Somebody else has made it meanwhile; or it would be refused with its zip as well.
            409 | 401 | 403 | 429 => self.made(function, answer).map(|()| true),
            200..300 if answer.body["CodeSha256"] == sha256 => Ok(true),
            // It was made of something else.
            200..300 => {
                let path = format!("{FUNCTIONS}/{}", function.name);
                let removed = self.client.ask(Method::DELETE, &path, None)?;
                self.check(&function.name, removed).map(|_| false)
            }
            _ => Ok(false),
        }
    }

    fn request(&self, function: &CloudFunction, code: &Value) -> Value {
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
        create
    }

    fn made(&self, function: &CloudFunction, answer: Answer) -> Result<()> {
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

    /// What a host makes of hashes.
    #[derive(Clone, Copy, PartialEq)]
    enum Hashes {
        /// It finds code once it has got it.
        Finds,
        Refuses,
        /// It fails.
        Fails,
        /// It does not look at them, and makes a function of nothing.
        Ignores,
    }

    /// A host of three invocations.
    fn host(hashes: Hashes) -> (String, Sources) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, sources) = (listener.local_addr().unwrap(), Sources::default());
        let (there, told) = (Arc::new(Mutex::new(BTreeSet::new())), Arc::clone(&sources));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (there, told) = (Arc::clone(&there), Arc::clone(&told));
                thread::spawn(move || serve(stream.unwrap(), hashes, &there, &told));
            }
        });
        (format!("http://{address}"), sources)
    }

    fn serve(stream: TcpStream, hashes: Hashes, there: &Mutex<BTreeSet<String>>, told: &Mutex<Vec<&'static str>>) {
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
                _ if path.ends_with("/account-settings") => {
                    (200, json!({ "AccountLimit": { "UnreservedConcurrentExecutions": 3 } }))
                }
                Some(name) if head.starts_with("DELETE") => {
                    there.lock().unwrap().remove(name);
                    told.lock().unwrap().push("removed");
                    (204, Value::Null)
                }
                Some(name) if there.lock().unwrap().contains(name.trim_end_matches("/configuration")) => {
                    (200, json!({ "Runtime": RUNTIME, "State": "Active" }))
                }
                Some(_) => (404, json!({})),
                None => {
                    let request: Value = serde_json::from_slice(&body).unwrap();
                    let hash = request["Code"]["SavannaCodeSha256"].as_str();
                    let mut told = told.lock().unwrap();
                    let has_it = told.contains(&"zip");
                    told.push(if hash.is_some() { "hash" } else { "zip" });
                    let (is_made, shown) = match (hash, hashes) {
                        (None, _) | (Some(_), Hashes::Ignores) => (true, "of something"),
                        (Some(hash), Hashes::Finds) => (has_it, hash),
                        (Some(_), _) => (false, ""),
                    };
                    if is_made {
                        there.lock().unwrap().insert(request["FunctionName"].as_str().unwrap().to_owned());
                        (201, json!({ "CodeSha256": shown }))
                    } else {
                        (if hashes == Hashes::Fails { 500 } else { 400 }, json!({ "message": "there is no such code" }))
                    }
                }
            };
            let answer = answer.to_string();
            let head = format!("HTTP/1.1 {status} -\r\nContent-Length: {}\r\n\r\n", answer.len());
            reader.get_mut().write_all((head + &answer).as_bytes()).unwrap();
        }
    }

    fn lambda(endpoint: String) -> Lambda {
        lambda_that(endpoint, true)
    }

    fn lambda_that(endpoint: String, takes_hashes: bool) -> Lambda {
        let lambda = Lambda::new(LambdaOptions {
            endpoint,
            region: "us-east-1".into(),
            key: None,
            role: "r".into(),
            takes_hashes,
            memory_mb: 512,
            timeout: Duration::from_secs(1),
            stage: concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").into(),
        });
        lambda.unwrap()
    }

    fn functions(names: &[&str]) -> Vec<CloudFunction> {
        names.iter().map(|name| CloudFunction { name: (*name).into(), context: String::new(), at_once: 1 }).collect()
    }

    fn sent_to(hashes: Hashes) -> Vec<&'static str> {
        let (endpoint, sources) = host(hashes);
        lambda(endpoint).deploy(&functions(&["a", "b", "c"])).unwrap();
        let sources = sources.lock().unwrap().clone();
        sources
    }

    #[test]
    fn the_program_is_sent_once_where_it_is_known_by_its_hash() {
        assert_eq!(sent_to(Hashes::Finds), ["hash", "zip", "hash", "hash"]);
        let sent = ["hash", "zip", "hash", "zip", "zip"];
        assert_eq!(sent_to(Hashes::Refuses), sent, "who does not know hashes is not asked again");
        assert_eq!(sent_to(Hashes::Fails), sent);
    }

    #[test]
    fn a_host_that_has_no_hashes_is_not_asked_by_them() {
        let (endpoint, sources) = host(Hashes::Refuses);
        lambda_that(endpoint, false).deploy(&functions(&["a", "b"])).unwrap();
        assert_eq!(*sources.lock().unwrap(), ["zip", "zip"]);
    }

    #[test]
    fn a_function_that_was_made_of_something_else_is_made_again() {
        assert_eq!(sent_to(Hashes::Ignores), ["hash", "removed", "zip", "hash", "removed", "zip", "zip"]);
    }

    #[test]
    fn more_functions_than_run_at_once_are_refused() {
        let (endpoint, sources) = host(Hashes::Finds);
        let refused = lambda(endpoint.clone()).deploy(&functions(&["a", "b", "c", "d"])).unwrap_err().to_string();
        assert!(
            refused.contains("makes 4 calls at once") && refused.contains("runs 3 invocations at once"),
            "{refused}"
        );
        // One of which each source partition makes calls is used as often as there are partitions.
        let mut scan = functions(&["a", "b"]);
        scan[0].at_once = 3;
        let refused = lambda(endpoint).deploy(&scan).unwrap_err().to_string();
        assert!(refused.contains("makes 4 calls at once of its functions (2)"), "{refused}");
        assert_eq!(sources.lock().unwrap().len(), 0, "nothing is made");
    }
}
