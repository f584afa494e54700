//! Replaces C functions that start a program.

use crate::arguments::{CText, Words, interposed};
use crate::kernel::{self, Harmless, harmless};
use crate::real::{self, call_real, fail};
use crate::staged::staged;
use crate::start::{Command, Plan, Start, returned};
use core::convert::identity;
use core::ffi::{c_char, c_int, c_void};
use wireup_redirect::Text;

const HERE: c_int = libc::AT_FDCWD;
/// Directories in which a program is searched if `PATH` is not set, as in glibc.
const USUAL: &[u8] = b"/bin:/usr/bin";

type List = *const *const c_char;

fn real_execve(Command { path, words, env }: Command<'_>) -> c_int {
    let (path, words, env) = (path.as_ptr(), words.as_ptr(), env.as_ptr());
    let by_kernel = |_| {
        let arguments = [path as usize, words as usize, env as usize, 0];
        real::returned(harmless(Harmless::Execute, arguments)) as c_int
    };
    call_real!(execve(path => *const c_char, words => List, env => List) -> c_int, by_kernel)
}

/// Calls the C library's `execvpe`, which runs a file without a `#!` line with the shell.
fn real_execvpe(command: Command<'_>) -> c_int {
    let Command { path, words, env } = command;
    let by_path = |_| real_execve(command);
    call_real!(execvpe(
        path.as_ptr() => *const c_char, words.as_ptr() => List, env.as_ptr() => List
    ) -> c_int, by_path)
}

pub fn execute(command: Command<'_>) -> c_int {
    let mut plan = Plan::new();
    let start = plan.decide(HERE, command.path);
    returned(plan.call(&start, command, &mut real_execve))
}

interposed! {
    fn execve(path: CText<'_>, words: Words<'_>, env: Words<'_>) -> c_int {
        execute(Command { path, words, env })
    }

    fn execv(path: CText<'_>, words: Words<'_>) -> c_int {
        execute(Command { path, words, env: real::environment() })
    }

    fn execvp(file: CText<'_>, words: Words<'_>) -> c_int {
        search_and_execute(Command { path: file, words, env: real::environment() })
    }

    fn execvpe(file: CText<'_>, words: Words<'_>, env: Words<'_>) -> c_int {
        search_and_execute(Command { path: file, words, env })
    }
}

/// Starts a program. `command.path`: a name that is searched in the directories of `PATH`, unless it has a slash.
pub fn search_and_execute(command: Command<'_>) -> c_int {
    let Some((name, search)) = searched(command.path) else { return execute_or_shell(command) };
    let mut is_denied = false;
    for folder in search.split(|byte| *byte == b':') {
        let mut path = Text::new();
        if in_folder(&mut path, folder, name).is_none() {
            continue;
        }
        execute_or_shell(Command { path: path.from(0).into(), ..command });
        match real::last_error() {
            libc::EACCES => is_denied = true,
            libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ENODEV | libc::ETIMEDOUT => {}
            _ => return -1,
        }
    }
    if is_denied { fail(libc::EACCES) } else { -1 }
}

fn execute_or_shell(command: Command<'_>) -> c_int {
    let mut plan = Plan::new();
    match plan.decide(HERE, command.path) {
        start @ (Start::Same | Start::Path) => returned(plan.call(&start, command, &mut real_execvpe)),
        start => returned(plan.call(&start, command, &mut real_execve)),
    }
}

/// The program's name and the directories of `PATH`; `None`: the C library makes the search.
fn searched(file: CText<'_>) -> Option<(&[u8], &'static [u8])> {
    staged()?;
    let name = file.bytes()?;
    let is_bare = !name.is_empty() && !name.contains(&b'/');
    is_bare.then(|| (name, real::variable(b"PATH").unwrap_or(USUAL)))
}

fn in_folder(path: &mut Text, folder: &[u8], name: &[u8]) -> Option<()> {
    // An empty entry in `PATH` means the working directory.
    if !folder.is_empty() {
        path.push(folder)?;
        path.push(b"/")?;
    }
    path.push(name)
}

fn execute_open(fd: c_int, words: Words<'_>, env: Words<'_>) -> c_int {
    let mut path = Text::new();
    if let Some(original) = staged().and_then(|staged| staged.original_of(fd, &mut path)) {
        return execute(Command { path: original.into(), words, env });
    }
    call_real!(fexecve(fd => c_int, words.as_ptr() => List, env.as_ptr() => List) -> c_int, fail)
}

