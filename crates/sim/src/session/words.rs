//! The text of a trace.

use wireup_wire::frame::{Frame, Kind};
use wireup_wire::peer::{self, Control};
use wireup_wire::route::Routed;

/// A frame as text for a trace.
pub fn in_words(frame: &Frame) -> String {
    let Frame { kind, stream, job, arg, payload, .. } = frame;
    match kind {
        Kind::Control => match peer::decode(payload) {
            Ok(Control::Start { newest, live, .. }) => format!("job {job} Start, newest {newest}, live {live:?}"),
            Ok(message) => format!("job {job} {message:?}"),
            Err(error) => format!("job {job} {error}"),
        },
        Kind::Routed => match Routed::unwrap(frame.clone()) {
            Ok(Routed { to, from, incarnations: _, endpoint, frame }) => {
                let offers = if endpoint.is_some() { ", an endpoint" } else { "" };
                let frame = frame.map(|(number, frame)| format!("number {number}: {}", in_words(&frame)));
                format!("job {job} Routed {from} -> {to}{offers} {}", frame.unwrap_or_default())
            }
            Err(error) => format!("job {job} {error}"),
        },
        kind => format!("job {job} {kind:?} {stream} {arg}"),
    }
}
