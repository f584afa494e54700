//! Shows staged files to the ranks: before the first rank starts, the keeper gets a mount namespace, in which the
//! copies are mounted over the originals. If the keeper may not mount, a library in the ranks shows the copies instead,
//! if the user asked for the library: the loader opens it in each rank (`libwireup-staged`), and it shows the copies
//! under the original names.
//!
//! The library is one of the staged files. The keeper writes a map of the staged paths, which the library reads. The
//! keeper itself starts the copies of staged programs, because it has not loaded the library.

use super::protocol::{Batch, Program};
use crate::staged_store;
use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use wireup_os::process::{self, Ended, Fork};
use wireup_os::spawn::{candidates, is_program};
use wireup_redirect::build::Names;
use wireup_redirect::program::{self, BEGIN_LEN};
use wireup_redirect::walk::System;
use wireup_redirect::{Found, Map, StagedKind, Walk, resolve};
use wireup_stage::Store;
use wireup_stage::set::{Entry, Set, is_library};
use wireup_stage::store::{InUse, Placeholders, Shown};
use wireup_stage::view::{self, Bare, BareFolder, Keep, Way, ways};
use wireup_wire::job::Staged;

/// Folders that remain usable when staged files are shown over them, because ranks are expected to create files there.
/// The job's working directories, `HOME` and `TMPDIR` are added to these.
const WORLD: [&str; 7] = ["/tmp", "/var/tmp", "/dev", "/dev/shm", "/run", "/var", "/home"];

