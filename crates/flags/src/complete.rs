//! What a shell offers at the end of an unfinished command line.

use crate::command::{Command, Flag, Words};
use crate::error::Error;
use std::ffi::OsString;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Completion {
    /// Flags of the command; the shell leaves out those that do not begin with what is typed.
    Flags(Vec<&'static Flag>),
    /// The name of a program that can be executed.
    Program,
    Files,
    Folders,
    Nothing,
}

impl Command {
    /// `words`: those after the command's name; the last one is unfinished, and empty after a blank.
    pub fn complete(&self, mut words: Vec<OsString>) -> Completion {
        let unfinished = words.pop().unwrap_or_default();
        let mut words = words.into_iter().peekable();
        let mut typed = 0;
        while let Some(word) = words.next() {
            let is_flag = word.as_encoded_bytes().starts_with(b"-") && word.len() > 1;
            if matches!(self.words, Words::Program) && typed > 0 {
                typed = usize::from(word != ":");
            } else if !is_flag {
                typed += 1;
            } else if let Err(Error::MissingValue { wants, .. }) = self.flag(&word, &mut words) {
                return named(wants);
            }
        }
        match self.words {
            Words::Program if typed > 0 => Completion::Files,
            _ if unfinished.as_encoded_bytes().starts_with(b"-") => Completion::Flags(self.listed().collect()),
            Words::Program => Completion::Program,
            Words::Named(names) => names.get(typed).or(names.last()).map_or(Completion::Nothing, |name| named(name)),
        }
    }
}

/// What completes an argument or a flag's value that help texts call `name`, such as FILE or DIR.
fn named(name: &str) -> Completion {
    match name.trim_matches(['[', ']', '.']) {
        "DIR" => Completion::Folders,
        "FILE" | "PATH" | "PATH or SET" | "RECORDING" | "TRACE" => Completion::Files,
        "PROGRAM" => Completion::Program,
        _ => Completion::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Section;

    const RANKS: Flag = Flag::value(&["-n", "-np"], "N", "Ranks.");
    const OUTPUT: Flag = Flag::value(&["--output"], "DIR", "A folder.");
    const HIDDEN: Flag = Flag::switch(&["--hidden"], "");
    const SECTIONS: &[Section] = &[Section { title: "Flags", flags: &[RANKS, OUTPUT, HIDDEN] }];

    fn complete(words: Words, line: &str) -> Completion {
        Command::example(words, SECTIONS).complete(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn flags_values_and_words_are_offered_where_each_may_stand() {
        let flags = Completion::Flags(vec![&RANKS, &OUTPUT]);
        for (line, expected) in [
            ("", Completion::Program),
            ("-", flags.clone()),
            ("-n ", Completion::Nothing),
            ("-n 4 ", Completion::Program),
            ("-n4 --outp", flags.clone()),
            ("--output ", Completion::Folders),
            ("--hidden --unknown --output x ", Completion::Program),
            ("app -", Completion::Files),
            ("app --output x : ", Completion::Program),
            ("app : -", flags),
        ] {
            assert_eq!(complete(Words::Program, line), expected, "{line:?}");
        }
        assert_eq!(complete(Words::Named(&["JOB", "[FILE]..."]), ""), Completion::Nothing);
        assert_eq!(complete(Words::Named(&["JOB", "[FILE]..."]), "7 a b "), Completion::Files);
        assert_eq!(complete(Words::Named(&[]), ""), Completion::Nothing);
    }
}
