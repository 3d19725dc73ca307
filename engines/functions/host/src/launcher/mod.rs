//! What becomes an instance: a process that keeps itself from everything that is not its own, and then runs the function.
//!
//! The host starts its own program again, as [`ARGUMENT`]. That process has one thread, so that it may do what a process with several may not: it makes
//! namespaces of its own, and in them the first process, whose end ends everything inside. That one builds a root of what functions may see, gives up its
//! user, and its way back, and then runs the function. Where the kernel lacks something, [`Confinement`] says so, and the host decides.

mod confine;
mod landlock;

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

/// The first argument of a program that is to begin an instance.
pub const ARGUMENT: &str = "savanna-begins-an-instance";
/// How it ends if it could not.
pub(crate) const FAILED: u8 = 125;

/// What an instance is kept from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Confinement {
    /// Namespaces, a root of its own, another user where that can be, and Landlock.
    Full,
    /// Landlock alone.
    Landlock,
    /// Nothing: a process of the node's user.
    None,
}

/// What an instance is to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) confinement: Confinement,
    /// What is run, as it is found inside.
    pub(crate) command: Vec<String>,
    /// The function's code.
    pub(crate) task: PathBuf,
    /// What the host adds: its bootstrap.
    pub(crate) runtime: PathBuf,
    /// An empty directory, on which the root is built; also the function's `/tmp` where there is no root of its own.
    pub(crate) base: PathBuf,
    /// What may be read beside the system's libraries.
    pub(crate) readable: Vec<PathBuf>,
    /// Megabytes of `/tmp`.
    pub(crate) storage: u32,
    /// The user it becomes, if the host is root.
    pub(crate) uid: u32,
    /// Ports that it may connect to.
    pub(crate) ports: Vec<u16>,
    /// Files of control groups that it enters.
    pub(crate) groups: Vec<PathBuf>,
}

/// Where code and bootstrap are found inside.
pub(crate) const TASK: &str = "/var/task";
pub(crate) const RUNTIME: &str = "/var/runtime";

/// Begins an instance if this program was started for that: call it first thing in `main`, before there are threads. Nothing if it was not.
#[must_use]
pub fn run_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == ARGUMENT).then(|| match begin(arguments.next()) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("the function could not be kept apart: {error}");
            ExitCode::from(FAILED)
        }
    })
}

fn begin(spec: Option<OsString>) -> io::Result<ExitCode> {
    let spec = spec.ok_or_else(|| io::Error::other("expected what the instance is to be"))?;
    let spec: Spec = serde_json::from_slice(spec.as_bytes())?;
    confine::die_with_parent()?;
    confine::limit_resources()?;
    if spec.confinement != Confinement::Full {
        confine::enter_groups(&spec.groups)?;
    }
    match spec.confinement {
        Confinement::Full => confine::in_namespaces(&spec),
        Confinement::Landlock => {
            confine::no_new_privileges()?;
            landlock::restrict(&landlock::outside(&spec), &spec.ports)?;
            Err(run(&spec.command))
        }
        Confinement::None => Err(run(&spec.command)),
    }
}

/// Becomes the function. Why not, if not.
fn run(command: &[String]) -> io::Error {
    let words: Result<Vec<CString>, _> = command.iter().map(|word| CString::new(word.as_str())).collect();
    let Ok(words) = words else { return io::Error::other("a NUL is in the command") };
    let Some(program) = words.first() else { return io::Error::other("there is no command") };
    let pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect();
    // SAFETY: the array ends with a null, and each of its strings with a NUL; they live until the call is over.
    unsafe { libc::execv(program.as_ptr(), pointers.as_ptr()) };
    let error = io::Error::last_os_error();
    io::Error::new(error.kind(), format!("{}: {error}", command[0]))
}
