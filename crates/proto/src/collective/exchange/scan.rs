//! The ring of values: two values and a count, up the tree and down again.

use super::{Algorithm, Exchange};
use crate::collective::entry::Outcome;
use crate::collective::entry::{Action, CollectiveConfig};
use bytes::Bytes;
use wireup_coll::scan::{Down, Up};
use wireup_wire::collective::{Collective, Form, Tag};

impl Exchange {
    /// Records that all ranks of a child's subtree have entered.
    pub(super) fn on_scan_up(
        &mut self,
        config: &CollectiveConfig,
        child: usize,
        payload: &Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), String> {
        let Algorithm::Scan(scan) = &mut self.algorithm else {
            return Err("it is none along the tree".into());
        };
        let up = Up::decode(payload).map_err(|error| error.to_string())?;
        let up = scan.child(child, up).map_err(|refused| refused.to_string())?;
        let own_missing = scan.own_missing();
        self.on_scanned(config, up, out)?;
        if config.local_size == 0 && own_missing {
            // A node without ranks contributes nothing.
            return self.scan_own(Vec::new(), config, out);
        }
        Ok(())
    }

    /// Adds this node's own values.
    pub(super) fn scan_own(
        &mut self,
        values: Vec<Bytes>,
        config: &CollectiveConfig,
        out: &mut Vec<Action>,
    ) -> Result<(), String> {
        let Algorithm::Scan(scan) = &mut self.algorithm else {
            return Err("it is none along the tree".into());
        };
        let up = scan.own(values).map_err(|refused| refused.to_string())?;
        self.on_scanned(config, up, out)
    }

    fn on_scanned(&mut self, config: &CollectiveConfig, up: Option<Up>, out: &mut Vec<Action>) -> Result<(), String> {
        let (Some(up), Algorithm::Scan(scan)) = (up, &mut self.algorithm) else {
            return Ok(());
        };
        if config.root {
            let down = scan.root();
            return self.on_scan_down(down, out);
        }
        let tag = Tag::new(Collective::Ring, Form::Data);
        out.push(Action::Up { epoch: self.epoch, tag, payload: up.encode().into() });
        Ok(())
    }

    pub(super) fn on_scan_down(&mut self, down: Down, out: &mut Vec<Action>) -> Result<(), String> {
        let Algorithm::Scan(scan) = &mut self.algorithm else {
            return Err("it is none along the tree".into());
        };
        let (children, places) = scan.on_down(down).map_err(|refused| refused.to_string())?;
        let tag = Tag::new(Collective::Ring, Form::Data);
        for (child, down) in children {
            out.push(Action::Down { epoch: self.epoch, child: Some(child), tag, payload: down.encode().into() });
        }
        self.outcome = Some(Outcome::Places(places));
        Ok(())
    }
}
