//! Links over UCX between agents, and attacks by strangers who can reach a worker. They run where libucp is installed.

use super::*;
use wireup_ucx::{Budget, Endpoint, Verdict, Worker};
use wireup_wire::peer::AgentTransport;
use wireup_wire::route::Point;

/// The tag of openings, the first messages of links.
const OPENING: u64 = u64::MAX;
const KNOWN: Secret = Secret([7; 32]);

/// The links of an agent with UCX, and the point at which it is reached; `None`: the library is not installed, and the
/// tests may be skipped.
fn open(me: u32, secret: Secret, encrypt: bool) -> Option<(LinkEnd, Point)> {
    let mut end = LinkEnd::knowing(secret, AgentId(me), config("127.0.0.1", encrypt));
    match end.links.transports.open_agreed(AgentTransport::Ucx, &end.reactor) {
        Ok(point) => Some((end, point)),
        Err(problem) => {
            assert!(std::env::var_os("WIREUP_REQUIRE_PEERS").is_none(), "{problem}");
            eprintln!("skipped: {problem}");
            None
        }
    }
}

fn dial(end: &mut LinkEnd, to: u32, point: &Point, addresses: &[String]) {
    let offer = Offer { addresses: addresses.to_vec(), point: Some(point.clone()), called_us: false };
    end.links.dial_direct(AgentId(to), offer, &end.reactor, &mut end.inputs);
}

fn listen(end: &mut LinkEnd) -> Vec<String> {
    end.links.transports.listen(&end.reactor).unwrap()
}

/// Agents 5 and 6, linked by UCX; the link of each, and the `Point` of agent 6.
fn linked(encrypt: bool) -> Option<(Vec<LinkEnd>, [LinkId; 2], Point)> {
    let ((one, _), (two, point)) = (open(5, KNOWN, encrypt)?, open(6, KNOWN, encrypt)?);
    let mut ends = vec![one, two];
    dial(&mut ends[0], 6, &point, &[]);
    turn_all(&mut ends, |ends| ends.iter().all(|end| direct_links(end).len() == 1));
    let links = [direct_links(&ends[0])[&AgentId(6)], direct_links(&ends[1])[&AgentId(5)]];
    Some((ends, links, point))
}

/// A process that can reach workers but belongs to no session.
struct Stranger {
    worker: Worker,
    to: Endpoint,
}

impl Stranger {
    fn reaching(point: &Point) -> Stranger {
        let mut worker = Worker::open().unwrap();
        let to = worker.connect(&point.address).unwrap();
        Stranger { worker, to }
    }

    fn send(&mut self, tag: u64, bytes: Vec<u8>) {
        self.worker.send(self.to, tag, bytes.into()).unwrap();
    }

    /// Lets the stranger's worker make progress; returns the messages received, with their tags.
    fn pass(&mut self) -> Vec<(u64, Bytes)> {
        let mut messages = Vec::new();
        let budget = Budget { messages: 1_000, rounds: 1_000 };
        self.worker.poll(budget, |_, _| Verdict::Take, &mut messages, &mut Vec::new());
        messages.into_iter().map(|message| (message.tag, message.bytes.unwrap())).collect()
    }

    /// Runs turns until everything that the stranger sent has arrived.
    fn be_heard(&mut self, ends: &mut [LinkEnd]) {
        turn_all(ends, |_| {
            self.pass();
            self.worker.sending(self.to) == 0
        });
    }

    /// A hello to agent 6 as agent 5 would send it, but with this worker as the address for the answer.
    fn opening(&self, secret: &Secret, tag: u64, key: &[u8; 32]) -> Vec<u8> {
        let address = self.worker.address();
        let head = [&tag.to_le_bytes()[..], &(address.len() as u16).to_le_bytes(), address].concat();
        let binding = [&key[..], &head].concat();
        let hello =
            Hello { version: PROTOCOL_VERSION, agent: AgentId(5), host: String::new(), pid: 1, role: Role::Direct };
        let (terms, mut first) = (Terms { encrypt: false, listener: AgentId(6), binding: &binding }, Vec::new());
        Handshake::dial(secret, terms, &hello, &mut first).unwrap();
        [head, first].concat()
    }
}

