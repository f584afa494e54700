//! The walks in `dev/walks.md` are true: each file that a walk passes has the functions that the page names, and each
//! of these functions is called in a file that the walk has passed before or, except the first, in that file.
//!
//! A walk is a table under a heading. A row with a link is a file that is entered, and the functions that run in it, in
//! the order of the calls. A row without a link is a step between processes, or a wait. After such a row the functions
//! of the next file need not be called by name. A file counts once, however often the walk comes back to it; how often
//! a walk enters a file again before the next row without a link is counted, too.

use super::{Finding, Tree};
use std::collections::BTreeSet;

const PAGE: &str = "dev/walks.md";

/// Maximum number of files that each walk may pass, and how often it may enter a file again that it has left. These
/// numbers may be lowered, not raised.
const LIMITS: [(&str, usize, usize); 6] = [
    ("A put", 11, 0),
    ("A fence", 19, 0),
    ("A get", 5, 0),
    ("A spawn", 36, 1),
    ("A line of output", 12, 0),
    ("A staged file", 35, 0),
];

#[derive(Debug)]
struct Walk<'p> {
    name: &'p str,
    steps: Vec<Step<'p>>,
}

#[derive(Debug)]
enum Step<'p> {
    File { path: String, functions: Vec<&'p str>, line: usize },
    Between,
}

impl Walk<'_> {
    fn files(&self) -> BTreeSet<&str> {
        let files = self.steps.iter().filter_map(|step| match step {
            Step::File { path, .. } => Some(path.as_str()),
            Step::Between => None,
        });
        files.collect()
    }

    /// How often a file is entered again before the next step between processes.
    fn entered_again(&self) -> usize {
        let (mut entered, mut again) = (BTreeSet::new(), 0);
        for step in &self.steps {
            match step {
                Step::File { path, .. } => again += usize::from(!entered.insert(path)),
                Step::Between => entered.clear(),
            }
        }
        again
    }
}

/// Checks all walks.
pub fn check(tree: &Tree) -> Finding {
    let walks = read(tree.get(PAGE).unwrap_or_default());
    let mut broken: Vec<String> = walks.iter().flat_map(|walk| broken_steps(tree, walk)).collect();
    for (name, files_max, again_max) in LIMITS {
        match walks.iter().find(|walk| walk.name == name) {
            None => broken.push(format!("{PAGE}: there is no walk \"{name}\"")),
            Some(walk) => {
                let (files, again) = (walk.files().len(), walk.entered_again());
                if files > files_max {
                    broken.push(format!("{PAGE}: \"{name}\" enters {files} files, {files_max} at most"));
                }
                if again > again_max {
                    broken.push(format!("{PAGE}: \"{name}\" enters files {again} times again, {again_max} at most"));
                }
            }
        }
    }
    Finding { rule: "the walks through the code are as described".into(), broken }
}

/// The walks of the page: tables whose first column is a file.
fn read(page: &str) -> Vec<Walk<'_>> {
    let mut walks: Vec<Walk> = Vec::new();
    let mut heading = "";
    for (index, text) in page.lines().enumerate() {
        if let Some(name) = text.strip_prefix("## ") {
            heading = name;
        } else if text == "| file | functions |" {
            walks.push(Walk { name: heading, steps: Vec::new() });
        } else if let (Some(walk), Some(row)) = (walks.last_mut(), text.strip_prefix("| "))
            && walk.name == heading
            && !row.starts_with("---")
        {
            let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
            let path = cells[0].split_once("](../").and_then(|(_, path)| path.strip_suffix(')'));
            walk.steps.push(match path {
                Some(path) => {
                    let functions = cells.get(1).unwrap_or(&"").split('`').skip(1).step_by(2).collect();
                    Step::File { path: path.to_owned(), functions, line: index + 1 }
                }
                None => Step::Between,
            });
        }
    }
    walks
}

fn broken_steps(tree: &Tree, walk: &Walk<'_>) -> Vec<String> {
    let (mut broken, mut passed, mut is_called) = (Vec::new(), Vec::<String>::new(), false);
    for step in &walk.steps {
        let Step::File { path, functions, line } = step else {
            is_called = false;
            continue;
        };
        let text = code(tree.get(path).unwrap_or_default());
        if functions.is_empty() {
            broken.push(format!("{PAGE}:{line}: no function of {path} is named"));
        }
        for (at, function) in functions.iter().enumerate() {
            let own = (at > 0).then_some(&text);
            if !mentions(&text, &format!("{DEFINES}{function}")) {
                broken.push(format!("{PAGE}:{line}: {path} has no function {function}"));
            } else if is_called && !passed.iter().chain(own).any(|from| calls(from, function)) {
                broken.push(format!("{PAGE}:{line}: no file of this walk calls {function} until here"));
            }
        }
        passed.push(text);
        is_called = true;
    }
    broken
}

