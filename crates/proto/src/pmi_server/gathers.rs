//! Collectives of groups of our own client: every member gets the values of all, in the order of ranks.
//!
//! The members' agents move the values as they do the pairs of a barrier of a group (`collective/groups`): up to the
//! lowest agent that has all members below it, and down to the members' agents. The ranks meanwhile compute.

use super::connection::PmiLink;
use super::connection::{Asked, Tables};
use super::state::State;
use crate::job::cx::Cx;
use crate::memory::{Array, Values};
use bytes::Bytes;
use wireup_wire::group::{Group, Members, Purpose};
use wireup_wire::ids::Rank;
use wireup_wire::limits::{ALLGATHER_LEN_MAX, EXCHANGES_MAX};
use wireup_wire::pmi::{Command, Envelope, Raw, Reply, encode_reply, escape};
use wireup_wire::shared::rows::Layout;
use wireup_wire::values;

impl PmiLink {
    pub(super) fn on_group_set(
        &mut self,
        cx: &Cx<'_>,
        t: &mut Tables,
        envelope: &Envelope<'_>,
        number: u32,
        members: &[u8],
        tag: &[u8],
    ) {
        let tag = std::str::from_utf8(tag).ok().and_then(|tag| tag.parse().ok());
        let defined = match (Members::ranges(members, cx.facts.job_size), tag) {
            (Err(problem), _) => Err(problem.to_string().replace(' ', "_")),
            (_, None) => Err("the_tag_is_no_number".into()),
            (Ok(members), _) if !members.contains(self.client.rank) => Err("the_caller_is_not_in_the_group".into()),
            (Ok(members), Some(tag)) => {
                let group = Group { members, tag, purpose: Purpose::Gather };
                self.own_groups.define(number, group).map_err(str::to_owned)
            }
        };
        match defined {
            Ok(()) => self.client.answer(t, envelope, &Reply::Done),
            Err(problem) => self.client.refuse(t, envelope, &problem),
        }
    }

    pub(super) fn on_group_free(&mut self, t: &mut Tables, envelope: &Envelope<'_>, number: u32) {
        match self.own_groups.free(number) {
            true => self.client.answer(t, envelope, &Reply::Done),
            false => self.client.refuse(t, envelope, "there_is_no_such_group"),
        }
    }

    pub(super) fn on_gather(
        &mut self,
        t: &mut Tables,
        envelope: &Envelope<'_>,
        id: u32,
        number: u32,
        value: &[u8],
    ) -> Option<Asked> {
        let mut plain = Vec::new();
        let value = escape::halve(value, &mut plain);
        let problem = if value.len() > ALLGATHER_LEN_MAX {
            "value_is_longer_than_the_maximum"
        } else if self.outstanding as usize >= EXCHANGES_MAX {
            "too_many_collectives_outstanding"
        } else if let Some(group) = self.own_groups.start_collective(number, id) {
            self.outstanding += 1;
            let mut own = Vec::with_capacity(8 + value.len());
            values::push(&mut own, &[&self.client.rank.0.to_le_bytes(), value].concat());
            return Some(Asked::EnterGroup { group, value: Some(own.into()) });
        } else {
            "there_is_no_such_group"
        };
        self.client.refuse(t, envelope, problem);
        None
    }

    /// Answers a rank whose collective of a group is over. `array`: the values; `None`: all values are empty;
    /// `Some(None)`: the values are in shared memory.
    pub fn answer_gather(&mut self, group: &Group, array: Option<Option<&[u8]>>, reply: &mut Vec<u8>) {
        let Some(id) = self.own_groups.end(group).filter(|_| self.state != State::Closed) else { return };
        self.outstanding -= 1;
        let mut room = Vec::new();
        let value = array.flatten().map(|array| Raw(escape::doubled(array, &mut room)));
        let answer = Reply::Gather { id, value, memory: matches!(array, Some(None)).then_some(1) };
        encode_reply(self.client.dialect, Command::Gather, None, &answer, reply);
    }
}

/// The values of a group's members in the order of ranks; `None`: all are empty.
///
/// # Errors
/// A message: they are not one of each member.
pub fn lay_out(members: &Members, job_size: u32, gathered: &Bytes) -> Result<Option<Array>, String> {
    let mut all = Vec::new();
    for value in values::values(gathered) {
        let value = value.map_err(|error| error.to_string())?;
        let (rank, own) = value.split_first_chunk().ok_or("a value without its rank")?;
        all.push((Rank(u32::from_le_bytes(*rank)), gathered.slice_ref(own)));
    }
    all.sort_unstable_by_key(|(rank, _)| *rank);
    if !all.iter().map(|(rank, _)| *rank).eq(members.ranks(job_size)) {
        return Err(format!("the values of {members} are not one of each"));
    }
    let lens = || all.iter().map(|(_, own)| own.len());
    let (longest, count) = (lens().max().unwrap_or_default(), all.len() as u32);
    if longest == 0 {
        return Ok(None);
    }
    // Values that all have the same length can be read in place.
    let layout = match lens().all(|len| len == longest) {
        true => Layout::rows(count, longest as u32),
        false => Layout::packed(count, longest as u32, lens().map(values::encoded_len).sum()),
    };
    Ok(Some(Array { layout, values: Values::ByRank(all.into_iter().map(|(_, own)| own).collect()) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::shared::rows::Rows;

    fn gathered(all: &[(u32, &[u8])]) -> Bytes {
        let mut bytes = Vec::new();
        all.iter().for_each(|(rank, own)| values::push(&mut bytes, &[&rank.to_le_bytes(), *own].concat()));
        bytes.into()
    }

    #[test]
    fn values_are_in_the_order_of_ranks() {
        let members = Members::ranges(b"1-2,7", 8).unwrap();
        let array = lay_out(&members, 8, &gathered(&[(7, b"seven"), (1, b"\0"), (2, b"")])).unwrap().unwrap();
        let mut out = vec![0; array.byte_len()];
        array.fill(&mut out);
        let rows: Vec<&[u8]> = Rows::read(&out).unwrap().values().map(Result::unwrap).collect();
        assert_eq!(rows, [&b"\0"[..], b"", b"seven"]);
        let same = lay_out(&members, 8, &gathered(&[(7, b"77"), (1, b"\x001"), (2, b"22")])).unwrap().unwrap();
        let mut out = vec![0; same.byte_len()];
        same.fill(&mut out);
        assert_eq!(Rows::read(&out).unwrap().array(), Some(&b"\x0012277"[..]));
        assert!(lay_out(&members, 8, &gathered(&[(1, b""), (2, b""), (7, b"")])).unwrap().is_none());
    }

    #[test]
    fn other_members_than_those_of_the_group_are_an_error() {
        let members = Members::ranges(b"1-2,7", 8).unwrap();
        for wrong in [&[(1, &b"a"[..]), (2, b"b")][..], &[(1, b"a"), (2, b"b"), (6, b"c")], &[(1, &b"a"[..]); 3]] {
            let problem = lay_out(&members, 8, &gathered(wrong)).map(|_| ()).unwrap_err();
            assert_eq!(problem, "the values of ranks 1-2,7 are not one of each");
        }
        assert!(lay_out(&members, 8, &Bytes::from_static(&[2, 0, 0])).is_err());
    }
}
