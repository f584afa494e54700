mod ucx;

use super::*;
use crate::agent::link_end::LinkEnd;
use crate::agent::transports::Offer;
use crate::transport::handshake::{Handshake, Terms};
use bytes::Bytes;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use wireup_os::interfaces;
use wireup_wire::frame::{Class, Frame, FrameKind, FrameReader};
use wireup_wire::limits::{LAUNCHER_UNREAD_BYTES_MAX, UNAUTHENTICATED_LINKS_MAX};
use wireup_wire::peer::{Hello, PROTOCOL_VERSION, Rejoin, Role};

const PARENT: AgentId = AgentId(0);
const CHILD: AgentId = AgentId(1);
const TIMEOUT_NS: u64 = 30_000_000_000;
/// Most turns of both ends until an expected event; each waits 10 ms at most.
const TURNS_MAX: usize = 2_000;

impl LinkEnd {
    pub fn with_test_secret(me: AgentId, config: LinkConfig) -> LinkEnd {
        LinkEnd::knowing(Secret([7; 32]), me, config)
    }

    pub fn knowing(secret: Secret, me: AgentId, config: LinkConfig) -> LinkEnd {
        LinkEnd::new(me, secret, config).unwrap()
    }

    pub fn pass(&mut self) {
        self.turn(Duration::from_millis(10)).unwrap();
    }

    pub fn up(&self) -> Option<(LinkId, Peer, &str)> {
        self.inputs.iter().find_map(|input| match input {
            Input::LinkUp { link, peer, local } => Some((*link, *peer, local.as_str())),
            _ => None,
        })
    }

    pub fn problem(&self) -> Option<&str> {
        self.inputs.iter().find_map(|input| match input {
            Input::LinkDown { problem, .. } => Some(&**problem),
            _ => None,
        })
    }

    pub fn frames(&self) -> Vec<Frame> {
        let (mut reader, mut frames) = (FrameReader::new(), Vec::new());
        for input in &self.inputs {
            if let Input::LinkBytes { bytes, .. } = input {
                let mut bytes = bytes.clone();
                while let Some(frame) = reader.next(&mut bytes).unwrap() {
                    frames.push(frame);
                }
            }
        }
        frames
    }
}

pub(super) fn config(interface: &str, encrypt: bool) -> LinkConfig {
    LinkConfig {
        local: false,
        parent: PARENT,
        incarnation: 0,
        start_timeout_ns: 60_000_000_000,
        node_timeout_ns: TIMEOUT_NS,
        encrypt,
        interface: Some(interface.into()),
        ssh: None,
        by_ssh: false,
    }
}

fn pair(interface: &str, encrypt: bool) -> (LinkEnd, LinkEnd) {
    (
        LinkEnd::with_test_secret(PARENT, config(interface, encrypt)),
        LinkEnd::with_test_secret(CHILD, config(interface, encrypt)),
    )
}

/// Whether the kernel's keepalive is on, for each link.
fn kept_alive(end: &LinkEnd) -> Vec<bool> {
    end.links.links.values().map(|entry| entry.link.carrier.is_kept_alive()).collect()
}

/// Runs turns of both ends until `done` returns `true`.
fn run_until(parent: &mut LinkEnd, child: &mut LinkEnd, mut done: impl FnMut(&mut LinkEnd, &mut LinkEnd) -> bool) {
    for _ in 0..TURNS_MAX {
        parent.pass();
        child.pass();
        if done(parent, child) {
            return;
        }
    }
    panic!("the condition was never met; parent {:?}, child {:?}", parent.inputs, child.inputs);
}

fn both_up(parent: &mut LinkEnd, child: &mut LinkEnd) -> bool {
    parent.up().is_some() && child.up().is_some()
}

fn frame(class: Class, length: usize) -> Frame {
    let payload: Bytes = (0..length).map(|byte| (byte % 251) as u8).collect();
    Frame { kind: FrameKind::Control, class, stream: 0, job: 1, arg: length as u32, payload }
}

