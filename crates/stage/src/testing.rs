//! Functions that tests of several modules share: they send a set to a store, and look at the files in the store.

use crate::mounts::may_mount;
use crate::receive::Receiver;
use crate::send::Sender;
use crate::set::{Entry, Set};
use crate::store::{Form, InUse, Result, Store};
use crate::stream::Piece;
use std::fs;
use std::path::Path;
use std::thread;

/// A folder for a store: in memory, as stores are.
pub(crate) fn home() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A folder with these files.
pub(crate) fn folder_with<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

/// Bytes that LZ4 cannot compress.
pub(crate) fn noise(seed: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
    bytes
}

/// The forms that can be tested here: both if images can be mounted, as by root.
pub(crate) fn forms() -> Vec<Form> {
    let folder = home();
    let mut forms = vec![Form::Tree];
    if may_mount(folder.path()) {
        forms.push(Form::Image);
    } else {
        println!("not run: images cannot be mounted here");
    }
    forms
}

/// Sends a set to a store; returns how many bytes of contents were sent.
pub(crate) fn stage(store: &Store, set: &Set) -> Result<u64> {
    let mut receiving = store.receive(set.clone())?;
    let mut sender = Sender::new(set);
    sender.want_set();
    sender.want(receiving.missing());
    let (bytes, mut receiver) = (sender.bytes_left(), Receiver::default());
    while let Some(part) = sender.next_part().unwrap() {
        let mut rest = &part[..];
        while let Some(piece) = receiver.next_piece(&mut rest).unwrap() {
            if let Piece::Clusters { clusters, bytes } = piece {
                receiving.write(&clusters, bytes).unwrap();
            }
        }
    }
    receiving.finish()?;
    Ok(bytes)
}

/// Runs `look` where the files of a set are, in mounts of its own.
pub(crate) fn look<T: Send>(kept: &InUse, form: Form, look: impl FnOnce(&Path) -> T + Send) -> T {
    thread::scope(|scope| {
        let looks = scope.spawn(|| {
            if form == Form::Image {
                crate::view::own_mounts(false).unwrap();
            }
            let files = kept.files().unwrap();
            assert_eq!(files.is_image(), form == Form::Image);
            look(&files.path().canonicalize().unwrap())
        });
        looks.join().unwrap()
    })
}

/// The set of the staged files as they can be seen, under the names of the originals.
pub(crate) fn set_of(kept: &InUse, form: Form, folder: &Path) -> Set {
    look(kept, form, |root| {
        let there = Set::collect([&*root.join(folder.strip_prefix("/").unwrap())]).unwrap();
        Set::from_entries(there.entries().map(|entry| Entry { path: &entry.path[root.as_os_str().len()..], ..entry }))
            .unwrap()
    })
}
