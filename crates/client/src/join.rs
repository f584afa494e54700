//! The start of the conversation: who this process is, and what the server can do.
//!
//! ```text
//!   by a port:  initack ──► rank, size
//!   PMI-1:      init ──► version ── get_maxes ──► longest name, key, value
//!   PMI-2:      init ──► version ── fullinit ───► rank, size, appnum, spawner, our own extensions
//! ```
//!
//! The driver calls [`Join::ask`] and sends what it adds; hands each answer to [`Join::on_answer`]; and asks again when
//! all are there, until there is nothing left to ask. Our own server is asked for the version and the rest at once.

use crate::env::Env;
use crate::link::{Failure, Link};
use crate::number;
use alloc::vec::Vec;
use wireup_wire::limits::{KEY_LEN_MAX, KVSNAME_LEN_MAX, VALUE_LEN_MAX};
use wireup_wire::pmi::{Command, Dialect, ReplyFields, Request};

/// The version of our own commands.
pub const EXTENSION: u32 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Introduce { pmiid: u32 },
    Init,
    Place,
    Joined,
}

/// Longest name of a kvs, key and value, each with its terminating zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Maxes {
    pub kvsname: u32,
    pub key: u32,
    pub value: u32,
}

/// PMI's usual limits, also for servers that do not say: none does in PMI-2.
const USUAL: Maxes = Maxes { kvsname: KVSNAME_LEN_MAX as u32, key: KEY_LEN_MAX as u32, value: VALUE_LEN_MAX as u32 };

#[derive(Clone, Debug)]
pub struct Join {
    next: Step,
    /// The name of the job, if the environment has it.
    job_id: Vec<u8>,
    /// Whether to ask a PMI-1 server for version 1.2 in our own way, because some servers reject the standard one.
    wants_groups: bool,
    is_at_once: bool,
    is_refused: bool,
    version: Option<u32>,
    has_place: bool,
    /// The rank and the size of the job: from the environment until the server answers.
    pub env: Env,
    pub appnum: Option<i32>,
    /// The minor number of the server's version. A PMI-1 server with 2 has barriers of groups.
    pub subversion: u32,
    pub maxes: Maxes,
    /// Whether the server is ours and has our own commands.
    pub is_own: bool,
}

impl Join {
    /// The join of a process that has a descriptor to its server.
    pub fn new(env: Env) -> Join {
        Join {
            next: Step::Init,
            job_id: Vec::new(),
            wants_groups: false,
            is_at_once: false,
            is_refused: false,
            version: None,
            has_place: false,
            env,
            appnum: None,
            subversion: 0,
            maxes: USUAL,
            is_own: false,
        }
    }

    /// The join of a process that has connected to its server's port.
    pub fn introduced(pmiid: u32, spawned: bool) -> Join {
        let env = Env { rank: pmiid, size: 1, spawned };
        Join { next: Step::Introduce { pmiid }, ..Join::new(env) }
    }

    /// Sets the job's name for the first request: Slurm's server needs this field, MPICH's rejects an empty one.
    pub fn job_id(self, job_id: Vec<u8>) -> Join {
        Join { job_id, ..self }
    }

    pub fn wants_groups(self) -> Join {
        Join { wants_groups: true, ..self }
    }

    /// Whether to ask all questions at once, which only a server that is known to be ours accepts.
    pub fn at_once(self, is_at_once: bool) -> Join {
        Join { is_at_once, ..self }
    }

    /// Adds the next question; `false`: the process has joined its job.
    ///
    /// # Errors
    /// The server has refused, or does not speak this dialect, or has not said what a process must know.
    pub fn ask<M>(&mut self, link: &mut Link<M>) -> Result<bool, Failure> {
        if self.is_refused {
            return Err(Failure::Refused);
        }
        let is_pmi2 = link.dialect() == Dialect::Pmi2;
        let wanted = if is_pmi2 { 2 } else { 1 };
        match self.next {
            Step::Introduce { pmiid } => {
                self.next = Step::Init;
                link.ask(&Request::InitAck { pmiid })?;
            }
            Step::Init => {
                let extension = (self.wants_groups && !is_pmi2).then_some(EXTENSION);
                link.ask(&Request::Init { version: wanted, subversion: u32::from(!is_pmi2), extension })?;
                self.next = Step::Place;
                if self.is_at_once {
                    self.ask_for_place(link)?;
                }
            }
            _ if self.version != Some(wanted) => return Err(Failure::Refused),
            Step::Place => self.ask_for_place(link)?,
            Step::Joined if !self.has_place => return Err(Failure::Refused),
            Step::Joined => return Ok(false),
        }
        Ok(true)
    }

    fn ask_for_place<M>(&mut self, link: &mut Link<M>) -> Result<(), Failure> {
        self.next = Step::Joined;
        if link.dialect() == Dialect::Pmi1 {
            return link.ask(&Request::GetMaxes);
        }
        let job_id = Some(&self.job_id[..]).filter(|name| !name.is_empty());
        link.ask(&Request::FullInit { rank: Some(self.env.rank), job_id, threaded: false })
    }

