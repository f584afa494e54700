//! The meaning of a command line: one job and the session that runs it.

use super::chosen::{self, Chosen};
use super::mapping::{MapBy, RankBy, name_of};
use super::parsed::{Parsed, Start};
use super::placement::{self, Places};
use super::programs;
use super::remote_shell::Reach;
use super::session::{self, Layout};
use super::session_nodes::SessionNodes;
use crate::environment::{self, Reached};
use crate::hosts::allocation::Env;
use crate::hosts::{Host, HostTable, Hosts, Names};
use crate::program::flavour::Context;
use crate::surroundings::Surroundings;
use wireup_coll::mapping::Mapping;
use wireup_os::bind::Machine;
use wireup_proto::{Growth, SpawnNode};
use wireup_wire::ids::{AgentId, JobId, NodeId, Rank};
use wireup_wire::job::{
    BindTo, Binding, Block, JobOptions, JobSpec, NodeSpec, Object, Over, PmiFlavour, PmiOptions, PortRange, Preload,
    ProcessOptions, PtySpec, RankStdout, StdinTarget, StdioOptions,
};
use wireup_wire::peer::SessionSpec;
use wireup_wire::session::{SeatOrder, SeatRequest};

/// Time that imports for `--preload` may take without `--start-timeout` (ns). Chosen: from a cold file server large
/// packages take more than a minute, and ranks that import them by themselves take longer.
const IMPORT_TIMEOUT_NS: u64 = 300_000_000_000;

/// Rows and columns of a pseudo-terminal if the launcher itself has no terminal.
const TERMINAL_SIZE: (u16, u16) = (24, 80);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// The parsed command line, for flags that need no resolving.
    pub flags: Parsed,
    pub job: JobSpec,
    /// The node of each rank of the job.
    pub mapping: Mapping,
    pub session: SessionSpec,
    /// Where the agents run.
    pub reached: Reached,
    /// Whether the session is a standing one, which outlives the job.
    pub in_session: bool,
    /// The cpus of this machine that ranks may use.
    pub machine: Machine,
    /// Whether a keeper on this machine was found to get a PID namespace.
    pub isolates: bool,
    /// The slots of each node; empty if none were stated for the hosts.
    pub slots: Vec<u32>,
    /// The nodes on which ranks of further jobs may run; see [`Resolved::named_places`].
    pub places: Vec<SpawnNode>,
    /// How the session has chosen the nodes, unless the user has said which.
    pub seats: Option<SeatOrder>,
    /// Where the hosts were named; empty if nowhere.
    pub hosts_from: String,
    pub pmi_why: String,
    pub this_machine: Names,
    /// One-line warnings that do not stop the run.
    pub warnings: Vec<String>,
}

impl Resolved {
    /// The nodes on which ranks of further jobs may run, with all names of theirs that are known here.
    pub fn named_places(&self) -> Vec<SpawnNode> {
        let same_machine = self.session.remote_shell.start_method().same_machine;
        let table = if same_machine { HostTable::default() } else { HostTable::of_system() };
        let other_names = |name: &str| match same_machine || self.this_machine.is_local(name) {
            true => self.this_machine.all().chain(table.names(name)).collect(),
            false => table.names(name).collect(),
        };
        let named = |place: &SpawnNode| SpawnNode { other_names: other_names(&place.node.name), ..place.clone() };
        self.places.iter().map(named).collect()
    }

