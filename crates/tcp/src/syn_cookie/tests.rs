//! SYN cookies, sent and returned.

use super::*;
use crate::test_stack::{IRS, TS_OFFSET, World, flow, full_syn, open, seg, with_ts};
use wire::tcp::Options;

/// Sends a cookie for `syn`; returns the maker and the SYN-ACK.
fn sent(world: &mut World, syn: &Segment) -> (SynCookies, SegmentOut) {
    let mut cookies = SynCookies::new([11, 22]);
    let out = cookies.syn_ack(&mut world.cx(), &flow(), &SynRequest::of(syn), &open());
    (cookies, out)
}

/// The ACK that an honest peer sends for `syn_ack`.
fn answer(syn_ack: &SegmentOut, peer_ts: u32) -> Segment {
    let mut ack = seg("A", 1, 0, 0);
    ack.ack = syn_ack.seq + 1;
    match syn_ack.options.timestamp {
        Some(timestamp) => with_ts(ack, peer_ts, timestamp.value),
        None => ack,
    }
}

#[test]
fn cookie_remembers_everything_with_timestamps() {
    let mut world = World::new();
    let (cookies, out) = sent(&mut world, &full_syn(42));
    assert_eq!(out.flags, Flags::SYN | Flags::ACK);
    assert_eq!(out.ack, IRS + 1);
    let timestamp = out.options.timestamp.unwrap();
    assert_eq!(timestamp.echo, 42);
    assert_eq!(timestamp.value & TS_OPTION_MASK, 7 | TS_SACK);
    assert!(world.ts().wrapping_sub(timestamp.value) < 64);
    assert_eq!(
        (out.options.window_scale, out.options.sack_permitted),
        (Some(8), true)
    );

    world.pass_ms(50);
    let done = cookies
        .check(&mut world.cx(), &flow(), &answer(&out, 90), &open())
        .unwrap();
    let expected = Handshake {
        iss: out.seq,
        irs: IRS,
        una: out.seq + 1,
        snd_wnd: 1000 << 7,
        mss: 1460,
        peer_mss: 1300,
        window_scales: Some(WindowScales { ours: 8, peers: 7 }),
        sack: true,
        ecn: EcnGrant::None,
        timestamps: true,
        ts_recent: 90,
        ts_offset: TS_OFFSET,
        rtt_ns: None,
        syn_ack_lost: false,
        repetitions: SynAckRepetitions::default(),
    };
    assert_eq!(done, expected);
}

#[test]
fn cookie_without_timestamps_remembers_the_mss_only() {
    let mut world = World::new();
    let mut syn = full_syn(0);
    syn.options.timestamp = None;
    let (cookies, out) = sent(&mut world, &syn);
    assert_eq!(
        out.options,
        Options {
            mss: Some(1460),
            ..Options::default()
        }
    );
    let done = cookies
        .check(&mut world.cx(), &flow(), &answer(&out, 0), &open())
        .unwrap();
    assert_eq!(
        (done.peer_mss, done.window_scales, done.snd_wnd),
        (1300, None, 1000)
    );
    assert!(!done.sack && !done.timestamps);
}

#[test]
fn cookie_options_follow_what_was_asked() {
    let mut world = World::new();
    for (scale, sack) in [
        (None, false),
        (None, true),
        (Some(0), false),
        (Some(14), true),
        (Some(255), true),
    ] {
        world.pass_ms(17);
        let mut syn = full_syn(42);
        syn.options.window_scale = scale;
        syn.options.sack_permitted = sack;
        let (cookies, out) = sent(&mut world, &syn);
        assert_eq!(out.options.window_scale, scale.map(|_| 8));
        let done = cookies
            .check(&mut world.cx(), &flow(), &answer(&out, 43), &open())
            .unwrap();
        assert_eq!(
            done.window_scales.map(|s| s.peers),
            scale.map(|s| s.min(14))
        );
        assert_eq!(done.sack, sack);
    }
}

#[test]
fn cookie_rounds_the_mss_down() {
    let mut world = World::new();
    let mut cookies = SynCookies::new([1, 2]);
    for (peer, kept) in [
        (48, 48),
        (49, 48),
        (535, 216),
        (536, 536),
        (1459, 1440),
        (1460, 1460),
        (1461, 1460),
        (65_535, 1460),
    ] {
        let iss = cookies.make(&flow(), IRS, peer, world.now_ns);
        let mut ack = seg("A", 1, 0, 0);
        ack.ack = iss + 1;
        let done = cookies
            .check(&mut world.cx(), &flow(), &ack, &open())
            .unwrap();
        assert_eq!(done.peer_mss, kept);
        assert!(kept <= peer);
    }
    assert!(MSS_TABLE_V4.is_sorted() && MSS_TABLE_V6.is_sorted());
}

#[test]
fn cookie_dies_of_age() {
    let mut world = World::new();
    let (cookies, out) = sent(&mut world, &seg("S", 0, 0, 0));
    let taken = |world: &mut World| {
        cookies
            .check(&mut world.cx(), &flow(), &answer(&out, 0), &open())
            .is_some()
    };
    assert!(taken(&mut world));
    world.pass_ms(60_000);
    assert!(taken(&mut world));
    world.pass_ms(60_000);
    assert!(!taken(&mut world));
    // The three bits of the minute come round, but the hash differs.
    world.pass_ms(6 * 60_000);
    assert!(!taken(&mut world));
}

