//! Reads host files that ranks pass when they spawn processes.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Most bytes of a file that are read. Chosen: some ten thousand names.
const LEN_MAX: u64 = 1 << 20;

/// The names in a host file: the first word of each line, followed by a colon and the number of `slots=` if the
/// line has one. A `#` begins a comment.
///
/// # Errors
/// The file cannot be read, is not text, or has a `slots=` that is not a number.
pub fn names(path: &Path) -> io::Result<Vec<String>> {
    // Without `O_NONBLOCK`, opening a named pipe would wait for a writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut text = String::new();
    file.take(LEN_MAX).read_to_string(&mut text)?;
    let mut names = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(name) = words.next() else { continue };
        match words.find_map(|word| word.strip_prefix("slots=")) {
            None => names.push(name.to_owned()),
            Some(slots) if slots.parse::<u32>().is_ok() => names.push(format!("{name}:{slots}")),
            Some(slots) => return Err(io::Error::other(format!("line {number}: slots={slots} is not a number"))),
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_names_a_host() {
        let path = std::env::temp_dir().join(format!("wireup-host-file-{}", std::process::id()));
        std::fs::write(&path, "n0 slots=4\n# n1\n\n  n2:3 # the last one\n").unwrap();
        let found = names(&path);
        std::fs::write(&path, "n0\nn1 slots=x\n").unwrap();
        let refused = names(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found.unwrap(), ["n0:4", "n2:3"]);
        assert_eq!(refused.unwrap_err().to_string(), "line 2: slots=x is not a number");
        assert!(names(&path).is_err());
    }
}
