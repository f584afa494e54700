//! The ranks' scripts, step by step, and what a rank does with the answers to its steps.

use crate::client::{Answer, Op};
use crate::clock::Event;
use crate::contributions;
use crate::cx::Cx;
use crate::fault_injection::Culprit;
use crate::jobs::{Job, Node};
use crate::memory::Shared;
use crate::rank_links::RingPlace;
use crate::ranks::{Doing, Proc};
use crate::store_clients::ask_store;
use crate::workload::{self, ADDRESS_PAIR, BarrierGroup, PmixStep, Script, Step, Who, Whose};
use bytes::Bytes;
use std::rc::Rc;
use wireup_proto::io::ExitStatus;
use wireup_wire::collective::Collective;
use wireup_wire::shared::rows::Rows;

/// The exit code of a rank whose PMI failed, as in MPI libraries.
pub const PMI_FAILED_CODE: u8 = 1;

/// The position of a rank in its script.
pub struct Progress {
    pub script: Rc<Script>,
    /// Position in the script. `nth`: number of times that the step at this position was done.
    pub step: u16,
    pub nth: u32,
    /// The rank whose value the last get has asked for.
    asked: u32,
    /// The rank's place in the ring that it has made last.
    pub ring: RingPlace,
    pub finalized: bool,
}

/// The action of the world after a rank has started a step.
#[must_use]
pub enum Then {
    /// The world does nothing: the rank's request is sent, and the rank may continue at once.
    Continues,
    /// The world does nothing: the rank's next step is scheduled, or the rank waits.
    Waits,
    Ends(ExitStatus),
    /// The world asks the file server; then the rank continues with its next step.
    Loads {
        work_ns: u64,
    },
    /// The world passes the step to the PMIx server of the node.
    AsksServer(PmixStep),
}

impl Progress {
    pub fn new(script: Rc<Script>) -> Self {
        Progress { script, step: 0, nth: 0, asked: 0, ring: RingPlace::default(), finalized: false }
    }

    /// The step that the rank does now; `None` after the last step.
    pub fn current(&self) -> Option<Step> {
        self.script.steps.get(usize::from(self.step)).copied()
    }

    /// Whether the rank waits in an operation that other ranks take part in.
    pub fn is_in_collective(&self) -> bool {
        match self.current() {
            Some(Step::Fence | Step::Ring { .. } | Step::Barrier(_) | Step::Gather { .. } | Step::Wait(_)) => true,
            Some(Step::Pmix(PmixStep::Fence { .. })) => true,
            Some(Step::Store(step)) => step.is_collective(),
            _ => false,
        }
    }

    /// Whether the rank joined PMI or PMIx and has not left it.
    fn is_joined(&self) -> bool {
        let done = self.script.steps.iter().take(self.step.into());
        let joins = |step: &Step| matches!(step, Step::Init | Step::Pmix(PmixStep::Init));
        !self.finalized && done.into_iter().any(joins)
    }
}

