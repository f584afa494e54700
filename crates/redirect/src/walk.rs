//! Resolves a path as the kernel does, following staged symbolic links, up to the first name that the map lacks.

use crate::map::{Hash, Map, StagedKind};
use crate::text::Text;
use core::ffi::CStr;

/// Most symbolic links that are followed, as in the kernel.
const LINKS_MAX: u32 = 40;

/// The buffers for resolving one path.
#[derive(Default)]
pub struct Walk {
    /// The folder of the copies, followed by the original path so far, without links, `.`, `..` and double slashes.
    path: Text,
    /// Length of the folder of the copies within `path`, in bytes.
    tree: usize,
    /// The part of the path that is not resolved yet.
    rest: Text,
    hash: Option<Hash>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The map does not know this path: the kernel gets the path as it is.
    Unknown,
    /// Use [`Walk::original`], which may or may not exist: the map knows nothing else about it.
    Original,
    /// Use [`Walk::copy`], which may or may not exist.
    Copy,
    /// The path does not exist: it leads through a closed folder that has no such name.
    Absent,
    /// A folder above something staged; use [`Walk::original`].
    Folder,
}

/// The kind of the path that has been resolved so far.
#[derive(Clone, Copy)]
enum State {
    /// A folder above something staged; `true`: it is closed.
    Way(bool),
    /// A path in a staged folder; the number is the length of that folder's path, including that of the copies' folder.
    Within(usize),
    /// A file that was staged on its own.
    File,
}

enum Step {
    Here,
    Up,
    Name,
}

/// What resolving a path needs from the system.
pub trait System {
    /// Writes the working folder's path; returns its length.
    fn working_folder(&self, into: &mut [u8]) -> Option<usize>;
    /// Whether there is a folder at this path.
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

    /// Appends the name at `from..to` of `rest` to the path.
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

    /// The state after `..` has led to a folder above something staged.
    fn way(&mut self, map: &Map<'_>) -> State {
        State::Way(matches!(self.find(map), Some((StagedKind::Closed, _))))
    }

    /// Appends the unresolved rest of the path, from offset `at` on.
    fn with_rest(&mut self, at: usize, found: Found) -> Found {
        let rest = &self.rest.as_bytes()[at..];
        let done = match rest.is_empty() {
            true => Some(()),
            false => self.path.push(b"/").and_then(|()| self.path.push(rest)),
        };
        // An empty path after the copies' folder stands for the root.
        let done =
            done.and_then(|()| if self.path.as_bytes().len() == self.tree { self.path.push(b"/") } else { Some(()) });
        if done.is_some() { found } else { Found::Unknown }
    }
}

/// Resolves a path. `folder`: the folder in which a relative path begins, if that is not the working folder. `follows`:
/// whether a symbolic link at the end is followed.
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

/// `None`: the kernel gets the path as the caller passed it.
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
        // A slash or a dot at the end requires a folder, so a link before it is followed.
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
                // In the kernel, `..` after a name that is no folder fails.
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
    /// Leaves the rest of the path to the kernel; `None` if the path so far is as the caller passed it.
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
