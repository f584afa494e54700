//! Reads the value of a flag in the form that the flag expects.

use super::error::FlagError;
use super::parsed::{MapBy, Stdin, Variable};
use super::table::{Flag, Takes};
use super::values;
use std::ffi::{OsStr, OsString};
use std::iter::Peekable;
use std::os::unix::ffi::OsStrExt;

const MAP_BY_CHOICES: &str = "choose slot, node or ppr:N:node";

/// What follows a flag: the value attached to it and the following words.
pub struct ValueReader<'a, W: Iterator<Item = OsString>> {
    pub flag: &'static Flag,
    /// As typed.
    pub name: String,
    pub attached: Option<OsString>,
    pub words: &'a mut Peekable<W>,
}

impl<W: Iterator<Item = OsString>> ValueReader<'_, W> {
    pub fn word(&mut self) -> Result<OsString, FlagError> {
        let attached = self.attached.take();
        attached.or_else(|| self.words.next_if(|word| word != ":")).ok_or_else(|| self.missing())
    }

    fn missing(&self) -> FlagError {
        let wants = match self.flag.takes {
            Takes::Word(wants) | Takes::MaybeNumber(wants) => wants,
            Takes::Variable => "NAME=VALUE",
            Takes::Nothing => "nothing",
        };
        FlagError::MissingValue { flag: self.name.clone(), wants }
    }

    pub fn text(&mut self) -> Result<String, FlagError> {
        let word = self.word()?;
        values::text(&self.name, word)
    }

    pub fn number(&mut self, min: u32) -> Result<u32, FlagError> {
        let word = self.word()?;
        values::number(&self.name, &word, min, u32::MAX)
    }

    pub fn maybe_number(&mut self) -> Result<Option<u32>, FlagError> {
        let digits = |word: &OsString| word.as_bytes().iter().all(u8::is_ascii_digit) && !word.is_empty();
        match self.attached.take().or_else(|| self.words.next_if(digits)) {
            Some(word) => values::number(&self.name, &word, 0, u32::MAX).map(Some),
            None => Ok(None),
        }
    }

    pub fn seconds_ns(&mut self) -> Result<u64, FlagError> {
        let word = self.word()?;
        values::seconds_ns(&self.name, &word)
    }

    /// Seconds, more than zero.
    pub fn some_seconds_ns(&mut self) -> Result<u64, FlagError> {
        match self.seconds_ns()? {
            0 => Err(FlagError::ZeroSeconds { flag: self.name.clone() }),
            ns => Ok(ns),
        }
    }

    /// One of a fixed list of words.
    pub fn choice<T: Copy>(&mut self, list: &[(&'static str, T)]) -> Result<T, FlagError> {
        let word = self.word()?;
        values::choice(&self.name, &word, list, values::choose_from(list))
    }

    /// `NAME=VALUE`, or the two words `NAME VALUE`.
    pub fn variable(&mut self) -> Result<Vec<u8>, FlagError> {
        let mut word = self.word()?;
        if !word.as_bytes().contains(&b'=') {
            word.push("=");
            word.push(self.words.next().ok_or_else(|| self.missing())?);
        }
        values::variable(&self.name, word)
    }

    pub fn export(&mut self) -> Result<Variable, FlagError> {
        let word = self.word()?;
        if word.as_bytes().contains(&b'=') || word.is_empty() {
            return values::variable(&self.name, word).map(Variable::Set);
        }
        Ok(Variable::Export(word))
    }

    pub fn map_by(&mut self) -> Result<MapBy, FlagError> {
        let word = self.word()?;
        if let Some(per_node) = word.to_str().and_then(|text| text.strip_prefix("ppr:")?.strip_suffix(":node")) {
            return values::number(&self.name, OsStr::new(per_node), 1, u32::MAX).map(MapBy::Ppr);
        }
        values::choice(&self.name, &word, &[("slot", MapBy::Slot), ("node", MapBy::Node)], MAP_BY_CHOICES)
    }

    pub fn stdin(&mut self) -> Result<Stdin, FlagError> {
        let word = self.word()?;
        if word.as_bytes().first().is_some_and(u8::is_ascii_digit) {
            return values::number(&self.name, &word, 0, u32::MAX).map(Stdin::Rank);
        }
        values::choice(&self.name, &word, &[("all", Stdin::All), ("none", Stdin::None)], "give a rank, all or none")
    }

    /// Refuses an attached value that the flag does not take.
    pub fn refuse_rest(self) -> Result<(), FlagError> {
        match self.attached {
            Some(value) => Err(FlagError::UnexpectedValue { flag: self.name, value: values::shown(&value) }),
            None => Ok(()),
        }
    }
}
