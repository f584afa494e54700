//! The ranks that share a barrier (PMI 1.2) or other collectives, in the clients' encodings and in the agents'.
//!
//! A PMI client writes `WORLD:7`, `NODE:7` or `3,0,1:7`: the members, and a number that distinguishes barriers of the
//! same ranks; a list is in any order. Our own client writes ranges, `0-7,9`, once for each group. Agents write
//!
//! ```text
//! +------+---------+-----------------+----------------------------------+   who: 0 the job, 1 the node, 2 a list;
//! | who  | tag     | runs            | runs times: gap, length          |   +16: not a barrier
//! | u8   | i64 LE  | varint, if list | varint, varint                   |   gap: number of ranks skipped since the
//! +------+---------+-----------------+----------------------------------+   previous run
//! ```
//!
//! Cost of a list: 2 bytes per run of consecutive ranks, as long as runs and gaps are short.

use crate::ids::Rank;
use crate::limits::{GROUP_RANKS_MAX, GROUP_RUNS_MAX};
use crate::varint;
use alloc::vec::Vec;
use core::fmt;
use thiserror::Error;

/// Identifies a barrier or a series of collectives: only the same members with the same tag and purpose complete one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Group {
    pub members: Members,
    pub tag: i64,
    pub purpose: Purpose,
}

/// What the members do together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Purpose {
    /// A barrier of PMI 1.2, after which members may get each other's pairs; or a fence or a group of PMIx.
    Barrier,
    /// Each member gets the values of all members.
    Gather,
}

/// Added to the first byte (`who`) of an encoded group that is not for barriers.
const GATHERS: u8 = 16;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Members {
    World,
    /// All ranks of the caller's node.
    Node,
    /// Some ranks: runs in ascending order, with gaps in between.
    List(Vec<Run>),
}

/// Consecutive ranks; at least one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Run {
    pub first: u32,
    pub count: u32,
}

/// A text that does not name a group of the job.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoGroup {
    #[error("the group's tag is no number")]
    Tag,
    #[error("a rank of the group is no number")]
    NotANumber,
    #[error("a rank of the group is not in the job")]
    OutOfRange,
    #[error("a rank is in the group twice")]
    Twice,
    #[error("the group lists more than {GROUP_RANKS_MAX} ranks or {GROUP_RUNS_MAX} ranges")]
    TooMany,
}

/// Bytes from an agent that are not a group.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("the group of a barrier is truncated, or not a group of the job")]
pub struct Malformed;

/// The tag in a group's text, even if the rest is invalid; 0 if there is none.
pub fn tag_of(text: &[u8]) -> Result<i32, NoGroup> {
    let Some(at) = text.iter().position(|byte| *byte == b':') else {
        return Ok(0);
    };
    core::str::from_utf8(&text[at + 1..]).ok().and_then(|tag| tag.parse().ok()).ok_or(NoGroup::Tag)
}

impl Group {
    /// Reads the text by which a client names a group.
    ///
    /// # Errors
    /// [`NoGroup`]: the request must be refused.
    pub fn parse(text: &[u8], job_size: u32) -> Result<Group, NoGroup> {
        let tag = tag_of(text)?;
        let members = match text.split(|byte| *byte == b':').next().unwrap_or_default() {
            b"WORLD" => Members::World,
            b"NODE" => Members::Node,
            list => Members::List(runs(list, job_size)?),
        };
        Ok(Group { members, tag: tag.into(), purpose: Purpose::Barrier })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let who = match self.members {
            Members::World => 0,
            Members::Node => 1,
            Members::List(_) => 2,
        };
        out.push(if self.purpose == Purpose::Gather { who + GATHERS } else { who });
        out.extend_from_slice(&self.tag.to_le_bytes());
        let Members::List(runs) = &self.members else {
            return;
        };
        varint::push(out, runs.len() as u64);
        let mut end = 0;
        for run in runs {
            varint::push(out, u64::from(run.first - end));
            varint::push(out, u64::from(run.count));
            end = run.first + run.count;
        }
    }

