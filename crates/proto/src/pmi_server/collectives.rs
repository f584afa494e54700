//! Starts allgathers, rings, barriers of groups (PMI 1.2) and other collectives of groups (our own client) for one
//! rank. Answers allgathers and groups; `connection` answers rings. Also has the requests for the ranks' addresses and
//! secret.
//!
//! In a collective of a group of our own client every member gets the values of all, in the order of ranks. The
//! members' agents move the values as they do the pairs of a barrier of a group (`collective/groups`): up to the lowest
//! agent that has all members below it, and down to the members' agents. The ranks meanwhile compute.

use super::connection::{
    Asked, Completion, Handled, PmiClient, PmiLink, PmiServer, RefusalText, Tables, fail_unreadable,
};
use super::endpoints::MustAsk;
use super::state::State;
use crate::collective::groups::{self, Over};
use crate::collective::{Entry, ReplyTo};
use crate::io::Output;
use crate::job::cx::Cx;
use crate::memory::{Array, Content, Values};
use bytes::Bytes;
use wireup_wire::group::{Group, Members, Purpose, tag_of};
use wireup_wire::ids::{LocalRank, Rank};
use wireup_wire::limits::{
    ALLGATHER_LEN_MAX, EXCHANGES_MAX, GATHER_INLINE_MAX, GROUP_BARRIERS_PER_RANK_MAX, VALUE_LEN_MAX,
};
use wireup_wire::peer::Cause;
use wireup_wire::pmi::{Command, Envelope, Raw, Reply, encode_barrier_refusal, encode_reply, escape};
use wireup_wire::shared::rows::Layout;
use wireup_wire::values;

impl PmiServer {
    /// Puts the array into the arena if there is room, otherwise into memory of its own, which is released after the
    /// replies to all ranks.
    pub(super) fn answer_allgather(&mut self, cx: &mut Cx<'_>, waiting: Vec<(LocalRank, ReplyTo)>, array: Array) {
        if waiting.is_empty() {
            return;
        }
        let tables = &mut self.tables;
        let place = tables.arenas.place(array.byte_len(), waiting.iter().map(|(local, _)| *local));
        let share = match place {
            Some(place) => {
                tables.shares.write(place.share, place.slot, array);
                place.share
            }
            None => tables.shares.make(Content::Array(array)),
        };
        tables.shares.put_made(cx);
        for (local, reply_to) in waiting {
            let new = place.is_some_and(|place| self.clients.own(local).see_arena(place.arena()));
            let told = Completion::Array { place: place.map(|place| place.number), new };
            let handed = if new || place.is_none() { vec![share] } else { Vec::new() };
            self.answer(cx, local, &reply_to, &told, handed);
        }
        if place.is_none() {
            self.tables.shares.give_up(share);
        }
        self.tables.give_memory_up(cx);
    }

    /// A rank enters the barrier of a group, or (with its packed value) another collective of the group.
    pub fn enter_group(&mut self, cx: &mut Cx<'_>, local: LocalRank, group: Group, value: Option<Bytes>) {
        let barriers = &mut self.collectives.barriers;
        let own = value.unwrap_or_else(|| self.tables.kvs.pending_since(barriers.mark(&group.members)));
        let over = barriers.enter(cx, local, group, own);
        self.on_groups_over(cx, over);
    }

    /// Handles another node's frame of a collective of some ranks.
    pub fn on_group(&mut self, cx: &mut Cx<'_>, arrived: groups::Arrived) {
        let over = self.collectives.barriers.on_frame(cx, arrived);
        self.on_groups_over(cx, over);
    }

    /// Answers the local members of complete collectives of groups.
    fn on_groups_over(&mut self, cx: &mut Cx<'_>, over: Vec<Over>) {
        for Over { group, waiting, pairs } in over {
            match group.purpose {
                Purpose::Barrier => self.on_barrier_over(cx, &group, waiting, pairs),
                Purpose::Gather => self.on_gathered(cx, &group, waiting, &pairs),
            }
        }
    }

    /// A group's barrier is complete: its local members may get each other's pairs.
    fn on_barrier_over(&mut self, cx: &mut Cx<'_>, group: &Group, waiting: Vec<LocalRank>, pairs: Bytes) {
        if let Err(error) = self.tables.kvs.commit(vec![pairs]) {
            return fail_unreadable(cx, error);
        }
        for local in waiting {
            let Some(link) = self.clients.open(local.into()) else { continue };
            self.tables.send(cx, local.into(), link.answer_group(group.tag).into(), Vec::new());
        }
    }

