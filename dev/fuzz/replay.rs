//! Replays the kept corpus of fuzz targets in the tests of a crate, with the stable toolchain.

/// Checks one input.
type Target = fn(&[u8]);

/// # Panics
/// An input breaks what its target checks; the corpus of a target is empty.
pub fn replay(targets: &[(&str, Target)]) {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/fuzz/corpus");
    for (name, target) in targets {
        let folder = corpus.join(name);
        let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut replayed = 0;
        for file in files {
            let path = file.expect("a readable entry").path();
            // Shown only if the target panics: it identifies the file.
            std::println!("{}", path.display());
            target(&std::fs::read(&path).expect("a readable file"));
            replayed += 1;
        }
        assert!(replayed > 0, "the corpus of {name} is empty");
    }
}
