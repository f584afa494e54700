//! `cargo xtask demo`: a real MPI program on virtual nodes of this machine.

use crate::layout;
use crate::programs::{self, Flavour};
use crate::step::{self, Result, show};
use std::env;
use std::process::Command;

/// Builds the product and runs `hello` and `allreduce` of MPICH 5.
///
/// # Errors
/// A step fails.
pub fn run() -> Result {
    release()?;
    for (name, ranks, nodes) in [("hello", "8", "2"), ("allreduce", "8", "4")] {
        let program = programs::build(Flavour::Mpich5, name)?;
        let mut wireup = Command::new(layout::wireup());
        wireup.args(["run", "-n", ranks, "--virtual-nodes", nodes, "--label"]).arg(program);
        step::step(show(&wireup), || step::run(&mut wireup))?;
    }
    eprintln!("\nYour own: {} run -n 4 ./program", layout::wireup().display());
    Ok(())
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
