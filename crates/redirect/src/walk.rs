//! Resolves a path as the kernel does, following staged symbolic links, up to the first name that the map lacks.

use crate::map::{Hash, Map, StagedKind};
use crate::text::Text;
use core::ffi::CStr;

/// Most symbolic links that are followed, as in the kernel.
const LINKS_MAX: u32 = 40;

/// The memory of a walk: two paths.
#[derive(Default)]
pub struct Walk {
    /// The folder of the copies, then the original path so far: without links, `.`, `..` and double slashes.
    path: Text,
    /// Length of the folder of the copies within `path`, in bytes.
    tree: usize,
    /// What is still to be walked.
    rest: Text,
    hash: Option<Hash>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Nothing is known: the kernel gets the path as it is.
    Unknown,
    /// [`Walk::original`]: the kernel gets this path, with nothing else known about it.
    Original,
    /// [`Walk::copy`]: a copy, whether it exists or not.
    Copy,
    /// The path does not exist: it leads through a closed folder, which has no such name.
    Absent,
    /// A folder on the way to something staged; [`Walk::original`].
    Folder,
}

/// What kind of path the walk has reached so far.
#[derive(Clone, Copy)]
enum State {
    /// A folder on the way; whether it is closed.
    Way(bool),
    /// In a staged folder whose path has this length (with that of the copies).
    Within(usize),
    /// A file that was staged by itself.
    File,
}

enum Step {
    Here,
    Up,
    Name,
}

/// What the walk asks its system for.
pub trait System {
    /// Writes the working folder's path; returns its length.
    fn working_folder(&self, into: &mut [u8]) -> Option<usize>;
    /// Whether there is a folder.
    fn is_folder(&self, path: &CStr) -> bool;
}

impl Walk {
    pub const fn new() -> Walk {
        Walk { path: Text::new(), tree: 0, rest: Text::new(), hash: None }
    }

    pub fn copy(&self) -> &CStr {
        self.path.from(0)
    }

    pub fn original(&self) -> &CStr {
        self.path.from(self.tree)
    }

    fn restart(&mut self) {
        self.path.cut(self.tree);
        self.hash = Some(Hash::EMPTY);
    }

    fn hash(&mut self) -> Hash {
        let hash = self.hash.unwrap_or_else(|| Hash::EMPTY.with(&self.path.as_bytes()[self.tree..]));
        self.hash = Some(hash);
        hash
    }

    /// Appends a name of the rest.
    fn push(&mut self, from: usize, to: usize) -> Option<()> {
        let hash = self.hash();
        let name = &self.rest.as_bytes()[from..to];
        self.path.push(b"/")?;
        self.path.push(name)?;
        self.hash = Some(hash.with(b"/").with(name));
        Some(())
    }

    fn ascend(&mut self) {
        let slash = self.path.as_bytes()[self.tree..].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        self.path.cut(self.tree + slash);
        self.hash = None;
    }

    fn find<'m>(&mut self, map: &Map<'m>) -> Option<(StagedKind, &'m [u8])> {
        let hash = self.hash();
        map.find(&self.path.as_bytes()[self.tree..], hash)
    }

    /// What a folder on the way is, after a step up.
    fn way(&mut self, map: &Map<'_>) -> State {
        State::Way(matches!(self.find(map), Some((StagedKind::Closed, _))))
    }

    /// Appends the rest of the path, from `at` on, which was not resolved.
    fn with_rest(&mut self, at: usize, found: Found) -> Found {
        let rest = &self.rest.as_bytes()[at..];
        let done = match rest.is_empty() {
            true => Some(()),
            false => self.path.push(b"/").and_then(|()| self.path.push(rest)),
        };
        // The root itself.
        let done =
            done.and_then(|()| if self.path.as_bytes().len() == self.tree { self.path.push(b"/") } else { Some(()) });
        if done.is_some() { found } else { Found::Unknown }
    }
}

/// Finds what a path means. `folder`: where a relative path begins, if that is not the working folder. `follows`:
/// whether a link at the end is followed.
pub fn resolve(
    map: &Map<'_>,
    walk: &mut Walk,
    path: &[u8],
    folder: Option<&[u8]>,
    follows: bool,
    system: &impl System,
) -> Found {
    begin(map, walk, path, folder, system).and_then(|()| go(map, walk, follows, system)).unwrap_or(Found::Unknown)
}

