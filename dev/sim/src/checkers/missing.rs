//! Missing hosts: all of them are reported together, no others are, and in time. Clocks: the reported offsets are
//! right.

use crate::fault_injection::Culprit;
use crate::launchers::LauncherState;
use crate::remote::Remote;
use crate::world::World;
use std::collections::BTreeSet;
use wireup_coll::tree::Tree;
use wireup_proto::launcher_io::Notice;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Cause, Failure, TracePart};

/// Longest time from the end of the start time until the job is over (ns). Agents at the end of their time need a few
/// hops, and what is then in flight or running gets its grace period before it is given up.
const SLACK_NS: u64 = 6_000_000_000;

impl World {
    /// Hosts with a problem may be blamed from the start.
    pub(crate) fn blame_hosts(&mut self) {
        let Some(remote) = self.cx.spec.remote.clone() else { return };
        let tree = Tree::new(self.cx.spec.agents, self.cx.spec.fanout);
        let needed = self.needed_agents(&tree);
        for agent in 1..self.cx.spec.agents {
            let is_out = remote.hosts[agent as usize].is_out();
            if is_out || remote.may_starve() || remote.may_be_missed(agent, &tree, self.cx.spec.start_timeout_ns) {
                self.jobs.all[0].checks.blame(Culprit::Agent(agent), is_out && needed.contains(&agent));
            }
        }
    }

    pub(crate) fn check_missing(&mut self) {
        let Some(remote) = self.cx.spec.remote.clone() else { return };
        let failed = self.jobs.all[0].checks.failure().cloned();
        let is_undisturbed = self.cx.spec.faults.is_empty() && self.cx.spec.jobs[0].timeout_ns.is_none();
        let tree = Tree::new(self.cx.spec.agents, self.cx.spec.fanout);
        let needed: BTreeSet<u32> = self.needed_agents(&tree);
        let out: BTreeSet<u32> = remote.out().filter(|agent| needed.contains(agent)).collect();
        match failed {
            Some(Failure { cause: Cause::AgentsMissing { missing }, .. }) => {
                let named: Vec<(u32, String)> =
                    missing.into_iter().map(|missing| (missing.agent.0, missing.problem.words)).collect();
                self.check_named(&remote, &tree, &out, &named, is_undisturbed);
            }
            _ if is_undisturbed && !out.is_empty() => {
                self.cx.problem(format!("{out:?} cannot start, and are not reported as missing"));
            }
            _ => {}
        }
    }

    fn check_named(
        &mut self,
        remote: &Remote,
        tree: &Tree,
        out: &BTreeSet<u32>,
        named: &[(u32, String)],
        is_undisturbed: bool,
    ) {
        let timeout_ns = self.cx.spec.start_timeout_ns;
        let distinct: BTreeSet<u32> = named.iter().map(|(agent, _)| *agent).collect();
        if distinct.len() < named.len() {
            return self.cx.problem(format!("reported twice: {named:?}"));
        }
        if !is_undisturbed {
            return;
        }
        // With few shells, those that hang keep other agents from being called.
        if !remote.may_starve() {
            let unnamed = out.difference(&distinct).filter(|agent| !remote.may_be_unnamed(**agent));
            let unnamed: Vec<&u32> = unnamed.collect();
            if !unnamed.is_empty() {
                self.cx.problem(format!("not reported: {unnamed:?}; reported: {named:?}"));
            }
        }
        let is_fine = |(agent, _): &&(u32, String)| {
            let host = &remote.hosts[*agent as usize];
            !host.is_out() && !remote.may_be_missed(*agent, tree, timeout_ns) && !remote.may_starve()
        };
        if let Some(fine) = named.iter().find(is_fine) {
            self.cx.problem(format!("{fine:?} is reported, but can start; {out:?} cannot"));
        }
        let bound_ns = timeout_ns + self.cx.spec.jobs[0].options.kill_grace_ns + SLACK_NS;
        if self.elapsed_ns() > bound_ns {
            let elapsed_ns = self.elapsed_ns();
            self.cx.problem(format!("the run took {elapsed_ns} ns, more than {bound_ns}: {named:?}"));
        }
    }

    /// Agents whose subtree has ranks.
    fn needed_agents(&self, tree: &Tree) -> BTreeSet<u32> {
        let with_ranks = self.jobs.nodes.iter().filter(|node| !node.ranks.is_empty()).map(|node| AgentId(node.host));
        with_ranks.flat_map(|agent| std::iter::successors(Some(agent), |at| tree.parent(*at))).map(|at| at.0).collect()
    }

    pub(crate) fn check_clocks(&mut self) {
        let tree = Tree::new(self.cx.spec.agents, self.cx.spec.fanout);
        let parts = self.jobs.all[0].checks.notices.iter().filter_map(|notice| match notice {
            Notice::Trace(part) => Some((**part).clone()),
            _ => None,
        });
        let own: Vec<TracePart> = parts.collect();
        let mut aligned = own.clone();
        wireup_proto::clock_offset::align(&mut aligned);
        let root_ahead_ns = self.cx.clock_ahead_ns(0);
        let is_clean = self.launchers[0].state == LauncherState::Left { code: 0 };
        for (own, aligned) in own.iter().zip(&aligned) {
            let ahead_ns = self.cx.clock_ahead_ns(own.agent.0);
            // Each hop may round down by a nanosecond.
            let error_ns = aligned.clock_error_ns.saturating_add(u64::from(tree.depth(own.agent)));
            let on_root_ns = (own.job_ns + root_ahead_ns).saturating_sub(ahead_ns);
            if aligned.job_ns.abs_diff(on_root_ns) > error_ns {
                let problem = format!("a trace of agent {} is {} for {on_root_ns}", own.agent, aligned.job_ns);
                return self.cx.problem(format!("{problem}, not within {error_ns}"));
            }
            if is_clean && self.cx.spec.remote.is_some() && aligned.clock_error_ns > self.cx.spec.start_timeout_ns {
                return self.cx.problem(format!("the clock offset of agent {} is unknown", own.agent));
            }
        }
    }
}
