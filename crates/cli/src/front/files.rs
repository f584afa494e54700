//! Files that contain options: a program with its options on each line (`-configfile`, `--app`).
//!
//! Words are separated by blanks; quotes keep blanks together. A line that begins with `#` is a comment. A backslash at
//! the end continues a line on the next.

use crate::bounded_file;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Longest file. Chosen: a hundred thousand programs.
const BYTES_MAX: u64 = 16 << 20;

pub type Words = Result<Vec<OsString>, String>;

/// The lines that contain words, with their numbers; the first line is 1.
pub fn lines(path: &Path) -> Result<Vec<(usize, Words)>, String> {
    let unreadable = |problem| format!("{}: {problem}; name a file that can be read", path.display());
    Ok(split(&bounded_file::read(path, BYTES_MAX).map_err(unreadable)?))
}

fn split(bytes: &[u8]) -> Vec<(usize, Words)> {
    let mut found = Vec::new();
    let mut begun: Option<(usize, Vec<u8>)> = None;
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (number, mut text) = match begun.take() {
            Some(begun) => begun,
            None if line.trim_ascii_start().starts_with(b"#") => continue,
            None => (index + 1, Vec::new()),
        };
        match line.strip_suffix(b"\\") {
            Some(part) => {
                text.extend_from_slice(part);
                text.push(b' ');
                begun = Some((number, text));
            }
            None => {
                text.extend_from_slice(line);
                found.push((number, words(&text)));
            }
        }
    }
    found.extend(begun.map(|(number, text)| (number, words(&text))));
    found.retain(|(_, words)| words.as_ref().map_or(true, |words| !words.is_empty()));
    found
}

/// Splits a text at blanks, with the quotes of a shell.
pub fn words(text: &[u8]) -> Words {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<Vec<u8>>, None);
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (None, b' ' | b'\t') => words.extend(word.take()),
            (None, b'\'' | b'"') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (Some(open), _) if open == byte => quote = None,
            (None | Some(b'"'), b'\\') => word.get_or_insert_default().extend(bytes.next()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    if let Some(open) = quote {
        return Err(format!("a quote ({}) is not closed; close it", char::from(open)));
    }
    words.extend(word);
    Ok(words.into_iter().map(OsString::from_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_a_shell_would() {
        let text = b"# two programs\n\n-n 1 ./a 'x y' \"q\\\"\"\r\n  # another comment\n-n 2 \\\n  ./b \\ z ''\n";
        let words = |words: [&str; 5]| Ok(words.map(OsString::from).to_vec());
        let expected = [(3, words(["-n", "1", "./a", "x y", "q\""])), (5, words(["-n", "2", "./b", " z", ""]))];
        assert_eq!(split(text), expected);
    }

    #[test]
    fn open_quotes_and_missing_files_are_reported() {
        assert!(words(b"-n 1 'a").unwrap_err().contains("a quote (') is not closed"));
        let error = lines(Path::new("/no/such/file")).unwrap_err();
        assert!(error.starts_with("/no/such/file: ") && error.ends_with("name a file that can be read"), "{error}");
        assert!(lines(Path::new("/dev/zero")).unwrap_err().contains("longer than 16 MiB"));
    }
}
