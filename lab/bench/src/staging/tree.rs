//! The trees of files that are copied. For the relays, each tree is also one file: the contents of its files one after
//! the other.
//!
//! A tree of real files takes files of this machine in an order that a fixed seed gives, until it is as large as
//! wanted; the last file is cut. So the tree is the same in each run, as long as the machine's files do not change.
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use walkdir::WalkDir;

use crate::leftovers::Interrupt;

/// Folders from which real files are taken.
const SOURCES: [&str; 2] = ["/usr/lib", "/usr/share"];
/// A file is at most one part in this many of the tree, so that the tree does not consist of a few large files
/// (chosen).
const SHARE_MAX: u64 = 16;
/// Number of files in each folder of the tree of small files (chosen).
const IN_FOLDER: u32 = 100;
const SEED: u64 = 0x7769_7265_7570;
const BUFFER_LEN: usize = 1 << 18;

#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    /// `mixed`: real files; `random`: the same names and sizes with random bytes; `small`: many small files.
    pub kind: &'static str,
    pub folder: PathBuf,
    /// Path of the file that contains all contents one after the other.
    pub stream: PathBuf,
    pub files: u64,
    pub bytes: u64,
}

impl Tree {
    /// Creates the tree in `folder`.
    pub fn make(
        kind: &'static str,
        bytes: u64,
        small_files: u32,
        folder: &Path,
        interrupt: &Interrupt,
    ) -> io::Result<Tree> {
        let stream = folder.join(format!("{kind}.stream"));
        let mut out = BufWriter::with_capacity(BUFFER_LEN, File::create(&stream)?);
        let mut tree = Tree { kind, folder: folder.join(kind), stream, files: 0, bytes: 0 };
        let mut random = Rng::with_seed(SEED);
        let mut all = Vec::new();
        for (path, len) in chosen(bytes)? {
            let mut content = vec![0; len as usize];
            match kind {
                "random" => random.fill(&mut content),
                _ => File::open(&path)?.read_exact(&mut content)?,
            }
            let is_program = kind != "random" && fs::metadata(&path)?.mode() & 0o100 != 0;
            match kind {
                "small" => all.extend(content),
                _ => tree.add(&path, &content, is_program, &mut out, interrupt)?,
            }
        }
        for number in (0..small_files).filter(|_| kind == "small") {
            let at = |number: u32| (u64::from(number) * all.len() as u64 / u64::from(small_files)) as usize;
            let name = format!("/{}/{number}", number / IN_FOLDER);
            tree.add(Path::new(&name), &all[at(number)..at(number + 1)], false, &mut out, interrupt)?;
        }
        out.flush()?;
        Ok(tree)
    }

    /// Adds a file at this path below the tree's folder.
    fn add(
        &mut self,
        path: &Path,
        content: &[u8],
        is_program: bool,
        stream: &mut impl Write,
        interrupt: &Interrupt,
    ) -> io::Result<()> {
        if interrupt.is_set() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let place = self.folder.join(path.strip_prefix("/").unwrap_or(path));
        fs::create_dir_all(place.parent().unwrap_or(&place))?;
        fs::write(&place, content)?;
        fs::set_permissions(&place, fs::Permissions::from_mode(if is_program { 0o755 } else { 0o644 }))?;
        self.files += 1;
        self.bytes += content.len() as u64;
        stream.write_all(content)
    }
}

/// Chooses files of this machine with `bytes` bytes in all, each with the number of its bytes that are used.
fn chosen(bytes: u64) -> io::Result<Vec<(PathBuf, u64)>> {
    let is_small = |(_, len): &(PathBuf, u64)| *len <= (bytes / SHARE_MAX).max(1);
    let mut all: Vec<_> = SOURCES.iter().flat_map(|source| find(Path::new(source))).filter(is_small).collect();
    all.sort_unstable();
    Rng::with_seed(SEED).shuffle(&mut all);
    let mut left = bytes;
    let mut taken = Vec::new();
    for (path, len) in all {
        if left == 0 {
            break;
        }
        taken.push((path, len.min(left)));
        left = left.saturating_sub(len);
    }
    if left > 0 {
        let (from, there) = (SOURCES.join(" and "), (bytes - left) >> 20);
        return Err(io::Error::other(format!("{from} have files of {there} MiB only; choose fewer MiB")));
    }
    Ok(taken)
}

/// All files below a folder that can be read, with their sizes, except links, empty files and privileged files.
fn find(folder: &Path) -> impl Iterator<Item = (PathBuf, u64)> + use<> {
    WalkDir::new(folder).into_iter().flatten().filter_map(|entry| {
        let meta = entry.metadata().ok()?;
        let is_plain = meta.is_file() && meta.len() > 0 && meta.mode() & 0o6000 == 0;
        (is_plain && File::open(entry.path()).is_ok()).then(|| (entry.into_path(), meta.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Scratch;

    const KINDS: [&str; 3] = ["mixed", "random", "small"];

    fn made(kind: &'static str, scratch: &Scratch) -> Tree {
        Tree::make(kind, 1 << 20, 250, &scratch.file(""), &Interrupt::default()).unwrap()
    }

    #[test]
    fn trees_have_their_size_and_are_the_same_each_time() {
        let scratches = [0, 1].map(|_| Scratch::create_in(&std::env::temp_dir()).unwrap());
        for kind in KINDS {
            let [one, other] = scratches.each_ref().map(|scratch| made(kind, scratch));
            assert_eq!((one.bytes, one.files), (1 << 20, other.files), "{kind}");
            let [one, other] = [one, other].map(|tree| fs::read(tree.stream).unwrap());
            assert!(one == other && one.len() == 1 << 20, "{kind}");
        }
    }

    #[test]
    fn random_files_have_the_sizes_of_real_ones_and_small_files_are_as_many_as_wanted() {
        let scratch = Scratch::create_in(&std::env::temp_dir()).unwrap();
        let [mixed, random, small] = KINDS.map(|kind| made(kind, &scratch));
        assert_eq!((mixed.files, small.files), (random.files, 250));
        assert!(find(&small.folder).all(|(_, len)| (4194..=4195).contains(&len)));
        assert_eq!(find(&small.folder).count(), 250);
    }

    #[test]
    fn more_than_there_is_is_refused() {
        let refused = chosen(1 << 60).unwrap_err().to_string();
        assert!(refused.contains("choose fewer MiB"), "{refused}");
    }
}
