//! What was typed behind `wireup doctor`: the flags of `wireup run` that say which machines and how they are reached.

use super::behind::Behind;
use super::error::FlagError;
use super::low::{self, Low, Section};
use super::table::{self, Id};
use super::values;
use std::ffi::OsString;

const TAKEN: [Id; 6] = [Id::Hosts, Id::HostFile, Id::RemoteShell, Id::Interface, Id::StartTimeout, Id::Wdir];
/// Its own flag.
const SEND: [&str; 2] = ["--send", "-send"];

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wish {
    Help,
    /// `low` as far as it concerns machines; the section holds no program.
    Examine {
        low: Box<Low>,
        section: Box<Section>,
        send: bool,
    },
}

/// Reads the words behind `wireup doctor`.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Wish, FlagError> {
    let mut words = args.into_iter().peekable();
    let (mut low, mut section, mut send) = (Low::default(), Section::default(), false);
    while let Some(word) = words.next() {
        if SEND.iter().any(|name| word == *name) {
            send = true;
            continue;
        }
        let refused = |word: &OsString| FlagError::NotOfDoctor { word: values::shown(word), takes: taken() };
        if !low::is_flag(&word) {
            return Err(refused(&word));
        }
        let (flag, name, value) = low::look_up(&word)?;
        if flag.id == Id::Help {
            return Ok(Wish::Help);
        }
        if !TAKEN.contains(&flag.id) {
            return Err(refused(&word));
        }
        let mut behind = Behind { flag, name, attached: value, words: &mut words };
        low.apply(&mut section, &mut behind)?;
        behind.refuse_rest()?;
    }
    Ok(Wish::Examine { low: Box::new(low), section: Box::new(section), send })
}

fn taken() -> String {
    let names = TAKEN.iter().filter_map(|id| table::FLAGS.iter().find(|flag| flag.id == *id)).map(|flag| flag.name());
    names.chain([SEND[0].to_owned()]).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Wish, FlagError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn it_takes_what_a_run_takes_about_machines() {
        let wish = parsed("-hosts n0,n1 --remote-shell=rsh --interface ib0 --start-timeout 2 --wdir /x --send");
        let Ok(Wish::Examine { low, section, send: true }) = wish else { panic!("{wish:?}") };
        assert_eq!((low.hosts, low.remote_shell), (vec!["n0,n1".to_owned()], Some("rsh".to_owned())));
        assert_eq!((low.interface, low.start_timeout_ns), (Some("ib0".to_owned()), Some(2_000_000_000)));
        assert_eq!(section.wdir, Some("/x".into()));
        assert_eq!(parsed("--help"), Ok(Wish::Help));
    }

    #[test]
    fn other_words_are_refused() {
        for line in ["-n 4", "n0", "--label", "--hosts n0 ./app"] {
            let error = parsed(line).expect_err(line).to_string();
            assert!(error.contains("wireup doctor; it takes --hosts --hostfile"), "{error}");
        }
        assert!(parsed("--hostsfile x").expect_err("misspelt").to_string().contains("did you mean"));
    }
}
