//! Reads every manifest of the workspace and fails on an arrow that points up or sideways.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The floors of the house, lowest first. A crate may depend on floors below its own; on its own floor only where
/// [`may_share_a_floor`] says so.
const FLOORS: [&str; 7] = ["kernels", "engines", "faces", "control", "node", "cli", "sim"];

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
    let may_share_a_floor = upper == "kernels" || from.service == to.service;
    if from.floor == to.floor && !may_share_a_floor {
        return Some(format!("{upper}/{} may not depend on its sibling {lower}/{}", from.service, to.service));
    }
    None
}

/// The crates of an engine that faces may know: what hosts it, or the words in which it is asked.
const ENGINE_DOORS: [&str; 2] = ["host", "api"];
/// Kernels that are an engine's own business.
const ENGINE_KERNELS: [&str; 3] = ["kernels/journal", "kernels/manifest", "kernels/transaction"];
/// Arrows of faces that there are still, and may not come back once they are gone: (from, to).
const FACE_EXCEPTIONS: [(&str, &str); 1] = [("faces/resp", "engines/keys")];

/// Why a face at the path `from` may not depend on the crate at the path `to`, if it may not: it reaches an engine by what hosts it only,
/// so that any face, another node and the simulation can reach the engine, too.
fn objection_to_face(from: &str, to: &str) -> Option<String> {
    if !from.starts_with("faces/") {
        return None;
    }
    if ENGINE_KERNELS.contains(&to) {
        return Some(format!("a face leaves {to} to the host of an engine"));
    }
    let mut parts = to.split('/');
    let (floor, engine, part) = (parts.next(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let is_door = ENGINE_DOORS.contains(&part) && parts.next().is_none();
    (floor == Some("engines") && !is_door)
        .then(|| format!("a face may depend on engines/{engine}/{{{}}} only", ENGINE_DOORS.join(",")))
}

/// The parts of the engine of tenants, lowest first, with the parts that each may depend on; the engine itself has no name.
const TENANTS_PARTS: [(&str, &[&str]); 9] = [
    ("encoding", &[]),
    ("segments", &[]),
    ("values", &["encoding"]),
    ("catalog", &["encoding", "values"]),
    ("store", &["encoding", "segments", "values", "catalog"]),
    ("sql", &["encoding", "values", "catalog"]),
    ("execution", &["values", "catalog", "store", "sql"]),
    ("", &["segments", "values", "catalog", "store", "sql", "execution"]),
    ("host", &["segments", "values", "catalog", "store", "sql", ""]),
];

/// The part of the engine of tenants that has a path.
fn tenants_part(path: &str) -> Option<&str> {
    let part = path.strip_prefix("engines/tenants")?;
    Some(part.strip_prefix('/').unwrap_or(part))
}

/// Why the crate at the path `from` may not depend on the crate at the path `to`, if both are parts of the engine of tenants and it may not.
fn objection_among_tenants(from: &str, to: &str) -> Option<String> {
    let (from, to) = (tenants_part(from)?, tenants_part(to)?);
    let Some((_, allowed)) = TENANTS_PARTS.iter().find(|(part, _)| *part == from) else {
        return Some(format!("engines/tenants/{from} is new: say in TENANTS_PARTS what it may depend on"));
    };
    (!allowed.contains(&to)).then(|| format!("expected one of {allowed:?} of engines/tenants, found {to:?}"))
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
            if let Some(why) = objection(&from, &to) {
                objections.push(format!("{name} -> {dependency}: {why}"));
            }
        }
    }
    assert!(objections.is_empty(), "arrows that do not point down:\n{}", objections.join("\n"));
}

#[test]
fn faces_reach_engines_by_their_hosts_only() {
    let crates = crates();
    let mut objections = Vec::new();
    let mut unused = FACE_EXCEPTIONS.to_vec();
    for (from, dependencies) in crates.values() {
        for (to, _) in dependencies.iter().filter_map(|dependency| crates.get(dependency)) {
            if let Some(why) = objection_to_face(from, to)
                && unused.extract_if(.., |exception| *exception == (from.as_str(), to.as_str())).next().is_none()
            {
                objections.push(format!("{from} -> {to}: {why}"));
            }
        }
    }
    assert!(objections.is_empty(), "faces that know too much of an engine:\n{}", objections.join("\n"));
    assert!(unused.is_empty(), "exceptions that nothing needs any more, to be removed: {unused:?}");
}

#[test]
fn a_face_that_knows_too_much_of_an_engine_is_found() {
    for to in
        ["engines/tenants", "engines/tenants/segments", "engines/streams/sql", "kernels/journal", "kernels/transaction"]
    {
        assert!(objection_to_face("faces/pgwire/tenants", to).is_some(), "{to}");
    }
    for to in ["engines/tenants/host", "engines/streams/api", "kernels/identity", "faces/pgwire/login"] {
        assert!(objection_to_face("faces/pgwire/tenants", to).is_none(), "{to}");
    }
    assert!(objection_to_face("engines/tenants/host", "kernels/journal").is_none(), "a host is no face");
}

/// A face, and what it asks an engine by, is built and may run without the query engine.
#[test]
fn faces_and_doors_are_built_without_the_query_engine() {
    for (name, (path, dependencies)) in crates() {
        let asks = path.starts_with("faces/") || path.starts_with("engines/") && path.ends_with("/api");
        let engine = dependencies.iter().find(|dependency| dependency.starts_with("datafusion"));
        assert!(!asks || engine.is_none(), "{name} depends on {}", engine.unwrap());
    }
}

#[test]
fn parts_of_tenants_stand_on_each_other_as_listed() {
    let crates = crates();
    let mut objections = Vec::new();
    for (from, dependencies) in crates.values() {
        for (to, _) in dependencies.iter().filter_map(|dependency| crates.get(dependency)) {
            if let Some(why) = objection_among_tenants(from, to) {
                objections.push(format!("{from} -> {to}: {why}"));
            }
        }
    }
    assert!(objections.is_empty(), "parts of tenants that know too much:\n{}", objections.join("\n"));
}

#[test]
fn a_part_of_tenants_that_knows_too_much_is_found() {
    for (at, (part, allowed)) in TENANTS_PARTS.iter().enumerate() {
        let below = &TENANTS_PARTS[..at];
        assert!(allowed.iter().all(|allowed| below.iter().any(|(part, _)| part == allowed)), "{part} points up");
    }
    let values = "engines/tenants/values";
    assert!(objection_among_tenants(values, "engines/tenants").is_some());
    assert!(objection_among_tenants(values, "engines/tenants/segments").is_some());
    assert!(objection_among_tenants("engines/tenants/attic", values).is_some(), "nobody has said what it may know");
    assert!(objection_among_tenants(values, "engines/tenants/encoding").is_none());
    assert!(objection_among_tenants("node", "engines/tenants/host").is_none(), "a node is no part of tenants");
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
    assert!(objection(&at("engines/streams/sql"), &at("engines/streams/model")).is_none());
    assert!(objection(&at("node"), &at("engines/streams")).is_none());
    assert!(objection(&at("kernels/ownership"), &at("kernels/journal")).is_none());
}
