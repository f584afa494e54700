//! Remote shells: the outcome of each call, the agent that it starts, and how the caller learns of its end.

use crate::agents::ProcessState;
use crate::clock::Event;
use crate::configs;
use crate::fault_injection::NoStart;
use crate::remote::{Answer, HostSpec, Pace, Program, Reach, Remote};
use crate::world::World;
use std::collections::BTreeMap;
use wireup_proto::io::{ExitStatus, How, Input, ShellId};
use wireup_proto::{NEEDED, NEEDED_WORDS};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Bootstrap, SpawnError, SpawnStep};

/// One call of a remote shell.
pub struct Call {
    /// The process that calls.
    pub caller: u32,
    pub shell: ShellId,
    /// The host that is called, and the agent to be started there.
    pub host: u32,
    state: State,
    /// `None` for a probe.
    bootstrap: Option<Box<Bootstrap>>,
    answer: Answer,
    /// Exit status and standard error with which the shell ends.
    end: (ExitStatus, String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The call is in progress, and counts towards `shells_max`.
    UnderWay,
    /// The agent of the call is linked.
    Linked,
    Over,
}

/// All calls of a world.
#[derive(Default)]
pub struct Calls {
    all: Vec<Call>,
    by_shell: BTreeMap<(u32, ShellId), u32>,
    /// The number of calls in progress of each agent.
    under_way: BTreeMap<u32, u32>,
}

impl Calls {
    pub fn get(&self, call: u32) -> &Call {
        &self.all[call as usize]
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    fn begin(&mut self, call: Call) -> u32 {
        let index = self.all.len() as u32;
        self.by_shell.insert((call.caller, call.shell), index);
        *self.under_way.entry(call.caller).or_default() += u32::from(call.state == State::UnderWay);
        self.all.push(call);
        index
    }

    /// Whether there was ever a call to start this agent.
    pub fn was_called(&self, host: u32) -> bool {
        self.all.iter().any(|call| call.host == host && call.bootstrap.is_some())
    }

    fn leave_room(&mut self, call: u32, state: State) {
        let call = &mut self.all[call as usize];
        if call.state == State::UnderWay {
            *self.under_way.entry(call.caller).or_default() -= 1;
        }
        call.state = state;
    }

    /// Whether a call has started this agent or may still do so: then a second one is a bug.
    fn is_being_started(&self, host: u32) -> bool {
        self.all.iter().any(|call| call.host == host && call.bootstrap.is_some() && call.state != State::Over)
    }
}

fn ends(code: u8, words: &str) -> Answer {
    Answer::Ends(code, words.into())
}

impl World {
    pub(crate) fn call_shell(
        &mut self,
        caller: u32,
        shell: ShellId,
        agent: AgentId,
        how: How,
        bootstrap: Option<Box<Bootstrap>>,
    ) {
        self.check_call(caller, shell, agent, bootstrap.as_deref());
        self.on_calls(caller, bootstrap.as_deref());
        if self.checks.is_broken() {
            return;
        }
        let mut delay_ns = self.spec.timing.agent_start.draw(&mut self.rng);
        let no_start = self.hosts[agent.index()].no_start;
        let answer = match no_start {
            None | Some(NoStart::FirstCalls { times: 0 }) => self.ask_host(caller, agent.0, how, bootstrap.is_none()),
            Some(how) => {
                // An agent that is only probed may have no ranks.
                self.blame_agent(agent.0, bootstrap.is_some());
                match how {
                    NoStart::NoShell | NoStart::Silence => Answer::Never,
                    NoStart::ShellFails { code } => ends(code, "no route to host"),
                    NoStart::FirstCalls { times } => {
                        self.hosts[agent.index()].no_start = Some(NoStart::FirstCalls { times: times - 1 });
                        ends(255, "ssh: connect to host port 22: No route to host")
                    }
                }
            }
        };
        if let (Some(HostSpec { pace: Pace::Slow { by_ns }, .. }), Answer::Begins) = (self.host_spec(agent.0), &answer)
        {
            delay_ns += by_ns;
        }
        let is_silent = answer == Answer::Never;
        let end = (ExitStatus::Exited(0), String::new());
        // An agent may link while its parent, whose shell for it has ended, asks an ancestor to start it. The new
        // caller soon learns of the link.
        let is_there = bootstrap.is_some() && self.is_linked(agent.0);
        let state = if is_there { State::Linked } else { State::UnderWay };
        let call = Call { caller, shell, host: agent.0, state, bootstrap, answer, end };
        let call = self.calls.begin(call);
        if !is_silent || no_start == Some(NoStart::NoShell) {
            self.clock.after(delay_ns, Event::Call(call));
        }
    }

