//! The state shared by the parts of an agent's driver while one event is handled.

use wireup_os::reactor::Reactor;
use wireup_proto::io::{Input, JobEvent};
use wireup_wire::ids::JobId;

pub struct Turn<'a> {
    /// Time of the monotonic clock (ns) when the handling of the event began.
    pub now_ns: u64,
    pub reactor: &'a Reactor,
    /// Buffer for every read.
    pub buffer: &'a mut [u8],
    /// Inputs for the state machine, in order.
    pub inputs: &'a mut Vec<Input>,
}

impl Turn<'_> {
    /// Adds an input for the state machine: what has happened to a job.
    pub fn push_event(&mut self, job: JobId, event: JobEvent) {
        self.inputs.push(Input::Job { job, event });
    }
}
