//! `xdp:IFACE,mirror`: one process serves at the kernel's own address, without a service. The
//! kernel keeps ARP, ping and UDP, and its changes apply to running connections.

mod world;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use world::{CURL, Server, World, noise};

const WIRE: [&str; 4] = ["--wire", "xdp:right,mirror", "--port", "8080"];

/// A world in which the kernel's address is on Millstream's side of the pair.
fn world(name: &str) -> Option<(World, Vec<u8>)> {
    let world = World::new(name)?;
    world.run_ip("ours", "link set lo up");
    world.run_ip("ours", "addr add 10.78.0.2/24 dev right");
    world.run_ip("ours", "addr add fd78::2/64 dev right nodad");
    let body = noise(300_000);
    world.write("www/file", &body);
    Some((world, body))
}

fn serve(world: &World) -> Server {
    world.serve("ours", &world.directory.join("www"), &WIRE)
}

fn fetch(world: &World, words: &[&str], address: &str) -> Result<Vec<u8>, String> {
    let url = format!("http://{address}:8080/file");
    let output = world.kernel(&[&CURL[..], words, &[&url]].concat());
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Repeats until `is_so`, since the kernel announces its changes with a delay.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < patience, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn process_serves_at_the_address_of_the_kernel() {
    let Some((world, body)) = world("mirror") else {
        return;
    };
    let _server = serve(&world);
    for _ in 0..3 {
        assert_eq!(fetch(&world, &[], "10.78.0.2"), Ok(body.clone()));
        assert_eq!(fetch(&world, &["-g"], "[fd78::2]"), Ok(body.clone()));
    }
    for address in ["10.78.0.2", "fd78::2"] {
        let ping = world.kernel(&["ping", "-c", "1", "-W", "10", address]);
        assert!(ping.status.success(), "{ping:?}");
    }
    // The kernel has resolved its neighbour's link address itself.
    let said = world.command("ours", &["ip", "neigh", "show", "dev", "right"]);
    let said = { said }.output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("10.78.0.1 lladdr"), "{said}");
}

#[test]
fn two_contexts_share_the_mirror() {
    let Some((world, body)) = world("mirror-two") else {
        return;
    };
    let words = [&WIRE[..], &["--contexts", "2"]].concat();
    let _server = world.serve("ours", &world.directory.join("www"), &words);
    for _ in 0..8 {
        assert_eq!(fetch(&world, &[], "10.78.0.2"), Ok(body.clone()));
    }
}

#[test]
fn client_downloads_from_another_host() {
    let Some((world, body)) = world("mirror-get") else {
        return;
    };
    let words = ["--wire", "kernel", "--port", "8000"];
    let _server = world.serve("kernel", &world.directory.join("www"), &words);
    let file = world.directory.join("copy");
    let words = ["get", "http://10.78.0.1:8000/file", "--wire"];
    let to = ["xdp:right,mirror", "--output", file.to_str().unwrap()];
    let output = world.ours(&[&words[..], &to].concat());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read(file).unwrap(), body);
}

#[test]
fn address_that_comes_is_served_and_one_that_goes_is_not() {
    let Some((world, body)) = world("mirror-address") else {
        return;
    };
    let _server = serve(&world);
    world.run_ip("ours", "addr add 10.78.0.9/24 dev right");
    let serves = |address: &str| fetch(&world, &["--connect-timeout", "1"], address);
    until("the address is not served", || {
        serves("10.78.0.9") == Ok(body.clone())
    });
    world.run_ip("ours", "addr del 10.78.0.9/24 dev right");
    until("the address is served", || serves("10.78.0.9").is_err());
    assert_eq!(fetch(&world, &[], "10.78.0.2"), Ok(body));
}

/// As `ip` and many tools do it: in between, the interface does not have the address.
#[test]
fn address_removed_before_it_has_another_prefix_leaves_a_transfer_whole() {
    let Some((world, _)) = world("mirror-readded") else {
        return;
    };
    let _server = serve(&world);
    let mut reader = Reader::start(&world);
    let ping = |seconds| {
        let words = ["ping", "-c", "1", "-W", seconds, "10.78.0.2"];
        world.kernel(&words).status.success()
    };
    for (old, new) in [("24", "16"), ("16", "24")] {
        world.run_ip("ours", &format!("addr del 10.78.0.2/{old} dev right"));
        assert!(!ping("0.2"), "the kernel answers without the address");
        world.run_ip("ours", &format!("addr add 10.78.0.2/{new} dev right"));
        assert!(ping("10"));
    }
    assert_eq!(reader.rest(), "all\n");
}

/// A configured address selects: TCP at the other address stays the kernel's.
#[test]
fn address_left_out_stays_with_the_kernel() {
    let Some((world, body)) = world("mirror-narrow") else {
        return;
    };
    world.run_ip("ours", "addr add 10.78.0.9/24 dev right");
    let words = [&WIRE[..], &["--addr", "10.78.0.9/24"]].concat();
    let _server = world.serve("ours", &world.directory.join("www"), &words);
    world.write("kernel/file", b"by the kernel");
    let words = ["--wire", "kernel", "--port", "8081"];
    let _kernel = world.serve("ours", &world.directory.join("kernel"), &words);
    assert_eq!(fetch(&world, &[], "10.78.0.9"), Ok(body));
    let words = [&CURL[..], &["http://10.78.0.2:8081/file"]].concat();
    assert_eq!(world.kernel(&words).stdout, b"by the kernel");
}

