//! Unprivileged applications: one serves crowds beside a kernel server, and none can do more with
//! its socket than the service intended.

use std::process::Child;

use packetio::mux::message::VERSION;

use super::*;

/// Starts a client on the other host, beside others.
fn client(world: &World, words: &[&str]) -> Child {
    let mut command = world.command("kernel", words);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// The output of a client, which must have succeeded.
fn said(client: Child) -> String {
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn crowds_are_served_by_an_application_without_privileges_and_the_kernel_at_once() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-crowds") else {
        return;
    };
    let body = noise(3000);
    world.write("a/file", &body);
    world.write("b/file", &body);
    let service = Service::start(&world, &[]);
    let _ours = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    let _kernels = service.serve_by_kernel(&world.directory.join("b"), "8081");
    // The kernel answers ARP meanwhile.
    let flush = ["ip", "neigh", "flush", "dev", "left"];
    assert!(world.kernel(&flush).status.success());
    let ping = [
        "ping",
        "-q",
        "-c",
        "5",
        "-i",
        "0.2",
        "-W",
        "10",
        "10.78.0.2",
    ];
    let ping = client(&world, &ping);
    let served = [
        "http://10.78.0.2:8080/file",
        "http://[fd78::2]:8080/file",
        "http://10.78.0.2:8081/file",
    ];
    let ab = |url| {
        client(
            &world,
            &["ab", "-q", "-n", "500", "-c", "10", "-s", "60", url],
        )
    };
    let wrk = |url| {
        client(
            &world,
            &["wrk", "-t1", "-c8", "-d1s", "--timeout", "60s", url],
        )
    };
    let (benches, wrks) = (served.map(ab), served.map(wrk));
    for url in served {
        assert!(curl(&world, url) == body, "{url}");
    }
    for ab in benches {
        let said = said(ab);
        assert!(said.contains("Complete requests:      500"), "{said}");
        assert!(said.contains("Failed requests:        0"), "{said}");
    }
    for wrk in wrks {
        let said = said(wrk);
        let has_failed = said.contains("Socket errors") || said.contains("Non-2xx");
        assert!(said.contains("requests in") && !has_failed, "{said}");
    }
    assert!(said(ping).contains("5 received"));
    let neighbour = world.kernel(&["ip", "neigh", "show", "10.78.0.2", "dev", "left"]);
    let neighbour = String::from_utf8_lossy(&neighbour.stdout).into_owned();
    assert!(neighbour.contains("lladdr"), "{neighbour}");
}

/// Opens a virtual port and tries forbidden operations on its socket; prints each answer of the
/// kernel.
const HOLDER: &str = r#"
import ctypes, errno, fcntl, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
def send(kind, body, fds=()):
    socket.send_fds(s, [(struct.pack("HH", int(sys.argv[2]), kind) + body).ljust(128, b"\0")], fds)
def answer(kind):
    while True:
        message, fds, _, _ = socket.recv_fds(s, 128, 1)
        assert message, "disconnected"
        if struct.unpack_from("H", message, 2)[0] == kind:
            return fds
send(1, b"holder".ljust(32, b"\0") + struct.pack("H", 1))
answer(2)
size = 4 << 20
file = os.memfd_create("m", os.MFD_ALLOW_SEALING)
os.ftruncate(file, size)
fcntl.fcntl(file, 1033, 1 | 2 | 4)
send(3, struct.pack("=HQIIIIII", 0, size, 2048, 0, 1024, 1024, 1024, 1024), [file])
x = answer(4)[0]
def name(done):
    return errno.errorcode[ctypes.get_errno()] if done < 0 else "done"
def option(level, number, value):
    return name(libc.setsockopt(x, level, number, value, len(value)))
def word(value):
    return struct.pack("=I", value)
SOL_XDP, SOL_SOCKET = 283, 1
print("umem", option(SOL_XDP, 4, struct.pack("=QQIIII", 4096, size, 2048, 0, 0, 0)))
for ring in (2, 3, 5, 6):
    print("ring", option(SOL_XDP, ring, word(64)))
for flags in (0, 1, 2, 4):
    address = struct.pack("=HHIII", 44, flags, 2, 0, x if flags == 1 else 0)
    print("bind", name(libc.bind(x, address, len(address))))
