//! The documents contain no merge conflict markers, their links lead to existing files, and they list the packages that
//! are installed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use xtask::debian::{Purpose, packages};
use xtask::layout::root;

/// README and its like, all of `docs` with its shelves, and the pages of the benchmarks.
fn pages() -> Vec<PathBuf> {
    let folders = [
        "", "docs", "docs/guides", "docs/reference", "docs/explanation", "docs/dev", "dev", "dev/suites",
        "dev/testbed", "lab/data", "lab/report",
    ];
    let folders = folders.map(|folder| root().join(folder));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("a folder of ours"));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let pages: Vec<_> = paths.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect();
    assert!(pages.len() > 25, "{pages:?}");
    pages
}

/// The link targets in `](…)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link)
}

#[test]
fn no_page_has_merge_conflict_markers() {
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        let open = text.lines().find(|line| line.starts_with("<<<<<<<") || line.starts_with(">>>>>>>"));
        assert_eq!(open, None, "{}", page.display());
    }
}

#[test]
fn links_in_pages_lead_to_existing_files() {
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        let folder = page.parent().unwrap_or(Path::new("."));
        for link in links(&text).filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let file = link.split_once('#').map_or(link, |(file, _)| file);
            assert!(folder.join(file).exists(), "{}: {link}", page.display());
        }
    }
}

/// What stands in backquotes in the second cell of the table's line that begins with `head`.
fn second_cell<'a>(page: &'a str, head: &str) -> BTreeSet<&'a str> {
    let line = page.lines().find(|line| line.starts_with(head)).unwrap_or_else(|| panic!("no line {head}"));
    line.split('|').nth(2).expect("a second cell").split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_pages_list_the_packages_of_debian_that_each_command_installs() {
    let [readme, testing] = ["README.md", "docs/dev/testing.md"].map(|page| fs::read_to_string(root().join(page)));
    let (readme, testing) = (readme.expect("the page"), testing.expect("the page"));
    let demo: BTreeSet<&str> = packages(Purpose::Demo).into_iter().collect();
    assert_eq!(second_cell(&readme, "| `demo` |"), demo);
    assert_eq!(second_cell(&testing, "| the demo |"), demo);
    let rows = ["| the demo |", "| tests on MPI", "| tests on PMI", "| tests under Slurm", "| tools that tests run"];
    let listed: BTreeSet<&str> = rows.iter().flat_map(|head| second_cell(&testing, head)).collect();
    assert_eq!(listed, packages(Purpose::Test).into_iter().collect());
}
