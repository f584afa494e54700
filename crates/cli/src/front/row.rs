//! Options of other launchers as data: how one is spelled, what it takes, what it does here. Parameters and variables
//! of launchers are rows, too.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use wireup_flags::{Flag, Value};

/// An option of a launcher, or several that mean the same.
#[derive(Clone, Copy)]
pub struct Row {
    /// Names without dashes: each may be typed with one or two.
    pub names: &'static [&'static str],
    pub takes: Takes,
    pub effect: Effect,
    pub rule: Option<Rule>,
}

/// The words that follow an option; the texts are their names in the documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    Nothing,
    /// The option takes one word, or a value after `=`.
    One(&'static str),
    /// The option takes two words; `NAME=VALUE` in one word is accepted too.
    Two(&'static str, &'static str),
    /// The option takes a value after `=`, or nothing.
    Attached(&'static str),
}

/// All that an option can do.
#[derive(Clone, Copy)]
pub enum Effect {
    /// The option acts as a flag of `wireup run`, with a value made from the option's.
    Gives(&'static Flag, Make),
    /// Sets a variable of the ranks to the launcher's own value joined with the typed one; `first`: the typed one
    /// first.
    Joins {
        first: bool,
    },
    /// Sets a parameter of Open MPI as a variable by this flag; a parameter of its launcher does what its row says.
    Parameter(&'static Flag),
    /// Carries out a parameter of Open MPI's launcher, which libraries do not read.
    LauncherParameter,
    ParameterFiles,
    /// Carries out each word of a list; the text tells the user which words there are.
    List(&'static [(&'static [&'static str], Listed)], &'static str),
    /// A folder for the output of all ranks, optionally followed by `:nocopy`.
    OutputFolder,
    RemoteShell(ShellPart),
    /// Reads programs with their options from a file.
    ProgramFile,
    /// Sets the folders in which programs are looked up.
    ProgramPath,
    Version,
    Quiet,
    ReportPid,
    /// The option asks for what wireup always does, as the text explains.
    Always(&'static str),
    /// The option has no effect in wireup; a note tells the user so, with the text as the reason.
    Nothing(&'static str),
    /// The option is an error; the text says what to use instead.
    Refused(&'static str),
}

/// The explanation of an effect that is not simply that of a flag of `wireup run`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    pub says: &'static str,
    /// A use of the option, and the words of `wireup run` that mean the same. A test compares them.
    pub example: (&'static str, &'static str),
}

#[derive(Clone, Copy)]
pub enum Listed {
    Flag(&'static Flag),
    /// `WORD=DIR`: a folder for the output of all ranks.
    OutputFolder,
    /// `WORD=FILE`: files for the output of the ranks.
    OutputFiles,
    /// The word needs no action: it states the default, or modifies another word of the list.
    Accepted,
    /// The word has no effect; a note for the user gives the text as the reason.
    Nothing(&'static str),
}

/// A part of the remote shell, which may be put together from several options.
#[derive(Clone, Copy)]
pub enum ShellPart {
    /// The program that starts processes: `ssh`, `slurm`.
    Launcher,
    Program,
    Arguments,
}

/// How the value of a flag is made from the value of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Make {
    /// The value as typed; `NAME=VALUE` if two words were typed.
    Typed,
    /// The word stored here, whatever the user typed.
    Word(&'static str),
    /// The word stored here if the typed value is true; otherwise the flag is not given.
    IfTrue(&'static str),
    /// The word stored here if the typed value is false; otherwise the flag is not given.
    IfFalse(&'static str),
    /// The value as typed, unless it is one of the words stored here: then the flag is not given.
    Unless(&'static [&'static str]),
    /// The value as typed if it is a number; else the flag is not given.
    IfNumber,
    /// A number of at least 1, between the two texts stored here.
    Number(&'static str, &'static str),
    /// The text stored here, followed by the value as typed.
    Behind(&'static str),
    /// If the value is the first word of a pair, the second word of that pair.
    OneOf(&'static [(&'static str, &'static str)]),
    Lowercase,
    First,
    /// Hydra's letters for rank, host and node become those of `wireup run`.
    Pattern,
    Mapping,
    Binding,
    Ranking,
    /// The ranks that read standard input: one rank, `all` or `none`.
    Reader,
    /// The variable as typed. For `NAME*` the flag is not given, because ranks inherit all variables whose names begin
    /// with `NAME` anyway.
    Export,
    /// The names, without `list:` before them. For `all` the flag is not given.
    EnvNames,
    /// The remote shell for a kind of launcher, if that is not the default.
    Launcher,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Typed {
    /// The option's name with its dashes.
    pub option: String,
    pub words: Vec<OsString>,
}

impl Typed {
    pub fn new(option: &str, words: impl IntoIterator<Item = impl Into<OsString>>) -> Typed {
        Typed { option: option.to_owned(), words: words.into_iter().map(Into::into).collect() }
    }

    /// The only word after the option, as the value of a flag.
    pub fn value(&self) -> Value {
        Value { flag: self.option.clone(), word: self.words.first().cloned().unwrap_or_default() }
    }

    /// `NAME=VALUE` of two words, or of one that contains it.
    pub fn pair(&self) -> OsString {
        let mut joined = self.words.first().cloned().unwrap_or_default();
        if let Some(second) = self.words.get(1) {
            joined.push("=");
            joined.push(second);
        }
        joined
    }

    /// Why this option and `other` cannot be given together.
    pub fn contradiction(&self, other: &Typed) -> String {
        format!("{} and {} contradict each other; leave one of them out", self.shown(), other.shown())
    }

    /// The option with its words, for messages.
    pub fn shown(&self) -> String {
        self.words.iter().fold(self.option.clone(), |text, word| text + " " + &String::from_utf8_lossy(word.as_bytes()))
    }
}

impl Row {
    /// Whether this row and `other` mean the same.
    pub fn is_like(&self, other: &Row) -> bool {
        let has_same_effect = match (self.effect, other.effect) {
            (Effect::Gives(one, make), Effect::Gives(other, other_make)) => (one, make) == (other, other_make),
            _ => std::ptr::eq(self, other),
        };
        has_same_effect && self.takes == other.takes
    }
}

const fn row(names: &'static [&'static str], takes: Takes, effect: Effect) -> Row {
    Row { names, takes, effect, rule: None }
}

/// A row for an option that acts as a flag of `wireup run` without a value.
pub const fn switch(names: &'static [&'static str], flag: &'static Flag) -> Row {
    preset(names, flag, "")
}

pub const fn value(names: &'static [&'static str], takes: &'static str, flag: &'static Flag) -> Row {
    made(names, takes, flag, Make::Typed)
}

/// A row for an option that acts as a flag of `wireup run` whose value `make` makes from the option's.
pub const fn made(names: &'static [&'static str], takes: &'static str, flag: &'static Flag, make: Make) -> Row {
    row(names, Takes::One(takes), Effect::Gives(flag, make))
}

/// A row for a variable in one word or two; `make` gives the flag's value for `NAME=VALUE`.
pub const fn variable(names: &'static [&'static str], flag: &'static Flag, make: Make) -> Row {
    row(names, Takes::Two("NAME", "VALUE"), Effect::Gives(flag, make))
}

/// A row for an option without a value that acts as a flag with this value.
pub const fn preset(names: &'static [&'static str], flag: &'static Flag, value: &'static str) -> Row {
    row(names, Takes::Nothing, Effect::Gives(flag, Make::Word(value)))
}

pub const fn does(names: &'static [&'static str], takes: Takes, effect: Effect, rule: Rule) -> Row {
    Row { names, takes, effect, rule: Some(rule) }
}

/// `means`: the words of `wireup run` that mean the same as `example`.
pub const fn rule(says: &'static str, example: &'static str, means: &'static str) -> Rule {
    Rule { says, example: (example, means) }
}

pub const fn always(names: &'static [&'static str], takes: Takes, why: &'static str) -> Row {
    row(names, takes, Effect::Always(why))
}

pub const fn no_effect(names: &'static [&'static str], takes: Takes, why: &'static str) -> Row {
    row(names, takes, Effect::Nothing(why))
}

pub const fn refused(names: &'static [&'static str], takes: Takes, instead: &'static str) -> Row {
    row(names, takes, Effect::Refused(instead))
}
