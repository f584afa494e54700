//! What is queued leaves in order; a carrier keeps bytes; an encrypted link notices every change.

use super::*;
use proptest::prelude::*;
use std::io::Read;
use std::os::unix::net::UnixStream;
use wireup_wire::frame::{FrameKind, HEADER_LEN};

fn frame(class: Class, len: usize) -> Frame {
    Frame { kind: FrameKind::Control, class, stream: 0, job: 1, arg: 0, payload: vec![class as u8; len].into() }
}

#[test]
fn small_frames_leave_together_ordered_by_class() {
    let mut waiting = Waiting::default();
    for (class, len) in [(Class::Stdio, 5), (Class::Exchange, 7), (Class::Control, 0), (Class::Stdio, 9_000)] {
        waiting.push(frame(class, len));
    }
    assert_eq!(waiting.bytes(), 4 * HEADER_LEN + 9_012);
    let mut joined = Vec::new();
    assert_eq!(waiting.join_small(&mut joined), Next::More);
    assert_eq!((joined.len(), joined[2 * HEADER_LEN]), (3 * HEADER_LEN + 12, Class::Exchange as u8));
    let mut pieces = VecDeque::new();
    waiting.move_next_group(&mut pieces);
    assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [HEADER_LEN, 9_000]);
    assert!(waiting.is_empty() && waiting.bytes() == 0);
    joined.clear();
    assert_eq!((waiting.join_small(&mut joined), joined.len()), (Next::Nothing, 0));
}

#[test]
fn only_a_few_large_frames_begin_at_once() {
    let mut waiting = Waiting::default();
    for _ in 0..3 {
        waiting.push(frame(Class::Stdio, 10));
        waiting.push(frame(Class::Exchange, 200_000));
    }
    let mut begun = || {
        let mut pieces = VecDeque::new();
        waiting.move_next_group(&mut pieces);
        pieces.iter().map(Bytes::len).collect::<Vec<_>>()
    };
    assert_eq!(begun(), [HEADER_LEN, 200_000, HEADER_LEN, 200_000]);
    assert_eq!(begun(), [HEADER_LEN, 200_000, HEADER_LEN, 10]);
    assert_eq!(begun(), [HEADER_LEN, 10]);
}

#[test]
fn pieces_leave_in_order_and_unsent_bytes_stay() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut socket = Socket::local(ours.into());
    socket.keep_alive(Duration::from_secs(1)).expect("keepalive is not set on a Unix socket");
    let sizes = [3, 0, 300_000, 1, 2_000_000];
    let whole: Vec<u8> = (0..sizes.iter().sum()).map(|byte: usize| (byte % 251) as u8).collect();
    let mut rest = Bytes::from(whole.clone());
    let mut pieces: VecDeque<Bytes> = sizes.iter().map(|size| rest.split_to(*size)).collect();
    let reader = std::thread::spawn(move || {
        let mut read = Vec::new();
        theirs.read_to_end(&mut read).map(|_| read)
    });
    while !pieces.is_empty() {
        if let Err(error) = socket.write_pieces(&mut pieces) {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            socket::wait(&socket.fd, false, true, None).unwrap();
        }
    }
    drop(socket);
    assert!(reader.join().unwrap().unwrap() == whole);
}

#[test]
fn nothing_is_sent_before_the_connection_is_established() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = Socket::dialled(socket::dial(listener.local_addr().unwrap(), None).unwrap());
    assert_eq!(socket.write(b"x").unwrap_err().kind(), io::ErrorKind::WouldBlock);
    socket::wait(&socket.fd, false, true, None).unwrap();
    socket.on_writable().unwrap();
    assert_eq!(socket.write(b"x").unwrap(), 1);
}

fn ends() -> (Sealed, Sealed) {
    let builder = || snow::Builder::new("Noise_NN_25519_ChaChaPoly_BLAKE2s".parse().unwrap());
    let (mut dials, mut listens) = (builder().build_initiator().unwrap(), builder().build_responder().unwrap());
    let (mut message, mut payload) = ([0; 200], [0; 200]);
    let length = dials.write_message(&[], &mut message).unwrap();
    listens.read_message(&message[..length], &mut payload).unwrap();
    let length = listens.write_message(&[], &mut message).unwrap();
    dials.read_message(&message[..length], &mut payload).unwrap();
    let end = |noise: snow::HandshakeState| Sealed::new(Box::new(noise.into_transport_mode().unwrap()));
    (end(dials), end(listens))
}

fn sealed(end: &mut Sealed, pieces: impl IntoIterator<Item = Bytes>) -> Bytes {
    end.pieces.extend(pieces);
    end.seal(usize::MAX).unwrap()
}

fn opened(end: &mut Sealed, wire: &[u8], step: usize) -> Result<Vec<u8>, SealError> {
    let mut plain = Vec::new();
    for piece in wire.chunks(step) {
        plain.extend_from_slice(&end.open(piece)?);
    }
    Ok(plain)
}