#[test]
fn cookie_comes_round_but_another_is_out() {
    let mut world = World::new();
    let (mut cookies, out) = sent(&mut world, &seg("S", 0, 0, 0));
    world.pass_ms(8 * 60_000);
    let _ = cookies.make(&flow(), IRS, 536, world.now_ns);
    assert!(
        cookies
            .check(&mut world.cx(), &flow(), &answer(&out, 0), &open())
            .is_none()
    );
}

#[test]
fn cookie_is_taken_only_while_some_are_out() {
    let mut world = World::new();
    let (cookies, out) = sent(&mut world, &seg("S", 0, 0, 0));
    assert!(cookies.are_out(world.now_ns));
    let fresh = SynCookies::new([11, 22]);
    assert!(!fresh.are_out(world.now_ns));
    assert!(
        fresh
            .check(&mut world.cx(), &flow(), &answer(&out, 0), &open())
            .is_none()
    );
}

#[test]
fn cookie_of_another_flow_number_or_key_is_refused() {
    let mut world = World::new();
    let (cookies, out) = sent(&mut world, &seg("S", 0, 0, 0));
    let honest = answer(&out, 0);
    let mut refused = |flow: &FlowKey, ack: &Segment| {
        cookies.check(&mut world.cx(), flow, ack, &open()).is_none()
    };
    assert!(refused(
        &FlowKey {
            remote_port: 1,
            ..flow()
        },
        &honest
    ));
    for off in [1, 2, u32::MAX, 1 << 25, 1 << 29] {
        assert!(refused(
            &flow(),
            &Segment {
                ack: honest.ack + off,
                ..honest.clone()
            }
        ));
        assert!(refused(
            &flow(),
            &Segment {
                seq: honest.seq + off,
                ..honest.clone()
            }
        ));
    }
    for flags in ["SA", "RA", "F"] {
        assert!(refused(
            &flow(),
            &Segment {
                flags: seg(flags, 0, 0, 0).flags,
                ..honest.clone()
            }
        ));
    }
    let mut other = SynCookies::new([11, 23]);
    let _ = other.make(&flow(), IRS, 536, world.now_ns);
    assert!(
        other
            .check(&mut world.cx(), &flow(), &honest, &open())
            .is_none()
    );
}

/// The secret of an hour.
fn secret_of(hour: u64) -> [u64; 2] {
    [11 + hour, 22]
}

#[test]
fn cookie_outlives_its_hour_by_its_age_at_any_maker_with_the_secrets() {
    let mut world = World::new();
    world.now_ns = 5 * SECRET_NS_MAX - 1;
    let mut maker = SynCookies::by_the_hour(secret_of, world.now_ns);
    let syn = seg("S", 0, 0, 0);
    let out = maker.syn_ack(&mut world.cx(), &flow(), &SynRequest::of(&syn), &open());
    // A maker that was made hours ago and has sent no cookie.
    let mut other = SynCookies::by_the_hour(secret_of, 7);
    let takes = |cookies: &SynCookies, world: &mut World| {
        let ack = answer(&out, 0);
        (cookies.check(&mut world.cx(), &flow(), &ack, &open())).is_some()
    };
    world.now_ns += 1;
    assert!(maker.is_worn(world.now_ns) && other.is_worn(world.now_ns));
    for cookies in [&mut maker, &mut other] {
        cookies.renew(secret_of, world.now_ns);
        assert!(!cookies.is_worn(world.now_ns + SECRET_NS_MAX - 1));
    }
    assert!(takes(&maker, &mut world));
    assert!(!takes(&other, &mut world), "it expects none");
    other.expect_until(maker.out_until_ns());
    assert!(takes(&other, &mut world));
    let new = other.make(&flow(), IRS, 536, world.now_ns);
    assert_ne!(new, out.seq);
    other.renew(secret_of, world.now_ns + SECRET_NS_MAX);
    assert!(!takes(&other, &mut world), "two hours' secrets are known");
}

#[test]
fn cookie_with_an_impossible_echo_is_refused() {
    let mut world = World::new();
    let (cookies, out) = sent(&mut world, &full_syn(42));
    let honest = answer(&out, 43);
    let mut check = |echo: u32| {
        cookies
            .check(
                &mut world.cx(),
                &flow(),
                &with_ts(honest.clone(), 43, echo),
                &open(),
            )
            .is_some()
    };
    let now = TS_OFFSET + 100_000;
    assert!(check(out.options.timestamp.unwrap().value));
    assert!(!check(now + 64));
    assert!(!check(now - 200_000));
    world.config.sack = false;
    assert!(
        cookies
            .check(&mut world.cx(), &flow(), &honest, &open())
            .is_none()
    );
}

#[test]
fn cookie_timestamp_never_runs_ahead() {
    let mut world = World::new();
    let syn = SynRequest::of(&full_syn(42));
    let granted = Granted {
        timestamps: true,
        sack: true,
        window_scaling: true,
        ecn: EcnKind::None,
    };
    for _ in 0..200 {
        world.pass_ms(1);
        let value = timestamp_with_options(world.now_ns, TS_OFFSET, &syn, granted);
        assert!(world.ts().wrapping_sub(value) < 64);
        assert_eq!(value & TS_OPTION_MASK, 7 | TS_SACK);
    }
}
