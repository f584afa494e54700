//! Tests of importers that outlive their jobs, with a shell script as importer.

use super::*;
use std::path::Path;
use wireup_wire::job::Preload;

/// A job of one rank that works in this folder, with an importer that is to be kept for later jobs.
pub fn importing(folder: &Path) -> Request {
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/src/keeper/tests/python3");
    let program = Program { cwd: folder.as_os_str().as_encoded_bytes().to_vec(), ..program(&[python, "program.py"]) };
    let preload = Preload { limit_ns: PATIENCE.as_nanos() as u64, required: true, keep: true, ..Preload::default() };
    let processes = vec![Process::new(0)];
    Request::Spawn(Batch { programs: vec![program], processes, preload: Some(preload), ..Batch::default() })
}

fn wait_until_importer_is_gone(folder: &Path) {
    wait_until_gone(std::fs::read_to_string(folder.join("importer")).unwrap().trim().parse().unwrap());
}

/// Starts the rank of the job [`importing`].
pub fn import(keeper: &mut Keeper, folder: &Path) {
    keeper.request(&importing(folder));
    assert!(keeper.flush().unwrap());
    let mut events = Vec::new();
    while !events.iter().any(|event| matches!(event, KeeperEvent::Started { .. })) {
        assert!(socket::wait(keeper.fd(), true, false, Some(PATIENCE)).unwrap(), "{events:?}");
        keeper.receive(&mut events).unwrap();
    }
}

#[test]
fn the_importer_of_a_job_that_still_starts_is_not_kept_after_a_request_to_drop_it() {
    let mut bench = Bench::new();
    let folder = tempfile::tempdir().unwrap();
    let wait = folder.path().join("wait");
    std::fs::write(&wait, "").unwrap();
    bench.request(&importing(folder.path()));
    bench.request(&Request::DropImporter);
    std::fs::remove_file(wait).unwrap();
    bench.until(|bench| bench.reported.contains_key(&0));
    assert_eq!(bench.reported[&0].failed, None);
    wait_until_importer_is_gone(folder.path());
    bench.keeper.close().unwrap();
}
