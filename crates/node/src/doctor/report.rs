//! The doctor's question to a node, and the node's answers.
//!
//! The question is a `postcard` body in a start message on standard input, as that of an agent. Each answer is a line
//! on standard output: a mark and the body in hexadecimal digits, since a user's shell may print there too. All lines
//! are repeated on the connection to the doctor, since a user's shell may also have closed standard output, which a run
//! does not need.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::net::IpAddr;
use wireup_wire::peer::{RemoteShell, bootstrap_message};

/// The prefix of our lines.
const MARK: &str = "wireup-report ";
/// Bytes in each half of a host's token: the node sends one half, the doctor the other.
pub const HALF: usize = 16;

/// The exit code of a node that has reported to the doctor; a command of another program that succeeds exits with 0.
pub const REPORTED: u8 = 92;
/// The exit code of a node that has not reached the doctor. Perhaps its report is lost, where nobody reads its output.
pub const UNCONNECTED: u8 = 91;

/// Two halves of random bytes: the first one proves that the sender was asked by the doctor, the second that it is the
/// doctor.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    pub node: [u8; HALF],
    pub doctor: [u8; HALF],
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ask {
    pub token: Token,
    /// The doctor's addresses, `ip:port`, best first.
    pub addresses: Vec<String>,
    pub interface: Option<String>,
    /// The remote shell is ssh, so `SSH_CONNECTION` is current.
    pub by_ssh: bool,
    /// The directory that ranks would work in.
    pub cwd: Vec<u8>,
    /// Time limit for everything.
    pub time_ns: u64,
    /// A host to be reached from there by the same remote shell.
    pub onward: Option<Onward>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Onward {
    pub host: String,
    pub remote_shell: RemoteShell,
    pub program: String,
}

/// One line of a node's answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Said {
    Facts(Box<Facts>),
    Back(Result<Back, String>),
    Onward(Result<(), String>),
}

/// The node has reached the doctor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Back {
    /// The address at which it reached the doctor.
    pub address: IpAddr,
    /// From the first attempt to the doctor's answer.
    pub took_ns: u64,
    /// Addresses that failed before.
    pub failed: Vec<String>,
}

/// Facts about one machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Facts {
    pub version: String,
    /// The build id, which tells builds of one version apart.
    pub build: String,
    pub arch: String,
    /// Name and release of the kernel.
    pub kernel: String,
    pub host: String,
    pub user: u32,
    /// CPUs that may be used.
    pub cpus: u32,
    pub limits: Limits,
    /// Room in `/dev/shm`; `None`: there is no `/dev/shm`.
    pub shm: Option<Space>,
    pub memory_free: Option<u64>,
    /// Addresses that children would be offered, best first.
    pub offered: Vec<Address>,
    /// The other addresses, each with the reason.
    pub left_out: Vec<(Address, String)>,
    /// Why no address is offered.
    pub nothing_offered: Option<String>,
    pub cache: Cache,
    /// The wall clock, ns since 1970.
    pub clock_ns: u64,
    /// Why ranks could not work in the directory.
    pub cwd_problem: Option<String>,
}

/// `None` in a limit: unlimited.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    pub open_files: LimitsOf,
    pub processes: LimitsOf,
    pub locked_memory: LimitsOf,
    pub core: LimitsOf,
    pub stack: LimitsOf,
    /// Processes and threads of the control group.
    pub pids_max: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LimitsOf {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

/// Sizes of a file system, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Space {
    pub total: u64,
    pub free: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Address {
    pub interface: String,
    pub ip: IpAddr,
}

/// The place where a program that is sent would be stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cache {
    pub path: String,
    pub free: Option<u64>,
    /// Why nothing could be stored there.
    pub problem: Option<String>,
}

impl Ask {
    /// The whole message.
    pub fn encode(&self) -> Vec<u8> {
        bootstrap_message(&[], &encode(self))
    }

    /// `None`: the message's body is not a question.
    pub fn decode(body: &[u8]) -> Option<Ask> {
        decode(body)
    }
}

impl Said {
    pub fn line(&self) -> String {
        let digits: String = encode(self).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{MARK}{digits}\n")
    }

    /// `None`: not one of our lines.
    pub fn parse(line: &[u8]) -> Option<Said> {
        let digits = std::str::from_utf8(line).ok()?.trim_end().strip_prefix(MARK)?.as_bytes();
        let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
        let byte = |pair: &[u8]| Some(value(*pair.first()?)? << 4 | value(*pair.get(1)?)?);
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        decode(&bytes?)
    }
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    // These types contain nothing that postcard refuses.
    postcard::to_allocvec(message).expect("plain structs are encoded")
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ask() -> Ask {
        Ask {
            token: Token { node: [1; HALF], doctor: [2; HALF] },
            addresses: vec!["10.0.0.1:7".into()],
            interface: Some("ib0".into()),
            by_ssh: true,
            cwd: b"/home".to_vec(),
            time_ns: 5,
            onward: Some(Onward {
                host: "n1".into(),
                remote_shell: RemoteShell::Ssh(vec!["ssh".into()]),
                program: "wireup".into(),
            }),
        }
    }

    #[test]
    fn requests_and_answers_round_trip_and_debug_hides_tokens() {
        assert_eq!(Ask::decode(&encode(&ask())), Some(ask()));
        assert!(!format!("{:?}", ask()).contains("[1, 1"), "tokens are not shown");
        let back = Back { address: "10.0.0.1".parse().unwrap(), took_ns: 7, failed: vec!["x".into()] };
        let said = Said::Back(Ok(back));
        assert_eq!(Said::parse(said.line().as_bytes()), Some(said));
    }

    #[test]
    fn other_shell_output_is_not_read_as_a_report() {
        for line in ["Last login: today", "wireup-report ", "wireup-report 0", "wireup-report zz", "wireup-report ffff"]
        {
            assert_eq!(Said::parse(line.as_bytes()), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic_the_decoders(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Ask::decode(&bytes);
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let _ = Said::parse(format!("{MARK}{digits}").as_bytes());
        }

        #[test]
        fn a_cut_off_question_is_none(cut in 0usize..100) {
            let bytes = encode(&ask());
            prop_assume!(cut < bytes.len());
            prop_assert_eq!(Ask::decode(&bytes[..cut]), None);
        }
    }
}
