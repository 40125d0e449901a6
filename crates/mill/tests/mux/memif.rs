//! `mill mux --path memif`: frames through shared memory, checked and switched by the service.

use super::*;

/// The options of a service with this path.
const PATH: [&str; 2] = ["--path", "memif"];

#[test]
fn millstream_and_the_kernel_serve_at_the_same_address_over_memif() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-memif") else {
        return;
    };
    let body = noise(300_000);
    world.write("a/file", &body);
    world.write("b/file", b"by the kernel");
    let service = Service::start(&world, &PATH);
    let directory = |name: &str| world.directory.join(name);
    let _ours = service.serve(&directory("a"), &["--port", "8080"]);
    let _kernels = service.serve_by_kernel(&directory("b"), "8081");
    for _ in 0..3 {
        assert_eq!(curl(&world, "http://10.78.0.2:8080/file"), body);
        assert_eq!(curl(&world, "http://10.78.0.2:8081/file"), b"by the kernel");
    }
    assert_eq!(curl(&world, "http://[fd78::2]:8080/file"), body);
    for address in ["10.78.0.2", "fd78::2"] {
        let ping = world.kernel(&["ping", "-c", "1", "-W", "10", address]);
        assert!(ping.status.success(), "{ping:?}");
    }
    let taken = service
        .inside(&[MILL, "serve", "/tmp", "--wire", "kernel", "--port", "8080"])
        .output()
        .unwrap();
    assert!(!taken.status.success(), "{taken:?}");
    let said = service.ask("status");
    assert!(
        said.contains("8080") && said.contains("path memif"),
        "{said}"
    );
    let said = service.ask("check");
    assert!(
        said.contains("channel") && !said.contains("wrong"),
        "{said}"
    );
}

#[test]
fn application_killed_has_its_peers_reset_and_its_neighbour_goes_on() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-memif-kill") else {
        return;
    };
    let body = noise(2_000_000);
    world.write("a/file", b"small");
    world.write("b/file", &body);
    let service = Service::start(&world, &PATH);
    let directory = |name: &str| world.directory.join(name);
    let server = service.serve(&directory("a"), &["--port", "8080"]);
    let _neighbour = service.serve(&directory("b"), &["--port", "8090"]);
    let download = Download::start(&world, &["http://10.78.0.2:8090/file"]);
    let mut crowd = Crowd::new(&world, 200);
    assert_eq!(crowd.count_reset_by(server), 200);
    let said = service.ask("ports");
    assert!(!said.contains("8080"), "{said}");
    // The kernel can have the port, and another application the device.
    let _kernels = service.serve_by_kernel(&directory("a"), "8080");
    assert_eq!(curl(&world, "http://10.78.0.2:8080/file"), b"small");
    let _third = service.serve(&directory("a"), &["--port", "8085"]);
    assert_eq!(curl(&world, "http://10.78.0.2:8085/file"), b"small");
    assert!(download.body() == body);
}

#[test]
fn service_killed_twice_in_a_transfer_over_memif_leaves_it_whole() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-memif-twice") else {
        return;
    };
    let body = noise(3_000_000);
    world.write("a/file", &body);
    let mut service = Service::start(&world, &PATH);
    let server = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    let mut crowd = Crowd::new(&world, 50);
    let download = Download::start(&world, &["http://10.78.0.2:8080/file"]);
    for path in [&PATH[..], &[]] {
        service.program = None;
        std::thread::sleep(Duration::from_millis(200));
        service.launch(path);
        service.until_connected();
    }
    assert!(download.body() == body);
    let said = service.ask("status");
    assert!(said.contains("path memif"), "{said}");
    // The third service has the ledger of an application that connected to the first.
    drop(server);
    assert_eq!(crowd.count_reset(), 50);
}

