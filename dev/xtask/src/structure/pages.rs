//! Checks that pages name only what exists: flags and variables that the code has, and limits with the values of their
//! constants.

use super::{Finding, Tree};
use std::collections::BTreeSet;

/// Flags of other programs, which pages may name.
const FOREIGN_FLAGS: [&str; 25] = [
    "--bin", "--cflags", "--compress", "--cpus-per-task", "--distribution", "--enable-recovery", "--exclusive",
    "--flag", "--git", "--gpus-per-task", "--libs", "--master-addr", "--master-port", "--max-restarts", "--multi-prog",
    "--network", "--nnodes", "--nproc-per-node", "--num-cpus", "--preload-binary", "--rdzv-backend", "--rdzv-endpoint",
    "--time", "--with-pm", "--with-pmi",
];
/// Pages that are generated from the code; tests compare them.
const PRINTED: [&str; 2] = ["docs/reference/flags.md", "docs/reference/mpiexec.md"];
const VARIABLES_PAGE: &str = "docs/reference/environment.md";
const LIMITS_PAGE: &str = "docs/reference/limits.md";
const LIMITS_FILE: &str = "crates/wire/src/limits.rs";

pub fn check(tree: &Tree) -> [Finding; 3] {
    let mut flags = literals(tree, "--", false);
    flags.extend(FOREIGN_FLAGS);
    [
        Finding { rule: "flags in pages exist".into(), broken: unknown(tree, "--", &flags) },
        Finding { rule: "variables in pages exist, and all are listed".into(), broken: variables(tree) },
        Finding { rule: "limits in pages are those of their constants".into(), broken: limits(tree) },
    ]
}

/// Words of pages that begin with `begin` and are not in `known`. A word that ends with `_` stands for all words that
/// begin with it.
fn unknown(tree: &Tree, begin: &str, known: &BTreeSet<&str>) -> Vec<String> {
    let is_known = |word: &str| match word.ends_with('_') {
        true => known.iter().any(|other| other.starts_with(word)),
        false => known.contains(word),
    };
    let pages = tree.ending(".md").filter(|path| path.starts_with("docs/") || !path.contains('/'));
    let mut broken = Vec::new();
    for path in pages.filter(|path| !PRINTED.contains(path)) {
        for (number, line) in (1..).zip(tree.get(path).unwrap_or_default().lines()) {
            let unknown = words(line, begin).filter(|word| !is_known(word));
            broken.extend(unknown.map(|word| format!("{path}:{number}: {word}")));
        }
    }
    broken
}

fn variables(tree: &Tree) -> Vec<String> {
    let page: BTreeSet<&str> = words(tree.get(VARIABLES_PAGE).unwrap_or_default(), "WIREUP_").collect();
    let is_listed = |name: &str| page.iter().any(|word| *word == name || word.ends_with('_') && name.starts_with(word));
    let unlisted = literals(tree, "WIREUP_", false).into_iter().filter(|name| !is_listed(name));
    let missing = unlisted.map(|name| format!("{VARIABLES_PAGE}: {name} is missing")).collect();
    [unknown(tree, "WIREUP_", &literals(tree, "WIREUP_", true)), missing].concat()
}

/// String literals of the code that begin with `begin`, each up to the end of its first word. `with_tests`: whether
/// literals of tests count.
fn literals<'t>(tree: &'t Tree, begin: &str, with_tests: bool) -> BTreeSet<&'t str> {
    let is_read = |path: &&str| with_tests || !path.ends_with("tests.rs") && !path.contains("/tests/");
    let paths = [".rs", ".py", ".c"].into_iter().flat_map(|end| tree.ending(end)).filter(is_read);
    let texts = paths.filter_map(|path| match with_tests {
        true => tree.get(path),
        false => tree.get(path)?.split("#[cfg(test)]\nmod tests {").next(),
    });
    let literals = texts.flat_map(|text| text.split('"')).filter(|literal| literal.starts_with(begin));
    literals.map(first_word).filter(|word| word.len() > begin.len()).collect()
}

fn words<'t>(text: &'t str, begin: &'t str) -> impl Iterator<Item = &'t str> {
    let places = text.match_indices(begin).map(|(at, _)| at).filter(|at| !text[..*at].ends_with(is_part));
    let words = places.map(|at| first_word(&text[at..]));
    words.filter(|word| word[begin.len()..].starts_with(|c: char| c.is_ascii_alphabetic()))
}

