//! Groups of ranks, as their members see them.

use crate::checkers::modex::Call;
use crate::jobs::Job;
use crate::workload::{BarrierGroup, Who};

/// A group as one of its members sees it.
pub struct Group {
    /// The members and the tag as text, in the order of this member's request.
    pub text: String,
    /// Name of the group, unique among all groups.
    pub name: String,
    pub members: Vec<u32>,
}

impl Job {
    /// The call of a rank for this group: a fence of PMIx clients, or a PMIx group if there is a `tag`.
    pub fn call(&self, rank: u32, who: Who, tag: Option<u8>, collect: bool) -> Call {
        let members = match who {
            Who::World => None,
            _ => Some(self.group(rank, BarrierGroup { who, tag: 0 }).members),
        };
        let members = members.filter(|members| members.len() < self.size() as usize);
        let group = tag.map(|tag| format!("group-{tag}"));
        let kind = group.as_deref().unwrap_or(if collect { "modex" } else { "fence" });
        let name = members.as_ref().map_or(kind.to_owned(), |members| format!("{kind} of {members:?}"));
        Call { name, members, collect, group }
    }

    pub fn group(&self, rank: u32, BarrierGroup { who, tag }: BarrierGroup) -> Group {
        let node = self.placement[rank as usize];
        let is_member = |other: &u32| match who {
            Who::World => true,
            Who::Node => self.placement[*other as usize] == node,
            Who::Alike(modulo) => other % u32::from(modulo) == rank % u32::from(modulo),
        };
        let members: Vec<u32> = (0..self.size()).filter(is_member).collect();
        let (text, place) = match who {
            Who::World => (format!("WORLD:{tag}"), String::new()),
            Who::Node => (format!("NODE:{tag}"), format!(" on {}", self.agent_of(node))),
            Who::Alike(_) => {
                // The order of the members in the text depends on the caller.
                let text = format!("{}:{tag}", rotated(&members, rank).join(","));
                return Group { text, name: format!("{members:?}:{tag}"), members };
            }
        };
        Group { name: format!("{text}{place}"), text, members }
    }
}

/// The members, beginning with the caller.
fn rotated(members: &[u32], caller: u32) -> Vec<String> {
    let place = members.iter().position(|member| *member == caller).unwrap_or(0);
    members[place..].iter().chain(&members[..place]).map(u32::to_string).collect()
}
