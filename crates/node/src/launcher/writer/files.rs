//! Opens the files to which the ranks' output is written.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use wireup_coll::Mapping;
use wireup_os::output_file::{self, Existing};
use wireup_proto::Origin;
use wireup_proto::io::Stream;
use wireup_wire::ids::Rank;
use wireup_wire::job::JobSpec;

/// Mode of a new file; the user's umask removes some of these bits.
const MODE: u32 = 0o666;

/// Options for the output of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Output {
    /// Folder for the files `rank.N.out` and `rank.N.err`; files of a job that a rank has spawned are
    /// `job.J.rank.N.out`.
    pub directory: Option<PathBuf>,
    /// Whether output of an earlier run in the folder may be replaced.
    pub overwrite: bool,
    /// Patterns for the names of the files for standard output and standard error.
    pub files: [Option<Pattern>; 2],
    /// Whether output that is written to files is also shown on the streams of this process.
    pub tee: bool,
    /// Whether standard error of ranks is merged into their standard output.
    pub merge: bool,
    /// Whether each line begins with the time of its arrival.
    pub timestamp: bool,
    /// Text with which each line begins.
    pub label: Option<Pattern>,
}

/// The reason why a write failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    pub text: String,
    /// Whether the reading end of the pipe behind standard output or error is closed.
    pub reader_gone: bool,
}

/// The files for the ranks' output on one stream.
#[derive(Clone)]
pub enum Files {
    None,
    In { directory: PathBuf, begun: Begun },
    Named { pattern: Pattern, places: Arc<Places>, begun: Begun },
}

/// Paths of the files that this run has already opened for output; any other existing file is from an earlier run.
pub type Begun = Arc<Mutex<HashSet<PathBuf>>>;

impl Files {
    pub fn new(output: &Output, stream: Stream, places: &Arc<Places>, begun: &Begun) -> Files {
        let index = stream as usize - 1;
        match (&output.directory, &output.files[index]) {
            (Some(directory), _) => Files::In { directory: directory.clone(), begun: Arc::clone(begun) },
            (None, Some(pattern)) => {
                Files::Named { pattern: pattern.clone(), places: Arc::clone(places), begun: Arc::clone(begun) }
            }
            (None, None) => Files::None,
        }
    }

    /// The file for the output of a rank; `None`: the output is not written to a file.
    pub fn path(&self, Origin { job, rank }: Origin, stream: Stream) -> Option<PathBuf> {
        let suffix = match stream {
            Stream::Out => "out",
            Stream::Err => "err",
        };
        let job = job.map(|job| format!("job.{job}.")).unwrap_or_default();
        match self {
            Files::None => None,
            Files::In { directory, .. } => Some(directory.join(format!("{job}rank.{rank}.{suffix}"))),
            // File names must differ between jobs, but the pattern does not contain the job, so the name is extended.
            Files::Named { pattern, places, .. } if job.is_empty() => Some(pattern.of(rank, places).into()),
            Files::Named { pattern, places, .. } => {
                Some(format!("{}.{job}rank.{rank}", pattern.of(rank, places)).into())
            }
        }
    }

    /// Opens a file to write at its end.
    pub fn open(&self, path: &Path) -> Result<File, Problem> {
        let problem = |error: io::Error| Problem {
            text: format!("cannot write {}: {error}", path.display()),
            reader_gone: false,
        };
        let begun = match self {
            Files::None => return output_file::open(path, Existing::Append, MODE).map_err(problem),
            Files::In { begun, .. } | Files::Named { begun, .. } => begun,
        };
        // The lock is held until the file is open: another stream may write to the same file.
        let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
        let existing = if begun.insert(path.to_owned()) && self.replaces(path) {
            if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                output_file::make_folder(folder).map_err(problem)?;
            }
            Existing::Replace
        } else {
            Existing::Append
        };
        output_file::open(path, existing, MODE).map_err(problem)
    }

    /// Whether a file that exists before this run's first write is replaced. In a folder, `make_folder` has already
    /// removed the files of the launched job's ranks.
    fn replaces(&self, path: &Path) -> bool {
        match self {
            Files::None => false,
            Files::In { .. } => path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"job.")),
            Files::Named { .. } => true,
        }
    }
}

/// A pattern in which a letter after a percent sign stands for a property of a rank; used for file names and for labels
/// of lines.
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
