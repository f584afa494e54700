//! The environment of a rank: variables, folder, limits.

use std::env::temp_dir;
use wireup_e2e::Run;
use wireup_e2e::peers::plain;

/// The values of `variables` in each rank, one line per rank, sorted.
fn of_each_rank(line: &str, variables: &[&str]) -> Vec<String> {
    let words: Vec<String> = variables.iter().map(|name| format!("${{{name}-unset}}")).collect();
    Run::job(line).sh(&format!("echo {}", words.join(" "))).succeed().sorted_lines()
}

#[test]
fn ranks_have_variables_for_rank_size_and_node() {
    let names = ["WIREUP_RANK", "WIREUP_SIZE", "WIREUP_LOCAL_RANK", "WIREUP_LOCAL_SIZE", "WIREUP_NODE"];
    let said = of_each_rank("-n 5 --virtual-nodes 2", &names);
    assert_eq!(said, ["0 5 0 3 0", "1 5 1 3 0", "2 5 2 3 0", "3 5 0 2 1", "4 5 1 2 1"]);
}

#[test]
fn ranks_have_the_local_rank_variables_of_mpi_libraries() {
    let said = of_each_rank("-n 4 --virtual-nodes 2", &["PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"]);
    assert_eq!(said, ["0 0 2", "1 1 2", "2 0 2", "3 1 2"]);
}

#[test]
fn rank_and_world_size_are_set_only_on_request() {
    let names = ["RANK", "WORLD_SIZE", "LOCAL_RANK"];
    assert_eq!(of_each_rank("-n 1", &names), ["unset unset unset"]);
    assert_eq!(of_each_rank("-n 4 --virtual-nodes 2 --rank-env", &names), ["0 4 0", "1 4 1", "2 4 0", "3 4 1"]);
}

#[test]
fn flags_set_variables_of_ranks() {
    let line = "-n 2 -genv ALL one -x GIVEN=two -x INHERITED -env MINE three";
    let script = "echo $ALL $GIVEN $INHERITED $MINE";
    let first = Run::job(line).env("INHERITED", "four").sh(script).succeed();
    assert_eq!(first.out(), "one two four three\n".repeat(2));
}

#[test]
fn variables_of_one_program_are_not_set_for_another() {
    let line = "-genv ALL all -n 1 -env MINE first";
    let script = "echo $WIREUP_RANK ${ALL-unset} ${MINE-unset}";
    let outcome = Run::job(line).sh(script).args([":", "-n", "1", "-env", "OTHER", "x"]).sh(script).succeed();
    assert_eq!(outcome.sorted_lines(), ["0 all first", "1 all unset"]);
}

#[test]
fn variable_values_of_every_ascii_byte_arrive_unchanged() {
    let value: String = (1..=127u8).map(char::from).collect();
    let outcome = Run::job("-n 2 --virtual-nodes 2").env("ODD", value.clone()).sh("printf '%s\\n.' \"$ODD\"").succeed();
    assert_eq!(outcome.out().matches(&value).count(), 2, "{outcome}");
}

#[test]
fn ranks_run_in_the_current_or_given_directory() {
    let here = temp_dir().canonicalize().expect("the temporary folder exists");
    let outcome = Run::job("-n 2 --virtual-nodes 2 pwd").cwd(&here).succeed();
    assert_eq!(outcome.out(), format!("{}\n", here.display()).repeat(2));
    let outcome = Run::job("-n 1 -wdir / pwd : -n 1 -wdir /usr pwd").succeed();
    assert_eq!(outcome.sorted_lines(), ["/", "/usr"]);
}

#[test]
fn a_relative_program_name_is_found_in_the_current_directory() {
    let program = plain("limits");
    let folder = program.parent().expect("a program lies in a folder");
    Run::job("-n 2 --virtual-nodes 2 ./limits").cwd(folder).succeed().expect_out("nofile");
    // A name without a slash is looked up on PATH, then in the rank's working directory, also if that is not the
    // launcher's.
    Run::job("-n 1 limits").cwd(folder).succeed().expect_out("nofile");
    let folder = folder.display();
    let both = format!("-n 1 -x PATH=/bin -wdir {folder} limits : -n 1 -wdir /usr/bin -x PATH=/bin pwd");
    Run::job(&both).succeed().expect_out("nofile").expect_out("/usr/bin");
}

#[test]
fn ranks_have_the_users_umask_and_file_limit() {
    let script =
        format!("umask 027; ulimit -Sn 256; exec $WIREUP run -n 2 --virtual-nodes 2 {}", plain("limits").display());
    let outcome = Run::shell(&script).succeed();
    for line in outcome.out().lines() {
        assert!(line.starts_with("nofile 256 umask 027 "), "{outcome}");
    }
}

/// The launcher raises the soft limit for itself, not for its ranks.
#[test]
fn a_low_soft_limit_of_open_files_allows_many_ranks() {
    let script = format!("ulimit -Sn 64; exec $WIREUP run -n 100 {}", plain("limits").display());
    let outcome = Run::shell(&script).succeed();
    assert_eq!(outcome.out().matches("nofile 64 ").count(), 100, "{outcome}");
}

/// A rank has exactly one descriptor more than the launcher got: the link that PMI_FD names.
#[test]
fn no_descriptor_leaks_into_ranks() {
    let fds = |line: &str| line.split(" fds").nth(1).map(|fds| fds.split_whitespace().count());
    let limits = plain("limits");
    let given = fds(&Run::shell(&limits.display().to_string()).succeed().out()).expect("limits prints them");
    for placement in ["-n 8", "-n 8 --virtual-nodes 2"] {
        let outcome = Run::job(placement).arg(&limits).succeed();
        for line in outcome.out().lines() {
            let fds = fds(line).expect("limits prints them");
            assert!(fds == given + 1 || fds == 1, "{fds} descriptors instead of {} or 1: {outcome}", given + 1);
        }
    }
}
