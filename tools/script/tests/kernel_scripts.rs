//! Packet scripts on this machine's kernel, the oracle of `scripts/` and of random scripts.
//!
//! A sample of our own scripts is played on the kernel, which must do what they expect. The seeds
//! in `compare_seeds.txt` once showed a difference, and are played on both. Network namespaces need
//! root; without it the tests report that they did not run.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::thread;

/// Number of kernels at once; they mostly sleep.
const JOBS: usize = 8;
/// One script in so many is played.
const SAMPLE_EVERY: usize = 8;
/// Longest script in seconds; longer ones are skipped to keep the test quick.
const LONGEST_S: f64 = 3.0;
/// Scripts in which we differ from the kernel on purpose; docs/differences.md gives the reasons.
const DIFFERENT: [&str; 2] = [
    "established/mtu_probe_and_all_behind_it_are_lost.pkt",
    "established/window_taken_back.pkt",
];

/// Words in the names of scripts about features that the kernel lacks. Accurate ECN is younger than
/// Linux 6.18, HyStart++ was never in it, and DCTCP is a module that may be missing.
const ABSENT: [&str; 3] = ["accecn", "hystart_plus_plus", "dctcp_"];

fn run_script(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_script"))
        .args(arguments)
        .output()
        .expect("script runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn can_run(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        let _ = writeln!(std::io::stderr(), "ignored: {test}: not root");
    }
    is_root
}

/// How often a script that failed is played again, alone.
const AGAIN: u32 = 5;

/// The output of a subject that fails in every play. The kernel's clock is the real one. On a busy
/// machine a packet may be injected so late that one of the kernel's timers fires first.
fn lasts(subject: &str, play: impl Fn(&str) -> Output) -> Option<String> {
    let mut text = String::new();
    for _ in 0..AGAIN {
        let output = play(subject);
        if output.status.success() {
            println!("{subject}: passed when it was played again");
            return None;
        }
        text = format!("{subject}\n{}", said(&output));
    }
    Some(text)
}

/// Plays all subjects, several at once, and fails with the output of those that fail every time.
fn all(subjects: Vec<String>, play: impl Fn(&str) -> Output + Sync) {
    assert!(!subjects.is_empty());
    let next = Mutex::new(subjects.into_iter());
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                loop {
                    let Some(subject) = next.lock().expect("the list").next() else {
                        return;
                    };
                    let output = play(&subject);
                    if !output.status.success() {
                        failures.lock().expect("the failures").push(subject);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("the failures");
    let lasting = failures
        .into_iter()
        .filter_map(|subject| lasts(&subject, &play));
    let lasting: Vec<String> = lasting.collect();
    assert!(lasting.is_empty(), "{}", lasting.join("\n"));
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of scripts") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "pkt") {
            files.push(path);
        }
    }
}

/// Duration of a script in seconds, from its output: `.. passed (11 events, 0.201 s)`.
fn seconds(file: &str) -> f64 {
    let text = said(&run_script(&[file]));
    let number = text
        .rsplit(", ")
        .next()
        .and_then(|tail| tail.split(' ').next());
    number
        .and_then(|number| number.parse().ok())
        .expect("a time")
}

#[test]
fn the_kernel_does_what_our_scripts_expect() {
    if !can_run("the_kernel_does_what_our_scripts_expect") {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    for name in DIFFERENT {
        assert!(files.contains(&root.join(name)), "no script {name}");
    }
    files.retain(|file| !DIFFERENT.iter().any(|name| *file == root.join(name)));
    let count = files.len();
    files.retain(|file| {
        let name = file.display().to_string();
        !ABSENT.iter().any(|absent| name.contains(absent))
    });
    println!(
        "{} scripts of what Linux 6.18 does not have",
        count - files.len()
    );
    let names = files.iter().map(|file| file.display().to_string());
    let sample = names.step_by(SAMPLE_EVERY);
    let quick = sample.filter(|file| seconds(file) <= LONGEST_S).collect();
    all(quick, |file| {
        run_script(&["--kernel", "--tolerance", "80", "--nothing-left", file])
    });
}

#[test]
fn seeds_that_once_differed_are_the_same() {
    if !can_run("seeds_that_once_differed_are_the_same") {
        return;
    }
    let seeds = include_str!("compare_seeds.txt")
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|word| *word != "#")
        .map(str::to_owned)
        .collect();
    all(seeds, |seed| {
        let arguments = [
            "--compare",
            "--tolerance",
            "60",
            "--random",
            "1",
            "--seed",
            seed,
        ];
        run_script(&arguments)
    });
}

/// A lingering close blocks, but frees its number at once. If the runner closed that number again
/// at the end, it would close another script's descriptor.
#[test]
fn close_that_blocks_gives_its_number_away_at_once() {
    if !can_run("close_that_blocks_gives_its_number_away_at_once") {
        return;
    }
    let script = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lingers.pkt");
    std::fs::write(&script, LINGERS).expect("a script");
    let mut words = vec!["--compare"];
    words.resize(25, script.to_str().expect("a path"));
    let output = run_script(&words);
    let said = said(&output);
    // A difference is no failure here. All scripts must have been played.
    assert!(said.contains(", 0 not compared"), "{said}");
}

/// A script that ends while its close waits for an ACK.
const LINGERS: &str = "
    0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
   +0 bind(3, ..., ...) = 0
   +0 listen(3, 1) = 0
   +0 < S 0:0(0) win 30000 <mss 1000>
   +0 > S. 0:0(0) ack 1 <...>
 +.01 < . 1:1(0) ack 1 win 30000
   +0 accept(3, ..., ...) = 4
   +0 setsockopt(4, SOL_SOCKET, SO_LINGER, {onoff=1, linger=5}, 8) = 0
   +0 write(4, ..., 1000) = 1000
   +0 > P. 1:1001(1000) ack 1
  +.01...4 close(4) = 0
 +.01 < . 1:1(0) ack 1 win 30000
";