print("priority", option(SOL_SOCKET, 12, word(7)))
print("mark", option(SOL_SOCKET, 36, word(1)))
print("busy poll budget", option(SOL_SOCKET, 70, word(64)))
print("prefer busy poll", option(SOL_SOCKET, 69, word(1)))
"#;

#[test]
fn passed_socket_takes_no_other_binding_memory_or_settings() {
    // A channel's end is a UNIX socket.
    if !is_veth() {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-holder") else {
        return;
    };
    let service = Service::start(&world, &[]);
    let output = Command::new("python3")
        .args(["-c", HOLDER, &service.socket, &VERSION.to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wanted = [
        &["umem EBUSY"][..],
        &["ring EBUSY"; 4],
        &["bind EBUSY"; 4],
        &[
            "priority EPERM",
            "mark EPERM",
            "busy poll budget EPERM",
            "prefer busy poll EPERM",
        ],
    ];
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines, wanted.concat(), "{output:?}");
}

/// An application with a configured address has only that one, and needs no configured gateway or
/// MAC.
#[test]
fn address_of_the_configuration_narrows_the_set() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-narrow") else {
        return;
    };
    let body = noise(3000);
    world.write("a/file", &body);
    let service = Service::start(&world, &[]);
    let other = ["addr", "add", "10.78.0.9/24", "dev", &nic()];
    run("ip", &[&["-n", &service.namespace], &other[..]].concat());
    let words = ["--port", "8080", "--addr", "10.78.0.9/24"];
    let _ours = service.serve(&world.directory.join("a"), &words);
    assert!(curl(&world, "http://10.78.0.9:8080/file") == body);
    let url = "http://10.78.0.2:8080/file";
    let left_out = world.kernel(&[&CURL[..], &["--connect-timeout", "1", url]].concat());
    assert!(!left_out.status.success(), "{left_out:?}");
}

/// Sets of capabilities, in hexadecimal digits, of each thread of a service.
fn capabilities(service: &Service) -> Vec<(String, u64)> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", service.pid())).unwrap();
    let status = tasks.map(|task| task.unwrap().path().join("status"));
    let mut sets = Vec::new();
    for status in status.filter_map(|path| std::fs::read_to_string(path).ok()) {
        let name = status.lines().next().unwrap_or_default();
        for kind in ["CapPrm:", "CapEff:", "CapInh:"] {
            let set = status.lines().find_map(|line| line.strip_prefix(kind));
            let set = u64::from_str_radix(set.unwrap().trim(), 16).unwrap();
            sets.push((format!("{name}, {kind}"), set));
        }
    }
    sets
}

/// `CAP_NET_BIND_SERVICE`, `CAP_NET_ADMIN`, `CAP_NET_RAW`, `CAP_IPC_LOCK`, `CAP_BPF`.
const KEPT: u64 = 1 << 10 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 39;

/// The service makes virtual ports and a pair for clients of the same host, and `stop` removes all,
/// although no thread of the service may enter a namespace or mount.
#[test]
fn service_that_has_started_keeps_no_capability_of_the_start() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-capabilities") else {
        return;
    };
    let body = noise(3000);
    world.write("a/file", &body);
    let mut service = Service::start(&world, &["--local"]);
    for _ in 0..2 {
        let ours = service.serve(&world.directory.join("a"), &["--port", "8080"]);
        assert_eq!(curl(&world, "http://10.78.0.2:8080/file"), body);
        let sets = capabilities(&service);
        assert!(sets.len() >= 9, "{sets:?}");
        for (of, set) in &sets {
            assert_eq!(set & !KEPT, 0, "{of} {set:x}");
        }
        let said = service.ask("check");
        assert!(!said.contains("wrong"), "{said}");
        drop(ours);
        let until = Instant::now() + Duration::from_secs(30);
        while service.ask("ports").contains("8080") {
            assert!(Instant::now() < until, "the application stays");
        }
        // The second service enters the namespace of the first one.
        service.program = None;
        service.launch(&["--local"]);
    }
    // The drop of the service asserts that nothing is left.
}
