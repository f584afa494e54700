//! The programs under test. They are built before the tests run (`cargo xtask e2e`, `cargo xtask test`), because cargo
//! builds no binaries for a crate that only runs them. So each test checks that it runs what was built.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;
use std::{env, fs};
use xtask::build::{BUILD_ID, build_id};
use xtask::layout;

/// Path of the product under test: `WIREUP_BIN`, or the release build.
///
/// # Panics
/// The release build is missing, is not the one that xtask built, or is older than the product's sources.
pub fn wireup() -> PathBuf {
    static CHECKED: OnceLock<PathBuf> = OnceLock::new();
    CHECKED.get_or_init(|| env::var_os("WIREUP_BIN").map_or_else(release_build, PathBuf::from)).clone()
}

fn release_build() -> PathBuf {
    let program = layout::wireup();
    let built = fs::metadata(&program).and_then(|found| found.modified());
    let built = built.unwrap_or_else(|error| panic!("{}: {error}; run cargo xtask e2e NAME", program.display()));
    match env::var(BUILD_ID) {
        Ok(expected) => assert_eq!(build_id(&program), Ok(expected), "{} is not what xtask built", program.display()),
        Err(_) => {
            let newer = newer_source(&layout::root().join("crates"), built);
            assert!(newer.is_none(), "{} is older than {newer:?}; run cargo xtask e2e NAME", program.display());
        }
    }
    program
}

/// A file of the product's sources that has changed since `built`.
fn newer_source(folder: &Path, built: SystemTime) -> Option<PathBuf> {
    fs::read_dir(folder).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return newer_source(&path, built);
        }
        let is_source = path.extension().is_some_and(|end| end == "rs") && !path.components().any(is_of_tests);
        let is_newer = || entry.metadata().and_then(|found| found.modified()).is_ok_and(|changed| changed > built);
        (is_source && is_newer()).then_some(path)
    })
}

fn is_of_tests(component: std::path::Component<'_>) -> bool {
    component.as_os_str() == "tests" || component.as_os_str() == "tests.rs"
}

/// Path of the program `wireup-testbed`, which makes hosts.
///
/// # Panics
/// The program has not been built.
pub fn testbed() -> PathBuf {
    let program = layout::testbed();
    assert!(program.exists(), "{} is missing; run cargo xtask e2e NAME", program.display());
    program
}

/// A folder for the files of tests, on a disk that hosts of a testbed share.
///
/// # Panics
/// The folder cannot be created.
pub fn scratch() -> PathBuf {
    let folder = layout::target().join("tmp");
    fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    folder
}