impl Proc {
    pub fn do_step(&mut self, cx: &mut Cx, job: &mut Job, node: &Node) -> Then {
        if let Some(code) = self.leaving {
            return Then::Ends(ExitStatus::Exited(code));
        }
        if self.doing != Doing::Step {
            return Then::Waits;
        }
        match self.progress.current().unwrap_or(Step::Exit { code: 0 }) {
            Step::Init => return self.ask(cx, job, Op::Init),
            Step::Put { pair, value_bytes } => {
                let (key, value) =
                    (workload::key(self.rank, pair), workload::value(job.seed, self.rank, pair, value_bytes));
                return self.put(cx, job, &key, &value);
            }
            Step::PutAs { name, value_bytes } => {
                let key = format!("{name}{}", self.rank);
                return self.put(cx, job, &key, &workload::value(job.seed, self.rank, 0, value_bytes));
            }
            Step::Fence => {
                self.collecting.enter_blocking(job, Collective::Fence);
                return self.ask(cx, job, Op::Fence);
            }
            Step::Barrier(team) => {
                let group = job.group(self.rank, team);
                job.checks.group_barriers.on_enter(self.rank, &group.name, || group.members.into_iter());
                return self.ask(cx, job, Op::Barrier { group: &group.text });
            }
            Step::Ring { value_bytes } => {
                let epoch = self.collecting.enter_blocking(job, Collective::Ring);
                let value = contributions::ring_value(self.rank, epoch, value_bytes);
                return self.ask(cx, job, Op::Ring { value: &value });
            }
            Step::StartFence => return self.start_fence(cx, job),
            Step::StartAllgather { lens, shared } => return self.start_allgather(cx, job, lens, shared),
            Step::Wait(which) => return self.wait_for(cx, job, which),
            Step::Gather { who, value_bytes } => {
                let (name, members) = gather(job, self.rank, who);
                let value = workload::value(job.seed, self.rank, 0, value_bytes);
                job.checks.group_barriers.on_enter(self.rank, &name, || members.iter().copied());
                let members = members.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
                return self.ask(cx, job, Op::Gather { members: &members, value: &value });
            }
            Step::SetAddress { bytes } => {
                let address = workload::value(job.seed, self.rank, ADDRESS_PAIR, bytes);
                return self.ask(cx, job, Op::SetAddress { address: &address });
            }
            Step::GetAddress { whose, .. } => match self.nth_of(cx, job, whose) {
                Some(other) => {
                    self.progress.asked = other;
                    return self.ask(cx, job, Op::GetAddress { rank: other });
                }
                None => self.step_done(cx),
            },
            Step::LookUp { pair, value_bytes, whose } => return self.look_up(cx, job, pair, value_bytes, whose),
            Step::Get { pair, whose, .. } => match self.nth_of(cx, job, whose) {
                Some(other) => {
                    self.progress.asked = other;
                    return self.ask(cx, job, Op::Get { key: &workload::key(other, pair) });
                }
                None => self.step_done(cx),
            },
            Step::GetMissing => return self.ask(cx, job, Op::Get { key: "nobody-put-this" }),
            Step::Write { stream, lines, line_bytes } => self.write(cx, node, stream, lines, line_bytes),
            step @ (Step::ReadStdin | Step::ReadStdinTo { .. }) => {
                self.doing = Doing::Stdin;
                let until = if let Step::ReadStdinTo { bytes } = step { bytes } else { u64::MAX };
                match self.stdin.read(cx, self.job, job.plan.stdin_bytes, until) {
                    Ok(true) => self.step_done(cx),
                    Ok(false) => {}
                    Err(problem) => self.problem(cx, job, &problem),
                }
            }
            Step::Compute { ns } => {
                self.progress.step += 1;
                cx.clock.after(ns, Event::RankStep(self.id));
            }
            Step::Spin { ns } => {
                self.progress.step += 1;
                let done = cx.work(node.host, cx.clock.now(), |_| ns);
                cx.clock.at(done, Event::RankStep(self.id));
            }
            Step::Load { requests, request_ns } => {
                self.progress.step += 1;
                return Then::Loads { work_ns: u64::from(requests) * request_ns };
            }
            Step::Group(step) => job.do_group_step(cx, self, node, step),
            Step::Pmix(step) => return Then::AsksServer(step),
            Step::Store(step) => ask_store(self, cx, job, step),
            Step::Finalize => return self.ask(cx, job, Op::Finalize),
            Step::Abort { code } => {
                self.blame(job, true);
                let then = self.ask(cx, job, Op::Abort { code: i32::from(code) });
                self.doing = Doing::Nothing;
                return then;
            }
            Step::SendGarbage => {
                self.blame(job, false);
                self.socket.send(cx, self.id, Bytes::from_static(b"\0\xff\xfegarbage without sense\n\n    \x01\n"));
                self.doing = Doing::Nothing;
            }
            Step::HalfRequest => {
                self.blame(job, false);
                self.socket.send(cx, self.id, Bytes::from_static(b"cmd=in"));
                self.socket.close(cx, self.id);
                self.step_done(cx);
            }
            Step::CloseClient => {
                self.socket.close(cx, self.id);
                self.step_done(cx);
            }
            Step::Exit { code } => {
                // A rank that exits without having finalized is blamed for the end of the job, unless the job ends for
                // another reason first or has only this rank.
                if code != 0 || self.progress.is_joined() {
                    self.blame(job, code != 0);
                }
                return Then::Ends(ExitStatus::Exited(code));
            }
            Step::Die { signal } => {
                self.blame(job, true);
                return Then::Ends(ExitStatus::Signalled { signal: i32::from(signal), core_dumped: false });
            }
            Step::Hang => self.doing = Doing::Nothing,
            Step::Reach(point) => {
                cx.reach(point);
                self.progress.step += 1;
                return self.do_step(cx, job, node);
            }
            Step::OnlyRank { rank: only } => {
                self.progress.step += u16::from(self.rank != only);
                self.step_done(cx);
            }
        }
        Then::Waits
    }

