//! What an agent says once of its whole subtree: that its ranks run, and that the job is over there.

use super::{Context, Job};
use crate::io::Output;
use crate::output::OutputStream;
use wireup_wire::peer::{self, Control, Done, Ended};

impl Job {
    /// Says what has become true; `true` when the job is over here and can be forgotten.
    pub fn settle(&mut self, cx: &mut Context<'_>) -> bool {
        self.flush_output(cx);
        self.say_started(cx);
        // Of those behind a child that is missed more may be learnt, and nobody was told of any yet.
        let told = self.started_said || self.is_ending();
        let children_done = self.children.iter().all(|child| child.done.is_some());
        if !told
            || self.busy > 0
            || self.has_server()
            || !children_done
            || !self.output.iter().all(OutputStream::is_empty)
        {
            return false;
        }
        if !self.is_ending() && self.open_collectives() > 0 {
            // Ranks here need not wait for their collectives; other nodes need what this one passes on.
            return false;
        }
        if self.trace.is_some() && !self.facts.root && !cx.clock.is_known() && !self.is_forced() {
            // Its stamps would stand on a clock that nobody can tell from the others'.
            return false;
        }
        self.say_done(cx);
        true
    }

    fn say_started(&mut self, cx: &mut Context<'_>) {
        if self.started_said || self.unstarted > 0 || self.children.iter().any(|child| child.started.is_none()) {
            return;
        }
        self.started_said = true;
        if self.name_missing(cx) {
            return;
        }
        if let Some(trace) = &mut self.trace {
            trace.children_ns = cx.now.0;
        }
        let below: u32 = self.children.iter().filter_map(|child| child.started).sum();
        let ranks = below + self.processes.len() as u32;
        cx.control_up(self.id(), &Control::Started { ranks, pmix: self.opened() });
    }

    fn say_done(&mut self, cx: &mut Context<'_>) {
        let mut done = Done {
            ranks: self.processes.len() as u32,
            pmi_clients: self.processes.iter().filter(|process| process.spoke_pmi).count() as u32,
        };
        for below in self.children.iter().filter_map(|child| child.done) {
            done.ranks += below.ranks;
            done.pmi_clients += below.pmi_clients;
        }
        if let Some(mut trace) = self.trace.take() {
            if !self.facts.root {
                (trace.clock_offset_ns, trace.clock_error_ns) = cx.clock.estimate();
            }
            trace.traffic = self.traffic;
            trace.ranks = self.processes.iter().map(|process| process.trace.clone()).collect();
            self.send_trace(peer::encode(&*trace).into(), cx);
        }
        let message = if self.facts.root {
            Control::Ended(Ended { failure: self.ends.failure.take(), done })
        } else {
            Control::Done(done)
        };
        cx.control_up(self.id(), &message);
        cx.out.push(Output::JobGone { job: self.id() });
    }
}
