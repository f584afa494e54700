//! PMIx: random worlds, each undisturbed, then with misfortunes: a server process that dies or never begins, a node that
//! dies in a fence or while others ask for its data, ranks that leave. `WIREUP_SIM_SEEDS` asks for other seeds.

mod seeds;

use wireup_proto::launcher_io::Notice;
use wireup_sim::random::modex::{modex_world, with_faults};
use wireup_sim::run;
use wireup_wire::peer::Cause;

#[test]
fn every_rule_holds_in_every_world_of_pmix() {
    let (mut gets, mut fences, mut excused, mut timeouts, mut servers, mut events) = (0, 0, 0, 0, 0, 0);
    let mut broken = Vec::new();
    for seed in seeds::seeds(300) {
        // Shown only if this seed panics.
        println!("seed {seed}");
        let calm = run(modex_world(seed));
        let stormy = run(with_faults(seed, &calm));
        for report in [&calm, &stormy] {
            gets += report.gets;
            fences += report.barriers;
            excused += report.excused;
            timeouts += report.timeouts;
            events += report.events_told;
        }
        let is_server = |notice: &Notice| matches!(notice, Notice::Failed(failure) if matches!(failure.cause, Cause::PmixServer { .. }));
        servers += u32::from(stormy.notices.iter().any(is_server));
        let problems = calm.problems.first().or(stormy.problems.first()).cloned();
        if let Some(problem) = problems.or((calm.code != Some(0)).then(|| "fails".into())) {
            broken.push(format!("seed {seed}: {problem}; {:?}; {:?}", calm.notices, stormy.notices));
        }
    }
    assert!(broken.is_empty(), "{} seeds:\n{}", broken.len(), broken[..broken.len().min(10)].join("\n"));
    println!("{fences} fences, {gets} gets, {excused} without who had left, {timeouts} too long, {events} events");
    println!("{servers} jobs ended by their server");
    assert!(fences > 0 && gets > 0 && excused > 0 && timeouts > 0 && servers > 0 && events > 0);
}

#[test]
fn same_seed_same_run() {
    for seed in 0..5 {
        assert_eq!(run(modex_world(seed)), run(modex_world(seed)), "seed {seed}");
    }
}