/// The files that the processes of this keeper see.
pub enum View {
    /// The staged files are shown by mounts. While this value is held, the files and the placeholders that were made to
    /// show them are not removed.
    Staged(#[expect(dead_code, reason = "held until the end")] (InUse, Placeholders)),
    /// The staged files are shown by a library in the ranks. The text is the reason why mounts are impossible.
    Redirected(Redirected, String),
    /// The original files are used. The text is the reason why no staged files are shown.
    Originals(String),
    /// Perhaps only some of the staged files are shown, so no process may be started. The text is the reason why not
    /// all files are shown.
    Half(String),
}

/// Shows the staged files to this process and the processes that it starts. This process serves no other job
/// afterwards.
pub fn show(staged: &Staged, batch: &Batch) -> View {
    let folder = match staged_store::find(Path::new(OsStr::from_bytes(&staged.store))) {
        Ok(Some(folder)) => folder,
        Ok(None) => return View::Originals("this node has no folder of staged files".into()),
        Err(error) => return View::Originals(error.to_string()),
    };
    let kept = Store::open(&folder, u64::MAX).and_then(|store| store.use_set(&staged.set));
    let kept = match kept {
        Ok(Some(kept)) => kept,
        Ok(None) => return View::Originals(format!("they are not in {}", folder.display())),
        Err(error) => return View::Originals(error.to_string()),
    };
    let bare = bare(staged);
    // Ranks of nodes that share the machine must be able to read each other's memory.
    let alone = batch.processes.iter().all(|process| process.shares_session);
    if let Err(problem) = try_mounts(alone) {
        let why = if alone { "" } else { "; for virtual nodes that needs root" };
        let problem = format!("no mount namespace can be made here ({problem}){why}");
        if !staged.by_library {
            let switch = "--stage-library shows ranks the copies without mounts, by a library in each process";
            return View::Originals(format!("{problem}; {switch}"));
        }
        if let Err(neither) = suits(wireup_os::c_library::glibc().as_deref()) {
            return View::Originals(format!("{problem}, and {neither}"));
        }
        return match Redirected::new(kept, &keep(batch), &bare) {
            Ok(redirected) => View::Redirected(redirected, problem),
            Err(neither) => View::Originals(format!("{problem}, and {neither}")),
        };
    }
    if let Err(error) = kept.restore() {
        return View::Originals(error.to_string());
    }
    if let Err(error) = view::own_mounts(alone) {
        return View::Originals(error.to_string());
    }
    match view::plan(&kept.set, &keep(batch), &bare) {
        Err(error) => View::Originals(error.to_string()),
        Ok(planned) => {
            let mut placeholders = match staged_store::placeholders() {
                Ok(registry) => Placeholders::new(registry),
                Err(error) => return View::Originals(error.to_string()),
            };
            if let Err(error) = planned.make_places(&mut placeholders) {
                return View::Originals(error.to_string());
            }
            match kept.files().map(|files| planned.show(&files)) {
                Err(error) => View::Originals(error.to_string()),
                Ok(Err(error)) => View::Half(error.to_string()),
                Ok(Ok(_)) => View::Staged((kept, placeholders)),
            }
        }
    }
}

/// The directories in which the launcher has found nothing but staged files (`staged.bare`), if they are the same on
/// this node.
fn bare(staged: &Staged) -> Bare {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let folders = staged.bare.iter();
    Bare::here(folders.map(|bare| BareFolder { path: path(&bare.path), name: bare.name.clone(), mode: bare.mode }))
}

/// Exit code of the process that tries to mount, if the kernel does not permit the mount.
const NOT_PERMITTED: u8 = 1;
const CANNOT_MOVE: u8 = 2;

/// Tries to mount in another process: on some kernels, a process can enter a user namespace but not write its id maps,
/// and could not leave the namespace again.
fn try_mounts(alone: bool) -> Result<(), String> {
    match process::fork() {
        Ok(Fork::Child) => {
            let tried = view::own_mounts(alone).map_err(|_| NOT_PERMITTED);
            let tried = tried.and_then(|()| view::move_a_mount().map_err(|_| CANNOT_MOVE));
            process::leave(tried.map_or_else(i32::from, |()| 0))
        }
        Ok(Fork::Parent { child }) => match process::wait_for(child) {
            Ok(Ended::Exited(0)) => Ok(()),
            Ok(Ended::Exited(CANNOT_MOVE)) => Err("open_tree and move_mount fail: they need Linux 5.2".into()),
            Ok(_) => Err("it is not permitted".into()),
            Err(error) => Err(error.to_string()),
        },
        Err(error) => Err(error.to_string()),
    }
}

/// The folders in which the ranks can be expected to make files.
fn keep(batch: &Batch) -> Keep {
    let mut keep: Keep = WORLD.map(PathBuf::from).into();
    keep.insert(PathBuf::from(format!("/run/user/{}", rustix::process::geteuid().as_raw())));
    for program in &batch.programs {
        keep.insert(PathBuf::from(OsStr::from_bytes(&program.cwd)));
        for name in ["HOME", "TMPDIR"] {
            let value =
                program.env.iter().rev().find_map(|variable| {
                    variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(OsStr::from_bytes)
                });
            keep.extend(value.map(PathBuf::from));
        }
    }
    let real: Vec<PathBuf> = keep.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
    keep.extend(real);
    keep
}

/// A set of staged files that the library shows; the set is not removed while this value exists.
pub struct Redirected {
    map: Vec<u8>,
    shown: Shown,
    library: PathBuf,
    _kept: InUse,
}

/// How a staged program is started.
pub struct Start {
    /// Name of the program, for messages.
    pub path: Vec<u8>,
    /// File that the kernel executes.
    pub file: Vec<u8>,
    pub argv: Vec<Vec<u8>>,
    pub env: Vec<Vec<u8>>,
}

/// Whether programs of this node can load the library, which needs glibc 2.34: older versions have `dlsym` and other
/// functions in separate libraries, which not every program loads.
///
/// # Errors
/// The reason why programs cannot load the library.
pub fn suits(glibc: Option<&str>) -> Result<(), String> {
    const OLDEST: (u32, u32) = (2, 34);
    let Some(version) = glibc else {
        return Err("this wireup is not linked to glibc, which the library needs".into());
    };
    let mut numbers = version.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match found >= OLDEST {
        true => Ok(()),
        false => {
            Err(format!("--stage-library needs glibc {}.{} or newer, but the node has {version}", OLDEST.0, OLDEST.1))
        }
    }
}

impl Redirected {
    /// # Errors
    /// The reason why the files cannot be shown.
    pub fn new(kept: InUse, keep: &Keep, bare: &Bare) -> Result<Redirected, String> {
        if !kept.is_tree() {
            return Err("they are kept as an image, which only mounts can show".into());
        }
        let libraries = || kept.set.entries().filter(|entry| is_library(entry.path()));
        let library = libraries().find(|entry| matches!(entry.kind, wireup_stage::EntryKind::File { .. }));
        let Some(library) = library else {
            return Err("libwireup-staged.so.0 was neither next to wireup nor in ../lib when they were staged".into());
        };
        let tree = kept.tree().canonicalize().map_err(|error| format!("{}: {error}", kept.tree().display()))?;
        let ways = ways(&kept.set, keep, bare);
        all_exist(ways.keys())?;
        let library = kept.library(&library).map_err(|error| error.to_string())?;
        let shown = kept.protect().map_err(|error| error.to_string())?;
        let made = make(names(&kept.set, &ways, &tree), &tree, shown.folder(), &library);
        if made.is_err() {
            // The files made for this set are removed with the set.
            let _ = fs::remove_dir_all(shown.folder());
        }
        Ok(Redirected { map: made?, shown, library, _kept: kept })
    }

    /// The folder with the map, which is to be removed when the keeper ends.
    pub fn folder(&self) -> Vec<u8> {
        self.shown.folder().as_os_str().as_bytes().to_vec()
    }

