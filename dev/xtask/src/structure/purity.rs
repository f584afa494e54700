//! The pure crates use no clock, socket, file, process, lock, descriptor or source of randomness, and no `unsafe`.
//!
//! The compiler checks that there is no `unsafe`. For the other rules each crate has a `clippy.toml` with the types
//! that it must not use; clippy runs in `cargo xtask test`.

use super::{Finding, Tree};

const CRATES: [&str; 5] = ["crates/wire", "crates/coll", "crates/proto", "crates/client", "dev/sim"];

/// Types that the `clippy.toml` of each pure crate must forbid. `HashMap` is one of them because it is randomly seeded.
const TYPES: [&str; 22] = [
    "std::time::Instant", "std::time::SystemTime", "std::net::TcpStream", "std::net::TcpListener",
    "std::net::UdpSocket", "std::os::unix::net::UnixStream", "std::os::unix::net::UnixListener",
    "std::os::unix::net::UnixDatagram", "std::fs::File", "std::fs::OpenOptions", "std::fs::DirEntry",
    "std::process::Command", "std::process::Child", "std::thread::JoinHandle", "std::sync::Mutex", "std::sync::RwLock",
    "std::sync::Condvar", "std::os::fd::OwnedFd", "std::os::fd::BorrowedFd", "std::os::fd::RawFd",
    "std::collections::HashMap", "std::collections::HashSet",
];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let without_unsafe = CRATES.iter().filter(|name| !forbids_unsafe(tree, name));
    let broken = without_unsafe.map(|name| format!("{name}/src/lib.rs: #![forbid(unsafe_code)]")).collect();
    let mut findings = vec![Finding { rule: "pure crates forbid unsafe code".into(), broken }];
    findings.extend(CRATES.iter().map(|name| list(tree, name)));
    findings
}

fn forbids_unsafe(tree: &Tree, name: &str) -> bool {
    let text = tree.get(&format!("{name}/src/lib.rs")).unwrap_or("");
    text.lines().any(|line| line == "#![forbid(unsafe_code)]")
}

fn list(tree: &Tree, name: &str) -> Finding {
    let path = format!("{name}/clippy.toml");
    let text = tree.get(&path).unwrap_or("");
    let lacks =
        |wanted: &&&str| !text.lines().any(|line| !line.starts_with('#') && line.contains(&format!("\"{wanted}\"")));
    let broken = TYPES.iter().filter(lacks).map(|wanted| format!("{path}: {wanted}")).collect();
    Finding { rule: format!("{name}: no clock, net, file, process, lock, descriptor, random map"), broken }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_missing_from_a_clippy_list_are_named() {
        let all = TYPES.map(|path| format!("    {{ path = \"{path}\" }},\n")).concat();
        let short =
            all.replace("\"std::sync::Mutex\"", "").replace("    { path = \"std::fs::File\"", "# \"std::fs::File\"");
        let tree = Tree::from_files(&[("crates/wire/clippy.toml", &all), ("crates/coll/clippy.toml", &short)]);
        let broken: Vec<_> = check(&tree).into_iter().map(|finding| finding.broken).collect();
        assert_eq!(broken[1], [""; 0]);
        assert_eq!(broken[2], ["crates/coll/clippy.toml: std::fs::File", "crates/coll/clippy.toml: std::sync::Mutex"]);
        assert_eq!(broken[3].len(), TYPES.len());
    }

    #[test]
    fn a_crate_that_allows_unsafe_code_is_named() {
        let good = "//! Pure.\n#![no_std]\n#![forbid(unsafe_code)]\n";
        let files = CRATES.map(|name| (format!("{name}/src/lib.rs"), good));
        let mut files: Vec<_> = files.iter().map(|(path, text)| (&path[..], *text)).collect();
        assert_eq!(check(&Tree::from_files(&files))[0].broken, [""; 0]);
        files[1].1 = "// #![forbid(unsafe_code)]\n#![deny(unsafe_code)]";
        assert_eq!(check(&Tree::from_files(&files))[0].broken, ["crates/coll/src/lib.rs: #![forbid(unsafe_code)]"]);
    }
}
