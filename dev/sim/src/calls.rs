//! Remote shells: whether each shell starts its agent, and how the agent that started the shell learns of the shell's
//! end.

use crate::agents::{AgentProcess, ProcessState, Starter};
use crate::clock::Event;
use crate::cx::Cx;
use crate::fault_injection::NoStart;
use crate::hosts::Agents;
use crate::jobs::Jobs;
use crate::membership::Membership;
use crate::remote::{Answer, HostSpec, Pace, Program, Reach, Remote};
use std::collections::BTreeMap;
use wireup_proto::io::{ExitStatus, How, Input, ShellId};
use wireup_proto::{NEEDED, NEEDED_WORDS};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Bootstrap, SpawnError, SpawnStep};

/// The remote shell that an agent asks its driver to start.
pub struct Request {
    /// The agent process that starts the shell.
    pub caller: u32,
    pub shell: ShellId,
    pub agent: AgentId,
    pub how: How,
    /// Bootstrap message of the agent to be started; `None` if the shell only probes the host.
    pub bootstrap: Option<Box<Bootstrap>>,
}

/// The action of the world after an event of a remote shell.
pub enum Outcome {
    /// The world does nothing: the shell has ended, or is still running.
    Waits,
    /// This agent process receives this input, which says how the shell has ended.
    Tells(u32, Input),
    /// The host has no power, so the shell waits in vain for an answer until it times out.
    TimesOut(u32),
    Starts {
        bootstrap: Box<Bootstrap>,
        /// The address that the started agent dials.
        dials: Option<String>,
        handshake_ns: u64,
    },
}

/// One start of a remote shell, here named a call.
struct Call {
    /// The agent process that started the shell.
    caller: u32,
    shell: ShellId,
    /// The host that the shell reaches; its number is the number of the agent to be started there.
    host: u32,
    state: State,
    /// Bootstrap message of the agent to be started; `None` if the shell only probes the host.
    bootstrap: Option<Box<Bootstrap>>,
    answer: Answer,
    /// Exit status and standard error with which the shell ends.
    end: (ExitStatus, String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The shell is running, and counts towards `shells_max`.
    UnderWay,
    /// The agent that the shell started has linked to its parent.
    Linked,
    Over,
}

/// All remote shells of a world.
#[derive(Default)]
pub struct Calls {
    all: Vec<Call>,
    by_shell: BTreeMap<(u32, ShellId), u32>,
    /// The remote shells that were to start the agent of each host.
    by_host: BTreeMap<u32, Vec<u32>>,
    /// The number of running remote shells of each agent process.
    under_way: BTreeMap<u32, u32>,
}

impl Calls {
    pub fn count(&self) -> usize {
        self.all.len()
    }

    fn begin(&mut self, call: Call) -> u32 {
        let index = self.all.len() as u32;
        self.by_shell.insert((call.caller, call.shell), index);
        if call.bootstrap.is_some() {
            self.by_host.entry(call.host).or_default().push(index);
        }
        *self.under_way.entry(call.caller).or_default() += u32::from(call.state == State::UnderWay);
        self.all.push(call);
        index
    }

    /// Whether a remote shell was ever started for this agent.
    pub fn was_called(&self, host: u32) -> bool {
        self.by_host.contains_key(&host)
    }

    /// The remote shells that were to start this agent.
    fn to_start(&self, host: u32) -> impl Iterator<Item = u32> {
        self.by_host.get(&host).into_iter().flatten().copied()
    }

    fn leave_room(&mut self, call: u32, state: State) {
        let call = &mut self.all[call as usize];
        if call.state == State::UnderWay {
            *self.under_way.entry(call.caller).or_default() -= 1;
        }
        call.state = state;
    }