    fn check_call(&mut self, caller: u32, shell: ShellId, agent: AgentId, bootstrap: Option<&Bootstrap>) {
        let problem = if self.calls.by_shell.contains_key(&(caller, shell)) {
            "the shell number was used before"
        } else if bootstrap.is_none() && self.spec.remote.is_none() {
            "a child on the same machine is probed"
        } else if self.spec.remote.as_ref().is_some_and(Remote::by_step) {
            "it is called although a step starts it"
        } else if bootstrap.is_some_and(|bootstrap| bootstrap.agent != agent) {
            "the bootstrap message is for another agent"
        } else if bootstrap.is_some() && !self.spec.is_standing && self.calls.is_being_started(agent.0) {
            "it is started a second time"
        } else if self.calls.under_way.get(&caller).copied().unwrap_or_default() >= self.shells_max() {
            "more remote shells at a time than allowed"
        } else {
            return;
        };
        self.checks.problem(format!("{} calls agent {agent}: {problem}", self.name(caller)));
    }

    fn shells_max(&self) -> u32 {
        self.spec.remote.as_ref().map_or(64, |remote| remote.shells_max)
    }

    pub(crate) fn host_spec(&self, host: u32) -> Option<HostSpec> {
        self.spec.remote.as_ref().map(|remote| remote.hosts[host as usize])
    }

    /// The outcome of a call to the host.
    fn ask_host(&mut self, caller: u32, agent: u32, how: How, is_probe: bool) -> Answer {
        let caller = self.agents[caller as usize].host;
        let (Some(host), Some(from)) = (self.host_spec(agent), self.host_spec(caller)) else { return Answer::Begins };
        let callee = &mut self.hosts[agent as usize];
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
                self.checks.problem(format!("agent {caller} sends its program to agent {agent}, which cannot use it"));
                return Answer::Never;
            }
            // Only `How::Look` finds the stored program.
            (How::Plain, Program::Missing) => return ends(127, "sh: wireup: not found"),
        }
        Answer::Begins
    }

    /// A call reaches its outcome.
    pub(crate) fn on_call(&mut self, index: u32) {
        let Call { host, caller, shell, state, ref answer, .. } = self.calls.all[index as usize];
        // A remote shell dies with the agent that called it.
        if state == State::Over || !self.agents[caller as usize].is_running() {
            return;
        }
        match answer.clone() {
            Answer::Never => {
                // The shell program itself cannot be started.
                self.calls.leave_room(index, State::Over);
                let what = "remote-shell: No such file or directory (os error 2) (finding the program)".into();
                let error = SpawnError { step: SpawnStep::Find, what, errno: 2 };
                self.tell_agent(caller, Input::ShellEnded { shell, end: Err(error) });
            }
            Answer::Ends(code, words) => self.end_call(index, ExitStatus::Exited(code), words),
            Answer::Stores => {
                self.hosts[host as usize].has_program = true;
                self.end_call(index, ExitStatus::Exited(0), String::new());
            }
            Answer::Begins => self.on_agent_begins(index),
        }
    }

    fn on_agent_begins(&mut self, index: u32) {
        let call = &mut self.calls.all[index as usize];
        let (host, caller) = (call.host, call.caller);
        let bootstrap = call.bootstrap.clone();
        if self.is_off(host) {
            // The shell waits for an answer.
            self.strike(host, self.clock.now());
            let timed_out = (ExitStatus::Exited(255), "ssh: connect to host port 22: Connection timed out".into());
            self.calls.all[index as usize].end = timed_out;
            return self.clock.after(self.spec.node_timeout_ns, Event::ShellGone(index));
        }
        let Some(bootstrap) = bootstrap else {
            return self.end_call(index, ExitStatus::Exited(0), String::new());
        };
        let handshake_ns = self.spec.timing.handshake.draw(&mut self.rng);
        let child = &self.hosts[host as usize];
        if child.is_gone || !(self.spec.is_standing || child.processes.is_empty()) {
            // Either the machine is gone, or it already has such an agent: no other one is needed.
            let caller_hears_ns = handshake_ns;
            self.calls.all[index as usize].end = (ExitStatus::Exited(125), "the parent closed the link".into());
            return self.clock.after(caller_hears_ns, Event::ShellGone(index));
        }
        let mut bootstrap = *bootstrap;
        let address = self.name(caller);
        if self.spec.is_standing && bootstrap.parent.is_empty() {
            // The driver adds its own address.
            bootstrap.parent = vec![address.clone()];
        }
        let dials = if is_dialled_back(&bootstrap) { Some(address) } else { bootstrap.parent.first().cloned() };
        let (config, jobs) = configs::child(bootstrap, self.local_now(host));
        let agent = self.start_agent(config, jobs);
        self.agents[agent as usize].call = Some(index);
        self.agents[agent as usize].dials = dials;
        self.clock.after(handshake_ns, Event::AgentLink(agent));
        let broken = &mut self.hosts[host as usize].broken_shells;
        let breaks = *broken > 0;
        *broken -= u32::from(breaks);
        if breaks {
            self.strike(host, self.clock.now());
        }
        if breaks || self.host_spec(host).is_some_and(|host| host.shell_dies) {
            let dies_ns = self.rng.below(handshake_ns + 1);
            let words = "client_loop: send disconnect: Broken pipe";
            self.calls.all[index as usize].end = (ExitStatus::Exited(255), words.into());
            self.clock.after(dies_ns, Event::ShellGone(index));
        }
        self.on_agent_turn(agent);
    }

