//! Decides what `exec` runs for a path (its copy, its original or a script's interpreter) and prepares the arguments
//! and the environment.
//!
//! The copy of a program is started only if the dynamic loader will load this library into it. Otherwise, for example
//! for a static program, the original is started, which sees originals only. If there is no original, the copy is
//! started anyway.

use crate::arguments::{CText, NewWords, Words};
use crate::kernel::{self, File, Pages};
use crate::real;
use crate::staged::{Staged, look, staged};
use core::ffi::{CStr, c_int};
use core::ptr;
use wireup_redirect::program::{BEGIN_LEN, Program, program};
use wireup_redirect::{Found, Text, Walk};

/// Length of a list of arguments, with the null at its end, that is built on the stack; a longer list gets memory from
/// the kernel.
const WORDS_SMALL: usize = 68;

/// The program that a caller wants to start, with its arguments and environment.
#[derive(Clone, Copy)]
pub struct Command<'a> {
    pub path: CText<'a>,
    pub words: Words<'a>,
    pub env: Words<'a>,
}

/// Starts a program. One type for all functions of the `exec` family, which keeps the library small.
pub type Call<'a> = &'a mut dyn FnMut(Command<'_>) -> c_int;

/// What is started for a path.
pub enum Start {
    /// The path that the caller passed.
    Same,
    /// The original at the path to which the path resolves.
    Path,
    /// The copy of the program.
    Copy,
    /// An interpreter, with the script's path among its arguments; `is_copy`: the copy of the interpreter is started.
    Script {
        is_copy: bool,
    },
    Error(c_int),
}

/// Decides what is started for a path ([`Plan::decide`]); contains the buffers for that, since nothing is allocated.
pub struct Plan {
    walk: Walk,
    /// The beginning of the file and a zero. In a script, interpreter and argument in the first line end with zeros.
    begin: [u8; BEGIN_LEN + 1],
    interpreter: usize,
    argument: Option<usize>,
}

impl Plan {
    pub const fn new() -> Plan {
        Plan { walk: Walk::new(), begin: [0; BEGIN_LEN + 1], interpreter: 0, argument: None }
    }

    pub fn decide(&mut self, folder: c_int, path: CText<'_>) -> Start {
        let mut found = look(&mut self.walk, folder, path, true);
        if found == Found::Unknown {
            found = self.look_behind(path);
        }
        match found {
            Found::Unknown => Start::Same,
            Found::Absent => Start::Error(libc::ENOENT),
            Found::Original | Found::Folder => Start::Path,
            Found::Copy => self.of_copy(folder == libc::AT_FDCWD || path.is_absolute()),
        }
    }

    /// Resolves links under `/proc` to copies: a program that executes itself again uses `/proc/self/exe`.
    #[inline(never)]
    fn look_behind(&mut self, path: CText<'_>) -> Found {
        let (Some(staged), Some(path)) = (staged(), path.text()) else { return Found::Unknown };
        let mut target = Text::new();
        if !path.to_bytes().starts_with(b"/proc/")
            || target.fill(|into| kernel::read_link(path, into)).is_none()
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
            // The original is started unless it does not exist: the copy of an `Other` program would not load the
            // library.
            Ok(Is::Other) if kernel::exists(self.walk.original()) == Err(libc::ENOENT) => Start::Copy,
            Ok(Is::Other) => Start::Path,
            Ok(Is::Script) => self.of_script(),
        }
    }

    /// The kind of the copy at which `walk` has ended.
    fn read(&mut self, is_plain: bool) -> Result<Is, c_int> {
        let file = File::open(self.walk.copy())?;
        kernel::permits(self.walk.copy(), libc::X_OK)?;
        let len = file.read(&mut self.begin[..BEGIN_LEN]);
        let found = program(&self.begin[..len], |at, into| file.read_at(at, into));
        let Program::Script { interpreter, argument } = found else {
            return Ok(if found == Program::Dynamic { Is::Dynamic } else { Is::Other });
        };
        if !is_plain {
            // The interpreter would need a path of the script relative to the open directory.
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
        let interpreter = word(&self.begin, self.interpreter);
        match look(&mut self.walk, libc::AT_FDCWD, interpreter.into(), true) {
            Found::Copy => match is_dynamic(self.walk.copy()) {
                true => Start::Script { is_copy: true },
                false => Start::Same,
            },
            Found::Absent => Start::Error(libc::ENOENT),
            Found::Unknown | Found::Original | Found::Folder => Start::Script { is_copy: false },
        }
    }

    /// Calls `call` with the program that `start` selects, its arguments and its environment.
    pub fn call(&self, start: &Start, asked: Command<'_>, call: Call<'_>) -> Result<c_int, c_int> {
        let Some(staged) = staged() else { return Ok(call(asked)) };
        match start {
            Start::Error(number) => Err(*number),
            Start::Same => Ok(call(asked)),
            Start::Path => Ok(call(Command { path: self.walk.original().into(), ..asked })),
            Start::Copy => Ok(with_library(staged, Command { path: self.walk.copy().into(), ..asked }, call)),
            Start::Script { is_copy } => self.call_interpreter(staged, *is_copy, asked, call),
        }
    }

    /// Calls `call` with the script's interpreter. In its arguments the script's path replaces the script's `argv[0]`.
    fn call_interpreter(
        &self,
        staged: &Staged,
        is_copy: bool,
        Command { path, words, env }: Command<'_>,
        call: Call<'_>,
    ) -> Result<c_int, c_int> {
        let interpreter = word(&self.begin, self.interpreter);
        let argument = self.argument.map(|at| CText::from(word(&self.begin, at)));
        let begin = [Some(CText::from(interpreter)), argument, Some(path)];
        let all = begin.into_iter().flatten().chain(words.all().skip(1));
        let path = if is_copy { self.walk.copy() } else { interpreter };
        with_list(words.all().count() + begin.len(), all, |words| {
            let command = Command { path: path.into(), words, env };
            if is_copy { with_library(staged, command, call) } else { call(command) }
        })
    }
}

/// Calls `call` with a list of these words, of which there are at most `count`; the error is `ENOMEM`.
pub fn with_list<'a>(
    count: usize,
    mut words: impl Iterator<Item = CText<'a>>,
    call: impl FnOnce(Words<'_>) -> c_int,
) -> Result<c_int, c_int> {
    let (mut small, room) = ([ptr::null(); WORDS_SMALL], count + 1);
    let mut large = if room > small.len() { Pages::new(room * size_of::<usize>()) } else { None };
    let room = match &mut large {
        Some(pages) => pages.split(room).map(|(list, _)| list),
        None => small.get_mut(..room),
    };
    let mut list = room.and_then(NewWords::new).ok_or(libc::ENOMEM)?;
    words.try_for_each(|word| list.push(word)).ok_or(libc::ENOMEM)?;
    Ok(call(list.words()))
}

/// The zero-terminated text that begins at `at`.
fn word(begin: &[u8], at: usize) -> &CStr {
    begin.get(at..).and_then(|rest| CStr::from_bytes_until_nul(rest).ok()).unwrap_or_default()
}

/// Kinds of a copy that is to be executed.
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

const LOADED: [&[u8]; 2] = [b"LD_AUDIT=", b"LD_PRELOAD="];

/// Calls `call` with the variables of this library added to the environment; with the caller's environment if they are
/// already there, or if memory is short.
fn with_library(staged: &Staged, command: Command<'_>, call: Call<'_>) -> c_int {
    let env = command.env;
    let entries = || env.all().filter_map(CText::text);
    let library = staged.map.library();
    let is_loaded = |name: &&[u8]| value(env, name).split(|byte| *byte == b':').any(|one| one == library);
    if LOADED.iter().all(is_loaded) && entries().any(|entry| entry == staged.variable) {
        return call(command);
    }
    let texts: usize = LOADED.iter().map(|name| name.len() + library.len() + 2 + value(env, name).len()).sum();
    let pointers = entries().count() + 1 + LOADED.len() + 1;
    let mut pages = Pages::new(pointers * size_of::<usize>() + texts);
    let new = pages.as_mut().and_then(|pages| pages.split(pointers));
    let new = new.and_then(|(room, texts)| variables_in(room, texts, staged, env));
    let env = new.as_ref().map_or(env, NewWords::words);
    call(Command { env, ..command })
}

/// The value of a variable; `name` ends with `=`. Empty if the variable is not set.
fn value<'a>(env: Words<'a>, name: &[u8]) -> &'a [u8] {
    env.all().filter_map(CText::bytes).find_map(|entry| entry.strip_prefix(name)).unwrap_or_default()
}

