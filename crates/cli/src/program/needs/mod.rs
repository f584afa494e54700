//! The files that a program reads to start: what staging copies to every node.
//!
//! ```text
//!   program            itself; its loader; its libraries, as the loader finds them (`closure`), with the C library
//!   script             itself; its interpreter, to any depth the kernel allows; the program that `env` starts
//!   Python             its environment and the folders of PYTHONPATH as a whole; the script it is given; what the
//!                      extension modules and the links in these folders need from outside
//!   named by the user  files, folders, patterns; the libraries that libraries and programs among them need
//! ```
//!
//! Files in the system's folders are not staged, because every node has its own, unless they lie on a network file
//! system (`file_system`). Each symbolic link on the way to a file is listed too, in its canonical folder (`links`), so
//! that the copies can be mounted over the originals. Nothing is executed to find this out, so files that a program
//! opens by names of its own are not found.

pub mod folder;
mod links;
pub mod need;
mod python;
mod ranks;
mod script;
#[cfg(test)]
mod tests;

use super::closure::{Closure, Memo, Search, closure, closure_of_library, rpath};
use super::elf::{Content, Dynamic};
use super::ld_cache::LdCache;
use super::path;
use crate::stage::{cache_file, digests};
use links::Links;
use need::{Error, Found, LeftOut, NeedKind, Needs};
use python::Python;
use ranks::Ranks;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use wireup_stage::digests::Digests;
use wireup_stage::file_system::FileSystem;
use wireup_stage::set::{Listings, list_with};
use wireup_wire::job::AppSpec;

/// Interpreters that are scripts themselves: the kernel follows no more.
const SCRIPTS_MAX: usize = 5;
/// Libraries that load plugins by themselves, and where they look, relative to their own folder.
const PLUGINS: [(&str, &[&str]); 5] = [
    ("libmpi.so", OPEN_MPI),
    ("libopen-pal.so", OPEN_MPI),
    ("libpmix.so", &["pmix", "../share/pmix", "../etc/pmix-mca-params.conf"]),
    ("libucs.so", &["ucx", "../etc/ucx"]),
    ("libfabric.so", &["libfabric"]),
];
const OPEN_MPI: &[&str] = &["openmpi", "../share/openmpi", "../etc/openmpi-mca-params.conf"];
const NAMED: &str = "named by --stage-also";
const ENVIRONMENT: &str = "the Python environment";

/// What the ranks of `app` read to start. `env` are the job's variables, `also` the paths and patterns that the user
/// named, relative to the folder of the program.
///
/// # Errors
///
/// A pattern that matches nothing; a path with a loop of symbolic links.
pub fn needs(app: &AppSpec, env: &[Vec<u8>], also: &[PathBuf]) -> Result<Needs, Error> {
    let file = cache_file("needs");
    let memo = Rc::new(file.as_deref().map(Memo::read).unwrap_or_default());
    let is_network = |path: &Path| FileSystem::of(path).is_some_and(|found| found.is_network);
    let found = needs_on(app, env, also, &memo, &digests(), is_network)?;
    file.inspect(|file| memo.write(file));
    Ok(found)
}

/// The files at the paths and patterns in `also` (relative to `cwd`) and what those files need, without a program.
///
/// # Errors
///
/// The errors of [`needs`].
pub fn needs_of_paths(env: &[Vec<u8>], cwd: &Path, also: &[PathBuf]) -> Result<Needs, Error> {
    let app = AppSpec { ranks: 0, argv: Vec::new(), cwd: cwd.as_os_str().as_bytes().to_vec(), env: Vec::new() };
    Ok(Needs { left_out: Vec::new(), ..needs(&app, env, also)? })
}

