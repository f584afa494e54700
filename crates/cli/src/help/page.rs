//! `docs/reference/flags.md` is printed from the flags' table and the help texts. A changed flag is a changed page: `BLESS=1` writes it.

use super::{FLAGS, GROUPS, shown, table};
use crate::{doctor, install, pmi, replay, session};
use std::fmt::Write as _;
use std::path::Path;

const HEAD: &str = "\
# Flags

Printed from the program's own table of flags and its help texts; a test compares this page with them. `wireup help COMMAND` shows
the same. The benchmarks list their flags with `wireup bench launch --help` and the like.

## wireup run

```
wireup run [FLAGS] PROGRAM [ARGUMENTS] [: [FLAGS] PROGRAM [ARGUMENTS]]...
```

Flags come before the program. One dash is as good as two (`-np`, `-wdir`), and `--flag=VALUE` is the same as `--flag VALUE`.
\"Per program\" flags apply to the program that follows them, all others to the whole job.
";

/// The commands whose help stands on the page as it is printed.
fn commands() -> Vec<(&'static str, String)> {
    let of_sessions = ["up", "down", "status", "jobs", "kill", "attach"].map(|name| (name, session::help::of(name)));
    let others = [("doctor", doctor::HELP), ("pmi", pmi::HELP), ("replay", replay::HELP), ("install", install::HELP)];
    of_sessions.into_iter().chain(others.map(|(name, help)| (name, help.to_owned()))).collect()
}

fn page() -> String {
    let mut text = HEAD.to_owned();
    for (group, title) in GROUPS {
        write!(text, "\n### {title}\n\n| flag | also | meaning |\n| --- | --- | --- |\n")
            .expect("a string takes every text");
        for flag in FLAGS.iter().filter(|flag| flag.group == *group) {
            let shown = shown(flag);
            let also = flag.names.iter().map(|name| table::dashed(name)).filter(|name| !is_in(&shown, name));
            let also: Vec<String> = also.map(|name| format!("`{name}`")).collect();
            writeln!(text, "| `{shown}` | {} | {} |", also.join(", "), cell(flag.help))
                .expect("a string takes every text");
        }
    }
    for (name, help) in commands() {
        write!(text, "\n## wireup {name}\n\n```\n{help}```\n").expect("a string takes every text");
    }
    text
}

/// Whether a flag's heading has this name already.
fn is_in(shown: &str, name: &str) -> bool {
    shown.split([' ', ',']).any(|word| word == name)
}

/// Text for a cell of a table, in which some characters mean something.
fn cell(help: &str) -> String {
    let mut text = String::new();
    for c in help.chars() {
        if matches!(c, '|' | '*' | '_' | '[' | '<') {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

#[test]
fn the_page_is_what_the_program_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/flags.md");
    let text = page();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).expect("the page can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "docs/reference/flags.md differs; run with BLESS=1 if the change is meant");
}

#[test]
fn characters_of_tables_are_escaped() {
    assert_eq!(cell("n[2-5], a|b, SSH_*"), "n\\[2-5], a\\|b, SSH\\_\\*");
}
