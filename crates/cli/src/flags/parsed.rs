//! The command line of `wireup run`, as typed.
//!
//! Flags end at the first word without a dash, the program; everything after it belongs to the program, up to a lone
//! `:`, where the flags of the next program begin.

use super::table::{DECIDED_BY_SESSION, FOR, HOST_FILE, PRELOAD, RUN};
pub use super::table::{Parsed, Program};
pub use super::values::{EnvList, Stage, Start, Variable};
use crate::configuration;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use wireup_flags::{Given, Help, Line};

/// Parses the words after `wireup run`; or finds the help that they request.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Result<Parsed, Help>, String> {
    let all: Vec<OsString> = args.into_iter().collect();
    let mut words = all.iter().cloned().peekable();
    let mut lines = Vec::new();
    loop {
        match RUN.parse_program(&mut words)? {
            Ok(line) => lines.push(with_ray(line)?),
            Err(help) => return Ok(Err(help)),
        }
        if words.next().is_none() {
            return Parsed::of_lines(lines, &all, "wireup run").map(Ok);
        }
    }
}

impl Parsed {
    /// A line for each program, out of these words of the command line of `command`.
    pub fn of_lines(lines: Vec<Line>, words: &[OsString], command: &str) -> Result<Parsed, String> {
        let alone = lines.len() == 1;
        let (mut programs, mut whole) = (Vec::with_capacity(lines.len()), Line::default());
        for (index, line) in lines.into_iter().enumerate() {
            if line.words.is_empty() {
                return Err(match alone {
                    true => format!("no program to run{}; try: {command} -n 4 ./app", taken_as_value(words)),
                    false => format!(
                        "program {} of the command line is missing; write a program before and after every \":\"",
                        index + 1
                    ),
                });
            }
            if let Some(given) = line.given.iter().find(|given| given.is(HOST_FILE)).filter(|_| index > 0) {
                let flag = &given.value.flag;
                return Err(format!("{flag} applies to the whole job; move it before the first program"));
            }
            whole.given.extend_from_slice(&line.given);
            programs.push(Program { flags: Parsed::read(&line)?, argv: line.words });
        }
        let of_session = [DECIDED_BY_SESSION, &[PRELOAD]].concat();
        Ok(Parsed { programs, ..Parsed::read(&configuration::complete(&RUN, &whole, &of_session)?)? })
    }
}

/// `--for ray`: one rank on each node, and the module that starts Ray there and then the program. Other values of these
/// flags have precedence.
fn with_ray(mut line: Line) -> Result<Line, String> {
    let is_ray = |given: &Given| given.is(FOR) && given.value.word == "ray";
    if line.words.is_empty() || !line.given.iter().any(is_ray) {
        return Ok(line);
    }
    let name = Path::new(&line.words[0]).file_name().unwrap_or_default().as_bytes();
    let python = if name.starts_with(b"python") { line.words[0].clone() } else { "python3".into() };
    let words = ["--ppn", "1", "--bind-to", "none", "--rank-env"].map(OsString::from);
    let module = [python, "-m".into(), "wireup_launcher.ray".into()];
    let words = words.into_iter().chain(module).chain(line.words.clone());
    let Ok(ray) = RUN.parse_program(&mut words.peekable())? else { return Ok(line) };
    line.given.retain(|given| !is_ray(given));
    Ok(Line { given: [ray.given, line.given].concat(), words: ray.words })
}

/// If the last word is the value of a flag, which may have been meant as the program, says so.
fn taken_as_value(words: &[OsString]) -> String {
    let is_flag = |word: &OsString| word.as_bytes().starts_with(b"-");
    let is_number = |word: &OsString| word.as_bytes().iter().all(u8::is_ascii_digit);
    match words {
        [.., flag, word] if is_flag(flag) && !is_flag(word) && !is_number(word) => {
            format!(": {} took {} as its value", flag.to_string_lossy(), word.to_string_lossy())
        }
        _ => String::new(),
    }
}

/// The command line of a test, which is valid.
#[cfg(test)]
pub fn parsed_words<W: Into<OsString>>(words: impl IntoIterator<Item = W>) -> Parsed {
    parse(words.into_iter().map(Into::into)).expect("a valid command line").expect("no request for help")
}

#[cfg(test)]
mod tests;
