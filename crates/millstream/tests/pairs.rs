//! Millstream at both ends, over memif and over an in-process wire, good and bad, with every
//! pairing of cranks.

mod common;

use std::io::Read;
use std::net::IpAddr;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use common::bytes::{receive, send};
use common::cpu::{LOOK, expect_idle};
use common::lab::turn;
use common::meet::expect_all_returned;
use common::net::{Gate, Net, Ours, Place};
use common::scenarios::{
    ALL, BULK, BULK_1, BULK_3, BULK_100K, ECHO, HALF_CLOSE, SHORT_30, SHORT_2000, Scenario,
};
use common::unique;
use millstream::{Config, Context, Crank, Runtime, TcpListener, TcpStream};

const SERVER_V4: &str = "10.9.0.1";
const CLIENT_V4: &str = "10.9.0.2";
const SERVER_V6: &str = "fd09::1";
const CLIENT_V6: &str = "fd09::2";

/// The specifications of the two ends of a wire.
struct Wire {
    server: String,
    client: String,
}

impl Wire {
    fn loopback(keys: &str) -> Self {
        let name = unique("pairs");
        // The faults are configured at one end and act on both directions.
        Self {
            server: format!("loopback:{name}{keys}"),
            client: format!("loopback:{name}"),
        }
    }

    fn memif(keys: &str) -> Self {
        let path = std::env::temp_dir().join(unique("mst-memif"));
        let path = path.display();
        Self {
            server: format!("memif:{path}.sock,role=server{keys}"),
            client: format!("memif:{path}.sock,role=client{keys}"),
        }
    }
}

fn config(wire: &str, addresses: [&str; 2], crank: Crank) -> Config {
    let mut config = Config::new(wire.parse().unwrap_or_else(|e| panic!("{e}")));
    for (address, bits) in addresses.into_iter().zip([24, 64]) {
        let cidr = format!("{address}/{bits}");
        config.addresses.push(cidr.parse().expect("address"));
    }
    config.crank = crank;
    config
}

fn place(own: &str, peer: &str, port: u16) -> Place {
    let parse = |text: &str| text.parse::<IpAddr>().expect("address");
    Place {
        own: parse(own),
        peer: parse(peer),
        port,
        kernel_receive_buffer: None,
    }
}

/// Plays scenarios over a wire, alternately over IPv4 and IPv6. At the end neither stack holds
/// anything.
fn meet(wire: &Wire, cranks: [Crank; 2], scenarios: &[Scenario]) {
    meet_with(wire, cranks, |_| (), scenarios);
}

fn meet_with(
    wire: &Wire,
    cranks: [Crank; 2],
    change: impl Fn(&mut Config),
    scenarios: &[Scenario],
) {
    let mut server = config(&wire.server, [SERVER_V4, SERVER_V6], cranks[0]);
    let mut client = config(&wire.client, [CLIENT_V4, CLIENT_V6], cranks[1]);
    change(&mut server);
    change(&mut client);
    let gates: Vec<Gate> = scenarios.iter().map(|_| Gate::default()).collect();
    let over = Gate::default();
    let ends = Mutex::new(0);
    let play = |config: Config, is_server: bool| {
        let runtime = Runtime::new(config).unwrap_or_else(|e| panic!("{e}"));
        let context = runtime.context(0).expect("context");
        for (at, (scenario, gate)) in scenarios.iter().zip(&gates).enumerate() {
            let (server, client) = match at % 2 {
                0 => (SERVER_V4, CLIENT_V4),
                _ => (SERVER_V6, CLIENT_V6),
            };
            let port = 7_002 + 2 * at as u16;
            let (place, act) = match is_server {
                true => (place(server, client, port), scenario.server),
                false => (place(client, server, port), scenario.client),
            };
            let begin = Instant::now();
            act(
                &Ours {
                    context: &context,
                    place,
                } as &dyn Net,
                gate,
            );
            if is_server {
                println!("  {} {cranks:?}: {:.2?}", scenario.name, begin.elapsed());
            }
        }
        expect_all_returned(&context);
        // Both ends stay until both have their resources back.
        *ends.lock().expect("ends") += 1;
        over.reach(*ends.lock().expect("ends"));
        over.wait(2);
    };
    thread::scope(|scope| {
        scope.spawn(|| play(server, true));
        scope.spawn(|| play(client, false));
    });
}

const INLINE: [Crank; 2] = [Crank::Inline, Crank::Inline];
const DEDICATED: [Crank; 2] = [Crank::Dedicated, Crank::Dedicated];
const MIXED: [Crank; 2] = [Crank::Inline, Crank::Dedicated];

