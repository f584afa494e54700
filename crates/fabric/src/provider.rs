//! Chooses a provider, and its properties.
//!
//! The library lists its providers, the best first: devices before `udp`, other interfaces before the loopback one. Its
//! variable `FI_PROVIDER` restricts the list, `FI_UDP_IFACE` the interfaces of `udp`. A provider that is layered on
//! another one (`verbs;ofi_rxd`) is left out, because it retransmits too. Ranks understand each other if their
//! endpoints are of one kind: they have the same protocol and format of addresses.

use crate::library::{Error, Library};
use crate::sys::{self, Info};
use core::ffi::CStr;
use core::ptr;

/// Length of the kind, which precedes an address: the protocol and the address format, each u32 LE.
pub const KIND_LEN: usize = 8;

/// Minimum length of a provider's datagrams (bytes): shorter ones cannot carry the handshake of a connection.
const DATAGRAM_LEN_MIN: usize = 512;
/// Maximum length of a datagram (bytes): that of InfiniBand; it also bounds the memory for other providers.
const DATAGRAM_LEN_MAX: usize = 4_096;

/// The list of providers that the library has returned; freed when this is dropped.
pub struct Found {
    library: Library,
    first: *mut Info,
}

/// One of the providers in [`Found`].
#[derive(Clone, Copy)]
pub struct Choice<'a>(&'a Info);

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: the list came from the library; no `Choice` outlives this value.
        unsafe { (self.library.freeinfo)(self.first) };
    }
}

impl Found {
    pub fn search(library: Library) -> Result<Found, Error> {
        // SAFETY: the library makes an empty structure with all its parts, which is filled in here; `getinfo` copies
        // it, and it is freed once.
        unsafe {
            let hints = (library.dupinfo)(ptr::null());
            let Some(wanted) = hints.as_mut() else { return Err(Error::Memory) };
            wanted.caps = sys::MSG;
            wanted.mode = sys::MODE_CONTEXT | sys::MODE_CONTEXT2 | sys::MODE_MSG_PREFIX | sys::MODE_RX_CQ_DATA;
            (*wanted.ep_attr).kind = sys::EP_DGRAM;
            (*wanted.domain_attr).threading = sys::THREAD_DOMAIN;
            (*wanted.domain_attr).mr_mode = sys::MR_LOCAL | sys::MR_VIRT_ADDR | sys::MR_ALLOCATED | sys::MR_PROV_KEY;
            let mut first = ptr::null_mut();
            let result = (library.getinfo)(sys::VERSION, ptr::null(), ptr::null(), 0, hints, &mut first);
            (library.freeinfo)(hints);
            if result == 0 { Ok(Found { library, first }) } else { Err(Error::NoProvider) }
        }
    }

    /// The providers that can be used, the best first.
    pub fn choices(&self) -> impl Iterator<Item = Choice<'_>> {
        let mut next = self.first;
        core::iter::from_fn(move || {
            // SAFETY: this value owns the list, and nothing changes it.
            let info = unsafe { next.as_ref() }?;
            next = info.next;
            Some(Choice(info))
        })
        .filter(Choice::is_suitable)
    }
}

impl Choice<'_> {
    pub fn info(&self) -> *mut Info {
        ptr::from_ref(self.0).cast_mut()
    }

    fn is_suitable(&self) -> bool {
        // SAFETY: the library fills in all parts; the name is text or null.
        let (endpoint, name) = unsafe {
            let name = (*self.0.fabric_attr).prov_name;
            (&*self.0.ep_attr, if name.is_null() { c"" } else { CStr::from_ptr(name) })
        };
        endpoint.kind == sys::EP_DGRAM
            && endpoint.max_msg_size >= DATAGRAM_LEN_MIN
            && !name.to_bytes().contains(&b';')
            && !self.is_link_local()
    }

    /// Whether the provider's address is an IPv6 link-local one, which other hosts cannot use.
    fn is_link_local(&self) -> bool {
        // Offset of the address in `struct sockaddr_in6`.
        const AT: usize = 8;
        if self.0.addr_format != sys::SOCKADDR_IN6 || self.0.src_addrlen < AT + 16 || self.0.src_addr.is_null() {
            return false;
        }
        // SAFETY: the address has at least `AT + 16` bytes, as checked above.
        let ip = unsafe { self.0.src_addr.cast::<u8>().add(AT).cast::<[u8; 2]>().read() };
        ip[0] == 0xfe && ip[1] & 0xc0 == 0x80
    }

    /// Bytes that are equal for endpoints that understand each other, and different for others.
    pub fn kind(&self) -> [u8; KIND_LEN] {
        // SAFETY: the library fills in all parts.
        let protocol = unsafe { (*self.0.ep_attr).protocol };
        let mut kind = [0; KIND_LEN];
        kind[..4].copy_from_slice(&protocol.to_le_bytes());
        kind[4..].copy_from_slice(&self.0.addr_format.to_le_bytes());
        kind
    }

    pub fn datagram_len(&self) -> usize {
        // SAFETY: the library fills in all parts.
        unsafe { (*self.0.ep_attr).max_msg_size }.min(DATAGRAM_LEN_MAX)
    }

    /// Maximum numbers of sends and of receives in progress.
    pub fn depths(&self) -> (usize, usize) {
        // SAFETY: the library fills in all parts.
        unsafe { ((*self.0.tx_attr).size.max(1), (*self.0.rx_attr).size.max(1)) }
    }

    /// Number of bytes that the provider needs in front of each send, and of each receive.
    pub fn prefixes(&self) -> (usize, usize) {
        // SAFETY: the library fills in all parts.
        let (len, sending, receiving) =
            unsafe { ((*self.0.ep_attr).msg_prefix_size, (*self.0.tx_attr).mode, (*self.0.rx_attr).mode) };
        let prefix = |mode: u64| if mode & sys::MODE_MSG_PREFIX != 0 { len } else { 0 };
        (prefix(sending), prefix(receiving))
    }

    pub fn wants_registered_memory(&self) -> bool {
        // SAFETY: the library fills in all parts.
        unsafe { (*self.0.domain_attr).mr_mode & sys::MR_LOCAL != 0 }
    }

    pub fn av_type(&self) -> core::ffi::c_int {
        // SAFETY: the library fills in all parts.
        unsafe { (*self.0.domain_attr).av_type }
    }
}
