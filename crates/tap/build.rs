//! Builds the library that a rank preloads, which the program carries as bytes: without a standard library, without
//! dependencies.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    for file in ["build.rs", "shim/shim.rs", "shim/caller.rs", "shim/lookup.rs", "src/page.rs"] {
        println!("cargo::rerun-if-changed={file}");
    }
    let library = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo")).join("libtap.so");
    let target = env::var("TARGET").expect("set by cargo");
    let mut rustc = Command::new(env::var_os("RUSTC").expect("set by cargo"));
    rustc.args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "wireup_tap_shim", "--target", &target]);
    rustc.args([
        "-C", "panic=abort", "-C", "opt-level=s", "-C", "lto=fat", "-C", "codegen-units=1", "-C", "strip=symbols",
    ]);
    // What it calls is bound to the rank's own C library, whichever that is.
    rustc.args(["-C", "link-arg=-nostdlib", "-C", "link-arg=-nostartfiles", "-C", "relocation-model=pic"]);
    if target.ends_with("musl") {
        rustc.args(["-C", "target-feature=-crt-static"]);
    }
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={}", linker.to_string_lossy()));
    }
    let status = rustc.arg("shim/shim.rs").arg("-o").arg(&library).status();
    assert!(status.is_ok_and(|status| status.success()), "rustc cannot build shim/shim.rs for {target}");
}
