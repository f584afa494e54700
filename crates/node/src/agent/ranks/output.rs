//! Reads the output of ranks, or leaves it in their pipes while no reader takes it.

use super::JobRanks;
use crate::agent::pipes::{OutputPipe, Pumped};
use crate::agent::token::Token;
use crate::agent::turn::Turn;
use wireup_os::reactor::Interest;
use wireup_proto::io::{Input, JobEvent, Stream};
use wireup_wire::ids::LocalRank;

impl JobRanks {
    /// A pipe of the rank's output is readable.
    pub fn on_output(&mut self, local: LocalRank, stream: Stream, turn: &mut Turn<'_>) {
        let index = stream as usize - 1;
        if !self.paused[index] {
            self.pump(local, stream, turn);
            return;
        }
        let Some(pipe) = self.ranks.get_mut(local.index()).and_then(|rank| rank.output[index].as_mut()) else {
            return;
        };
        if !std::mem::replace(&mut pipe.parked, true) {
            let _ = turn.reactor.remove(&pipe.fd);
            self.parked[index].push(local);
        }
    }

    /// Resumes or pauses reading one stream of all ranks.
    pub fn read_stdio(&mut self, stream: Stream, on: bool, turn: &mut Turn<'_>) {
        let index = stream as usize - 1;
        self.paused[index] = !on;
        if !on {
            return;
        }
        for local in std::mem::take(&mut self.parked[index]) {
            let Some(pipe) = &mut self.ranks[local.index()].output[index] else {
                continue;
            };
            pipe.parked =
                turn.reactor.add(&pipe.fd, Token::Output(self.slot, local, stream).pack(), Interest::READABLE).is_err();
        }
        // Pipes of ranks that ended while the stream was paused are read now: the reactor does not report an empty
        // pipe.
        for index in 0..self.ranks.len() {
            let gone = |pipe: &OutputPipe| pipe.left.is_some();
            if self.ranks[index].output[stream as usize - 1].as_ref().is_some_and(gone) {
                self.pump(LocalRank(index as u16), stream, turn);
            }
        }
    }

    pub(super) fn pump(&mut self, local: LocalRank, stream: Stream, turn: &mut Turn<'_>) -> Pumped {
        let job = self.job;
        let slot = &mut self.ranks[local.index()].output[stream as usize - 1];
        let Some(pipe) = slot else {
            return Pumped::Closed;
        };
        let pumped = pipe.pump(turn.buffer, |bytes| {
            turn.inputs.push(Input::Job { job, event: JobEvent::StdioBytes { local, stream, bytes } })
        });
        if pumped == Pumped::Closed {
            if !pipe.parked {
                let _ = turn.reactor.remove(&pipe.fd);
            }
            *slot = None;
            turn.inputs.push(Input::Job { job, event: JobEvent::StdioClosed { local, stream } });
        }
        pumped
    }
}