    /// A collective of a group that is not a barrier is complete: its local members get the values of all.
    fn on_gathered(&mut self, cx: &mut Cx<'_>, group: &Group, waiting: Vec<LocalRank>, values: &Bytes) {
        let PmiServer { clients, tables, .. } = self;
        let array = match lay_out_values(&group.members, cx.facts.job_size, values) {
            Ok(array) => array,
            Err(problem) => return cx.fail_here(Cause::Pmi { problem }),
        };
        let inline = array.as_ref().filter(|array| array.byte_len() <= GATHER_INLINE_MAX).map(|array| {
            let mut bytes = vec![0; array.byte_len()];
            array.fill(&mut bytes);
            bytes
        });
        let told = array.is_some().then_some(inline.as_deref());
        let share = array.filter(|_| inline.is_none()).map(|array| tables.shares.make(Content::Array(array)));
        tables.shares.put_made(cx);
        for local in waiting {
            // The member may have closed its socket.
            let Some(link) = clients.in_group(local, group) else { continue };
            let reply = link.answer_gather(group, told);
            tables.send(cx, link.client.id, reply.into(), share.into_iter().collect());
        }
        share.into_iter().for_each(|share| tables.shares.give_up(share));
        tables.give_memory_up(cx);
    }
}

impl PmiLink {
    /// Records which arena the rank has mapped; returns whether it is another one than before.
    pub fn see_arena(&mut self, number: u32) -> bool {
        std::mem::replace(&mut self.arena, number) != number
    }

    /// A rank enters an allgather. The array of the values may need an arena, which is requested now.
    pub(super) fn on_allgather(
        &mut self,
        cx: &mut Cx<'_>,
        t: &mut Tables,
        id: u32,
        (max_len, shared): (u32, bool),
        value: &[u8],
    ) -> Handled {
        let mut plain = Vec::new();
        let value = escape::halve(value, &mut plain);
        if max_len == 0 || max_len as usize > ALLGATHER_LEN_MAX || value.len() > max_len as usize {
            return Err("value_is_longer_than_the_maximum".into());
        }
        self.outstanding += 1;
        t.arenas.prepare(cx.facts.job_size, max_len, shared, &mut t.shares);
        t.shares.put_made(cx);
        let entry = Entry::Allgather { max_len, shared, value: Bytes::copy_from_slice(value) };
        Ok(Some(Asked::Enter { entry, reply_to: ReplyTo::Allgather { id } }))
    }

    pub(super) fn on_ring(&mut self, envelope: &Envelope<'_>, left: &[u8], right: &[u8]) -> Handled {
        // The value is forwarded as written, including a doubled `;`: the neighbour's client parses it as this client
        // would.
        let value = left;
        let problem = if left != right {
            Some("a_rank_gives_one_value_to_both_sides")
        } else if value.len() > 2 * VALUE_LEN_MAX {
            Some("value_is_longer_than_1024")
        } else {
            None
        };
        if let Some(message) = problem {
            self.state = State::Ready;
            return Err(message.into());
        }
        let reply_to = ReplyTo::Ring { thread: envelope.thread.map(<[u8]>::to_vec) };
        Ok(Some(Asked::Enter { entry: Entry::Ring { value: Bytes::copy_from_slice(value) }, reply_to }))
    }

    /// The reply to a rank whose barrier of a group is complete.
    pub fn answer_group(&mut self, tag: i64) -> Vec<u8> {
        self.groups -= 1;
        self.client.encode(Command::Barrier, None, &Reply::BarrierOut { tag: i32::try_from(tag).ok() })
    }

    pub(super) fn on_group(&mut self, cx: &Cx<'_>, t: &mut Tables, text: &[u8]) -> Handled {
        if self.subversion < 2 {
            return Err("group_barriers_need_PMI_1.2".into());
        }
        let problem = match Group::parse(text, cx.facts.job_size) {
            Err(problem) => problem.to_string(),
            Ok(group) if !group.members.contains(self.client.rank) => "the caller is not in the group".into(),
            Ok(_) if self.groups >= GROUP_BARRIERS_PER_RANK_MAX => "too many barriers of groups under way".into(),
            Ok(group) => {
                self.groups += 1;
                return Ok(Some(Asked::EnterGroup { group, value: None }));
            }
        };
        encode_barrier_refusal(tag_of(text).unwrap_or(0), &problem, &mut t.reply);
        Ok(None)
    }
}

impl PmiClient {
    /// Frees the slots of the arena whose arrays the rank no longer reads.
    pub(super) fn on_freed(&self, t: &mut Tables, places: &[u8]) {
        let places = places.split(|byte| *byte == b',').filter_map(|place| std::str::from_utf8(place).ok());
        places.filter_map(|place| place.parse().ok()).for_each(|place| t.arenas.free(self.id.local, place));
    }

    /// Answers a request for the addresses at which the ranks listen, at once or when they are known.
    pub(super) fn on_endpoints(&self, cx: &Cx<'_>, t: &mut Tables, envelope: &Envelope<'_>) -> Result<(), RefusalText> {
        if cx.facts.spec.options.process.rank_ports.is_none() {
            return Err("the_ranks_of_this_job_have_no_sockets".into());
        }
        if let Some(table) = t.endpoints.ask(self.id, envelope.thread) {
            self.answer(t, envelope, &Reply::Done);
            t.handed.push(table);
        }
        Ok(())
    }

