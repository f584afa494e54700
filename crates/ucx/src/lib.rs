//! One UCX worker behind a small safe interface: numbered endpoints, tagged messages of bytes, a descriptor to wait on.
//!
//! libucp is opened at run time; if it is missing, or a static program cannot open it, the result is an error with a
//! message. Messages from one sender with one tag are delivered in the order of sending. Nothing here blocks: after
//! waiting on the descriptor the caller calls [`Worker::poll`], and [`Worker::arm`] before it waits again. Callbacks
//! run only inside these calls, in the caller's thread.
//!
//! The memory and work that peers can impose on this process are bounded: the caller judges each message by its tag and
//! length before a buffer is allocated for it (`receiving`), and one call of `poll` does no more than its [`Budget`].
//!
//! `sys` declares the C functions, `library` opens the library; `unsafe` is used only around calls of these functions.

mod library;
mod receiving;
pub mod sys;

use bytes::Bytes;
pub use library::UcxError;
use receiving::Receiving;
pub use receiving::{Budget, Message, Verdict};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use sys::{BUSY, EpParams, Functions, Handle, IN_PROGRESS, NO_PARAM, OK, RequestParam, Status, outcome};

/// A connection to another worker. Its number is not reused after the connection was closed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Endpoint(u32);

pub struct Worker {
    functions: Functions,
    context: Handle,
    worker: Handle,
    event_fd: RawFd,
    address: Vec<u8>,
    endpoints: BTreeMap<Endpoint, Open>,
    next: u32,
    /// Sends whose bytes UCX still reads.
    sends: Vec<Send>,
    receiving: Receiving,
    /// Endpoints that UCX reported as failed; its callback writes here.
    broken: Box<Broken>,
}

#[derive(Default)]
struct Broken(Vec<(Handle, Status)>);

struct Open {
    handle: Handle,
    /// Number of bytes sent on this endpoint that UCX still reads.
    sending: usize,
}

struct Send {
    endpoint: Endpoint,
    request: *mut c_void,
    /// The sent bytes, kept until the request completes.
    bytes: Bytes,
}

/// Called by UCX from within `worker_progress`, `ep_close` and sends.
unsafe extern "C" fn on_error(arg: *mut c_void, ep: Handle, status: Status) {
    // SAFETY: `arg` is the `Broken` box of the worker that the endpoint belongs to; the box outlives the endpoint, and
    // nothing else refers to it while a function of UCX runs.
    let broken = unsafe { &mut *arg.cast::<Broken>() };
    broken.0.push((ep, status));
}

