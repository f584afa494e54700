//! What the server process says, looked through before anything is done about it: ranks are of this node or of this job,
//! sets are in order, numbers are new, lengths are within bounds.

use super::super::{Context, Job};
use super::asks::{Refused, Waits};
use crate::io::Stream;
use crate::time::Instant;
use bytes::Bytes;
use wireup_wire::group::{Members, Run};
use wireup_wire::ids::{LocalRank, Rank};
use wireup_wire::limits::{PENDING_PUT_BYTES_MAX, PMIX_BLOB_BYTES_MAX, STDIO_CHUNK_MAX};
use wireup_wire::modex::Up;
use wireup_wire::peer::Cause;
use wireup_wire::pmix::{Ask, FromServer, Set, Status};

const SECOND_NS: u64 = 1_000_000_000;

impl Job {
    /// Bytes of the server process.
    pub fn on_pmix_bytes(&mut self, bytes: &[u8], cx: &mut Context<'_>) {
        let Some(pmix) = self.pmix.as_mut().filter(|pmix| pmix.server.speaks()) else { return };
        pmix.server.unpacker.push(bytes);
        while let Some(pmix) = self.pmix.as_mut().filter(|pmix| pmix.server.speaks()) {
            match pmix.server.unpacker.next::<FromServer>() {
                Ok(Some(message)) => self.on_server(message, cx),
                Ok(None) => break,
                Err(error) => return self.fail_pmix(format!("it cannot be understood: {error}"), cx),
            }
        }
        self.send_modex(cx);
    }

    fn on_server(&mut self, message: FromServer, cx: &mut Context<'_>) {
        let starting = self.pmix.as_ref().is_some_and(|pmix| pmix.server.is_starting());
        if starting && !matches!(message, FromServer::Ready { .. } | FromServer::Failed { .. }) {
            return self.fail_pmix("it served before it was ready", cx);
        }
        let ending = self.pmix.as_ref().is_some_and(|pmix| pmix.server.is_ending());
        if ending && !matches!(message, FromServer::Finalized { .. }) {
            return;
        }
        match message {
            FromServer::Ready { version, env } => self.on_ready(version, env, cx),
            FromServer::Failed { problem } => self.on_server_failed(problem, cx),
            FromServer::Connected { rank } => self.with_local(rank, cx, |job, local, cx| {
                let process = &mut job.processes[local.index()];
                (process.spoke_pmi, process.spoke_pmix) = (true, true);
                process.trace.init_ns = cx.now.0;
                job.miss_absent(cx);
            }),
            FromServer::Finalized { rank } => self.with_local(rank, cx, |job, local, cx| {
                let process = &mut job.processes[local.index()];
                process.finalized = true;
                process.closed = false;
                process.trace.finalize_ns = cx.now.0;
                job.on_modex_departed(rank, cx.now);
                job.depart(local, cx);
            }),
            FromServer::Abort { rank, code, message } => self.with_local(rank, cx, |job, local, cx| {
                let pid = job.processes[local.index()].pid;
                job.fail_rank(rank, Some(pid), Cause::Aborted { code, message }, cx);
            }),
            FromServer::Ask { id, ask } => self.on_ask(id, ask, cx),
            FromServer::Modex { ticket, status, blob } => self.on_modex(ticket, status, blob, cx),
            FromServer::Raise { from, code, affected, to, infos } => self.with_local(from, cx, |job, _, cx| {
                if infos.len() > PMIX_BLOB_BYTES_MAX || !job.is_in_order(&to) {
                    return job.fail_pmix("it raises an event that is too long, or for ranks that there are not", cx);
                }
                job.pmix_up(&Up::Event { code, from: Some(from), affected, to, infos }, cx);
            }),
            FromServer::Watch => self.pmix_up(&Up::Watch, cx),
            FromServer::Log { rank, stream, text } => self.with_local(rank, cx, |job, local, cx| {
                let stream = if stream == 1 { Stream::Out } else { Stream::Err };
                let text = Bytes::from(text);
                if text.len() > STDIO_CHUNK_MAX {
                    return job.fail_pmix("it brings more text at once than a rank may write", cx);
                }
                job.on_stdio_bytes(local, stream, &text, cx);
            }),
        }
    }

