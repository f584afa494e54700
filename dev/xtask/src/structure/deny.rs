//! `cargo deny`: licences, sources and bans as in `deny.toml`, and the security advisories of dependencies.
//!
//! Licences, sources and bans follow from the code, so `cargo xtask check` looks at them wherever the tool is
//! installed. Advisories come from a database that grows every week and that only GitHub has. `cargo xtask test` must
//! pass without GitHub, so it does not look at them; `cargo xtask release` does, and fails where the tool or the
//! database is missing, or where the database is old. Its age is that of its newest commit: `cargo deny` itself looks
//! at the time of the last attempt to fetch it, and only when it may not fetch.

use crate::build::cargo;
use crate::step::{self, Result};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The oldest database of advisories by which a release is judged, in days. Chosen: new advisories come every week.
const AGE_DAYS_MAX: u64 = 14;

const INSTALL: &str = "cargo install --locked cargo-deny";

/// Checks what follows from the code, and prints what is not checked here.
///
/// # Errors
/// It finds a violation.
pub(super) fn run() -> Result {
    if !is_installed() {
        println!("    cargo deny: not installed ({INSTALL}), so bans and sources were NOT checked");
        return Ok(());
    }
    step::run_quietly(cargo().args(["deny", "--log-level", "error", "check", "bans", "licenses", "sources"]))?;
    println!("    cargo deny: bans, licences, sources (cargo xtask release checks the security advisories)");
    Ok(())
}

/// Checks the security advisories of all dependencies.
///
/// # Errors
/// There is an advisory; or the tool or its database is missing, or the database is old, so that nothing is known.
pub fn advisories() -> Result {
    if !is_installed() {
        return Err(format!("cargo deny is not installed, so security advisories cannot be checked: {INSTALL}"));
    }
    // Without network the database may have been brought in by hand: its age decides.
    let fetched = step::run_quietly(cargo().args(["deny", "fetch", "db"]));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    are_recent(&folder()?, now).map_err(|why| match fetched {
        Ok(()) => why,
        Err(error) => format!("{why} ({error})"),
    })?;
    step::run_quietly(cargo().args(["deny", "--log-level", "error", "check", "--disable-fetch", "advisories"]))
}

fn is_installed() -> bool {
    cargo().args(["deny", "--version"]).output().is_ok_and(|output| output.status.success())
}

/// Where `cargo deny` keeps its databases.
fn folder() -> Result<PathBuf> {
    let below = |variable: &str, path: &str| env::var_os(variable).map(|folder| Path::new(&folder).join(path));
    let found = below("CARGO_HOME", "advisory-dbs").or_else(|| below("HOME", ".cargo/advisory-dbs"));
    found.ok_or_else(|| "neither CARGO_HOME nor HOME is set, so the database of advisories cannot be found".into())
}

fn are_recent(folder: &Path, now: u64) -> Result {
    databases(folder)?.iter().try_for_each(|database| is_recent(database, newest_commit(database)?, now))
}

/// All databases in `folder`: at least one. Each counts, also one that only an older version of the tool uses.
fn databases(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map(|entries| entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>());
    let databases: Vec<_> = entries.unwrap_or_default().into_iter().filter(|path| path.join(".git").exists()).collect();
    if databases.is_empty() {
        return Err(format!("there is no database of security advisories in {}", folder.display()));
    }
    Ok(databases)
}

/// The time of the newest advisory, in seconds since 1970.
fn newest_commit(database: &Path) -> Result<u64> {
    let time = step::output(Command::new("git").arg("-C").arg(database).args(["log", "-1", "--format=%ct"]))?;
    time.parse().map_err(|_| format!("{}: its newest commit has no time: {time}", database.display()))
}

/// Whether a database is recent enough. `committed`, `now`: in seconds since 1970.
fn is_recent(database: &Path, committed: u64, now: u64) -> Result {
    let days = now.saturating_sub(committed) / (24 * 3600);
    if days <= AGE_DAYS_MAX {
        return Ok(());
    }
    let path = database.display();
    Err(format!(
        "the security advisories in {path} are {days} days old, of at most {AGE_DAYS_MAX}: run `cargo deny fetch db` \
         where GitHub can be reached; remove that folder if no version of cargo deny updates it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout;

    #[test]
    fn a_release_needs_a_recent_database() {
        let database = Path::new("/advisory-dbs/one");
        let day = 24 * 3600;
        is_recent(database, 1000 * day, (1000 + AGE_DAYS_MAX) * day).expect("it is recent");
        let why = is_recent(database, 1000 * day, (1001 + AGE_DAYS_MAX) * day).expect_err("it is old");
        assert!(why.contains("/advisory-dbs/one are 15 days old, of at most 14"), "{why}");
    }

    #[test]
    fn a_missing_database_is_an_error() {
        let folder = layout::target().join(format!("no-advisories-{}", std::process::id()));
        let why = databases(&folder).expect_err("there is no folder");
        assert!(why.starts_with("there is no database of security advisories in /"), "{why}");
        fs::create_dir_all(folder.join("not-a-database")).expect("a folder");
        let empty = databases(&folder);
        fs::create_dir_all(folder.join("one/.git")).expect("a folder");
        let one = databases(&folder);
        fs::remove_dir_all(&folder).expect("remove the folders");
        assert!(empty.is_err(), "{empty:?}");
        assert_eq!(one, Ok(vec![folder.join("one")]));
    }
}
