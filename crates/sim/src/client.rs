//! A rank's PMI conversation, as a script asks for it: the engine that the C libraries drive, driven by the simulator. A text client makes one
//! request at a time; one of our own clients posts its puts, and has any number of collectives under way.

use crate::memory::Shared;
use bytes::Bytes;
use wireup_client::arena::Values;
use wireup_client::collectives::Collectives;
use wireup_client::env::{Contact, Env};
use wireup_client::join::Join;
use wireup_client::pipeline;
use wireup_client::requests::{Id, Kind, Stage};
use wireup_client::segments::Update;
use wireup_client::{Failure, Link};
use wireup_proto::io::{RankPlan, SpawnPlan};
use wireup_wire::pmi::{Command, Dialect, Reply, Request};

/// Which client a program is linked with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speaks {
    /// One request at a time.
    Text(Dialect),
    /// Our library's commands, many at once.
    Own,
}

/// What a script asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op<'a> {
    Init,
    Put {
        key: &'a str,
        value: &'a str,
    },
    Fence,
    /// Of a group, in a text client of PMI-1.
    Barrier {
        group: &'a str,
    },
    Get {
        key: &'a str,
    },
    Ring {
        value: &'a str,
    },
    /// The rest is for our own clients alone.
    StartFence {
        id: u32,
    },
    StartAllgather {
        id: u32,
        max_len: u32,
        shared: bool,
        value: &'a [u8],
    },
    /// Fetches what fences have published since the last time.
    Map,
    Finalize,
    Abort {
        code: i32,
    },
}

/// The outcome of an operation.
#[derive(Debug)]
pub enum Answer {
    Init,
    Put,
    Fence,
    /// `None`: nobody put such a key.
    Get(Option<Vec<u8>>),
    Ring {
        position: u32,
        left: Vec<u8>,
        right: Vec<u8>,
    },
    FenceOver {
        id: u32,
        version: u32,
    },
    AllgatherOver {
        id: u32,
        array: Values<Shared>,
    },
    Mapped,
    Finalize,
    /// Finalize with collectives outstanding.
    Refused,
    /// The agent refused, or said what no script asks for.
    Strange(String),
}

/// What the agent's bytes mean.
#[derive(Debug, Default)]
pub struct Heard {
    /// An operation goes on: this is to be sent.
    pub send: Bytes,
    pub answers: Vec<Answer>,
    /// No reply to anything that was asked: nothing more can be read.
    pub broken: Option<String>,
}

/// One rank's client.
pub struct Client {
    /// From the environment.
    env: Env,
    link: Link<Shared>,
    join: Join,
    /// What MPICH asks for behind the engine's questions; the next one last.
    names: Vec<Command>,
    kvsname: Vec<u8>,
    /// Of our own clients.
    own: Option<Own>,
}

struct Own {
    collectives: Collectives<Shared>,
    /// Started and not over.
    started: Vec<Id>,
}

impl Client {
    pub fn new(place: Place, speaks: Speaks) -> Client {
        let (dialect, names) = match speaks {
            Speaks::Text(Dialect::Pmi1) => (Dialect::Pmi1, vec![Command::GetMyKvsname, Command::GetAppnum]),
            Speaks::Text(Dialect::Pmi2) => (Dialect::Pmi2, vec![Command::JobGetId]),
            Speaks::Own => (Dialect::Pmi2, Vec::new()),
        };
        let own = || Own { collectives: Collectives::new(place.env.rank, true), started: Vec::new() };
        Client {
            env: place.env,
            link: Link::new(dialect),
            own: (speaks == Speaks::Own).then(own),
            join: Join::new(place.env).job_id(place.job_id),
            names,
            kvsname: Vec::new(),
        }
    }

