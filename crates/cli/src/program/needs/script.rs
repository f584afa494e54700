//! The first lines of a script: which program the kernel starts for it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the kernel reads of a script (bytes, `BINPRM_BUF_SIZE`); pip's second line may be longer.
const HEAD_LEN: u64 = 4096;
const LINE_LEN_MAX: usize = 256;
/// The beginning of the line by which pip starts an interpreter whose path is too long for `#!`.
const PIP_LINE: &[u8] = b"'''exec' ";

/// The interpreter of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interpreter {
    /// The program in the `#!` line.
    pub path: PathBuf,
    /// A program that `path` in turn starts for the script: the name after `env`, or pip's interpreter.
    pub starts: Option<Vec<u8>>,
}

/// The interpreter of the script at `path`. `None` if the kernel would not start it.
pub fn interpreter(path: &Path) -> Option<Interpreter> {
    let mut head = Vec::new();
    File::open(path).ok()?.take(HEAD_LEN).read_to_end(&mut head).ok()?;
    parse(&head)
}

fn parse(head: &[u8]) -> Option<Interpreter> {
    let mut lines = head.split(|&byte| byte == b'\n');
    let line = lines.next()?.strip_prefix(b"#!")?;
    let line = line[..line.len().min(LINE_LEN_MAX)].trim_ascii();
    let end = line.iter().position(|byte| b" \t".contains(byte)).unwrap_or(line.len());
    let (path, argument) = (Path::new(OsStr::from_bytes(&line[..end])), line[end..].trim_ascii());
    if path.as_os_str().is_empty() {
        return None;
    }
    let starts = match path.file_name() {
        Some(name) if name == "env" => started_by_env(argument),
        _ => lines.next().and_then(|line| line.strip_prefix(PIP_LINE)).and_then(first_word),
    };
    Some(Interpreter { path: path.to_path_buf(), starts })
}

/// The program in `env`'s argument: a name, or `-S` with options, variables, and a name.
fn started_by_env(argument: &[u8]) -> Option<Vec<u8>> {
    if !argument.starts_with(b"-") {
        return Some(argument.to_vec()).filter(|name| !name.is_empty());
    }
    let line = match argument.strip_prefix(b"--split-string=") {
        Some(line) => line,
        None => &argument[memchr::memchr(b'S', argument)? + 1..],
    };
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        match word {
            // Options with a value of their own.
            b"-u" | b"-C" | b"--unset" | b"--chdir" => drop(words.next()),
            _ if word.starts_with(b"-") || word.contains(&b'=') => {}
            _ => return first_word(word),
        }
    }
    None
}

/// The first word of a shell's line, without quotes around it.
fn first_word(line: &[u8]) -> Option<Vec<u8>> {
    let word = match line.first()? {
        quote @ (b'"' | b'\'') => line[1..].split(|byte| byte == quote).next()?,
        _ => line.split(|&byte| byte == b' ').next()?,
    };
    Some(word.to_vec()).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_read_from_the_first_lines() {
        let parsed = |head: &str| {
            let found = parse(head.as_bytes())?;
            let starts = found.starts.map(|name| String::from_utf8(name).expect("ASCII"));
            Some((found.path.to_str()?.to_owned(), starts))
        };
        let known = |path: &str, starts: Option<&str>| Some((path.to_owned(), starts.map(str::to_owned)));
        assert_eq!(parsed("#!/bin/sh\necho"), known("/bin/sh", None));
        assert_eq!(parsed("#! /bin/sh -e"), known("/bin/sh", None));
        assert_eq!(parsed("#!\t/a/b\tc d\n"), known("/a/b", None));
        assert_eq!(parsed("#!/usr/bin/env python3\n"), known("/usr/bin/env", Some("python3")));
        assert_eq!(parsed("#!/usr/bin/env -S A=b -u C python3 -u\n"), known("/usr/bin/env", Some("python3")));
        assert_eq!(parsed("#!/usr/bin/env -vS python3 -u\n"), known("/usr/bin/env", Some("python3")));
        assert_eq!(parsed("#!/usr/bin/env\n"), known("/usr/bin/env", None));
        let pip = "#!/bin/sh\n'''exec' \"/a b/python\" \"$0\" \"$@\"\n' '''\n";
        assert_eq!(parsed(pip), known("/bin/sh", Some("/a b/python")));
        assert_eq!(parsed("#!\n/bin/sh"), None);
        assert_eq!(parsed("echo"), None);
    }
}
