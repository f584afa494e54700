//! Encrypts the bootstrap message of a step, whose standard input a batch system carries as plain text.
//!
//! ```text
//!   root    fresh key ──► munge --restrict-uid ──► credential     the body is encrypted and authenticated with the key
//!   task    credential ──► unmunge ──► key, and the user who made the credential: only our own user's is accepted
//! ```
//!
//! Munge signs and encrypts with a key of the cluster that only munged can read. Any user may request a credential, but
//! munged records in it who has requested it. A credential is accepted once on each host and for a limited time, so a
//! host refuses a message that was recorded there. We encrypt the body ourselves, once for all tasks, since munge
//! accepts only 1 MiB.
//!
//! The programs of munge are called rather than its library, which a static build could not open.

use super::remote;
use super::tail::Stream;
use super::token::Token;
use crate::keeper::{Process, ProcessFds, Program, StdinKind};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rustix::process::geteuid;
use std::io::{self, Read, Write};
use std::process::{self, Child, Command, Stdio};
use std::time::{Duration, Instant};
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::Reactor;
use wireup_os::socket;
use wireup_proto::io::{ExitStatus, How, ShellId};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Bootstrap, SessionSpec, bootstrap_message};
use zeroize::Zeroizing;

/// Longest time for a call of `munge` or `unmunge`: a hundred times the time that the call takes on an idle machine.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of an answer of munge. Chosen: more than a credential of a key, or the text of an error, has.
pub const ANSWER_LEN_MAX: usize = 16 << 10;
/// The bytes before the key in a credential's payload. No payload of another program that uses munge begins so.
const LABEL: &[u8; 20] = b"wireup bootstrap key";
const KEY_LEN: usize = 32;
/// Shortest lifetime to request for a credential (s): no site limits the lifetime to less. `LIFETIME_S_MAX`: the
/// longest one, since munge grants no more.
const LIFETIME_S: u64 = 300;
const LIFETIME_S_MAX: u64 = 3600;

/// The key that encrypts one message.
pub struct MessageKey(Zeroizing<[u8; KEY_LEN]>);

impl MessageKey {
    pub fn random() -> io::Result<MessageKey> {
        Ok(MessageKey(wireup_os::random::bytes()?.into()))
    }

    /// The bytes of which munge makes a credential.
    pub fn payload(&self) -> Vec<u8> {
        [&LABEL[..], &self.0[..]].concat()
    }

    fn from_payload(payload: &[u8]) -> Option<MessageKey> {
        let key: [u8; KEY_LEN] = payload.strip_prefix(LABEL)?.try_into().ok()?;
        Some(MessageKey(key.into()))
    }

    /// Encrypts the message. The key can be used only once, since the nonce is always the same.
    pub fn seal(self, mut body: Vec<u8>) -> Vec<u8> {
        let sealed = self.cipher().seal_in_place_append_tag(nonce(), Aad::empty(), &mut body);
        sealed.expect("a bootstrap message is shorter than 256 GiB");
        body
    }

    fn open(self, mut sealed: Vec<u8>) -> Result<Vec<u8>, Unsealable> {
        let length =
            self.cipher().open_in_place(nonce(), Aad::empty(), &mut sealed).map_err(|_| Unsealable::Changed)?.len();
        sealed.truncate(length);
        Ok(sealed)
    }

    fn cipher(&self) -> LessSafeKey {
        LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &self.0[..]).expect("the key has the cipher's length"))
    }
}

fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// The program that turns a payload on its standard input into a credential for this user's processes. `valid_s`: how
/// long the credential must be valid (seconds).
pub fn program(valid_s: u64) -> Program {
    let user = format!("--restrict-uid={}", geteuid().as_raw());
    let lifetime = format!("--ttl={}", valid_s.clamp(LIFETIME_S, LIFETIME_S_MAX));
    let argv = [b"munge".to_vec(), user.into_bytes(), lifetime.into_bytes()].into();
    Program { argv, cwd: b"/".to_vec(), env: remote::environment() }
}

