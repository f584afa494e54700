//! The node's side of staging: receives the stream of a set into the store, in packs where images can be mounted, else
//! as files. Contents of which a piece arrived damaged are reported as missing at the end of the stream, and are sent
//! again.
//!
//! Packs and trees are made in a folder of the receiver, which becomes the set's folder when the set is complete.

use crate::answer::Answer;
use crate::set::{Digest, MANIFEST_LEN_MAX, Set};
use crate::store::packs::Packing;
use crate::store::tree::Tree;
use crate::store::{self, Form, Store, at, damaged, remove_tree};
use crate::stream::{
    BODY_LEN_MAX, CLUSTERS, Cluster, Cut, END, FOLLOWING, HEAD_LEN, Input, MALFORMED, MANIFEST, MANIFEST_END, NAME,
    Piece, Stored, check,
};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};

enum Problem {
    Told(String),
    /// An answer could not be written to the output.
    Output(io::Error),
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Problem::Told(text)
    }
}

/// Receives one set, and writes answers to `output`: the contents that are missing, then the outcome. `confine`, which
/// may sandbox this process, is called before the set is parsed: only files of the store are needed afterwards.
///
/// # Errors
/// An answer could not be written to `output`.
pub fn receive(store: &Store, input: impl Input, mut output: impl Write, confine: impl FnOnce()) -> io::Result<()> {
    let end = match receive_set(store, input, &mut output, confine) {
        Ok(()) => Answer::Kept,
        Err(Problem::Output(error)) => return Err(error),
        Err(Problem::Told(text)) => Answer::Failed(text),
    };
    output.write_all(end.line().as_bytes())?;
    output.flush()
}

fn receive_set(
    store: &Store,
    mut input: impl Input,
    output: &mut impl Write,
    confine: impl FnOnce(),
) -> Result<(), Problem> {
    let mut confine = Some(confine);
    let (mut receiver, mut receiving) = (Receiver::default(), None::<Receiving>);
    let mut say = |answer: Answer| {
        output.write_all(answer.line().as_bytes()).and_then(|()| output.flush()).map_err(Problem::Output)
    };
    loop {
        let mut rest = input.bytes();
        let (len, piece) = (rest.len(), receiver.next_piece(&mut rest)?);
        let (used, needs_more) = (len - rest.len(), piece.is_none());
        match (piece, &mut receiving) {
            (None, _) => {}
            (Some(Piece::Name(name)), None) => match store.touch(&name)? {
                true => return Ok(()),
                false => {
                    // The form is decided before `confine`: the decision needs a trial mount, which a confined process
                    // may not make.
                    store.form();
                    if let Some(confine) = confine.take() {
                        confine();
                    }
                    say(Answer::Lacks)?;
                }
            },
            (Some(Piece::Set(set)), None) => {
                let begun = store.receive(set)?;
                say(Answer::Missing(begun.missing().clone()))?;
                receiving = Some(begun);
            }
            (Some(Piece::Clusters { clusters, bytes }), Some(receiving)) => receiving.write(&clusters, bytes)?,
            (Some(Piece::Damaged(clusters)), Some(receiving)) => receiving.spoil(&clusters)?,
            (Some(Piece::End), Some(begun)) if !begun.missing().is_empty() => {
                say(Answer::Missing(begun.missing().clone()))?;
            }
            (Some(Piece::End), receiving) => {
                return receiving.take().map_or(Ok(()), |begun| begun.finish().map_err(Into::into));
            }
            (Some(_), _) => return Err(MALFORMED.to_owned().into()),
        }
        input.consume(used);
        if needs_more && !input.wait().map_err(|error| format!("the staged set did not arrive: {error}"))? {
            return Err("the launcher stopped sending".to_owned().into());
        }
    }
}

/// Parses a stream, in whatever portions its bytes arrive. Pieces borrow the caller's buffer: nothing is copied.
#[derive(Default)]
pub struct Receiver {
    /// The digest of the manifest that follows.
    name: Option<Digest>,
    manifest: Vec<u8>,
    /// The lengths of the contents, once the manifest is whole.
    lens: Option<Vec<u64>>,
    /// The contents that follow, in order.
    following: Cut,
}

