//! A rank's PMI client, driven by the rank's script; the code is that of the C libraries (`wireup-client`). A client
//! that speaks the text protocol makes one request at a time. A client that uses wireup's own protocol sends puts
//! without waiting for replies, and may have any number of collectives in progress.

use crate::memory::Shared;
use bytes::Bytes;
use wireup_client::arena::Values;
use wireup_client::collectives::{Collectives, Update};
use wireup_client::env::{Contact, Env};
use wireup_client::join::Join;
use wireup_client::link;
use wireup_client::memory::Memory;
use wireup_client::requests::{CollectiveKind, Id, Stage};
use wireup_client::{Failure, Link};
use wireup_proto::io::{RankPlan, SpawnPlan};
use wireup_wire::pmi::{Command, Dialect, Raw, Reply, Request};

/// The client library of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speaks {
    /// A text client, which makes one request at a time.
    Text(Dialect),
    /// wireup's own library, which makes many requests at a time.
    Own,
}

/// An operation of a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op<'a> {
    Init,
    Put {
        key: &'a str,
        value: &'a str,
    },
    Fence,
    /// A barrier of a group, in a text client of PMI-1.
    Barrier {
        group: &'a str,
    },
    Get {
        key: &'a str,
    },
    Ring {
        value: &'a str,
    },
    /// Starts a fence, as only clients that use wireup's own protocol can.
    StartFence {
        id: u32,
    },
    /// Starts an allgather, as only clients that use wireup's own protocol can.
    StartAllgather {
        id: u32,
        max_len: u32,
        shared: bool,
        value: &'a [u8],
    },
    /// Defines a group of these ranks, given as numbers in ascending order, and starts a collective in which each
    /// member gets the values of all. This operation and the next three are only for clients that use wireup's own
    /// protocol.
    Gather {
        members: &'a str,
        value: &'a str,
    },
    SetAddress {
        address: &'a str,
    },
    GetAddress {
        rank: u32,
    },
    /// Asks the agent for the memory with the key-value pairs of the fences since the client's last `Map`.
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
    /// The rank has put a value, or reported its address.
    Put,
    Fence,
    /// The value of a key, or the address of a rank; `None`: there is no such key or address.
    Get(Option<Vec<u8>>),
    /// The array of the values of a group's members.
    Gathered(Vec<u8>),
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
    /// Finalize was called with collectives outstanding.
    Refused,
    /// The agent refused the request, or gave an answer that does not fit any operation of a script.
    Strange(String),
}

/// The results of reading the bytes from the client's agent.
#[derive(Debug, Default)]
pub struct Heard {
    /// Bytes to be sent to the agent, to continue an operation.
    pub send: Bytes,
    pub answers: Vec<Answer>,
    /// The reason why the client stops reading: the bytes are not a reply to any of its requests.
    pub broken: Option<String>,
}

/// One rank's client.
pub struct Client {
    /// The client's settings, as read from the environment.
    env: Env,
    link: Link<Shared>,
    join: Join,
    /// Requests that MPICH makes when it joins and that are not sent yet, in reverse order.
    names: Vec<Command>,
    kvsname: Vec<u8>,
    /// The state of a client with wireup's own protocol; `None`: a text client.
    own: Option<Own>,
}

struct Own {
    collectives: Collectives<Shared>,
    /// Collectives that were started and are not complete.
    started: Vec<Id>,
    /// Number of groups that were defined.
    groups: u32,
}

/// The network for which ranks report their addresses.
const NETWORK: &[u8] = b".traffic";

impl Client {
    pub fn new(place: RankEnvironment, speaks: Speaks) -> Client {
        let (dialect, names) = match speaks {
            Speaks::Text(Dialect::Pmi1) => (Dialect::Pmi1, vec![Command::GetMyKvsname, Command::GetAppnum]),
            Speaks::Text(Dialect::Pmi2) => (Dialect::Pmi2, vec![Command::JobGetId]),
            Speaks::Own => (Dialect::Pmi2, Vec::new()),
        };
        let own = || Own { collectives: Collectives::new(place.env.rank, true), started: Vec::new(), groups: 0 };
        Client {
            env: place.env,
            link: Link::new(dialect),
            own: (speaks == Speaks::Own).then(own),
            join: Join::new(place.env).job_id(place.job_id).at_once(speaks == Speaks::Own),
            names,
            kvsname: Vec::new(),
        }
    }

