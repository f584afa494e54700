//! `docs/reference/flags.md` is printed from the flags' table and the help texts. A changed flag is a changed page:
//! `BLESS=1` writes it.

use super::COMMANDS;
use crate::flags::table::RUN;
use std::path::Path;
use wireup_flags::Help;

const HEAD: &str = "\
# Flags

Printed from the program's own table of flags and its help texts; a test compares this page with them. `wireup help \
COMMAND` shows
the same.

## wireup run

```
wireup run [FLAGS] PROGRAM [ARGUMENTS] [: [FLAGS] PROGRAM [ARGUMENTS]]...
```

Flags come before the program. One dash is as good as two (`-np`, `-wdir`), and `--flag=VALUE` is the same as \
`--flag VALUE`.
\"Per program\" flags apply to the program that follows them, all others to the whole job.
";

fn page() -> String {
    let mut text = HEAD.to_owned();
    for section in RUN.sections {
        let listed: Vec<_> = section.flags.iter().filter(|flag| !flag.is_hidden()).collect();
        if !listed.is_empty() {
            text.push_str(&format!("\n### {}\n\n| flag | also | meaning |\n| --- | --- | --- |\n", section.title));
        }
        for flag in listed {
            let heading = flag.heading();
            let also = flag
                .names
                .iter()
                .filter(|name| !heading.split([' ', ',', '[']).any(|word| word == **name))
                .map(|name| format!("`{name}`"));
            let also = also.collect::<Vec<_>>().join(", ");
            text.push_str(&format!("| `{heading}` | {also} | {} |\n", cell(&flag.explanation())));
        }
    }
    for command in COMMANDS.into_iter().filter(|command| command.name != RUN.name) {
        text.push_str(&format!("\n## wireup {}\n\n```\n{}```\n", command.name, command.help(Help::All)));
    }
    text
}

/// A text in which the special characters of Markdown are escaped, for a cell of a table.
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

/// Compares a page of `docs/reference` with the text that the program's tables give. `BLESS=1` writes it.
pub fn check_page(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).expect("the page can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "docs/reference/{name} differs; run with BLESS=1 if the change is meant");
}

#[test]
fn the_flags_page_matches_the_programs_help() {
    check_page("flags.md", &page());
}

#[test]
fn table_characters_are_escaped() {
    assert_eq!(cell("n[2-5], a|b, SSH_*"), "n\\[2-5], a\\|b, SSH\\_\\*");
}
