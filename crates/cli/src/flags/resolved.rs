//! The meaning of a command line: one job and the session that runs it.

use super::chosen::{self, Chosen};
use super::error::FlagError;
use super::layout::{self, Layout};
use super::mapping::MapBy;
use super::parsed::{EnvList, Parsed, Stage, Start};
use super::placement::{self, Places};
use super::remote_shell::Reach;
use super::session_nodes::SessionNodes;
use super::{binding, programs, session, streams};
use crate::environment::Reached;
use crate::hosts::allocation::Env;
use crate::hosts::{HostTable, Hosts, Names};
use crate::program::flavour::Context;
use crate::surroundings::Surroundings;
use crate::{env_file, environment};
use std::path::PathBuf;
use wireup_coll::mapping::Mapping;
use wireup_node::launcher::Output;
use wireup_os::bind::Machine;
use wireup_proto::{Growth, Place};
use wireup_stage::gather::Rule;
use wireup_wire::ids::{JobId, NodeId};
use wireup_wire::job::{Block, JobOptions, JobSpec, NodeSpec, PmiFlavour, PortRange, RankStdout};
use wireup_wire::peer::SessionSpec;
use wireup_wire::session::SeatOrder;

const SECOND_NS: u64 = 1_000_000_000;
/// Chosen: long enough to write a last line and remove a file, short enough to wait for.
const KILL_GRACE_NS: u64 = 2 * SECOND_NS;
/// Default of `--stall-report`. Chosen: no healthy fence takes that long.
const STALL_REPORT_NS: u64 = 30 * SECOND_NS;

/// A resolved command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolved {
    pub job: JobSpec,
    pub session: SessionSpec,
    /// The session is a standing one, which outlives the job.
    pub in_session: bool,
    pub timeout_ns: Option<u64>,
    pub output: Output,
    pub profile: Option<PathBuf>,
    pub verbose: bool,
    /// Ranks may share processors without a warning.
    pub may_overload: bool,
    pub stage: Option<Stage>,
    pub stage_out: Vec<Rule>,
    pub dry_run: bool,
    pub display_map: bool,
    /// The cpus of this machine that ranks may use.
    pub machine: Machine,
    /// A keeper on this machine was found to have a PID namespace.
    pub isolates: bool,
    /// Whether the user chose the fan-out.
    pub fanout_given: bool,
    pub map_by: MapBy,
    /// Slots of each node, if any were stated for hosts.
    pub slots: Vec<u32>,
    /// The nodes on which ranks of further jobs may run; see [`Resolved::named_places`].
    pub places: Vec<Place>,
    /// How the session has chosen the nodes, unless the user has said which.
    pub seats: Option<SeatOrder>,
    pub start: Start,
    /// Where the hosts were named; empty if nowhere.
    pub hosts_from: String,
    /// The reason for the PMI that the ranks are offered.
    pub pmi_why: String,
    /// The machine of the launcher.
    pub this_machine: Names,
    /// One-line warnings that do not stop the run.
    pub warnings: Vec<String>,
}

impl Resolved {
    /// The nodes on which ranks of further jobs may run, with all names of theirs that are known here.
    pub fn named_places(&self) -> Vec<Place> {
        let same_machine = self.session.remote_shell.starter().same_machine;
        let table = if same_machine { HostTable::default() } else { HostTable::of_system() };
        let other_names = |name: &str| match same_machine || self.this_machine.is_local(name) {
            true => self.this_machine.all().chain(table.names(name)).collect(),
            false => table.names(name).collect(),
        };
        let named = |place: &Place| Place { other_names: other_names(&place.node.name), ..place.clone() };
        self.places.iter().map(named).collect()
    }

