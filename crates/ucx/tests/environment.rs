//! This test runs in a process of its own: while the library is being opened, its settings are in the environment, and
//! other tests open the library too.

use wireup_ucx::Worker;

#[test]
fn opening_a_worker_leaves_no_ucx_variables() {
    let settings =
        || -> Vec<_> { std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("UCX")).collect() };
    let before = settings();
    let _ = Worker::open();
    assert_eq!(settings(), before);
}
