//! An inline owner that stays away in its own code: TCP continues without it.

use std::io::Write;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use millstream::{Config, Context, Crank};
use rustix::net::getsockname;

use crate::common::bytes::{expect_end, receive, send};
use crate::common::lab::{Lab, Link, turn_as_root};
use crate::common::meet::{Family, Role, places, plain, play_with, with_ours};
use crate::common::net::{Gate, Net};
use crate::common::scenarios::Scenario;

/// A frame that has not come by then does not come while the owner is away.
const PATIENCE: Duration = Duration::from_secs(30);
const AWAY: Duration = Duration::from_millis(400);

fn meet(name: &str, links: &[Link], keys: &str, scenario: &Scenario) {
    meet_as(name, links, keys, |_| (), scenario);
}

/// Like [`meet`], with other settings of the owner's stack.
fn meet_as(name: &str, links: &[Link], keys: &str, change: fn(&mut Config), scenario: &Scenario) {
    let Some(_turn) = turn_as_root(name) else {
        return;
    };
    for &link in links {
        let lab = Lab::new(link);
        let mut config = plain(&lab.wire(keys), Crank::Inline);
        change(&mut config);
        with_ours(&lab, config, |context| {
            play_with(&lab, context, scenario, Role::Server, places(Family::V4));
        });
    }
}

/// Disables retransmission during a test, since a connection's timer would turn the stack.
fn never_retransmit(config: &mut Config) {
    config.tcp.tail_loss_probe = false;
    config.tcp.rto_ns_min = 100_000_000_000;
    config.tcp.rto_ns_max = 200_000_000_000;
}

const ALL_LINKS: [Link; 3] = [Link::Native, Link::Generic, Link::Tap];

/// Bytes that the kernel's socket at `local` has not seen acknowledged.
fn unacknowledged(local: SocketAddr) -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").expect("/proc/net/tcp");
    let port = format!(":{:04X}", local.port());
    let line = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|words| words.len() > 4 && words[1].ends_with(&port) && words[3] == "01")
        .expect("the connection in /proc/net/tcp");
    let (queue, _) = line[4].split_once(':').expect("tx_queue");
    u64::from_str_radix(queue, 16).expect("a hexadecimal number")
}

#[test]
fn peer_is_acknowledged() {
    let scenario = Scenario {
        name: "the peer's bytes are acknowledged",
        server: |net, gate| {
            let listener = net.listen();
            gate.reach(1);
            let mut conn = listener.accept().expect("accept");
            receive(&mut *conn, 1, 1);
            gate.reach(2);
            // Stays away until the peer has its acknowledgement.
            gate.wait(3);
            receive(&mut *conn, 50_000, 2);
        },
        client: |net, gate| {
            gate.wait(1);
            let mut stream = std::net::TcpStream::connect(net.place().peer()).expect("connect");
            send(&mut stream, 1, 1);
            gate.wait(2);
            let begin = Instant::now();
            send(&mut stream, 50_000, 2);
            let local = getsockname(&stream).expect("name").try_into().expect("ip");
            while unacknowledged(local) > 0 {
                let left = unacknowledged(local);
                assert!(begin.elapsed() < PATIENCE, "{left} are not");
                thread::sleep(Duration::from_millis(1));
            }
            gate.reach(3);
        },
    };
    meet("peer_is_acknowledged", &ALL_LINKS, "", &scenario);
}

#[test]
fn closed_stream_ends() {
    let scenario = Scenario {
        name: "the FIN of a closed stream leaves",
        server: |net, gate| {
            let listener = net.listen();
            gate.reach(1);
            let mut conn = listener.accept().expect("accept");
            receive(&mut *conn, 1, 1);
            // Long enough for the watchdog to fall asleep.
            thread::sleep(Duration::from_millis(50));
            gate.reach(2);
            send(&mut *conn, 10_000, 2);
            drop(conn);
            // Stays away until the peer has received the FIN.
            gate.wait(3);
        },
        client: |net, gate| {
            gate.wait(1);
            let mut conn = net.connect().expect("connect");
            send(&mut *conn, 1, 1);
            gate.wait(2);
            receive(&mut *conn, 10_000, 2);
            expect_end(&mut *conn);
            gate.reach(3);
        },
    };
    meet("closed_stream_ends", &ALL_LINKS, "", &scenario);
}