#[test]
fn pieces_are_sealed_in_the_fewest_messages() {
    let (mut here, _) = ends();
    for (pieces, messages) in [
        (vec![0], 0),
        (vec![1, 1, 1], 1),
        (vec![PLAIN_LEN_MAX], 1),
        (vec![16, PLAIN_LEN_MAX], 2),
        (vec![3 * PLAIN_LEN_MAX], 3),
        (vec![16, 2 * PLAIN_LEN_MAX, 16], 3),
    ] {
        let total: usize = pieces.iter().sum();
        let sealed = sealed(&mut here, pieces.iter().map(|&length| Bytes::from(vec![7; length])));
        assert_eq!(sealed.len(), total + messages * (LENGTH_LEN + TAG_LEN), "{pieces:?}");
    }
}

#[test]
fn a_long_frame_is_sealed_in_bounded_portions() {
    let (mut here, mut there) = ends();
    let frame: Bytes = (0..400_000u32).map(|byte| (byte % 251) as u8).collect();
    here.pieces.extend([Bytes::from_static(&[9; 16]), frame.clone()]);
    let (mut plain, mut rounds) = (Vec::new(), 0);
    while !here.pieces.is_empty() {
        let some = here.seal(100_000).unwrap();
        assert!(some.len() < 100_000 + 2 * MESSAGE_LEN_MAX, "{}", some.len());
        plain.extend_from_slice(&there.open(&some).unwrap());
        rounds += 1;
    }
    assert_eq!(rounds, 4);
    assert_eq!(plain, [&[9; 16][..], &frame].concat());
}

#[test]
fn sealed_messages_open_in_both_directions_and_only_once() {
    let (mut here, mut there) = ends();
    let one = sealed(&mut here, [Bytes::from_static(b"one")]);
    let two = sealed(&mut there, [Bytes::from_static(b"two")]);
    assert_eq!(there.open(&one).unwrap(), "one");
    assert_eq!(here.open(&two).unwrap(), "two");
    assert_eq!(there.open(&one), Err(SealError::Changed), "sent again");
    assert_eq!(here.open(&one), Err(SealError::Changed), "sent back");
}

#[test]
fn too_short_messages_and_ends_within_a_message_are_refused() {
    for length in 0..TAG_LEN as u8 {
        let (_, mut there) = ends();
        let mut wire = vec![length, 0];
        wire.resize(LENGTH_LEN + usize::from(length), 0);
        assert_eq!(there.open(&wire), Err(SealError::Changed), "{length}");
    }
    let (mut here, mut there) = ends();
    let wire = sealed(&mut here, [Bytes::from_static(b"hello")]);
    for at in 1..wire.len() {
        let (_, mut there) = ends();
        assert_eq!(there.open(&wire[..at]).unwrap(), "");
        assert_eq!(there.end(), Err(SealError::Cut), "{at}");
    }
    there.open(&wire).unwrap();
    assert_eq!(there.end(), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_split_opens_to_the_same_bytes(
        lengths in prop::collection::vec(prop_oneof![4 => 0usize..40, 1 => 65_000usize..140_000], 1..12),
        step in prop_oneof![1usize..20, 1_000usize..70_000],
        turns in 1usize..4,
    ) {
        let (mut here, mut there) = ends();
        for turn in 0..turns {
            let pieces: Vec<Bytes> = lengths
                .iter()
                .enumerate()
                .map(|(n, &length)| (0..length).map(|byte| (byte * 31 + n + turn) as u8).collect())
                .collect();
            let wire = sealed(&mut here, pieces.iter().cloned());
            prop_assert_eq!(opened(&mut there, &wire, step).unwrap(), pieces.concat());
            prop_assert_eq!(there.end(), Ok(()));
        }
    }

    #[test]
    fn a_flipped_bit_ends_the_link(
        first in prop::collection::vec(any::<u8>(), 1..100),
        second in prop::collection::vec(any::<u8>(), 1..100),
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
        step in 1usize..50,
    ) {
        let (mut here, mut there) = ends();
        let mut wire = sealed(&mut here, [Bytes::from(first.clone())]).to_vec();
        wire.extend_from_slice(&sealed(&mut here, [Bytes::from(second)]));
        let at = at.index(wire.len());
        wire[at] ^= 1 << bit;
        // If the length grew, `open` may wait for more bytes: no wrong bytes are returned, and the end is within a
        // message.
        let mut plain = Vec::new();
        let mut error = None;
        for piece in wire.chunks(step) {
            match there.open(piece) {
                Ok(bytes) => plain.extend_from_slice(&bytes),
                Err(refused) => { error = Some(refused); break; }
            }
        }
        let error = error.or(there.end().err());
        prop_assert!(matches!(error, Some(SealError::Changed | SealError::Cut)), "{:?}", error);
        prop_assert!(plain.is_empty() || plain == first);
    }
}
