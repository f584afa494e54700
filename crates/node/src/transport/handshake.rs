//! Proves the session's secret in both directions before any other byte of a link is parsed.
//!
//! `Noise_NNpsk0_25519_AESGCM_BLAKE2s` (or `ChaChaPoly`) with the secret as pre-shared key, and one more message:
//!
//! ```text
//!   child (dials)                                parent, or any other pair of agents
//!     ── cipher, hello: psk, e, {who dials} ──────►   can be read only with the secret
//!     ◄─ answer: e, ee, {version} ─────────────────   the child now knows that the parent has the secret
//!     ── confirm: {} under the transport key ──────►   the parent knows the same of the child
//! ```
//!
//! Without `confirm` a recorded hello could be replayed. The first byte is the cipher, which the dialling side chooses
//! by the instructions of its processor; both sides must use the same cipher. Each message is a 2-byte little-endian
//! length followed by that many bytes. After the handshake come frames: plain, or encrypted with the keys of the
//! handshake (`super::link`). Messages of an unauthenticated peer are at most [`MESSAGE_LEN_MAX`] bytes long.
//!
//! Both sides mix the [`Terms`] of the link into the handshake, so that it fails at the first message if these differ:
//! an address may lead to an agent of the same session that is not the intended one.
//!
//! The messages are the same on every carrier and may be split anywhere: in a TCP stream, or each in a UCX message.

use bytes::{Buf, BytesMut};
use thiserror::Error;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{self, Hello, PROTOCOL_VERSION, Secret};

/// The cipher of a link; each value is the first byte of a handshake with that cipher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cipher {
    /// AES-256-GCM, for processors that have instructions for it.
    Aes = 1,
    ChaCha = 2,
}

impl Cipher {
    pub fn of_this_machine() -> Cipher {
        #[cfg(target_arch = "x86_64")]
        let has_aes_gcm =
            std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
        #[cfg(target_arch = "aarch64")]
        let has_aes_gcm =
            std::arch::is_aarch64_feature_detected!("aes") && std::arch::is_aarch64_feature_detected!("pmull");
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let has_aes_gcm = false;
        if has_aes_gcm { Cipher::Aes } else { Cipher::ChaCha }
    }

    pub fn from_byte(byte: u8) -> Option<Cipher> {
        [Cipher::Aes, Cipher::ChaCha].into_iter().find(|cipher| *cipher as u8 == byte)
    }

    fn pattern(self) -> &'static str {
        match self {
            Cipher::Aes => "Noise_NNpsk0_25519_AESGCM_BLAKE2s",
            Cipher::ChaCha => "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s",
        }
    }
}

/// First bytes of the prologue. The protocol version is not part of the prologue, so that an error can name the peer's
/// version.
const PROLOGUE_MAGIC: &[u8] = b"wireup link\n";
/// Longest message that is accepted before the peer has proved the secret (bytes): a hello with a host name is far
/// shorter.
pub const MESSAGE_LEN_MAX: usize = 1024;

/// Facts about a link that both sides know beforehand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms<'a> {
    /// Whether frames are encrypted.
    pub encrypt: bool,
    /// Number of the agent that listens.
    pub listener: AgentId,
    /// Data added by the link's carrier.
    pub binding: &'a [u8],
}

#[derive(Error, Debug)]
pub enum HandshakeError {
    #[error("the peer does not know this run's secret, or is another agent than expected")]
    Secret,
    #[error(
        "the peer uses protocol version {theirs}, this agent {PROTOCOL_VERSION}: install the same wireup on every node"
    )]
    Version { theirs: u16 },
    #[error("a handshake message of {0} bytes is too long")]
    TooLong(usize),
    #[error("the handshake could not start: {0}")]
    Setup(snow::Error),
}

/// One side of a handshake in progress. Holds no socket.
pub struct Handshake {
    state: State,
    input: BytesMut,
}

enum State {
    /// The dialling side waits for the answer.
    Dialled(Box<snow::HandshakeState>),
    /// The listening side waits for the hello.
    Listening(Box<Expected>),
    /// The listening side has sent its answer and waits for the confirmation.
    Answered(Box<snow::TransportState>, Hello, Seal),
}

/// The terms and the secret that a hello must match.
struct Expected {
    secret: Secret,
    prologue: Vec<u8>,
}

/// The last bytes (the tag) of a hello, by which its sender has proved the secret. Any two hellos differ in these
/// bytes, except that a replayed hello is a copy of the original hello.
pub type Seal = [u8; 16];

