//! The groups of users, as this machine has them.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// After so long the files are read again.
const KEPT: Duration = Duration::from_secs(60);

/// Groups by user, read when they are asked for.
#[derive(Debug, Default)]
pub(crate) struct Groups(Mutex<Option<(Instant, ByUser)>>);

/// The groups of each user.
type ByUser = HashMap<String, Arc<[String]>>;

impl Groups {
    /// The groups of a user; none of one that the machine does not know.
    pub(crate) fn of(&self, user: &str) -> Arc<[String]> {
        let mut known = self.0.lock();
        let groups = match known.take() {
            Some((at, groups)) if at.elapsed() < KEPT => (at, groups),
            _ => {
                let read = |path| std::fs::read_to_string(path).unwrap_or_default();
                (Instant::now(), parse(&read("/etc/passwd"), &read("/etc/group")))
            }
        };
        let found = groups.1.get(user).cloned().unwrap_or_default();
        *known = Some(groups);
        found
    }
}

/// The user that runs this process.
#[must_use]
pub fn who_runs_this() -> String {
    let user = std::fs::metadata("/proc/self").map_or(0, |process| process.uid());
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let is_it = |line: &&str| line.split(':').nth(2) == Some(user.to_string().as_str());
    let name = passwd.lines().find(is_it).and_then(|line| line.split(':').next());
    name.map_or_else(|| user.to_string(), str::to_owned)
}

/// The groups of each user, first that of `passwd`.
fn parse(passwd: &str, group: &str) -> ByUser {
    let lines = |text: &str| -> Vec<Vec<String>> {
        text.lines().map(|line| line.split(':').map(str::to_owned).collect()).collect()
    };
    let (users, groups) = (lines(passwd), lines(group));
    let mut found: HashMap<String, Vec<String>> = HashMap::new();
    for user in users.iter().filter(|user| user.len() > 3) {
        let first = groups.iter().find(|group| group.get(2) == user.get(3));
        found.entry(user[0].clone()).or_default().extend(first.map(|group| group[0].clone()));
    }
    for group in groups.iter().filter(|group| group.len() > 3) {
        for user in group[3].split(',').filter(|user| !user.is_empty()) {
            let groups = found.entry(user.to_owned()).or_default();
            if !groups.contains(&group[0]) {
                groups.push(group[0].clone());
            }
        }
    }
    found.into_iter().map(|(user, groups)| (user, groups.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_its_own_group_first() {
        let groups =
            parse("ann:x:1:20::/:/bin/sh\nbob:x:2:21::/:\n", "staff:x:20:bob\nbobs:x:21:\nodd\nml:x:30:ann,bob,\n");
        assert_eq!(*groups["ann"], ["staff", "ml"]);
        assert_eq!(*groups["bob"], ["bobs", "staff", "ml"]);
        assert!(!groups.contains_key("eve"));
    }
}