    /// Whether ranks can ask for processes on further hosts.
    pub fn growth(&self) -> Growth {
        let starter = self.session.remote_shell.starter();
        if starter.same_machine && self.in_session {
            Growth::Fixed(
                "whose session is on this machine only; start the session with hosts (wireup up --hosts), or run with --no-session",
            )
        } else if starter.same_machine {
            Growth::Fixed("which runs on this machine only; start it with --hosts (this machine may be one of them)")
        } else if starter.by_step() {
            Growth::Fixed(
                "whose agents the batch system starts; ask for more nodes, or start them with --remote-shell=ssh",
            )
        } else {
            Growth::Free
        }
    }

    /// How many ranks could run at once, if that was stated.
    fn stated_slots(&self) -> Option<u32> {
        let slots = self.places.iter().map(|place| place.slots.map(u64::from)).sum::<Option<u64>>()?;
        u32::try_from(slots).ok()
    }
}

/// Applies defaults and reports contradictions.
pub fn resolve(parsed: Parsed, surroundings: Surroundings) -> Result<Resolved, FlagError> {
    resolve_on(None, parsed, surroundings)
}

/// The same for a job of a standing session.
pub fn resolve_in(
    session_nodes: SessionNodes,
    parsed: Parsed,
    surroundings: Surroundings,
) -> Result<Resolved, FlagError> {
    resolve_on(Some(session_nodes), parsed, surroundings)
}

