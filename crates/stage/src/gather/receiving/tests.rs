use super::super::request::Request;
use super::super::sending::gather;
use super::*;
use proptest::prelude::*;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

/// Two nodes with two ranks each, and the launcher's folder.
struct Bench {
    folder: tempfile::TempDir,
    gathering: Option<Gathering>,
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench { folder: tempfile::tempdir().unwrap(), gathering: None };
        for name in ["n0", "n1", "here"] {
            fs::create_dir(bench.at(name)).unwrap();
        }
        bench
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// The streams of two nodes, each of which works in its own folder.
    fn streams(&self, rules: &[&str]) -> (Vec<Rule>, Vec<Vec<u8>>, Vec<Vec<GatheredNode>>) {
        let rules: Vec<Rule> = rules.iter().map(|rule| Rule::parse(rule.as_bytes()).unwrap()).collect();
        let place = |node: u32| {
            let first = 2 * node;
            vec![GatheredNode::new(node, &format!("n{node}"), [(first, node), (first + 1, node)])]
        };
        let places = vec![place(0), place(1)];
        let folders = ["n0", "n1"].map(|name| self.at(name).as_os_str().as_bytes().to_vec()).to_vec();
        let request = Request { rules: rules.clone(), gatherers: places.clone(), folders };
        let streams = (0..2).map(|own| {
            let input = [&request.encode()[..], &permission(2)].concat();
            let mut output = Vec::new();
            gather(own, &mut &input[..], &mut output).unwrap();
            output
        });
        let streams = streams.collect();
        (rules, streams, places)
    }

    /// Gathers into `here`; returns the problems.
    fn gather(&mut self, rules: &[&str]) -> Vec<String> {
        let (rules, streams, places) = self.streams(rules);
        let names = ["n0", "n1"].map(str::to_owned).to_vec();
        let mut gathering = Gathering::new(&rules, &self.at("here"), names);
        gathering.expect_gatherers(places.iter().map(Vec::as_slice));
        for (own, stream) in (0..).zip(&streams) {
            for part in stream.chunks(50_000) {
                gathering.output(own, part);
            }
            assert!(gathering.is_done(own));
        }
        assert!(gathering.is_over());
        gathering.finish();
        let prefix = format!("{}/", self.folder.path().display());
        let problems = gathering.problems().0.iter().map(|problem| problem.replace(&prefix, "")).collect();
        self.gathering = Some(gathering);
        problems
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.at("here").join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

#[test]
fn nothing_is_gathered_into_what_a_stranger_has_put_into_a_folder_for_all_users() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can make files of another user");
        return;
    }
    let mut bench = Bench::new();
    fs::set_permissions(bench.at("here"), fs::Permissions::from_mode(0o1777)).unwrap();
    let own = |name: &str| std::os::unix::fs::lchown(bench.at(name), Some(61_002), None).unwrap();
    fs::create_dir(bench.at("theirs")).unwrap();
    symlink(bench.at("theirs"), bench.at("here/linked")).unwrap();
    fs::create_dir(bench.at("here/made")).unwrap();
    ["here/linked", "here/made"].iter().for_each(|name| own(name));
    bench.write("n0/out", b"text");
    for rule in ["out=>linked", "out=>made"] {
        let problems = bench.gather(&[rule]);
        assert!(problems.iter().any(|problem| problem.contains("of user 61002")), "{rule}: {problems:?}");
    }
    assert_eq!(
        fs::read_dir(bench.at("theirs")).unwrap().count() + fs::read_dir(bench.at("here/made")).unwrap().count(),
        0
    );
}

