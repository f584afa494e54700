//! Injects the faults, and records who may be blamed for the consequences.

use super::{Culprit, Fault};
use crate::clock::{Clock, Event};
use crate::hosts::Wall;
use crate::launchers::{LauncherState, Role};
use crate::net::Net;
use crate::world::World;
use wireup_proto::Instant;
use wireup_proto::io::{ExitStatus, Input};
use wireup_proto::launcher_io::LauncherInput;
use wireup_wire::signal::SIGTERM;

/// Time after the end of a wall or a stop during which other agents may still declare an agent lost because of it (ns).
/// Chosen: the time of a dial, and the time that the root waits for an agent.
const WALL_SHOWS_NS: u64 = 20_000_000_000;

pub fn inject_fault(world: &mut World, fault: Fault) {
    // After the launcher of a single run has left, faults no longer matter.
    if !world.cx.spec.is_standing && world.launchers.all[0].state != LauncherState::Running {
        return;
    }
    world.cx.checks.strikes += 1;
    let timeout_ns = world.cx.spec.node_timeout_ns;
    let silence = |net: &mut Net, clock: &mut Clock, link| net.silence(clock, link, timeout_ns);
    match fault {
        Fault::KillRank { rank, .. } => {
            if world.jobs.procs.get(rank as usize).is_some_and(|proc| proc.is_running()) {
                world.jobs.blame_rank(rank, true);
                world.jobs.end_rank(&mut world.cx, rank, ExitStatus::Signalled { signal: 9, core_dumped: false });
            }
        }
        Fault::CutLink { agent, .. } => break_link(world, agent, Net::cut),
        Fault::SilenceLink { agent, .. } => break_link(world, agent, silence),
        Fault::KillAgent { agent: 0, .. } if !world.cx.spec.is_standing => kill_launcher(world),
        Fault::KillAgent { agent, .. } => strike_agent(world, agent),
        Fault::KillKeeper { agent, .. } => strike_keeper(world, agent),
        Fault::PowerLoss { agent, above, off_ns, .. } => {
            world.agents.with_above(agent, above).into_iter().for_each(|host| lose_power(world, host, off_ns));
        }
        Fault::Wall { from, to, is_both, for_ns, .. } => {
            build_wall(world, from, to, for_ns);
            if is_both {
                build_wall(world, to, from, for_ns);
            }
        }
        Fault::StopAgent { agent, for_ns, .. } => stop_agent(world, agent, for_ns),
        Fault::CancelStep { .. } => {
            let World { cx, agents, membership, jobs, .. } = world;
            for agent in world.batch.cancel(cx, agents, membership, jobs) {
                world.jobs.expect_losses(&world.cx);
                world.tell_agent(agent, Input::ToldToEnd { signal: SIGTERM });
            }
        }
        Fault::KillStep { .. } => world.kill_steps(),
        Fault::StopTerminal { for_ns, .. } => {
            if let Some(launcher) = world.launchers.active() {
                world.launchers.stop_terminal(&mut world.cx, &mut world.jobs, launcher, for_ns);
            }
        }
        Fault::Signal { signal, .. } => {
            if let Some(launcher) = world.launchers.active() {
                interrupt(world, launcher, signal);
            }
        }
        Fault::CutDirect { agent, .. } => break_direct(world, agent, Net::cut),
        Fault::SilenceDirect { agent, .. } => break_direct(world, agent, silence),
        Fault::KillServer { agent, .. } => {
            let has_server = |node: &u32| world.jobs.nodes[*node as usize].has_running_server();
            let nodes =
                world.agents.newest_at(agent).map(|process| world.jobs.nodes_of(agent, process)).unwrap_or_default();
            if let Some(node) = nodes.into_iter().find(has_server) {
                world.jobs.checks_at(node).blame(Culprit::Agent(agent), false);
                world.jobs.nodes[node as usize].stop_server(&mut world.cx);
            }
        }
        Fault::Revive { .. } => world.attach(Role::Revive),
        Fault::EndJobs { .. } => world.attach(Role::EndJobs),
        Fault::NoStart { .. }
        | Fault::BreakShells { .. }
        | Fault::NoExec { .. }
        | Fault::NoDial { .. }
        | Fault::NoTransport { .. }
        | Fault::NoServer { .. }
        | Fault::OtherLibrary { .. } => {}
    }
}

fn break_link(world: &mut World, host: u32, how: impl Fn(&mut Net, &mut Clock, u32)) {
    let process = world.agents.newest_at(host);
    let Some(link) = process.and_then(|agent| world.agents[agent].up) else { return };
    if world.cx.spec.is_standing {
        world.strike_now(host);
    } else {
        blame_subtree(world, host);
    }
    world.jobs.expect_losses(&world.cx);
    world.membership.on_broken(link);
    how(&mut world.net, &mut world.cx.clock, link);
}

