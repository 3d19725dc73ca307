//! Processes: one thread starts them all, since a process ends with the thread that has started it; each has a descriptor by which it is ended and waited for.

use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;

use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use crate::launcher::{ARGUMENT, Confinement, Spec};

/// What a process is to be.
pub(crate) struct Order {
    /// The program that begins instances.
    pub(crate) launcher: PathBuf,
    pub(crate) spec: Spec,
    /// Where it is started, if it has no root of its own.
    pub(crate) folder: PathBuf,
}

/// A process that was started; it ends when this is dropped.
pub(crate) struct Process {
    child: Child,
    killer: Killer,
    is_over: bool,
}

/// Ends a process.
#[derive(Debug)]
pub(crate) struct Killer {
    pidfd: OwnedFd,
    /// Its number, and that of its group.
    process: i32,
    /// Whether its end ends all that it has started; else it sees to that itself when it is told to end.
    ends_all: bool,
}

type Started = io::Result<(Process, OwnedFd)>;

/// The thread that starts processes; it ends, and they with it, when this is dropped.
#[derive(Debug)]
pub(crate) struct Spawner(mpsc::Sender<(Order, oneshot::Sender<Started>)>);

impl Spawner {
    pub(crate) fn begin() -> io::Result<Self> {
        let (orders, received) = mpsc::channel::<(Order, oneshot::Sender<Started>)>();
        let serve = move || {
            for (order, answer) in received {
                // Who asked may have gone; then the process goes, too.
                let _ = answer.send(start(&order));
            }
        };
        std::thread::Builder::new().name("functions-start".to_owned()).spawn(serve)?;
        Ok(Self(orders))
    }

    pub(crate) async fn start(&self, order: Order) -> Started {
        let (answer, started) = oneshot::channel();
        let ended = || io::Error::other("the thread that starts processes has ended");
        self.0.send((order, answer)).map_err(|_| ended())?;
        started.await.map_err(|_| ended())?
    }
}

fn start(order: &Order) -> Started {
    let (printed, printer) = io::pipe()?;
    let spec = serde_json::to_vec(&order.spec)?;
    let mut command = Command::new(&order.launcher);
    // What is in the function's environment is for the function: a program that may still do everything is not to look at it.
    command.arg(ARGUMENT).env_clear().process_group(0).stdin(Stdio::piped());
    command.stdout(printer.try_clone()?).stderr(printer);
    if !order.spec.confinement.has_root() {
        command.current_dir(&order.folder);
    }
    let mut child = command.spawn()?;
    let stdin = child.stdin.take();
    let process = match Killer::of(&child, order.spec.confinement) {
        Ok(killer) => Process { child, killer, is_over: false },
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
    };
    if let Some(mut stdin) = stdin {
        stdin.write_all(&spec)?;
    }
    Ok((process, printed.into()))
}

fn pidfd_of(child: &Child) -> io::Result<OwnedFd> {
    // SAFETY: it takes numbers; the child has not been waited for, so that its number is its own.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    let descriptor = i32::try_from(descriptor).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

impl Process {
    /// What ends it.
    pub(crate) fn killer(&self) -> io::Result<Killer> {
        let Killer { pidfd, process, ends_all } = &self.killer;
        Ok(Killer { pidfd: pidfd.try_clone()?, process: *process, ends_all: *ends_all })
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end. Needs a runtime of Tokio.
    pub(crate) async fn wait(mut self) -> io::Result<ExitStatus> {
        // SAFETY: the descriptor is owned, so that it stays open and the same until it is dropped.
        let pidfd = unsafe { AsyncFd::register(self.killer.pidfd.try_clone()?) }.map_err(io::Error::from)?;
        loop {
            let mut ready = pidfd.readable().await?;
            if let Some(status) = self.child.try_wait()? {
                self.is_over = true;
                return Ok(status);
            }
            ready.clear_ready();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_over {
            self.killer.kill();
            // It is ending; whether it is waited for here or at the end of the host is of no matter.
            let _ = self.child.try_wait();
        }
    }
}

impl Killer {
    fn of(child: &Child, confinement: Confinement) -> io::Result<Self> {
        let process = i32::try_from(child.id()).map_err(io::Error::other)?;
        Ok(Self { pidfd: pidfd_of(child)?, process, ends_all: confinement.has_root() })
    }

    fn signal(&self, signal: libc::c_int) -> bool {
        // SAFETY: it takes a descriptor, a number and no memory. That the process has ended already is no error.
        let sent = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.pidfd.as_raw_fd(), signal, std::ptr::null::<()>(), 0)
        };
        sent == 0
    }

    /// Ends the process with all that it has started.
    pub(crate) fn kill(&self) {
        if !self.ends_all {
            // The function may have stopped it.
            self.signal(libc::SIGCONT);
            self.signal(libc::SIGTERM);
        } else if self.signal(libc::SIGKILL) {
            // SAFETY: it takes numbers. The process has not been waited for, or there would have been nobody to signal: the group is its own.
            unsafe { libc::kill(-self.process, libc::SIGKILL) };
        }
    }
}

/// How a process has ended, as Lambda says it.
pub(crate) fn described(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "Runtime exited without providing a reason".to_owned(),
        (Some(code), _) => format!("Runtime exited with error: exit status {code}"),
        (None, Some(libc::SIGKILL)) => "Runtime exited with error: signal: killed".to_owned(),
        (None, Some(libc::SIGSEGV)) => "Runtime exited with error: signal: segmentation fault".to_owned(),
        (None, signal) => format!("Runtime exited with error: signal: {}", signal.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_described_as_lambda_does() {
        assert_eq!(described(ExitStatus::from_raw(0)), "Runtime exited without providing a reason");
        assert_eq!(described(ExitStatus::from_raw(1 << 8)), "Runtime exited with error: exit status 1");
        assert_eq!(described(ExitStatus::from_raw(9)), "Runtime exited with error: signal: killed");
    }
}