#[test]
fn frames_arrive_whole_and_in_order_encrypted_or_not() {
    for encrypt in [false, true] {
        let Some((mut ends, links, _)) = linked(encrypt) else { return };
        assert_eq!(ends[0].up(), Some((links[0], Peer::Direct(AgentId(6)), "")));
        let sizes = [8, 9_000, 0, 300_000, 8_000, 20 << 20, 200, 8];
        let frames: Vec<_> = sizes.iter().map(|size| frame(Class::Exchange, *size)).collect();
        for (end, link) in ends.iter_mut().zip(links) {
            frames.iter().for_each(|frame| end.links.send(link, frame.clone()));
        }
        turn_all(&mut ends, |ends| ends.iter().all(|end| end.frames().len() == sizes.len()));
        assert!(ends.iter().all(|end| end.frames() == frames), "encrypt: {encrypt}");
        assert!(ends.iter().all(|end| end.links.guests.is_empty() && end.links.dials.is_empty()));
    }
}

#[test]
fn control_frames_overtake_unsent_stdio_frames() {
    let Some((mut ends, links, _)) = linked(false) else { return };
    let bulk = frame(Class::Stdio, 6 << 20);
    for _ in 0..4 {
        ends[0].links.send(links[0], bulk.clone());
    }
    let LinkEnd { links: from, reactor, inputs, .. } = &mut ends[0];
    from.flush(reactor, inputs);
    from.send(links[0], frame(Class::Control, 3));
    turn_all(&mut ends, |ends| ends[1].frames().len() == 5);
    let classes: Vec<Class> = ends[1].frames().iter().map(|frame| frame.class).collect();
    assert!(classes.iter().position(|class| *class == Class::Control) < Some(4), "{classes:?}");
}

#[test]
fn a_dialler_with_a_wrong_secret_gets_no_answer_and_tries_tcp() {
    let (Some((one, _)), Some((two, point))) = (open(5, Secret([8; 32]), false), open(6, KNOWN, false)) else { return };
    let mut ends = vec![one, two];
    let addresses = listen(&mut ends[1]);
    dial(&mut ends[0], 6, &point, &addresses);
    // The connection was accepted, since it got a link number; then its opening was refused at once.
    turn_all(&mut ends, |ends| ends[1].links.next == 2);
    assert!(ends[1].links.guests.is_empty() && ends[1].links.links.is_empty());
    let due_ns = ends[0].links.deadline_ns().expect("the wait for an answer has a deadline");
    let LinkEnd { links, reactor, buffer, inputs } = &mut ends[0];
    links.on_tick(&mut Turn { now_ns: due_ns, reactor, buffer, inputs });
    turn_all(&mut ends, |ends| !ends[0].inputs.is_empty());
    let [Input::DialFailed { agent: Some(AgentId(6)), problem }] = &ends[0].inputs[..] else {
        panic!("{:?}", ends[0].inputs)
    };
    let by_tcp = format!("; {}: closed by the other end during the handshake", addresses[0]);
    assert_eq!(*problem, format!("UCX: no answer within 5 s{by_tcp}"));
    assert!(ends[1].inputs.is_empty());
}

#[test]
fn openings_for_another_worker_and_modified_openings_are_refused() {
    let Some((end, point)) = open(6, KNOWN, false) else { return };
    let mut ends = [end];
    let mut stranger = Stranger::reaching(&point);
    let good = stranger.opening(&KNOWN, 77, &point.key);
    let changed = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let others = [stranger.opening(&KNOWN, 77, &[1; 32]), changed(0), changed(12), changed(good.len() - 1)];
    for (n, opening) in (2..).zip(others) {
        stranger.send(OPENING, opening);
        turn_all(&mut ends, |ends| {
            stranger.pass();
            ends[0].links.next == n
        });
        assert!(ends[0].links.links.is_empty(), "{n}");
    }
    // Openings that are too short, or contain a false length, do not even become guests.
    for opening in [vec![], good[..9].to_vec(), [&[0; 8][..], &[255; 20]].concat()] {
        stranger.send(OPENING, opening);
    }
    stranger.send(OPENING, good);
    turn_all(&mut ends, |ends| {
        stranger.pass();
        ends[0].links.guests.len() == 1
    });
    assert_eq!(ends[0].links.next, 6);
}

