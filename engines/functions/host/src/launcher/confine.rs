//! Namespaces, a root, a user and limits, of one's own.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::seccomp::Root;
use super::{Confinement, RUNTIME, Spec, TASK, keeper, landlock, seccomp};

/// What functions see of the machine, if it is there.
const SYSTEM: [&str; 17] = [
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/sbin",
    "/etc/alternatives",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/localtime",
    "/etc/ld.so.cache",
];
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// What a call of the kernel has answered, or its error.
pub(super) fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Says what was being done.
fn doing<T>(result: io::Result<T>, what: &str) -> io::Result<T> {
    result.map_err(|error| io::Error::new(error.kind(), format!("{what}: {error}")))
}

fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

/// This process gets a signal when its parent ends.
pub(super) fn die_with_parent(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: it takes numbers only.
    checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) }).map(drop)
}

/// Whether its parent is still there: the end may have come before the signal was asked for.
pub(super) fn has_parent(parent: u32) -> io::Result<()> {
    // SAFETY: it takes nothing and cannot fail.
    let own = unsafe { libc::getppid() };
    if u32::try_from(own).is_ok_and(|own| own == parent) { Ok(()) } else { Err(io::Error::other("the host has ended")) }
}

/// Nothing that the host had open without saying that it is its own goes to a function.
pub(super) fn close_descriptors() -> io::Result<()> {
    // SAFETY: it takes numbers; nothing but the first three is open of this process' own.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    let error = io::Error::last_os_error();
    // Before Linux 5.9 there is nothing of the kind; nor are there the rules that `required` asks for.
    if closed == 0 || error.raw_os_error() == Some(libc::ENOSYS) { Ok(()) } else { Err(error) }
}

/// No program that it runs has more rights than itself.
pub(super) fn no_new_privileges() -> io::Result<()> {
    // SAFETY: it takes numbers only.
    checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(drop)
}

fn limit(resource: libc::__rlimit_resource_t, most: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the kernel reads the limits, which live until the call is over.
    checked(unsafe { libc::setrlimit(resource, &raw const limit) }).map(drop)
}

/// What Lambda allows of descriptors, and no dumps of memory.
pub(super) fn limit_resources() -> io::Result<()> {
    limit(libc::RLIMIT_CORE, 0)?;
    limit(libc::RLIMIT_NOFILE, 1024)
}

/// Makes namespaces, runs the function in them, waits for its end, and ends as it did.
pub(super) fn in_namespaces(spec: &Spec) -> io::Result<ExitCode> {
    // SAFETY: these take nothing and cannot fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let is_root = uid == 0;
    let mut spaces = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
    if !is_root {
        spaces |= libc::CLONE_NEWUSER;
    }
    // SAFETY: it takes a number; this process has one thread.
    doing(checked(unsafe { libc::unshare(spaces) }), "making namespaces")?;
    if !is_root {
        // Only who may not change groups may say who he is.
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    }
    let (tells, told) = UnixStream::pair()?;
    let init = keeper::fork()?;
    if init == 0 {
        drop(told);
        return keeper::be_init(spec, tells);
    }
    drop(tells);
    keeper::wait_for_init(init, told)
}

/// Gives up all that a function is not to have, for ever.
pub(super) fn give_up_rights(spec: &Spec, confinement: Confinement) -> io::Result<()> {
    // SAFETY: it takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if is_root && confinement.has_root() {
        become_user(spec.uid)?;
        // Lambda's limit; the user is nobody else's, so that it counts nobody else's processes.
        limit(libc::RLIMIT_NPROC, 1024)?;
    }
    drop_capabilities()?;
    no_new_privileges()?;
    match confinement {
        Confinement::Full => {
            if !landlock::knows_ports()? {
                return Err(io::Error::other("the kernel's Landlock has no rules for ports (Linux 6.7 has)"));
            }
            landlock::restrict(&landlock::inside(&spec.readable), &spec.ports)?;
            doing(seccomp::restrict(Root::Own), "filtering system calls")
        }
        Confinement::Namespaces => {
            if landlock::version().is_ok() {
                landlock::restrict(&landlock::inside(&spec.readable), &spec.ports)?;
            }
            // As far as it goes: the host has found out that something is missing, and decided.
            seccomp::restrict(Root::Own).or(Ok(()))
        }
        Confinement::Landlock => {
            landlock::restrict(&landlock::outside(spec), &spec.ports)?;
            let root = Root::Shared { cuts: landlock::knows_cuts()? };
            doing(seccomp::restrict(root), "filtering system calls")
        }
        Confinement::None => Ok(()),
    }
}

/// Gives up what the first user may beside what everybody may; also what programs would get.
fn drop_capabilities() -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        process: i32,
    }
    /// From <linux/capability.h>.
    const VERSION: u32 = 0x2008_0522;
    for capability in 0..64 {
        // Of one that the kernel does not know, or who may not, has none to give up.
        // SAFETY: it takes numbers only.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
    let (header, nothing) = (Header { version: VERSION, process: 0 }, [0_u32; 6]);
    // SAFETY: the kernel reads a header, and two times three numbers, which live until the call is over.
    match unsafe { libc::syscall(libc::SYS_capset, &raw const header, nothing.as_ptr()) } {
        0 => Ok(()),
        _ => doing(Err(io::Error::last_os_error()), "giving up capabilities"),
    }
}

