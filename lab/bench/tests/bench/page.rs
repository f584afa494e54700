//! `docs/reference/bench.md` is printed from the help texts. `BLESS=1` writes it.

use wireup_flags::Help;
use xtask::layout;

#[test]
fn the_page_of_flags_is_the_programs_help() {
    let path = layout::root().join("docs/reference/bench.md");
    let mut text = "# wireup bench\n\nPrinted from the help texts of `wireup-bench`, a program of its own: \
                    `cargo build --release -p wireup-bench` builds it next to `wireup`.\n"
        .to_owned();
    for command in wireup_bench::COMMANDS {
        text.push_str(&format!("\n## wireup {}\n\n```\n{}```\n", command.name, command.help(Help::All)));
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).expect("the page can be written");
    }
    assert!(std::fs::read_to_string(&path).unwrap_or_default() == text, "{}: run with BLESS=1", path.display());
}
