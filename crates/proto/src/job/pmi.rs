//! PMI requests of the node's ranks, and the fences that they enter.

use super::{Context, Job};
use crate::io::Output;
use crate::pmi_link::{Effect, Facts, Tables, Who};
use crate::pmi_state::State;
use bytes::Bytes;
use wireup_coll::allgather::tree::{Refused, Step};
use wireup_wire::frame::{Class, Frame, Kind};
use wireup_wire::ids::{AgentId, Epoch, LocalRank};
use wireup_wire::limits::FRAME_PAYLOAD_MAX;
use wireup_wire::peer::{Cause, Control, Departed};

use super::processes::Life;

impl Job {
    pub fn on_client_bytes(&mut self, local: LocalRank, bytes: &[u8], cx: &mut Context<'_>) {
        let Some(process) = self.processes.get_mut(local.index()) else {
            return;
        };
        if process.link.state() == State::Closed {
            return;
        }
        let facts = Facts {
            nspace: &self.spec.nspace,
            job_size: self.job_size,
            process_mapping: self.process_mapping.as_deref(),
        };
        let who = Who { local, rank: process.rank, appnum: process.appnum };
        let (kvs, attrs) = (&mut self.kvs, &mut self.attrs);
        let mut tables = Tables { kvs, attrs, memory: &mut *cx.memory, shares: Vec::new() };
        let (mut reply, mut effects) = (Vec::new(), Vec::new());
        let result = process.link.on_bytes(bytes, who, &facts, &mut tables, &mut reply, &mut effects);
        let shares = tables.shares;
        if !reply.is_empty() {
            cx.out.push(Output::Reply { job: self.spec.job, local, bytes: Bytes::from(reply), shares });
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
            Effect::Fence => self.on_fence_enter(local, cx),
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

    fn on_fence_enter(&mut self, local: LocalRank, cx: &mut Context<'_>) {
        let kvs = &mut self.kvs;
        let step = self.fence.on_enter(cx.now, local, || kvs.take_pending());
        if let (Some(_), Ok(step)) = (&self.trace, &step)
            && self.fence.arrived() as usize == self.processes.len()
            && *step != Step::Wait
        {
            self.fence.trace.last_rank = self.processes[local.index()].rank;
        }
        self.on_step(step, cx);
    }

    pub(super) fn on_fence_up(&mut self, agent: AgentId, frame: Frame, cx: &mut Context<'_>) {
        if let Some(child) = self.child_index(agent) {
            let step = self.fence.on_child(cx.now, child, Epoch(frame.arg), frame.payload);
            self.on_step(step, cx);
        }
    }

    fn on_step(&mut self, step: Result<Step, Refused>, cx: &mut Context<'_>) {
        match step {
            Ok(Step::Wait) => self.check_broken(cx),
            Ok(Step::TooLong { bytes }) => {
                let problem = format!("the pairs of one fence are {bytes} bytes, more than {FRAME_PAYLOAD_MAX}");
                self.fail_here(Cause::Pmi { problem }, cx);
            }
            Ok(Step::Complete(blob)) if self.root => self.release(self.fence.epoch(), blob, cx),
            Ok(Step::Complete(blob)) => {
                let frame = self.exchange_frame(Kind::FenceUp, self.fence.epoch(), blob);
                cx.links.send_up(frame, cx.out);
                self.check_broken(cx);
            }
            Err(refused) => {
                let problem = format!("a fence of another epoch came from a child: {refused:?}");
                self.fail_here(Cause::Pmi { problem }, cx);
            }
        }
    }

    pub(super) fn on_fence_down(&mut self, frame: Frame, cx: &mut Context<'_>) {
        self.release(Epoch(frame.arg), frame.payload, cx);
    }

    /// The fence is complete: children first, then the ranks here.
    fn release(&mut self, epoch: Epoch, blob: Bytes, cx: &mut Context<'_>) {
        let Ok(inside) = self.fence.on_release(epoch) else {
            return;
        };
        for child in &self.children {
            let frame = self.exchange_frame(Kind::FenceDown, epoch, blob.clone());
            cx.links.send_child(child.agent, frame, cx.out);
        }
        self.fence.trace.bytes_down = blob.len() as u64;
        if let Err(problem) = self.kvs.commit(blob, cx.memory) {
            self.fail_here(Cause::Pmi { problem: problem.to_string() }, cx);
        }
        let mut reply = Vec::new();
        let mut shared = Bytes::new();
        for local in inside {
            reply.clear();
            self.processes[local.index()].link.release(&mut reply);
            if shared != reply {
                // Most ranks get the very same words.
                shared = Bytes::copy_from_slice(&reply);
            }
            if !shared.is_empty() {
                cx.out.push(Output::Reply { job: self.id(), local, bytes: shared.clone(), shares: Vec::new() });
            }
        }
        if let Some(trace) = &mut self.trace {
            let mut fence = self.fence.trace;
            fence.epoch = epoch;
            fence.out_ns = cx.now.0;
            trace.fences.push(fence);
        }
    }

    fn exchange_frame(&self, kind: Kind, epoch: Epoch, payload: Bytes) -> Frame {
        Frame { kind, class: Class::Exchange, stream: 0, job: self.id().0, arg: epoch.0, payload }
    }

    /// A rank here will enter no more fences.
    pub(super) fn depart(&mut self, local: LocalRank, cx: &mut Context<'_>) {
        let process = &self.processes[local.index()];
        let inside = self.fence.is_inside(local);
        let exit = match process.life {
            Life::Gone { exit } => exit,
            Life::Planned | Life::Running => None,
        };
        let departed = Departed {
            rank: process.rank,
            pid: process.pid,
            node: self.node.unwrap_or_default(),
            epoch: Epoch(self.fence.epoch().0 + u32::from(inside)),
            finalized: process.finalized,
            deserted: process.spoke_pmi && !process.finalized && exit.is_some(),
            exit,
        };
        self.on_departed(departed, cx);
    }

    pub(super) fn on_departed(&mut self, departed: Departed, cx: &mut Context<'_>) {
        let news = self.fence.on_departed(departed);
        if news && self.root {
            self.ends.on_departed(cx.now, departed);
        } else if news {
            cx.links.control_up(self.id(), &Control::Departed(departed), cx.out);
        }
        self.check_broken(cx);
    }

    fn check_broken(&mut self, cx: &mut Context<'_>) {
        if let Some(departed) = self.fence.broken() {
            let cause = Cause::LeftFence {
                epoch: self.fence.epoch(),
                exit: departed.exit,
                finalized: departed.finalized,
                waiting: self.fence.arrived(),
            };
            self.fail_departed(&departed, cause, cx);
        }
    }
}
