//! `cargo deny`: licences, sources and bans as in `deny.toml`, and the security advisories of dependencies.
//!
//! Licences, sources and bans follow from the code, so `cargo xtask check` checks them. Advisories come from a database
//! that grows every week and that only GitHub has. `cargo xtask test` must pass without GitHub, so it does not check
//! advisories; `cargo xtask release` does, and fails if the tool or the database is missing, or if the database is old.
//! Its age is that of its newest commit: `cargo deny` itself looks at the time of the last attempt to fetch it, and
//! only when it may not fetch.

use crate::build::{cargo_tool, has_tool};
use crate::step::{self, Result};
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs};

/// Maximum age in days of the database of advisories that a release is checked with. Chosen: new advisories come every
/// week.
const AGE_DAYS_MAX: u64 = 14;

/// Checks what follows from the code, and prints what is not checked here.
///
/// # Errors
/// It finds a violation.
pub(super) fn check() -> Result {
    if !has_tool("deny") {
        println!("    cargo deny: not installed (cargo xtask setup), so licences, bans and sources were NOT checked");
        return Ok(());
    }
    step::run_quietly(deny().args(["--log-level", "error", "check", "bans", "licenses", "sources"]))?;
    println!("    cargo deny: bans, licences, sources (cargo xtask release checks the security advisories)");
    Ok(())
}

/// Checks the security advisories of all dependencies.
///
/// # Errors
/// A dependency has an advisory; or the tool or its database is missing, or the database is old, so that this is
/// unknown.
pub fn advisories() -> Result {
    if !has_tool("deny") {
        return Err("cargo deny is not installed, so security advisories cannot be checked: cargo xtask setup".into());
    }
    // An error of the fetch does not matter by itself: without a network, the database may have been copied by hand,
    // and its age decides.
    let fetched = step::run_quietly(deny().args(["fetch", "db"]));
    let below = |variable: &str, path: &str| env::var_os(variable).map(|folder| Path::new(&folder).join(path));
    let folder = below("CARGO_HOME", "advisory-dbs").or_else(|| below("HOME", ".cargo/advisory-dbs"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    are_recent(&folder.unwrap_or_default(), now, newest_commit).map_err(|why| match fetched {
        Ok(()) => why,
        Err(error) => format!("{why} ({error})"),
    })?;
    step::run_quietly(deny().args(["--log-level", "error", "check", "--disable-fetch", "advisories"]))
}

fn deny() -> Command {
    cargo_tool("deny")
}

/// Whether `folder` has databases and all of them are recent enough. A database that only an older version of the tool
/// uses counts too. `committed`: function that gives the time of a database's newest commit; that and `now` in seconds
/// since 1970.
fn are_recent(folder: &Path, now: u64, committed: impl Fn(&Path) -> Result<u64>) -> Result {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let databases: Vec<_> = entries.filter(|path| path.join(".git").exists()).collect();
    if databases.is_empty() {
        return Err(format!("there is no database of security advisories in {}", folder.display()));
    }
    for database in databases {
        let days = now.saturating_sub(committed(&database)?) / (24 * 3600);
        if days > AGE_DAYS_MAX {
            return Err(format!(
                "the security advisories in {} are {days} days old, of at most {AGE_DAYS_MAX}: run `cargo deny fetch \
                 db` where GitHub can be reached; remove that folder if no version of cargo deny updates it",
                database.display()
            ));
        }
    }
    Ok(())
}

fn newest_commit(database: &Path) -> Result<u64> {
    let time = step::output(Command::new("git").arg("-C").arg(database).args(["log", "-1", "--format=%ct"]))?;
    time.parse().map_err(|_| format!("{}: its newest commit has no time: {time}", database.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout;

    #[test]
    fn a_release_needs_a_recent_database() {
        let folder = layout::target().join(format!("advisories-{}", std::process::id()));
        let on_day = |day: u64| are_recent(&folder, day * 24 * 3600, |_| Ok(1000 * 24 * 3600));
        let missing = on_day(1000);
        fs::create_dir_all(folder.join("not-a-database")).expect("a folder");
        let empty = on_day(1000);
        fs::create_dir_all(folder.join("one/.git")).expect("a folder");
        let (recent, old) = (on_day(1000 + AGE_DAYS_MAX), on_day(1001 + AGE_DAYS_MAX));
        fs::remove_dir_all(&folder).expect("remove the folders");
        for none in [missing, empty] {
            let why = none.expect_err("there is none");
            assert!(why.starts_with("there is no database of security advisories in /"), "{why}");
        }
        recent.expect("it is recent");
        let why = old.expect_err("it is old");
        assert!(why.contains("/one are 15 days old, of at most 14"), "{why}");
    }
}
