//! The PMI sockets between ranks and their agents: bytes in flight, sometimes split, and ends that close.

use crate::birth::JOB;
use crate::clock::Event;
use crate::memory::Shared;
use crate::ranks::{Doing, FromAgent, ToAgent};
use crate::steps::PMI_FAILED_CODE;
use crate::world::World;
use bytes::Bytes;
use wireup_proto::io::{ExitStatus, Input};
use wireup_wire::ids::LocalRank;

impl World {
    /// Writes bytes to the PMI socket, sometimes in pieces.
    pub(crate) fn send_client_bytes(&mut self, rank: u32, mut bytes: Bytes) {
        let proc = &mut self.procs[rank as usize];
        if !proc.socket[0] {
            return;
        }
        if bytes.len() > 1 && self.rng.chance(self.spec.timing.cut_permille) {
            let piece = bytes.split_to(self.rng.between(1, bytes.len() as u64 - 1) as usize);
            let delay_ns = self.spec.timing.client.draw(&mut self.rng);
            proc.to_agent.push(&mut self.clock, delay_ns, ToAgent::Bytes(piece), Event::ClientArrive(rank));
        }
        let delay_ns = self.spec.timing.client.draw(&mut self.rng);
        proc.to_agent.push(&mut self.clock, delay_ns, ToAgent::Bytes(bytes), Event::ClientArrive(rank));
    }

    pub(crate) fn on_client_arrive(&mut self, rank: u32) {
        let proc = &mut self.procs[rank as usize];
        let (host, local) = (proc.host, proc.local);
        if !proc.start_is_known {
            // The agent receives the socket together with the report that the rank runs.
            if self.hosts[host as usize].keeper.is_empty() {
                return proc.to_agent.clear();
            }
            let delay_ns = self.spec.timing.report.draw(&mut self.rng);
            return self.clock.after(delay_ns.max(1), Event::ClientArrive(rank));
        }
        let Some(item) = proc.to_agent.pop() else { return };
        if !proc.socket[1] || self.hosts[host as usize].job_is_gone {
            return;
        }
        match item {
            ToAgent::Bytes(bytes) => self.tell_agent(host, Input::ClientBytes { job: JOB, local, bytes }),
            ToAgent::Gone => {
                proc.socket[1] = false;
                self.tell_agent(host, Input::ClientGone { job: JOB, local });
            }
        }
    }

    /// Memory is passed with the first bytes, which may arrive in pieces.
    pub(crate) fn reply(&mut self, host: u32, local: LocalRank, mut bytes: Bytes, mut shares: Vec<Shared>) {
        let rank = self.hosts[host as usize].ranks.get(local.index()).copied();
        let is_own = rank.is_some_and(|rank| self.is_own(rank));
        if is_own && bytes.len() > 1 && self.rng.chance(self.spec.timing.cut_permille) {
            let piece = bytes.split_to(self.rng.between(1, bytes.len() as u64 - 1) as usize);
            self.push_to_rank(host, local, FromAgent::Bytes(piece, std::mem::take(&mut shares)));
        }
        self.push_to_rank(host, local, FromAgent::Bytes(bytes, shares));
    }

    pub(crate) fn close_client(&mut self, host: u32, local: LocalRank) {
        self.push_to_rank(host, local, FromAgent::Closed);
        let rank = self.hosts[host as usize].ranks[local.index()];
        self.procs[rank as usize].socket[1] = false;
    }

    fn push_to_rank(&mut self, host: u32, local: LocalRank, item: FromAgent) {
        let Some(&rank) = self.hosts[host as usize].ranks.get(local.index()) else {
            return self.checks.problem(format!("agent {host} writes to local rank {local}, which it does not have"));
        };
        let proc = &mut self.procs[rank as usize];
        if proc.socket[0] && proc.socket[1] {
            let delay_ns = self.spec.timing.client.draw(&mut self.rng);
            proc.from_agent.push(&mut self.clock, delay_ns, item, Event::ReplyArrive(rank));
        }
    }

    pub(crate) fn on_reply_arrive(&mut self, rank: u32) {
        let proc = &mut self.procs[rank as usize];
        let Some(item) = proc.from_agent.pop() else { return };
        if !proc.is_running() || proc.is_leaving() {
            return;
        }
        match item {
            FromAgent::Bytes(bytes, shares) => {
                self.digest.number(u64::from(rank) ^ self.clock.now().0 << 16);
                self.digest.bytes(&bytes);
                let Some(client) = &mut proc.pmi else { return };
                let heard = client.hear(&bytes, shares);
                self.on_heard(rank, heard);
            }
            FromAgent::Closed => {
                if matches!(proc.doing, Doing::Reply | Doing::Nothing) {
                    self.end_rank(rank, ExitStatus::Exited(PMI_FAILED_CODE));
                }
            }
        }
    }
}
