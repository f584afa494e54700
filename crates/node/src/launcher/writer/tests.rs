//! Tests of writers with real files.

use super::*;
use std::fs;
use std::path::PathBuf;
use wireup_wire::ids::Rank;

fn of_rank(rank: u32) -> Origin {
    Origin { job: None, rank: Rank(rank) }
}

fn sink(directory: PathBuf) -> Sink {
    Sink {
        files: Files::In { directory, begun: Begun::default() },
        tee: false,
        shown_on: Stream::Out,
        decoration: None,
    }
}

/// Writes hundreds of short lines of two ranks alternately; in a mode without a thread nothing is queued.
fn write_in_turns(mode: Mode) {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_owned();
    for old in ["rank.0.out", "rank.2.out", "job.2.rank.7.err", "rank.x.out", "notes"] {
        fs::write(directory.join(old), "an earlier run").unwrap();
    }
    let Err(FolderProblem::Taken { count: 3, first }) = make_folder(&directory, 2, false) else { panic!("refused") };
    assert_eq!(first, "job.2.rank.7.err");
    make_folder(&directory, 2, true).unwrap();
    let left = |name: &str| directory.join(name).exists();
    let names = ["rank.0.out", "rank.2.out", "job.2.rank.7.err", "rank.x.out", "notes"];
    assert_eq!(names.map(left), [false, true, true, true, true]);
    let mut writer = Writer::new(Stream::Out, LineStyle::default(), sink(directory.clone()), None).unwrap();
    writer.mode = mode;
    for round in 0..300 {
        for rank in 0..2 {
            writer.write(Some((of_rank(rank), Next::Rest)), Bytes::from(format!("{rank}:{round}\n")));
        }
    }
    writer.finish(None);
    assert!(!matches!(writer.mode, Mode::Thread(_)), "its thread has ended");
    for rank in 0..2 {
        let text = fs::read_to_string(directory.join(format!("rank.{rank}.out"))).unwrap();
        assert_eq!(text, (0..300).map(|round| format!("{rank}:{round}\n")).collect::<String>());
    }
    let news = writer.take_news();
    assert_eq!((news.written, news.failed), (2 * (10 * 4 + 90 * 5 + 200 * 6), None));
}

#[test]
fn each_file_gets_the_output_of_its_rank_in_order() {
    write_in_turns(Mode::Idle);
}

#[test]
fn without_a_thread_output_is_written_inline() {
    write_in_turns(Mode::Inline);
}

#[test]
fn a_failed_write_is_reported() {
    let mut writer =
        Writer::new(Stream::Out, LineStyle::default(), sink("/dev/null/not-a-directory".into()), None).unwrap();
    writer.write(Some((of_rank(0), Next::Rest)), Bytes::from_static(b"x"));
    writer.finish(None);
    let failed = writer.take_news().failed.expect("writing to it must fail");
    assert!(failed.text.contains("rank.0.out") && !failed.reader_gone, "{failed:?}");
}

/// If one of the files is a directory, the other files of the same batch are written, and the first problem is
/// reported.
#[test]
fn one_failing_file_does_not_keep_the_others_from_being_written() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_owned();
    for rank in [1, 3] {
        fs::create_dir_all(directory.join(format!("rank.{rank}.out"))).unwrap();
    }
    let mut target = Target::new(Stream::Out, LineStyle::default(), sink(directory.clone()), None);
    let piece = |rank: u32| Piece {
        from: Some((of_rank(rank), Next::Rest)),
        bytes: Bytes::from(format!("{rank}")),
        counts: true,
    };
    let problem = target.write(&[0, 1, 2, 3, 0].map(piece)).unwrap_err();
    assert!(problem.text.contains("rank.1.out"), "{problem:?}");
    assert_eq!(fs::read_to_string(directory.join("rank.0.out")).unwrap(), "00");
    assert_eq!(fs::read_to_string(directory.join("rank.2.out")).unwrap(), "2");
}

#[test]
fn the_end_of_unread_output_is_not_awaited_for_longer_than_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("rank.0.out");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let mut writer = Writer::new(Stream::Out, LineStyle::default(), sink(folder.path().to_owned()), None).unwrap();
    writer.write(Some((of_rank(0), Next::Rest)), Bytes::from_static(b"x"));
    assert_eq!(writer.finish(Some(std::time::Duration::from_millis(20))), None);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut fs::File::open(&pipe).unwrap(), &mut text).unwrap_or_default();
    assert_eq!(writer.finish(None), Some(false));
}
