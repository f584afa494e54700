//! `lab/bench/README.md` is generated from the help texts. `BLESS=1` writes it.

use wireup_bench::flags::{DRY_RUN, HOSTS, JSON, LIMIT, NO_WORDS, REMOTE_SHELL, ROUNDS, SHARED, WIREUP, WIREUP_ARG};
use wireup_flags::{Command, Help, Section};
use xtask::layout;

/// Section of flags that most benchmarks have and that the page explains only once.
const OF_MOST: Section = Section {
    title: "Flags of most benchmarks",
    flags: &[ROUNDS, LIMIT, WIREUP, WIREUP_ARG, HOSTS, REMOTE_SHELL, SHARED, DRY_RUN, JSON],
};

/// The help text of a command without the flags of [`OF_MOST`].
fn own_help(command: &Command, of_most: &str) -> String {
    let without = |text: String, flag: &str| text.replace(&format!("\n  --{}", flag.trim_end()), "");
    let text = of_most.split("\n  --").skip(1).fold(command.help(Help::All), without);
    let emptied = ["\nHosts:\n", "\nRuns:\n", "\nResults:\n"];
    emptied.iter().fold(text + "\n", |text, title| text.replace(&format!("{title}\n"), "\n")).trim_end().to_owned()
        + "\n"
}

#[test]
fn the_page_of_flags_is_the_programs_help() {
    let path = layout::root().join("lab/bench/README.md");
    let of_most = Command { sections: &[OF_MOST], ..NO_WORDS }.help(Help::All);
    let mut text = "# wireup bench\n\nPrinted from the help texts of `wireup-bench`, a program of its own: \
                    `cargo build --release -p wireup-bench` builds it next to `wireup`.\n"
        .to_owned();
    for command in wireup_bench::COMMANDS {
        text.push_str(&format!("\n## wireup {}\n\n```\n{}", command.name, own_help(command, &of_most)));
        if command.name == "bench" {
            text.push_str(of_most.split_once('\n').expect("a first line").1);
        }
        text.push_str("```\n");
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).expect("the page can be written");
    }
    assert!(std::fs::read_to_string(&path).unwrap_or_default() == text, "{}: run with BLESS=1", path.display());
}