    pub fn blame(&self, job: &mut Job, must: bool) {
        job.checks.blame(Culprit::Rank(self.rank), must);
    }

    /// The next rank whose values this step reads.
    pub fn nth_of(&self, cx: &mut Cx, job: &Job, whose: Whose) -> Option<u32> {
        whose.nth(self.rank, job.size(), self.progress.nth, &mut cx.rng)
    }

    /// The current step is done: continues with the next step.
    pub fn step_done(&mut self, cx: &mut Cx) {
        self.progress.step += 1;
        self.progress.nth = 0;
        self.next_step(cx);
    }

    /// The step has read one value and continues with the next value.
    pub fn got(&mut self, cx: &mut Cx) {
        cx.checks.gets += 1;
        self.progress.nth += 1;
        self.next_step(cx);
    }

    /// Schedules the next step, after the rank's think time.
    pub fn next_step(&mut self, cx: &mut Cx) {
        self.doing = Doing::Step;
        cx.after(cx.spec.timing.think, Event::RankStep(self.id));
    }

    /// Writes as many lines as fit into the pipe; the step is done when all lines are written.
    fn write(&mut self, cx: &mut Cx, node: &Node, stream: u8, lines: u32, line_bytes: u16) {
        let pipe = &mut self.pipes[usize::from(stream) - 1];
        self.progress.nth += pipe.write(lines - self.progress.nth, line_bytes);
        let done = self.progress.nth == lines;
        if !done {
            self.doing = Doing::PipeSpace;
        }
        pipe.schedule_read(cx, node, false);
        if done {
            self.step_done(cx);
        }
    }

    fn put(&mut self, cx: &mut Cx, job: &mut Job, key: &str, value: &str) -> Then {
        self.collecting.on_put();
        if self.is_own() {
            // The pair is sent with the next request, so there is no reply to wait for.
            self.ask_and_go_on(cx, job, Op::Put { key, value })
        } else {
            self.ask(cx, job, Op::Put { key, value })
        }
    }

    /// Sends a request and waits for its reply.
    pub fn ask(&mut self, cx: &mut Cx, job: &mut Job, op: Op<'_>) -> Then {
        self.doing = Doing::Reply;
        self.send_request(cx, job, op)
    }

    /// Sends a request and continues at once.
    pub fn ask_and_go_on(&mut self, cx: &mut Cx, job: &mut Job, op: Op<'_>) -> Then {
        let then = self.send_request(cx, job, op);
        if let Then::Continues = then {
            self.step_done(cx);
        }
        then
    }

    fn send_request(&mut self, cx: &mut Cx, job: &mut Job, op: Op<'_>) -> Then {
        let Some(client) = &mut self.pmi else { return Then::Waits };
        let bytes = client.ask(op);
        if self.socket.open != [true; 2] {
            return self.pmi_fails(job);
        }
        if let Some(bytes) = bytes {
            self.socket.send(cx, self.id, bytes);
        }
        Then::Continues
    }

    /// The rank finds that its agent has closed the socket. The closed socket ends the rank, as it would end a program
    /// with an MPI library.
    pub fn pmi_fails(&self, job: &mut Job) -> Then {
        self.blame(job, true);
        Then::Ends(ExitStatus::Exited(PMI_FAILED_CODE))
    }

    /// Reads bytes from the agent, with the memory that was passed with them.
    pub fn hear(&mut self, cx: &mut Cx, job: &mut Job, bytes: &[u8], shares: Vec<Shared>) {
        let Some(client) = &mut self.pmi else { return };
        let heard = client.hear(bytes, shares);
        if !heard.send.is_empty() {
            self.socket.send(cx, self.id, heard.send);
        }
        for answer in heard.answers {
            if let Err(problem) = self.on_answer(cx, job, answer) {
                return self.problem(cx, job, &problem);
            }
        }
        // Bytes that the client cannot read are a problem, unless the rank has sent garbage: the agent may answer that
        // in any way.
        if let Some(problem) = heard.broken.filter(|_| self.doing != Doing::Nothing) {
            self.problem(cx, job, &format!("cannot read a reply: {problem}"));
        }
    }

