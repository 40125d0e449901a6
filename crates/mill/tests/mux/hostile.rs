//! An application that attacks, and a download beside it.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::world::{World, noise};
use crate::{MILL, Program, Service, curl};

/// The most that was seen of a hostile application, which may have several lives.
#[derive(Debug, Default)]
pub struct Hostile {
    /// The number that it printed last.
    pub taken: u64,
    pub rx_frames: u64,
    pub rx_no_room: u64,
    pub tx_frames: u64,
    /// Frames of its own that were dropped, of all reasons.
    pub tx_drops: u64,
}

impl Hostile {
    /// Looks at the service's counters.
    fn look(&mut self, service: &Service) {
        let words = [MILL, "mux", "status", "--json", "--socket", &service.socket];
        let output = service.inside(&words).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let applications = status["applications"].as_array().unwrap().iter();
        for one in applications.filter(|one| one["name"] == "hostile") {
            let context = &one["contexts"][0];
            let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
            let drops = context["drops"].as_object();
            let drops = drops.into_iter().flatten();
            let of_rx = |name: &str| name.starts_with("rx_");
            let tx_drops = drops.filter(|(name, _)| !of_rx(name));
            let tx_drops = tx_drops.map(|(_, count)| number(count)).sum();
            let seen = [
                (&mut self.rx_frames, number(&context["rx_frames"])),
                (
                    &mut self.rx_no_room,
                    number(&context["drops"]["rx_no_room"]),
                ),
                (&mut self.tx_frames, number(&context["tx_frames"])),
                (&mut self.tx_drops, tx_drops),
            ];
            for (most, now) in seen {
                *most = now.max(*most);
            }
        }
    }
}

/// Sends segments to port 8090 as fast as one can.
const FLOOD: &str = r#"
import socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("left", 0))
ip4 = socket.inet_aton
ip = struct.pack("!BBHHHBBH4s4s", 69, 0, 40, 0, 0, 64, 6, 0, ip4("10.78.0.1"), ip4("10.78.0.2"))
tcp = struct.pack("!HHIIBBHHH", 40000, 8090, 1, 1, 0x50, 16, 1000, 0, 0)
frame = bytes.fromhex(sys.argv[1].replace(":", "")) + s.getsockname()[4] + b"\x08\0" + ip + tcp
while True:
    try:
        s.send(frame)
    except OSError:
        pass
"#;

/// A file passes again and again, and whole, as long as a hostile application runs, whose port
/// somebody floods.
pub fn download_beside(world: &World, service: &Service, hostile: &mut Command) -> Hostile {
    let body = noise(3_000_000);
    world.write("a/file", &body);
    let _ours = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    let mac = mac_of(service);
    let mut flood = world.command("kernel", &["python3", "-c", FLOOD, &mac]);
    let flood = Program(flood.spawn().unwrap());
    let mut hostile = hostile.stdout(Stdio::piped()).spawn().unwrap();
    let (mut rounds, mut seen) = (0, Hostile::default());
    while rounds == 0 || hostile.try_wait().unwrap().is_none() {
        assert_eq!(curl(world, "http://10.78.0.2:8080/file"), body);
        seen.look(service);
        rounds += 1;
    }
    drop(flood);
    let output = hostile.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    seen.taken = said.lines().last().unwrap().parse().unwrap();
    let _ = writeln!(std::io::stderr(), "{seen:?}, {rounds} downloads");
    seen
}

/// The MAC address of the shared interface.
pub fn mac_of(service: &Service) -> String {
    let status = service.ask("status");
    let mac = status.split("MAC ").nth(1).unwrap();
    mac.split(',').next().unwrap().to_owned()
}
