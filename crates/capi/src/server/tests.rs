//! The rules of the conversation, with a server that follows or breaks them.

use super::*;
use crate::scripted::{counted, pair, sealed};
use core::ffi::c_int;
use std::format;
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::string::String;
use std::thread;
use wireup_client::link::Completion;
use wireup_client::memory::Memory;
use wireup_wire::pmi::Raw;

fn put(key: &[u8]) -> Request<'_> {
    Request::Put { kvsname: None, key, value: b"v" }
}

fn allgather(id: u32) -> Request<'static> {
    Request::Allgather { id, max_len: 8, shared: false, freed: b"", value: Raw(b"v") }
}

const PUT_OK: &str = "cmd=kvs-put-response;rc=0;";
const PUT_REFUSED: &str = "cmd=kvs-put-response;rc=-1;errmsg=no;";

/// Sends a request, and everything that was collected or posted before it.
fn start(server: &mut Server, request: &Request<'_>) -> Result<(), Failure> {
    server.link.ask(request)?;
    server.flush()
}

fn text(memory: &Option<Shared>) -> Option<Vec<u8>> {
    memory.as_ref().and_then(Memory::whole).map(|part| part.to_vec())
}

/// Reads until a collective completes.
fn wait_over(server: &mut Server) -> Result<Completion<Shared>, Failure> {
    loop {
        if let Some(over) = server.link.next_completion() {
            return Ok(over);
        }
        server.advance(true)?;
    }
}

#[test]
fn posted_puts_are_sent_with_the_fence_in_one_write() {
    let (mut server, mut peer) = pair();
    server.post(&put(b"a")).unwrap();
    server.post(&put(b"b")).unwrap();
    start(&mut server, &Request::FenceNb { id: 1 }).unwrap();
    start(&mut server, &allgather(2)).unwrap();
    let expected = [
        "cmd=kvs-put;key=a;value=v;", "cmd=kvs-put;key=b;value=v;", "cmd=wireup-fence;id=1;",
        "cmd=wireup-allgather;id=2;maxlen=8;shared=FALSE;value=v;",
    ];
    assert_eq!(peer.heard(), expected);
    peer.say(PUT_OK);
    peer.say(PUT_REFUSED);
    peer.give("cmd=wireup-allgather-response;rc=0;id=2;", &[b"array"]);
    peer.say("cmd=info-getjobattr-response;rc=0;found=TRUE;value=x;");
    peer.say("cmd=wireup-fence-response;rc=0;id=1;kvs=5;");
    // While a call waits, answers to other requests that arrive before its own are accepted.
    let asked = Request::GetJobAttr { key: b"k" };
    assert_eq!(server.question(&asked, "value"), Ok(Some(b"x".to_vec())));
    let first = wait_over(&mut server).unwrap();
    assert_eq!((first.id, text(&first.memory)), (2, Some(b"array".to_vec())));
    let second = wait_over(&mut server).unwrap();
    assert_eq!((second.id, second.number, second.memory.is_none()), (1, 5, true));
    assert!(!server.link.take_refusal(1) && server.link.take_refusal(2) && !server.link.take_refusal(2));
    assert_eq!(server.advance(false), Ok(false));
}

#[test]
fn descriptors_belong_to_the_message_that_states_their_number() {
    let (mut server, mut peer) = pair();
    start(&mut server, &allgather(1)).unwrap();
    start(&mut server, &allgather(2)).unwrap();
    let map = counted("cmd=wireup-kvs-map-response;rc=0;keep=0;ends=3,4;");
    let one = counted("cmd=wireup-allgather-response;rc=0;id=1;");
    // Split in the middle: the descriptors of a message may arrive with its first byte.
    peer.send(&map[..20], &[sealed(b"three"), sealed(b"four")]);
    peer.send(&format!("{}{one}", &map[20..]), &[sealed(b"one")]);
    peer.give("cmd=wireup-allgather-response;rc=0;id=2;", &[b"two"]);
    let ends = server.question(&Request::KvsMap { have: b"" }, "ends");
    assert_eq!(ends, Ok(Some(b"3,4".to_vec())));
    let memory = server.link.take_memory();
    assert_eq!(memory.iter().map(text).collect::<Vec<_>>(), [Some(b"three".to_vec()), Some(b"four".to_vec())]);
    for (id, bytes) in [(1, &b"one"[..]), (2, b"two")] {
        let over = wait_over(&mut server).unwrap();
        assert_eq!((over.id, text(&over.memory)), (id, Some(bytes.to_vec())));
    }
}

#[test]
fn a_protocol_violation_by_the_server_breaks_the_link() {
    let array = "cmd=wireup-allgather-response;rc=0;id=1;";
    for (text, fds) in [
        (counted(array), 0),
        (counted("cmd=wireup-allgather-response;rc=-1;errmsg=no;"), 0),
        (counted("cmd=wireup-allgather-response;rc=0;id=7;"), 1),
        (counted("cmd=wireup-fence-response;rc=0;id=1;kvs=1;"), 0),
        (counted(PUT_OK), 0),
        ("nonsense".into(), 0),
        // More descriptors than a message may have: the kernel drops some.
        (counted(array), 33),
    ] {
        let (mut server, mut peer) = pair();
        start(&mut server, &allgather(1)).unwrap();
        let fds: Vec<c_int> = (0..fds).map(|_| sealed(b"x")).collect();
        peer.send(&text, &fds);
        assert_eq!(wait_over(&mut server).map(|over| over.id), Err(Failure::Broken), "{text}");
        assert_eq!(server.post(&put(b"k")), Err(Failure::Broken));
        assert_eq!(start(&mut server, &allgather(2)), Err(Failure::Broken));
        assert_eq!(server.advance(false), Err(Failure::Broken));
    }
}

