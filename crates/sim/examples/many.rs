use wireup_sim::random::{remote_with_faults, remote_world};
use wireup_sim::run;
fn main() {
    let a: Vec<u64> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let mut bad = 0;
    std::panic::set_hook(Box::new(|i| eprintln!("PANIC {i}")));
    for seed in a[0]..a[1] {
        for (k, f) in [(0, remote_world as fn(u64) -> wireup_sim::WorldSpec), (1, remote_with_faults)] {
            let r = std::panic::catch_unwind(|| {
                let mut s = f(seed);
                s.trace = a.get(2) == Some(&k);
                if s.trace {
                    eprintln!("{s:#?}");
                }
                run(s)
            });
            match r {
                Err(_) => {
                    bad += 1;
                    println!("{seed}/{k} panic");
                }
                Ok(r) => {
                    if !r.problems.is_empty() {
                        bad += 1;
                        let t = r.problems[0].clone();
                        println!("{seed}/{k} {}", &t[..t.len().min(400)]);
                    }
                }
            }
        }
    }
    println!("bad {bad}");
}
