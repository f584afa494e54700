//! Who has not arrived.

use crate::collective::Collective;
use crate::ids::{Epoch, NodeId, Rank};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What one agent knows about a fence that is not complete.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StallReport {
    pub node: NodeId,
    pub host: String,
    pub epoch: Epoch,
    /// What the epoch is, if somebody waits in it.
    pub collective: Option<Collective>,
    /// Ranks of the node inside the fence.
    pub arrived: u32,
    /// Ranks of the node that have not entered, the first few, with their pids.
    pub missing: Vec<(Rank, u32)>,
    /// How many have not entered.
    pub missing_count: u32,
    /// Barriers of groups that ranks of the node wait in, or are waited for; the first few.
    pub groups: Vec<GroupStall>,
}

/// What one agent knows about the barrier of a group that is not complete.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupStall {
    /// In words: which ranks.
    pub group: String,
    /// Members on the node that wait in it, and that have not entered: the first few with their pids, and how many.
    pub arrived: u32,
    pub missing: Vec<(Rank, u32)>,
    pub missing_count: u32,
}
