//! The states of one rank's PMI conversation.
//!
//! ```text
//!            init 1.x             │ init 1.x        fence
//!   Fresh ─────────────────────► Ready ◄────────► Fenced
//!     │ init 2.0       fullinit ▲  │    release      │
//!     └──────────► Greeted ─────┘  │ finalize        │
//!                                  ▼                 │
//!   any ── socket closed ──► Closed ◄── Finalized    │ socket closed
//!                              ▲─────────────────────┘
//! ```
//! Sources: the PMI-1 and PMI-2 wire protocols; a finalized client may keep its socket open until it exits. MPICH sends
//! init 1.x again, and no finalize before, when a program begins another session of MPI-4; Hydra answers each.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The client has sent no message.
    Fresh,
    /// PMI-2 was agreed on, and the full init has not arrived.
    Greeted,
    Ready,
    /// The rank waits in a fence; other requests are still answered.
    Fenced,
    Finalized,
    Closed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    Init1,
    Init2,
    FullInit,
    /// A request that needs an initialised client.
    Ask,
    Fence,
    Release,
    Finalize,
    Close,
}

/// The event is not allowed in this state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

impl State {
    pub fn next(self, event: Event) -> Result<State, Refused> {
        match (self, event) {
            (State::Closed, _) => Err(Refused),
            (_, Event::Close) => Ok(State::Closed),
            (State::Fresh | State::Ready, Event::Init1) => Ok(State::Ready),
            (State::Fresh, Event::Init2) => Ok(State::Greeted),
            (State::Greeted, Event::FullInit) => Ok(State::Ready),
            (State::Ready | State::Fenced, Event::Ask) => Ok(self),
            (State::Ready, Event::Fence) => Ok(State::Fenced),
            (State::Fenced, Event::Release) => Ok(State::Ready),
            (State::Ready, Event::Finalize) => Ok(State::Finalized),
            (
                State::Fresh | State::Greeted | State::Ready | State::Fenced | State::Finalized,
                Event::Init1
                | Event::Init2
                | Event::FullInit
                | Event::Ask
                | Event::Fence
                | Event::Release
                | Event::Finalize,
            ) => Err(Refused),
        }
    }

    /// Whether the rank has called init and not finalize: other ranks may rely on it.
    pub fn is_member(self) -> bool {
        matches!(self, State::Greeted | State::Ready | State::Fenced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_and_event_is_as_drawn() {
        let events = [
            Event::Init1,
            Event::Init2,
            Event::FullInit,
            Event::Ask,
            Event::Fence,
            Event::Release,
            Event::Finalize,
            Event::Close,
        ];
        let mut picture = String::from("            Init1 Init2 Full Ask Fence Rel Fin Close\n");
        let states = [State::Fresh, State::Greeted, State::Ready, State::Fenced, State::Finalized, State::Closed];
        for state in states {
            picture += &format!("{:<12}", format!("{state:?}"));
            for event in events {
                let cell = match state.next(event) {
                    Ok(State::Fresh) => 'f',
                    Ok(State::Greeted) => 'g',
                    Ok(State::Ready) => 'R',
                    Ok(State::Fenced) => 'W',
                    Ok(State::Finalized) => 'F',
                    Ok(State::Closed) => 'C',
                    Err(Refused) => '.',
                };
                picture.push(cell);
            }
            picture.push('\n');
        }
        let drawn = "            Init1 Init2 Full Ask Fence Rel Fin Close
Fresh       Rg.....C
Greeted     ..R....C
Ready       R..RW.FC
Fenced      ...W.R.C
Finalized   .......C
Closed      ........
";
        assert_eq!(picture, drawn);
    }
}
