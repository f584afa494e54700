//! Output files that the user names, in a folder where another user has created entries before.

use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use wireup_e2e::folders::Folder;
use wireup_e2e::strangers::{STRANGER, can_be_stranger};
use wireup_e2e::{Outcome, Run};

/// A folder in which every user may create entries, and a file of the user outside that folder.
struct Shared {
    own: Folder,
    precious: PathBuf,
}

impl Shared {
    fn new(name: &str) -> Shared {
        let own = Folder::new(name);
        fs::set_permissions(own.folder("shared"), fs::Permissions::from_mode(0o1777)).expect("permissions");
        Shared { precious: own.write("precious", "precious"), own }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.own.at("shared").join(name)
    }

    /// Creates a stranger's link to the user's file, with the name `name` in the folder.
    fn trap(&self, name: &str) {
        self.strangers_link(&self.precious, name);
    }

    fn strangers_link(&self, target: &Path, name: &str) {
        let _ = fs::remove_file(self.at(name));
        symlink(target, self.at(name)).expect("a link");
        lchown(self.at(name), Some(STRANGER), Some(STRANGER)).expect("a stranger's link");
    }

    fn expect_refused(&self, outcome: &Outcome, what: &str) {
        assert!(outcome.err().contains(&format!("of user {STRANGER}")), "{what}: {outcome}");
        assert_eq!(fs::read_to_string(&self.precious).expect("the file"), "precious", "{what}: {outcome}");
    }
}

#[test]
fn output_of_ranks_is_not_written_through_links_of_a_stranger() {
    if !can_be_stranger() {
        return;
    }
    let shared = Shared::new("ranks");
    let job = |flags: String| Run::job(&format!("-n 1 {flags}")).args(["echo", "text"]);
    shared.trap("rank.0.out");
    let outcome = job(format!("--output-dir {}", shared.at("").display())).finish();
    shared.expect_refused(&outcome, "--output-dir");
    // Output files in a folder `out` that is a stranger's link to another folder.
    shared.strangers_link(shared.precious.parent().expect("a folder"), "out");
    let outcome = job(format!("--output-dir {}/out", shared.at("").display())).finish();
    shared.expect_refused(&outcome, "the folder of --output-dir");
    assert!(!shared.precious.with_file_name("rank.0.out").exists(), "{outcome}");
    shared.trap("named");
    let outcome = job(format!("--profile {}", shared.at("named").display())).finish();
    shared.expect_refused(&outcome, "--profile");
    shared.trap("agent-0.rec");
    let outcome = job(format!("--record {}", shared.at("").display())).finish();
    shared.expect_refused(&outcome, "--record");
    // A link that the user has created works.
    fs::remove_file(shared.at("rank.0.out")).expect("the link");
    symlink(&shared.precious, shared.at("rank.0.out")).expect("a link");
    job(format!("--output-dir {}", shared.at("").display())).succeed();
    assert_eq!(fs::read_to_string(&shared.precious).expect("the file"), "precioustext\n");
}