/// Text that [`code`] puts before the name of a function that is being defined.
const DEFINES: &str = "fn:";

/// The text of a file without its tests, comments and imports, which call nothing. A definition in it does not look
/// like a call.
fn code(text: &str) -> String {
    let code = text.split("\nmod tests {").next().unwrap_or_default();
    let is_code = |line: &&str| !["//", "use ", "pub use "].iter().any(|start| line.trim_start().starts_with(start));
    code.lines().filter(is_code).collect::<Vec<_>>().join("\n").replace("fn ", DEFINES)
}

/// Whether a text uses a function: calls it or passes it as a value.
fn calls(text: &str, function: &str) -> bool {
    [
        format!(".{function}("),
        format!("::{function}"),
        format!(" {function}("),
        format!("({function}("),
        format!("!{function}("),
    ]
    .iter()
    .any(|call| mentions(text, call))
}

/// Whether a text contains a word that is not just the beginning of a longer word.
fn mentions(text: &str, word: &str) -> bool {
    let is_end = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    text.match_indices(word).any(|(at, _)| word.ends_with('(') || is_end(&text[at + word.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_TEXT: &str = "## A get\n\n| file | functions |\n| --- | --- |\n\
        | [a.rs](../crates/a/src/a.rs) | `get`, `find` |\n| the socket | |\n\
        | [b.rs](../crates/b/src/b.rs) | `serve` |\n| [c.rs](../crates/c/src/c.rs) | `look_up` |\n";

    fn broken(b: &str, c: &str) -> Vec<String> {
        let a = "fn get() { find() } fn find() {}";
        let tree = Tree::from_files(&[
            (PAGE, PAGE_TEXT),
            ("crates/a/src/a.rs", a),
            ("crates/b/src/b.rs", b),
            ("crates/c/src/c.rs", c),
        ]);
        check(&tree).broken.into_iter().filter(|line| !line.contains("there is no walk")).collect()
    }

    #[test]
    fn a_walk_that_the_code_takes_is_right() {
        assert!(broken("fn serve(t: &T) { t.look_up() }", "fn look_up() {}").is_empty());
    }

    #[test]
    fn a_function_that_has_another_name_or_is_not_called_is_found() {
        let line = |text: &str| vec![format!("{PAGE}{text}")];
        let unknown = line(":8: crates/c/src/c.rs has no function look_up");
        assert_eq!(broken("fn serve(t: &T) { t.look_up() }", "fn look_ups() {}"), unknown);
        assert_eq!(
            broken("fn serve() {}", "fn look_up() { look_up() }"),
            line(":8: no file of this walk calls look_up until here")
        );
    }

    #[test]
    fn what_is_no_code_calls_nothing() {
        let b = "use c::look_up;\nfn serve() {\n    // look_up() is not called.\n}\nmod tests {\n    c::look_up();\n}";
        let not_called = format!("{PAGE}:8: no file of this walk calls look_up until here");
        assert_eq!(broken(b, "fn look_up() {}"), [&not_called[..]]);
        assert_eq!(broken("fn serve() {} fn look_up() {}", "fn look_up() {}"), [&not_called[..]]);
    }

    #[test]
    fn a_file_that_is_entered_again_counts_once() {
        let again = format!("{PAGE_TEXT}| the socket | |\n| [a.rs](../crates/a/src/a.rs) | `find` |\n");
        let walks = read(&again);
        assert_eq!((walks[0].steps.len(), walks[0].files().len(), walks[0].entered_again()), (6, 3, 0));
        let at_once = format!("{PAGE_TEXT}| [b.rs](../crates/b/src/b.rs) | `serve` |\n");
        assert_eq!(read(&at_once)[0].entered_again(), 1);
    }

    #[test]
    fn walks_that_are_missing_are_named() {
        let tree = Tree::from_files(&[(PAGE, PAGE_TEXT)]);
        assert!(check(&tree).broken.contains(&format!("{PAGE}: there is no walk \"A fence\"")));
    }
}