fn resolve_on(
    mut session_nodes: Option<SessionNodes>,
    parsed: Parsed,
    surroundings: Surroundings,
) -> Result<Resolved, FlagError> {
    let binding = binding::binding(&parsed)?;
    let typed_map = parsed.map_by;
    let parsed = Parsed { map_by: binding::counted(&parsed, &surroundings.machine)?, ..parsed };
    if parsed.no_local && session_nodes.is_none() && !chosen::may_name_hosts(&parsed, Env(&surroundings.env)) {
        return Err(FlagError::OnlyLocal);
    }
    let (hosts, origin, step, slots_of) = match &session_nodes {
        Some(session_nodes) => (session_nodes.hosts.clone(), String::new(), None, None),
        None => match chosen::chosen(&parsed, &surroundings)? {
            Some(Chosen { hosts, origin, step, slots_of }) => (Some(hosts), origin, step, slots_of),
            None => (None, String::new(), None, None),
        },
    };
    let start = session::start(&parsed, hosts.is_some())?;
    let Seating { layout, ranks, blocks, mapping } =
        place_ranks(&parsed, &surroundings, start, hosts.as_ref(), session_nodes.as_ref())
            .map_err(|error| error.with_slots_of(slots_of).with_map(typed_map))?;
    let nspace = format!("wireup-{}-{:032x}", surroundings.pid, surroundings.secret);
    let in_session = session_nodes.is_some();
    let seats = session_nodes.as_ref().and_then(|session_nodes| session_nodes.seats);
    let stated = |hosts: Option<&Hosts>| -> Vec<u32> {
        let hosts = hosts.filter(|hosts| hosts.stated && start != Start::Serial);
        hosts.map_or_else(Vec::new, |hosts| hosts.list.iter().map(|host| host.slots).collect())
    };
    let places = match session_nodes.as_mut().and_then(|session_nodes| session_nodes.all.take()) {
        Some((nodes, hosts)) => places(&nodes, &stated(hosts.as_ref()), parsed.slots),
        None => places(&layout.nodes, &stated(hosts.as_ref()), parsed.slots),
    };
    let (job_id, session) = match session_nodes {
        Some(session_nodes) => (session_nodes.job, SessionSpec { verbose: parsed.verbose, ..session_nodes.session }),
        None => {
            let reach = Reach::of(hosts.is_some(), step, start);
            let name = format!("wireup-{}-{:08x}", surroundings.pid, surroundings.tag);
            (JobId(0), session::of_job(&parsed, &surroundings, reach, &layout, name)?)
        }
    };
    let local = layout.is_alone() || session.remote_shell.starter().same_machine;
    if let Some(PortRange { low, high }) = parsed.rank_ports.map(|ports| ports.range) {
        let nodes = 0..layout.nodes.len() as u32;
        let fullest = nodes.map(|node| mapping.local_size(NodeId(node))).max().unwrap_or(0);
        // Virtual nodes share their machine's ports.
        let ranks = if layout.nodes.iter().any(|node| node.shared) && local { mapping.job_size() } else { fullest };
        let ports = u32::from(high - low) + 1;
        if ranks > ports {
            return Err(FlagError::TooFewPorts { low, high, ports, ranks });
        }
    }
    let stdin = streams::stdin_target(parsed.stdin, mapping.job_size())?;
    let pty = streams::pty_spec(parsed.pty, mapping.job_size(), surroundings.terminal)?;
    let options = options(&parsed, &surroundings);
    let output = streams::output(&parsed)?;
    let lists: Vec<Option<EnvList>> = parsed.sections.iter().map(|section| section.env_list.clone()).collect();
    let (mut apps, warnings) = programs::apps(parsed.sections, &ranks, &surroundings, local)?;
    let mut env = Vec::new();
    for file in &parsed.env_files {
        env.extend(env_file::read_file(file)?);
    }
    env.extend(parsed.genv);
    let reached = match (local, session.remote_shell.starter().by_step()) {
        (true, _) => Reached::ThisMachine,
        (false, true) => Reached::ByStep,
        (false, false) => Reached::Elsewhere,
    };
    let inherited = environment::inherited(&surroundings.env, reached);
    let job_list = parsed.genv_list.unwrap_or(EnvList::All);
    let env = match lists.iter().all(Option::is_none) {
        true => environment::job_env(&inherited, &job_list, &env),
        false => {
            let env = environment::job_env(&inherited, &EnvList::None, &env);
            for (app, list) in apps.iter_mut().zip(&lists) {
                let own = std::mem::take(&mut app.env);
                app.env = environment::program_env(&inherited, list.as_ref().unwrap_or(&job_list), &env, own);
            }
            env
        }
    };
    let library =
        parsed.pmix_library.as_deref().map(|path| programs::pmix_library(path, &surroundings, local)).transpose()?;
    let context = Context { env: &env, own: &surroundings.program, local, library: library.as_deref() };
    let pmi = programs::pmi(parsed.pmi, &apps, &context)?;
    let inherits =
        !in_session && streams::may_inherit_stdin(stdin, pty, &layout, &mapping, surroundings.stdin_is_terminal);
    let (universe_size, memory_alloc_kinds) = (parsed.usize, parsed.memory_alloc_kinds);
    let mut resolved = Resolved {
        session,
        job: JobSpec {
            job: job_id,
            nspace,
            nodes: layout.nodes,
            blocks,
            apps,
            env: environment::for_pmi(env, pmi.flavour, surroundings.tag, pmi.prefix.as_deref()),
            endpoints: Vec::new(),
            spawned: None,
            options: JobOptions {
                pmi: pmi.flavour,
                pmix_library: library.or(pmi.library),
                stdin,
                stdin_inherit: inherits,
                pty,
                stdout: parsed.stdout.unwrap_or(match pmi.flavour {
                    PmiFlavour::Pmix => RankStdout::Pty,
                    PmiFlavour::Simple | PmiFlavour::Both | PmiFlavour::None => RankStdout::Pipe,
                }),
                binding,
                ..options
            },
        },
        in_session,
        timeout_ns: parsed.timeout_ns,
        output,
        profile: parsed.profile,
        verbose: parsed.verbose,
        may_overload: parsed.bind.overload,
        dry_run: parsed.dry_run,
        stage: parsed.stage,
        stage_out: parsed.stage_out,
        display_map: parsed.display_map,
        machine: surroundings.machine.clone(),
        isolates: false,
        fanout_given: parsed.fanout.is_some(),
        map_by: parsed.map_by.unwrap_or(MapBy::Slot),
        slots: stated(hosts.as_ref()),
        places,
        seats,
        start,
        hosts_from: origin,
        pmi_why: pmi.why,
        this_machine: Names::new(&surroundings.host, surroundings.addresses, &[]),
        warnings,
    };
    resolved.job.options.universe_size = universe_size.or(resolved.stated_slots());
    resolved.job.options.memory_alloc_kinds = memory_alloc_kinds;
    Ok(resolved)
}

