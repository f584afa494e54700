//! Agents on hosts of their own: whatever is wrong with hosts, all that are not there are named together and in time, and
//! no other. `WIREUP_SIM_SEEDS` as for the random worlds.

use std::ops::Range;
use wireup_sim::random::{remote_with_faults, remote_world};
use wireup_sim::run;

fn seeds() -> Range<u64> {
    let text = std::env::var("WIREUP_SIM_SEEDS").unwrap_or_else(|_| "0..300".into());
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("WIREUP_SIM_SEEDS={text}: not a number or range"));
    match text.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&text),
    }
}

#[test]
fn every_rule_holds_with_hosts_in_trouble() {
    let (mut ran, mut struck) = (0, 0);
    for seed in seeds() {
        // Shown only if this seed panics.
        println!("seed {seed}");
        ran += u32::from(run(remote_world(seed)).expect_good().code == Some(0));
        struck += run(remote_with_faults(seed)).expect_good().strikes;
    }
    println!("{ran} jobs ran undisturbed, {struck} faults struck");
}
