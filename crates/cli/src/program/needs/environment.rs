//! Collects what a Python reads, and what the files in a folder need that is staged as a whole.

use super::collector::{Collector, name_of};
use super::folder;
use super::need::Error;
use super::python::{self, Python};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wireup_stage::set::list_with;

const ENVIRONMENT: &str = "the Python environment";

impl Collector<'_> {
    pub fn add_python(&mut self, path: &Path, end: &Path, arguments: &[Vec<u8>]) -> Result<(), Error> {
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

    pub fn add_needs_of_folder(&mut self, folder: &Path, with_programs: bool) -> Result<(), Error> {
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
                if !self.system.has(&way.end, &way.end) {
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