/// The state of a handshake after some bytes.
pub enum Progress {
    /// More bytes are needed.
    Wait(Handshake),
    /// Both sides have proved the secret. `rest` are the bytes after the handshake; `noise` encrypts what follows, if
    /// that is agreed. On the listening side `peer` is the dialler's hello.
    Done { peer: Option<Hello>, rest: BytesMut, noise: Box<snow::TransportState> },
}

impl Handshake {
    /// Starts the handshake on the dialling side; the first message is appended to `output`.
    pub fn dial(
        secret: &Secret,
        terms: Terms<'_>,
        hello: &Hello,
        output: &mut Vec<u8>,
    ) -> Result<Self, HandshakeError> {
        let (cipher, prologue) = (Cipher::of_this_machine(), terms.prologue());
        let mut noise = builder(cipher, secret, &prologue)?.build_initiator().map_err(HandshakeError::Setup)?;
        output.push(cipher as u8);
        write(&peer::encode(hello), output, |payload, message| noise.write_message(payload, message))?;
        Ok(Handshake { state: State::Dialled(Box::new(noise)), input: BytesMut::new() })
    }

    /// Starts the handshake on the listening side.
    pub fn listen(secret: &Secret, terms: Terms<'_>) -> Self {
        let expected = Expected { secret: secret.clone(), prologue: terms.prologue() };
        Handshake { state: State::Listening(Box::new(expected)), input: BytesMut::new() }
    }

    /// The seal of the peer's hello, once the hello has been received: the peer either knows the secret or replays a
    /// recorded hello.
    pub fn heard(&self) -> Option<&Seal> {
        if let State::Answered(_, _, seal) = &self.state { Some(seal) } else { None }
    }

    /// Handles bytes received from the peer; replies are appended to `output`.
    ///
    /// # Errors
    /// The peer does not belong to this session: close the link.
    pub fn on_bytes(mut self, bytes: &[u8], output: &mut Vec<u8>) -> Result<Progress, HandshakeError> {
        self.input.extend_from_slice(bytes);
        while let Some(message) = self.next_message()? {
            let mut payload = [0; MESSAGE_LEN_MAX];
            match self.state {
                State::Dialled(mut noise) => {
                    let length = noise.read_message(&message, &mut payload).map_err(|_| HandshakeError::Secret)?;
                    check_version(peer::decode(&payload[..length]).map_err(|_| HandshakeError::Secret)?)?;
                    let mut transport = noise.into_transport_mode().map_err(HandshakeError::Setup)?;
                    write(&[], output, |payload, message| transport.write_message(payload, message))?;
                    let noise = Box::new(transport);
                    return Ok(Progress::Done { peer: None, rest: self.input, noise });
                }
                State::Listening(expected) => {
                    let (cipher, message) = message.split_first().ok_or(HandshakeError::Secret)?;
                    let mut noise = expected.noise(*cipher)?;
                    let length = noise.read_message(message, &mut payload).map_err(|_| HandshakeError::Secret)?;
                    let hello: Hello = peer::decode(&payload[..length]).map_err(|_| HandshakeError::Secret)?;
                    let version = peer::encode(&PROTOCOL_VERSION);
                    // A peer of another protocol version is refused only after its confirmation has arrived. The answer
                    // is sent before, because the peer reads this version from it and shows the error to its user.
                    write(&version, output, |payload, message| noise.write_message(payload, message))?;
                    let transport = noise.into_transport_mode().map_err(HandshakeError::Setup)?;
                    let seal = message.last_chunk().copied().ok_or(HandshakeError::Secret)?;
                    self.state = State::Answered(Box::new(transport), hello, seal);
                }
                State::Answered(mut transport, hello, _) => {
                    transport.read_message(&message, &mut payload).map_err(|_| HandshakeError::Secret)?;
                    check_version(hello.version)?;
                    return Ok(Progress::Done { peer: Some(hello), rest: self.input, noise: transport });
                }
            }
        }
        Ok(Progress::Wait(self))
    }

    /// The next complete message of the input. The dialler's first message is preceded by the cipher's byte.
    fn next_message(&mut self) -> Result<Option<BytesMut>, HandshakeError> {
        let before = usize::from(matches!(self.state, State::Listening(_)));
        let Some(length) = self.input.get(before..).and_then(<[u8]>::first_chunk) else { return Ok(None) };
        let length = usize::from(u16::from_le_bytes(*length));
        if length > MESSAGE_LEN_MAX {
            return Err(HandshakeError::TooLong(length));
        }
        if self.input.len() < before + 2 + length {
            return Ok(None);
        }
        let cipher = self.input.split_to(before);
        self.input.advance(2);
        let message = self.input.split_to(length);
        Ok(Some(if before == 0 { message } else { [&cipher[..], &message[..]].concat().as_slice().into() }))
    }
}

