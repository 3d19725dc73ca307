//! What Landlock keeps a process from: files that are not named, and TCP ports that are not named.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{RUNTIME, Spec, TASK};

/// From <linux/landlock.h>.
const CREATE: libc::c_long = 444;
const ADD_RULE: libc::c_long = 445;
const RESTRICT: libc::c_long = 446;
const VERSION: u32 = 1;
/// The first one that is asked when a file is made shorter.
const CUTS: i32 = 3;
/// The first one with rules for ports.
const PORTS: i32 = 4;
const PATH_BENEATH: u32 = 1;
const NET_PORT: u32 = 2;
const BIND_TCP: u64 = 1;
const CONNECT_TCP: u64 = 1 << 1;
const SCOPES: u64 = 0b11;
const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const TRUNCATE: u64 = 1 << 14;
/// What a right over a file, rather than over a folder, can be.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
const IOCTL_DEV: u64 = 1 << 15;

#[repr(C)]
struct Ruleset {
    files: u64,
    net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathRule {
    allowed: u64,
    parent: i32,
}

#[repr(C)]
struct PortRule {
    allowed: u64,
    port: u64,
}

/// A folder or a file, and what may be done below it.
pub(super) struct Place {
    path: PathBuf,
    writes: bool,
}

/// What a function may reach in a root of its own.
pub(super) fn inside(readable: &[PathBuf]) -> Vec<Place> {
    let system = ["/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/proc", TASK, RUNTIME].map(PathBuf::from);
    let reads = system.into_iter().chain(readable.iter().cloned()).map(|path| Place { path, writes: false });
    reads.chain(["/tmp", "/dev"].map(|path| Place { path: PathBuf::from(path), writes: true })).collect()
}

/// What a function may reach in the machine's root: the system's libraries, and what is its own.
pub(super) fn outside(spec: &Spec) -> Vec<Place> {
    let system = [
        "/usr",
        "/lib",
        "/lib64",
        "/bin",
        "/etc/ssl",
        "/etc/ld.so.cache",
        "/etc/localtime",
        "/dev/urandom",
        "/dev/zero",
    ];
    let own = [spec.task.clone(), spec.runtime.clone()];
    let reads = system.map(PathBuf::from).into_iter().chain(own).chain(spec.readable.iter().cloned());
    let reads = reads.map(|path| Place { path, writes: false });
    reads.chain([spec.base.clone(), PathBuf::from("/dev/null")].map(|path| Place { path, writes: true })).collect()
}

fn checked(result: libc::c_long) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { i32::try_from(result).map_err(io::Error::other) }
}

/// Which Landlock the kernel has; an error if it has none.
pub(super) fn version() -> io::Result<i32> {
    // SAFETY: with this flag the kernel takes no attributes and only says its version.
    checked(unsafe { libc::syscall(CREATE, std::ptr::null::<Ruleset>(), 0_usize, VERSION) })
}

/// Whether it has rules for ports.
pub(super) fn knows_ports() -> io::Result<bool> {
    Ok(version()? >= PORTS)
}

/// Whether it is asked when a file is made shorter by its path.
pub(super) fn knows_cuts() -> io::Result<bool> {
    Ok(version()? >= CUTS)
}

/// Keeps this process, and all that it starts, from every file and TCP port that is not named, and from listening; for ever.
pub(super) fn restrict(places: &[Place], ports: &[u16]) -> io::Result<()> {
    let version = version()?;
    let files: u64 = match version {
        1 => (1 << 13) - 1,
        2 => (1 << 14) - 1,
        3 | 4 => (1 << 15) - 1,
        _ => (1 << 16) - 1,
    };
    // Nobody is allowed to bind: a function has no clients, but could take the port of somebody who has. Who listens without that is refused by the filter of system calls.
    let net = if version >= PORTS { CONNECT_TCP | BIND_TCP } else { 0 };
    let scoped = if version >= 6 { SCOPES } else { 0 };
    let size = match version {
        ..=3 => 8,
        4 | 5 => 16,
        _ => size_of::<Ruleset>(),
    };
    let ruleset = Ruleset { files, net, scoped };
    // SAFETY: the kernel reads `size` bytes of the attributes, which are as long or longer.
    let ruleset = checked(unsafe { libc::syscall(CREATE, &raw const ruleset, size, 0_u32) })?;
    // SAFETY: the kernel has just made it, and nobody else has it.
    let ruleset = unsafe { OwnedFd::from_raw_fd(ruleset) };
    for place in places {
        allow(&ruleset, place, files)?;
    }
    for port in ports.iter().filter(|_| net != 0) {
        let rule = PortRule { allowed: CONNECT_TCP, port: u64::from(*port) };
        // SAFETY: a rule of this kind has this form, and it lives until the call is over.
        checked(unsafe { libc::syscall(ADD_RULE, ruleset.as_raw_fd(), NET_PORT, &raw const rule, 0_u32) })?;
    }
    // SAFETY: it takes a descriptor and no memory.
    checked(unsafe { libc::syscall(RESTRICT, ruleset.as_raw_fd(), 0_u32) }).map(drop)
}

fn allow(ruleset: &OwnedFd, place: &Place, handled: u64) -> io::Result<()> {
    let Some((parent, is_folder)) = opened(&place.path)? else { return Ok(()) };
    let rights = if place.writes { handled } else { handled & (EXECUTE | READ_FILE | READ_DIR) };
    let allowed = if is_folder { rights } else { rights & OF_FILES };
    let rule = PathRule { allowed, parent: parent.as_raw_fd() };
    // SAFETY: a rule of this kind has this form, and it lives until the call is over, as its descriptor does.
    checked(unsafe { libc::syscall(ADD_RULE, ruleset.as_raw_fd(), PATH_BENEATH, &raw const rule, 0_u32) }).map(drop)
}

/// A path as a rule takes it, and whether it is a folder; nothing if it is not there.
fn opened(path: &Path) -> io::Result<Option<(std::fs::File, bool)>> {
    match OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path) {
        Ok(file) => {
            let is_folder = file.metadata()?.is_dir();
            Ok(Some((file, is_folder)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
