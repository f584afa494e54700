//! Prepares the data that several children of one program share: path, arguments, directory, environment.

use crate::process::limit;
use libc::c_char;
use rustix::process::Resource;
use std::collections::HashMap;
use std::ffi::{CStr, CString, NulError};

/// The shell that runs scripts without `#!`, as with `execvp`.
pub(super) const SHELL: &CStr = c"/bin/sh";

/// The program that the child executes, as C strings.
pub(super) struct Execution {
    pub path: *const c_char,
    pub argv: *const *const c_char,
    /// The arguments for `/bin/sh`, used if `path` is a script without `#!`.
    pub shell_argv: *const *const c_char,
    pub envp: *const *const c_char,
    /// The working directory; null: the parent's.
    pub cwd: *const c_char,
}

/// A program with its arguments, prepared once and started any number of times.
pub struct Program {
    path: CString,
    arguments: Strings,
    shell_arguments: Strings,
    directory: Option<CString>,
    environment: Strings,
    /// The index of each variable in `environment`.
    names: HashMap<Vec<u8>, usize>,
}

impl Program {
    /// A program: `path` is executed with `arguments` (the first is the program's own name) after a change to
    /// `directory`. `environment` holds `NAME=VALUE`; the last entry for a name takes precedence.
    ///
    /// # Errors
    /// One of them contains a zero byte.
    pub fn new(
        path: &[u8],
        arguments: &[Vec<u8>],
        directory: Option<&[u8]>,
        environment: &[Vec<u8>],
    ) -> Result<Program, NulError> {
        let path = CString::new(path)?;
        let shell = [SHELL.to_bytes(), path.to_bytes()].into_iter();
        let (unique, names) = unique(environment);
        Ok(Program {
            arguments: Strings::new(arguments.iter().map(Vec::as_slice))?,
            shell_arguments: Strings::new(shell.chain(arguments.iter().skip(1).map(Vec::as_slice)))?,
            directory: directory.map(CString::new).transpose()?,
            environment: Strings::new(unique.into_iter())?,
            names,
            path,
        })
    }

    /// The program as pointers, which stay valid while `self` is alive, and `environment` is alive and unchanged.
    pub(super) fn execution(&self, environment: &Environment) -> Execution {
        Execution {
            path: self.path.as_ptr(),
            argv: self.arguments.pointers.as_ptr(),
            shell_argv: self.shell_arguments.pointers.as_ptr(),
            envp: environment.pointers.as_ptr(),
            cwd: self.directory.as_ref().map_or(std::ptr::null(), |directory| directory.as_ptr()),
        }
    }
}

/// The environment of one child: the program's variables, in which the child's own replace those of the same name; the
/// child's other variables are appended.
#[derive(Default)]
pub(super) struct Environment {
    own: Strings,
    pointers: Vec<*const c_char>,
}

impl Environment {
    /// Sets the child's own variables. The pointers stay valid while `self` is unchanged and `program` is alive.
    pub fn set(&mut self, program: &Program, own: &[Vec<u8>]) -> Result<(), NulError> {
        self.own = Strings::new(own.iter().map(Vec::as_slice))?;
        self.pointers.clear();
        // The program's strings without the terminating null pointer.
        self.pointers.extend(&program.environment.pointers[..program.environment.count()]);
        for (index, variable) in own.iter().enumerate() {
            // The own variables are scanned, since a rank has only about a dozen of them: a table would cost more.
            if own[index + 1..].iter().any(|later| name(later) == name(variable)) {
                continue;
            }
            match program.names.get(name(variable)) {
                Some(&place) => self.pointers[place] = self.own.pointers[index],
                None => self.pointers.push(self.own.pointers[index]),
            }
        }
        self.pointers.push(std::ptr::null());
        Ok(())
    }
}

/// C strings in one block, with the null-terminated array of pointers that `exec` needs.
#[derive(Default)]
struct Strings {
    /// The bytes that `pointers` point to.
    _bytes: Box<[u8]>,
    pointers: Vec<*const c_char>,
}