    /// How the copy of a staged program is started. `None`: the program is not staged, or its original must be started.
    pub fn find(&self, program: &Program, search: Option<&[u8]>, cwd: &Path) -> Option<Start> {
        let name = program.argv.first()?;
        for path in candidates(name, search) {
            match self.resolve(&path, cwd) {
                Place::Copy(copy) if is_program(&copy) => return self.start(program, &path, &copy, cwd),
                Place::Original(original) if is_program(&original) => return None,
                Place::Copy(_) | Place::Original(_) | Place::Nowhere => {}
            }
        }
        None
    }

    fn start(&self, program: &Program, path: &[u8], copy: &Path, cwd: &Path) -> Option<Start> {
        let start =
            |file: Vec<u8>, argv| Some(Start { path: path.to_vec(), file, argv, env: self.with_library(program) });
        match Contents::open(copy)?.kind() {
            program::Program::Dynamic => start(bytes(copy), program.argv.clone()),
            // A program that cannot load the library is started as the copy only if there is no original.
            program::Program::Other if fs::symlink_metadata(cwd.join(OsStr::from_bytes(path))).is_ok() => None,
            program::Program::Other => Some(Start {
                path: path.to_vec(),
                file: bytes(copy),
                argv: program.argv.clone(),
                env: program.env.clone(),
            }),
            program::Program::Script { interpreter, argument } => {
                let file = match self.resolve(interpreter, cwd) {
                    Place::Copy(copy) if Contents::open(&copy)?.kind() == program::Program::Dynamic => bytes(&copy),
                    Place::Copy(_) | Place::Nowhere => return None,
                    Place::Original(_) => interpreter.to_vec(),
                };
                // As the kernel does for a script, the script's path replaces the first argument.
                let words = [Some(interpreter), argument, Some(path)].into_iter().flatten().map(<[u8]>::to_vec);
                start(file, words.chain(program.argv.iter().skip(1).cloned()).collect())
            }
        }
    }

    /// The environment of a program that is not staged; `None`: the library cannot be loaded into it.
    pub fn environment(&self, program: &Program, path: &Path) -> Option<Vec<Vec<u8>>> {
        let kind = Contents::open(path)?;
        (kind.kind() != program::Program::Other).then(|| self.with_library(program))
    }

    fn with_library(&self, program: &Program) -> Vec<Vec<u8>> {
        let mut env = program.env.clone();
        let library = self.library.as_os_str().as_bytes();
        // Both variables of the loader contain libraries, separated by colons.
        for name in [&b"LD_AUDIT="[..], b"LD_PRELOAD="] {
            let others = env.iter().rev().find_map(|variable| variable.strip_prefix(name)).unwrap_or_default();
            let between: &[u8] = if others.is_empty() { b"" } else { b":" };
            env.push([name, library, between, others].concat());
        }
        env.push([b"WIREUP_STAGED=", self.shown.folder().join(MAP).as_os_str().as_bytes()].concat());
        env
    }

    fn resolve(&self, path: &[u8], cwd: &Path) -> Place {
        let path_buf = |path: &CStr| PathBuf::from(OsStr::from_bytes(path.to_bytes()));
        let original = || Place::Original(cwd.join(OsStr::from_bytes(path)));
        let Some(map) = Map::read(&self.map) else { return original() };
        let mut walk = Walk::new();
        let folder = Some(cwd.as_os_str().as_bytes()).filter(|folder| folder.starts_with(b"/"));
        match resolve(&map, &mut walk, path, folder, true, &Here) {
            Found::Unknown => original(),
            Found::Original | Found::Folder => Place::Original(path_buf(walk.original())),
            Found::Copy => Place::Copy(path_buf(walk.copy())),
            Found::Absent => Place::Nowhere,
        }
    }
}

enum Place {
    Copy(PathBuf),
    Original(PathBuf),
    Nowhere,
}

/// File name of the map.
const MAP: &str = "map";
/// The link whose target identifies the mount namespace of this process.
const MOUNTS: &str = "/proc/self/ns/mnt";

/// Checks that the directories above staged files exist on this node. A program cannot work in a directory that the
/// node does not have, and programs that create files there would fail in unforeseen ways.
///
/// # Errors
/// A folder on the way to something staged is missing here.
fn all_exist<'a>(mut ways: impl Iterator<Item = &'a PathBuf>) -> Result<(), String> {
    match ways.find(|way| !way.is_dir()) {
        Some(way) => Err(format!("the folder {}, in which a staged file lies, does not exist here", way.display())),
        None => Ok(()),
    }
}

