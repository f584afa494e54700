//! One of our own clients, as our library for C is one: puts wait for the next request, collectives are numbered, what
//! fences have published is looked up in memory.

use crate::client::{Answer, Heard, Op, ring};
use crate::memory::{Page, Shared};
use bytes::Bytes;
use std::collections::VecDeque;
use std::rc::Rc;
use wireup_client::env::Env;
use wireup_client::escape::doubled;
use wireup_client::pipeline::{Broken, Pipeline};
use wireup_wire::pmi::{Command, Dialect, Reply, Request};
use wireup_wire::shared::rows::ARENA_SLOTS;
use wireup_wire::shared::segment::Segment;

/// The version of our own commands.
const EXTENSION: Option<u32> = Some(1);

pub struct OwnClient {
    env: Env,
    pipeline: Pipeline,
    /// Puts that go along with the next request.
    held: Vec<u8>,
    /// Memory that came and belongs to answers still to be read.
    received: VecDeque<Shared>,
    /// Oldest first, each with the version where it ends.
    segments: Vec<(u32, Rc<Page>)>,
    /// What is mapped, and the latest version that a fence has told of.
    mapped: u32,
    latest: u32,
    /// Where short arrays lie, and what is read and may be written again: told with the next allgather.
    arena: Option<Shared>,
    freed: Vec<String>,
}

impl OwnClient {
    pub fn new(env: Env) -> Self {
        OwnClient {
            env,
            pipeline: Pipeline::new(Dialect::Pmi2),
            held: Vec::new(),
            received: VecDeque::new(),
            segments: Vec::new(),
            mapped: 0,
            latest: 0,
            arena: None,
            freed: Vec::new(),
        }
    }

    /// Whether a fence has published what is not mapped.
    pub fn is_behind(&self) -> bool {
        self.mapped < self.latest
    }

