//! A fence of the whole job: an exchange with epochs of its own.

use super::super::super::{Context, Job};
use super::super::asks::Waits;
use super::too_much;
use crate::exchange::{Entering, Entry, Finished, Outcome};
use crate::pmi_link::Ticket;
use crate::time::Instant;
use bytes::Bytes;
use wireup_wire::block;
use wireup_wire::collective::Collective;
use wireup_wire::ids::{Epoch, LocalRank};
use wireup_wire::job::Modex;
use wireup_wire::limits::FRAME_PAYLOAD_MAX;
use wireup_wire::modex::{Down, Up};
use wireup_wire::peer::Cause;
use wireup_wire::pmix::{Answer, Status};

impl Job {
    /// The ranks here are in a fence of the whole job.
    pub(in crate::job::pmix) fn fence_all(
        &mut self,
        id: u64,
        collect: bool,
        data: Bytes,
        until: Option<Instant>,
        cx: &mut Context<'_>,
    ) {
        if until.is_none() {
            self.pass_given_up();
        }
        let Some(epoch) = self.pmix.as_ref().map(|pmix| pmix.fences.exchanges.next_of(LocalRank(0))) else { return };
        if !self.begin_ask(id, Waits::Fence(epoch), until, cx) {
            return;
        }
        let stays = !collect || self.facts.spec.options.modex == Modex::Direct;
        let mut data = if stays { Bytes::new() } else { data };
        let Job { pmix: Some(pmix), processes, .. } = self else { return };
        let fences = &mut pmix.fences;
        let all = (0..processes.len() as u16).map(LocalRank);
        if let Some(status) = fences.given_up.get(&epoch).copied() {
            all.for_each(|local| fences.exchanges.pass(local));
            return self.refuse_ask(id, status, cx);
        }
        fences.asked.insert(epoch, id);
        if until.is_some() {
            self.pmix_up(&Up::Impatient { epoch }, cx);
        }
        let Job { pmix: Some(pmix), processes, .. } = self else { return };
        let fences = &mut pmix.fences;
        let mut next = Vec::new();
        for local in all {
            let entry = Entry::Modex { data: std::mem::take(&mut data) };
            let entering = Entering { local, rank: processes[local.index()].rank, entry, ticket: Ticket::Server };
            fences.exchanges.enter(cx.now, entering, Bytes::new, &mut next);
        }
        self.carry_out(next, cx);
    }

    /// A fence without a limit is none of those that were given up, where all ranks call the same: the library has ended them
    /// here, for the ranks that were in, and its server has said nothing.
    fn pass_given_up(&mut self) {
        let Job { pmix: Some(pmix), processes, .. } = self else { return };
        let fences = &mut pmix.fences;
        while fences.given_up.contains_key(&fences.exchanges.next_of(LocalRank(0))) {
            (0..processes.len() as u16).for_each(|local| fences.exchanges.pass(LocalRank(local)));
        }
    }

    /// A fence of the whole job is over.
    pub(in crate::job) fn on_modex_finished(&mut self, finished: Finished, cx: &mut Context<'_>) {
        let Some(id) = self.pmix.as_mut().and_then(|pmix| pmix.fences.asked.remove(&finished.epoch)) else { return };
        if let Some(part) = &mut self.trace {
            part.fences.push(finished.trace);
        }
        let Outcome::Pairs(parts) = finished.outcome else {
            return self.fail_here(Cause::Pmi { problem: "a PMIx fence ended as another collective".into() }, cx);
        };
        if let Some(pmix) = &mut self.pmix {
            pmix.fences.impatient.remove(&finished.epoch);
        }
        // As they travel, headers and all, they are a message for the server; unpacked, one for its ranks.
        let travels: usize = parts.iter().map(Bytes::len).sum();
        match parts.iter().map(block::plain_len).sum::<Result<usize, _>>() {
            Ok(0) => self.answer_ask(id, Answer::Fenced { blocks: Vec::new() }, cx),
            Ok(len) if len.max(travels) <= FRAME_PAYLOAD_MAX => {
                self.answer_ask(id, Answer::Fenced { blocks: parts }, cx)
            }
            Ok(len) => self.fail_pmix(too_much(len), cx),
            Err(error) => self.fail_here(Cause::Pmi { problem: error.to_string() }, cx),
        }
    }

    /// Somebody's patience with a fence of the whole job is over; at the root.
    pub(in crate::job::pmix) fn on_give_up(&mut self, epoch: Epoch, cx: &mut Context<'_>) {
        if self.pmix.as_ref().is_some_and(|pmix| pmix.fences.exchanges.is_open(epoch)) {
            self.pmix_all(&Down::Over { epoch, status: Status::Timeout }, cx);
        }
    }

    /// The root says that a fence of the whole job is over.
    pub(in crate::job::pmix) fn on_fence_over(&mut self, epoch: Epoch, status: Status, cx: &mut Context<'_>) {
        let Some(fences) = self.pmix.as_mut().map(|pmix| &mut pmix.fences) else { return };
        if epoch < fences.exchanges.base() {
            return;
        }
        // Where it has an outcome already, some agents below may never say that their ranks were in.
        let mut next = Vec::new();
        fences.impatient.remove(&epoch);
        fences.given_up.insert(epoch, status);
        fences.exchanges.give_up(cx.now, epoch, Collective::Modex, &mut next);
        let asked = fences.asked.remove(&epoch);
        self.carry_out(next, cx);
        if let Some(id) = asked {
            self.refuse_ask(id, status, cx);
        }
    }

    /// Whether a frame belongs to a PMIx fence that was given up: it came too late.
    pub(in crate::job) fn is_given_up(&self, epoch: Epoch, collective: Collective) -> bool {
        let given_up = |pmix: &super::super::Pmix| pmix.fences.given_up.contains_key(&epoch);
        collective == Collective::Modex && self.pmix.as_deref().is_some_and(given_up)
    }
}
