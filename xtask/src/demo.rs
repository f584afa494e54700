//! `cargo xtask demo`: a real MPI program on virtual nodes of this machine.

use crate::layout;
use crate::programs::{self, Flavour};
use crate::step::{self, Result, show};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the product and runs two programs of MPICH 5.
///
/// # Errors
/// A step fails.
pub fn run() -> Result {
    release()?;
    for (name, nodes, flag) in [("hello", "2", "--label"), ("allreduce", "4", "--verbose")] {
        let program = programs::build(Flavour::Mpich5, name)?;
        let mut wireup = Command::new(near(&layout::wireup()));
        wireup.args(["run", "-n", "8", "--virtual-nodes", nodes, flag]).arg(near(&program)).current_dir(layout::root());
        step::step(show(&wireup), || step::run(&mut wireup))?;
    }
    eprintln!("\nYour own: {} run -n 4 ./program", near(&layout::wireup()).display());
    Ok(())
}

/// A path as one would type it in the workspace's root.
fn near(path: &Path) -> PathBuf {
    path.strip_prefix(layout::root()).unwrap_or(path).to_path_buf()
}

/// Builds the product as users have it.
///
/// # Errors
/// It does not compile.
pub fn release() -> Result {
    step::step("cargo build --release", || step::run(cargo().args(["build", "--release", "--quiet"])))
}

/// The cargo that started us.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(layout::root());
    cargo
}
