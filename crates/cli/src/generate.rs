//! `wireup generate`: manual pages and completions for shells, from the tables of flags; and what the completions ask.

pub mod flags;

use crate::front;
use crate::{help, out};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use wireup_flags::{Completion, Flag, Line, ManPage};

const VERSION: &str = concat!("wireup ", env!("CARGO_PKG_VERSION"));

pub const BASH: &str = include_str!("complete/wireup.bash");
pub const ZSH: &str = include_str!("complete/_wireup");
pub const FISH: &str = include_str!("complete/wireup.fish");

pub fn run(line: &Line) -> Result<u8, String> {
    let what = line.words[0].to_string_lossy();
    let script = match (&*what, line.words.get(1)) {
        ("man", Some(folder)) => return write_pages(Path::new(folder)).map(|()| 0),
        ("man", None) => return Err("generate man: the folder is missing: wireup generate man DIR".to_owned()),
        ("complete-bash", None) => BASH,
        ("complete-zsh", None) => ZSH,
        ("complete-fish", None) => FISH,
        (other, _) => {
            return Err(format!("generate {other}: give complete-bash, complete-zsh, complete-fish or man DIR"));
        }
    };
    out::print(script);
    Ok(0)
}

fn write_pages(folder: &Path) -> Result<(), String> {
    let failed = |error| format!("generate man: write to {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    man_pages().into_iter().try_for_each(|(name, text)| fs::write(folder.join(name), text)).map_err(failed)
}

/// All manual pages of section 1: the name of each file and its text.
pub fn man_pages() -> Vec<(String, String)> {
    let of_commands = help::COMMANDS.map(|command| (format!("wireup-{}", command.name), command.man(VERSION)));
    let own = [("wireup".to_owned(), overview()), ("wireup-mpiexec".to_owned(), front::man_page(VERSION))];
    let pages = own.into_iter().chain(of_commands);
    pages.map(|(name, page)| (format!("{name}.1"), see_also(page, &name).render())).collect()
}

fn overview() -> ManPage {
    let page = ManPage::new("wireup", VERSION, "start parallel jobs")
        .section("Synopsis")
        .prose("wireup COMMAND [FLAGS] [ARGUMENTS]")
        .section("Description")
        .prose(help::OVERVIEW)
        .section("Commands");
    help::all().fold(page, |page, (name, purpose)| page.entry(name, purpose))
}

fn see_also(page: ManPage, name: &str) -> ManPage {
    let names = help::COMMANDS.map(|command| format!("wireup-{}", command.name)).into_iter();
    let others = ["wireup", "wireup-mpiexec", "wireup-bench", "wireup-simulate"].map(str::to_owned);
    let names = names.chain(others).filter(|other| other != name);
    page.section("See also").prose(&names.map(|name| format!("{name}(1)")).collect::<Vec<_>>().join(", "))
}

/// `wireup complete`, which the completion scripts of bash, zsh and fish (`complete/`) call for the candidates of a
/// word. Its arguments are the words after `wireup`, the last one unfinished. It prints a candidate a line, with a tab
/// and its meaning, or one line that says what the shell itself is to complete: `:program`, `:files`, `:folders` or
/// `:nothing`.
pub fn complete(words: impl Iterator<Item = OsString>) -> u8 {
    out::print(&answer(words.collect()));
    0
}

fn answer(mut words: Vec<OsString>) -> String {
    // `wireup -n 4 ./app` is `wireup run -n 4 ./app`.
    if words.first().is_some_and(|word| word.as_encoded_bytes().starts_with(b"-")) {
        words.insert(0, "run".into());
    }
    if words.len() < 2 || words.len() == 2 && words[0] == "help" {
        return help::all().map(|(name, purpose)| format!("{name}\t{purpose}\n")).collect();
    }
    let name = words.remove(0);
    let Some(command) = help::find(&name) else {
        return ":files\n".to_owned();
    };
    match command.complete(words) {
        Completion::Flags(flags) => flags.into_iter().map(candidate).collect(),
        Completion::Program => ":program\n".to_owned(),
        Completion::Files => ":files\n".to_owned(),
        Completion::Folders => ":folders\n".to_owned(),
        Completion::Nothing => ":nothing\n".to_owned(),
    }
}

fn candidate(flag: &Flag) -> String {
    let end = [". ", "; ", " ("].into_iter().filter_map(|end| flag.help.find(end)).min();
    format!("{}\t{}\n", flag.name(), flag.help[..end.unwrap_or(flag.help.len())].trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_each_command_with_its_flags() {
        let pages = man_pages();
        assert_eq!(pages.len(), help::COMMANDS.len() + 2);
        let page = |wanted: &str| pages.iter().find(|(name, _)| name == wanted).map(|(_, text)| text).expect(wanted);
        assert!(page("wireup-run.1").contains("\\-\\-hosts LIST"));
        assert!(page("wireup-mpiexec.1").contains("\\-hostfile"));
        for other in ["doctor", "bench", "simulate"] {
            assert!(page("wireup.1").contains(&format!("wireup\\-{other}(1)")), "{other}");
        }
    }

    fn asked(line: &str) -> String {
        answer(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn commands_flags_and_files_are_offered() {
        for line in ["", "ru", "help "] {
            assert!(asked(line).starts_with("run\tstart a job\n"), "{line}");
        }
        let flags = asked("run -n 4 --time");
        assert!(flags.lines().any(|line| line.starts_with("--timeout\tEnd the job")), "{flags}");
        assert!(flags.lines().all(|line| line.starts_with('-') && line.contains('\t')), "{flags}");
        assert_eq!(asked("run --hostfile "), ":files\n");
        assert_eq!(asked("run "), ":program\n");
        assert_eq!(asked("-n 4 "), ":program\n");
        assert!(asked("--virt").lines().any(|line| line.starts_with("--virtual-nodes\t")));
        for line in ["bench ", "report tr", "stage up fi"] {
            assert_eq!(asked(line), ":files\n", "{line}");
        }
        assert_eq!(asked("doctor "), ":program\n");
        assert!(asked("ps --sess").starts_with("--session\t"));
    }
}
