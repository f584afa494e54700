//! Reads the command line of a Python program: the interpreter, its options, and the script, module or code to run.

use crate::keeper::protocol::Program;
use crate::keeper::staged::Redirected;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use wireup_os::spawn::find_program;
use wireup_redirect::program::{self, BEGIN_LEN};

/// How a program calls the interpreter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Call {
    /// The arguments of the interpreter in a rank, the interpreter's name first.
    pub argv: Vec<Vec<u8>>,
    /// Name and options of the interpreter, without the program that the interpreter runs.
    pub options: Vec<Vec<u8>>,
    pub runs: Runs,
    /// Number of the Python program's own arguments, at the end of `argv`.
    pub rest: usize,
    /// Name of the process, if the kernel takes it from a script; empty: the name of the interpreter.
    pub process_name: Vec<u8>,
}

/// The program that the interpreter runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Runs {
    /// A file, a folder or a zip archive.
    Script(Vec<u8>),
    Module(Vec<u8>),
    Code(Vec<u8>),
}

/// Most scripts in a chain of scripts that are each other's interpreters: the limit of the kernel.
const SCRIPTS_MAX: usize = 5;

/// # Errors
/// The program is not Python, or its command line is not understood.
pub(super) fn read(program: &Program, redirected: Option<&Redirected>) -> Result<Call, String> {
    let cwd = if program.cwd.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(&program.cwd)) };
    let search = program.env.iter().rev().find_map(|variable| variable.strip_prefix(b"PATH="));
    let mut process_name = Vec::new();
    let mut program = program.clone();
    for _ in 0..SCRIPTS_MAX {
        let name = program.argv.first().cloned().unwrap_or_default();
        if is_python(&name) {
            return Call::new(program.argv, process_name);
        }
        let path = find_program(&name, search, cwd).map_err(|_| format!("{} is not found", shown(&name)))?;
        let staged = redirected.and_then(|redirected| redirected.find(&program, search, cwd));
        let argv = match staged {
            Some(start) => (start.argv != program.argv).then_some(start.argv),
            None => interpreter(&cwd.join(OsStr::from_bytes(&path)))
                .map(|words| words.into_iter().chain([path.clone()]).chain(program.argv.drain(1..)).collect()),
        };
        program.argv = argv.ok_or_else(|| format!("{} is not a Python program", shown(&name)))?;
        process_name = file_name(&path).to_vec();
        if file_name(&program.argv[0]) == b"env" {
            program.argv = behind_env(&program.argv)?;
            process_name.clear();
        }
    }
    Err("its interpreter is a script".into())
}

/// The interpreter and its argument from the first line (`#!`) of a script.
fn interpreter(path: &Path) -> Option<Vec<Vec<u8>>> {
    let mut begin = [0; BEGIN_LEN];
    let len = File::open(path).ok()?.read_at(&mut begin, 0).ok()?;
    // Only a binary file would be read further than its beginning.
    match program::program(&begin[..len], |_, _| 0) {
        program::Program::Script { interpreter, argument } => {
            Some([Some(interpreter), argument].into_iter().flatten().map(<[u8]>::to_vec).collect())
        }
        program::Program::Dynamic | program::Program::Other => None,
    }
}

/// The command that `env` executes for `env python3 ...` or `env -S` with several words.
fn behind_env(argv: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    let not_understood =
        || format!("the first line of {} is not understood", argv.last().map_or("".into(), |w| shown(w)));
    let first = argv.get(1).ok_or_else(not_understood)?;
    let split = first.strip_prefix(b"-S").or_else(|| first.strip_prefix(b"--split-string="));
    if split.is_some_and(|line| line.iter().any(|byte| b"'\"\\$#".contains(byte))) {
        return Err(not_understood());
    }
    let words = split.unwrap_or(first).split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let words: Vec<Vec<u8>> = words.map(<[u8]>::to_vec).collect();
    // `env` gets options or variables before the program, which are not supported here.
    if words.first().is_none_or(|word| word.starts_with(b"-") || word.contains(&b'=')) {
        return Err(not_understood());
    }
    Ok(words.into_iter().chain(argv[2..].iter().cloned()).collect())
}