impl Terms<'_> {
    pub fn prologue(self) -> Vec<u8> {
        let mut bytes = PROLOGUE_MAGIC.to_vec();
        bytes.push(self.encrypt.into());
        bytes.extend_from_slice(&self.listener.0.to_le_bytes());
        bytes.extend_from_slice(self.binding);
        bytes
    }
}

impl Expected {
    fn noise(&self, cipher: u8) -> Result<snow::HandshakeState, HandshakeError> {
        let cipher = Cipher::from_byte(cipher).ok_or(HandshakeError::Secret)?;
        builder(cipher, &self.secret, &self.prologue)?.build_responder().map_err(HandshakeError::Setup)
    }
}

/// The Noise parameters of a handshake, for either end.
pub fn builder<'a>(
    cipher: Cipher,
    secret: &'a Secret,
    prologue: &'a [u8],
) -> Result<snow::Builder<'a>, HandshakeError> {
    let pattern = cipher.pattern().parse().map_err(HandshakeError::Setup)?;
    let builder = snow::Builder::new(pattern).prologue(prologue).and_then(|builder| builder.psk(0, &secret.0));
    builder.map_err(HandshakeError::Setup)
}

fn check_version(theirs: u16) -> Result<(), HandshakeError> {
    if theirs == PROTOCOL_VERSION { Ok(()) } else { Err(HandshakeError::Version { theirs }) }
}

