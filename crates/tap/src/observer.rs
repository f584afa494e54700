//! Reads along with what a rank and its PMI server say to each other.
//!
//! It only looks: if it cannot read the bytes, it stops counting and the bytes go on.

use crate::page::{Family, Page};
use std::collections::VecDeque;
use wireup_wire::pmi::{Command, Dialect, PmiError, ReplyReader, Request, RequestReader};

/// Requests that wait for an answer: more are not matched.
const OUTSTANDING_MAX: usize = 1024;
/// The longest name of a job that is kept.
pub const JOB_MAX: usize = 128;

struct Outstanding {
    command: Command,
    family: Family,
    /// The number of the fence of all ranks that it is.
    fence: Option<usize>,
    sent: u64,
    from_ns: u64,
}

#[derive(Default)]
pub struct Observer {
    requests: RequestReader,
    replies: ReplyReader,
    outstanding: VecDeque<Outstanding>,
    pub page: Box<Page>,
    /// The name that the server has given to the job; empty: none yet.
    pub job: Vec<u8>,
    /// The bytes could not be read; nothing is counted any more.
    pub is_lost: bool,
    /// Answers to no request that is known.
    pub unmatched: u64,
}

impl Observer {
    pub fn dialect(&self) -> Dialect {
        self.requests.dialect()
    }

    /// Bytes of the rank.
    pub fn on_sent(&mut self, bytes: &[u8], now_ns: u64) {
        if !self.is_lost && self.read_requests(bytes, now_ns).is_err() {
            self.is_lost = true;
        }
    }

    /// Bytes of the server.
    pub fn on_received(&mut self, bytes: &[u8], now_ns: u64) {
        if !self.is_lost && self.read_replies(bytes, now_ns).is_err() {
            self.is_lost = true;
        }
    }

    fn read_requests(&mut self, bytes: &[u8], now_ns: u64) -> Result<(), PmiError> {
        self.requests.push(bytes)?;
        loop {
            let held = self.requests.held_bytes();
            let Some(envelope) = self.requests.next()? else { return Ok(()) };
            let command = envelope.request.command();
            let of_all = match &envelope.request {
                Request::Barrier { group } => group.is_none_or(|group| group.starts_with(b"WORLD")),
                // Of our own library, answered later.
                Request::FenceNb { .. } => true,
                _ => false,
            };
            let sent = held.saturating_sub(self.requests.held_bytes()) as u64;
            let family = family(command, of_all);
            if family == Family::Finalize {
                self.page.finalize_ns.store(now_ns, std::sync::atomic::Ordering::Relaxed);
            }
            let fence = of_all.then(|| self.page.fence_begins(now_ns));
            if command == Command::Abort {
                // It has no answer.
                self.page.add(family, sent, 0, now_ns, now_ns);
            } else if self.outstanding.len() < OUTSTANDING_MAX {
                self.outstanding.push_back(Outstanding { command, family, fence, sent, from_ns: now_ns });
            }
        }
    }

    fn read_replies(&mut self, bytes: &[u8], now_ns: u64) -> Result<(), PmiError> {
        self.replies.push(bytes)?;
        loop {
            let held = self.replies.held_bytes();
            let Some(reply) = self.replies.next()? else { return Ok(()) };
            let becomes_pmi2 = reply.answers(Command::Init)
                && reply.succeeded()
                && reply.get("pmi_version").is_some_and(|version| version.trim_ascii() == b"2");
            let job = match self.job.is_empty() {
                true if reply.answers(Command::GetMyKvsname) => reply.get("kvsname"),
                true if reply.answers(Command::FullInit) => reply.get("pmijobid"),
                true if reply.answers(Command::JobGetId) => reply.get("jobid"),
                _ => None,
            };
            if let Some(job) = job.filter(|job| job.len() <= JOB_MAX) {
                self.job = job.to_vec();
            }
            let at = self.outstanding.iter().position(|request| reply.answers(request.command));
            let received = held.saturating_sub(self.replies.held_bytes()) as u64;
            match at.and_then(|at| self.outstanding.remove(at)) {
                Some(request) => {
                    self.page.add(request.family, request.sent, received, request.from_ns, now_ns);
                    if let Some(number) = request.fence {
                        self.page.fence_out(number, now_ns);
                    }
                }
                None => self.unmatched += 1,
            }
            if becomes_pmi2 {
                self.requests.switch_to_pmi2();
                self.replies.switch_to_pmi2();
            }
        }
    }
}

fn family(command: Command, of_all: bool) -> Family {
    match command {
        _ if of_all => Family::Fence,
        Command::Init | Command::FullInit => Family::Init,
        Command::Put | Command::PutNodeAttr => Family::Put,
        Command::Get | Command::GetByIdx | Command::GetNodeAttr => Family::Get,
        Command::Finalize => Family::Finalize,
        Command::GetMaxes
        | Command::GetUniverseSize
        | Command::GetAppnum
        | Command::GetMyKvsname
        | Command::JobGetId
        | Command::GetJobAttr => Family::Info,
        _ => Family::Other,
    }
}
