//! Builds the library that ranks preload and whose bytes the tap's program contains; it has no standard library and no
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
    rustc.args("-C panic=abort -C opt-level=s -C lto=fat -C codegen-units=1 -C strip=symbols".split(' '));
    // The functions that the library calls are bound to the rank's own C library, whichever it is.
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
