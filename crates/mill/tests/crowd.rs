//! Thousands of concurrent kernel connections to `mill serve` over AF_XDP: each gets its answer,
//! and no ring overflows.

mod world;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use world::{OURS, World};

/// More connections than the 2,048 frames of a ring, each with a request and ACKs.
const CONNECTIONS: usize = 6_000;
const ROUNDS: usize = 3;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: millstream\r\n\r\n";
/// Longer than retransmissions take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Counters of frames that found no room on our side.
const LOST: [&str; 3] = [
    "xdp_rx_ring_full",
    "xdp_rx_fill_ring_empty",
    "xdp_rx_dropped",
];

#[test]
fn crowd_that_asks_at_once_is_answered_whole_and_no_ring_overflows() {
    let Some(world) = World::new("crowd") else {
        return;
    };
    if !allow_descriptors(CONNECTIONS as u64 + 100) {
        let _ = writeln!(
            std::io::stderr(),
            "ignored: too few descriptors are allowed"
        );
        return;
    }
    let document = vec![b'x'; 7_000];
    world.write("www/index.html", &document);
    let wire = ["--wire", "xdp:right"];
    let server = world.serve(
        "ours",
        &world.directory.join("www"),
        &[&wire[..], &OURS[..]].concat(),
    );
    let namespace = File::open(format!("/run/netns/{}", world.namespace("kernel"))).unwrap();
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    let mut crowd: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| TcpStream::connect("10.78.0.2:80").expect("a connection"))
        .collect();
    for stream in &crowd {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    for round in 0..ROUNDS {
        for stream in &mut crowd {
            stream.write_all(REQUEST).expect("a request leaves");
        }
        let unanswered = crowd
            .iter_mut()
            .filter_map(|stream| answer(stream).err())
            .count();
        assert_eq!(unanswered, 0, "round {round}");
    }
    drop(crowd);
    let said = server.stop();
    let said: serde_json::Value = serde_json::from_str(said.trim()).expect("a line of JSON");
    let counted = |name: &str| said["stats"]["stack"][name].as_u64().unwrap_or(0);
    assert_eq!(said["stats"]["requests"], CONNECTIONS * ROUNDS, "{said}");
    for name in LOST {
        assert_eq!(counted(name), 0, "{name}: {said}");
    }
}

/// Reads one answer: a head and 7,000 bytes of content.
fn answer(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut bytes = vec![0; 16_384];
    let mut len = 0;
    loop {
        let head = bytes[..len].windows(4).position(|end| end == b"\r\n\r\n");
        if head.is_some_and(|head| len == head + 4 + 7_000) {
            return Ok(());
        }
        match stream.read(&mut bytes[len..])? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => len += n,
        }
    }
}

fn allow_descriptors(count: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|now| now >= count) {
        return true;
    }
    let wanted = Rlimit {
        current: Some(count),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, wanted).is_ok()
}
