//! The ring's values: two and a count, up the tree and down again.

use super::{Exchange, Outcome, Way};
use crate::exchange::{Do, Site};
use wireup_coll::scan::{Down, Up};
use wireup_wire::collective::{Collective, Form, Tag};

impl Exchange {
    pub(super) fn on_scanned(&mut self, site: &Site, up: Option<Up>, out: &mut Vec<Do>) -> Result<(), String> {
        let (Some(up), Way::Scan(scan)) = (up, &mut self.way) else {
            return Ok(());
        };
        self.gathered = true;
        if site.root {
            let down = scan.root();
            return self.on_scan_down(down, out);
        }
        let tag = Tag::new(Collective::Ring, Form::Data);
        out.push(Do::Up { epoch: self.epoch, tag, payload: up.encode() });
        Ok(())
    }

    pub(super) fn on_scan_down(&mut self, down: Down, out: &mut Vec<Do>) -> Result<(), String> {
        let Way::Scan(scan) = &mut self.way else {
            return Err("it is none along the tree".into());
        };
        let (children, places) = scan.on_down(down).map_err(|refused| refused.to_string())?;
        let tag = Tag::new(Collective::Ring, Form::Data);
        for (child, down) in children {
            out.push(Do::Down { epoch: self.epoch, child: Some(child), tag, payload: down.encode() });
        }
        self.outcome = Some(Outcome::Places(places));
        Ok(())
    }
}