#[test]
fn client_without_privileges_downloads_over_memif() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-memif-get") else {
        return;
    };
    let body = noise(1_000_000);
    world.write("a/file", &body);
    let service = Service::start(&world, &PATH);
    let directory = world.directory.join("a");
    let words = ["--wire", "kernel", "--port", "8000"];
    let _server = world.serve("kernel", &directory, &words);
    let out = world.directory.join("out");
    std::fs::create_dir(&out).unwrap();
    run("chmod", &["777", out.to_str().unwrap()]);
    let file = out.join("file");
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args([MILL, "get", "http://10.78.0.1:8000/file"])
        .args(["--wire", &format!("mux:{}", service.socket)])
        .args(["--output", file.to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(std::fs::read(file).unwrap(), body);
}

#[test]
fn flow_keeps_its_context_over_memif() {
    flows_keep_their_contexts("mux-memif-flows", &PATH);
}

/// Speaks memif by hand: an application whose rings are full of garbage and of frames that may
/// leave, again and again. It claims 8090, so that frames reach it. It has room for some and takes
/// none.
const HOSTILE: &str = r#"
import array, fcntl, mmap, os, random, socket, struct, sys, time
path, seconds, version = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
random.seed(1)
SLOTS, SIZE = 64, 4096 + 128 * 2048
RINGS = (0, 128 + 16 * SLOTS)
def segment(gateway, nic, length):
    head = struct.pack("!BBHHHBBH4s4s", 69, 0, length - 14, 0, 0x4000, 64, 6, 0, bytes((10, 78, 0, 2)), bytes((10, 78, 0, 1)))
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xffff) + (total >> 16)
    head = head[:10] + struct.pack("!H", ~total & 0xffff) + head[12:]
    tcp = struct.pack("!HHIIBBHHH", 8090, 40000, 1, 1, 0x50, 16, 1000, 0, 0)
    return (gateway + nic + b"\x08\0" + head + tcp).ljust(length, b"x")
def once():
    mux = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mux.connect(path)
    say = lambda kind, fields: mux.send(struct.pack("=HH", version, kind) + fields.ljust(124, b"\0"))
    say(1, b"hostile".ljust(32, b"\0") + struct.pack("=H", 1))
    def answer(kind):
        while True:
            words, control, _, _ = mux.recvmsg(128, socket.CMSG_SPACE(4))
            if struct.unpack_from("=H", words, 2)[0] == kind:
                return words, control
    nic = answer(2)[0][6:12]
    say(27, struct.pack("=HI", 0, 0))
    memif = socket.socket(fileno=array.array("i", answer(4)[1][0][2])[0])
    say(5, struct.pack("=IHBB16sH", 7, 0, 6, 4, bytes(16), 8090))
    say(12, struct.pack("=IB16s", 8, 4, bytes((10, 78, 0, 1))))
    gateway = answer(13)[0][25:31]
    memif.setblocking(True)
    file, bells = os.memfd_create("hostile", os.MFD_ALLOW_SEALING), [os.eventfd(0), os.eventfd(0)]
    os.ftruncate(file, SIZE)
    fcntl.fcntl(file, 1033, 2)
    memory = mmap.mmap(file, SIZE)
    for ring in RINGS:
        struct.pack_into("=I", memory, ring, 0x03E31F20)
    # The first chunk is for frames that come, and the next ones stay as they are.
    good = [(4096 + 2048 * chunk, length) for chunk, length in enumerate((60, 200, 1000, 1514), 1)]
    for offset, length in good:
        memory[offset:offset + length] = segment(gateway, nic, length)
    struct.pack_into("=H", memory, RINGS[1] + 6, SLOTS)
    def ask(words, fds):
        socket.send_fds(memif, [words.ljust(128, b"\0")], fds)
        memif.recv(128)
    memif.recv(128)
    ask(struct.pack("=HHIB", 3, 0x200, 0, 0), [])
    ask(struct.pack("=HHQ", 4, 0, SIZE), [file])
    for flags, ring, bell in ((1, RINGS[0], bells[0]), (0, RINGS[1], bells[1])):
        ask(struct.pack("=HHHHIB", 5, flags, 0, 0, ring, 6), [bell])
    ask(struct.pack("=H", 6), [])
    taken, head, end = 0, 0, time.monotonic() + random.random() / 4
    while time.monotonic() < end:
        at = random.randrange(4096 + 5 * 2048, SIZE - 4096)
        memory[at:at + 2048] = random.randbytes(2048)
        for slot in range(SLOTS):
            kind = random.randrange(10)
            region, flags = 0, random.choice((0, 0, 0, 1, random.getrandbits(16)))
            if kind < 4:
                (offset, length), flags = random.choice(good), 0
            elif kind < 7:
                offset, length = random.randrange(4096, SIZE, 2048), random.randrange(14, 1600)
            else:
                region, offset, length = 9, random.getrandbits(32), random.getrandbits(32)
            struct.pack_into("=HHII", memory, RINGS[0] + 128 + 16 * slot, flags, region, length, offset)
            struct.pack_into("=HHII", memory, RINGS[1] + 128 + 16 * slot, 0, 0, 2048, 4096)
        tail, = struct.unpack_from("=H", memory, RINGS[0] + 64)
        taken += (tail + SLOTS - head) & 0xffff
        head = (tail + SLOTS) & 0xffff
        struct.pack_into("=H", memory, RINGS[0] + 6, head)
        os.eventfd_write(bells[0], 1)
    # At the end a cursor that lies.
    struct.pack_into("=H", memory, RINGS[0] + 6, (head + 9999) & 0xffff)
    os.eventfd_write(bells[0], 1)
    time.sleep(0.01)
    memory.close()
    for one in [file, *bells]:
        os.close(one)
    return taken
