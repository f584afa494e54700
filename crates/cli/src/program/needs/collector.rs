//! Collects needs: one method for each kind of file.

use super::super::closure::{Closure, Search, closure, closure_of_library, rpath};
use super::super::elf::{Content, Dynamic};
use super::super::path;
use super::links::Links;
use super::{Error, Kind, LeftOut, Need, Needs, Remark, folder, python, script};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use wireup_stage::digests::Digests;
use wireup_stage::set::Listings;
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

pub struct Collector<'a> {
    pub(super) app: &'a AppSpec,
    pub(super) env: &'a [Vec<u8>],
    /// The ranks' working directory.
    pub(super) cwd: &'a Path,
    /// The ranks' working directory without symbolic links.
    pub(super) real_cwd: PathBuf,
    search: Search<'a>,
    /// Digests of files, and lists of what was in folders, from earlier runs.
    pub(super) digests: &'a Digests,
    is_network: &'a dyn Fn(&Path) -> bool,
    /// The answers of `is_network`, by path.
    on_network: RefCell<HashMap<PathBuf, bool>>,
    pub(super) links: Links,
    pub(super) needs: BTreeMap<PathBuf, Need>,
    /// Paths that were followed, and their ends.
    added: HashMap<PathBuf, Option<PathBuf>>,
    /// The contents of folders that were looked through.
    pub(super) listings: Listings,
    /// Folders whose libraries were examined for what they need; `true`: the programs in the folder were, too.
    pub(super) examined: HashMap<PathBuf, bool>,
    left_out: BTreeMap<PathBuf, LeftOut>,
    remarks: BTreeSet<Remark>,
    /// Libraries that were not found, with the file that needs each.
    missing: BTreeMap<String, String>,
    /// The names of libraries in folders that are staged.
    pub(super) in_folders: BTreeSet<String>,
    /// Links in staged folders that lead to folders elsewhere.
    pub(super) led_out: BTreeMap<PathBuf, PathBuf>,
}

