//! Limits how much memory collectives of several jobs may need at the root.

use super::members::Members;
use bytes::Bytes;
use wireup_wire::inter_job::{OtherJob, Purpose};
use wireup_wire::limits::{ACROSS_ANSWERS_BYTES_MAX, FRAME_PAYLOAD_MAX};
use wireup_wire::peer;
use wireup_wire::pmix::Set;

/// Bytes of a message besides data and descriptions, and besides each piece of data. Chosen: more than the encoding
/// adds.
const MESSAGE_BYTES: usize = 4096;
const PIECE_BYTES: usize = 16;

/// Bytes of the names of a collective and of its members.
pub fn weight(purpose: &Purpose, members: &Members) -> usize {
    let name = match purpose {
        Purpose::Group(name) => name.len(),
        Purpose::Fence | Purpose::Connect | Purpose::Disconnect => 0,
    };
    let ranks = |set: &Set| match set {
        Set::All => 0,
        Set::Ranks(ranks) => size_of_val(&ranks[..]),
    };
    name + members.iter().map(|(_, set)| size_of_val(set) + ranks(set)).sum::<usize>()
}

/// Whether the result of a collective fits into a frame, and one copy of it for each of `places` nodes fits into the
/// memory that the root may use for answers.
pub fn fits(data: &[Bytes], jobs: &[OtherJob], places: usize) -> bool {
    let data: usize = data.iter().map(|data| data.len() + PIECE_BYTES).sum();
    let jobs: usize = jobs.iter().map(|job| peer::encode(job).len()).sum();
    let message = data + jobs + MESSAGE_BYTES;
    message <= FRAME_PAYLOAD_MAX && message.saturating_mul(places) <= ACROSS_ANSWERS_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::ids::{JobId, Rank};

    #[test]
    fn an_outcome_must_fit_into_a_frame_and_into_memory() {
        let data = |len: usize| [Bytes::from(vec![0; len])];
        assert!(fits(&data(1 << 20), &[], 4000));
        assert!(!fits(&data(1 << 20), &[], 5000));
        assert!(!fits(&data(FRAME_PAYLOAD_MAX - 100), &[], 1));
    }

    #[test]
    fn names_and_lists_of_ranks_have_weight() {
        let members = vec![(JobId(1), Set::Ranks(vec![Rank(0); 1000])), (JobId(2), Set::All)];
        let fence = weight(&Purpose::Fence, &members);
        assert!(fence >= 4000);
        assert_eq!(weight(&Purpose::Group("abc".into()), &members), fence + 3);
    }
}
