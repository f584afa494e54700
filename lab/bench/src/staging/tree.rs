//! The trees that are copied, and for the relays each as one file: its contents one after the other.
//!
//! A tree of real files takes files of this machine in an order that a fixed seed gives, until it is as large as
//! wanted; the last one is cut. So it is the same in each run, as long as the machine's files are.
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::leftovers::Interrupt;

/// Where files are taken from.
const SOURCES: [&str; 2] = ["/usr/lib", "/usr/share"];
/// One file is at most this part of the tree, so that it does not consist of a few large ones (chosen).
const SHARE_MAX: u64 = 16;
/// Files in a folder of the tree of small files (chosen).
const IN_FOLDER: u32 = 100;
const SEED: u64 = 0x7769_7265_7570;
const BUFFER_LEN: usize = 1 << 18;

/// The kinds of trees: real files; their names and sizes with random bytes; many small files; for the agents' memory,
/// real files that are staged once.
pub const KINDS: [&str; 4] = ["mixed", "random", "small", MEMORY];
pub const MEMORY: &str = "memory";

#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    pub kind: &'static str,
    pub folder: PathBuf,
    /// All contents one after the other.
    pub stream: PathBuf,
    pub files: u64,
    pub bytes: u64,
}

impl Tree {
    /// Makes the tree in `folder`.
    ///
    /// # Errors
    /// This machine has not enough files, or a signal came.
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
        let mut random = Random(SEED);
        let mut all = Vec::new();
        for (path, len) in chosen(bytes)? {
            let mut content = random.bytes(if kind == "random" { len as usize } else { 0 });
            if kind != "random" {
                File::open(&path)?.take(len).read_to_end(&mut content)?;
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
        match tree.bytes == bytes {
            true => Ok(tree),
            false => Err(io::Error::other("a file has changed")),
        }
    }

    /// A file at this place below the tree's folder.
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

/// Files of this machine with `bytes` in all, and how much of each is taken.
fn chosen(bytes: u64) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut all = Vec::new();
    SOURCES.iter().for_each(|source| find(Path::new(source), &mut all));
    all.retain(|(_, len)| *len <= (bytes / SHARE_MAX).max(1));
    all.sort_unstable();
    let mut random = Random(SEED);
    let mut left = bytes;
    let mut taken = Vec::new();
    while left > 0 {
        let Some(last) = all.len().checked_sub(1) else {
            let there = (bytes - left) >> 20;
            return Err(io::Error::other(format!(
                "{} have files of {there} MiB only; choose fewer MiB",
                SOURCES.join(" and ")
            )));
        };
        let (path, len) = all.swap_remove((random.next() % (last as u64 + 1)) as usize);
        let len = len.min(left);
        left -= len;
        taken.push((path, len));
    }
    Ok(taken)
}

/// All files that can be read, without links and what is empty or privileged.
fn find(folder: &Path, all: &mut Vec<(PathBuf, u64)>) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        let is_plain = meta.is_file() && meta.len() > 0 && meta.mode() & 0o6000 == 0;
        if meta.is_dir() {
            find(&path, all);
        } else if is_plain && File::open(&path).is_ok() {
            all.push((path, meta.len()));
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Scratch;

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
        let [mixed, random, small, _] = KINDS.map(|kind| made(kind, &scratch));
        assert_eq!((mixed.files, small.files), (random.files, 250));
        let mut all = Vec::new();
        find(&small.folder, &mut all);
        assert!(all.iter().all(|(_, len)| (4194..=4195).contains(len)) && all.len() == 250);
    }

    #[test]
    fn more_than_there_is_is_refused() {
        let refused = chosen(1 << 60).unwrap_err().to_string();
        assert!(refused.contains("choose fewer MiB"), "{refused}");
    }
}
