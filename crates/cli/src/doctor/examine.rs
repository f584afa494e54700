//! Examines hosts: a session of its own shows which agents start, and why others do not; a job in it, with one rank on
//! each node, reports what each node is like.
//!
//! Every agent of the session has this machine as its parent, so each host is started, and connects back, on its own:
//! those that do not start hide nothing about the others.

use crate::flags::parsed::Parsed;
use crate::flags::session;
use crate::session::node_job::NodeJob;
use crate::session::own_session::OwnSession;
use crate::session::{attach_to, up};
use crate::surroundings::Surroundings;
use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};
use wireup_node::doctor::{DoctorReport, Facts, Question, wall_clock_ns};
use wireup_node::launcher::{Next, Program};
use wireup_proto::launcher_io::Notice;
use wireup_wire::ids::{AgentId, Rank};
use wireup_wire::job::{NodeSpec, StdinTarget};
use wireup_wire::peer::{Cause, Containment, Note, Problem, ProblemKind, SessionSpec};
use wireup_wire::session::Presence;
use wireup_wire::talk::{Control, FromLauncher, ToLauncher};

/// Time of the job in addition to that for the remote shells between hosts (ns): it starts and collects ranks, which
/// takes a second on a thousand nodes.
const COLLECT_NS: u64 = 5_000_000_000;
/// Most jobs that are tried: a rank that cannot be started ends its job, and the next job leaves out its node.
const JOBS_MAX: usize = 4;
/// Longest unfinished line of a rank.
const LINE_BYTES_MAX: usize = 256 << 10;
/// Bytes that are kept of a rank's standard error: enough for the few lines of one finding.
const ERRORS_BYTES_MAX: usize = 2 << 10;

pub struct Plan {
    /// Names for the remote shell. Each host that has an agent is also asked to reach the next one, and the last one
    /// the first.
    pub hosts: Vec<String>,
    /// The directory that ranks would work in.
    pub cwd: Vec<u8>,
    /// Time limit for the start of each host (ns).
    pub timeout_ns: u64,
    /// Whether the program is sent to hosts that lack it.
    pub sends: bool,
    /// Files that ranks need.
    pub files: Vec<Vec<u8>>,
}

/// What is known about a host.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Seen {
    pub host: String,
    /// Why the host has no agent, or no rank.
    pub problem: Option<Problem>,
    pub facts: Option<Facts>,
    /// The files that ranks need and that the host lacks.
    pub missing: Vec<String>,
    /// The beginning of what the host's rank has written to standard error.
    pub said: Vec<u8>,
    /// This machine's wall clock (ns): before the host read its own, and after.
    pub clock_ns: (u64, u64),
    /// How the host's agent has connected to this machine.
    pub back: Option<Back>,
    /// Whether the host reaches `neighbour` by the remote shell. `None`: it did not report that in time.
    pub onward: Option<Result<(), String>>,
    /// The host that this host was asked to reach.
    pub neighbour: Option<String>,
    pub sent: bool,
    /// The message of the host's sshd when it refused a login because of too many at once.
    pub retried: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Back {
    /// The address of this machine that the host's agent connected to.
    pub address: IpAddr,
    /// Time from the first attempt to connect until the link was up (ns).
    pub took_ns: u64,
    /// Addresses that the agent tried before in vain, each with its problem; empty: none.
    pub failed: String,
}

/// How an examination ended.
pub enum Examined {
    Seen(Vec<Seen>),
    /// The user has interrupted the examination; the exit code.
    Interrupted(u8),
}

