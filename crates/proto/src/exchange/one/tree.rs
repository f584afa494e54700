//! Up the tree and down again: parts of subtrees, the choice at the root, the outcome.

use super::{Exchange, Route, Way, too_long};
use crate::exchange::{Do, Site};
use bytes::Bytes;
use wireup_coll::allgather::choice::{choose, direct};
use wireup_coll::allgather::tree::Part;
use wireup_coll::scan::{Down, Up};
use wireup_wire::collective::{Algorithm, Form, Tag};
use wireup_wire::job::ExchangeScheme;

impl Exchange {
    /// A child's subtree is in.
    pub fn on_up(
        &mut self,
        site: &Site,
        child: usize,
        form: Form,
        payload: Bytes,
        out: &mut Vec<Do>,
    ) -> Result<(), String> {
        match &mut self.way {
            Way::Scan(scan) => {
                let up = Up::decode(&payload).map_err(|error| error.to_string())?;
                let up = scan.child(child, up).map_err(|refused| refused.to_string())?;
                self.on_scanned(site, up, out)?;
            }
            Way::Blocks { tree, .. } => {
                if matches!(form, Form::GoRing | Form::GoBruck) {
                    return Err("a child says how to go".into());
                }
                let part = Part::from_payload(form == Form::Size, payload).map_err(|refused| refused.to_string())?;
                let part = tree.child(child, part).map_err(|refused| refused.to_string())?;
                self.on_gathered(site, part, out)?;
            }
        }
        if site.local_size == 0 && self.is_waiting_for_own() {
            // A node without ranks has nothing to add.
            return self.give(site, Bytes::new(), out);
        }
        Ok(())
    }

    fn is_waiting_for_own(&self) -> bool {
        match &self.way {
            Way::Blocks { own, .. } => own.is_none() && !self.gathered,
            Way::Scan(scan) => scan.own_missing(),
        }
    }

    /// The subtree is complete, if `part` says so.
    pub(super) fn on_gathered(&mut self, site: &Site, part: Option<Part>, out: &mut Vec<Do>) -> Result<(), String> {
        let Some(part) = part else {
            return Ok(());
        };
        self.gathered = true;
        if !site.root {
            let form = if part.is_size() { Form::Size } else { Form::Data };
            let tag = Tag::new(self.collective, form);
            out.push(Do::Up { epoch: self.epoch, tag, payload: part.into_payload() });
            return Ok(());
        }
        let nodes = site.peers.len() as u32;
        let chooses = !matches!(site.scheme, ExchangeScheme::Ring | ExchangeScheme::Bruck);
        if chooses && site.collect_max.is_some_and(|max| part.size() > max) {
            // Whoever wants some of it asks for that.
            return self.broadcast(Bytes::new(), out);
        }
        match (site.scheme, part) {
            (ExchangeScheme::Ring | ExchangeScheme::Bruck, _) => Ok(()),
            (ExchangeScheme::Tree, Part::Size(bytes)) => Err(too_long(bytes)),
            (ExchangeScheme::Tree, Part::Data(blocks)) => self.broadcast(blocks, out),
            (ExchangeScheme::Auto, Part::Data(blocks)) => match choose(nodes, blocks.len() as u64) {
                None => self.broadcast(blocks, out),
                Some(algorithm) => self.tell_to_go(site, algorithm, out),
            },
            (ExchangeScheme::Auto, Part::Size(bytes)) => self.tell_to_go(site, direct(nodes, bytes), out),
        }
    }

    fn broadcast(&mut self, blocks: Bytes, out: &mut Vec<Do>) -> Result<(), String> {
        let tag = Tag::new(self.collective, Form::Data);
        out.push(Do::Down { epoch: self.epoch, child: None, tag, payload: blocks.clone() });
        self.on_blocks(vec![blocks]);
        Ok(())
    }

    fn tell_to_go(&mut self, site: &Site, algorithm: Algorithm, out: &mut Vec<Do>) -> Result<(), String> {
        let form = match algorithm {
            Algorithm::Ring => Form::GoRing,
            Algorithm::Bruck => Form::GoBruck,
        };
        let tag = Tag::new(self.collective, form);
        out.push(Do::Down { epoch: self.epoch, child: None, tag, payload: Bytes::new() });
        self.on_told_to_go(site, algorithm, out)
    }

    fn on_told_to_go(&mut self, site: &Site, algorithm: Algorithm, out: &mut Vec<Do>) -> Result<(), String> {
        if site.place.is_some() {
            return self.go(site, algorithm, out);
        }
        if let Way::Blocks { route, .. } = &mut self.way {
            *route = Route::Done;
        }
        Ok(())
    }

    /// The outcome, or the word how to reach it.
    pub fn on_down(&mut self, site: &Site, tag: Tag, payload: Bytes, out: &mut Vec<Do>) -> Result<(), String> {
        if !self.gathered || self.outcome.is_some() || self.delivered {
            return Err("its outcome came before its time, or twice".into());
        }
        if let Way::Scan(_) = self.way {
            let down = Down::decode(&payload).map_err(|error| error.to_string())?;
            return self.on_scan_down(down, out);
        }
        out.push(Do::Down { epoch: self.epoch, child: None, tag, payload: payload.clone() });
        match tag.form {
            Form::Data => {
                self.on_blocks(vec![payload]);
                Ok(())
            }
            Form::GoRing => self.on_told_to_go(site, Algorithm::Ring, out),
            Form::GoBruck => self.on_told_to_go(site, Algorithm::Bruck, out),
            Form::Size => Err("the parent sends a size".into()),
        }
    }
}
