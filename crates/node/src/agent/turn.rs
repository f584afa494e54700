//! What the parts of an agent's driver share while one event is handled.

use wireup_os::reactor::Reactor;
use wireup_proto::io::Input;

pub struct Turn<'a> {
    /// The monotonic clock when the event was taken up.
    pub now_ns: u64,
    pub reactor: &'a Reactor,
    /// For every read.
    pub buffer: &'a mut [u8],
    /// What the machine is to be told.
    pub inputs: &'a mut Vec<Input>,
}
