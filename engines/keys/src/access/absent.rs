//! Commands of Redis that are not there. A file of users may name them: what it says about them changes nothing.

/// Whether Redis has a command, or one with subcommands, that is not there.
pub(super) fn is_absent(word: &str) -> bool {
    let name = word.split('|').next().unwrap_or(word);
    ABSENT.iter().any(|absent| absent.eq_ignore_ascii_case(name))
}

#[rustfmt::skip]
const ABSENT: &[&str] = &[
    "debug", "failover", "migrate", "replicaof", "restore-asking", "slaveof",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;

    #[test]
    fn what_is_absent_is_no_command() {
        let there: Vec<_> = ABSENT.iter().filter(|name| Command::find(name.as_bytes()).is_some()).collect();
        assert!(there.is_empty(), "{there:?} came: take them out");
        assert!(is_absent("failover") && is_absent("DEBUG|sleep") && !is_absent("flushal"));
    }
}
