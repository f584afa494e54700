//! Frames of a job's PMIx along the job's tree.

use crate::job::Act;
use crate::job::effect::Effect;
use crate::job::facts::{Facts, View};
use bytes::Bytes;
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::ids::AgentId;
use wireup_wire::modex::Up;
use wireup_wire::peer;

/// `arg` of a frame down that is for all nodes.
pub const EVERYBODY: u32 = u32::MAX;

pub fn up(facts: &Facts, message: &Up) -> Frame {
    facts.frame(Kind::PmixUp, 0, 0, peer::encode(message).into())
}

/// Frames to the children on the path to agent `to`, or to all children.
pub fn down(view: &View<'_>, to: u32, payload: &Bytes) -> impl Iterator<Item = Effect> {
    let is_on_the_way = move |agent| to == EVERYBODY || view.facts.tree.subtree_contains(agent, AgentId(to));
    let children = view.children.iter().filter(|child| child.done.is_none());
    children
        .map(|child| child.agent)
        .filter(move |agent| is_on_the_way(*agent))
        .map(move |agent| Effect::Act(Act::ToAgent(agent, view.facts.frame(Kind::PmixDown, 0, to, payload.clone()))))
}
