//! The ranks' scripts, step by step, and the meaning of answers to them.

use crate::client::{Answer, Heard, Op};
use crate::clock::Event;
use crate::contributions;
use crate::ranks::{Doing, Phase, Proc};
use crate::workload::{self, PmixStep, Step, Whose};
use crate::world::World;
use bytes::Bytes;
use wireup_proto::io::ExitStatus;
use wireup_wire::collective::Collective;

/// The exit code of a rank whose PMI failed, as in MPI libraries.
pub const PMI_FAILED_CODE: u8 = 1;
/// The size of a pipe in bytes.
pub const PIPE_BYTES: usize = 64 << 10;

impl World {
    pub(crate) fn on_rank_step(&mut self, id: u32) {
        match self.procs[id as usize].phase {
            Phase::Starting => return self.start_rank(id),
            Phase::Running => {}
            Phase::Absent | Phase::Ended(_) | Phase::Failed | Phase::Vanished => return,
        }
        let proc = &self.procs[id as usize];
        if let Some(code) = proc.leaving {
            return self.end_rank(id, ExitStatus::Exited(code));
        }
        if proc.doing != Doing::Step {
            return;
        }
        let step = proc.script.steps.get(usize::from(proc.step)).copied().unwrap_or(Step::Exit { code: 0 });
        self.do_step(id, step);
    }

    fn do_step(&mut self, id: u32, step: Step) {
        match step {
            Step::Init => self.ask(id, Op::Init),
            Step::Put { pair, value_bytes } => {
                let (key, value) =
                    (workload::key(self.rank_of(id), pair), self.value(id, self.rank_of(id), pair, value_bytes));
                self.put(id, &key, &value);
            }
            Step::PutAs { name, value_bytes } => {
                let rank = self.rank_of(id);
                let (key, value) = (format!("{name}{rank}"), self.value(id, rank, 0, value_bytes));
                self.put(id, &key, &value);
            }
            Step::Fence => {
                self.enter_blocking(id, Collective::Fence);
                self.ask(id, Op::Fence);
            }
            Step::Barrier(group) => self.enter_group(id, group),
            Step::Ring { value_bytes } => {
                let epoch = self.enter_blocking(id, Collective::Ring);
                self.ask(id, Op::Ring { value: &contributions::ring_value(self.rank_of(id), epoch, value_bytes) });
            }
            Step::StartFence => self.start_fence(id),
            Step::StartAllgather { lens, shared } => self.start_allgather(id, lens, shared),
            Step::Wait(which) => self.wait_for(id, which),
            Step::LookUp { pair, value_bytes, whose } => self.look_up(id, pair, value_bytes, whose),
            Step::Get { pair, whose, .. } => match self.nth_of(id, whose) {
                Some(other) => {
                    self.procs[id as usize].asked = other;
                    self.ask(id, Op::Get { key: &workload::key(other, pair) });
                }
                None => self.step_done(id),
            },
            Step::GetMissing => self.ask(id, Op::Get { key: "nobody-put-this" }),
            Step::Write { stream, lines, line_bytes } => self.write_lines(id, stream, lines, line_bytes),
            Step::ReadStdin => self.read_stdin(id),
            Step::Compute { ns } => {
                self.procs[id as usize].step += 1;
                self.clock.after(ns, Event::RankStep(id));
            }
            Step::Load { requests, request_ns } => {
                let work_ns = u64::from(requests) * request_ns;
                let ns = self.file_server.ask(self.clock.now(), work_ns);
                self.procs[id as usize].step += 1;
                self.clock.after(ns, Event::RankStep(id));
            }
            Step::Pmix(step) => self.do_pmix_step(id, step),
            Step::Finalize => self.ask(id, Op::Finalize),
            Step::Abort { code } => {
                self.blame_rank(id, true);
                self.ask(id, Op::Abort { code: i32::from(code) });
                self.procs[id as usize].doing = Doing::Nothing;
            }
            Step::SendGarbage => {
                self.blame_rank(id, false);
                self.send_client_bytes(id, Bytes::from_static(b"\0\xff\xfegarbage without sense\n\n    \x01\n"));
                self.procs[id as usize].doing = Doing::Nothing;
            }
            Step::HalfRequest => {
                self.blame_rank(id, false);
                self.send_client_bytes(id, Bytes::from_static(b"cmd=in"));
                self.close_socket(id);
                self.step_done(id);
            }
            Step::CloseClient => {
                self.close_socket(id);
                self.step_done(id);
            }
            Step::Exit { code } => {
                let proc = &self.procs[id as usize];
                let done = &proc.script.steps[..usize::from(proc.step).min(proc.script.steps.len())];
                if code != 0 {
                    self.blame_rank(id, true);
                } else if (done.contains(&Step::Init) || done.contains(&Step::Pmix(PmixStep::Init))) && !proc.finalized
                {
                    // The rank is blamed, unless the job ends for another reason first or the rank is alone.
                    self.blame_rank(id, false);
                }
                self.end_rank(id, ExitStatus::Exited(code));
            }
            Step::Die { signal } => {
                self.blame_rank(id, true);
                self.end_rank(id, ExitStatus::Signalled { signal: i32::from(signal), core_dumped: false });
            }
            Step::Hang => self.procs[id as usize].doing = Doing::Nothing,
            Step::OnlyRank { rank: only } => {
                self.procs[id as usize].step += u16::from(self.rank_of(id) != only);
                self.step_done(id);
            }
        }
    }

