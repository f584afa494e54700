//! How the program is linked: with a build id, and with gcc's unwinder inside, so that it needs only glibc.
//!
//! Rust's standard library depends on `libgcc_s.so`. If the same symbols are linked in statically (with the linker's
//! `--as-needed`, which rustc sets), the shared library is not loaded: every start is a tenth of a millisecond faster,
//! and the program also runs where that library is missing. If the compiler has no such archive, the shared library is
//! used.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Distinguishes builds; not every linker writes it by default.
    println!("cargo::rustc-link-arg-bins=-Wl,--build-id=sha1");
    let gnu = std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    let native = std::env::var("TARGET").ok() == std::env::var("HOST").ok();
    // A linker other than this machine's compiler brings its own unwinder.
    let own_linker = std::env::var_os("RUSTC_LINKER").is_some();
    if !gnu || !native || own_linker {
        return;
    }
    let Ok(found) = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output() else {
        return;
    };
    let archive = String::from_utf8_lossy(&found.stdout);
    let archive = Path::new(archive.trim());
    if let Some(directory) = archive.parent().filter(|_| archive.is_absolute() && archive.exists()) {
        println!("cargo::rustc-link-search=native={}", directory.display());
        println!("cargo::rustc-link-lib=static:+whole-archive=gcc_eh");
    }
}
