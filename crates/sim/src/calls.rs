//! Remote shells: the outcome of each call, the agent that it starts, and how the caller learns of its end.

use crate::birth;
use crate::clock::Event;
use crate::faults::{Culprit, NoStart};
use crate::hosts::Life;
use crate::remote::{Answer, HostSpec, Pace, Program, Reach, Remote};
use crate::world::World;
use std::collections::BTreeMap;
use wireup_proto::io::{ExitStatus, How, Input, ShellId};
use wireup_proto::{NEEDED, NEEDED_WORDS};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Bootstrap, SpawnError, SpawnStep};

/// One call of a remote shell.
pub struct Call {
    pub caller: u32,
    pub shell: ShellId,
    pub agent: u32,
    state: State,
    /// `None` for a probe.
    bootstrap: Option<Box<Bootstrap>>,
    answer: Answer,
    /// How it ended.
    end: (ExitStatus, String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Counts towards `shells_max`.
    UnderWay,
    /// Its agent is linked.
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
    pub fn was_called(&self, agent: u32) -> bool {
        self.all.iter().any(|call| call.agent == agent && call.bootstrap.is_some())
    }

    fn leave_room(&mut self, call: u32, state: State) {
        let call = &mut self.all[call as usize];
        if call.state == State::UnderWay {
            *self.under_way.entry(call.caller).or_default() -= 1;
        }
        call.state = state;
    }

    /// Whether a call has started `agent` or may still do so: then a second one is a bug.
    fn is_being_started(&self, agent: u32) -> bool {
        self.all.iter().any(|call| call.agent == agent && call.bootstrap.is_some() && call.state != State::Over)
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
        if self.checks.is_broken() {
            return;
        }
        let mut delay_ns = self.spec.timing.agent_start.draw(&mut self.rng);
        let answer = match self.no_start.get(&agent.0) {
            None => self.ask_host(caller, agent.0, how, bootstrap.is_none()),
            Some(how) => {
                // An agent that is only probed may have no ranks.
                self.checks.blame(Culprit::Agent(agent.0), bootstrap.is_some());
                match how {
                    NoStart::NoShell | NoStart::Silence => Answer::Never,
                    NoStart::ShellFails { code } => ends(*code, "no route to host"),
                }
            }
        };
        if let (Some(HostSpec { pace: Pace::Slow { by_ns }, .. }), Answer::Begins) = (self.host_spec(agent.0), &answer)
        {
            delay_ns += by_ns;
        }
        let is_silent = answer == Answer::Never;
        let end = (ExitStatus::Exited(0), String::new());
        // An agent may link while its parent, whose shell for it has ended, asks an ancestor to start it. The new caller soon learns of the
        // link.
        let is_there = bootstrap.is_some() && self.link_to_parent(agent.0).is_some();
        let state = if is_there { State::Linked } else { State::UnderWay };
        let call = Call { caller, shell, agent: agent.0, state, bootstrap, answer, end };
        let call = self.calls.begin(call);
        if !is_silent || self.no_start.get(&agent.0) == Some(&NoStart::NoShell) {
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
        } else if bootstrap.is_some() && self.calls.is_being_started(agent.0) {
            "it is started a second time"
        } else if self.calls.under_way.get(&caller).copied().unwrap_or_default() >= self.shells_max() {
            "more remote shells at a time than allowed"
        } else {
            return;
        };
        self.checks.problem(format!("agent {caller} calls agent {agent}: {problem}"));
    }

    fn shells_max(&self) -> u32 {
        self.spec.remote.as_ref().map_or(64, |remote| remote.shells_max)
    }

    pub(crate) fn host_spec(&self, agent: u32) -> Option<HostSpec> {
        self.spec.remote.as_ref().map(|remote| remote.hosts[agent as usize])
    }

    /// The outcome of a call to the host.
    fn ask_host(&mut self, caller: u32, agent: u32, how: How, is_probe: bool) -> Answer {
        let (Some(host), Some(from)) = (self.host_spec(agent), self.host_spec(caller)) else { return Answer::Begins };
        let callee = &mut self.hosts[agent as usize];
        if host.reach == Reach::Nobody || callee.is_off {
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
        let arch = if host.program == Program::OtherArch { "s390x" } else { crate::birth::ARCH };
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
            // The stored program is found only by `How::Look`.
            (How::Plain, Program::Missing) => return ends(127, "sh: wireup: not found"),
        }
        Answer::Begins
    }

    /// A call reaches its outcome.
    pub(crate) fn on_call(&mut self, index: u32) {
        let Call { agent, caller, shell, state, ref answer, .. } = self.calls.all[index as usize];
        // A remote shell dies with the agent that called it.
        if state == State::Over || !self.hosts[caller as usize].is_alive() {
            return;
        }
        match answer.clone() {
            Answer::Never => {
                // The shell program itself cannot be started.
                self.calls.leave_room(index, State::Over);
                let what = "remote-shell: No such file or directory (os error 2) (finding the program)".into();
                let error = SpawnError { step: SpawnStep::Find, what, errno: 2 };
                self.tell_agent(caller, Input::ShellFailed { shell, error });
            }
            Answer::Ends(code, words) => self.end_call(index, ExitStatus::Exited(code), words),
            Answer::Stores => {
                self.hosts[agent as usize].has_program = true;
                self.end_call(index, ExitStatus::Exited(0), String::new());
            }
            Answer::Begins => self.on_agent_begins(index),
        }
    }

    fn on_agent_begins(&mut self, index: u32) {
        let call = &mut self.calls.all[index as usize];
        let host = call.agent;
        let Some(bootstrap) = call.bootstrap.clone() else {
            return self.end_call(index, ExitStatus::Exited(0), String::new());
        };
        let handshake_ns = self.spec.timing.handshake.draw(&mut self.rng);
        let child = &mut self.hosts[host as usize];
        if child.is_off || !matches!(child.life, Life::Unborn) {
            // Either the machine is gone, or it already has such an agent: another one is not needed.
            let caller_hears_ns = handshake_ns;
            self.calls.all[index as usize].end = (ExitStatus::Exited(125), "the parent closed the link".into());
            return self.clock.after(caller_hears_ns, Event::ShellGone(index));
        }
        child.call = Some(index);
        child.dials = dialled(&bootstrap, self.calls.get(index).caller);
        let (config, jobs) = birth::child(*bootstrap, self.local_now(host));
        self.come_alive(host, config, jobs);
        self.clock.after(handshake_ns, Event::AgentLink(host));
        if self.host_spec(host).is_some_and(|host| host.shell_dies) {
            let dies_ns = self.rng.below(handshake_ns + 1);
            let words = "client_loop: send disconnect: Broken pipe";
            self.calls.all[index as usize].end = (ExitStatus::Exited(255), words.into());
            self.clock.after(dies_ns, Event::ShellGone(index));
        }
        self.on_agent_turn(host);
    }

    /// A shell ends, whatever happens to what it started.
    pub(crate) fn on_shell_gone(&mut self, index: u32) {
        if self.calls.get(index).state != State::Over {
            if self.link_to_parent(self.calls.get(index).agent).is_none() {
                // The agent may link too late to be accepted.
                self.checks.output.expect_losses();
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
        self.tell_agent(caller, Input::ShellExited { shell, status, stderr });
    }

    /// An agent has ended, and its shell with it.
    pub(crate) fn agent_call_ends(&mut self, host: u32) {
        self.task_ends(host);
        let Some(index) = self.hosts[host as usize].call.filter(|call| self.calls.get(*call).state != State::Over)
        else {
            return;
        };
        let status = match self.hosts[host as usize].life {
            Life::Killed => ExitStatus::Signalled { signal: 9, core_dumped: false },
            _ => ExitStatus::Exited(0),
        };
        self.calls.leave_room(index, State::Over);
        self.calls.all[index as usize].end = (status, String::new());
        let delay_ns = self.spec.timing.report.draw(&mut self.rng);
        self.clock.after(delay_ns, Event::CallEnded(index));
    }

    /// An agent has linked: its callers soon learn of it.
    pub(crate) fn agent_call_links(&mut self, host: u32) {
        let called = |call: &Call| call.agent == host && call.bootstrap.is_some() && call.state == State::UnderWay;
        let calls: Vec<u32> =
            (0u32..).zip(&self.calls.all).filter(|(_, call)| called(call)).map(|(at, _)| at).collect();
        for call in calls {
            self.calls.leave_room(call, State::Linked);
        }
    }

    /// The caller gives up: the shell is killed. On the same machine the agent is the shell's process and dies too; elsewhere it may live
    /// on.
    pub(crate) fn stop_shell(&mut self, caller: u32, shell: ShellId) {
        let Some(&index) = self.calls.by_shell.get(&(caller, shell)) else {
            return self.checks.problem(format!("agent {caller} stops a remote shell that it never called"));
        };
        let Call { agent, state, .. } = *self.calls.get(index);
        if state == State::Over {
            return;
        }
        self.calls.leave_room(index, State::Over);
        let is_its_own = self.hosts[agent as usize].call == Some(index) && self.hosts[agent as usize].is_alive();
        let goes_too = self.spec.remote.is_none() || self.rng.chance(500);
        if is_its_own && goes_too {
            self.checks.output.expect_losses();
            self.kill_agent(agent);
        }
        self.calls.all[index as usize].end = (ExitStatus::Signalled { signal: 9, core_dumped: false }, String::new());
        let delay_ns = self.spec.timing.report.draw(&mut self.rng);
        self.clock.after(delay_ns, Event::CallEnded(index));
    }
}

/// The agent that an agent dials: the one that called its shell, or the one at the address in its bootstrap message.
fn dialled(bootstrap: &Bootstrap, caller: u32) -> Option<u32> {
    if bootstrap.by_parent || bootstrap.session.remote_shell.starter().same_machine {
        return Some(caller);
    }
    bootstrap.parent.first().and_then(|address| address.strip_prefix("agent ")?.parse().ok())
}
