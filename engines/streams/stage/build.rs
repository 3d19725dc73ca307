//! Links the program so that it starts where functions of AWS Lambda run: with version 2.34 of the GNU C library.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |what: &str, of: &[&str]| {
        env::var(format!("CARGO_CFG_TARGET_{what}")).is_ok_and(|is| of.contains(&is.as_str()))
    };
    if is("OS", &["linux"]) && is("ENV", &["gnu"]) && is("ARCH", &["x86_64", "aarch64"]) {
        // `src/libc.rs` says what they become.
        for function in ["hypot", "hypotf"] {
            println!("cargo:rustc-link-arg-bins=-Wl,--wrap={function}");
        }
    }
}