    /// Answers a request for the secret of the job's ranks, at once or when the secret is known.
    pub(super) fn on_secret(&self, cx: &mut Cx<'_>, t: &mut Tables, envelope: &Envelope<'_>) {
        let Tables { endpoints, reply, .. } = t;
        match endpoints.ask_secret(self.id, envelope.thread) {
            Ok(secret) => encode_reply(self.dialect, Command::Secret, envelope.thread, &Reply::Secret(secret), reply),
            Err(MustAsk(true)) => cx.output(Output::TellSecret { job: cx.facts.id() }),
            Err(MustAsk(false)) => {}
        }
    }
}

impl PmiLink {
    pub(super) fn on_group_set(
        &mut self,
        cx: &Cx<'_>,
        number: u32,
        members: &[u8],
        tag: &[u8],
    ) -> Result<(), RefusalText> {
        let members = Members::ranges(members, cx.facts.job_size);
        let members = members.map_err(|problem| problem.to_string().replace(' ', "_"))?;
        let tag = std::str::from_utf8(tag).ok().and_then(|tag| tag.parse().ok()).ok_or("the_tag_is_no_number")?;
        if !members.contains(self.client.rank) {
            return Err("the_caller_is_not_in_the_group".into());
        }
        self.own_groups.define(number, Group { members, tag, purpose: Purpose::Gather })?;
        Ok(())
    }

    pub(super) fn on_gather(&mut self, id: u32, number: u32, value: &[u8]) -> Handled {
        let mut plain = Vec::new();
        let value = escape::halve(value, &mut plain);
        if value.len() > ALLGATHER_LEN_MAX {
            return Err("value_is_longer_than_the_maximum".into());
        } else if self.outstanding as usize >= EXCHANGES_MAX {
            return Err("too_many_collectives_outstanding".into());
        }
        let group = self.own_groups.start_collective(number, id).ok_or("there_is_no_such_group")?;
        self.outstanding += 1;
        let mut own = Vec::with_capacity(8 + value.len());
        values::push(&mut own, &[&self.client.rank.0.to_le_bytes(), value].concat());
        Ok(Some(Asked::EnterGroup { group, value: Some(own.into()) }))
    }

    /// Answers a rank whose collective of a group is complete. `array`: the values; `None`: all values are empty;
    /// `Some(None)`: the values are in shared memory. A closed client gets no answer.
    pub fn answer_gather(&mut self, group: &Group, array: Option<Option<&[u8]>>) -> Vec<u8> {
        let Some(id) = self.own_groups.end(group).filter(|_| self.state != State::Closed) else { return Vec::new() };
        self.outstanding -= 1;
        let mut room = Vec::new();
        let value = array.flatten().map(|array| Raw(escape::doubled(array, &mut room)));
        let answer = Reply::Gather { id, value, memory: matches!(array, Some(None)).then_some(1) };
        self.client.encode(Command::Gather, None, &answer)
    }
}

/// The values of a group's members in the order of ranks; `None`: all are empty.
///
/// # Errors
/// A message: there is not exactly one value from each member.
pub fn lay_out_values(members: &Members, job_size: u32, gathered: &Bytes) -> Result<Option<Array>, String> {
    let mut all = Vec::new();
    for value in values::values(gathered) {
        let value = value.map_err(|error| error.to_string())?;
        let (rank, own) = value.split_first_chunk().ok_or("a value without its rank")?;
        all.push((Rank(u32::from_le_bytes(*rank)), gathered.slice_ref(own)));
    }
    all.sort_unstable_by_key(|(rank, _)| *rank);
    if !all.iter().map(|(rank, _)| *rank).eq(members.ranks(job_size)) {
        return Err(format!("there is not exactly one value from each of {members}"));
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
        let array = lay_out_values(&members, 8, &gathered(&[(7, b"seven"), (1, b"\0"), (2, b"")])).unwrap().unwrap();
        let mut out = vec![0; array.byte_len()];
        array.fill(&mut out);
        let rows: Vec<&[u8]> = Rows::read(&out).unwrap().values().map(Result::unwrap).collect();
        assert_eq!(rows, [&b"\0"[..], b"", b"seven"]);
        let same = lay_out_values(&members, 8, &gathered(&[(7, b"77"), (1, b"\x001"), (2, b"22")])).unwrap().unwrap();
        let mut out = vec![0; same.byte_len()];
        same.fill(&mut out);
        assert_eq!(Rows::read(&out).unwrap().array(), Some(&b"\x0012277"[..]));
        assert!(lay_out_values(&members, 8, &gathered(&[(1, b""), (2, b""), (7, b"")])).unwrap().is_none());
    }

    #[test]
    fn other_members_than_those_of_the_group_are_an_error() {
        let members = Members::ranges(b"1-2,7", 8).unwrap();
        for wrong in [&[(1, &b"a"[..]), (2, b"b")][..], &[(1, b"a"), (2, b"b"), (6, b"c")], &[(1, &b"a"[..]); 3]] {
            let problem = lay_out_values(&members, 8, &gathered(wrong)).map(|_| ()).unwrap_err();
            assert_eq!(problem, "there is not exactly one value from each of ranks 1-2,7");
        }
        assert!(lay_out_values(&members, 8, &Bytes::from_static(&[2, 0, 0])).is_err());
    }
}