    fn do_pmix_step(&mut self, id: u32, step: PmixStep) {
        match step {
            PmixStep::Init => self.pmix_init(id),
            PmixStep::Commit => self.pmix_commit(id),
            PmixStep::Watch => self.pmix_watch(id),
            PmixStep::Publish => self.pmix_publish(id),
            PmixStep::Procs => self.pmix_procs(id),
            PmixStep::Finalize => self.pmix_finalize(id),
            PmixStep::Abort { code } => {
                self.blame_rank(id, true);
                self.pmix_abort(id, code);
            }
            PmixStep::Fence { who, collect, timeout_s } => {
                let call = self.call(id, who, None, collect);
                self.pmix_enter(id, call, timeout_s);
            }
            PmixStep::Group { who, tag, timeout_s } => {
                let call = self.call(id, who, Some(tag), false);
                self.pmix_enter(id, call, timeout_s);
            }
            PmixStep::Get { whose } => match self.nth_of(id, whose) {
                Some(other) => self.pmix_get(id, other),
                None => self.step_done(id),
            },
            PmixStep::LookUp { whose } => {
                let other = self.nth_of(id, whose).unwrap_or(self.rank_of(id));
                self.pmix_look_up(id, other);
            }
        }
    }

    /// What rank `of` of the job puts.
    fn value(&self, id: u32, of: u32, pair: u16, value_bytes: u16) -> String {
        workload::value(self.job(id).seed, of, pair, value_bytes)
    }

    /// The next rank whose values this step reads.
    fn nth_of(&mut self, id: u32, whose: Whose) -> Option<u32> {
        let (size, Proc { rank, nth, .. }) = (self.job(id).size(), &self.procs[id as usize]);
        whose.nth(*rank, size, *nth, &mut self.rng)
    }

    pub(crate) fn rank_of(&self, id: u32) -> u32 {
        self.procs[id as usize].rank
    }

    /// The current step is done: continues with the next one.
    pub(crate) fn step_done(&mut self, id: u32) {
        let proc = &mut self.procs[id as usize];
        proc.step += 1;
        proc.nth = 0;
        self.next_step(id);
    }

