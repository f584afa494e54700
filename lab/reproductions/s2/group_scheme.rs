//! What groups of ranks do, in a real job and in the simulator.
use wireup_sim::rank_network::Call;

use wireup_bench::layout::Layout;
use wireup_bench::startup::scheme::{Lengths, Operation};

/// Ranks that search for an address in one step, as in `programs/groups.c`.
const ASKERS: u32 = 16;
/// Numbers of an allreduce, as there.
const NUMBERS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupScheme {
    pub name: &'static str,
    pub operation: Operation,
    /// Whether its time is so short that it is done several times in a step.
    pub is_short: bool,
}

const fn scheme(name: &'static str, operation: Operation, is_short: bool) -> GroupScheme {
    GroupScheme { name, operation, is_short }
}

/// The graph's name: it is built when the ranks open the library.
pub const BUILD: &str = "group-build";

pub const SCHEMES: [GroupScheme; 8] = [
    scheme("group-barrier", Operation::Barrier, true),
    scheme("group-bcast", Operation::Broadcast, true),
    scheme("group-shift", Operation::Shift, true),
    scheme("group-allreduce", Operation::Allreduce, true),
    scheme("group-allgather", Operation::GroupAllgather, true),
    scheme("group-alltoall", Operation::GroupAlltoall, true),
    scheme("group-split", Operation::Split, false),
    scheme("group-locate", Operation::Locate, false),
];

/// Ranks that talk to log2 P others, and to all.
pub const TALK: GroupScheme = scheme("talk-log2", Operation::Talk, false);
pub const TALK_TO_ALL: GroupScheme = scheme("talk-to-all", Operation::TalkToAll, false);

impl GroupScheme {
    /// The same in the simulator.
    pub fn call(self, layout: Layout, lengths: Lengths) -> Call {
        let len = lengths.value as usize;
        match self.operation {
            Operation::Broadcast => Call::Broadcast(len),
            Operation::Shift => Call::Shift(len),
            Operation::Allreduce => Call::Allreduce(NUMBERS),
            Operation::GroupAllgather => Call::Allgather(len),
            Operation::GroupAlltoall => Call::Alltoall(len),
            Operation::Split => Call::Split(layout.ppn),
            Operation::Locate => Call::Locate(ASKERS),
            Operation::Talk => Call::Talk(powers(layout.job_size())),
            _ => Call::Barrier,
        }
    }
}

/// `ceil(log2 size)`.
fn powers(size: u32) -> u32 {
    u32::BITS - size.saturating_sub(1).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_has_a_call_of_its_own() {
        let (layout, lengths) = (Layout { node_count: 4, ppn: 4 }, Lengths { value: 18, key: 9 });
        let calls: Vec<Call> = SCHEMES.iter().map(|scheme| scheme.call(layout, lengths)).collect();
        for (at, call) in calls.iter().enumerate() {
            assert!(!calls[..at].contains(call), "{call:?}");
        }
        assert_eq!([1, 2, 3, 64, 65].map(powers), [0, 1, 2, 6, 7]);
    }
}
