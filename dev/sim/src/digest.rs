//! A digest of everything that happened in a run: equal runs have equal digests.
//!
//! Of a long payload only its length and its first and last bytes enter the digest, so that a blob that goes to a
//! thousand agents is not read a thousand times.

use crate::rng::mix;
use std::fmt;
use wireup_proto::io::{Input, JobEvent};
use wireup_proto::launcher_io::LauncherInput;

/// Number of bytes at each end of a payload that enter the digest.
const END_BYTES: usize = 64;

/// A digest that grows with the events of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Digest(0x5851_f42d_4c95_7f2d)
    }
}

impl Digest {
    pub fn value(self) -> u64 {
        self.0
    }

    pub fn number(&mut self, number: u64) {
        self.0 = mix(self.0.rotate_left(5) ^ number);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        if bytes.len() <= 2 * END_BYTES {
            self.words(bytes);
        } else {
            self.words(&bytes[..END_BYTES]);
            self.words(&bytes[bytes.len() - END_BYTES..]);
        }
    }

    pub fn debug(&mut self, value: &dyn fmt::Debug) {
        use fmt::Write;
        // Writing into a digest cannot fail.
        let _ = write!(self, "{value:?}");
    }

    pub fn input(&mut self, input: &Input) {
        match input {
            // Frequent inputs are added without formatting them as text; all other inputs are formatted.
            Input::LinkBytes { link, bytes } => {
                self.number(1 | u64::from(link.0) << 8);
                self.bytes(bytes);
            }
            Input::Job { event: JobEvent::ClientBytes { client, bytes }, .. } => {
                self.number(2 | u64::from(client.local.0) << 8);
                self.bytes(bytes);
            }
            Input::Job { event: JobEvent::StdioBytes { local, stream, bytes }, .. } => {
                self.number(3 | u64::from(local.0) << 8 | (*stream as u64) << 32);
                self.bytes(bytes);
            }
            Input::Job { event: JobEvent::StdioClosed { local, stream }, .. } => {
                self.number(4 | u64::from(local.0) << 8 | (*stream as u64) << 32)
            }
            Input::Job { event: JobEvent::ClientGone { client }, .. } => {
                self.number(5 | u64::from(client.local.0) << 8)
            }
            Input::Job { event: JobEvent::RankStarted { local, result: Ok(_) }, .. } => {
                self.number(6 | u64::from(local.0) << 8)
            }
            Input::Job { event: JobEvent::RankExited { local, status, .. }, .. } => {
                self.number(7 | u64::from(local.0) << 8);
                self.debug(status);
            }
            Input::Job { event: JobEvent::PmixBytes { bytes }, .. } => {
                self.number(9);
                self.bytes(bytes);
            }
            Input::Tick => self.number(8),
            _ => self.debug(input),
        }
    }

    pub fn launcher_input(&mut self, input: &LauncherInput) {
        match input {
            LauncherInput::LinkBytes { bytes, .. } | LauncherInput::Stdin { bytes } => self.bytes(bytes),
            _ => self.debug(input),
        }
    }

    fn words(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
    }
}

impl fmt::Write for Digest {
    /// The result does not depend on how the formatter splits the text.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3).rotate_left(7);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_and_both_ends_count() {
        let digest = |bytes: &[u8]| {
            let mut digest = Digest::default();
            digest.bytes(bytes);
            digest.value()
        };
        let long = vec![1; 1000];
        let (mut head, mut tail) = (long.clone(), long.clone());
        head[0] = 2;
        tail[999] = 2;
        assert_eq!(digest(&long), digest(&long.clone()));
        for other in [&head[..], &tail[..], &long[..999], &[]] {
            assert_ne!(digest(&long), digest(other));
        }
    }
}
