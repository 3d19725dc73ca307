//! Which process that is, told so precisely that another one can know it to be dead.

use std::fs;

use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::record::Incarnation;

/// A process that holds or claims a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its life.
    pub incarnation: Incarnation,
    /// Its number at the operating system.
    pub pid: u32,
    /// What tells it from a later process of that number; none where the operating system does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub birth: Option<Birth>,
}

/// When and where a process began. Only where all but the start agree can one process know of another that it is dead:
/// on another machine, or in another container, the same number is somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Birth {
    /// The beginning of the boot's random id.
    pub boot: u64,
    /// In which processes are numbered, and time is counted.
    pub namespaces: u64,
    /// Clock ticks from the boot to its start.
    pub start: u64,
}

impl Process {
    /// This process.
    #[must_use]
    pub fn own(incarnation: Incarnation) -> Self {
        let birth = || Some(Birth { boot: boot()?, namespaces: namespaces()?, start: start("self")?.at });
        Self { incarnation, pid: std::process::id(), birth: birth() }
    }

    /// Whether it is certain that this process has ended: it can neither do nor tell anything any more.
    #[must_use]
    pub fn is_known_dead(&self) -> bool {
        let Some(birth) = self.birth else { return false };
        if boot() != Some(birth.boot) || namespaces() != Some(birth.namespaces) {
            return false;
        }
        let Ok(pid) = i32::try_from(self.pid) else { return false };
        match kill(Pid::from_raw(pid), None) {
            Err(nix::errno::Errno::ESRCH) => true,
            // Somebody has the number. If it cannot be seen who, it may be that process.
            _ => start(&pid.to_string()).is_some_and(|found| found.has_ended || found.at != birth.start),
        }
    }
}

fn boot() -> Option<u64> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).ok()
}

fn namespaces() -> Option<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let inode = |of| fs::metadata(format!("/proc/self/ns/{of}")).map(|namespace| namespace.ino());
    // Kernels before 5.6 count time in one way only.
    Some(inode("pid").ok()? << 32 | inode("time").unwrap_or(0) & 0xffff_ffff)
}

struct Start {
    at: u64,
    /// It is dead, and its parent has not asked for it yet.
    has_ended: bool,
}

/// What `/proc/PID/stat` says.
fn start(pid: &str) -> Option<Start> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, can have anything in it.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X");
    Some(Start { at: fields.nth(18)?.parse().ok()?, has_ended })
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::process::Command;

    use super::*;

    fn process(pid: u32, birth: Birth) -> Process {
        Process { incarnation: Incarnation(1), pid, birth: Some(birth) }
    }

    #[test]
    fn a_process_that_lives_is_not_known_dead() {
        let own = Process::own(Incarnation(1));
        assert!(own.birth.is_some() && !own.is_known_dead());
        assert!(!Process { birth: None, pid: i32::MAX as u32, ..own }.is_known_dead(), "it says too little of itself");
    }

    #[test]
    fn a_killed_process_is_known_dead_before_and_after_its_parent_asks_for_it() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let birth = Process::own(Incarnation(1)).birth.unwrap();
        let killed = process(child.id(), Birth { start: start(&child.id().to_string()).unwrap().at, ..birth });
        assert!(!killed.is_known_dead());
        child.kill().unwrap();
        while !killed.is_known_dead() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(killed.is_known_dead());
    }

    #[test]
    fn a_number_that_another_process_has_by_now_tells_nothing_of_another_boot_or_container() {
        let birth = Process::own(Incarnation(1)).birth.unwrap();
        let own = std::process::id();
        assert!(process(own, Birth { start: birth.start + 1, ..birth }).is_known_dead());
        let elsewhere = [Birth { boot: birth.boot ^ 1, ..birth }, Birth { namespaces: birth.namespaces ^ 1, ..birth }];
        for birth in elsewhere {
            assert!(!process(own, Birth { start: 0, ..birth }).is_known_dead());
            assert!(!process(i32::MAX as u32, birth).is_known_dead());
        }
    }
}
