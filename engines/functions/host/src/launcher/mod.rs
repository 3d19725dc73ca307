//! What becomes an instance: a process that keeps itself from everything that is not its own, and then runs the function.
//!
//! The host starts its own program again, as [`ARGUMENT`], with nothing in its environment: what a function finds in its own comes, with all else, as
//! [`Spec`] through the standard input. That process has one thread, so that it may do what a process with several may not: it makes namespaces of its own,
//! and in them the first process, whose end ends everything inside, and which runs nothing of the function's. That one builds a root of what functions may
//! see, and starts a third one, which gives up its user, and its way back, and then becomes the function. Where the kernel lacks something, [`Confinement`]
//! says so, and the host decides.

mod confine;
mod keeper;
mod landlock;
mod seccomp;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::CString;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::busy::begin_when_free;

/// The first argument of a program that is to begin an instance.
pub const ARGUMENT: &str = "savanna-begins-an-instance";
/// How it ends if it could not.
pub(crate) const FAILED: u8 = 125;

/// What an instance is kept from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Confinement {
    /// Namespaces, a root of its own, another user where that can be, and Landlock with rules for ports.
    Full,
    /// The same without what Landlock lacks here: the function reaches ports, thus its neighbours' work.
    Namespaces,
    /// Landlock alone.
    Landlock,
    /// Nothing: a process of the node's user.
    None,
}

impl Confinement {
    /// Whether the function has a root of its own.
    pub(crate) const fn has_root(self) -> bool {
        matches!(self, Self::Full | Self::Namespaces)
    }
}

/// What an instance is to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// The process that has started it.
    pub(crate) host: u32,
    /// What the function finds in its environment.
    pub(crate) environment: BTreeMap<String, String>,
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

/// Bytes of a [`Spec`].
const SPEC_MAX: u64 = 4 << 20;

/// Begins an instance if this program was started for that: call it first thing in `main`, before there are threads. Nothing if it was not.
#[must_use]
pub fn run_if_asked() -> Option<ExitCode> {
    (std::env::args_os().nth(1)? == ARGUMENT).then(|| match begin() {
        Ok(status) => status,
        Err(error) => {
            eprintln!("the function could not be kept apart: {error}");
            ExitCode::from(FAILED)
        }
    })
}

fn begin() -> io::Result<ExitCode> {
    confine::die_with_parent(libc::SIGKILL)?;
    let spec = received()?;
    confine::has_parent(spec.host)?;
    confine::close_descriptors()?;
    confine::limit_resources()?;
    if spec.confinement.has_root() { confine::in_namespaces(&spec) } else { keeper::keep(&spec) }
}

/// What the host says through the standard input, which is empty from then on.
fn received() -> io::Result<Spec> {
    let mut text = Vec::new();
    io::stdin().lock().take(SPEC_MAX).read_to_end(&mut text)?;
    let nothing = fs::File::open("/dev/null")?;
    // SAFETY: it takes numbers; the standard input is nobody's from here on.
    confine::checked(unsafe { libc::dup2(nothing.as_raw_fd(), 0) })?;
    Ok(serde_json::from_slice(&text)?)
}

/// Enters control groups, gives up all rights that it is not to have, and becomes the function. Why not, if not.
fn become_function(spec: &Spec, groups: Vec<fs::File>) -> io::Error {
    let entered = groups.into_iter().try_for_each(|mut group| group.write_all(b"0"));
    let kept = entered.and_then(|()| match spec.confinement {
        Confinement::None => Ok(()),
        confinement => confine::give_up_rights(spec, confinement),
    });
    kept.err().unwrap_or_else(|| run(spec))
}

/// Becomes the function. Why not, if not.
fn run(spec: &Spec) -> io::Error {
    let words: Result<Vec<CString>, _> = spec.command.iter().map(|word| CString::new(word.as_str())).collect();
    let variable = |(name, value): (&String, &String)| CString::new(format!("{name}={value}"));
    let variables: Result<Vec<CString>, _> = spec.environment.iter().map(variable).collect();
    let (Ok(words), Ok(variables)) = (words, variables) else {
        return io::Error::other("a NUL is in the command or the environment");
    };
    let Some(program) = words.first() else { return io::Error::other("there is no command") };
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (words_seen, variables_seen) = (pointers(&words), pointers(&variables));
    // Programs expect that writing to nobody ends them, unless they say otherwise; this one has.
    // SAFETY: it takes numbers only.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let begun: io::Result<Infallible> = begin_when_free(|| {
        // SAFETY: both arrays end with a null, and each of their strings with a NUL; they live until the call is over.
        unsafe { libc::execve(program.as_ptr(), words_seen.as_ptr(), variables_seen.as_ptr()) };
        Err(io::Error::last_os_error())
    });
    let Err(error) = begun;
    io::Error::new(error.kind(), format!("{}: {error}", spec.command[0]))
}