#[test]
fn frames_pass_both_ways_over_ipv4_and_ipv6() {
    let has_v6 = interfaces::addresses().unwrap().iter().any(|own| own.ip.is_ipv6() && own.loopback);
    for (interface, local) in [("127.0.0.1", "127.0.0.1 (lo)"), ("::1", "::1 (lo)"), ("lo", "127.0.0.1 (lo)")] {
        if interface == "::1" && !has_v6 {
            eprintln!("skipped: no IPv6 here");
            continue;
        }
        for encrypt in [false, true] {
            let (mut parent, mut child) = pair(interface, encrypt);
            let addresses = parent.links.transports.listen(&parent.reactor).unwrap();
            child.links.dial(&addresses, true, &child.reactor).unwrap();
            run_until(&mut parent, &mut child, both_up);
            let (down, peer, at) = parent.up().unwrap();
            assert_eq!((peer, at), (Peer::Child { agent: CHILD, incarnation: 0 }, local));
            let (up, peer, _) = child.up().unwrap();
            assert_eq!(peer, Peer::Parent);
            for end in [&parent, &child] {
                assert_eq!(kept_alive(end), [true]);
            }
            let frames = [frame(Class::Control, 0), frame(Class::Exchange, 3 << 20), frame(Class::Stdio, 70_000)];
            for frame in &frames {
                parent.links.send(down, frame.clone());
                child.links.send(up, frame.clone());
            }
            run_until(&mut parent, &mut child, |parent, child| parent.frames().len() == 3 && child.frames().len() == 3);
            assert!(parent.frames() == frames && child.frames() == frames, "{interface} {encrypt}");
            parent.links.close(down);
            run_until(&mut parent, &mut child, |_, child| child.problem().is_some());
            assert_eq!(child.problem(), Some("closed by the other end"));
        }
    }
}

#[test]
fn a_child_links_although_earlier_addresses_refuse_or_stay_silent() {
    let (mut parent, mut child) = pair("127.0.0.1", false);
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut addresses = vec![refused, silent.local_addr().unwrap().to_string()];
    addresses.extend(parent.links.transports.listen(&parent.reactor).unwrap());
    child.links.dial(&addresses, true, &child.reactor).unwrap();
    run_until(&mut parent, &mut child, both_up);
    assert_eq!((child.links.links.len(), child.links.dials.unreachable()), (1, None));
    let reached = child.inputs.iter().find_map(|input| match input {
        Input::ParentReached { address, failed, .. } => Some((address, failed)),
        _ => None,
    });
    let (address, failed) = reached.expect("the parent was reached");
    assert_eq!(address, &addresses[2]);
    assert!(failed.starts_with(&format!("{}: Connection refused", addresses[0])), "{failed}");
    assert!(!failed.contains(&addresses[1]), "a silent address has not failed yet: {failed}");
    assert!(child.links.dials.is_empty(), "no further address is due");
    let mut hello = Vec::new();
    silent.accept().unwrap().0.read_to_end(&mut hello).expect("the superseded attempt is closed");
    assert!(!hello.is_empty());
}

#[test]
fn a_failed_dial_to_the_parent_reports_every_address() {
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let other = |config: LinkConfig, me: AgentId, words: &str| {
        let (mut parent, mut child) =
            (LinkEnd::with_test_secret(me, config), LinkEnd::with_test_secret(CHILD, self::config("127.0.0.1", false)));
        let mut addresses = vec![refused.clone()];
        addresses.extend(parent.links.transports.listen(&parent.reactor).unwrap());
        let begun = child.links.dial(&addresses, true, &child.reactor);
        begun.expect("the second address takes connections");
        run_until(&mut parent, &mut child, |_, child| child.links.dials.unreachable().is_some());
        let problem = child.links.dials.unreachable().unwrap();
        assert!(problem.contains(&format!("{refused}: Connection refused")), "{problem}");
        assert!(problem.contains(&format!("{}: {words}", addresses[1])), "{problem}");
        assert!(parent.inputs.is_empty() && child.inputs.is_empty());
        assert!(child.links.dials.was_dialled_in_vain());
    };
    let refused_words = "closed by the other end during the handshake";
    other(config("127.0.0.1", true), PARENT, refused_words);
    other(config("127.0.0.1", false), AgentId(9), refused_words);
    let mut child = LinkEnd::with_test_secret(CHILD, config("127.0.0.1", false));
    assert_eq!(child.links.dial(&[], true, &child.reactor), Err("it offers no address to connect to".into()));
    assert!(!child.links.dials.was_dialled_in_vain(), "no firewall is to be suspected");
    assert!(child.links.dial(&["nowhere:1".into()], true, &child.reactor).is_err());
}

