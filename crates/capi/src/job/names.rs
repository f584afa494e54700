//! Services by name: the server's or, without one, those of this process.

use super::Job;
use crate::codes::{Code, Result};
use crate::job_slot::With;
use alloc::vec::Vec;
pub use wireup_client::local::Wish;
pub use wireup_wire::limits::NAME_LEN_MAX;
use wireup_wire::pmi::Request;
use wireup_wire::pmi::escape::doubled;

impl Job {
    /// Returns the port of a look-up.
    ///
    /// # Errors
    /// [`Code::OTHER`]: the name is taken, or there is no such name, or the server refuses for another reason.
    pub fn name(&mut self, name: &[u8], wish: Wish<'_>) -> Result<Vec<u8>> {
        if let With::Singleton(local) = &mut self.with {
            return local.name(name, wish).ok_or(Code::OTHER);
        }
        let (mut name_room, mut port_room) = (Vec::new(), Vec::new());
        let name = doubled(name, &mut name_room);
        let found = self.look_up(&match wish {
            Wish::Publish(port) => Request::PublishName { name, port: doubled(port, &mut port_room) },
            Wish::LookUp => Request::LookupName { name },
            Wish::Unpublish => Request::UnpublishName { name },
        });
        found?.ok_or(Code::OTHER)
    }
}
