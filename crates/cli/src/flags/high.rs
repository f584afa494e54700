//! What a command line means: one job and the session that runs it.

use super::chosen::{self, Chosen};
use super::error::FlagError;
use super::ground::{Ground, Told};
use super::layout::{self, Layout};
use super::low::{Low, MapBy, Section, Start, Stdin};
use super::placement::{self, Places};
use super::values;
use crate::environment::Reached;
use crate::here::Here;
use crate::hosts::Hosts;
use crate::program::flavour::{self, Choice, Context};
use crate::{env_file, environment};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::{AgentId, JobId, Rank};
use wireup_wire::job::{AppSpec, Block, JobOptions, JobSpec, PmiFlavour, PtySpec, StdinTarget};
use wireup_wire::peer::{AgentTransport, RemoteShell, SessionSpec};
use wireup_wire::session::Standing;

const SECOND_NS: u64 = 1_000_000_000;
/// Chosen: long enough to write a last line and remove a file, short enough to wait for.
const KILL_GRACE_NS: u64 = 2 * SECOND_NS;
/// With `--verbose`. Chosen: no healthy fence takes that long.
const STALL_REPORT_NS: u64 = 30 * SECOND_NS;
/// An agent that has not linked back by then is lost. Chosen: a slow log-in takes seconds, not a minute.
const START_TIMEOUT_NS: u64 = 60 * SECOND_NS;
/// A node that has not answered for so long is lost. Chosen: a node that swaps or a switch that reboots answers in less.
const NODE_TIMEOUT_NS: u64 = 30 * SECOND_NS;
/// Where no terminal says otherwise.
const TERMINAL_SIZE: (u16, u16) = (24, 80);
/// The remote shell when hosts are named. The user's configuration counts, but nothing of it that gets in the way of a
/// command without a person: X11 and port forwarding, a terminal, questions, a connection that stays behind. A host that
/// does not answer at all is given up after a quarter of the default start time, so that another agent can still try.
pub const SSH: [&str; 11] = [
    "ssh",
    "-x",
    "-T",
    "-o",
    "BatchMode=yes",
    "-o",
    "ClearAllForwardings=yes",
    "-o",
    "ControlMaster=no",
    "-o",
    "ConnectTimeout=15",
];

/// The options of the step that brings agents to the nodes of a Slurm allocation: it shares cpus, memory and devices with
/// every other step, is bound to none of them, knows no PMI, and outlives the death of one of its tasks.
const SRUN: [&str; 11] = [
    "srun",
    "--overlap",
    "--mem=0",
    "--cpu-bind=none",
    "--ntasks-per-node=1",
    "--mpi=none",
    "--kill-on-bad-exit=0",
    "--wait=0",
    "--input=all",
    "--export=ALL",
    "--job-name=wireup",
];

/// A resolved command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct High {
    pub job: JobSpec,
    pub session: SessionSpec,
    /// The session stands, and goes on after the job.
    pub in_session: bool,
    pub timeout_ns: Option<u64>,
    pub output_dir: Option<PathBuf>,
    pub profile: Option<PathBuf>,
    pub verbose: bool,
    pub dry_run: bool,
    pub display_map: bool,
    /// Cpus of this machine that ranks may use.
    pub cpus: u32,
    /// The user chose the fan-out.
    pub fanout_given: bool,
    pub map_by: MapBy,
    /// Slots of each node, if any were stated.
    pub slots: Vec<u32>,
    pub start: Start,
    /// Who named the hosts; empty: nobody.
    pub hosts_from: String,
    /// Why the ranks are offered that PMI.
    pub pmi_why: String,
    /// One-line remarks that stop nothing.
    pub warnings: Vec<String>,
}

/// Applies defaults, looks for contradictions.
pub fn resolve(low: Low, here: Here) -> Result<High, FlagError> {
    resolve_on(None, low, here)
}

/// The same for a job of a standing session.
pub fn resolve_in(ground: Ground, low: Low, here: Here) -> Result<High, FlagError> {
    resolve_on(Some(ground), low, here)
}

