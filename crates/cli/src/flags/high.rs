//! What a command line means: one job and the session that runs it.

use super::error::FlagError;
use super::low::{Low, MapBy, Section, Stdin};
use super::{placement, values};
use crate::environment;
use crate::here::Here;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use wireup_coll::mapping::Mapping;
use wireup_coll::tree;
use wireup_wire::ids::{AgentId, JobId, NodeId, Rank};
use wireup_wire::job::{AppSpec, BindTo, JobOptions, JobSpec, NodeSpec, PmiFlavour, PtySpec, StdinTarget};
use wireup_wire::peer::{AgentSpec, RemoteShell, SessionSpec};

const SECOND_NS: u64 = 1_000_000_000;
/// Chosen: long enough to write a last line and remove a file, short enough to wait for.
const KILL_GRACE_NS: u64 = 2 * SECOND_NS;
/// With `--verbose`. Chosen: no healthy fence takes that long.
const STALL_REPORT_NS: u64 = 30 * SECOND_NS;
/// An agent that has not linked back by then is lost. Chosen: a slow log-in takes seconds, not a minute.
const START_TIMEOUT_NS: u64 = 60 * SECOND_NS;
/// Where no terminal says otherwise.
const TERMINAL_SIZE: (u16, u16) = (24, 80);
/// A resolved command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct High {
    pub job: JobSpec,
    pub session: SessionSpec,
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
    /// One-line remarks that stop nothing.
    pub warnings: Vec<String>,
}

/// Applies defaults, looks for contradictions.
pub fn resolve(low: Low, here: Here) -> Result<High, FlagError> {
    let nodes = nodes(low.virtual_nodes, &here.host);
    let node_count = nodes.len() as u32;
    let ranks = placement::ranks_per_app(&low, node_count, here.cpus)?;
    let job_size: u32 = ranks.iter().sum();
    let blocks = placement::blocks(&low, job_size, node_count)?;
    let mapping = Mapping::new(&blocks, job_size, node_count).map_err(FlagError::Placement)?;

    let stdin = stdin_target(low.stdin, job_size)?;
    let pty = pty_spec(low.pty, job_size, here.terminal)?;
    let options = JobOptions {
        pmi: low.pmi.unwrap_or(PmiFlavour::Simple),
        bind_to: low.bind_to.unwrap_or(BindTo::Even),
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
        stall_report_ns: low.stall_report_ns.unwrap_or(if low.verbose { STALL_REPORT_NS } else { 0 }),
        stdin_inherit: may_inherit_stdin(stdin, pty, &mapping, here.stdin_is_terminal),
    };
    let remote_shell = remote_shell(low.remote_shell.as_deref())?;
    let (apps, warnings) = apps(low.sections, &ranks, &here, remote_shell == RemoteShell::Local)?;
    let nspace = format!("wireup-{}-{:08x}", here.pid, here.tag);
    Ok(High {
        session: SessionSpec {
            name: nspace.clone(),
            fanout: low.fanout.unwrap_or_else(|| tree::default_fanout(node_count)),
            agents: nodes.iter().map(|node| AgentSpec { host: node.name.clone() }).collect(),
            remote_shell,
            shells_max: 64,
            program: here.program.clone(),
            start_timeout_ns: START_TIMEOUT_NS,
            node_timeout_ns: 30 * SECOND_NS,
            encrypt: false,
            interface: None,
            verbose: low.verbose,
            record_dir: low.record.map(|directory| absolute(directory, &here)),
        },
        job: JobSpec {
            job: JobId(0),
            nspace,
            nodes,
            blocks,
            apps,
            env: environment::job_env(here.env.into_iter(), &low.genv),
            options,
        },
        timeout_ns: low.timeout_ns,
        output_dir: low.output_dir,
        profile: low.profile,
        verbose: low.verbose,
        dry_run: low.dry_run,
        display_map: low.display_map,
        cpus: here.cpus,
        fanout_given: low.fanout.is_some(),
        map_by: low.map_by.unwrap_or(MapBy::Slot),
        warnings,
    })
}

/// This machine, or as many virtual nodes on it.
fn nodes(virtual_nodes: Option<u32>, host: &str) -> Vec<NodeSpec> {
    match virtual_nodes {
        None => vec![NodeSpec { agent: AgentId(0), name: host.to_owned(), shared: false }],
        Some(count) => (0..count)
            .map(|node| NodeSpec { agent: AgentId(node), name: format!("node{node}"), shared: count > 1 })
            .collect(),
    }
}

fn remote_shell(command: Option<&str>) -> Result<RemoteShell, FlagError> {
    let Some(command) = command else { return Ok(RemoteShell::Local) };
    let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    if words.is_empty() { Err(FlagError::EmptyRemoteShell) } else { Ok(RemoteShell::Command(words)) }
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

/// A directory for agents, which need not work in the launcher's.
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
fn may_inherit_stdin(stdin: StdinTarget, pty: Option<PtySpec>, mapping: &Mapping, is_terminal: bool) -> bool {
    match stdin {
        StdinTarget::None | StdinTarget::All => false,
        StdinTarget::One(rank) => {
            let here = mapping.place(rank).is_some_and(|(node, _)| node == NodeId(0));
            here && !is_terminal && pty.is_none_or(|pty| pty.rank != rank)
        }
    }
}

#[cfg(test)]
mod tests;
