//! Asks, from a node, whether another one can be reached by the same remote shell: a tree's agents start each other.

use super::calls::{Call, Calls, Common, End, Heard};
use super::report::Onward;
use crate::agent::remote;
use std::io;
use wireup_os::reactor::Reactor;
use wireup_wire::peer::probe;

/// Calls for one neighbour, with nothing but the question whether it answers.
pub fn calls(onward: Onward, timeout_ns: u64, reactor: &Reactor) -> io::Result<Calls> {
    let common = Common {
        remote_shell: onward.remote_shell,
        program: onward.program,
        asked: vec![remote::version()],
        probe: true,
        send: false,
        at_once: 1,
        timeout_ns,
    };
    Calls::new(common, vec![Call { host: onward.host, stdin: probe() }], reactor)
}

/// What was heard, as an answer.
pub fn answer(heard: Heard) -> Option<Result<(), String>> {
    match heard {
        Heard::End(End::Answered | End::Missing) => Some(Ok(())),
        Heard::End(End::Lost(problem)) => Some(Err(problem)),
        Heard::Called | Heard::Line(_) | Heard::Sent | Heard::Retried(_) => None,
    }
}
