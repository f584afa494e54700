//! Fills in patterns in which a letter after a percent sign stands for a property of a rank; used for file names and
//! for labels of lines.

use std::fmt::Write as _;
use wireup_coll::Mapping;
use wireup_wire::ids::Rank;
use wireup_wire::job::JobSpec;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern(Vec<PatternPart>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum PatternPart {
    Text(String),
    Rank,
    /// The rank with leading zeros, so that the numbers of all ranks have the same length.
    PaddedRank,
    Host,
    Node,
    Size,
}

const LETTERS: &str = "after % write r (rank), 0r (rank with zeros), h (host), n (node), s (number of ranks) or %";

impl Pattern {
    /// # Errors
    /// A letter after `%` is unknown.
    pub fn parse(text: &str) -> Result<Pattern, &'static str> {
        let (mut parts, mut plain) = (Vec::new(), String::new());
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                plain.push(letter);
                continue;
            }
            let part = match letters.next() {
                Some('%') => {
                    plain.push('%');
                    continue;
                }
                Some('0') if letters.next() == Some('r') => PatternPart::PaddedRank,
                Some('r') => PatternPart::Rank,
                Some('h') => PatternPart::Host,
                Some('n') => PatternPart::Node,
                Some('s') => PatternPart::Size,
                _ => return Err(LETTERS),
            };
            parts.extend([PatternPart::Text(std::mem::take(&mut plain)), part]);
        }
        parts.push(PatternPart::Text(plain));
        Ok(Pattern(parts))
    }

    pub fn of(&self, rank: Rank, job: &Places) -> String {
        let mut text = String::new();
        for part in &self.0 {
            let written = match part {
                PatternPart::Text(plain) => text.write_str(plain),
                PatternPart::Rank => write!(text, "{rank}"),
                PatternPart::PaddedRank => write!(text, "{:0width$}", rank.0, width = digits(job.size)),
                PatternPart::Host => text.write_str(job.host(rank)),
                PatternPart::Node => write!(text, "{}", job.node(rank)),
                PatternPart::Size => write!(text, "{}", job.size),
            };
            written.expect("a string takes every text");
        }
        text
    }
}

/// Number of digits of the highest rank of a job of this size.
fn digits(size: u32) -> usize {
    size.saturating_sub(1).max(1).ilog10() as usize + 1
}

/// The nodes on which the ranks of a job run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    size: u32,
    hosts: Vec<String>,
    mapping: Option<Mapping>,
}

impl Places {
    pub fn of(job: &JobSpec) -> Places {
        let hosts: Vec<String> = job.nodes.iter().map(|node| node.name.clone()).collect();
        let mapping = Mapping::new(&job.blocks, job.job_size(), hosts.len() as u32).ok();
        Places { size: job.job_size(), hosts, mapping }
    }

    fn node(&self, rank: Rank) -> usize {
        self.mapping.as_ref().and_then(|mapping| mapping.place(rank)).map_or(0, |(node, _)| node.index())
    }

    fn host(&self, rank: Rank) -> &str {
        self.hosts.get(self.node(rank)).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::job::Block;

    #[test]
    fn letters_stand_for_something_of_the_rank() {
        let blocks = [Block { first_node: 0, nodes: 2, ppn: 6 }];
        let job = Places { size: 12, hosts: vec!["a".into(), "b".into()], mapping: Mapping::new(&blocks, 12, 2).ok() };
        let of = |text: &str, rank| Pattern::parse(text).unwrap().of(Rank(rank), &job);
        assert_eq!(of("out.%r.%h", 7), "out.7.b");
        assert_eq!(of("%0r/%n/%s%%", 3), "03/0/12%");
        assert_eq!(of("plain", 0), "plain");
        for wrong in ["%", "%x", "%0", "%0n"] {
            assert_eq!(Pattern::parse(wrong), Err(LETTERS), "{wrong}");
        }
        assert_eq!((digits(1), digits(10), digits(11)), (1, 1, 2));
    }
}
