//! How a job ends: exit codes, the line with the reason, and time limits.

use std::fs;
use wireup_e2e::Run;
use wireup_e2e::folders::Folder;
use wireup_e2e::peers::{plain, program};
use wireup_e2e::tables::{fails, prints, reports};
use xtask::programs::Flavour;

#[test]
fn the_first_failing_rank_gives_exit_code_and_message() {
    let script = "echo pid $$; test $WIREUP_RANK = 2 && exit 9; exec sleep 1000";
    // Ranks in a PID namespace would see other pids than those in messages, so they run without one.
    let outcome = Run::job("-n 4 --label --contain none").sh(script).finish().expect_code(9);
    let pid = outcome.out().lines().find_map(|line| line.strip_prefix("[2] pid ").map(str::to_owned));
    outcome.expect_err_line(&["rank 2", "9", &pid.expect("rank 2 said its pid")]);
    let shell = |script: &str| {
        let run = Run::shell(script).env("CRASH", plain("crash"));
        run.env("AT_3", "test $WIREUP_RANK = 3 && eval $0; exec sleep 1000")
    };
    fails(
        shell,
        "job -n 4 sh -c \"$AT_3\" 'exit 9' => 9 rank 3 | 9
         job -n 4 --virtual-nodes 2 sh -c \"$AT_3\" 'exit 9' => 9 rank 3 | node1 | 9
         job -n 4 EACH sh -c \"$AT_3\" 'kill -9 $$' => 137 rank 3 | SIGKILL
         wireup run -n 4 EACH $CRASH 1 => 139 rank 1 | SIGSEGV
         wireup run -n 8 --virtual-nodes 4 false => 1 exited with code 1",
    );
    reports(shell, "wireup run -n 2 EACH --timeout 0.5 sleep 1000 => 124 raise --timeout");
    prints(
        shell,
        "wireup run -n 4 EACH true =>
         wireup run -n 2 --timeout 60 true =>
         wireup run -n 2 python3 -c 'print(1)' => 1, 1
         wireup run -n 256 --virtual-nodes 4 echo x | grep -c x => 256",
    );
}

/// The file also lists ranks that were terminated because of the first failure.
#[test]
fn the_end_of_each_rank_is_written_to_a_file() {
    let folder = Folder::new("ends-json");
    let file = folder.at("ends");
    let script = "test $WIREUP_RANK = 2 && exit 9; exec sleep 1000";
    let run = Run::job(&format!("-n 4 --virtual-nodes 2 --kill-grace 30 --json={}", file.display()));
    run.sh(script).finish().expect_code(9);
    let ends: serde_json::Value = serde_json::from_slice(&fs::read(file).expect("a file")).expect("JSON");
    assert_eq!(ends["exit_code"], 9, "{ends}");
    let end = |rank: usize| [&ends["ranks"][rank]["exit_code"], &ends["ranks"][rank]["signal"]].map(|end| end.as_u64());
    assert_eq!(
        [0, 1, 2, 3].map(end),
        [[None, Some(15)], [None, Some(15)], [Some(9), None], [None, Some(15)]],
        "{ends}"
    );
    assert!(ends["ranks"][3]["node"] == "node1" && ends["ranks"][3]["pid"].is_u64(), "{ends}");
}

#[test]
fn the_end_of_each_rank_is_the_last_line_of_standard_output() {
    let outcome = Run::job("-n 2 --virtual-nodes 2 --json").sh("printf $WIREUP_RANK").succeed();
    let out = outcome.out();
    let lines: Vec<&str> = out.lines().collect();
    let ends: serde_json::Value = serde_json::from_str(lines[2]).expect("JSON");
    assert!(lines.len() == 3 && ends["ranks"][1]["exit_code"] == 0, "{outcome}");
    let map = Run::job("-n 2 --virtual-nodes 2 --dry-run --json").sh("true").succeed();
    let map: serde_json::Value = serde_json::from_str(&map.out()).expect("JSON");
    assert_eq!(map["ranks"][1]["node"], "node1", "{map}");
}

/// Ranks write error files as torch's `@record` does. Rank 2 fails first; rank 1 fails as a consequence, but is the
/// first to exit.
#[test]
fn of_the_errors_that_ranks_have_written_the_earliest_is_shown() {
    let write = "write() { echo '{\"message\": {\"message\": \"'$1'\"}}' >$TORCHELASTIC_ERROR_FILE; };";
    let script = format!(
        "{write} case $RANK in 2) write first; : >$MARK;; 1) until test -e $MARK; do sleep 0.05; done; \
         write second; exit 3;; esac; exec sleep 1000"
    );
    let folder = Folder::new("ends-errors");
    let run = Run::job("-n 4 --virtual-nodes 2 --for torch").env("MARK", folder.at("mark"));
    let outcome = run.sh(&script).finish().expect_code(3);
    outcome.expect_err_line(&["rank 1", "exited with code 3"]);
    outcome.expect_err_line(&["rank 2 on node1 failed first: first"]);
}

#[test]
fn a_rank_that_fails_after_finalize_lets_the_others_finish() {
    for flavour in [Flavour::Mpich5, Flavour::OpenMpi4, Flavour::OpenMpi5] {
        for placement in ["-n 4", "-n 4 --virtual-nodes 2"] {
            let Some(program) = program(flavour, "lateexit") else { continue };
            let outcome = Run::job(placement).arg(program).finish().expect_code(3);
            assert_eq!(outcome.out().matches("has finished").count(), 3, "{outcome}");
            outcome.expect_err_line(&["rank 1", "code 3", "the other ranks continue"]);
            assert!(flavour != Flavour::Mpich5 || outcome.err().lines().count() == 1, "{outcome}");
        }
    }
}

/// Hydra and Open MPI end the job in this case as well.
#[test]
fn a_rank_that_is_killed_after_finalize_ends_the_others() {
    let Some(program) = program(Flavour::Mpich5, "lateexit") else { return };
    let outcome = Run::job("-n 3").arg(program).arg("signal").finish().expect_code(137);
    assert!(!outcome.out().contains("has finished"), "{outcome}");
    outcome.expect_err_line(&["rank 1", "SIGKILL"]);
}

/// A rank that needs some time after SIGTERM gets it, and its last output arrives.
#[test]
fn other_ranks_get_sigterm_and_time_to_end() {
    let script = "test $WIREUP_RANK = 1 && { sleep 0.5; exit 6; }; trap 'echo bye; exit 0' TERM; \
        while :; do sleep 0.02; done";
    let outcome = Run::job("-n 3 --virtual-nodes 2").sh(script).finish().expect_code(6);
    assert_eq!(outcome.out(), "bye\nbye\n", "{outcome}");
}

#[test]
fn ranks_that_ignore_sigterm_are_killed() {
    let script = "test $WIREUP_RANK = 1 && { sleep 0.5; exit 6; }; trap '' TERM INT HUP; while :; do sleep 0.1; done";
    Run::job("-n 3 --virtual-nodes 2").sh(script).finish().expect_code(6);
}

/// A rank of an MPI program that does not use the PMI connection that wireup offers.
#[test]
fn an_mpi_program_that_ignores_pmi_is_reported() {
    for flavour in [Flavour::Mpich4, Flavour::Mpich5] {
        let Some(program) = program(flavour, "noinit") else { continue };
        let outcome = Run::job("-n 2").arg(&program).succeed();
        assert_eq!(outcome.out().matches("rank 0 of 1").count(), 2, "{outcome}");
        outcome.expect_err_line(&["noinit", "PMI"]);
        Run::job("-n 1").arg(program).succeed().expect_quiet();
    }
}
