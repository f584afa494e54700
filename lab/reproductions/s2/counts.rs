//! Counts of all ranks as figures: of real ranks, of simulated ones, and how many differ.
use wireup_sim::rank_network::Cost;

use super::super::board::Network;
use crate::command::Failure;
use crate::metric::{Metric, Sample};

/// The counts of each rank for one of the repetitions of a step.
pub fn once(networks: &[Network], repeat: u32) -> Result<Vec<Cost>, Failure> {
    let repeat = u64::from(repeat);
    let part = |of: u64| {
        let uneven = || Failure::Wrong(format!("{of} in {repeat} repetitions that should be alike"));
        of.is_multiple_of(repeat).then_some(of / repeat).ok_or_else(uneven)
    };
    let each = networks.iter().map(|Network { cost, .. }| {
        Ok(Cost {
            messages: part(cost.messages)?,
            bytes: part(cost.bytes)?,
            rounds: part(cost.rounds)?,
            questions: part(cost.questions)?,
        })
    });
    each.collect()
}

pub fn figures(costs: &[Cost]) -> Sample {
    let most = |of: fn(&Cost) -> u64| costs.iter().map(of).max().unwrap_or(0) as f64;
    let all = |of: fn(&Cost) -> u64| costs.iter().map(of).sum::<u64>() as f64;
    Sample(vec![
        (Metric::Rounds, most(|cost| cost.rounds)),
        (Metric::Messages, most(|cost| cost.messages)),
        (Metric::MessagesAll, all(|cost| cost.messages)),
        (Metric::Sent, most(|cost| cost.bytes)),
        (Metric::SentAll, all(|cost| cost.bytes)),
        (Metric::Questions, most(|cost| cost.questions)),
    ])
}

/// The figures of real ranks, and how many of them differ from simulated ones.
pub fn compared(real: &[Cost], simulated: &[Cost]) -> Sample {
    let mut sample = figures(real);
    let differing = real.iter().zip(simulated).filter(|(real, simulated)| real != simulated).count();
    sample.0.push((Metric::Disagreeing, (differing + real.len().abs_diff(simulated.len())) as f64));
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(messages: u64) -> Cost {
        Cost { messages, bytes: 17 * messages, rounds: 2, questions: 0 }
    }

    #[test]
    fn counts_are_those_of_one_repetition() {
        let network = |messages| Network { cost: cost(messages), connections: 3, addresses: 4, address_len: 15 };
        assert!(once(&[network(3)], 2).is_err());
        let twice = Network { cost: Cost { rounds: 4, ..cost(6) }, ..network(0) };
        assert_eq!(once(&[twice], 2).unwrap(), [cost(3)]);
    }

    #[test]
    fn ranks_that_differ_are_counted() {
        let sample = compared(&[cost(2), cost(5), cost(1)], &[cost(2), cost(4)]);
        let get = |metric| sample.get(metric).unwrap();
        assert_eq!((get(Metric::Messages), get(Metric::MessagesAll), get(Metric::Sent)), (5.0, 8.0, 85.0));
        assert_eq!(get(Metric::Disagreeing), 2.0);
        assert_eq!(compared(&[cost(2)], &[cost(2)]).get(Metric::Disagreeing), Some(0.0));
    }
}
