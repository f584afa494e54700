//! Builds the programs that tests and the demo run, and reads the build ids by which a test checks which build it runs.

use crate::step::{self, Result, show};
use crate::{layout, step::step};
use object::Object;
use std::env;
use std::path::Path;
use std::process::Command;

/// The environment variable with the build id of the program under test.
pub const BUILD_ID: &str = "WIREUP_BUILD_ID";

/// Builds the product as users have it, and the testbed.
///
/// # Errors
/// The code does not compile.
pub fn programs() -> Result {
    let mut build = cargo();
    build.args(["build", "--release", "--quiet", "-p", "wireup", "-p", "wireup-testbed"]);
    step(show(&build), || step::run(&mut build))
}

/// The build id of a program, in hexadecimal digits.
///
/// # Errors
/// The program cannot be read, or has no build id.
pub fn build_id(program: &Path) -> Result<String> {
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", program.display());
    let bytes = std::fs::read(program).map_err(|error| failed(&error))?;
    let file = object::File::parse(&*bytes).map_err(|error| failed(&error))?;
    let id = file.build_id().map_err(|error| failed(&error))?.ok_or_else(|| failed(&"it has no build id"))?;
    Ok(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The `cargo` that has started this program.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(layout::root());
    cargo
}

/// A subcommand of cargo that the set-up has installed, or another one that cargo finds.
pub fn cargo_tool(name: &str) -> Command {
    let folders = [layout::peer("cargo").join("bin")].into_iter();
    let path = env::join_paths(folders.chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())));
    let mut tool = cargo();
    tool.arg(name).envs(path.map(|path| ("PATH", path)));
    tool
}

/// Whether cargo has this subcommand.
pub fn has_tool(name: &str) -> bool {
    cargo_tool(name).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The output of `rustc --print WHAT` of the rustc that builds this program.
///
/// # Errors
/// rustc cannot be run.
pub fn rustc(what: &str) -> Result<String> {
    step::output(compiler().args(["--print", what]))
}

/// The rustc that builds this program.
pub(crate) fn compiler() -> Command {
    Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}
