//! Files of hosts that ranks name when they ask for processes.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What is read of one (chosen: some ten thousand names).
const LEN_MAX: u64 = 1 << 20;

/// The names in it: the first word of each line, with the number of `slots=` behind a colon. What is behind a `#` is a comment.
///
/// # Errors
/// It cannot be read, or is no text.
pub fn names(path: &Path) -> io::Result<Vec<String>> {
    // A pipe would not let us wait for its other end.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut text = String::new();
    file.take(LEN_MAX).read_to_string(&mut text)?;
    let name = |line: &str| {
        let mut words = line.split('#').next()?.split_whitespace();
        let name = words.next()?;
        let slots = words.find_map(|word| word.strip_prefix("slots="));
        Some(slots.map_or_else(|| name.to_owned(), |slots| format!("{name}:{slots}")))
    };
    Ok(text.lines().filter_map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_names_a_host() {
        let path = std::env::temp_dir().join(format!("wireup-host-file-{}", std::process::id()));
        std::fs::write(&path, "n0 slots=4\n# n1\n\n  n2:3 # the last one\n").unwrap();
        let found = names(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found.unwrap(), ["n0:4", "n2:3"]);
        assert!(names(&path).is_err());
    }
}