#[test]
fn an_unknown_interface_is_reported_with_the_existing_ones() {
    let mut parent = LinkEnd::with_test_secret(PARENT, config("nosuch0", false));
    let error = parent.links.transports.listen(&parent.reactor).unwrap_err().to_string();
    assert!(error.contains("--interface nosuch0; it has ") && error.contains("127.0.0.1/8"), "{error}");
    let mut parent = LinkEnd::with_test_secret(PARENT, config("10.0.0.0/64", false));
    assert!(
        parent
            .links
            .transports
            .listen(&parent.reactor)
            .unwrap_err()
            .to_string()
            .contains("10.0.0.0/64 is not a network")
    );
}

fn hello(version: u16) -> Hello {
    Hello { version, agent: CHILD, host: String::new(), pid: 1, role: Role::Child { incarnation: 0 } }
}

#[test]
fn unauthenticated_connections_do_not_keep_a_child_out() {
    let (mut parent, mut child) = pair("127.0.0.1", false);
    let addresses = parent.links.transports.listen(&parent.reactor).unwrap();
    // A guest that sends a valid hello, which the parent answers, and then stays silent.
    let mut first = Vec::new();
    let hello = hello(PROTOCOL_VERSION);
    let terms = Terms { encrypt: false, listener: PARENT, binding: &[] };
    Handshake::dial(&Secret([7; 32]), terms, &hello, &mut first).unwrap();
    let mut heard = TcpStream::connect(&addresses[0]).unwrap();
    heard.write_all(&first).unwrap();
    let mut strangers: Vec<TcpStream> = Vec::new();
    while strangers.len() < 2 * UNAUTHENTICATED_LINKS_MAX {
        strangers.extend((0..16).map(|_| TcpStream::connect(&addresses[0]).unwrap()));
        parent.pass();
    }
    run_until(&mut parent, &mut child, |parent, _| parent.links.next as usize == 2 * UNAUTHENTICATED_LINKS_MAX + 2);
    assert_eq!(parent.links.guests.len(), UNAUTHENTICATED_LINKS_MAX);
    assert_eq!(strangers[0].read(&mut [0]).unwrap(), 0, "the oldest guest was closed");
    child.links.dial(&addresses, true, &child.reactor).unwrap();
    run_until(&mut parent, &mut child, both_up);
    assert!(parent.links.guests.contains(&LinkId(1)), "a guest that has sent a hello stays");
    assert!(parent.links.guests.len() < UNAUTHENTICATED_LINKS_MAX);
    assert_eq!(parent.links.guests.len() + 1, parent.links.links.len());
}

#[test]
fn a_hello_that_was_recorded_is_refused_and_crowds_nobody_out() {
    let mut parent = LinkEnd::with_test_secret(PARENT, config("127.0.0.1", true));
    let mut child = LinkEnd::with_test_secret(CHILD, config("127.0.0.1", true));
    let addresses = parent.links.transports.listen(&parent.reactor).unwrap();
    let mut recorded = Vec::new();
    let hello = hello(PROTOCOL_VERSION);
    let terms = Terms { encrypt: true, listener: PARENT, binding: &[] };
    Handshake::dial(&Secret([7; 32]), terms, &hello, &mut recorded).unwrap();
    let mut first = TcpStream::connect(&addresses[0]).unwrap();
    first.write_all(&recorded).unwrap();
    while parent.links.hellos.count() == 0 {
        parent.pass();
    }
    for _ in 0..UNAUTHENTICATED_LINKS_MAX + 5 {
        let mut replay = TcpStream::connect(&addresses[0]).unwrap();
        replay.write_all(&recorded).unwrap();
        replay.set_nonblocking(true).unwrap();
        let mut answer = Vec::new();
        let is_closed = (0..TURNS_MAX).any(|_| {
            parent.pass();
            replay.read_to_end(&mut answer).is_ok()
        });
        assert!(is_closed && answer.is_empty(), "a repeated hello gets no answer");
    }
    assert_eq!((parent.links.guests.len(), parent.links.hellos.count()), (1, 1), "the first one stays");
    child.links.dial(&addresses, true, &child.reactor).unwrap();
    run_until(&mut parent, &mut child, both_up);
}

