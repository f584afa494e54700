//! Parses words of the command line as numbers, times, choices.

use super::error::FlagError;
use super::nearest::nearest;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Longest time that a flag accepts: a year, far below what 64 bits of nanoseconds can hold.
const SECONDS_MAX: u32 = 366 * 24 * 3600;

/// A word as text for messages; invalid UTF-8 is replaced.
pub fn shown(word: &OsStr) -> String {
    word.to_string_lossy().into_owned()
}

pub fn text(flag: &str, word: OsString) -> Result<String, FlagError> {
    word.into_string().map_err(|word| FlagError::NotUtf8 { flag: flag.to_owned(), value: shown(&word) })
}

/// A whole number from `min` to `max`.
pub fn number(flag: &str, word: &OsStr, min: u32, max: u32) -> Result<u32, FlagError> {
    let number = word.to_str().and_then(|text| text.parse().ok()).filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| FlagError::NotANumber { flag: flag.to_owned(), value: shown(word), min, max })
}

/// Seconds, possibly with a fraction, as nanoseconds.
pub fn seconds_ns(flag: &str, word: &OsStr) -> Result<u64, FlagError> {
    let seconds = word.to_str().and_then(|text| text.parse::<f64>().ok());
    let seconds = seconds.filter(|seconds| (0.0..=f64::from(SECONDS_MAX)).contains(seconds));
    let refused = || FlagError::NotSeconds { flag: flag.to_owned(), value: shown(word), max: SECONDS_MAX };
    Ok((seconds.ok_or_else(refused)? * 1e9) as u64)
}

/// One word of a fixed list.
pub fn choice<T: Copy>(
    flag: &str,
    word: &OsStr,
    list: &[(&'static str, T)],
    choices: impl Into<Cow<'static, str>>,
) -> Result<T, FlagError> {
    let typed = shown(word);
    let found = list.iter().find(|(name, _)| *name == typed).map(|&(_, value)| value);
    found.ok_or_else(|| not_a_choice(flag, &typed, list.iter().map(|(name, _)| *name), choices))
}

/// The advice for a word that is not in a table: `choose a, b or c`.
pub fn choose_from<T>(list: &[(&'static str, T)]) -> String {
    let names: Vec<&str> = list.iter().map(|(name, _)| *name).collect();
    match names.split_last() {
        Some((last, before)) if !before.is_empty() => format!("choose {} or {last}", before.join(", ")),
        _ => format!("choose {}", names.concat()),
    }
}

pub fn not_a_choice<'a>(
    flag: &str,
    typed: &str,
    names: impl Iterator<Item = &'a str>,
    choices: impl Into<Cow<'static, str>>,
) -> FlagError {
    let nearest = nearest(typed, names).map(str::to_owned);
    FlagError::NotAChoice { flag: flag.to_owned(), value: typed.to_owned(), choices: choices.into(), nearest }
}

/// `NAME=VALUE`, checked.
pub fn variable(flag: &str, word: OsString) -> Result<Vec<u8>, FlagError> {
    match word.as_bytes().iter().position(|&byte| byte == b'=') {
        Some(1..) => Ok(word.into_vec()),
        Some(0) | None => Err(FlagError::NotAVariable { flag: flag.to_owned(), value: shown(&word) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact_enough_and_bounded() {
        let ns = |text: &str| seconds_ns("--timeout", OsStr::new(text)).ok();
        assert_eq!(ns("1.5"), Some(1_500_000_000));
        assert_eq!(ns("0"), Some(0));
        for bad in ["-1", "NaN", "inf", "1e12", "", "5s"] {
            assert_eq!(ns(bad), None, "{bad}");
        }
    }

    #[test]
    fn numbers_name_their_bounds() {
        assert_eq!(number("-n", OsStr::new("7"), 0, 8), Ok(7));
        let error = number("-n", OsStr::new("9"), 0, 8).expect_err("too large");
        assert_eq!(error.to_string(), "-n 9: give a whole number from 0 to 8");
        assert!(number("-n", OsStr::new("-1"), 0, 8).is_err());
    }

    #[test]
    fn choices_suggest_the_nearest() {
        let error = choice("--pmi", OsStr::new("simpel"), &[("simple", 1), ("none", 2)], "choose simple or none");
        assert_eq!(error.expect_err("misspelt").to_string(), "--pmi simpel: did you mean simple?");
        let error = choice("--pmi", OsStr::new("pmi9"), &[("simple", 1), ("none", 2)], "choose simple or none");
        assert_eq!(error.expect_err("unknown").to_string(), "--pmi pmi9: choose simple or none");
        assert_eq!(choose_from(&[("a", 1), ("b", 2), ("c", 3)]), "choose a, b or c");
        assert_eq!(choose_from(&[("a", 1)]), "choose a");
    }

    #[test]
    fn a_variable_needs_a_name() {
        assert_eq!(variable("-x", "A=".into()), Ok(b"A=".to_vec()));
        assert!(variable("-x", "=1".into()).is_err());
        assert!(variable("-x", "A".into()).is_err());
    }
}
