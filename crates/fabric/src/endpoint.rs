//! An endpoint that exchanges messages with any other endpoint of its kind, without connections.
//!
//! A provider writes messages only into memory that was posted before they arrive. So receives are posted in advance,
//! and each is posted again once its message was read. The provider retransmits, keeps the messages between two
//! endpoints in order, and makes the other end wait, or keeps messages, if no receive is posted. It may do all this
//! only while completions are read: [`Endpoint::poll`] must be called whenever the descriptor is readable.

use crate::library::Library;
use crate::objects::{Completed, Objects, Posted};
use crate::pool::Pool;
use crate::provider::{Choice, Found, KIND_LEN};
use crate::{ADDRESS_LEN_MAX, Error};
use alloc::vec;
use alloc::vec::Vec;
use core::ffi::c_int;

/// Memory of receives that are posted in advance (bytes). Chosen: what several peers send while the process computes;
/// providers may allow fewer receives.
const RECEIVED_LEN_MAX: usize = 1 << 20;
/// Maximum number of sends in progress; one peer may use one in `SHARE` of them. Chosen: as many as its credit allows.
const SENDS_MAX: usize = 256;
const SHARE: usize = 8;

/// The number of a peer's address in the provider's address vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer(u64);

/// A completed operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A message of this length has arrived; what does not fit into the buffer was cut off.
    Received(usize),
    /// A message of this owner was not sent: the provider does not reach the peer any more.
    NotSent(u64),
    /// A message was sent, or a receive has failed.
    Other,
}

pub struct Endpoint {
    // The first field, because the objects must be closed before the memory of `sends` and `receives` is freed.
    objects: Objects,
    sends: Pool,
    receives: Pool,
    /// Slots of `sends` that no operation uses.
    free: Vec<usize>,
    /// For each slot of `sends`, whose message it contains; `None`: no operation uses it.
    owners: Vec<Option<u64>>,
    /// Slots of `receives` that are to be posted.
    unposted: Vec<usize>,
    message_len: usize,
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
        let ((sends_max, receives_max), message_len) = (choice.depths(), choice.message_len());
        let posted = (RECEIVED_LEN_MAX / message_len).min(receives_max);
        let sends = Pool::new(SENDS_MAX.min(sends_max), message_len).ok_or(Error::Memory)?;
        let receives = Pool::new(posted, message_len).ok_or(Error::Memory)?;
        let objects = Objects::open(library, choice, &sends, &receives)?;
        objects.enable()?;
        let address = [&choice.kind()[..], &objects.name()?].concat();
        assert!(address.len() <= ADDRESS_LEN_MAX, "the library has kept to the length");
        let mut endpoint = Endpoint {
            fd: objects.descriptor()?,
            objects,
            free: (0..sends.count()).collect(),
            owners: vec![None; sends.count()],
            unposted: (0..receives.count()).collect(),
            sends,
            receives,
            message_len,
            address,
        };
        endpoint.post();
        // From now on, an arriving message makes the descriptor readable.
        endpoint.may_wait();
        Ok(endpoint)
    }

    /// A descriptor that is readable when operations have completed, or the provider has something to do, after
    /// [`Endpoint::may_wait`] has returned `true`.
    pub fn fd(&self) -> c_int {
        self.fd
    }

    /// Whether the caller may wait on the descriptor; `false`: it must call [`Endpoint::poll`] first.
    pub fn may_wait(&self) -> bool {
        self.objects.may_wait()
    }

    /// The address at which other endpoints reach this one: the kind, which is equal for all endpoints that understand
    /// each other, then the provider's address.
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// Maximum length of a message, in bytes.
    pub fn message_len(&self) -> usize {
        self.message_len
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

    /// Starts to send a message. `owner`: what [`Event::NotSent`] reports if that fails. An owner uses an eighth of the
    /// slots at most, so that a few peers that do not receive leave some for those that do.
    pub fn send(&mut self, to: Peer, bytes: &[u8], owner: u64) -> Posted {
        let used = self.owners.iter().filter(|one| **one == Some(owner)).count();
        if used >= (self.owners.len() / SHARE).max(1) {
            return Posted::Later;
        }
        let Some(slot) = self.free.pop() else { return Posted::Later };
        let len = self.sends.fill(slot, bytes);
        let posted = self.objects.send(&self.sends, slot, len, to.0);
        match posted {
            Posted::Yes => self.owners[slot] = Some(owner),
            Posted::Later | Posted::Never => self.free.push(slot),
        }
        posted
    }

    /// Whether the provider still needs a message that was given to it.
    pub fn is_sending(&self) -> bool {
        self.free.len() < self.sends.count()
    }

    /// Reads the next completion; a message that has arrived is copied into `buffer`. `None`: there is none now.
    pub fn poll(&mut self, buffer: &mut [u8]) -> Option<Event> {
        let (context, received) = match self.objects.completed() {
            Completed::Done(context, len) => (context, Some(len)),
            Completed::Failed(context) => (context, None),
            Completed::Nothing => {
                self.post();
                return None;
            }
        };
        if let Some(slot) = self.receives.slot(context) {
            let len = received.map(|len| self.receives.copy_out(slot, len, buffer));
            self.unposted.push(slot);
            self.post();
            return Some(len.map_or(Event::Other, Event::Received));
        }
        let slot = self.sends.slot(context);
        self.free.extend(slot);
        let owner = slot.and_then(|slot| self.owners[slot].take());
        Some(owner.filter(|_| received.is_none()).map_or(Event::Other, Event::NotSent))
    }

    /// Posts the receives that are not posted yet, as far as the provider has room.
    fn post(&mut self) {
        while let Some(slot) = self.unposted.pop() {
            if self.objects.receive(&self.receives, slot, self.message_len) != Posted::Yes {
                self.unposted.push(slot);
                return;
            }
        }
    }
}
