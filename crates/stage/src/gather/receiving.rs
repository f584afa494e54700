//! The launcher's side of gathering files: writes the files that the nodes send.
//!
//! No file is overwritten: if the target exists already, or two sources have the same target, a line names both and
//! the other files are still written.

use super::frames::{Begin, Frame, Frames, GatheredKind};
use super::request::{GatheredNode, SENDERS_MAX, permission};
use super::rule::Rule;
use super::target::{Folder, PartialFile};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Most target paths that are remembered to detect duplicates (chosen: twenty files of each rank of a large job).
const TARGETS_MAX: usize = 1 << 20;
/// Most problems whose texts are kept; further problems are only counted.
const PROBLEMS_MAX: usize = 1_000;

#[derive(Default)]
pub struct Gathering {
    rules: Vec<Rule>,
    /// The folder against which relative folders of the rules are resolved.
    base: PathBuf,
    /// Names of the nodes, by their numbers in the job.
    node_names: Vec<String>,
    gatherers: Vec<Gatherer>,
    /// The number of gatherers that have sent everything.
    ended: u32,
    targets: BTreeMap<PathBuf, Source>,
    /// Folders that were made, with the permission bits and times that [`Gathering::finish`] gives them.
    folders: BTreeMap<PathBuf, (u32, (i64, u32))>,
    matched: Vec<u64>,
    problems: Vec<String>,
    problem_count: u64,
    files: u64,
    bytes: u64,
}

/// The source of a gathered file: its node and its path there.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Source {
    node: u32,
    path: Vec<u8>,
    is_whole: bool,
}

#[derive(Default)]
struct Gatherer {
    name: String,
    frames: Frames,
    open: Option<Open>,
    /// Whether the gatherer has sent everything, or malformed bytes; bytes that arrive afterwards are ignored.
    has_ended: bool,
}

/// A file that is being received.
struct Open {
    part: PartialFile,
    begin: Begin,
    target: PathBuf,
}

impl Gathering {
    /// `base`: where relative folders of the rules lie. `node_names`: of the job.
    pub fn new(rules: &[Rule], base: &Path, node_names: Vec<String>) -> Gathering {
        Gathering {
            matched: vec![0; rules.len()],
            rules: rules.to_vec(),
            base: base.to_owned(),
            node_names,
            ..Gathering::default()
        }
    }

