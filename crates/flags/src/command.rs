//! The description of a command: what it is for, its words and its flags.

use crate::value::Value;

#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// The command's name, as typed after `wireup`.
    pub name: &'static str,
    /// What the command does, in a few words without a full stop.
    pub purpose: &'static str,
    /// Examples and explanations before the flags; whole lines, after an empty one.
    pub intro: &'static str,
    pub words: Words,
    pub sections: &'static [Section],
    /// What follows the flags; whole lines, after an empty one.
    pub end: &'static str,
}

/// The words of a command that are not flags.
#[derive(Clone, Copy, Debug)]
pub enum Words {
    /// The names of the words in order. A word whose name is in brackets may be left out; the last word may be repeated
    /// if its name ends in three dots.
    Named(&'static [&'static str]),
    /// A program, which ends the flags, and its arguments, up to a lone `:`.
    Program,
}

/// Flags under a title of the help text.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    pub title: &'static str,
    pub flags: &'static [Flag],
}

#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The flag's names with dashes, as in help texts and messages; the first one is the flag's identity.
    pub names: &'static [&'static str],
    pub takes: Takes,
    /// The flag's help without its default. If empty, the flag is accepted, but neither listed nor suggested.
    pub help: &'static str,
    /// The value if the flag is not given.
    pub default: Option<&'static str>,
    /// Whether only `--help-all` lists the flag, because few users need it.
    pub is_advanced: bool,
}

/// Flags with the same first name are equal, because commands explain the same flag in different words.
impl PartialEq for Flag {
    fn eq(&self, other: &Flag) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Flag {}

/// The value of a flag. The text is its name in help texts and messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    Nothing,
    Word(&'static str),
    /// A number; the value is 0 if no number follows.
    MaybeNumber(&'static str),
    /// A word directly after `=`; without `=` the value is empty.
    Attached(&'static str),
}

impl Flag {
    pub const fn switch(names: &'static [&'static str], help: &'static str) -> Flag {
        Flag { names, takes: Takes::Nothing, help, default: None, is_advanced: false }
    }

    pub const fn value(names: &'static [&'static str], value: &'static str, help: &'static str) -> Flag {
        Flag { takes: Takes::Word(value), ..Flag::switch(names, help) }
    }

    /// This flag with a default, which is read like a typed value.
    pub const fn or(self, default: &'static str) -> Flag {
        Flag { default: Some(default), ..self }
    }

    /// This flag, listed only by `--help-all`.
    pub const fn advanced(self) -> Flag {
        Flag { is_advanced: true, ..self }
    }

    pub fn name(&self) -> &'static str {
        self.names[0]
    }

    /// The default in the form of a typed value.
    pub fn default_value(&self) -> Option<Value> {
        self.default.map(|default| Value { flag: self.name().to_owned(), word: default.into() })
    }

    pub fn is_hidden(&self) -> bool {
        self.help.is_empty()
    }
}

impl Command {
    pub fn flags(&self) -> impl Iterator<Item = &'static Flag> + use<> {
        self.sections.iter().flat_map(|section| section.flags)
    }

    pub(crate) fn listed(&self) -> impl Iterator<Item = &'static Flag> + use<> {
        self.flags().filter(|flag| !flag.is_hidden())
    }
}

#[cfg(test)]
impl Command {
    pub(crate) const fn example(words: Words, sections: &'static [Section]) -> Command {
        Command { name: "try", purpose: "try it", intro: "", words, sections, end: "" }
    }
}