    /// Whether a remote shell has started this agent or may still do so: a second shell for the agent would then be a
    /// bug.
    fn is_being_started(&self, host: u32) -> bool {
        self.to_start(host).any(|call| self.all[call as usize].state != State::Over)
    }
}

fn ends(code: u8, words: &str) -> Answer {
    Answer::Ends(code, words.into())
}

impl Calls {
    /// An agent starts a remote shell.
    pub fn call(
        &mut self,
        cx: &mut Cx,
        agents: &mut Agents,
        membership: &mut Membership,
        jobs: &mut Jobs,
        request: Request,
    ) {
        self.check_call(cx, agents, &request);
        let Request { caller, shell, agent, how, bootstrap } = request;
        membership.on_calls(caller, bootstrap.as_deref());
        if cx.checks.is_broken() {
            return;
        }
        let mut delay_ns = cx.draw(cx.spec.timing.agent_start);
        let no_start = agents.hosts[agent.index()].no_start;
        let answer = match no_start {
            None | Some(NoStart::FirstCalls { times: 0 }) => {
                ask_host(cx, agents, caller, agent.0, how, bootstrap.is_none())
            }
            Some(how) => {
                // A probed agent may have no ranks; then its loss need not fail the job.
                membership.blame_agent(cx, jobs, agent.0, bootstrap.is_some());
                match how {
                    NoStart::NoShell | NoStart::Silence => Answer::Never,
                    NoStart::ShellFails { code } => ends(code, "no route to host"),
                    NoStart::FirstCalls { times } => {
                        agents.hosts[agent.index()].no_start = Some(NoStart::FirstCalls { times: times - 1 });
                        ends(255, "ssh: connect to host port 22: No route to host")
                    }
                }
            }
        };
        if let (Some(HostSpec { pace: Pace::Slow { by_ns }, .. }), Answer::Begins) = (cx.host_spec(agent.0), &answer) {
            delay_ns += by_ns;
        }
        let is_silent = answer == Answer::Never;
        let end = (ExitStatus::Exited(0), String::new());
        // An agent may link while its parent, whose shell for the agent has ended, asks an ancestor to start the agent.
        // The ancestor soon learns of the link.
        let is_there = bootstrap.is_some() && agents.is_linked(agent.0);
        let state = if is_there { State::Linked } else { State::UnderWay };
        let call = Call { caller, shell, host: agent.0, state, bootstrap, answer, end };
        let call = self.begin(call);
        let started = agents.calls_shell(cx, caller);
        let is_called = cx.work(agents[caller].host, started, |costs| costs.shell_ns);
        let at = cx.work(agent.0, is_called + delay_ns, |costs| costs.agent_ns);
        if !is_silent || no_start == Some(NoStart::NoShell) {
            cx.clock.at(at, Event::Call(call));
        }
    }

    fn check_call(&self, cx: &mut Cx, agents: &Agents, request: &Request) {
        let Request { caller, shell, agent, ref bootstrap, .. } = *request;
        let shells_max = cx.spec.remote.as_ref().map_or(64, |remote| remote.shells_max);
        let problem = if self.by_shell.contains_key(&(caller, shell)) {
            "the shell number was used before"
        } else if bootstrap.is_none() && cx.spec.remote.is_none() {
            "a child on the same machine is probed"
        } else if cx.spec.remote.as_ref().is_some_and(Remote::by_step) {
            "it is called although a step starts it"
        } else if bootstrap.as_ref().is_some_and(|bootstrap| bootstrap.agent != agent) {
            "the bootstrap message is for another agent"
        } else if bootstrap.is_some() && !cx.spec.is_standing && self.is_being_started(agent.0) {
            "it is started a second time"
        } else if self.under_way.get(&caller).copied().unwrap_or_default() >= shells_max {
            "more remote shells at a time than allowed"
        } else {
            return;
        };
        cx.problem(format!("{} calls agent {agent}: {problem}", agents.name(caller)));
    }

    /// A remote shell has its outcome: it fails, or the host answers.
    pub fn on_call(&mut self, cx: &mut Cx, agents: &mut Agents, index: u32) -> Outcome {
        let Call { host, caller, shell, state, ref answer, .. } = self.all[index as usize];
        // A remote shell dies with the agent that started it.
        if state == State::Over || !agents[caller].is_running() {
            return Outcome::Waits;
        }
        match answer.clone() {
            Answer::Never => {
                // The remote shell's program cannot be executed.
                self.leave_room(index, State::Over);
                let what = "remote-shell: No such file or directory (os error 2) (finding the program)".into();
                let error = SpawnError { step: SpawnStep::Find, what, errno: 2 };
                Outcome::Tells(caller, Input::ShellEnded { shell, end: Err(error) })
            }
            Answer::Ends(code, words) => self.end(index, ExitStatus::Exited(code), &words),
            Answer::Stores => {
                agents.hosts[host as usize].has_program = true;
                self.end(index, ExitStatus::Exited(0), "")
            }
            Answer::Begins => self.on_agent_begins(cx, agents, index),
        }
    }

