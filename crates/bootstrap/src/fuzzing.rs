//! Checks what must hold for the connections between ranks, whatever bytes arrive. The fuzz targets `ranks_link` and
//! `ranks_fabric` search for violations.

#[path = "../../../dev/fuzz/input.rs"]
mod input;

use crate::network::carrier::{ConnectionEvent, Happened, Number};
use crate::network::codes::Codes;
use crate::network::fabric::handshake::{Hello, Welcome};
use crate::network::fabric::links::Links;
use crate::network::fabric::open::{DATA, header};
use crate::network::manager::requests::{Dial, Requests, Settled};
use crate::network::messages::Unframed;
use crate::network::proof::{Broken, Proof, Proved, Purpose, SEAL_LEN, Secret, builder, message};
use crate::network::tcp::link::{Stream, push_unit, take_unit, unit_left};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};
use input::{byte, some};
use snow::{HandshakeState, TransportState};
use wireup_fabric::Posted;

const SECRET: Secret = [7; 32];
const ME: u32 = 5;
const PEER: u32 = 3;
const DIAL: Purpose = Purpose::Messages { closed: 0 };

/// Fuzzes a connection over TCP. The first byte selects the other end, a stranger or a rank that knows the secret and
/// sends arbitrary messages, and the length of the pieces of its messages.
pub fn ranks_link(input: &[u8]) {
    let Some((&first, bytes)) = input.split_first() else { return };
    are_units(bytes);
    match first {
        0..32 => assert!(accepted(bytes).is_none() && dialled().0.on_message(bytes).is_err(), "a stranger is believed"),
        32..64 => dialler_is_believed_if_right(bytes),
        _ => stream_is_that_of_its_content(bytes, usize::from(first)),
    }
}

/// Checks that units encode to the bytes from which they were decoded.
fn are_units(bytes: &[u8]) {
    let (mut left, mut again) = (bytes, Vec::new());
    while let Some(unit) = take_unit(&mut left) {
        push_unit(&mut again, unit);
    }
    assert!(unit_left(left) > 0 && bytes.starts_with(&again) && again.len() + left.len() == bytes.len());
}

fn accepted(hello: &[u8]) -> Option<Proved> {
    Proof::accept(&SECRET, ME).expect("a handshake").on_message(hello).ok()
}

fn dialled() -> (Proof, Vec<u8>) {
    Proof::dial(&SECRET, ME, PEER, DIAL).expect("a handshake")
}

/// The first handshake message of a rank that knows the secret, with any content.
fn hello(content: &[u8]) -> (HandshakeState, Vec<u8>) {
    let mut state = builder(&SECRET).expect("a handshake").build_initiator().expect("a dialler");
    let hello = message(&mut state, content).expect("it fits");
    (state, hello)
}

/// The answer to this rank's first handshake message by a rank that knows the secret, with any content.
fn answer(content: &[u8], hello: &[u8]) -> (HandshakeState, Vec<u8>) {
    let mut state = builder(&SECRET).expect("a handshake").build_responder().expect("an acceptor");
    state.read_message(hello, &mut [0; 128]).expect("our own hello");
    let answer = message(&mut state, content).expect("it fits");
    (state, answer)
}

fn dialler_is_believed_if_right(bytes: &[u8]) {
    let content = &bytes[..bytes.len().min(60)];
    let numbers: Vec<u32> = content.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number)).collect();
    let is_right = content.len() == 16 && numbers[0] != ME && numbers[1] == ME && numbers[2] <= 1;
    let peer = accepted(&hello(content).1).map(|proved| proved.peer);
    assert_eq!(peer, is_right.then(|| numbers[0]));
    let (proof, hello) = dialled();
    let peer = proof.on_message(&answer(content, &hello).1).ok().map(|proved| proved.peer);
    assert_eq!(peer, (content == PEER.to_le_bytes()).then_some(PEER));
}

/// A rank that has proved itself sends these bytes, cut into units of `piece` bytes: the decoded messages must not
/// depend on the cuts.
fn stream_is_that_of_its_content(bytes: &[u8], piece: usize) {
    let (mut state, hello) = hello(&[PEER, ME, 0, 0].map(u32::to_le_bytes).concat());
    let accepted = accepted(&hello).expect("a rank");
    state.read_message(accepted.reply.as_ref().expect("an answer"), &mut [0; 128]).expect("our own answer");
    let mut theirs = state.into_transport_mode().expect("a proved rank");
    let mut stream = Stream::new(accepted).expect("a proved rank");
    let mut whole = Unframed { bytes: bytes.to_vec() };
    let (expected, mut messages, mut outcome) = (whole.take_whole(), Vec::new(), Ok(()));
    for piece in bytes.chunks(piece) {
        let mut unit = vec![0; piece.len() + SEAL_LEN];
        theirs.write_message(piece, &mut unit).expect("it fits");
        match stream.open(&unit) {
            Ok(more) => messages.extend(more),
            Err(Broken) => outcome = Err(Broken),
        }
        if outcome.is_err() {
            break;
        }
    }
    // If the stream breaks, messages before the break may have been delivered: then only the error is compared.
    assert_eq!(outcome.map(|()| messages), expected);
    assert!(stream.open(bytes).is_err(), "what nobody has sealed is opened");
}

