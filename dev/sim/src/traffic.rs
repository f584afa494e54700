//! Records the inputs of simulated agents, and counts the frames that an agent has received, for each message, from a
//! recording of its inputs. Recordings of real and of simulated agents have the same form, so that the two can be
//! compared.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use wireup_proto::AgentConfig;
use wireup_proto::io::{Input, LinkId};
use wireup_proto::replay::{Recorded, ReplayReport};
use wireup_wire::frame::{DownFrame, Frame, FrameKind, FrameReader};
use wireup_wire::ids::AgentId;
use wireup_wire::peer;
use wireup_wire::route::Routed;
use wireup_wire::talk::Control;

/// Number of frames, and bytes of their payloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Frames {
    pub frames: u64,
    pub bytes: u64,
}

impl AddAssign for Frames {
    fn add_assign(&mut self, other: Frames) {
        self.frames += other.frames;
        self.bytes += other.bytes;
    }
}

/// The frames that an agent has received, by the name of the message.
///
/// The name is the name of the frame's kind. For a control frame the name consists of the conversation and the message,
/// such as `JobUp Started`. A frame that was routed through the tree counts at its destination, as if the frame had
/// come over a direct link; [`ON_THE_WAY`] are the frames that an agent has forwarded to others.
pub type Received = BTreeMap<String, Frames>;

/// Name of routed frames that are for another agent, or that carry only an endpoint.
pub const ON_THE_WAY: &str = "Routed";

/// Name of the questions of an agent that has waited for long in a group's barrier.
pub const QUESTION: &str = "GroupDown question";
/// Bit of the `stream` of such a frame.
const ASKS: u16 = 1;

/// Counts what agent `me` has received.
///
/// # Errors
/// A link's bytes are not frames, or a frame's payload is malformed.
pub fn received(me: AgentId, inputs: impl IntoIterator<Item = Recorded>) -> Result<Received, String> {
    let (mut received, mut readers) = (Received::new(), BTreeMap::<LinkId, FrameReader>::new());
    for input in inputs {
        match input {
            Recorded::Input(_, Input::LinkUp { link, .. }) => drop(readers.insert(link, FrameReader::new())),
            Recorded::Input(_, Input::LinkBytes { link, mut bytes }) => {
                let reader = readers.get_mut(&link).ok_or_else(|| format!("{link:?} has bytes and was never up"))?;
                while let Some(frame) = reader.next(&mut bytes).map_err(|error| format!("{link:?}: {error}"))? {
                    let (name, bytes) = message(me, frame)?;
                    *received.entry(name).or_default() += Frames { frames: 1, bytes };
                }
            }
            _ => {}
        }
    }
    Ok(received)
}

/// The name of a frame's message, and the bytes of its payload.
fn message(me: AgentId, frame: Frame) -> Result<(String, u64), String> {
    let bytes = frame.payload.len() as u64;
    let malformed = |what: &dyn std::fmt::Debug| format!("a frame of kind {:?} is malformed: {what:?}", frame.kind);
    match frame.kind {
        FrameKind::Control => {
            let control: Control = peer::decode(&frame.payload).map_err(|error| malformed(&error))?;
            let text = format!("{control:?}");
            let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
            Ok((words.take(2).collect::<Vec<_>>().join(" "), bytes))
        }
        FrameKind::Routed => {
            let routed = Routed::unwrap(frame.clone()).map_err(|error| malformed(&error))?;
            match routed.frame {
                Some((_, frame)) if routed.to == me => message(me, frame),
                _ => Ok((ON_THE_WAY.to_owned(), bytes)),
            }
        }
        FrameKind::Down(DownFrame::GroupDown) if frame.stream & ASKS != 0 => Ok((QUESTION.to_owned(), bytes)),
        kind => Ok((format!("{kind:?}"), bytes)),
    }
}

/// All inputs of one simulated agent, and a summary of its outputs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recording {
    pub config: AgentConfig,
    pub inputs: Vec<Recorded>,
    pub report: ReplayReport,
}

impl Recording {
    pub fn new(config: AgentConfig) -> Self {
        Recording { config, inputs: Vec::new(), report: ReplayReport::default() }
    }

    pub fn push(&mut self, inputs: Recorded) {
        self.inputs.push(inputs);
        self.report.inputs += 1;
    }
}
