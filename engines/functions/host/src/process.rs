//! Processes: one thread starts them all, since a process ends with the thread that has started it; each has a descriptor by which it is ended and waited for.

use std::collections::BTreeMap;
use std::io;
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
    pub(crate) environment: BTreeMap<String, String>,
    /// Where it is started, if it has no root of its own.
    pub(crate) folder: PathBuf,
}

/// A process that was started, and what it prints.
pub(crate) struct Process {
    child: Child,
    pidfd: OwnedFd,
}

/// Ends a process.
#[derive(Debug)]
pub(crate) struct Killer {
    pidfd: OwnedFd,
    group: i32,
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
                if let Err(Ok((mut process, _))) = answer.send(start(&order)) {
                    let _ = process.child.kill();
                    let _ = process.child.wait();
                }
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
    let spec = serde_json::to_string(&order.spec)?;
    let mut command = Command::new(&order.launcher);
    command.arg(ARGUMENT).arg(spec).env_clear().envs(&order.environment).process_group(0).stdin(Stdio::null());
    command.stdout(printer.try_clone()?).stderr(printer);
    if order.spec.confinement != Confinement::Full {
        command.current_dir(&order.folder);
    }
    let child = command.spawn()?;
    let pidfd = match pidfd_of(&child) {
        Ok(pidfd) => pidfd,
        Err(error) => {
            let mut child = child;
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
    };
    Ok((Process { child, pidfd }, printed.into()))
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
        Ok(Killer { pidfd: self.pidfd.try_clone()?, group: i32::try_from(self.child.id()).map_err(io::Error::other)? })
    }

    /// Its number, which is that of its group, too.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end. Needs a runtime of Tokio.
    pub(crate) async fn wait(mut self) -> io::Result<ExitStatus> {
        // SAFETY: the descriptor is owned, so that it stays open and the same until it is dropped.
        let pidfd = unsafe { AsyncFd::register(self.pidfd.try_clone()?) }.map_err(io::Error::from)?;
        loop {
            let mut ready = pidfd.readable().await?;
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ready.clear_ready();
        }
    }
}

impl Killer {
    /// Ends the process, with its namespace if it has one, and its group.
    pub(crate) fn kill(&self) {
        // SAFETY: it takes a descriptor, a number and no memory. That the process has ended already is no error.
        let sent = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.pidfd.as_raw_fd(), libc::SIGKILL, std::ptr::null::<()>(), 0)
        };
        if sent == 0 {
            // SAFETY: it takes numbers. The process has not been waited for, or there would have been nobody to signal: the group is its own.
            unsafe { libc::kill(-self.group, libc::SIGKILL) };
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
