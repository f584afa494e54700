//! The command line of `wireup pmi`.

use lexopt::prelude::*;
use std::ffi::OsString;
use wireup_wire::pmi::Dialect;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Exchange,
    Init,
    Info,
    Abort { code: u8 },
    Leave,
    Help,
}

/// How many other ranks' keys each rank gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gets {
    All,
    Some(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags {
    pub action: Action,
    pub dialect: Dialect,
    pub value_len: usize,
    pub rounds: u32,
    pub gets: Gets,
    pub check: bool,
}

/// Parses the arguments after `pmi`.
pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Flags, lexopt::Error> {
    let mut parser = lexopt::Parser::from_args(args);
    let mut flags =
        Flags { action: Action::Help, dialect: Dialect::Pmi1, value_len: 32, rounds: 1, gets: Gets::All, check: false };
    let mut words = Vec::new();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => return Ok(Flags { action: Action::Help, ..flags }),
            Long("dialect") => flags.dialect = parser.value()?.parse_with(dialect)?,
            Long("value-len") => flags.value_len = parser.value()?.parse()?,
            Long("rounds") => flags.rounds = parser.value()?.parse_with(at_least_one)?,
            Long("get") => flags.gets = parser.value()?.parse_with(gets)?,
            Long("check") => flags.check = true,
            Value(word) => words.push(word.string()?),
            other => return Err(other.unexpected()),
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    flags.action = match words[..] {
        ["exchange"] => Action::Exchange,
        ["init"] => Action::Init,
        ["info"] => Action::Info,
        ["leave"] => Action::Leave,
        ["abort", code] => {
            let code = code.parse().map_err(|_| format!("abort takes an exit code from 0 to 255, not {code:?}"))?;
            Action::Abort { code }
        }
        ["abort"] => return Err("abort takes an exit code".into()),
        [] => return Err("no action given; use exchange, init, info, abort CODE or leave".into()),
        [word, ..] => {
            return Err(format!("unknown action {word:?}; use exchange, init, info, abort CODE or leave").into());
        }
    };
    Ok(flags)
}

/// The dialect's number on the command line.
pub fn number(dialect: Dialect) -> u8 {
    match dialect {
        Dialect::Pmi1 => 1,
        Dialect::Pmi2 => 2,
    }
}

fn dialect(text: &str) -> Result<Dialect, &'static str> {
    match text {
        "1" => Ok(Dialect::Pmi1),
        "2" => Ok(Dialect::Pmi2),
        _ => Err("a dialect is 1 or 2"),
    }
}

fn at_least_one(text: &str) -> Result<u32, &'static str> {
    text.parse().ok().filter(|rounds| *rounds > 0).ok_or("a number from 1 on")
}

fn gets(text: &str) -> Result<Gets, &'static str> {
    match text {
        "all" => Ok(Gets::All),
        "none" => Ok(Gets::Some(0)),
        _ => text.parse().map(Gets::Some).map_err(|_| "all, none or a number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Flags, String> {
        parse(line.split_whitespace().map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_in_any_order() {
        let flags = parsed("--dialect 2 exchange --value-len=100 --get 5 --check --rounds 3").unwrap();
        let expected = Flags {
            action: Action::Exchange,
            dialect: Dialect::Pmi2,
            value_len: 100,
            rounds: 3,
            gets: Gets::Some(5),
            check: true,
        };
        assert_eq!(flags, expected);
        assert_eq!(parsed("abort 7").unwrap().action, Action::Abort { code: 7 });
        assert_eq!(parsed("exchange --help").unwrap().action, Action::Help);
    }

    #[test]
    fn mistakes_are_named() {
        for (line, says) in [
            ("", "no action given"),
            ("abort", "takes an exit code"),
            ("abort 256", "256"),
            ("fly", "unknown action \"fly\""),
            ("exchange --dialect 3", "1 or 2"),
            ("exchange --rounds 0", "from 1 on"),
            ("exchange --speed", "--speed"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(says), "{line:?}: {error}");
        }
    }
}