const MESSAGE_LEN: usize = 200;
/// Maximum number of messages that the provider takes for a peer before it has sent them.
const ROOM: usize = 4;
/// A rank that knows the secret and sends arbitrary messages.
const ROGUE: u32 = 2;

/// Two ranks that exchange messages over a reliable provider, strangers that repeat and change them, and a rank that
/// knows the secret and sends what the input says. Whatever happens, both ranks get each other's messages whole, in
/// order, once.
pub fn ranks_fabric(input: &[u8]) {
    let mut world = Fabric::new();
    let mut input = input;
    for _ in 0..100 {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
        world.look();
    }
}

/// The connection manager of a rank with one request gets any bytes, of a stranger or of a rank that knows the secret.
/// Only the accept of its request settles it, and only a request is answered.
fn request(codes: &mut Codes, what: u8, content: &[u8]) {
    let mut requests = Requests::new(ME, &SECRET).expect("a hash");
    let place = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1);
    let dial = Dial { to: PEER, address: Vec::new(), closed: 0 };
    requests.ask(0, 7, dial.clone(), vec![place]);
    let is_ranks = what & 16 != 0;
    let bytes = if is_ranks { codes.with_code(&[content]) } else { content.to_vec() };
    requests.on_datagram(place, &bytes, |_| false);
    let begins = |kind: u8| content.strip_prefix(&[kind]).and_then(|rest| rest.split_at_checked(8));
    let is_accept = begins(5) == Some((&[PEER, ME].map(u32::to_le_bytes).concat()[..], &7_u64.to_le_bytes()[..]));
    let is_settled = requests.poll() == Some(Settled { number: 7, dial, accepted_at: Some(place) });
    assert_eq!(is_settled, is_ranks && is_accept);
    let is_answered = requests.transmit().is_some();
    assert!(!is_answered || is_ranks && content.len() == 17 && content[0] == 4, "a stranger is answered");
}

struct Fabric {
    ends: [Links; 2],
    codes: Codes,
    /// All messages sent so far, each with its sender and receiver; for each receiver, those that have not arrived.
    sent: Vec<(u8, u8, Vec<u8>)>,
    under_way: [VecDeque<Vec<u8>>; 2],
    now: u64,
    /// For each of the two ranks, its latest connection to the other; and for each connection, the number of messages
    /// sent.
    latest: [Option<Number>; 2],
    messages: BTreeMap<(u8, Number), u8>,
    /// Number of messages that have arrived, by receiver, sender and the sender's connection.
    arrived: BTreeMap<(u8, u8, u8), u8>,
    /// The rogue's connection to rank 0: rank 0's number for it, and its keys.
    rogue: Option<(Number, Box<TransportState>)>,
}

impl Fabric {
    fn new() -> Fabric {
        let end = |me: u8| Links::new(me.into(), &SECRET, &[me], MESSAGE_LEN).expect("a hash");
        Fabric {
            ends: [end(0), end(1)],
            codes: Codes::new(&SECRET).expect("a hash"),
            sent: Vec::new(),
            under_way: [VecDeque::new(), VecDeque::new()],
            now: 0,
            latest: [None; 2],
            messages: BTreeMap::new(),
            arrived: BTreeMap::new(),
            rogue: None,
        }
    }

    fn step(&mut self, input: &mut &[u8]) {
        let what = byte(input);
        let me = what >> 7;
        let (at, latest) = (usize::from(me), self.latest[usize::from(me)]);
        let end = &mut self.ends[at];
        match what % 16 {
            0 => {
                end.dial(u32::from(1 - me), byte(input).into(), Some(&[1 - me]));
            }
            1 | 2 => {
                let Some(number) = latest else { return };
                let count = self.messages.entry((me, number)).or_default();
                // The message contains the number of its connection and its own number.
                let message = vec![*count; usize::from(byte(input)) * 3 + 2];
                *count = count.wrapping_add(1);
                end.send(number, &[&[me, number as u8], &message[..]].concat());
            }
            3..=5 => {
                if let Some(bytes) = self.under_way[at].pop_front() {
                    end.on_message(self.now, &bytes);
                }
            }
            6 => self.repeat(byte(input), |_| {}),
            7 => {
                let (nth, byte, bits) = (byte(input), usize::from(byte(input)), byte(input));
                self.repeat(nth, |bytes| {
                    let byte = byte % bytes.len();
                    bytes[byte] ^= bits;
                });
            }
            8 => end.on_message(self.now, some(input)),
            9 | 11 => {
                let Some(number) = latest else { return };
                match byte(input) % 5 {
                    0 => end.close(number),
                    1 => end.set_paused(number, true),
                    2 => end.set_paused(number, false),
                    3 => end.on_failed(number),
                    _ => end.say_goodbye(),
                }
            }
            10 => request(&mut self.codes, what, some(input)),
            12 => self.dial_as_rogue(input),
            _ => self.send_as_rogue(some(input)),
        }
    }

