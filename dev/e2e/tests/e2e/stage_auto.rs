//! `--stage=auto`: files on a network file system are staged if there are so many ranks that staging saves time.

use crate::staging::{mounting, slow};
use std::path::{Path, PathBuf};
use wireup_e2e::Run;
use wireup_e2e::folders::Folder;
use wireup_testbed::slowfs::SlowFs;

/// Makes a folder with many small files, which is on a local disk and also mounted as a slow file system.
fn many(folder: &Folder) -> Option<(SlowFs, PathBuf)> {
    for number in 0..400 {
        folder.write(&format!("source/{number}"), b"x");
    }
    Some((slow(folder, |_| ())?, folder.at("mount")))
}

fn job(folder: &Folder, ranks: u32, files: &Path, more: &str) -> Run {
    Run::job(&format!("-n {ranks} --virtual-nodes 2 --pmi none --verbose --stage=auto --stage-also"))
        .cwd(Path::new("/"))
        .arg(files.join("*"))
        .arg(folder.stage())
        .args(more.split_whitespace())
        .arg("cat")
        .arg(files.join("7"))
}

#[test]
fn many_ranks_get_copies_of_files_on_the_network_and_few_ranks_do_not() {
    let Some(folder) = mounting() else { return };
    let Some((_slow, mount)) = many(&folder) else { return };
    let outcome = job(&folder, 2, &mount, "").succeed();
    outcome
        .expect_err_line(&["--stage=auto: not staging: 400 files on FUSE", "by 2 ranks", "no more than staging them"]);
    assert!(!folder.at("store").exists() && outcome.out().matches('x').count() == 2, "{outcome}");
    let outcome = job(&folder, 16, &mount, "").succeed();
    outcome.expect_err_line(&["--stage=auto: staging: 400 files on FUSE", "by 16 ranks", "more than staging them"]);
    outcome.expect_err_line(&["staged on 1 node: 400 files"]);
    assert!(folder.at("store").exists() && outcome.out().matches('x').count() == 16, "{outcome}");
    // Files on a local disk are not staged.
    let outcome = job(&folder, 16, &folder.at("source"), "").succeed();
    outcome.expect_err_line(&["--stage=auto: not staging: nothing that the ranks need lies on a network file system"]);
}

#[test]
fn a_dry_run_says_what_would_be_chosen() {
    let Some(folder) = mounting() else { return };
    let Some((_slow, mount)) = many(&folder) else { return };
    let outcome = job(&folder, 2, &mount, "--dry-run").succeed();
    assert!(outcome.out().contains("--stage=auto: not staging: 400 files on FUSE"), "{outcome}");
    assert!(!outcome.out().contains("staged on each node"), "{outcome}");
    let outcome = job(&folder, 16, &mount, "--dry-run").succeed();
    assert!(outcome.out().contains("--stage=auto: staging: 400 files on FUSE"), "{outcome}");
    assert!(outcome.out().contains("staged on each node: 400 files"), "{outcome}");
}