impl Worker {
    /// Opens the library and makes a worker.
    ///
    /// # Errors
    /// The library is missing, or it finds no network.
    pub fn open() -> Result<Worker, UcxError> {
        let (functions, context, worker) = library::open()?;
        let mut opened = Worker {
            functions,
            context,
            worker,
            event_fd: -1,
            address: Vec::new(),
            endpoints: BTreeMap::new(),
            next: 0,
            sends: Vec::new(),
            receiving: Receiving::default(),
            broken: Box::default(),
        };
        let (mut address, mut length) = (ptr::null_mut(), 0);
        // SAFETY: the worker is alive; UCX writes to these two places.
        let status = unsafe { (functions.worker_address)(worker, &mut address, &mut length) };
        if status != OK {
            return Err(UcxError::Call { what: "asking for its address", status });
        }
        // SAFETY: UCX returned this address and length; it is released only after the copy.
        opened.address = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), length) }.to_vec();
        // SAFETY: the address came from this worker and is released once.
        unsafe { (functions.release_address)(worker, address) };
        // SAFETY: the worker is alive and was made with wake-up.
        match unsafe { (functions.worker_fd)(worker, &mut opened.event_fd) } {
            OK => Ok(opened),
            status => Err(UcxError::Call { what: "asking for its descriptor", status }),
        }
    }

    /// The address at which other workers reach this one.
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// A descriptor that is readable when there is work for `poll`, provided that [`Worker::arm`] has returned `true`.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor lives as long as the worker.
        unsafe { BorrowedFd::borrow_raw(self.event_fd) }
    }

    /// Connects to the worker with this address.
    ///
    /// # Errors
    /// `address` is not the address of a worker, or the worker cannot be reached from this host.
    pub fn connect(&mut self, address: &[u8]) -> Result<Endpoint, UcxError> {
        // UCX reads the address without knowing its length: the padding keeps it from reading beyond the end of a short
        // one.
        let mut padded = address.to_vec();
        padded.resize(address.len().max(1 << 12) + 64, 0);
        let params = EpParams {
            field_mask: sys::EP_FIELD_REMOTE_ADDRESS | sys::EP_FIELD_ERR_HANDLING_MODE | sys::EP_FIELD_ERR_HANDLER,
            address: padded.as_ptr().cast(),
            err_mode: sys::ERR_HANDLING_PEER,
            err_callback: Some(on_error),
            err_arg: (&raw mut *self.broken).cast(),
        };
        let mut ep = ptr::null_mut();
        // SAFETY: the worker is alive; the address is that of another worker, sent by an authenticated agent, and is
        // read only during the call; the callback's argument outlives the endpoint.
        let status = unsafe { (self.functions.ep_create)(self.worker, &params, &mut ep) };
        if status != OK {
            return Err(UcxError::Call { what: "connecting to a peer", status });
        }
        let endpoint = Endpoint(self.next);
        self.next += 1;
        self.endpoints.insert(endpoint, Open { handle: ep, sending: 0 });
        Ok(endpoint)
    }

    /// Sends bytes, which are kept until UCX no longer needs them.
    ///
    /// # Errors
    /// The endpoint is closed, or UCX refuses the message.
    pub fn send(&mut self, endpoint: Endpoint, tag: u64, bytes: Bytes) -> Result<(), UcxError> {
        let Some(open) = self.endpoints.get_mut(&endpoint) else {
            return Err(UcxError::Call { what: "sending on a closed endpoint", status: OK });
        };
        // SAFETY: the endpoint is open; the bytes live until the request completes, and nothing changes them.
        let pointer =
            unsafe { (self.functions.tag_send)(open.handle, bytes.as_ptr().cast(), bytes.len(), tag, &NO_PARAM) };
        match outcome(pointer) {
            Ok(None) => Ok(()),
            Ok(Some(request)) => {
                open.sending += bytes.len();
                self.sends.push(Send { endpoint, request, bytes });
                Ok(())
            }
            Err(status) => Err(UcxError::Call { what: "sending", status }),
        }
    }

    /// Number of bytes sent on an endpoint that UCX still reads.
    pub fn sending(&self, endpoint: Endpoint) -> usize {
        self.endpoints.get(&endpoint).map_or(0, |open| open.sending)
    }

    /// Lets UCX work within the budget. Adds received messages to `messages`, and failed endpoints to `broken`. `judge`
    /// decides from a message's tag and length how the message is received. Work beyond the budget is left, and `arm`
    /// then returns `false`.
    pub fn poll(
        &mut self,
        budget: Budget,
        judge: impl FnMut(u64, usize) -> Verdict,
        messages: &mut Vec<Message>,
        broken: &mut Vec<(Endpoint, Status)>,
    ) {
        self.receiving.turn(&self.functions, self.worker, budget, judge, messages);
        self.end_sends(broken);
        for (handle, status) in std::mem::take(&mut self.broken.0) {
            let endpoint = self.endpoints.iter().find(|(_, open)| open.handle == handle).map(|(endpoint, _)| *endpoint);
            broken.extend(endpoint.map(|endpoint| (endpoint, status)));
        }
    }

    fn end_sends(&mut self, broken: &mut Vec<(Endpoint, Status)>) {
        let Worker { functions, endpoints, sends, .. } = self;
        sends.retain(|send| {
            // SAFETY: the request was returned by a send and is freed once, here.
            let status = unsafe { (functions.request_status)(send.request) };
            if status == IN_PROGRESS {
                return true;
            }
            // SAFETY: as above.
            unsafe { (functions.request_free)(send.request) };
            if let Some(open) = endpoints.get_mut(&send.endpoint) {
                open.sending -= send.bytes.len();
            }
            if status != OK {
                broken.push((send.endpoint, status));
            }
            false
        });
    }

    /// Requests a wake-up through the descriptor; `false`: there is more work to do first.
    pub fn arm(&mut self) -> bool {
        if self.receiving.has_more() {
            return false;
        }
        // SAFETY: the worker is alive and was made with wake-up.
        unsafe { (self.functions.worker_arm)(self.worker) != BUSY }
    }

    /// Closes an endpoint and discards sends in progress on it.
    pub fn close(&mut self, endpoint: Endpoint) {
        let Some(open) = self.endpoints.remove(&endpoint) else { return };
        let param = RequestParam { op_attr_mask: sys::OP_FIELD_FLAGS, flags: sys::EP_CLOSE_FORCE };
        // SAFETY: the endpoint is open and not used afterwards.
        let pointer = unsafe { (self.functions.ep_close)(open.handle, &param) };
        if let Ok(Some(request)) = outcome(pointer) {
            self.sends.push(Send { endpoint, request, bytes: Bytes::new() });
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        for endpoint in self.endpoints.keys().copied().collect::<Vec<_>>() {
            self.close(endpoint);
        }
        // SAFETY: all endpoints are closed; requests in progress end with the worker, and only then are their buffers
        // freed.
        unsafe {
            (self.functions.worker_destroy)(self.worker);
            (self.functions.cleanup)(self.context);
        }
    }
}

#[cfg(test)]
mod tests;
