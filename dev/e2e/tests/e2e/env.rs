//! The environment of a rank: variables, working folder, limits.

use wireup_e2e::Run;
use wireup_e2e::peers::plain;
use wireup_e2e::tables::{fails, prints};

#[test]
fn ranks_have_the_variables_that_describe_them_and_those_that_flags_set() {
    let shell = |script: &str| {
        let run = Run::shell(script).env("INHERITED", "four");
        run.env("WHO", "echo $WIREUP_RANK $WIREUP_SIZE $WIREUP_LOCAL_RANK $WIREUP_LOCAL_SIZE $WIREUP_NODE")
            .env("LOCAL", "echo $PMI_RANK $MPI_LOCALRANKID $MPI_LOCALNRANKS")
            .env("WORLD", "echo ${RANK-no} ${WORLD_SIZE-no} ${LOCAL_RANK-no}")
            .env("MASTER", "echo $RANK $MASTER_ADDR ${MASTER_PORT:+port}")
            .env("GROUP", "echo $RANK $GROUP_RANK/$GROUP_WORLD_SIZE ${MASTER_PORT:+port} ${OMP_NUM_THREADS-no}")
            .env("FLAGS", "echo $ALL $GIVEN $INHERITED $MINE")
            .env("OWN", "echo $WIREUP_RANK ${ALL-no} ${MINE-no}")
    };
    prints(
        shell,
        "job -n 5 --virtual-nodes 2 sh -c \"$WHO\" => 0 5 0 3 0, 1 5 1 3 0, 2 5 2 3 0, 3 5 0 2 1, 4 5 1 2 1
         job -n 4 --virtual-nodes 2 sh -c \"$LOCAL\" => 0 0 2, 1 1 2, 2 0 2, 3 1 2
         job -n 1 sh -c \"$WORLD\" => no no no
         job -n 4 --virtual-nodes 2 --rank-env sh -c \"$WORLD\" => 0 4 0, 1 4 1, 2 4 0, 3 4 1
         job -n 2 --virtual-nodes 2 --rank-env sh -c \"$MASTER\" => 0 127.0.0.1 port, 1 127.0.0.1 port
         job -n 1 --rank-env -x MASTER_ADDR=n7 sh -c \"$MASTER\" => 0 n7 port
         job -n 3 --virtual-nodes 2 --for torch sh -c \"$GROUP\" => 0 0/2 port 1, 1 0/2 port 1, 2 1/2 port no
         job -n 1 -genv ALL=one -x GIVEN=two --env INHERITED -env MINE=three sh -c \"$FLAGS\" => one two four three
         job -genv ALL=a -n 1 -env MINE=b sh -c \"$OWN\" : -n 1 -env OTHER=x sh -c \"$OWN\" => 0 a b, 1 a no
         cd /usr; job -n 2 --virtual-nodes 2 pwd => /usr, /usr
         job -n 1 -wdir / pwd : -n 1 -wdir /usr pwd => /, /usr",
    );
}

#[test]
fn a_relative_program_name_is_found_in_the_current_directory() {
    let program = plain("limits");
    let folder = program.parent().expect("a program lies in a folder");
    Run::job("-n 2 --virtual-nodes 2 ./limits").cwd(folder).succeed().expect_out("nofile");
    // A program's name without a slash is looked up on PATH, then in the rank's working directory, even if that is not
    // the launcher's.
    Run::job("-n 1 limits").cwd(folder).succeed().expect_out("nofile");
    let folder = folder.display();
    let both = format!("-n 1 -x PATH=/bin -wdir {folder} limits : -n 1 -wdir /usr/bin -x PATH=/bin pwd");
    Run::job(&both).succeed().expect_out("nofile").expect_out("/usr/bin");
}

/// A rank has exactly one descriptor more than those that the launcher inherited: the PMI socket, whose number is in
/// PMI_FD. It also has the user's umask and file limit.
#[test]
fn no_descriptor_leaks_into_ranks() {
    let fds = |line: &str| line.split(" fds").nth(1).map(|fds| fds.split_whitespace().count());
    let limits = plain("limits");
    let given = fds(&Run::shell(&limits.display().to_string()).succeed().out()).expect("limits prints them");
    for placement in ["-n 8", "-n 8 --virtual-nodes 2"] {
        let script = format!("umask 027; ulimit -Sn 256; exec $WIREUP run {placement} {}", limits.display());
        let outcome = Run::shell(&script).succeed();
        for line in outcome.out().lines() {
            assert!(line.starts_with("nofile 256 umask 027 "), "{outcome}");
            let fds = fds(line).expect("limits prints them");
            assert!(fds == given + 1 || fds == 1, "{fds} descriptors instead of {} or 1: {outcome}", given + 1);
        }
    }
}

#[test]
fn odd_variable_values_and_arguments_arrive_unchanged() {
    let value: String = (1..=127u8).map(char::from).collect();
    let run = Run::job("-n 2 --virtual-nodes 2").env("ODD", value.clone());
    let outcome = run.args(["sh", "-c", "printf '%s\\n.' \"$ODD$1\"", "0", "it's \"$HOME\" \\!"]).succeed();
    assert_eq!(outcome.out().matches(&format!("{value}it's \"$HOME\" \\!")).count(), 2, "{outcome}");
}

/// `--gpus-per-rank` by variables only: no test machine has GPUs. The variables of the launcher's own environment say
/// which devices this machine has.
#[test]
fn visible_devices_are_divided_among_the_ranks_of_a_node() {
    let show = r#"echo "$WIREUP_RANK: $CUDA_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES $ZE_AFFINITY_MASK""#;
    let shell = |script: &str| Run::shell(script).env("SHOW", show);
    prints(
        shell,
        "job -n 4 --virtual-nodes 2 --gpus-per-rank 2 -genv CUDA_VISIBLE_DEVICES=7,5,GPU-1,0 \
            -genv ZE_AFFINITY_MASK=0.0 sh -c \"$SHOW\" => 0: 7,5  0.0, 1: GPU-1,0  0.0, 2: 7,5  0.0, 3: GPU-1,0  0.0
         export ROCR_VISIBLE_DEVICES=4,2; job -n 2 --gpus-per-rank 1 sh -c \"$SHOW\" | tr -d ' ' => 0:4, 1:2",
    );
    fails(
        shell,
        "export CUDA_VISIBLE_DEVICES=0,1,2; job -n 4 --virtual-nodes 2 --gpus-per-rank 2 true => \
            125 node node | 2 ranks \
            with 2 GPUs each need 4 GPUs, but the node has 3 (CUDA_VISIBLE_DEVICES=0,1,2) | lower --gpus-per-rank",
    );
}