    fn on_agent_begins(&mut self, cx: &mut Cx, agents: &Agents, index: u32) -> Outcome {
        let Call { host, caller, ref bootstrap, .. } = self.all[index as usize];
        if agents.is_off(cx, host) {
            let timed_out = "ssh: connect to host port 22: Connection timed out";
            self.all[index as usize].end = (ExitStatus::Exited(255), timed_out.into());
            cx.clock.after(cx.spec.node_timeout_ns, Event::ShellGone(index));
            return Outcome::TimesOut(host);
        }
        let Some(mut bootstrap) = bootstrap.clone() else { return self.end(index, ExitStatus::Exited(0), "") };
        let handshake_ns = cx.draw(cx.spec.timing.handshake);
        let child = &agents.hosts[host as usize];
        if child.is_gone || !(cx.spec.is_standing || child.processes.is_empty()) {
            // Either the host is gone, or it already runs the agent that the shell should start: no second one is
            // needed.
            self.all[index as usize].end = (ExitStatus::Exited(125), "the parent closed the link".into());
            cx.clock.after(handshake_ns, Event::ShellGone(index));
            return Outcome::Waits;
        }
        let address = agents.name(caller);
        if cx.spec.is_standing && bootstrap.parent.is_empty() {
            // The driver adds its own listening address to the bootstrap message.
            bootstrap.parent = vec![address.clone()];
        }
        let dials = if is_dialled_back(&bootstrap) { Some(address) } else { bootstrap.parent.first().cloned() };
        Outcome::Starts { bootstrap, dials, handshake_ns }
    }

    /// The agent of a remote shell was started. Returns true if the shell breaks at this moment.
    pub fn on_started(&mut self, cx: &mut Cx, agents: &mut Agents, index: u32, handshake_ns: u64) -> bool {
        let call = &mut self.all[index as usize];
        let broken = &mut agents.hosts[call.host as usize].broken_shells;
        let breaks = *broken > 0;
        *broken -= u32::from(breaks);
        if breaks || cx.host_spec(call.host).is_some_and(|host| host.shell_dies) {
            let dies_ns = cx.rng.below(handshake_ns + 1);
            call.end = (ExitStatus::Exited(255), "client_loop: send disconnect: Broken pipe".into());
            cx.clock.after(dies_ns, Event::ShellGone(index));
        }
        breaks
    }

    /// A shell ends, whatever happens to the agent that it has started.
    pub fn on_shell_gone(&mut self, cx: &Cx, agents: &Agents, jobs: &mut Jobs, index: u32) -> Outcome {
        let Call { host, state, ref end, .. } = self.all[index as usize];
        if state == State::Over {
            return Outcome::Waits;
        }
        if !agents.is_linked(host) {
            // The agent may link too late to be accepted, and then the output of its ranks is lost.
            jobs.expect_losses(cx);
        }
        let (status, words) = end.clone();
        self.end(index, status, &words)
    }

    fn end(&mut self, index: u32, status: ExitStatus, words: &str) -> Outcome {
        self.leave_room(index, State::Over);
        self.all[index as usize].end = (status, words.to_owned());
        self.on_ended(index)
    }

    /// The agent that started a shell learns that the shell has ended.
    pub fn on_ended(&self, index: u32) -> Outcome {
        let Call { caller, shell, ref end, .. } = self.all[index as usize];
        Outcome::Tells(caller, Input::ShellEnded { shell, end: Ok(end.clone()) })
    }

    /// An agent has ended, and with it the remote shell that started it.
    pub fn on_agent_ended(&mut self, cx: &mut Cx, process: &AgentProcess) {
        if let Some(index) = self.shell_of(process) {
            let status = match process.state {
                ProcessState::Killed => ExitStatus::Signalled { signal: 9, core_dumped: false },
                ProcessState::Running(_) | ProcessState::Left => ExitStatus::Exited(0),
            };
            let delay_ns = cx.draw(cx.spec.timing.report);
            self.lose(cx, index, delay_ns, status, "");
        }
    }

    /// The host of an agent has lost power. The shell that started the agent notices this after a while.
    pub fn on_agent_vanished(&mut self, cx: &mut Cx, process: &AgentProcess) {
        if let Some(index) = self.shell_of(process) {
            let words = "Timeout, server not responding";
            self.lose(cx, index, cx.spec.node_timeout_ns, ExitStatus::Exited(255), words);
        }
    }

