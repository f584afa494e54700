//! The specification of a slow file system. It is also passed, as arguments, to the process that serves the file
//! system.
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use crate::spec::{os_value as value, take_flags};

/// Time for a small operation on a loaded file server. `BANDWIDTH_MB`: bandwidth of one file server (both chosen).
const DELAY: Duration = Duration::from_micros(200);
const BANDWIDTH_MB: u64 = 500;
/// Time for which the kernel caches attributes. Chosen: below the 3 to 60 s that NFS clients use for files.
const TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct Spec {
    /// Path of the `wireup-testbed` program.
    pub program: PathBuf,
    /// The folder that is served.
    pub source: PathBuf,
    /// An existing folder on which the file system is mounted. It may be `source` itself, but not inside of `source`.
    pub mount: PathBuf,
    /// Further existing folders on which the file system is mounted: the kernel has a cache for each of these views, as
    /// for hosts of their own, while one server serves all.
    pub views: Vec<PathBuf>,
    /// The file to which operations are appended; `None`: a [`SlowFs`](super::SlowFs) keeps them in memory.
    pub log: Option<PathBuf>,
    /// Time that every operation takes, apart from reading bytes.
    pub delay: Duration,
    /// Bandwidth with which the server reads files, in 10^6 bytes per second.
    pub bandwidth_mb: u64,
    /// Time for which the kernel keeps attributes and results of look-ups.
    pub timeout: Duration,
    /// Whether the kernel drops the contents of a file whenever the file is opened.
    pub cold: bool,
}

impl Spec {
    pub fn new(program: impl Into<PathBuf>, source: impl Into<PathBuf>, mount: impl Into<PathBuf>) -> Spec {
        Spec {
            program: program.into(),
            source: source.into(),
            mount: mount.into(),
            views: Vec::new(),
            log: None,
            delay: DELAY,
            bandwidth_mb: BANDWIDTH_MB,
            timeout: TIMEOUT,
            cold: false,
        }
    }

    pub fn arguments(&self) -> Vec<OsString> {
        let mut list: Vec<OsString> = Vec::new();
        let paths = [("--source", Some(&self.source)), ("--mount", Some(&self.mount)), ("--log", self.log.as_ref())];
        for (flag, path) in paths {
            list.extend(path.into_iter().flat_map(|path| [OsString::from(flag), path.into()]));
        }
        list.extend(self.views.iter().flat_map(|view| [OsString::from("--view"), view.into()]));
        for (flag, number) in [
            ("--delay-us", self.delay.as_micros()),
            ("--bandwidth-mb", self.bandwidth_mb.into()),
            ("--timeout-s", self.timeout.as_secs().into()),
        ] {
            list.extend([OsString::from(flag), number.to_string().into()]);
        }
        list.extend(self.cold.then(|| "--cold".into()));
        list
    }

    /// Parses flags up to `--` or the first word that is not a flag; the words after that remain in `words`.
    pub fn parse(program: PathBuf, words: &mut Vec<OsString>) -> Result<Spec, String> {
        let mut spec = Spec::new(program, "", "");
        take_flags(words, |flag, words| spec.take_flag(flag, words))?;
        for (path, flag) in
            [(Some(&spec.source), "--source"), (Some(&spec.mount), "--mount"), (spec.log.as_ref(), "--log")]
        {
            if path.is_none_or(|path| path.as_os_str().is_empty()) {
                return Err(format!("{flag} is missing"));
            }
        }
        Ok(spec)
    }

    fn take_flag(&mut self, flag: &OsStr, words: &mut Vec<OsString>) -> Result<(), String> {
        match flag.to_str().unwrap_or_default() {
            "--source" => self.source = value(flag, words)?.into(),
            "--mount" => self.mount = value(flag, words)?.into(),
            "--view" => self.views.push(value(flag, words)?.into()),
            "--log" => self.log = Some(value(flag, words)?.into()),
            "--delay-us" => self.delay = Duration::from_micros(number(flag, words, 0)?),
            "--bandwidth-mb" => self.bandwidth_mb = number(flag, words, 1)?,
            "--timeout-s" => self.timeout = Duration::from_secs(number(flag, words, 0)?),
            "--cold" => self.cold = true,
            other => return Err(format!("{other}: no such flag; see wireup-testbed --help")),
        }
        Ok(())
    }
}

fn number(flag: &OsStr, words: &mut Vec<OsString>, least: u64) -> Result<u64, String> {
    let text = value(flag, words)?;
    let number = text.to_str().and_then(|text| text.parse().ok()).filter(|number| *number >= least);
    number.ok_or_else(|| format!("{} {}: not a number from {least} on", flag.display(), text.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn a_specification_round_trips_through_arguments() {
        let mut spec = Spec::new("/bin/x", OsString::from_vec(b"/a b/\xff".to_vec()), "/mnt");
        spec.views = vec!["/mnt1".into(), "/mnt2".into()];
        spec.log = Some("/tmp/log".into());
        spec.delay = Duration::from_micros(7);
        spec.bandwidth_mb = 8;
        spec.timeout = Duration::ZERO;
        spec.cold = true;
        let mut words = spec.arguments();
        words.extend(["--".into(), "-x".into()]);
        let back = Spec::parse("/bin/x".into(), &mut words).expect("its own arguments");
        assert_eq!(format!("{back:?}"), format!("{spec:?}"));
        assert_eq!(words, ["-x"]);
    }

    #[test]
    fn wrong_flags_are_named() {
        for (words, part) in [
            (vec!["--no"], "--no:"),
            (vec!["--source"], "--source: its value"),
            (vec!["--source", "/a", "--log", "/b", "--", "x"], "--mount is missing"),
            (vec!["--source", "/a", "--mount", "/b"], "--log is missing"),
            (vec!["--bandwidth-mb", "0"], "--bandwidth-mb 0"),
            (vec!["--delay-us", "fast"], "--delay-us fast"),
        ] {
            let mut words = words.into_iter().map(OsString::from).collect();
            let error = Spec::parse("x".into(), &mut words).expect_err("wrong flags");
            assert!(error.contains(part), "{error}");
        }
    }
}
