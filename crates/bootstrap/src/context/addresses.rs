//! Where ranks are reached in networks of the program's own, and connections for the program.

use super::Context;
use crate::error::Error;
use crate::operation::Request;
use alloc::vec::Vec;
use core::ffi::c_int;
use core::net::SocketAddr;
use wireup_capi::codes::Code;
use wireup_capi::job::ADDRESS_NAME_LEN_MAX;
use wireup_wire::rank_address;

/// Added to the number of a question of the program; those of the network are ranks, which are lower.
pub(super) const OWN_QUESTIONS: u32 = 1 << 31;

impl Context {
    /// The socket that the server has given this rank; `None`: it has given none, or the network uses it.
    pub fn listening(&mut self) -> Result<Option<c_int>, Error> {
        let book = self.book()?;
        let is_used = self.wants_sockets() && self.they_listen;
        Ok(book.filter(|_| !is_used).and_then(|book| book.listening()))
    }

    /// Where a rank's socket of the server listens, best first; `None`: the server has given none, or there is no such
    /// rank. If the sockets do not listen, these are the same addresses on all ranks: those for other hosts, since the
    /// ranks' own sockets may be at one of them.
    pub fn listens_at(&mut self, rank: u32) -> Result<Option<Vec<SocketAddr>>, Error> {
        let own = self.job.rank;
        let Some(book) = self.book()? else { return Ok(None) };
        let Some(address) = book.address(rank) else { return Ok(None) };
        if !self.they_listen {
            return Ok(Some(rank_address::for_all(&address)));
        }
        let host = book.address(own).as_deref().and_then(rank_address::host);
        Ok(host.map(|host| rank_address::candidates(&address, host)))
    }

    /// Tells where this rank is reached in a network of the program's own, once under each name.
    pub fn set_address(&mut self, network: &[u8], address: &[u8]) -> Result<(), Error> {
        self.job.set_address(&self.in_programs(network), address).map_err(|code| match code {
            Code::INVALID_ARG => Error::Argument,
            code => Error::Server(code),
        })
    }

    /// Asks where a rank is reached in a network of the program's own.
    pub fn address(&mut self, network: &[u8], rank: u32) -> Result<Request, Error> {
        if rank >= self.job.size || network.len() > ADDRESS_NAME_LEN_MAX {
            return Err(Error::Argument);
        }
        let name = self.in_programs(network);
        let id = self.addresses.begin();
        if self.job.answers_questions() {
            let asked = self.job.ask_address(OWN_QUESTIONS | id, &name, rank);
            asked.and_then(|()| Ok(self.job.server()?.flush()?)).map_err(Error::Server)?;
        } else {
            let found = self.job.look_up_address(&name, rank).map_err(Error::Server)?;
            self.addresses.on_answer(id, found);
        }
        Ok(Request::Address(id))
    }

    /// Starts to make a plain TCP connection to another rank, which does the same. The result is the descriptor's
    /// bytes.
    pub fn connect(&mut self, rank: u32) -> Result<Request, Error> {
        if rank >= self.job.size || rank == self.job.rank {
            return Err(Error::Argument);
        }
        let (network, world) = self.network()?;
        let key = network.connect(*world, rank).ok_or(Error::Argument)?;
        self.pump();
        Ok(Request::Connection(key))
    }

    /// The name of a network of the program's own: never that of this library, nor one of a further library's program.
    fn in_programs(&self, network: &[u8]) -> Vec<u8> {
        let prefix = if self.is_secondary() { [&self.job.name[..], b"/"].concat() } else { b".".into() };
        [&prefix, network].concat()
    }
}
