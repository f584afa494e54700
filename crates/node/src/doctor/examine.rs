//! The doctor's side: calls all hosts and collects their answers and connections.

use super::calls::{Call, Calls, Common, End, Heard, TOKENS};
use super::facts;
use super::guests::Guests;
use super::report::{Ask, Back, Facts, HALF, Onward, Said, Token};
use crate::agent::remote;
use crate::transport::addresses::{self, NothingMatches};
use crate::transport::filter::{Filter, FilterError};
use crate::transport::listener::Listener;
use std::io;
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::interfaces;
use wireup_os::reactor::Reactor;
use wireup_wire::peer::{Caller, RemoteShell};

/// Most remote shells at once. Chosen: as many as a run has in progress at its root.
const AT_ONCE: u32 = 64;

#[derive(Clone, Debug)]
pub struct Plan {
    /// Names for the remote shell. Each host is also asked to reach the next one, and the last one the first.
    pub hosts: Vec<String>,
    pub remote_shell: RemoteShell,
    /// The path of this program.
    pub program: String,
    pub interface: Option<String>,
    /// The directory that ranks would work in.
    pub cwd: Vec<u8>,
    /// Time limit for each host.
    pub timeout_ns: u64,
    /// Send the program to hosts that lack it.
    pub send: bool,
}

/// The findings about one host.
#[derive(Clone, PartialEq, Debug)]
pub struct Seen {
    pub host: String,
    pub end: End,
    pub facts: Option<Facts>,
    /// This machine's wall clock (ns): before the host read its own, and after.
    pub clock_ns: (u64, u64),
    /// Whether the host reached the doctor. `None`: it did not report that in time.
    pub back: Option<Result<Back, String>>,
    pub onward: Option<Result<(), String>>,
    /// The host that it was asked to reach.
    pub neighbour: Option<String>,
    pub sent: bool,
    /// The message of its sshd when it refused more log-ins.
    pub retried: Option<String>,
}

