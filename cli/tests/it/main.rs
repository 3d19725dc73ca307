//! The `savanna` command as a process.

mod dev;
mod nexmark;
mod process;
mod snapshots;
mod sql;
