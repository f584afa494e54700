//! The shared libraries of a program, found as the loader will find them.
//!
//! The search order for a library that an object names: the `RPATH` of the object and of the objects that needed it
//! (each only if it has no `RUNPATH`), `LD_LIBRARY_PATH`, the object's `RUNPATH`, the system's list, the system's
//! folders. Each file is read once; their number is bounded.
//!
//! The C library and the language runtimes are recognized by name and not examined, which is enough to find an MPI.
//! With `Search::all` they are examined too, and in each folder the copies for certain processors (`glibc-hwcaps`):
//! which of these copies the loader takes depends on the node.

use super::elf::{Content, Dynamic};
use super::ld_cache::LdCache;
use super::variable;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use wireup_redirect::program::{LIBRARY_LEN, is_library};
use wireup_stage::known::{Identity, Known};
use wireup_wire::job::AppSpec;

#[cfg(target_arch = "aarch64")]
macro_rules! multiarch {
    () => {
        "aarch64-linux-gnu"
    };
}
#[cfg(not(target_arch = "aarch64"))]
macro_rules! multiarch {
    () => {
        "x86_64-linux-gnu"
    };
}

/// Objects that are examined; for a program with more, the result covers those (chosen: four times what Open MPI
/// needs).
const OBJECTS_MAX: usize = 256;
/// Objects that are examined if all libraries are asked for ([`Search::all`]; chosen: ten times what large programs
/// have).
const ALL_OBJECTS_MAX: usize = 8192;
/// The system's folders, for systems whose list is missing or out of date.
const FOLDERS: [&str; 6] =
    ["/lib64", "/usr/lib64", concat!("/lib/", multiarch!()), concat!("/usr/lib/", multiarch!()), "/lib", "/usr/lib"];
/// The values of the loader's variable `$LIB`: the first on Debian and its relatives, the second on Red Hat and SUSE.
/// Both are tried, because the value is compiled into the loader.
const LIB: [&str; 2] = [concat!("lib/", multiarch!()), "lib64"];
const PLATFORM: &str = std::env::consts::ARCH;
/// Folders for certain processors below each folder that is searched, in the loader's order.
const VARIANTS: [&str; 3] = ["x86-64-v4", "x86-64-v3", "x86-64-v2"];
/// Libraries that start programs or load libraries for their own purposes, by the beginning of their names.
const RUNTIMES: [&str; 16] = [
    "ld-linux", "libc.", "libm.", "libmvec.", "libdl.", "libpthread.", "librt.", "libutil.", "libresolv.", "libgcc_s.",
    "libstdc++.", "libgfortran.", "libquadmath.", "libgomp.", "libz.", "linux-vdso",
];

/// One library in a program's closure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Library {
    pub name: String,
    /// The object that needs it: the program, or the file name of a library.
    pub by: String,
    /// The library's file; `None` if the loader will not find it, so that the program does not start here.
    pub path: Option<PathBuf>,
    /// Copies that the loader prefers on certain processors; only with [`Search::all`].
    pub variants: Vec<PathBuf>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Closure {
    /// The libraries in the order in which the loader finds them, each name once.
    pub libraries: Vec<Library>,
    /// Whether the program or one of its libraries may start other programs or load further libraries.
    pub starts_others: bool,
}

/// The places in which the loader looks for libraries, apart from the paths in the objects.
pub struct Search<'a> {
    /// `LD_LIBRARY_PATH` and `LD_PRELOAD` of the ranks.
    pub library_path: Vec<PathBuf>,
    pub preload: Vec<String>,
    /// The `RPATH` of the program, for libraries that it opens itself.
    pub rpath: Vec<PathBuf>,
    /// The folder that the ranks start in.
    pub cwd: &'a Path,
    pub cache: &'a LdCache,
    /// Whether to list all libraries: also the C library, the runtimes and the variants.
    pub all: bool,
    pub memo: Rc<Memo>,
}

