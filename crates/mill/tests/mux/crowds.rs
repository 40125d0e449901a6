//! Many applications at once, and one that attacks through its rings.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use packetio::mux::message::VERSION;

use crate::hostile::download_beside;
use crate::left::Left;
use crate::world::{World, noise};
use crate::{MILL, NOBODY, ONE, Program, Service, curl, is_veth};

/// Number of applications; `cargo xtask stress mux` asks for 254.
fn applications() -> usize {
    let asked = std::env::var("MUX_APPLICATIONS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(8)
}

/// Memory of the service's process, without pages of files.
fn resident_kib(service: &Service) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse().unwrap()
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
    let (none, memory) = (Left::of(&service), resident_kib(&service));
    let directory = world.directory.join("a");
    let port = |at: usize| (8100 + at).to_string();
    // Short rings, since the kernel pins their memory.
    let wire = format!("mux:{},ring=64", service.socket);
    // One user has 7/8 of the virtual ports at most, and root the others.
    let user = |at: usize| if at < count * 7 / 8 { NOBODY } else { 0 };
    let servers: Vec<Program> = (0..count)
        .map(|at| service.serve_as(user(at), &wire, &directory, &["--port", &port(at)]))
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
    let all = Left::of(&service);
    assert_ne!(all, none);
    // Signal all of them first, so that they die at the same time.
    let mut servers = servers;
    for server in &mut servers {
        server.0.kill().unwrap();
    }
    drop(servers);
    let until = Instant::now() + Duration::from_secs(60);
    while service.ask("status").contains("pid") || Left::of(&service) != none {
        let left = Left::of(&service);
        assert!(
            Instant::now() < until,
            "{left:?} in place of {none:?}: {}",
            service.ask("status")
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let grown = resident_kib(&service).saturating_sub(memory);
    // Tables that have grown once may stay as they are.
    assert!(grown < 4096 + 16 * count as u64, "{grown} KiB more");
    // The kernel gets every port back.
    let bind = format!(
        "import socket\nfor port in range(8100, {}): socket.create_server((\"\", port)).close()",
        8100 + count
    );
    let bound = service.inside(&["python3", "-c", &bind]).status().unwrap();
    assert!(bound.success());
}

/// Opens a virtual port and claims 8090, so that frames reach it; it never takes one. Fills its TX
/// ring with descriptors and its memory with bytes at random, and every third descriptor is of a
/// frame that may leave. Takes its completions. Says how many descriptors the kernel took.
const HOSTILE: &str = r#"
import fcntl, mmap, os, random, socket, struct, sys, time
random.seed(int(sys.argv[2]))
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
def send(kind, body, fds=()):
    socket.send_fds(s, [(struct.pack("HH", int(sys.argv[4]), kind) + body).ljust(128, b"\0")], fds)
def answer(kind):
    while True:
        message, fds, _, _ = socket.recv_fds(s, 128, 1)
        assert message, "disconnected"
        if struct.unpack_from("H", message, 2)[0] == kind:
            return message, fds
send(1, b"hostile".ljust(32, b"\0") + struct.pack("H", 1))
nic = answer(2)[0][6:12]
size = 4 << 20
file = os.memfd_create("m", os.MFD_ALLOW_SEALING)
os.ftruncate(file, size)
fcntl.fcntl(file, 1033, 1 | 2 | 4)
send(3, struct.pack("=HQIIIIII", 0, size, 2048, 0, 1024, 1024, 1024, 1024), [file])
x = socket.socket(44, socket.SOCK_RAW, 0, fileno=answer(4)[1][0])
send(5, struct.pack("=IHBB16sH", 7, 0, 6, 4, bytes(16), 8090))
answer(6)
send(12, struct.pack("=IB16s", 8, 4, bytes((10, 78, 0, 1))))
gateway = answer(13)[0][25:31]
memory = mmap.mmap(file, size)
def segment(length):
    head = struct.pack("!BBHHHBBH4s4s", 69, 0, length - 14, 0, 0x4000, 64, 6, 0, bytes((10, 78, 0, 2)), bytes((10, 78, 0, 1)))
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xffff) + (total >> 16)
    head = head[:10] + struct.pack("!H", ~total & 0xffff) + head[12:]
    tcp = struct.pack("!HHIIBBHHH", 8090, 40000, 1, 1, 0x50, 16, 1000, 0, 0)
    return (gateway + nic + b"\x08\0" + head + tcp).ljust(length, b"x")
# The first chunks stay as they are.
GOOD = [(2048 * chunk, length) for chunk, length in enumerate((60, 200, 1000, 1514))]
for address, length in GOOD:
    memory[address:address + length] = segment(length)
offsets = struct.unpack("=16Q", x.getsockopt(283, 1, 128))
producer, consumer, descriptors = offsets[4:7]
ring = mmap.mmap(x.fileno(), descriptors + 1024 * 16, offset=0x80000000)
fill_producer, _, fill_descriptors = offsets[8:11]
fill = mmap.mmap(x.fileno(), fill_descriptors + 1024 * 8, offset=0x100000000)
for at in range(1024):
    struct.pack_into("=Q", fill, fill_descriptors + 8 * at, random.getrandbits(64))
struct.pack_into("=I", fill, fill_producer, 1024)
done_producer, done_consumer, done_descriptors = offsets[12:15]
done = mmap.mmap(x.fileno(), done_descriptors + 1024 * 8, offset=0x180000000)
print("ready", flush=True)
taken, end = 0, time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    at = random.randrange(8192, size - 65536)
    memory[at:at + 4096] = random.randbytes(4096)
    for slot in range(1024):
        options = random.choice((0, 0, 0, 1, 2, random.getrandbits(32)))
        kind = random.randrange(3)
        if kind == 0:
            (address, length), options = random.choice(GOOD), 0
        elif kind == 1:
            address, length = random.randrange(0, size, 2048), random.randrange(14, 1600)
        else:
            address, length = random.getrandbits(64), random.getrandbits(32)
        struct.pack_into("=QII", ring, descriptors + 16 * slot, address, length, options)
    old, = struct.unpack_from("=I", ring, consumer)
    struct.pack_into("=I", ring, producer, (old + random.choice((1024, 64, 1, 5000))) & 0xffffffff)
    for _ in range(16):
        try:
            x.send(b"", socket.MSG_DONTWAIT)
        except OSError:
            pass
    # A full completion ring would stop it.
    finished, = struct.unpack_from("=I", done, done_producer)
    struct.pack_into("=I", done, done_consumer, finished)
    new, = struct.unpack_from("=I", ring, consumer)
    taken += (new - old) & 0xffffffff
print(taken, flush=True)
"#;

#[test]
fn neighbour_of_a_hostile_application_stays_exact() {
    // This hostile application uses AF_XDP; the tests of `memif` have one that uses a channel.
    if !is_veth() {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-hostile") else {
        return;
    };
    let service = Service::start(&world, &[]);
    let mut hostile = Command::new("python3");
    hostile
        .args(["-c", HOSTILE, &service.socket, "1", "8"])
        .arg(VERSION.to_string());
    let beside = download_beside(&world, &service, &mut hostile);
    assert!(beside.taken > 0);
    // The hostile application was reached, it sent what it may, and the rest was counted.
    assert!(beside.rx_frames > 100, "{beside:?}");
    assert!(beside.tx_frames > 20, "{beside:?}");
    assert!(beside.tx_drops > 10, "{beside:?}");
}

/// Rounds of a comparison.
const ROUNDS: usize = 5;

/// Runs a hostile application for the given seconds.
fn hostile(service: &Service, seed: usize, seconds: &str) -> Program {
    let mut command = Command::new("python3");
    command
        .args(["-c", HOSTILE, &service.socket, &seed.to_string(), seconds])
        .arg(VERSION.to_string())
        .stdout(Stdio::piped());
    let mut program = Program(command.spawn().unwrap());
    let mut ready = [0; 6];
    let out = program.0.stdout.as_mut().unwrap();
    out.read_exact(&mut ready).unwrap();
    assert_eq!(&ready, b"ready\n");
    program
}

/// An application gets its fair share if it gets as much beside a hostile one as beside one like
/// itself. The test compares times, so it runs only on request (`cargo xtask stress mux`).
/// `MUX_SHARE` is the least share, such as 0.9.
#[test]
fn neighbour_of_a_hostile_application_keeps_its_share() {
    let Some(least) = std::env::var("MUX_SHARE").ok() else {
        let _ = writeln!(
            std::io::stderr(),
            "ignored: compares times if MUX_SHARE is set"
        );
        return;
    };
    let least: f64 = least.parse().unwrap();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-share") else {
        return;
    };
    let body = noise(100_000_000);
    world.write("a/file", &body);
    let service = Service::start(&world, &[]);
    let directory = world.directory.join("a");
    let _ours = service.serve(&directory, &["--port", "8080"]);
    let _rivals = service.serve(&directory, &["--port", "8081"]);
    let seconds = || {
        let begin = Instant::now();
        assert!(curl(&world, "http://10.78.0.2:8080/file") == body);
        begin.elapsed().as_secs_f64()
    };
    let (mut beside_honest, mut beside_hostile) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // More repetitions than possible in the time; curl ends with its process.
        let often = format!("http://10.78.0.2:8081/file?[1-{}]", 1_000_000);
        let mut rival = world.command("kernel", &["curl", "-s", "-o", "/dev/null", &often]);
        let rival = Program(rival.spawn().unwrap());
        beside_honest.push(seconds());
        drop(rival);
        let hostile = hostile(&service, round, "60");
        beside_hostile.push(seconds());
        drop(hostile);
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2]
    };
    let share = median(&mut beside_honest) / median(&mut beside_hostile);
    println!("share {share:.2}: {beside_honest:.2?} s honest, {beside_hostile:.2?} s hostile");
    assert!(share >= least, "{share:.2}");
}
