//! What the program calls of newer versions of the GNU C library, in versions that older ones have, too.
//!
//! `hypot` and `hypotf` have a version of 2.35, which does not set `errno`; nobody here reads that. The linker gives each call of theirs to
//! `__wrap_..` (`build.rs`), which goes on to the first version that there was on this processor.

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".symver first_hypot, hypot@GLIBC_2.2.5",
    ".symver first_hypotf, hypotf@GLIBC_2.2.5",
    ".globl __wrap_hypot",
    ".type __wrap_hypot, @function",
    "__wrap_hypot: jmp first_hypot@PLT",
    ".globl __wrap_hypotf",
    ".type __wrap_hypotf, @function",
    "__wrap_hypotf: jmp first_hypotf@PLT",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".symver first_hypot, hypot@GLIBC_2.17",
    ".symver first_hypotf, hypotf@GLIBC_2.17",
    ".globl __wrap_hypot",
    ".type __wrap_hypot, %function",
    "__wrap_hypot: b first_hypot",
    ".globl __wrap_hypotf",
    ".type __wrap_hypotf, %function",
    "__wrap_hypotf: b first_hypotf",
);