impl<'a> Search<'a> {
    /// The places in which the loader of the ranks looks for the libraries of their program.
    pub fn of_ranks(app: &'a AppSpec, env: &[Vec<u8>], program: Option<&Path>, cache: &'a LdCache) -> Search<'a> {
        let text = |name| variable(name, app, env).map(|value| String::from_utf8_lossy(value).into_owned());
        let cwd = Path::new(OsStr::from_bytes(&app.cwd));
        let program = program.and_then(|path| path.canonicalize().ok()).unwrap_or_default();
        let origin = program.parent().unwrap_or(Path::new("/"));
        // An empty part of `LD_LIBRARY_PATH` stands for the working directory of the ranks.
        let folders = text("LD_LIBRARY_PATH").filter(|value| !value.is_empty()).unwrap_or_default();
        let folders = folders.split([':', ';']).filter(|_| !folders.is_empty());
        let preload = text("LD_PRELOAD").unwrap_or_default();
        Search {
            library_path: folders.flat_map(|folder| expand(folder, origin)).map(|folder| cwd.join(folder)).collect(),
            preload: preload.split([':', ' ']).filter(|name| !name.is_empty()).map(str::to_owned).collect(),
            rpath: Vec::new(),
            cwd,
            cache,
            all: false,
            memo: Rc::default(),
        }
    }
}

/// What was read from files already, for searches with many objects.
#[derive(Default)]
pub struct Memo {
    contents: RefCell<HashMap<PathBuf, Content>>,
    /// Encoded contents of files that have not changed since an earlier search.
    known: RefCell<Known>,
    found: RefCell<HashMap<Sought, Found>>,
    /// For each folder, its subfolders with copies for certain processors.
    variants: RefCell<BTreeMap<PathBuf, Vec<PathBuf>>>,
}

/// The key of a search: the name of a library, and the `RPATH` and the `RUNPATH` in which it is looked for.
type Sought = (String, Vec<PathBuf>, Vec<PathBuf>);
/// The library that the loader takes, and those that it prefers on certain processors.
type Found = (Option<PathBuf>, Vec<PathBuf>);

impl Memo {
    /// A memo with the contents that an earlier search wrote to the file `path`.
    pub fn read(path: &Path) -> Memo {
        Memo { known: RefCell::new(Known::read(path)), ..Memo::default() }
    }

    /// Writes the memo for later searches. If that fails, they read the libraries again.
    pub fn write(&self, path: &Path) {
        let _ = self.known.borrow().write(path);
    }

    pub fn content(&self, path: &Path) -> Content {
        let mut contents = self.contents.borrow_mut();
        if let Some(content) = contents.get(path) {
            return content.clone();
        }
        contents.entry(path.to_path_buf()).or_insert_with(|| self.look(path)).clone()
    }

    fn look(&self, path: &Path) -> Content {
        let Ok(stat) = rustix::fs::stat(path) else { return Content::Other };
        let file = Identity::of(&stat);
        let mut known = self.known.borrow_mut();
        if let Some(content) = known.find(&file).and_then(|known| postcard::from_bytes(known).ok()) {
            return content;
        }
        let content = Content::read(path);
        if let Ok(encoded) = postcard::to_allocvec(&content) {
            known.add(file, &encoded);
        }
        content
    }

    /// Whether a library that was read calls itself by this name.
    pub fn has_soname(&self, name: &str) -> bool {
        let is_it =
            |content: &Content| matches!(content, Content::Dynamic(found) if found.soname.as_deref() == Some(name));
        self.contents.borrow().values().any(is_it)
    }

    fn variants(&self, folder: &Path) -> Vec<PathBuf> {
        let read = || {
            let above = folder.join("glibc-hwcaps");
            if !above.is_dir() {
                return Vec::new();
            }
            VARIANTS.iter().map(|name| above.join(name)).filter(|folder| folder.is_dir()).collect()
        };
        self.variants.borrow_mut().entry(folder.to_path_buf()).or_insert_with(read).clone()
    }
}

/// An object whose libraries are still to be found.
struct Object {
    name: String,
    /// The folder that `$ORIGIN` is replaced by.
    origin: PathBuf,
    dynamic: Rc<Dynamic>,
    /// The folders in the `RPATH` of this object, then the folders in the `RPATH`s of the objects that needed this
    /// object, with `$ORIGIN` replaced.
    rpath: Vec<PathBuf>,
    runpath: Vec<PathBuf>,
}