fn begin(map: &Map<'_>, walk: &mut Walk, path: &[u8], folder: Option<&[u8]>, system: &impl System) -> Option<()> {
    walk.path.cut(0);
    walk.path.push(map.tree())?;
    walk.tree = map.tree().len();
    walk.hash = Some(Hash::EMPTY);
    walk.rest.cut(0);
    if path.is_empty() {
        return None;
    }
    if !path.starts_with(b"/") {
        match folder {
            Some(folder) => walk.rest.push(folder)?,
            None => walk.rest.fill(|into| system.working_folder(into))?,
        }
        walk.rest.push(b"/")?;
    }
    walk.rest.push(path)
}

/// `None`: nothing is known.
fn go(map: &Map<'_>, walk: &mut Walk, follows: bool, system: &impl System) -> Option<Found> {
    let mut state = State::Way(false);
    let (mut at, mut links, mut is_changed, mut is_folder) = (0, 0, false, false);
    loop {
        let rest = &walk.rest.as_bytes()[at..];
        let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
        let len = rest[slashes..].iter().position(|byte| *byte == b'/').unwrap_or(rest.len() - slashes);
        is_folder |= slashes > 0;
        if len == 0 {
            break;
        }
        let (from, to) = (at + slashes, at + slashes + len);
        at = to;
        // A slash or a dot at the end demands a folder: links are followed before it.
        let is_last = to == walk.rest.as_bytes().len();
        is_folder = false;
        let step = match &walk.rest.as_bytes()[from..to] {
            b"." => Step::Here,
            b".." => Step::Up,
            _ => Step::Name,
        };
        match (step, state) {
            (_, State::File) => return Some(walk.with_rest(from, Found::Copy)),
            (Step::Here, _) => is_folder = true,
            (Step::Up, State::Way(_)) => {
                walk.ascend();
                state = walk.way(map);
                is_folder = true;
            }
            (Step::Up, State::Within(root)) => {
                is_folder = true;
                // The kernel finds nothing behind a name that is no folder.
                if !system.is_folder(walk.copy()) {
                    return Some(walk.with_rest(from, Found::Copy));
                }
                walk.ascend();
                if walk.path.as_bytes().len() < root {
                    state = walk.way(map);
                }
            }
            (Step::Name, _) => {
                walk.push(from, to)?;
                match walk.find(map) {
                    Some((StagedKind::Folder, _)) => state = State::Within(walk.path.as_bytes().len()),
                    Some((StagedKind::File, _)) => state = State::File,
                    Some((StagedKind::Link, _)) if is_last && !follows => return Some(Found::Copy),
                    Some((StagedKind::Link, target)) => {
                        links += 1;
                        if links > LINKS_MAX || target.is_empty() {
                            return None;
                        }
                        walk.rest.replace_begin(at, target)?;
                        (at, is_changed) = (0, true);
                        match target.starts_with(b"/") {
                            true => walk.restart(),
                            false => walk.ascend(),
                        }
                        state = match state {
                            State::Within(root) if walk.path.as_bytes().len() >= root => state,
                            _ => walk.way(map),
                        };
                    }
                    Some((StagedKind::Open, _)) => state = State::Way(false),
                    Some((StagedKind::Closed, _)) => state = State::Way(true),
                    Some((StagedKind::Tree, _)) => {
                        walk.restart();
                        (state, is_changed) = (State::Way(false), true);
                    }
                    Some((StagedKind::Original | StagedKind::Other, _)) => return walk.kernel(at, is_changed),
                    Some((StagedKind::Bits, _)) | None => match state {
                        State::Within(_) => {}
                        State::Way(true) => return Some(Found::Absent),
                        State::Way(false) | State::File => return walk.kernel(at, is_changed),
                    },
                }
            }
        }
    }
    let found = if matches!(state, State::Way(_)) { Found::Folder } else { Found::Copy };
    if walk.path.as_bytes().len() == walk.tree || (is_folder && matches!(found, Found::Copy)) {
        walk.path.push(b"/")?;
    }
    Some(found)
}

impl Walk {
    /// The kernel goes on from here.
    fn kernel(&mut self, at: usize, is_changed: bool) -> Option<Found> {
        is_changed.then(|| self.rest_of(at))
    }

    fn rest_of(&mut self, at: usize) -> Found {
        let slashes = self.rest.as_bytes()[at..].iter().take_while(|byte| **byte == b'/').count();
        let is_folder = slashes > 0 && at + slashes == self.rest.as_bytes().len();
        match is_folder {
            true if self.path.push(b"/").is_some() => Found::Original,
            true => Found::Unknown,
            false => self.with_rest(at + slashes, Found::Original),
        }
    }
}

#[cfg(test)]
mod tests;