/// Nodes with their slots: those of each node, or else of every node, if stated.
fn places(nodes: &[NodeSpec], slots: &[u32], each: Option<u32>) -> Vec<Place> {
    let slots = |index: usize| slots.get(index).copied().or(each);
    nodes
        .iter()
        .enumerate()
        .map(|(index, node)| Place { node: node.clone(), slots: slots(index), other_names: Vec::new() })
        .collect()
}

/// Which ranks run where.
pub(super) struct Seating {
    layout: Layout,
    /// The number of ranks of each program.
    ranks: Vec<u32>,
    blocks: Vec<Block>,
    pub mapping: Mapping,
}

pub(super) fn place_ranks(
    parsed: &Parsed,
    surroundings: &Surroundings,
    start: Start,
    hosts: Option<&Hosts>,
    session_nodes: Option<&SessionNodes>,
) -> Result<Seating, FlagError> {
    let nodes_here =
        session_nodes.map_or(parsed.virtual_nodes.unwrap_or(1), |session_nodes| session_nodes.nodes.len() as u32);
    let places = match hosts {
        Some(hosts) => Places::Hosts(hosts),
        None => Places::ThisMachine { nodes: nodes_here, cpus: surroundings.machine.cpus() as u32 },
    };
    let ranks = placement::ranks_per_app(parsed, places)?;
    let job_size: u32 = ranks.iter().sum();
    let mut blocks = placement::blocks(parsed, &ranks, places)?;
    let placed = |blocks: &[Block], nodes| Mapping::new(blocks, job_size, nodes).map_err(FlagError::Placement);
    let mut mapping = placed(&blocks, places.nodes())?;
    let layout = match (hosts, session_nodes) {
        (_, Some(session_nodes)) => {
            Layout { agents: session_nodes.session.agents.clone(), nodes: session_nodes.nodes.clone() }
        }
        (Some(hosts), None) if start == Start::Serial => {
            let layout = Layout::of_ranks(hosts, &mapping, &surroundings.host);
            blocks = layout::rank_blocks(job_size);
            mapping = placed(&blocks, job_size)?;
            layout
        }
        (Some(hosts), None) => Layout::of_hosts(hosts, &surroundings.host),
        (None, None) => Layout::surroundings(parsed.virtual_nodes, &surroundings.host),
    };
    Ok(Seating { layout, ranks, blocks, mapping })
}

/// Options that follow from the flags alone.
fn options(parsed: &Parsed, surroundings: &Surroundings) -> JobOptions {
    JobOptions {
        label: parsed.label || parsed.label_pattern.is_some(),
        line_buffered: parsed.line_buffered,
        split_output: parsed.output_dir.is_some() || parsed.output_files.is_some() || parsed.error_files.is_some(),
        report_bindings: parsed.report_bindings,
        rank_env: parsed.rank_env,
        launcher_env: parsed.launcher_env,
        profile: parsed.profile.is_some(),
        umask: surroundings.umask,
        limits: surroundings.limits.clone(),
        kill_grace_ns: parsed.kill_grace_ns.unwrap_or(KILL_GRACE_NS),
        stall_report_ns: parsed.stall_report_ns.unwrap_or(STALL_REPORT_NS),
        exchange: parsed.exchange.unwrap_or_default(),
        early_wireup: parsed.early_wireup.unwrap_or_default(),
        exchange_compress: parsed.exchange_compress.unwrap_or_default(),
        pmi_fence: parsed.pmi_fence.unwrap_or_default(),
        pmi_version: parsed.pmi_version.unwrap_or_default(),
        modex: parsed.modex.unwrap_or_default(),
        rank_ports: parsed.rank_ports,
        gpus_per_rank: parsed.gpus_per_rank.unwrap_or(0),
        ..JobOptions::default()
    }
}

#[cfg(test)]
mod tests;