#[test]
fn a_child_of_another_version_gets_an_answer_before_it_is_refused() {
    let mut parent = LinkEnd::with_test_secret(PARENT, config("127.0.0.1", false));
    let addresses = parent.links.transports.listen(&parent.reactor).unwrap();
    let mut first = Vec::new();
    let hello = hello(PROTOCOL_VERSION + 1);
    let terms = Terms { encrypt: false, listener: PARENT, binding: &[] };
    let handshake = Handshake::dial(&Secret([7; 32]), terms, &hello, &mut first).unwrap();
    let mut child = TcpStream::connect(&addresses[0]).unwrap();
    child.set_nonblocking(true).unwrap();
    child.write_all(&first).unwrap();
    let mut answer = [0; 1024];
    let length = (0..TURNS_MAX).find_map(|_| {
        parent.pass();
        child.read(&mut answer).ok()
    });
    let mut confirm = Vec::new();
    handshake.on_bytes(&answer[..length.unwrap()], &mut confirm).expect("the parent's answer, with its version");
    child.write_all(&confirm).unwrap();
    let closed = (0..TURNS_MAX).find_map(|_| {
        parent.pass();
        child.read(&mut answer).ok()
    });
    assert_eq!(closed, Some(0));
    assert!(parent.inputs.is_empty(), "the child must not be accepted");
}

/// A man in the middle that reads everything and may change a byte.
struct Tap {
    listener: TcpListener,
    to: String,
    ends: Option<(TcpStream, TcpStream)>,
    /// The bytes that the child sent.
    seen: Vec<u8>,
    /// Whether pieces that the child sends from now on are changed in their last byte.
    changes: bool,
}

impl Tap {
    fn new(to: String) -> Tap {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Tap { listener, to, ends: None, seen: Vec::new(), changes: false }
    }

    fn pass(&mut self) {
        if let (None, Ok((child, _))) = (&self.ends, self.listener.accept()) {
            let parent = TcpStream::connect(&self.to).unwrap();
            for end in [&child, &parent] {
                end.set_nonblocking(true).unwrap();
            }
            self.ends = Some((child, parent));
        }
        let Some((child, parent)) = &mut self.ends else {
            return;
        };
        let mut buffer = [0; 4096];
        if let Ok(length) = child.read(&mut buffer) {
            self.seen.extend_from_slice(&buffer[..length]);
            if self.changes && length > 0 {
                buffer[length - 1] ^= 1;
            }
            parent.write_all(&buffer[..length]).unwrap();
        }
        if let Ok(length) = parent.read(&mut buffer) {
            child.write_all(&buffer[..length]).unwrap();
        }
    }
}

#[test]
fn only_an_encrypted_link_hides_frames_and_detects_changes() {
    let marker = b"a line that nobody else should read";
    for encrypt in [false, true] {
        let (mut parent, mut child) = pair("127.0.0.1", encrypt);
        let mut tap = Tap::new(parent.links.transports.listen(&parent.reactor).unwrap().remove(0));
        let address = tap.listener.local_addr().unwrap().to_string();
        child.links.dial(&[address], true, &child.reactor).unwrap();
        run_until(&mut parent, &mut child, |parent, child| {
            tap.pass();
            both_up(parent, child)
        });
        let up = child.up().unwrap().0;
        let said = Frame { payload: Bytes::from_static(marker), ..frame(Class::Control, 0) };
        child.links.send(up, said.clone());
        run_until(&mut parent, &mut child, |parent, _| {
            tap.pass();
            parent.frames() == [said.clone()]
        });
        assert_eq!(tap.seen.windows(marker.len()).any(|window| window == marker), !encrypt);
        tap.changes = true;
        child.links.send(up, said.clone());
        run_until(&mut parent, &mut child, |parent, _| {
            tap.pass();
            parent.problem().is_some() || parent.frames().len() == 2
        });
        let changed = "an encrypted message is damaged or was modified";
        assert_eq!(parent.problem(), encrypt.then_some(changed));
        assert_eq!(parent.frames().len(), if encrypt { 1 } else { 2 });
    }
}

/// Three agents, none of which is the parent of another one, and the addresses of each.
fn strangers(interface: &str, encrypt: bool) -> (Vec<LinkEnd>, Vec<Vec<String>>) {
    let mut ends: Vec<LinkEnd> =
        (5..8).map(|me| LinkEnd::with_test_secret(AgentId(me), config(interface, encrypt))).collect();
    let at = ends.iter_mut().map(|end| end.links.transports.listen(&end.reactor).unwrap()).collect();
    (ends, at)
}

fn dial_direct(end: &mut LinkEnd, to: u32, at: &[String]) {
    let offer = Offer { addresses: at.to_vec(), ..Offer::default() };
    end.links.dial_direct(AgentId(to), offer, &end.reactor, &mut end.inputs);
}

