//! What is started in place of a program, with its words and its environment.
//!
//! A copy is started only if the loader of programs opens this library in it. Whatever cannot have it, a static program
//! for example, is the original, and so is what it sees of itself; only where there is no original it is the copy.

use crate::kernel::{self, File};
use crate::real;
use crate::staged::{Staged, look, staged};
use core::ffi::{CStr, c_char, c_int};
use core::ptr;
use wireup_redirect::program::{BEGIN_LEN, Program, program};
use wireup_redirect::{Found, Text, Walk};

pub type Words = *const *const c_char;

/// Words of a script that need no memory from the kernel.
const WORDS_SMALL: usize = 64;

/// What is started.
pub enum Start {
    /// What the caller has named.
    Same,
    /// This path, with nothing else known about it.
    Path,
    /// The copy.
    Copy,
    /// An interpreter, with the script's name among its words; `is_copy`: of the interpreter too.
    Script {
        is_copy: bool,
    },
    Error(c_int),
}

/// The memory of a decision.
pub struct Plan {
    walk: Walk,
    /// The beginning of the file, and a zero; for a script the two words of its first line end with zeros.
    begin: [u8; BEGIN_LEN + 1],
    interpreter: usize,
    argument: Option<usize>,
}

impl Plan {
    pub const fn new() -> Plan {
        Plan { walk: Walk::new(), begin: [0; BEGIN_LEN + 1], interpreter: 0, argument: None }
    }

    /// # Safety
    /// `path` is null, or ends with a zero.
    pub unsafe fn decide(&mut self, folder: c_int, path: *const c_char) -> Start {
        // SAFETY: guaranteed by the caller.
        let mut found = unsafe { look(&mut self.walk, folder, path, true) };
        if found == Found::Unknown {
            // SAFETY: as above.
            found = unsafe { self.look_behind(path) };
        }
        match found {
            Found::Unknown => Start::Same,
            Found::Absent => Start::Error(libc::ENOENT),
            Found::Original | Found::Folder => Start::Path,
            Found::Copy => {
                // SAFETY: a path that is known is not null.
                let is_plain = folder == libc::AT_FDCWD || unsafe { *path } == b'/' as c_char;
                self.of_copy(is_plain)
            }
        }
    }

    /// A program that starts itself again does so by the kernel's name for it.
    ///
    /// # Safety
    /// As for [`Plan::decide`].
    #[inline(never)]
    unsafe fn look_behind(&mut self, path: *const c_char) -> Found {
        let Some(staged) = staged().filter(|_| !path.is_null()) else { return Found::Unknown };
        // SAFETY: guaranteed by the caller.
        let path = unsafe { CStr::from_ptr(path) };
        let mut target = Text::new();
        let mut read = || target.fill(|into| usize::try_from(kernel::read_link(path, into)).ok());
        if !path.to_bytes().starts_with(b"/proc/")
            || read().is_none()
            || staged.map.original(target.as_bytes()).is_none()
        {
            return Found::Unknown;
        }
        staged.resolve(&mut self.walk, target.as_bytes(), None, true)
    }

    fn of_copy(&mut self, is_plain: bool) -> Start {
        match self.read(is_plain) {
            Err(libc::EACCES) => Start::Path,
            Err(number) => Start::Error(number),
            Ok(Is::Dynamic) => Start::Copy,
            // `Other` must be the original, unless there is none.
            Ok(Is::Other) if kernel::exists(self.walk.original()) == Err(libc::ENOENT) => Start::Copy,
            Ok(Is::Other) => Start::Path,
            Ok(Is::Script) => self.of_script(),
        }
    }

