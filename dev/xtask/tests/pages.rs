//! The documents contain no merge conflict markers, their links lead to existing files and headings, and the page on
//! testing lists the packages that the set-up installs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use xtask::debian::{Purpose, packages};
use xtask::layout::root;

/// All pages: README.md and the other pages in the root folder, the folders of `docs`, and the pages of the benchmarks.
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

/// The names under which the headings of a page can be linked to: lower case, without punctuation, hyphens instead of
/// spaces.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.split("```").step_by(2).flat_map(str::lines).filter_map(|line| line.split_once("# "));
    let headings = headings.filter(|(marks, _)| marks.bytes().all(|mark| mark == b'#'));
    let kept = |letter: &char| letter.is_alphanumeric() || "-_ ".contains(*letter);
    headings
        .map(|(_, heading)| heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-"))
        .collect()
}

#[test]
fn links_in_pages_lead_to_existing_files_and_headings() {
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        let folder = page.parent().unwrap_or(Path::new("."));
        for link in links(&text).filter(|link| !link.contains("://")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { folder.join(file) };
            assert!(target.exists(), "{}: {link}", page.display());
            if !heading.is_empty() {
                let there = anchors(&fs::read_to_string(target).expect("a page"));
                assert!(there.contains(heading), "{}: {link}", page.display());
            }
        }
    }
}

/// The words in backquotes in the second cell of the table row that begins with `head`.
fn second_cell<'a>(page: &'a str, head: &str) -> BTreeSet<&'a str> {
    let line = page.lines().find(|line| line.starts_with(head)).unwrap_or_else(|| panic!("no line {head}"));
    line.split('|').nth(2).expect("a second cell").split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_page_of_testing_lists_the_packages_of_debian_that_each_command_installs() {
    let testing = fs::read_to_string(root().join("docs/dev/testing.md")).expect("the page");
    assert_eq!(second_cell(&testing, "| the demo |"), packages(Purpose::Demo).into_iter().collect());
    let rows = ["| the demo |", "| tests on MPI", "| tests on PMI", "| tests under Slurm", "| tools that tests run"];
    let listed: BTreeSet<&str> = rows.iter().flat_map(|head| second_cell(&testing, head)).collect();
    assert_eq!(listed, packages(Purpose::Test).into_iter().collect());
}