#[derive(thiserror::Error, Debug)]
pub enum ExamineError {
    #[error(transparent)]
    Filter(#[from] FilterError),
    #[error(transparent)]
    Interface(#[from] NothingMatches),
    #[error("{what} failed: {error}")]
    Io { what: &'static str, error: io::Error },
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> ExamineError {
    move |error| ExamineError::Io { what, error }
}

/// Examines all hosts. Takes at most `timeout_ns` for each batch of hosts that are called at once. Call it while the
/// process has one thread.
///
/// # Errors
/// The examination could not be started.
pub fn examine(plan: &Plan) -> Result<Vec<Seen>, ExamineError> {
    // If this fails, fewer connections are accepted at once.
    let _ = wireup_os::process::raise_open_files();
    let own = interfaces::addresses().map_err(failed("listing this machine's interfaces"))?;
    let filter = plan.interface.as_deref().map(Filter::parse).transpose()?;
    let offered = addresses::offered(&own, filter.as_ref(), None, false)?;
    let listener = Listener::remote(&offered, filter.is_some()).map_err(failed("listening for the hosts"))?;
    let tokens: Vec<Token> = plan.hosts.iter().map(|_| token()).collect::<io::Result<_>>().map_err(failed("dice"))?;
    let calls = plan.hosts.iter().enumerate().map(|(index, host)| {
        let ask = ask(plan, index, &tokens[index], &listener);
        Call { host: host.clone(), stdin: ask.encode() }
    });
    let common = Common {
        remote_shell: plan.remote_shell.clone(),
        program: plan.program.clone(),
        asked: vec![remote::version(), "report".into()],
        probe: false,
        send: plan.send,
        at_once: AT_ONCE,
        timeout_ns: plan.timeout_ns,
    };
    let calls: Vec<Call> = calls.collect();
    let reactor = Reactor::new().map_err(failed("waiting for events"))?;
    let calls = Calls::new(common, calls, &reactor).map_err(failed("starting processes"))?;
    let guests = Guests::new(listener, tokens, &reactor).map_err(failed("listening for the hosts"))?;
    let seen = (0..plan.hosts.len()).map(|index| Seen {
        host: plan.hosts[index].clone(),
        end: End::Answered,
        facts: None,
        clock_ns: (0, 0),
        back: None,
        onward: None,
        neighbour: neighbour(plan, index),
        sent: false,
        retried: None,
    });
    let mut doctor = Doctor { reactor, calls, guests, seen: seen.collect() };
    doctor.attend().map_err(failed("waiting for events"))?;
    doctor.calls.close();
    Ok(doctor.seen)
}

fn ask(plan: &Plan, index: usize, token: &Token, listener: &Listener) -> Ask {
    let onward = |host| Onward { host, remote_shell: plan.remote_shell.clone(), program: plan.program.clone() };
    Ask {
        token: token.clone(),
        addresses: listener.addresses(),
        interface: plan.interface.clone(),
        by_ssh: plan.remote_shell.starter().caller == Caller::Stated,
        cwd: plan.cwd.clone(),
        // Half of the time, so that a report of failure still arrives.
        time_ns: plan.timeout_ns / 2,
        onward: neighbour(plan, index).map(onward),
    }
}

fn neighbour(plan: &Plan, index: usize) -> Option<String> {
    // Where one step starts all agents, agents do not call each other.
    (plan.hosts.len() > 1 && !plan.remote_shell.starter().by_step())
        .then(|| plan.hosts[(index + 1) % plan.hosts.len()].clone())
}

fn token() -> io::Result<Token> {
    let mut token = Token { node: [0; HALF], doctor: [0; HALF] };
    for half in [&mut token.node, &mut token.doctor] {
        rustix::rand::getrandom(&mut half[..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(token)
}

struct Doctor {
    reactor: Reactor,
    calls: Calls,
    guests: Guests,
    seen: Vec<Seen>,
}

impl Doctor {
    fn attend(&mut self) -> io::Result<()> {
        loop {
            let now_ns = monotonic_ns();
            self.guests.expire(now_ns, &self.reactor);
            for (host, heard) in self.calls.step(now_ns, &self.reactor) {
                self.on_heard(now_ns, host, heard);
            }
            if !self.calls.is_busy() && !self.guests.is_heard() {
                return Ok(());
            }
            let due_ns = [self.calls.deadline_ns(), self.guests.deadline_ns()].into_iter().flatten().min();
            let wait = due_ns.map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())));
            for event in self.reactor.wait(wait)?.to_vec() {
                match event.token {
                    TOKENS.. => self.calls.on_event(monotonic_ns(), event, &self.reactor),
                    _ => {
                        for (host, line) in self.guests.on_event(monotonic_ns(), event, &self.reactor) {
                            self.on_line(host, &line, false);
                        }
                    }
                }
            }
        }
    }

    fn on_heard(&mut self, now_ns: u64, host: usize, heard: Heard) {
        let seen = &mut self.seen[host];
        match heard {
            Heard::Called => seen.clock_ns.0 = facts::wall_clock_ns(),
            Heard::Sent => seen.sent = true,
            Heard::Retried(problem) => seen.retried = Some(problem),
            Heard::End(end) => {
                seen.end = end;
                self.guests.on_end(now_ns, host);
            }
            Heard::Line(line) => self.on_line(host, &line, true),
        }
    }

    /// A line of a node's report, which may come twice: by the remote shell, which nobody else can write to, and by its
    /// connection.
    fn on_line(&mut self, host: usize, line: &[u8], by_shell: bool) {
        let seen = &mut self.seen[host];
        match Said::parse(line) {
            Some(Said::Facts(facts)) if by_shell || seen.facts.is_none() => {
                if seen.clock_ns.1 == 0 {
                    seen.clock_ns.1 = facts::wall_clock_ns();
                }
                seen.facts = Some(*facts);
            }
            Some(Said::Back(back)) if by_shell || seen.back.is_none() => seen.back = Some(back),
            Some(Said::Onward(onward)) if by_shell || seen.onward.is_none() => seen.onward = Some(onward),
            Some(Said::Facts(_) | Said::Back(_) | Said::Onward(_)) | None => {}
        }
    }
}