fn first_word(text: &str) -> &str {
    text.find(|c| !is_part(c)).map_or(text, |end| &text[..end])
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

/// Checks the rows `| what | value; value | constant; constant |`. A constant is a name in [`LIMITS_FILE`], or a crate
/// with a path below its `src`, and a name.
fn limits(tree: &Tree) -> Vec<String> {
    let lines = tree.get(LIMITS_PAGE).unwrap_or_default().lines().filter(|line| line.starts_with("| "));
    let mut broken = Vec::new();
    for line in lines.filter(|line| !line.starts_with("| ---") && !line.starts_with("| what ")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [values, constants] = [2, 3].map(|n| cells.get(n).map_or(vec![], |cell| cell.split("; ").collect()));
        let is_right = |(value, name): (&&str, &&str)| {
            let constant = constant(tree, name.trim_matches('`'));
            constant.is_some() && constant == documented(value)
        };
        if values.len() != constants.len() || !values.iter().zip(&constants).all(is_right) {
            broken.push(format!("{LIMITS_PAGE}: {line}"));
        }
    }
    broken
}

/// Parses a number with a unit; returns it in bytes or nanoseconds.
fn documented(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let number: u64 = number.replace(',', "").parse().ok()?;
    let unit = match unit {
        "" | "bytes" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    Some(number * unit)
}

fn constant(tree: &Tree, place: &str) -> Option<u64> {
    let (path, name) = place.split_once(' ').unwrap_or(("", place));
    let path = path.split_once('/').map(|(name, path)| format!("crates/{name}/src/{path}"));
    let text = tree.get(path.as_deref().unwrap_or(LIMITS_FILE))?;
    let (_, definition) = text.split_once(&format!("const {name}: "))?;
    value(definition.split_once('=')?.1.split_once(';')?.0)
}

fn value(text: &str) -> Option<u64> {
    if let Some((number, bits)) = text.split_once("<<") {
        return Some(value(number)? << value(bits)?);
    }
    match text.trim() {
        "u16::MAX as u32" => Some(u64::from(u16::MAX)),
        text => match text.strip_prefix("Duration::from_secs(") {
            Some(seconds) => Some(value(seconds.strip_suffix(')')?)? * 1_000_000_000),
            None => text.replace('_', "").parse().ok(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "const F: [&str; 2] = [\"--dir\", \"-x\"];\nconst A: &str = \"WIREUP_A\";\nvar(c\"WIREUP_B\");
        #[cfg(test)]\nmod tests { fn f() { parse(\"--gone\", \"WIREUP_GONE\"); } }";

    fn broken(pages: &[(&str, &str)]) -> Vec<String> {
        let code = [("crates/a/src/b.rs", CODE), ("crates/a/tests/c.rs", "f(\"--gone\", \"WIREUP_TEST_A\")")];
        check(&Tree::from_files(&[&code[..], pages].concat())).into_iter().flat_map(|finding| finding.broken).collect()
    }

    #[test]
    fn flags_and_variables_that_do_not_exist_and_variables_that_are_not_listed_are_named() {
        let all = (VARIABLES_PAGE, "`WIREUP_A`, `WIREUP_B`, `WIREUP_TEST_*`");
        assert_eq!(broken(&[all, ("docs/a.md", "| --- |\n`a --dir=b -- c` --libs"), ("lab/a.md", "--gone")]), [""; 0]);
        let found = broken(&[("README.md", "--gone"), (VARIABLES_PAGE, "WIREUP_OTHER, WIREUP_A, WIREUP_NO_*")]);
        let page = VARIABLES_PAGE;
        let expected = ["README.md:1: --gone", &format!("{page}:1: WIREUP_OTHER"), &format!("{page}:1: WIREUP_NO_")];
        assert_eq!(found[..3], expected);
        assert_eq!(found[3..], [format!("{page}: WIREUP_B is missing")]);
    }

    #[test]
    fn limits_that_differ_from_their_constants_are_named() {
        let constants = "pub const A_MAX: usize = 64 << 10;\npub const B_NS: u64 = 2_000_000_000;";
        let other = "const C_MAX: Duration = Duration::from_secs(20);\nconst D_MAX: u32 = u16::MAX as u32;";
        let right = "| what | limit | constant |\n| --- | --- | --- |\n| a; b | 64 KiB; 2 s | `A_MAX`; `B_NS` |
| c | 20 s; 65,535 | `a/d.rs C_MAX`; `a/d.rs D_MAX` |\n";
        let wrong = [
            "| a | 64 MiB | `A_MAX` |", "| b | 2 s |  |", "| c | 20 s | `C_MAX` |", "| d | 65,536 bytes; 1 | `A_MAX` |",
        ];
        let page = right.to_owned() + &wrong.join("\n");
        let files = [(LIMITS_FILE, constants), ("crates/a/src/d.rs", other), (LIMITS_PAGE, &page)];
        assert_eq!(limits(&Tree::from_files(&files)), wrong.map(|line| format!("{LIMITS_PAGE}: {line}")));
    }
}
