//! Reads the words after a command's name.

use crate::command::{Command, Flag, Takes, Words};
use crate::error::Error;
use crate::help::Help;
use crate::hints::{foreign_hint, nearest};
use crate::line::{Given, JSON, Line, is_json_file};
use crate::value::Value;
use std::ffi::{OsStr, OsString};
use std::iter::Peekable;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Flags that every command has; they end the parsing.
const HELP: &Flag = &Flag::switch(&["--help", "-h"], "Show this text.");
const HELP_ALL: &Flag = &Flag::switch(&["--help-all"], "Show all flags.");

impl Command {
    /// Parses the words after the command's name, or finds the help that they request.
    pub fn parse(&self, words: impl IntoIterator<Item = OsString>) -> Result<Result<Line, Help>, Error> {
        self.parse_program(&mut words.into_iter().peekable())
    }

    /// Parses words up to the lone `:` that separates programs, which is left in `words`.
    pub fn parse_program<W: Iterator<Item = OsString>>(
        &self,
        words: &mut Peekable<W>,
    ) -> Result<Result<Line, Help>, Error> {
        let mut line = Line::default();
        let mut flags_ended = false;
        while let Some(word) = words.next_if(|word| !self.is_separator(word)) {
            if flags_ended || word.as_bytes().first() != Some(&b'-') || word == "-" {
                self.take_word(&mut line, word)?;
                flags_ended |= matches!(self.words, Words::Program);
            } else if word == "--" {
                flags_ended = true;
            } else {
                match self.flag(&word, words)? {
                    Ok(given) => line.given.push(given),
                    Err(help) => return Ok(Err(help)),
                }
            }
        }
        if let Words::Named(names) = self.words
            && let Some(word) = names.get(line.words.len()).filter(|word| !word.starts_with('['))
        {
            return Err(Error::MissingWord { command: self.name, word });
        }
        Ok(Ok(line))
    }

    /// Parses one flag, whose first word is `word`, with its value from `words`, or finds the help that it requests.
    pub fn flag<W: Iterator<Item = OsString>>(
        &self,
        word: &OsStr,
        words: &mut Peekable<W>,
    ) -> Result<Result<Given, Help>, Error> {
        let (flag, name, attached) = self.look_up(word)?;
        if flag == HELP || flag == HELP_ALL {
            return Ok(Err(if flag == HELP { Help::Usual } else { Help::All }));
        }
        Ok(Ok(Given { flag, value: self.value(flag, name, attached, words)? }))
    }

    fn is_separator(&self, word: &OsStr) -> bool {
        matches!(self.words, Words::Program) && word == ":"
    }

    fn take_word(&self, line: &mut Line, word: OsString) -> Result<(), Error> {
        if let Some(Given { value, .. }) = line.given.last().filter(|given| given.is(JSON))
            && line.words.is_empty()
            && value.word.is_empty()
            && is_json_file(&word)
        {
            return Err(Error::SeparateFile { flag: value.flag.clone(), word: word.to_string_lossy().into_owned() });
        }
        if let Words::Named(names) = self.words
            && line.words.len() >= names.len()
            && !names.last().is_some_and(|name| name.ends_with("..."))
        {
            let accepts: Vec<&str> = names.iter().copied().chain(self.listed().map(Flag::name)).collect();
            let word = word.to_string_lossy().into_owned();
            return Err(Error::UnexpectedWord { command: self.name, word, accepts: accepts.join(" ") });
        }
        line.words.push(word);
        Ok(())
    }

    /// The flag that a word names, the name as typed, and the attached value (`--np=4`, `-n4`).
    fn look_up(&self, word: &OsStr) -> Result<(&'static Flag, String, Option<OsString>), Error> {
        let bytes = word.as_bytes();
        let (typed, attached) = match bytes.iter().position(|&byte| byte == b'=') {
            Some(at) => (&bytes[..at], Some(OsString::from_vec(bytes[at + 1..].to_vec()))),
            None => (bytes, None),
        };
        let typed = String::from_utf8_lossy(typed).into_owned();
        let name = typed.strip_prefix("--").unwrap_or(&typed[1..]);
        if let Some(flag) = self.find(name) {
            return Ok((flag, typed, attached));
        }
        if let (None, Some(letter), Some(digits)) = (attached, typed.get(..2), typed.get(2..))
            && is_number(digits.as_ref())
            && let Some(flag) = self.find(&letter[1..])
            && matches!(flag.takes, Takes::Word(_))
        {
            return Ok((flag, letter.to_owned(), Some(digits.into())));
        }
        if let Some(hint) = foreign_hint(name, |ours| self.find(ours).is_some()) {
            return Err(Error::Foreign { flag: typed, hint });
        }
        let names = || self.listed().chain([HELP]).flat_map(|flag| flag.names).filter(|name| name.len() > 2);
        let nearest = nearest(name, names().map(|name| undashed(name)));
        let nearest = names().find(|name| Some(undashed(name)) == nearest).copied();
        Err(Error::Unknown { flag: typed, nearest, command: self.name })
    }

