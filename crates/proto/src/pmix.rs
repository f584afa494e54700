//! STUB
use crate::exchange::{Exchanges, Finished, Site};
use crate::groups::Stall;
use crate::io::ExitStatus;
use crate::job::effect::Effects;
use crate::job::facts::{Facts, View};
use crate::job::groups::Arrived;
use crate::time::Instant;
use wireup_wire::collective::Collective;
use wireup_wire::frame::Frame;
use wireup_wire::ids::*;
use wireup_wire::modex::{Between, Blob};
use wireup_wire::peer::{Departed, Opened, SpawnError};
pub type Remains = std::collections::BTreeMap<Rank, Blob>;
pub fn modex_frame(_: JobId, _: &Between) -> Frame {
    todo!()
}
pub fn modex_gone(_: Vec<Rank>, _: &Remains) -> Vec<Between> {
    todo!()
}
pub struct Pmix;
impl Pmix {
    pub fn new(_: &Facts, _: &Site) -> Option<Box<Pmix>> {
        None
    }
    pub fn start(&mut self, _: &View<'_>, _: &mut Effects) {}
    pub fn on_bytes(&mut self, _: &View<'_>, _: &[u8], _: &mut Effects) {}
    pub fn on_gone(&mut self, _: &View<'_>, _: ExitStatus, _: &str, _: &mut Effects) {}
    pub fn on_failed(&mut self, _: &View<'_>, _: &SpawnError, _: &mut Effects) {}
    pub fn on_between(&mut self, _: &View<'_>, _: AgentId, _: Between, _: &mut Effects) {}
    pub fn on_frame(&mut self, _: &View<'_>, _: Option<AgentId>, _: Frame, _: &mut Effects) {}
    pub fn on_group_frame(&mut self, _: &View<'_>, _: Arrived, _: &mut Effects) {}
    pub fn on_fence_finished(&mut self, _: &View<'_>, _: Finished, _: &mut Effects) {}
    pub fn drop_held(&mut self, _: &View<'_>, _: &mut Effects) {}
    pub fn end(&mut self, _: &View<'_>, _: &mut Effects) {}
    pub fn on_tick(&mut self, _: &View<'_>, _: &mut Effects) {}
    pub fn on_rank_gone(&mut self, _: &View<'_>, _: LocalRank, _: &mut Effects) {}
    pub fn on_opened(&mut self, _: &View<'_>, _: Opened, _: &mut Effects) {}
    pub fn on_child_done(&mut self, _: &View<'_>, _: usize, _: &mut Effects) {}
    pub fn on_member_departed(&mut self, _: &View<'_>, _: LocalRank, _: Departed, _: &mut Effects) {}
    pub fn on_departed(&mut self, _: Departed) -> bool {
        false
    }
    pub fn on_keeper_lost(&mut self) {}
    pub fn awaits_in_library(_: &View<'_>, _: LocalRank) -> bool {
        false
    }
    pub fn exchanges(&self) -> &Exchanges {
        todo!()
    }
    pub fn exchanges_at(&mut self, _: Epoch) -> Option<&mut Exchanges> {
        None
    }
    pub fn broken(&self) -> Option<((Departed, Epoch, Collective), u32)> {
        None
    }
    pub fn stall_deadline(&self, _: u64) -> Option<Instant> {
        None
    }
    pub fn on_asked(&mut self) {}
    pub fn group_stalls(&self) -> impl Iterator<Item = Stall> {
        std::iter::empty()
    }
    pub fn listens(&self) -> bool {
        false
    }
    pub fn is_there(&self) -> bool {
        false
    }
    pub fn opened(&self) -> Option<Opened> {
        None
    }
    pub fn open(&self) -> usize {
        0
    }
    pub fn outstanding(&self) -> usize {
        0
    }
    pub fn deadline(&self) -> Option<Instant> {
        None
    }
    pub fn take_remains(&mut self) -> Remains {
        Remains::new()
    }
}
