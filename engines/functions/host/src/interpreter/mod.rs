//! The machine's programs that run handlers: Pythons and Node.js.

mod node;
mod python;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use parking_lot::Mutex;
use savanna_functions::catalog::Language;
use serde::de::DeserializeOwned;

use crate::busy::begin_when_free;

/// A program of the machine that runs handlers of a language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interpreter {
    /// The program itself.
    pub(crate) executable: PathBuf,
    /// Where its libraries are, and those of the environment that it belongs to; without what every function may read.
    pub(crate) readable: Vec<PathBuf>,
    /// Whether it has Lambda's own client of the Runtime API.
    pub(crate) has_client: bool,
    /// Whether it starts where libraries are looked for in the system's folders first. One that brings its own C library may not.
    pub(crate) takes_system: bool,
}

/// Those that were looked for, by language and version.
#[derive(Debug, Default)]
pub(crate) struct Interpreters(Mutex<BTreeMap<(Language, String), Option<Interpreter>>>);

impl Interpreters {
    /// The machine's program for a version of a language, such as `3.11` of Python, or `22` of Node.js. Blocks the first time.
    pub(crate) fn find(&self, language: Language, version: &str) -> Option<Interpreter> {
        let look = || match language {
            Language::Python => python::find(version),
            Language::Node => node::find(version),
        };
        self.0.lock().entry((language, version.to_owned())).or_insert_with(look).clone()
    }
}

/// Where programs are looked for first.
fn folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/local/bin", "/usr/bin"].map(PathBuf::from)).collect()
}

/// Where the system has libraries.
pub(crate) fn system_folders() -> impl Iterator<Item = PathBuf> {
    let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
    let of = move |folder: &str| {
        [Path::new(folder).join(&machine), PathBuf::from(format!("{folder}64")), PathBuf::from(folder)]
    };
    ["/usr/local/lib", "/lib", "/usr/lib"].into_iter().flat_map(of)
}

/// What a program says of itself, in JSON, and whether it starts with the system's libraries.
fn answer_of<T: DeserializeOwned>(program: &Path, arguments: &[&str]) -> Option<(T, bool)> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
    // The host's own is in no function's environment.
    command.env_remove("LD_LIBRARY_PATH");
    let answer = serde_json::from_slice(&begin_when_free(|| command.output()).ok()?.stdout).ok()?;
    let folders = std::env::join_paths(system_folders()).unwrap_or_default();
    command.env("LD_LIBRARY_PATH", folders);
    let with_system = begin_when_free(|| command.output());
    Some((answer, with_system.is_ok_and(|with_system| with_system.status.success())))
}
