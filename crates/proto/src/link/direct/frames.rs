//! Messages through the tree between agents that have no link yet, and frames about the frames of a link.

use bytes::Bytes;
use wireup_wire::frame::{Class, Frame, Kind};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::route::{Endpoint, Incarnations, Routed};

/// `stream` of a [`Kind::Pair`] frame.
pub const BEGIN: u16 = 0;
pub const ACKNOWLEDGE: u16 = 1;

pub fn acknowledged(me: AgentId, to: AgentId, job: JobId, before: u32) -> (JobId, Routed) {
    (job, numbered(me, to, 0, about(ACKNOWLEDGE, before)).1)
}

/// A frame through the tree. The incarnations of the two agents are filled in when it is sent.
pub fn numbered(me: AgentId, to: AgentId, number: u64, frame: Frame) -> (JobId, Routed) {
    let job = JobId(frame.job);
    let frame = Some((number as u32, frame));
    (job, Routed { to, from: me, incarnations: Incarnations::default(), endpoint: None, frame })
}

/// Tells a peer through the tree where this agent can be reached, or that it cannot.
pub fn offer(me: AgentId, to: AgentId, job: JobId, endpoint: Endpoint) -> (JobId, Routed) {
    (job, Routed { to, from: me, incarnations: Incarnations::default(), endpoint: Some(endpoint), frame: None })
}

/// A frame about the frames of a link.
pub fn about(stream: u16, arg: u32) -> Frame {
    Frame { kind: Kind::Pair, class: Class::Exchange, stream, job: 0, arg, payload: Bytes::new() }
}
