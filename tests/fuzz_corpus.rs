//! Replays what the fuzzers have found interesting, so that a fault which they found once is found
//! by every test run. It must never change the corpus.

#[path = "../fuzz/targets.rs"]
mod targets;

use std::path::Path;

#[test]
fn the_corpus_of_every_fuzzer_runs_without_a_panic() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (name, run) in targets::TARGETS {
        let folder = corpus.join(name);
        let entries = std::fs::read_dir(&folder);
        let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut replayed = 0;
        for entry in entries {
            let path = entry.expect("a readable folder").path();
            let data = std::fs::read(&path).expect("a readable file");
            // The output names the input if the target panics.
            eprintln!("{}", path.display());
            run(&data);
            replayed += 1;
        }
        assert!(replayed > 0, "{} is empty", folder.display());
    }
}