    fn find(&self, name: &str) -> Option<&'static Flag> {
        self.flags().chain([HELP, HELP_ALL]).find(|flag| flag.names.iter().any(|one| undashed(one) == name))
    }

    /// Whether a word is certainly meant as a flag.
    fn is_long_flag(&self, word: &OsStr) -> bool {
        let typed = word.to_str().and_then(|word| word.strip_prefix("--"));
        typed.and_then(|typed| typed.split('=').next()).is_some_and(|name| name.len() > 1 && self.find(name).is_some())
    }

    fn value<W: Iterator<Item = OsString>>(
        &self,
        flag: &Flag,
        name: String,
        attached: Option<OsString>,
        words: &mut Peekable<W>,
    ) -> Result<Value, Error> {
        let missing = |wants| Error::MissingValue { flag: name.clone(), wants };
        let word = match (flag.takes, attached) {
            (Takes::Nothing, None) => OsString::new(),
            (Takes::Nothing, Some(value)) => {
                return Err(Error::UnexpectedValue { flag: name, value: value.to_string_lossy().into_owned() });
            }
            (Takes::Word(_) | Takes::MaybeNumber(_) | Takes::Attached(_), Some(value)) => value,
            (Takes::Attached(_), None) => OsString::new(),
            (Takes::Word(wants), None) => {
                let word = words.next_if(|word| !self.is_separator(word)).ok_or_else(|| missing(wants))?;
                if self.is_long_flag(&word) {
                    return Err(Error::FlagAsValue { flag: name, wants, next: word.to_string_lossy().into_owned() });
                }
                word
            }
            (Takes::MaybeNumber(_), None) => words.next_if(|word| is_number(word)).unwrap_or_else(|| "0".into()),
        };
        Ok(Value { flag: name, word })
    }
}

fn is_number(word: &OsStr) -> bool {
    !word.is_empty() && word.as_bytes().iter().all(u8::is_ascii_digit)
}

