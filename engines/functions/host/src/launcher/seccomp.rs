//! What Landlock is not asked about: ways to a TCP port that are no `connect` of a TCP socket, and ways around filters of system calls.

use std::io;

/// What the kernel says of a system call: its number, the machine it is for, and its arguments, each of eight bytes.
const NUMBER: u32 = 0;
const MACHINE: u32 = 4;
const ARGUMENTS: u32 = 16;

#[cfg(target_arch = "x86_64")]
const OWN_MACHINE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OWN_MACHINE: u32 = 0xc000_00b7;
/// System calls of x32 have this bit, and other numbers.
#[cfg(target_arch = "x86_64")]
const OTHER_NUMBERS: u32 = 0x4000_0000;
#[cfg(target_arch = "aarch64")]
const OTHER_NUMBERS: u32 = u32::MAX;

const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const IF_ANY_BIT: u16 = 0x45;
const MASK: u16 = 0x54;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const END_PROCESS: u32 = 0x8000_0000;
const FAIL: u32 = 0x0005_0000;

/// A program for the kernel.
#[derive(Default)]
struct Program(Vec<libc::sock_filter>);

impl Program {
    fn add(&mut self, code: u16, k: u32, then: u8, otherwise: u8) {
        self.0.push(libc::sock_filter { code, jt: then, jf: otherwise, k });
    }

    /// Takes the low half of an argument.
    fn argument(&mut self, index: u32) {
        self.add(LOAD, ARGUMENTS + 8 * index, 0, 0);
    }

    fn fail(&mut self, error: libc::c_int) {
        self.add(RETURN, FAIL | error.unsigned_abs(), 0, 0);
    }

    /// What holds for one system call; whatever passes is allowed.
    fn of(&mut self, call: libc::c_long, rules: impl FnOnce(&mut Self)) {
        let mut body = Self::default();
        rules(&mut body);
        body.add(RETURN, ALLOW, 0, 0);
        let length = u8::try_from(body.0.len()).expect("rules of one call are a few lines");
        self.add(IF_EQUAL, number(call), 0, length);
        self.0.append(&mut body.0);
    }

    /// Goes on if what was taken is one of these, else fails.
    fn one_of(&mut self, values: &[libc::c_int], error: libc::c_int) {
        let count = u8::try_from(values.len()).expect("a few");
        for (at, value) in (0_u8..).zip(values) {
            self.add(IF_EQUAL, value.unsigned_abs(), count - at, 0);
        }
        self.fail(error);
    }

    /// Fails if what was taken has any of these bits.
    fn none_of(&mut self, bits: libc::c_int, error: libc::c_int) {
        self.add(IF_ANY_BIT, bits.unsigned_abs(), 0, 1);
        self.fail(error);
    }
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).expect("numbers of system calls are small")
}

/// The rules.
///
/// - Sockets are local ones, TCP, UDP, ICMP and netlink: others (MPTCP, SMC and SCTP, of which Landlock's rules for ports know nothing; the hypervisor's) are not.
/// - Nobody connects by sending (TCP Fast Open), of which Landlock is not asked.
/// - What is done by `io_uring` is not seen here, so that there is none.
/// - Nobody listens. Landlock is asked when a socket is bound only, and the kernel binds one that listens without that to any free port of all addresses.
/// - Nobody becomes the first user of namespaces of his own.
fn program(root: Root) -> Program {
    let mut program = Program::default();
    program.add(LOAD, MACHINE, 0, 0);
    program.add(IF_EQUAL, OWN_MACHINE, 1, 0);
    program.add(RETURN, END_PROCESS, 0, 0);
    program.add(LOAD, NUMBER, 0, 0);
    program.add(IF_AT_LEAST, OTHER_NUMBERS, 0, 1);
    program.add(RETURN, END_PROCESS, 0, 0);
    program.of(libc::SYS_socket, |rules| {
        rules.argument(0);
        rules.one_of(root.families(), libc::EAFNOSUPPORT);
        // Of the first and the last, protocols are of no matter.
        rules.add(IF_EQUAL, libc::AF_INET.unsigned_abs(), 2, 0);
        rules.add(IF_EQUAL, libc::AF_INET6.unsigned_abs(), 1, 0);
        rules.add(RETURN, ALLOW, 0, 0);
        rules.argument(1);
        rules.add(MASK, 0xf, 0, 0);
        rules.one_of(&[libc::SOCK_STREAM, libc::SOCK_DGRAM], libc::ESOCKTNOSUPPORT);
        rules.argument(2);
        let protocols = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6];
        rules.one_of(&protocols, libc::EPROTONOSUPPORT);
    });
    for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        program.of(call, |rules| {
            rules.argument(flags);
            rules.none_of(libc::MSG_FASTOPEN, libc::EOPNOTSUPP);
        });
    }
    for call in [libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4] {
        program.of(call, |rules| rules.fail(libc::EPERM));
    }
    for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register] {
        program.of(call, |rules| rules.fail(libc::ENOSYS));
    }
    for call in [libc::SYS_unshare, libc::SYS_clone] {
        program.of(call, |rules| {
            rules.argument(0);
            rules.none_of(libc::CLONE_NEWUSER, libc::EPERM);
        });
    }
    // Its flags are in memory, which is not seen here; who gets this answer uses the one before.
    program.of(libc::SYS_clone3, |rules| rules.fail(libc::ENOSYS));
    if let Root::Shared { cuts } = root {
        refuse_what_is_the_machines(&mut program, cuts);
    }
    program.add(RETURN, ALLOW, 0, 0);
    program
}

/// What a function with the machine's root, and its user, does to what is not its own without a right of Landlock's being asked for.
fn refuse_what_is_the_machines(program: &mut Program, cuts: bool) {
    let marks = FOR_ALL_MACHINES.iter().chain(OLD);
    for call in marks.chain([libc::SYS_truncate].iter().filter(|_| !cuts)) {
        program.of(*call, |rules| rules.fail(libc::EPERM));
    }
    // Limits of others.
    program.of(libc::SYS_prlimit64, |rules| {
        rules.argument(0);
        rules.one_of(&[0], libc::EPERM);
    });
}

/// Marks and owners of files; memory and messages that processes share by a key; priorities of others.
const FOR_ALL_MACHINES: [libc::c_long; 34] = [
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    REMOVEXATTRAT,
    FILE_SETATTR,
    libc::SYS_utimensat,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
];

/// The same by system calls that newer machines do not have.
#[cfg(target_arch = "x86_64")]
const OLD: &[libc::c_long] =
    &[libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat];
#[cfg(target_arch = "aarch64")]
const OLD: &[libc::c_long] = &[];

/// From <asm-generic/unistd.h>: the same numbers on all machines.
const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;
const FILE_SETATTR: libc::c_long = 469;

/// Which files a process has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Root {
    /// What was built for it.
    Own,
    /// The machine's.
    Shared {
        /// Whether Landlock is asked when a file is made shorter by its path.
        cuts: bool,
    },
}

impl Root {
    /// Sockets that there are. Services of the machine listen at local ones, and obey its first user; a pair of them is made by another call.
    const fn families(self) -> &'static [libc::c_int] {
        match self {
            Self::Own => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
            Self::Shared { .. } => &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        }
    }
}

/// Keeps this process, and all that it starts, to the rules; for ever. It has given up to get more rights before.
pub(super) fn restrict(root: Root) -> io::Result<()> {
    let mut program = program(root).0;
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: the kernel reads so many instructions, which live until the call is over.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