/// Examines all hosts. Call it while the process has one thread.
///
/// # Errors
/// Why no host can be examined.
pub fn examine(parsed: &Parsed, surroundings: &Surroundings, plan: &Plan, process_ns: u64) -> Result<Examined, String> {
    let name = OwnSession::new_name("doctor", surroundings);
    let (spec, told) = session::standing(parsed, surroundings, &name)?;
    let agents = spec.agents.len() as u32;
    let spec = SessionSpec {
        fanout: agents,
        // Only `shells_max` remote shells run at once, so each round of them gets the time limit of a host.
        start_timeout_ns: plan.timeout_ns.saturating_mul(u64::from(agents.div_ceil(spec.shells_max.max(1)))),
        installed_only: !plan.sends,
        verbose: true,
        // Each rank examines the process of its node's agent, which it could not see from a PID namespace of its own.
        containment: Containment::None,
        ..spec
    };
    let mut seen: Vec<Seen> = plan.hosts.iter().map(|host| Seen { host: host.clone(), ..Seen::default() }).collect();
    let session = OwnSession::start(&spec, &told, process_ns)?;
    let mut attached = attach_to(&session.name)?;
    let nodes = up::await_nodes(&mut attached, &session.name, spec.start_timeout_ns, &mut |note| {
        on_note(&mut seen, note);
    })?;
    let mut up = Vec::new();
    for (index, seen) in seen.iter_mut().enumerate() {
        match nodes.get(agent_of(index).index()).map(|node| &node.presence) {
            Some(Presence::Up) => up.push(index),
            Some(Presence::Lost { problem }) => seen.problem = Some(problem.clone()),
            Some(Presence::Starting) | None => seen.problem = Some("it has not started in time".into()),
        }
    }
    let interrupted = ask_nodes(&spec, parsed.interface.as_deref(), plan, up, &mut seen)?;
    // Notes about the last agents arrive after the root's answer that all nodes are known, and before the reports of
    // their ranks. If they cannot be received, only the time to connect is not shown.
    let _ =
        attached.ask(&Control::FromLauncher(FromLauncher::AskNodes { revive: false }), None, |message| match message {
            Control::ToLauncher(ToLauncher::Nodes(_)) => Some(()),
            Control::Note(note) => {
                on_note(&mut seen, note);
                None
            }
            _ => None,
        });
    Ok(interrupted.map_or(Examined::Seen(seen), Examined::Interrupted))
}

/// The number of a host's agent: agent 0 runs on this machine, and the agents of the hosts follow in the order of the
/// hosts.
fn agent_of(host: usize) -> AgentId {
    AgentId(host as u32 + 1)
}

fn on_note(seen: &mut [Seen], note: Note) {
    let agent = match &note {
        Note::Dialled { agent, .. } | Note::Sent { agent, .. } | Note::Retry { agent, .. } => *agent,
        _ => return,
    };
    let Some(seen) = agent.index().checked_sub(1).and_then(|host| seen.get_mut(host)) else { return };
    match note {
        Note::Dialled { address, took_ns, failed, .. } => {
            // A report whose address cannot be parsed is ignored.
            let Ok(address) = address.parse::<SocketAddr>() else { return };
            seen.back = Some(Back { address: address.ip(), took_ns, failed });
        }
        Note::Sent { .. } => seen.sent = true,
        Note::Retry { problem, .. } => seen.retried = Some(problem),
        _ => {}
    }
}

/// Runs the job on these hosts, which have agents. Returns the exit code if the user has ended it.
fn ask_nodes(
    spec: &SessionSpec,
    interface: Option<&str>,
    plan: &Plan,
    mut hosts: Vec<usize>,
    seen: &mut [Seen],
) -> Result<Option<u8>, String> {
    // If one step of a batch system starts all agents, no agent starts another one by the remote shell: nothing to
    // test.
    let calls = !spec.remote_shell.start_method().by_step();
    for _ in 0..JOBS_MAX {
        hosts.retain(|host| seen[*host].facts.is_none() || (calls && seen[*host].onward.is_none()));
        if hosts.is_empty() {
            break;
        }
        if hosts.len() > 1 && calls {
            for (at, host) in hosts.iter().enumerate() {
                seen[*host].neighbour = Some(plan.hosts[hosts[(at + 1) % hosts.len()]].clone());
            }
        }
        let question = Question {
            interface: interface.map(str::to_owned),
            cwd: plan.cwd.clone(),
            files: plan.files.clone(),
            program: spec.program.clone(),
            remote_shell: spec.remote_shell.clone(),
            neighbours: hosts.iter().filter_map(|host| seen[*host].neighbour.clone()).collect(),
            // Half of the time limit, so that a report of failure still arrives.
            probe_ns: plan.timeout_ns / 2,
        };
        let nodes: Vec<NodeSpec> = hosts
            .iter()
            .map(|host| NodeSpec { agent: agent_of(*host), name: plan.hosts[*host].clone(), shared: false })
            .collect();
        let job = NodeJob {
            session: spec,
            nodes: &nodes,
            argv: &[b"doctor-rank"],
            stdin: StdinTarget::All,
            timeout_ns: Some(plan.timeout_ns.saturating_add(COLLECT_NS)),
        };
        let question = serde_json::to_vec(&question).map_err(|error| error.to_string())?;
        let mut asking = Asking {
            question: question.into(),
            hosts: &hosts,
            begun_ns: wall_clock_ns(),
            lines: vec![Vec::new(); hosts.len()],
            seen,
        };
        let mut failure = None;
        let outcome = job.run(&mut asking, &mut |voice, notice| {
            // Other failures, such as an expired time limit, are not the fault of the node that the notice names.
            if let Notice::Failed(failed) = notice
                && is_of_a_node(&failed.cause)
            {
                failure = Some((failed.node, voice.say(notice)));
            }
            String::new()
        })?;
        if outcome.interrupted {
            return Ok(Some(outcome.code));
        }
        let failed = failure.and_then(|(node, words)| Some((hosts.get(node.index()).copied()?, words)));
        let Some((host, words)) = failed.filter(|(host, _)| seen[*host].facts.is_none()) else { break };
        forget_calls_of(&plan.hosts[host], seen);
        let words = words.trim_end();
        seen[host].problem = Some(ProblemKind::Advised.with(words.strip_prefix("wireup: ").unwrap_or(words)));
        hosts.retain(|other| *other != host);
    }
    Ok(None)
}