/// Why an encrypted message is not accepted.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum Unsealable {
    #[error(
        "{0}; see that munged runs on this node, with the cluster's key and a clock that is right (munge -n | unmunge)"
    )]
    Munge(String),
    #[error(
        "munge's credential was made by user {maker}, not by user {user}, whose job this is: something between srun \
         and this node has replaced it; tell the administrators"
    )]
    OtherUser { maker: u32, user: u32 },
    #[error(
        "the munge credential was not made by wireup: something between srun and this node has replaced it; tell the \
         administrators"
    )]
    NoKey,
    #[error("it was changed on its way; call wireup run again, and tell the administrators if that repeats")]
    Changed,
}

/// Decrypts the body of a bootstrap message that the root agent has sealed. Waits for munged, at most [`PATIENCE`].
///
/// # Errors
/// The message cannot be decrypted, or was not sealed by this user.
pub fn open(credential: &[u8], sealed: Vec<u8>) -> Result<Vec<u8>, Unsealable> {
    let answer = call(Command::new("unmunge").arg("--keys=STATUS,UID"), credential).map_err(Unsealable::Munge)?;
    let answer = Zeroizing::new(answer);
    open_with(&answer, geteuid().as_raw(), sealed)
}

/// Decrypts a message. `answer`: the output of unmunge.
fn open_with(answer: &[u8], user: u32, sealed: Vec<u8>) -> Result<Vec<u8>, Unsealable> {
    let (maker, payload) =
        read_answer(answer).ok_or_else(|| Unsealable::Munge("unmunge: its answer names no user".into()))?;
    if maker != user {
        return Err(Unsealable::OtherUser { maker, user });
    }
    MessageKey::from_payload(payload).ok_or(Unsealable::NoKey)?.open(sealed)
}

/// The user who made a credential, and its payload. An answer has the line `UID: name (number)` or `UID: number` among
/// its first lines, then an empty line, then the payload.
fn read_answer(answer: &[u8]) -> Option<(u32, &[u8])> {
    let user = value_of("UID:", answer)?;
    // A user's name may contain anything, but the number is last.
    let number = user.strip_suffix(')').and_then(|user| user.rsplit_once('(')).map_or(user, |(_, number)| number);
    Some((number.parse().ok()?, &answer[head_len(answer)? + 2..]))
}

/// The length of the header lines of an answer.
fn head_len(answer: &[u8]) -> Option<usize> {
    answer.windows(2).position(|pair| pair == b"\n\n")
}

/// The value of `key` in the header lines of an answer.
fn value_of<'a>(key: &str, answer: &'a [u8]) -> Option<&'a str> {
    let mut lines = std::str::from_utf8(&answer[..head_len(answer)?]).ok()?.lines();
    lines.find_map(|line| line.strip_prefix(key)).map(str::trim)
}

/// Calls a program with `input` on its standard input; returns what it has written.
fn call(command: &mut Command, input: &[u8]) -> Result<Vec<u8>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.map_err(|error| format!("{name}: {error}"))?;
    match converse(&mut child, input) {
        Ok((output, _, status)) if status.success() => Ok(output),
        // If a credential has expired or was used before, unmunge reports that on standard output, in the line
        // `STATUS:`.
        Ok((output, said, _)) => {
            let status = value_of("STATUS:", &output).filter(|_| said.trim().is_empty());
            Err(failed(&name, status.unwrap_or(&said)))
        }
        Err(error) => {
            let _ = child.kill().and_then(|()| child.wait());
            Err(format!("{name}: {error}"))
        }
    }
}

/// The message about a failed program of munge. `said`: its standard error.
pub fn failed(name: &str, said: &str) -> String {
    format!("{name}: {}", said.trim().lines().next().unwrap_or("no reason given"))
}

