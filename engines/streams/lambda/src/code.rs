//! The program of stages: found, known by a hash, packed when somebody lacks it.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use savanna_streams_api::{Result, StreamError};
use sha2::{Digest as _, Sha256};
use twox_hash::XxHash3_64;

use crate::zip;

/// The name by which a function of one's own runtime begins.
const BOOTSTRAP: &str = "bootstrap";

/// The program.
pub(crate) struct Code {
    path: PathBuf,
    /// Tells releases and builds apart; nobody's word is trusted by it.
    hash: String,
    packed: OnceLock<Packed>,
}

/// The program as it is sent.
pub(crate) struct Packed {
    /// The zip in base64.
    pub(crate) zip: String,
    /// The hash of the zip, in base64.
    pub(crate) sha256: String,
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Code").field("path", &self.path).field("hash", &self.hash).finish_non_exhaustive()
    }
}

impl Code {
    pub(crate) fn new(path: PathBuf) -> Result<Self> {
        let program = read(&path)?;
        let hash = format!("{:016x}", XxHash3_64::oneshot(&program));
        Ok(Self { path, hash, packed: OnceLock::new() })
    }

    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// The program as it is sent.
    ///
    /// # Errors
    /// It has gone, or changed.
    pub(crate) fn packed(&self) -> Result<&Packed> {
        if let Some(packed) = self.packed.get() {
            return Ok(packed);
        }
        let program = read(&self.path)?;
        if format!("{:016x}", XxHash3_64::oneshot(&program)) != self.hash {
            return Err(StreamError::invalid(format!(
                "{} has changed; start the statement again",
                self.path.display()
            )));
        }
        let zip = zip::of_program(BOOTSTRAP, &program)?;
        let sha256 = BASE64_STANDARD.encode(Sha256::digest(&zip));
        Ok(self.packed.get_or_init(|| Packed { zip: BASE64_STANDARD.encode(zip), sha256 }))
    }
}

fn read(path: &PathBuf) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| StreamError::Io {
        what: format!("read the program of stages, {}", path.display()),
        cause: format!("{error}; it is called savanna-stage and comes beside savanna, or name it with --stage"),
    })
}
