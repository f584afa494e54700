//! The cost of an allgather or an alltoall in which all members are alike: each member sends to one side in every step,
//! and receives as many bytes from the other side as it sends. So it is enough to run one member that receives its own
//! messages, and the results of all P members need not be in memory.

use super::{Call, Cost, Trouble, algorithm};
use wireup_group::message_len;
use wireup_group::{Failure, Malformed, Peer, Shape, Step};

/// The cost of the call at each rank of a job of `size` ranks; `None`: the members of the call are not alike.
///
/// # Errors
/// The code of the algorithm is wrong.
pub fn one_for_all(call: Call, size: u32) -> Result<Option<Cost>, Trouble> {
    if !matches!(call, Call::Barrier | Call::Allgather(_) | Call::Alltoall(_) | Call::Shift(_)) {
        return Ok(None);
    }
    reflected(call, size).map(Some).map_err(|Malformed| Trouble::Result { rank: 0, failure: Some(Failure::Malformed) })
}

fn reflected(call: Call, size: u32) -> Result<Cost, Malformed> {
    let nobody = || Peer { rank: 0, address: Vec::new() };
    let mut shape = Shape::new(0, size, nobody(), nobody());
    let mut algorithm = algorithm(call, 0, size);
    let mut cost = Cost::default();
    while let Some(Step { sends, receives }) = algorithm.next(&mut shape)? {
        cost.rounds += u64::from(!receives.is_empty());
        cost.messages += sends.len() as u64;
        cost.bytes += sends.iter().map(|(_, payload)| message_len(payload) as u64).sum::<u64>();
        for from in receives {
            let reflection = sends.iter().find(|(link, _)| link.power == from.power && link.side != from.side);
            let payload = reflection.map(|(_, payload)| payload);
            algorithm.on_message(&mut shape, from, payload.ok_or(Malformed)?)?;
        }
    }
    Ok(cost)
}
