//! Dependencies have licences of the list in `deny.toml`.
//!
//! That file is `cargo deny`'s, which checks the same and more; this check runs where that is not installed.

use super::Finding;
use super::tree::Tree;
use crate::demo::cargo;
use crate::step::{Result, show};

/// # Errors
/// `cargo tree` fails.
pub fn check(tree: &Tree) -> Result<Finding> {
    let mut list = cargo();
    // Also what only other targets need; `{l}` is empty where a crate names a file, which then is to be looked at.
    list.args([
        "tree",
        "--workspace",
        "--prefix",
        "none",
        "--edges",
        "normal,build,dev",
        "--target",
        "all",
        "--locked",
    ]);
    list.args(["--format", "{p}\t{l}"]);
    let output = list.output().map_err(|e| format!("{}: {e}", show(&list)))?;
    if !output.status.success() {
        return Err(format!("{}: {}", show(&list), String::from_utf8_lossy(&output.stderr).trim()));
    }
    let allowed = allowed(tree.get("deny.toml").unwrap_or(""));
    let broken = refused(&String::from_utf8_lossy(&output.stdout), &allowed);
    Ok(Finding { rule: "licences of dependencies are in the list of deny.toml".into(), broken })
}

/// `allow = [...]` under `[licenses]`.
fn allowed(deny: &str) -> Vec<&str> {
    let section = deny.split_once("[licenses]").map_or("", |(_, rest)| rest);
    let list = section.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
    list.lines().flat_map(|line| line.split('#').next()).flat_map(|line| line.split('"').skip(1).step_by(2)).collect()
}

/// Packages (`name version<tab>licence`) with a licence that is not allowed.
fn refused(packages: &str, allowed: &[&str]) -> Vec<String> {
    // A package comes again and again, then with a mark.
    let mut all: Vec<&str> = packages.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    all.sort_unstable();
    all.dedup();
    let is_refused = |line: &&str| {
        let licence = line.split_once('\t').map_or("", |(_, licence)| licence);
        !line.trim().is_empty() && !permits(licence, allowed)
    };
    all.into_iter().filter(is_refused).map(|line| line.replace('\t', ": ")).collect()
}

/// Whether an SPDX expression (`A OR B`, `(A OR B) AND C`; `A/B` as of old) can be met by allowed licences.
fn permits(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed };
    parser.any() && parser.words.is_empty()
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a [&'a str],
}

impl Parser<'_> {
    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.words.first() == Some(&word);
        self.words = &self.words[usize::from(is_next)..];
        is_next
    }

    fn any(&mut self) -> bool {
        let mut permitted = self.every();
        while self.takes("OR") {
            permitted |= self.every();
        }
        permitted
    }

    fn every(&mut self) -> bool {
        let mut permitted = self.one();
        while self.takes("AND") {
            permitted &= self.one();
        }
        permitted
    }

    fn one(&mut self) -> bool {
        if self.takes("(") {
            return self.any() & self.takes(")");
        }
        let Some((name, rest)) = self.words.split_first() else { return false };
        self.words = rest;
        if !self.takes("WITH") {
            return self.allowed.contains(name);
        }
        let Some((exception, rest)) = self.words.split_first() else { return false };
        self.words = rest;
        self.allowed.contains(&format!("{name} WITH {exception}").as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str = "[bans]\nallow = [\"no\"]\n[licenses]\nallow = [\n    \"MIT\", # ours\n    \"Apache-2.0 WITH LLVM-exception\",\n    # \"GPL-3.0\",\n    \"ISC\",\n]\n";

    #[test]
    fn the_list_is_that_of_licences() {
        assert_eq!(allowed(DENY), ["MIT", "Apache-2.0 WITH LLVM-exception", "ISC"]);
    }

    #[test]
    fn expressions_are_met_or_not() {
        let allowed = allowed(DENY);
        for good in
            ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "(GPL-3.0 OR MIT) AND ISC", "Apache-2.0 WITH LLVM-exception"]
        {
            assert!(permits(good, &allowed), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "Apache-2.0",
            "(MIT",
            "MIT ISC",
            "MIT WITH x",
            "GPL-3.0 OR MIT AND GPL-3.0",
        ] {
            assert!(!permits(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn packages_are_named_once_with_their_licence() {
        let packages = "a v1.0.0\tMIT\nb v2.0.0\tGPL-3.0\n\nb v2.0.0\tGPL-3.0 (*)\nc v1.0.0\t\n";
        assert_eq!(refused(packages, &["MIT"]), ["b v2.0.0: GPL-3.0", "c v1.0.0: "]);
    }
}