/// Writes what fits into the send buffer, and leaves.
fn write_and_go(net: &dyn Net, gate: &Gate) {
    let listener = net.listen();
    gate.reach(1);
    let mut conn = listener.accept().expect("accept");
    receive(&mut *conn, 1, 1);
    send(&mut *conn, 60_000, 2);
    conn.flush().expect("flush");
    gate.wait(2);
}

fn read_it_all(net: &dyn Net, gate: &Gate) {
    gate.wait(1);
    let mut conn = net.connect().expect("connect");
    send(&mut *conn, 1, 1);
    receive(&mut *conn, 60_000, 2);
    gate.reach(2);
}

#[test]
fn lost_segments_are_sent_again() {
    let scenario = Scenario {
        name: "what was lost is sent again",
        server: write_and_go,
        client: read_it_all,
    };
    let name = "lost_segments_are_sent_again";
    meet(name, &[Link::Native], "tx.loss=20%,seed=5", &scenario);
}

/// Frames that the wire delays are the port's own work: the stack knows of nothing that is due
/// then.
#[test]
fn delayed_frames_leave_when_due() {
    let scenario = Scenario {
        name: "delayed frames leave when they are due",
        server: |net, gate| {
            let listener = net.listen();
            gate.reach(1);
            let mut conn = listener.accept().expect("accept");
            receive(&mut *conn, 1, 1);
            thread::sleep(Duration::from_millis(50));
            gate.reach(2);
            send(&mut *conn, 100, 2);
            gate.wait(3);
        },
        client: |net, gate| {
            gate.wait(1);
            let mut conn = net.connect().expect("connect");
            send(&mut *conn, 1, 1);
            gate.wait(2);
            // The owner stays away until step 3, so its wait at the gate fails if the frame is
            // late.
            receive(&mut *conn, 100, 2);
            gate.reach(3);
        },
    };
    let name = "delayed_frames_leave_when_due";
    meet_as(
        name,
        &[Link::Tap, Link::Native],
        "tx.delay=150ms",
        never_retransmit,
        &scenario,
    );
}

/// The process's watchdog serves two stacks whose owners are both away.
#[test]
fn two_stacks_are_both_guarded() {
    let Some(_turn) = turn_as_root("two_stacks_are_both_guarded") else {
        return;
    };
    let labs = [Lab::new(Link::Native), Lab::new(Link::Tap)];
    let ping = |lab: &Lab, _: &Context| {
        for _ in 0..3 {
            lab.far().exec("ping -q -c 3 -i 0.1 -W 1 10.77.0.1");
        }
    };
    thread::scope(|scope| {
        for lab in &labs {
            scope.spawn(move || {
                let config = plain(&lab.wire(""), Crank::Inline);
                with_ours(lab, config, |context| ping(lab, context));
            });
        }
    });
}

#[test]
fn context_that_goes_while_it_is_watched_takes_its_tap_along() {
    let name = "context_that_goes_while_it_is_watched_takes_its_tap_along";
    let Some(_turn) = turn_as_root(name) else {
        return;
    };
    let lab = Lab::new(Link::Tap);
    // Each runtime opens the same interface again.
    for _ in 0..5 {
        let mut config = plain(&lab.wire(""), Crank::Inline);
        config.linger_ns = 0;
        with_ours(&lab, config, |_| thread::sleep(AWAY));
        let left = lab.far().ip("link show");
        assert!(!left.contains(lab.far_interface()), "{left}");
    }
}
