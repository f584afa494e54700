//! The PMI sockets between ranks and their agents: bytes in flight, sometimes split, and ends that close.

use crate::clock::Event;
use crate::memory::Shared;
use crate::ranks::{Doing, FromAgent, ToAgent};
use crate::steps::PMI_FAILED_CODE;
use crate::world::World;
use bytes::Bytes;
use wireup_proto::io::{ExitStatus, Input, JobEvent};
use wireup_wire::ids::LocalRank;

impl World {
    /// Writes bytes to the PMI socket, sometimes in pieces.
    pub(crate) fn send_client_bytes(&mut self, id: u32, mut bytes: Bytes) {
        let proc = &mut self.procs[id as usize];
        if !proc.socket[0] {
            return;
        }
        if bytes.len() > 1 && self.rng.chance(self.spec.timing.cut_permille) {
            let piece = bytes.split_to(self.rng.between(1, bytes.len() as u64 - 1) as usize);
            let delay_ns = self.spec.timing.client.draw(&mut self.rng);
            proc.to_agent.push(&mut self.clock, delay_ns, ToAgent::Bytes(piece), Event::ClientArrive(id));
        }
        let delay_ns = self.spec.timing.client.draw(&mut self.rng);
        proc.to_agent.push(&mut self.clock, delay_ns, ToAgent::Bytes(bytes), Event::ClientArrive(id));
    }

    pub(crate) fn on_client_arrive(&mut self, id: u32) {
        let proc = &mut self.procs[id as usize];
        let (node, local) = (proc.node, proc.local);
        if !proc.start_is_known {
            // The agent receives the socket together with the report that the rank runs.
            if self.nodes[node as usize].keeper.is_empty() {
                return proc.to_agent.clear();
            }
            let delay_ns = self.spec.timing.report.draw(&mut self.rng);
            return self.clock.after(delay_ns.max(1), Event::ClientArrive(id));
        }
        let Some(item) = proc.to_agent.pop() else { return };
        if !proc.socket[1] || self.nodes[node as usize].job_is_gone {
            return;
        }
        match item {
            ToAgent::Bytes(bytes) => self.tell_node(node, |job| Input::Job {
                job,
                event: JobEvent::ClientBytes { client: local.into(), bytes },
            }),
            ToAgent::Gone => {
                proc.socket[1] = false;
                self.tell_node(node, |job| Input::Job { job, event: JobEvent::ClientGone { client: local.into() } });
            }
        }
    }

    /// Memory is passed with the first bytes, which may arrive in pieces.
    pub(crate) fn reply(&mut self, node: u32, local: LocalRank, mut bytes: Bytes, mut shares: Vec<Shared>) {
        let id = self.nodes[node as usize].ranks.get(local.index()).copied();
        let is_own = id.is_some_and(|id| self.is_own(id));
        if is_own && bytes.len() > 1 && self.rng.chance(self.spec.timing.cut_permille) {
            let piece = bytes.split_to(self.rng.between(1, bytes.len() as u64 - 1) as usize);
            self.push_to_rank(node, local, FromAgent::Bytes(piece, std::mem::take(&mut shares)));
        }
        self.push_to_rank(node, local, FromAgent::Bytes(bytes, shares));
    }

    pub(crate) fn close_client(&mut self, node: u32, local: LocalRank) {
        self.push_to_rank(node, local, FromAgent::Closed);
        let id = self.nodes[node as usize].ranks[local.index()];
        self.procs[id as usize].socket[1] = false;
    }

    fn push_to_rank(&mut self, node: u32, local: LocalRank, item: FromAgent) {
        let Some(&id) = self.nodes[node as usize].ranks.get(local.index()) else {
            let host = self.nodes[node as usize].host;
            return self.checks.problem(format!("agent {host} writes to local rank {local}, which it does not have"));
        };
        let proc = &mut self.procs[id as usize];
        if proc.socket[0] && proc.socket[1] {
            let delay_ns = self.spec.timing.client.draw(&mut self.rng);
            proc.from_agent.push(&mut self.clock, delay_ns, item, Event::ReplyArrive(id));
        }
    }

    pub(crate) fn on_reply_arrive(&mut self, id: u32) {
        let proc = &mut self.procs[id as usize];
        let Some(item) = proc.from_agent.pop() else { return };
        if !proc.is_running() || proc.is_leaving() {
            return;
        }
        match item {
            FromAgent::Bytes(bytes, shares) => {
                self.digest.number(u64::from(id) ^ self.clock.now().0 << 16);
                self.digest.bytes(&bytes);
                self.checks.shared += shares.len() as u64;
                let Some(client) = &mut proc.pmi else { return };
                let heard = client.hear(&bytes, shares);
                self.on_heard(id, heard);
            }
            FromAgent::Closed => {
                if matches!(proc.doing, Doing::Reply | Doing::Nothing) {
                    self.end_rank(id, ExitStatus::Exited(PMI_FAILED_CODE));
                }
            }
        }
    }
}
