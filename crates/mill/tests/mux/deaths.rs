//! Killed applications and services: peers, including idle ones, are reset, and nothing is left.

use std::io::Write as _;
use std::process::Stdio;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::left::Left;
use crate::world::download::Download;
use crate::world::{CURL, World, noise};
use crate::{Crowd, MILL, ONE, Program, Service, curl, run_directory};

/// Opens connections, prints `ready`, and later the number that were reset. Every second connection
/// stays idle, even after the server's death. The others have sent a request, and send one more
/// byte afterwards.
const CROWD: &str = r#"
import selectors, socket, sys, time
count = int(sys.argv[1])
request = b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n"
kept, waiting = [], selectors.DefaultSelector()
for n in range(count):
    one = socket.create_connection(("10.78.0.2", 8080), 60)
    if n % 2:
        one.sendall(request)
        assert one.recv(65536).startswith(b"HTTP/1.1 200")
    one.setblocking(False)
    kept.append(one)
for n, one in enumerate(kept):
    waiting.register(one, selectors.EVENT_READ, n)
print("ready", flush=True)
sys.stdin.readline()
begin, end, reset = time.monotonic(), time.monotonic() + 30, 0
for one in kept[1::2]:
    try:
        one.send(b"G")
    except ConnectionResetError:
        # The reset was here first.
        reset += 1
        waiting.unregister(one)
while reset < count and time.monotonic() < end:
    for key, _ in waiting.select(1):
        try:
            if key.fileobj.recv(65536):
                continue
        except ConnectionResetError:
            reset += 1
        waiting.unregister(key.fileobj)
print(f"reset {reset} after {time.monotonic() - begin:.2f} s", flush=True)
"#;

impl Crowd {
    pub(super) fn new(world: &World, count: usize) -> Self {
        Self::of(world, CROWD, count)
    }

    /// Starts a program with a number of connections, and waits until all are open.
    fn of(world: &World, program: &str, count: usize) -> Self {
        let count = count.to_string();
        let mut command = world.command("kernel", &["python3", "-c", program, &count]);
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut crowd = Self(Program(child));
        assert_eq!(crowd.line(), "ready\n");
        crowd
    }

    /// Returns the number of connections that were reset after the server's death.
    pub(super) fn count_reset(&mut self) -> usize {
        let mut input = self.0.0.stdin.take().unwrap();
        writeln!(input).unwrap();
        let line = self.line();
        println!("{line}");
        line.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// Kills the server: how many were reset. The service promises a second; the half second more
    /// is for a machine that has other work.
    pub(super) fn count_reset_by(&mut self, server: Program) -> usize {
        let begin = Instant::now();
        // Ended by SIGKILL.
        drop(server);
        let count = self.count_reset();
        let seconds = begin.elapsed().as_secs_f64();
        assert!(seconds <= 1.5, "{count} after {seconds:.2} s");
        count
    }
}

#[test]
fn application_killed_has_all_its_peers_reset() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-kill") else {
        return;
    };
    world.write("a/file", b"small");
    let service = Service::start(&world, &[]);
    let left = Left::of(&service);
    let server = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    let mut crowd = Crowd::new(&world, 1000);
    assert_ne!(Left::of(&service), left);
    assert_eq!(crowd.count_reset_by(server), 1000);
    let until = Instant::now() + Duration::from_secs(30);
    while Left::of(&service) != left {
        assert!(Instant::now() < until, "{left:?} {:?}", Left::of(&service));
        std::thread::sleep(Duration::from_millis(20));
    }
    // The kernel can have the port.
    let _kernels = service.serve_by_kernel(&world.directory.join("a"), "8080");
    assert_eq!(curl(&world, "http://10.78.0.2:8080/file"), b"small");
}

#[test]
fn service_killed_twice_in_a_transfer_leaves_it_whole() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-twice") else {
        return;
    };
    let body = noise(3_000_000);
    world.write("a/file", &body);
    let mut service = Service::start(&world, &[]);
    let server = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    let mut crowd = Crowd::new(&world, 50);
    let download = Download::start(&world, &["http://10.78.0.2:8080/file"]);
    for _ in 0..2 {
        service.program = None;
        std::thread::sleep(Duration::from_millis(200));
        service.launch(&[]);
        service.until_connected();
    }
    assert!(download.body() == body);
    // The third service has the ledger of an application that connected to the first.
    drop(server);
    assert_eq!(crowd.count_reset(), 50);
}