    fn put(&mut self, id: u32, key: &str, value: &str) {
        self.procs[id as usize].collecting.on_put();
        if self.is_own(id) {
            // The pair is sent with the next request.
            self.ask_and_go_on(id, Op::Put { key, value });
        } else {
            self.ask(id, Op::Put { key, value });
        }
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn ask(&mut self, id: u32, op: Op<'_>) {
        self.procs[id as usize].doing = Doing::Reply;
        self.send_request(id, op);
    }

    /// Sends a request and continues at once.
    pub(crate) fn ask_and_go_on(&mut self, id: u32, op: Op<'_>) {
        if self.send_request(id, op) {
            self.step_done(id);
        }
    }

    /// Sends a request. `false`: the agent has closed the socket, which ends the rank, as it would an MPI library.
    fn send_request(&mut self, id: u32, op: Op<'_>) -> bool {
        let proc = &mut self.procs[id as usize];
        let Some(client) = &mut proc.pmi else { return false };
        let bytes = client.ask(op);
        if proc.socket == [true; 2] {
            if let Some(bytes) = bytes {
                self.send_client_bytes(id, bytes);
            }
            return true;
        }
        self.pmi_fails(id);
        false
    }

    /// A rank finds its socket closed.
    pub(crate) fn pmi_fails(&mut self, id: u32) {
        self.blame_rank(id, true);
        self.end_rank(id, ExitStatus::Exited(PMI_FAILED_CODE));
    }

    /// A rule is broken at a rank.
    pub(crate) fn rank_problem(&mut self, id: u32, problem: &str) {
        let (rank, job) = (self.rank_of(id), self.job(id).id);
        self.checks.problem(format!("rank {rank} of job {job} {problem}"));
    }

    pub(crate) fn on_heard(&mut self, id: u32, heard: Heard) {
        let Heard { send, answers, broken } = heard;
        if !send.is_empty() {
            self.send_client_bytes(id, send);
        }
        for answer in answers {
            if let Err(problem) = self.on_answer(id, answer) {
                return self.rank_problem(id, &problem);
            }
        }
        // The answer to garbage is up to the agent.
        if let Some(problem) = broken.filter(|_| self.procs[id as usize].doing != Doing::Nothing) {
            self.rank_problem(id, &format!("cannot read a reply: {problem}"));
        }
    }

    fn on_answer(&mut self, id: u32, answer: Answer) -> Result<(), String> {
        let proc = &self.procs[id as usize];
        match answer {
            Answer::FenceOver { id: request, version } => return self.on_fence_over(id, request, version),
            Answer::AllgatherOver { id: request, array } => return self.on_allgather_over(id, request, &array),
            _ if proc.doing != Doing::Reply => {
                return Err(format!("gets a reply that it did not ask for: {answer:?}"));
            }
            _ => {}
        }
        match (proc.script.steps[usize::from(proc.step)], answer) {
            (Step::Init, Answer::Init) | (Step::Put { .. } | Step::PutAs { .. }, Answer::Put) => self.step_done(id),
            (Step::Finalize, Answer::Finalize) => {
                self.procs[id as usize].finalized = true;
                self.step_done(id);
            }
            // The collective was in progress when the agent refused.
            (Step::Finalize, Answer::Refused) if self.is_own(id) => self.step_done(id),
            (Step::Fence, Answer::Fence) => {
                self.on_fence_answer(id)?;
                self.step_done(id);
            }
            (Step::Barrier(group), Answer::Fence) => {
                self.on_group_answer(id, group)?;
                self.step_done(id);
            }
            (Step::Ring { .. }, Answer::Ring { position, left, right }) => {
                self.on_ring_answer(id, position, &left, &right)?;
                self.step_done(id);
            }
            // The step is repeated, with the segments that are mapped now.
            (Step::LookUp { .. }, Answer::Mapped) => self.next_step(id),
            (Step::GetMissing, Answer::Get(None)) => {
                self.on_get_answer(id)?;
                self.step_done(id);
            }
            (Step::Get { pair, value_bytes, .. }, Answer::Get(Some(value))) => {
                let other = proc.asked;
                self.on_get_answer(id)?;
                if value != self.value(id, other, pair, value_bytes).as_bytes() {
                    return Err(format!("gets a wrong value of rank {other}"));
                }
                self.procs[id as usize].nth += 1;
                self.checks.gets += 1;
                self.next_step(id);
            }
            (step, Answer::Strange(problem)) => return Err(format!("at {step:?}: the answer is {problem}")),
            (step, answer) => return Err(format!("at {step:?}: the answer is {answer:?}")),
        }
        Ok(())
    }
}
