//! The plain remote shell: like `rsh`, but without its ports, names and rights, and without any cryptography.
//!
//! A client sends one command, then standard input within a window that the daemon grants; the daemon sends output and
//! errors, and last the exit code. Frames in both directions have a kind (1 byte), the payload's length (u32, little
//! endian), and the payload. As with ssh, a call ends when the command has exited and no process holds its output any
//! more; if the client disconnects, the command's process group is ended.
//!
//! The daemon can be started only as a part of a testbed, whose network cannot be reached from outside.
pub mod client;
pub mod daemon;

pub const PORT: u16 = 7077;
/// Longest payload that is sent (chosen).
const PAYLOAD_MAX: usize = 64 * 1024;
/// Standard input that may be in transit and not yet taken by the command (chosen).
const WINDOW: usize = 1024 * 1024;
/// Longest command line: the longest single argument that the kernel accepts.
const COMMAND_MAX: usize = 128 * 1024;
const HEADER: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    /// From the client: the command line.
    Command = b'C',
    /// From the client: standard input; empty means its end.
    Input = b'I',
    /// From the daemon: the number of bytes of standard input (u32) that were taken.
    Taken = b'T',
    Output = b'O',
    Errors = b'E',
    /// From the daemon: the exit code (u32).
    Exit = b'X',
    /// From the daemon: the command could not be started; the payload is a message.
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

/// A frame's kind, payload and total size.
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
    fn frames_are_complete_incomplete_or_refused() {
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
