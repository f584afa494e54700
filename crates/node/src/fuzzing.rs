//! Checks what must hold for the decoders of this crate, whatever the bytes are. The fuzz targets with the names of
//! these functions search for violations.

use crate::agent::step::{Lines, Said, at, read_at};
use crate::agent::transports::ucx::{self, Inbox, OPENING_LEN_MAX, Opening};
use crate::record::Recording;
use crate::session::spool::Contents;
use crate::transport::handshake::{
    Cipher, Handshake, HandshakeError, MESSAGE_LEN_MAX, Progress, Terms, builder, write,
};
use crate::transport::link::{PLAIN_LEN_MAX, Sealed};
use bytes::Bytes;
use rustix::fs::MemfdFlags;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use wireup_proto::replay::Recorded;
use wireup_ucx::Verdict;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{self, Hello, PROTOCOL_VERSION, Role, Secret};

const SECRET: Secret = Secret([7; 32]);
const TERMS: Terms<'_> = Terms { encrypt: true, listener: AgentId(1), binding: b"bound" };
/// Longest content of a message that this file makes for a peer (bytes).
const CONTENT_LEN_MAX: usize = 900;

/// Runs a handshake with one real end. The first byte of `input` selects the other end (a stranger, or an agent that
/// knows the secret but puts arbitrary content into its messages) and the size of the pieces in which its bytes arrive.
pub fn handshake(input: &[u8]) {
    let Some((&first, bytes)) = input.split_first() else { return };
    let piece = if first >> 3 == 0 { bytes.len().max(1) } else { usize::from(first >> 3) };
    let content = &bytes[..bytes.len().min(CONTENT_LEN_MAX)];
    match first & 7 {
        0..3 => stranger_dials(bytes, piece),
        3 => stranger_listens(bytes, piece),
        4..6 => agent_dials(content, piece, first & 1 == 0),
        _ => agent_listens(content, piece),
    }
}

fn stranger_dials(bytes: &[u8], piece: usize) {
    let outcome = |piece| {
        let mut answer = Vec::new();
        let outcome = fed(Handshake::listen(&SECRET, TERMS), bytes, piece, &mut answer);
        assert!(answer.is_empty(), "a stranger gets an answer");
        outcome.map(|progress| assert!(is_waiting(&progress))).map_err(|error| error.to_string())
    };
    assert_eq!(outcome(piece), outcome(bytes.len().max(1)), "the outcome depends on the split");
}

fn stranger_listens(bytes: &[u8], piece: usize) {
    let mut output = Vec::new();
    let dialler = Handshake::dial(&SECRET, TERMS, &hello(), &mut output).expect("a handshake");
    let hello_len = output.len();
    let outcome = fed(dialler, bytes, piece, &mut output);
    assert!(outcome.is_err() || outcome.is_ok_and(|progress| is_waiting(&progress)), "a stranger is believed");
    assert_eq!(output.len(), hello_len, "a stranger is answered");
}

/// A dialling agent whose hello contains these bytes.
fn agent_dials(content: &[u8], piece: usize, has_aes: bool) {
    let cipher = if has_aes { Cipher::Aes } else { Cipher::ChaCha };
    let prologue = TERMS.prologue();
    let mut noise = builder(cipher, &SECRET, &prologue).expect("a pattern").build_initiator().expect("a dialler");
    let (mut to_listener, mut answer) = (vec![cipher as u8], Vec::new());
    write(content, &mut to_listener, |payload, message| noise.write_message(payload, message)).expect("it fits");
    let heard = fed(Handshake::listen(&SECRET, TERMS), &to_listener, piece, &mut answer);
    let Ok(hello) = peer::decode::<Hello>(content) else {
        return assert!(matches!(heard, Err(HandshakeError::Secret)) && answer.is_empty());
    };
    let Ok(Progress::Wait(listener)) = heard else { panic!("a hello is answered") };
    assert!(listener.heard().is_some());
    noise.read_message(&answer[2..], &mut [0; MESSAGE_LEN_MAX]).expect("our own answer");
    let mut noise = noise.into_transport_mode().expect("both have written");
    let mut confirmation = Vec::new();
    write(&[], &mut confirmation, |payload, message| noise.write_message(payload, message)).expect("it fits");
    confirmation.extend_from_slice(b"frames");
    match listener.on_bytes(&confirmation, &mut answer) {
        Ok(Progress::Done { peer, rest, .. }) => {
            assert!(peer.as_ref() == Some(&hello) && hello.version == PROTOCOL_VERSION && rest == b"frames"[..]);
        }
        Err(HandshakeError::Version { theirs }) => assert!(theirs == hello.version && theirs != PROTOCOL_VERSION),
        _ => panic!("an agent of this session is refused"),
    }
}

