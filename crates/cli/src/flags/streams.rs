//! Which ranks have standard input and a terminal, and where their output goes.

use super::layout::Layout;
use super::parsed::Parsed;
use wireup_coll::mapping::Mapping;
use wireup_node::launcher::Output;
use wireup_wire::ids::{AgentId, Rank};
use wireup_wire::job::{PtySpec, StdinTarget};

/// Rows and columns of a pseudo-terminal if the launcher itself has no terminal.
const TERMINAL_SIZE: (u16, u16) = (24, 80);

/// The rank or ranks that read standard input, and the one with a terminal.
pub fn stdin_and_pty(
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

/// Refuses `--output-dir` together with `--output-files` or `--error-files`.
pub fn check_output(output: &Output) -> Result<(), String> {
    match output.directory.is_some() && output.files.iter().any(Option::is_some) {
        true => Err("--output-dir contradicts --output-files and --error-files; leave one of them out".into()),
        false => Ok(()),
    }
}

fn check_rank(flag: &str, rank: u32, job_size: u32) -> Result<Rank, String> {
    let refused = || format!("{flag} {rank}: the job has ranks 0 to {}; name one of them", job_size - 1);
    if rank < job_size { Ok(Rank(rank)) } else { Err(refused()) }
}

/// Whether the rank that reads standard input gets the launcher's own descriptor. This is cheapest, and nothing is read
/// before the rank asks for it. It is not possible for a terminal, since ranks run in a session of their own and cannot
/// read it, nor for a rank on another node or one with a pseudo-terminal.
pub fn may_inherit_stdin(
    stdin: StdinTarget,
    pty: Option<PtySpec>,
    layout: &Layout,
    mapping: &Mapping,
    is_terminal: bool,
) -> bool {
    match stdin {
        StdinTarget::None | StdinTarget::All | StdinTarget::AllByMemory => false,
        StdinTarget::One(rank) => {
            let surroundings =
                mapping.place(rank).is_some_and(|(node, _)| layout.nodes[node.index()].agent == AgentId(0));
            surroundings && !is_terminal && pty.is_none_or(|pty| pty.rank != rank)
        }
    }
}