fn direct_links(end: &LinkEnd) -> BTreeMap<AgentId, LinkId> {
    let up = |input: &Input| match input {
        Input::LinkUp { link, peer: Peer::Direct(agent), .. } => Some((*agent, *link)),
        _ => None,
    };
    end.inputs.iter().filter_map(up).collect()
}

fn turn_all(ends: &mut [LinkEnd], mut done: impl FnMut(&[LinkEnd]) -> bool) {
    for _ in 0..TURNS_MAX {
        ends.iter_mut().for_each(LinkEnd::pass);
        if done(ends) {
            return;
        }
    }
    panic!("the condition was never met: {:?}", ends.iter().map(|end| &end.inputs).collect::<Vec<_>>());
}

#[test]
fn an_agent_holds_several_direct_links_at_once() {
    for encrypt in [false, true] {
        let (mut ends, at) = strangers("127.0.0.1", encrypt);
        dial_direct(&mut ends[0], 6, &at[1]);
        dial_direct(&mut ends[0], 7, &at[2]);
        dial_direct(&mut ends[1], 7, &at[2]);
        turn_all(&mut ends, |ends| ends.iter().all(|end| direct_links(end).len() == 2));
        for (me, end) in (5..).zip(&ends) {
            let others: Vec<u32> = direct_links(end).keys().map(|agent| agent.0).collect();
            assert_eq!(others, (5..8).filter(|other| *other != me).collect::<Vec<u32>>());
            assert!(end.links.dials.is_empty() && end.links.guests.is_empty());
            assert_eq!(kept_alive(end), [true, true]);
        }
        let said = frame(Class::Exchange, 300_000);
        let link = direct_links(&ends[2])[&AgentId(5)];
        ends[2].links.send(link, said.clone());
        turn_all(&mut ends, |ends| ends[0].frames() == [said.clone()]);
        ends[2].links.close(link);
        turn_all(&mut ends, |ends| ends[0].problem().is_some());
        assert_eq!((ends[0].problem(), ends[1].problem()), (Some("closed by the other end"), None));
    }
}

#[test]
fn a_failed_direct_dial_reports_every_address() {
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (mut ends, at) = strangers("127.0.0.1", false);
    // The second address belongs to an agent other than the target.
    let offered = [refused.clone(), at[2][0].clone()];
    dial_direct(&mut ends[0], 6, &offered);
    turn_all(&mut ends, |ends| !ends[0].inputs.is_empty());
    let [Input::DialFailed { agent: Some(AgentId(6)), problem }] = &ends[0].inputs[..] else {
        panic!("{:?}", ends[0].inputs)
    };
    assert!(problem.contains(&format!("{refused}: Connection refused")), "{problem}");
    assert!(problem.contains(&format!("{}: closed by the other end", offered[1])), "{problem}");
    assert!(ends[2].inputs.is_empty() && ends[0].links.dials.is_empty());
    assert_eq!(ends[0].links.dials.unreachable(), None, "a failed direct dial must not count as an unreachable parent");
    for (bad, words) in [(vec![], "it offers no address"), (vec!["nowhere:1".to_owned()], "nowhere:1: not an address")]
    {
        ends[0].inputs.clear();
        dial_direct(&mut ends[0], 6, &bad);
        assert!(matches!(&ends[0].inputs[..], [Input::DialFailed { problem, .. }] if problem.contains(words)));
    }
    let mut elsewhere = LinkEnd::with_test_secret(AgentId(9), config("nosuch0", false));
    dial_direct(&mut elsewhere, 6, &at[1]);
    assert!(
        matches!(&elsewhere.inputs[..], [Input::DialFailed { problem, .. }] if problem.contains("--interface nosuch0"))
    );
}

#[test]
fn a_direct_dial_without_an_answer_times_out() {
    let (mut ends, _) = strangers("127.0.0.1", false);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    dial_direct(&mut ends[0], 6, &[silent.local_addr().unwrap().to_string()]);
    ends[0].pass();
    let due_ns = monotonic_ns() + HANDSHAKE_NS_MAX;
    assert!(ends[0].links.deadline_ns().is_some_and(|at| at <= due_ns), "an attempt has a deadline");
    let LinkEnd { links, reactor, buffer, inputs } = &mut ends[0];
    links.on_tick(&mut Turn { now_ns: due_ns, reactor, buffer, inputs });
    let within = format!("within {} s", HANDSHAKE_NS_MAX / 1_000_000_000);
    assert!(matches!(&inputs[..], [Input::DialFailed { problem, .. }] if problem.contains(&within)), "{inputs:?}");
}

