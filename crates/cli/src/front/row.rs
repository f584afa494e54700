//! Options of other launchers: how one is spelled, what it takes, what it does here.

use super::error::FrontError;
use super::translation::Translation;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use wireup_flags::{Flag, Value};

/// An option, or several that mean the same.
#[derive(Clone, Copy)]
pub struct Row {
    /// Without dashes: each may be typed with one or two.
    pub names: &'static [&'static str],
    pub takes: Takes,
    pub effect: Effect,
}

/// The words that follow an option; the texts are their names in the documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    Nothing,
    /// One word, or a value behind `=`.
    One(&'static str),
    /// Two words; `NAME=VALUE` in one word is accepted too.
    Two(&'static str, &'static str),
    /// A value behind `=`, or nothing.
    Attached(&'static str),
}

#[derive(Clone, Copy)]
pub enum Effect {
    /// That of a flag of `wireup run`, with the same value.
    Same(&'static Flag),
    /// That of a flag of `wireup run` with this value.
    As(&'static Flag, &'static str),
    /// Something else.
    Does(&'static Rule),
    /// What it asks for is always so.
    Always(&'static str),
    /// It changes nothing here, which a note says.
    Nothing(&'static str),
    /// What to use instead.
    Refused(&'static str),
}

/// What an option does that is not simply a flag.
pub struct Rule {
    /// For the documentation.
    pub says: &'static str,
    /// A use of it, and the words of `wireup run` that mean the same. A test compares them.
    pub example: (&'static str, &'static str),
    pub act: fn(&mut Translation, &Typed) -> Result<(), FrontError>,
}

/// An option as it was typed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Typed {
    /// With its dashes.
    pub option: String,
    pub words: Vec<OsString>,
}

impl Typed {
    /// The only word.
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

    /// The option with its words, for messages.
    pub fn shown(&self) -> String {
        self.words.iter().fold(self.option.clone(), |text, word| text + " " + &String::from_utf8_lossy(word.as_bytes()))
    }
}

impl Row {
    const fn new(names: &'static [&'static str], takes: Takes, effect: Effect) -> Row {
        Row { names, takes, effect }
    }

    /// Whether both mean the same.
    pub fn is_like(&self, other: &Row) -> bool {
        let has_same_effect = match (self.effect, other.effect) {
            (Effect::Same(one), Effect::Same(other)) => one == other,
            (Effect::As(one, value), Effect::As(other, other_value)) => (one, value) == (other, other_value),
            (Effect::Does(one), Effect::Does(other)) => std::ptr::eq(one, other),
            _ => std::ptr::eq(self, other),
        };
        has_same_effect && self.takes == other.takes
    }
}

/// A flag of `wireup run` without a value.
pub const fn switch(names: &'static [&'static str], flag: &'static Flag) -> Row {
    Row::new(names, Takes::Nothing, Effect::Same(flag))
}

pub const fn value(names: &'static [&'static str], takes: &'static str, flag: &'static Flag) -> Row {
    Row::new(names, Takes::One(takes), Effect::Same(flag))
}

/// A variable in one word or two.
pub const fn variable(names: &'static [&'static str], flag: &'static Flag) -> Row {
    Row::new(names, Takes::Two("NAME", "VALUE"), Effect::Same(flag))
}

/// An option without a value, for a flag with one.
pub const fn preset(names: &'static [&'static str], flag: &'static Flag, value: &'static str) -> Row {
    Row::new(names, Takes::Nothing, Effect::As(flag, value))
}

pub const fn does(names: &'static [&'static str], takes: Takes, rule: &'static Rule) -> Row {
    Row::new(names, takes, Effect::Does(rule))
}

pub const fn always(names: &'static [&'static str], takes: Takes, why: &'static str) -> Row {
    Row::new(names, takes, Effect::Always(why))
}

pub const fn no_effect(names: &'static [&'static str], takes: Takes, why: &'static str) -> Row {
    Row::new(names, takes, Effect::Nothing(why))
}

pub const fn refused(names: &'static [&'static str], takes: Takes, instead: &'static str) -> Row {
    Row::new(names, takes, Effect::Refused(instead))
}
