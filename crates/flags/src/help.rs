//! Prints help texts.

use crate::command::{Command, Flag, Takes};

/// The column where explanations begin, and the width of lines.
const TEXT_COLUMN: usize = 26;
const WIDTH: usize = 118;

/// How much `--help` and `--help-all` show of a command's flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Help {
    Usual,
    All,
}

impl Command {
    pub fn help(&self, which: Help) -> String {
        let mut text = format!("wireup {}: {}.\n{}", self.name, self.purpose, self.intro);
        for section in self.sections {
            let listed = section.flags.iter().filter(|flag| !flag.is_hidden());
            let listed = listed.filter(|flag| which == Help::All || !flag.is_advanced);
            let entries: String = listed.map(|flag| entry(&flag.heading(), &flag.explanation())).collect();
            if !entries.is_empty() {
                text.push_str(&format!("\n{}:\n{entries}", section.title));
            }
        }
        text + &self.other_help(which) + self.end
    }

    /// The line that names the other help text, if there are two.
    fn other_help(&self, which: Help) -> String {
        match (self.listed().filter(|flag| flag.is_advanced).count(), which) {
            (0, _) => String::new(),
            (more, Help::Usual) => format!("\n{more} more flags, for special cases: wireup {} --help-all\n", self.name),
            (_, Help::All) => format!("\nThe usual flags only: wireup {} --help\n", self.name),
        }
    }
}

impl Flag {
    /// The flag with its short names and its value.
    pub fn heading(&self) -> String {
        let short = self.names[1..].iter().filter(|name| !name.starts_with("--"));
        let mut names: Vec<&str> = short.chain(&self.names[..1]).copied().collect();
        names.sort_by_key(|name| name.len());
        let value = match self.takes {
            Takes::Nothing => String::new(),
            Takes::Word(value) => format!(" {value}"),
            Takes::MaybeNumber(value) => format!(" [{value}]"),
            Takes::Attached(value) => format!("[={value}]"),
        };
        format!("{}{value}", names.join(", "))
    }

    pub fn explanation(&self) -> String {
        match self.default {
            Some(default) => format!("{} (default: {default}).", self.help.trim_end_matches('.')),
            None => self.help.to_owned(),
        }
    }
}

/// One entry of a list with its text wrapped.
pub fn entry(name: &str, help: &str) -> String {
    let mut text = String::new();
    let mut line = format!("  {name:<width$}", width = TEXT_COLUMN - 2);
    for word in help.split(' ') {
        if line.len() + 1 + word.len() > WIDTH {
            text.push_str(line.trim_end());
            text.push('\n');
            line = " ".repeat(TEXT_COLUMN);
        }
        if line.len() > TEXT_COLUMN || !line.ends_with(' ') {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Section, Words};

    #[test]
    fn help_entries_break_between_words() {
        assert_eq!(entry("-n, -np N", "Number of ranks."), "  -n, -np N               Number of ranks.\n");
        let long = entry("--fanout K", &"word ".repeat(40));
        assert!(long.lines().skip(1).all(|line| line.starts_with("                          word")), "{long}");
    }

    #[test]
    fn each_help_text_lists_its_flags_and_no_empty_section() {
        const SECTIONS: &[Section] = &[
            Section {
                title: "Flags",
                flags: &[
                    Flag::switch(&["--label", "-l", "--tag-output"], "Label lines."),
                    Flag::value(&["--rounds"], "N", "Rounds.").or("5"),
                    Flag { takes: Takes::MaybeNumber("RANK"), ..Flag::switch(&["--pty"], "A terminal.") },
                    Flag::switch(&["--secret"], ""),
                    Flag::switch(&["--odd"], "Odd.").advanced(),
                ],
            },
            Section { title: "Hidden", flags: &[Flag::switch(&["--other"], "")] },
            Section { title: "Advanced", flags: &[Flag::switch(&["--odder"], "Odder.").advanced()] },
        ];
        let command = Command::example(Words::Named(&[]), SECTIONS);
        let command = Command { intro: "\n  wireup try\n", end: "\nEnd.\n", ..command };
        let usual = "wireup try: try it.\n\n  wireup try\n\nFlags:\n  -l, --label             Label lines.\n  \
                     --rounds N              Rounds (default: 5).\n  --pty [RANK]            A terminal.\n\n2 more \
                     flags, for special cases: wireup try --help-all\n\nEnd.\n";
        assert_eq!(command.help(Help::Usual), usual);
        let all = command.help(Help::All);
        assert!(all.contains("A terminal.\n  --odd                   Odd.\n\nAdvanced:\n  --odder"), "{all}");
        assert!(all.ends_with("Odder.\n\nThe usual flags only: wireup try --help\n\nEnd.\n"), "{all}");
    }
}