    /// Forgets earlier gatherers, and expects files from these, each given by the nodes whose files it sends. Returns a
    /// message for all of them that says which may send first.
    pub fn expect_gatherers<'a>(&mut self, gatherers: impl IntoIterator<Item = &'a [GatheredNode]>) -> [u8; 4] {
        let name = |places: &[GatheredNode]| places.first().map_or_else(String::new, |place| place.name.clone());
        let gatherer = |places| Gatherer { name: name(places), ..Gatherer::default() };
        self.gatherers = gatherers.into_iter().map(gatherer).collect();
        self.ended = 0;
        permission(SENDERS_MAX)
    }

    /// Handles output of a gatherer. Returns a message for all gatherers if one more of them may now send.
    pub fn output(&mut self, gatherer: u32, bytes: &[u8]) -> Option<[u8; 4]> {
        let index = gatherer as usize;
        let mut own = std::mem::take(self.gatherers.get_mut(index).filter(|own| !own.has_ended)?);
        own.frames.add(bytes);
        while !own.has_ended {
            let Gatherer { frames, open, has_ended, name } = &mut own;
            match frames.next_frame() {
                Ok(Some(frame)) => self.on_frame(frame, open, has_ended),
                Ok(None) => break,
                Err(malformed) => {
                    *has_ended = true;
                    let text = format!("node {name}: {malformed}");
                    self.problem(text);
                }
            }
        }
        let has_ended = own.has_ended;
        if has_ended {
            own.frames = Frames::default();
            self.abandon(&mut own.open);
            self.ended += 1;
        }
        self.gatherers[index] = own;
        has_ended.then(|| permission(SENDERS_MAX.saturating_add(self.ended)))
    }

    fn on_frame(&mut self, frame: Frame<'_>, open: &mut Option<Open>, has_ended: &mut bool) {
        if !matches!(frame, Frame::Data { .. } | Frame::End) {
            self.abandon(open);
        }
        match frame {
            Frame::Begin(begin) => *open = self.on_begin(begin),
            Frame::Data { offset, bytes, .. } => {
                let Some(own) = open else { return };
                let GatheredKind::File { len } = own.begin.kind else { return };
                if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > len) {
                    return self.give_up(open, "more arrived than was announced");
                }
                match own.part.write(offset, &bytes) {
                    Ok(()) => self.bytes += bytes.len() as u64,
                    Err(error) => self.give_up(open, &error.to_string()),
                }
            }
            Frame::End => open.take().into_iter().for_each(|own| self.complete(own)),
            Frame::Problem { node, text } => {
                let text = format!("node {}: {text}", self.name_of(node));
                self.problem(text);
            }
            Frame::Matched { rule, count } => {
                if let Some(matched) = self.matched.get_mut(rule as usize) {
                    *matched = matched.saturating_add(count);
                }
            }
            Frame::Done => *has_ended = true,
        }
    }

    /// Makes a folder or symbolic link; opens a file, whose data follow.
    fn on_begin(&mut self, begin: Begin) -> Option<Open> {
        let (rule, node) = (self.rules.get(begin.rule as usize)?, self.node_names.get(begin.node as usize)?);
        let folder = rule.folder_of(begin.rank, node);
        let base = self.base.join(OsString::from_vec(folder));
        let target = base.join(OsString::from_vec(begin.name.clone()));
        let names: Vec<&[u8]> = begin.name.split(|byte| *byte == b'/').collect();
        let (name, parents) = names.split_last()?;
        let source = Source { node: begin.node, path: begin.source.clone(), is_whole: false };
        let is_same = |other: &Source| (other.node, &other.path) == (source.node, &source.path);
        match self.targets.get(&target) {
            // Two rules match the same file, which has been gathered already.
            Some(other) if is_same(other) && other.is_whole => return None,
            Some(other) if is_same(other) => {}
            // Several nodes may send the same folder.
            Some(_) if begin.kind == GatheredKind::Folder => {}
            Some(other) => {
                let text = format!(
                    "{} has two sources: {} was gathered, {} was not; give each its own folder with {{node}} or \
                     {{rank}}",
                    target.display(),
                    self.shown(other.node, &other.path),
                    self.shown(begin.node, &begin.source),
                );
                self.problem(text);
                return None;
            }
            None if self.targets.len() >= TARGETS_MAX => {
                self.problem(format!("{}: more than {TARGETS_MAX} files", target.display()));
                return None;
            }
            None => {}
        }
        let made = Folder::open(&base, parents).and_then(|folder| {
            match &begin.kind {
                GatheredKind::Folder if folder.make_folder(name)? => {
                    self.folders.insert(target.clone(), (begin.mode, begin.modified));
                }
                GatheredKind::Folder => {}
                GatheredKind::Link(leads_to) => folder.make_link(name, leads_to, begin.modified)?,
                GatheredKind::File { .. } if folder.has(name) => return Err(io::ErrorKind::AlreadyExists.into()),
                GatheredKind::File { .. } => return PartialFile::create(folder).map(Some),
            }
            Ok(None)
        });
        match made {
            Ok(part) => {
                self.targets.entry(target.clone()).or_insert(Source { is_whole: part.is_none(), ..source });
                self.files += u64::from(matches!(begin.kind, GatheredKind::Link(_)));
                part.map(|part| Open { part, begin, target })
            }
            Err(error) => {
                self.refused(&begin, &target, &error);
                None
            }
        }
    }

    fn complete(&mut self, own: Open) {
        let Open { part, begin, target, .. } = own;
        let GatheredKind::File { len } = begin.kind else { return };
        let name = begin.name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        match part.finish(name, len, begin.mode, begin.modified) {
            Ok(()) => {
                self.files += 1;
                if let Some(source) = self.targets.get_mut(&target) {
                    source.is_whole = true;
                }
            }
            Err(error) => {
                self.targets.remove(&target);
                self.refused(&begin, &target, &error);
            }
        }
    }

    fn refused(&mut self, begin: &Begin, target: &Path, error: &io::Error) {
        let (target, source) = (target.display(), self.shown(begin.node, &begin.source));
        self.problem(match error.kind() {
            io::ErrorKind::AlreadyExists => format!("{target} exists already; {source} was not gathered"),
            _ => format!("{target}: {error}; {source} was not gathered"),
        });
    }

    /// Stops writing the file, which cannot be written, and reports `why`.
    fn give_up(&mut self, open: &mut Option<Open>, why: &str) {
        if let Some(own) = open {
            let (target, source) = (own.target.display(), self.shown(own.begin.node, &own.begin.source));
            let text = format!("{target}: {why}; {source} was not gathered");
            self.problem(text);
        }
        self.abandon(open);
    }

    /// The node has stopped sending the file, or begins again.
    fn abandon(&mut self, open: &mut Option<Open>) {
        if let Some(own) = open.take() {
            self.targets.remove(&own.target);
        }
    }

    /// Completes the gathering: folders get their permission bits and times, the innermost first.
    pub fn finish(&mut self) {
        for index in 0..self.gatherers.len() {
            let mut open = self.gatherers[index].open.take();
            self.abandon(&mut open);
        }
        for (path, (mode, modified)) in std::mem::take(&mut self.folders).into_iter().rev() {
            let names = path.parent().zip(path.file_name());
            let dressed = names.map(|(parent, name)| {
                Folder::open(parent, &[])?.dress(std::os::unix::ffi::OsStrExt::as_bytes(name), mode, modified)
            });
            if let Some(Err(error)) = dressed {
                self.problem(format!("{}: {error}", path.display()));
            }
        }
    }

    /// Adds a problem to the report; beyond `PROBLEMS_MAX` problems are only counted.
    pub fn problem(&mut self, text: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text.replace(['\n', '\r'], " "));
        }
    }

    /// The texts of the problems, and the number of problems in all.
    pub fn problems(&self) -> (&[String], u64) {
        (&self.problems, self.problem_count)
    }

    /// Whether this gatherer has sent everything.
    pub fn is_done(&self, gatherer: u32) -> bool {
        self.gatherers.get(gatherer as usize).is_some_and(|own| own.has_ended)
    }

    /// Whether all gatherers have sent everything.
    pub fn is_over(&self) -> bool {
        self.ended as usize == self.gatherers.len()
    }

    /// The number of gatherers that have sent everything.
    pub fn done(&self) -> u32 {
        self.ended
    }

    /// Files and links that were gathered, and bytes that have arrived.
    pub fn amount(&self) -> (u64, u64) {
        (self.files, self.bytes)
    }

    /// The rules that no file on any node has matched.
    pub fn unmatched(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().zip(&self.matched).filter(|(_, count)| **count == 0).map(|(rule, _)| rule)
    }

    fn name_of(&self, node: u32) -> &str {
        self.node_names.get(node as usize).map_or("", String::as_str)
    }

    fn shown(&self, node: u32, path: &[u8]) -> String {
        format!("{}:{}", self.name_of(node), String::from_utf8_lossy(path))
    }
}

#[cfg(test)]
mod tests;