    fn on_answer(&mut self, cx: &mut Cx, job: &mut Job, answer: Answer) -> Result<(), String> {
        match answer {
            Answer::FenceOver { id: request, version } => return self.on_fence_over(cx, job, request, version),
            Answer::AllgatherOver { id: request, array } => {
                return self.on_allgather_over(cx, job, request, array.memory().bytes());
            }
            _ if self.doing != Doing::Reply => {
                return Err(format!("gets a reply that it did not ask for: {answer:?}"));
            }
            _ => {}
        }
        match (self.progress.script.steps[usize::from(self.progress.step)], answer) {
            (Step::Init, Answer::Init) => {}
            (Step::Put { .. } | Step::PutAs { .. } | Step::SetAddress { .. }, Answer::Put) => {}
            (Step::Gather { who, value_bytes }, Answer::Gathered(array)) => {
                let (name, members) = gather(job, self.rank, who);
                job.checks.group_barriers.on_release(self.rank, &name)?;
                check_gathered(job.seed, &members, value_bytes, &array)?;
            }
            (Step::GetAddress { bytes, .. }, Answer::Get(Some(address))) => {
                let other = self.progress.asked;
                if address != workload::value(job.seed, other, ADDRESS_PAIR, bytes).as_bytes() {
                    return Err(format!("gets a wrong address of rank {other}"));
                }
                self.got(cx);
                return Ok(());
            }
            (Step::Finalize, Answer::Finalize) => self.progress.finalized = true,
            // The agent has refused to finalize while a collective was in progress.
            (Step::Finalize, Answer::Refused) if self.is_own() => {}
            (Step::Fence, Answer::Fence) => self.collecting.on_fence_answer(job)?,
            (Step::Barrier(team), Answer::Fence) => {
                let group = job.group(self.rank, team);
                job.checks.group_barriers.on_release(self.rank, &group.name)?;
            }
            (Step::Ring { .. }, Answer::Ring { position, left, right }) => {
                self.progress.ring = self.collecting.on_ring_answer(job, (position, self.rank), &left, &right)?;
            }
            // The step is repeated with the memory segments that are mapped now.
            (Step::LookUp { .. }, Answer::Mapped) => {
                self.next_step(cx);
                return Ok(());
            }
            (Step::GetMissing, Answer::Get(None)) => self.collecting.on_get_answer(job)?,
            (Step::Get { pair, value_bytes, .. }, Answer::Get(Some(value))) => {
                let other = self.progress.asked;
                self.collecting.on_get_answer(job)?;
                if value != workload::value(job.seed, other, pair, value_bytes).as_bytes() {
                    return Err(format!("gets a wrong value of rank {other}"));
                }
                self.got(cx);
                return Ok(());
            }
            (step, Answer::Strange(problem)) => return Err(format!("at {step:?}: the answer is {problem}")),
            (step, answer) => return Err(format!("at {step:?}: the answer is {answer:?}")),
        }
        self.step_done(cx);
        Ok(())
    }
}

/// The name of the collectives of a rank's group, and the group's members in ascending order.
fn gather(job: &Job, rank: u32, who: Who) -> (String, Vec<u32>) {
    let group = job.group(rank, BarrierGroup { who, tag: 0 });
    (format!("gather of {}", group.name), group.members)
}

/// Checks that an array holds the values of a group's members, in the order of ranks.
fn check_gathered(seed: u64, members: &[u32], value_bytes: u16, array: &[u8]) -> Result<(), String> {
    if value_bytes == 0 && array.is_empty() {
        return Ok(());
    }
    let rows = Rows::read(array).map_err(|error| format!("a collective of {members:?}: {error}"))?;
    let expected = members.iter().map(|member| Some(workload::value(seed, *member, 0, value_bytes).into_bytes()));
    match rows.values().map(|value| value.ok().map(<[u8]>::to_vec)).eq(expected) {
        true => Ok(()),
        false => Err(format!("gets wrong values in a collective of {members:?}")),
    }
}