interposed! {
    fn fexecve(fd: c_int, words: Words<'_>, env: Words<'_>) -> c_int {
        execute_open(fd, words, env)
    }

    fn execveat(folder: c_int, path: CText<'_>, words: Words<'_>, env: Words<'_>, flags: c_int) -> c_int {
        let is_open = path.text().is_some_and(|path| path.is_empty()) && flags == libc::AT_EMPTY_PATH;
        if is_open && staged().is_some_and(|staged| staged.has(folder)) {
            return execute_open(folder, words, env);
        }
        let mut plan = Plan::new();
        let start = if flags == 0 { plan.decide(folder, path) } else { Start::Same };
        if !matches!(start, Start::Same) {
            return returned(plan.call(&start, Command { path, words, env }, &mut real_execve));
        }
        call_real!(execveat(
            folder => c_int,
            path.as_ptr() => *const c_char,
            words.as_ptr() => List,
            env.as_ptr() => List,
            flags => c_int,
        ) -> c_int, fail)
    }
}

/// Arguments of `posix_spawn`: where to store the process id, the file actions and the attributes.
#[derive(Clone, Copy)]
struct Spawn {
    pid: *mut libc::pid_t,
    actions: *const c_void,
    attributes: *const c_void,
}

macro_rules! call_spawn {
    ($name:ident, $spawn:expr, $command:expr) => {{
        let (Spawn { pid, actions, attributes }, Command { path, words, env }) = ($spawn, $command);
        call_real!($name(
            pid => *mut libc::pid_t,
            path.as_ptr() => *const c_char,
            actions => *const c_void,
            attributes => *const c_void,
            words.as_ptr() => List,
            env.as_ptr() => List,
        ) -> c_int, identity)
    }};
}

interposed! {
    fn posix_spawn(
        pid: *mut libc::pid_t,
        path: CText<'_>,
        actions: *const c_void,
        attributes: *const c_void,
        words: Words<'_>,
        env: Words<'_>,
    ) -> c_int {
        let spawn = Spawn { pid, actions, attributes };
        spawn.start(&mut Plan::new(), Command { path, words, env })
    }
}

impl Spawn {
    /// Decides what to start. A relative path is not changed if there are file actions, which may change the directory.
    fn decide(self, plan: &mut Plan, path: CText<'_>) -> Start {
        if !self.actions.is_null() && !path.is_absolute() { Start::Same } else { plan.decide(HERE, path) }
    }

    /// Returns the number of an error, as the C library's function does.
    fn start(self, plan: &mut Plan, command: Command<'_>) -> c_int {
        let start = self.decide(plan, command.path);
        plan.call(&start, command, &mut |command| call_spawn!(posix_spawn, self, command)).unwrap_or_else(identity)
    }
}

interposed! {
    fn posix_spawnp(
        pid: *mut libc::pid_t,
        file: CText<'_>,
        actions: *const c_void,
        attributes: *const c_void,
        words: Words<'_>,
        env: Words<'_>,
    ) -> c_int {
        let spawn = Spawn { pid, actions, attributes };
        let searched = searched(file);
        for folder in searched.iter().flat_map(|(_, search)| search.split(|byte| *byte == b':')) {
            let mut path = Text::new();
            let is_known = folder.starts_with(b"/") || actions.is_null();
            let Some(name) = searched.map(|(name, _)| name).filter(|_| is_known) else { break };
            if in_folder(&mut path, folder, name).is_none() {
                break;
            }
            let path = path.from(0);
            match Plan::new().decide(HERE, path.into()) {
                Start::Error(_) => {}
                Start::Copy | Start::Script { .. } => {
                    return spawn.start(&mut Plan::new(), Command { path: path.into(), words, env });
                }
                // This file may be the program to start, and it is not staged: leave the search to the C library.
                Start::Same | Start::Path if kernel::permits(path, libc::X_OK).is_ok() => break,
                Start::Same | Start::Path => {}
            }
        }
        if file.bytes().is_some_and(|file| file.contains(&b'/')) {
            let start = spawn.decide(&mut Plan::new(), file);
            if matches!(start, Start::Copy | Start::Script { .. }) {
                return spawn.start(&mut Plan::new(), Command { path: file, words, env });
            }
        }
        call_spawn!(posix_spawnp, spawn, Command { path: file, words, env })
    }
}
