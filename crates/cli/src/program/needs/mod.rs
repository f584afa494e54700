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

mod collector;
pub mod folder;
mod links;
pub mod need;
mod python;
mod ranks;
mod script;
#[cfg(test)]
mod tests;

use super::closure::{Memo, Search};
use super::ld_cache::LdCache;
use super::path;
use crate::stage::{cache_file, digests};
use collector::Collector;
use need::{Error, Needs};
use ranks::Ranks;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use wireup_stage::digests::Digests;
use wireup_stage::file_system::FileSystem;
use wireup_wire::job::AppSpec;

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
