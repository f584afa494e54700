//! The launcher's request for files: the standard input of all gatherers (the ranks of the gathering job).
//!
//! ```text
//!   +--------+-------------------+----------+----------+----
//!   | length | request: postcard | u32 LE   | u32 LE   | …
//!   | u32 LE |                   |          |          |
//!   +--------+-------------------+----------+----------+----
//!                                 the gatherers whose number is below the last of these may send
//! ```

use super::rule::Rule;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};

/// Gatherers that send at once (chosen): far fewer fill any network, and each costs the launcher a descriptor and the
/// memory of a piece.
pub const SENDERS_MAX: u32 = 64;
/// Longest request that is accepted, in bytes (chosen: the names of a million nodes).
const REQUEST_LEN_MAX: usize = 64 << 20;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    pub rules: Vec<Rule>,
    /// For each gatherer, the nodes whose files it sends.
    pub gatherers: Vec<GatheredNodes>,
    /// The working directories of the job's ranks.
    pub folders: Vec<Vec<u8>>,
}

/// The nodes whose files one gatherer sends.
pub type GatheredNodes = Vec<GatheredNode>;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GatheredNode {
    /// The number of the node in the job.
    pub node: u32,
    pub name: String,
    /// Runs of consecutive ranks with one working directory: first rank, count, index into `Request::folders`.
    pub ranks: Vec<(u32, u32, u32)>,
}

impl GatheredNode {
    pub fn new(node: u32, name: &str, ranks: impl IntoIterator<Item = (u32, u32)>) -> GatheredNode {
        let mut runs: Vec<(u32, u32, u32)> = Vec::new();
        for (rank, folder) in ranks {
            match runs.last_mut() {
                Some((first, count, own)) if *own == folder && *first + *count == rank => *count += 1,
                _ => runs.push((rank, 1, folder)),
            }
        }
        GatheredNode { node, name: name.to_owned(), ranks: runs }
    }

    /// The ranks, with the numbers of their folders.
    fn each_rank(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.ranks
            .iter()
            .flat_map(|(first, count, folder)| (0..*count).map(move |at| (first.saturating_add(at), *folder)))
    }

    /// The ranks for which a rule is evaluated: all, or the first rank of each working directory if neither pattern nor
    /// target depends on the rank.
    pub fn ranks_of(&self, rule: &Rule) -> impl Iterator<Item = (u32, u32)> + '_ {
        let (is_per_rank, mut last_folder) = (rule.is_per_rank(), None);
        self.each_rank().filter(move |(_, folder)| is_per_rank || last_folder.replace(*folder) != Some(*folder))
    }
}

impl Request {
    /// # Panics
    /// Never: a request is plain data.
    pub fn encode(&self) -> Vec<u8> {
        let body = postcard::to_allocvec(self).expect("plain data");
        [&(body.len() as u32).to_le_bytes()[..], &body].concat()
    }

    /// # Errors
    /// The launcher has gone, or these bytes are no request.
    pub fn read(input: &mut impl Read) -> io::Result<Request> {
        let len = number(input)? as usize;
        if len > REQUEST_LEN_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = Vec::new();
        if input.take(len as u64).read_to_end(&mut body)? < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        postcard::from_bytes(&body).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

/// The message that permits gatherers with a number below `below` to send.
pub fn permission(below: u32) -> [u8; 4] {
    below.to_le_bytes()
}

/// Waits until this gatherer may send.
///
/// # Errors
/// The launcher has gone.
pub fn await_permission(own: u32, input: &mut impl Read) -> io::Result<()> {
    while number(input)? <= own {}
    Ok(())
}

fn number(input: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_and_permission_is_waited_for() {
        let place = GatheredNode::new(4, "n4", [(8, 0), (9, 0), (10, 1), (20, 1)]);
        assert_eq!(place.ranks, [(8, 2, 0), (10, 1, 1), (20, 1, 1)]);
        assert_eq!(place.each_rank().collect::<Vec<_>>(), [(8, 0), (9, 0), (10, 1), (20, 1)]);
        let rules = vec![Rule::parse(b"a=>b").unwrap()];
        assert_eq!(place.ranks_of(&rules[0]).collect::<Vec<_>>(), [(8, 0), (10, 1)]);
        assert_eq!(place.ranks_of(&Rule::parse(b"{rank}=>b").unwrap()).count(), 4);
        let request = Request { rules, gatherers: vec![vec![place]], folders: vec![b"/w".to_vec()] };
        let bytes = [&request.encode()[..], &permission(2), &permission(4)].concat();
        let mut input = &bytes[..];
        assert_eq!(Request::read(&mut input).unwrap(), request);
        await_permission(1, &mut input).unwrap();
        await_permission(3, &mut input).unwrap();
        assert!(await_permission(4, &mut input).is_err());
        assert!(Request::read(&mut &bytes[..bytes.len() / 2]).is_err());
        assert!(Request::read(&mut &[255; 8][..]).is_err());
    }
}