#[test]
fn memif_with_every_crank() {
    let _turn = turn("memif_with_every_crank");
    meet(&Wire::memif(""), INLINE, &ALL);
    meet(&Wire::memif(""), DEDICATED, &ALL);
    meet(&Wire::memif(""), MIXED, &[BULK, SHORT_2000, HALF_CLOSE]);
}

#[test]
fn loopback_with_every_crank() {
    let _turn = turn("loopback_with_every_crank");
    for cranks in [INLINE, DEDICATED, MIXED] {
        let scenarios = [ECHO, BULK_3, SHORT_2000];
        meet(&Wire::loopback(""), cranks, &scenarios);
    }
}

#[test]
fn loss_at_several_rates() {
    let _turn = turn("loss_at_several_rates");
    for (rate, cranks, scenario) in [
        ("0.1%", INLINE, BULK_3),
        ("1%", DEDICATED, BULK_1),
        ("1%", INLINE, BULK_1),
        ("5%", INLINE, BULK_100K),
    ] {
        let wire = Wire::loopback(&format!(",loss={rate},seed=21"));
        meet(&wire, cranks, &[scenario, ECHO]);
    }
    let wire = Wire::loopback(",loss=10%,seed=22");
    meet(&wire, DEDICATED, &[ECHO]);
}

#[test]
fn everything_at_several_rates() {
    let _turn = turn("everything_at_several_rates");
    for (rate, scenario, cranks) in [("1%", BULK_1, DEDICATED), ("5%", BULK_100K, INLINE)] {
        let keys = format!(",loss={rate},dup={rate},reorder={rate},corrupt={rate},seed=24");
        meet(&Wire::loopback(&keys), cranks, &[scenario, ECHO]);
    }
}

#[test]
fn memif_that_loses() {
    let _turn = turn("memif_that_loses");
    let wire = Wire::memif(",loss=1%,corrupt=1%,seed=23");
    meet(&wire, INLINE, &[BULK_1, ECHO]);
}

/// With small tables and buffers, limits are reached all the time, and nothing gets stuck.
#[test]
fn small_limits_make_it_slow_and_nothing_worse() {
    let _turn = turn("small_limits_make_it_slow_and_nothing_worse");
    let change = |config: &mut Config| {
        config.limits.small_chunks = 32;
        config.limits.large_chunks = 32;
        config.tcp.send_buffer.bytes_default = 16_384;
        config.tcp.send_buffer.bytes_max = 16_384;
        config.tcp.recv_buffer.bytes_default = 32_768;
        config.tcp.recv_buffer.bytes_max = 32_768;
        config.limits.sockets_max = 8;
        config.limits.half_open_max = 4;
        config.limits.time_wait_max = 4;
        config.limits.control_queue_max = 16;
    };
    for cranks in [INLINE, DEDICATED] {
        let scenarios = [BULK_1, ECHO, SHORT_30, HALF_CLOSE];
        meet_with(&Wire::memif(""), cranks, change, &scenarios);
    }
}

fn idle(wire: &Wire, crank: Crank, label: &str) {
    let port = 7_002;
    let server = config(&wire.server, [SERVER_V4, SERVER_V6], crank);
    let client = config(&wire.client, [CLIENT_V4, CLIENT_V6], crank);
    let gate = Gate::default();
    let open = |config| {
        let runtime = Runtime::new(config).unwrap_or_else(|e| panic!("{e}"));
        runtime.context(0).expect("context")
    };
    let wait = |context: &Context, mut stream: TcpStream| {
        stream.set_read_timeout(Some(LOOK));
        expect_idle(label, || {
            assert!(stream.read(&mut [0]).is_err(), "nothing to read");
        });
        drop(stream);
        let _ = context.turn();
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let context = open(server);
            let place = place(SERVER_V4, CLIENT_V4, port);
            let listener = TcpListener::bind(&context, place.own()).expect("bind");
            gate.reach(1);
            let (mut stream, _) = listener.accept().expect("accept");
            receive(&mut stream, 100_000, 1);
            send(&mut stream, 1, 2);
            wait(&context, stream);
        });
        scope.spawn(|| {
            let context = open(client);
            gate.wait(1);
            let place = place(CLIENT_V4, SERVER_V4, port);
            let mut stream = TcpStream::connect(&context, place.peer()).expect("connect");
            send(&mut stream, 100_000, 1);
            receive(&mut stream, 1, 2);
            // One end observes the process; the other one is away meanwhile.
            thread::sleep(common::cpu::SETTLE + LOOK + Duration::from_millis(200));
            drop(stream);
        });
    });
}

#[test]
fn idle_connection_costs_nothing() {
    let _turn = turn("idle_connection_costs_nothing");
    idle(&Wire::memif(""), Crank::Inline, "memif inline");
    idle(&Wire::memif(""), Crank::Dedicated, "memif dedicated");
    idle(&Wire::loopback(""), Crank::Inline, "loopback inline");
}
