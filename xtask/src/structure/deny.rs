//! `cargo deny`, if it is installed: licences, sources and bans as in `deny.toml`, and security advisories.

use crate::demo::cargo;
use crate::step::{self, Result};

/// Prints what could not be checked.
///
/// # Errors
/// It finds a violation.
pub fn run() -> Result {
    if cargo().args(["deny", "--version"]).output().is_ok_and(|output| output.status.success()) {
        step::run_quietly(cargo().args(["deny", "--log-level", "error", "check", "bans", "licenses", "sources"]))?;
        println!("    cargo deny: bans, licences, sources");
        return advisories();
    }
    println!(
        "    cargo deny: not installed (cargo install cargo-deny), so bans, sources and advisories were NOT checked"
    );
    Ok(())
}

/// The database of advisories comes from the network.
fn advisories() -> Result {
    if let Err(why) = step::run_quietly(cargo().args(["deny", "fetch", "db"])) {
        println!("    cargo deny: the database of advisories could not be fetched, they were NOT checked ({why})");
        return Ok(());
    }
    step::run_quietly(cargo().args(["deny", "--log-level", "error", "check", "advisories"]))?;
    println!("    cargo deny: advisories");
    Ok(())
}
