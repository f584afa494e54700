//! A rank's PMI conversation, as a script asks for it: a text client's, or one of our own clients'.

use crate::memory::{Page, Shared};
use crate::own::OwnClient;
use bytes::Bytes;
use std::rc::Rc;
use wireup_client::env::{Contact, Env};
use wireup_client::pmi_link::{Event, PmiLink};
use wireup_proto::io::{RankPlan, SpawnPlan};
use wireup_wire::pmi::{Dialect, Reply, Request};

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

/// What it came to.
#[derive(Clone, PartialEq, Eq, Debug)]
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
        array: Rc<Page>,
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
pub enum Client {
    Text(Box<PmiLink>),
    Own(Box<OwnClient>),
}

impl Client {
    pub fn new(env: Env, speaks: Speaks) -> Client {
        match speaks {
            Speaks::Text(dialect) => Client::Text(Box::new(PmiLink::new(dialect, env))),
            Speaks::Own => Client::Own(Box::new(OwnClient::new(env))),
        }
    }

    pub fn own(&mut self) -> Option<&mut OwnClient> {
        match self {
            Client::Own(own) => Some(own),
            Client::Text(_) => None,
        }
    }

    /// The first bytes of an operation; `None`: they go along with a later one, and nothing is to be waited for.
    ///
    /// # Panics
    /// If the script asks for what its client cannot do, or out of turn.
    pub fn ask(&mut self, op: Op<'_>) -> Option<Bytes> {
        match self {
            Client::Text(link) => Some(ask_text(link, op)),
            Client::Own(own) => own.ask(op),
        }
    }

    /// Reads what the agent sent, with the memory that came along.
    pub fn hear(&mut self, bytes: &[u8], shares: Vec<Shared>) -> Heard {
        match self {
            Client::Text(_) if !shares.is_empty() => {
                Heard { broken: Some("memory comes to a text client".into()), ..Heard::default() }
            }
            Client::Text(link) => hear_text(link, bytes),
            Client::Own(own) => own.hear(bytes, shares),
        }
    }
}

/// What a rank finds in the environment of its plan.
pub fn env_of(plan: &SpawnPlan, rank_plan: &RankPlan) -> Result<Env, String> {
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
    Ok(env)
}

fn ask_text(link: &mut PmiLink, op: Op<'_>) -> Bytes {
    let mut out = Vec::new();
    let sent = match op {
        Op::Init => {
            link.start(&mut out);
            Ok(())
        }
        Op::Put { key, value } => link.put(key.as_bytes(), value.as_bytes(), &mut out),
        Op::Fence => link.fence(&mut out),
        Op::Barrier { group } => link.request(&Request::Barrier { group: Some(group.as_bytes()) }, &mut out),
        Op::Get { key } => link.get(key.as_bytes(), None, &mut out),
        Op::Ring { value } => link.request(&ring(value), &mut out),
        Op::Finalize => link.finalize(&mut out),
        Op::Abort { code } => link.abort(code, "the script says so", &mut out),
        Op::StartFence { .. } | Op::StartAllgather { .. } | Op::Map => panic!("a text client cannot do {op:?}"),
    };
    sent.expect("scripts ask for what their dialect can carry");
    out.into()
}

/// As Slurm's library asks for it: both sides get the same value.
pub fn ring(value: &str) -> Request<'_> {
    Request::Ring { count: 1, left: value.as_bytes(), right: value.as_bytes() }
}

fn hear_text(link: &mut PmiLink, bytes: &[u8]) -> Heard {
    let (mut out, mut heard) = (Vec::new(), Heard::default());
    match link.handle(bytes, &mut out) {
        Err(error) => heard.broken = Some(error.to_string()),
        Ok(None) => {}
        Ok(Some(event)) => {
            heard.answers.push(answer(event));
            // A second reply to one request is one too many.
            match link.handle(&[], &mut out) {
                Ok(None) => {}
                Ok(Some(event)) => heard.broken = Some(format!("{:?}, then {event:?}", heard.answers)),
                Err(error) => heard.broken = Some(error.to_string()),
            }
        }
    }
    heard.send = out.into();
    heard
}

fn answer(event: Event<'_>) -> Answer {
    match event {
        Event::Ready => Answer::Init,
        Event::Done => Answer::Put,
        Event::Fenced => Answer::Fence,
        Event::Value(value) => Answer::Get(Some(value.to_vec())),
        Event::NotFound => Answer::Get(None),
        Event::Finalized => Answer::Finalize,
        Event::Other(Reply::Ring { count, left, right }) => {
            Answer::Ring { position: count as u32, left: left.to_vec(), right: right.to_vec() }
        }
        Event::UniverseSize(_) | Event::Other(_) | Event::Failed { .. } => Answer::Strange(format!("{event:?}")),
    }
}