/// Writes the map; returns its content.
fn make(names: Names, tree: &Path, folder: &Path, library: &Path) -> Result<Vec<u8>, String> {
    let problem = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    // The loader's variables cannot express paths with these characters.
    if library.as_os_str().as_bytes().iter().any(|byte| b" :;$\t\n".contains(byte)) {
        let path = library.display();
        return Err(format!(
            "{path} has a character that the loader of programs does not accept; choose another --stage=DIR"
        ));
    }
    // The map contains the mount namespace, since in another one (a container's) the same paths mean other files.
    let own = Path::new(MOUNTS);
    let mounts = fs::read_link(own).map_err(|error| problem(own, error))?;
    let map = names.map(&bytes(tree), &bytes(library), &bytes(&mounts)).ok_or("their names do not fit in 4 GiB")?;
    let path = folder.join(MAP);
    fs::write(&path, &map).map_err(|error| problem(&path, error))?;
    Ok(map)
}

fn names(set: &Set, ways: &BTreeMap<PathBuf, Way>, tree: &Path) -> Names {
    let mut names = Names::default();
    // A directory of the launcher's machine may be a symbolic link on this node.
    let links: Vec<&PathBuf> = ways.keys().filter(|way| way.is_symlink()).collect();
    let is_behind_link = |path: &Path| links.iter().any(|link| path.starts_with(link));
    names.add(StagedKind::Tree, &bytes(tree), b"");
    let roots: Vec<Entry> =
        set.roots().filter(|root| !is_library(root.path()) && !is_behind_link(root.path())).collect();
    for root in &roots {
        match root.kind {
            wireup_stage::EntryKind::Folder => names.add(StagedKind::Folder, root.path, b""),
            wireup_stage::EntryKind::File { .. } => names.add(StagedKind::File, root.path, b""),
            wireup_stage::EntryKind::Link(_) | wireup_stage::EntryKind::Original => {}
        }
    }
    for entry in set.entries().filter(|entry| !is_behind_link(entry.path())) {
        match entry.kind {
            wireup_stage::EntryKind::Link(target) => names.add(StagedKind::Link, entry.path, target),
            wireup_stage::EntryKind::Original => names.add(StagedKind::Original, entry.path, b""),
            wireup_stage::EntryKind::Folder | wireup_stage::EntryKind::File { .. } => {}
        }
    }
    let copied =
        |entry: &Entry| matches!(entry.kind, wireup_stage::EntryKind::Folder | wireup_stage::EntryKind::File { .. });
    names.add_bits(set.entries().filter(copied).map(|entry| (entry.path, entry.mode)));
    for (folder, way) in ways.iter().filter(|(folder, _)| !is_behind_link(folder)) {
        match way {
            Way::Open => names.add(StagedKind::Open, &bytes(folder), b""),
            Way::Closed(others) => {
                names.add(StagedKind::Closed, &bytes(folder), b"");
                others
                    .iter()
                    .for_each(|name| names.add(StagedKind::Other, &[&bytes(folder), &b"/"[..], name].concat(), b""));
            }
        }
    }
    tree.ancestors()
        .skip(1)
        .filter(|folder| *folder != Path::new("/"))
        .for_each(|folder| names.add(StagedKind::Open, &bytes(folder), b""));
    names
}

/// The first bytes of a file, and the open file, to determine what kind of program it is.
struct Contents {
    begin: Vec<u8>,
    file: File,
}

impl Contents {
    fn open(path: &Path) -> Option<Contents> {
        let file = File::open(path).ok()?;
        let mut begin = vec![0; BEGIN_LEN];
        let len = file.read_at(&mut begin, 0).ok()?;
        begin.truncate(len);
        Some(Contents { begin, file })
    }

    fn kind(&self) -> program::Program<'_> {
        program::program(&self.begin, |at, into| self.file.read_at(into, at).unwrap_or(0))
    }
}

struct Here;

impl System for Here {
    fn working_folder(&self, into: &mut [u8]) -> Option<usize> {
        let folder = std::env::current_dir().ok()?;
        into.get_mut(..folder.as_os_str().len())?.copy_from_slice(folder.as_os_str().as_bytes());
        Some(folder.as_os_str().len())
    }

    fn is_folder(&self, path: &CStr) -> bool {
        Path::new(OsStr::from_bytes(path.to_bytes())).is_dir()
    }
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_enough_c_libraries_suit() {
        for version in ["2.34", "2.35-0ubuntu3", "2.40.9000", "3.0"] {
            assert_eq!(suits(Some(version)), Ok(()), "{version}");
        }
        for version in ["2.33", "2.17", "1.99", "", "2", "new"] {
            let problem = suits(Some(version)).unwrap_err();
            assert!(problem.contains("2.34 or newer") && problem.ends_with(version), "{problem}");
        }
        assert!(suits(None).is_err());
    }

    #[test]
    fn folders_on_the_way_must_exist() {
        assert_eq!(all_exist([PathBuf::from("/"), PathBuf::from("/proc")].iter()), Ok(()));
        let problem = all_exist([PathBuf::from("/proc"), PathBuf::from("/no/such")].iter()).unwrap_err();
        assert!(problem.contains("/no/such") && problem.contains("does not exist here"), "{problem}");
    }
}