/// Finds what [`needs`] returns; `is_network` decides whether a path lies on a network file system.
fn needs_on(
    app: &AppSpec,
    env: &[Vec<u8>],
    also: &[PathBuf],
    memo: &Rc<Memo>,
    digests: &Digests,
    is_network: impl Fn(&Path) -> bool,
) -> Result<Needs, Error> {
    let cache = LdCache::default();
    let program = path(app, env);
    let search = Search::of_ranks(app, env, program.as_deref(), &cache);
    let search = Search { all: true, memo: memo.clone(), ..search };
    let mut collector = Collector::new(Ranks::new(app, env), search, digests, &is_network);
    match &program {
        Some(program) if program.is_dir() => collector.found.leave_out(program, "the program is a folder"),
        Some(program) => collector.add_program(program, "the program", &app.argv[1..], 0)?,
        None => {
            let name = app.argv.first().map(Vec::as_slice).unwrap_or_default();
            collector.found.leave_out(Path::new(OsStr::from_bytes(name)), "not found");
        }
    }
    for pattern in also {
        collector.add_named(pattern)?;
    }
    Ok(collector.finish())
}

/// Collects needs: one method for each kind of file.
struct Collector<'a> {
    ranks: Ranks<'a>,
    search: Search<'a>,
    /// Digests of files, and lists of what was in folders, from earlier runs.
    digests: &'a Digests,
    is_network: &'a dyn Fn(&Path) -> bool,
    /// The answers of `is_network`, by path.
    on_network: HashMap<PathBuf, bool>,
    links: Links,
    found: Found,
    /// The paths that were followed, each with the file at its end; `None`: there is none that can be staged.
    added: HashMap<PathBuf, Option<PathBuf>>,
    /// The contents of folders that were looked through.
    listings: Listings,
    /// Folders whose libraries were examined for the files that they need; `true`: the programs in the folder were
    /// examined too.
    examined: HashMap<PathBuf, bool>,
}

