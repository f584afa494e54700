//! The frames of a job's PMIx service along the job's tree.

use crate::job::cx::Cx;
use crate::job::facts::Facts;
use bytes::Bytes;
use wireup_wire::frame::{DownFrame, Frame, UpFrame};
use wireup_wire::ids::AgentId;
use wireup_wire::modex::Up;
use wireup_wire::peer;

/// `arg` of a PMIx frame sent down the tree: the frame is for all nodes, not for the path to one agent.
pub const EVERYBODY: u32 = u32::MAX;

pub fn up(facts: &Facts, message: &Up) -> Frame {
    facts.frame(UpFrame::PmixUp, 0, 0, peer::encode(message).into())
}

/// Sends a frame to the children on the path to agent `to`, or to all children.
pub fn down(cx: &mut Cx<'_>, to: u32, payload: &Bytes) {
    let to_agent = Some(AgentId(to)).filter(|_| to != EVERYBODY);
    for child in cx.children_towards(to_agent) {
        cx.agent.links.send_peer(child, cx.facts.frame(DownFrame::PmixDown, 0, to, payload.clone()));
    }
}