fn undashed(name: &str) -> &str {
    name.trim_start_matches('-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JsonTo;
    use crate::command::Section;

    const RANKS: Flag = Flag::value(&["-n", "-np"], "N", "Ranks.");
    const LABEL: Flag = Flag::switch(&["--label", "-l"], "Label lines.");
    const PTY: Flag = Flag { takes: Takes::MaybeNumber("RANK"), ..Flag::switch(&["--pty"], "A terminal.") };
    const ROUNDS: Flag = Flag::value(&["--rounds"], "N", "Rounds.").or("5");
    const QUIET: Flag = Flag::switch(&["--quiet"], "");
    const SECTIONS: &[Section] = &[Section { title: "Flags", flags: &[RANKS, LABEL, PTY, ROUNDS, QUIET, JSON] }];

    const RUN: Command = Command::example(Words::Program, SECTIONS);
    const KILL: Command = Command::example(Words::Named(&["JOB", "[CODE]"]), SECTIONS);
    const REPLAY: Command = Command::example(Words::Named(&["FILE..."]), SECTIONS);

    fn parsed(command: &Command, line: &str) -> Result<Result<Line, Help>, String> {
        command.parse(line.split_whitespace().map(OsString::from)).map_err(|error| error.to_string())
    }

    fn line(command: &Command, text: &str) -> Line {
        parsed(command, text).expect(text).expect("no help")
    }

    #[test]
    fn a_value_may_follow_its_flag_in_any_usual_form() {
        for text in ["-n 4", "-np 4", "--np 4", "-n4", "-n=4", "--np=4", "--n 4"] {
            assert_eq!(line(&RUN, text).last(RANKS, Value::number), Ok(Some(4)), "{text}");
        }
        for (text, rank) in [("--pty", Some(0)), ("--pty 3", Some(3)), ("--pty=3 4", Some(3)), ("-l", None)] {
            assert_eq!(line(&RUN, text).last(PTY, Value::number), Ok(rank), "{text}");
        }
        assert!(line(&RUN, "-label -quiet").has(LABEL) && !line(&RUN, "-quiet").has(LABEL));
    }

    #[test]
    fn a_file_for_json_follows_an_equals_sign() {
        let to = |text| line(&RUN, text).last(JSON, JsonTo::read);
        for text in ["--json ./a", "--json=-", "--json="] {
            assert_eq!(to(text), Ok(Some(JsonTo::Stdout)), "{text}");
        }
        assert_eq!((to("-l"), to("--json=r.json ./a")), (Ok(None), Ok(Some(JsonTo::File("r.json".into())))));
        assert_eq!(line(&RUN, "--json -l r.json").words, ["r.json"]);
        for command in [&RUN, &KILL] {
            let problem = parsed(command, "--json r.json ./a").expect_err("the file is no program");
            assert_eq!(problem, "--json r.json: to write to this file, type --json=r.json");
        }
    }

    #[test]
    fn a_default_is_parsed_like_a_value() {
        assert_eq!(line(&RUN, "").one(ROUNDS, Value::number), Ok(5));
        assert_eq!(line(&RUN, "--rounds 2 --rounds 3").one(ROUNDS, Value::number), Ok(3));
        assert!(line(&RUN, "--rounds x --rounds 3").one(ROUNDS, Value::number).is_err());
    }

    #[test]
    fn a_program_ends_the_flags_and_a_colon_ends_the_program() {
        let mut words = "-n 2 ./a -n 3 -- x : --label".split(' ').map(OsString::from).peekable();
        let first = RUN.parse_program(&mut words).expect("no mistake").expect("no help");
        assert_eq!((first.given.len(), first.words), (1, ["./a", "-n", "3", "--", "x"].map(OsString::from).to_vec()));
        assert_eq!(words.next(), Some(":".into()));
        assert_eq!(line(&RUN, "-n 2 -- -odd-name").words, ["-odd-name"]);
        assert_eq!(line(&RUN, "-").words, ["-"]);
        assert_eq!(parsed(&RUN, "-l --help"), Ok(Err(Help::Usual)));
        assert_eq!(parsed(&RUN, "--help-all ./a"), Ok(Err(Help::All)));
        assert_eq!(line(&RUN, "./a -h").words, ["./a", "-h"]);
    }

    #[test]
    fn missing_and_surplus_words_are_refused() {
        assert_eq!(line(&KILL, "7 -l 8").words, ["7", "8"]);
        assert_eq!(line(&REPLAY, "a b c").words.len(), 3);
        assert_eq!(parsed(&KILL, "7 -h"), Ok(Err(Help::Usual)));
        let refused = |command, text| parsed(command, text).expect_err(text);
        assert_eq!(refused(&KILL, ""), "wireup try: JOB is missing; see wireup help try");
        assert_eq!(refused(&REPLAY, "-l"), "wireup try: FILE... is missing; see wireup help try");
        let accepts = "JOB [CODE] -n --label --pty --rounds --json";
        assert_eq!(refused(&KILL, "7 8 9"), format!("wireup try does not know 9; it accepts {accepts}"));
    }

    #[test]
    fn wrong_flags_name_the_next_step() {
        let refused = |text| parsed(&RUN, text).expect_err(text);
        assert_eq!(refused("-lable"), "unknown flag -lable; did you mean --label?");
        assert_eq!(refused("--hlep=2"), "unknown flag --hlep; did you mean --help?");
        assert_eq!(refused("--quite"), "unknown flag --quite; see wireup help try for the flags");
        assert_eq!(refused("-l4"), "unknown flag -l4; see wireup help try for the flags");
        assert_eq!(refused("-n"), "-n needs a value: -n N");
        assert_eq!(refused("-n : ./a"), "-n needs a value: -n N");
        let wrong =
            "--rounds needs a value: --rounds N, but --label follows; if that is the value, write --rounds=--label";
        assert_eq!(refused("--rounds --label"), wrong);
        assert_eq!(line(&RUN, "--rounds=--label --rounds -x --rounds --x").given.len(), 3);
        assert_eq!(refused("--label=3"), "--label takes no value, remove \"=3\"");
        for odd in ["--=", "-=1", "---", "-\u{fc}4"] {
            assert!(refused(odd).starts_with("unknown flag"), "{odd}");
        }
        assert!(RUN.parse([OsString::from_vec(b"--\xff".to_vec())]).is_err());
    }
}