/// A listening agent whose answer contains these bytes.
fn agent_listens(content: &[u8], piece: usize) {
    let (mut output, mut answer) = (Vec::new(), Vec::new());
    let dialler = Handshake::dial(&SECRET, TERMS, &hello(), &mut output).expect("a handshake");
    let (cipher, prologue) = (Cipher::from_byte(output[0]).expect("our own cipher"), TERMS.prologue());
    let mut noise = builder(cipher, &SECRET, &prologue).expect("a pattern").build_responder().expect("a listener");
    noise.read_message(&output[3..], &mut [0; MESSAGE_LEN_MAX]).expect("our own hello");
    write(content, &mut answer, |payload, message| noise.write_message(payload, message)).expect("it fits");
    let outcome = fed(dialler, &answer, piece, &mut output);
    let is_right = match peer::decode::<u16>(content) {
        Ok(PROTOCOL_VERSION) => matches!(outcome, Ok(Progress::Done { peer: None, .. })),
        Ok(version) => matches!(outcome, Err(HandshakeError::Version { theirs }) if theirs == version),
        Err(_) => matches!(outcome, Err(HandshakeError::Secret)),
    };
    assert!(is_right);
}

fn hello() -> Hello {
    Hello { version: PROTOCOL_VERSION, agent: AgentId(3), host: "n3".into(), pid: 7, role: Role::Direct }
}

/// Feeds the bytes to the handshake in pieces, until it has completed or failed.
fn fed(mut handshake: Handshake, bytes: &[u8], piece: usize, output: &mut Vec<u8>) -> Result<Progress, HandshakeError> {
    for piece in bytes.chunks(piece) {
        match handshake.on_bytes(piece, output)? {
            Progress::Wait(next) => handshake = next,
            done @ Progress::Done { .. } => return Ok(done),
        }
    }
    Ok(Progress::Wait(handshake))
}

fn is_waiting(progress: &Progress) -> bool {
    matches!(progress, Progress::Wait(handshake) if handshake.heard().is_none())
}

/// Checks an encrypted link: the bytes of all pieces arrive, however the stream is cut; from a stream that was changed,
/// only bytes that were sent arrive. `input`: the length of the parts that arrive at once, the limit of one call, the
/// position of a changed byte and its change, then the lengths of the pieces.
pub fn sealed(input: &[u8]) {
    let Some(([part, limit, low, high, bits, rest @ ..], lengths)) = input.split_first_chunk::<8>() else { return };
    let (mut here, mut there) = ends();
    let (part, limit) = (usize::from(*part) * 37 + 1, usize::from(*limit) * 600);
    for turn in 0..2_usize {
        let pieces = lengths.iter().take(6).enumerate().map(|(nth, &length)| {
            // Most pieces are short, some are longer than a message.
            let length = if length < 240 { length.into() } else { (usize::from(length) - 239) * 4_500 };
            Bytes::from(vec![(nth + turn) as u8; length])
        });
        let pieces: Vec<Bytes> = pieces.collect();
        here.pieces.extend(pieces.iter().cloned());
        let mut wire = Vec::new();
        while !here.pieces.is_empty() {
            let some = here.seal(limit).expect("few messages");
            assert!(some.len() < limit + 2 * (PLAIN_LEN_MAX + 18), "a call seals more than it should");
            wire.extend_from_slice(&some);
        }
        let sent = pieces.concat();
        if turn == 0 {
            assert!(opened(&mut there, &wire, part) == (sent, true) && there.end().is_ok());
            continue;
        }
        if wire.is_empty() || *bits == 0 {
            let (plain, is_whole) = opened(&mut there, rest, part);
            return assert!(plain.is_empty() && !(is_whole && there.end().is_ok()), "what nobody has sealed is opened");
        }
        let at = usize::from(u16::from_le_bytes([*low, *high])) % wire.len();
        wire[at] ^= bits;
        let (plain, is_whole) = opened(&mut there, &wire, part);
        assert!(sent.starts_with(&plain) && !(is_whole && there.end().is_ok()), "a changed message is opened");
    }
}

fn ends() -> (Sealed, Sealed) {
    let builder = || snow::Builder::new("Noise_NN_25519_ChaChaPoly_BLAKE2s".parse().expect("a pattern"));
    let mut dials = builder().build_initiator().expect("a dialler");
    let mut listens = builder().build_responder().expect("a listener");
    let (mut message, mut payload) = ([0; 200], [0; 200]);
    let length = dials.write_message(&[], &mut message).expect("it fits");
    listens.read_message(&message[..length], &mut payload).expect("its message");
    let length = listens.write_message(&[], &mut message).expect("it fits");
    dials.read_message(&message[..length], &mut payload).expect("its message");
    let end = |noise: snow::HandshakeState| Sealed::new(Box::new(noise.into_transport_mode().expect("it is over")));
    (end(dials), end(listens))
}

