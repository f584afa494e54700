//! The ranks' scripts, step by step, and the meaning of answers to them.

use crate::client::{Answer, Heard, Op};
use crate::clock::Event;
use crate::contributions;
use crate::faults::Culprit;
use crate::ranks::{Doing, Phase};
use crate::workload::{self, PmixStep, Step};
use crate::world::World;
use bytes::Bytes;
use wireup_proto::io::ExitStatus;
use wireup_wire::collective::Collective;

/// The exit code of a rank whose PMI failed, as in MPI libraries.
pub const PMI_FAILED_CODE: u8 = 1;
/// The size of a pipe in bytes.
pub const PIPE_BYTES: usize = 64 << 10;

impl World {
    pub(crate) fn on_rank_step(&mut self, rank: u32) {
        match self.procs[rank as usize].phase {
            Phase::Starting => return self.start_rank(rank),
            Phase::Running => {}
            Phase::Absent | Phase::Ended(_) | Phase::Failed | Phase::Vanished => return,
        }
        let proc = &self.procs[rank as usize];
        if let Some(code) = proc.leaving {
            return self.end_rank(rank, ExitStatus::Exited(code));
        }
        if proc.doing != Doing::Step {
            return;
        }
        let step = proc.script.steps.get(usize::from(proc.step)).copied().unwrap_or(Step::Exit { code: 0 });
        self.do_step(rank, step);
    }

    fn do_step(&mut self, rank: u32, step: Step) {
        match step {
            Step::Init => self.ask(rank, Op::Init),
            Step::Put { pair, value_bytes } => {
                let (key, value) = (workload::key(rank, pair), self.value(rank, pair, value_bytes));
                self.put(rank, &key, &value);
            }
            Step::PutAs { name, value_bytes } => {
                let (key, value) = (format!("{name}{rank}"), self.value(rank, 0, value_bytes));
                self.put(rank, &key, &value);
            }
            Step::Fence => {
                self.enter_blocking(rank, Collective::Fence);
                self.ask(rank, Op::Fence);
            }
            Step::Barrier(team) => self.enter_group(rank, team),
            Step::Ring { value_bytes } => {
                let epoch = self.enter_blocking(rank, Collective::Ring);
                self.ask(rank, Op::Ring { value: &contributions::ring_value(rank, epoch, value_bytes) });
            }
            Step::StartFence => self.start_fence(rank),
            Step::StartAllgather { lens, shared } => self.start_allgather(rank, lens, shared),
            Step::Wait(which) => self.wait_for(rank, which),
            Step::LookUp { pair, value_bytes, whose } => self.look_up(rank, pair, value_bytes, whose),
            Step::Get { pair, whose, .. } => {
                let (size, nth) = (self.spec.job_size(), self.procs[rank as usize].nth);
                match whose.nth(rank, size, nth, &mut self.rng) {
                    Some(other) => {
                        self.procs[rank as usize].asked = other;
                        self.ask(rank, Op::Get { key: &workload::key(other, pair) });
                    }
                    None => self.step_done(rank),
                }
            }
            Step::GetMissing => self.ask(rank, Op::Get { key: "nobody-put-this" }),
            Step::Write { stream, lines, line_bytes } => self.write_lines(rank, stream, lines, line_bytes),
            Step::ReadStdin => self.read_stdin(rank),
            Step::Compute { ns } => {
                self.procs[rank as usize].step += 1;
                self.clock.after(ns, Event::RankStep(rank));
            }
            Step::Pmix(step) => self.do_pmix_step(rank, step),
            Step::Finalize => self.ask(rank, Op::Finalize),
            Step::Abort { code } => {
                self.checks.blame(Culprit::Rank(rank), true);
                self.ask(rank, Op::Abort { code: i32::from(code) });
                self.procs[rank as usize].doing = Doing::Nothing;
            }
            Step::SendGarbage => {
                self.checks.blame(Culprit::Rank(rank), false);
                self.send_client_bytes(rank, Bytes::from_static(b"\0\xff\xfegarbage without sense\n\n    \x01\n"));
                self.procs[rank as usize].doing = Doing::Nothing;
            }
            Step::HalfRequest => {
                self.checks.blame(Culprit::Rank(rank), false);
                self.send_client_bytes(rank, Bytes::from_static(b"cmd=in"));
                self.close_socket(rank);
                self.step_done(rank);
            }
            Step::CloseClient => {
                self.close_socket(rank);
                self.step_done(rank);
            }
            Step::Exit { code } => {
                let proc = &self.procs[rank as usize];
                let done = &proc.script.steps[..usize::from(proc.step).min(proc.script.steps.len())];
                if code != 0 {
                    self.checks.blame(Culprit::Rank(rank), true);
                } else if (done.contains(&Step::Init) || done.contains(&Step::Pmix(PmixStep::Init))) && !proc.finalized
                {
                    // Blamed, unless the job ends for another reason first or the rank is alone.
                    self.checks.blame(Culprit::Rank(rank), false);
                }
                self.end_rank(rank, ExitStatus::Exited(code));
            }
            Step::Die { signal } => {
                self.checks.blame(Culprit::Rank(rank), true);
                self.end_rank(rank, ExitStatus::Signalled { signal: i32::from(signal), core_dumped: false });
            }
            Step::Hang => self.procs[rank as usize].doing = Doing::Nothing,
            Step::OnlyRank { rank: only } => {
                self.procs[rank as usize].step += u16::from(rank != only);
                self.step_done(rank);
            }
        }
    }

