//! Gives the decoders of the fuzz targets their stored corpus, and any bytes, with the stable toolchain.

mod decoders;

use proptest::prelude::*;
use std::path::Path;

proptest! {
    #[test]
    fn any_bytes_pass_every_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        decoders::DECODERS.iter().for_each(|(_, decoder)| decoder(&bytes));
    }
}

#[test]
fn every_corpus_file_passes_its_decoder() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/fuzz/corpus");
    for (name, decoder) in decoders::DECODERS {
        let folder = corpus.join(name);
        let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut replayed = 0;
        for file in files {
            let path = file.expect("a readable entry").path();
            let bytes = std::fs::read(&path).expect("a readable file");
            // Shown only if the decoder panics: it identifies the file.
            println!("{}", path.display());
            decoder(&bytes);
            replayed += 1;
        }
        assert!(replayed > 0, "the corpus of {name} is empty");
    }
}
