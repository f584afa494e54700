//! Reports about ranks that have not entered a collective.

use crate::collective::Collective;
use crate::ids::{Epoch, NodeId, Rank};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// One agent's information about ranks for which other ranks wait.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StallReport {
    pub node: NodeId,
    pub host: String,
    pub epoch: Epoch,
    /// The collective of this epoch, if a rank waits in it.
    pub collective: Option<Collective>,
    /// Number of the node's ranks that have entered the collective.
    pub arrived: u32,
    /// The first few ranks of the node that have not entered, with their pids.
    pub missing: Vec<(Rank, u32)>,
    /// The number of ranks that have not entered.
    pub missing_count: u32,
    /// Group barriers in which ranks of the node wait or are awaited; the first few.
    pub groups: Vec<GroupStall>,
    /// Ranks of the node that run, and how many of these have called init.
    pub running: u32,
    pub initialised: u32,
    /// Set if ranks of the node may wait inside init for ranks of the node that have not called it.
    pub init: Option<InitStall>,
}

/// Ranks of one node whose library waits for the node's other ranks, and those that have not called its init.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InitStall {
    pub arrived: u32,
    /// Ranks that have not called init: the first few with their pids, and the number of all.
    pub missing: Vec<(Rank, u32)>,
    pub missing_count: u32,
    /// How many of the missing ranks have called init of PMI, although the waiting ranks use PMIx.
    pub by_other: u32,
}

/// One agent's information about an incomplete group barrier.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupStall {
    /// A description of the ranks.
    pub group: String,
    /// Members on the node that wait in the barrier, and those that have not entered: the first few with their pids,
    /// and their number.
    pub arrived: u32,
    pub missing: Vec<(Rank, u32)>,
    pub missing_count: u32,
}
