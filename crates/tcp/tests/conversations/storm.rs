//! Random calls in random order. Whatever the peer, the application and the clock do, nothing
//! panics, the effects are true (`peer::check_effects`), sending ends, and the sequence spaces stay
//! in order.

use tcp::{IcmpError, Keepalive, Segment};
use wire::tcp::{Flags, Options, Timestamp};

use crate::peer::{MS, Peer, Setup, Variant};

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

fn segment(random: &mut Random, p: &Peer) -> (i64, Segment) {
    let info = p.conn.info();
    let window = i64::from(info.rcv_wnd);
    let ahead = random.pick(&[
        0,
        0,
        0,
        0,
        1,
        500,
        1000,
        2000,
        5000,
        -1,
        -10,
        -2000,
        window - 1,
        window,
        window + 9,
    ]);
    let unacked = u64::from(p.conn.unacked());
    let acks = match random.below(10) {
        0 => -1,
        1 => unacked as i64 + 1,
        2 => -100_000,
        3..=5 => unacked as i64,
        _ => random.below(unacked + 1) as i64,
    };
    let mut flags = random.pick(&[
        Flags::ACK,
        Flags::ACK,
        Flags::ACK,
        Flags::ACK,
        Flags::ACK | Flags::PSH,
        Flags::ACK | Flags::URG,
        Flags::ACK | Flags::PSH,
        Flags::SYN | Flags::ACK,
        Flags::SYN,
        Flags::NONE,
    ]);
    if random.below(60) == 0 {
        flags |= Flags::FIN;
    }
    if random.below(150) == 0 {
        flags |= Flags::RST;
    }
    let stamp = Timestamp {
        value: (random.pick(&[100, 150, 90, 0x8000_0000u32])).wrapping_add((p.now_ns / MS) as u32),
        echo: (p.now_ns / MS) as u32,
    };
    let segment = Segment {
        seq: wire::SeqNumber(p.conn.rcv_nxt().0.wrapping_add(ahead as u32)),
        ack: wire::SeqNumber(p.conn.una().0.wrapping_add(acks as u32)),
        flags,
        window: random.pick(&[60_000, 60_000, 60_000, 0, 1, 500, 1500, 3000]),
        urgent: random.below(2000) as u16,
        len: random.pick(&[0, 0, 0, 1, 10, 536, 1000, 1000, 1460, 9000]),
        ecn: wire::Ecn::of(random.pick(&[0, 0, 2, 3])),
        options: Options {
            timestamp: (random.below(8) != 0).then_some(stamp),
            mss: flags
                .contains(Flags::SYN)
                .then_some(random.pick(&[0, 1, 100, 1460])),
            window_scale: flags.contains(Flags::SYN).then_some(random.below(20) as u8),
            ..Options::default()
        },
    };
    (ahead, segment)
}

fn application(random: &mut Random, p: &mut Peer) {
    match random.below(22) {
        0..=7 => p.write(1 + random.below(5000) as u32),
        8..=13 => p.read_all(),
        14 => p.read_until_left(random.below(3000) as u32),
        15 => {
            let on = random.below(2) == 0;
            p.call(|conn, cx, _| conn.set_nodelay(cx, on));
        }
        16 => {
            let on = random.below(2) == 0;
            p.call(|conn, cx, _| conn.set_cork(cx, on));
        }
        17 => {
            let mss = random.below(3000) as u16;
            p.call(|conn, cx, _| conn.on_mtu(cx, mss, true));
        }
        18 => {
            let (idle, probes) = (random.below(100_000), random.below(4) as u8);
            let keepalive = Keepalive {
                idle_ns: idle * MS,
                interval_ns: 1000 * MS,
                probes_max: probes,
            };
            let keepalive = (idle % 3 > 0).then_some(keepalive);
            p.call(|conn, cx, _| conn.set_keepalive(cx, keepalive));
        }
        19 => p.conn.set_user_timeout(random.below(100_000) * MS),
        20 => {
            let seq = p.conn.una();
            p.call(|conn, cx, _| conn.on_icmp_error(cx, IcmpError::HostUnreachable, seq));
        }
        _ => match random.below(30) {
            0..=4 => p.shutdown(),
            5 => p.close(),
            6 => p.abort(),
            _ => {}
        },
    }
}

/// Plays one storm; returns its length and the observations.
fn storm(seed: u64, prediction: bool) -> (u64, Vec<String>) {
    let mut seen = Vec::new();
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let variant = Variant {
        iss: random.below(1 << 32) as u32,
        irs: random.below(1 << 32) as u32 | 0xffff_0000,
        prediction,
        outside: seed % 4 == 3,
    };
    let setup = Setup {
        timestamps: random.below(2) == 0,
        scales: (random.below(2) == 0).then_some((random.below(15) as u8, random.below(15) as u8)),
        recv_space: random.pick(&[2000, 20_000, 60_000]),
        peer_mss: random.pick(&[1000, 1460, 48, 0]),
        ..Setup::default()
    };
    let mut p = match random.below(4) {
        0 => Peer::connecting(&setup, variant),
        _ => Peer::accepted(&setup, variant),
    };
    // RCV.NXT relative to IRS is known only after a SYN came, so the stream is not compared.
    p.rx.compare = false;
    for step in 0..400 {
        if p.is_removed() {
            return (step, seen);
        }
        p.polls = random.below(4) != 0;
        if random.below(20) == 0 {
            p.rx.memory = random.pick(&[0, 100, usize::MAX, usize::MAX]);
        }
        match random.below(10) {
            0..=5 => {
                let (_, segment) = segment(&mut random, &p);
                p.inject_segment(0, &segment);
            }
            6..=7 => application(&mut random, &mut p),
            _ => p.wait_ms(random.pick(&[0, 1, 40, 100, 300, 1000, 10_000, 100_000])),
        }
        let sent = p.take_sent();
        seen.push(format!("{sent:?} {:?} {:?}", p.effects, p.conn.info()));
        assert!(p.conn.una().le(p.conn.nxt()), "seed {seed}");
        assert!(p.conn.info().rcv_wnd <= 1 << 30, "seed {seed}");
    }
    (400, seen)
}

#[test]
fn storm_of_calls() {
    // STORM_SEEDS sets a larger number, such as 100000.
    let seeds = std::env::var("STORM_SEEDS")
        .ok()
        .and_then(|n| n.parse().ok());
    let mut steps = 0;
    for seed in 1..seeds.unwrap_or(4000u64) {
        let (length, seen) = storm(seed, true);
        if seed.is_multiple_of(4) {
            assert_eq!(seen, storm(seed, false).1, "seed {seed}: prediction");
        }
        steps += length;
    }
    // Most storms last long enough to be a test.
    assert!(seeds.is_some() || steps > 100_000, "{steps}");
}
