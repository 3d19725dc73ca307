//! What waits for a function, and sees that nothing of it stays.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use super::{Spec, become_function};
use crate::launcher::confine::{self, checked};
use crate::processes::Processes;

/// A process that ends what is left looks for it so often at most.
const ROUNDS_MAX: u32 = 10_000;

/// Another process like this one: 0 in the new one.
pub(super) fn fork() -> io::Result<libc::pid_t> {
    // SAFETY: this process has one thread, so that the new one may do whatever it could.
    checked(unsafe { libc::fork() })
}

/// Waits for the first process of a namespace, which says how the function has ended, and ends as that did.
pub(super) fn wait_for_init(init: libc::pid_t, mut told: UnixStream) -> io::Result<ExitCode> {
    let mut status = [0; 4];
    let is_told = told.read_exact(&mut status).is_ok();
    let own = wait_for(init)?;
    end_as(if is_told { i32::from_le_bytes(status) } else { own })
}

/// The first process of a namespace: it runs nothing of a function's, so that no function undoes what ends it, and its end ends the namespace.
pub(super) fn be_init(spec: &Spec, mut tells: UnixStream) -> io::Result<ExitCode> {
    confine::die_with_parent(libc::SIGKILL)?;
    is_waited_for(&tells)?;
    let groups = open_groups(spec)?;
    confine::build_root(spec)?;
    // Whoever has the same user looks into it as little as anybody else.
    // SAFETY: it takes numbers only.
    checked(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })?;
    let function = fork()?;
    if function == 0 {
        return Err(become_function(spec, groups));
    }
    drop(groups);
    let status = wait_for(function)?;
    tells.write_all(&status.to_le_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Whether whoever waits is still there: his end may have come before this process was to be told of it.
fn is_waited_for(tells: &UnixStream) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: tells.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the kernel reads and writes one structure, which lives until the call is over.
    checked(unsafe { libc::poll(&raw mut poll, 1, 0) })?;
    if poll.revents & (libc::POLLHUP | libc::POLLERR) == 0 {
        Ok(())
    } else {
        Err(io::Error::other("the host has ended"))
    }
}

/// Runs a function without namespaces. What it starts and leaves alone becomes this process' own, and ends with it.
pub(super) fn keep(spec: &Spec) -> io::Result<ExitCode> {
    // SAFETY: it takes numbers only.
    checked(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })?;
    let signals = signals()?;
    // The end of the host is a signal that can be seen to.
    confine::die_with_parent(libc::SIGTERM)?;
    confine::has_parent(spec.host)?;
    let groups = open_groups(spec)?;
    let function = fork()?;
    if function == 0 {
        confine::die_with_parent(libc::SIGKILL)?;
        // SAFETY: they take numbers, and a set that lives until the call is over.
        unsafe {
            checked(libc::setpgid(0, 0))?;
            checked(libc::sigprocmask(libc::SIG_UNBLOCK, &raw const signals, std::ptr::null_mut()))?;
        }
        return Err(become_function(spec, groups));
    }
    drop(groups);
    loop {
        // SAFETY: the set lives until the call is over; nothing is written.
        let signal = unsafe { libc::sigwaitinfo(&raw const signals, std::ptr::null_mut()) };
        if signal == libc::SIGTERM {
            end_what_is_left();
            return end_as(libc::SIGKILL);
        }
        while let Some((process, status)) = ended()? {
            if process == function {
                end_what_is_left();
                return end_as(status);
            }
        }
    }
}

/// Signals that are waited for instead of being acted on.
fn signals() -> io::Result<libc::sigset_t> {
    // SAFETY: the kernel and the library write the set, which lives until the calls are over.
    unsafe {
        let mut signals = std::mem::zeroed::<libc::sigset_t>();
        checked(libc::sigemptyset(&raw mut signals))?;
        checked(libc::sigaddset(&raw mut signals, libc::SIGCHLD))?;
        checked(libc::sigaddset(&raw mut signals, libc::SIGTERM))?;
        checked(libc::sigprocmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut()))?;
        Ok(signals)
    }
}

/// A process of one's own that has ended, if any has.
fn ended() -> io::Result<Option<(libc::pid_t, libc::c_int)>> {
    let mut status = 0;
    // SAFETY: the kernel writes the status, which lives until the call is over.
    match checked(unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) }) {
        Ok(0) => Ok(None),
        Ok(process) => Ok(Some((process, status))),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ends all that this process has started or was left with.
fn end_what_is_left() {
    for _ in 0..ROUNDS_MAX {
        while matches!(ended(), Ok(Some(_))) {}
        let left = Processes::now().below(std::process::id());
        if left.is_empty() {
            return;
        }
        for process in left.iter().filter_map(|process| i32::try_from(*process).ok()) {
            // SAFETY: it takes numbers. Whoever has ended meanwhile is not waited for, so that the number is nobody else's; but a grandchild's may be.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Waits for a process, and for all others that end meanwhile; how it has ended.
fn wait_for(process: libc::pid_t) -> io::Result<libc::c_int> {
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes the status, which lives until the call is over.
        match checked(unsafe { libc::waitpid(-1, &raw mut status, 0) }) {
            Ok(ended) if ended == process => return Ok(status),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
}

/// Ends as another process did.
fn end_as(status: libc::c_int) -> io::Result<ExitCode> {
    if libc::WIFSIGNALED(status) {
        // It may be one that was waited for.
        // SAFETY: the library and the kernel write and read the set, which lives until the calls are over; a signal is sent to this process itself.
        unsafe {
            let mut all = std::mem::zeroed::<libc::sigset_t>();
            checked(libc::sigfillset(&raw mut all))?;
            checked(libc::sigprocmask(libc::SIG_UNBLOCK, &raw const all, std::ptr::null_mut()))?;
            libc::raise(libc::WTERMSIG(status));
        }
    }
    Ok(ExitCode::from(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX)))
}

/// Control groups, opened where they are seen; whoever writes to one is in it from then on.
fn open_groups(spec: &Spec) -> io::Result<Vec<fs::File>> {
    let open = |path: &std::path::PathBuf| {
        let opened = fs::OpenOptions::new().write(true).open(path);
        opened.map_err(|error| io::Error::new(error.kind(), format!("opening {}: {error}", path.display())))
    };
    spec.groups.iter().map(open).collect()
}
