//! A scripted peer at the other end of a socket pair.

use super::*;
use crate::mapping::tests::sealed;
use core::ffi::c_int;
use std::format;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;
use std::string::String;
use std::thread;
use std::vec;

/// Our end, speaking PMI-2 with descriptors, and the peer's.
fn pair() -> (Server, UnixStream) {
    let (here, there) = UnixStream::pair().expect("a socket pair");
    let mut server = Server::new(Socket::inherited(here.into_raw_fd()), Dialect::Pmi2);
    server.switch_to_pmi2();
    server.expect_descriptors();
    (server, there)
}

fn counted(body: &str) -> String {
    format!("{:6}{body}", body.len())
}

fn say(peer: &mut UnixStream, body: &str) {
    peer.write_all(counted(body).as_bytes()).expect("a reader");
}

/// Sends bytes and descriptors, which are closed here.
fn say_with(peer: &UnixStream, text: &str, fds: &[c_int]) {
    let mut part = libc::iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() };
    let bytes = size_of_val(fds) as u32;
    let mut control = [0u64; 64];
    // SAFETY: all pointers are to live buffers with their lengths; the control buffer has room for one header and the numbers.
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
        assert_eq!(libc::sendmsg(peer.as_raw_fd(), &message, 0), text.len() as isize);
        fds.iter().for_each(|fd| drop(Descriptor::new(*fd)));
    }
}

/// The bodies that the peer has got.
fn heard(peer: &mut UnixStream) -> Vec<String> {
    let mut bytes = vec![0; 64 << 10];
    let got = peer.read(&mut bytes).expect("something");
    let mut rest = str::from_utf8(&bytes[..got]).expect("text");
    let mut bodies = vec![];
    while !rest.is_empty() {
        let end = 6 + rest[..6].trim().parse::<usize>().expect("a length");
        bodies.push(rest[6..end].into());
        rest = &rest[end..];
    }
    bodies
}

fn put(key: &[u8]) -> Request<'_> {
    Request::Put { kvsname: None, key, value: b"v" }
}

fn allgather(id: u32) -> Request<'static> {
    Request::Allgather { id, max_len: 8, shared: false, value: b"v" }
}

const PUT_OK: &str = "cmd=kvs-put-response;rc=0;";
const PUT_REFUSED: &str = "cmd=kvs-put-response;rc=-1;errmsg=no;";

/// Reads until something ends.
fn wait_over(server: &mut Server) -> Result<Over, Failure> {
    loop {
        if let Some(over) = server.next_over() {
            return Ok(over);
        }
        server.advance(true)?;
    }
}

#[test]
fn posted_puts_leave_with_the_fence_in_one_write() {
    let (mut server, mut peer) = pair();
    server.post(&put(b"a")).unwrap();
    server.post(&put(b"b")).unwrap();
    server.start(&Request::FenceNb { id: 1 }).unwrap();
    server.start(&allgather(2)).unwrap();
    let expected = [
        "cmd=kvs-put;key=a;value=v;",
        "cmd=kvs-put;key=b;value=v;",
        "cmd=wireup-fence;id=1;",
        "cmd=wireup-allgather;id=2;maxlen=8;shared=FALSE;value=v;",
    ];
    assert_eq!(heard(&mut peer), expected);
    say(&mut peer, PUT_OK);
    say(&mut peer, PUT_REFUSED);
    say_with(&peer, &counted("cmd=wireup-allgather-response;rc=0;id=2;"), &[sealed(b"array")]);
    say(&mut peer, "cmd=info-getjobattr-response;rc=0;found=TRUE;value=x;");
    say(&mut peer, "cmd=wireup-fence-response;rc=0;id=1;kvs=5;");
    // A call takes what comes before its answer.
    let asked = Request::GetJobAttr { key: b"k" };
    assert_eq!(server.question(&asked, "value"), Ok(Some(b"x".to_vec())));
    let first = wait_over(&mut server).unwrap();
    assert_eq!((first.id, first.array.as_deref()), (2, Some(&b"array"[..])));
    let second = wait_over(&mut server).unwrap();
    assert_eq!((second.id, second.version, second.array.is_none()), (1, 5, true));
    assert!(!server.take_refusal(1) && server.take_refusal(2) && !server.take_refusal(2));
    assert_eq!(server.advance(false), Ok(false));
}