#[test]
fn a_replayed_opening_is_answered_but_does_not_become_a_link() {
    let Some((end, point)) = open(6, KNOWN, false) else { return };
    let mut ends = [end];
    let mut stranger = Stranger::reaching(&point);
    let recorded = stranger.opening(&KNOWN, 77, &point.key);
    let mut answers = Vec::new();
    for _ in 0..3 {
        stranger.send(OPENING, recorded.clone());
    }
    turn_all(&mut ends, |_| {
        answers.extend(stranger.pass());
        !answers.is_empty()
    });
    assert!(matches!(answers[..], [(77, _)]), "one answer, since its tag is then in use");
    assert_eq!((ends[0].links.guests.len(), &ends[0].inputs[..]), (1, &[][..]));
    // The answer can be used only with the key of the opening's maker.
    stranger.send(77, recorded);
    turn_all(&mut ends, |ends| {
        stranger.pass();
        ends[0].links.links.is_empty()
    });
    assert!(ends[0].inputs.is_empty());
}

#[test]
fn messages_of_unknown_tags_or_excess_length_are_refused() {
    let Some((mut ends, links, point)) = linked(false) else { return };
    let mut stranger = Stranger::reaching(&point);
    for (tag, len) in [(OPENING, 100_000), (OPENING, 20 << 20), (3, 5), (3, 64 << 20)] {
        stranger.send(tag, vec![0; len]);
    }
    stranger.be_heard(&mut ends);
    assert_eq!(ends[1].links.next, 2, "no connection was accepted");
    // A guest that sends more bytes than a handshake has is closed.
    let opening = stranger.opening(&KNOWN, 77, &point.key);
    stranger.send(OPENING, opening);
    turn_all(&mut ends, |ends| {
        stranger.pass();
        ends[1].links.guests.len() == 1
    });
    stranger.send(77, vec![0; 20_000]);
    turn_all(&mut ends, |ends| {
        stranger.pass();
        ends[1].links.guests.is_empty()
    });
    ends[0].links.send(links[0], frame(Class::Control, 5));
    turn_all(&mut ends, |ends| ends[1].frames().len() == 1);
    assert_eq!(ends[1].problem(), None);
}

#[test]
fn a_flood_from_a_stranger_does_not_stall_other_links() {
    let Some((mut ends, links, point)) = linked(false) else { return };
    // A third agent, linked by TCP.
    let addresses = listen(&mut ends[1]);
    let third = LinkEnd::with_test_secret(AgentId(7), config("127.0.0.1", false));
    ends.push(third);
    let offer = Offer { addresses, ..Offer::default() };
    let LinkEnd { links: third, reactor, inputs, .. } = &mut ends[2];
    third.dial_direct(AgentId(6), offer, reactor, inputs);
    turn_all(&mut ends, |ends| direct_links(&ends[2]).len() == 1 && direct_links(&ends[1]).len() == 2);
    let by_tcp = direct_links(&ends[2])[&AgentId(6)];

    let mut stranger = Stranger::reaching(&point);
    let garbage = stranger.opening(&Secret([9; 32]), 1, &point.key);
    let mut flood = || {
        // Sends 200 messages, or fewer if the network accepts no more and over 1 MiB is queued.
        for n in 0..200 {
            stranger.send(if n % 2 == 0 { OPENING } else { n }, garbage.clone());
            if stranger.worker.sending(stranger.to) > 1 << 20 {
                break;
            }
        }
        stranger.pass();
    };
    turn_all(&mut ends, |ends| {
        flood();
        ends[1].links.next > 100
    });
    let mut heard = 0;
    for round in 0..20 {
        ends[0].links.send(links[0], frame(Class::Control, 5));
        ends[2].links.send(by_tcp, frame(Class::Control, 7));
        turn_all(&mut ends, |ends| {
            flood();
            heard = ends[1].frames().len();
            heard == 2 * (round + 1)
        });
        assert!(ends[1].links.guests.is_empty(), "no stranger may stay a guest");
    }
    assert_eq!((heard, ends[1].problem()), (40, None));
}
