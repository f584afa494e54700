//! `cargo xtask check`: checks rules of the code's structure.
//!
//! Rules read the text of the working tree; none needs a compiler. `source` reads a Rust file, `modules` finds the
//! files of a crate and what a path leads to. There is one file for each kind of rule: `imports` `manifests` `purity`
//! `sizes` `text` `waits` `walks`. Clippy checks the types that pure crates use; here only its lists are compared.
//!
//! In addition, if they are installed: `cargo deny` (`cargo xtask setup` installs it), and the compiler for musl, with
//! which releases are built.

pub mod deny;
mod imports;
mod manifests;
mod modules;
mod musl;
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

/// A rule's name, and one line for each place where it is broken.
struct Finding {
    rule: String,
    broken: Vec<String>,
}

/// Rules that the code does not keep everywhere yet, and how often each is broken. The numbers only fall.
const NOT_YET: [(&str, usize); 1] = [("lines end at 120 columns", 102)];

/// Checks all rules, and reports where each broken one is broken.
///
/// # Errors
/// A rule is broken that is not in [`NOT_YET`], or a file cannot be read or is not Rust.
pub fn run() -> Result {
    let tree = Tree::read(&layout::root())?;
    let mut findings = vec![imports::check(&tree)?, sizes::check(&tree)?];
    findings.extend(manifests::check(&tree));
    findings.extend(purity::check(&tree));
    findings.extend(text::check(&tree));
    findings.push(waits::check(&tree)?);
    findings.push(walks::check(&tree));
    let failed = findings.iter().filter(|finding| !report(finding)).count();
    deny::run()?;
    musl::run()?;
    if failed == 0 { Ok(()) } else { Err(format!("{failed} rules of the structure are broken")) }
}

/// Prints the result of a rule; returns whether it is acceptable.
fn report(finding: &Finding) -> bool {
    let Finding { rule, broken } = finding;
    let allowed = NOT_YET.iter().find(|(name, _)| name == rule).map_or(0, |(_, count)| *count);
    if broken.len() > allowed {
        println!("    {rule}: BROKEN, {} times; {allowed} were known", broken.len());
        broken.iter().for_each(|line| println!("        {line}"));
        return false;
    }
    match broken.len() {
        0 => println!("    {rule}"),
        count if count < allowed => println!("    {rule}: {count} times; write that number into NOT_YET"),
        count => println!("    {rule}: not yet, {count} times"),
    }
    true
}
