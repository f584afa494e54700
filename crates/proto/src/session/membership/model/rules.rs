//! The rules that must hold after each event, and the final state when no event is left.

use super::*;

impl Sessions {
    /// An agent of the current incarnation exits only if the root has lost it, or will lose it because its link broke.
    pub(super) fn check_leave(&self, world: &mut World, number: u32) {
        let (copy, root) = (&world.copies[&number], &world.copies[&ROOT]);
        let roster = &root.routes.roster;
        let incarnation = copy.incarnation();
        let is_decided = roster.is_lost(copy.agent) || roster.incarnation(copy.agent) != incarnation;
        if copy.has_linked && !copy.was_cut && !is_decided {
            world.wrong = Some(format!("agent {} exits without a cause", copy.agent));
        }
    }

    pub(super) fn check(&self, world: &mut World) {
        if world.wrong.is_none() {
            world.wrong = self.problem(world);
        }
    }

    fn problem(&self, world: &World) -> Option<String> {
        // Every agent knows a prefix of the log.
        for copy in world.copies.values() {
            if self.fold(&world.log, copy.routes.roster.at()).as_ref() != Some(&copy.routes.roster) {
                return Some(format!("the tree of agent {} is not that of a log prefix", copy.agent));
            }
        }
        // At most one copy of an incarnation is linked, and a child knows no more of the log than its parent.
        let mut linked = BTreeSet::new();
        for (number, copy) in &world.copies {
            for child in copy.neighbours.linked() {
                let Some(below) = world.below(*number, child).map(|below| &world.copies[&below]) else { continue };
                if below.agent != child || !linked.insert((child, below.incarnation())) {
                    return Some(format!("two copies of agent {child} are linked"));
                }
                if below.routes.roster.at() > copy.routes.roster.at() {
                    return Some(format!("agent {child} knows more of the log than its parent"));
                }
            }
        }
        // There are no routing loops.
        let goes_round = |from: u32, to| world.hops(from, to) > 2 * self.tree.count();
        let round =
            world.agents(self.tree).into_iter().find(|to| world.copies.keys().any(|from| goes_round(*from, *to)));
        round.map(|to| format!("routing loop: a frame for agent {to}"))
    }

    /// The tree after `at` entries; `None` if the log is shorter.
    fn fold(&self, log: &[Entry], at: u32) -> Option<Roster> {
        let mut roster = Roster::new(self.tree, &SessionSnapshot::default());
        log.get(..at as usize)?.iter().for_each(|entry| drop(roster.apply(entry)));
        Some(roster)
    }

    /// The final state: the agents that are not lost form one tree, each knows its whole subtree, and no other copy
    /// exists.
    pub(super) fn is_settled(&self, world: &World) -> bool {
        let root = &world.copies[&ROOT];
        let roster = &root.routes.roster;
        let nodes = root.members.nodes().expect("the root has a list of nodes");
        let is_there = |agent: AgentId| match roster.parent(agent) {
            _ if roster.is_lost(agent) => !world.copies.values().any(|copy| copy.agent == agent),
            None => true,
            Some(parent) => {
                let mut copies = world.copies.iter().filter(|(_, copy)| copy.agent == agent);
                let (one, more) = (copies.next(), copies.next());
                let above = world.copies.iter().find(|(_, copy)| copy.agent == parent);
                let (Some((number, copy)), None, Some((above, _))) = (one, more, above) else { return false };
                let below: BTreeSet<AgentId> = roster.subtree(agent).into_iter().skip(1).collect();
                world.below(*above, agent) == Some(*number)
                    && copy.routes.roster == *roster
                    && copy.members.up == below
                    && copy.members.reported.is_empty()
            }
        };
        let agents = world.agents(self.tree);
        let known = agents.iter().all(|agent| nodes.is_up(*agent) != roster.is_lost(*agent));
        // The jobs for which hosts are added are exactly the jobs that have not ended.
        let used = nodes.added().map(|(_, job)| job).collect::<BTreeSet<JobId>>() == world.jobs;
        known
            && used
            && agents.into_iter().all(is_there)
            && root.members.writer.as_ref().is_some_and(|writer| writer.leases.is_empty())
    }
}
