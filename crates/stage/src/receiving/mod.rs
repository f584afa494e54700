//! A set on its way into a store: in packs where images can be mounted, else as files.
//!
//! ```text
//!   packing   contents go into one new pack, in a few large writes
//!   tree      each file is made under its name
//! ```
//!
//! Packs and trees are made in a folder of the receiver, which becomes the set's folder when the set is complete.

mod packing;
mod tree;

use crate::set::Set;
use crate::store::{Form, Result, Store, at, damaged, remove_tree};
use crate::stream::Cluster;
use packing::Packing;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeSet;
use std::fs::{self, File};
use tree::Tree;

/// A set that is being received. If the set is not finished, contents that have arrived are kept until another set
/// needs the room.
pub struct Receiving<'a> {
    store: &'a Store,
    set: Set,
    missing: BTreeSet<u32>,
    folder: tempfile::TempDir,
    copies: Copies,
    /// The content that is arriving, by number, and how many of its bytes have arrived.
    open: Option<(u32, u64)>,
    /// Lock on the receiver's folder, so that `Store::sweep` does not remove it.
    _lock: File,
}

enum Copies {
    Packs(Packing),
    Tree(Tree),
}

impl Store {
    /// Begins to receive a set.
    ///
    /// # Errors
    /// There is no room for what is missing, even without the sets that are not in use.
    pub fn receive(&self, set: Set) -> Result<Receiving<'_>> {
        let receiving = Receiving::begin(self, set, self.form())?;
        self.make_room(receiving.wanted())?;
        Ok(receiving)
    }
}

impl<'a> Receiving<'a> {
    fn begin(store: &'a Store, set: Set, form: Form) -> Result<Receiving<'a>> {
        let new = store.root().join("new");
        // The lock of `new` keeps others from removing the folder before it is locked itself.
        let making = store.new_folder(FlockOperation::NonBlockingLockShared)?;
        let folder = at(&new, tempfile::Builder::new().prefix("").tempdir_in(&new))?;
        let lock = at(folder.path(), File::open(folder.path()))?;
        at(folder.path(), flock(&lock, FlockOperation::LockShared))?;
        drop(making);
        let (copies, missing) = match form {
            Form::Image => {
                let (packing, missing) = Packing::begin(store, &set, folder.path())?;
                (Copies::Packs(packing), missing)
            }
            Form::Tree => {
                let (tree, missing) = Tree::begin(store, &set, folder.path())?;
                (Copies::Tree(tree), missing)
            }
        };
        Ok(Receiving { store, set, missing, folder, copies, open: None, _lock: lock })
    }

    /// The contents of the set that the launcher is to send.
    pub fn missing(&self) -> &BTreeSet<u32> {
        &self.missing
    }

    /// Bytes that the missing contents will take.
    fn wanted(&self) -> u64 {
        match &self.copies {
            Copies::Packs(packing) => packing.wanted,
            Copies::Tree(tree) => tree.wanted(&self.set),
        }
    }

    /// Marks these contents as missing again after a piece with them was damaged: they are to be sent from their
    /// beginnings. What arrives of them before that is ignored.
    pub fn spoil(&mut self, clusters: &[Cluster]) -> Result<()> {
        for cluster in clusters {
            if self.open.is_some_and(|(content, _)| content == cluster.content) {
                self.close()?;
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        self.open = None;
        match &mut self.copies {
            Copies::Packs(_) => Ok(()),
            Copies::Tree(tree) => tree.discard(&self.set),
        }
    }

    /// Writes a piece with these clusters. Contents that the node has already, and the rest of a damaged content, are
    /// ignored.
    pub fn write(&mut self, clusters: &[Cluster], bytes: &[u8]) -> Result<()> {
        let mut arrived = Vec::with_capacity(clusters.len());
        for cluster in clusters {
            let Some(content) = self.set.contents().get(cluster.content as usize) else { continue };
            if !self.missing.contains(&cluster.content) {
                continue;
            }
            let has = match self.open {
                Some((open, has)) if open == cluster.content => has,
                _ if cluster.offset == 0 => 0,
                _ => continue,
            };
            let end = cluster.offset + cluster.len as u64;
            if has != cluster.offset || end > content.len {
                continue;
            }
            self.open = (end < content.len).then_some((cluster.content, end));
            if self.open.is_none() {
                self.missing.remove(&cluster.content);
            }
            arrived.push(cluster);
        }
        match &mut self.copies {
            Copies::Packs(packing) => packing.write(&arrived, bytes, &self.set),
            Copies::Tree(tree) => arrived.iter().try_for_each(|cluster| tree.write(&self.set, cluster, bytes)),
        }
    }

    /// Completes the set after everything has arrived, so that it can be used.
    pub fn finish(mut self) -> Result<()> {
        if let Some(number) = self.missing.first() {
            return Err(damaged(&self.set, *number));
        }
        // Another receiver of the same set may have finished first.
        if self.store.touch(&self.set.digest())? {
            if let Copies::Packs(packing) = &mut self.copies {
                packing.discard();
            }
            return Ok(());
        }
        let folder = self.folder.path();
        match &mut self.copies {
            Copies::Packs(packing) => packing.finish(self.store, folder)?,
            Copies::Tree(tree) => tree.finish(&self.set)?,
        }
        let manifest = folder.join("manifest");
        at(&manifest, fs::write(&manifest, self.set.manifest()))?;
        self.store.put(&self.set.digest(), folder)
    }
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        if let Copies::Packs(packing) = &mut self.copies {
            let _ = packing.keep(self.store);
        }
        // Also removes folders of the tree that are read-only.
        let _ = remove_tree(self.folder.path());
    }
}
