//! The machine's Pythons.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Interpreter, answer_of, folders};

#[derive(Deserialize)]
struct Told {
    executable: PathBuf,
    prefixes: Vec<PathBuf>,
    version: String,
    has_client: bool,
}

const QUESTION: &str = "import sys, json, importlib.util as u; print(json.dumps({'executable': sys.executable, 'prefixes': sorted({sys.prefix, sys.base_prefix}), 'version': '%d.%d' % sys.version_info[:2], 'has_client': u.find_spec('awslambdaric') is not None}))";

/// The machine's Python of a version, such as `3.11`, at the search path, or where pyenv keeps them. Blocks.
pub(super) fn find(version: &str) -> Option<Interpreter> {
    candidates(version).iter().find_map(|path| ask(path, version))
}

fn candidates(version: &str) -> Vec<PathBuf> {
    let name = format!("python{version}");
    let mut candidates: Vec<PathBuf> =
        folders().into_iter().map(|folder| folder.join(&name)).filter(|path| path.exists()).collect();
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    for entry in std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&format!("{version}.")) {
            candidates.push(entry.path().join("bin").join(&name));
        }
    }
    candidates
}

fn ask(path: &Path, version: &str) -> Option<Interpreter> {
    let (told, takes_system) = answer_of(path, &["-I", "-c", QUESTION])?;
    let Told { executable, mut prefixes, version: told, has_client } = told;
    prefixes.retain(|prefix| !prefix.starts_with("/usr"));
    (told == version).then_some(Interpreter { executable, readable: prefixes, has_client, takes_system })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_python_of_an_environment_has_its_packages_and_those_below() {
        let Some(python) = find("3.11") else { return };
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
        assert_eq!(find("3.199"), None);
    }
}
