//! The command lines of the smaller commands: some flags of `wireup run`, a few of their own, one or two words.

use super::error::FlagError;
use super::nearest;
use super::parsed::{self, Parsed, Section};
use super::table::{self, Flag, Id};
use super::value_reader::ValueReader;
use super::values;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The description of a command's line.
pub struct Command {
    pub name: &'static str,
    /// Flags with the same meaning as in `wireup run`.
    pub shared: &'static [Id],
    pub own: &'static [Own],
    /// The names of its words; all of them are required.
    pub words: &'static [&'static str],
}

/// A flag that only this command has.
pub struct Own {
    /// Without dashes.
    pub name: &'static str,
    /// The name of its value, if it takes one.
    pub value: Option<&'static str>,
}

/// A parsed command line.
#[derive(Default, Debug)]
pub struct Typed {
    /// The flags shared with `wireup run`; the section holds no program.
    pub parsed: Box<Parsed>,
    pub section: Section,
    own: Vec<(&'static str, Option<OsString>)>,
    pub words: Vec<OsString>,
}

impl Typed {
    pub fn has(&self, name: &str) -> bool {
        self.own.iter().any(|(own, _)| *own == name)
    }

    /// The last value given for a flag, as text.
    pub fn text(&self, name: &str) -> Result<Option<String>, FlagError> {
        let given = self.own.iter().rev().find(|(own, _)| *own == name).and_then(|(_, value)| value.clone());
        given.map(|value| values::text(&table::dashed(name), value)).transpose()
    }
}

impl Command {
    /// Parses the words after the command's name; `None` if help was requested.
    pub fn parse(&self, args: impl IntoIterator<Item = OsString>) -> Result<Option<Typed>, FlagError> {
        let mut words = args.into_iter().peekable();
        let mut typed = Typed::default();
        while let Some(word) = words.next() {
            if !parsed::is_flag(&word) {
                if typed.words.len() == self.words.len() {
                    return Err(self.refused(&word));
                }
                typed.words.push(word);
                continue;
            }
            if let Some((own, attached)) = self.own(&word) {
                let value = match (own.value, attached) {
                    (None, None) => None,
                    (None, Some(value)) => {
                        let flag = table::dashed(own.name);
                        return Err(FlagError::UnexpectedValue { flag, value: values::shown(&value) });
                    }
                    (Some(_), Some(value)) => Some(value),
                    (Some(wants), None) => {
                        let missing = || FlagError::MissingValue { flag: table::dashed(own.name), wants };
                        Some(words.next().ok_or_else(missing)?)
                    }
                };
                typed.own.push((own.name, value));
                continue;
            }
            let Some((flag, name, value)) = self.shared(&word)? else {
                return Ok(None);
            };
            let mut value_reader = ValueReader { flag, name, attached: value, words: &mut words };
            typed.parsed.apply(&mut typed.section, &mut value_reader)?;
            value_reader.refuse_rest()?;
        }
        match self.words.get(typed.words.len()) {
            Some(missing) => Err(FlagError::MissingWord { command: self.name, word: missing }),
            None => Ok(Some(typed)),
        }
    }

    fn own(&self, word: &OsString) -> Option<(&'static Own, Option<OsString>)> {
        let bytes = word.as_bytes();
        let (typed, attached) = match bytes.iter().position(|&byte| byte == b'=') {
            Some(at) => (&bytes[..at], Some(OsString::from_vec(bytes[at + 1..].to_vec()))),
            None => (bytes, None),
        };
        let name = typed.strip_prefix(b"--").or_else(|| typed.strip_prefix(b"-"))?;
        let own = self.own.iter().find(|own| own.name.as_bytes() == name)?;
        Some((own, attached))
    }

    /// A flag shared with `wireup run`; `None` if help was requested.
    #[allow(clippy::type_complexity)] // the type that `parsed::look_up` returns
    fn shared(&self, word: &OsString) -> Result<Option<(&'static Flag, String, Option<OsString>)>, FlagError> {
        match parsed::look_up(word) {
            Ok((flag, ..)) if flag.id == Id::Help => Ok(None),
            Ok((flag, name, value)) if self.shared.contains(&flag.id) => Ok(Some((flag, name, value))),
            Ok(_) => Err(self.refused(word)),
            Err(FlagError::Unknown { flag, .. }) => {
                let typed = flag.trim_start_matches('-').to_owned();
                Err(FlagError::Unknown { nearest: nearest(&typed, self.names()).map(table::dashed), flag })
            }
            Err(error) => Err(error),
        }
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        let shared = table::FLAGS.iter().filter(|flag| self.shared.contains(&flag.id));
        shared.map(|flag| flag.names[0]).chain(self.own.iter().map(|own| own.name))
    }

    fn refused(&self, word: &OsString) -> FlagError {
        let takes: Vec<String> =
            self.words.iter().map(|word| (*word).to_owned()).chain(self.names().map(table::dashed)).collect();
        FlagError::NotOfCommand { word: values::shown(word), command: self.name, takes: takes.join(" ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: Command = Command {
        name: "doctor",
        shared: &[Id::Hosts, Id::HostFile, Id::RemoteShell, Id::Interface, Id::StartTimeout, Id::Wdir],
        own: &[Own { name: "send", value: None }, Own { name: "session", value: Some("NAME") }],
        words: &[],
    };
    const WITH_WORD: Command = Command { name: "kill", words: &["JOB"], ..EXAMPLE };

    fn parsed(command: &Command, line: &str) -> Result<Option<Typed>, FlagError> {
        command.parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn it_takes_what_a_run_takes_and_its_own() {
        let line = "-hosts n0,n1 --remote-shell=rsh --interface ib0 --start-timeout 2 --wdir /x --send --session=lab";
        let typed = parsed(&EXAMPLE, line).unwrap().expect("no help");
        assert_eq!(
            (&typed.parsed.hosts, &typed.parsed.remote_shell),
            (&vec!["n0,n1".to_owned()], &Some("rsh".to_owned()))
        );
        assert_eq!(
            (&typed.parsed.interface, typed.parsed.start_timeout_ns),
            (&Some("ib0".to_owned()), Some(2_000_000_000))
        );
        assert_eq!(typed.section.wdir, Some("/x".into()));
        assert!(typed.has("send") && !typed.has("session-of-nobody"));
        assert_eq!(typed.text("session"), Ok(Some("lab".into())));
        assert!(parsed(&EXAMPLE, "--help").unwrap().is_none());
    }

    #[test]
    fn other_words_are_refused() {
        for line in ["-n 4", "n0", "--label", "--hosts n0 ./app"] {
            let error = parsed(&EXAMPLE, line).expect_err(line).to_string();
            assert!(error.contains("; it accepts --hosts --hostfile"), "{error}");
        }
        let said = |line: &str| parsed(&EXAMPLE, line).expect_err(line).to_string();
        assert_eq!(said("--sesion x"), "unknown flag --sesion; did you mean --session?");
        assert_eq!(said("--session"), "--session needs a value: --session NAME");
        assert_eq!(said("--send=1"), "--send takes no value, remove \"=1\"");
    }

    #[test]
    fn words_are_counted() {
        assert_eq!(parsed(&WITH_WORD, "7").unwrap().expect("no help").words, ["7"]);
        assert_eq!(
            parsed(&WITH_WORD, "").unwrap_err().to_string(),
            "wireup kill: JOB is missing; see wireup help kill"
        );
        assert!(
            parsed(&WITH_WORD, "7 8")
                .unwrap_err()
                .to_string()
                .starts_with("wireup kill does not know 8; it accepts JOB")
        );
    }
}