    /// Reads the group at the start of an agent's bytes; also returns how many bytes were read.
    ///
    /// # Errors
    /// [`Malformed`]: no correct agent sends this.
    pub fn decode(bytes: &[u8], job_size: u32) -> Result<(Group, usize), Malformed> {
        let (who, rest) = bytes.split_first().ok_or(Malformed)?;
        let (tag, rest) = rest.split_first_chunk().ok_or(Malformed)?;
        let tag = i64::from_le_bytes(*tag);
        let purpose = if who & GATHERS == 0 { Purpose::Barrier } else { Purpose::Gather };
        let mut at = bytes.len() - rest.len();
        let members = match who & !GATHERS {
            0 => Members::World,
            1 => Members::Node,
            2 => {
                let mut number = || {
                    let (number, len) = varint::read(&bytes[at..]).map_err(|_| Malformed)?;
                    at += len;
                    Ok(number)
                };
                let count = number()?;
                let (mut runs, mut end) = (Vec::new(), 0);
                for _ in 0..count {
                    let (gap, length) = (number()?, number()?);
                    let first = end + gap;
                    end = first + length;
                    if (gap == 0 && !runs.is_empty()) || length == 0 || end > u64::from(job_size) {
                        return Err(Malformed);
                    }
                    runs.push(Run { first: first as u32, count: length as u32 });
                }
                if runs.is_empty() {
                    return Err(Malformed);
                }
                Members::List(runs)
            }
            _ => return Err(Malformed),
        };
        Ok((Group { members, tag, purpose }, at))
    }
}

impl Members {
    /// Reads ranges in ascending order, such as `0-7,9`.
    ///
    /// # Errors
    /// [`NoGroup`]: the request must be refused.
    pub fn ranges(text: &[u8], job_size: u32) -> Result<Members, NoGroup> {
        let number = |word: &[u8]| core::str::from_utf8(word).ok().and_then(|word| word.parse::<u32>().ok());
        let mut runs: Vec<Run> = Vec::new();
        for word in text.split(|byte| *byte == b',') {
            let mut ends = word.splitn(2, |byte| *byte == b'-').map(number);
            let first = ends.next().flatten().ok_or(NoGroup::NotANumber)?;
            let last = ends.next().map_or(Ok(first), |last| last.ok_or(NoGroup::NotANumber))?;
            if last < first || runs.last().is_some_and(|run| first < run.first + run.count) {
                return Err(NoGroup::Twice);
            }
            if last >= job_size {
                return Err(NoGroup::OutOfRange);
            }
            if runs.len() == GROUP_RUNS_MAX {
                return Err(NoGroup::TooMany);
            }
            match runs.last_mut().filter(|run| run.first + run.count == first) {
                Some(run) => run.count = last + 1 - run.first,
                None => runs.push(Run { first, count: last + 1 - first }),
            }
        }
        Ok(Members::List(runs))
    }

    /// The ranks of a list or of the job, in ascending order; those of a node are not known here.
    pub fn ranks(&self, job_size: u32) -> impl Iterator<Item = Rank> {
        let whole = [Run { first: 0, count: job_size }];
        let runs = if let Members::List(runs) = self { runs.clone() } else { whole.into() };
        runs.into_iter().flat_map(|run| run.first..run.first + run.count).map(Rank)
    }

    pub fn contains(&self, rank: Rank) -> bool {
        match self {
            Members::World | Members::Node => true,
            Members::List(runs) => {
                let at = runs.partition_point(|run| run.first <= rank.0);
                at > 0 && rank.0 - runs[at - 1].first < runs[at - 1].count
            }
        }
    }
}

