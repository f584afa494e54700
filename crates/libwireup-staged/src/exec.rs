//! Functions that start a program.

use crate::kernel;
use crate::real::{self, real};
use crate::staged::staged;
use crate::start::{Plan, Start, Words, returned};
use core::ffi::{CStr, c_char, c_int, c_void};
use wireup_redirect::Text;

const HERE: c_int = libc::AT_FDCWD;
/// Where programs are searched without `PATH`, as by glibc.
const USUAL: &[u8] = b"/bin:/usr/bin";

type Execute = unsafe extern "C" fn(*const c_char, Words, Words) -> c_int;

fn real_execve(path: *const c_char, words: Words, env: Words) -> c_int {
    let real = real!(c"execve").get();
    if real.is_null() {
        // SAFETY: guaranteed by the callers, which got all three.
        let result = unsafe { kernel::call(libc::SYS_execve, [path as usize, words as usize, env as usize, 0]) };
        return real::returned(result) as c_int;
    }
    // SAFETY: the C library's function of this name has these parameters.
    let real: Execute = unsafe { core::mem::transmute(real) };
    // SAFETY: guaranteed by the callers, which got all three.
    unsafe { real(path, words, env) }
}

/// It runs a file without a first line by the shell.
fn real_execvpe(path: *const c_char, words: Words, env: Words) -> c_int {
    let real = real!(c"execvpe").get();
    if real.is_null() {
        return real_execve(path, words, env);
    }
    // SAFETY: the C library's function of this name has these parameters.
    let real: Execute = unsafe { core::mem::transmute(real) };
    // SAFETY: guaranteed by the callers, which got all three.
    unsafe { real(path, words, env) }
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn execve(path: *const c_char, words: Words, env: Words) -> c_int {
    let mut plan = Plan::new();
    // SAFETY: guaranteed by the caller.
    unsafe {
        let start = plan.decide(HERE, path);
        returned(plan.call(&start, path, words, env, real_execve))
    }
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, words: Words) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { execve(path, words, real::environment()) }
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: *const c_char, words: Words) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { execvpe(file, words, real::environment()) }
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(file: *const c_char, words: Words, env: Words) -> c_int {
    // SAFETY: guaranteed by the caller.
    let Some((name, search)) = (unsafe { searched(file) }) else {
        // SAFETY: as above.
        return unsafe { execute_or_shell(file, words, env) };
    };
    let mut is_denied = false;
    for folder in search.split(|byte| *byte == b':') {
        let mut path = Text::new();
        if in_folder(&mut path, folder, name).is_none() {
            continue;
        }
        // SAFETY: as above.
        unsafe { execute_or_shell(path.as_ptr(), words, env) };
        match real::last_error() {
            libc::EACCES => is_denied = true,
            libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ENODEV | libc::ETIMEDOUT => {}
            _ => return -1,
        }
    }
    if is_denied { real::fail(libc::EACCES) } else { -1 }
}

/// # Safety
/// As for `execvpe`.
unsafe fn execute_or_shell(path: *const c_char, words: Words, env: Words) -> c_int {
    let mut plan = Plan::new();
    // SAFETY: guaranteed by the caller.
    unsafe {
        match plan.decide(HERE, path) {
            start @ (Start::Same | Start::Path) => returned(plan.call(&start, path, words, env, real_execvpe)),
            start => returned(plan.call(&start, path, words, env, real_execve)),
        }
    }
}

/// The name that is to be searched, and the folders; `None`: the C library finds it.
///
/// # Safety
/// `file` is null, or ends with a zero.
unsafe fn searched<'a>(file: *const c_char) -> Option<(&'a [u8], &'static [u8])> {
    staged()?;
    if file.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    let name = unsafe { CStr::from_ptr(file) }.to_bytes();
    let is_bare = !name.is_empty() && !name.contains(&b'/');
    is_bare.then(|| (name, real::variable(b"PATH").unwrap_or(USUAL)))
}

