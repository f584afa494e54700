//! A rank's PMI conversation: one operation of a script at a time, however many requests it takes.

use bytes::Bytes;
use std::collections::VecDeque;
use wireup_proto::io::{RankPlan, SpawnPlan};
use wireup_wire::pmi::{Command, Dialect, Reply, ReplyReader, Request, encode_request};

/// What a script asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op<'a> {
    Init,
    Put { key: &'a str, value: &'a str },
    Fence,
    Get { key: &'a str },
    Finalize,
    Abort { code: i32 },
}

/// What it came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Init,
    Put,
    Fence,
    /// `None`: nobody put such a key.
    Get(Option<Vec<u8>>),
    Finalize,
    Refused(String),
}

/// What the agent's bytes mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    Nothing,
    /// The operation goes on: this is to be sent.
    Send(Bytes),
    Answer(Answer),
    /// No reply to anything that was asked.
    Broken(String),
}

/// The client's half of one rank's link.
pub struct PmiRank {
    pub rank: u32,
    pub size: u32,
    dialect: Dialect,
    reader: ReplyReader,
    kvsname: Vec<u8>,
    /// Requests of the operation at hand that wait for their turn; the first one is under way.
    asked: VecDeque<Command>,
}

impl PmiRank {
    /// The client of a rank that finds itself in the environment of its plan.
    pub fn new(plan: &SpawnPlan, rank_plan: &RankPlan, dialect: Dialect) -> Result<Self, String> {
        let program = plan.programs.get(usize::from(rank_plan.program)).ok_or("has no program")?;
        let number = |name: &str| {
            let mut found =
                rank_plan.env.iter().chain(&program.env).filter_map(|variable| variable.strip_prefix(name.as_bytes()));
            let text = found.next().ok_or(format!("lacks {name}"))?;
            if found.next().is_some() {
                return Err(format!("has {name} twice"));
            }
            std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(format!("has a strange {name}"))
        };
        let (rank, size) = (number("WIREUP_RANK=")?, number("WIREUP_SIZE=")?);
        if plan.pmi_socket && (number("PMI_RANK=")?, number("PMI_SIZE=")?) != (rank, size) {
            return Err("is told different ranks by WIREUP_RANK and PMI_RANK".into());
        }
        let reader = ReplyReader::new();
        Ok(PmiRank { rank, size, dialect, reader, kvsname: Vec::new(), asked: VecDeque::new() })
    }

    /// The first request of an operation.
    pub fn ask(&mut self, op: Op<'_>) -> Bytes {
        let (kvsname, rank) = (std::mem::take(&mut self.kvsname), self.rank);
        let named = (self.dialect == Dialect::Pmi1).then_some(&kvsname[..]);
        let request = match op {
            Op::Init => Request::Init {
                version: if self.dialect == Dialect::Pmi1 { 1 } else { 2 },
                subversion: u32::from(self.dialect == Dialect::Pmi1),
            },
            Op::Put { key, value } => Request::Put { kvsname: named, key: key.as_bytes(), value: value.as_bytes() },
            Op::Fence => Request::Barrier { group: None },
            Op::Get { key } => Request::Get { kvsname: named, key: key.as_bytes(), source: Some(rank as i32) },
            Op::Finalize => Request::Finalize,
            Op::Abort { code } => Request::Abort { code, message: b"sim", world: true },
        };
        let bytes = self.request(&request);
        self.kvsname = kvsname;
        bytes
    }

    /// Reads what the agent sent.
    pub fn hear(&mut self, bytes: &[u8]) -> Heard {
        if let Err(error) = self.reader.push(bytes) {
            return Heard::Broken(error.to_string());
        }
        let reply = match self.reader.next() {
            Ok(Some(reply)) => reply,
            Ok(None) => return Heard::Nothing,
            Err(error) => return Heard::Broken(error.to_string()),
        };
        let Some(command) = self.asked.pop_front() else {
            return Heard::Broken(format!("{:?} answers nothing", String::from_utf8_lossy(reply.name())));
        };
        match reply.reply_to(command) {
            Err(problem) => Heard::Broken(problem.to_string()),
            Ok(Reply::Failed { message }) => Heard::Answer(Answer::Refused(message.into())),
            Ok(reply) => {
                let step = next(command, self.dialect, &reply, &mut self.kvsname);
                self.follow(step)
            }
        }
    }

    fn follow(&mut self, step: Next) -> Heard {
        match step {
            Next::Ask(command) => {
                if command == Command::FullInit {
                    self.reader.switch_to_pmi2();
                }
                let rank = self.rank;
                let request = match command {
                    Command::GetMaxes => Request::GetMaxes,
                    Command::GetMyKvsname => Request::GetMyKvsname,
                    _ => Request::FullInit { rank: Some(rank), job_id: None, threaded: false },
                };
                Heard::Send(self.request(&request))
            }
            Next::Answer(answer) => Heard::Answer(answer),
            Next::Strange => Heard::Broken("a reply of another kind".into()),
        }
    }

    fn request(&mut self, request: &Request<'_>) -> Bytes {
        if request.command() != Command::Abort {
            self.asked.push_back(request.command());
        }
        let mut bytes = Vec::new();
        encode_request(self.dialect, request, None, &mut bytes).expect("scripts ask for what both dialects have");
        bytes.into()
    }
}

/// What follows a reply.
enum Next {
    Ask(Command),
    Answer(Answer),
    Strange,
}

fn next(command: Command, dialect: Dialect, reply: &Reply<'_>, kvsname: &mut Vec<u8>) -> Next {
    match (command, reply) {
        (Command::Init, Reply::Init { rc: 0, .. }) if dialect == Dialect::Pmi2 => Next::Ask(Command::FullInit),
        (Command::Init, Reply::Init { rc: 0, .. }) => Next::Ask(Command::GetMaxes),
        (Command::GetMaxes, Reply::Maxes { .. }) => Next::Ask(Command::GetMyKvsname),
        (Command::GetMyKvsname, Reply::KvsName(name)) => {
            *kvsname = name.to_vec();
            Next::Answer(Answer::Init)
        }
        (Command::FullInit, Reply::FullInit { .. }) => Next::Answer(Answer::Init),
        (Command::Put, Reply::Done) => Next::Answer(Answer::Put),
        (Command::Barrier, Reply::BarrierOut) => Next::Answer(Answer::Fence),
        (Command::Get, Reply::Value(value)) => Next::Answer(Answer::Get(Some(value.to_vec()))),
        (Command::Get, Reply::NotFound) => Next::Answer(Answer::Get(None)),
        (Command::Finalize, Reply::Done) => Next::Answer(Answer::Finalize),
        _ => Next::Strange,
    }
}