/// Builds an environment with this library's variables. `None`: `room` or `texts` is too small.
fn variables_in<'m>(
    room: &'m mut [*const core::ffi::c_char],
    mut texts: &'m mut [u8],
    staged: &Staged,
    env: Words<'m>,
) -> Option<NewWords<'m>> {
    let mut list = NewWords::new(room)?;
    let is_ours = |entry: &CText<'_>| {
        let begins = |name: &&[u8]| entry.bytes().is_some_and(|bytes| bytes.starts_with(name));
        begins(&&b"WIREUP_STAGED="[..]) || LOADED.iter().any(begins)
    };
    env.all().filter(|entry| !is_ours(entry)).try_for_each(|entry| list.push(entry))?;
    list.push(staged.variable.into())?;
    for name in LOADED {
        let others = value(env, name);
        let between: &[u8] = if others.is_empty() { b"" } else { b":" };
        let parts = [name, staged.map.library(), between, others, b"\0"];
        let (text, rest) = texts.split_at_mut_checked(parts.iter().map(|part| part.len()).sum())?;
        let mut left = &mut *text;
        for part in parts {
            let (here, behind) = left.split_at_mut(part.len());
            here.copy_from_slice(part);
            left = behind;
        }
        list.push(CStr::from_bytes_with_nul(text).ok()?.into())?;
        texts = rest;
    }
    Some(list)
}

/// The result of a call in the C library's form: -1 and `errno` for an error.
pub fn returned(result: Result<c_int, c_int>) -> c_int {
    result.unwrap_or_else(real::fail)
}
