//! Tests from a node whether the same remote shell can reach another node, since the agents of a tree start each other.

use super::calls::{Call, Calls, Common, End, Heard};
use super::report::Onward;
use crate::agent::remote;
use std::io;
use wireup_os::reactor::Reactor;
use wireup_wire::peer::probe;

/// Calls a neighbour with an empty bootstrap message, only to see whether it answers.
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

/// The answer for an event, if it has one.
pub fn answer(heard: Heard) -> Option<Result<(), String>> {
    match heard {
        Heard::End(End::Answered | End::Unconnected | End::Missing) => Some(Ok(())),
        Heard::End(End::Lost(problem)) => Some(Err(problem.words)),
        Heard::Called | Heard::Line(_) | Heard::Sent | Heard::Retried(_) => None,
    }
}
