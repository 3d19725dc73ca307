//! Stages of queries as functions of AWS Lambda, or of a host that answers as it does.
//!
//! [`Lambda`] packs the program of stages, makes the functions of a query or finds them again, and calls them.

mod client;
mod code;
mod deploy;
mod zip;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use savanna_identity::aws_signature::SigningKey;
use savanna_streams_api::Result;
use savanna_streams_runtime::cloud::{CallError, Cloud, CloudFunction};

use crate::client::Client;
use crate::code::Code;

/// Where functions are, and what they get.
#[derive(Clone)]
pub struct LambdaOptions {
    /// The host: `http://host:port`, or `https://lambda.REGION.amazonaws.com`.
    pub endpoint: String,
    /// The region that requests are signed for.
    pub region: String,
    /// What requests are signed with, if at all.
    pub key: Option<SigningKey>,
    /// The role of the functions.
    pub role: String,
    /// Whether the host may have code by its hash. AWS has none, and is not asked.
    pub takes_hashes: bool,
    /// Their memory.
    pub memory_mb: u32,
    /// How long a call may take.
    pub timeout: Duration,
    /// The program of stages, `savanna-stage`.
    pub stage: PathBuf,
}

/// The functions of one account.
#[derive(Debug)]
pub struct Lambda {
    client: Client,
    code: Code,
    role: String,
    memory_mb: u32,
    timeout: Duration,
    /// What functions run, and with what.
    program: String,
    /// Whether the host may know the program by its hash.
    takes_hashes: AtomicBool,
    /// Whether the program was sent to it.
    has_sent: AtomicBool,
}

impl Lambda {
    /// The account that these options name. Nothing is asked of it yet.
    ///
    /// # Errors
    /// The endpoint is none, the program cannot be read, or the operating system refuses what a client needs.
    pub fn new(options: LambdaOptions) -> Result<Self> {
        let LambdaOptions { endpoint, region, key, role, takes_hashes, memory_mb, timeout, stage } = options;
        let code = Code::new(stage)?;
        let program = format!("{} {memory_mb} {}", code.hash(), timeout.as_secs());
        let client = Client::new(&endpoint, region, key, timeout)?;
        let (takes_hashes, has_sent) = (AtomicBool::new(takes_hashes), AtomicBool::new(false));
        Ok(Self { client, code, role, memory_mb, timeout, program, takes_hashes, has_sent })
    }
}

impl Cloud for Lambda {
    fn program(&self) -> &str {
        &self.program
    }

    fn deploy(&self, functions: &[CloudFunction]) -> Result<()> {
        self.check_room(functions)?;
        functions.iter().try_for_each(|function| self.deploy_one(function))
    }

    fn call(&self, function: &str, call: Vec<u8>, stops: &dyn Fn() -> bool) -> Result<Vec<u8>, CallError> {
        self.client.invoke(function, call, stops)
    }
}