    /// The first bytes of an operation; `None`: they go along with a later one, and nothing is to be waited for.
    ///
    /// # Panics
    /// If the script asks for what its client cannot do, or out of turn.
    pub fn ask(&mut self, op: Op<'_>) -> Option<Bytes> {
        let Client { link, join, kvsname, own, .. } = self;
        assert!(own.is_some() || link.awaited() == 0, "one request at a time, not {op:?}");
        let kvsname = own.is_none().then_some(&kvsname[..]);
        let asked = match (op, own) {
            (Op::Init, _) => join.ask(link).map(drop),
            (Op::Put { key, value }, own) => {
                let put = Request::Put { kvsname, key: key.as_bytes(), value: value.as_bytes() };
                if own.is_some() { link.post(&put) } else { link.ask(&put) }
            }
            (Op::Fence, _) => link.begin_fence(None),
            (Op::Barrier { group }, _) => link.begin_fence(Some(group.as_bytes())),
            (Op::Get { key }, _) => link.ask(&Request::Get { kvsname, key: key.as_bytes(), source: Some(-1) }),
            (Op::Ring { value }, _) => {
                // As Slurm's library asks for it: both sides get the same value.
                link.ask(&Request::Ring { count: 1, left: value.as_bytes(), right: value.as_bytes() })
            }
            (Op::StartFence { id }, Some(own)) => {
                let started = own.collectives.start_fence(Some(link));
                own.on_started(started, id)
            }
            (Op::StartAllgather { id, max_len, shared, value }, Some(own)) => {
                let started = own.collectives.start_allgather(Some(link), value, max_len as usize, shared);
                own.on_started(started, id)
            }
            (Op::Map, Some(own)) => {
                let have = own.collectives.own.as_ref().map(|own| own.segments.have()).unwrap_or_default();
                link.ask(&Request::KvsMap { have: &have })
            }
            (Op::StartFence { .. } | Op::StartAllgather { .. } | Op::Map, None) => {
                panic!("a text client cannot do {op:?}")
            }
            (Op::Finalize, _) => link.ask(&Request::Finalize),
            (Op::Abort { code }, _) => link.ask(&Request::Abort { world: true, code, message: b"the script says so" }),
        };
        asked.expect("scripts ask for what their dialect can carry");
        let waits = self.own.is_none() || !matches!(op, Op::Put { .. });
        waits.then(|| self.link.take_output().into())
    }

    /// Reads what the agent sent, with the memory that came along.
    pub fn hear(&mut self, bytes: &[u8], shares: Vec<Shared>) -> Heard {
        let mut heard = Heard::default();
        if self.own.is_none() && !shares.is_empty() {
            heard.broken = Some("memory comes to a text client".into());
            return heard;
        }
        shares.into_iter().for_each(|share| self.link.push_memory(Some(share)));
        let mut result = self.link.push(bytes).map_err(|broken| format!("{broken:?}"));
        while result.is_ok() {
            result = match self.next(&mut heard.answers) {
                Ok(true) => continue,
                Ok(false) => break,
                Err(problem) => Err(problem),
            };
        }
        heard.send = self.link.take_output().into();
        heard.broken = result.err();
        heard
    }

    /// Reads one answer; `false`: there is no whole one.
    fn next(&mut self, answers: &mut Vec<Answer>) -> Result<bool, String> {
        let Client { link, join, kvsname, .. } = self;
        let (mut answer, mut update, mut was_joining) = (None, None, false);
        let some = link.next(&mut |one| match one.command {
            Command::InitAck | Command::Init | Command::FullInit | Command::GetMaxes => {
                was_joining = true;
                join.on_answer(one.command, &one.fields);
            }
            Command::GetAppnum => was_joining = true,
            Command::GetMyKvsname | Command::JobGetId => {
                was_joining = true;
                let name = one.fields.get("kvsname").or_else(|| one.fields.get("jobid"));
                *kvsname = name.unwrap_or_default().to_vec();
            }
            Command::KvsMap => update = Update::read(&one.fields),
            _ => answer = Some(read(one)),
        });
        let some = some.map_err(|broken| format!("{broken:?}"))?;
        if was_joining {
            self.join_on(answers).map_err(|failure| format!("joining: {failure:?}"))?;
        }
        if let (Some(update), Some(own)) = (update, self.own.as_mut().and_then(|own| own.collectives.own.as_mut())) {
            let memory = self.link.take_memory();
            answer = Some(match own.segments.update(update, memory) {
                Ok(()) => Answer::Mapped,
                Err(problem) => Answer::Strange(format!("segments: {problem:?}")),
            });
        }
        answers.extend(answer);
        match self.link.take_fence_end() {
            None => {}
            Some(Ok(())) => answers.push(Answer::Fence),
            Some(Err(failure)) => answers.push(Answer::Strange(format!("a fence: {failure:?}"))),
        }
        if let Some(own) = &mut self.own {
            own.collectives.advance(&mut self.link);
            own.take_over(answers);
        }
        Ok(some)
    }

