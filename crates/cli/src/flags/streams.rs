//! Which ranks have standard input and a terminal, and where their output goes.

use super::error::FlagError;
use super::layout::Layout;
use super::parsed::{Parsed, Stdin};
use wireup_coll::mapping::Mapping;
use wireup_node::launcher::{Output, Pattern};
use wireup_wire::ids::{AgentId, Rank};
use wireup_wire::job::{PtySpec, StdinTarget};

/// The size if no terminal gives one.
const TERMINAL_SIZE: (u16, u16) = (24, 80);

pub fn stdin_target(stdin: Option<Stdin>, job_size: u32) -> Result<StdinTarget, FlagError> {
    match stdin.unwrap_or(Stdin::Rank(0)) {
        Stdin::None => Ok(StdinTarget::None),
        Stdin::All => Ok(StdinTarget::All),
        Stdin::Rank(rank) => check_rank("--stdin", rank, job_size).map(StdinTarget::One),
    }
}

pub fn pty_spec(rank: Option<u32>, job_size: u32, size: Option<(u16, u16)>) -> Result<Option<PtySpec>, FlagError> {
    let Some(rank) = rank else { return Ok(None) };
    let rank = check_rank("--pty", rank, job_size)?;
    let (rows, columns) = size.unwrap_or(TERMINAL_SIZE);
    Ok(Some(PtySpec { rank, rows, columns }))
}

/// Where output goes besides standard output and error.
pub fn output(parsed: &Parsed) -> Result<Output, FlagError> {
    let has_files = parsed.output_files.is_some() || parsed.error_files.is_some();
    if parsed.output_dir.is_some() && has_files {
        let (first, second) = ("--output-dir".to_owned(), "--output-files and --error-files".to_owned());
        return Err(FlagError::Contradiction { first, second });
    }
    // The patterns were checked when they were parsed.
    let pattern = |text: &Option<String>| text.as_ref().and_then(|text| Pattern::parse(text).ok());
    Ok(Output {
        directory: parsed.output_dir.clone(),
        overwrite: parsed.overwrite,
        files: [pattern(&parsed.output_files), pattern(&parsed.error_files)],
        tee: parsed.tee,
        merge: parsed.merge_output,
        timestamp: parsed.timestamp,
        label: pattern(&parsed.label_pattern),
    })
}

fn check_rank(flag: &'static str, rank: u32, job_size: u32) -> Result<Rank, FlagError> {
    if rank < job_size { Ok(Rank(rank)) } else { Err(FlagError::NoSuchRank { flag, rank, last: job_size - 1 }) }
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
