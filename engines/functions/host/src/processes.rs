//! The machine's processes at a moment, and who has started whom.

use std::collections::BTreeMap;
use std::fs;

/// Bytes of a page, of which the kernel counts.
const PAGE: u64 = 4096;

/// What is known of a process.
#[derive(Clone, Copy, Debug)]
struct Known {
    parent: u32,
    pages: u64,
}

/// Processes by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Processes(BTreeMap<u32, Known>);

impl Processes {
    /// Those that there are now.
    pub(crate) fn now() -> Self {
        let known = |entry: fs::DirEntry| {
            let process: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read(entry.path().join("stat")).ok()?;
            // Behind the name, which may have anything in it: state, parent, ..; the 22nd is the pages in memory.
            let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
            let rest = std::str::from_utf8(&stat[name_ends + 1..]).ok()?;
            let mut fields = rest.split_ascii_whitespace();
            let (parent, pages) = (fields.nth(1)?.parse().ok()?, fields.nth(19)?.parse().ok()?);
            Some((process, Known { parent, pages }))
        };
        Self(fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(known).collect())
    }

    /// What a process has started, and those, and so on; not the process itself. Parents come first.
    pub(crate) fn below(&self, process: u32) -> Vec<u32> {
        let mut found = vec![process];
        let mut at = 0;
        while let Some(parent) = found.get(at).copied() {
            let children = self.0.iter().filter(|(child, known)| known.parent == parent && **child != parent);
            found.extend(children.map(|(child, _)| *child).collect::<Vec<_>>());
            at += 1;
        }
        found.remove(0);
        found
    }

    /// Bytes that what is below a process has in memory.
    pub(crate) fn resident_below(&self, process: u32) -> u64 {
        self.below(process).iter().filter_map(|process| self.0.get(process)).map(|known| known.pages * PAGE).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_has_started_is_below_it_and_has_memory() {
        let mut child = std::process::Command::new("/bin/sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let own = std::process::id();
        let mut processes = Processes::now();
        for _ in 0..500 {
            if processes.below(child.id()).len() == 1 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            processes = Processes::now();
        }
        let grandchild = processes.below(child.id())[0];
        assert!(processes.below(own).contains(&child.id()) && processes.below(own).contains(&grandchild));
        assert!(!processes.below(own).contains(&own));
        assert!(processes.resident_below(child.id()) > 10_000);
        assert_eq!(processes.resident_below(u32::MAX), 0);
        // SAFETY: it takes numbers; the process is a child of one's own child.
        unsafe { libc::kill(i32::try_from(grandchild).unwrap(), libc::SIGKILL) };
        child.wait().unwrap();
    }
}
