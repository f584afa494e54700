use super::super::memory::{RankMemory, Shared};
use super::*;
use rustix::process::{Resource, Rlimit};
use std::os::unix::process::CommandExt;
use std::process::Command;
use wireup_proto::memory::{Content, ShareId};
use wireup_wire::ids::JobId;

/// Both ends of a socket pair: the agent's in an `Outgoing`, and the rank's.
fn pair() -> (Outgoing, OwnedFd) {
    let (ours, theirs) = socket::pair().unwrap();
    wireup_os::files::set_nonblocking(&ours, true).unwrap();
    (Outgoing { fd: Some(ours), ..Outgoing::default() }, theirs)
}

fn share(byte: u8) -> Shared {
    shared(vec![byte])
}

fn shared(bytes: Vec<u8>) -> Shared {
    let (mut memory, job, share) = (RankMemory::default(), JobId(1), ShareId(0));
    assert_eq!(memory.share(job, share, &Content::Bytes(bytes.into())), None);
    memory.for_reply(job, &[share]).unwrap().remove(0)
}

/// What the client gets in one read: the bytes, and the contents of the memory received with them.
fn receive(theirs: &OwnedFd) -> (Vec<u8>, Vec<u8>) {
    let (mut buffer, mut fds) = (vec![0; 1 << 20], VecDeque::new());
    let read = socket::receive(theirs, &mut buffer, &mut fds).unwrap();
    buffer.truncate(read);
    let held = fds.iter().map(|fd| {
        let mut byte = [0];
        assert_eq!(rustix::io::pread(fd, &mut byte, 0), Ok(1));
        byte[0]
    });
    let held = held.collect();
    (buffer, held)
}

/// Writes bytes with memory; `true`: everything was written.
fn write(pmi: &mut Outgoing, bytes: impl Into<Bytes>, shares: Vec<Shared>) -> bool {
    pmi.push_with(bytes.into(), shares);
    pmi.flush().state == WriteState::Idle
}

#[test]
fn descriptors_arrive_with_their_message() {
    let (mut pmi, theirs) = pair();
    assert!(write(&mut pmi, &b"plain"[..], Vec::new()));
    assert!(write(&mut pmi, &b"with memory"[..], vec![share(1), share(2)]));
    assert_eq!(receive(&theirs), (b"plainwith memory".to_vec(), vec![1, 2]));
}

#[test]
fn a_full_socket_keeps_bytes_and_descriptors_together() {
    let (mut pmi, theirs) = pair();
    assert!(!write(&mut pmi, vec![b'x'; 4 << 20], Vec::new()), "a socket cannot hold that much");
    pmi.push_with(Bytes::from_static(b"late"), vec![share(7)]);
    assert_eq!(pmi.flush().state, WriteState::Full);
    let (mut bytes, mut held) = (Vec::new(), Vec::new());
    while bytes.len() < (4 << 20) + 4 {
        let (more, fds) = receive(&theirs);
        assert!(fds.is_empty() || bytes.len() + more.len() > 4 << 20, "not before its message");
        bytes.extend(more);
        held.extend(fds);
        pmi.flush();
    }
    assert!(bytes.ends_with(b"xlate"));
    assert_eq!((held, pmi.flush().state), (vec![7], WriteState::Idle));
}

#[test]
fn more_descriptors_than_one_sendmsg_takes_arrive_in_order() {
    let (mut pmi, theirs) = pair();
    pmi.push_with(Bytes::from_static(b"a reply"), (0..100).map(share).collect());
    assert_eq!(pmi.flush(), Wrote { bytes: 7, state: WriteState::Idle });
    let (mut bytes, mut held) = (Vec::new(), Vec::new());
    while bytes.len() < 7 {
        let (more, fds) = receive(&theirs);
        assert!(fds.len() <= SHARES_PER_SEND_MAX);
        bytes.extend(more);
        held.extend(fds);
    }
    assert_eq!((bytes, held), (b"a reply".to_vec(), (0..100).collect::<Vec<u8>>()));
}

#[test]
fn descriptors_are_closed_once_sent_or_unsendable() {
    let open =
        || std::fs::read_dir("/proc/self/fd").unwrap().filter(|entry| is_shared(entry.as_ref().unwrap())).count();
    // Other tests of this process also share memory of one byte, so this one uses a length of its own.
    let (mut pmi, theirs) = pair();
    let marked = || shared(vec![0; 4711]);
    assert!(write(&mut pmi, &b"x"[..], vec![marked()]));
    assert_eq!(open(), 0, "a sent descriptor is in flight but not open here");
    drop(theirs);
    pmi.push_with(Bytes::from_static(b"x"), vec![marked()]);
    assert_eq!(open(), 1);
    assert_eq!(pmi.flush().state, WriteState::Closed);
    assert_eq!(open(), 0);
}

fn is_shared(entry: &std::fs::DirEntry) -> bool {
    // Another test may have closed the descriptor in the meantime.
    std::fs::metadata(entry.path()).is_ok_and(|data| data.len() == 4711)
}

/// The environment variable that is set in the process in which the next test runs without privileges.
const CROWDED: &str = "WIREUP_TEST_CROWDED";

/// The kernel counts the descriptors in flight per user, but not for root: so this runs in another process as another
/// user.
#[test]
fn a_send_waits_while_too_many_descriptors_are_in_flight() {
    if std::env::var_os(CROWDED).is_some() {
        return crowded();
    }
    let name = "agent::outgoing::tests::a_send_waits_while_too_many_descriptors_are_in_flight";
    let mut again = Command::new("/proc/self/exe");
    again.args([name, "--exact", "--nocapture"]).env(CROWDED, "1");
    if rustix::process::geteuid().is_root() {
        again.uid(65_534);
    }
    match again.output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => println!("skipped: nobody may not run this test: {error}"),
    }
}

fn crowded() {
    let few = Rlimit { current: Some(40), maximum: Some(40) };
    rustix::process::setrlimit(Resource::Nofile, few).unwrap();
    let (mut pmi, theirs) = pair();
    let share = share(1);
    let mut sent = 0;
    while write(&mut pmi, &b"x"[..], vec![share.clone()]) {
        sent += 1;
        assert!(sent < 100, "the kernel does not limit descriptors in flight");
    }
    assert_eq!(pmi.flush(), Wrote { bytes: 0, state: WriteState::FdLimit });
    assert_eq!(receive(&theirs), (b"x".to_vec(), vec![1]));
    assert_eq!(pmi.flush(), Wrote { bytes: 1, state: WriteState::Idle });
}
