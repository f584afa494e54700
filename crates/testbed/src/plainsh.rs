//! The plain remote shell: `rsh` without its ports, names and rights, and without any cryptography.
//!
//! A client sends one command, then its standard input within a window that the daemon grants; the daemon sends
//! output and errors, and last the exit code. Frames both ways: a kind (1 byte), the payload's length (u32, little
//! endian), the payload. As with ssh, a call ends when the command has left and nobody holds its output any more; a
//! client that goes away takes the command's process group along.
//!
//! There is no way to start the daemon but as a part of a testbed: its network cannot be reached from outside.
pub mod client;
pub mod daemon;

pub const PORT: u16 = 7077;
/// Payloads on the wire are no longer than this (chosen).
const PAYLOAD_MAX: usize = 64 * 1024;
/// Standard input that may be under way and not yet taken by the command (chosen).
const WINDOW: usize = 1024 * 1024;
/// Longest command line: what the kernel takes as one argument.
const COMMAND_MAX: usize = 128 * 1024;
const HEADER: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    /// Client: the command line.
    Command = b'C',
    /// Client: standard input; empty means its end.
    Input = b'I',
    /// Daemon: so many bytes of standard input (u32) were taken.
    Taken = b'T',
    Output = b'O',
    Errors = b'E',
    /// Daemon: exit code (u32).
    Exit = b'X',
    /// Daemon: the command could not be started, a sentence.
    Failure = b'F',
}

impl Kind {
    const ALL: [Kind; 7] =
        [Kind::Command, Kind::Input, Kind::Taken, Kind::Output, Kind::Errors, Kind::Exit, Kind::Failure];
}

fn put_frame(bytes: &mut Vec<u8>, kind: Kind, payload: &[u8]) {
    bytes.push(kind as u8);
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(payload);
}

#[derive(Debug, PartialEq, Eq)]
struct Malformed;

/// A frame's kind, payload and whole size.
type Frame<'a> = (Kind, &'a [u8], usize);

/// The first frame of `bytes`, or `None` if it is not complete yet.
fn first_frame(bytes: &[u8]) -> Result<Option<Frame<'_>>, Malformed> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
    let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == header[0]).ok_or(Malformed)?;
    let length = u32::from_le_bytes([header[1], header[2], header[3], header[4]]) as usize;
    if length > COMMAND_MAX {
        return Err(Malformed);
    }
    Ok(rest.get(..length).map(|payload| (kind, payload, HEADER + length)))
}

fn number(payload: &[u8]) -> u32 {
    payload.try_into().map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_whole_or_awaited_or_refused() {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, Kind::Command, b"true");
        put_frame(&mut bytes, Kind::Input, b"");
        for end in 0..HEADER + 4 {
            assert_eq!(first_frame(&bytes[..end]), Ok(None));
        }
        assert_eq!(first_frame(&bytes), Ok(Some((Kind::Command, &b"true"[..], HEADER + 4))));
        assert_eq!(first_frame(&bytes[HEADER + 4..]), Ok(Some((Kind::Input, &b""[..], HEADER))));
        assert_eq!(first_frame(b"?\0\0\0\0"), Err(Malformed));
        assert_eq!(first_frame(b"C\xff\xff\xff\xff"), Err(Malformed));
    }
}
