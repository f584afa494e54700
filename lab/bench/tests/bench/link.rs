//! `wireup bench p2p | coll` with few sizes: every transport and scheme is measured.

use crate::bench;
use crate::results::Results;

fn run(name: &str, words: &str, contestants: &[&str], sizes: &[u32]) {
    let results = Results::of(name);
    let words = format!("{words} --rounds 1 --iterations-small 5 --iterations-large 2 {}", results.json());
    bench(&words).succeed();
    for size in sizes {
        results.lines().expect(contestants, &format!("bytes={size},fanout=2"), &["latency", "mean", "bandwidth"]);
    }
}

#[test]
fn p2p_bench_measures_every_transport_and_size() {
    let words = "p2p --nodes 3 --fanout 2 --sizes 8,100000 --only bare,tcp,tree";
    run("p2p", words, &["bare TCP", "tcp", "tree"], &[8, 100_000]);
}

#[test]
fn coll_bench_measures_every_scheme_and_size() {
    let words = "coll --nodes 5 --fanout 2 --sizes 8,60000 --only tree,ring/tcp,ring/tree,log/tcp,log/tree";
    run("coll", words, &["tree", "ring/tcp", "ring/tree", "log/tcp", "log/tree"], &[8, 60_000]);
}