#[test]
fn service_and_application_killed_at_once_leave_nothing() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-both") else {
        return;
    };
    world.write("a/file", b"small");
    let mut service = Service::start(&world, &[]);
    let server = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    let mut crowd = Crowd::new(&world, 1000);
    service.program = None;
    drop(server);
    service.launch(&[]);
    // The next service waits five seconds for an application that may return. Then it resets the
    // peers in the ledger that the first service has made.
    assert_eq!(crowd.count_reset(), 1000);
    let until = Instant::now() + Duration::from_secs(30);
    while service.ask("ports").contains("8080") {
        assert!(Instant::now() < until, "the dead application has its port");
        std::thread::sleep(Duration::from_millis(100));
    }
    let refused = world.kernel(&[&CURL[..], &["http://10.78.0.2:8080/"]].concat());
    assert_eq!(refused.status.code(), Some(7), "{refused:?}");
}

/// The end of a program with connections in `waiting`: it counts those that end after the server's
/// death.
const COUNT_ENDED: &str = r#"
print("ready", flush=True)
sys.stdin.readline()
end, reset = time.monotonic() + 30, 0
while reset < count and time.monotonic() < end:
    for descriptor, _ in waiting.poll(1000):
        waiting.unregister(descriptor)
        reset += 1
print(f"reset {reset} of {count}", flush=True)
"#;

/// Connections that send nothing.
const IDLE: &str = r#"
import select, socket, sys, time
count = int(sys.argv[1])
kept, waiting = [], select.poll()
for n in range(count):
    one = socket.create_connection(("10.78.0.2", 8080), 60)
    kept.append(one)
    waiting.register(one, 0)
"#;

/// The resets keep the rate, so that most of them are left to the next service.
#[test]
fn service_killed_after_an_application_leaves_its_resets_to_the_next_one() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-after") else {
        return;
    };
    world.write("a/file", b"small");
    let mut service = Service::start(&world, &["--rate", "400kbit"]);
    let left = Left::of(&service);
    let server = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    let mut crowd = Crowd::of(&world, &[IDLE, COUNT_ENDED].concat(), 1000);
    drop(server);
    let until = Instant::now() + Duration::from_secs(30);
    // The virtual port is gone, and its ledger is kept.
    let is_kept = |now: Left| (now.slots, now.pins) == (left.slots, left.pins + 1);
    while !is_kept(Left::of(&service)) {
        assert!(Instant::now() < until, "the virtual port stays");
        std::thread::sleep(Duration::from_millis(20));
    }
    service.program = None;
    service.launch(&[]);
    assert!(is_kept(Left::of(&service)));
    assert_eq!(crowd.count_reset(), 1000);
    let until = Instant::now() + Duration::from_secs(30);
    while Left::of(&service).pins != left.pins {
        assert!(Instant::now() < until, "{left:?} {:?}", Left::of(&service));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Connections that the server has closed and the client has not. No bytes are sent, so only a
/// reset can end them.
const HALF_CLOSED: &str = r#"
import select, socket, sys, time
count = int(sys.argv[1])
kept, waiting = [], select.poll()
for n in range(count):
    one = socket.create_connection(("10.78.0.2", 8080), 60)
    one.sendall(b"GET /file HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    while one.recv(65536):
        pass
    kept.append(one)
    waiting.register(one, 0)
"#;

#[test]
fn peers_that_have_not_closed_are_reset_when_the_application_is_killed() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-half") else {
        return;
    };
    world.write("a/file", b"small");
    let service = Service::start(&world, &[]);
    let server = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    let mut crowd = Crowd::of(&world, &[HALF_CLOSED, COUNT_ENDED].concat(), 100);
    assert_eq!(crowd.count_reset_by(server), 100);
}

#[test]
fn stop_whose_answer_does_not_leave_takes_everything_away() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-full") else {
        return;
    };
    let service = Service::start(&world, &[]);
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut stop = service.inside(&[MILL, "mux", "stop", "--socket", &service.socket]);
    let stop = stop.stdout(full.unwrap()).output().unwrap();
    let complaint = String::from_utf8_lossy(&stop.stderr);
    assert!(complaint.contains("stdout: No space left"), "{complaint}");
    assert!(!stop.status.success() && !complaint.contains("panicked"));
    assert!(!run_directory().exists());
}