/// Writes `input` to the program, and returns its output, its standard error and its exit status, all within
/// [`PATIENCE`].
fn converse(child: &mut Child, input: &[u8]) -> io::Result<(Vec<u8>, String, process::ExitStatus)> {
    if let Some(mut stdin) = child.stdin.take() {
        // This does not block, since the input is shorter than a pipe's buffer. An error is ignored: a program that has
        // ended reports why.
        let _ = stdin.write_all(input);
    }
    let until = Instant::now() + PATIENCE;
    let output = child.stdout.take().map_or(Ok(Vec::new()), |stdout| read_all(stdout, until))?;
    let said = child.stderr.take().map_or(Ok(Vec::new()), |stderr| read_all(stderr, until))?;
    while Instant::now() < until {
        if let Some(status) = child.try_wait()? {
            return Ok((output, String::from_utf8_lossy(&said).into_owned(), status));
        }
        // The program has closed its output streams. Munge's programs do that only by exiting, so it ends soon.
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Everything up to the end of the stream, which must come before `until`.
fn read_all(mut stream: impl Read + std::os::fd::AsFd, until: Instant) -> io::Result<Vec<u8>> {
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    loop {
        if !socket::wait(&stream, true, false, Some(until.saturating_duration_since(Instant::now())))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match stream.read(&mut part)? {
            0 => return Ok(all),
            read => all.extend_from_slice(&part[..read]),
        }
        if all.len() > ANSWER_LEN_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// A message that munge encrypts, as a process of the shells' keeper, so that it does not block the agent's main loop.
pub struct Sealing {
    agents: Vec<AgentId>,
    how: How,
    bootstrap: Box<Bootstrap>,
    key: MessageKey,
    /// Output of munge so far.
    credential: Vec<u8>,
    output: Stream,
    /// Time at which munge is killed because it has not answered (ns); `u64::MAX`: it was killed for that.
    pub until_ns: u64,
    /// Whether the step was cancelled while munge encrypts its message: then the step is not started.
    pub is_stopped: bool,
}

/// A step whose bootstrap message is complete, so that it can be started.
pub struct Sealed {
    pub agents: Vec<AgentId>,
    pub how: How,
    pub session: SessionSpec,
    pub message: Vec<u8>,
    pub problem: Option<NotSealed>,
}

/// Why a message is not encrypted.
pub enum NotSealed {
    /// There is no munge on this machine.
    NoMunge(String),
    /// Munge has failed, perhaps because somebody keeps it from answering.
    Failed(String),
}

impl Sealing {
    /// Starts to encrypt a step's message. Also returns the process to start, and its program.
    pub fn start(
        shell: ShellId,
        agents: Vec<AgentId>,
        how: How,
        bootstrap: Box<Bootstrap>,
    ) -> io::Result<(Sealing, Process, Program)> {
        let key = MessageKey::random()?;
        let process = Process { stdin: StdinKind::Bytes(key.payload()), ..Process::new(shell.0) };
        let program = program(bootstrap.session.start_timeout_ns / 1_000_000_000);
        let until_ns = monotonic_ns().saturating_add(PATIENCE.as_nanos() as u64);
        let (credential, output) = (Vec::new(), Stream::default());
        Ok((Sealing { agents, how, bootstrap, key, credential, output, until_ns, is_stopped: false }, process, program))
    }

    pub fn on_started(&mut self, shell: ShellId, fds: &mut ProcessFds, reactor: &Reactor) {
        self.output = Stream::watched(fds.stdout.take(), Token::StepOut(shell).pack(), reactor);
    }

    pub fn on_output(&mut self, reactor: &Reactor) {
        let credential = &mut self.credential;
        self.output.read(reactor, |piece| {
            // An output that is too long is no credential.
            let room = (ANSWER_LEN_MAX + 1).saturating_sub(credential.len());
            credential.extend_from_slice(&piece[..piece.len().min(room)]);
        });
    }

    /// Notes that munge has been killed because it took too long.
    pub fn on_late(&mut self) {
        self.until_ns = u64::MAX;
    }

    /// Munge has exited; `stderr`: its standard error. `None`: the step is not wanted any more.
    pub fn on_exited(mut self, status: ExitStatus, stderr: &str, reactor: &Reactor) -> Option<Sealed> {
        self.on_output(reactor);
        self.output.close(reactor);
        let problem = match status {
            ExitStatus::Exited(0) if (1..=ANSWER_LEN_MAX).contains(&self.credential.len()) => None,
            ExitStatus::Exited(0) => {
                Some("munge: its answer is no credential (is it another program of that name?)".to_owned())
            }
            ExitStatus::Signalled { .. } if self.until_ns == u64::MAX => {
                Some(format!("munge: no answer in {} s; is munged running?", PATIENCE.as_secs()))
            }
            ExitStatus::Exited(_) | ExitStatus::Signalled { .. } => Some(failed("munge", stderr)),
        };
        self.finish(problem.map(NotSealed::Failed))
    }

    /// Makes the step's message, after munge has exited or could not be started. With a `problem` the message is not
    /// encrypted. Returns `None` if the step is not wanted any more.
    pub fn finish(self, problem: Option<NotSealed>) -> Option<Sealed> {
        let body = self.bootstrap.encode_body();
        let message = match &problem {
            None => bootstrap_message(self.credential.trim_ascii_end(), &self.key.seal(body)),
            Some(_) => bootstrap_message(&[], &body),
        };
        let Sealing { agents, how, bootstrap, is_stopped, .. } = self;
        (!is_stopped).then_some(Sealed { agents, how, session: bootstrap.session, message, problem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: u32 = 1000;

    /// An answer of unmunge, and a message sealed with the key in it.
    fn sealed(maker: &str, body: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let key = MessageKey([7; KEY_LEN].into());
        let head = format!("STATUS:          Success (0)\nUID:              {maker}\n\n");
        let answer = [head.as_bytes(), &key.payload()].concat();
        (answer, key.seal(body.to_vec()))
    }

    #[test]
    fn a_message_is_opened_only_with_a_credential_of_our_own_user() {
        for maker in ["alice (1000)", "1000", "??? (1000)", "odd (0) (1000)"] {
            let (answer, message) = sealed(maker, b"jobs");
            assert_eq!(open_with(&answer, USER, message), Ok(b"jobs".to_vec()), "{maker}");
        }
        for (maker, uid) in [("root (0)", 0), ("mallory (1001)", 1001), ("(1000) (1001)", 1001)] {
            let (answer, message) = sealed(maker, b"jobs");
            assert_eq!(open_with(&answer, USER, message), Err(Unsealable::OtherUser { maker: uid, user: USER }));
        }
        for maker in ["", "alice", "alice ()", "-1"] {
            let (answer, message) = sealed(maker, b"jobs");
            assert!(matches!(open_with(&answer, USER, message), Err(Unsealable::Munge(_))), "{maker}");
        }
    }

    #[test]
    fn a_message_that_was_changed_or_replaced_is_refused() {
        let (answer, message) = sealed("1000", b"jobs");
        assert!(!message.windows(4).any(|part| part == b"jobs"), "it is encrypted");
        for index in 0..message.len() {
            let mut changed = message.clone();
            changed[index] ^= 1;
            assert_eq!(open_with(&answer, USER, changed), Err(Unsealable::Changed), "byte {index}");
            assert_eq!(open_with(&answer, USER, message[..index].to_vec()), Err(Unsealable::Changed), "cut at {index}");
        }
        let of_other_key = MessageKey([8; KEY_LEN].into()).seal(b"jobs".to_vec());
        assert_eq!(open_with(&answer, USER, of_other_key), Err(Unsealable::Changed));
    }

    /// Other programs of the same user request credentials of munge too, and others may know what those contain.
    #[test]
    fn a_credential_for_something_else_is_no_key() {
        let (_, message) = sealed("1000", b"jobs");
        let key = [7; KEY_LEN];
        for payload in [&key[..], b"wireup bootstrap key", &[LABEL.as_slice(), &key, &[0]].concat()] {
            let answer = [b"UID: 1000\n\n", payload].concat();
            assert_eq!(open_with(&answer, USER, message.clone()), Err(Unsealable::NoKey));
        }
    }

    #[test]
    fn a_program_that_fails_or_is_missing_is_named() {
        let script = |text: &str| call(Command::new("sh").args(["-c", text]), b"input");
        assert_eq!(script("cat"), Ok(b"input".to_vec()));
        assert_eq!(script("echo why >&2; exit 3"), Err("sh: why".into()));
        let replayed = script("printf 'STATUS:   Replayed credential (17)\\nUID: 1000\\n\\npayload'; exit 17");
        assert_eq!(replayed, Err("sh: Replayed credential (17)".into()));
        let missing = call(&mut Command::new("no-such-munge"), b"");
        assert!(missing.is_err_and(|problem| problem.starts_with("no-such-munge: ")));
    }
}
