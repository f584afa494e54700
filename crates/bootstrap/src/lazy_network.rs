//! The network of ranks, which is made when it is first needed, and the sockets that the server may have bound for it.

use crate::agents;
use crate::error::Error;
use crate::network::{Network, Transport};
use crate::start::{self, Phases, Start};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::c_int;
use core::net::SocketAddr;
use wireup_capi::job::{Endpoints, Job};
use wireup_capi::net::{self, Errno};
use wireup_group::Context;
use wireup_wire::rank_address;

pub struct LazyNetwork {
    pub start: Start,
    transport: Transport,
    connections_max: Option<usize>,
    /// Addresses at which all ranks listen. `None`: the server was not asked yet; `Some(None)`: the server has bound no
    /// sockets.
    book: Option<Option<Arc<Endpoints>>>,
    /// Whether the sockets that the server has bound are listening; if not, they only reserve their ports.
    they_listen: bool,
    /// The network of ranks, and the context of the group of all ranks; `None`: not made yet.
    made: Option<(Network, Context)>,
    /// A second group of all ranks, for barriers during fences, if the server answers a fence before all ranks have
    /// started theirs.
    pub fences: Option<Context>,
    /// How long it took to make the network of ranks; 0 without one.
    pub phases: Phases,
}

impl LazyNetwork {
    pub fn new(start: Start, transport: Transport) -> LazyNetwork {
        LazyNetwork {
            start,
            transport,
            connections_max: None,
            book: None,
            they_listen: false,
            made: None,
            fences: None,
            phases: Phases::default(),
        }
    }

    pub fn made(&self) -> Option<&Network> {
        self.made.as_ref().map(|(network, _)| network)
    }

    pub fn made_mut(&mut self) -> Option<&mut Network> {
        self.made.as_mut().map(|(network, _)| network)
    }

    /// Makes the network on the first call; returns it with the context of the group of all ranks. Where the server
    /// does not answer questions for addresses, the first call waits for all ranks.
    pub fn make(&mut self, job: &mut Job) -> Result<&mut (Network, Context), Error> {
        if self.made.is_none() {
            let book = if self.wants_sockets() { self.book(job)?.filter(|_| self.they_listen) } else { None };
            let (mut network, world, phases) = start::network(job, self.start, self.transport, book)?;
            if let Some(open_max) = self.connections_max {
                network.bound_connections(open_max);
            }
            if !agents::fence_waits(job) {
                self.fences = Some(network.groups.duplicate(world).map_err(Error::Group)?);
            }
            (self.made, self.phases) = (Some((network, world)), phases);
        }
        self.made.as_mut().ok_or(Error::Mismatch)
    }

    /// Sets a bound on connections: while more than `open_max` are open, the least recently used ones are closed,
    /// except those over which an end waits for a message. Has no effect where a connection costs no descriptor.
    pub fn bound_connections(&mut self, open_max: usize) {
        self.connections_max = Some(open_max);
        self.made_mut().into_iter().for_each(|network| network.bound_connections(open_max));
    }

    /// Whether the network would use the server's sockets, which are TCP sockets, provided that they listen.
    fn wants_sockets(&self) -> bool {
        self.start == Start::Auto && self.transport == Transport::Tcp
    }

    /// The ports of all ranks, if the server has bound sockets for them; waits until all nodes have bound theirs.
    fn book(&mut self, job: &mut Job) -> Result<Option<Arc<Endpoints>>, Error> {
        if let Some(book) = &self.book {
            return Ok(book.clone());
        }
        // The server binds no sockets for a secondary library.
        let is_secondary = !job.name.is_empty();
        let book = if is_secondary { None } else { job.bound_endpoints().map_err(Error::Server)?.map(Arc::new) };
        if let Some(socket) = book.as_ref().and_then(|book| book.listening()) {
            self.they_listen = net::listens(socket).map_err(|Errno(number)| Error::System(number))?;
        }
        Ok(self.book.insert(book).clone())
    }

    /// The socket that the server has bound for this rank; `None`: it has bound none, or the network uses it.
    pub fn listening(&mut self, job: &mut Job) -> Result<Option<c_int>, Error> {
        let book = self.book(job)?;
        let is_used = self.wants_sockets() && self.they_listen;
        Ok(book.filter(|_| !is_used).and_then(|book| book.listening()))
    }

    /// The addresses of the socket that the server has bound for a rank, best first; `None`: it has bound none, or
    /// there is no such rank. Sockets that do not listen have the same addresses on all ranks, the ones for other
    /// hosts, because the program's own sockets may listen at one of them.
    pub fn listens_at(&mut self, job: &mut Job, rank: u32) -> Result<Option<Vec<SocketAddr>>, Error> {
        let Some(book) = self.book(job)? else { return Ok(None) };
        let Some(address) = book.address(rank) else { return Ok(None) };
        if !self.they_listen {
            return Ok(Some(rank_address::for_all(&address)));
        }
        let host = book.address(job.rank).as_deref().and_then(rank_address::host);
        Ok(host.map(|host| rank_address::candidates(&address, host)))
    }
}