fn become_user(uid: u32) -> io::Result<()> {
    // SAFETY: these take numbers, and an empty list.
    doing(checked(unsafe { libc::setgroups(0, std::ptr::null()) }), "leaving all groups")?;
    // SAFETY: it takes numbers.
    doing(checked(unsafe { libc::setresgid(uid, uid, uid) }), "changing the group")?;
    // SAFETY: it takes numbers.
    doing(checked(unsafe { libc::setresuid(uid, uid, uid) }), "changing the user").map(drop)
}

fn mount(source: &Path, target: &Path, kind: &str, flags: libc::c_ulong, options: &str) -> io::Result<()> {
    let (from, to) = (text(source)?, text(target)?);
    let (kind, options) = (CString::new(kind)?, CString::new(options)?);
    // SAFETY: all strings end with a NUL and live until the call is over.
    let mounted = unsafe { libc::mount(from.as_ptr(), to.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
    doing(checked(mounted), &format!("mounting {} on {}", source.display(), target.display())).map(drop)
}

/// Shows a file or a folder of the machine below `base`, where nothing of it can be changed. A link is a link there, too.
fn show(source: &Path, base: &Path, at: &Path) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(source) else { return Ok(()) };
    let target = base.join(at.strip_prefix("/").unwrap_or(at));
    if fs::symlink_metadata(&target).is_ok() {
        // Something that was shown before has it.
        return Ok(());
    }
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    if metadata.is_symlink() && source == at && fs::read_link(source)?.is_relative() {
        return std::os::unix::fs::symlink(fs::read_link(source)?, target);
    }
    if fs::metadata(source).is_ok_and(|metadata| metadata.is_dir()) {
        fs::create_dir_all(&target)?;
    } else {
        fs::write(&target, "")?;
    }
    bind(source, &target, libc::MS_RDONLY)
}

fn bind(source: &Path, target: &Path, more: libc::c_ulong) -> io::Result<()> {
    let nothing = Path::new("none");
    mount(source, target, "none", libc::MS_BIND | libc::MS_REC, "")?;
    let flags = libc::MS_BIND | libc::MS_REMOUNT | libc::MS_NOSUID | more;
    // What a user that is not root has shown keeps what it is marked with.
    mount(nothing, target, "none", flags, "")
        .or_else(|_| mount(nothing, target, "none", flags | libc::MS_NODEV, ""))
        .or_else(|_| mount(nothing, target, "none", flags | libc::MS_NODEV | libc::MS_NOATIME, ""))
        .or_else(|_| mount(nothing, target, "none", flags | libc::MS_NODEV | libc::MS_RELATIME, ""))
}

/// Builds a root of what a function may see, and goes there for ever.
pub(super) fn build_root(spec: &Spec) -> io::Result<()> {
    let nothing = Path::new("none");
    mount(nothing, Path::new("/"), "none", libc::MS_REC | libc::MS_PRIVATE, "")?;
    let base = &spec.base;
    let safe = libc::MS_NOSUID | libc::MS_NODEV;
    mount(Path::new("tmpfs"), base, "tmpfs", safe, "size=4m,mode=0755")?;
    for path in SYSTEM.map(PathBuf::from).iter().chain(&spec.readable) {
        show(path, base, path)?;
    }
    show(&spec.task, base, Path::new(TASK))?;
    show(&spec.runtime, base, Path::new(RUNTIME))?;
    for device in DEVICES {
        let source = Path::new("/dev").join(device);
        let target = base.join("dev").join(device);
        fs::create_dir_all(base.join("dev"))?;
        fs::write(&target, "")?;
        mount(&source, &target, "none", libc::MS_BIND, "")?;
    }
    let inside = |name: &str| -> io::Result<PathBuf> {
        let path = base.join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    };
    mount(Path::new("proc"), &inside("proc")?, "proc", safe | libc::MS_NOEXEC, "")?;
    let size = format!("size={}m,mode=1777", spec.storage);
    mount(Path::new("tmpfs"), &inside("tmp")?, "tmpfs", safe, &size)?;
    std::env::set_current_dir(base)?;
    let here = CString::new(".")?;
    // SAFETY: both strings end with a NUL and live until the call is over.
    let moved = unsafe { libc::syscall(libc::SYS_pivot_root, here.as_ptr(), here.as_ptr()) };
    doing(if moved < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }, "changing the root")?;
    // SAFETY: the string ends with a NUL. What was the root lies over the new one, and goes.
    doing(checked(unsafe { libc::umount2(here.as_ptr(), libc::MNT_DETACH) }), "leaving the machine's root")?;
    std::env::set_current_dir("/")?;
    mount(nothing, Path::new("/"), "none", libc::MS_REMOUNT | libc::MS_BIND | safe | libc::MS_RDONLY, "")?;
    std::env::set_current_dir(TASK)
}
