//! Reads standard input with a timeout between bytes, for a process that a remote shell or a batch system has started.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Duration;

/// Longest wait for the next byte if a remote shell has started this process. The bytes follow the command at once; if
/// the network fails in between, sshd would keep the connection open for hours.
pub const SILENCE_MAX: Duration = Duration::from_secs(10);

pub struct ReadTimeout<F> {
    input: F,
    silence_max: Duration,
}

impl<F: AsFd> ReadTimeout<F> {
    pub fn new(input: F, silence_max: Duration) -> Self {
        ReadTimeout { input, silence_max }
    }
}

impl<F: AsFd> Read for ReadTimeout<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match wireup_os::socket::wait(&self.input, true, false, Some(self.silence_max))? {
            true => Ok(rustix::io::read(&self.input, buffer)?),
            false => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_silent_input_times_out_after_its_bytes_are_read() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut input = ReadTimeout { input: reader, silence_max: Duration::from_millis(1) };
        writer.write_all(b"abc").unwrap();
        let mut read = [0; 3];
        input.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"abc");
        assert_eq!(input.read(&mut read).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(writer);
        // A process forked by another test may hold the other end for a moment.
        input.silence_max = SILENCE_MAX;
        assert_eq!(input.read(&mut read).unwrap(), 0);
    }
}