#[test]
fn route_and_gateway_that_come_are_used() {
    let Some((world, body)) = world("mirror-route") else {
        return;
    };
    let _server = serve(&world);
    world.run_ip("kernel", "addr add 10.99.0.1/32 dev lo");
    let far = ["--interface", "10.99.0.1", "--connect-timeout", "1"];
    assert!(fetch(&world, &far, "10.78.0.2").is_err());
    world.run_ip("ours", "route add 10.99.0.0/24 via 10.78.0.1");
    until("the route is not used", || {
        fetch(&world, &far, "10.78.0.2") == Ok(body.clone())
    });
}

/// Requests a file in two halves: prints `half` after the first, and whether all of it came.
const HALVES: &str = r#"
import socket, sys
one = socket.create_connection(("10.78.0.2", 8080), 60)
one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
one.sendall(b"GET /file HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
got = len(one.recv(1))
print("half", flush=True)
sys.stdin.readline()
while True:
    bytes = one.recv(65536)
    if not bytes:
        break
    got += len(bytes)
print("all" if got > 300000 else got, flush=True)
"#;

/// The program, which has read the beginning.
struct Reader {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Reader {
    fn start(world: &World) -> Self {
        let mut command = world.command("kernel", &["python3", "-c", HALVES]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut reader = Self { child, out };
        assert_eq!(reader.line(), "half\n");
        reader
    }

    /// Output of the program after it has read everything.
    fn rest(&mut self) -> String {
        drop(self.child.stdin.take());
        let line = self.line();
        self.child.wait().unwrap();
        line
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }
}

/// The peer's link address changes while it reads. The kernel notices, and the transfer continues.
#[test]
fn neighbour_with_another_link_address_is_followed() {
    let Some((world, body)) = world("mirror-mac") else {
        return;
    };
    let _server = serve(&world);
    let mut reader = Reader::start(&world);
    world.run_ip("kernel", "link set left address 02:00:00:00:77:01");
    let arping = ["ping", "-c", "1", "-W", "10", "10.78.0.2"];
    assert!(world.kernel(&arping).status.success());
    assert_eq!(reader.rest(), "all\n");
    assert_eq!(fetch(&world, &[], "10.78.0.2"), Ok(body));
}

/// The interface's link address changes while the peer reads. Without an announcement the peer
/// would send to the old one until it doubts it.
#[test]
fn interface_with_another_link_address_announces_it() {
    let Some((world, body)) = world("mirror-own-mac") else {
        return;
    };
    let _server = serve(&world);
    assert_eq!(fetch(&world, &[], "10.78.0.2"), Ok(body.clone()));
    assert_eq!(fetch(&world, &["-g"], "[fd78::2]"), Ok(body.clone()));
    // The kernel does not probe a reachable entry by itself.
    world.run_ip("ours", "link set right address 02:00:00:00:77:03");
    for address in ["10.78.0.2", "fd78::2"] {
        until("the neighbour does not know the address", || {
            let words = ["ip", "neigh", "show", address, "dev", "left"];
            let said = world.command("kernel", &words).output().unwrap();
            String::from_utf8_lossy(&said.stdout).contains("02:00:00:00:77:03")
        });
    }
    assert_eq!(fetch(&world, &[], "10.78.0.2"), Ok(body.clone()));
    assert_eq!(fetch(&world, &["-g"], "[fd78::2]"), Ok(body));
}

/// The segment size that a new connection gets from the server.
const MSS: &str = "import socket; one = socket.create_connection(('10.78.0.2', 8080), 60); \
                   print(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))";

#[test]
fn mtu_that_shrinks_shortens_segments() {
    let Some((world, _)) = world("mirror-mtu") else {
        return;
    };
    let _server = serve(&world);
    let segment = || {
        let output = world.kernel(&["python3", "-c", MSS]);
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    // 1,500 less both headers and the timestamps option.
    assert_eq!(segment(), "1448");
    world.run_ip("ours", "link set right mtu 1300");
    until("the MTU is not followed", || segment() == "1248");
}

/// Kernel neighbour entries that were made for the stack are removed with it.
#[test]
fn end_of_the_process_gives_everything_back() {
    let Some((world, body)) = world("mirror-end") else {
        return;
    };
    let server = serve(&world);
    assert_eq!(fetch(&world, &[], "10.78.0.2"), Ok(body));
    server.stop();
    world.write("kernel/file", b"by the kernel");
    let directory = world.directory.join("kernel");
    let words = ["--wire", "kernel", "--port", "8080"];
    let _kernel = world.serve("ours", Path::new(&directory), &words);
    assert_eq!(
        fetch(&world, &[], "10.78.0.2"),
        Ok(b"by the kernel".to_vec())
    );
}
