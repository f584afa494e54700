//! Files in which ranks write why they fail, one for each rank of a job on this node.

use crate::agent::directory::Directory;
use crate::keeper::Process;
use crate::spawn_error::spawn_error;
use bytes::Bytes;
use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;
use wireup_wire::ids::LocalRank;
use wireup_wire::limits::RANK_ERROR_BYTES_MAX;
use wireup_wire::peer::{SpawnError, SpawnStep};

pub struct ErrorFiles(Directory);

impl ErrorFiles {
    /// # Errors
    /// The kernel gives no random number.
    pub fn new() -> Result<ErrorFiles, SpawnError> {
        let failed = |error| spawn_error(SpawnStep::Cwd, "a random name for the directory of error files", &error);
        Directory::new().map(ErrorFiles).map_err(failed)
    }

    /// The directory of the files, which must be removed when the job has ended.
    pub fn directory(&self) -> Vec<u8> {
        self.0.bytes()
    }

    /// Makes the directory, and puts the path of each process's file into its variable `variable`. Call it only after
    /// the keeper got `Request::RemoveAtEnd` for the directory.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn make(&mut self, variable: &str, processes: &mut [Process]) -> Result<(), SpawnError> {
        let made = self.0.make();
        made.map_err(|error| {
            spawn_error(SpawnStep::Cwd, format!("the directory {}", self.0.path().display()), &error)
        })?;
        for (local, process) in (0..).map(LocalRank).zip(processes) {
            process.env.push(format!("{variable}={}", self.path(local).display()).into_bytes());
        }
        Ok(())
    }

    fn path(&self, local: LocalRank) -> PathBuf {
        self.0.path().join(format!("error.{local}.json"))
    }

    /// What a rank has written, and when (ns since 1970); `None`: nothing.
    pub fn read(&self, local: LocalRank) -> Option<(u64, Bytes)> {
        self.try_read(local).ok().flatten()
    }

    fn try_read(&self, local: LocalRank) -> io::Result<Option<(u64, Bytes)>> {
        // The rank may have put anything in the file's place, even a FIFO, which would block the open.
        let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(self.path(local))?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(None);
        }
        let written = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut text = Vec::new();
        file.take(RANK_ERROR_BYTES_MAX as u64).read_to_end(&mut text)?;
        Ok((!text.is_empty()).then(|| (written.as_nanos() as u64, text.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_process_is_told_its_file_and_what_it_writes_there_is_read() {
        let mut files = ErrorFiles::new().unwrap();
        let mut processes = [Process::new(0), Process::new(1)];
        files.make("ERROR_FILE", &mut processes).unwrap();
        let path = files.path(LocalRank(1));
        assert_eq!(processes[1].env, [format!("ERROR_FILE={}", path.display()).into_bytes()]);
        assert_eq!(files.read(LocalRank(1)), None, "it has written nothing");
        fs::write(&path, "{}").unwrap();
        let (at_ns, text) = files.read(LocalRank(1)).unwrap();
        assert!(at_ns > 1_000_000_000_000_000_000 && text == "{}");
        fs::write(&path, vec![b'x'; RANK_ERROR_BYTES_MAX + 1]).unwrap();
        assert_eq!(files.read(LocalRank(1)).unwrap().1.len(), RANK_ERROR_BYTES_MAX);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert_eq!(files.read(LocalRank(1)), None, "it is no file of its own");
        fs::remove_dir_all(files.0.path()).unwrap();
    }
}