    fn do_pmix_step(&mut self, rank: u32, step: PmixStep) {
        match step {
            PmixStep::Init => self.pmix_init(rank),
            PmixStep::Commit => self.pmix_commit(rank),
            PmixStep::Watch => self.pmix_watch(rank),
            PmixStep::Publish => self.pmix_publish(rank),
            PmixStep::Procs => self.pmix_procs(rank),
            PmixStep::Finalize => self.pmix_finalize(rank),
            PmixStep::Abort { code } => {
                self.checks.blame(Culprit::Rank(rank), true);
                self.pmix_abort(rank, code);
            }
            PmixStep::Fence { who, collect, timeout_s } => {
                let call = self.call(rank, who, None, collect);
                self.pmix_enter(rank, call, timeout_s);
            }
            PmixStep::Group { who, tag, timeout_s } => {
                let call = self.call(rank, who, Some(tag), false);
                self.pmix_enter(rank, call, timeout_s);
            }
            PmixStep::Get { whose } => {
                let (size, nth) = (self.spec.job_size(), self.procs[rank as usize].nth);
                match whose.nth(rank, size, nth, &mut self.rng) {
                    Some(other) => self.pmix_get(rank, other),
                    None => self.step_done(rank),
                }
            }
            PmixStep::LookUp { whose } => {
                let size = self.spec.job_size();
                let other = whose.nth(rank, size, 0, &mut self.rng).unwrap_or(rank);
                self.pmix_look_up(rank, other);
            }
        }
    }

    fn value(&self, rank: u32, pair: u16, value_bytes: u16) -> String {
        workload::value(self.spec.seed, rank, pair, value_bytes)
    }

    /// The current step is done: continues with the next one.
    pub(crate) fn step_done(&mut self, rank: u32) {
        let proc = &mut self.procs[rank as usize];
        proc.step += 1;
        proc.nth = 0;
        self.next_step(rank);
    }

