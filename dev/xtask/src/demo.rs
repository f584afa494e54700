//! `cargo xtask demo`: a real MPI program on virtual nodes of this machine, and by ssh on hosts that are network
//! namespaces.

use crate::programs::{Flavour, build as build_program};
use crate::step::{self, Result, show};
use crate::{build, debian, layout};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the product and runs two programs that use MPICH 5, the second one by ssh on four hosts.
///
/// # Errors
/// A step fails.
pub fn run() -> Result {
    build::programs()?;
    programs()?;
    eprintln!("\nYour own: {} run -n 4 ./program", near(&layout::wireup()).display());
    Ok(())
}

/// Runs the two programs with the last build of the product.
///
/// # Errors
/// One of them fails.
pub fn programs() -> Result {
    // The demo must neither use a session that the user has started nor be disturbed by the remains of one.
    let no_session = ("WIREUP_RUNTIME_DIR", layout::target().join("no-session"));
    let hello = build_program(Flavour::Mpich5, "hello")?;
    let mut local = Command::new(near(&layout::wireup()));
    local.args(["run", "-n", "8", "--virtual-nodes", "2", "--label"]).arg(near(&hello)).current_dir(layout::root());
    local.env(no_session.0, &no_session.1);
    step::step(show(&local), || step::run(&mut local))?;
    let allreduce = build_program(Flavour::Mpich5, "allreduce")?;
    let mut remote = Command::new(near(&layout::testbed()));
    // Hosts have their own /tmp, so a working tree inside /tmp must be shared with them.
    remote.args(["run", "-n", "4", "--share"]).arg(layout::root()).arg("--").arg(near(&layout::wireup()));
    remote.args(["run", "--hosts", "n[0-3]", "-n", "8", "--verbose"]).arg(near(&allreduce)).current_dir(layout::root());
    remote.env(no_session.0, &no_session.1);
    if debian::is_root() {
        step::step(show(&remote), || step::run(&mut remote))?;
    } else {
        eprintln!("==> SKIPPED, only root may make network namespaces: {}", show(&remote));
    }
    Ok(())
}

/// A path as a user would type it in the workspace's root folder.
fn near(path: &Path) -> PathBuf {
    path.strip_prefix(layout::root()).unwrap_or(path).to_path_buf()
}
