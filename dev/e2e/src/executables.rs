//! Programs that tests write and then start.
//!
//! While a test writes a program, a child that another test's thread forks inherits the descriptor that is open for
//! writing; until that child closes it, the kernel refuses to execute the file ("text file busy"). So a separate
//! process, in which no test forks, writes each of these programs.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Copies a program.
pub fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("--").args([from, to]).status().expect("start cp");
    assert!(copied.success(), "copy {} to {}", from.display(), to.display());
}

/// Writes a program.
pub fn write(to: &Path, content: &str, mode: u32) {
    let file = to.to_str().expect("a path of plain text");
    let mut shell = Command::new("sh")
        .args(["-c", "cat > \"$1\"", "sh", file])
        .stdin(Stdio::piped())
        .spawn()
        .expect("start a shell");
    shell.stdin.take().expect("its input").write_all(content.as_bytes()).expect("pass the content");
    assert!(shell.wait().expect("wait for the shell").success(), "write {file}");
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(mode)).expect("set the mode");
}