taken, end = 0, time.monotonic() + seconds
while time.monotonic() < end:
    taken += once()
print(taken, flush=True)
"#;

#[test]
fn neighbour_of_a_hostile_application_stays_exact_over_memif() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-memif-hostile") else {
        return;
    };
    let service = Service::start(&world, &PATH);
    let mut hostile = Command::new("python3");
    hostile
        .args(["-c", HOSTILE, &service.socket, "3"])
        .arg(packetio::mux::message::VERSION.to_string());
    let beside = crate::hostile::download_beside(&world, &service, &mut hostile);
    assert!(beside.taken > 1000, "{beside:?}");
    // The hostile application was reached until its ring was full, it sent what it may, and the
    // rest was counted.
    assert!(beside.rx_no_room > 100, "{beside:?}");
    assert!(beside.tx_frames > 20, "{beside:?}");
    assert!(beside.tx_drops > 10, "{beside:?}");
}

/// Cases of the other modules that need no virtual interfaces.
const CASES: [&str; 9] = [
    "claim_ends_with_its_listener_and_its_connections",
    "connections_beyond_the_lease_get_more_ports",
    "changes_of_the_interface_reach_a_transfer",
    "deaths::service_killed_after_an_application_leaves_its_resets_to_the_next_one",
    "changes::claim_of_an_address_is_made_again_when_the_address_is_back",
    "changes::connection_of_an_address_that_is_lost_ends_with_the_network_down",
    "changes::address_removed_before_it_has_another_prefix_leaves_a_transfer_whole",
    "privileges::service_that_has_started_keeps_no_capability_of_the_start",
    "privileges::address_of_the_configuration_narrows_the_set",
];

/// Runs these tests again, in a process of their own.
#[test]
fn cases_of_virtual_interfaces_hold_over_memif() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Without privileges the other tests do nothing.
    if World::new("mux-memif-cases").is_none() {
        return;
    }
    let mut program = Command::new(std::env::current_exe().unwrap());
    let output = program
        .args(["--exact", "--test-threads=1"])
        .args(CASES)
        .env("MUX_PATH", "memif")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}\n{errors}");
    let all = format!("{} passed", CASES.len());
    assert!(said.contains(&all), "a case has another name: {said}");
}

/// Names of the threads of a service.
fn threads(service: &Service) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", service.pid())).unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        let name = std::fs::read_to_string(task.unwrap().path().join("comm"));
        name.unwrap().trim().to_owned()
    };
    tasks.map(name).collect()
}

/// All hosts' connections are distributed over both queues. Each queue has a thread, and a queue of
/// the channel.
#[test]
fn interface_with_two_queues_has_two_threads() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let (Some(world), true) = (World::new("mux-memif-two"), cpus > 1) else {
        return;
    };
    for (namespace, link) in [("kernel", "left"), ("ours", "right")] {
        let words = ["ethtool", "-L", link, "rx", "2", "tx", "2"];
        let output = world.command(namespace, &words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let body = noise(300_000);
    world.write("a/file", &body);
    let mut service = Service::start(&world, &["--path", "memif", "--local"]);
    let _ours = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    let names = threads(&service);
    for name in ["mux-frames-0", "mux-frames-1"] {
        assert!(names.iter().any(|one| one == name), "{names:?}");
    }
    let url = "http://10.78.0.2:8080/file";
    let ab = ["ab", "-q", "-n", "400", "-c", "20", "-s", "60", url];
    for output in [world.kernel(&ab), service.inside(&ab).output().unwrap()] {
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("Complete requests:      400"), "{output:?}");
        assert!(said.contains("Failed requests:        0"), "{said}");
    }
    let said = service.ask("check");
    assert!(!said.contains("wrong"), "{said}");
    // The next service's channel has all queues, too.
    service.program = None;
    service.launch(&["--path", "memif", "--local"]);
    service.until_connected();
    assert!(curl(&world, url) == body);
    let until = Instant::now() + Duration::from_secs(30);
    while service.ask("check").contains("wrong") {
        assert!(Instant::now() < until, "{}", service.ask("check"));
        std::thread::sleep(Duration::from_millis(50));
    }
}