    /// The value of a key, in what is mapped; an error if that is no segment.
    pub fn lookup(&self, key: &str) -> Result<Option<&[u8]>, String> {
        for (end, page) in self.segments.iter().rev() {
            let segment = Segment::read(page.bytes()).map_err(|error| format!("the segment to {end}: {error}"))?;
            if let Some(value) = segment.get(key.as_bytes()) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    pub(crate) fn ask(&mut self, op: Op<'_>) -> Option<Bytes> {
        let (mut room, have) = (Vec::new(), self.have());
        let freed;
        let request = match op {
            Op::Init => Request::Init { version: 2, subversion: 0, extension: None },
            Op::Put { key, value } => Request::Put { kvsname: None, key: key.as_bytes(), value: value.as_bytes() },
            Op::Fence => Request::Barrier { group: None },
            Op::Get { key } => Request::Get { kvsname: None, key: key.as_bytes(), source: Some(-1) },
            Op::Ring { value } => ring(value),
            Op::StartFence { id } => Request::FenceNb { id },
            Op::StartAllgather { id, max_len, shared, value } => {
                freed = std::mem::take(&mut self.freed).join(",");
                let (freed, value) = (freed.as_bytes(), doubled(value, &mut room));
                Request::Allgather { id, max_len, shared, freed, value }
            }
            Op::Map => Request::KvsMap { have: have.as_bytes() },
            Op::Finalize => Request::Finalize,
            Op::Abort { code } => Request::Abort { world: true, code, message: b"the script says so" },
            Op::Barrier { .. } => panic!("PMI-2 has no barriers of groups"),
        };
        assert!(self.pipeline.ask(&request, &mut self.held), "PMI-2 has {request:?}");
        let waits = matches!(op, Op::Put { .. });
        (!waits).then(|| std::mem::take(&mut self.held).into())
    }

    pub(crate) fn hear(&mut self, bytes: &[u8], shares: Vec<Shared>) -> Heard {
        self.received.extend(shares);
        let mut heard = Heard::default();
        let mut result = self.pipeline.push(bytes);
        while result.is_ok() {
            result = match self.next(&mut heard) {
                Ok(true) => continue,
                Ok(false) => break,
                Err(broken) => Err(broken),
            };
        }
        heard.broken = heard.broken.or(result.err().map(|broken| format!("{broken:?}")));
        heard
    }

    /// Reads one answer; `false`: there is no whole one.
    fn next(&mut self, heard: &mut Heard) -> Result<bool, Broken> {
        let Self { env, pipeline, received, segments, mapped, latest, arena, freed, .. } = self;
        let Some(answer) = pipeline.next()? else { return Ok(false) };
        let (command, id) = (answer.command, answer.id.unwrap_or_default());
        if received.len() < answer.descriptors {
            heard.broken = Some(format!("{command:?} says {} pieces of memory and came too early", answer.descriptors));
            return Ok(false);
        }
        let shares: Vec<Shared> = received.drain(..answer.descriptors).collect();
        let reply = match answer.fields.reply_to(command) {
            Ok(reply) => reply,
            Err(problem) => {
                heard.answers.push(Answer::Strange(problem.to_string()));
                return Ok(true);
            }
        };
        let meant = match (command, reply) {
            (Command::Init, Reply::Init { version: 2, rc: 0, .. }) => {
                pipeline.switch_to_pmi2();
                let request = Request::FullInit { rank: Some(env.rank), job_id: Some(b""), threaded: false };
                let mut out = Vec::new();
                pipeline.ask(&request, &mut out);
                heard.send = out.into();
                return Ok(true);
            }
            (Command::FullInit, Reply::FullInit { rank, size, extension, .. })
                if (rank, size, extension) == (env.rank, env.size, EXTENSION) =>
            {
                Answer::Init
            }
            // Nobody waits for it.
            (Command::Put, Reply::Done) => return Ok(true),
            (Command::Barrier, Reply::BarrierOut { .. }) => Answer::Fence,
            (Command::Get, Reply::Value(value)) => Answer::Get(Some(value.to_vec())),
            (Command::Get, Reply::NotFound) => Answer::Get(None),
            (Command::Ring, Reply::Ring { count, left, right }) => {
                Answer::Ring { position: count as u32, left: left.to_vec(), right: right.to_vec() }
            }
            (Command::FenceNb, Reply::FenceNb { version, .. }) => {
                *latest = (*latest).max(version);
                Answer::FenceOver { id, version }
            }
            (Command::Allgather, Reply::Allgather { place: None, .. }) => {
                match shares.into_iter().next().and_then(Shared::page) {
                    Some(array) => Answer::AllgatherOver { id, array },
                    None => Answer::Strange("an allgather without its array".into()),
                }
            }
            (Command::Allgather, Reply::Allgather { place: Some(place), .. }) => {
                *arena = shares.into_iter().next().or(arena.take());
                freed.push(place.to_string());
                match arena.as_ref().and_then(|arena| arena.slot((place % ARENA_SLOTS) as usize)) {
                    Some(array) => Answer::AllgatherOver { id, array },
                    None => Answer::Strange("an allgather without its arena".into()),
                }
            }
            (Command::KvsMap, Reply::KvsMap { keep, ends }) => {
                segments.truncate(keep as usize);
                let ends = String::from_utf8_lossy(ends).into_owned();
                let ends = ends.split(',').filter_map(|end| end.parse().ok());
                segments.extend(ends.zip(shares.into_iter().filter_map(Shared::page)));
                *mapped = segments.last().map_or(0, |(end, _)| *end);
                Answer::Mapped
            }
            (Command::Finalize, Reply::Done) => Answer::Finalize,
            (Command::Finalize, Reply::Failed { message }) if message.contains("outstanding") => Answer::Refused,
            (command, reply) => Answer::Strange(format!("{command:?}: {reply:?}")),
        };
        heard.answers.push(meant);
        Ok(true)
    }

    fn have(&self) -> String {
        let ends: Vec<String> = self.segments.iter().map(|(end, _)| end.to_string()).collect();
        ends.join(",")
    }
}
