//! The adapters through which other libraries use libwireup.

use std::path::{Path, PathBuf};
use std::process::Command;
use wireup_e2e::Run;
use wireup_e2e::libraries::{ALL_RIGHT, PLACEMENTS, hydras, library_path, under};
use wireup_e2e::peers::program;
use xtask::layout;
use xtask::programs::Flavour;

fn adapter(name: &str) -> PathBuf {
    program(Flavour::Adapter, name).expect("the C compiler that built this test's own programs")
}

/// Compiles a program with the compiler flags that users need, into a folder of this test process.
fn compile(source: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let folder = layout::target().join("adapters");
    std::fs::create_dir_all(&folder).expect("make a folder");
    let output = folder.join(format!("{name}.{}", std::process::id()));
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&output).arg(source).args(flags);
    cc.arg("-I").arg(layout::root().join("include")).arg("-I").arg(layout::root().join("adapters/ucc"));
    cc.arg("-L").arg(library_path()).arg("-lwireup");
    assert!(cc.status().expect("start the compiler").success(), "{cc:?}");
    output
}

#[test]
fn uccs_exchanges_go_on_at_the_same_time() {
    for (placement, ranks) in PLACEMENTS {
        Run::job(placement).linked().arg(adapter("oob")).succeed().expect_all_right(ranks);
    }
    for (hydra, _) in hydras() {
        // A known problem: under other launchers, a rank that exits right after a barrier is sometimes taken for lost,
        // in some 6 of 100 runs.
        let attempt = || std::panic::catch_unwind(|| under(&hydra, 5, &[], &adapter("oob"), "")).ok();
        let said = (0..3).find_map(|_| attempt()).expect("one of three runs succeeds");
        assert_eq!(said.matches(ALL_RIGHT).count(), 5, "{said}");
    }
}

/// UCC is in no package: if it is installed, it makes a team of all ranks over the adapter.
#[test]
fn ucc_makes_contexts_and_teams() {
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", "ucc"]).output();
    let Some(flags) = flags.ok().filter(|output| output.status.success()) else {
        return eprintln!("skipped: ucc is not installed");
    };
    let flags = String::from_utf8_lossy(&flags.stdout).into_owned();
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let team = compile(&layout::sources().join("adapters/team.c"), "team", &flags);
    let outcome = Run::job("-n 4 --virtual-nodes 2").linked().arg(&team).succeed();
    std::fs::remove_file(&team).expect("remove the program");
    outcome.expect_all_right(4);
}

/// The plugin is compared with the plugins that NVSHMEM contains: the same program checks the answers of all.
#[test]
fn nvshmem_gets_its_bootstrap_from_a_plugin() {
    let source = layout::root().join("adapters/nvshmem/nvshmem_bootstrap_wireup.c");
    let own = compile(&source, "plugin", &["-shared", "-fPIC"]);
    let theirs = ["pmi", "pmi2"].map(|name| layout::peer("nvshmem").join(format!("lib/nvshmem_bootstrap_{name}.so.3")));
    for plugin in [&own].into_iter().chain(&theirs) {
        assert!(plugin.exists(), "no {}: run the set-up", plugin.display());
        let job = Run::job("-n 5 --virtual-nodes 2 --pmi simple").linked();
        let in_place = (plugin == &own).then_some("in-place");
        job.arg(adapter("plugin")).arg(plugin).args(in_place.as_slice()).succeed().expect_all_right(5);
    }
    std::fs::remove_file(&own).expect("remove the plugin");
}