    /// The first bytes that the client sends for an operation. `None`: the bytes are sent with a later operation, and
    /// there is no reply to wait for.
    ///
    /// # Panics
    /// If the client cannot do this operation, or not at this time.
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
                // Slurm's library also sends the same value to both sides.
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
            (Op::Gather { members, value }, Some(own)) => {
                own.groups += 1;
                let (group, members) = (own.groups, members.as_bytes());
                let set = link.ask(&Request::GroupSet { group, members, tag: b"1" });
                set.and_then(|()| link.ask(&Request::Gather { id: group, group, value: Raw(value.as_bytes()) }))
            }
            (Op::SetAddress { address }, Some(_)) => {
                link.ask(&Request::AddressSet { name: NETWORK, value: address.as_bytes() })
            }
            (Op::GetAddress { rank }, Some(_)) => link.ask(&Request::AddressGet { id: 1, rank, name: NETWORK }),
            (Op::Map, Some(own)) => {
                let have = own.collectives.own.as_ref().map(|own| own.segments.have()).unwrap_or_default();
                link.ask(&Request::KvsMap { have: &have })
            }
            (Op::Finalize, _) => link.ask(&Request::Finalize),
            (Op::Abort { code }, _) => link.ask(&Request::Abort { world: true, code, message: b"the script says so" }),
            (op, None) => panic!("a text client cannot do {op:?}"),
        };
        asked.expect("the dialect has this request");
        let waits = self.own.is_none() || !matches!(op, Op::Put { .. });
        waits.then(|| self.link.take_output().into())
    }

    /// Reads the bytes from the agent, with the memory that was passed with them.
    pub fn hear(&mut self, bytes: &[u8], shares: Vec<Shared>) -> Heard {
        let mut heard = Heard::default();
        if self.own.is_none() && !shares.is_empty() {
            heard.broken = Some("a text client receives memory".into());
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

    /// Reads one answer; `false` if there is no complete answer.
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
            // The answer to the collective follows.
            Command::GroupSet if one.fields.succeeded() => {}
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
        for (_, gathered) in self.link.take_gathers() {
            let array = match gathered {
                link::Gathered::Bytes(bytes) => Some(bytes),
                link::Gathered::Memory(memory) => memory.and_then(|memory| memory.whole()).map(|bytes| bytes.to_vec()),
            };
            answers.push(array.map_or_else(|| Answer::Strange("no memory of a group".into()), Answer::Gathered));
        }
        answers.extend(self.link.take_addresses().into_iter().map(|(_, address)| Answer::Get(address)));
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

    /// Sends the next request of joining the job, or completes joining.
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

    /// Whether a fence has published memory that is not mapped yet; `None` for a text client.
    pub fn is_behind(&self) -> Option<bool> {
        self.own.as_ref()?.collectives.own.as_ref().map(|own| own.segments.is_behind())
    }

    /// The value of a key in the mapped segments; an error if a segment is malformed.
    pub fn lookup(&self, key: &str) -> Result<Option<&[u8]>, String> {
        let own = self.own.as_ref().and_then(|own| own.collectives.own.as_ref()).ok_or("has no segments")?;
        own.segments.get(key.as_bytes()).map_err(|problem| format!("segments: {problem:?}"))
    }
}

impl Own {
    /// The engine and the script number collectives in the same way.
    fn on_started(&mut self, id: Id, expected: u32) -> Result<(), Failure> {
        assert_eq!(id, expected as Id, "the engine numbers collectives consecutively");
        self.started.push(id);
        Ok(())
    }

    fn take_over(&mut self, answers: &mut Vec<Answer>) {
        let Own { collectives, started, .. } = self;
        started.retain(|id| {
            if collectives.is_over(*id) != Some(true) {
                return true;
            }
            let over = collectives.requests.remove(*id).map(|one| (one.kind, one.stage));
            let version = collectives.own.as_ref().map_or(0, |own| own.segments.latest());
            let id = *id as u32;
            answers.push(match over {
                Some((CollectiveKind::Fence, Stage::Over(Ok(_)))) => Answer::FenceOver { id, version },
                Some((CollectiveKind::Allgather { .. }, Stage::Over(Ok(Some(array))))) => {
                    Answer::AllgatherOver { id, array }
                }
                _ => Answer::Strange(format!("collective {id} has failed")),
            });
            false
        });
    }
}

fn read(answer: &link::Answer<'_>) -> Answer {
    match (answer.command, answer.fields.reply_to(answer.command)) {
        (Command::Put | Command::AddressSet, Ok(Reply::Done)) => Answer::Put,
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

/// A rank's place in the job, as read from its environment.
pub struct RankEnvironment {
    pub env: Env,
    pub job_id: Vec<u8>,
}

/// Reads the place of a rank from the environment in its plan.
pub fn place_of(plan: &SpawnPlan, rank_plan: &RankPlan) -> Result<RankEnvironment, String> {
    let program = plan.programs.get(usize::from(rank_plan.program)).ok_or("has no program")?;
    let find = |name: &str| {
        let mut found = rank_plan
            .env
            .iter()
            .chain(&program.env)
            .filter_map(|variable| variable.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")));
        // The driver adds the number of the socket's descriptor.
        let given = found.next().map(|value| String::from_utf8_lossy(value).into_owned());
        if name == "PMI_FD" { Some("3".into()) } else { given }
    };
    let contact = Contact::read(find).map_err(|error| error.to_string())?;
    let Contact::Fd { env, .. } = contact else { return Err(format!("reads {contact:?} from its environment")) };
    let named = (find("WIREUP_RANK"), find("WIREUP_SIZE"));
    if named != (Some(env.rank.to_string()), Some(env.size.to_string())) {
        return Err(format!("has the place {env:?} for PMI and {named:?} for wireup"));
    }
    Ok(RankEnvironment { env, job_id: find("PMI_JOBID").unwrap_or_default().into() })
}
