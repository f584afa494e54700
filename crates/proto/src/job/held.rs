//! Ranks that wait before they are spawned: for the link to the parent, for what is measured first, for their PMIx server.

use super::{Context, Job};
use crate::io::Output;

impl Job {
    /// The link to the parent is up.
    pub fn on_linked(&mut self, cx: &mut Context<'_>) {
        self.waits_for_link = false;
        self.spawn_held(cx);
        if let Some(trace) = &mut self.trace {
            trace.linked_ns = cx.now.0;
        }
    }

    /// Something for the ranks here: they may not be there yet.
    pub(super) fn tell_ranks(&mut self, output: Output, cx: &mut Context<'_>) {
        if self.held.is_some() {
            self.for_held.push(output);
        } else {
            cx.out.push(output);
        }
    }

    /// Spawns the ranks if nothing holds them up.
    pub(super) fn spawn_held(&mut self, cx: &mut Context<'_>) {
        let waits =
            self.waits_for_link || self.bench.is_some() || self.pmix.as_ref().is_some_and(|pmix| pmix.is_starting());
        if let Some(plan) = self.held.take_if(|_| !waits) {
            cx.out.push(Output::Spawn(plan));
            std::mem::take(&mut self.for_held).into_iter().for_each(|output| cx.out.push(output));
        }
    }

    /// They are not started any more.
    pub(super) fn give_held_up(&mut self) {
        if self.held.take().is_some() {
            self.give_processes_up();
        }
    }
}
