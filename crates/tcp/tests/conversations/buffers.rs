//! Buffers that follow the connection: the round trip as a receiver sees it, and the receive buffer
//! that results.

use tcp::Effects;

use crate::peer::{Peer, Setup, Variant, conversation};
use crate::states::established_timestamps;

/// The round trip as the receiver sees it, in microseconds.
fn round_trip_us(p: &Peer) -> u64 {
    p.conn.info().rcv_rtt_ns / 1000
}

/// A segment of `len` bytes that echoes our timestamp of `age_ms` ago.
fn echo(p: &mut Peer, at: u32, len: u32, age_ms: u32) {
    let now_ms = (p.now_ns / 1_000_000) as u32;
    let (stamp, echoed) = (now_ms, now_ms - age_ms);
    p.inject(&format!(
        "P. {at}:{}({len}) ack 1 <TS val {stamp} ecr {echoed}>",
        at + len
    ));
    p.skip_sent();
}

#[test]
fn established_receiver_measures_by_echoed_stamps() {
    conversation(established_timestamps, |p| {
        p.wait_ms(500);
        let mut steps = Vec::new();
        for (n, (len, age_ms, reads)) in [
            (1000, 80, true),
            (1000, 50, true),
            (1000, 90, true),
            (1000, 91, false),
            (1000, 92, false),
            (80, 20, true),
            (1000, 0, true),
            (1000, 30, true),
        ]
        .into_iter()
        .enumerate()
        {
            p.wait_ms(7);
            echo(p, 1 + 1000 * n as u32, len, age_ms);
            if len < 1000 {
                echo(p, 1 + 1000 * n as u32 + len, 1000 - len, age_ms);
            }
            steps.push(round_trip_us(p));
            if reads {
                p.read_all();
            }
        }
        assert_eq!(
            steps,
            [
                80_000, 50_000, 55_000, 59_500, 59_500, 59_500, 59_500, 30_000
            ]
        );
    });
}

#[test]
fn established_receiver_measures_by_windows_without_stamps() {
    let setup = |v| {
        Peer::accepted(
            &Setup {
                recv_space: 8_000,
                ..Setup::default()
            },
            v,
        )
    };
    conversation(setup, |p| {
        let mut steps = Vec::new();
        for n in 0..40u32 {
            p.wait_ms(if n < 20 { 10 } else { 7 });
            let at = 1 + 1000 * n;
            p.inject(&format!("P. {at}:{}(1000) ack 1", at + 1000));
            p.skip_sent();
            p.read_all();
            steps.push(round_trip_us(p));
        }
        // Eight segments fill a window; later segments are smaller or come faster.
        let runs: Vec<(u64, usize)> = steps
            .chunk_by(|a, b| a == b)
            .map(|run| (run[0], run.len()))
            .collect();
        assert_eq!(
            runs,
            [(0, 8), (80_000, 6), (60_000, 6), (57_000, 6), (42_000, 14)]
        );
    });
}

/// A connection whose send buffer of 10,000 bytes equals the first congestion window, in runs of
/// 30,000 bytes.
fn sends_a_window(v: Variant) -> Peer {
    let mut setup = Setup::default();
    let buffer = &mut setup.config.send_buffer;
    (buffer.bytes_default, buffer.bytes_max) = (10_427, 10_427);
    Peer::accepted(&setup, v)
}

/// A buffer that leaves completely with the next segments is not full, so its last run may be
/// filled up.
#[test]
fn established_send_buffer_as_large_as_the_congestion_window_fills_its_last_run() {
    let expect_limit = |p: &mut Peer, bytes: u32| {
        p.call(|conn, cx, _| {
            assert_eq!(conn.send_room(cx).limit, bytes);
            Effects::NONE
        });
    };
    conversation(sends_a_window, |p| {
        expect_limit(p, 40_000);
        // The first half is in flight, and the second half may leave.
        p.write(5_000);
        p.expect_data(1, 5_001, 1000, 1, true);
        expect_limit(p, 40_000);
    });
}

/// A connection whose receive buffer grows by itself, from 32 KB.
fn growing(v: Variant) -> Peer {
    let mut setup = Setup {
        timestamps: true,
        scales: Some((7, 7)),
        window: 500,
        recv_space: 32_768,
        ..Setup::default()
    };
    setup.config.recv_buffer_moderate = true;
    let mut p = Peer::accepted(&setup, v);
    p.config.recv_buffer_moderate = true;
    p.inject(". 1:1(0) ack 1 <TS val 100 ecr 1000>");
    p
}

#[test]
fn established_receive_buffer_follows_what_a_round_trip_brings() {
    conversation(growing, |p| {
        let mut steps = vec![(p.conn.recv_buffer(), p.conn.info().rcv_space)];
        let mut at = 1;
        for segments in [5, 10, 20, 21, 20, 40, 100] {
            p.wait_ms(50);
            for _ in 0..segments {
                echo(p, at, 1000, 50);
                at += 1000;
            }
            p.read_all();
            steps.push((p.conn.recv_buffer(), p.conn.info().rcv_space));
        }
        // The reader is slow from here on.
        p.wait_ms(50);
        for _ in 0..150 {
            echo(p, at, 1000, 50);
            at += 1000;
        }
        p.read_until_left(60_000);
        steps.push((p.conn.recv_buffer(), p.conn.info().rcv_space));
        let expected = [
            (65_536, 14_480),
            (65_536, 14_480),
            (65_536, 14_480),
            (162_585, 20_000),
            (162_585, 21_000),
            (162_585, 21_000),
            (518_365, 40_000),
            (1_845_045, 100_000),
            (1_845_045, 100_000),
        ];
        assert_eq!(steps, expected);
    });
}

/// Microseconds from a segment to its ACK.
fn delay_us(p: &mut Peer) -> u64 {
    let begin_ns = p.now_ns;
    while p.skip_sent() == 0 {
        p.wait_until(p.conn.deadline_ns());
    }
    (p.now_ns - begin_ns) / 1000
}

#[test]
fn established_delay_of_acks_follows_the_pace_of_arrival() {
    let setup = |v| {
        let mut setup = Setup::default();
        setup.config.quick_acks_max = 0;
        let mut p = Peer::accepted(&setup, v);
        p.inject(". 1:1(0) ack 1");
        p
    };
    conversation(setup, |p| {
        let mut steps = Vec::new();
        let mut at = 1;
        for gap_ms in [0, 5, 19, 20, 30] {
            let begin_ns = p.now_ns;
            p.inject(&format!(". {at}:{}(100) ack 1", at + 100));
            at += 100;
            p.read_all();
            let us = delay_us(p);
            steps.push((gap_ms, us, p.conn.info().ato_ns / 1000));
            p.wait_until((begin_ns + gap_ms * 1_000_000).max(p.now_ns));
        }
        // The delay doubles whenever nothing was written in time, up to the timeout. An ACK waits
        // for at most a round trip.
        let expected = [
            (0, 0, 40_000),
            (5, 40_000, 80_000),
            (19, 80_000, 160_000),
            (20, 100_000, 300_000),
            (30, 100_000, 300_000),
        ];
        assert_eq!(steps, expected);
    });
}
