//! The byte stream of a staged program, as `wireup run --stage` sends it to all nodes.

/// Length of the name of a set of files (bytes).
const NAME_BYTES: u64 = 37;
/// Length of the list of files of a set with one file (bytes). The list grows with the path of the file.
const LIST_BYTES: u64 = 150;
/// Length of the pieces in which file contents are sent (bytes), each after a header of `PIECE_HEAD_BYTES`.
const PIECE_BYTES: u64 = 256 << 10;
const PIECE_HEAD_BYTES: u64 = 37;
/// Length of the header that announces the contents, together with the end marker (bytes).
const FRAME_BYTES: u64 = 26;

/// Number of bytes of each part of the stream: the name, the list, and the contents of an incompressible file of `mib`
/// MiB.
pub fn parts(mib: u32) -> [u64; 3] {
    let bytes = u64::from(mib) << 20;
    [NAME_BYTES, LIST_BYTES, FRAME_BYTES + bytes + bytes / PIECE_BYTES * PIECE_HEAD_BYTES]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use wireup_stage::Set;
    use wireup_stage::send::{Next, Sending};

    fn part(sending: &mut Sending) -> u64 {
        let mut bytes = 0;
        while let Next::Bytes(some) = sending.next(1 << 20).expect("the file is there") {
            bytes += some.len() as u64;
        }
        bytes
    }

    /// The launcher of `wireup run --stage` sends as many bytes for a file as `parts` says.
    #[test]
    fn a_file_is_staged_by_as_many_bytes_as_here() {
        let folder = tempfile::tempdir().expect("a folder");
        let noise = |at: u32| (at.wrapping_mul(2_654_435_761) >> 13 ^ at.wrapping_mul(at) >> 7) as u8;
        let app = folder.path().join("app");
        fs::write(&app, (0..3 << 20).map(noise).collect::<Vec<u8>>()).expect("a file");
        let set = Set::collect([app.as_path()]).expect("a set");
        let mut sending = Sending::new(&set, 1);
        let sent = ["", "lacks\n", "missing 0\n"].map(|answer| {
            sending.output(0, answer.as_bytes());
            part(&mut sending)
        });
        let [name, list, contents] = parts(3);
        assert_eq!([sent[0], sent[2]], [name, contents]);
        assert!((list / 2..list * 2).contains(&sent[1]), "{sent:?}");
    }
}