fn resolve_on(ground: Option<Ground>, low: Low, here: Here) -> Result<High, FlagError> {
    let Named { hosts, origin, by_slurm } = match &ground {
        Some(ground) => Named { hosts: ground.hosts.clone(), origin: String::new(), by_slurm: false },
        None => Named::of(chosen::chosen(&low, &here)?),
    };
    let start = start(&low, hosts.is_some())?;
    let nodes_here = ground.as_ref().map_or(low.virtual_nodes.unwrap_or(1), |ground| ground.nodes.len() as u32);
    let places = match &hosts {
        Some(hosts) => Places::Hosts(hosts),
        None => Places::Here { nodes: nodes_here, cpus: here.cpus },
    };
    let ranks = placement::ranks_per_app(&low, places)?;
    let job_size: u32 = ranks.iter().sum();
    let mut blocks = placement::blocks(&low, job_size, places)?;
    let placed = |blocks: &[Block], nodes| Mapping::new(blocks, job_size, nodes).map_err(FlagError::Placement);
    let mut mapping = placed(&blocks, places.nodes())?;
    let layout = match (&hosts, &ground) {
        (_, Some(ground)) => Layout { agents: ground.session.agents.clone(), nodes: ground.nodes.clone() },
        (Some(hosts), None) if start == Start::Serial => {
            let layout = Layout::of_ranks(hosts, &mapping, &here.host);
            blocks = layout::rank_blocks(job_size);
            mapping = placed(&blocks, job_size)?;
            layout
        }
        (Some(hosts), None) => Layout::of_hosts(hosts, &here.host),
        (None, None) => Layout::here(low.virtual_nodes, &here.host),
    };
    let nspace = format!("wireup-{}-{:08x}", here.pid, here.tag);
    let in_session = ground.is_some();
    let (job_id, session) = match ground {
        Some(ground) => (ground.job, SessionSpec { verbose: low.verbose, ..ground.session }),
        None => {
            let reach = Reach::of(hosts.is_some(), by_slurm, start);
            (JobId(0), session(&low, &here, reach, &layout, nspace.clone())?)
        }
    };
    let local = layout.is_alone() || session.remote_shell == RemoteShell::Local;

    let stdin = stdin_target(low.stdin, job_size)?;
    let pty = pty_spec(low.pty, job_size, here.terminal)?;
    let (apps, warnings) = apps(low.sections, &ranks, &here, local)?;
    let mut env = Vec::new();
    for file in &low.env_files {
        env.extend(env_file::read_file(file)?);
    }
    env.extend(low.genv);
    let reached = match (local, &session.remote_shell) {
        (true, _) => Reached::Here,
        (false, RemoteShell::Srun(_)) => Reached::ByStep,
        (false, _) => Reached::Elsewhere,
    };
    let job_env = environment::job_env(here.env.iter().cloned(), reached, &env);
    let library = low.pmix_library.as_deref().map(|path| pmix_library(path, &here, local)).transpose()?;
    let pmi = pmi(low.pmi, &apps, &Context { env: &job_env, own: &here.program, local, library: library.as_deref() });
    let options = JobOptions {
        pmi: pmi.flavour,
        bind_to: low.bind_to.unwrap_or_default(),
        stdin,
        label: low.label,
        line_buffered: low.line_buffered,
        split_output: low.output_dir.is_some(),
        pty,
        rank_env: low.rank_env,
        profile: low.profile.is_some(),
        umask: here.umask,
        limits: here.limits.clone(),
        kill_grace_ns: low.kill_grace_ns.unwrap_or(KILL_GRACE_NS),
        stall_report_ns: low.stall_report_ns.unwrap_or(STALL_REPORT_NS),
        exchange: low.exchange.unwrap_or_default(),
        early_wireup: low.early_wireup.unwrap_or_default(),
        exchange_compress: low.exchange_compress.unwrap_or_default(),
        bench: low.bench,
        pmi_fence: low.pmi_fence.unwrap_or_default(),
        pmi_version: low.pmi_version.unwrap_or_default(),
        modex: low.modex.unwrap_or_default(),
        pmix_library: library.or(pmi.library),
        gpus_per_rank: low.gpus_per_rank.unwrap_or(0),
        stdin_inherit: !in_session && may_inherit_stdin(stdin, pty, &layout, &mapping, here.stdin_is_terminal),
    };
    Ok(High {
        session,
        job: JobSpec {
            job: job_id,
            nspace,
            nodes: layout.nodes,
            blocks,
            apps,
            env: environment::for_pmi(job_env, pmi.flavour, here.tag, pmi.prefix.as_deref()),
            options,
        },
        in_session,
        timeout_ns: low.timeout_ns,
        output_dir: low.output_dir,
        profile: low.profile,
        verbose: low.verbose,
        dry_run: low.dry_run,
        display_map: low.display_map,
        cpus: here.cpus,
        fanout_given: low.fanout.is_some(),
        map_by: low.map_by.unwrap_or(MapBy::Slot),
        slots: hosts
            .filter(|hosts| hosts.stated && start != Start::Serial)
            .map_or_else(Vec::new, |hosts| hosts.list.iter().map(|host| host.slots).collect()),
        start,
        hosts_from: origin,
        pmi_why: pmi.why,
        warnings,
    })
}

