//! The profile of a job: time stamps of agents, ranks and collectives, and the traffic on links.

use crate::collective::Collective;
use crate::ids::{AgentId, Epoch, NodeId, Rank};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The time stamps of one agent, in nanoseconds of its monotonic clock.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TracePart {
    pub agent: AgentId,
    pub node: NodeId,
    pub host: String,
    /// Time stamps: process started; bootstrap read; linked to its parent; job message received; all children linked.
    pub process_ns: u64,
    pub bootstrap_ns: u64,
    pub linked_ns: u64,
    pub job_ns: u64,
    pub children_ns: u64,
    /// This agent's clock minus its parent's clock (ns), as estimated when the two linked; and the largest possible
    /// error of the estimate (ns).
    pub clock_offset_ns: i64,
    pub clock_error_ns: u64,
    /// The parent to whose clock `clock_offset_ns` refers.
    pub clock_of: AgentId,
    pub ranks: Vec<RankTrace>,
    pub fences: Vec<FenceTrace>,
    /// Frames of collectives on the agent's links, with their payload.
    pub traffic: ExchangeTraffic,
}

/// Traffic of a job's collectives on an agent's links, by direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ExchangeTraffic {
    /// Traffic towards the root.
    pub up: Traffic,
    /// Traffic away from the root.
    pub down: Traffic,
    /// Traffic between any two nodes, outside the tree.
    pub direct: Traffic,
}

/// Frames and payload bytes, in and out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Traffic {
    pub frames_in: u64,
    pub bytes_in: u64,
    pub frames_out: u64,
    pub bytes_out: u64,
}

impl Traffic {
    /// Counts an incoming frame with this much payload.
    pub fn count_in(&mut self, bytes: usize) {
        self.frames_in += 1;
        self.bytes_in += bytes as u64;
    }

    /// Counts an outgoing frame with this much payload.
    pub fn count_out(&mut self, bytes: usize) {
        self.frames_out += 1;
        self.bytes_out += bytes as u64;
    }
}

/// Time stamps of one rank; 0 for events that did not happen.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RankTrace {
    pub rank: Rank,
    pub pid: u32,
    pub spawn_ns: u64,
    pub exec_ns: u64,
    pub init_ns: u64,
    pub finalize_ns: u64,
    pub exit_ns: u64,
    /// How the rank ended; `None`: the rank has not started, or its agent was lost.
    pub status: Option<ExitStatus>,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ExitStatus {
    Exited(u8),
    Signalled { signal: i32, core_dumped: bool },
}

/// One fence, or another collective, as observed by one agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FenceTrace {
    pub epoch: Epoch,
    pub collective: Collective,
    /// When the first and the last local rank entered. With the last rank the node's own part is complete.
    pub first_in_ns: u64,
    pub last_in_ns: u64,
    /// When the parts of all agents below had arrived, too.
    pub gathered_ns: u64,
    /// When the last part of the result had arrived.
    pub received_ns: u64,
    /// When the result was stored and the local ranks were answered.
    pub out_ns: u64,
    /// The last local rank to enter.
    pub last_rank: Rank,
    /// Payload bytes of the node's own pairs, and of the whole job's.
    pub bytes_up: u64,
    pub bytes_down: u64,
}
