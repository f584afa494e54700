//! `cargo xtask check`: checks rules of the code's structure.
//!
//! Rules read the text of the working tree; none needs a compiler. `source` reads a Rust file, `modules` finds the
//! files of a crate and what a path leads to. There is one file for each kind of rule: `routers` `imports` `manifests`
//! `purity` `licences` `waits`. Clippy checks the types that pure crates use; here only its lists are compared.
//!
//! In addition, if they are installed: `cargo deny`, and the compiler for musl, with which releases are built.

pub mod deny;
mod imports;
mod licences;
mod manifests;
mod modules;
mod musl;
mod purity;
mod routers;
mod source;
mod tree;
mod waits;

use crate::layout;
use crate::step::Result;
use modules::Modules;
use tree::Tree;

/// A rule's name, and one line for each place where it is broken.
struct Finding {
    rule: String,
    broken: Vec<String>,
}

/// Rules that the code does not keep yet. A rule that it keeps must be removed from this list.
const NOT_YET: [&str; 0] = [];

/// Checks all rules, and reports where each broken one is broken.
///
/// # Errors
/// A rule is broken that is not in [`NOT_YET`], or a file cannot be read or is not Rust.
pub fn run() -> Result {
    let tree = Tree::read(&layout::root())?;
    let proto = Modules::of(&tree, "crates/proto")?;
    let mut findings = routers::check(&proto);
    findings.push(imports::check(&tree)?);
    findings.extend(manifests::check(&tree));
    findings.extend(purity::check(&tree));
    findings.push(licences::check(&tree)?);
    findings.push(waits::check(&tree)?);
    let failed = findings.iter().filter(|finding| !report(finding)).count();
    deny::run()?;
    musl::run()?;
    if failed == 0 { Ok(()) } else { Err(format!("{failed} rules of the structure are broken")) }
}

/// Prints the result of a rule; returns whether it is acceptable.
fn report(finding: &Finding) -> bool {
    let Finding { rule, broken } = finding;
    match (broken.is_empty(), NOT_YET.contains(&rule.as_str())) {
        (true, false) => println!("    {rule}"),
        (true, true) => println!("    {rule}: kept now, take it out of NOT_YET"),
        (false, true) => println!("    {rule}: not yet kept, {} times", broken.len()),
        (false, false) => {
            println!("    {rule}: BROKEN");
            broken.iter().for_each(|line| println!("        {line}"));
            return false;
        }
    }
    true
}
