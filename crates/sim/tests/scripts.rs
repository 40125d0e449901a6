//! Every packet script of `scripts/`, one test each, named by folder and file.
//!
//! A folder is a state, a file what arrives in it. A script must pass, and nothing may leave that it does not expect.

use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Failed, Trial};
use sim::script::{Options, run};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut files = Vec::new();
    collect(&root, &mut files);
    assert!(!files.is_empty(), "no scripts in {}", root.display());
    files.sort();
    let trials = files.into_iter().map(|file| trial(&root, file)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("a folder of scripts");
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "pkt") {
            files.push(path);
        }
    }
}

fn trial(root: &Path, file: PathBuf) -> Trial {
    let name = file.strip_prefix(root).unwrap_or(&file).with_extension("");
    Trial::test(name.display().to_string(), move || play(&file))
}

fn play(file: &Path) -> Result<(), Failed> {
    let text = std::fs::read_to_string(file)?;
    let options = Options {
        trace: true,
        nothing_left: true,
        ..Options::default()
    };
    match run(&text, &options) {
        Ok(_) => Ok(()),
        Err(mismatch) => Err(format!("{}{}:{mismatch}", mismatch.trace, file.display()).into()),
    }
}
