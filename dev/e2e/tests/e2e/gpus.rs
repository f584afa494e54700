//! `--gpus-per-rank`, tested with variables only: no test machine has GPUs.

use wireup_e2e::Run;

const SHOW: &str = r#"echo "$WIREUP_RANK: $CUDA_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES $ZE_AFFINITY_MASK""#;

#[test]
fn visible_devices_are_divided_among_the_ranks_of_a_node() {
    let line =
        "-n 4 --virtual-nodes 2 --gpus-per-rank 2 -genv CUDA_VISIBLE_DEVICES=7,5,GPU-1,0 -genv ZE_AFFINITY_MASK=0.0";
    let outcome = Run::job(line).sh(SHOW).succeed().expect_quiet();
    assert_eq!(outcome.sorted_lines(), ["0: 7,5  0.0", "1: GPU-1,0  0.0", "2: 7,5  0.0", "3: GPU-1,0  0.0"]);
}

#[test]
fn the_launchers_device_variables_apply_on_this_machine() {
    let run = Run::job("-n 2 --gpus-per-rank 1").env("ROCR_VISIBLE_DEVICES", "4,2");
    assert_eq!(run.sh(SHOW).succeed().sorted_lines(), ["0:  4 ", "1:  2 "]);
}

#[test]
fn too_few_gpus_are_an_error_that_names_the_node() {
    let run = Run::job("-n 4 --virtual-nodes 2 --gpus-per-rank 2").env("CUDA_VISIBLE_DEVICES", "0,1,2");
    let outcome = run.sh(SHOW).finish().expect_code(125);
    outcome.expect_err_line(&[
        "node node",
        "2 ranks with 2 GPUs each need 4 GPUs, but the node has 3 (CUDA_VISIBLE_DEVICES=0,1,2)",
        "lower --gpus-per-rank",
    ]);
}