    fn put(&mut self, rank: u32, key: &str, value: &str) {
        self.procs[rank as usize].collecting.on_put();
        if self.is_own(rank) {
            // It is sent with the next request.
            self.ask_and_go_on(rank, Op::Put { key, value });
        } else {
            self.ask(rank, Op::Put { key, value });
        }
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn ask(&mut self, rank: u32, op: Op<'_>) {
        self.procs[rank as usize].doing = Doing::Reply;
        self.send_request(rank, op);
    }

    /// Sends a request and continues at once.
    pub(crate) fn ask_and_go_on(&mut self, rank: u32, op: Op<'_>) {
        if self.send_request(rank, op) {
            self.step_done(rank);
        }
    }

    /// `false` if the agent has closed the socket: that ends the rank, as it would an MPI library.
    fn send_request(&mut self, rank: u32, op: Op<'_>) -> bool {
        let proc = &mut self.procs[rank as usize];
        let Some(client) = &mut proc.pmi else { return false };
        let bytes = client.ask(op);
        if proc.socket == [true; 2] {
            if let Some(bytes) = bytes {
                self.send_client_bytes(rank, bytes);
            }
            return true;
        }
        self.pmi_fails(rank);
        false
    }

    /// A rank finds its socket closed.
    pub(crate) fn pmi_fails(&mut self, rank: u32) {
        self.checks.blame(Culprit::Rank(rank), true);
        self.end_rank(rank, ExitStatus::Exited(PMI_FAILED_CODE));
    }

    pub(crate) fn on_heard(&mut self, rank: u32, heard: Heard) {
        let Heard { send, answers, broken } = heard;
        if !send.is_empty() {
            self.send_client_bytes(rank, send);
        }
        for answer in answers {
            if let Err(problem) = self.on_answer(rank, answer) {
                return self.checks.problem(format!("rank {rank} {problem}"));
            }
        }
        // The answer to garbage is up to the agent.
        if let Some(problem) = broken.filter(|_| self.procs[rank as usize].doing != Doing::Nothing) {
            self.checks.problem(format!("rank {rank} cannot read a reply: {problem}"));
        }
    }

    fn on_answer(&mut self, rank: u32, answer: Answer) -> Result<(), String> {
        let proc = &self.procs[rank as usize];
        match answer {
            Answer::FenceOver { id, version } => return self.on_fence_over(rank, id, version),
            Answer::AllgatherOver { id, array } => return self.on_allgather_over(rank, id, &array),
            _ if proc.doing != Doing::Reply => {
                return Err(format!("gets a reply that it did not ask for: {answer:?}"));
            }
            _ => {}
        }
        match (proc.script.steps[usize::from(proc.step)], answer) {
            (Step::Init, Answer::Init) | (Step::Put { .. } | Step::PutAs { .. }, Answer::Put) => self.step_done(rank),
            (Step::Finalize, Answer::Finalize) => {
                self.procs[rank as usize].finalized = true;
                self.step_done(rank);
            }
            // The collective was in progress when the agent refused.
            (Step::Finalize, Answer::Refused) if self.is_own(rank) => self.step_done(rank),
            (Step::Fence, Answer::Fence) => {
                self.on_fence_answer(rank)?;
                self.step_done(rank);
            }
            (Step::Barrier(team), Answer::Fence) => {
                self.on_group_answer(rank, team)?;
                self.step_done(rank);
            }
            (Step::Ring { .. }, Answer::Ring { position, left, right }) => {
                self.on_ring_answer(rank, position, &left, &right)?;
                self.step_done(rank);
            }
            // Repeats the step, with what is mapped now.
            (Step::LookUp { .. }, Answer::Mapped) => self.next_step(rank),
            (Step::GetMissing, Answer::Get(None)) => {
                self.on_get_answer(rank)?;
                self.step_done(rank);
            }
            (Step::Get { pair, value_bytes, .. }, Answer::Get(Some(value))) => {
                let other = proc.asked;
                self.on_get_answer(rank)?;
                if value != self.value(other, pair, value_bytes).as_bytes() {
                    return Err(format!("gets a wrong value of rank {other}"));
                }
                self.procs[rank as usize].nth += 1;
                self.checks.gets += 1;
                self.next_step(rank);
            }
            (step, Answer::Strange(problem)) => return Err(format!("at {step:?}: the answer is {problem}")),
            (step, answer) => return Err(format!("at {step:?}: the answer is {answer:?}")),
        }
        Ok(())
    }
}