/// Breaks a direct link of this agent, or of the next agent that has a direct link.
fn break_direct(world: &mut World, host: u32, how: impl Fn(&mut Net, &mut Clock, u32)) {
    let count = world.cx.spec.agents;
    let direct_of = |host: u32| {
        let links = world.agents.running_at(host).into_iter().flat_map(|agent| world.agents[agent].links.clone());
        links.filter(|link| world.net.is_direct(*link)).collect::<Vec<u32>>()
    };
    let mut next = (0..count).map(|step| direct_of((host + step) % count));
    let Some(direct) = next.find(|direct| !direct.is_empty()) else { return };
    // Nobody is blamed: the job continues without the link.
    let link = *world.cx.rng.pick(&direct);
    how(&mut world.net, &mut world.cx.clock, link);
}

fn strike_agent(world: &mut World, host: u32) {
    let Some(agent) = world.agents.newest_at(host).filter(|_| host != 0) else { return };
    if world.cx.spec.is_standing {
        world.strike_now(host);
        world.jobs.blame_agents(&[host]);
    } else {
        blame_subtree(world, host);
        world.agents.hosts[host as usize].is_gone = true;
    }
    world.jobs.expect_losses(&world.cx);
    world.kill_agent(agent);
}

fn strike_keeper(world: &mut World, host: u32) {
    let Some(agent) = world.agents.newest_at(host) else { return };
    let has_keeper = |node: &u32| {
        let node = &world.jobs.nodes[*node as usize];
        node.keeper_is_running && !node.ranks.is_empty() && !node.job_is_gone
    };
    let Some(node) = world.jobs.nodes_of(host, agent).into_iter().find(has_keeper) else { return };
    let job = &world.jobs.all[world.jobs.nodes[node as usize].job as usize];
    let must = world.jobs.runs_ranks(job, host);
    world.jobs.checks_at(node).blame(Culprit::Agent(host), must);
    world.jobs.checks_at(node).output.expect_losses();
    for id in world.jobs.nodes[node as usize].ranks.clone() {
        // Agents may notice that a rank's socket closes before they notice the loss of the keeper, and blame the rank.
        world.jobs.blame_rank(id, false);
    }
    world.jobs.kill_keeper(&mut world.cx, node);
}

/// The launcher of a single run dies, and with it the root agent in the same process: no user is left to report to.
fn kill_launcher(world: &mut World) {
    world.launchers.on_gone(&mut world.cx, &mut world.jobs, 0, LauncherState::Killed);
    world.jobs.expect_losses(&world.cx);
    world.kill_agent(0);
}

/// The user sends a signal.
fn interrupt(world: &mut World, launcher: u32, signal: u8) {
    let Some(job) = world.launchers.all[launcher as usize].job else { return };
    world.jobs.all[job as usize].checks.interrupted = true;
    world.jobs.all[job as usize].checks.blame(Culprit::Launcher, false);
    for id in world.jobs.all[job as usize].procs() {
        world.jobs.blame_rank(id, false);
    }
    world.launchers.tell(
        &mut world.cx,
        &mut world.net,
        &mut world.jobs,
        launcher,
        LauncherInput::Signal { signal: i32::from(signal), sender: None },
    );
}

fn lose_power(world: &mut World, host: u32, off_ns: u64) {
    let until = until(world, off_ns);
    world.agents.hosts[host as usize].off_until = until;
    world.membership.strike(&mut world.cx, &mut world.jobs, host, until);
    world.jobs.blame_agents(&[host]);
    world.agents.running_at(host).into_iter().for_each(|agent| world.vanish(agent));
}

fn until(world: &World, for_ns: u64) -> Instant {
    Instant(world.cx.clock.now().0.saturating_add(for_ns))
}

fn build_wall(world: &mut World, from: u32, to: u32, for_ns: u64) {
    let until = until(world, for_ns);
    world.agents.walls.push(Wall { from, to, until });
    for host in [from, to] {
        world.membership.strike(&mut world.cx, &mut world.jobs, host, Instant(until.0.saturating_add(WALL_SHOWS_NS)));
    }
}

fn stop_agent(world: &mut World, host: u32, for_ns: u64) {
    let Some(agent) = world.agents.newest_at(host).filter(|_| host != 0) else { return };
    let until = until(world, for_ns);
    world.membership.strike(&mut world.cx, &mut world.jobs, host, until);
    // The children of the stopped agent give up their links to that agent; when the agent continues, it takes the
    // children for lost. In a session that does not probe, the children notice only then, and the whole subtree may be
    // lost with them.
    let mut below = vec![agent];
    let mut next = 0;
    while let Some(&above) = below.get(next) {
        for other in 0..world.agents.all.len() as u32 {
            let up = world.agents[other].up.filter(|_| world.agents[other].is_running());
            if up.is_some_and(|up| world.net.upper_end(up) == Some(above)) && !below.contains(&other) {
                below.push(other);
            }
        }
        next += 1;
    }
    for other in below.into_iter().skip(1) {
        let host = world.agents[other].host;
        world.membership.strike(&mut world.cx, &mut world.jobs, host, Instant(until.0.saturating_add(WALL_SHOWS_NS)));
    }
    world.agents[agent].stop();
    if until < Instant(u64::MAX) {
        world.cx.clock.after(for_ns, Event::AgentContinues(agent));
    }
}

/// All agents of a subtree may be blamed for a fault at its top; the job must fail if ranks run in it.
fn blame_subtree(world: &mut World, top: u32) {
    world.jobs.blame_agents(&world.agents.subtree(top));
}
