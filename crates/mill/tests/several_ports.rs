//! A server on two wires, and one whose wire cuts large frames, observed from outside: each wire
//! has its own values and interface.

mod world;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use world::{CURL, OURS, World};

const MILL: &str = env!("CARGO_BIN_EXE_mill");
/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Downloads `/a` from the server at an address.
#[track_caller]
fn download(world: &World, address: &str) {
    let url = format!("http://{address}/a");
    let got = world.kernel(&[&CURL[..], &["-f", "-o", "/dev/null", &url]].concat());
    let complaint = String::from_utf8_lossy(&got.stderr);
    assert!(got.status.success(), "{complaint}");
}

/// A `mill capture` into a file, killed on drop.
struct Capture(Child);

impl Capture {
    /// Begins a capture, which is on when this returns.
    fn begin(pid: &str, file: &Path) -> Self {
        let mut command = Command::new(MILL);
        command.args(["capture", pid, "-w"]).arg(file);
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let begin = Instant::now();
        while !std::fs::metadata(file).is_ok_and(|file| file.len() > 0) {
            assert!(begin.elapsed() < PATIENCE, "the file begins");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self(child)
    }

    /// Ends the capture once `is_so`.
    #[track_caller]
    fn end_when(mut self, is_so: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            assert!(begin.elapsed() < PATIENCE, "too little is captured");
            std::thread::sleep(Duration::from_millis(50));
        }
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // The capture may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A field of all frames that a display filter matches, with checksum validation. `None` if tshark
/// is not installed.
fn field(file: &Path, filter: &str, name: &str) -> Option<Vec<String>> {
    let mut command = Command::new("tshark");
    let judged = ["-o", "tcp.check_checksum:TRUE", "-T", "fields", "-e", name];
    command
        .arg("-r")
        .arg(file)
        .args(["-Y", filter])
        .args(judged);
    let Ok(output) = command.output() else {
        eprintln!("ignored: tshark is not installed");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.lines().map(str::to_owned).collect())
}

/// True if a display filter matches a frame in a file that is still written.
fn has(file: &Path, filter: &str) -> bool {
    field(file, filter, "frame.number").is_none_or(|all| !all.is_empty())
}

/// The value of the sample that begins with `name` and has all of `labels`.
#[track_caller]
fn sample(page: &str, name: &str, labels: &[&str]) -> f64 {
    let is_it = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with('{'))
            && labels.iter().all(|one| line.contains(one))
    };
    let line = page.lines().find(is_it);
    let line = line.unwrap_or_else(|| panic!("{name} {labels:?} not in\n{page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn server_on_two_wires_shows_each_apart() {
    let Some(world) = World::new("wires") else {
        return;
    };
    let ours = world.namespace("ours");
    let pair = "link add left2 type veth peer name right2 netns";
    world.run_ip("kernel", &format!("{pair} {ours}"));
    world.run_ip("kernel", "addr add 10.79.0.1/24 dev left2");
    world.run_ip("kernel", "link set left2 up");
    world.run_ip("ours", "link set right2 up");
    let document = world.write("site/a", &world::noise(50_000));
    let site = document.parent().unwrap();
    let words = ["--wire", "xdp:right", "--wire", "xdp:right2"];
    let second = ["--addr", "10.79.0.2/24@2"];
    let server = world.serve("ours", site, &[&words[..], &OURS, &second].concat());
    let pid = server.pid().to_string();
    let file = world.directory.join("two.pcapng");
    let capture = Capture::begin(&pid, &file);
    download(&world, "10.78.0.2");
    for _ in 0..3 {
        download(&world, "10.79.0.2");
    }
    let metrics = world.ours(&["metrics"]);
    let page = String::from_utf8(metrics.stdout).unwrap();
    let process = format!("process=\"{pid}\"");
    let frames = ["right", "right2"].map(|wire| {
        let port = format!("port=\"xdp:{wire}\"");
        sample(&page, "millstream_tx_bytes_total", &[&process, &port])
    });
    assert!((50_000.0..150_000.0).contains(&frames[0]), "{frames:?}");
    assert!(frames[1] > 150_000.0, "{frames:?}");
    for wire in ["right", "right2"] {
        // IPv6 arrives on both wires, and has an address on the first only.
        let port = format!("port=\"xdp:{wire}\"");
        sample(
            &page,
            "millstream_drops_total",
            &[&process, &port, "reason=\"rx_drop_arp\""],
        );
    }
    let top = world.ours(&["top", "--once", "--json", "--pid", &pid, "--delay", "0.2"]);
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&top.stdout).unwrap();
    let ports: Vec<_> = rows
        .iter()
        .map(|row| row["port"].as_str().unwrap())
        .collect();
    assert!(
        ports.len() == 2 && ports.contains(&"xdp:right2"),
        "{rows:?}"
    );
    let flows = world.ours(&["ss", "-tlnH", "--pid", &pid]);
    assert!(flows.status.success() && !flows.stdout.is_empty());
    let of = |wire: &str| {
        format!("frame.interface_name == \"{pid}/0 xdp:{wire}\" && tcp.flags.fin == 1")
    };
    capture.end_when(|| has(&file, &of("right")) && has(&file, &of("right2")));
    if let Some(faults) = field(&file, "_ws.malformed", "frame.number") {
        assert_eq!(faults, Vec::<String>::new());
    }
    server.stop();
}

#[test]
fn large_frames_that_the_wire_cuts_are_captured_with_whole_checksums() {
    let Some(world) = World::new("large") else {
        return;
    };
    let document = world.write("site/a", &world::noise(2_000_000));
    let site = document.parent().unwrap();
    let wire = ["--wire", "packet:right"];
    let server = world.serve("ours", site, &[&wire[..], &OURS].concat());
    let pid = server.pid().to_string();
    let file = world.directory.join("large.pcapng");
    let capture = Capture::begin(&pid, &file);
    download(&world, "10.78.0.2");
    capture.end_when(|| has(&file, "tcp.srcport == 80 && tcp.flags.fin == 1"));
    let large = "tcp.srcport == 80 && tcp.len > 3000";
    let Some(seen) = field(&file, large, "tcp.checksum.status") else {
        return;
    };
    assert!(!seen.is_empty(), "the wire cuts frames");
    assert!(
        seen.iter().all(|status| status == "1"),
        "1 is good: {seen:?}"
    );
    server.stop();
}