    /// Whether ranks can ask for processes on further hosts.
    pub fn growth(&self) -> Growth {
        let starter = self.session.remote_shell.start_method();
        if starter.same_machine && self.in_session {
            Growth::Fixed(
                "whose session is on this machine only; start the session with hosts (wireup up --hosts), or run with \
                 --no-session",
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
}

/// Applies defaults and reports contradictions, for a job with agents of its own.
pub fn resolve(parsed: Parsed, surroundings: Surroundings) -> Result<Resolved, String> {
    resolve_in(None, parsed, surroundings)
}

/// The modules that are imported once for the ranks of each node. `of_session`: the modules of `wireup up --preload`,
/// which are used if the job has no `--preload`.
fn preloading(flags: &Parsed, of_session: &[String]) -> Result<Option<Preload>, String> {
    let modules = flags.preload.as_deref().unwrap_or(of_session);
    if modules.is_empty() || modules == ["none"] {
        return match flags.preload_required {
            true => Err("--preload-required needs --preload MODULES, which names what is imported".into()),
            false => Ok(None),
        };
    }
    Ok(Some(Preload {
        modules: if modules == ["auto"] { Vec::new() } else { modules.to_vec() },
        limit_ns: flags.start_timeout_ns.unwrap_or(IMPORT_TIMEOUT_NS),
        required: flags.preload_required,
        asked: flags.preload.is_some(),
        keep: modules == of_session,
    }))
}

/// Applies defaults and reports contradictions; with `session_nodes`, for a job that runs in a standing session.
pub fn resolve_in(
    mut session_nodes: Option<SessionNodes>,
    mut flags: Parsed,
    surroundings: Surroundings,
) -> Result<Resolved, String> {
    let binding = binding(&flags)?;
    flags.map.typed = flags.map.by;
    flags.map.by = counted(&flags, &surroundings.machine)?;
    if flags.excludes_local() && session_nodes.is_none() && !chosen::may_name_hosts(&flags, Env(&surroundings.env)) {
        return Err(chosen::ONLY_LOCAL.to_owned());
    }
    let (hosts, hosts_from, step) = match &session_nodes {
        Some(session_nodes) => (session_nodes.hosts.clone(), String::new(), None),
        None => match chosen::chosen(&flags, &surroundings)? {
            Some(Chosen { hosts, origin, step }) => (Some(hosts), origin, step),
            None => (None, String::new(), None),
        },
    };
    let start = session::start(&flags, hosts.is_some())?;
    let Seating { layout, ranks, blocks, mapping } =
        place_ranks(&flags, &surroundings, start, hosts.as_ref(), session_nodes.as_ref())?;
    let stated = |hosts: Option<&Hosts>| -> Vec<u32> {
        let hosts = hosts.filter(|hosts| hosts.stated && start != Start::Serial);
        hosts.map_or_else(Vec::new, |hosts| hosts.list.iter().map(|host| host.slots).collect())
    };
    let places = match session_nodes.as_mut().and_then(|session_nodes| session_nodes.all.take()) {
        Some((nodes, hosts)) => places(&nodes, &stated(hosts.as_ref()), flags.slots),
        None => places(&layout.nodes, &stated(hosts.as_ref()), flags.slots),
    };
    let in_session = session_nodes.is_some();
    let of_session = session_nodes.as_mut().map_or_else(Vec::new, |nodes| std::mem::take(&mut nodes.preload));
    let seats = session_nodes.as_ref().and_then(|session_nodes| session_nodes.seats);
    let (job_id, session) = match session_nodes {
        Some(session_nodes) => (session_nodes.job, SessionSpec { verbose: flags.verbose, ..session_nodes.session }),
        None => {
            let reach = Reach::choose(hosts.is_some(), step, start);
            let name = format!("wireup-{}-{:08x}", surroundings.pid, surroundings.tag);
            (JobId(0), session::of_job(&flags, &surroundings, reach, &layout, name)?)
        }
    };
    let starter = session.remote_shell.start_method();
    let reached = match starter.by_step() {
        _ if layout.agents.len() == 1 || starter.same_machine => Reached::ThisMachine,
        true => Reached::ByStep,
        false => Reached::Elsewhere,
    };
    let local = reached == Reached::ThisMachine;
    check_ports(&flags, &layout, &mapping, local)?;
    if flags.output.directory.is_some() && flags.output.files.iter().any(Option::is_some) {
        return Err("--output-dir contradicts --output-files and --error-files; leave one of them out".into());
    }
    let (stdin, pty) = stdin_and_pty(&flags, mapping.job_size(), surroundings.terminal)?;
    let (mut apps, warnings) = programs::apps(&flags.programs, &ranks, &surroundings, local)?;
    let env = programs::environment(&flags, &mut apps, &environment::inherited(&surroundings.env, reached))?;
    let library = flags.pmix_library.as_deref();
    let library = library.map(|path| programs::pmix_library(path, &surroundings, local)).transpose()?;
    let context = Context { env: &env, own: &surroundings.program, local, library: library.as_deref() };
    let pmi = programs::pmi(flags.pmi, &apps, &context)?;
    let (rank_ports, rendezvous_range) = (flags.rank_ports(), flags.ports());
    let typed = std::mem::take(&mut flags.options);
    let preload = preloading(&flags, &of_session)?;
    let options = JobOptions {
        pmi: PmiOptions {
            flavour: pmi.flavour,
            pmix_library: library.or(pmi.library),
            universe_size: typed.pmi.universe_size.or_else(|| stated_slots(&places)),
            ..typed.pmi
        },
        stdio: StdioOptions {
            stdin,
            stdin_inherit: !in_session
                && may_inherit_stdin(stdin, pty, &layout, &mapping, surroundings.stdin_is_terminal),
            pty,
            stdout: flags.stdout.unwrap_or(match pmi.flavour {
                PmiFlavour::Pmix => RankStdout::Pty,
                PmiFlavour::Simple | PmiFlavour::Both | PmiFlavour::None => RankStdout::Pipe,
            }),
            label: typed.stdio.label || flags.output.label.is_some(),
            // The output of each rank of a detached job is kept separately.
            split_output: flags.detach
                || flags.output.directory.is_some()
                || flags.output.files.iter().any(Option::is_some),
            ..typed.stdio
        },
        process: ProcessOptions {
            umask: surroundings.umask,
            limits: surroundings.limits,
            rank_ports,
            rendezvous_range,
            preload,
            ..typed.process
        },
        binding,
        // `--json` and `--report` need the profile too: it contains how each rank ended.
        profile: flags.profile.is_some() || flags.report.is_some() || flags.json.is_some(),
        ..typed
    };
    Ok(Resolved {
        session,
        job: JobSpec {
            job: job_id,
            nspace: format!("wireup-{}-{:032x}", surroundings.pid, surroundings.secret),
            nodes: layout.nodes,
            blocks,
            apps,
            env: environment::for_pmi(env, pmi.flavour, surroundings.tag, pmi.prefix.as_deref()),
            endpoints: Vec::new(),
            spawned: None,
            options,
        },
        reached,
        in_session,
        machine: surroundings.machine,
        isolates: false,
        slots: stated(hosts.as_ref()),
        places,
        mapping,
        seats,
        hosts_from,
        pmi_why: pmi.why,
        this_machine: Names::new(&surroundings.host, surroundings.addresses, &[]),
        warnings,
        flags,
    })
}

/// The rank or ranks that read standard input, and the one with a terminal.
fn stdin_and_pty(
    flags: &Parsed,
    job_size: u32,
    size: Option<(u16, u16)>,
) -> Result<(StdinTarget, Option<PtySpec>), String> {
    let stdin = flags.stdin.unwrap_or(StdinTarget::One(Rank(0)));
    if let StdinTarget::One(Rank(rank)) = stdin {
        check_rank("--stdin", rank, job_size)?;
    }
    let (rows, columns) = size.unwrap_or(TERMINAL_SIZE);
    let pty = flags.pty.map(|rank| check_rank("--pty", rank, job_size)).transpose()?;
    Ok((stdin, pty.map(|rank| PtySpec { rank, rows, columns })))
}

fn check_rank(flag: &str, rank: u32, job_size: u32) -> Result<Rank, String> {
    match rank < job_size {
        true => Ok(Rank(rank)),
        false => Err(format!("{flag} {rank}: the job has ranks 0 to {}; name one of them", job_size - 1)),
    }
}

/// Whether the rank that reads standard input gets the launcher's own descriptor. This is cheapest, and nothing is read
/// before the rank asks for it. It is not possible for a terminal, since ranks run in a session of their own and cannot
/// read it, nor for a rank on another node or one with a pseudo-terminal.
fn may_inherit_stdin(
    stdin: StdinTarget,
    pty: Option<PtySpec>,
    layout: &Layout,
    mapping: &Mapping,
    is_terminal: bool,
) -> bool {
    match stdin {
        StdinTarget::None | StdinTarget::All | StdinTarget::AllByMemory => false,
        StdinTarget::One(rank) => {
            let is_here = mapping.place(rank).is_some_and(|(node, _)| layout.nodes[node.index()].agent == AgentId(0));
            is_here && !is_terminal && pty.is_none_or(|pty| pty.rank != rank)
        }
    }
}

/// Refuses a range of ports that is too small for the ranks on a machine.
fn check_ports(flags: &Parsed, layout: &Layout, mapping: &Mapping, local: bool) -> Result<(), String> {
    let Some(PortRange { low, high }) = flags.rank_ports().map(|ports| ports.range) else { return Ok(()) };
    let nodes = 0..layout.nodes.len() as u32;
    let fullest = nodes.map(|node| mapping.local_size(NodeId(node))).max().unwrap_or(0);
    // Virtual nodes share their machine's ports.
    let ranks = if layout.nodes.iter().any(|node| node.shared) && local { mapping.job_size() } else { fullest };
    let ports = u32::from(high - low) + 1;
    match ranks > ports {
        true => Err(format!(
            "--rank-ports {low}-{high}: {ports} ports are too few for the {ranks} ranks on a machine; name at least \
             {ranks}, or start fewer ranks there"
        )),
        false => Ok(()),
    }
}

/// How many ranks could run at once, if that was stated.
fn stated_slots(places: &[SpawnNode]) -> Option<u32> {
    let slots = places.iter().map(|place| place.slots.map(u64::from)).sum::<Option<u64>>()?;
    u32::try_from(slots).ok()
}

/// Nodes with their numbers of slots: `slots` has the number of each node; for nodes that are not in it, `each` has the
/// number, if there is one.
fn places(nodes: &[NodeSpec], slots: &[u32], each: Option<u32>) -> Vec<SpawnNode> {
    let slots = |index: usize| slots.get(index).copied().or(each);
    nodes
        .iter()
        .enumerate()
        .map(|(index, node)| SpawnNode { node: node.clone(), slots: slots(index), other_names: Vec::new() })
        .collect()
}

struct Seating {
    layout: Layout,
    /// The number of ranks of each program.
    ranks: Vec<u32>,
    blocks: Vec<Block>,
    mapping: Mapping,
}

fn place_ranks(
    parsed: &Parsed,
    surroundings: &Surroundings,
    start: Start,
    hosts: Option<&Hosts>,
    session_nodes: Option<&SessionNodes>,
) -> Result<Seating, String> {
    let nodes_here =
        session_nodes.map_or(parsed.virtual_nodes.unwrap_or(1), |session_nodes| session_nodes.nodes.len() as u32);
    let places = match hosts {
        Some(hosts) => Places::Hosts(hosts),
        None => Places::ThisMachine { nodes: nodes_here, cpus: surroundings.machine.cpus() as u32 },
    };
    let ranks = placement::ranks_per_app(parsed, places)?;
    let job_size: u32 = ranks.iter().sum();
    let mut blocks = placement::blocks(parsed, &ranks, places)?;
    let placed = |blocks: &[Block], nodes| {
        Mapping::new(blocks, job_size, nodes).map_err(|error| placement::cannot_place(&error))
    };
    let mut mapping = placed(&blocks, places.nodes())?;
    let layout = match (hosts, session_nodes) {
        (_, Some(session_nodes)) => {
            Layout { agents: session_nodes.session.agents.clone(), nodes: session_nodes.nodes.clone() }
        }
        (Some(hosts), None) if start == Start::Serial => {
            let layout = Layout::of_ranks(hosts, &mapping, &surroundings.host);
            blocks = vec![Block { first_node: 0, nodes: job_size, ppn: 1 }];
            mapping = placed(&blocks, job_size)?;
            layout
        }
        (Some(hosts), None) => Layout::of_hosts(hosts, &surroundings.host),
        (None, None) => Layout::of_this_machine(parsed.virtual_nodes, &surroundings.host),
    };
    Ok(Seating { layout, ranks, blocks, mapping })
}

/// The request for nodes to the session's root, which knows all jobs: for a number of nodes, or for nodes until their
/// slots suffice. The ranks are then placed on these as on hosts that the user has named. `None`: the user has said
/// which nodes, or all get equally many ranks.
pub fn seat_request(
    parsed: &Parsed,
    surroundings: &Surroundings,
    session_nodes: &SessionNodes,
) -> Result<Option<SeatRequest>, String> {
    let is_said = parsed.names_hosts()
        || parsed.virtual_nodes.is_some()
        || parsed.rank_map.is_some()
        || matches!(parsed.map.by, Some(MapBy::Seq | MapBy::RankFile));
    if is_said || session_nodes.nodes.len() == 1 {
        return Ok(None);
    }
    let by = parsed.place.unwrap_or_default();
    let hosts = session_nodes.hosts.as_ref();
    let seating = place_ranks(parsed, surroundings, Start::Tree, hosts, Some(session_nodes))?;
    let stated = hosts.filter(|hosts| hosts.stated);
    let slots = |index: usize| stated.map_or(1, |hosts| u64::from(hosts.list[index].slots));
    let agents: Vec<AgentId> = session_nodes.nodes.iter().map(|node| node.agent).collect();
    let counts: Vec<u64> =
        (0..agents.len() as u32).map(|node| seating.mapping.local_size(NodeId(node)).into()).collect();
    if (0..counts.len()).all(|index| counts[index] * slots(0) == counts[0] * slots(index)) {
        return Ok(None);
    }
    let size = |host: &Host| (host.slots, host.slots_max);
    let are_alike = stated.is_none_or(|hosts| hosts.list.iter().all(|host| size(host) == size(&hosts.list[0])));
    let used = counts.iter().filter(|ranks| **ranks > 0).count();
    let nodes = match (are_alike, parsed.map.by, parsed.ppn) {
        (true, ..) => Some(used as u32),
        (false, None | Some(MapBy::Slot | MapBy::Objects(_)), None) => None,
        // Unequal hosts with such a mapping: the number of ranks of a node depends on the nodes before it.
        (false, ..) => return Ok(None),
    };
    let among = match by {
        // Without stated slots no node is ever full, so packing always takes the first nodes.
        SeatOrder::Pack if !session_nodes.slots_stated => agents[..used].to_vec(),
        SeatOrder::Spread | SeatOrder::Pack if session_nodes.is_whole => Vec::new(),
        SeatOrder::Spread | SeatOrder::Pack => agents,
    };
    Ok(Some(SeatRequest { ranks: seating.mapping.job_size(), nodes, among, by }))
}

/// Ranks per object become ranks per node: the objects of this machine are counted, as if all nodes were like it.
fn counted(parsed: &Parsed, machine: &Machine) -> Result<Option<MapBy>, String> {
    let Some(MapBy::PprObject(ranks, object)) = parsed.map.by else { return Ok(parsed.map.by) };
    let objects = wireup_node::binding::objects(machine, object)
        .map_err(|error| format!("--map-by cannot be applied on this machine: {error}"))?;
    Ok(Some(MapBy::Ppr(ranks.saturating_mul(objects.len() as u32))))
}

/// How the flags bind the ranks of each node.
fn binding(parsed: &Parsed) -> Result<Binding, String> {
    let over = over(parsed);
    let unit = if parsed.map.properties.threads { Object::Thread } else { Object::Core };
    let to = match (&parsed.bind.to, parsed.map.properties.cores, over) {
        (None, Some(count), _) => BindTo::To { object: unit, count },
        (Some(BindTo::To { object, count: 1 }), Some(count), _) if *object == unit => {
            BindTo::To { object: unit, count }
        }
        (Some(BindTo::None), _, _) => BindTo::None,
        (Some(BindTo::Even | BindTo::To { .. } | BindTo::Lists(_)), Some(count), _) => {
            let first = format!("--map-by pe={count} (bind to {})", name_of(unit));
            return Err(format!("{first} contradicts --bind-to; leave one of them out"));
        }
        (Some(to), None, _) => to.clone(),
        (None, None, Some(over)) => BindTo::To { object: over.object, count: 1 },
        (None, None, None) => BindTo::Even,
    };
    let slots = if to == BindTo::None { Vec::new() } else { parsed.rank_slots.clone() };
    Ok(Binding { to, over, cpus: parsed.options.binding.cpus.clone(), slots })
}

/// The hardware objects over which the ranks of a node are distributed.
fn over(parsed: &Parsed) -> Option<Over> {
    let fills = parsed.rank_by == Some(RankBy::Fill);
    match parsed.map.by? {
        MapBy::Objects(object) => {
            let step = parsed.map.properties.step.max(1);
            Some(Over { object, step, ranks: if fills { 0 } else { 1 } })
        }
        MapBy::PprObject(ranks, object) => Some(Over { object, step: 1, ranks }),
        MapBy::Slot | MapBy::Node | MapBy::Ppr(_) | MapBy::Seq | MapBy::RankFile => None,
    }
}

#[cfg(test)]
mod tests;
