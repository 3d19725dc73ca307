//! How much memory an instance may have, and who sees to it.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the groups of hosts are called, with the number of the process.
const PREFIX: &str = "savanna-functions-";

/// Who sees to it.
#[derive(Debug)]
pub(crate) enum MemoryLimit {
    /// Control groups, version 2, below this one.
    GroupV2(PathBuf),
    /// Control groups, version 1, below this one.
    GroupV1(PathBuf),
    /// The host, which looks ten times a second.
    Watched,
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GroupV2(_) => "cgroup v2",
            Self::GroupV1(_) => "cgroup v1",
            Self::Watched => "watched",
        })
    }
}

impl MemoryLimit {
    /// The best that this machine has.
    pub(crate) fn of_machine() -> Self {
        // A process may have several hosts, one behind the other or, in tests, at once.
        static HOSTS: AtomicU64 = AtomicU64::new(0);
        let number = HOSTS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let (v2, v1) = (Path::new("/sys/fs/cgroup"), Path::new("/sys/fs/cgroup/memory"));
        remove_left(v2);
        remove_left(v1);
        let has_memory = fs::read_to_string(v2.join("cgroup.controllers")).is_ok_and(|names| names.contains("memory"));
        if has_memory && make(&v2.join(&name)).is_ok() {
            // What its children may use has to be said in it.
            let own = v2.join(&name);
            if fs::write(own.join("cgroup.subtree_control"), "+memory").is_ok() {
                return Self::GroupV2(own);
            }
            let _ = fs::remove_dir(own);
        }
        if v1.join("memory.limit_in_bytes").exists() && make(&v1.join(&name)).is_ok() {
            return Self::GroupV1(v1.join(&name));
        }
        Self::Watched
    }

    /// Makes room for an instance: what it has to enter, before it is anything. Nothing if the host has to watch it.
    pub(crate) fn group(&self, instance: u64, megabytes: u32) -> io::Result<Option<Group>> {
        let (parent, limits): (_, &[&str]) = match self {
            Self::Watched => return Ok(None),
            Self::GroupV2(parent) => (parent, &["memory.max", "memory.swap.max"]),
            Self::GroupV1(parent) => (parent, &["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]),
        };
        let group = Group(parent.join(instance.to_string()));
        make(&group.0)?;
        let bytes = (u64::from(megabytes) << 20).to_string();
        fs::write(group.0.join(limits[0]), &bytes)?;
        // A machine without swap does not have the other one.
        let _ = fs::write(group.0.join(limits[1]), if limits[1] == "memory.swap.max" { "0" } else { &bytes });
        Ok(Some(group))
    }
}

fn make(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Removes the groups of hosts that have ended without it.
fn remove_left(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            for group in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                let _ = fs::remove_dir(group.path());
            }
            let _ = fs::remove_dir(entry.path());
        }
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        if let Self::GroupV2(path) | Self::GroupV1(path) = self {
            let _ = fs::remove_dir(path);
        }
    }
}

/// The control group of an instance; it goes when nobody is in it any more.
#[derive(Debug)]
pub(crate) struct Group(PathBuf);

impl Group {
    /// What is written to enter it.
    pub(crate) fn entrance(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    /// The most that it had, in bytes.
    pub(crate) fn peak(&self) -> Option<u64> {
        let read = |name: &str| fs::read_to_string(self.0.join(name)).ok()?.trim().parse().ok();
        read("memory.peak").or_else(|| read("memory.max_usage_in_bytes"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.0);
        if fs::remove_dir(&path).is_ok() {
            return;
        }
        // Those who were in it are ending.
        let remove = move || {
            for _ in 0..50 {
                std::thread::sleep(std::time::Duration::from_millis(20));
                if fs::remove_dir(&path).is_ok() {
                    return;
                }
            }
        };
        let _ = std::thread::Builder::new().name("functions-group".to_owned()).spawn(remove);
    }
}

/// Bytes that the processes of a group of processes have in memory.
pub(crate) fn resident(group: u32) -> u64 {
    const PAGE: u64 = 4096;
    let of = |entry: fs::DirEntry| -> Option<u64> {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // Behind the name, which may have anything in it: state, parent, group, ..; the 22nd is the pages.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let is_own = fields.get(2)?.parse() == Ok(group);
        is_own.then(|| fields.get(21)?.parse::<u64>().ok()).flatten()
    };
    let pages: u64 = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(of).sum();
    pages * PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory() {
        // SAFETY: it takes nothing and cannot fail.
        let group = unsafe { libc::getpgrp() };
        assert!(resident(u32::try_from(group).unwrap()) > 100_000);
        assert_eq!(resident(u32::MAX), 0);
    }
}
