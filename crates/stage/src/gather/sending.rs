//! The node's side of gathering files: finds the files that match the rules, and sends them.

use super::frames::{Begin, Frame, GatheredKind};
use super::request::{GatheredNode, Request, await_permission};
use super::rule::{PATH_LEN_MAX, is_pattern, kept_from, matches, parts, plain};
use crate::set::PIECE_LEN;
use rustix::fs::{FileType, Mode, OFlags, SeekFrom, Stat, fstat, lstat, open, readlink, seek, stat};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Most attempts to read a file that changes while it is read (chosen).
const READS_MAX: u32 = 3;

/// Sends the files of gatherer `own`, when the launcher permits it.
///
/// # Errors
/// The launcher has gone.
pub fn gather(own: u32, input: &mut impl Read, output: &mut impl Write) -> io::Result<()> {
    let request = Request::read(input)?;
    await_permission(own, input)?;
    let mut sending = Sending { output: Output { stream: output, frame: Vec::new() }, piece: vec![0; PIECE_LEN] };
    let places = request.gatherers.get(own as usize).map_or(&[][..], Vec::as_slice);
    // Virtual nodes share the machine's file system, so their rules may match the same files: each is sent once.
    let mut seen = BTreeSet::new();
    for (number, rule) in (0..).zip(&request.rules) {
        let mut count = 0;
        for place in places {
            for (rank, folder) in place.ranks_of(rule) {
                let Some(cwd) = request.folders.get(folder as usize) else { continue };
                let pattern = rule.pattern_of(rank, &place.name);
                let mut failed = Vec::new();
                let found = find(&pattern, Path::new(OsStr::from_bytes(cwd)), &mut failed);
                for text in failed {
                    sending.output.problem(place, text)?;
                }
                count += found.len() as u64;
                for found in found {
                    if seen.insert((found.path.clone(), rule.folder_of(rank, &place.name))) {
                        sending.send_match(For { rule: number, place, rank }, &found)?;
                    }
                }
            }
        }
        sending.output.put(&Frame::Matched { rule: number, count })?;
    }
    sending.output.put(&Frame::Done)?;
    sending.output.stream.flush()
}

/// A path that matches a pattern.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Match {
    path: PathBuf,
    /// The path that the file will have below the rule's target folder.
    name: Vec<u8>,
}

/// The paths that match a pattern, in order. Each folder that cannot be read adds a message to `failed`.
fn find(pattern: &[u8], folder: &Path, failed: &mut Vec<String>) -> Vec<Match> {
    let parts = parts(pattern);
    let kept = kept_from(&parts);
    let start = if pattern.first() == Some(&b'/') { Path::new("/") } else { folder };
    let mut found = vec![Match { path: start.to_owned(), name: Vec::new() }];
    for (index, part) in parts.iter().enumerate() {
        let mut next = Vec::new();
        for Match { path, name } in found {
            let with = |own: &[u8]| {
                let slash = if name.is_empty() { &b""[..] } else { b"/" };
                let name = if index < kept { Vec::new() } else { [&name, slash, own].concat() };
                Match { path: path.join(OsStr::from_bytes(own)), name }
            };
            if is_pattern(part) {
                match names_in(&path) {
                    Ok(names) => {
                        next.extend(names.iter().map(|own| own.as_bytes()).filter(|own| matches(part, own)).map(with));
                    }
                    // No path in it matches.
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                    Err(error) => failed.push(format!("{}: {error}", path.display())),
                }
            } else {
                next.push(with(&plain(part)));
            }
        }
        found = next;
    }
    found.retain(|found| found.path.symlink_metadata().is_ok());
    found
}

/// The names in a folder, in order.
fn names_in(folder: &Path) -> io::Result<Vec<OsString>> {
    let mut names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}

/// The rule, node and rank for which a file, folder or symbolic link is sent.
#[derive(Clone, Copy)]
struct For<'a> {
    rule: u32,
    place: &'a GatheredNode,
    rank: u32,
}

struct Output<'a, W> {
    stream: &'a mut W,
    frame: Vec<u8>,
}

impl<W: Write> Output<'_, W> {
    fn put(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        self.frame.clear();
        frame.encode(&mut self.frame);
        self.stream.write_all(&self.frame)
    }

    fn problem(&mut self, place: &GatheredNode, text: String) -> io::Result<()> {
        self.put(&Frame::Problem { node: place.node, text })
    }

    fn failed(&mut self, place: &GatheredNode, path: &Path, error: io::Error) -> io::Result<()> {
        self.problem(place, format!("{}: {error}", path.display()))
    }
}

struct Sending<'a, W> {
    output: Output<'a, W>,
    piece: Vec<u8>,
}