impl<'a> Collector<'a> {
    fn new(
        ranks: Ranks<'a>,
        search: Search<'a>,
        digests: &'a Digests,
        is_network: &'a dyn Fn(&Path) -> bool,
    ) -> Collector<'a> {
        Collector {
            ranks,
            search,
            digests,
            is_network,
            on_network: HashMap::new(),
            links: Links::default(),
            found: Found::default(),
            added: HashMap::new(),
            listings: Listings::new(),
            examined: HashMap::new(),
        }
    }

    /// Adds a program with all that it needs. `depth`: the number of scripts that led to it.
    fn add_program(&mut self, path: &Path, why: &str, arguments: &[Vec<u8>], depth: usize) -> Result<(), Error> {
        let Some(end) = self.add(path, why)? else { return Ok(()) };
        let content = self.search.memo.content(&end);
        self.add_needs_of(path, &end, content, arguments, depth)
    }

    /// Adds the files at a path or pattern that the user named, with what they need.
    fn add_named(&mut self, pattern: &Path) -> Result<(), Error> {
        for path in self.ranks.matches(pattern)? {
            let Some(end) = self.add_way(&path, NAMED, true)? else { continue };
            if end.is_dir() {
                if self.ranks.start_in(&end) {
                    let end = end.display();
                    self.found.remark(format!("ranks start in {end}: files written there stay in the node's copy"));
                }
                self.add_needs_of_folder(&end, true)?;
            } else {
                self.add_needs_of_file(&path, &end)?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Needs {
        self.found.finish(self.listings, |name| self.search.memo.has_soname(name))
    }

    fn add(&mut self, path: &Path, why: &str) -> Result<Option<PathBuf>, Error> {
        self.add_way(path, why, false)
    }

    /// Adds the file or folder at the end of a path and the links on the way, and returns the end; `None`: it does not
    /// exist or cannot be staged. An end that every node has itself is not added, but returned. `by_user`: it is added
    /// even then.
    fn add_way(&mut self, path: &Path, why: &str, by_user: bool) -> Result<Option<PathBuf>, Error> {
        if let Some(end) = self.added.get(path).filter(|_| !by_user) {
            return Ok(end.clone());
        }
        let end = self.add_new_way(path, why, by_user)?;
        self.added.insert(path.to_path_buf(), end.clone());
        Ok(end)
    }

    fn add_new_way(&mut self, path: &Path, why: &str, by_user: bool) -> Result<Option<PathBuf>, Error> {
        let way = match self.links.follow(path) {
            Ok(way) => way,
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                return Err(Error::Links(path.to_path_buf()));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.found.leave_out(path, "not found");
                return Ok(None);
            }
            Err(error) => {
                self.found.leave_out(path, error.to_string().as_str());
                return Ok(None);
            }
        };
        let meta = std::fs::metadata(&way.end);
        let kind = match meta.as_ref().map_err(|error| LeftOut::Other(error.to_string())).and_then(kind) {
            Ok(kind) => kind,
            Err(reason) => {
                self.found.leave_out(&way.end, reason);
                return Ok(None);
            }
        };
        for link in way.links {
            let folder = link.parent().unwrap_or(Path::new("/"));
            if !self.is_of_node(&link, folder) {
                self.found.add_need(link, NeedKind::Link, &format!("symbolic link on the way to {}", path.display()));
            }
        }
        if !by_user && self.is_of_node(&way.end, &way.end) {
            self.found.leave_out(&way.end, LeftOut::OfTheNode);
        } else {
            self.found.add_need(way.end.clone(), kind, why);
        }
        Ok(Some(way.end))
    }

    fn add_needs_of(
        &mut self,
        path: &Path,
        end: &Path,
        content: Content,
        arguments: &[Vec<u8>],
        depth: usize,
    ) -> Result<(), Error> {
        let is_python = python::is_python(path) || python::is_python(end);
        match content {
            Content::Dynamic(dynamic) => {
                if depth == 0 && self.search.rpath.is_empty() || is_python {
                    self.search.rpath = rpath(end, &dynamic);
                }
                let loader = dynamic.interpreter.clone();
                let closure = closure(end, dynamic, &self.search);
                self.add_libraries(&closure, loader.as_deref())?;
            }
            Content::Static(_) => {
                self.found.remark(format!("{} is static and needs no libraries", path.display()));
            }
            Content::Script => {
                if is_python {
                    let path = path.display();
                    self.found.remark(format!("{path} is a script; name the Python that it starts instead"));
                }
                return self.add_interpreter(path, end, arguments, depth);
            }
            Content::Other => {
                self.found.remark(format!(
                    "{} is not a readable program; is the path right, and may you read it?",
                    path.display()
                ));
            }
        }
        if is_python { self.add_python(path, end, arguments) } else { Ok(()) }
    }

    fn add_libraries(&mut self, closure: &Closure, loader: Option<&Path>) -> Result<(), Error> {
        for library in &closure.libraries {
            let by = &library.by;
            let is_loader = loader.is_some() && library.path.as_deref() == loader;
            let why = if is_loader { format!("loader of {by}") } else { format!("library of {by}") };
            for path in library.variants.iter().chain(&library.path) {
                if let Some(end) = self.add(path, &why)? {
                    self.add_plugins(path, &end)?;
                }
            }
            if library.path.is_none() {
                self.found.add_missing(&library.name, by);
            }
        }
        Ok(())
    }

    /// Adds the folders from which a library loads plugins and reads its texts and settings.
    fn add_plugins(&mut self, path: &Path, end: &Path) -> Result<(), Error> {
        let name = name_of(path);
        let known = PLUGINS.iter().find(|(library, _)| name.starts_with(library));
        let Some(((library, folders), beside)) = known.zip(end.parent()) else { return Ok(()) };
        for folder in folders.iter().filter_map(|folder| beside.join(folder).canonicalize().ok()) {
            // The folder is added before its plugins are examined, because they may need this library.
            let is_new = !self.found.is_needed(&folder);
            self.add(&folder, &format!("plugins and help texts of {library}"))?;
            if is_new && folder.is_dir() && self.found.is_needed(&folder) {
                self.add_needs_of_folder(&folder, false)?;
            }
        }
        Ok(())
    }

    fn add_interpreter(&mut self, path: &Path, end: &Path, arguments: &[Vec<u8>], depth: usize) -> Result<(), Error> {
        let Some(found) = script::interpreter(end).filter(|_| depth < SCRIPTS_MAX) else {
            self.found.remark(format!(
                "{}: the kernel finds no interpreter for it; its first line must begin with #! and the path of one",
                path.display()
            ));
            return Ok(());
        };
        let why = format!("interpreter of {}", name_of(path));
        let mut passed = vec![path.as_os_str().as_bytes().to_vec()];
        passed.extend(arguments.iter().cloned());
        self.add_program(&self.ranks.cwd.join(found.path), &why, &passed, depth + 1)?;
        let Some(name) = found.starts else { return Ok(()) };
        match self.ranks.program_named(&name) {
            Some(program) => self.add_program(&program, &why, &passed, depth + 1),
            None => {
                self.found.leave_out(Path::new(OsStr::from_bytes(&name)), format!("not found ({why})").as_str());
                Ok(())
            }
        }
    }

    /// Adds what a library or program needs that is itself staged for another reason.
    fn add_needs_of_file(&mut self, path: &Path, end: &Path) -> Result<(), Error> {
        match self.search.memo.content(end) {
            Content::Dynamic(dynamic) if is_program(path, &dynamic) => {
                self.add_needs_of(path, end, Content::Dynamic(dynamic), &[], 1)
            }
            Content::Dynamic(dynamic) => self.add_libraries(&closure_of_library(path, dynamic, &self.search), None),
            Content::Script if is_executable(end) => self.add_needs_of(path, end, Content::Script, &[], 1),
            Content::Script | Content::Static(_) | Content::Other => Ok(()),
        }
    }

    /// Whether each node has a file itself: it lies in a system folder that is not on a network file system. `asked`:
    /// the path whose file system counts.
    fn is_of_node(&mut self, path: &Path, asked: &Path) -> bool {
        let is_network = self.is_network;
        is_system(path) && !*self.on_network.entry(asked.to_owned()).or_insert_with(|| is_network(asked))
    }

    fn add_python(&mut self, path: &Path, end: &Path, arguments: &[Vec<u8>]) -> Result<(), Error> {
        let python = Python::find(path, end);
        if python.folders.is_empty() {
            self.found.lack(format!("the library folder of {} was not found", path.display()));
        }
        if let Some(venv) = &python.venv {
            self.add_venv(venv)?;
        }
        for folder in &python.folders {
            self.add_folder(folder, ENVIRONMENT)?;
        }
        for folder in self.packages_of_user(&python) {
            self.add_folder(&folder, "Python packages of the user")?;
        }
        let listed = self.ranks.variable("PYTHONPATH").unwrap_or_default();
        for entry in listed.split(|&byte| byte == b':').filter(|_| !listed.is_empty()) {
            let entry = self.ranks.cwd.join(OsStr::from_bytes(entry));
            if entry.is_dir() {
                self.add_folder(&entry, "in PYTHONPATH")?;
            } else if entry.is_file() {
                self.add(&entry, "in PYTHONPATH")?;
            }
        }
        let Some(script) = python::script(arguments, self.ranks.cwd) else { return Ok(()) };
        if script.is_dir() {
            return self.add_folder(&script, &format!("script of {}", name_of(path)));
        }
        if python::has_modules_beside(&script) {
            let script = script.display();
            self.found.remark(format!("modules next to {script} are staged only with --stage-also"));
        }
        self.add(&script, &format!("script of {}", name_of(path))).map(drop)
    }

    /// Adds a virtual environment; only Python's part of it if the ranks start in it.
    fn add_venv(&mut self, venv: &Path) -> Result<(), Error> {
        if !self.ranks.start_in(venv) {
            return self.add_folder(venv, ENVIRONMENT);
        }
        for name in ["lib", "lib64"].iter().filter(|name| venv.join(name).is_dir()) {
            self.add_folder(&venv.join(name), ENVIRONMENT)?;
        }
        self.add(&venv.join(python::CONFIG), ENVIRONMENT).map(drop)
    }

    fn packages_of_user(&self, python: &Python) -> Vec<PathBuf> {
        if !python.reads_home || self.ranks.path_in("PYTHONNOUSERSITE").is_some() {
            return Vec::new();
        }
        let base = self.ranks.path_in("PYTHONUSERBASE").or_else(|| Some(self.ranks.path_in("HOME")?.join(".local")));
        let folders =
            base.into_iter().flat_map(|base| python.names.iter().map(move |name| base.join("lib").join(name)));
        folders.map(|folder| folder.join("site-packages")).filter(|folder| folder.is_dir()).collect()
    }

    /// Adds a whole folder, with what the files in it need. A folder that the ranks start in is left out: what they
    /// write there would stay in the node's copy.
    fn add_folder(&mut self, folder: &Path, why: &str) -> Result<(), Error> {
        if self.ranks.start_in(folder) {
            self.found.leave_out(folder, "ranks start in it, and files written there would stay in the node's copy");
            return Ok(());
        }
        let Some(end) = self.add(folder, why)? else { return Ok(()) };
        if self.found.is_needed(&end) { self.add_needs_of_folder(&end, false) } else { Ok(()) }
    }

    fn add_needs_of_folder(&mut self, folder: &Path, with_programs: bool) -> Result<(), Error> {
        // The folder may have been examined already: each script of an environment leads to the environment's folder.
        let known = self.examined.get(folder).copied();
        if known.is_some_and(|programs_too| programs_too || !with_programs) {
            return Ok(());
        }
        self.examined.insert(folder.to_owned(), with_programs);
        let listing = self.listings.remove(folder).unwrap_or_else(|| list_with(folder, self.digests));
        let contents = folder::contents(folder, &listing, with_programs);
        self.listings.insert(folder.to_owned(), listing);
        for unreadable in &contents.unreadable {
            self.found.leave_out(unreadable, "cannot be read");
        }
        if contents.is_cut {
            self.found.remark(format!("{} has too many files to examine them all", folder.display()));
        }
        for file in contents.libraries.iter().chain(&contents.programs) {
            self.found.add_name_in_folder(name_of(file));
            self.add_needs_of_file(file, file)?;
        }
        for link in contents.links {
            // Dangling links are copied as they are.
            let Ok(way) = self.links.follow(&link) else { continue };
            if way.end.starts_with(folder) {
                self.found.add_name_in_folder(name_of(&link));
            } else if way.end.is_dir() {
                if !self.is_of_node(&way.end, &way.end) {
                    self.found.add_led_out(link, way.end);
                }
            } else if let Some(end) = self.add(&link, &format!("a link in {} leads to it", folder.display()))?
                && folder::is_library(&link)
            {
                self.found.add_name_in_folder(name_of(&link));
                self.add_needs_of_file(&link, &end)?;
            }
        }
        Ok(())
    }
}

/// What a file is, or why it cannot be staged.
fn kind(meta: &Metadata) -> Result<NeedKind, LeftOut> {
    match meta.permissions().mode() {
        _ if meta.is_dir() => Ok(NeedKind::Folder),
        _ if !meta.is_file() => Err(LeftOut::Other("neither a file nor a folder".to_owned())),
        mode if mode & 0o4000 != 0 => Err(LeftOut::Rights("set-user-ID")),
        mode if mode & 0o2000 != 0 => Err(LeftOut::Rights("set-group-ID")),
        _ => Ok(NeedKind::File),
    }
}

/// Whether a file is a program. The C library and a few others name a loader too, since they can also be started.
fn is_program(path: &Path, dynamic: &Dynamic) -> bool {
    dynamic.interpreter.is_some() && !folder::is_library(path)
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether a path lies in one of the system's folders: `/usr` without `/usr/local`, `/lib`, `/lib64`, `/bin`, `/sbin`,
/// `/etc`.
fn is_system(path: &Path) -> bool {
    let mut names = path.iter().skip(1).map(OsStr::as_bytes);
    match names.next().unwrap_or_default() {
        b"usr" => names.next() != Some(b"local"),
        b"bin" | b"sbin" | b"etc" | b"lib" | b"lib32" | b"lib64" | b"libx32" => true,
        _ => false,
    }
}