impl Object {
    fn new(path: &Path, dynamic: Rc<Dynamic>, inherited: &[PathBuf]) -> Object {
        let origin = path.parent().unwrap_or(Path::new("/")).to_path_buf();
        let expand =
            |paths: &[String]| -> Vec<PathBuf> { paths.iter().flat_map(|path| expand(path, &origin)).collect() };
        let runpath = expand(&dynamic.runpath);
        // The `RPATH` of an object with a `RUNPATH` is ignored. The `RPATH`s of the objects that needed this object
        // still apply to the libraries that this object needs.
        let mut rpath = if runpath.is_empty() { expand(&dynamic.rpath) } else { Vec::new() };
        rpath.extend(inherited.iter().cloned());
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Object { name, origin, dynamic, rpath, runpath }
    }
}

/// Replaces the loader's variables: `$ORIGIN` by the object's folder, `$PLATFORM` by the processor's name, `$LIB` by
/// each folder that it may stand for. Nothing remains of a path with another variable.
pub fn expand(path: &str, origin: &Path) -> Vec<PathBuf> {
    if !path.contains('$') {
        return vec![PathBuf::from(path)];
    }
    let Some(origin) = origin.to_str() else { return Vec::new() };
    let replace = |path: &str, name: &str, value: &str| {
        path.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value)
    };
    // `$LIB` first: the other values could contain it.
    let mut paths: Vec<String> = LIB.iter().map(|lib| replace(path, "LIB", lib)).collect();
    paths.dedup();
    let paths = paths.iter().map(|path| replace(&replace(path, "PLATFORM", PLATFORM), "ORIGIN", origin));
    paths.filter(|path| !path.contains('$')).map(PathBuf::from).collect()
}

/// The `RPATH` of the program at `path`, for `Search::rpath`.
pub fn rpath(path: &Path, dynamic: &Rc<Dynamic>) -> Vec<PathBuf> {
    Object::new(path, dynamic.clone(), &[]).rpath
}

/// All libraries of the program at `path`, whose dynamic section is `dynamic`.
pub fn closure(path: &Path, dynamic: Rc<Dynamic>, search: &Search) -> Closure {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let mut program = Object::new(&path, dynamic, &[]);
    Rc::make_mut(&mut program.dynamic).needed.splice(0..0, search.preload.iter().cloned());
    of_object(program, search)
}

/// All libraries of a library that a program opens itself.
pub fn closure_of_library(path: &Path, dynamic: Rc<Dynamic>, search: &Search) -> Closure {
    of_object(Object::new(path, dynamic, &search.rpath), search)
}

fn of_object(first: Object, search: &Search) -> Closure {
    let mut found = Closure { starts_others: first.dynamic.starts_others, ..Closure::default() };
    let mut seen = BTreeSet::new();
    if let Some(loader) = first.dynamic.interpreter.as_ref().filter(|_| search.all) {
        let name = loader.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("ld-musl") {
            // musl's loader is also its C library.
            seen.extend(["libc.so".to_owned(), name.replace("ld-musl", "libc.musl")]);
        }
        seen.insert(name.clone());
        let path = Some(search.cwd.join(loader)).filter(|path| path.is_file());
        found.libraries.push(Library { name, by: first.name.clone(), path, variants: Vec::new() });
    }
    let objects_max = if search.all { ALL_OBJECTS_MAX } else { OBJECTS_MAX };
    let mut queue = VecDeque::from([first]);
    while let Some(object) = queue.pop_front() {
        for name in &object.dynamic.needed {
            if !seen.insert(name.clone()) || seen.len() > objects_max {
                continue;
            }
            let is_known = !search.all && RUNTIMES.iter().any(|runtime| name.starts_with(runtime));
            let (path, variants) = if is_known { (None, Vec::new()) } else { find(name, &object, search) };
            for path in variants.iter().chain(&path) {
                if let Content::Dynamic(dynamic) = search.memo.content(path) {
                    found.starts_others |= dynamic.starts_others;
                    // A loaded library is also found by the name that it gives itself.
                    seen.extend(dynamic.soname.clone().filter(|_| search.all));
                    queue.push_back(Object::new(path, dynamic, &object.rpath));
                }
            }
            found.libraries.push(Library { name: name.clone(), by: object.name.clone(), path, variants });
        }
    }
    found
}

fn find(name: &str, object: &Object, search: &Search) -> Found {
    if name.contains('/') {
        let mut paths = expand(name, &object.origin).into_iter().map(|path| search.cwd.join(path));
        return (paths.find(|path| is_library_for(path, search)), Vec::new());
    }
    // The result is cached: many libraries of a folder need the same ones.
    let sought = (name.to_owned(), object.rpath.clone(), object.runpath.clone());
    if let Some(found) = search.memo.found.borrow().get(&sought) {
        return found.clone();
    }
    let found = search_for(name, object, search);
    search.memo.found.borrow_mut().insert(sought, found.clone());
    found
}

