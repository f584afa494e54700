//! The shared libraries of a program, found as the loader will find them.
//!
//! The search order for a library that an object names: the `RPATH` of the object and of the objects that needed it (each only if it has no
//! `RUNPATH`), `LD_LIBRARY_PATH`, the object's `RUNPATH`, the system's list, the system's folders. The C library and the language runtimes
//! are known and not examined. Each file is read once; their number is bounded.

use super::elf::{Content, Dynamic};
use super::ld_cache::LdCache;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// Objects that are examined; for a program with more, the result covers those (chosen: four times what Open MPI needs).
const OBJECTS_MAX: usize = 256;
/// The system's folders, for systems whose list is missing or out of date.
const FOLDERS: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
/// Libraries that start programs or load libraries for their own purposes, by the beginning of their names.
const RUNTIMES: [&str; 16] = [
    "ld-linux",
    "libc.",
    "libm.",
    "libmvec.",
    "libdl.",
    "libpthread.",
    "librt.",
    "libutil.",
    "libresolv.",
    "libgcc_s.",
    "libstdc++.",
    "libgfortran.",
    "libquadmath.",
    "libgomp.",
    "libz.",
    "linux-vdso",
];

/// One library in a program's closure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Library {
    pub name: String,
    /// The object that needs it: the program, or the file name of a library.
    pub by: String,
    /// `None` if the loader will not find it, so that the program does not start here.
    pub path: Option<PathBuf>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Closure {
    /// In the order in which the loader finds them, each name once.
    pub libraries: Vec<Library>,
    /// The program or one of its libraries may start other programs or load further libraries.
    pub starts_others: bool,
}

/// Where the loader looks, apart from the paths in the objects.
pub struct Search<'a> {
    /// `LD_LIBRARY_PATH` and `LD_PRELOAD` of the ranks.
    pub library_path: Vec<PathBuf>,
    pub preload: Vec<String>,
    pub cache: &'a LdCache,
}

/// An object whose libraries are still to be found.
struct Object {
    name: String,
    dynamic: Dynamic,
    /// Its own, then that of the objects that needed it; `$ORIGIN` is replaced.
    rpath: Vec<PathBuf>,
    runpath: Vec<PathBuf>,
}

impl Object {
    fn new(path: &Path, dynamic: Dynamic, inherited: &[PathBuf]) -> Object {
        let origin = path.parent().unwrap_or(Path::new("/"));
        let expand =
            |paths: &[String]| -> Vec<PathBuf> { paths.iter().filter_map(|path| expand(path, origin)).collect() };
        let runpath = expand(&dynamic.runpath);
        // The `RPATH` of an object with a `RUNPATH` is ignored, also for the objects that it needs.
        let mut rpath = if runpath.is_empty() { expand(&dynamic.rpath) } else { Vec::new() };
        rpath.extend(inherited.iter().cloned());
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Object { name, dynamic, rpath, runpath }
    }
}

/// Replaces `$ORIGIN` and `${ORIGIN}` by the object's folder. `None` for variables that only the loader knows (`$LIB`, `$PLATFORM`).
fn expand(path: &str, origin: &Path) -> Option<PathBuf> {
    let origin = origin.to_str()?;
    let path = path.replace("${ORIGIN}", origin).replace("$ORIGIN", origin);
    (!path.contains('$')).then(|| path.into())
}

/// All libraries of the program at `path`, whose dynamic section is `dynamic`.
pub fn closure(path: &Path, dynamic: Dynamic, search: &Search) -> Closure {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let mut found = Closure { starts_others: dynamic.starts_others, ..Closure::default() };
    let mut seen = BTreeSet::new();
    let mut program = Object::new(&path, dynamic, &[]);
    program.dynamic.needed.splice(0..0, search.preload.iter().cloned());
    let mut queue = VecDeque::from([program]);
    while let Some(object) = queue.pop_front() {
        for name in &object.dynamic.needed {
            if !seen.insert(name.clone()) || seen.len() > OBJECTS_MAX {
                continue;
            }
            let is_runtime = RUNTIMES.iter().any(|runtime| name.starts_with(runtime));
            let path = if is_runtime { None } else { find(name, &object, search) };
            if let Some(path) = &path
                && let Content::Dynamic(dynamic) = Content::of(path)
            {
                found.starts_others |= dynamic.starts_others;
                let inherited = if object.runpath.is_empty() { &object.rpath[..] } else { &[] };
                queue.push_back(Object::new(path, dynamic, inherited));
            }
            found.libraries.push(Library { name: name.clone(), by: object.name.clone(), path });
        }
    }
    found
}

fn find(name: &str, object: &Object, search: &Search) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let rpath = if object.runpath.is_empty() { &object.rpath[..] } else { &[] };
    let folders = rpath.iter().chain(&search.library_path).chain(&object.runpath);
    let in_folder = |folder: &Path| Some(folder.join(name)).filter(|path| path.is_file());
    folders
        .map(PathBuf::as_path)
        .find_map(in_folder)
        .or_else(|| search.cache.find(name).filter(|path| path.is_file()))
        .or_else(|| FOLDERS.iter().map(Path::new).find_map(in_folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_expands_to_the_folder_of_the_object() {
        let origin = Path::new("/opt/mpi/lib");
        assert_eq!(expand("$ORIGIN/openmpi", origin), Some("/opt/mpi/lib/openmpi".into()));
        assert_eq!(expand("${ORIGIN}/../x", origin), Some("/opt/mpi/lib/../x".into()));
        assert_eq!(expand("/usr/$LIB", origin), None);
    }

    #[test]
    fn a_runpath_hides_rpaths_and_is_not_inherited() {
        let dynamic = |rpath: &[&str], runpath: &[&str]| Dynamic {
            rpath: rpath.iter().map(|path| (*path).to_owned()).collect(),
            runpath: runpath.iter().map(|path| (*path).to_owned()).collect(),
            ..Dynamic::default()
        };
        let program = Object::new(Path::new("/a/b"), dynamic(&["/r"], &[]), &[]);
        assert_eq!(program.rpath, [PathBuf::from("/r")]);
        let library = Object::new(Path::new("/a/l"), dynamic(&["$ORIGIN/s"], &[]), &program.rpath);
        assert_eq!(library.rpath, [PathBuf::from("/a/s"), "/r".into()]);
        let other = Object::new(Path::new("/a/l"), dynamic(&["/ignored"], &["/t"]), &[]);
        assert_eq!((other.rpath, other.runpath), (vec![], vec![PathBuf::from("/t")]));
    }

    #[test]
    fn libraries_are_found_as_the_loader_finds_them() {
        let folder = std::env::temp_dir().join(format!("wireup-closure-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("libown.so.1"), "").expect("a file");
        let cache = LdCache::read();
        let search =
            |library_path: Vec<PathBuf>| Search { library_path, preload: vec!["libown.so.1".into()], cache: &cache };
        let dynamic = Dynamic { needed: vec!["libc.so.6".into(), "libown.so.1".into()], ..Dynamic::default() };
        let names = |library_path| {
            let found = closure(Path::new("/bin/true"), dynamic.clone(), &search(library_path));
            found.libraries.into_iter().map(|library| (library.name, library.path)).collect::<Vec<_>>()
        };
        let own = folder.join("libown.so.1");
        assert_eq!(
            names(vec![folder.clone()]),
            [("libown.so.1".to_owned(), Some(own)), ("libc.so.6".to_owned(), None)]
        );
        assert_eq!(names(Vec::new()), [("libown.so.1".to_owned(), None), ("libc.so.6".to_owned(), None)]);
        std::fs::remove_dir_all(folder).expect("remove the folder");
    }
}