/// Returns the opened bytes, and whether all bytes were opened.
fn opened(end: &mut Sealed, wire: &[u8], part: usize) -> (Vec<u8>, bool) {
    let mut plain = Vec::new();
    for part in wire.chunks(part) {
        let Ok(some) = end.open(part) else { return (plain, false) };
        plain.extend_from_slice(&some);
    }
    (plain, true)
}

/// Checks the first message of a link over UCX, and messages of any length on a link.
pub fn ucx_opening(input: &[u8]) {
    let bytes = Bytes::copy_from_slice(input);
    if let Some(opening) = Opening::decode(&bytes) {
        let head = ucx::head(opening.tag, opening.address).expect("an address that was accepted");
        assert_eq!([&head[..], &opening.hello].concat(), input);
        assert_eq!(opening.binding(&[3; 32]), ucx::binding(&[3; 32], &head));
        assert!(input.len() - opening.hello.len() <= OPENING_LEN_MAX);
    }
    let (mut inbox, mut model, mut is_broken, mut is_proved) = (Inbox::default(), VecDeque::new(), false, false);
    for step in input.chunks_exact(3) {
        let len = usize::from(u16::from_le_bytes([step[1], step[2]]));
        let announced = len << (step[0] >> 3);
        match step[0] & 7 {
            0..3 => {
                let verdict = inbox.judge(announced);
                let len_max = if is_proved { 16 << 20 } else { 2 + MESSAGE_LEN_MAX };
                is_broken |= announced > len_max;
                let expected = match (is_broken, is_proved) {
                    (true, _) => Verdict::Drop,
                    (false, true) => Verdict::Take,
                    (false, false) => Verdict::TakeAlone,
                };
                assert_eq!(verdict, expected);
            }
            3 | 4 => {
                let message = Bytes::copy_from_slice(step);
                inbox.push(Ok(message.clone()));
                model.extend((!is_broken).then_some(message));
            }
            5 => match (inbox.pop(), model.pop_front()) {
                (Ok(message), Some(expected)) => assert_eq!(message, expected),
                (Err(error), None) => assert_eq!(error.kind() == std::io::ErrorKind::WouldBlock, !is_broken),
                _ => panic!("a message is missing, or one too many"),
            },
            6 => {
                inbox.push(Err(-1));
                is_broken = true;
            }
            _ => {
                inbox.on_proved();
                is_proved = true;
            }
        }
        assert_eq!(inbox.has_more(), is_broken || !model.is_empty());
    }
}

/// Checks the decoding of an agent's recording, and of the spool of a detached job.
pub fn recording(input: &[u8]) {
    if let Ok(recording) = Recording::read(input) {
        for entry in recording.map_while(Result::ok) {
            assert_eq!(peer::decode::<Recorded>(&peer::encode(&entry)), Ok(entry));
        }
    }
    let mut file = File::from(rustix::fs::memfd_create("spool", MemfdFlags::CLOEXEC).expect("memory"));
    file.write_all(input).expect("memory");
    let mut spool = Contents { file, offset: 0 };
    let listed = spool.listed(JobId(1)).ok().flatten();
    assert!(listed.is_none_or(|listed| input[0] == 0 && !listed.is_running));
    spool.offset = 0;
    let mut again = Vec::new();
    while let Ok(Some((kind, bytes))) = spool.record() {
        again.push(kind);
        again.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        again.extend_from_slice(&bytes);
        assert_eq!(spool.offset, again.len() as u64);
    }
    assert!(input.starts_with(&again), "the records are not those of the file");
}

/// Checks the decoding of a step's lines. The first byte is the length of the parts in which the other bytes arrive.
pub fn step_lines(input: &[u8]) {
    let Some((&part, bytes)) = input.split_first() else { return };
    let (mut whole, mut cut) = (Lines::default(), Lines::default());
    let lines = whole.push(bytes);
    let parts: Vec<String> = bytes.chunks(usize::from(part).max(1)).flat_map(|part| cut.push(part)).collect();
    // Of a line that is too long, the beginning is lost if the line arrives in several parts.
    assert!(lines == parts || bytes.len() > 8 << 10, "the lines depend on the split");
    for line in lines {
        if let Some(said) = Said::read(&line) {
            assert_eq!(Said::read(said.write().trim_end_matches('\n')), Some(said));
        }
        if let Some((agent, addresses)) = read_at(&line) {
            assert_eq!(read_at(&at(agent, &addresses)), Some((agent, addresses)));
        }
    }
}

#[cfg(test)]
#[path = "../../../dev/fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_corpus_file_passes_its_target() {
        replay::replay(&[
            ("handshake", handshake),
            ("sealed", sealed),
            ("ucx_opening", ucx_opening),
            ("recording", recording),
            ("step_lines", step_lines),
        ]);
    }
}