fn in_folder(path: &mut Text, folder: &[u8], name: &[u8]) -> Option<()> {
    // An empty one is the working folder.
    if !folder.is_empty() {
        path.push(folder)?;
        path.push(b"/")?;
    }
    path.push(name)
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(fd: c_int, words: Words, env: Words) -> c_int {
    let mut path = Text::new();
    if let Some(staged) = staged()
        && path.fill(|into| kernel::path_of(fd, into)).is_some()
        && staged.map.original(path.as_bytes()).is_some_and(|original| !original.is_empty())
    {
        let original = path.from(staged.map.tree().len()).as_ptr();
        // SAFETY: guaranteed by the caller; the path ends with a zero.
        return unsafe { execve(original, words, env) };
    }
    let real = real!(c"fexecve").get();
    if real.is_null() {
        return real::fail(libc::ENOSYS);
    }
    // SAFETY: the C library's function of this name has these parameters.
    let real: unsafe extern "C" fn(c_int, Words, Words) -> c_int = unsafe { core::mem::transmute(real) };
    // SAFETY: guaranteed by the caller.
    unsafe { real(fd, words, env) }
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn execveat(folder: c_int, path: *const c_char, words: Words, env: Words, flags: c_int) -> c_int {
    let real = real!(c"execveat").get();
    // SAFETY: guaranteed by the caller; a path has at least a zero.
    let is_empty = !path.is_null() && unsafe { *path } == 0;
    if is_empty && flags == libc::AT_EMPTY_PATH && staged().is_some_and(|staged| staged.has(folder)) {
        // SAFETY: guaranteed by the caller.
        return unsafe { fexecve(folder, words, env) };
    }
    let mut plan = Plan::new();
    // SAFETY: as above.
    let start = if flags == 0 { unsafe { plan.decide(folder, path) } } else { Start::Same };
    if !matches!(start, Start::Same) {
        // SAFETY: as above.
        return returned(unsafe { plan.call(&start, path, words, env, real_execve) });
    }
    if real.is_null() {
        return real::fail(libc::ENOSYS);
    }
    // SAFETY: the C library's function of this name has these parameters.
    let real: unsafe extern "C" fn(c_int, *const c_char, Words, Words, c_int) -> c_int =
        unsafe { core::mem::transmute(real) };
    // SAFETY: guaranteed by the caller.
    unsafe { real(folder, path, words, env, flags) }
}

type Spawn = unsafe extern "C" fn(*mut libc::pid_t, *const c_char, *const c_void, *const c_void, Words, Words) -> c_int;

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    pid: *mut libc::pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    words: Words,
    env: Words,
) -> c_int {
    let real = real!(c"posix_spawn").get();
    if real.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: the C library's function of this name has these parameters.
    let real: Spawn = unsafe { core::mem::transmute(real) };
    let mut plan = Plan::new();
    // The new process may first go to another working folder.
    // SAFETY: guaranteed by the caller.
    let start = match !actions.is_null() && unsafe { is_relative(path) } {
        true => Start::Same,
        // SAFETY: as above.
        false => unsafe { plan.decide(HERE, path) },
    };
    // SAFETY: as above.
    let spawn = |path, words, env| unsafe { real(pid, path, actions, attributes, words, env) };
    // This function returns the number of its error.
    // SAFETY: as above.
    unsafe { plan.call(&start, path, words, env, spawn) }.unwrap_or_else(|number| number)
}

/// # Safety
/// `path` is null, or ends with a zero.
unsafe fn is_relative(path: *const c_char) -> bool {
    // SAFETY: guaranteed by the caller.
    path.is_null() || unsafe { *path } != b'/' as c_char
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    pid: *mut libc::pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    words: Words,
    env: Words,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let searched = unsafe { searched(file) };
    for folder in searched.iter().flat_map(|(_, search)| search.split(|byte| *byte == b':')) {
        let mut path = Text::new();
        let is_known = folder.starts_with(b"/") || actions.is_null();
        let Some(name) = searched.map(|(name, _)| name).filter(|_| is_known) else { break };
        if in_folder(&mut path, folder, name).is_none() {
            break;
        }
        let mut plan = Plan::new();
        // SAFETY: it ends with a zero.
        let start = unsafe { plan.decide(HERE, path.as_ptr()) };
        match start {
            Start::Error(_) => {}
            Start::Copy | Start::Script { .. } => {
                // SAFETY: guaranteed by the caller.
                return unsafe { posix_spawn(pid, path.as_ptr(), actions, attributes, words, env) };
            }
            // It may be what is to be started: the C library finds it.
            Start::Same | Start::Path if kernel::permits(path.from(0), libc::X_OK).is_ok() => break,
            Start::Same | Start::Path => {}
        }
    }
    // SAFETY: as above; a path of one part is not searched.
    if !file.is_null() && unsafe { CStr::from_ptr(file) }.to_bytes().contains(&b'/') {
        let mut plan = Plan::new();
        // SAFETY: as above.
        let start = match !actions.is_null() && unsafe { is_relative(file) } {
            true => Start::Same,
            // SAFETY: as above.
            false => unsafe { plan.decide(HERE, file) },
        };
        if matches!(start, Start::Copy | Start::Script { .. }) {
            // SAFETY: as above.
            return unsafe { posix_spawn(pid, file, actions, attributes, words, env) };
        }
    }
    let real = real!(c"posix_spawnp").get();
    if real.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: the C library's function of this name has these parameters.
    let real: Spawn = unsafe { core::mem::transmute(real) };
    // SAFETY: guaranteed by the caller.
    unsafe { real(pid, file, actions, attributes, words, env) }
}
