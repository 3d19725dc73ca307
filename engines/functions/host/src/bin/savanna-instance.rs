//! Begins an instance of a function, as `savanna` itself does when it is started for that; for tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    savanna_functions_host::launcher::run_if_asked().unwrap_or_else(|| {
        eprintln!("savanna-instance begins an instance of a function; the host of functions starts it");
        ExitCode::from(2)
    })
}
