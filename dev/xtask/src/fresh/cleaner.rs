//! Removes a folder when this process ends, in whatever way.

use crate::debian::as_root;
use crate::step::Result;
use std::path::Path;
use std::process::{Child, Stdio};

/// Shell script of the cleaner: waits until its standard input, a pipe from this process, is closed. It ignores Ctrl-C
/// and hang-ups. It tries several times, since processes of the namespace may take a moment to die and create files
/// meanwhile.
const SCRIPT: &str = "\
trap '' HUP INT TERM
cat >/dev/null
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf --one-file-system \"$1\" 2>/dev/null && exit
    sleep 1
done
rm -rf --one-file-system \"$1\"
";

pub struct Cleaner(Child);

impl Cleaner {
    pub fn start(folder: &Path) -> Result<Cleaner> {
        let mut cleaner = as_root("sh");
        cleaner.args(["-c", SCRIPT, "sh"]).arg(folder).stdin(Stdio::piped()).stdout(Stdio::null());
        cleaner.spawn().map(Cleaner).map_err(|e| format!("sh: {e}"))
    }

    /// Lets the cleaner start, and waits until it has finished.
    pub fn finish(mut self) -> Result {
        // `wait` closes the cleaner's standard input first.
        let status = self.0.wait().map_err(|e| format!("wait for the cleaner: {e}"))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the folder of the new Debian could not be removed: {status}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, fs, process};

    #[test]
    fn the_folder_is_removed_only_at_finish() {
        if !crate::debian::is_root() {
            eprintln!("skipped: takes root");
            return;
        }
        let folder = env::temp_dir().join(format!("wireup-cleaner-{}", process::id()));
        fs::create_dir_all(folder.join("root/etc")).unwrap();
        let cleaner = Cleaner::start(&folder).unwrap();
        assert!(folder.join("root/etc").exists());
        cleaner.finish().unwrap();
        assert!(!folder.exists());
    }
}
