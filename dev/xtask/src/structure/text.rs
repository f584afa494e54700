//! How comments are written: lines have at most 120 columns, and no doc comment is incomplete without the line above
//! it.

use super::Finding;
use super::tree::Tree;

const COLUMNS_MAX: usize = 120;

/// Beginnings of doc comments that cannot be understood alone. Each stands for a noun that the reader would have to
/// look up in the lines above.
const LEANING: [&str; 17] = [
    "The same", "Those ", "That ", "These ", "Of ", "All of them", "Its ", "It ", "They ", "Their ", "Likewise",
    "Also ", "As above", "As for", "The other", "The others", "What it",
];

pub fn check(tree: &Tree) -> Vec<Finding> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_and_leaning_comments_are_named() {
        let long = format!("// {}", "x".repeat(118));
        let text =
            format!("/// Bytes of the message.\n/// The same in words.\n{long}\n/// The same, behind a relay.\n");
        let found = check(&Tree::from_files(&[("crates/a/src/b.rs", &text)]));
        assert_eq!(found[0].broken, ["crates/a/src/b.rs:3"]);
        assert_eq!(found[1].broken, ["crates/a/src/b.rs:4: /// The same, behind a relay."]);
    }
}
