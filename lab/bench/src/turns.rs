//! Runs everything that is timed in turn, round after round; the first round is a warm-up and does not count.
use std::path::Path;

use crate::command::Failure;
use crate::setup::Setup;

/// Where everything is run.
pub struct Place<'a, F> {
    pub flags: &'a F,
    pub wireup: &'a Path,
    pub setup: &'a Setup,
}

/// Runs each of `all` once per round, until all rounds are done or a signal comes; passes the results to `take`.
pub fn in_turns<T, M>(
    setup: &Setup,
    rounds: u32,
    all: &[T],
    mut run: impl FnMut(&T) -> Result<M, Failure>,
    mut take: impl FnMut(&T, Result<M, Failure>),
) {
    for round in 0..=rounds {
        for one in all {
            if setup.interrupt.is_set() {
                return;
            }
            match run(one) {
                Ok(_) if round == 0 => {}
                Err(Failure::Interrupted) => {}
                outcome => take(one, outcome),
            }
        }
    }
}

/// The order in a round. A job that follows a large one is slower, so every second round is in reverse order.
pub fn turn(round: u32, count: usize) -> Vec<usize> {
    let forward = 0..count;
    if round.is_multiple_of(2) { forward.collect() } else { forward.rev().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_round_counts_only_if_it_fails() {
        let setup = Setup::prepare(&[], None).unwrap();
        let (mut ran, mut took) = (Vec::new(), Vec::new());
        in_turns(
            &setup,
            2,
            &["a", "b"],
            |one| {
                ran.push(*one);
                if *one == "b" { Err(Failure::Wrong("no".into())) } else { Ok(ran.len()) }
            },
            |one, outcome| took.push((*one, outcome.ok())),
        );
        assert_eq!(ran, ["a", "b", "a", "b", "a", "b"]);
        assert_eq!(took, [("b", None), ("a", Some(3)), ("b", None), ("a", Some(5)), ("b", None)]);
    }
}
