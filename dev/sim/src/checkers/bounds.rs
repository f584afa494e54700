//! Bounds: output in flight on a link stays within the link's window, and output held by an agent within the sum of its
//! windows.

use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::frame::{DownFrame, Frame, FrameKind, UpFrame};
use wireup_wire::ids::JobId;
use wireup_wire::limits::{STDIN_CHUNK_MAX, STDIN_WINDOW_BYTES, STDIO_CHUNK_MAX, STDIO_WINDOW_BYTES};

/// A chunk may be sent while any credit is left, so the last chunk may exceed the window.
const WINDOW_MAX: i64 = (STDIO_WINDOW_BYTES + STDIO_CHUNK_MAX) as i64;
const INPUT_WINDOW_MAX: i64 = (STDIN_WINDOW_BYTES + STDIN_CHUNK_MAX) as i64;

/// The bytes in flight, by link, job, stream and direction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    output: BTreeMap<(u32, u32, u16), i64>,
    input: BTreeMap<(u32, u32), i64>,
    /// Jobs whose output nobody waits for any more: such output may be sent without credit.
    unlimited: BTreeSet<u32>,
    /// Largest amount of output that was in flight on any link (bytes).
    pub output_peak: i64,
    /// Largest amount of output that was held by any agent (bytes).
    pub held_peak: usize,
}

impl Bounds {
    /// Checks the amount of output that an agent holds for all links and ranks together.
    pub fn on_held(&mut self, held_bytes: usize, fanout: u32, jobs: usize, ranks: usize) -> Result<(), String> {
        self.held_peak = self.held_peak.max(held_bytes);
        // For each job and stream: one window per child, one window for the node's own ranks, and one read of each of
        // these ranks. Labels may double the size of what was read.
        let windows = jobs * (fanout as usize + 1) * WINDOW_MAX as usize;
        let bound = 2 * (windows + ranks * 2 * STDIO_CHUNK_MAX);
        if held_bytes > bound {
            return Err(format!("holds {held_bytes} bytes of output, more than {bound}"));
        }
        Ok(())
    }

    pub fn ignore(&mut self, job: JobId) {
        self.unlimited.insert(job.0);
    }

    /// A frame is sent on a link; `from` 1 is the end farther from the root.
    pub fn on_send(&mut self, link: u32, from: usize, frame: &Frame) -> Result<(), String> {
        let bytes = frame.payload.len() as i64;
        let longest = match frame.kind {
            FrameKind::Up(UpFrame::Output) => STDIO_CHUNK_MAX,
            FrameKind::Down(DownFrame::Input) => STDIN_CHUNK_MAX,
            _ => usize::MAX,
        };
        if frame.payload.len() > longest {
            return Err(format!("a frame of {bytes} bytes of {:?} on link {link}", frame.kind));
        }
        match frame.kind {
            _ if self.unlimited.contains(&frame.job) => Ok(()),
            FrameKind::Up(UpFrame::Output) => {
                let under_way = self.output.entry((link, frame.job, frame.stream)).or_default();
                *under_way += bytes;
                self.output_peak = self.output_peak.max(*under_way);
                check(*under_way, WINDOW_MAX, link, "output")
            }
            FrameKind::Down(DownFrame::OutputCredit) => {
                *self.output.entry((link, frame.job, frame.stream)).or_default() -= i64::from(frame.arg);
                Ok(())
            }
            FrameKind::Down(DownFrame::Input) => {
                let under_way = self.input.entry((link, frame.job)).or_default();
                *under_way += bytes;
                check(*under_way, INPUT_WINDOW_MAX, link, "input")
            }
            FrameKind::Up(UpFrame::InputCredit) => {
                *self.input.entry((link, frame.job)).or_default() -= i64::from(frame.arg);
                Ok(())
            }
            // Other kinds of frames have no window.
            _ => Ok(()),
        }
        .map_err(|problem| format!("{problem}, sent by end {from}"))
    }
}

fn check(under_way: i64, most: i64, link: u32, what: &str) -> Result<(), String> {
    if under_way > most {
        return Err(format!("{under_way} bytes of {what} in flight on link {link}: more than its window"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use wireup_wire::frame::Class;

    fn frame(kind: impl Into<FrameKind>, arg: u32, payload: usize) -> Frame {
        Frame { kind: kind.into(), class: Class::Stdio, stream: 1, job: 1, arg, payload: Bytes::from(vec![0; payload]) }
    }

    #[test]
    fn only_credit_opens_the_window_again() {
        let mut bounds = Bounds::default();
        let chunk = frame(UpFrame::Output, 0, STDIO_CHUNK_MAX);
        for _ in 0..=STDIO_WINDOW_BYTES / STDIO_CHUNK_MAX {
            assert_eq!(bounds.on_send(3, 1, &chunk), Ok(()));
            assert_eq!(bounds.on_send(4, 1, &chunk), Ok(()), "another link");
        }
        assert_eq!(bounds.on_send(3, 0, &frame(DownFrame::OutputCredit, 1000, 0)), Ok(()));
        assert_eq!(bounds.on_send(3, 1, &frame(UpFrame::Output, 0, 1000)), Ok(()));
        assert!(bounds.on_send(3, 1, &frame(UpFrame::Output, 0, 1)).is_err());
        assert!(bounds.on_send(5, 1, &frame(UpFrame::Output, 0, STDIO_CHUNK_MAX + 1)).is_err(), "frame too long");
    }
}