#[test]
fn files_keep_their_contents_bits_times_and_holes() {
    let mut bench = Bench::new();
    let noise: Vec<u8> = (0..700_000u64).map(|at| (at * at % 251) as u8 ^ (at >> 9) as u8).collect();
    let file = bench.write("n0/out/deep/noise", &noise);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o750)).unwrap();
    let time = UNIX_EPOCH + Duration::new(1_600_000_000, 123_456_789);
    fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    let sparse = bench.write("n0/out/sparse", b"begin");
    let handle = fs::File::options().write(true).open(&sparse).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&handle, b"end", 50 << 20).unwrap();
    handle.set_len(80 << 20).unwrap();
    bench.write("n0/out/empty", b"");
    fs::write(bench.at("n0/out").join(OsStr::from_bytes(b"not \xff UTF-8")), b"x").unwrap();
    symlink("/no/such", bench.at("n0/out/link")).unwrap();
    symlink("out/deep", bench.at("n0/way")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, bench.at("n0/out/pipe"), rustix::fs::Mode::RUSR).unwrap();
    fs::set_permissions(bench.at("n0/out/deep"), fs::Permissions::from_mode(0o555)).unwrap();
    assert_eq!(bench.gather(&["out=>got", "way=>got"]), [""; 0]);
    assert_eq!(bench.read("got/out/deep/noise"), noise);
    // A link that matches a rule is followed; a link inside of a gathered folder stays a link.
    assert_eq!(bench.read("got/way/noise"), noise);
    assert_eq!(fs::read_link(bench.at("here/got/out/link")).unwrap(), Path::new("/no/such"));
    let meta = fs::metadata(bench.at("here/got/out/deep/noise")).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.modified().unwrap()), (0o750, time));
    assert_eq!(fs::metadata(bench.at("here/got/out/deep")).unwrap().mode() & 0o777, 0o555);
    let arrived = fs::metadata(bench.at("here/got/out/sparse")).unwrap();
    assert_eq!(arrived.len(), 80 << 20);
    assert!(arrived.blocks() <= fs::metadata(&sparse).unwrap().blocks() + 16, "holes were filled");
    assert_eq!(bench.read("got/out/sparse"), fs::read(&sparse).unwrap());
    assert_eq!(bench.read("got/out/empty"), b"");
    assert_eq!(fs::read(bench.at("here/got/out").join(OsStr::from_bytes(b"not \xff UTF-8"))).unwrap(), b"x");
    assert!(!bench.at("here/got/out/pipe").exists());
    for folder in ["n0/out/deep", "here/got/out/deep", "here/got/way"] {
        fs::set_permissions(bench.at(folder), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn ranks_and_nodes_have_names_of_their_own() {
    let mut bench = Bench::new();
    for rank in 0..4 {
        bench.write(&format!("n{}/out.{rank}", rank / 2), format!("{rank}").as_bytes());
    }
    let rules = ["out.{rank}=>ranks", "out.*=>nodes/{node}", "out.{rank}=>{node}/{rank}", "no*=>x", "./out.0=>ranks"];
    assert_eq!(bench.gather(&rules), [""; 0]);
    for rank in 0..4 {
        let (node, text) = (rank / 2, format!("{rank}"));
        for name in
            [format!("ranks/out.{rank}"), format!("nodes/n{node}/out.{rank}"), format!("n{node}/{rank}/out.{rank}")]
        {
            assert_eq!(bench.read(&name), text.as_bytes(), "{name}");
        }
    }
    let gathering = bench.gathering.as_ref().unwrap();
    let unmatched: Vec<_> = gathering.unmatched().map(|rule| rule.pattern.clone()).collect();
    assert_eq!(unmatched, [b"no*".to_vec()]);
    assert_eq!(gathering.amount().0, 12);
}

#[test]
fn nothing_is_overwritten_and_the_rest_goes_on() {
    let mut bench = Bench::new();
    bench.write("n0/log", b"0");
    bench.write("n1/log", b"1");
    bench.write("n0/other", b"other");
    bench.write("here/got/old", b"old");
    bench.write("n0/old", b"new");
    bench.write("n0/dir/x", b"x");
    bench.write("here/got/dir", b"a file");
    let problems = bench.gather(&["log=>got", "old=>got", "other=>got", "dir=>got"]);
    assert_eq!(
        problems,
        [
            "here/got/old exists already; n0:n0/old was not gathered",
            "here/got/dir exists already; n0:n0/dir was not gathered",
            "here/got/dir/x: Not a directory (os error 20); n0:n0/dir/x was not gathered",
            "here/got/log has two sources: n0:n0/log was gathered, n1:n1/log was not; give each its own folder with \
             {node} or {rank}",
        ]
    );
    assert_eq!((bench.read("got/log"), bench.read("got/old")), (b"0".to_vec(), b"old".to_vec()));
    assert_eq!(bench.read("got/other"), b"other");
    // Gathering a second time fails, because the file exists already.
    assert_eq!(bench.gather(&["other=>got"]), ["here/got/other exists already; n0:n0/other was not gathered"]);
}

#[test]
fn links_in_the_folder_lead_nowhere() {
    let mut bench = Bench::new();
    bench.write("n0/dir/file", b"x");
    fs::create_dir_all(bench.at("here/got")).unwrap();
    fs::create_dir_all(bench.at("elsewhere")).unwrap();
    symlink(bench.at("elsewhere"), bench.at("here/got/dir")).unwrap();
    let problems = bench.gather(&["dir=>got"]);
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert_eq!(fs::read_dir(bench.at("elsewhere")).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_read_is_named() {
    let mut bench = Bench::new();
    symlink("nowhere", bench.at("n0/broken")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, bench.at("n0/pipe"), rustix::fs::Mode::RUSR).unwrap();
    let problems = bench.gather(&["broken=>got", "pipe=>got"]);
    assert_eq!(
        problems,
        ["node n0: n0/broken: No such file or directory (os error 2)", "node n0: n0/pipe: neither a file nor a folder"]
    );
}

#[test]
fn an_unfinished_stream_leaves_no_file() {
    let bench = Bench::new();
    bench.write("n0/file", &[7; 3_000]);
    let (rules, streams, places) = bench.streams(&["file=>got"]);
    let whole = streams[0].len();
    let mut ending = Vec::new();
    [Frame::End, Frame::Matched { rule: 0, count: 1 }, Frame::Done].iter().for_each(|frame| frame.encode(&mut ending));
    for end in [whole / 2, whole - ending.len()] {
        let mut gathering = Gathering::new(&rules, &bench.at("here"), vec!["n0".into(), "n1".into()]);
        gathering.expect_gatherers(places.iter().map(Vec::as_slice));
        gathering.output(0, &streams[0][..end]);
        assert!(!gathering.is_done(0));
        gathering.finish();
        drop(gathering);
        assert!(fs::read_dir(bench.at("here/got")).map_or(0, Iterator::count) == 0);
    }
}

#[test]
fn more_gatherers_send_when_others_have_ended() {
    let bench = Bench::new();
    let mut gathering = Gathering::new(&[], &bench.at("here"), vec!["n".into(); 200]);
    let places: Vec<Vec<GatheredNode>> = (0..200).map(|node| vec![GatheredNode::new(node, "n", [])]).collect();
    assert_eq!(gathering.expect_gatherers(places.iter().map(Vec::as_slice)), permission(SENDERS_MAX));
    let mut done = Vec::new();
    Frame::Done.encode(&mut done);
    assert_eq!(gathering.output(3, &done[..2]), None);
    assert_eq!(gathering.output(3, &done[2..]), Some(permission(SENDERS_MAX + 1)));
    assert_eq!(gathering.output(3, &done), None, "it has ended");
    assert_eq!(gathering.output(0, &[255; 9]), Some(permission(SENDERS_MAX + 2)));
    assert_eq!((gathering.problems().1, gathering.done()), (1, 2));
    assert_eq!(gathering.output(4_000, &done), None);
}

proptest! {
    #[test]
    fn any_bytes_of_a_node_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let bench = Bench::new();
        let rules = [Rule::parse(b"a=>b").unwrap()];
        let mut gathering = Gathering::new(&rules, &bench.at("here"), vec!["n0".into()]);
        gathering.expect_gatherers([&[][..]]);
        gathering.output(0, &bytes);
        gathering.finish();
    }
}