    /// A stranger sends a message again, counted from the latest one backwards, perhaps before that one arrives.
    fn repeat(&mut self, nth: u8, change: impl FnOnce(&mut [u8])) {
        let Some((_, to, mut bytes)) = self.sent.iter().rev().nth(nth.into()).cloned() else { return };
        change(&mut bytes);
        if let Some(end) = self.ends.get_mut(usize::from(to)) {
            end.on_message(self.now, &bytes);
        }
    }

    /// The rogue sends a hello with any content, and with a valid or an arbitrary proof.
    fn dial_as_rogue(&mut self, input: &mut &[u8]) {
        let (what, number) = (byte(input), u64::from(byte(input)));
        let content = match what % 4 {
            0 => &[ROGUE, 0, 0, 0].map(u32::to_le_bytes).concat(),
            _ => some(input),
        };
        if content.first_chunk().is_some_and(|from| u32::from_le_bytes(*from) < ROGUE) {
            // Whoever knows the secret can claim to be any rank, so such a hello proves nothing.
            return;
        }
        let (mut state, proof) = hello(&content[..content.len().min(60)]);
        let proof = if what % 4 == 1 { some(input) } else { &proof };
        let from = if what % 8 == 7 { u32::from(byte(input)) } else { ROGUE };
        let hello = Hello { from, to: 0, number, place: &[ROGUE as u8], proof }.encode(&mut self.codes);
        self.ends[0].on_message(self.now, &hello);
        self.look();
        let Some((.., welcome)) = self.sent.iter().rev().find(|(from, to, _)| (*from, *to) == (0, ROGUE as u8)) else {
            return;
        };
        let Some(welcome) = Welcome::decode(welcome, &mut self.codes).filter(|welcome| welcome.answered == number)
        else {
            return;
        };
        if state.read_message(welcome.proof, &mut [0; 128]).is_ok() {
            self.rogue = Some((welcome.number, Box::new(state.into_transport_mode().expect("a proved rank"))));
        }
    }

    /// The rogue sends any sealed content.
    fn send_as_rogue(&mut self, content: &[u8]) {
        let Some((number, keys)) = &mut self.rogue else { return };
        let mut bytes = [&[DATA][..], &number.to_le_bytes()].concat();
        let begin = bytes.len();
        bytes.resize(begin + content.len() + SEAL_LEN, 0);
        keys.write_message(content, &mut bytes[begin..]).expect("it fits");
        assert!(header(&bytes).is_some_and(|(to, _)| to == *number));
        self.ends[0].on_message(self.now, &bytes);
    }

    /// Collects the messages that both ranks want to send, and checks what has happened to their connections.
    fn look(&mut self) {
        for me in 0..2_u8 {
            self.now += 1;
            let Fabric { ends, sent, under_way, now, .. } = self;
            let end = &mut ends[usize::from(me)];
            end.transmit(*now, &mut Vec::new(), |_, place, bytes| {
                assert!(bytes.len() <= MESSAGE_LEN && place.len() == 1);
                if let Some(pipe) = under_way.get_mut(usize::from(place[0])) {
                    if pipe.len() == ROOM {
                        return Posted::Later;
                    }
                    pipe.push_back(bytes.to_vec());
                }
                sent.push((me, place[0], bytes.to_vec()));
                Posted::Yes
            });
            while let Some(happened) = end.poll() {
                let Happened { number, peer, event } = happened;
                let bytes = match event {
                    ConnectionEvent::Proved { .. } if peer != ROGUE => {
                        self.latest[usize::from(me)] = Some(number);
                        continue;
                    }
                    ConnectionEvent::Message(bytes) if peer != ROGUE => bytes,
                    _ => continue,
                };
                assert_eq!(peer, u32::from(1 - me), "a message of a rank that is not there");
                let [sender, number, count, rest @ ..] = &bytes[..] else { panic!("a message that nobody has sent") };
                assert!(u32::from(*sender) == peer && rest.iter().all(|byte| byte == count));
                let arrived = self.arrived.entry((me, *sender, *number)).or_default();
                assert_eq!(count, arrived, "a message is missing, or has come twice");
                *arrived = arrived.wrapping_add(1);
            }
        }
    }
}

#[cfg(test)]
#[path = "../../../dev/fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    #[test]
    fn every_corpus_file_passes_its_target() {
        super::replay::replay(&[("ranks_link", super::ranks_link), ("ranks_fabric", super::ranks_fabric)]);
    }
}