#[test]
fn an_allgather_whose_array_cannot_be_mapped_still_completes() {
    let (mut server, mut peer) = pair();
    start(&mut server, &allgather(1)).unwrap();
    peer.give("cmd=wireup-allgather-response;rc=0;id=1;", &[b""]);
    let over = wait_over(&mut server).unwrap();
    assert_eq!((over.id, over.memory.is_none()), (1, true));
}

/// A long series of puts, to a peer that answers each and stops reading while its answers are not read.
#[test]
fn held_back_puts_are_bounded() {
    const PUTS: usize = 20_000;
    let (mut server, mut peer) = pair();
    let peer = thread::spawn(move || {
        let mut bytes = [0; 4096];
        let (mut text, mut answered) = (String::new(), 0);
        while answered < PUTS {
            let got = peer.0.read(&mut bytes).expect("puts");
            text.push_str(str::from_utf8(&bytes[..got]).expect("text"));
            while text.len() >= 6 && text.len() >= 6 + text[..6].trim().parse::<usize>().expect("a length") {
                let end = 6 + text[..6].trim().parse::<usize>().expect("a length");
                text.drain(..end);
                answered += 1;
                peer.say(if answered == 7 { PUT_REFUSED } else { PUT_OK });
            }
        }
        peer
    });
    for _ in 0..PUTS {
        server.post(&put(b"key")).unwrap();
        assert!(server.link.to_send().len() <= HELD_BYTES_MAX);
    }
    server.drain().unwrap();
    assert!(server.link.take_refusal(server.link.posted()));
    drop(peer.join().expect("the peer"));
}

/// Many collectives, to a peer that stops reading while its answers are not read.
#[test]
fn completions_are_read_while_requests_are_written() {
    const MANY: u32 = 5_000;
    let (mut server, mut peer) = pair();
    let peer = thread::spawn(move || {
        let (mut seen, mut bytes) = (0, [0; 4096]);
        while seen < MANY {
            let got = peer.0.read(&mut bytes).expect("fences");
            // Messages may be split anywhere; each contains one "m".
            for _ in bytes[..got].iter().filter(|byte| **byte == b'm') {
                peer.say(&format!("cmd=wireup-fence-response;rc=0;id={seen};kvs=0;"));
                seen += 1;
            }
        }
        peer
    });
    for id in 0..MANY {
        start(&mut server, &Request::FenceNb { id }).unwrap();
    }
    for id in 0..MANY {
        assert_eq!(wait_over(&mut server).unwrap().id, id);
    }
    drop(peer.join().expect("the peer"));
}

fn read_once(socket: Socket) -> Result<Vec<u8>, Gone> {
    let mut bytes = Vec::new();
    socket.read(&mut |part| bytes.extend_from_slice(part)).map(|()| bytes)
}

#[test]
fn bytes_arrive_and_a_closed_peer_is_noticed() {
    let mut pair = [0; 2];
    // SAFETY: two descriptors are written.
    assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()) }, 0);
    let (here, there) = (Socket::inherited(pair[0]), Socket::inherited(pair[1]));
    assert!(!there.is_readable());
    here.write_all(b"hello").unwrap();
    assert!(there.is_readable());
    assert_eq!(read_once(there), Ok(b"hello".to_vec()));
    here.close();
    assert_eq!(read_once(there), Err(Gone));
    assert_eq!(there.write_some(b"x"), Err(Gone));
    assert_eq!(there.write_all(b"x"), Err(Gone));
    there.close();
    assert_eq!(there.write_all(b"x"), Err(Gone));
}

#[test]
fn only_a_connected_stream_socket_is_accepted_as_a_server() {
    let (here, there) = UnixStream::pair().unwrap();
    let named = |fd: &dyn AsRawFd| Socket::named(fd.as_raw_fd());
    assert_eq!(named(&here), Ok(Socket(here.as_raw_fd())));
    assert_eq!(named(&UnixDatagram::pair().unwrap().0), Err(Gone));
    assert_eq!(named(&TcpListener::bind("127.0.0.1:0").unwrap()), Err(Gone));
    assert_eq!(named(&std::fs::File::open("/dev/null").unwrap()), Err(Gone));
    assert_eq!(Socket::named(-1), Err(Gone));
    drop(there);
}

#[test]
fn our_own_server_is_known_by_its_name() {
    for (name, is_ours) in [(&SERVER_NAME[..], true), (b"\0wireup", false), (b"\0another1", false)] {
        let (here, there) = UnixStream::pair().unwrap();
        assert!(!Socket::named(here.as_raw_fd()).unwrap().is_of_our_server());
        let name = [name, &std::process::id().to_ne_bytes()].concat();
        let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
        address.sun_path.iter_mut().zip(&name).for_each(|(to, from)| *to = *from as libc::c_char);
        let len = (size_of::<libc::sa_family_t>() + name.len()) as libc::socklen_t;
        // SAFETY: pointer and length are those of the address.
        assert_eq!(unsafe { libc::bind(there.as_raw_fd(), (&raw const address).cast(), len) }, 0);
        assert_eq!(Socket::named(here.as_raw_fd()).unwrap().is_of_our_server(), is_ours, "{name:?}");
    }
}

#[test]
fn a_file_is_neither_written_nor_closed() {
    let path = std::env::temp_dir().join(std::format!("wireup-capi-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    let socket = Socket(file.as_raw_fd());
    assert_eq!(socket.write_some(b"cmd=init\n"), Err(Gone));
    assert_eq!(socket.write_all(b"cmd=abort\n"), Err(Gone));
    socket.close();
    assert_eq!(file.metadata().unwrap().len(), 0);
    std::fs::remove_file(path).unwrap();
}
