//! The states of this node's server process.
//!
//! ```text
//!          Start            Ready           RanksGone            End             Gone
//!   None ────────► Starting ──────► Serving ─────────► Emptying ─────► Ending ─────────► Gone
//!     │ Hold          ▲  │ Kill        │ Kill             │ Kill          │ Kill          ▲
//!     ▼        Start  │  └─────────────┴────────┬─────────┴───────────────┘               │
//!    Held ────────────┘                         ▼                      Gone               │
//!     └───────────────────────────────────►  Killed ──────────────────────────────────────┘
//!                      Kill
//! ```
//!
//! `Held`: the process runs, and waits until the addresses of all ranks are known, however long other nodes take to
//! start. The process is killed when it does not start in time, violates the protocol or does not exit in time, and
//! when the job ends before the process is ready. `Gone` may occur in every state: the process has ended, or could not
//! be started. In `Emptying`, the data of its ranks is fetched for other nodes. The end of a killed process is awaited,
//! but not forever.

use crate::time::Instant;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// No process was started: there are no local ranks.
    #[default]
    None,
    /// The process waits for the addresses of all ranks.
    Held,
    /// The process must be ready by `until`.
    Starting { until: Instant },
    /// The process serves the ranks.
    Serving,
    /// No local rank is left; the ranks' data is being fetched from the process.
    Emptying,
    /// The process was told to exit, and must have exited by `until`.
    Ending { until: Instant },
    /// The process was killed; its end is awaited until `until`.
    Killed { until: Instant },
    /// The process has ended, or its end is no longer awaited.
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The process is started before the addresses of the ranks are known.
    Hold,
    /// The process has all that it needs, and must be ready by `until`.
    Start { until: Instant },
    /// The process reports that it is ready.
    Ready,
    /// No local rank is left.
    RanksGone,
    /// The process is told to exit, and must have exited by `until`.
    End { until: Instant },
    /// The process is killed, and its end is awaited until `until`.
    Kill { until: Instant },
    /// The process has ended, or its end is no longer awaited.
    Gone,
}

/// The event changes nothing in this state, or violates the protocol: the caller knows which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

impl Phase {
    fn next(self, event: Event) -> Result<Phase, Refused> {
        match (self, event) {
            (Phase::Gone, _) => Err(Refused),
            (_, Event::Gone) => Ok(Phase::Gone),
            (Phase::None, Event::Hold) => Ok(Phase::Held),
            (Phase::None | Phase::Held, Event::Start { until }) => Ok(Phase::Starting { until }),
            (Phase::Starting { .. }, Event::Ready) => Ok(Phase::Serving),
            (Phase::Serving, Event::RanksGone) => Ok(Phase::Emptying),
            (Phase::Emptying, Event::End { until }) => Ok(Phase::Ending { until }),
            (
                Phase::Held | Phase::Starting { .. } | Phase::Serving | Phase::Emptying | Phase::Ending { .. },
                Event::Kill { until },
            ) => Ok(Phase::Killed { until }),
            (
                Phase::None
                | Phase::Held
                | Phase::Starting { .. }
                | Phase::Serving
                | Phase::Emptying
                | Phase::Ending { .. }
                | Phase::Killed { .. },
                Event::Hold
                | Event::Start { .. }
                | Event::Ready
                | Event::RanksGone
                | Event::End { .. }
                | Event::Kill { .. },
            ) => Err(Refused),
        }
    }

    /// # Errors
    /// The event does not change this state.
    pub fn on(&mut self, event: Event) -> Result<(), Refused> {
        *self = self.next(event)?;
        Ok(())
    }

    /// Whether the process serves ranks, so that it must be informed about them.
    pub fn listens(self) -> bool {
        matches!(self, Phase::Serving | Phase::Emptying)
    }

    /// Whether the ranks wait until the process is ready.
    pub fn is_starting(self) -> bool {
        matches!(self, Phase::Held | Phase::Starting { .. })
    }

    /// Whether messages of the process are read.
    pub fn speaks(self) -> bool {
        !matches!(self, Phase::None | Phase::Killed { .. } | Phase::Gone)
    }

    /// Whether the end of the process is awaited.
    pub fn is_there(self) -> bool {
        !matches!(self, Phase::None | Phase::Gone)
    }

    pub fn deadline(self) -> Option<Instant> {
        match self {
            Phase::Starting { until } | Phase::Ending { until } | Phase::Killed { until } => Some(until),
            Phase::None | Phase::Held | Phase::Serving | Phase::Emptying | Phase::Gone => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Instant = Instant(1);

    const EVENTS: [(&str, Event); 7] = [
        ("Hold", Event::Hold),
        ("Start", Event::Start { until: T }),
        ("Ready", Event::Ready),
        ("RanksGone", Event::RanksGone),
        ("End", Event::End { until: T }),
        ("Kill", Event::Kill { until: T }),
        ("Gone", Event::Gone),
    ];

    const PHASES: [Phase; 8] = [
        Phase::None,
        Phase::Held,
        Phase::Starting { until: T },
        Phase::Serving,
        Phase::Emptying,
        Phase::Ending { until: T },
        Phase::Killed { until: T },
        Phase::Gone,
    ];

    fn name(phase: Phase) -> &'static str {
        match phase {
            Phase::None => "None",
            Phase::Held => "Held",
            Phase::Starting { .. } => "Starting",
            Phase::Serving => "Serving",
            Phase::Emptying => "Emptying",
            Phase::Ending { .. } => "Ending",
            Phase::Killed { .. } => "Killed",
            Phase::Gone => "Gone",
        }
    }

    #[test]
    fn the_machine_is_as_drawn() {
        let cell = |phase: Phase, event| phase.next(event).map_or("-", name);
        let row = |phase| {
            let cells: String = EVENTS.iter().map(|(_, event)| format!("{:>10}", cell(phase, *event))).collect();
            format!("{:<9}{cells}\n", name(phase))
        };
        let head: String = EVENTS.iter().map(|(name, _)| format!("{name:>10}")).collect();
        let matrix = format!("{:<9}{head}\n", "") + &PHASES.map(row).concat();
        let expected = [
            "               Hold     Start     Ready RanksGone       End      Kill      Gone",
            "None           Held  Starting         -         -         -         -      Gone",
            "Held              -  Starting         -         -         -    Killed      Gone",
            "Starting          -         -   Serving         -         -    Killed      Gone",
            "Serving           -         -         -  Emptying         -    Killed      Gone",
            "Emptying          -         -         -         -    Ending    Killed      Gone",
            "Ending            -         -         -         -         -    Killed      Gone",
            "Killed            -         -         -         -         -         -      Gone",
            "Gone              -         -         -         -         -         -         -",
            "",
        ];
        assert_eq!(matrix, expected.join("\n"), "\n{matrix}");
    }

    #[test]
    fn states_that_end_by_themselves_have_a_deadline() {
        for phase in PHASES {
            let ends = matches!(phase, Phase::Starting { .. } | Phase::Ending { .. } | Phase::Killed { .. });
            assert_eq!(phase.deadline().is_some(), ends, "{phase:?}");
            assert!(!phase.speaks() || phase.is_there(), "{phase:?}");
            assert!(!phase.listens() || phase.speaks(), "{phase:?}");
        }
    }
}
