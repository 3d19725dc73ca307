//! Running the command, away from the configuration of whoever runs the tests.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A process that does not end is a failure, after a time that no machine needs.
const END_WITHIN: Duration = Duration::from_secs(120);

pub(crate) fn savanna(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_savanna"));
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("SAVANNA_") || name == "COLUMNS") {
            command.env_remove(name);
        }
    }
    command
}

/// What the command wrote, and its exit code.
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
}

pub(crate) fn run(arguments: &[&str]) -> Ran {
    ran(savanna(arguments).output().unwrap())
}

pub(crate) fn ran(output: Output) -> Ran {
    Ran {
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code(),
    }
}

impl Ran {
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
    }

    /// The summary of `sql --output json`.
    pub(crate) fn summary(&self) -> Value {
        serde_json::from_str(self.stderr.lines().last().unwrap()).unwrap_or_else(|e| panic!("{}: {e}", self.stderr))
    }
}

/// A process in the background.
pub(crate) struct Running {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut errors = child.stderr.take().unwrap();
        let stderr = std::thread::spawn(move || {
            let mut text = String::new();
            errors.read_to_string(&mut text).unwrap();
            text
        });
        Self { child, stdout, stderr: Some(stderr) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of standard output; nothing at its end.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        (!line.is_empty()).then_some(line)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.pid()).unwrap()), signal).unwrap();
    }

    /// Waits for its end; the exit status, and what it wrote to standard error.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < END_WITHIN, "the process did not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        (status, self.stderr.take().unwrap().join().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A node of `savanna dev` on any ports, once it serves.
pub(crate) struct Dev {
    pub(crate) process: Running,
    pub(crate) status: Value,
}

impl Dev {
    pub(crate) fn start(directory: &Path, more: &[&str]) -> Self {
        let directory = directory.to_str().unwrap();
        let mut arguments = vec!["dev", "--data-dir", directory, "--output", "json"];
        arguments.extend(["--set", "lease.ttl=1s", "--set", "lease.margin=200ms"]);
        arguments.extend(["--http-port", "0"]);
        for port in ["--pgwire-port", "--keys-port", "--tenants-port"] {
            if !more.contains(&port) {
                arguments.extend([port, "0"]);
            }
        }
        arguments.extend(more);
        let mut process = Running::start(savanna(&arguments));
        let Some(line) = process.line() else {
            let (status, stderr) = process.end();
            panic!("savanna dev did not start: {status}\n{stderr}");
        };
        Self { process, status: serde_json::from_str(&line).unwrap() }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.status["lease"]["epoch"].as_u64().unwrap()
    }

    pub(crate) fn service(&self, name: &str) -> &Value {
        let services = self.status["services"].as_array().unwrap();
        services.iter().find(|service| service["service"] == name).unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.service("http")["address"].as_str().unwrap())
    }
}
