//! `cargo xtask quick` checks what a change can break, without starting the product: format, structure, lints and tests
//! of the changed crates and of the crates that depend on them.
//!
//! The changed files are those that differ from the last commit or, if there are none, those of the last commit itself.

use crate::build::{cargo, cargo_tool, has_tool};
use crate::layout;
use crate::step::{Result, output, run, step};
use crate::structure;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Crates whose tests start processes: for these crates only the lints run.
const WITH_PROCESSES: [&str; 4] = ["wireup-e2e", "wireup-testbed", "wireup-bench", "wireup-reproductions"];
/// Crates without input and output: their tests in the folder `tests/` are as quick as those in their source files.
const PURE: [&str; 5] = ["wireup-wire", "wireup-coll", "wireup-proto", "wireup-group", "wireup-sim"];
/// Seeds of each simulated test; each kind of fault occurs among these seeds. `cargo xtask test` runs some hundreds of
/// seeds.
const SEEDS: &str = "240..280";
/// Filter for tests that simulate thousands of nodes, which take as long as all other tests together.
const LARGE: &str = "test(/thousand|largest/)";

/// # Errors
/// A check or a test fails.
pub fn check() -> Result {
    step("cargo fmt --check", || run(cargo().args(["fmt", "--all", "--check"])))?;
    step("cargo xtask check", structure::run)?;
    let changed = changed_packages(&changed_files()?)?;
    if changed.is_empty() {
        println!("no crate has changed");
        return Ok(());
    }
    let affected = with_dependents(&changed)?;
    println!("changed: {}; affected: {}", list(&changed), list(&affected));
    let packages = |of: &mut dyn Iterator<Item = &String>| of.flat_map(|name| ["-p".into(), name.clone()]).collect();
    let all: Vec<String> = packages(&mut affected.iter());
    step("cargo clippy", || {
        run(cargo().args(["clippy", "--quiet", "--all-targets"]).args(&all).args(["--", "-D", "warnings"]))
    })?;
    let is_pure = |name: &&String| PURE.contains(&name.as_str());
    let has_tests = |name: &&String| !WITH_PROCESSES.contains(&name.as_str());
    let (pure, others): (Vec<_>, Vec<_>) = affected.iter().filter(has_tests).partition(is_pure);
    for (packages, targets) in
        [(packages(&mut pure.into_iter()), None), (packages(&mut others.into_iter()), Some(["--lib", "--bins"]))]
    {
        let packages: Vec<String> = packages;
        if !packages.is_empty() {
            let mut tests = tests();
            tests.args(packages).args(targets.into_iter().flatten()).env("WIREUP_SIM_SEEDS", SEEDS);
            step(crate::step::show(&tests), || run(&mut tests))?;
        }
    }
    Ok(())
}

/// The nextest command, which runs the tests of all crates in parallel.
fn tests() -> Command {
    if has_tool("nextest") {
        let mut command = cargo_tool("nextest");
        command.args(["run", "--status-level", "fail", "-E", &format!("not {LARGE}")]);
        return command;
    }
    let mut command = cargo();
    command.args(["test", "--quiet"]);
    command
}

fn changed_files() -> Result<Vec<String>> {
    let git = |words: &[&str]| output(Command::new("git").current_dir(layout::root()).args(words));
    let mut files = git(&["status", "--porcelain", "--untracked-files=all", "--no-renames"])?;
    if files.is_empty() {
        files = git(&["diff", "--name-only", "HEAD~1", "HEAD"])?;
        return Ok(files.lines().map(str::to_owned).collect());
    }
    // `step::output` has removed blanks only at the end, so each line still begins with git's two status letters.
    Ok(files.lines().filter_map(|line| line.get(3..)).map(str::to_owned).collect())
}

/// The names of the workspace's packages that contain these files.
fn changed_packages(files: &[String]) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for file in files {
        let folders = Path::new(file).ancestors().skip(1).map(|folder| layout::root().join(folder));
        let manifest = folders.map(|folder| folder.join("Cargo.toml")).find(|manifest| manifest.exists());
        let Some(manifest) = manifest else { continue };
        let text = std::fs::read_to_string(&manifest).map_err(|error| format!("{}: {error}", manifest.display()))?;
        // The root manifest and the manifests of other workspaces belong to no package of this workspace.
        if text.contains("version.workspace = true") {
            names.extend(package_name(&text).map(str::to_owned));
        }
    }
    Ok(names)
}

fn package_name(manifest: &str) -> Option<&str> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("name = "))?;
    Some(line.trim_matches('"'))
}

/// The given packages and all packages of the workspace that depend on them.
fn with_dependents(changed: &BTreeSet<String>) -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for name in changed {
        let words = ["tree", "--workspace", "--invert", name, "--prefix", "none", "--format", "{p}", "--edges", "all"];
        let tree = output(cargo().args(words))?;
        all.extend(tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned));
    }
    Ok(all)
}

fn list(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_package_whose_folder_it_is_in() {
        let files = ["crates/wire/src/lib.rs", "dev/sim/tests/worlds/replay.rs", "README.md", "lab/bench/src/lib.rs"];
        let names = changed_packages(&files.map(str::to_owned)).expect("the manifests can be read");
        assert_eq!(list(&names), "wireup-bench wireup-sim wireup-wire");
    }

    #[test]
    fn dependents_of_a_package_are_found() {
        let all = with_dependents(&BTreeSet::from(["wireup-proto".to_owned()])).expect("cargo tree");
        for name in ["wireup-proto", "wireup-node", "wireup-sim", "wireup"] {
            assert!(all.contains(name), "{name}: {all:?}");
        }
        assert!(!all.contains("wireup-wire"), "{all:?}");
    }
}
