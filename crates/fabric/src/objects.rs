//! The libfabric objects of one endpoint, behind calls that cannot be misused: they are closed in the reverse of the
//! order in which they were made.

use crate::library::{Error, Library};
use crate::pool::Pool;
use crate::provider::Choice;
use crate::sys::{self, Av, AvAttr, Cq, CqAttr, CqEntry, CqErrEntry, Domain, EAGAIN, EAVAIL, Ep, Fabric, Fid, Mr};
use alloc::vec;
use alloc::vec::Vec;
use core::ffi::{c_int, c_void};
use core::ptr;

/// Maximum length of a provider's address, in bytes.
pub const NAME_LEN_MAX: usize = 128;

/// The objects, in the order in which they are closed; null: not made.
pub struct Objects {
    ep: *mut Ep,
    /// Registrations of the memory of sends and of the memory of receives, if the provider needs them.
    regions: [*mut Mr; 2],
    /// The completion queue of sends and receives.
    queue: *mut Cq,
    av: *mut Av,
    domain: *mut Domain,
    fabric: *mut Fabric,
}

/// The result of reading the completion queue.
pub enum Completed {
    /// An operation with this context has completed; it transferred this many bytes.
    Done(*mut c_void, usize),
    /// An operation with this context has failed.
    Failed(*mut c_void),
    Nothing,
}

/// The result of starting an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    Yes,
    /// The operation has not begun, because there is no room, or the provider still connects to the peer; the caller
    /// tries again later.
    Later,
    /// The operation can never be carried out.
    Never,
}

fn checked(what: &'static str, result: c_int) -> Result<(), Error> {
    if result == 0 { Ok(()) } else { Err(Error::Call { what, number: -result }) }
}

impl Drop for Objects {
    fn drop(&mut self) {
        let [send, receive] = self.regions;
        let in_order: [*mut Fid; 7] = [
            self.ep.cast(),
            send.cast(),
            receive.cast(),
            self.queue.cast(),
            self.av.cast(),
            self.domain.cast(),
            self.fabric.cast(),
        ];
        for fid in in_order.into_iter().filter(|fid| !fid.is_null()) {
            // SAFETY: every object begins with a `fid`; each is open, and is closed once, after the objects that use
            // it.
            unsafe { ((*(*fid).ops).close)(fid) };
        }
    }
}

impl Objects {
    /// Opens all objects; the endpoint is not enabled yet.
    pub fn open(library: &Library, choice: Choice<'_>, sends: &Pool, receives: &Pool) -> Result<Objects, Error> {
        let mut all = Objects {
            ep: ptr::null_mut(),
            regions: [ptr::null_mut(); 2],
            queue: ptr::null_mut(),
            av: ptr::null_mut(),
            domain: ptr::null_mut(),
            fabric: ptr::null_mut(),
        };
        let info = choice.info();
        let none = ptr::null_mut();
        // SAFETY: `info` came from the library, and outlives the calls; each object is used only after it was made.
        unsafe {
            checked("opening a fabric", (library.fabric)((*info).fabric_attr, &mut all.fabric, none))?;
            let domain = (*(*all.fabric).ops).domain;
            checked("opening a domain", domain(all.fabric, info, &mut all.domain, none))?;
            all.queue = all.open_queue(sends.count() + receives.count())?;
            let mut attr = AvAttr {
                kind: choice.av_type(),
                rx_ctx_bits: 0,
                count: 0,
                ep_per_node: 0,
                name: ptr::null(),
                map_addr: none,
                flags: 0,
            };
            let av_open = (*(*all.domain).ops).av_open;
            checked("opening an address vector", av_open(all.domain, &mut attr, &mut all.av, none))?;
            let endpoint = (*(*all.domain).ops).endpoint;
            checked("making an endpoint", endpoint(all.domain, info, &mut all.ep, none))?;
            all.bind(all.av.cast(), 0)?;
            all.bind(all.queue.cast(), sys::SEND | sys::RECV)?;
        }
        if choice.wants_registered_memory() {
            all.regions[0] = all.register(sends, sys::SEND, 0)?;
            all.regions[1] = all.register(receives, sys::RECV, 1)?;
        }
        Ok(all)
    }

    fn open_queue(&self, size: usize) -> Result<*mut Cq, Error> {
        let mut attr = CqAttr {
            size,
            flags: 0,
            format: sys::CQ_FORMAT_MSG,
            wait_obj: sys::WAIT_FD,
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: ptr::null_mut(),
        };
        let mut queue = ptr::null_mut();
        // SAFETY: the domain is open.
        let result = unsafe { ((*(*self.domain).ops).cq_open)(self.domain, &mut attr, &mut queue, ptr::null_mut()) };
        checked("opening a completion queue", result).map(|()| queue)
    }

    fn bind(&self, other: *mut Fid, flags: u64) -> Result<(), Error> {
        let fid = self.ep.cast::<Fid>();
        // SAFETY: both objects are open.
        checked("binding the endpoint", unsafe { ((*(*fid).ops).bind)(fid, other, flags) })
    }

