//! Parses a copy of the PMI messages between a rank and its server, to count and time the requests.
//!
//! It never changes the bytes: if it cannot parse them, it stops counting, and the bytes are still passed on.

use crate::page::{Family, Page};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use wireup_wire::pmi::{Command, Dialect, PmiError, ReplyReader, Request, RequestReader};

/// Most unanswered requests that are tracked; further requests are not counted.
const OUTSTANDING_MAX: usize = 1024;
/// Longest job name that is kept (bytes).
pub const JOB_MAX: usize = 128;

struct Outstanding {
    command: Command,
    family: Family,
    /// The fence's number, if the request is a fence of all ranks.
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
    /// The name that the server has given to the job; empty: not known yet.
    pub job: Vec<u8>,
    /// Whether bytes could not be parsed as PMI, so that nothing is counted any more.
    pub is_lost: bool,
}

impl Observer {
    /// An observer that counts nothing.
    pub fn blind() -> Observer {
        Observer { is_lost: true, ..Observer::default() }
    }

    pub fn dialect(&self) -> Dialect {
        self.requests.dialect()
    }

    /// Handles bytes that the rank has sent.
    pub fn on_sent(&mut self, bytes: &[u8], now_ns: u64) {
        if !self.is_lost && self.read_requests(bytes, now_ns).is_err() {
            self.is_lost = true;
        }
    }

    /// Handles bytes that the server has sent.
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
                // A non-blocking fence of all ranks, a request that only wireup's own libraries make.
                Request::FenceNb { .. } => true,
                _ => false,
            };
            let sent = held.saturating_sub(self.requests.held_bytes()) as u64;
            let family = family(command, of_all);
            if family == Family::Finalize {
                self.page.finalize_ns.store(now_ns, Relaxed);
            }
            let fence = of_all.then(|| self.page.fence_begins(now_ns));
            if command == Command::Abort {
                // An abort has no answer, so it is counted when it is sent.
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
            if let Some(request) = at.and_then(|at| self.outstanding.remove(at)) {
                self.page.add(request.family, request.sent, received, request.from_ns, now_ns);
                if let Some(number) = request.fence {
                    self.page.fence_out(number, now_ns);
                }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Tally;

    /// Feeds the lines to an observer in pieces of at most `chunk` bytes.
    fn watch(lines: &[(bool, &str)], chunk: usize) -> (Observer, Tally) {
        let mut observer = Observer::default();
        for (at, (is_sent, text)) in lines.iter().enumerate() {
            for bytes in text.as_bytes().chunks(chunk) {
                match is_sent {
                    true => observer.on_sent(bytes, 10 + at as u64),
                    false => observer.on_received(bytes, 10 + at as u64),
                }
            }
        }
        let tally = Tally::of(&observer.page);
        (observer, tally)
    }

    #[test]
    fn pmi_1_is_counted_however_the_bytes_are_split() {
        let lines = [
            (true, "cmd=init pmi_version=1 pmi_subversion=1\n"),
            (false, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"),
            (true, "cmd=get_my_kvsname\n"),
            (false, "cmd=my_kvsname kvsname=kvs_7\n"),
            (true, "cmd=put kvsname=kvs_7 key=a value=b\n"),
            (false, "cmd=put_result rc=0\n"),
            (true, "cmd=barrier_in\n"),
            (false, "cmd=barrier_out rc=0\n"),
            (true, "cmd=finalize\n"),
        ];
        for chunk in [1, 7, 1000] {
            let (observer, tally) = watch(&lines, chunk);
            assert_eq!((observer.job.as_slice(), observer.is_lost), (&b"kvs_7"[..], false));
            assert_eq!((tally.fences, tally.fence_times[0], tally.finalize_ns), (1, (16, 17), 18));
            let put = tally.family(Family::Put);
            assert_eq!((put.calls, put.sent, put.received, put.wait_ns), (1, 36, 20, 1));
            // The finalize request was not answered, so it is not counted.
            assert_eq!(tally.family(Family::Finalize).calls, 0);
        }
    }

    #[test]
    fn pmi_2_follows_the_answer_to_init() {
        let lines = [
            (true, "cmd=init pmi_version=2 pmi_subversion=0\n"),
            (false, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n"),
            (true, "    38cmd=fullinit;pmirank=0;threaded=FALSE;"),
            (false, "    54cmd=fullinit-response;pmijobid=j.1;rank=0;size=2;rc=0;"),
            (true, "    14cmd=kvs-fence;"),
            (false, "    28cmd=kvs-fence-response;rc=0;"),
        ];
        let (observer, tally) = watch(&lines, 3);
        assert_eq!((observer.dialect(), observer.is_lost), (Dialect::Pmi2, false));
        assert_eq!((tally.family(Family::Init).calls, tally.fence_times[0]), (2, (14, 15)));
    }

    #[test]
    fn what_is_no_pmi_ends_the_counting_and_nothing_else() {
        let (observer, tally) = watch(&[(true, "GET / HTTP/1.1\n"), (true, "cmd=finalize\n")], 1000);
        assert!(observer.is_lost && tally.calls() == 0);
        let (observer, _) = watch(&[(false, "cmd=barrier_out rc=0\n")], 1000);
        assert!(!observer.is_lost, "an answer to no request");
    }
}
