//! Two servers, and the commands that observe them from outside.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than a server takes to begin.
const PATIENCE: Duration = Duration::from_secs(20);

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // The process may be dead already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mill(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mill"));
    command.env("MILLSTREAM_OBSERVE", directory);
    command
}

fn server(directory: &Path, name: &str) -> Server {
    let wire = format!("memif:{}/{name}.memif,role=server", directory.display());
    let options = ["--wire", &wire, "--addr", "10.9.0.2/24"];
    let mut command = mill(directory);
    command.arg("serve").arg(directory).args(options);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let server = Server(child.expect("a server"));
    let socket = directory.join(format!("{}.sock", server.0.id()));
    let begin = Instant::now();
    while !socket.exists() {
        assert!(begin.elapsed() < PATIENCE, "no {}", socket.display());
        std::thread::sleep(Duration::from_millis(10));
    }
    server
}

fn look(directory: &Path, arguments: &[&str]) -> Output {
    let output = mill(directory).args(arguments).output();
    output.expect("the command runs")
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("mill-observe-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a directory");
    path
}

#[test]
fn two_processes_are_seen_and_the_socket_of_a_killed_one_is_removed() {
    let directory = directory("two");
    let (first, second) = (server(&directory, "a"), server(&directory, "b"));
    let (one, two) = (first.0.id().to_string(), second.0.id().to_string());
    let page = text(&look(&directory, &["metrics"]));
    for pid in [&one, &two] {
        let wanted = format!("millstream_turns_total{{process=\"{pid}\",context=\"0\"");
        assert!(page.contains(&wanted), "{wanted}\nnot in\n{page}");
    }
    let top = text(&look(
        &directory,
        &["top", "--once", "--json", "--delay", "0.2"],
    ));
    let rows: Vec<serde_json::Value> = serde_json::from_str(&top).expect("JSON");
    assert_eq!(rows.len(), 2, "{top}");
    let socket = directory.join(format!("{one}.sock"));
    drop(first);
    assert!(socket.exists(), "a killed process leaves it");
    let page = text(&look(&directory, &["metrics"]));
    assert!(!page.contains(&format!("process=\"{one}\"")) && page.contains(&two));
    assert!(!socket.exists());
    drop(second);
    let _ = std::fs::remove_dir_all(&directory);
}

#[test]
fn process_that_is_not_there_is_named() {
    let directory = directory("none");
    let output = look(&directory, &["top", "--once", "--pid", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let line = String::from_utf8_lossy(&output.stderr);
    assert!(line.starts_with("mill: process 1: "), "{line}");
    let _ = std::fs::remove_dir_all(&directory);
}
