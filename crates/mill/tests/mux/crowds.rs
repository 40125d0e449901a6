//! Many applications at once, and one that means harm at its rings.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::world::{World, noise};
use crate::{MILL, ONE, Program, Service, curl};

/// Applications of the crowd; `cargo xtask stress mux` asks for 254.
fn applications() -> usize {
    let asked = std::env::var("MUX_APPLICATIONS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(8)
}

#[test]
fn all_virtual_ports_serve_and_killed_at_once_leave_nothing() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-many") else {
        return;
    };
    let body = noise(10_000);
    world.write("a/file", &body);
    let count = applications();
    let service = Service::start(&world, &["--ports", &count.to_string()]);
    let directory = world.directory.join("a");
    let port = |at: usize| (8100 + at).to_string();
    // Short rings: the kernel pins their memory.
    let wire = format!("mux:{},ring=64", service.socket);
    let servers: Vec<Program> = (0..count)
        .map(|at| service.serve_on(&wire, &directory, &["--port", &port(at)]))
        .collect();
    for at in 0..count {
        let url = format!("http://10.78.0.2:{}/file", port(at));
        assert_eq!(curl(&world, &url), body, "{url}");
    }
    let late = Command::new(MILL)
        .args(["serve", directory.to_str().unwrap(), "--wire", &wire])
        .args(["--port", "9999"])
        .output()
        .unwrap();
    assert!(!late.status.success());
    let said = String::from_utf8_lossy(&late.stderr).into_owned();
    assert!(said.contains("busy"), "{said}");
    let ends = || {
        let links = ["nsenter", "--net=/run/millstream/right/netns", "ip", "-o"];
        let output = Command::new(links[0])
            .args(&links[1..])
            .arg("link")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().filter(|line| line.contains(" near")).count()
    };
    assert_eq!(ends(), count);
    // Signals first, so that all die at once.
    let mut servers = servers;
    for server in &mut servers {
        server.0.kill().unwrap();
    }
    drop(servers);
    let until = Instant::now() + Duration::from_secs(60);
    while service.ask("status").contains("pid") || ends() > 0 {
        assert!(Instant::now() < until, "{}", service.ask("status"));
        std::thread::sleep(Duration::from_millis(50));
    }
    let pins = std::fs::read_dir("/run/millstream/right/bpf").unwrap();
    let pins = pins.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = pins.filter(|pin| pin.starts_with("link_near")).collect();
    assert!(left.is_empty(), "{left:?}");
    // The kernel gets every port back.
    let bind = format!(
        "import socket\nfor port in range(8100, {}): socket.create_server((\"\", port)).close()",
        8100 + count
    );
    let bound = service.inside(&["python3", "-c", &bind]).status().unwrap();
    assert!(bound.success());
}

/// Opens a virtual port, fills its TX ring with descriptors and its memory with bytes at random, and
/// never takes a frame. Says how many descriptors the kernel took.
const HOSTILE: &str = r#"
import fcntl, mmap, os, random, socket, struct, sys, time
random.seed(int(sys.argv[2]))
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
def send(kind, body, fds=()):
    socket.send_fds(s, [(struct.pack("HH", 1, kind) + body).ljust(128, b"\0")], fds)
def answer(kind):
    while True:
        message, fds, _, _ = socket.recv_fds(s, 128, 1)
        assert message, "disconnected"
        if struct.unpack_from("H", message, 2)[0] == kind:
            return fds
send(1, b"hostile".ljust(32, b"\0") + struct.pack("H", 1))
answer(2)
size = 4 << 20
file = os.memfd_create("m", os.MFD_ALLOW_SEALING)
os.ftruncate(file, size)
fcntl.fcntl(file, 1033, 1 | 2 | 4)
send(3, struct.pack("=HQIIIIII", 0, size, 2048, 0, 1024, 1024, 1024, 1024), [file])
x = socket.socket(44, socket.SOCK_RAW, 0, fileno=answer(4)[0])
memory = mmap.mmap(file, size)
offsets = struct.unpack("=16Q", x.getsockopt(283, 1, 128))
producer, consumer, descriptors = offsets[4:7]
ring = mmap.mmap(x.fileno(), descriptors + 1024 * 16, offset=0x80000000)
fill_producer, _, fill_descriptors = offsets[8:11]
fill = mmap.mmap(x.fileno(), fill_descriptors + 1024 * 8, offset=0x100000000)
for at in range(1024):
    struct.pack_into("=Q", fill, fill_descriptors + 8 * at, random.getrandbits(64))
struct.pack_into("=I", fill, fill_producer, 1024)
print("ready", flush=True)
taken, end = 0, time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    at = random.randrange(size - 65536)
    memory[at:at + 4096] = random.randbytes(4096)
    for slot in range(1024):
        if random.random() < 0.5:
            address, length = random.randrange(0, size, 2048), random.randrange(14, 1600)
        else:
            address, length = random.getrandbits(64), random.getrandbits(32)
        options = random.choice((0, 0, 0, 1, 2, random.getrandbits(32)))
        struct.pack_into("=QII", ring, descriptors + 16 * slot, address, length, options)
    old, = struct.unpack_from("=I", ring, consumer)
    struct.pack_into("=I", ring, producer, (old + random.choice((1024, 64, 1, 5000))) & 0xffffffff)
    for _ in range(16):
        try:
            x.send(b"", socket.MSG_DONTWAIT)
        except OSError:
            pass
    new, = struct.unpack_from("=I", ring, consumer)
    taken += (new - old) & 0xffffffff
print(taken, flush=True)
"#;

#[test]
fn neighbour_of_a_hostile_application_stays_exact() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-hostile") else {
        return;
    };
    let body = noise(3_000_000);
    world.write("a/file", &body);
    let service = Service::start(&world, &[]);
    let _ours = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    let hostile = Command::new("python3")
        .args(["-c", HOSTILE, &service.socket, "1", "3"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(3);
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < until {
        assert_eq!(curl(&world, "http://10.78.0.2:8080/file"), body);
        rounds += 1;
    }
    let output = hostile.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let taken: u64 = said.lines().last().unwrap().parse().unwrap();
    let _ = writeln!(std::io::stderr(), "{taken} descriptors, {rounds} downloads");
    assert!(output.status.success() && taken > 0, "{said}");
}
