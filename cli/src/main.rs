//! The `savanna` command.

mod args;
mod client;
mod commands;
mod error;
mod nexmark;
mod output;
mod progress;
mod remote;
mod sql;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Args;
use crate::error::{CliError, Exit};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // What begins an instance of a function is this program, too; it may have one thread only.
    if let Some(exit) = savanna_node::functions::run_if_asked() {
        return exit;
    }
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&CliError::Runtime(error)).into(),
    };
    let exit = runtime.block_on(commands::run(args)).unwrap_or_else(|error| report(&error));
    // Threads that still read or write are not waited for; everything that must be finished is.
    runtime.shutdown_background();
    exit.into()
}

fn report(error: &CliError) -> Exit {
    if !matches!(error, CliError::Reported(_)) {
        eprintln!("{}: {error}", output::paint(output::Colour::Red, "error"));
    }
    error.exit()
}
