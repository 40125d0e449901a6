//! The interface and its surroundings change during a transfer: MAC addresses, gateway, path MTU,
//! link, addresses, and the interface itself.

use std::io::Read as _;
use std::process::Output;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use millstream::TcpListener;

use crate::hostile::mac_of;
use crate::world::download::Download;
use crate::world::{CURL, World, noise};
use crate::{ONE, Program, Service, curl, nic, run, runtime};

/// A world with a server behind a service.
struct Stage {
    _server: Program,
    service: Service,
    world: World,
    body: Vec<u8>,
}

impl Stage {
    fn new(name: &str, words: &[&str]) -> Option<Self> {
        let world = World::new(name)?;
        let body = noise(3_000_000);
        world.write("a/file", &body);
        let service = Service::start(&world, words);
        let server = service.serve(&world.directory.join("a"), &["--port", "8080"]);
        Some(Self {
            _server: server,
            service,
            world,
            body,
        })
    }

    /// Starts a download of three seconds that fails after fifteen seconds without bytes. A
    /// transfer that waited until the other end doubts a MAC address would take longer.
    fn download(&self, words: &[&str]) -> Download {
        let impatient = ["--speed-limit", "1", "--speed-time", "15"];
        let url = ["http://10.78.0.2:8080/file"];
        Download::start(&self.world, &[&impatient, words, &url].concat())
    }

    fn must_be_whole(&self, download: Download) {
        assert!(download.body() == self.body);
    }

    /// `ip` on the service's host.
    fn ours(&self, words: &str) {
        let words: Vec<&str> = words.split(' ').collect();
        run(
            "ip",
            &[&["-n", &self.service.namespace], &words[..]].concat(),
        );
    }

    /// `ip` on the other host.
    fn theirs(&self, words: &str) {
        self.world.run_ip("kernel", words);
    }
}

/// Runs a test on a stage. Tests run one at a time.
fn on_stage(name: &str, test: impl FnOnce(&mut Stage)) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(mut stage) = Stage::new(name, &[]) {
        test(&mut stage);
    }
}

#[test]
fn new_mac_of_the_interface_leaves_a_transfer_whole() {
    on_stage("mux-mac", |stage| {
        let download = stage.download(&[]);
        stage.ours(&format!("link set {} address 02:00:00:00:77:01", nic()));
        stage.must_be_whole(download);
        assert_eq!(curl(&stage.world, "http://10.78.0.2:8080/file"), stage.body);
        assert_eq!(curl(&stage.world, "http://[fd78::2]:8080/file"), stage.body);
        let said = stage.service.said();
        assert!(
            said.contains("has MAC address 02:00:00:00:77:01 now"),
            "{said}"
        );
        assert!(stage.service.ask("status").contains("02:00:00:00:77:01"));
    });
}

#[test]
fn new_mac_of_the_neighbour_leaves_a_transfer_whole() {
    on_stage("mux-neighbour", |stage| {
        let download = stage.download(&[]);
        // The neighbour announces it, like a host that takes over an address.
        let set = ["sysctl", "-qw", "net.ipv4.conf.left.arp_notify=1"];
        assert!(stage.world.kernel(&set).status.success());
        stage.theirs("link set left address 02:00:00:00:77:02");
        stage.must_be_whole(download);
        assert_eq!(curl(&stage.world, "http://10.78.0.2:8080/file"), stage.body);
    });
}

