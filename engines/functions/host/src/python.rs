//! The machine's Pythons.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use parking_lot::Mutex;
use serde::Deserialize;

/// A Python of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Python {
    /// The program itself.
    pub(crate) executable: PathBuf,
    /// Where its libraries are, and those of the environment that it belongs to; without what every function may read.
    pub(crate) readable: Vec<PathBuf>,
    /// Whether it has Lambda's own client of the Runtime API.
    pub(crate) has_client: bool,
}

/// Pythons that were looked for.
#[derive(Debug, Default)]
pub(crate) struct Pythons(Mutex<BTreeMap<String, Option<Python>>>);

#[derive(Deserialize)]
struct Told {
    executable: PathBuf,
    prefixes: Vec<PathBuf>,
    version: String,
    has_client: bool,
}

const QUESTION: &str = "import sys, json, importlib.util as u; print(json.dumps({'executable': sys.executable, 'prefixes': sorted({sys.prefix, sys.base_prefix}), 'version': '%d.%d' % sys.version_info[:2], 'has_client': u.find_spec('awslambdaric') is not None}))";

impl Pythons {
    /// The machine's Python of a version, such as `3.11`. Blocks the first time.
    pub(crate) fn find(&self, version: &str) -> Option<Python> {
        let mut known = self.0.lock();
        known
            .entry(version.to_owned())
            .or_insert_with(|| candidates(version).iter().find_map(|path| ask(path, version)))
            .clone()
    }
}

/// Where it may be: the search path, and where pyenv keeps them.
fn candidates(version: &str) -> Vec<PathBuf> {
    let name = format!("python{version}");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates: Vec<PathBuf> = std::env::split_paths(&path)
        .chain(["/usr/local/bin", "/usr/bin"].map(PathBuf::from))
        .map(|folder| folder.join(&name))
        .filter(|path| path.exists())
        .collect();
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    for entry in std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&format!("{version}.")) {
            candidates.push(entry.path().join("bin").join(&name));
        }
    }
    candidates
}

fn ask(path: &Path, version: &str) -> Option<Python> {
    let mut command = Command::new(path);
    let answer = command.args(["-I", "-c", QUESTION]).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let Told { executable, mut prefixes, version: told, has_client } = serde_json::from_slice(&answer.stdout).ok()?;
    prefixes.retain(|prefix| !prefix.starts_with("/usr"));
    (told == version).then_some(Python { executable, readable: prefixes, has_client })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_of_an_environment_has_its_packages_and_those_below() {
        let Some(python) = Pythons::default().find("3.11") else { return };
        let folder = tempfile::tempdir().unwrap();
        let environment = folder.path().join("env");
        let made = Command::new(&python.executable).args(["-m", "venv", "--without-pip"]).arg(&environment).status();
        assert!(made.unwrap().success());
        let program = environment.join("bin/python3.11");
        assert!(!ask(&program, "3.11").unwrap().has_client);
        let package = environment.join("lib/python3.11/site-packages/awslambdaric");
        std::fs::create_dir_all(&package).unwrap();
        std::fs::write(package.join("__init__.py"), "").unwrap();
        let found = ask(&program, "3.11").unwrap();
        assert!(found.has_client && found.executable == program && found.readable.contains(&environment), "{found:?}");
        assert!(python.readable.iter().all(|prefix| found.readable.contains(prefix)), "{found:?}");
        assert_eq!(ask(&program, "3.12"), None);
    }

    #[test]
    fn a_version_that_no_machine_has_is_not_found() {
        assert_eq!(Pythons::default().find("3.199"), None);
    }
}
