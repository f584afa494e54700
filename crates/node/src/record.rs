//! Writes and reads recordings of an agent's inputs, which the simulator replays bit for bit.
//!
//! A file contains the agent's configuration and then every input with its time until the agent ends; each is a 4-byte
//! little-endian length and a `postcard` body. It contains the job's environment and the ranks' output, so only its
//! owner can read it.

use crate::remedy::Advised;
use serde::{Deserialize, Serialize};
use std::env::consts::ARCH;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use wireup_os::output_file::{self, Existing};
use wireup_proto::io::Output;
use wireup_proto::replay::Recorded;
use wireup_proto::{AgentConfig, Born, OutputDigest};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{self, SessionSpec};
use wireup_wire::session::SessionSnapshot;

/// Longest record in a file (bytes). Chosen: more than one read of a link returns.
const RECORD_LEN_MAX: usize = 128 << 20;

/// File mode of a recording: only its owner can read it.
const OWNER_ONLY: u32 = 0o600;

/// The first record of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Header {
    pub agent: AgentId,
    pub session: SessionSpec,
    pub born: Born,
    /// Addresses of the parent, as in the configuration.
    pub parent: Vec<String>,
    pub snapshot: SessionSnapshot,
}

impl From<&AgentConfig> for Header {
    fn from(config: &AgentConfig) -> Header {
        // `arch` is not recorded, since a replay uses the architecture of its own machine.
        let AgentConfig { agent, session, born, parent, snapshot, arch: _ } = config.clone();
        Header { agent, session, born, parent, snapshot }
    }
}

impl From<Header> for AgentConfig {
    fn from(Header { agent, session, born, parent, snapshot }: Header) -> AgentConfig {
        AgentConfig { agent, session, born, parent, snapshot, arch: Some(ARCH) }
    }
}

/// Records an agent's inputs; the default recorder records nothing. If writing fails, for example because the disk is
/// full, the recording ends, and the job goes on.
#[derive(Default)]
pub struct Recorder {
    file: Option<BufWriter<File>>,
    directory: PathBuf,
    asked: OutputDigest,
    written: OutputDigest,
}

impl Recorder {
    /// Creates `DIR/agent-N.rec`; an older file is replaced, so that no process has it open already.
    pub fn create(directory: &Path, header: &Header) -> io::Result<Recorder> {
        drop(output_file::make_folder(directory)?);
        let path = directory.join(format!("agent-{}.rec", header.agent));
        let mut file = BufWriter::new(output_file::open(&path, Existing::Replace, OWNER_ONLY)?);
        write(&mut file, header)?;
        Ok(Recorder { file: Some(file), directory: directory.to_owned(), ..Recorder::default() })
    }

    pub fn record(&mut self, entry: impl FnOnce() -> Recorded) {
        self.try_to(|file| write(file, &entry()));
    }

    /// Adds an output of the state machine to the digest.
    pub fn on_output(&mut self, output: &Output) {
        if self.file.is_some() {
            self.asked.add(output);
        }
    }

    /// Writes what has been recorded so far. Call it when the state machine has no outputs left and before the agent
    /// sleeps, so that after a kill only the last turn is missing.
    pub fn flush(&mut self) {
        let asked = self.asked;
        if std::mem::replace(&mut self.written, asked) != asked {
            self.record(|| Recorded::Asked(asked));
        }
        self.try_to(BufWriter::flush);
    }

    fn try_to(&mut self, act: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        if let Some(file) = &mut self.file
            && let Err(error) = act(file)
        {
            self.file = None;
            let (folder, error) = (self.directory.display(), Advised(&error));
            // Nothing can be done if the reader of standard error is gone.
            let _ =
                writeln!(io::stderr(), "wireup: the recording in {folder} is incomplete and not continued: {error}");
        }
    }
}

fn write(file: &mut impl Write, record: &impl Serialize) -> io::Result<()> {
    let body = peer::encode(record);
    file.write_all(&(body.len() as u32).to_le_bytes())?;
    file.write_all(&body)
}

/// A recording being read.
pub struct Recording<R = BufReader<File>> {
    pub header: Header,
    input: R,
}

impl Recording {
    /// # Errors
    /// The file cannot be read, or is not a recording of this version.
    pub fn open(path: &Path) -> io::Result<Recording> {
        Recording::read(BufReader::new(File::open(path)?))
    }
}

impl<R: Read> Recording<R> {
    /// # Errors
    /// The bytes cannot be read, or are not a recording of this version.
    pub fn read(mut input: R) -> io::Result<Recording<R>> {
        let body = read_record(&mut input)?.ok_or_else(|| io::Error::other("the recording is empty"))?;
        let header = peer::decode(&body).map_err(not_ours)?;
        Ok(Recording { header, input })
    }
}

impl<R: Read> Iterator for Recording<R> {
    type Item = io::Result<Recorded>;

    /// The next record. An incomplete last record, left by an agent that was killed, ends the recording.
    fn next(&mut self) -> Option<Self::Item> {
        let body = read_record(&mut self.input).transpose()?;
        Some(body.and_then(|body| peer::decode(&body).map_err(not_ours)))
    }
}

fn not_ours(_: peer::PeerError) -> io::Error {
    io::Error::other("not a recording of this version of wireup")
}

fn read_record(file: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match file.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > RECORD_LEN_MAX {
        return Err(io::Error::other("the recording is damaged: a record is too long"));
    }
    let mut body = Vec::new();
    file.take(length as u64).read_to_end(&mut body)?;
    Ok((body.len() == length).then_some(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, lchown};
    use wireup_proto::Instant;
    use wireup_proto::io::Input;
    use wireup_wire::peer::LinkOptions;

    fn header() -> Header {
        let session = SessionSpec {
            name: "s".into(),
            fanout: 2,
            shells_max: 1,
            links: LinkOptions { node_timeout_ns: 1, ..LinkOptions::default() },
            start_timeout_ns: 1,
            ..SessionSpec::default()
        };
        Header::from(&AgentConfig::new(AgentId(3), session, Born::default()))
    }

    #[test]
    fn a_recording_is_private_to_its_owner_and_follows_no_symbolic_link_of_others() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let path = directory.join("agent-3.rec");
        fs::write(&path, "older").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        drop(Recorder::create(directory, &header()).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Recording::open(&path).unwrap().header, header());

        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root can make a link of another user");
            return;
        }
        fs::set_permissions(directory, Permissions::from_mode(0o1777)).unwrap();
        let precious = directory.join("precious");
        fs::write(&precious, "precious").unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        lchown(&path, Some(61_002), None).unwrap();
        assert!(Recorder::create(directory, &header()).is_err());
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    }

    #[test]
    fn a_recording_that_cannot_be_continued_ends() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut recorder = Recorder { file: Some(BufWriter::new(full)), ..Recorder::default() };
        recorder.record(|| Recorded::Input(Instant(1), Input::Tick));
        recorder.flush();
        assert!(recorder.file.is_none());
        recorder.record(|| panic!("nothing is recorded any more"));
        recorder.flush();
    }
}
