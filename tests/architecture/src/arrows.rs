//! Reads every manifest of the workspace and fails on an arrow that points up or sideways.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The floors of the house, lowest first. A crate may depend on floors below its own; on its own floor only where
/// [`may_share_a_floor`] says so.
const FLOORS: [&str; 7] = ["kernels", "engines", "faces", "control", "node", "cli", "sim"];

/// Kernels that an engine's host uses, and no face: a face reads and writes sockets, the host says what is kept and what may be told.
const OF_HOSTS: [&str; 3] = ["journal", "manifest", "transaction"];

/// Faces that use them all the same, because their host is not apart yet.
const WITH_THEIR_HOST: [&str; 1] = ["savanna-pgwire-tenants"];

#[derive(Debug, PartialEq, Eq)]
struct Room {
    floor: usize,
    /// The kernel, engine or face that the crate belongs to.
    service: String,
}

fn room(path: &str) -> Option<Room> {
    let mut parts = path.split('/');
    let floor = parts.next()?;
    let floor = FLOORS.iter().position(|name| *name == floor)?;
    Some(Room { floor, service: parts.next().unwrap_or_default().to_owned() })
}

/// Why `from` may not depend on `to`, if it may not. Development dependencies may point anywhere but up to `cli`.
fn objection(from: &Room, to: &Room) -> Option<String> {
    let (upper, lower) = (FLOORS[from.floor], FLOORS[to.floor]);
    if from.floor < to.floor {
        return Some(format!("{upper} may not depend on {lower}, which is above it"));
    }
    if upper == "control" && lower == "engines" {
        return Some("control sees ownership and metrics, not engines".to_owned());
    }
    if upper == "control" && lower == "faces" {
        return Some("control does not know protocols".to_owned());
    }
    if upper == "faces" && lower == "kernels" && OF_HOSTS.contains(&to.service.as_str()) {
        return Some(format!("a face sees an engine and its host, not kernels/{}", to.service));
    }
    let may_share_a_floor = upper == "kernels" || from.service == to.service;
    if from.floor == to.floor && !may_share_a_floor {
        return Some(format!("{upper}/{} may not depend on its sibling {lower}/{}", from.service, to.service));
    }
    None
}

fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Package name -> (path from the root, names of its normal and build dependencies).
fn crates() -> BTreeMap<String, (String, Vec<String>)> {
    let root = workspace_root();
    let manifest: toml::Table = read(&root.join("Cargo.toml"));
    let members = manifest["workspace"]["members"].as_array().expect("the workspace lists its members");
    let mut crates = BTreeMap::new();
    for member in members {
        let path = member.as_str().expect("a member is a path").to_owned();
        let manifest: toml::Table = read(&root.join(&path).join("Cargo.toml"));
        let name = manifest["package"]["name"].as_str().expect("a package has a name").to_owned();
        let names = |key: &str| -> Vec<String> {
            manifest.get(key).and_then(|d| d.as_table()).map(|d| d.keys().cloned().collect()).unwrap_or_default()
        };
        let mut dependencies = names("dependencies");
        dependencies.extend(names("build-dependencies"));
        crates.insert(name, (path, dependencies));
    }
    crates
}

fn read(path: &Path) -> toml::Table {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.parse().unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn dependency_arrows_point_down() {
    let crates = crates();
    let mut objections = Vec::new();
    for (name, (path, dependencies)) in &crates {
        let Some(from) = room(path) else { continue };
        for dependency in dependencies {
            let Some(to) = crates.get(dependency).and_then(|(path, _)| room(path)) else { continue };
            if is_excepted(name, &to) {
                continue;
            }
            if let Some(why) = objection(&from, &to) {
                objections.push(format!("{name} -> {dependency}: {why}"));
            }
        }
    }
    assert!(objections.is_empty(), "arrows that do not point down:\n{}", objections.join("\n"));
}

/// Whether the rule about hosts does not hold for that crate.
fn is_excepted(name: &str, to: &Room) -> bool {
    WITH_THEIR_HOST.contains(&name) && FLOORS[to.floor] == "kernels" && OF_HOSTS.contains(&to.service.as_str())
}

#[test]
fn an_exception_is_needed() {
    let crates = crates();
    for name in WITH_THEIR_HOST {
        let (_, dependencies) = crates.get(name).unwrap_or_else(|| panic!("{name} is a crate"));
        let is_needed =
            dependencies.iter().filter_map(|name| room(&crates.get(name)?.0)).any(|to| is_excepted(name, &to));
        assert!(is_needed, "{name} depends on none of kernels/{OF_HOSTS:?} any more; take it out of WITH_THEIR_HOST");
    }
}

#[test]
fn every_crate_lives_on_a_known_floor() {
    for (name, (path, _)) in crates() {
        let known = room(&path).is_some() || ["bench/", "tests/", "tools/"].iter().any(|yard| path.starts_with(yard));
        assert!(known, "{name} lives in {path}; expected one of {FLOORS:?}, bench/, tests/ or tools/");
    }
}

#[test]
fn an_arrow_that_points_up_or_sideways_is_found() {
    let at = |path: &str| room(path).expect("a known floor");
    assert!(objection(&at("kernels/journal"), &at("engines/streams")).is_some());
    assert!(objection(&at("engines/streams"), &at("engines/keys")).is_some());
    assert!(objection(&at("faces/resp"), &at("faces/http")).is_some());
    assert!(objection(&at("control"), &at("engines/streams")).is_some());
    assert!(objection(&at("faces/resp"), &at("kernels/journal")).is_some());
    assert!(objection(&at("faces/resp"), &at("engines/keys/host")).is_none());
    assert!(objection(&at("engines/keys/host"), &at("kernels/journal")).is_none());
    assert!(objection(&at("engines/streams/sql"), &at("engines/streams/model")).is_none());
    assert!(objection(&at("node"), &at("engines/streams")).is_none());
    assert!(objection(&at("kernels/ownership"), &at("kernels/journal")).is_none());
}
