//! An endpoint that exchanges datagrams with any other endpoint of its kind.
//!
//! A provider writes datagrams only into memory that was posted before they arrive. So receives are posted in advance,
//! and each is posted again once its datagram was read. Completions of sends only free their slots: they are read when
//! there is no free slot, and wake nobody.

use crate::library::Library;
use crate::objects::{Completed, Objects, Posted, Way};
use crate::pool::Pool;
use crate::provider::{Choice, Found, KIND_LEN};
use crate::{ADDRESS_LEN_MAX, Error};
use alloc::vec::Vec;
use core::ffi::c_int;

/// Memory of receives that are posted in advance (bytes). Chosen, like the socket buffer for UDP: the windows of
/// several peers while the process computes; providers may allow fewer receives.
const RECEIVED_LEN_MAX: usize = 1 << 20;
/// Maximum number of sends in progress: the window of one peer. Further sends must wait.
const SENDS_MAX: usize = 128;

/// The number of a peer's address in the provider's address vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer(u64);

pub struct Endpoint {
    // The first field, because the objects must be closed before the memory of `sends` and `receives` is freed.
    objects: Objects,
    sends: Pool,
    receives: Pool,
    /// Slots of `sends` that no operation uses.
    free: Vec<usize>,
    /// Slots of `receives` that are to be posted.
    unposted: Vec<usize>,
    prefixes: (usize, usize),
    datagram_len: usize,
    fd: c_int,
    address: Vec<u8>,
}

impl Endpoint {
    /// Opens an endpoint with the best provider that works.
    ///
    /// # Errors
    /// No provider works, or libfabric is missing.
    pub fn open() -> Result<Endpoint, Error> {
        let library = Library::open()?;
        let found = Found::search(library)?;
        let mut failed = Error::NoProvider;
        for choice in found.choices() {
            match Endpoint::with(&library, choice) {
                Ok(endpoint) => return Ok(endpoint),
                Err(error) if failed == Error::NoProvider => failed = error,
                Err(_) => {}
            }
        }
        Err(failed)
    }

    fn with(library: &Library, choice: Choice<'_>) -> Result<Endpoint, Error> {
        let ((sends_max, receives_max), prefixes) = (choice.depths(), choice.prefixes());
        let datagram_len = choice.datagram_len();
        let posted = (RECEIVED_LEN_MAX / datagram_len).min(receives_max);
        let sends = Pool::new(SENDS_MAX.min(sends_max), prefixes.0 + datagram_len).ok_or(Error::Memory)?;
        let receives = Pool::new(posted, prefixes.1 + datagram_len).ok_or(Error::Memory)?;
        let objects = Objects::open(library, choice, &sends, &receives)?;
        objects.enable()?;
        let address = [&choice.kind()[..], &objects.name()?].concat();
        assert!(address.len() <= ADDRESS_LEN_MAX, "the library has kept to the length");
        let mut endpoint = Endpoint {
            fd: objects.descriptor()?,
            objects,
            free: (0..sends.count()).collect(),
            unposted: (0..receives.count()).collect(),
            sends,
            receives,
            prefixes,
            datagram_len,
            address,
        };
        endpoint.post();
        // From now on, an arriving datagram makes the descriptor readable.
        endpoint.objects.may_wait();
        Ok(endpoint)
    }

    /// A descriptor that is readable when a datagram has arrived after [`Endpoint::receive`] has returned `None`.
    pub fn fd(&self) -> c_int {
        self.fd
    }

    /// The address at which other endpoints reach this one: the kind, which is equal for all endpoints that understand
    /// each other, then the provider's address.
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// Maximum length of a datagram, in bytes.
    pub fn datagram_len(&self) -> usize {
        self.datagram_len
    }

    /// Whether this is the address of an endpoint that this one understands.
    pub fn understands(&self, address: &[u8]) -> bool {
        address.len() == self.address.len() && address[..KIND_LEN] == self.address[..KIND_LEN]
    }

    /// Prepares an address for [`Endpoint::send`]; `None`: this endpoint cannot reach that address.
    pub fn peer(&mut self, address: &[u8]) -> Option<Peer> {
        if !self.understands(address) {
            return None;
        }
        self.objects.insert(&address[KIND_LEN..]).map(Peer)
    }

    /// Sends a datagram; `false`: there is no room now. A datagram that can never be sent counts as lost on the
    /// network.
    pub fn send(&mut self, to: Peer, bytes: &[u8]) -> bool {
        if self.free.is_empty() {
            self.reclaim();
        }
        let Some(slot) = self.free.pop() else { return false };
        let len = self.sends.fill(slot, self.prefixes.0, bytes);
        let posted = self.objects.send(&self.sends, slot, len, to.0);
        if posted != Posted::Yes {
            self.free.push(slot);
        }
        if posted == Posted::Later {
            self.reclaim();
        }
        posted != Posted::Later
    }

    /// Receives the next datagram, and returns its length; what does not fit into the buffer is cut off.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        loop {
            let (slot, len) = match self.objects.completed(Way::Receive) {
                Completed::Done(context, len) => (self.receives.slot(context), len),
                Completed::Failed(context) => (self.receives.slot(context), 0),
                Completed::Nothing if self.objects.may_wait() => return None,
                Completed::Nothing => continue,
            };
            let Some(slot) = slot else { continue };
            let len = self.receives.copy_out(slot, self.prefixes.1, len, buffer);
            self.unposted.push(slot);
            self.post();
            // Providers may receive packets of their own, which contain nothing after the prefix.
            if len > 0 {
                return Some(len);
            }
        }
    }

    /// Posts the receives that are not posted yet, as far as the provider has room.
    fn post(&mut self) {
        let len = self.prefixes.1 + self.datagram_len;
        while let Some(slot) = self.unposted.pop() {
            if self.objects.receive(&self.receives, slot, len) != Posted::Yes {
                self.unposted.push(slot);
                return;
            }
        }
    }

    /// Frees the slots of sends that are complete.
    fn reclaim(&mut self) {
        loop {
            let context = match self.objects.completed(Way::Send) {
                Completed::Done(context, _) | Completed::Failed(context) => context,
                Completed::Nothing => return,
            };
            self.free.extend(self.sends.slot(context));
        }
    }
}