impl Strings {
    fn new<'a>(strings: impl Iterator<Item = &'a [u8]>) -> Result<Strings, NulError> {
        let mut bytes = Vec::new();
        let mut starts = Vec::new();
        for string in strings {
            starts.push(bytes.len());
            if string.contains(&0) {
                CString::new(string)?;
            }
            bytes.extend_from_slice(string);
            bytes.push(0);
        }
        let bytes = bytes.into_boxed_slice();
        let pointer = |start: usize| bytes[start..].as_ptr().cast::<c_char>();
        let pointers = starts.into_iter().map(pointer).chain([std::ptr::null()]).collect();
        Ok(Strings { pointers, _bytes: bytes })
    }

    fn count(&self) -> usize {
        self.pointers.len() - 1
    }
}

/// The name of a variable, the part before `=` in `NAME=VALUE`.
fn name(variable: &[u8]) -> &[u8] {
    let end = variable.iter().position(|&byte| byte == b'=').unwrap_or(variable.len());
    &variable[..end]
}

fn unique(variables: &[Vec<u8>]) -> (Vec<&[u8]>, HashMap<Vec<u8>, usize>) {
    let mut names = HashMap::with_capacity(variables.len());
    let mut unique: Vec<&[u8]> = Vec::with_capacity(variables.len());
    for variable in variables {
        let place = *names.entry(name(variable).to_vec()).or_insert(unique.len());
        if place == unique.len() {
            unique.push(variable);
        } else {
            unique[place] = variable;
        }
    }
    (unique, names)
}

/// The soft resource limits that differ from this process's own; for all others a child makes no system call. A child
/// sets its limits itself, so that they never apply to its parent.
#[derive(Clone, Default, Debug)]
pub struct Limits(Vec<One>);

#[derive(Clone, Copy, Debug)]
pub(super) struct One {
    pub resource: u32,
    pub bounds: libc::rlimit64,
}

impl Limits {
    /// Soft limits of children, each capped at the hard limit of this process; `u64::MAX`: unlimited.
    pub fn new(soft: impl IntoIterator<Item = (Resource, u64)>) -> Limits {
        Limits(soft.into_iter().filter_map(|(resource, soft)| One::new(resource, soft)).collect())
    }

    pub(super) fn list(&self) -> &[One] {
        &self.0
    }
}

impl One {
    fn new(resource: Resource, soft: u64) -> Option<One> {
        // A limit that cannot be read is not changed.
        let own = limit(resource).ok()?;
        // Unlimited: `RLIM64_INFINITY` is the largest number, so `min` works.
        let number = |bound: Option<u64>| bound.unwrap_or(libc::RLIM64_INFINITY);
        let (rlim_cur, rlim_max) = (soft.min(number(own.maximum)), number(own.maximum));
        let bounds = libc::rlimit64 { rlim_cur, rlim_max };
        (rlim_cur != number(own.current)).then_some(One { resource: resource as u32, bounds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn list(environment: &Environment) -> Vec<&str> {
        let pointers = environment.pointers.split_last().unwrap().1;
        // SAFETY: the program and the environment are alive; all strings end with a zero.
        pointers.iter().map(|&pointer| unsafe { CStr::from_ptr(pointer) }.to_str().unwrap()).collect()
    }

    fn strings(list: &[&str]) -> Vec<Vec<u8>> {
        list.iter().map(|string| string.as_bytes().to_vec()).collect()
    }

    #[test]
    fn later_variables_win_and_each_name_appears_once() {
        let shared = strings(&["A=1", "B=2", "A=3", "C="]);
        let program = Program::new(b"/bin/true", &strings(&["true"]), None, &shared).unwrap();
        let mut environment = Environment::default();
        environment.set(&program, &[]).unwrap();
        assert_eq!(list(&environment), ["A=3", "B=2", "C="]);
        environment.set(&program, &strings(&["D=4", "B=5", "D=6", "E=7", "D=8", "B=9"])).unwrap();
        assert_eq!(list(&environment), ["A=3", "B=9", "C=", "E=7", "D=8"]);
    }

    #[test]
    fn a_zero_byte_is_refused() {
        let bad = strings(&["a\0b"]);
        assert!(Program::new(b"/bin/true", &bad, None, &[]).is_err());
        assert!(Program::new(b"/bin/true", &[], None, &bad).is_err());
        let program = Program::new(b"/bin/true", &[], None, &[]).unwrap();
        assert!(Environment::default().set(&program, &bad).is_err());
    }
}