fn is_python(name: &[u8]) -> bool {
    let version = file_name(name).strip_prefix(b"python");
    version
        .is_some_and(|version| !version.starts_with(b"2") && version.iter().all(|byte| b"0123456789.td".contains(byte)))
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

impl Call {
    /// Reads the arguments of the interpreter (`Py_Main`): options in words of several letters, of which `-c` and `-m`
    /// end the options, and `-W`, `-X` and `--check-hash-based-pycs` have a value.
    fn new(argv: Vec<Vec<u8>>, process_name: Vec<u8>) -> Result<Call, String> {
        let mut options = vec![argv[0].clone()];
        let mut at = 1;
        while let Some(word) = argv.get(at).filter(|word| word.starts_with(b"-") && word.len() > 1) {
            at += 1;
            match word.as_slice() {
                b"--" => break,
                b"--check-hash-based-pycs" => {
                    options.extend([Some(word), argv.get(at)].into_iter().flatten().cloned());
                    at += 1;
                    continue;
                }
                _ if word.starts_with(b"--") => {
                    return Err(format!("Python's option {} is not understood", shown(word)));
                }
                _ => {}
            }
            let letter = |letter: &u8| !b"bBdEIOPqRsSuv".contains(letter);
            let Some(place) = word.iter().skip(1).position(letter).map(|place| place + 1) else {
                options.push(word.clone());
                continue;
            };
            // An option's value is the rest of the word, or the next word.
            let inside = place + 1 < word.len();
            let value = if inside { Some(word[place + 1..].to_vec()) } else { argv.get(at).cloned() };
            at += usize::from(!inside);
            let value = value.ok_or_else(|| format!("Python's option {} has no value", shown(word)))?;
            let runs = match word[place] {
                b'W' | b'X' => {
                    options.push(word.clone());
                    options.extend((!inside).then_some(value));
                    continue;
                }
                b'c' => Runs::Code(value),
                b'm' => Runs::Module(value),
                _ => return Err(format!("--preload does not support Python's option {}", shown(word))),
            };
            options.extend((place > 1).then(|| word[..place].to_vec()));
            return Ok(Call { options, runs, rest: argv.len() - at, process_name, argv });
        }
        let script = argv.get(at).filter(|word| !word.is_empty() && word.as_slice() != b"-");
        let script = script.ok_or("Python reads its program from standard input")?.clone();
        Ok(Call { options, runs: Runs::Script(script), rest: argv.len() - at - 1, process_name, argv })
    }

    /// The arguments of an interpreter that reads its program from standard input. They have as many bytes as the
    /// arguments of a rank, and at least `room` bytes, so that the ranks can put their own arguments in the same place.
    pub fn of_importer(&self, room: usize) -> Vec<Vec<u8>> {
        let bytes = |words: &[Vec<u8>]| words.iter().map(|word| word.len() + 1).sum::<usize>();
        let mut argv = self.options.clone();
        argv.push(b"-".to_vec());
        let lacking = bytes(&self.argv).max(room).saturating_sub(bytes(&argv));
        argv.extend(lacking.checked_sub(1).map(|len| vec![b'.'; len]));
        argv
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn words(line: &str) -> Vec<Vec<u8>> {
        line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    fn call(line: &str) -> Result<Call, String> {
        Call::new(words(line), Vec::new())
    }

    #[test]
    fn options_end_at_what_the_interpreter_runs() {
        let script = |name: &str| Runs::Script(name.into());
        let module = |name: &str| Runs::Module(name.into());
        for (line, options, runs, rest) in [
            ("python3 train.py", "python3", script("train.py"), 0),
            ("python3 -u -W ignore -Xdev train.py -m x", "python3 -u -W ignore -Xdev", script("train.py"), 2),
            ("python3 -BuO -X importtime -- -odd.py a", "python3 -BuO -X importtime", script("-odd.py"), 1),
            ("python3 -m train -x", "python3", module("train"), 1),
            ("python3 -Imtrain", "python3 -I", module("train"), 0),
            ("python3 -Ic pass a b", "python3 -I", Runs::Code("pass".into()), 2),
            ("python3 --check-hash-based-pycs always .", "python3 --check-hash-based-pycs always", script("."), 0),
        ] {
            let call = call(line).unwrap();
            assert_eq!((&call.options, &call.runs, call.rest), (&words(options), &runs, rest), "{line}");
            assert_eq!(call.argv, words(line));
            let bytes = |argv: &[Vec<u8>]| argv.join(&0).len();
            assert_eq!(bytes(&call.of_importer(0)), bytes(&call.argv), "{line}");
        }
        for line in [
            "python3", "python3 -", "python3 -i a.py", "python3 -xu a.py", "python3 --help", "python3 -m", "python3 -V",
        ] {
            assert!(call(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_interpreter_of_a_script_is_in_its_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let script = |name: &str, line: &str| {
            fs::write(folder.path().join(name), format!("{line}\npass\n")).unwrap();
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
        };
        let read = |line: &str| {
            let env = vec![[b"PATH=", folder.path().as_os_str().as_bytes()].concat()];
            let cwd = folder.path().as_os_str().as_bytes().to_vec();
            read(&Program { argv: words(line), cwd, env }, None)
        };
        let path = |name: &str| folder.path().join(name).as_os_str().as_bytes().to_vec();
        script("direct", "#!/usr/bin/python3 -u");
        let direct = read("direct 1").unwrap();
        let argv = [words("/usr/bin/python3 -u"), vec![path("direct")], words("1")].concat();
        assert_eq!((direct.argv, direct.process_name), (argv, b"direct".to_vec()));
        script("found", "#!/usr/bin/env python3.12");
        script("split", "#! /usr/bin/env -S python3 -B -u");
        for (name, options) in [("found", "python3.12"), ("split", "python3 -B -u")] {
            let call = read(name).unwrap();
            assert_eq!((call.options, call.runs), (words(options), Runs::Script(path(name))), "{name}");
            assert!(call.process_name.is_empty());
        }
        script("shell", "#!/bin/sh");
        script("variable", "#!/usr/bin/env -S A=1 python3");
        script("python3-config", "#!/bin/sh");
        for line in ["shell", "variable", "missing", "python3-config", "python2 a.py"] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
