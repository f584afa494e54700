//! The launcher's side of staging: makes one stream for all nodes, and handles their answers.
//!
//! ```text
//!   name ──► each node: kept, or it lacks the set
//!   manifest, as soon as one node lacks the set ──► each node that lacks it: what is missing
//!   the contents that any node lacks ──► each node: kept, failed, or what was damaged
//!                   ▲                                                        │
//!                   └────────────── at most ROUNDS_MAX times ────────────────┘
//! ```
//!
//! All nodes get the same stream, along the tree of agents; a node ignores contents that it has already.

use crate::answer::Answer;
use crate::set::{Problem, Set};
use crate::stream::Sender;
use std::collections::{BTreeMap, BTreeSet};

/// Longest line that is parsed as an answer (chosen: a set of a million contents, every second one missing).
const LINE_LEN_MAX: usize = 16 << 20;

/// Most times that contents are sent (chosen); contents are sent again if a node reports that they were damaged.
const ROUNDS_MAX: u32 = 4;

pub struct Sending<'a> {
    sender: Sender<'a>,
    /// The part of the stream that is being sent, and how many of its bytes were sent.
    part: (Vec<u8>, usize),
    nodes: Vec<Node>,
    /// Contents that any node has asked for since the last round.
    wanted: BTreeSet<u32>,
    /// Nodes that have not answered in this round.
    silent: u32,
    round: u32,
    bytes_wanted: u64,
    bytes_sent: u64,
}

#[derive(Default)]
struct Node {
    /// The incomplete line that the node has written.
    line: Vec<u8>,
    /// The number of rounds in which the node has answered.
    rounds: u32,
    end: Option<Answer>,
}

/// The next part of the stream, or the reason why there is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    Bytes(Vec<u8>),
    /// Nothing can be sent before nodes have answered.
    Waits,
    Over,
}

impl<'a> Sending<'a> {
    pub fn new(set: &'a Set, nodes: u32) -> Sending<'a> {
        let nodes: Vec<Node> = std::iter::repeat_with(Node::default).take(nodes as usize).collect();
        Sending {
            sender: Sender::new(set),
            part: (Vec::new(), 0),
            silent: nodes.len() as u32,
            nodes,
            wanted: BTreeSet::new(),
            round: 0,
            bytes_wanted: 0,
            bytes_sent: 0,
        }
    }

    /// The next bytes of the stream, at most `bytes_max`.
    ///
    /// # Errors
    /// A file cannot be read, or has changed.
    pub fn next(&mut self, bytes_max: usize) -> Result<Next, Problem> {
        if self.is_over() {
            return Ok(Next::Over);
        }
        let mut out = Vec::with_capacity(bytes_max);
        while out.len() < bytes_max {
            let (part, at) = &mut self.part;
            if *at == part.len() {
                match self.sender.next_part()? {
                    Some(next) => self.part = (next, 0),
                    None if out.is_empty() => return Ok(Next::Waits),
                    None => break,
                }
                continue;
            }
            let count = (part.len() - *at).min(bytes_max - out.len());
            out.extend_from_slice(&part[*at..*at + count]);
            *at += count;
        }
        self.bytes_sent += out.len() as u64;
        Ok(Next::Bytes(out))
    }

    /// Handles output of a node.
    pub fn output(&mut self, node: u32, bytes: &[u8]) {
        let Some(at) = self.nodes.get_mut(node as usize) else { return };
        for byte in bytes {
            if *byte != b'\n' {
                at.line.push(*byte);
                if at.line.len() > LINE_LEN_MAX {
                    at.line.clear();
                }
                continue;
            }
            match Answer::read(&String::from_utf8_lossy(&std::mem::take(&mut at.line))) {
                Some(Answer::Lacks) => self.sender.want_set(),
                Some(Answer::Missing(missing)) if at.end.is_none() && at.rounds == self.round => {
                    at.rounds += 1;
                    self.silent -= 1;
                    match self.round {
                        ROUNDS_MAX => at.end = Some(Answer::Failed("contents arrived damaged several times".into())),
                        _ => self.wanted.extend(missing),
                    }
                }
                Some(end @ (Answer::Kept | Answer::Failed(_))) if at.end.is_none() => {
                    self.silent -= u32::from(at.rounds == self.round);
                    at.end = Some(end);
                }
                Some(Answer::Missing(_) | Answer::Kept | Answer::Failed(_)) | None => {}
            }
        }
        if self.silent == 0 {
            self.go_on();
        }
    }

    /// Begins the next round, since all nodes have answered in this one.
    fn go_on(&mut self) {
        self.silent = self.nodes.iter().filter(|node| node.end.is_none()).count() as u32;
        if self.silent > 0 {
            self.round += 1;
            self.sender.want(&std::mem::take(&mut self.wanted));
            self.bytes_wanted += self.sender.bytes_left();
        }
    }

    /// Whether the outcome of every node is known: each node has the set or will not get the set.
    fn is_over(&self) -> bool {
        self.nodes.iter().all(|node| node.end.is_some())
    }

    /// The number of bytes of contents that have been read and made part of the stream, and the number that nodes have
    /// asked for so far. A content that is sent again counts again.
    pub fn progress(&self) -> (u64, u64) {
        (self.bytes_wanted.saturating_sub(self.sender.bytes_left()), self.bytes_wanted)
    }

    /// The number of bytes of the stream that were sent so far.
    pub fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    /// How many nodes have the set.
    pub fn kept(&self) -> usize {
        self.nodes.iter().filter(|node| node.end == Some(Answer::Kept)).count()
    }

    /// The outcome for each node; `None`: the outcome is not known yet.
    pub fn ends(&self) -> impl Iterator<Item = &Option<Answer>> {
        self.nodes.iter().map(|node| &node.end)
    }

    /// The reason why a node does not have the set, by node.
    pub fn problems(&self) -> BTreeMap<u32, String> {
        let problem = |end: &Option<Answer>| match end {
            Some(Answer::Failed(problem)) => Some(problem.clone()),
            Some(_) => None,
            None => Some("it did not answer".to_owned()),
        };
        (0..).zip(self.ends()).filter_map(|(node, end)| Some((node, problem(end)?))).collect()
    }
}