    /// A shell ends, whatever happens to what it started.
    pub(crate) fn on_shell_gone(&mut self, index: u32) {
        if self.calls.get(index).state != State::Over {
            if !self.is_linked(self.calls.get(index).host) {
                // The agent may link too late to be accepted.
                self.expect_losses();
            }
            let (status, words) = self.calls.get(index).end.clone();
            self.end_call(index, status, words);
        }
    }

    fn end_call(&mut self, index: u32, status: ExitStatus, words: String) {
        self.calls.leave_room(index, State::Over);
        self.calls.all[index as usize].end = (status, words);
        self.on_call_ended(index);
    }

    pub(crate) fn on_call_ended(&mut self, index: u32) {
        let Call { caller, shell, ref end, .. } = *self.calls.get(index);
        let (status, stderr) = end.clone();
        self.tell_agent(caller, Input::ShellEnded { shell, end: Ok((status, stderr)) });
    }

    /// An agent has ended, and its shell with it.
    pub(crate) fn agent_call_ends(&mut self, agent: u32) {
        self.task_ends(agent);
        if self.has_call(agent).is_none() {
            return;
        }
        let status = match self.agents[agent as usize].state {
            ProcessState::Killed => ExitStatus::Signalled { signal: 9, core_dumped: false },
            ProcessState::Running(_) | ProcessState::Left => ExitStatus::Exited(0),
        };
        let delay_ns = self.spec.timing.report.draw(&mut self.rng);
        self.agent_call_lost(agent, delay_ns, status, "");
    }

    /// The call that started a process, while its shell exists.
    fn has_call(&self, agent: u32) -> Option<u32> {
        self.agents[agent as usize].call.filter(|call| self.calls.get(*call).state != State::Over)
    }

    /// The shell of an agent ends with it; its caller learns that after a while.
    pub(crate) fn agent_call_lost(&mut self, agent: u32, delay_ns: u64, status: ExitStatus, words: &str) {
        if let Some(index) = self.has_call(agent) {
            self.calls.leave_room(index, State::Over);
            self.calls.all[index as usize].end = (status, words.to_owned());
            self.clock.after(delay_ns, Event::CallEnded(index));
        }
    }

    /// An agent has linked: its callers soon learn of it.
    pub(crate) fn agent_call_links(&mut self, host: u32) {
        let called = |call: &Call| call.host == host && call.bootstrap.is_some() && call.state == State::UnderWay;
        let calls: Vec<u32> =
            (0u32..).zip(&self.calls.all).filter(|(_, call)| called(call)).map(|(at, _)| at).collect();
        for call in calls {
            self.calls.leave_room(call, State::Linked);
        }
    }

    /// The caller gives up: the shell is killed. On the same machine the agent is the shell's process and dies too;
    /// elsewhere it may live on.
    pub(crate) fn stop_shell(&mut self, caller: u32, shell: ShellId) {
        let Some(&index) = self.calls.by_shell.get(&(caller, shell)) else {
            return self.checks.problem(format!("{} stops a remote shell that it never called", self.name(caller)));
        };
        let Call { host, state, .. } = *self.calls.get(index);
        if state == State::Over {
            return;
        }
        self.calls.leave_room(index, State::Over);
        let its_own = self.running_at(host).into_iter().find(|agent| self.agents[*agent as usize].call == Some(index));
        let goes_too = self.spec.remote.is_none() || self.rng.chance(500);
        if let Some(agent) = its_own.filter(|_| goes_too) {
            self.expect_losses();
            self.kill_agent(agent);
        }
        self.calls.all[index as usize].end = (ExitStatus::Signalled { signal: 9, core_dumped: false }, String::new());
        let delay_ns = self.spec.timing.report.draw(&mut self.rng);
        self.clock.after(delay_ns, Event::CallEnded(index));
    }
}

/// Whether an agent dials the one that called its shell; otherwise it dials the address in its bootstrap message.
fn is_dialled_back(bootstrap: &Bootstrap) -> bool {
    bootstrap.by_parent || bootstrap.session.remote_shell.start_method().same_machine
}
