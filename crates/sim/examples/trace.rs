use wireup_sim::random::collectives::{collective_world, with_faults};
use wireup_sim::{WorldSpec, run};
fn main() {
    let mut args = std::env::args().skip(1);
    let kind = args.next().unwrap();
    let seed: u64 = args.next().unwrap().parse().unwrap();
    let calm = collective_world(seed);
    let mut spec = calm.clone();
    if kind == "storm" { spec = with_faults(seed, &run(calm)); }
    eprintln!("{:#?}", (&spec.blocks, spec.nodes, spec.fanout, &spec.faults, spec.exchange, spec.pmi_fence, spec.root_is_node, spec.job_size(), &spec.timing));
    for (n, app) in &spec.apps { eprintln!("{n} ranks {:?} {:?}", app.speaks, app.steps); }
    let trace = args.next().is_some();
    let report = run(WorldSpec { trace, ..spec });
    eprintln!("{:?} {} {:?} {:?}", report.code, report.elapsed_ns, report.notices, report.problems);
}
