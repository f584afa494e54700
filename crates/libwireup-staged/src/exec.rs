//! Functions that start a program: the copy of a staged one, and for a script the interpreter that its first line names.

use crate::kernel::{self, File};
use crate::paths::{self, LEN_MAX, PathBuffer};
use crate::real::{self, Real};
use crate::staged::instead;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

type Words = *const *const c_char;

/// The kernel reads this much of a script's first line.
const LINE_MAX: usize = 256;
/// Most words of a script's command line; with more the original is started.
const WORDS_MAX: usize = 4096;

/// What is started in place of a path: a program, and for a script other words.
struct Start {
    program: PathBuffer,
    interpreter: PathBuffer,
    argument: PathBuffer,
    is_script: bool,
}

impl Start {
    /// `None`: what the caller has named.
    ///
    /// # Safety
    /// `path` ends with a zero.
    unsafe fn of(path: *const c_char) -> Option<Start> {
        // SAFETY: guaranteed by the caller.
        let program = unsafe { instead(path, true) }?;
        let mut begin = [0; LINE_MAX];
        let len = File::open(program.as_ptr()).map_or(0, |file| file.read(&mut begin));
        let Some((interpreter, argument)) = paths::interpreter(&begin[..len]) else {
            return Some(Start::plain(program));
        };
        let interpreter = PathBuffer::of(&[interpreter])?;
        let argument = PathBuffer::of(&[argument.unwrap_or_default()])?;
        // SAFETY: it ends with a zero.
        let program = unsafe { instead(interpreter.as_ptr(), true) }.unwrap_or_else(|| interpreter.clone());
        Some(Start { program, interpreter, argument, is_script: true })
    }

    fn plain(program: PathBuffer) -> Start {
        Start { program, interpreter: PathBuffer::new(), argument: PathBuffer::new(), is_script: false }
    }

    /// Calls with the words of the new program. `path`: what the caller has named.
    ///
    /// # Safety
    /// `words` ends with a null.
    unsafe fn with(
        &self,
        path: *const c_char,
        words: Words,
        call: impl FnOnce(*const c_char, Words) -> c_int,
    ) -> c_int {
        if !self.is_script {
            return call(self.program.as_ptr(), words);
        }
        let mut all = [ptr::null(); WORDS_MAX];
        let mut count = 0;
        let mut add = |word: *const c_char| {
            all[count] = word;
            count += 1;
        };
        add(self.interpreter.as_ptr());
        if !self.argument.as_bytes().is_empty() {
            add(self.argument.as_ptr());
        }
        add(path);
        // The script's name takes the place of the first word.
        let mut next = 1;
        // SAFETY: guaranteed by the caller: the list is read to its end and no further.
        while !unsafe { *words }.is_null() && !unsafe { *words.add(next) }.is_null() {
            if next + 4 >= WORDS_MAX {
                return real::fail(libc::E2BIG);
            }
            // SAFETY: as above.
            add(unsafe { *words.add(next) });
            next += 1;
        }
        call(self.program.as_ptr(), all.as_ptr())
    }
}

/// The system call, with its result as the C library returns it.
fn exec(path: *const c_char, words: Words, env: Words) -> c_int {
    // SAFETY: the kernel checks what it is given.
    let result = unsafe { kernel::call(libc::SYS_execve, [path as usize, words as usize, env as usize, 0]) };
    real::returned(result) as c_int
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn execve(path: *const c_char, words: Words, env: Words) -> c_int {
    // SAFETY: guaranteed by the caller.
    match unsafe { Start::of(path) } {
        // SAFETY: as above.
        Some(start) => unsafe { start.with(path, words, |path, words| exec(path, words, env)) },
        None => exec(path, words, env),
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
    static REAL: Real = Real::named(c"execvpe");
    // SAFETY: guaranteed by the caller.
    let found = unsafe { search(file) };
    let path = found.as_ref().map_or(file, |found| found.as_ptr());
    // SAFETY: as above.
    if let Some(start) = unsafe { Start::of(path) } {
        // SAFETY: as above.
        return unsafe { start.with(path, words, |path, words| exec(path, words, env)) };
    }
    // It runs a script without a first line by the shell.
    // SAFETY: the C library's function of this name has these parameters.
    let real: unsafe extern "C" fn(*const c_char, Words, Words) -> c_int = unsafe { core::mem::transmute(REAL.get()) };
    // SAFETY: guaranteed by the caller.
    unsafe { real(path, words, env) }
}

/// The first file of this name in the folders of `PATH`; `None`: it has a folder, or is nowhere.
///
/// # Safety
/// `file` ends with a zero.
unsafe fn search(file: *const c_char) -> Option<PathBuffer> {
    // SAFETY: guaranteed by the caller.
    let name = unsafe { CStr::from_ptr(file) }.to_bytes();
    if name.is_empty() || name.contains(&b'/') {
        return None;
    }
    let folders = real::variable(b"PATH")?;
    folders.split(|byte| *byte == b':').find_map(|folder| {
        let folder: &[u8] = if folder.is_empty() { b"." } else { folder };
        let path = PathBuffer::of(&[folder, b"/", name])?;
        // SAFETY: it ends with a zero.
        let other = unsafe { instead(path.as_ptr(), true) };
        let candidate = other.as_ref().map_or(path.as_ptr(), |other| other.as_ptr());
        kernel::permits(candidate, libc::X_OK).then_some(path)
    })
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
    static REAL: Real = Real::named(c"posix_spawn");
    // SAFETY: the C library's function of this name has these parameters.
    let real: Spawn = unsafe { core::mem::transmute(REAL.get()) };
    // SAFETY: guaranteed by the caller.
    let spawn = |path: *const c_char, words: Words| unsafe { real(pid, path, actions, attributes, words, env) };
    // SAFETY: as above.
    match unsafe { Start::of(path) } {
        // SAFETY: as above.
        Some(start) => unsafe { start.with(path, words, spawn) },
        None => spawn(path, words),
    }
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
    static REAL: Real = Real::named(c"posix_spawnp");
    // SAFETY: guaranteed by the caller.
    let found = unsafe { search(file) };
    let path = found.as_ref().map_or(file, |found| found.as_ptr());
    // SAFETY: the C library's function of this name has these parameters.
    let real: Spawn = unsafe { core::mem::transmute(REAL.get()) };
    // SAFETY: guaranteed by the caller.
    let spawn = |path: *const c_char, words: Words| unsafe { real(pid, path, actions, attributes, words, env) };
    // SAFETY: as above.
    match unsafe { Start::of(path) } {
        // SAFETY: as above.
        Some(start) => unsafe { start.with(path, words, spawn) },
        None => spawn(path, words),
    }
}

/// The stack of a new process may be small (`vfork`).
const _: () = assert!(4 * LEN_MAX + WORDS_MAX * size_of::<usize>() <= 64 << 10);
