//! `wireup agent VERSION report`, on a node: reads the question, reports the facts, dials back, probes a neighbour.

use super::back::{Dialling, Reached};
use super::calls::{Calls, TOKENS};
use super::report::{Ask, REPORTED, Said, UNCONNECTED};
use super::{facts, onward};
use crate::agent::main::{self as agent, AgentError};
use crate::agent::read_timeout::ReadTimeout;
use crate::transport::addresses::SshConnection;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::{Event, Interest, Reactor};
use wireup_os::socket;
use wireup_wire::peer::PeerError;

/// The token of standard output, watched because its reader may leave.
const STDOUT: u64 = 0;

/// Answers one question. Returns the exit code.
pub fn main() -> u8 {
    match run() {
        Ok(true) => REPORTED,
        Ok(false) => UNCONNECTED,
        Err(error) => agent::cannot_begin(&error),
    }
}

/// Returns whether it has reached the doctor.
fn run() -> Result<bool, AgentError> {
    let begun_ns = monotonic_ns();
    let message = agent::read_message(ReadTimeout::new(io::stdin()), false)?;
    let mut ask = message.as_deref().and_then(|body| Ask::decode(body)).ok_or(PeerError::Malformed)?;
    let until_ns = begun_ns.saturating_add(ask.time_ns);
    let ssh = std::env::var("SSH_CONNECTION").ok().as_deref().and_then(SshConnection::parse);
    let cwd = PathBuf::from(OsString::from_vec(std::mem::take(&mut ask.cwd)));
    let facts = Said::Facts(Box::new(facts::read(ask.interface.as_deref(), ssh, &cwd)));
    let reactor = Reactor::new().map_err(AgentError::Wait)?;
    let calls = ask.onward.take().map(|onward| onward::calls(onward, ask.time_ns, &reactor));
    let calls = calls.transpose().map_err(AgentError::Wait)?;
    // A file, as in tests, cannot be watched, and has no reader that could leave.
    let _ = reactor.add(io::stdout(), STDOUT, Interest::NONE);
    let dialling = Some(Dialling::new(&ask, ssh, monotonic_ns()));
    let mut serving = Serving { reactor, dialling, calls, until_ns, said: String::new(), doctor: None };
    serving.tell(&facts);
    serving.serve().map_err(AgentError::Wait)
}

struct Serving {
    reactor: Reactor,
    dialling: Option<Dialling>,
    calls: Option<Calls>,
    until_ns: u64,
    /// All lines so far.
    said: String,
    /// The connection to the doctor.
    doctor: Option<OwnedFd>,
}

impl Serving {
    /// Returns whether it has reached the doctor.
    fn serve(mut self) -> io::Result<bool> {
        loop {
            let now_ns = monotonic_ns();
            self.step(now_ns);
            if self.dialling.is_none() && self.calls.is_none() {
                return Ok(self.doctor.is_some());
            }
            let wait = self.due_ns().map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(now_ns)));
            for event in self.reactor.wait(wait)?.to_vec() {
                if event.token == STDOUT {
                    // No reader is left. The remote shell ends with its keeper.
                    return Ok(self.doctor.is_some());
                }
                self.on_event(event);
            }
        }
    }

    fn due_ns(&self) -> Option<u64> {
        // At `until_ns` only dialling is given up; calls have a time limit of their own, which may be later.
        let until = self.dialling.as_ref().map(|_| self.until_ns);
        let dials = self.dialling.as_ref().and_then(Dialling::deadline_ns);
        let calls = self.calls.as_ref().and_then(Calls::deadline_ns);
        [until, dials, calls].into_iter().flatten().min()
    }

    fn step(&mut self, now_ns: u64) {
        let heard = self.calls.as_mut().map(|calls| calls.step(now_ns, &self.reactor)).unwrap_or_default();
        for answer in heard.into_iter().filter_map(|(_, heard)| onward::answer(heard)) {
            self.tell(&Said::Onward(answer));
        }
        if let Some(calls) = self.calls.take_if(|calls| !calls.is_busy()) {
            calls.close();
        }
        if let Some(dialling) = &mut self.dialling {
            let mut answer = dialling.step(now_ns, &self.reactor);
            if answer.is_none() && now_ns >= self.until_ns {
                answer = Some(Err(dialling.give_up()));
            }
            self.on_back(answer);
        }
    }

    fn on_event(&mut self, event: Event) {
        let now_ns = monotonic_ns();
        if event.token >= TOKENS {
            if let Some(calls) = &mut self.calls {
                calls.on_event(now_ns, event, &self.reactor);
            }
            return;
        }
        let answer = match &mut self.dialling {
            Some(dialling) => dialling.on_event(now_ns, event, &self.reactor),
            None => None,
        };
        self.on_back(answer);
    }

    fn on_back(&mut self, answer: Option<Result<Reached, String>>) {
        let Some(answer) = answer else { return };
        self.dialling = None;
        let back = answer.map(|Reached { back, socket }| {
            // So few bytes always fit into a new connection's buffer.
            let _ = socket::send(&socket, self.said.as_bytes(), &[]);
            self.doctor = Some(socket);
            back
        });
        self.tell(&Said::Back(back));
    }

    /// Without a reader at one of the two ends, the line arrives at the other.
    fn tell(&mut self, said: &Said) {
        let line = said.line();
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
        if let Some(doctor) = &self.doctor {
            let _ = socket::send(doctor, line.as_bytes(), &[]);
        }
        self.said += &line;
    }
}