    /// The remote shell that started a process, if the shell still exists.
    fn shell_of(&self, process: &AgentProcess) -> Option<u32> {
        match process.starter? {
            Starter::Call(call) => (self.all[call as usize].state != State::Over).then_some(call),
            Starter::Step(_) => None,
        }
    }

    fn lose(&mut self, cx: &mut Cx, index: u32, delay_ns: u64, status: ExitStatus, words: &str) {
        self.leave_room(index, State::Over);
        self.all[index as usize].end = (status, words.to_owned());
        cx.clock.after(delay_ns, Event::CallEnded(index));
    }

    /// An agent has linked: the agents that started shells for it soon learn this.
    pub fn on_linked(&mut self, host: u32) {
        let is_under_way = |call: &u32| self.all[*call as usize].state == State::UnderWay;
        let calls: Vec<u32> = self.to_start(host).filter(is_under_way).collect();
        calls.into_iter().for_each(|call| self.leave_room(call, State::Linked));
    }

    /// The agent that started a shell gives it up: the shell is killed. On the same machine the started agent is the
    /// shell's process and dies too; on another machine the agent may live on. Returns the call, and the process that
    /// dies.
    pub fn stop(&mut self, cx: &mut Cx, agents: &Agents, caller: u32, shell: ShellId) -> Option<(u32, Option<u32>)> {
        let Some(&index) = self.by_shell.get(&(caller, shell)) else {
            cx.problem(format!("{} stops a remote shell that it never called", agents.name(caller)));
            return None;
        };
        let Call { host, state, .. } = self.all[index as usize];
        if state == State::Over {
            return None;
        }
        self.leave_room(index, State::Over);
        let its_own =
            agents.running_at(host).into_iter().find(|agent| agents[*agent].starter == Some(Starter::Call(index)));
        let goes_too = cx.spec.remote.is_none() || cx.rng.chance(500);
        Some((index, its_own.filter(|_| goes_too)))
    }

    /// A shell was killed; the agent that started it learns this after a while.
    pub fn on_stopped(&mut self, cx: &mut Cx, index: u32) {
        self.all[index as usize].end = (ExitStatus::Signalled { signal: 9, core_dumped: false }, String::new());
        cx.after(cx.spec.timing.report, Event::CallEnded(index));
    }
}

/// The answer of the host to a remote shell.
fn ask_host(cx: &mut Cx, agents: &mut Agents, caller: u32, agent: u32, how: How, is_probe: bool) -> Answer {
    let caller = agents[caller].host;
    let (Some(host), Some(from)) = (cx.host_spec(agent), cx.host_spec(caller)) else { return Answer::Begins };
    let callee = &mut agents.hosts[agent as usize];
    if host.reach == Reach::Nobody || callee.is_gone {
        return ends(255, "ssh: connect to host port 22: No route to host");
    }
    let is_barred = matches!(host.reach, Reach::From(only) if only != caller);
    if !from.onward || is_barred {
        return ends(255, "user@host: Permission denied (publickey).");
    }
    if host.pace == Pace::Never {
        return Answer::Never;
    }
    if callee.refusals < host.busy {
        callee.refusals += 1;
        return ends(255, "kex_exchange_identification: Connection closed by remote host");
    }
    let arch = if host.program == Program::OtherArch { "s390x" } else { crate::configs::ARCH };
    match (how, host.program) {
        (_, Program::There) => {}
        (How::Plain, Program::Missing) if !callee.has_program => return ends(127, "sh: wireup: not found"),
        (How::Plain, Program::OtherArch) => return ends(126, "sh: wireup: Exec format error"),
        (How::Look, Program::Missing) if callee.has_program => {}
        (How::Look, _) => return ends(NEEDED, &format!("{NEEDED_WORDS} {arch}")),
        (How::Send, Program::Missing) if !is_probe => return Answer::Stores,
        (How::Send, _) => {
            cx.problem(format!("agent {caller} sends its program to agent {agent}, which cannot use it"));
            return Answer::Never;
        }
        // `How::Look` would find the stored program; other ways of calling the shell do not look for it.
        (How::Plain, Program::Missing) => return ends(127, "sh: wireup: not found"),
    }
    Answer::Begins
}

/// Whether a new agent dials the agent that started it by a shell; otherwise it dials the address in its bootstrap
/// message.
fn is_dialled_back(bootstrap: &Bootstrap) -> bool {
    bootstrap.by_parent || bootstrap.session.remote_shell.start_method().same_machine
}
