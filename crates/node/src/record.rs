//! Recordings: what an agent was told, written at the rim, to be replayed by the simulator bit for bit.
//!
//! A file holds the agent's configuration and then, until it ends, every input with its time, each as a 4-byte
//! little-endian length and a `postcard` body. It contains the job's environment and whatever the ranks wrote; it is
//! readable by its owner alone.

use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use wireup_proto::io::{Input, Output};
use wireup_proto::{Born, Instant, OutputDigest};
use wireup_wire::ids::AgentId;
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{self, SessionSpec};

/// Longest record: a read of a link, with room.
const RECORD_LEN_MAX: usize = 128 << 20;

/// First record of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Header {
    pub agent: AgentId,
    pub session: SessionSpec,
    pub born: Born,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// A job of the bootstrap message.
    Launch(Instant, JobSpec),
    Input(Instant, Input),
    /// What the machine had asked for by then.
    Asked(OutputDigest),
}

pub struct Recorder {
    file: BufWriter<File>,
    asked: OutputDigest,
    written: OutputDigest,
}

impl Recorder {
    /// Creates `DIR/agent-N.rec`; an older one is replaced.
    pub fn create(directory: &Path, header: &Header) -> io::Result<Recorder> {
        std::fs::create_dir_all(directory)?;
        let path = directory.join(format!("agent-{}.rec", header.agent));
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let mut recorder =
            Recorder { file: BufWriter::new(file), asked: OutputDigest::default(), written: OutputDigest::default() };
        recorder.write(header)?;
        Ok(recorder)
    }

    pub fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        self.write(entry)
    }

    /// Something that the machine asked for.
    pub fn on_output(&mut self, output: &Output) {
        self.asked.add(output);
    }

    /// To be called when the machine has nothing to ask for and before the agent sleeps, so that a killed agent leaves
    /// all but its last turn.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.written != self.asked {
            self.written = self.asked;
            self.write(&Entry::Asked(self.asked))?;
        }
        self.file.flush()
    }

    fn write(&mut self, record: &impl Serialize) -> io::Result<()> {
        let body = peer::encode(record);
        self.file.write_all(&(body.len() as u32).to_le_bytes())?;
        self.file.write_all(&body)
    }
}

/// A recording being read.
pub struct Recording {
    pub header: Header,
    file: BufReader<File>,
}

impl Recording {
    /// # Errors
    /// The file cannot be read, or is no recording of this version.
    pub fn open(path: &Path) -> io::Result<Recording> {
        let mut file = BufReader::new(File::open(path)?);
        let body = read_record(&mut file)?.ok_or_else(|| io::Error::other("the recording is empty"))?;
        let header = peer::decode(&body).map_err(not_ours)?;
        Ok(Recording { header, file })
    }
}

impl Iterator for Recording {
    type Item = io::Result<Entry>;

    /// A last record that was cut short (the agent was killed) ends the recording.
    fn next(&mut self) -> Option<Self::Item> {
        let body = read_record(&mut self.file).transpose()?;
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
        return Err(io::Error::other("a record is longer than any that wireup writes"));
    }
    let mut body = vec![0; length];
    match file.read_exact(&mut body) {
        Ok(()) => Ok(Some(body)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}
