//! A server controlled by a test, at the other end of a socket pair.

use crate::mapping::Descriptor;
use crate::server::{Server, Socket};
use core::ffi::c_int;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;
use std::string::String;
use std::vec::Vec;
use std::{format, vec};
use wireup_wire::pmi::Dialect;

pub struct Peer(pub UnixStream);

/// The library's end, with PMI-2 and descriptors, and the peer's end.
pub fn pair() -> (Server, Peer) {
    let (here, there) = UnixStream::pair().expect("a socket pair");
    let mut server = Server::new(Socket::inherited(here.into_raw_fd()), Dialect::Pmi2);
    server.link.switch_to_pmi2();
    server.expect_descriptors();
    (server, Peer(there))
}

/// A message: the body, preceded by its length.
pub fn counted(body: &str) -> String {
    format!("{:6}{body}", body.len())
}

/// A memory file with these bytes, sealed as the server seals it.
pub fn sealed(bytes: &[u8]) -> c_int {
    // SAFETY: the name ends with a zero byte; the slice is what is written; this function owns the file.
    unsafe {
        let fd = libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        assert!(fd >= 0 && libc::write(fd, bytes.as_ptr().cast(), bytes.len()) == bytes.len() as isize);
        let seals = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        assert_eq!(libc::fcntl(fd, libc::F_ADD_SEALS, seals), 0);
        fd
    }
}

impl Peer {
    pub fn say(&mut self, body: &str) {
        self.0.write_all(counted(body).as_bytes()).expect("the client reads");
    }

    /// Sends a message together with memory files, one for each element of `memories`.
    pub fn give(&mut self, body: &str, memories: &[&[u8]]) {
        let fds: Vec<c_int> = memories.iter().map(|bytes| sealed(bytes)).collect();
        self.send(&counted(body), &fds);
    }

    /// Sends text unchanged, and descriptors, which are closed here.
    pub fn send(&mut self, text: &str, fds: &[c_int]) {
        let mut part = libc::iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() };
        let bytes = size_of_val(fds) as u32;
        let mut control = [0u64; 64];
        // SAFETY: all pointers are to live buffers with their lengths; the control buffer has room for one header and
        // the descriptors.
        unsafe {
            let mut message: libc::msghdr = core::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(bytes) as usize;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(bytes) as usize;
            libc::CMSG_DATA(header).cast::<c_int>().copy_from(fds.as_ptr(), fds.len());
            assert_eq!(libc::sendmsg(self.0.as_raw_fd(), &message, 0), text.len() as isize);
        }
        fds.iter().for_each(|fd| drop(Descriptor::new(*fd)));
    }

    /// Reads once and returns the bodies received, at least one.
    pub fn heard(&mut self) -> Vec<String> {
        let mut bytes = vec![0; 256 << 10];
        let got = self.0.read(&mut bytes).expect("the socket can be read");
        let mut rest = str::from_utf8(&bytes[..got]).expect("requests are UTF-8");
        let mut bodies = vec![];
        while !rest.is_empty() {
            let end = 6 + rest[..6].trim().parse::<usize>().expect("a request begins with its length");
            bodies.push(rest[6..end].into());
            rest = &rest[end..];
        }
        bodies
    }
}