/// The hosts of the job, in parts.
#[derive(Default)]
struct Named {
    hosts: Option<Hosts>,
    origin: String,
    by_slurm: bool,
}

impl Named {
    fn of(chosen: Option<Chosen>) -> Named {
        chosen.map_or_else(Named::default, |Chosen { hosts, origin, by_slurm }| Named {
            hosts: Some(hosts),
            origin,
            by_slurm,
        })
    }
}

/// The session of a job's own, or the one that `wireup up` begins.
fn session(low: &Low, here: &Here, reach: Reach, layout: &Layout, name: String) -> Result<SessionSpec, FlagError> {
    if low.encrypt && low.transport == Some(AgentTransport::Ucx) {
        return Err(FlagError::EncryptedUcx);
    }
    let start = start(low, reach != Reach::Here)?;
    Ok(SessionSpec {
        name,
        fanout: layout.fanout(start, low.fanout),
        agents: layout.agents.clone(),
        remote_shell: remote_shell(low.remote_shell.as_deref(), reach, here)?,
        shells_max: layout::shells_max(start),
        program: here.program.clone(),
        start_timeout_ns: low.start_timeout_ns.unwrap_or(START_TIMEOUT_NS),
        node_timeout_ns: low.node_timeout_ns.unwrap_or(NODE_TIMEOUT_NS),
        encrypt: low.encrypt,
        interface: low.interface.clone(),
        verbose: low.verbose,
        hold_ranks: false,
        record_dir: low.record.clone().map(|directory| absolute(directory, here)),
        transport: low.transport.unwrap_or_default(),
        link_delay_ns: low.link_delay_ns.unwrap_or(0),
        standing: None,
    })
}

/// A session for `wireup up`, with the slots that were stated.
pub fn standing(low: &Low, here: &Here, name: &str) -> Result<(SessionSpec, Told), FlagError> {
    let Named { hosts, by_slurm, .. } = Named::of(chosen::chosen(low, here)?);
    if low.start == Some(Start::Serial) {
        return Err(FlagError::SerialSession);
    }
    let layout = match &hosts {
        Some(hosts) => Layout::of_hosts(hosts, &here.host),
        None => Layout::here(low.virtual_nodes, &here.host),
    };
    let reach = Reach::of(hosts.is_some(), by_slurm, start(low, hosts.is_some())?);
    let spec = session(low, here, reach, &layout, name.to_owned())?;
    // Agents that are no node take no rank.
    let mut slots = vec![0; layout.agents.len()];
    let mut told = Told { slots_stated: false, slots_max: vec![None; layout.agents.len()] };
    for (index, node) in layout.nodes.iter().enumerate() {
        let host = hosts.as_ref().map(|hosts| &hosts.list[index]);
        slots[node.agent.index()] = host.map_or(1, |host| host.slots);
        told.slots_max[node.agent.index()] = host.and_then(|host| host.slots_max);
    }
    told.slots_stated = hosts.is_some_and(|hosts| hosts.stated);
    Ok((SessionSpec { standing: Some(Standing { slots }), ..spec }, told))
}

/// How hosts are reached if nobody says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// There are none.
    Here,
    Ssh,
    /// Slurm has given them; one step starts all agents, unless they are to be started in another way.
    Slurm {
        one_step: bool,
    },
}

impl Reach {
    pub fn of(hosts: bool, by_slurm: bool, start: Start) -> Reach {
        match (hosts, by_slurm) {
            (false, _) => Reach::Here,
            (true, false) => Reach::Ssh,
            (true, true) => Reach::Slurm { one_step: start == Start::Tree },
        }
    }
}