/// Appends the next message of a handshake.
pub fn write(
    payload: &[u8],
    output: &mut Vec<u8>,
    encrypt: impl FnOnce(&[u8], &mut [u8]) -> Result<usize, snow::Error>,
) -> Result<(), HandshakeError> {
    let mut message = [0; MESSAGE_LEN_MAX];
    let length = encrypt(payload, &mut message).map_err(HandshakeError::Setup)?;
    output.extend_from_slice(&(length as u16).to_le_bytes());
    output.extend_from_slice(&message[..length]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::peer::Role;

    const TERMS: Terms<'_> = Terms { encrypt: false, listener: AgentId(1), binding: &[] };

    fn hello(version: u16) -> Hello {
        Hello { version, agent: AgentId(3), host: "n3".into(), pid: 7, role: Role::Direct }
    }

    fn wait(progress: Progress) -> Handshake {
        match progress {
            Progress::Wait(handshake) => handshake,
            Progress::Done { .. } => panic!("the handshake must not be done yet"),
        }
    }

    #[test]
    fn the_handshake_completes_with_bytes_split_anywhere() {
        let secret = Secret([7; 32]);
        for step in [1, 5, 1000] {
            let mut to_parent = Vec::new();
            let mut child = Handshake::dial(&secret, TERMS, &hello(PROTOCOL_VERSION), &mut to_parent).unwrap();
            let mut parent = Handshake::listen(&secret, TERMS);
            let mut to_child = Vec::new();
            for piece in to_parent.chunks(step) {
                parent = wait(parent.on_bytes(piece, &mut to_child).unwrap());
            }
            let (mut confirm, mut child_done) = (Vec::new(), false);
            for piece in to_child.chunks(step) {
                match child.on_bytes(piece, &mut confirm).unwrap() {
                    Progress::Wait(next) => child = next,
                    Progress::Done { peer: None, rest, .. } if rest.is_empty() => {
                        child_done = true;
                        break;
                    }
                    Progress::Done { .. } => panic!("the child gets no hello and no frames here"),
                }
            }
            assert!(child_done);
            confirm.extend_from_slice(b"frames");
            match parent.on_bytes(&confirm, &mut to_child).unwrap() {
                Progress::Done { peer: Some(peer), rest, .. } => {
                    assert_eq!((peer, &rest[..]), (hello(PROTOCOL_VERSION), &b"frames"[..]));
                }
                _ => panic!("the confirmation completes the handshake"),
            }
        }
    }

    #[test]
    fn a_wrong_secret_is_refused_at_the_first_message() {
        let (mut to_parent, mut out) = (Vec::new(), Vec::new());
        Handshake::dial(&Secret([1; 32]), TERMS, &hello(PROTOCOL_VERSION), &mut to_parent).unwrap();
        let parent = Handshake::listen(&Secret([2; 32]), TERMS);
        assert!(matches!(parent.on_bytes(&to_parent, &mut out), Err(HandshakeError::Secret)));
        assert!(out.is_empty(), "a stranger gets no answer");
    }

    #[test]
    fn different_terms_are_refused_at_the_first_message() {
        let secret = Secret([7; 32]);
        let others = [
            Terms { encrypt: true, ..TERMS },
            Terms { listener: AgentId(2), ..TERMS },
            Terms { binding: &[0], ..TERMS },
        ];
        for theirs in others {
            let (mut to_parent, mut out) = (Vec::new(), Vec::new());
            Handshake::dial(&secret, theirs, &hello(PROTOCOL_VERSION), &mut to_parent).unwrap();
            let parent = Handshake::listen(&secret, TERMS);
            assert!(matches!(parent.on_bytes(&to_parent, &mut out), Err(HandshakeError::Secret)));
        }
    }

    #[test]
    fn both_ciphers_are_understood_and_neither_can_be_exchanged_for_the_other() {
        let secret = Secret([7; 32]);
        for cipher in [Cipher::Aes, Cipher::ChaCha] {
            let prologue = TERMS.prologue();
            let mut child = builder(cipher, &secret, &prologue).unwrap().build_initiator().unwrap();
            let mut first = vec![cipher as u8];
            let hello = peer::encode(&hello(PROTOCOL_VERSION));
            write(&hello, &mut first, |payload, message| child.write_message(payload, message)).unwrap();
            for byte in 0..=3 {
                first[0] = byte;
                let (parent, mut answer) = (Handshake::listen(&secret, TERMS), Vec::new());
                let is_heard =
                    parent.on_bytes(&first, &mut answer).is_ok_and(|progress| wait(progress).heard().is_some());
                assert_eq!(
                    (is_heard, answer.is_empty()),
                    (byte == cipher as u8, byte != cipher as u8),
                    "{cipher:?} {byte}"
                );
            }
        }
    }

    #[test]
    fn a_replayed_hello_gets_no_further_than_the_answer() {
        let secret = Secret([7; 32]);
        let (mut to_parent, mut out) = (Vec::new(), Vec::new());
        Handshake::dial(&secret, TERMS, &hello(PROTOCOL_VERSION), &mut to_parent).unwrap();
        let parent = Handshake::listen(&secret, TERMS);
        assert!(parent.heard().is_none());
        let parent = wait(parent.on_bytes(&to_parent, &mut out).unwrap());
        assert!(parent.heard().is_some());
        assert!(matches!(parent.on_bytes(&to_parent[1..], &mut out), Err(HandshakeError::Secret)));
    }

    #[test]
    fn a_child_of_another_version_is_answered_and_then_refused() {
        let secret = Secret([7; 32]);
        let (mut to_parent, mut to_child, mut confirm) = (Vec::new(), Vec::new(), Vec::new());
        let child = Handshake::dial(&secret, TERMS, &hello(PROTOCOL_VERSION + 1), &mut to_parent).unwrap();
        let parent = wait(Handshake::listen(&secret, TERMS).on_bytes(&to_parent, &mut to_child).unwrap());
        // This child ignores the version in the answer.
        child.on_bytes(&to_child, &mut confirm).unwrap();
        let refused = parent.on_bytes(&confirm, &mut to_child);
        assert!(matches!(refused, Err(HandshakeError::Version { theirs }) if theirs == PROTOCOL_VERSION + 1));
    }

    #[test]
    fn a_child_refuses_a_parent_of_another_version() {
        let secret = Secret([7; 32]);
        let (mut to_parent, mut to_child, mut confirm) = (Vec::new(), Vec::new(), Vec::new());
        let child = Handshake::dial(&secret, TERMS, &hello(PROTOCOL_VERSION), &mut to_parent).unwrap();
        let prologue = TERMS.prologue();
        let cipher = Cipher::from_byte(to_parent[0]).unwrap();
        let mut parent = builder(cipher, &secret, &prologue).unwrap().build_responder().unwrap();
        parent.read_message(&to_parent[3..], &mut [0; MESSAGE_LEN_MAX]).unwrap();
        let version = peer::encode(&(PROTOCOL_VERSION + 1));
        write(&version, &mut to_child, |payload, message| parent.write_message(payload, message)).unwrap();
        let refused = child.on_bytes(&to_child, &mut confirm);
        assert!(matches!(refused, Err(HandshakeError::Version { theirs }) if theirs == PROTOCOL_VERSION + 1));
        assert!(confirm.is_empty());
    }

    #[test]
    fn garbage_and_long_messages_are_refused() {
        let parent = Handshake::listen(&Secret([7; 32]), TERMS);
        assert!(matches!(parent.on_bytes(b"GET / HTTP/1.1\r\n", &mut Vec::new()), Err(HandshakeError::TooLong(_))));
        let parent = Handshake::listen(&Secret([7; 32]), TERMS);
        assert!(matches!(parent.on_bytes(&[1, 4, 0, 1, 2, 3, 4], &mut Vec::new()), Err(HandshakeError::Secret)));
    }
}
