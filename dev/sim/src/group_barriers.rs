//! The ranks' side of group barriers: their members and their requests.

use crate::checkers::modex::Call;
use crate::client::Op;
use crate::ranks::Proc;
use crate::workload::{BarrierGroup, Who};
use crate::world::World;

/// A group as one of its members sees it.
struct Group {
    /// The text of the member's request.
    text: String,
    /// Name of the group, unique among all groups.
    name: String,
    members: Vec<u32>,
}

impl World {
    /// A fence of PMIx clients, or a group if there is a `tag`.
    pub(crate) fn call(&self, id: u32, who: Who, tag: Option<u8>, collect: bool) -> Call {
        let Group { mut members, .. } = self.group(id, BarrierGroup { who, tag: 0 });
        members.sort_unstable();
        let group = tag.map(|tag| format!("group-{tag}"));
        let name = format!("{} of {members:?}", group.as_deref().unwrap_or(if collect { "modex" } else { "fence" }));
        Call { name, members, collect, group }
    }

    fn group(&self, id: u32, team: BarrierGroup) -> Group {
        let (job, Proc { rank, node, .. }) = (self.job(id), &self.procs[id as usize]);
        let is_member = |other: &u32| match team.who {
            Who::World => true,
            Who::Node => self.procs[(job.first_proc + other) as usize].node == *node,
            Who::Alike(modulo) => other % u32::from(modulo) == rank % u32::from(modulo),
        };
        let members: Vec<u32> = (0..job.size()).filter(is_member).collect();
        let tag = team.tag;
        let (text, place) = match team.who {
            Who::World => (format!("WORLD:{tag}"), String::new()),
            Who::Node => (format!("NODE:{tag}"), format!(" on {}", self.host_of(id))),
            Who::Alike(_) => {
                // The order of the members depends on the caller.
                let ranks: Vec<String> = members.iter().map(|other| (*rank, *other)).map(rotated(&members)).collect();
                let mut sorted = members.clone();
                sorted.sort_unstable();
                return Group {
                    text: format!("{}:{tag}", ranks.join(",")),
                    name: format!("{sorted:?}:{tag}"),
                    members,
                };
            }
        };
        Group { name: format!("{text}{place}"), text, members }
    }

    pub(crate) fn enter_group(&mut self, id: u32, team: BarrierGroup) {
        let (rank, group) = (self.rank_of(id), self.group(id, team));
        self.checks_of(id).group_barriers.on_enter(rank, &group.name, &group.members);
        self.ask(id, Op::Barrier { group: &group.text });
    }

    pub(crate) fn on_group_answer(&mut self, id: u32, team: BarrierGroup) -> Result<(), String> {
        let (rank, group) = (self.rank_of(id), self.group(id, team));
        self.checks_of(id).group_barriers.on_release(rank, &group.name)
    }
}

/// Lists the members, starting with the caller.
fn rotated(members: &[u32]) -> impl Fn((u32, u32)) -> String + '_ {
    |(caller, other)| {
        let place = |rank| members.iter().position(|member| *member == rank).unwrap_or(0);
        members[(place(caller) + place(other)) % members.len()].to_string()
    }
}