    fn register(&self, pool: &Pool, access: u64, key: u64) -> Result<*mut Mr, Error> {
        let ((base, len), mut region) = (pool.memory(), ptr::null_mut());
        // SAFETY: the domain is open; the memory outlives the region, see `Endpoint`.
        let result = unsafe {
            let reg = (*(*self.domain).mr).reg;
            reg(self.domain.cast(), base.cast(), len, access, 0, key, 0, &mut region, ptr::null_mut())
        };
        checked("registering memory", result).map(|()| region)
    }

    pub fn enable(&self) -> Result<(), Error> {
        let fid = self.ep.cast::<Fid>();
        // SAFETY: the endpoint is open, and bound to all objects that it needs.
        let result = unsafe { ((*(*fid).ops).control)(fid, sys::ENABLE, ptr::null_mut()) };
        checked("enabling the endpoint", result)
    }

    /// The endpoint's address.
    pub fn name(&self) -> Result<Vec<u8>, Error> {
        let (mut name, mut len) = (vec![0; NAME_LEN_MAX], NAME_LEN_MAX);
        // SAFETY: the endpoint is open; at most `len` bytes are written.
        let result = unsafe { ((*(*self.ep).cm).getname)(self.ep.cast(), name.as_mut_ptr().cast(), &mut len) };
        checked("asking for the endpoint's address", result)?;
        name.truncate(len);
        Ok(name)
    }

    /// A descriptor that is readable when operations may have completed since [`Objects::may_wait`] returned `true`.
    pub fn descriptor(&self) -> Result<c_int, Error> {
        let (fid, mut fd) = (self.queue.cast::<Fid>(), -1);
        // SAFETY: the queue is open, and was opened with a descriptor for waits (`WAIT_FD`).
        let result = unsafe { ((*(*fid).ops).control)(fid, sys::GETWAIT, (&raw mut fd).cast()) };
        checked("asking for a descriptor", result).map(|()| fd)
    }

    /// Whether the caller may wait on the descriptor; `false`: operations have completed meanwhile, and must be
    /// read first.
    pub fn may_wait(&self) -> bool {
        let mut fid = self.queue.cast::<Fid>();
        // SAFETY: both objects are open.
        let result = unsafe { ((*(*self.fabric).ops).trywait)(self.fabric, &mut fid, 1) };
        result as isize != -EAGAIN
    }

    /// Adds an address to the address vector, and returns its number there; `None`: the provider rejects it.
    pub fn insert(&self, name: &[u8]) -> Option<u64> {
        let mut number = sys::ADDR_UNSPEC;
        // SAFETY: the vector is open; the caller passes an address of this kind of endpoint, as the library has written
        // it.
        let count =
            unsafe { ((*(*self.av).ops).insert)(self.av, name.as_ptr().cast(), 1, &mut number, 0, ptr::null_mut()) };
        (count == 1).then_some(number)
    }

    /// Reads the next completion. Only while this is called does a provider without a thread of its own make progress.
    pub fn completed(&self) -> Completed {
        let queue = self.queue;
        let mut entry = CqEntry { op_context: ptr::null_mut(), flags: 0, len: 0 };
        // SAFETY: the queue is open, and its entries are of this kind.
        match unsafe { ((*(*queue).ops).read)(queue, (&raw mut entry).cast(), 1) } {
            1 => Completed::Done(entry.op_context, entry.len),
            result if result == -EAVAIL => self.failed(),
            _ => Completed::Nothing,
        }
    }

    fn failed(&self) -> Completed {
        // SAFETY: all zeros are a valid value; the queue is open.
        let (result, entry) = unsafe {
            let mut entry: CqErrEntry = core::mem::zeroed();
            (((*(*self.queue).ops).readerr)(self.queue, &mut entry, 0), entry)
        };
        if result == 1 { Completed::Failed(entry.op_context) } else { Completed::Nothing }
    }

    /// Sends `len` bytes of a slot to the peer with this number in the address vector.
    pub fn send(&self, pool: &Pool, slot: usize, len: usize, to: u64) -> Posted {
        let descriptor = self.region(0);
        // SAFETY: the endpoint is enabled; the slot is not reused before the operation completes, and the pool outlives
        // the operation.
        let result = unsafe {
            ((*(*self.ep).msg).send)(self.ep, pool.data(slot).cast(), len, descriptor, to, pool.context(slot))
        };
        posted(result)
    }

    /// Receives up to `len` bytes into a slot.
    pub fn receive(&self, pool: &Pool, slot: usize, len: usize) -> Posted {
        let descriptor = self.region(1);
        // SAFETY: as for `send`.
        let result = unsafe {
            let recv = (*(*self.ep).msg).recv;
            recv(self.ep, pool.data(slot).cast(), len, descriptor, sys::ADDR_UNSPEC, pool.context(slot))
        };
        posted(result)
    }

    fn region(&self, way: usize) -> *mut c_void {
        // SAFETY: the region is open, if there is one.
        unsafe { self.regions[way].as_ref() }.map_or(ptr::null_mut(), |region| region.mem_desc)
    }
}

fn posted(result: isize) -> Posted {
    match result {
        0 => Posted::Yes,
        result if result == -EAGAIN => Posted::Later,
        // The process or the system has no descriptor or memory now, for example for a socket of the provider.
        result if [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS].contains(&(-result as c_int)) => {
            Posted::Later
        }
        _ => Posted::Never,
    }
}
