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
use crate::set::{Content, PIECE_LEN, Problem, Set, open_file};
use crate::stream::{
    BLOCK, CLUSTER_LEN, CLUSTERS, Cut, END, FOLLOWING, MANIFEST, MANIFEST_END, NAME, ROWS_MAX, Stored, check, framed,
};
use lz4_flex::block::{compress_into, get_maximum_output_size};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Longest line that is parsed as an answer (chosen: a set of a million contents, every second one missing).
const LINE_LEN_MAX: usize = 16 << 20;

/// Most times that contents are sent (chosen); contents are sent again if a node reports that they were damaged.
const ROUNDS_MAX: u32 = 4;
/// Longer contents are not packed (bytes; chosen): the image, which is written for each job, has eight bytes for each
/// block of a packed file.
pub(crate) const PACKED_LEN_MAX: u64 = 16 << 30;

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

/// Makes the stream of a set, one part after the other.
pub struct Sender<'a> {
    set: &'a Set,
    /// Whether the set's name, the first part of the stream, was sent.
    name_sent: bool,
    /// Whether a node has answered that it lacks the set.
    is_wanted: bool,
    /// The unsent part of the manifest; `None`: the end of the manifest was sent, too.
    manifest: Option<&'a [u8]>,
    /// The contents to be sent in this round; `None`: nodes have not asked yet.
    wanted: Option<Wanted>,
    packer: Packer,
}

struct Wanted {
    /// The numbers of contents that have not been announced yet.
    announce: Vec<u32>,
    cut: Cut,
    open: Option<Open>,
}

struct Open {
    file: File,
    hasher: blake3::Hasher,
}

impl<'a> Sender<'a> {
    pub fn new(set: &'a Set) -> Sender<'a> {
        Sender {
            set,
            name_sent: false,
            is_wanted: false,
            manifest: Some(set.manifest()),
            wanted: None,
            packer: Packer::new(),
        }
    }

    /// Lets the manifest be sent next.
    pub fn want_set(&mut self) {
        self.is_wanted = true;
    }

    /// Lets the contents of these numbers be sent next, and then the end of the contents.
    pub fn want(&mut self, numbers: &BTreeSet<u32>) {
        let (mut announce, mut cut) = (Vec::new(), Cut::default());
        for number in numbers {
            let content = self.set.contents().get(*number as usize);
            if content.and_then(|content| cut.push(*number, content.len)).is_some() {
                announce.push(*number);
            }
        }
        self.wanted = Some(Wanted { announce, cut, open: None });
    }

    /// Bytes of the contents that are left to be sent.
    pub fn bytes_left(&self) -> u64 {
        self.wanted.as_ref().map_or(0, |wanted| wanted.cut.left())
    }

    /// The next part of the stream; `None`: nothing until [`Sender::want_set`], then [`Sender::want`].
    ///
    /// # Errors
    /// A file cannot be read, or has changed since the set was made.
    pub fn next_part(&mut self) -> Result<Option<Vec<u8>>, Problem> {
        if !std::mem::replace(&mut self.name_sent, true) {
            return Ok(Some(framed(NAME, &[&self.set.digest()])));
        }
        if !self.is_wanted {
            return Ok(None);
        }
        if let Some(manifest) = self.manifest {
            let (part, rest) = manifest.split_at(manifest.len().min(PIECE_LEN));
            self.manifest = (!part.is_empty()).then_some(rest);
            return Ok(Some(framed(if part.is_empty() { MANIFEST_END } else { MANIFEST }, &[part])));
        }
        let Some(wanted) = &mut self.wanted else { return Ok(None) };
        if !wanted.announce.is_empty() {
            return Ok(Some(following(&mut wanted.announce)));
        }
        let piece = wanted.next_piece(self.set, &mut self.packer)?;
        if piece.is_none() {
            self.wanted = None;
        }
        Ok(Some(piece.unwrap_or_else(|| framed(END, &[]))))
    }
}

/// Makes the announcement of as many of these numbers as fit, and removes them.
fn following(numbers: &mut Vec<u32>) -> Vec<u8> {
    let mut rows: Vec<(u32, u32)> = Vec::new();
    let mut count = 0;
    for number in numbers.iter() {
        match rows.pop() {
            Some((first, len)) if first + len == *number => rows.push((first, len + 1)),
            Some(row) if rows.len() + 1 == ROWS_MAX => {
                rows.push(row);
                break;
            }
            row => {
                rows.extend(row);
                rows.push((*number, 1));
            }
        }
        count += 1;
    }
    numbers.drain(..count);
    let rows: Vec<u8> =
        rows.iter().flat_map(|(first, len)| [first.to_le_bytes(), len.to_le_bytes()].concat()).collect();
    framed(FOLLOWING, &[&check(0, &rows), &rows])
}

impl Wanted {
    /// The next piece of the contents; `None`: there is nothing left.
    fn next_piece(&mut self, set: &Set, packer: &mut Packer) -> Result<Option<Vec<u8>>, Problem> {
        let offset = self.cut.done();
        let clusters = self.cut.next_piece();
        if clusters.is_empty() {
            return Ok(None);
        }
        let mut buffer = [0; CLUSTER_LEN];
        let mut lens = 0;
        let mut body = vec![0; 4 * clusters.len()];
        for cluster in clusters {
            let (content, bytes) = (&set.contents()[cluster.content as usize], &mut buffer[..cluster.len]);
            self.read(content, set.path_of(content), cluster.offset, bytes)?;
            let stored = packer.pack(bytes, content.len);
            body[lens..lens + 4].copy_from_slice(&(stored.len() as u32).to_le_bytes());
            lens += 4;
            body.extend_from_slice(stored);
        }
        Ok(Some(framed(CLUSTERS, &[&offset.to_le_bytes(), &check(offset, &body), &body])))
    }

    /// Reads the next bytes of a content.
    fn read(&mut self, content: &Content, path: &Path, offset: u64, bytes: &mut [u8]) -> Result<(), Problem> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => Open::new(path)?,
        };
        let changes = || Problem::Changes(path.to_owned());
        open.file.read_exact(bytes).map_err(|_| changes())?;
        open.hasher.update(bytes);
        if offset + (bytes.len() as u64) < content.len {
            self.open = Some(open);
        } else if *open.hasher.finalize().as_bytes() != content.digest {
            return Err(changes());
        }
        Ok(())
    }
}

impl Open {
    fn new(path: &Path) -> Result<Open, Problem> {
        let file = open_file(path).map_err(|error| Problem::Io { path: path.to_owned(), error })?;
        Ok(Open { file, hasher: blake3::Hasher::new() })
    }
}

/// Packs clusters, where that saves a block.
pub(crate) struct Packer(Vec<u8>);

impl Packer {
    pub fn new() -> Packer {
        Packer(vec![0; get_maximum_output_size(CLUSTER_LEN)])
    }

    /// The stored form of a cluster that belongs to a content of `len` bytes.
    pub fn pack<'a>(&'a mut self, bytes: &'a [u8], len: u64) -> &'a [u8] {
        if bytes.iter().all(|byte| *byte == 0) {
            return &[];
        }
        // Packing cannot save a block: every cluster takes at least one.
        if bytes.len() as u64 <= BLOCK || len > PACKED_LEN_MAX {
            return bytes;
        }
        match compress_into(bytes, &mut self.0) {
            Ok(len) if Stored::of(bytes.len(), &self.0[..len]) == Some(Stored::Packed) => &self.0[..len],
            _ => bytes,
        }
    }
}
