//! A replayed agent has the same outputs as the recorded one.

use wireup_proto::io::{Input, JobEvent};
use wireup_proto::replay::{Recorded, replay};
use wireup_sim::random::{collectives, with_faults, world};
use wireup_sim::{WorldSpec, run};

#[test]
fn a_replay_wants_what_the_recorded_run_wanted() {
    let mut left = 0;
    for seed in 0..60 {
        let spec = match seed % 2 {
            0 => with_faults(seed, run(world(seed)).elapsed_ns),
            _ => collectives::with_faults(seed, &run(collectives::collective_world(seed))),
        };
        let agent = (seed % u64::from(spec.agents)) as u32;
        let mut recordings = run(WorldSpec { record: agent..agent + 1, ..spec }).recordings;
        let Some(recording) = recordings.remove(&agent) else { continue };
        let report = replay(recording.config.clone(), recording.inputs.iter().cloned());
        assert_eq!(report, recording.report, "seed {seed}, agent {agent}");
        left += u32::from(report.left);
        let all_but_one = recording.inputs.len() - 1;
        let shorter = replay(recording.config, recording.inputs.into_iter().take(all_but_one));
        assert_eq!(shorter.inputs + 1, report.inputs);
    }
    assert!(left > 10, "too few agents exit: {left}");
}

#[test]
fn another_history_has_another_digest() {
    let recorded =
        |seed| run(WorldSpec { record: 0..1, ..world(seed) }).recordings.remove(&0).expect("the root always starts");
    let recording = recorded(3);
    let is_exit =
        |inputs: &Recorded| matches!(inputs, Recorded::Input(_, Input::Job { event: JobEvent::RankExited { .. }, .. }));
    let without_exits = recording.inputs.iter().filter(|inputs| !is_exit(inputs)).cloned();
    let report = replay(recording.config.clone(), without_exits);
    assert_ne!(report.digest, recording.report.digest);
}
