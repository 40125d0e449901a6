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
fn process_that_serves_as_many_readers_as_it_can_is_named_by_each_tool() {
    let directory = directory("busy");
    let server = server(&directory, "a");
    let pid = server.0.id();
    let readers: Vec<_> = (0..observe::limits::CLIENTS_MAX)
        .map(|_| {
            let path = observe::place::socket_path(&directory, pid);
            let mut reader = observe::client::Client::connect(&path).expect("a reader");
            reader.statistics().expect("the agent serves it");
            reader
        })
        .collect();
    let file = directory.join("file.pcapng");
    let write = ["capture", "-w", file.to_str().expect("a path")];
    let commands: [(&[&str], i32); 6] = [
        (&["top", "--once", "--delay", "0.1"], 0),
        (&["metrics"], 0),
        (&["rules"], 0),
        (&["ss", "-ta"], 1),
        (&["trace", "dst", "10.9.0.1"], 2),
        (&write, 1),
    ];
    for (words, status) in commands {
        let output = look(&directory, words);
        let said = String::from_utf8_lossy(&output.stderr);
        let wanted = format!("process {pid}: it ends, or serves as many readers as it can");
        assert!(said.contains(&wanted), "{words:?}: {said}");
        assert!(!said.contains('\u{1b}'), "colours in a file: {said:?}");
        assert_eq!(output.status.code(), Some(status), "{words:?}: {said}");
    }
    drop(readers);
    let _ = std::fs::remove_dir_all(&directory);
}

/// The page of a server of metrics.
fn scrape(address: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = b"GET /metrics HTTP/1.1\r\n\r\n";
    stream.write_all(request).expect("a request");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    page
}

fn signal(pid: u32, signal: &str) {
    let status = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(status.is_ok_and(|status| status.success()));
}

/// Readers that fill the queue of connections of a stopped process, as many looks at it would.
fn fill(directory: &Path, pid: u32) -> Vec<observe::client::Client> {
    let path = observe::place::socket_path(directory, pid);
    let connect = |_| observe::client::Client::connect(&path).ok();
    let readers: Vec<_> = (0..1_000).map_while(connect).collect();
    assert!(readers.len() < 1_000, "the queue is full");
    readers
}

#[test]
fn capture_of_a_process_that_is_stopped_for_long_goes_on() {
    let directory = directory("stopped-capture");
    let server = server(&directory, "a");
    let pid = server.0.id();
    let file = directory.join("file.pcapng");
    let mut command = mill(&directory);
    let words = ["capture", &pid.to_string(), "-w"];
    let capture = command.args(words).arg(&file).stderr(Stdio::null());
    let mut capture = Server(capture.spawn().expect("a capture"));
    let begin = Instant::now();
    while std::fs::metadata(&file).map_or(0, |file| file.len()) == 0 {
        assert!(begin.elapsed() < PATIENCE, "the capture begins");
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(pid, "-STOP");
    let readers = fill(&directory, pid);
    // Contexts are asked each second to go on.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(4) {
        let ended = capture.0.try_wait().expect("a child");
        assert_eq!(ended, None, "after {:?}", begin.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    signal(pid, "-CONT");
    signal(capture.0.id(), "-INT");
    assert!(capture.0.wait().expect("a child").success());
    drop((readers, server));
    let _ = std::fs::remove_dir_all(&directory);
}

#[test]
fn process_that_is_stopped_for_long_keeps_its_last_values() {
    use std::io::BufRead as _;
    let directory = directory("stopped");
    let server = server(&directory, "a");
    let pid = server.0.id();
    let mut command = mill(&directory);
    command.args(["metrics", "--listen", "127.0.0.1:0"]);
    let mut metrics = Server(command.stdout(Stdio::piped()).spawn().expect("metrics"));
    let out = metrics.0.stdout.as_mut().expect("its output");
    let mut line = String::new();
    let read = std::io::BufReader::new(out).read_line(&mut line);
    read.expect("a line");
    let address = line.trim().strip_prefix("metrics at http://");
    let address = address.and_then(|rest| rest.strip_suffix("/metrics"));
    let address = address.expect("an address");
    let wanted = format!("millstream_turns_total{{process=\"{pid}\"");
    assert!(scrape(address).contains(&wanted));
    signal(pid, "-STOP");
    let readers = fill(&directory, pid);
    for at in 0..4 {
        assert!(scrape(address).contains(&wanted), "look {at}");
    }
    signal(pid, "-CONT");
    drop(readers);
    let turns = |page: String| {
        let line = page.lines().find(|line| line.starts_with(&wanted));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        value.expect("a number")
    };
    let begin = Instant::now();
    let before = turns(scrape(address));
    while turns(scrape(address)) == before {
        assert!(begin.elapsed() < PATIENCE, "its values are fresh again");
    }
    drop((metrics, server));
    let _ = std::fs::remove_dir_all(&directory);
}

/// The only child of a process.
fn child_of(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

#[test]
fn top_that_a_signal_ends_puts_the_terminal_back() {
    let directory = directory("terminal");
    let typescript = directory.join("typescript");
    let mut command = Command::new("script");
    // The terminal that `script` makes has no size where the test has no terminal.
    let inner = format!(
        "stty rows 24 cols 80; exec {} top",
        env!("CARGO_BIN_EXE_mill")
    );
    command
        .args(["-qfec", &inner])
        .arg(&typescript)
        .env("MILLSTREAM_OBSERVE", &directory)
        .env("TERM", "xterm");
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = child else {
        eprintln!("ignored: script is not installed");
        return;
    };
    let mut terminal = Server(child);
    let shown = |wanted: &str| {
        let bytes = std::fs::read(&typescript).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(wanted)
    };
    let begin = Instant::now();
    while !shown("q quit") {
        assert!(begin.elapsed() < PATIENCE, "top shows its screen");
        std::thread::sleep(Duration::from_millis(10));
    }
    let top = child_of(terminal.0.id()).expect("top runs");
    signal(top, "-TERM");
    let status = terminal.0.wait().expect("it ends");
    assert!(status.success(), "{status}");
    assert!(shown("\u{1b}[?1049l"), "the main screen is back");
    assert!(shown("\u{1b}[?25h"), "the cursor is back");
    let _ = std::fs::remove_dir_all(&directory);
}

/// Stderr of a tool, and its status, when its output goes to `stdout`.
fn told_into(directory: &Path, words: &[&str], stdout: Stdio) -> (Option<i32>, String) {
    let mut command = mill(directory);
    let command = command.args(words).stdout(stdout).stderr(Stdio::piped());
    let output = command.spawn().expect("it starts").wait_with_output();
    let output = output.expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn output_that_does_not_leave_fails_and_a_reader_that_has_gone_is_no_failure() {
    let directory = directory("output");
    let server = server(&directory, "a");
    let commands: [&[&str]; 6] = [
        &["top", "--once", "--delay", "0.1"],
        &["top", "--once", "--delay", "0.1", "--json"],
        &["metrics"],
        &["rules"],
        &["ss", "-ta"],
        &["ss", "-ta", "--json"],
    ];
    for words in commands {
        let full = std::fs::File::create("/dev/full").expect("a device");
        let (status, said) = told_into(&directory, words, full.into());
        let wanted = "mill: stdout: No space left on device (os error 28)\n";
        assert_eq!((status, &*said), (Some(1), wanted), "{words:?}");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let (status, said) = told_into(&directory, words, writer.into());
        assert_eq!((status, &*said), (Some(0), ""), "{words:?}");
    }
    drop(server);
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