#[test]
fn descriptors_belong_to_the_message_that_says_how_many() {
    let (mut server, peer) = pair();
    server.start(&allgather(1)).unwrap();
    server.start(&allgather(2)).unwrap();
    let map = thread::spawn({
        let peer = peer.try_clone().expect("a copy");
        move || {
            let map = counted("cmd=wireup-kvs-map-response;rc=0;keep=0;ends=3,4;");
            // Cut in the middle: the descriptors of a message may come with its first byte.
            say_with(&peer, &map[..20], &[sealed(b"three"), sealed(b"four")]);
            let one = counted("cmd=wireup-allgather-response;rc=0;id=1;");
            say_with(&peer, &format!("{}{one}", &map[20..]), &[sealed(b"one")]);
            say_with(&peer, &counted("cmd=wireup-allgather-response;rc=0;id=2;"), &[sealed(b"two")]);
        }
    });
    let ends = server.question(&Request::KvsMap { have: b"" }, "ends");
    assert_eq!(ends, Ok(Some(b"3,4".to_vec())));
    let texts =
        |maps: &[Option<Mapping>]| maps.iter().map(|map| map.as_deref().map(<[u8]>::to_vec)).collect::<Vec<_>>();
    assert_eq!(texts(&server.take_mappings()), [Some(b"three".to_vec()), Some(b"four".to_vec())]);
    for (id, text) in [(1, &b"one"[..]), (2, b"two")] {
        let over = wait_over(&mut server).unwrap();
        assert_eq!((over.id, over.array.as_deref()), (id, Some(text)));
    }
    map.join().expect("the peer");
}

#[test]
fn a_server_that_breaks_the_rules_breaks_the_link() {
    let array = "cmd=wireup-allgather-response;rc=0;id=1;";
    for (text, fds) in [
        (counted(array), 0),
        (counted("cmd=wireup-allgather-response;rc=-1;errmsg=no;"), 0),
        (counted("cmd=wireup-allgather-response;rc=0;id=7;"), 1),
        (counted("cmd=wireup-fence-response;rc=0;id=1;kvs=1;"), 0),
        (counted(PUT_OK), 0),
        ("nonsense".into(), 0),
        // More than a message may have: the kernel cuts some off.
        (counted(array), 33),
    ] {
        let (mut server, peer) = pair();
        server.start(&allgather(1)).unwrap();
        let fds: Vec<c_int> = (0..fds).map(|_| sealed(b"x")).collect();
        say_with(&peer, &text, &fds);
        assert_eq!(wait_over(&mut server).map(|over| over.id), Err(Failure::Broken), "{text}");
        assert_eq!(server.post(&put(b"k")), Err(Failure::Broken));
        assert_eq!(server.start(&allgather(2)), Err(Failure::Broken));
        assert_eq!(server.advance(false), Err(Failure::Broken));
    }
}

#[test]
fn an_array_that_cannot_be_mapped_is_over_all_the_same() {
    let (mut server, peer) = pair();
    server.start(&allgather(1)).unwrap();
    say_with(&peer, &counted("cmd=wireup-allgather-response;rc=0;id=1;"), &[sealed(b"")]);
    let over = wait_over(&mut server).unwrap();
    assert_eq!((over.id, over.array.is_none()), (1, true));
}

/// Puts without an end, to a peer that answers each and reads no further while its answers are not read.
#[test]
fn held_back_puts_are_bounded() {
    const PUTS: usize = 20_000;
    let (mut server, mut peer) = pair();
    let peer = thread::spawn(move || {
        let mut bytes = [0; 4096];
        let (mut text, mut answered) = (String::new(), 0);
        while answered < PUTS {
            let got = peer.read(&mut bytes).expect("puts");
            text.push_str(str::from_utf8(&bytes[..got]).expect("text"));
            while text.len() >= 6 && text.len() >= 6 + text[..6].trim().parse::<usize>().expect("a length") {
                let end = 6 + text[..6].trim().parse::<usize>().expect("a length");
                text.drain(..end);
                answered += 1;
                say(&mut peer, if answered == 7 { PUT_REFUSED } else { PUT_OK });
            }
        }
        peer
    });
    for _ in 0..PUTS {
        server.post(&put(b"key")).unwrap();
        assert!(server.out.len() <= HELD_BYTES_MAX);
    }
    server.drain().unwrap();
    assert!(server.take_refusal(server.posted()));
    drop(peer.join().expect("the peer"));
}

/// Many collectives to such a peer: what has ended is taken in while the next ones are sent.
#[test]
fn a_full_socket_is_read_while_it_is_written() {
    const MANY: u32 = 5_000;
    let (mut server, mut peer) = pair();
    let peer = thread::spawn(move || {
        let (mut seen, mut bytes) = (0, [0; 4096]);
        while seen < MANY {
            let got = peer.read(&mut bytes).expect("fences");
            // Messages may be cut anywhere; each has one "m".
            for _ in bytes[..got].iter().filter(|byte| **byte == b'm') {
                say(&mut peer, &format!("cmd=wireup-fence-response;rc=0;id={seen};kvs=0;"));
                seen += 1;
            }
        }
        peer
    });
    for id in 0..MANY {
        server.start(&Request::FenceNb { id }).unwrap();
    }
    for id in 0..MANY {
        assert_eq!(wait_over(&mut server).unwrap().id, id);
    }
    drop(peer.join().expect("the peer"));
}
