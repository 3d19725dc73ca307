//! The machine's Node.js.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Interpreter, answer_of, folders};

#[derive(Deserialize)]
struct Told {
    executable: PathBuf,
    version: String,
}

const QUESTION: &str = "console.log(JSON.stringify({executable: process.execPath, version: process.versions.node}))";

/// The machine's Node.js of a version, such as `22`, at the search path, or where nvm keeps them. Blocks.
pub(super) fn find(version: &str) -> Option<Interpreter> {
    candidates(version).iter().find_map(|path| ask(path, version))
}

fn candidates(version: &str) -> Vec<PathBuf> {
    let names = [format!("node{version}"), format!("node-{version}"), "node".to_owned(), "nodejs".to_owned()];
    let beside = |folder: PathBuf| names.clone().map(|name| folder.join(name));
    let mut candidates: Vec<PathBuf> = folders().into_iter().flat_map(beside).filter(|path| path.exists()).collect();
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    for entry in std::fs::read_dir(home.join(".nvm/versions/node")).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&format!("v{version}.")) {
            candidates.push(entry.path().join("bin/node"));
        }
    }
    candidates
}

fn ask(path: &Path, version: &str) -> Option<Interpreter> {
    let (Told { executable, version: told }, takes_system) = answer_of(path, &["-e", QUESTION])?;
    // It has all its own modules inside; beside it may be libraries that it is linked with.
    let prefix = executable.parent()?.parent()?.to_owned();
    let readable = if executable.starts_with("/usr") { Vec::new() } else { vec![prefix] };
    (told.split('.').next() == Some(version)).then_some(Interpreter {
        executable,
        readable,
        has_client: false,
        takes_system,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_no_machine_has_is_not_found() {
        assert_eq!(find("199"), None);
    }

    #[test]
    fn one_of_another_version_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("bin/node");
        std::fs::create_dir(folder.path().join("bin")).unwrap();
        let says =
            format!("#!/bin/sh\necho '{{\"executable\": \"{}\", \"version\": \"20.1.2\"}}'\n", program.display());
        std::fs::write(&program, says).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let found = ask(&program, "20").unwrap();
        assert_eq!((found.executable, found.readable), (program.clone(), vec![folder.path().to_owned()]));
        assert_eq!((ask(&program, "2"), ask(&program, "22")), (None, None));
    }

    #[test]
    fn one_that_does_not_start_with_the_systems_libraries_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("node");
        for (check, takes_system) in [("", true), ("[ -z \"$LD_LIBRARY_PATH\" ] || exit 127", false)] {
            let says =
                format!("#!/bin/sh\n{check}\necho '{{\"executable\": \"/own/bin/node\", \"version\": \"20.1.2\"}}'\n");
            std::fs::write(&program, says).unwrap();
            std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            assert_eq!(ask(&program, "20").unwrap().takes_system, takes_system);
        }
    }
}
