//! The lines exchanged between the tasks of a step and the root.
//!
//! ```text
//!   wireup-agent 7 10.0.0.7:4001 10.1.0.7:4001     a task: agent 7 has started; its addresses, if it has children
//!   wireup-agent n7 ! no room                      a task: the agent of node n7 cannot start
//!   7 10.0.0.7:4001 10.1.0.7:4001                  the root, to all
//! ```
//!
//! All other lines are ignored: start-up scripts of a site may write to the same streams.

use std::net::SocketAddr;
use wireup_wire::ids::AgentId;

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
