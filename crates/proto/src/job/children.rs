//! The agents below this one in the job's tree, and the progress of the job on each.

use wireup_wire::ids::AgentId;
use wireup_wire::peer::Done;

/// The children that run more of the job, in the order of `Facts::below`.
pub struct Children(pub Vec<Child>);

/// A child agent's share of the job.
pub struct Child {
    pub agent: AgentId,
    /// Whether all agents of the child's subtree are linked, or known to be missing.
    pub ready: bool,
    /// Number of ranks of the child's subtree that have started; `None`: not reported yet.
    pub started: Option<u32>,
    pub done: Option<Done>,
}

impl std::ops::Deref for Children {
    type Target = [Child];

    fn deref(&self) -> &[Child] {
        &self.0
    }
}

impl Child {
    /// Records that no more reports from this child are expected.
    fn end(&mut self) {
        self.ready = true;
        self.started.get_or_insert(0);
        self.done.get_or_insert_default();
    }
}

impl Children {
    pub fn new(below: &[AgentId]) -> Self {
        Children(below.iter().map(|agent| Child { agent: *agent, ready: false, started: None, done: None }).collect())
    }

    pub fn are_ready(&self) -> bool {
        self.iter().all(|child| child.ready)
    }

    /// A child agent is lost with all its ranks, or is missing and no more reports about its subtree are expected.
    pub fn on_lost(&mut self, agent: AgentId) {
        self.0.iter_mut().filter(|child| child.agent == agent).for_each(Child::end);
    }

    /// Whether every child has reported that its ranks run, or never will.
    pub fn have_started(&self) -> bool {
        self.iter().all(|child| child.started.is_some())
    }

    /// The number of ranks that have started in the children's subtrees.
    pub fn ranks_started(&self) -> u32 {
        self.iter().filter_map(|child| child.started).sum()
    }

    pub fn are_done(&self) -> bool {
        self.iter().all(|child| child.done.is_some())
    }

    /// Gives up the unfinished children for which `which` holds; returns them.
    pub fn give_up(&mut self, which: impl Fn(AgentId) -> bool) -> Vec<AgentId> {
        let late = self.0.iter_mut().filter(|child| child.done.is_none() && which(child.agent));
        late.map(|child| {
            child.end();
            child.agent
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_is_given_up_counts_as_started_and_done() {
        let mut children = Children::new(&[AgentId(1), AgentId(2)]);
        children.0[0].started = Some(4);
        children.0[0].done = Some(Done { ranks: 4, ..Done::default() });
        assert!(!children.have_started() && !children.are_done());
        assert_eq!(children.give_up(|_| true), [AgentId(2)]);
        assert!(children.have_started() && children.are_done());
        assert_eq!(children.ranks_started(), 4);
    }

    #[test]
    fn a_lost_child_keeps_its_reported_ranks() {
        let mut children = Children::new(&[AgentId(1)]);
        children.0[0].started = Some(4);
        children.on_lost(AgentId(1));
        assert_eq!((children.ranks_started(), children.are_done()), (4, true));
        children.on_lost(AgentId(9));
    }
}