/// Forgets tests of remote shells between hosts whose results do not count, because the failure of the host `failed`
/// has ended the job: unfinished tests, and tests in which `failed` was not reached. The next job repeats them.
fn forget_calls_of(failed: &str, seen: &mut [Seen]) {
    for seen in seen {
        let is_of_failed = seen.neighbour.as_deref() == Some(failed) && seen.onward != Some(Ok(()));
        if is_of_failed || seen.onward.is_none() {
            (seen.neighbour, seen.onward) = (None, None);
        }
    }
}

/// Whether a cause is a fault of the node that the failure names.
fn is_of_a_node(cause: &Cause) -> bool {
    matches!(
        cause,
        Cause::Spawn(_)
            | Cause::Exited(_)
            | Cause::Signalled { .. }
            | Cause::AgentLost { .. }
            | Cause::KeeperLost { .. }
            | Cause::OutOfMemory
    )
}

/// The doctor's end of the job: sends the question, and collects the reports of the ranks.
struct Asking<'a> {
    /// The part of the question that has not been sent yet.
    question: Bytes,
    /// The host of each rank.
    hosts: &'a [usize],
    begun_ns: u64,
    /// The unfinished line of each rank.
    lines: Vec<Vec<u8>>,
    seen: &'a mut [Seen],
}

impl Program for Asking<'_> {
    fn input(&mut self, bytes_max: usize) -> Next {
        match self.question.len().min(bytes_max) {
            0 => Next::End,
            length => Next::Bytes(self.question.split_to(length)),
        }
    }

    fn output(&mut self, rank: Rank, bytes: &[u8]) {
        let Some((host, text)) = self.hosts.get(rank.index()).zip(self.lines.get_mut(rank.index())) else { return };
        let seen = &mut self.seen[*host];
        text.extend_from_slice(bytes);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            match serde_json::from_slice(&text.drain(..=end).collect::<Vec<u8>>()) {
                Ok(DoctorReport::Facts(facts)) => {
                    seen.clock_ns = (self.begun_ns, wall_clock_ns());
                    seen.facts = Some(*facts);
                    seen.missing.clear();
                }
                Ok(DoctorReport::Missing(files)) => seen.missing.extend(files),
                Ok(DoctorReport::Neighbour(result)) => seen.onward = Some(result),
                // A line that is no report of the doctor's rank, such as a login message.
                Err(_) => {}
            }
        }
        if text.len() > LINE_BYTES_MAX {
            text.clear();
        }
    }

    fn errors(&mut self, rank: Rank, bytes: &[u8]) -> bool {
        if let Some(host) = self.hosts.get(rank.index()) {
            let said = &mut self.seen[*host].said;
            said.extend_from_slice(&bytes[..bytes.len().min(ERRORS_BYTES_MAX.saturating_sub(said.len()))]);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_host_leaves_nothing_against_its_neighbours() {
        let host = |neighbour: &str, onward| Seen { neighbour: Some(neighbour.into()), onward, ..Seen::default() };
        let refused = Some(Err("refused".to_owned()));
        let mut seen =
            [host("bad", refused.clone()), host("c", refused.clone()), host("d", None), host("bad", Some(Ok(())))];
        forget_calls_of("bad", &mut seen);
        let left = seen.map(|seen| (seen.neighbour, seen.onward));
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(left, [(None, None), (named("c"), refused), (None, None), (named("bad"), Some(Ok(())))]);
    }
}
