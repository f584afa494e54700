//! `wireup complete`: called by the completion scripts of bash, zsh and fish (`complete/`) for the candidates of a
//! word.
//!
//! Its arguments are the words after `wireup`, the last one unfinished. It prints a candidate a line, with a tab and
//! its meaning, or one line that says what the shell itself is to complete: `:program`, `:files`, `:folders` or
//! `:nothing`.

use crate::{help, out};
use std::ffi::OsString;
use wireup_flags::{Completion, Flag};

pub const BASH: &str = include_str!("complete/wireup.bash");
pub const ZSH: &str = include_str!("complete/_wireup");
pub const FISH: &str = include_str!("complete/wireup.fish");

pub fn main(words: impl Iterator<Item = OsString>) -> u8 {
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
        Completion::Flags(flags) => flags.into_iter().map(flag).collect(),
        Completion::Program => ":program\n".to_owned(),
        Completion::Files => ":files\n".to_owned(),
        Completion::Folders => ":folders\n".to_owned(),
        Completion::Nothing => ":nothing\n".to_owned(),
    }
}

fn flag(flag: &Flag) -> String {
    let end = [". ", "; ", " ("].into_iter().filter_map(|end| flag.help.find(end)).min();
    format!("{}\t{}\n", flag.name(), flag.help[..end.unwrap_or(flag.help.len())].trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

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
