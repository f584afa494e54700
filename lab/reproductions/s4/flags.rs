//! The flags of `wireup bench s4`.
use wireup_flags::{Command, Error, Flag, Line, Section, Value, Words};

use super::Case;
use super::scheme::{SIZE_MAX, Scheme, fits};
use crate::common_flags::{self, Across, CommonFlags, HOSTS, RESULTS, SHARED, STRICT};

const SCHEMES: Flag = Flag::value(&["--scheme"], "A,B,..", "Only these.").or("original,ssh-dr,ssh-bc,mpd-bc,hypercube");
const PROCESSES: Flag = Flag::value(&["--processes"], "A,B,..", "Numbers of processes.").or("4,8,16,32,64,128");
const ROUNDS: Flag = Flag::value(&["--rounds"], "N", "Rounds that count, after one that warms up.").or("3");
const REMOTE_SHELL: Flag = common_flags::REMOTE_SHELL.or("ssh");
const LIMIT: Flag = common_flags::LIMIT.or("120");

pub const COMMAND: Command = Command {
    name: "bench s4",
    purpose: "time the start of a job until all processes are connected",
    intro: "
Table 1 of the source S4: jobs whose processes connect to each other, one socket for each pair, by five schemes.

  original    one remote shell and one connection back per process, one after the other; the launcher sends all values to all
  ssh-dr      the same, but each process is sent only what is meant for it
  ssh-bc      the same for the neighbours in a ring of the processes; the values go around that ring
  mpd-bc      standing agents in a ring start the processes and carry puts and gets; then the ring of the processes
  hypercube   standing agents and processes in hypercubes

What each scheme sends is counted and compared with its formula; a difference is an error.
",
    words: Words::Named(&[]),
    sections: &[
        Section { title: "Jobs", flags: &[SCHEMES, PROCESSES, ROUNDS, LIMIT] },
        Section { title: "Hosts", flags: &[HOSTS, REMOTE_SHELL, SHARED] },
        RESULTS,
        Section { title: "Targets", flags: &[STRICT] },
    ],
    end: "
  wireup-testbed run -n 16 --ssh -- wireup bench s4 --hosts $(seq -s, -f n%g 0 15)

With more processes than hosts each host has the same number. --hosts is needed.
",
};

#[derive(Clone, Debug, PartialEq)]
pub struct Flags {
    pub schemes: Vec<Scheme>,
    pub processes: Vec<u16>,
    pub rounds: u32,
    pub across: Across,
    pub common_flags: CommonFlags,
    pub strict: bool,
}

pub fn read(line: &Line) -> Result<Flags, Error> {
    let across = Across::read(line, REMOTE_SHELL)?;
    if across.hosts.is_empty() {
        return Err(Error::Together(
            "bench s4 needs --hosts A,B,..: processes are started by a remote shell".to_owned(),
        ));
    }
    let schemes = Scheme::ALL.map(|scheme| (scheme.name(), scheme));
    let flags = Flags {
        schemes: line.one(SCHEMES, |value| value.list(|scheme| scheme.choice(&schemes)))?,
        processes: line.one(PROCESSES, |value| value.list(|size| Ok(size.number_in(2, SIZE_MAX.into())? as u16)))?,
        rounds: line.one(ROUNDS, Value::at_least_one)?,
        across,
        common_flags: CommonFlags::read(line, LIMIT)?,
        strict: line.has(STRICT),
    };
    for (scheme, size) in flags.cases() {
        fits(scheme, size, flags.across.hosts.len() as u16).map_err(Error::Together)?;
    }
    Ok(flags)
}

impl Flags {
    /// In the order of a round.
    pub fn cases(&self) -> Vec<Case> {
        self.processes.iter().flat_map(|size| self.schemes.iter().map(|scheme| (*scheme, *size))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Flags, Error> {
        read(&common_flags::line(&COMMAND, words)?)
    }

    #[test]
    fn flags_are_parsed() {
        let flags = parsed("--hosts a,b --processes 4,8 --scheme mpd-bc,original").unwrap();
        let cases = [(Scheme::MpdBc, 4), (Scheme::Original, 4), (Scheme::MpdBc, 8), (Scheme::Original, 8)];
        assert_eq!(flags.cases(), cases);
        assert_eq!(parsed("--hosts a,b,c,d").unwrap().cases().len(), 6 * 5);
    }

    #[test]
    fn wrong_words_are_refused() {
        for words in [
            "",
            "--hosts a,b --processes 1",
            "--hosts a,b --processes 513",
            "--hosts a,b --processes 3",
            "--hosts a,b,c --processes 3",
            "--hosts a,b --scheme star",
            "--hosts a,b --rounds 0",
        ] {
            assert!(parsed(words).is_err(), "{words}");
        }
    }
}
