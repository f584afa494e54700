//! Checks that the program compiles for musl, as `cargo xtask release` builds it, if rustup has that target.

use crate::build::cargo;
use crate::step::{self, Result};
use std::path::Path;
use std::process::Command;

/// Prints a note if the check is not possible.
///
/// # Errors
/// The program does not compile.
pub fn check() -> Result {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    if !has_target(&target) {
        println!("    musl: no such target (rustup target add {target}), so the static build was NOT checked");
        return Ok(());
    }
    // Nothing is linked, so this machine's C compiler is sufficient for the parts in C.
    let compiler = format!("CC_{}", target.replace('-', "_"));
    step::run_quietly(
        cargo().args(["check", "--quiet", "--package", "wireup", "--target", &target]).env(compiler, "cc"),
    )?;
    println!("    musl: the static build compiles");
    Ok(())
}

fn has_target(target: &str) -> bool {
    let told = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    told.is_ok_and(|told| told.status.success() && Path::new(String::from_utf8_lossy(&told.stdout).trim()).is_dir())
}
