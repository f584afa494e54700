//! Missing hosts: all missing hosts are reported together and in time, and no other hosts are reported. Clocks: the
//! reported clock offsets are right.

use crate::jobs::Jobs;
use crate::launchers::LauncherState;
use crate::remote::Remote;
use crate::spec::WorldSpec;
use crate::world::World;
use std::collections::BTreeSet;
use wireup_coll::tree::Tree;
use wireup_proto::launcher_io::Notice;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Cause, Failure, TracePart};

/// Longest time from the start timeout until the job has ended (ns). The report needs a few hops, and frames in flight
/// and running ranks get their grace period before they are given up.
const SLACK_NS: u64 = 6_000_000_000;

/// Hosts with a problem, which may be blamed from the start, each with whether the job must fail because of it.
pub fn blamed_hosts(spec: &WorldSpec, jobs: &Jobs) -> Vec<(u32, bool)> {
    let Some(remote) = &spec.remote else { return Vec::new() };
    let tree = Tree::new(spec.agents, spec.fanout);
    let needed = needed_agents(jobs, &tree);
    let has_problem = |agent: &u32| {
        let is_out = remote.hosts[*agent as usize].is_out();
        is_out || remote.may_starve() || remote.may_be_missed(*agent, &tree, spec.start_timeout_ns)
    };
    let hosts = (1..spec.agents).filter(has_problem);
    hosts.map(|agent| (agent, remote.hosts[agent as usize].is_out() && needed.contains(&agent))).collect()
}

pub fn check_missing(world: &World, found: &mut Vec<String>) {
    let Some(remote) = &world.cx.spec.remote else { return };
    let failed = world.jobs.all[0].checks.failure().cloned();
    let is_undisturbed = world.cx.spec.faults.is_empty() && world.cx.spec.jobs[0].timeout_ns.is_none();
    let tree = Tree::new(world.cx.spec.agents, world.cx.spec.fanout);
    let needed: BTreeSet<u32> = needed_agents(&world.jobs, &tree);
    let out: BTreeSet<u32> = remote.out().filter(|agent| needed.contains(agent)).collect();
    match failed {
        Some(Failure { cause: Cause::AgentsMissing { missing }, .. }) => {
            let named: Vec<(u32, String)> =
                missing.into_iter().map(|missing| (missing.agent.0, missing.problem.words)).collect();
            check_named(world, found, remote, &tree, &out, &named, is_undisturbed);
        }
        _ if is_undisturbed && !out.is_empty() => {
            found.push(format!("{out:?} cannot start, and are not reported as missing"));
        }
        _ => {}
    }
}

fn check_named(
    world: &World,
    found: &mut Vec<String>,
    remote: &Remote,
    tree: &Tree,
    out: &BTreeSet<u32>,
    named: &[(u32, String)],
    is_undisturbed: bool,
) {
    let timeout_ns = world.cx.spec.start_timeout_ns;
    let distinct: BTreeSet<u32> = named.iter().map(|(agent, _)| *agent).collect();
    if distinct.len() < named.len() {
        return found.push(format!("reported twice: {named:?}"));
    }
    if !is_undisturbed {
        return;
    }
    // If few shells may run at once, shells that hang keep other agents from being started.
    if !remote.may_starve() {
        let unnamed = out.difference(&distinct).filter(|agent| !remote.may_be_unnamed(**agent));
        let unnamed: Vec<&u32> = unnamed.collect();
        if !unnamed.is_empty() {
            found.push(format!("not reported: {unnamed:?}; reported: {named:?}"));
        }
    }
    let is_fine = |(agent, _): &&(u32, String)| {
        let host = &remote.hosts[*agent as usize];
        !host.is_out() && !remote.may_be_missed(*agent, tree, timeout_ns) && !remote.may_starve()
    };
    if let Some(fine) = named.iter().find(is_fine) {
        found.push(format!("{fine:?} is reported, but can start; {out:?} cannot"));
    }
    let bound_ns = timeout_ns + world.cx.spec.jobs[0].options.kill_grace_ns + SLACK_NS;
    if world.launchers.elapsed_ns(&world.cx) > bound_ns {
        let elapsed_ns = world.launchers.elapsed_ns(&world.cx);
        found.push(format!("the run took {elapsed_ns} ns, more than {bound_ns}: {named:?}"));
    }
}

/// Agents whose subtree contains ranks of the job.
fn needed_agents(jobs: &Jobs, tree: &Tree) -> BTreeSet<u32> {
    let with_ranks = jobs.nodes.iter().filter(|node| !node.ranks.is_empty()).map(|node| AgentId(node.host));
    with_ranks.flat_map(|agent| std::iter::successors(Some(agent), |at| tree.parent(*at))).map(|at| at.0).collect()
}

pub fn check_clocks(world: &World, found: &mut Vec<String>) {
    let tree = Tree::new(world.cx.spec.agents, world.cx.spec.fanout);
    let parts = world.jobs.all[0].checks.notices.iter().filter_map(|notice| match notice {
        Notice::Trace(part) => Some((**part).clone()),
        _ => None,
    });
    let own: Vec<TracePart> = parts.collect();
    let mut aligned = own.clone();
    wireup_proto::clock_offset::align(&mut aligned);
    let root_ahead_ns = world.cx.clock_ahead_ns(0);
    let is_clean = world.launchers.all[0].state == LauncherState::Left { code: 0 };
    for (own, aligned) in own.iter().zip(&aligned) {
        let ahead_ns = world.cx.clock_ahead_ns(own.agent.0);
        // The clock error is the sum over all hops, and each hop may round it down by a nanosecond.
        let error_ns = aligned.clock_error_ns.saturating_add(u64::from(tree.depth(own.agent)));
        let on_root_ns = (own.job_ns + root_ahead_ns).saturating_sub(ahead_ns);
        if aligned.job_ns.abs_diff(on_root_ns) > error_ns {
            let problem = format!("a trace of agent {} is {} for {on_root_ns}", own.agent, aligned.job_ns);
            return found.push(format!("{problem}, not within {error_ns}"));
        }
        if is_clean && world.cx.spec.remote.is_some() && aligned.clock_error_ns > world.cx.spec.start_timeout_ns {
            return found.push(format!("the clock offset of agent {} is unknown", own.agent));
        }
    }
}