impl<'a> Collector<'a> {
    pub fn new(
        app: &'a AppSpec,
        env: &'a [Vec<u8>],
        search: Search<'a>,
        digests: &'a Digests,
        is_network: &'a dyn Fn(&Path) -> bool,
    ) -> Collector<'a> {
        let cwd = search.cwd;
        Collector {
            app,
            env,
            cwd,
            real_cwd: cwd.canonicalize().unwrap_or_else(|_| cwd.to_path_buf()),
            search,
            digests,
            is_network,
            on_network: RefCell::default(),
            links: Links::default(),
            needs: BTreeMap::new(),
            added: HashMap::new(),
            listings: Listings::new(),
            examined: HashMap::new(),
            left_out: BTreeMap::new(),
            remarks: BTreeSet::new(),
            missing: BTreeMap::new(),
            in_folders: BTreeSet::new(),
            led_out: BTreeMap::new(),
        }
    }

    pub fn leave_out(&mut self, path: &Path, why: &str) {
        self.leave_out_for(path, LeftOut::Other(why.to_owned()));
    }

    fn leave_out_for(&mut self, path: &Path, why: LeftOut) {
        self.left_out.entry(path.to_path_buf()).or_insert(why);
    }

    pub(super) fn remark(&mut self, text: String) {
        self.remarks.insert(Remark { text, is_lack: false });
    }

    /// Remarks that the ranks will lack something.
    pub(super) fn lack(&mut self, text: String) {
        self.remarks.insert(Remark { text, is_lack: true });
    }

    /// A program, with all that it needs. `depth`: the scripts that led to it.
    pub fn add_program(&mut self, path: &Path, why: &str, arguments: &[Vec<u8>], depth: usize) -> Result<(), Error> {
        let Some(end) = self.add(path, why)? else { return Ok(()) };
        let content = self.search.memo.content(&end);
        self.add_needs_of(path, &end, content, arguments, depth)
    }

    /// A path or pattern of the user.
    pub fn add_named(&mut self, pattern: &Path) -> Result<(), Error> {
        for path in self.matches(pattern)? {
            let Some(end) = self.add_way(&path, NAMED, true)? else { continue };
            if end.is_dir() {
                if self.real_cwd.starts_with(&end) {
                    let end = end.display();
                    self.remark(format!("ranks start in {end}: what they write there stays in the node's copy"));
                }
                self.add_needs_of_folder(&end, true)?;
            } else {
                self.add_needs_of_file(&path, &end)?;
            }
        }
        Ok(())
    }

    pub fn finish(mut self) -> Needs {
        let mut needs: Vec<Need> = Vec::new();
        // Paths are in order, so a folder comes before what lies below it.
        let mut folder: Option<PathBuf> = None;
        for (path, need) in self.needs {
            if folder.as_ref().is_some_and(|folder| path.starts_with(folder)) {
                continue;
            }
            if need.kind == Kind::Folder {
                folder = Some(path);
            }
            needs.push(need);
        }
        for (link, end) in self.led_out {
            if !needs.iter().any(|need| need.kind == Kind::Folder && end.starts_with(&need.path)) {
                let (link, end) = (link.display(), end.display());
                let text = format!("{link} leads to the folder {end}, which is staged only with --stage-also");
                self.remarks.insert(Remark { text, is_lack: false });
            }
        }
        for (name, by) in self.missing {
            if !self.in_folders.contains(&name) && !self.search.memo.has_soname(&name) {
                let text = format!(
                    "{name}, which {by} needs, was not found; install it, or name its folder in LD_LIBRARY_PATH"
                );
                self.remarks.insert(Remark { text, is_lack: true });
            }
        }
        Needs {
            needs,
            left_out: self.left_out.into_iter().collect(),
            remarks: self.remarks.into_iter().collect(),
            listings: self.listings,
        }
    }

    pub(super) fn add(&mut self, path: &Path, why: &str) -> Result<Option<PathBuf>, Error> {
        self.add_way(path, why, false)
    }

    /// Adds what is at the end of a path and the links on the way, and returns the end. Nothing if there is no such
    /// file, or if it must not be staged; a file that the nodes have is returned. `by_user`: it is staged even if the
    /// nodes should have it.
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
                self.leave_out(path, "not found");
                return Ok(None);
            }
            Err(error) => {
                self.leave_out(path, &error.to_string());
                return Ok(None);
            }
        };
        let meta = std::fs::metadata(&way.end);
        let kind = match meta.as_ref().map_err(|error| LeftOut::Other(error.to_string())).and_then(kind) {
            Ok(kind) => kind,
            Err(reason) => {
                self.leave_out_for(&way.end, reason);
                return Ok(None);
            }
        };
        for link in way.links {
            let folder = link.parent().unwrap_or(Path::new("/"));
            if !self.is_of_the_node(&link, folder) {
                self.insert(link, Kind::Link, &format!("symbolic link on the way to {}", path.display()));
            }
        }
        if !by_user && self.is_of_the_node(&way.end, &way.end) {
            self.leave_out_for(&way.end, LeftOut::OfTheNode);
        } else {
            self.insert(way.end.clone(), kind, why);
        }
        Ok(Some(way.end))
    }

    fn insert(&mut self, path: PathBuf, kind: Kind, why: &str) {
        self.needs.entry(path.clone()).or_insert_with(|| Need { path, kind, why: why.to_owned() });
    }

    /// Whether a path is part of the system that each node has; `asked` is the path whose file system counts.
    pub(super) fn is_of_the_node(&self, path: &Path, asked: &Path) -> bool {
        is_system(path) && !self.is_on_network(asked)
    }

    fn is_on_network(&self, path: &Path) -> bool {
        let mut known = self.on_network.borrow_mut();
        match known.get(path) {
            Some(is_network) => *is_network,
            None => *known.entry(path.to_owned()).or_insert_with(|| (self.is_network)(path)),
        }
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
                self.remark(format!("{} is static and needs no libraries", path.display()));
            }
            Content::Script => {
                if is_python {
                    let path = path.display();
                    self.remark(format!("{path} is a script: name the Python that it starts instead of it"));
                }
                return self.add_interpreter(path, end, arguments, depth);
            }
            Content::Other => {
                self.remark(format!(
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
                self.missing.entry(library.name.clone()).or_insert_with(|| by.clone());
            }
        }
        Ok(())
    }

    /// The folders from which a library loads plugins and reads its texts and settings.
    fn add_plugins(&mut self, path: &Path, end: &Path) -> Result<(), Error> {
        let name = name_of(path);
        let known = PLUGINS.iter().find(|(library, _)| name.starts_with(library));
        let Some(((library, folders), beside)) = known.zip(end.parent()) else { return Ok(()) };
        for folder in folders.iter().filter_map(|folder| beside.join(folder).canonicalize().ok()) {
            // The plugins may need this library.
            let is_new = !self.needs.contains_key(&folder);
            self.add(&folder, &format!("plugins and texts of {library}"))?;
            if is_new && folder.is_dir() && self.needs.contains_key(&folder) {
                self.add_needs_of_folder(&folder, false)?;
            }
        }
        Ok(())
    }

    fn add_interpreter(&mut self, path: &Path, end: &Path, arguments: &[Vec<u8>], depth: usize) -> Result<(), Error> {
        let Some(found) = script::interpreter(end).filter(|_| depth < SCRIPTS_MAX) else {
            self.remark(format!(
                "{}: the kernel finds no interpreter for it; its first line must begin with #! and the path of one",
                path.display()
            ));
            return Ok(());
        };
        let why = format!("interpreter of {}", name_of(path));
        let mut passed = vec![path.as_os_str().as_bytes().to_vec()];
        passed.extend(arguments.iter().cloned());
        self.add_program(&self.cwd.join(found.path), &why, &passed, depth + 1)?;
        let Some(name) = found.starts else { return Ok(()) };
        match self.program_named(&name) {
            Some(program) => self.add_program(&program, &why, &passed, depth + 1),
            None => {
                self.leave_out(Path::new(OsStr::from_bytes(&name)), &format!("not found ({why})"));
                Ok(())
            }
        }
    }

    /// A program as the ranks would find it by this name.
    fn program_named(&self, name: &[u8]) -> Option<PathBuf> {
        let app = AppSpec { argv: vec![name.to_vec()], ..self.app.clone() };
        path(&app, self.env).filter(|path| path.is_file())
    }

    /// What a library or program needs that is staged for another reason.
    pub(super) fn add_needs_of_file(&mut self, path: &Path, end: &Path) -> Result<(), Error> {
        match self.search.memo.content(end) {
            Content::Dynamic(dynamic) if is_program(path, &dynamic) => {
                self.add_needs_of(path, end, Content::Dynamic(dynamic), &[], 1)
            }
            Content::Dynamic(dynamic) => self.add_libraries(&closure_of_library(path, dynamic, &self.search), None),
            Content::Script if is_executable(end) => self.add_needs_of(path, end, Content::Script, &[], 1),
            Content::Script | Content::Static(_) | Content::Other => Ok(()),
        }
    }

    /// The files that the user named by a path or pattern.
    fn matches(&self, pattern: &Path) -> Result<Vec<PathBuf>, Error> {
        let path = self.cwd.join(pattern);
        if path.symlink_metadata().is_ok() {
            return Ok(vec![path]);
        }
        let text = || pattern.display().to_string();
        let cwd = glob::Pattern::escape(&self.cwd.to_string_lossy());
        let whole = Path::new(&cwd).join(pattern);
        let reason = |reason: String| Error::Pattern { pattern: text(), reason };
        let whole = whole.to_str().ok_or_else(|| reason("a pattern must be UTF-8".to_owned()))?;
        let found = glob::glob(whole).map_err(|error| reason(error.to_string()))?;
        let found: Vec<PathBuf> = found.flatten().collect();
        if found.is_empty() { Err(Error::NoMatch(text())) } else { Ok(found) }
    }
}

/// What a file is, or why it cannot be staged.
fn kind(meta: &Metadata) -> Result<Kind, LeftOut> {
    match meta.permissions().mode() {
        _ if meta.is_dir() => Ok(Kind::Folder),
        _ if !meta.is_file() => Err(LeftOut::Other("neither a file nor a folder".to_owned())),
        mode if mode & 0o4000 != 0 => Err(LeftOut::Rights("set-user-ID")),
        mode if mode & 0o2000 != 0 => Err(LeftOut::Rights("set-group-ID")),
        _ => Ok(Kind::File),
    }
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

/// The C library and a few others can be started as well.
fn is_program(path: &Path, dynamic: &Dynamic) -> bool {
    dynamic.interpreter.is_some() && !folder::is_library(path)
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0)
}

pub(super) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_folders_are_recognized() {
        let system = |path: &str| is_system(Path::new(path));
        assert!(system("/usr/bin/env") && system("/lib64/x") && system("/lib") && system("/etc/ld.so.cache"));
        assert!(!system("/usr/local/bin/x") && !system("/opt/usr/x") && !system("/library/x") && !system("/"));
    }
}