impl<W: Write> Sending<'_, W> {
    /// Sends a path that matches a rule. If it is a symbolic link, the link's target is sent.
    fn send_match(&mut self, who: For, Match { path, name }: &Match) -> io::Result<()> {
        match stat(path) {
            Ok(stat) if is_special(&stat) => {
                self.output.problem(who.place, format!("{}: neither a file nor a folder", path.display()))
            }
            Ok(stat) => self.send(who, path, name, &stat, true),
            Err(error) => self.output.failed(who.place, path, error.into()),
        }
    }

    /// Sends a file, folder or link. `is_named`: whether the path itself matches a rule, and is not merely in a folder
    /// that matches.
    fn send(&mut self, who: For, path: &Path, name: &[u8], stat: &Stat, is_named: bool) -> io::Result<()> {
        if name.len() > PATH_LEN_MAX || path.as_os_str().len() > PATH_LEN_MAX {
            return self.output.failed(who.place, path, ErrorKind::InvalidFilename.into());
        }
        let begin = |kind| begin_frame(who, path, name, stat, kind);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.send_file(who, path, name, is_named),
            FileType::Directory => {
                self.output.put(&begin(GatheredKind::Folder))?;
                self.send_folder(who, path, name)
            }
            FileType::Symlink => match readlink(path, Vec::new()) {
                Ok(target) => self.output.put(&begin(GatheredKind::Link(target.into_bytes()))),
                Err(error) => self.output.failed(who.place, path, error.into()),
            },
            // Pipes, sockets and devices in folders are left out.
            _ => Ok(()),
        }
    }

    fn send_folder(&mut self, who: For, path: &Path, name: &[u8]) -> io::Result<()> {
        let names = match names_in(path) {
            Ok(names) => names,
            Err(error) => return self.output.failed(who.place, path, error),
        };
        for inside in names {
            let at = path.join(&inside);
            match lstat(&at) {
                Ok(stat) => self.send(who, &at, &[name, b"/", inside.as_bytes()].concat(), &stat, false)?,
                // The file has just been removed.
                Err(Errno::NOENT) => {}
                Err(error) => self.output.failed(who.place, &at, error.into())?,
            }
        }
        Ok(())
    }

    fn send_file(&mut self, who: For, path: &Path, name: &[u8], follows: bool) -> io::Result<()> {
        let follow = if follows { OFlags::empty() } else { OFlags::NOFOLLOW };
        let file = match open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | follow, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(error) => return self.output.failed(who.place, path, error.into()),
        };
        for _ in 0..READS_MAX {
            let before = fstat(&file)?;
            let len = before.st_size as u64;
            self.output.put(&begin_frame(who, path, name, &before, GatheredKind::File { len }))?;
            let is_whole = match self.send_data(&file, len)? {
                Ok(is_whole) => is_whole,
                Err(error) => return self.output.failed(who.place, path, error),
            };
            if is_whole && fstat(&file).is_ok_and(|after| state(&after) == state(&before)) {
                return self.output.put(&Frame::End);
            }
        }
        self.output.problem(who.place, format!("{}: it changes while it is read", path.display()))
    }

    /// Sends the file's data. `false`: the file has become shorter. The inner error: the file cannot be read.
    fn send_data(&mut self, file: &File, len: u64) -> io::Result<io::Result<bool>> {
        let mut offset = 0;
        while let Some((from, to)) = data(file, offset, len) {
            offset = from;
            while offset < to {
                let room = PIECE_LEN.min((to - offset) as usize);
                let count = match file.read_at(&mut self.piece[..room], offset) {
                    Ok(0) => return Ok(Ok(false)),
                    Ok(count) => count,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => return Ok(Err(error)),
                };
                self.output.put(&Frame::data(offset, &self.piece[..count]))?;
                offset += count as u64;
            }
        }
        Ok(Ok(true))
    }
}

fn is_special(stat: &Stat) -> bool {
    !matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::Directory)
}

fn begin_frame(who: For, path: &Path, name: &[u8], stat: &Stat, kind: GatheredKind) -> Frame<'static> {
    Frame::Begin(Begin {
        rule: who.rule,
        node: who.place.node,
        rank: who.rank,
        name: name.to_vec(),
        source: path.as_os_str().to_owned().into_vec(),
        kind,
        mode: stat.st_mode & 0o777,
        modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
    })
}

fn state(stat: &Stat) -> (i64, i64, u64, i64, u64) {
    (stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec)
}

/// The position and the length of the next part of a file, from `offset` on, that is not a hole.
fn data(file: &File, offset: u64, len: u64) -> Option<(u64, u64)> {
    if offset >= len {
        return None;
    }
    let from = match seek(file, SeekFrom::Data(offset)) {
        Ok(from) => from,
        // The rest of the file is a hole.
        Err(Errno::NXIO) => return None,
        // This file system does not report holes.
        Err(_) => return Some((offset, len)),
    };
    let to = seek(file, SeekFrom::Hole(from)).unwrap_or(len).min(len);
    (from < to).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_keep_their_names_from_the_first_pattern_on() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &[u8]| folder.path().join(OsStr::from_bytes(name));
        for name in [&b"run/a/log"[..], b"run/b/log", b"run/b/other", b"run/.hidden/log", b"run/\xff/log", b"run/file"]
        {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), b"x").unwrap();
        }
        let find = |pattern: &[u8]| {
            let mut failed = Vec::new();
            let found = find(pattern, folder.path(), &mut failed);
            assert!(failed.is_empty(), "{failed:?}");
            found.into_iter().map(|found| found.name).collect::<Vec<_>>()
        };
        assert_eq!(find(b"run/*/log"), [&b"a/log"[..], b"b/log", b"\xff/log"]);
        assert_eq!(find(b"run/b/o*"), [b"other"]);
        assert_eq!(find(b"run/b/log"), [b"log"]);
        assert_eq!(find(b"./run//b"), [b"b"]);
        assert_eq!(find(b"run/b/../a/lo?"), [b"log"]);
        assert!(find(b"run/no*").is_empty() && find(b"no/such").is_empty());
        let absolute = [folder.path().as_os_str().as_bytes(), b"/run/[ab]/log"].concat();
        assert_eq!(find(&absolute), [&b"a/log"[..], b"b/log"]);
    }
}
