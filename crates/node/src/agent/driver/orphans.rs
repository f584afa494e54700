//! What a keeper that was killed leaves behind: this process is the next subreaper above.

use super::AgentDriver;
use crate::agent::keeper_link::KeeperLink;
use crate::agent::ranks::JobRanks;
use crate::agent::shells::Shells;
use std::time::Duration;
use wireup_os::process;

/// Rounds of killing: each catches what was forked during the one before.
const ORPHAN_ROUNDS_MAX: usize = 50;

impl AgentDriver {
    /// A keeper that was killed leaves its orphans to this subreaper.
    pub(super) fn collect_orphans(&mut self) {
        let jobs = self.jobs.values().map(JobRanks::keeper);
        let keepers: Vec<&KeeperLink> = jobs.chain(self.shells.as_ref().map(Shells::keeper)).collect();
        let lost = keepers.iter().filter_map(|keeper| keeper.lost()).min();
        // A keeper's socket closes before its children are ours: until then they are found below it.
        let living = keepers.iter().filter(|keeper| keeper.lost().is_none()).map(|keeper| keeper.pid());
        let pids: Vec<u32> = living.chain(self.keepers.pids()).collect();
        self.orphans_since = lost.or(self.orphans_since);
        kill_orphans(self.orphans_since, &pids);
    }
}

/// Kills orphans born since then, until there are none; nothing to do if no keeper was lost.
pub(super) fn kill_orphans(since: Option<u64>, except: &[u32]) {
    let Some(since) = since else {
        return;
    };
    for _ in 0..ORPHAN_ROUNDS_MAX {
        if process::kill_descendants(Some(since), except).killed == 0 {
            return;
        }
        while let process::Reaped::Child { .. } = process::reap() {}
        std::thread::sleep(Duration::from_millis(2));
    }
}
