//! `--gpus-per-rank`, tested with variables only: no test machine has GPUs.

use wireup_e2e::Run;
use wireup_e2e::tables::{fails, prints};

/// The variables of the launcher's own environment say which devices this machine has.
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