fn start(low: &Low, hosts: bool) -> Result<Start, FlagError> {
    let start = low.start.unwrap_or_default();
    match (start, low.fanout) {
        (Start::Flat, Some(_)) => Err(FlagError::FanoutContradicts { start: "ssh-flat" }),
        (Start::Serial, Some(_)) => Err(FlagError::FanoutContradicts { start: "serial-ssh" }),
        (Start::Serial, None) if !hosts => Err(FlagError::SerialWithoutHosts),
        (Start::Tree | Start::Flat | Start::Serial, _) => Ok(start),
    }
}

/// The remote shell, `command` if the user has named one.
pub fn remote_shell(command: Option<&str>, reach: Reach, here: &Here) -> Result<RemoteShell, FlagError> {
    let mut words: Vec<String> = match (command, reach) {
        (Some(command), _) => command.split_whitespace().map(str::to_owned).collect(),
        (None, Reach::Here) => return Ok(RemoteShell::Local),
        (None, Reach::Slurm { one_step: true }) => vec![SRUN[0].to_owned()],
        (None, Reach::Ssh | Reach::Slurm { one_step: false }) => SSH.map(str::to_owned).to_vec(),
    };
    // Agents do not work in the launcher's directory.
    if let Some(program) = words.first_mut().filter(|program| program.contains('/')) {
        *program = absolute(program.trim_start_matches("./").to_owned(), here);
    }
    for word in words.iter_mut().skip(1) {
        *word = with_absolute_file(word, here);
    }
    let is = |name: &str| words.first().is_some_and(|word| Path::new(word).file_name().is_some_and(|of| of == name));
    match words.first() {
        None => Err(FlagError::EmptyRemoteShell),
        Some(_) if is("ssh") => Ok(RemoteShell::Ssh(words)),
        Some(_) if is(SRUN[0]) => match reach {
            // The user's own options come last, and count.
            Reach::Slurm { one_step: true } => {
                words.splice(1..1, SRUN[1..].iter().map(|word| (*word).to_owned()));
                Ok(RemoteShell::Srun(words))
            }
            Reach::Slurm { one_step: false } => Err(FlagError::SrunStarts),
            Reach::Here | Reach::Ssh => Err(FlagError::SrunOutside),
        },
        Some(_) => Ok(RemoteShell::Command(words)),
    }
}

fn apps(
    sections: Vec<Section>,
    ranks: &[u32],
    here: &Here,
    local: bool,
) -> Result<(Vec<AppSpec>, Vec<String>), FlagError> {
    if sections.len() > usize::from(u16::MAX) {
        return Err(FlagError::TooManyPrograms(sections.len()));
    }
    let (mut apps, mut warnings) = (Vec::with_capacity(sections.len()), Vec::new());
    let lookup = |name: &std::ffi::OsStr| here.env.iter().find(|(known, _)| known == name).map(|(_, v)| v.clone());
    for (section, &ranks) in sections.into_iter().zip(ranks) {
        let (env, missing) = environment::app_env(&section.env, lookup);
        warnings.extend(missing.iter().map(|name| {
            format!(
                "-x {}: not set here, so not set for the ranks; give a value with -x NAME=VALUE",
                values::shown(name)
            )
        }));
        let cwd = working_directory(section.wdir, here, local)?;
        let argv = section.argv.into_iter().map(OsString::into_vec).collect();
        apps.push(AppSpec { ranks, argv, cwd: cwd.into_os_string().into_vec(), env });
    }
    Ok((apps, warnings))
}

/// As the user says, else as the programs tell.
fn pmi(wish: Option<PmiFlavour>, apps: &[AppSpec], context: &Context) -> Choice {
    match wish {
        None => flavour::choose(apps, context),
        // What a program will load is good to know for whoever asks for PMIx as well.
        Some(wish) if wish.has_pmix() => {
            Choice { flavour: wish, why: "--pmi".into(), ..flavour::choose(apps, context) }
        }
        Some(wish) => Choice { flavour: wish, why: "--pmi".into(), library: None, prefix: None },
    }
}