fn search_for(name: &str, object: &Object, search: &Search) -> Found {
    let is_library = |path: &PathBuf| is_library_for(path, search);
    let rpath = if object.runpath.is_empty() { &object.rpath[..] } else { &[] };
    let folders = rpath.iter().chain(&search.library_path).chain(&object.runpath);
    let mut variants = Vec::new();
    let mut in_folder = |folder: &Path| {
        let folder = search.cwd.join(folder);
        if search.all {
            let paths = search.memo.variants(&folder).into_iter().map(|folder| folder.join(name));
            variants.extend(paths.filter(is_library));
        }
        Some(folder.join(name)).filter(is_library)
    };
    let mut path = folders.map(PathBuf::as_path).find_map(&mut in_folder);
    let system = || FOLDERS.iter().map(Path::new).find_map(&mut in_folder);
    path = match path {
        Some(path) => Some(path),
        None if !search.all => search.cache.find(name).filter(is_library).or_else(system),
        None => {
            let listed: Vec<_> = search.cache.find_all(name).into_iter().filter(|(path, _)| is_library(path)).collect();
            let plain = listed.iter().find(|(_, is_variant)| !is_variant).map(|(path, _)| path.clone()).or_else(system);
            variants.extend(listed.into_iter().filter(|(_, is_variant)| *is_variant).map(|(path, _)| path));
            plain
        }
    };
    // If there is no copy for all processors, the copy for the oldest ones is taken instead.
    let path = path.or_else(|| variants.pop());
    (path, variants)
}

/// Whether the loader takes a file as a library. It skips libraries for other machines; that is checked only if all
/// libraries are asked for.
fn is_library_for(path: &Path, search: &Search) -> bool {
    let mut begin = [0; LIBRARY_LEN];
    let mut is_of_machine =
        || File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && is_library(&begin);
    path.is_file() && (!search.all || is_of_machine())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_expands_to_the_folder_of_the_object() {
        let origin = Path::new("/opt/mpi/lib");
        assert_eq!(expand("$ORIGIN/openmpi", origin), [PathBuf::from("/opt/mpi/lib/openmpi")]);
        assert_eq!(expand("${ORIGIN}/../x", origin), [PathBuf::from("/opt/mpi/lib/../x")]);
        assert_eq!(expand("/a/$PLATFORM", origin), [PathBuf::from(format!("/a/{PLATFORM}"))]);
        assert_eq!(expand("/usr/$LIB", origin), LIB.map(|lib| Path::new("/usr").join(lib)));
        assert!(expand("/usr/$OTHER", origin).is_empty());
    }

    #[test]
    fn a_runpath_hides_rpaths_and_is_not_inherited() {
        let dynamic = |rpath: &[&str], runpath: &[&str]| {
            let [rpath, runpath] = [rpath, runpath].map(|paths| paths.iter().map(|path| (*path).to_owned()).collect());
            Rc::new(Dynamic { rpath, runpath, ..Dynamic::default() })
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
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().to_owned();
        std::fs::write(folder.join("libown.so.1"), "").expect("a file");
        let cache = LdCache::default();
        let needed = vec!["libc.so.6".into(), "libown.so.1".into()];
        let dynamic = Rc::new(Dynamic { needed, ..Dynamic::default() });
        let names = |library_path: &str| {
            let env = [format!("LD_LIBRARY_PATH={library_path}").into(), b"LD_PRELOAD=libown.so.1".to_vec()];
            let app = AppSpec { ranks: 1, argv: Vec::new(), cwd: b"/".to_vec(), env: Vec::new() };
            let found = closure(Path::new("/bin/true"), dynamic.clone(), &Search::of_ranks(&app, &env, None, &cache));
            found.libraries.into_iter().map(|library| (library.name, library.path)).collect::<Vec<_>>()
        };
        let libraries = |own| [("libown.so.1".to_owned(), own), ("libc.so.6".to_owned(), None)];
        assert_eq!(names(&folder.display().to_string()), libraries(Some(folder.join("libown.so.1"))));
        assert_eq!(names(""), libraries(None));
    }
}
