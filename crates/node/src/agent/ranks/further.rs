//! Connects secondary clients in ranks: each gets a pair of sockets for itself.

use super::JobRanks;
use super::pmi::PmiSocket;
use crate::agent::turn::Turn;
use std::os::fd::OwnedFd;
use wireup_os::files::set_nonblocking;
use wireup_os::socket;
use wireup_proto::io::{Input, JobEvent};
use wireup_wire::ids::Client;
use wireup_wire::limits::SECONDARY_CLIENTS_PER_RANK_MAX;
pub use wireup_wire::secondary_client::VARIABLE;
use wireup_wire::secondary_client::{Answer, Hello};

impl JobRanks {
    /// A secondary client connects: returns its end of the pair, or why it does not get one.
    pub fn on_hello(&mut self, hello: &Hello<'_>, turn: &mut Turn<'_>) -> Result<OwnedFd, Answer> {
        let (job, slot) = (self.job, self.slot);
        let is_there = |rank: &&mut super::RankIo| !rank.pmi.is_empty();
        let rank = self.ranks.get_mut(hello.local.index()).filter(is_there).ok_or(Answer::NoRank)?;
        if rank.libraries.iter().any(|name| name == hello.name) {
            return Err(Answer::Taken);
        }
        if rank.libraries.len() == SECONDARY_CLIENTS_PER_RANK_MAX {
            return Err(Answer::Full);
        }
        let (near, far) = socket::pair().map_err(|_| Answer::NoRoom)?;
        set_nonblocking(&near, true).map_err(|_| Answer::NoRoom)?;
        let client = Client { local: hello.local, number: rank.pmi.len() as u16 };
        let socket = PmiSocket::watched(Some(near), slot, client, turn.reactor).unwrap_or_default();
        if socket.out.fd.is_none() {
            return Err(Answer::NoRoom);
        }
        rank.libraries.push(hello.name.to_vec());
        rank.pmi.push(socket);
        turn.inputs.push(Input::Job { job, event: JobEvent::ClientJoined { client } });
        Ok(far)
    }
}
