//! How much memory an instance may have, and who sees to it.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::processes::Processes;

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
    /// The best that there is below a folder where control groups are seen (`/sys/fs/cgroup`).
    pub(crate) fn below(root: &Path) -> Self {
        // A process may have several hosts, one behind the other or, in tests, at once.
        static HOSTS: AtomicU64 = AtomicU64::new(0);
        let number = HOSTS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let (v2, v1) = (root, &root.join("memory"));
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

/// Bytes that an instance has in memory where no control group counts them: those of all that its first process has started, and of files in its `/tmp`.
pub(crate) fn used(processes: &Processes, launcher: u32, has_root: bool) -> u64 {
    let files = if has_root { processes.below(launcher).first().map_or(0, |init| files_of(*init)) } else { 0 };
    processes.resident_below(launcher) + files
}

/// Bytes of the `/tmp` that a process sees, which is in memory.
fn files_of(process: u32) -> u64 {
    let Ok(path) = std::ffi::CString::new(format!("/proc/{process}/root/tmp")) else { return 0 };
    // SAFETY: the structure is numbers, of which zeros are some.
    let mut told = unsafe { std::mem::zeroed::<libc::statvfs>() };
    // SAFETY: the string ends with a NUL, and the kernel writes the structure; both live until the call is over.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut told) } != 0 {
        return 0;
    }
    told.f_blocks.saturating_sub(told.f_bfree).saturating_mul(told.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a machine with version 2 shows, as ordinary files.
    fn v2() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        root
    }

    #[test]
    fn version_2_is_asked_for_memory_without_swap() {
        let root = v2();
        let limit = MemoryLimit::below(root.path());
        assert_eq!(limit.to_string(), "cgroup v2");
        let MemoryLimit::GroupV2(own) = &limit else { panic!("{limit:?}") };
        assert_eq!(fs::read_to_string(own.join("cgroup.subtree_control")).unwrap(), "+memory");
        let group = limit.group(7, 256).unwrap().unwrap();
        let said = |name: &str| fs::read_to_string(own.join("7").join(name)).unwrap();
        assert_eq!((said("memory.max"), said("memory.swap.max")), ((256 << 20).to_string(), "0".to_owned()));
        assert_eq!(group.entrance(), own.join("7/cgroup.procs"));
        assert_eq!(group.peak(), None);
        fs::write(own.join("7/memory.peak"), "4096\n").unwrap();
        assert_eq!(group.peak(), Some(4096));
    }

    #[test]
    fn version_1_is_asked_for_memory_with_swap() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("memory")).unwrap();
        fs::write(root.path().join("memory/memory.limit_in_bytes"), "0").unwrap();
        let limit = MemoryLimit::below(root.path());
        let MemoryLimit::GroupV1(own) = &limit else { panic!("{limit:?}") };
        let _group = limit.group(7, 128).unwrap().unwrap();
        let said = |name: &str| fs::read_to_string(own.join("7").join(name)).unwrap();
        assert_eq!(said("memory.limit_in_bytes"), (128 << 20).to_string());
        assert_eq!(said("memory.memsw.limit_in_bytes"), (128 << 20).to_string());
    }

    #[test]
    fn where_no_group_has_memory_the_host_watches() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "hugetlb\n").unwrap();
        let limit = MemoryLimit::below(root.path());
        assert_eq!(limit.to_string(), "watched");
        assert!(limit.group(1, 128).unwrap().is_none());
    }

    #[test]
    fn groups_of_hosts_that_have_ended_are_removed() {
        let root = v2();
        // No process has this number: they end at 2^22.
        let left = root.path().join(format!("{PREFIX}4194305-0/3"));
        fs::create_dir_all(&left).unwrap();
        let own = root.path().join(format!("{PREFIX}{}-9/3", std::process::id()));
        fs::create_dir_all(&own).unwrap();
        let _limit = MemoryLimit::below(root.path());
        assert!(!left.exists() && !left.parent().unwrap().exists() && own.exists());
    }

    #[test]
    fn files_in_memory_count() {
        // Whatever it is, it is asked for without an error; and of a process that is not there, it is nothing.
        assert_eq!(files_of(u32::MAX), 0);
    }
}
