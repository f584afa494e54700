//! `cargo xtask test`: format, structure, lints, all tests.

use crate::demo::{cargo, release};
use crate::layout;
use crate::step::{self, Result};
use crate::structure;

/// The last part is cargo's own report on the tests. The end-to-end tests run the release binary.
///
/// # Errors
/// A check or a test fails.
pub fn run() -> Result {
    if has("fmt") {
        step::step("cargo fmt --check", || step::run(cargo().args(["fmt", "--all", "--check"])))?;
    }
    step::step("cargo xtask check", structure::run)?;
    if has("clippy") {
        let args = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
        step::step("cargo clippy", || step::run(cargo().args(args).env("CARGO_INCREMENTAL", "0")))?;
    }
    release()?;
    let mut tests = cargo();
    tests.args(["test", "--workspace", "--no-fail-fast"]);
    // What only a second build would use takes more room than the tests themselves.
    tests.env("CARGO_INCREMENTAL", "0");
    tests.env("WIREUP_REQUIRE_PEERS", "1").env("WIREUP_BIN", layout::wireup());
    step::step("cargo test --workspace", || step::run(&mut tests))
}

/// Whether this toolchain has a component.
fn has(component: &str) -> bool {
    let found = cargo().args([component, "--version"]).output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("==> cargo {component}: not in this toolchain, left out");
    }
    found
}
