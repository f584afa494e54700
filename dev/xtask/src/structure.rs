//! `cargo xtask check`: checks rules of the code's structure.
//!
//! Rules read the text of the working tree; none needs a compiler. `source` reads a Rust file, `modules` finds the
//! files of a crate and what a path leads to. There is one file for each kind of rule: `imports` `manifests` `pages`
//! `purity` `sizes` `waits` `walks`; how comments are written is checked here. Clippy checks the types that pure crates
//! use; here only its lists are compared.
//!
//! In addition, if they are installed: `cargo deny` (`cargo xtask setup` installs it), and a check of the code with the
//! compiler for musl, which builds releases.

pub mod deny;
mod imports;
mod manifests;
mod modules;
mod pages;
mod purity;
mod sizes;
mod source;
mod waits;
mod walks;

use crate::build::cargo;
use crate::layout;
use crate::step::{self, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A rule's name, and one line for each place where the rule is broken.
struct Finding {
    rule: String,
    broken: Vec<String>,
}

/// Checks all rules, and reports each place where a rule is broken.
///
/// # Errors
/// A rule is broken, or a file cannot be read or is not Rust.
pub fn run() -> Result {
    let tree = Tree::read(&layout::root())?;
    let mut findings = vec![imports::check(&tree)?, sizes::check(&tree)?];
    findings.extend(manifests::check(&tree));
    findings.extend(purity::check(&tree));
    findings.extend(check_text(&tree));
    findings.extend(pages::check(&tree));
    findings.push(waits::check(&tree)?);
    findings.push(walks::check(&tree));
    let failed = findings.iter().filter(|finding| !report(finding)).count();
    deny::check()?;
    check_musl()?;
    if failed == 0 { Ok(()) } else { Err(format!("{failed} rules of the structure are broken")) }
}

/// Prints the result of a rule; returns whether the rule is kept everywhere.
fn report(finding: &Finding) -> bool {
    let Finding { rule, broken } = finding;
    if broken.is_empty() {
        println!("    {rule}");
        return true;
    }
    println!("    {rule}: BROKEN, {} times", broken.len());
    broken.iter().for_each(|line| println!("        {line}"));
    false
}

/// The texts that the rules read: sources, manifests and `clippy.toml` of all crates, and the pages, by their paths in
/// the workspace.
struct Tree(BTreeMap<String, String>);

impl Tree {
    /// # Errors
    /// A folder or a file cannot be read.
    fn read(root: &Path) -> Result<Tree> {
        let mut files = BTreeMap::new();
        for folder in ["crates", "dev", "docs", "lab", "python"] {
            walk(root, folder, &mut files)?;
        }
        for file in ["deny.toml", "Cargo.toml", "README.md", "HACKING.md", "CONTRIBUTING.md"] {
            add(root, file.to_owned(), &mut files)?;
        }
        Ok(Tree(files))
    }

    #[cfg(test)]
    fn from_files(files: &[(&str, &str)]) -> Tree {
        Tree(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Paths of the files whose paths end with `end`, sorted.
    fn ending<'t>(&'t self, end: &'t str) -> impl Iterator<Item = &'t str> {
        self.0.keys().map(String::as_str).filter(move |path| path.ends_with(end))
    }
}

fn walk(root: &Path, folder: &str, files: &mut BTreeMap<String, String>) -> Result {
    let path = root.join(folder);
    let entries = fs::read_dir(&path).map_err(|e| format!("read {}: {e}", path.display()))?;
    for entry in entries.flatten() {
        let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            walk(root, &name, files)?;
        } else if [".rs", ".toml", ".md", ".py", ".c"].iter().any(|end| name.ends_with(end)) {
            add(root, name, files)?;
        }
    }
    Ok(())
}

fn add(root: &Path, name: String, files: &mut BTreeMap<String, String>) -> Result {
    let text = fs::read_to_string(root.join(&name)).map_err(|e| format!("read {name}: {e}"))?;
    files.insert(name, text);
    Ok(())
}

const COLUMNS_MAX: usize = 120;

/// Beginnings of doc comments that cannot be understood alone. Each stands for a noun that the reader would have to
/// look up in the lines above.
const LEANING: [&str; 17] = [
    "The same", "Those ", "That ", "These ", "Of ", "All of them", "Its ", "It ", "They ", "Their ", "Likewise",
    "Also ", "As above", "As for", "The other", "The others", "What it",
];

/// Lines have at most [`COLUMNS_MAX`] columns, and no doc comment is incomplete without the line above it.
fn check_text(tree: &Tree) -> Vec<Finding> {
    let mut long = Vec::new();
    let mut leaning = Vec::new();
    for path in tree.ending(".rs") {
        let text = tree.get(path).unwrap_or_default();
        let mut above = "";
        for (number, line) in (1..).zip(text.lines()) {
            if line.chars().count() > COLUMNS_MAX {
                long.push(format!("{path}:{number}"));
            }
            let line = line.trim();
            if line.starts_with("///") && !above.starts_with("///") && leans(line) {
                leaning.push(format!("{path}:{number}: {line}"));
            }
            above = line;
        }
    }
    vec![
        Finding { rule: "lines end at 120 columns".into(), broken: long },
        Finding { rule: "a doc comment is understood alone".into(), broken: leaning },
    ]
}

fn leans(comment: &str) -> bool {
    let words = comment.trim_start_matches('/').trim_start();
    LEANING.iter().any(|begin| words.starts_with(begin))
}

/// Checks that the program compiles for musl, as `cargo xtask release` builds it, if rustup has that target; prints a
/// note otherwise.
///
/// # Errors
/// The program does not compile.
fn check_musl() -> Result {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    if !has_target(&target) {
        println!("    musl: no such target (rustup target add {target}), so the static build was NOT checked");
        return Ok(());
    }
    // Nothing is linked, so this machine's C compiler is sufficient for the parts in C.
    let compiler = format!("CC_{}", target.replace('-', "_"));
    step::run_quietly(
        cargo().args(["check", "--quiet", "--package", "wireup", "--target", &target]).env(compiler, "cc"),
    )?;
    println!("    musl: the static build compiles");
    Ok(())
}

fn has_target(target: &str) -> bool {
    let told = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    told.is_ok_and(|told| told.status.success() && Path::new(String::from_utf8_lossy(&told.stdout).trim()).is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_and_leaning_comments_are_named() {
        let long = format!("// {}", "x".repeat(118));
        let text =
            format!("/// Bytes of the message.\n/// The same in words.\n{long}\n/// The same, behind a relay.\n");
        let found = check_text(&Tree::from_files(&[("crates/a/src/b.rs", &text)]));
        assert_eq!(found[0].broken, ["crates/a/src/b.rs:3"]);
        assert_eq!(found[1].broken, ["crates/a/src/b.rs:4: /// The same, behind a relay."]);
    }
}
