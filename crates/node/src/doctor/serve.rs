//! `wireup agent VERSION report`, on a node: reads the question, reports the facts, dials back, probes a neighbour.

use super::back::Dialling;
use super::calls::{Calls, TOKENS};
use super::report::{Ask, Said};
use super::{facts, onward};
use crate::agent::read_timeout::ReadTimeout;
use crate::transport::addresses::SshConnection;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::{Event, Interest, Reactor};

/// The token of standard output, watched because its reader may leave.
const STDOUT: u64 = 0;

/// Answers one question. Returns the exit code.
pub fn main() -> u8 {
    match run() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("wireup agent: {error}");
            125
        }
    }
}

fn run() -> io::Result<()> {
    let begun_ns = monotonic_ns();
    let mut ask = Ask::read(ReadTimeout::new(io::stdin()))?;
    let until_ns = begun_ns.saturating_add(ask.time_ns);
    let ssh = std::env::var("SSH_CONNECTION").ok().as_deref().and_then(SshConnection::parse);
    let cwd = PathBuf::from(OsString::from_vec(std::mem::take(&mut ask.cwd)));
    tell(&Said::Facts(Box::new(facts::read(ask.interface.as_deref(), ssh, &cwd))))?;
    let reactor = Reactor::new()?;
    let calls = match ask.onward.take() {
        Some(onward) => Some(onward::calls(onward, ask.time_ns, &reactor)?),
        None => None,
    };
    // A file, as in tests, cannot be watched, and has no reader that could leave.
    let _ = reactor.add(io::stdout(), STDOUT, Interest::NONE);
    let dialling = Some(Dialling::new(&ask, ssh, monotonic_ns()));
    Serving { reactor, dialling, calls, until_ns }.serve()
}

struct Serving {
    reactor: Reactor,
    dialling: Option<Dialling>,
    calls: Option<Calls>,
    until_ns: u64,
}

impl Serving {
    fn serve(mut self) -> io::Result<()> {
        loop {
            let now_ns = monotonic_ns();
            self.step(now_ns)?;
            if self.dialling.is_none() && self.calls.is_none() {
                return Ok(());
            }
            let wait = self.due_ns().map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(now_ns)));
            for event in self.reactor.wait(wait)?.to_vec() {
                if event.token == STDOUT {
                    // No reader is left. The remote shell ends with its keeper.
                    return Ok(());
                }
                self.on_event(event)?;
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

    fn step(&mut self, now_ns: u64) -> io::Result<()> {
        if let Some(calls) = &mut self.calls {
            for (_, heard) in calls.step(now_ns, &self.reactor) {
                if let Some(answer) = onward::answer(heard) {
                    tell(&Said::Onward(answer))?;
                }
            }
            if !calls.is_busy()
                && let Some(calls) = self.calls.take()
            {
                calls.close();
            }
        }
        if let Some(dialling) = &mut self.dialling {
            let mut answer = dialling.step(now_ns, &self.reactor);
            if answer.is_none() && now_ns >= self.until_ns {
                answer = Some(Err(dialling.give_up()));
            }
            self.on_back(answer)?;
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event) -> io::Result<()> {
        let now_ns = monotonic_ns();
        if event.token >= TOKENS {
            if let Some(calls) = &mut self.calls {
                calls.on_event(now_ns, event, &self.reactor);
            }
            return Ok(());
        }
        let answer = match &mut self.dialling {
            Some(dialling) => dialling.on_event(now_ns, event, &self.reactor),
            None => None,
        };
        self.on_back(answer)
    }

    fn on_back(&mut self, answer: Option<Result<super::Back, String>>) -> io::Result<()> {
        if let Some(answer) = answer {
            tell(&Said::Back(answer))?;
            self.dialling = None;
        }
        Ok(())
    }
}

fn tell(said: &Said) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(said.line().as_bytes())?;
    stdout.flush()
}
