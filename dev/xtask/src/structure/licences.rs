//! All dependencies have a licence from the list in `deny.toml`.
//!
//! That file belongs to `cargo deny`, which checks this and more; this check also runs if that tool is not installed.

use super::Finding;
use super::tree::Tree;
use crate::build::cargo;
use crate::step::{self, Result};
use spdx::{Expression, ParseMode};
use std::collections::BTreeSet;

/// Includes dependencies for other targets. `{l}` is empty if a crate names a licence file instead, which must then be
/// examined.
const TREE: &str = "tree --workspace --prefix none --edges normal,build,dev --target all --locked --format {p}\t{l}";

/// # Errors
/// `cargo tree` fails.
pub fn check(tree: &Tree) -> Result<Finding> {
    let packages = step::output(cargo().args(TREE.split(' ')))?;
    let broken = refused(&packages, &allowed(tree.get("deny.toml").unwrap_or("")));
    Ok(Finding { rule: "licences of dependencies are in the list of deny.toml".into(), broken })
}

/// The licences in `allow = [...]` under `[licenses]`.
fn allowed(deny: &str) -> Vec<&str> {
    let section = deny.split_once("[licenses]").map_or("", |(_, rest)| rest);
    let list = section.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
    list.lines().flat_map(|line| line.split('#').next()).flat_map(|line| line.split('"').skip(1).step_by(2)).collect()
}

/// Packages (`name version<tab>licence`) with a licence that is not allowed.
fn refused(packages: &str, allowed: &[&str]) -> Vec<String> {
    // `cargo tree` prints a package repeatedly, with a mark from the second time on.
    let all: BTreeSet<&str> = packages.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    let packages = all.into_iter().filter_map(|line| line.split_once('\t'));
    let refused = packages.filter(|(_, licence)| !permits(licence, allowed));
    refused.map(|(package, licence)| format!("{package}: {licence}")).collect()
}

/// Whether an SPDX expression (`A OR B`, `(A OR B) AND C`, or the old form `A/B`) can be satisfied with allowed
/// licences.
fn permits(expression: &str, allowed: &[&str]) -> bool {
    let is_allowed = |licence: &spdx::LicenseReq| allowed.contains(&licence.to_string().as_str());
    Expression::parse_mode(expression, ParseMode::LAX).is_ok_and(|expression| expression.evaluate(is_allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str = "[bans]\nallow = [\"no\"]\n[licenses]\nallow = [\n    \"MIT\", # ours\n    \"Apache-2.0 WITH LLVM-exception\",\n    # \"GPL-3.0\",\n    \"ISC\",\n]\n";

    #[test]
    fn allowed_licences_are_read_from_the_deny_file() {
        assert_eq!(allowed(DENY), ["MIT", "Apache-2.0 WITH LLVM-exception", "ISC"]);
    }

    #[test]
    fn licence_expressions_are_evaluated() {
        let allowed = allowed(DENY);
        for good in
            ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "(GPL-3.0 OR MIT) AND ISC", "Apache-2.0 WITH LLVM-exception"]
        {
            assert!(permits(good, &allowed), "{good}");
        }
        for bad in [
            "", "GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "(MIT", "MIT ISC", "MIT WITH x",
            "GPL-3.0 OR MIT AND GPL-3.0",
        ] {
            assert!(!permits(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn refused_packages_are_named_once_with_their_licence() {
        let packages = "a v1.0.0\tMIT\nb v2.0.0\tGPL-3.0\n\nb v2.0.0\tGPL-3.0 (*)\nc v1.0.0\t\n";
        assert_eq!(refused(packages, &["MIT"]), ["b v2.0.0: GPL-3.0", "c v1.0.0: "]);
    }
}
