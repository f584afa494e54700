//! PyTorch's store in the agents of a job.

use wireup_sim::workload::{Script, Step, StoreStep};
use wireup_sim::{WorldSpec, run};
use wireup_wire::job::Framework;

const SEEDS: u64 = 50;
const VALUE_BYTES: u16 = 60;
const SET: Step = Step::Store(StoreStep::Set { value_bytes: VALUE_BYTES });
const WAIT: Step = Step::Store(StoreStep::Wait);
const GET: Step = Step::Store(StoreStep::Get { value_bytes: VALUE_BYTES });
const BARRIER: Step = Step::Store(StoreStep::Barrier);

/// Most seeds have 7 nodes, which all own keys; some have 90 nodes, of which 21 own keys.
fn world(seed: u64, steps: &[Step]) -> WorldSpec {
    let (nodes, fanout) = if seed % 10 == 9 { (90, 4) } else { (7, 2) };
    let world = WorldSpec { fanout, ..WorldSpec::even(seed, nodes, 2, Script::plain(steps)) };
    world.options(|options| options.process.framework = Some(Framework::Torch))
}

#[test]
fn ranks_meet_in_the_store() {
    for seed in 0..SEEDS {
        let steps = [SET, WAIT, GET, BARRIER, SET, GET, Step::Exit { code: 0 }];
        assert_eq!(run(world(seed, &steps)).expect_good().code, Some(0), "seed {seed}");
    }
}

/// All ranks but one set their key and exit. The remaining rank waits for keys that ranks of the last node and of its
/// own node have set.
#[test]
fn what_ranks_wrote_before_they_exited_is_there() {
    for seed in 0..SEEDS {
        let only = Step::OnlyRank { rank: 0 };
        let steps = [SET, only, WAIT, only, GET, Step::Exit { code: 0 }];
        assert_eq!(run(world(seed, &steps)).expect_good().code, Some(0), "seed {seed}");
    }
}
