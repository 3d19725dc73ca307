//! Moments of a move at which a process can be made to end, for tests: in a build for debugging, the file that `MOVES_END_AT` names says at which. Whoever comes to it
//! first removes the file, and ends as if it was killed.

/// A moment of a move has come.
#[cfg(debug_assertions)]
pub(in crate::cluster) fn reached(moment: &str) {
    let Some(path) = std::env::var_os("MOVES_END_AT") else { return };
    let is_meant = std::fs::read_to_string(&path).is_ok_and(|meant| meant.trim() == moment);
    if is_meant && std::fs::remove_file(&path).is_ok() {
        std::process::abort();
    }
}

/// A moment of a move has come.
#[cfg(not(debug_assertions))]
pub(in crate::cluster) const fn reached(_: &str) {}