    /// What the copy is, on which the walk has ended.
    fn read(&mut self, is_plain: bool) -> Result<Is, c_int> {
        let file = File::open(self.walk.copy())?;
        kernel::permits(self.walk.copy(), libc::X_OK)?;
        let len = file.read(&mut self.begin[..BEGIN_LEN]);
        let found = program(&self.begin[..len], |at, into| file.read_at(at, into));
        let Program::Script { interpreter, argument } = found else {
            return Ok(if found == Program::Dynamic { Is::Dynamic } else { Is::Other });
        };
        if !is_plain {
            // Its interpreter would get a name that begins at the open folder.
            return Ok(Is::Other);
        }
        let at = |word: &[u8]| word.as_ptr().addr() - self.begin.as_ptr().addr();
        let (from, end) = (at(interpreter), at(interpreter) + interpreter.len());
        let argument = argument.map(|word| (at(word), at(word) + word.len()));
        self.begin[end] = 0;
        if let Some((_, end)) = argument {
            self.begin[end] = 0;
        }
        (self.interpreter, self.argument) = (from, argument.map(|(from, _)| from));
        Ok(Is::Script)
    }

    fn of_script(&mut self) -> Start {
        let interpreter = self.word(self.interpreter);
        // SAFETY: it ends with a zero.
        let found = unsafe { look(&mut self.walk, libc::AT_FDCWD, interpreter, true) };
        match found {
            Found::Copy => match is_dynamic(self.walk.copy()) {
                true => Start::Script { is_copy: true },
                false => Start::Same,
            },
            Found::Absent => Start::Error(libc::ENOENT),
            Found::Unknown | Found::Original | Found::Folder => Start::Script { is_copy: false },
        }
    }

    fn word(&self, at: usize) -> *const c_char {
        self.begin[at..].as_ptr().cast()
    }

    /// Calls with the program, its words and its environment. `path`: what the caller has named.
    ///
    /// # Safety
    /// `path` ends with a zero, `words` and `env` are lists that end with a null, or are null.
    pub unsafe fn call(
        &self,
        start: &Start,
        path: *const c_char,
        words: Words,
        env: Words,
        call: impl FnOnce(*const c_char, Words, Words) -> c_int,
    ) -> Result<c_int, c_int> {
        let Some(staged) = staged() else { return Ok(call(path, words, env)) };
        Ok(match start {
            Start::Error(number) => return Err(*number),
            Start::Same => call(path, words, env),
            Start::Path => call(self.walk.original().as_ptr(), words, env),
            Start::Copy => {
                // SAFETY: guaranteed by the caller.
                let environment = unsafe { Environment::with_library(staged, env) };
                call(self.walk.copy().as_ptr(), words, environment.as_ref().map_or(env, |new| new.list()))
            }
            Start::Script { is_copy } => {
                let interpreter = self.word(self.interpreter);
                let program = if *is_copy { self.walk.copy().as_ptr() } else { interpreter };
                let begin = [interpreter, self.argument.map_or(ptr::null(), |at| self.word(at)), path];
                // SAFETY: guaranteed by the caller.
                let count = unsafe { count(words) };
                let mut small = [ptr::null(); WORDS_SMALL + 4];
                let mut large = None;
                let list = match small.get_mut(..count + 4) {
                    Some(list) => list,
                    None => large.insert(List::new(count + 4).ok_or(libc::ENOMEM)?).as_mut(),
                };
                let begin = begin.into_iter().filter(|word| !word.is_null());
                // The script's name takes the place of the first word.
                // SAFETY: the list has this length.
                let all = begin.chain((1..count).map(|at| unsafe { *words.add(at) }));
                list.iter_mut().zip(all).for_each(|(place, word)| *place = word);
                let list: Words = list.as_ptr();
                // SAFETY: guaranteed by the caller.
                let environment = if *is_copy { unsafe { Environment::with_library(staged, env) } } else { None };
                call(program, list, environment.as_ref().map_or(env, |new| new.list()))
            }
        })
    }
}

/// What a copy is.
enum Is {
    Dynamic,
    Script,
    Other,
}