    /// The next question of the start, or its end.
    fn join_on(&mut self, answers: &mut Vec<Answer>) -> Result<(), Failure> {
        if self.link.awaited() > 0 || self.join.ask(&mut self.link)? {
            return Ok(());
        }
        match self.names.pop() {
            Some(Command::GetAppnum) => self.link.ask(&Request::GetAppnum),
            Some(Command::GetMyKvsname) => self.link.ask(&Request::GetMyKvsname),
            Some(_) => self.link.ask(&Request::JobGetId),
            None => {
                let Join { env, is_own, .. } = self.join;
                let is_right = (env.rank, env.size) == (self.env.rank, self.env.size) && (is_own || self.own.is_none());
                answers.push(if is_right { Answer::Init } else { Answer::Strange(format!("{:?}", self.join)) });
                Ok(())
            }
        }
    }

    /// Whether a fence has published what is not mapped; `None`: this is a text client.
    pub fn is_behind(&self) -> Option<bool> {
        self.own.as_ref()?.collectives.own.as_ref().map(|own| own.segments.is_behind())
    }

    /// The value of a key, in what is mapped; an error if that is no segment.
    pub fn lookup(&self, key: &str) -> Result<Option<&[u8]>, String> {
        let own = self.own.as_ref().and_then(|own| own.collectives.own.as_ref()).ok_or("has no segments")?;
        own.segments.get(key.as_bytes()).map_err(|problem| format!("segments: {problem:?}"))
    }
}

impl Own {
    /// The engine counts as the script does.
    fn on_started(&mut self, id: Id, expected: u32) -> Result<(), Failure> {
        assert_eq!(id, expected as Id, "the engine's numbers go up by one");
        self.started.push(id);
        Ok(())
    }

    fn take_over(&mut self, answers: &mut Vec<Answer>) {
        let Own { collectives, started } = self;
        started.retain(|id| {
            if collectives.is_over(*id) != Some(true) {
                return true;
            }
            let over = collectives.requests.remove(*id).map(|one| (one.kind, one.stage));
            let version = collectives.own.as_ref().map_or(0, |own| own.segments.latest());
            let id = *id as u32;
            answers.push(match over {
                Some((Kind::Fence, Stage::Over(Ok(_)))) => Answer::FenceOver { id, version },
                Some((Kind::Allgather { .. }, Stage::Over(Ok(Some(array))))) => Answer::AllgatherOver { id, array },
                _ => Answer::Strange(format!("collective {id} has failed")),
            });
            false
        });
    }
}

fn read(answer: &pipeline::Answer<'_>) -> Answer {
    match (answer.command, answer.fields.reply_to(answer.command)) {
        (Command::Put, Ok(Reply::Done)) => Answer::Put,
        (Command::Get, Ok(Reply::Value(value))) => Answer::Get(Some(value.to_vec())),
        (Command::Get, Ok(Reply::NotFound)) => Answer::Get(None),
        (Command::Ring, Ok(Reply::Ring { count, left, right })) => {
            Answer::Ring { position: count as u32, left: left.to_vec(), right: right.to_vec() }
        }
        (Command::Finalize, Ok(Reply::Done)) => Answer::Finalize,
        (Command::Finalize, Ok(Reply::Failed { message })) if message.contains("outstanding") => Answer::Refused,
        (command, reply) => Answer::Strange(format!("{command:?}: {reply:?}")),
    }
}

/// A rank's place, from its environment.
pub struct Place {
    pub env: Env,
    pub job_id: Vec<u8>,
}

/// What a rank finds in the environment of its plan.
pub fn place_of(plan: &SpawnPlan, rank_plan: &RankPlan) -> Result<Place, String> {
    let program = plan.programs.get(usize::from(rank_plan.program)).ok_or("has no program")?;
    let find = |name: &str| {
        let mut found = rank_plan
            .env
            .iter()
            .chain(&program.env)
            .filter_map(|variable| variable.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")));
        // The driver adds the number of the socket.
        let given = found.next().map(|value| String::from_utf8_lossy(value).into_owned());
        if name == "PMI_FD" { Some("3".into()) } else { given }
    };
    let contact = Contact::read(find).map_err(|error| error.to_string())?;
    let Contact::Fd { env, .. } = contact else { return Err(format!("finds {contact:?}")) };
    let named = (find("WIREUP_RANK"), find("WIREUP_SIZE"));
    if named != (Some(env.rank.to_string()), Some(env.size.to_string())) {
        return Err(format!("is {env:?} for PMI and {named:?} for wireup"));
    }
    Ok(Place { env, job_id: find("PMI_JOBID").unwrap_or_default().into() })
}