/// The path of a PMIx library, for nodes that work in other directories; looked at where they are this machine.
fn pmix_library(path: &Path, here: &Here, local: bool) -> Result<String, FlagError> {
    let shown = path.display().to_string();
    let path = absolute(shown.clone(), here);
    match local && !Path::new(&path).is_file() {
        true => Err(FlagError::PmixLibrary { path: shown }),
        false => Ok(path),
    }
}

/// A word of a remote shell's command; where it is a file of the launcher's directory, or ends with one
/// (`-oIdentityFile=keys/id`, `-Fconfig`), by its absolute path.
fn with_absolute_file(word: &str, here: &Here) -> String {
    let is_file = |path: &str| here.cwd.as_ref().is_ok_and(|cwd| !path.is_empty() && cwd.join(path).is_file());
    let path = match word.split_once('=') {
        _ if is_file(word) => word,
        Some((_, value)) => value,
        None => word.strip_prefix("-F").or_else(|| word.strip_prefix("-i")).unwrap_or(word),
    };
    match is_file(path) {
        // What is absolute stays as it is.
        true => word[..word.len() - path.len()].to_owned() + &absolute(path.trim_start_matches("./").to_owned(), here),
        false => word.to_owned(),
    }
}

/// A path for agents, which need not work in the launcher's.
fn absolute(directory: String, here: &Here) -> String {
    match here.cwd.as_ref().ok().and_then(|cwd| cwd.join(&directory).into_os_string().into_string().ok()) {
        Some(path) => path,
        None => directory,
    }
}

/// An absolute path. It is looked at only where the ranks see the same one.
fn working_directory(wdir: Option<PathBuf>, here: &Here, local: bool) -> Result<PathBuf, FlagError> {
    let current = || match &here.cwd {
        Ok(cwd) => Ok(cwd.clone()),
        Err(problem) => Err(FlagError::CurrentDirectory { problem: problem.clone() }),
    };
    match wdir {
        None => current(),
        Some(wdir) => {
            let path = if wdir.is_absolute() { wdir } else { current()?.join(wdir) };
            if local {
                check_directory(&path)?;
            }
            Ok(path)
        }
    }
}

fn check_directory(path: &Path) -> Result<(), FlagError> {
    let problem = match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Ok(()),
        Ok(_) => "is not a directory".to_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "does not exist".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(FlagError::WorkingDirectory { path: path.display().to_string(), problem })
}

fn stdin_target(stdin: Option<Stdin>, job_size: u32) -> Result<StdinTarget, FlagError> {
    match stdin.unwrap_or(Stdin::Rank(0)) {
        Stdin::None => Ok(StdinTarget::None),
        Stdin::All => Ok(StdinTarget::All),
        Stdin::Rank(rank) => check_rank("--stdin", rank, job_size).map(StdinTarget::One),
    }
}

fn pty_spec(rank: Option<u32>, job_size: u32, size: Option<(u16, u16)>) -> Result<Option<PtySpec>, FlagError> {
    let Some(rank) = rank else { return Ok(None) };
    let rank = check_rank("--pty", rank, job_size)?;
    let (rows, columns) = size.unwrap_or(TERMINAL_SIZE);
    Ok(Some(PtySpec { rank, rows, columns }))
}

fn check_rank(flag: &'static str, rank: u32, job_size: u32) -> Result<Rank, FlagError> {
    if rank < job_size { Ok(Rank(rank)) } else { Err(FlagError::NoSuchRank { flag, rank, last: job_size - 1 }) }
}

/// Whether the reader of standard input gets the launcher's own descriptor: cheapest, and nothing is read that nobody
/// asked for. Not a terminal, which the ranks, in a session of their own, cannot read; not a rank elsewhere, or one
/// that reads from its pseudo-terminal.
fn may_inherit_stdin(
    stdin: StdinTarget,
    pty: Option<PtySpec>,
    layout: &Layout,
    mapping: &Mapping,
    is_terminal: bool,
) -> bool {
    match stdin {
        StdinTarget::None | StdinTarget::All => false,
        StdinTarget::One(rank) => {
            let here = mapping.place(rank).is_some_and(|(node, _)| layout.nodes[node.index()].agent == AgentId(0));
            here && !is_terminal && pty.is_none_or(|pty| pty.rank != rank)
        }
    }
}

#[cfg(test)]
mod tests;