fn is_dynamic(path: &CStr) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let mut begin = [0; 64];
    let len = file.read(&mut begin);
    program(&begin[..len], |at, into| file.read_at(at, into)) == Program::Dynamic
        && kernel::permits(path, libc::X_OK).is_ok()
}

/// # Safety
/// The list ends with a null, or is null.
unsafe fn count(list: Words) -> usize {
    let mut count = 0;
    // SAFETY: guaranteed by the caller.
    while !list.is_null() && !unsafe { *list.add(count) }.is_null() {
        count += 1;
    }
    count
}

/// Memory from the kernel, given back at the end. After `vfork` in the same memory nobody does so if the new program
/// has started: it is needed only there where a program calls with a list of its own, so rarely.
struct List {
    at: *mut *const c_char,
    len: usize,
}

impl List {
    fn new(len: usize) -> Option<List> {
        Some(List { at: kernel::memory(len * size_of::<usize>())?.cast(), len })
    }

    fn as_mut(&mut self) -> &mut [*const c_char] {
        // SAFETY: it has this length, and zeros are nulls.
        unsafe { core::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: it came from there.
        unsafe { kernel::free(self.at.cast(), self.len * size_of::<usize>()) };
    }
}

/// An environment to which the variables of this library were added.
struct Environment(List);

const LOADED: [&[u8]; 2] = [b"LD_AUDIT=", b"LD_PRELOAD="];

impl Environment {
    /// `None`: they are there, or there is no memory.
    ///
    /// # Safety
    /// The list ends with a null, or is null.
    unsafe fn with_library(staged: &Staged, env: Words) -> Option<Environment> {
        // SAFETY: guaranteed by the caller.
        let count = unsafe { count(env) };
        // SAFETY: the list has this length, and its texts end with zeros.
        let entry = |at: usize| unsafe { CStr::from_ptr(*env.add(at)) }.to_bytes_with_nul();
        let library = staged.map.library();
        let has = |name: &[u8]| (0..count).find_map(|at| entry(at).strip_prefix(name)?.strip_suffix(b"\0"));
        let is_loaded =
            |name: &&[u8]| has(name).is_some_and(|value| value.split(|byte| *byte == b':').any(|one| one == library));
        if LOADED.iter().all(is_loaded) && (0..count).any(|at| entry(at) == staged.variable) {
            return None;
        }
        let texts: usize =
            LOADED.iter().map(|name| name.len() + library.len() + 2 + has(name).map_or(0, <[u8]>::len)).sum();
        let mut list = List::new(count + 4 + texts.div_ceil(size_of::<usize>()))?;
        let mut used = 0;
        let is_ours =
            |entry: &[u8]| entry.starts_with(b"WIREUP_STAGED=") || LOADED.iter().any(|name| entry.starts_with(name));
        for at in (0..count).filter(|at| !is_ours(entry(*at))) {
            // SAFETY: the list has this length.
            list.as_mut()[used] = unsafe { *env.add(at) };
            used += 1;
        }
        list.as_mut()[used] = staged.variable.as_ptr().cast();
        // SAFETY: the texts lie behind the pointers, in the same memory.
        let mut text = unsafe { list.at.add(count + 4) }.cast::<u8>();
        for (index, name) in LOADED.iter().enumerate() {
            list.as_mut()[used + 1 + index] = text.cast();
            let others = has(name).unwrap_or_default();
            let between: &[u8] = if others.is_empty() { b"" } else { b":" };
            for part in [name, library, between, others, b"\0"] {
                // SAFETY: the memory has the length of all parts.
                unsafe {
                    ptr::copy_nonoverlapping(part.as_ptr(), text, part.len());
                    text = text.add(part.len());
                }
            }
        }
        Some(Environment(list))
    }

    fn list(&self) -> Words {
        self.0.at
    }
}

/// The result of a call as the C library returns it.
pub fn returned(result: Result<c_int, c_int>) -> c_int {
    result.unwrap_or_else(real::fail)
}