/// The ranks of a list as runs in ascending order; a duplicate is an error.
fn runs(list: &[u8], job_size: u32) -> Result<Vec<Run>, NoGroup> {
    let mut ranks = Vec::new();
    for word in list.split(|byte| *byte == b',') {
        if ranks.len() == GROUP_RANKS_MAX {
            return Err(NoGroup::TooMany);
        }
        let rank = core::str::from_utf8(word).ok().and_then(|word| word.parse::<u32>().ok());
        let rank = rank.ok_or(NoGroup::NotANumber)?;
        if rank >= job_size {
            return Err(NoGroup::OutOfRange);
        }
        ranks.push(rank);
    }
    ranks.sort_unstable();
    let mut runs: Vec<Run> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some(last) if rank < last.first + last.count => return Err(NoGroup::Twice),
            Some(last) if rank == last.first + last.count => last.count += 1,
            _ => runs.push(Run { first: rank, count: 1 }),
        }
    }
    Ok(runs)
}

/// Writes the members for messages: `ranks 0-3,8`.
impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// A list in a message is cut after this many runs.
        const RUNS_SHOWN: usize = 8;
        let runs = match self {
            Members::World => return f.write_str("all ranks"),
            Members::Node => return f.write_str("the ranks of a node"),
            Members::List(runs) => runs,
        };
        f.write_str(if let [Run { count: 1, .. }] = runs[..] { "rank " } else { "ranks " })?;
        for (at, run) in runs.iter().take(RUNS_SHOWN).enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match run.count {
                1 => write!(f, "{comma}{}", run.first)?,
                count => write!(f, "{comma}{}-{}", run.first, run.first + count - 1)?,
            }
        }
        if runs.len() > RUNS_SHOWN { f.write_str(",...") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;
    use std::string::String;
    use std::vec;

    fn parse(text: &str) -> Result<Group, NoGroup> {
        Group::parse(text.as_bytes(), 100)
    }

    fn list(runs: &[(u32, u32)]) -> Members {
        Members::List(runs.iter().map(|&(first, count)| Run { first, count }).collect())
    }

    #[test]
    fn group_texts_of_clients_are_parsed() {
        assert_eq!(parse("WORLD:7"), Ok(Group { members: Members::World, tag: 7, purpose: Purpose::Barrier }));
        assert_eq!(
            parse("NODE:-2147483648"),
            Ok(Group { members: Members::Node, tag: i32::MIN.into(), purpose: Purpose::Barrier })
        );
        assert_eq!(parse("WORLD"), Ok(Group { members: Members::World, tag: 0, purpose: Purpose::Barrier }));
        assert_eq!(
            parse("9,3,1,2,99:0"),
            Ok(Group { members: list(&[(1, 3), (9, 1), (99, 1)]), tag: 0, purpose: Purpose::Barrier })
        );
        assert_eq!(parse("0:5").unwrap().members, list(&[(0, 1)]));
    }

    #[test]
    fn invalid_group_texts_give_distinct_errors() {
        for text in ["1,2:", "1,2:x", "1:2:3", "WORLD:9999999999"] {
            assert_eq!(parse(text), Err(NoGroup::Tag), "{text}");
        }
        for text in ["", ":1", "1,,2:1", "1,-1:1", "a:1", "world:1", "1,2,:1"] {
            assert_eq!(parse(text), Err(NoGroup::NotANumber), "{text}");
        }
        assert_eq!(parse("0,100:1"), Err(NoGroup::OutOfRange));
        assert_eq!(parse("4,3,2,3:1"), Err(NoGroup::Twice));
        let many: String = (0..=GROUP_RANKS_MAX).map(|rank| rank.to_string() + ",").collect();
        assert_eq!(Group::parse(many.trim_end_matches(',').as_bytes(), u32::MAX), Err(NoGroup::TooMany));
        assert_eq!((tag_of(b"0,100:12"), tag_of(b"0,1"), tag_of(b"0:")), (Ok(12), Ok(0), Err(NoGroup::Tag)));
    }

    #[test]
    fn the_byte_layout_matches_the_documentation() {
        let mut out = Vec::new();
        Group { members: list(&[(3, 2), (9, 1)]), tag: 258, purpose: Purpose::Barrier }.encode(&mut out);
        assert_eq!(out, [2, 2, 1, 0, 0, 0, 0, 0, 0, 2, 3, 2, 4, 1]);
        let gather = Group { members: Members::World, tag: -1, purpose: Purpose::Gather };
        out.clear();
        gather.encode(&mut out);
        assert_eq!((out[0], Group::decode(&out, 9)), (16, Ok((gather, 9))));
        let tagged = |who: u8, rest: &[u8]| [&[who, 0, 0, 0, 0, 0, 0, 0, 0], rest].concat();
        for wrong in [
            vec![],
            vec![2; 8],
            tagged(3, &[]),
            tagged(2, &[0]),
            tagged(2, &[1, 3]),
            tagged(2, &[1, 3, 0]),
            tagged(32, &[]),
        ] {
            assert_eq!(Group::decode(&wrong, 100), Err(Malformed), "{wrong:?}");
        }
        assert_eq!(Group::decode(&tagged(2, &[2, 3, 2, 0, 1]), 100), Err(Malformed), "two adjacent runs");
        assert_eq!(Group::decode(&tagged(2, &[1, 99, 2]), 100), Err(Malformed), "a rank beyond the job");
    }

    #[test]
    fn ranges_of_our_client_are_parsed() {
        let ranges = |text: &str| Members::ranges(text.as_bytes(), 100);
        assert_eq!(ranges("0-3,8,9,11-99"), Ok(list(&[(0, 4), (8, 2), (11, 89)])));
        assert_eq!(ranges("5").unwrap().ranks(100).collect::<Vec<_>>(), [Rank(5)]);
        for (text, problem) in [
            ("", NoGroup::NotANumber),
            ("1-", NoGroup::NotANumber),
            ("1-2-3", NoGroup::NotANumber),
            ("3-1", NoGroup::Twice),
            ("4,3", NoGroup::Twice),
            ("0-100", NoGroup::OutOfRange),
            ("0-4294967295", NoGroup::OutOfRange),
        ] {
            assert_eq!(ranges(text), Err(problem), "{text}");
        }
        let many: Vec<String> = (0..=GROUP_RUNS_MAX).map(|at| (2 * at).to_string()).collect();
        assert_eq!(Members::ranges(many.join(",").as_bytes(), u32::MAX), Err(NoGroup::TooMany));
    }

    #[test]
    fn groups_are_displayed_as_rank_ranges() {
        assert_eq!(list(&[(0, 4), (8, 1)]).to_string(), "ranks 0-3,8");
        assert_eq!(list(&[(7, 1)]).to_string(), "rank 7");
        let many: Vec<_> = (0..9).map(|at| (at * 2, 1)).collect();
        assert!(list(&many).to_string().ends_with("12,14,..."));
    }

    proptest! {
        #[test]
        fn any_rank_list_round_trips(ranks in proptest::collection::btree_set(0u32..5000, 1..60), tag: i32, tail: u8) {
            let mut backwards: Vec<u32> = ranks.iter().copied().collect();
            backwards.reverse();
            let text: Vec<String> = backwards.iter().map(u32::to_string).collect();
            let group = Group::parse(std::format!("{}:{tag}", text.join(",")).as_bytes(), 5000).unwrap();
            prop_assert!((0..5000).all(|rank| group.members.contains(Rank(rank)) == ranks.contains(&rank)));
            let mut bytes = Vec::new();
            group.encode(&mut bytes);
            let len = bytes.len();
            bytes.push(tail);
            prop_assert_eq!(Group::decode(&bytes, 5000), Ok((group, len)));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic_the_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok((group, len)) = Group::decode(&bytes, 1000) {
                let mut again = Vec::new();
                group.encode(&mut again);
                prop_assert!(len <= bytes.len() && again.len() <= len);
            }
            let _ = Group::parse(&bytes, 1000);
        }
    }
}
