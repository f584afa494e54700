//! `cargo xtask check`: checks rules of the code's structure.
//!
//! Rules read the text of the working tree; none needs a compiler. `source` reads a Rust file, `modules` finds the
//! files of a crate and what a path leads to. There is one file for each kind of rule: `imports` `manifests` `pages`
//! `purity` `sizes` `text` `waits` `walks`. Clippy checks the types that pure crates use; here only its lists are
//! compared.
//!
//! In addition, if they are installed: `cargo deny` (`cargo xtask setup` installs it), and a check of the code with the
//! compiler for musl, which builds releases.

pub mod deny;
mod imports;
mod manifests;
mod modules;
mod musl;
mod pages;
mod purity;
mod sizes;
mod source;
mod text;
mod tree;
mod waits;
mod walks;

use crate::layout;
use crate::step::Result;
use tree::Tree;

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
    findings.extend(text::check(&tree));
    findings.extend(pages::check(&tree));
    findings.push(waits::check(&tree)?);
    findings.push(walks::check(&tree));
    let failed = findings.iter().filter(|finding| !report(finding)).count();
    deny::check()?;
    musl::check()?;
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