/// Number of packets that an interface of the other host has received.
fn received(world: &World, link: &str) -> u64 {
    let words = ["ip", "-j", "-s", "link", "show", link];
    let output = world.kernel(&words);
    let text: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    text[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

#[test]
fn new_gateway_takes_over_a_transfer() {
    on_stage("mux-gateway", |stage| {
        // A host two hops away, and two routers to it with different MAC addresses.
        stage.theirs("addr add 10.99.0.1/32 dev lo");
        stage.theirs("link add second link left type macvlan mode bridge");
        stage.theirs("addr add 10.78.0.9/24 dev second");
        stage.theirs("link set second up");
        // Each router answers for its own address only, and accepts asymmetric traffic.
        for setting in ["all.arp_ignore=1", "all.rp_filter=0", "left.rp_filter=0"] {
            let set = format!("net.ipv4.conf.{setting}");
            let set = stage.world.kernel(&["sysctl", "-qw", &set]);
            assert!(set.status.success(), "{set:?}");
        }
        stage.ours(&format!(
            "route add 10.99.0.0/24 via 10.78.0.1 dev {}",
            nic()
        ));
        let download = stage.download(&["--interface", "10.99.0.1"]);
        let before = received(&stage.world, "second");
        stage.ours(&format!(
            "route replace 10.99.0.0/24 via 10.78.0.9 dev {}",
            nic()
        ));
        stage.must_be_whole(download);
        let by_the_second = received(&stage.world, "second") - before;
        // Two megabytes, in packets of at most 64 KiB.
        assert!(by_the_second > 30, "{by_the_second} packets");
    });
}

#[test]
fn link_that_goes_down_and_up_leaves_a_transfer_whole() {
    on_stage("mux-link", |stage| {
        let download = stage.download(&[]);
        stage.ours(&format!("link set {} down", nic()));
        std::thread::sleep(Duration::from_millis(300));
        assert!(stage.service.ask("check").contains("the link is down"));
        stage.ours(&format!("link set {} up", nic()));
        stage.must_be_whole(download);
        assert_eq!(curl(&stage.world, "http://10.78.0.2:8080/file"), stage.body);
    });
}

#[test]
fn interface_removed_and_added_again_serves_without_help() {
    on_stage("mux-replug", |stage| {
        let download = stage.download(&[]);
        stage.ours(&format!("link del {}", nic()));
        stage.theirs("link add left type veth peer name again");
        stage.theirs("addr add 10.78.0.1/24 dev left");
        stage.theirs("link set left up");
        assert!(
            stage
                .world
                .kernel(&["ethtool", "-K", "left", "gro", "on"])
                .status
                .success()
        );
        let namespace = stage.service.namespace.clone();
        stage.theirs(&format!("link set again netns {namespace} name {}", nic()));
        stage.ours(&format!("addr add 10.78.0.2/24 dev {}", nic()));
        stage.ours(&format!("link set {} up", nic()));
        // The server was not restarted, and its claim of all addresses holds.
        let until = Instant::now() + Duration::from_secs(30);
        let short = [
            "curl",
            "-sS",
            "--max-time",
            "5",
            "http://10.78.0.2:8080/file",
        ];
        while stage.world.kernel(&short).stdout != stage.body {
            assert!(Instant::now() < until, "{}", stage.service.said());
        }
        let said = stage.service.said();
        assert!(said.contains("the interface was removed"), "{said}");
        assert_eq!(said.matches("the interface is back").count(), 1, "{said}");
        // The address was gone in between, so the transfer has ended.
        drop(download);
    });
}

#[test]
fn program_of_another_on_the_interface_is_told_once_and_outlived() {
    on_stage("mux-rival", |stage| {
        let wire = format!("xdp:{}", nic());
        let words = ["serve", "/tmp", "--wire", &wire, "--addr", "10.78.0.5/24"];
        let refused = stage.world.ours(&words);
        assert!(!refused.status.success(), "{refused:?}");
        // The interface is removed. The one that gets its name has another XDP program already.
        stage.ours(&format!("link del {}", nic()));
        stage.theirs("link add left type veth peer name again");
        stage.theirs("addr add 10.78.0.1/24 dev left");
        stage.theirs("link set left up");
        let gro = ["ethtool", "-K", "left", "gro", "on"];
        assert!(stage.world.kernel(&gro).status.success());
        let namespace = stage.service.namespace.clone();
        stage.theirs(&format!("link set again netns {namespace}"));
        stage.ours("link set again up");
        let words = [
            "--wire",
            "xdp:again",
            "--addr",
            "10.78.0.5/24",
            "--port",
            "80",
        ];
        let rival = stage
            .world
            .serve("ours", &stage.world.directory.join("a"), &words);
        stage.ours(&format!("link set again down name {}", nic()));
        stage.ours(&format!("addr add 10.78.0.2/24 dev {}", nic()));
        stage.ours(&format!("link set {} up", nic()));
        let until = Instant::now() + Duration::from_secs(30);
        let complaint = "the interface is back, but";
        while !stage.service.said().contains(complaint) {
            assert!(Instant::now() < until, "{}", stage.service.said());
        }
        std::thread::sleep(Duration::from_millis(2500));
        drop(rival);
        let short = [
            "curl",
            "-sS",
            "--max-time",
            "5",
            "http://10.78.0.2:8080/file",
        ];
        while stage.world.kernel(&short).stdout != stage.body {
            assert!(Instant::now() < until, "{}", stage.service.said());
        }
        let said = stage.service.said();
        assert!(said.contains("another XDP program is attached"), "{said}");
        assert_eq!(said.matches(complaint).count(), 1, "{said}");
        assert_eq!(said.matches("the interface is back\n").count(), 1, "{said}");
    });
}

#[test]
fn claim_of_an_address_is_made_again_when_the_address_is_back() {
    on_stage("mux-return", |stage| {
        let runtime = runtime(&stage.service, 1);
        let context = runtime.context(0).unwrap();
        let add = format!("addr add 10.78.0.3/24 dev {}", nic());
        stage.ours(&add);
        let until = Instant::now() + Duration::from_secs(30);
        // The address must have reached the service before it can be claimed.
        let listener = loop {
            match TcpListener::bind(&context, "10.78.0.3:8081".parse().unwrap()) {
                Ok(listener) => break listener,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
        };
        let has_claim = || stage.service.ask("ports").contains("10.78.0.3:8081");
        assert!(has_claim());
        stage.ours(&format!("addr del 10.78.0.3/24 dev {}", nic()));
        while has_claim() {
            assert!(Instant::now() < until, "the claim stays");
        }
        stage.ours(&add);
        while !has_claim() {
            assert!(Instant::now() < until, "the claim does not come back");
        }
        let connect = "import socket; socket.create_connection((\"10.78.0.3\", 8081), 20).recv(1)";
        let mut client = stage.world.command("kernel", &["python3", "-c", connect]);
        let mut client = Program(client.spawn().unwrap());
        drop(listener.accept().unwrap());
        assert!(client.0.wait().unwrap().success());
    });
}

/// A TCP client written in Python, from an address that no kernel has. It requests a file and
/// acknowledges none of it. Then it reports a narrow path by an ICMP error, which quotes the
/// segment at an offset to the first one. It prints the longest segment before and after that.
const NARROW: &str = r#"
import socket, struct, sys, time
offset, me, server, port = int(sys.argv[1]), "10.78.0.77", "10.78.0.2", 40077
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind(("left", 0))
mac = s.getsockname()[4]
ip4 = socket.inet_aton
def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
def ip(protocol, payload):
    head = struct.pack("!BBHHHBBH4s4s", 69, 0, 20 + len(payload), 0, 0x4000, 64, protocol, 0, ip4(me), ip4(server))
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload
def send(packet):
    s.send(peer + mac + b"\x08\0" + packet)
def tcp(seq, ack, flags, payload=b"", options=b""):
    head = struct.pack("!HHIIBBHHH", port, 8080, seq, ack, (5 + len(options) // 4) << 4, flags, 65535, 0, 0) + options
    pseudo = ip4(me) + ip4(server) + struct.pack("!HH", 6, len(head + payload))
    head = head[:16] + struct.pack("!H", checksum(pseudo + head + payload)) + head[18:]
    send(ip(6, head + payload))
def frames(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        s.settimeout(max(0.01, end - time.monotonic()))
        try:
            frame = s.recv(65536)
        except TimeoutError:
            return
        if frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\x01" and frame[38:42] == ip4(me):
            s.send(frame[6:12] + mac + frame[12:20] + b"\0\x02" + mac + ip4(me) + frame[22:32])
        elif frame[12:14] == b"\x08\0" and frame[23] == 6 and frame[30:34] == ip4(me):
            yield frame
def segment(frame):
    seq, ack, offset, flags = struct.unpack("!IIBB", frame[38:48])
    at = 34 + (offset >> 4) * 4
    return seq, ack, flags, frame[at:14 + struct.unpack("!H", frame[16:18])[0]]
peer = bytes.fromhex(sys.argv[2].replace(":", ""))
tcp(1000, 0, 2, options=b"\x02\x04\x05\xb4")
for frame in frames(20):
    seq, ack, flags, _ = segment(frame)
    if flags & 18 == 18:
        break
first = seq + 1
tcp(1001, first, 16)
request = b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n"
tcp(1001, first, 24, request)
before = 0
for frame in frames(0.5):
    seq, _, _, payload = segment(frame)
    before = max(before, len(payload))
quoted = struct.pack("!BBHHHBBH4s4s", 69, 0, 1500, 0, 0x4000, 64, 6, 0, ip4(server), ip4(me))
quoted += struct.pack("!HHI", 8080, port, (first + offset) & 0xffffffff)
error = struct.pack("!BBHHH", 3, 4, 0, 0, 600) + quoted
send(ip(1, error[:2] + struct.pack("!H", checksum(error)) + error[4:]))
after = 0
for frame in frames(20):
    seq, _, _, payload = segment(frame)
    # What follows the error is sent again from the first byte on.
    if seq == first and payload:
        after = len(payload)
        break
tcp(1001 + len(request), first, 4)
print(before, after)
"#;

#[test]
fn fragmentation_needed_narrows_its_flow_and_a_forged_one_does_not() {
    on_stage("mux-narrow", |stage| {
        let mac = mac_of(&stage.service);
        let segments = |offset: &str| -> (usize, usize) {
            let words = ["python3", "-c", NARROW, offset, &mac];
            let output = stage.world.kernel(&words);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let mut numbers = said.split_whitespace().map(|word| word.parse().unwrap());
            let pair = numbers.next().zip(numbers.next());
            pair.unwrap_or_else(|| panic!("{output:?}"))
        };
        // The ICMP error quotes a segment that was never sent.
        let (before, after) = segments("50000000");
        assert!(before > 1400 && after > 1400, "{before} {after}");
        let (before, after) = segments("0");
        assert!(
            before > 1400 && (1..=560).contains(&after),
            "{before} {after}"
        );
    });
}

#[test]
fn connection_of_an_address_that_is_lost_ends_with_the_network_down() {
    on_stage("mux-lost", |stage| {
        let runtime = runtime(&stage.service, 1);
        let context = runtime.context(0).unwrap();
        stage.ours(&format!("addr add 10.78.0.3/24 dev {}", nic()));
        let until = Instant::now() + Duration::from_secs(30);
        let listener = loop {
            match TcpListener::bind(&context, "10.78.0.3:8081".parse().unwrap()) {
                Ok(listener) => break listener,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
        };
        let connect = "import socket; socket.create_connection((\"10.78.0.3\", 8081), 20).recv(1)";
        let client = stage
            .world
            .command("kernel", &["python3", "-c", connect])
            .spawn();
        let _client = Program(client.unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        stage.ours(&format!("addr del 10.78.0.3/24 dev {}", nic()));
        let ended = stream.read(&mut [0]).unwrap_err();
        assert_eq!(
            ended.raw_os_error(),
            Some(rustix::io::Errno::NETDOWN.raw_os_error())
        );
    });
}

#[test]
fn another_prefix_of_the_address_leaves_a_transfer_whole() {
    on_stage("mux-prefix", |stage| {
        let download = stage.download(&[]);
        // A second entry of the address comes before the first one goes, and the same back.
        for (new, old) in [("16", "24"), ("24", "16")] {
            stage.ours(&format!("addr add 10.78.0.2/{new} dev {}", nic()));
            std::thread::sleep(Duration::from_millis(300));
            stage.ours(&format!("addr del 10.78.0.2/{old} dev {}", nic()));
            std::thread::sleep(Duration::from_millis(300));
        }
        stage.must_be_whole(download);
        assert_eq!(curl(&stage.world, "http://10.78.0.2:8080/file"), stage.body);
    });
}

/// As `ip` and many tools do it: in between, the interface does not have the address.
#[test]
fn address_removed_before_it_has_another_prefix_leaves_a_transfer_whole() {
    on_stage("mux-readded", |stage| {
        let download = stage.download(&[]);
        for (old, new) in [("24", "16"), ("16", "24")] {
            stage.ours(&format!("addr del 10.78.0.2/{old} dev {}", nic()));
            std::thread::sleep(Duration::from_millis(100));
            stage.ours(&format!("addr add 10.78.0.2/{new} dev {}", nic()));
            std::thread::sleep(Duration::from_millis(300));
        }
        stage.must_be_whole(download);
        assert_eq!(curl(&stage.world, "http://10.78.0.2:8080/file"), stage.body);
    });
}

/// A host behind the other one, by a link on which only that one's end has a small MTU. So the far
/// host offers long segments and the router between says that they are too long.
struct Behind {
    namespace: String,
}

impl Behind {
    fn new(stage: &Stage) -> Self {
        let behind = Self {
            namespace: stage.world.namespace("behind"),
        };
        run("ip", &["netns", "add", &behind.namespace]);
        let namespace = &behind.namespace;
        stage.theirs(&format!(
            "link add narrow type veth peer name end netns {namespace}"
        ));
        stage.theirs("link set narrow mtu 1300 up");
        stage.theirs("addr add 10.79.0.1/24 dev narrow");
        stage.theirs("addr add fd79::1/64 dev narrow nodad");
        for setting in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
            let set = stage.world.kernel(&["sysctl", "-qw", setting]);
            assert!(set.status.success(), "{set:?}");
        }
        for words in [
            "link set end up",
            "addr add 10.79.0.2/24 dev end",
            "addr add fd79::2/64 dev end nodad",
            "route add default via 10.79.0.1",
            "-6 route add default via fd79::1",
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            run("ip", &[&["-n", namespace], &words[..]].concat());
        }
        stage.ours(&format!(
            "route add 10.79.0.0/24 via 10.78.0.1 dev {}",
            nic()
        ));
        stage.ours(&format!("-6 route add fd79::/64 via fd78::1 dev {}", nic()));
        behind
    }

    fn curl(&self, stage: &Stage, url: &str) -> Output {
        let words = [
            &CURL[..],
            &["--speed-limit", "1", "--speed-time", "15", url],
        ];
        let words = words.concat();
        stage.world.command("behind", &words).output().unwrap()
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        run("ip", &["netns", "del", &self.namespace]);
    }
}

/// A counter of the kernel's in the other host's namespace, of `/proc/net/snmp6` or of the first
/// table with the name in `/proc/net/snmp`.
fn kernel_counter(stage: &Stage, name: &str) -> u64 {
    let tables = stage
        .world
        .kernel(&["cat", "/proc/net/snmp6", "/proc/net/snmp"]);
    let tables = String::from_utf8_lossy(&tables.stdout).into_owned();
    let lines: Vec<Vec<&str>> = tables
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for (at, line) in lines.iter().enumerate() {
        let column = line.iter().position(|word| *word == name);
        match column {
            Some(0) => return line[1].parse().unwrap(),
            Some(column) => return lines[at + 1][column].parse().unwrap(),
            None => {}
        }
    }
    panic!("{name}: {tables}")
}

#[test]
fn router_with_a_smaller_mtu_narrows_connections_of_both_versions() {
    on_stage("mux-too-big", |stage| {
        let behind = Behind::new(stage);
        for (url, counter) in [
            ("http://[fd78::2]:8080/file", "Ip6FragFails"),
            ("http://10.78.0.2:8080/file", "FragFails"),
        ] {
            let before = kernel_counter(stage, counter);
            let output = behind.curl(stage, url);
            assert!(output.status.success(), "{url}: {output:?}");
            assert!(output.stdout == stage.body);
            let told = kernel_counter(stage, counter) - before;
            // The router says so of the packets that were on their way, and of no others.
            assert!((1..100).contains(&told), "{url}: {told} packets too long");
        }
    });
}

#[test]
fn new_transfers_fit_an_mtu_that_was_lowered() {
    on_stage("mux-lower", |stage| {
        stage.ours(&format!("link set {} mtu 1400", nic()));
        let until = Instant::now() + Duration::from_secs(30);
        while !stage.service.ask("status").contains("1400") {
            assert!(Instant::now() < until, "{}", stage.service.ask("status"));
        }
        // The application hears of it at once, and the service drops what is longer.
        std::thread::sleep(Duration::from_millis(300));
        for url in ["http://10.78.0.2:8080/file", "http://[fd78::2]:8080/file"] {
            assert_eq!(curl(&stage.world, url), stage.body);
        }
        let drops = stage.service.ask("drops");
        assert!(!drops.contains("oversize"), "{drops}");
    });
}
