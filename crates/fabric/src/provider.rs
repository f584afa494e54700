//! Chooses a provider, and its properties.
//!
//! The library lists its providers, the best first: devices before `tcp;ofi_rxm`, other interfaces before the loopback
//! one. Its variable `FI_PROVIDER` restricts the list, `FI_TCP_IFACE` the interfaces of `tcp`. Providers whose messages
//! do not leave the host are left out. So are those without a descriptor to wait for (`udp;ofi_rxd`), when an endpoint
//! is opened. Ranks understand each other if their endpoints are of one kind: they have the same protocol and format of
//! addresses.

use crate::library::{Error, Library};
use crate::sys::{self, DomainAttr, EpAttr, Info, RxAttr, TxAttr};
use core::ffi::CStr;
use core::ptr;

/// Length of the kind, which precedes an address: the protocol and the address format, each u32 LE.
pub const KIND_LEN: usize = 8;

/// Minimum length of a provider's longest message (bytes): shorter ones cannot carry the handshake of a connection.
const MESSAGE_LEN_MIN: usize = 512;
/// Maximum length of a message (bytes). Chosen: layered providers send such messages at once (`ofi_rxm` up to 16 KiB),
/// while longer ones need an answer of the receiver first; it also bounds the memory of receives.
const MESSAGE_LEN_MAX: usize = 8_192;
/// Providers whose messages do not leave the host.
const LOCAL: [&CStr; 2] = [c"shm", c"sm2"];

/// The list of providers that the library has returned; freed when this is dropped.
pub struct Found {
    library: Library,
    first: *mut Info,
}

/// One of the providers in [`Found`], with copies of the parts of its description.
#[derive(Clone, Copy)]
pub struct Choice<'a> {
    info: &'a Info,
    endpoint: EpAttr,
    domain: DomainAttr,
    sending: TxAttr,
    receiving: RxAttr,
}

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
            wanted.mode = sys::MODE_CONTEXT | sys::MODE_CONTEXT2;
            (*wanted.ep_attr).kind = sys::EP_RDM;
            (*wanted.tx_attr).msg_order = sys::ORDER_SAS;
            (*wanted.rx_attr).msg_order = sys::ORDER_SAS;
            (*wanted.domain_attr).resource_mgmt = sys::RM_ENABLED;
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
            // SAFETY: the library fills in all parts of what it returns for hints with all parts.
            let (endpoint, domain) = unsafe { (*info.ep_attr, *info.domain_attr) };
            // SAFETY: as above.
            let (sending, receiving) = unsafe { (*info.tx_attr, *info.rx_attr) };
            Some(Choice { info, endpoint, domain, sending, receiving })
        })
        .filter(Choice::is_suitable)
    }
}

impl Choice<'_> {
    pub fn info(&self) -> *mut Info {
        ptr::from_ref(self.info).cast_mut()
    }

    fn is_suitable(&self) -> bool {
        // SAFETY: the library fills in all parts; the name is text or null.
        let name = unsafe {
            let name = (*self.info.fabric_attr).prov_name;
            if name.is_null() { c"" } else { CStr::from_ptr(name) }
        };
        self.endpoint.kind == sys::EP_RDM
            && self.endpoint.max_msg_size >= MESSAGE_LEN_MIN
            && !LOCAL.contains(&name)
            && !self.is_link_local()
    }

    /// Whether the provider's address is an IPv6 link-local one, which other hosts cannot use.
    fn is_link_local(&self) -> bool {
        // Offset of the address in `struct sockaddr_in6`.
        const AT: usize = 8;
        let Info { addr_format, src_addrlen, src_addr, .. } = self.info;
        if *addr_format != sys::SOCKADDR_IN6 || *src_addrlen < AT + 16 || src_addr.is_null() {
            return false;
        }
        // SAFETY: the address has at least `AT + 16` bytes, as checked above.
        let ip = unsafe { src_addr.cast::<u8>().add(AT).cast::<[u8; 2]>().read() };
        ip[0] == 0xfe && ip[1] & 0xc0 == 0x80
    }

    /// Bytes that are equal for endpoints that understand each other, and different for others.
    pub fn kind(&self) -> [u8; KIND_LEN] {
        let mut kind = [0; KIND_LEN];
        kind[..4].copy_from_slice(&self.endpoint.protocol.to_le_bytes());
        kind[4..].copy_from_slice(&self.info.addr_format.to_le_bytes());
        kind
    }

    pub fn message_len(&self) -> usize {
        self.endpoint.max_msg_size.min(MESSAGE_LEN_MAX)
    }

    /// Maximum numbers of sends and of receives in progress.
    pub fn depths(&self) -> (usize, usize) {
        (self.sending.size.max(1), self.receiving.size.max(1))
    }

    pub fn wants_registered_memory(&self) -> bool {
        self.domain.mr_mode & sys::MR_LOCAL != 0
    }

    pub fn av_type(&self) -> core::ffi::c_int {
        self.domain.av_type
    }
}
