//! PMI requests of the node's ranks.

use super::{Context, Job};
use crate::io::Output;
use crate::pmi_link::{Effect, Facts, Tables, Who};
use crate::pmi_state::State;
use bytes::Bytes;
use wireup_wire::ids::LocalRank;
use wireup_wire::job::PmiFence;
use wireup_wire::peer::Cause;

impl Job {
    pub fn on_client_bytes(&mut self, local: LocalRank, bytes: &[u8], cx: &mut Context<'_>) {
        let Some(process) = self.processes.get_mut(local.index()) else {
            return;
        };
        if process.link.state() == State::Closed {
            return;
        }
        let facts = Facts {
            nspace: &self.facts.spec.nspace,
            job_size: self.facts.job_size,
            process_mapping: self.process_mapping.as_deref(),
            lazy_fence: self.facts.spec.options.pmi_fence == PmiFence::Lazy,
            pmi_version: self.facts.spec.options.pmi_version,
        };
        let who = Who { local, rank: process.rank, appnum: process.appnum };
        let (kvs, attrs) = (&mut self.kvs, &mut self.attrs);
        let mut tables = Tables { kvs, attrs, memory: &mut *cx.memory, shares: Vec::new() };
        let (mut reply, mut effects) = (Vec::new(), Vec::new());
        let result = process.link.on_bytes(bytes, who, &facts, &mut tables, &mut reply, &mut effects);
        let shares = tables.shares;
        if !reply.is_empty() {
            cx.out.push(Output::Reply { job: self.facts.spec.job, local, bytes: Bytes::from(reply), shares });
        }
        for effect in effects {
            self.on_effect(local, effect, cx);
        }
        if let Err(problem) = result {
            cx.out.push(Output::CloseClient { job: self.id(), local });
            let process = &mut self.processes[local.index()];
            process.link.close();
            let (rank, pid) = (process.rank, process.pid);
            self.fail_rank(rank, Some(pid), Cause::Pmi { problem: problem.to_string() }, cx);
        }
    }

    fn on_effect(&mut self, local: LocalRank, effect: Effect, cx: &mut Context<'_>) {
        match effect {
            Effect::Initialised => {
                let process = &mut self.processes[local.index()];
                process.spoke_pmi = true;
                process.trace.init_ns = cx.now.0;
            }
            Effect::Enter { entry, ticket } => self.on_enter(local, entry, ticket, cx),
            Effect::Freed { place } => self.arenas.free(local, place),
            Effect::EnterGroup(group) => self.on_enter_group(local, group, cx),
            Effect::Finalized => {
                let process = &mut self.processes[local.index()];
                process.finalized = true;
                process.trace.finalize_ns = cx.now.0;
                self.depart(local, cx);
            }
            Effect::Abort { code, message } => {
                let process = &self.processes[local.index()];
                let (rank, pid) = (process.rank, process.pid);
                self.fail_rank(rank, Some(pid), Cause::Aborted { code, message }, cx);
            }
            Effect::Unreadable { problem } => self.fail_here(Cause::Pmi { problem }, cx),
            Effect::Woken { parked, value } => {
                for get in parked {
                    let mut reply = Vec::new();
                    self.processes[get.local.index()].link.wake(&get, &value, &mut reply);
                    cx.out.push(Output::Reply {
                        job: self.id(),
                        local: get.local,
                        bytes: reply.into(),
                        shares: Vec::new(),
                    });
                }
            }
        }
    }
}
