//! What the same start would cost under wireup.
//!
//! The program's own time stays as it was measured; the launcher's parts are replaced. If ranks outnumber the cores,
//! what the first of them have computed while others were being started is work that the cores have to do all the same,
//! so it is added to the program's time. Constants are fitted to the tables of lab/data/launch.md and
//! lab/data/exchange.md, whose machine has two cores: work that cores share is in milliseconds of one core.

/// A run's fixed time on one node: `true-1x4`.
const FIXED_MS: f64 = 2.9;
/// Starting and ending one process: the slope from `true-1x4` to `true-1x1024`.
const PROCESS_CORE_MS: f64 = 0.86;
/// A text request and its answer, the client's part included: the gets of `exchange-1x64`.
const REQUEST_CORE_MS: f64 = 0.022;
/// A rank's part of a fence, its put included: the slope of `text-fence`, 64 to 4,096 ranks.
const FENCE_CORE_MS: f64 = 0.128;
/// From one node to the next, both ways, over a network of today.
const HOP_MS: f64 = 0.1;
/// A byte that a fence brings to a node, at 1 GB/s.
const BYTE_MS: f64 = 1e-6;
/// One start by a remote shell, for agents that are not there yet: `initiation` by ssh.
pub const REMOTE_SHELL_MS: f64 = 200.0;
/// Children of an agent in the tree.
const FANOUT: f64 = 16.0;

/// A start as it was measured.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Start {
    pub ranks: u32,
    pub nodes: u32,
    /// Of one node.
    pub cores: u32,
    /// Until the last fence ended, or the last request before finalize was answered.
    pub whole_ms: f64,
    /// Of that: until the last rank's program was executed.
    pub launch_ms: f64,
    /// Core time of all programs in that part.
    pub computed_core_ms: f64,
    /// In fences after the last rank had entered.
    pub moving_ms: f64,
    /// The median rank's time in other requests.
    pub requests_ms: f64,
    pub fences: u64,
    /// Requests other than fences, of all ranks.
    pub requests: u64,
    /// Bytes that all ranks have put.
    pub put_bytes: u64,
}

/// The same under wireup.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Forecast {
    pub launch_ms: f64,
    pub moving_ms: f64,
    pub requests_ms: f64,
    /// The program's own time, as measured, with what it has computed during the launch if there are more ranks than
    /// cores.
    pub program_ms: f64,
}

impl Forecast {
    pub fn of(start: &Start) -> Forecast {
        let cores = f64::from(start.cores.max(1));
        let nodes = f64::from(start.nodes.max(1));
        let on_a_node = f64::from(start.ranks) / nodes;
        let levels = if start.nodes > 1 { nodes.log(FANOUT).ceil().max(1.0) } else { 0.0 };
        let fence_ms = FENCE_CORE_MS * on_a_node / cores + levels * HOP_MS + start.put_bytes as f64 * BYTE_MS;
        let is_crowded = on_a_node > cores;
        let computed_ms = if is_crowded { start.computed_core_ms / nodes / cores } else { 0.0 };
        let own_ms = (start.whole_ms - start.launch_ms - start.moving_ms - start.requests_ms).max(0.0);
        Forecast {
            launch_ms: FIXED_MS + PROCESS_CORE_MS * on_a_node / cores + levels * HOP_MS,
            moving_ms: start.fences as f64 * fence_ms,
            requests_ms: REQUEST_CORE_MS * start.requests as f64 / nodes / cores,
            program_ms: own_ms + computed_ms.min(start.launch_ms),
        }
    }

    pub fn whole_ms(&self) -> f64 {
        self.launch_ms + self.moving_ms + self.requests_ms + self.program_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, published: f64) {
        assert!((0.6..1.7).contains(&(found / published)), "{found} beside {published}");
    }

    #[test]
    fn the_model_gives_what_was_published() {
        for (ranks, published) in [(4, 4.57), (256, 113.0), (1024, 443.0)] {
            let start = Start { ranks, nodes: 1, cores: 2, ..Start::default() };
            near(Forecast::of(&start).launch_ms, published);
        }
        // 64 ranks get the values of all.
        let start = Start { ranks: 64, nodes: 1, cores: 2, requests: 64 * 64, ..Start::default() };
        near(Forecast::of(&start).requests_ms, 45.8);
        for (ranks, published) in [(256, 12.0), (1024, 54.0), (4096, 261.0)] {
            let start = Start { ranks, nodes: 1, cores: 2, fences: 1, ..Start::default() };
            near(Forecast::of(&start).moving_ms, published);
        }
    }

    #[test]
    fn work_during_the_launch_stays_if_ranks_outnumber_the_cores() {
        let start =
            Start { nodes: 2, cores: 2, whole_ms: 90.0, launch_ms: 20.0, computed_core_ms: 40.0, ..Start::default() };
        let program_ms = |ranks| Forecast::of(&Start { ranks, ..start }).program_ms;
        assert_eq!((program_ms(4), program_ms(8)), (70.0, 80.0));
        // Never more than the launch has taken.
        let much = Start { ranks: 8, computed_core_ms: 400.0, ..start };
        assert_eq!(Forecast::of(&much).program_ms, 90.0);
    }

    #[test]
    fn the_programs_own_time_stays() {
        let start = Start { ranks: 4, nodes: 1, cores: 2, whole_ms: 90.0, launch_ms: 20.0, ..Start::default() };
        assert_eq!(Forecast::of(&start).program_ms, 70.0);
        let odd = Start { whole_ms: 1.0, launch_ms: 2.0, ..start };
        assert_eq!(Forecast::of(&odd).program_ms, 0.0);
    }
}
