//! What neighbours in the job's tree say, handed to the part that it is for.

use super::{Context, Job};
use bytes::Bytes;
use wireup_wire::frame::{Class, Frame, Kind};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Control;

impl Job {
    /// A frame of the exchange or stdio class, from the link of `from` (`None`: from above).
    pub fn on_frame(&mut self, from: Option<AgentId>, frame: Frame, cx: &mut Context<'_>) {
        match (from, frame.kind) {
            (Some(_), Kind::ExchangeUp) | (None, Kind::ExchangeDown) => self.on_exchange(from, frame, cx),
            (Some(_), Kind::GroupUp) | (None, Kind::GroupDown) => self.on_group(from, frame, cx),
            (Some(agent), Kind::Output) => self.on_child_output(agent, frame),
            (None, Kind::OutputCredit) => self.on_output_credit(&frame),
            (None, Kind::Input) => self.on_input(frame, cx),
            (Some(agent), Kind::InputCredit) => self.on_input_credit(agent, frame.arg, cx),
            (Some(_), Kind::PmixUp) | (None, Kind::PmixDown) => self.on_pmix_frame(from, frame, cx),
            (Some(_), Kind::Trace) => self.send_trace(frame.payload, cx),
            // Frames in the wrong direction come from no agent of ours: they change nothing.
            (
                _,
                Kind::Control
                | Kind::ExchangeUp
                | Kind::ExchangeDown
                | Kind::Output
                | Kind::OutputCredit
                | Kind::Input
                | Kind::InputCredit
                | Kind::Trace
                | Kind::Direct
                | Kind::Routed
                | Kind::Pair
                | Kind::Bench
                | Kind::GroupUp
                | Kind::GroupDown
                | Kind::Modex
                | Kind::PmixUp
                | Kind::PmixDown,
            ) => {}
        }
    }

    /// A control message about this job, from above. What else there is does not come from there, or is about the session.
    pub fn on_control_down(&mut self, message: &Control, cx: &mut Context<'_>) {
        match message {
            Control::Signal { signal } => {
                self.signal_all(*signal, cx);
                self.forward_down(message, cx);
            }
            Control::Kill { grace_ns } => self.kill(*grace_ns, cx),
            Control::Resize { rows, columns } => {
                self.on_resize(*rows, *columns, cx);
                self.forward_down(message, cx);
            }
            Control::StallAsk { collective } if self.facts.root => self.ask_stall(*collective, cx),
            Control::StallAsk { collective } => self.on_stall_ask(*collective, cx),
            Control::Over { .. } => self.abandon(cx),
            _ => {}
        }
    }

    /// A control message about this job, from a child; the same holds.
    pub fn on_control_up(&mut self, agent: AgentId, message: Control, cx: &mut Context<'_>) {
        let Some(child) = self.child_mut(agent) else {
            return;
        };
        match message {
            Control::Started { ranks, pmix } => {
                child.started = Some(ranks);
                if let Some(opened) = pmix {
                    self.on_opened(opened, cx);
                }
            }
            Control::Done(done) => {
                child.done = Some(done);
                self.on_child_done(agent, cx);
            }
            Control::Failed(failure) => self.fail(failure, cx),
            Control::Departed(departed) => self.on_departed(departed, cx),
            Control::StallAsk { collective } => self.ask_stall(collective, cx),
            Control::Stall(_) => cx.control_up(self.id(), &message),
            Control::Missing(missing) => self.on_missing(missing, cx),
            _ => {}
        }
    }

    /// Passes a trace on, a child's or this agent's own.
    pub fn send_trace(&self, payload: Bytes, cx: &mut Context<'_>) {
        let frame = Frame { kind: Kind::Trace, class: Class::Staging, stream: 0, job: self.id().0, arg: 0, payload };
        cx.send_up(frame);
    }
}
