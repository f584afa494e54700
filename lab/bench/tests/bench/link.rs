//! `wireup bench p2p | coll` with few sizes: every transport and scheme is measured; times are not checked.

use std::fs;
use std::path::PathBuf;
use wireup_e2e::Run;
use wireup_e2e::libraries::folder;

/// A folder for the output of a benchmark; removed when dropped.
struct Results(PathBuf);

impl Results {
    fn of(name: &str) -> Results {
        let folder = std::env::temp_dir().join(format!("wireup-link-bench-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        Results(folder)
    }

    /// Runs the benchmark and returns the names and sizes in its CSV file.
    fn run(&self, words: &str, figure: &str) -> Vec<(String, String)> {
        let at = |name: &str| self.0.join(name).display().to_string();
        let files = ["--json", &at("out.json"), "--csv", &at("out.csv"), "--svg", &self.0.display().to_string()]
            .map(str::to_owned);
        let library = folder().join(xtask::libraries::file("pmi2")).display().to_string();
        let library = ["--library".to_owned(), library];
        let words = ["bench"].into_iter().chain(words.split_whitespace()).map(str::to_owned);
        let outcome = Run::wireup(words.chain(library).chain(files)).succeed();
        assert!(!outcome.out().contains("failed"), "{outcome}");
        let json: serde_json::Value = serde_json::from_slice(&fs::read(at("out.json")).unwrap()).unwrap();
        assert_eq!(json["format"], 1);
        let svg = fs::read_to_string(at(figure)).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("size, B"), "{svg}");
        let csv = fs::read_to_string(at("out.csv")).unwrap();
        let column = |line: &str, n: usize| line.split(',').nth(n).unwrap().to_owned();
        csv.lines().skip(1).map(|line| (column(line, 3), column(line, 4))).collect()
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn wanted(names: &[&str], sizes: &[&str]) -> Vec<(String, String)> {
    names.iter().flat_map(|name| sizes.iter().map(|size| ((*name).to_owned(), (*size).to_owned()))).collect()
}

#[test]
fn p2p_bench_measures_every_transport_and_size() {
    let results = Results::of("p2p");
    let words = "p2p --nodes 3 --fanout 2 --rounds 1 --sizes 8,100000 --iterations-small 5 --iterations-large 2 --only bare,tcp,tree";
    assert_eq!(results.run(words, "p2p-latency.svg"), wanted(&["bare C", "tcp", "tree"], &["8", "100000"]));
}

#[test]
fn coll_bench_measures_every_scheme_and_size() {
    let results = Results::of("coll");
    let words = "coll --nodes 5 --fanout 2 --rounds 1 --sizes 8,60000 --iterations-small 5 --iterations-large 2 \
                 --only tree,ring/tcp,ring/tree,log/tcp,log/tree";
    let names = ["tree", "ring/tcp", "ring/tree", "log/tcp", "log/tree"];
    assert_eq!(results.run(words, "coll-latency.svg"), wanted(&names, &["8", "60000"]));
}
