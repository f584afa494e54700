//! Manual pages in roff: of any command from its table of flags, of others from their parts.

use crate::command::{Command, Words};
use roff::{Roff, bold, roman};

/// The beginning of the line of a command's introduction that is its synopsis.
const USAGE: &str = "usage: ";

/// A page of section 1, filled from top to bottom.
pub struct ManPage(Roff);

impl ManPage {
    /// `name`: that of the page, such as `wireup-run`; `version`: the program with its version.
    pub fn new(name: &str, version: &str, purpose: &str) -> ManPage {
        let mut page = Roff::new();
        // No date: two builds of one version give the same page.
        page.control("TH", [&name.to_uppercase(), "1", "\"\"", version, "User Commands"]);
        page.control("SH", ["NAME"]).text([roman(format!("{name} - {purpose}"))]);
        ManPage(page)
    }

    pub fn section(mut self, title: &str) -> ManPage {
        self.0.control("SH", [&*title.to_uppercase()]);
        self
    }

    /// A part of a section.
    fn subsection(mut self, title: &str) -> ManPage {
        self.0.control("SS", [title]);
        self
    }

    /// Paragraphs. Lines that begin with a blank are examples and tables, which are not filled.
    pub fn prose(mut self, text: &str) -> ManPage {
        let shape = |line: &str| (line.is_empty(), line.starts_with(' '));
        let lines: Vec<&str> = text.trim_matches('\n').lines().collect();
        for (at, block) in lines.chunk_by(|one, next| shape(one) == shape(next)).enumerate() {
            match shape(block[0]) {
                (true, _) => continue,
                (_, true) => self.examples(block),
                (_, false) if at == 0 => self.0.text([roman(block.join("\n"))]),
                _ => self.0.control("PP", []).text([roman(block.join("\n"))]),
            };
        }
        self
    }

    fn examples(&mut self, lines: &[&str]) -> &mut Roff {
        self.0.control("RS", ["2"]).control("EX", []);
        for line in lines {
            self.0.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
        self.0.control("EE", []).control("RE", [])
    }

    /// An entry of a list.
    pub fn entry(mut self, heading: &str, text: &str) -> ManPage {
        self.0.control("TP", []).text([bold(heading)]).text([roman(text)]);
        self
    }

    pub fn render(&self) -> String {
        self.0.render()
    }
}

impl Command {
    pub fn man(&self, version: &str) -> ManPage {
        let page = self.page(version).prose(&self.synopsis()).section("Description").prose(&self.description());
        let page = self.entries(page, ManPage::section);
        if self.end.is_empty() { page } else { page.section("Notes").prose(self.end) }
    }

    /// The page of a program of its own: this command, and each of `commands` in a section.
    pub fn man_with(&self, commands: &[&Command], version: &str) -> ManPage {
        let own = self.listed().next().map(|_| self);
        let usages = own.into_iter().chain(commands.iter().copied()).map(|command| format!("  {}", command.synopsis()));
        let page = self.page(version).prose(&usages.collect::<Vec<_>>().join("\n"));
        let page = page.section("Description").prose(&self.description());
        let page = self.entries(page, ManPage::section);
        commands.iter().fold(page, |page, command| {
            let about = format!("Purpose: {}.\n{}", command.purpose, command.description());
            let page = page.section(&format!("wireup {}", command.name)).prose(&about);
            command.entries(page, ManPage::subsection).prose(command.end)
        })
    }

    /// The page up to the title of the synopsis.
    fn page(&self, version: &str) -> ManPage {
        ManPage::new(&format!("wireup-{}", self.name), version, self.purpose).section("Synopsis")
    }

    fn description(&self) -> String {
        self.intro.lines().filter(|line| !line.starts_with(USAGE)).collect::<Vec<_>>().join("\n")
    }

    /// Appends the listed flags, each section under a title.
    fn entries(&self, mut page: ManPage, title: fn(ManPage, &str) -> ManPage) -> ManPage {
        for section in self.sections.iter().filter(|section| section.flags.iter().any(|flag| !flag.is_hidden())) {
            page = title(page, section.title);
            for flag in section.flags.iter().filter(|flag| !flag.is_hidden()) {
                page = page.entry(&flag.heading(), &flag.explanation());
            }
        }
        page
    }

    fn synopsis(&self) -> String {
        if let Some(usage) = self.intro.lines().find_map(|line| line.strip_prefix(USAGE)) {
            return usage.to_owned();
        }
        let words = match self.words {
            Words::Named(names) => names.join(" "),
            Words::Program => "PROGRAM [ARGUMENTS]".to_owned(),
        };
        let flags = if self.listed().next().is_some() { " [FLAGS]" } else { "" };
        format!("wireup {}{flags} {words}", self.name).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Flag, Section};

    #[test]
    fn a_page_has_every_listed_flag_and_keeps_examples_as_they_are() {
        const FLAGS: &[Flag] = &[Flag::value(&["--rounds", "-r"], "N", "Rounds.").or("5"), Flag::switch(&["--x"], "")];
        let command = Command {
            intro: "\n  wireup try   one\n  .dotted\n\nIt tries.\n'Quoted'.\n",
            end: "\nEnd.\n",
            ..Command::example(Words::Named(&["JOB"]), &[Section { title: "Flags", flags: FLAGS }])
        };
        let page = command.man("wireup 1").render();
        let body = page.split_once(".TH").expect("a title").1;
        assert_eq!(
            body,
            " WIREUP-TRY 1 \"\" \"wireup 1\" \"User Commands\"\n.SH NAME\nwireup\\-try \\- try it\n.SH SYNOPSIS\n\
             wireup try [FLAGS] JOB\n.SH DESCRIPTION\n.RS 2\n.EX\nwireup try   one\n\\&.dotted\n.EE\n.RE\n.PP\n\
             It tries.\n\\*(AqQuoted\\*(Aq.\n.SH FLAGS\n.TP\n\\fB\\-r, \\-\\-rounds N\\fR\n\
             Rounds (default: 5).\n.SH NOTES\nEnd.\n"
        );
    }

    #[test]
    fn a_program_has_a_section_for_each_of_its_commands() {
        const FLAGS: &[Flag] = &[Flag::switch(&["--x"], "Do x.")];
        let program = Command { name: "measure", intro: "\nIt measures.\n", ..Command::example(Words::Program, &[]) };
        let part = Command {
            name: "measure links",
            purpose: "time links",
            intro: "\nIt times.\n",
            ..Command::example(Words::Named(&[]), &[Section { title: "Flags", flags: FLAGS }])
        };
        let page = program.man_with(&[&part], "wireup 1").render();
        let body = page.split_once(".SH SYNOPSIS").expect("a synopsis").1;
        assert_eq!(
            body,
            "\n.RS 2\n.EX\nwireup measure links [FLAGS]\n.EE\n.RE\n.SH DESCRIPTION\nIt measures.\n.SH \"WIREUP MEASURE \
             LINKS\"\nPurpose: time links.\n.PP\nIt times.\n.SS Flags\n.TP\n\\fB\\-\\-x\\fR\nDo x.\n"
        );
    }
}
