//! Every packet script of `scripts/`, named by folder and file, over IPv4 as it is written and over
//! IPv6.
//!
//! A folder is a state, a file is an event in it. A script must pass, and nothing may leave that it
//! does not expect. Over IPv6 (`--ip_version=ipv6`) the MTU is 20 bytes larger, so that segments
//! are as long. Scripts that name a version, or that `ipv4_only.txt` lists with a reason, do not
//! run over IPv6. A listed script must fail there, so that the list only shrinks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Failed, Trial};
use script::{Mismatch, Options, run};

/// Scripts about IPv4 itself, one on a line, with the reason behind a colon.
const IPV4_ONLY: &str = include_str!("ipv4_only.txt");

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut files = Vec::new();
    collect(&root, &mut files);
    assert!(!files.is_empty(), "no scripts in {}", root.display());
    files.sort();
    let mut exceptions = exceptions();
    let mut trials = Vec::new();
    for file in files {
        let name = name(&root, &file);
        let again = file.clone();
        match exceptions.remove(name.as_str()) {
            Some(reason) => trials.push(Trial::test(format!("ipv4_only/{name}"), move || {
                is_needed(&again, reason)
            })),
            None if !names_a_version(&file) => trials
                .push(Trial::test(format!("ipv6/{name}"), move || {
                    play(&again, true)
                })),
            None => {}
        }
        trials.push(Trial::test(name, move || play(&file, false)));
    }
    assert!(exceptions.is_empty(), "no such scripts: {exceptions:?}");
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

/// The reasons, by script name.
fn exceptions() -> BTreeMap<&'static str, &'static str> {
    let lines = IPV4_ONLY.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split_once(": ").expect("a name, and a reason"))
        .collect()
}

fn name(root: &Path, file: &Path) -> String {
    let name = file.strip_prefix(root).unwrap_or(file).with_extension("");
    name.display().to_string()
}

fn names_a_version(file: &Path) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| text.contains("--ip_version="))
}

fn play(file: &Path, is_v6: bool) -> Result<(), Failed> {
    let how = match is_v6 {
        true => " (over IPv6: if it is about IPv4 itself its name belongs into ipv4_only.txt)",
        false => "",
    };
    outcome(file, is_v6).map_err(|mismatch| {
        Failed::from(format!(
            "{}{}:{mismatch}{how}",
            mismatch.trace,
            file.display()
        ))
    })
}

fn is_needed(file: &Path, reason: &str) -> Result<(), Failed> {
    match outcome(file, true) {
        Err(_) => Ok(()),
        Ok(()) => Err(format!("passes over IPv6, though listed: {reason}").into()),
    }
}

fn outcome(file: &Path, is_v6: bool) -> Result<(), Mismatch> {
    let text = std::fs::read_to_string(file).expect("a script");
    let version = is_v6.then(|| ("ip_version".to_owned(), "ipv6".to_owned()));
    let options = Options {
        trace: true,
        nothing_left: true,
        options: version.into_iter().collect(),
        ..Options::default()
    };
    run(&text, &options).map(|_| ())
}
