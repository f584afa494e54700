//! Starts agents as the tasks of a step of a batch system such as Slurm: one call starts all of them. The code for each
//! batch system is in a file with its name.
//!
//! ```text
//!   root ──► call ──stdin──► every task: the bootstrap message, then each parent's addresses as they become known
//!     ▲        └──stdout──── every task: that it has started, and its addresses; or why it cannot start
//!     └─ links: as usual
//! ```
//!
//! Parents' addresses are exchanged through the step itself, so that agents need no link to the root for that: the root
//! reads a short line from each agent and writes one for each agent with children, which the batch system copies to all
//! tasks.
//!
//! The lines exchanged between the tasks of a step and the root.
//!
//! ```text
//!   wireup-agent 7 10.0.0.7:4001 10.1.0.7:4001     a task: agent 7 has started; its addresses, if it has children
//!   wireup-agent n7 ! no room                      a task: the agent of node n7 cannot start
//!   7 10.0.0.7:4001 10.1.0.7:4001                  the root, to all
//! ```
//!
//! All other lines are ignored: start-up scripts of a site may write to the same streams.

mod called;
mod calling;
pub mod srun;

pub use super::munge::{NotSealed, Sealed, Sealing};
pub use called::{Called, SILENCE_MAX, announce_problem, find_self};
pub use calling::Steps;
use std::net::SocketAddr;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Problem;

/// A batch system, which starts a step by one call: one task with an agent on each of many hosts.
pub trait BatchSystem: Sync {
    /// Options of the call that are placed before the user's own.
    fn options(&self) -> &'static [&'static str];

    /// The arguments of the call that place one task on each of these hosts.
    fn placement(&self, hosts: &[String]) -> Vec<String>;

    /// Whether to pass a variable of this process's environment to the call and its tasks; ranks get none of these.
    fn keeps(&self, variable: &str) -> bool;

    /// Whether a step of this batch system has started this process or one of its ancestors.
    fn is_here(&self) -> bool;

    /// The node on which this process runs as a task, named as in the host list.
    fn own_node(&self) -> Result<String, String>;

    /// What a line of the call's standard error says about tasks; `None`: nothing that names a node.
    fn complaint(&self, line: &str) -> Option<Complaint>;
}

/// A batch system's message about a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Complaint {
    About {
        nodes: Vec<String>,
        problem: Problem,
    },
    /// The whole step was cancelled, with this message.
    Cancelled(String),
    /// Not all tasks could be launched, so the step was given up. Earlier lines have named the tasks that failed.
    GivenUp,
}

/// Argument of a task's command: the task must refuse a bootstrap message that is not encrypted. Someone who can
/// replace the task's standard input cannot change this argument, which travels in the batch system's own messages.
pub const SEALED: &str = "sealed";

/// The command that a task executes. A single word is a line for a login shell, which a step does not have, so it is
/// run by `/bin/sh`.
pub fn executed(mut command: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    if command.len() == 1 {
        command.splice(0..0, [b"/bin/sh".to_vec(), b"-c".to_vec()]);
    }
    command
}

const WORD: &str = "wireup-agent";
/// Longest line. Chosen: enough for a hundred addresses.
const LINE_BYTES_MAX: usize = 8 << 10;

/// A message of a step's task to the root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    Begun { agent: AgentId, addresses: Vec<String> },
    Cannot { node: String, problem: String },
}

impl Said {
    pub fn write(&self) -> String {
        match self {
            Said::Begun { agent, addresses } => format!("{WORD} {}\n", at(*agent, addresses)),
            Said::Cannot { node, problem } => format!("{WORD} {node} ! {}\n", problem.replace('\n', "; ")),
        }
    }

    pub fn read(line: &str) -> Option<Said> {
        let rest = line.strip_prefix(WORD)?.strip_prefix(' ')?;
        if let Some((node, problem)) = rest.split_once(" ! ") {
            return Some(Said::Cannot { node: node.to_owned(), problem: problem.to_owned() });
        }
        let (agent, addresses) = read_at(rest)?;
        Some(Said::Begun { agent, addresses })
    }
}

/// An agent's number and addresses, as text.
pub fn at(agent: AgentId, addresses: &[String]) -> String {
    std::iter::once(agent.to_string()).chain(addresses.iter().cloned()).collect::<Vec<_>>().join(" ")
}

/// Reads the line of an agent's addresses; `None`: it is a line of another kind.
pub fn read_at(line: &str) -> Option<(AgentId, Vec<String>)> {
    let mut words = line.split_ascii_whitespace();
    let agent = AgentId(words.next()?.parse().ok()?);
    let addresses: Vec<String> = words.map(str::to_owned).collect();
    addresses.iter().all(|address| address.parse::<SocketAddr>().is_ok()).then_some((agent, addresses))
}

/// Splits received bytes, which may be cut anywhere, into lines.
#[derive(Default)]
pub struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    /// Adds bytes and returns the lines completed by them.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        self.begun.extend_from_slice(bytes);
        let Some(end) = self.begun.iter().rposition(|byte| *byte == b'\n') else {
            let excess = self.begun.len().saturating_sub(LINE_BYTES_MAX);
            self.begun.drain(..excess);
            return Vec::new();
        };
        let rest = self.begun.split_off(end + 1);
        let whole = std::mem::replace(&mut self.begun, rest);
        String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn step_lines_round_trip_and_other_lines_are_ignored() {
        for said in [
            Said::Begun { agent: AgentId(7), addresses: vec!["10.0.0.7:4001".into(), "[fd00::1]:4001".into()] },
            Said::Begun { agent: AgentId(0), addresses: Vec::new() },
            Said::Cannot { node: "n9".into(), problem: "no ! room".into() },
        ] {
            assert_eq!(Said::read(said.write().trim_end()), Some(said));
        }
        for line in
            ["", "wireup-agent", "wireup-agent x", "wireup-agents 1", "hello", "wireup-agent 1 n1:5", "1 10.0.0.1:5"]
        {
            assert_eq!(Said::read(line), None, "{line}");
        }
        assert_eq!(read_at("3 10.0.0.1:5"), Some((AgentId(3), vec!["10.0.0.1:5".into()])));
    }

    #[test]
    fn an_endless_line_uses_bounded_memory() {
        let mut lines = Lines::default();
        for _ in 0..100 {
            assert!(lines.push(&[b'x'; 1 << 10]).is_empty());
        }
        assert!(lines.begun.len() <= LINE_BYTES_MAX);
        assert_eq!(lines.push(b"\nnext\n").last().map(String::as_str), Some("next"));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_lines(
            text in "[a-c\n]{0,60}",
            cuts in proptest::collection::vec(0usize..60, 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let mut lines = Lines::default();
            let pieces = cuts.windows(2).map(|ends| &text.as_bytes()[ends[0]..ends[1]]);
            let got: Vec<String> = pieces.flat_map(|piece| lines.push(piece)).collect();
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            let wanted: Vec<&str> = if text.contains('\n') { whole.split('\n').collect() } else { Vec::new() };
            prop_assert_eq!(got, wanted);
        }
    }
}