/// Once the root is this agent's parent, the agent can still dial it for a direct link, like any other agent.
#[test]
fn an_agent_that_rejoined_can_still_dial_the_root_directly() {
    let (mut root, mut rejoin) = pair("127.0.0.1", false);
    let addresses = root.links.transports.listen(&root.reactor).unwrap();
    let incarnation = Rejoin { incarnation: 2, at: 5 };
    rejoin.links.rejoin(addresses.clone(), incarnation, &rejoin.reactor, &mut rejoin.inputs);
    run_until(&mut root, &mut rejoin, both_up);
    let peers = |end: &mut LinkEnd| end.up().map(|(_, peer, _)| peer);
    assert_eq!(peers(&mut root), Some(Peer::Rejoin { agent: CHILD, rejoin: incarnation }));
    assert_eq!(peers(&mut rejoin), Some(Peer::Parent));
    root.inputs.clear();
    rejoin.inputs.clear();
    let offer = Offer { addresses, ..Offer::default() };
    rejoin.links.dial_direct(PARENT, offer, &rejoin.reactor, &mut rejoin.inputs);
    run_until(&mut root, &mut rejoin, both_up);
    assert_eq!((peers(&mut root), peers(&mut rejoin)), (Some(Peer::Direct(CHILD)), Some(Peer::Direct(PARENT))));
}

#[test]
fn the_latest_hellos_are_remembered() {
    let mut hellos = Hellos::default();
    let seal = |n: usize| (n as u128).to_le_bytes();
    for n in 0..2 * HELLOS_MAX {
        assert!(hellos.is_new(seal(n), LinkId(n as u32)));
    }
    assert_eq!((hellos.count(), hellos.order.len()), (HELLOS_MAX, HELLOS_MAX));
    assert!(hellos.is_new(seal(HELLOS_MAX), LinkId(HELLOS_MAX as u32)), "its own link hears it again");
    assert!(!hellos.is_new(seal(HELLOS_MAX), LinkId(0)), "another link repeats it");
}

/// An agent's links with one to a launcher, the id of that link, and the launcher's end of its socket.
fn with_launcher() -> (LinkEnd, LinkId, UnixStream) {
    let mut end = LinkEnd::with_test_secret(AgentId(0), config("lo", false));
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let link = Link::local(ours.into(), Default::default());
    end.links.adopt(link, &end.reactor, &mut end.inputs).unwrap();
    let (id, ..) = end.up().expect("the launcher's link is up");
    (end, id, theirs)
}

fn heard(end: &LinkEnd) -> usize {
    end.inputs.iter().filter(|input| matches!(input, Input::LinkBytes { .. })).count()
}

#[test]
fn requests_are_not_read_while_the_launcher_has_unread_answers() {
    let (mut end, id, mut launcher) = with_launcher();
    launcher.write_all(b"one").unwrap();
    end.pass();
    assert_eq!(heard(&end), 1);
    let answer = frame(Class::Control, 4 << 20);
    end.links.send(id, answer.clone());
    end.pass();
    launcher.write_all(b"two").unwrap();
    end.pass();
    assert_eq!(heard(&end), 1, "the request must not be read while an answer waits");
    let mut taken = vec![0; answer.wire_len()];
    let reader = std::thread::spawn(move || launcher.read_exact(&mut taken).map(|()| launcher));
    while heard(&end) == 1 {
        end.pass();
    }
    reader.join().unwrap().unwrap();
    assert_eq!(end.problem(), None);
}

#[test]
fn a_launcher_link_closes_when_too_many_bytes_are_unread() {
    let (mut end, id, _launcher) = with_launcher();
    let piece = frame(Class::Control, 1 << 20);
    for sent in (0..=LAUNCHER_UNREAD_BYTES_MAX).step_by(1 << 20) {
        assert_eq!(end.problem(), None, "{sent}");
        end.links.send(id, piece.clone());
        end.pass();
    }
    // Sends one frame more, because a frame that is partly sent does not count as unread.
    end.links.send(id, piece);
    end.pass();
    assert!(end.problem().is_some_and(|problem| problem.contains("does not read")), "{:?}", end.problem());
}
