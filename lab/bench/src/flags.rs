//! The flags that benchmarks have in common. Each benchmark adds its own flags, and reads them from its `Line`.
use wireup_flags::{Command, Error, Flag, Line, Section, Value, Words};

/// The command line of a benchmark that takes only flags.
pub const NO_WORDS: Command =
    Command { name: "", purpose: "", intro: "", words: Words::Named(&[]), sections: &[], end: "" };

pub const WIREUP: Flag =
    Flag::value(&["--wireup"], "PATH", "The wireup to time (default: next to this program, else on PATH).");
pub const LIBRARY: Flag =
    Flag::value(&["--library"], "PATH", "libpmi2.so.0 (default: next to the wireup to time, or in ../lib from there).");
pub const WIREUP_ARG: Flag = Flag::value(&["--wireup-arg"], "ARG", "A further argument of wireup run (repeatable).");
pub const ROUNDS: Flag = Flag::value(
    &["--rounds"],
    "N",
    "Rounds that count, after one to warm up (default: depends on the case, see --dry-run).",
);
pub const LIMIT: Flag =
    Flag::value(&["--limit"], "SECONDS", "Time limit of each command (default: depends on the case).");
pub const DRY_RUN: Flag = Flag::switch(&["--dry-run", "--list"], "List what would be run.");
pub const JSON: Flag = Flag {
    help: "Print every measured value as a JSON line, and all else on standard error; =FILE writes the lines to FILE.",
    ..wireup_flags::JSON
};
pub const RESULTS: Section = Section { title: "Results", flags: &[DRY_RUN, JSON] };

/// Selects parts of a benchmark; the default names all of them.
pub const PART: Flag = Flag::value(&["--part"], "A,B,..", "Only these.");

/// The parts that the user has selected by `flag`, whose default names all of them.
pub fn parts(line: &Line, flag: Flag) -> Result<Vec<&'static str>, Error> {
    let all = flag.default.into_iter().flat_map(|all| all.split(','));
    let all: Vec<_> = all.map(|part| (part, part)).collect();
    line.one(flag, |value| value.list(|part| part.choice(&all)))
}

pub const HOSTS: Flag = Flag::value(&["--hosts"], "A,B,..", "Run across these hosts.");
pub const REMOTE_SHELL: Flag = Flag::value(&["--remote-shell"], "CMD", "Called as CMD HOST COMMAND (default: ssh).");
pub const SHARED: Flag = Flag::value(
    &["--shared"],
    "DIR",
    "A folder for test programs that all hosts see (default: the current directory).",
);
pub const ACROSS: Section = Section { title: "Hosts", flags: &[HOSTS, REMOTE_SHELL, SHARED] };

/// The hosts on which jobs run; empty: only this machine.
pub fn hosts(line: &Line) -> Result<Vec<String>, Error> {
    Ok(line.last(HOSTS, host_names)?.unwrap_or_default())
}

/// Parses a list of host names. Only plain names: launchers differ in how they write ranges.
fn host_names(value: &Value) -> Result<Vec<String>, Error> {
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._@".contains(c));
    value.list(|name| match name.text()? {
        text if is_name(&text) => Ok(text),
        _ => Err(name.refused("not a plain host name; expected A,B,..")),
    })
}

/// Parses `NAME=VALUE`, both of them not empty.
pub fn pair(value: &Value) -> Result<(String, String), Error> {
    match value.text()?.split_once('=') {
        Some((name, rest)) if !name.is_empty() && !rest.is_empty() => Ok((name.to_owned(), rest.to_owned())),
        _ => Err(value.refused("expected NAME=VALUE")),
    }
}

/// The error for flags that are valid one by one, but not together.
pub fn together<T>(problem: impl ToString) -> Result<T, Error> {
    Err(Error::Together(problem.to_string()))
}