    fn on_ask(&mut self, id: u64, ask: Ask, cx: &mut Context<'_>) {
        match ask {
            Ask::Fence { set, collect, data, timeout_s } => {
                if data.len() > PENDING_PUT_BYTES_MAX {
                    return self.fail_pmix("ranks have committed more than 64 MiB between two fences", cx);
                }
                let until = until(cx.now, timeout_s);
                match self.members(&set) {
                    Some(Members::World) => self.fence_all(id, collect, data, until, cx),
                    Some(members) => self.fence_some(id, members, data, until, cx),
                    None => self.fail_pmix("it asks for a fence of ranks that there are not, or of none here", cx),
                }
            }
            Ask::Group { name, set, data, timeout_s, .. } => {
                if data.len() > PMIX_BLOB_BYTES_MAX {
                    return self.fail_pmix("a rank brings more than 64 MiB to a group", cx);
                }
                let until = until(cx.now, timeout_s);
                match self.members(&set) {
                    Some(members) => self.fence_group(id, members, name, data, until, cx),
                    None => self.fail_pmix("it asks for a group of ranks that there are not, or of none here", cx),
                }
            }
            Ask::Modex { rank, timeout_s } => {
                let until = until(cx.now, timeout_s);
                if self.begin_ask(id, Waits::Modex, until, cx) {
                    self.want(id, rank, cx);
                }
            }
            Ask::ProcTable { here: true } => {
                if self.begin_ask(id, Waits::Root, None, cx) {
                    self.tell_processes_here(id, cx);
                }
            }
            Ask::Namespaces => {
                if self.begin_ask(id, Waits::Root, None, cx) {
                    self.tell_namespaces(id, cx);
                }
            }
            Ask::Publish { from, .. }
            | Ask::Lookup { from, .. }
            | Ask::Unpublish { from, .. }
            | Ask::Control { from, .. }
                if self.local_of(from).is_none() =>
            {
                self.fail_pmix(format!("it speaks for rank {from}, which is not here"), cx);
            }
            Ask::Publish { .. }
            | Ask::Lookup { .. }
            | Ask::Unpublish { .. }
            | Ask::Control { .. }
            | Ask::ProcTable { here: false } => {
                if self.begin_ask(id, Waits::Root, None, cx) {
                    self.ask_root(id, ask, cx);
                }
            }
        }
    }

    /// Takes a request on; a number that is outstanding, or one too many, breaks the rules.
    pub(super) fn begin_ask(&mut self, id: u64, waits: Waits, until: Option<Instant>, cx: &mut Context<'_>) -> bool {
        let Some(pmix) = &mut self.pmix else { return false };
        let problem = match pmix.asks.begin(id, waits, until) {
            Ok(()) => return true,
            Err(Refused::Twice) => format!("it asks twice by the number {id}"),
            Err(Refused::TooMany) => format!("it has more than {} requests outstanding", pmix.asks.len()),
        };
        self.fail_pmix(problem, cx);
        false
    }

    fn with_local(
        &mut self,
        rank: Rank,
        cx: &mut Context<'_>,
        act: impl FnOnce(&mut Job, LocalRank, &mut Context<'_>),
    ) {
        match self.local_of(rank) {
            Some(local) => act(self, local, cx),
            None => self.fail_pmix(format!("it speaks of rank {rank}, which is not here"), cx),
        }
    }

    pub(super) fn local_of(&self, rank: Rank) -> Option<LocalRank> {
        let (node, local) = self.facts.mapping.place(rank).filter(|_| rank.0 < self.facts.job_size)?;
        (Some(node) == self.facts.node).then_some(local)
    }

    /// The ranks of a set that has one here.
    fn members(&self, set: &Set) -> Option<Members> {
        let members = match set {
            Set::All => return Some(Members::World),
            Set::Ranks(ranks) if !self.is_in_order(set) || ranks.is_empty() => return None,
            Set::Ranks(ranks) if ranks.len() == self.facts.job_size as usize => return Some(Members::World),
            Set::Ranks(ranks) => Members::List(runs(ranks)),
        };
        let here = self.processes.iter().any(|process| members.contains(process.rank));
        here.then_some(members)
    }

    fn is_in_order(&self, set: &Set) -> bool {
        match set {
            Set::All => true,
            Set::Ranks(ranks) => {
                ranks.is_sorted_by(|one, next| one < next)
                    && ranks.last().is_none_or(|last| last.0 < self.facts.job_size)
            }
        }
    }

    /// A request that the node itself answers as not possible.
    pub(super) fn not_here(&mut self, id: u64, cx: &mut Context<'_>) {
        self.refuse_ask(id, Status::BadParam, cx);
    }
}

pub(super) fn until(now: Instant, timeout_s: Option<u32>) -> Option<Instant> {
    timeout_s.filter(|seconds| *seconds > 0).map(|seconds| now + u64::from(seconds) * SECOND_NS)
}

/// Consecutive ranks as one.
fn runs(ranks: &[Rank]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some(last) if rank.0 == last.first + last.count => last.count += 1,
            _ => runs.push(Run { first: rank.0, count: 1 }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_run() {
        let ranks: Vec<Rank> = [1, 2, 3, 7, 9, 10].map(Rank).into();
        let run = |first, count| Run { first, count };
        assert_eq!(runs(&ranks), [run(1, 3), run(7, 1), run(9, 2)]);
        assert_eq!(until(Instant(5), Some(0)), None);
        assert_eq!(until(Instant(5), Some(2)), Some(Instant(2_000_000_005)));
    }
}