    /// Handles an answer of the server.
    pub fn on_answer(&mut self, command: Command, fields: &ReplyFields<'_>) {
        let (rank, size) = (number(fields, "rank"), number(fields, "size"));
        self.is_refused |= !fields.succeeded();
        match command {
            Command::InitAck => {
                self.env.rank = rank.unwrap_or(self.env.rank);
                self.env.size = size.unwrap_or(self.env.size);
            }
            Command::Init => {
                self.version = number(fields, "pmi_version").filter(|_| fields.answers(Command::Init));
                self.subversion = number(fields, "pmi_subversion").unwrap_or(0);
            }
            Command::FullInit => {
                if let (Some(rank), Some(size)) = (rank, size) {
                    self.env = Env { rank, size, spawned: fields.get("spawner-jobid").is_some() };
                    self.has_place = fields.answers(Command::FullInit);
                }
                self.appnum = number(fields, "appnum");
                self.is_own = number(fields, "wireup") == Some(EXTENSION);
            }
            Command::GetMaxes => {
                let maxes = ["kvsname_max", "keylen_max", "vallen_max"].map(|name| number(fields, name));
                if let [Some(kvsname), Some(key), Some(value)] = maxes {
                    self.maxes = Maxes { kvsname, key, value };
                    self.has_place = fields.answers(Command::GetMaxes);
                }
            }
            _ => {}
        }
    }
}

fn number<T: TryFrom<i64>>(fields: &ReplyFields<'_>, name: &str) -> Option<T> {
    fields.get(name).and_then(number::parse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::NoMemory;
    use std::string::{String, ToString};
    use std::vec::Vec;

    const ENV: Env = Env { rank: 3, size: 4, spawned: false };

    /// Joins with a server that gives these answers; also returns what the server was asked.
    fn join(dialect: Dialect, mut join: Join, answers: &[&str]) -> Result<(Join, Vec<String>), Failure> {
        let mut link = Link::<NoMemory>::new(dialect);
        let (mut asked, mut answers) = (Vec::new(), answers.iter());
        while join.ask(&mut link)? {
            asked.push(str::from_utf8(link.to_send()).unwrap().trim().to_string());
            link.on_sent();
            for byte in answers.next().expect("an answer to each question").bytes() {
                link.push(&[byte]).unwrap();
                while link.next(&mut |answer| join.on_answer(answer.command, &answer.fields)).unwrap() {}
            }
        }
        Ok((join, asked))
    }

    #[test]
    fn joining_takes_two_requests_in_both_dialects() {
        let (maxes, init) = ("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n", "pmi_subversion=1 rc=0\n");
        let answers = [&std::format!("cmd=response_to_init pmi_version=1 {init}"), maxes];
        let (joined, asked) = join(Dialect::Pmi1, Join::new(ENV), &answers).unwrap();
        assert_eq!(asked, ["cmd=init pmi_version=1 pmi_subversion=1", "cmd=get_maxes"]);
        assert_eq!((joined.env, joined.subversion, joined.maxes.value, joined.is_own), (ENV, 1, 1024, false));

        let full = "    64cmd=fullinit-response;rc=0;pmi-version=2;rank=2;size=8;appnum=1;";
        let full = std::format!("{:6}{}", full[6..].len() + 9, &full[6..]) + "wireup=1;";
        let answers = ["cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n", &full];
        let (joined, asked) = join(Dialect::Pmi2, Join::new(ENV).job_id(b"j".to_vec()), &answers).unwrap();
        assert!(asked[1].contains("pmirank=3") && asked[1].contains("pmijobid=j"), "{asked:?}");
        let env = Env { rank: 2, size: 8, spawned: false };
        assert_eq!((joined.env, joined.appnum, joined.is_own), (env, Some(1), true));
    }

    #[test]
    fn our_own_server_is_asked_once() {
        let place = "cmd=fullinit-response;rc=0;rank=2;size=8;wireup=1;";
        let both = std::format!("cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n{:6}{place}", place.len());
        let (joined, asked) = join(Dialect::Pmi2, Join::new(ENV).at_once(true), &[&both]).unwrap();
        let (init, full) = asked[0].split_once('\n').unwrap();
        assert!(init.starts_with("cmd=init ") && full.contains("cmd=fullinit;") && asked.len() == 1, "{asked:?}");
        assert!(joined.env.size == 8 && joined.is_own);

        let both = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n\
                    cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=9\n";
        let (joined, asked) = join(Dialect::Pmi1, Join::new(ENV).at_once(true), &[both]).unwrap();
        assert_eq!((asked.len(), joined.maxes.value), (1, 9));

        let refused = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\ncmd=maxes rc=-1\n";
        let refused = join(Dialect::Pmi1, Join::new(ENV).at_once(true), &[refused]);
        assert_eq!(refused.map(|_| ()), Err(Failure::Refused));
    }

    #[test]
    fn a_process_connecting_by_port_gets_its_rank_first() {
        let place = "cmd=initack rc=0\ncmd=set size=16\ncmd=set rank=7\ncmd=set debug=0\n";
        let init = "cmd=response_to_init pmi_version=1 pmi_subversion=2 rc=0\n";
        let maxes = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n";
        let by_port = Join::introduced(5, false).wants_groups();
        let (joined, asked) = join(Dialect::Pmi1, by_port, &[place, init, maxes]).unwrap();
        assert_eq!(joined.env, Env { rank: 7, size: 16, spawned: false });
        assert_eq!(asked[0], "cmd=initack pmiid=5");
        assert!(asked[1].len() > "cmd=init pmi_version=1 pmi_subversion=1".len() && joined.subversion == 2);
    }

    #[test]
    fn joining_fails_if_the_server_refuses_or_omits_fields() {
        let wrong = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n";
        let right = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
        for (dialect, answers) in [
            (Dialect::Pmi2, &[wrong][..]),
            (Dialect::Pmi2, &[right]),
            (Dialect::Pmi1, &[wrong]),
            (Dialect::Pmi1, &[right, "cmd=maxes kvsname_max=256 keylen_max=x\n"]),
        ] {
            assert_eq!(join(dialect, Join::new(ENV), answers).map(|_| ()), Err(Failure::Refused), "{answers:?}");
        }
    }
}