impl Receiver {
    /// Takes the next piece of the stream from the beginning of `bytes`, and removes the used bytes. `None`: more bytes
    /// are needed.
    ///
    /// # Errors
    /// The bytes are no stream of a set. Do not call this again.
    pub fn next_piece<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Piece<'a>>, String> {
        loop {
            let Some((head, rest)) = bytes.split_first_chunk::<HEAD_LEN>() else {
                return Ok(None);
            };
            let (len, kind) = (u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize, head[4]);
            if len > BODY_LEN_MAX {
                return Err(MALFORMED.to_owned());
            }
            let Some((body, rest)) = rest.split_at_checked(len) else {
                return Ok(None);
            };
            *bytes = rest;
            match (kind, &self.lens) {
                (NAME, None) => {
                    let name = body.try_into().map_err(|_| MALFORMED)?;
                    self.name = Some(name);
                    return Ok(Some(Piece::Name(name)));
                }
                (MANIFEST, None) => {
                    self.manifest.extend_from_slice(body);
                    if self.manifest.len() > MANIFEST_LEN_MAX {
                        return Err(MALFORMED.to_owned());
                    }
                }
                (MANIFEST_END, None) if body.is_empty() => {
                    let set = Set::from_manifest(std::mem::take(&mut self.manifest));
                    let set = set.map_err(|problem| problem.to_string())?;
                    if self.name != Some(set.digest()) {
                        return Err("the list of staged files was damaged on its way; stage them again".to_owned());
                    }
                    self.lens = Some(set.contents().iter().map(|content| content.len).collect());
                    return Ok(Some(Piece::Set(set)));
                }
                (FOLLOWING, Some(lens)) => announce(&mut self.following, body, lens)?,
                (CLUSTERS, Some(_)) => return piece(&mut self.following, body).map(Some),
                (END, Some(_)) if body.is_empty() && self.following.left() == 0 => {
                    self.following = Cut::default();
                    return Ok(Some(Piece::End));
                }
                _ => return Err(MALFORMED.to_owned()),
            }
        }
    }
}

/// Appends the announced contents; their numbers must be greater than the numbers of all contents before them.
fn announce(following: &mut Cut, body: &[u8], lens: &[u64]) -> Result<(), String> {
    let (wanted, rows) = body.split_first_chunk::<8>().ok_or(MALFORMED)?;
    if check(0, rows) != *wanted || rows.len() % 8 != 0 || following.done() > 0 {
        return Err(MALFORMED.to_owned());
    }
    for row in rows.chunks_exact(8) {
        let number = |at: usize| u32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]]);
        let (first, count) = (number(0), number(4));
        let end = first.checked_add(count).filter(|end| *end as usize <= lens.len()).ok_or(MALFORMED)?;
        if following.last().is_some_and(|last| last >= first) {
            return Err(MALFORMED.to_owned());
        }
        for content in first..end {
            following.push(content, lens[content as usize]).ok_or(MALFORMED)?;
        }
    }
    Ok(())
}

fn piece<'a>(following: &mut Cut, body: &'a [u8]) -> Result<Piece<'a>, String> {
    let (offset, rest) = body.split_first_chunk().ok_or(MALFORMED)?;
    let (wanted, rest) = rest.split_first_chunk::<8>().ok_or(MALFORMED)?;
    let at = following.done();
    // Pieces follow each other: the place of a piece is known even if its bytes are damaged.
    let mut clusters = following.next_piece();
    if clusters.is_empty() {
        return Err(MALFORMED.to_owned());
    }
    let is_right = u64::from_le_bytes(*offset) == at && check(at, rest) == *wanted;
    match place(&mut clusters, rest).filter(|_| is_right) {
        Some(bytes) => Ok(Piece::Clusters { clusters, bytes }),
        None => Ok(Piece::Damaged(clusters)),
    }
}

/// Finds the stored bytes of each cluster in the body of a piece.
fn place<'a>(clusters: &mut [Cluster], body: &'a [u8]) -> Option<&'a [u8]> {
    let (lens, bytes) = body.split_at_checked(4 * clusters.len())?;
    let mut at = 0;
    for (cluster, len) in clusters.iter_mut().zip(lens.chunks_exact(4)) {
        let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize;
        let stored = at..at + len;
        Stored::of(cluster.len, bytes.get(stored.clone())?)?;
        (cluster.stored, at) = (stored, at + len);
    }
    (at == bytes.len()).then_some(bytes)
}

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
    pub fn receive(&self, set: Set) -> store::Result<Receiving<'_>> {
        let receiving = Receiving::begin(self, set, self.form())?;
        self.make_room(receiving.wanted())?;
        Ok(receiving)
    }
}

impl<'a> Receiving<'a> {
    fn begin(store: &'a Store, set: Set, form: Form) -> store::Result<Receiving<'a>> {
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
    pub fn spoil(&mut self, clusters: &[Cluster]) -> store::Result<()> {
        for cluster in clusters {
            if self.open.is_some_and(|(content, _)| content == cluster.content) {
                self.close()?;
            }
        }
        Ok(())
    }

    fn close(&mut self) -> store::Result<()> {
        self.open = None;
        match &mut self.copies {
            Copies::Packs(_) => Ok(()),
            Copies::Tree(tree) => tree.discard(&self.set),
        }
    }

    /// Writes a piece with these clusters. Contents that the node has already, and the rest of a damaged content, are
    /// ignored.
    pub fn write(&mut self, clusters: &[Cluster], bytes: &[u8]) -> store::Result<()> {
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
    pub fn finish(mut self) -> store::Result<()> {
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

#[cfg(test)]
mod tests;
