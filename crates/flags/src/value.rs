//! The value of a flag, read in the form that the flag expects.

use crate::error::Error;
use crate::hints::nearest;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Longest time that a flag accepts: a year, far below what 64 bits of nanoseconds can hold.
const SECONDS_MAX: u32 = 366 * 24 * 3600;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    /// The flag's name as typed.
    pub flag: String,
    pub word: OsString,
}

impl Value {
    /// A part of this value, or another form of it, for messages and further reading.
    pub fn part(&self, word: impl AsRef<OsStr>) -> Value {
        Value { flag: self.flag.clone(), word: word.as_ref().to_owned() }
    }

    /// The word as text for messages; invalid UTF-8 is replaced.
    pub fn shown(&self) -> Cow<'_, str> {
        self.word.to_string_lossy()
    }

    pub fn refused(&self, problem: impl Into<Cow<'static, str>>) -> Error {
        Error::Value { flag: self.flag.clone(), value: self.shown().into_owned(), problem: problem.into() }
    }

    pub fn path(&self) -> Result<PathBuf, Error> {
        Ok(PathBuf::from(&self.word))
    }

    pub fn text(&self) -> Result<String, Error> {
        self.str().map(str::to_owned)
    }

    fn str(&self) -> Result<&str, Error> {
        self.word.to_str().ok_or_else(|| self.refused("not valid UTF-8; use a name in UTF-8"))
    }

    pub fn number(&self) -> Result<u32, Error> {
        self.number_in(0, u32::MAX)
    }

    pub fn at_least_one(&self) -> Result<u32, Error> {
        self.number_in(1, u32::MAX)
    }

    pub fn number_in(&self, min: u32, max: u32) -> Result<u32, Error> {
        let number =
            self.word.to_str().and_then(|text| text.parse().ok()).filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| self.refused(format!("give a whole number from {min} to {max}")))
    }

    /// Seconds, possibly with a fraction, as nanoseconds.
    pub fn seconds_ns(&self) -> Result<u64, Error> {
        let seconds = self.word.to_str().and_then(|text| text.parse::<f64>().ok());
        let seconds = seconds.filter(|seconds| (0.0..=f64::from(SECONDS_MAX)).contains(seconds));
        let refused = || self.refused(format!("give seconds from 0 to {SECONDS_MAX}, such as 30 or 0.5"));
        Ok((seconds.ok_or_else(refused)? * 1e9) as u64)
    }

    /// Seconds, more than zero, as nanoseconds.
    pub fn some_seconds_ns(&self) -> Result<u64, Error> {
        match self.seconds_ns()? {
            0 => Err(Error::Flag { flag: self.flag.clone(), problem: "must be more than 0 seconds" }),
            ns => Ok(ns),
        }
    }

    pub fn choice<T: Copy>(&self, list: &[(&'static str, T)]) -> Result<T, Error> {
        let names: Vec<&str> = list.iter().map(|(name, _)| *name).collect();
        let advice = match names.split_last() {
            Some((last, before)) if !before.is_empty() => format!("choose {} or {last}", before.join(", ")),
            _ => format!("choose {}", names.concat()),
        };
        self.choice_or(list, advice)
    }

    /// One of a fixed list of words, with this advice for a word that resembles none of them.
    pub fn choice_or<T: Copy>(
        &self,
        list: &[(&'static str, T)],
        advice: impl Into<Cow<'static, str>>,
    ) -> Result<T, Error> {
        let typed = self.shown();
        let found = list.iter().find(|(name, _)| *name == typed).map(|&(_, value)| value);
        found.ok_or_else(|| match nearest(&typed, list.iter().map(|(name, _)| *name)) {
            Some(name) => self.refused(format!("did you mean {name}?")),
            None => self.refused(advice),
        })
    }

    /// `A,B,..`: each part is read as a value of the same flag.
    pub fn list<T>(&self, read: impl Fn(&Value) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        self.str()?.split(',').map(|part| read(&self.part(part))).collect()
    }

    /// `NAME=VALUE` in bytes, checked.
    pub fn variable(&self) -> Result<Vec<u8>, Error> {
        match self.word.as_bytes().iter().position(|&byte| byte == b'=') {
            Some(1..) => Ok(self.word.as_bytes().to_vec()),
            Some(0) | None => Err(self.refused("write NAME=VALUE, with a name that is not empty")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(flag: &str, word: &str) -> Value {
        Value { flag: flag.to_owned(), word: word.into() }
    }

    #[test]
    fn fractional_seconds_are_parsed_and_bounded() {
        let ns = |text: &str| value("--timeout", text).seconds_ns().ok();
        assert_eq!(ns("1.5"), Some(1_500_000_000));
        assert_eq!(ns("0"), Some(0));
        for bad in ["-1", "NaN", "inf", "1e12", "", "5s"] {
            assert_eq!(ns(bad), None, "{bad}");
        }
        let error = value("--timeout", "0").some_seconds_ns().expect_err("zero");
        assert_eq!(error.to_string(), "--timeout must be more than 0 seconds");
    }

    #[test]
    fn numbers_out_of_range_name_their_bounds() {
        assert_eq!(value("-n", "7").number_in(0, 8), Ok(7));
        let error = value("-n", "9").number_in(0, 8).expect_err("too large");
        assert_eq!(error.to_string(), "-n 9: give a whole number from 0 to 8");
        assert!(value("-n", "-1").number().is_err() && value("-n", "0").at_least_one().is_err());
        assert_eq!(value("--nodes", "2,3").list(Value::number), Ok(vec![2, 3]));
        let error = value("--nodes", "2,x").list(|part| part.number_in(1, 9)).expect_err("no number");
        assert_eq!(error.to_string(), "--nodes x: give a whole number from 1 to 9");
    }

    #[test]
    fn wrong_choices_suggest_the_nearest() {
        let list = [("simple", 1), ("none", 2), ("both", 3)];
        let chosen = |word: &str| value("--pmi", word).choice(&list).map_err(|error| error.to_string());
        assert_eq!(chosen("none"), Ok(2));
        assert_eq!(chosen("simpel"), Err("--pmi simpel: did you mean simple?".to_owned()));
        assert_eq!(chosen("pmi9"), Err("--pmi pmi9: choose simple, none or both".to_owned()));
        let error = value("--pmi", "x").choice(&list[..1]).expect_err("not in the list");
        assert_eq!(error.to_string(), "--pmi x: choose simple");
    }

    #[test]
    fn a_variable_needs_a_name_and_an_equals_sign() {
        assert_eq!(value("-x", "A=").variable(), Ok(b"A=".to_vec()));
        assert!(value("-x", "=1").variable().is_err());
        assert!(value("-x", "A").variable().is_err());
    }
}
