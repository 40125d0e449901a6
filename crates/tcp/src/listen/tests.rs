//! LISTEN, RFC 9293 section 3.10.7.2.

use crate::buffers::Buffers;

use super::*;
use crate::test_stack::{IRS, ISS, full_syn, open, said, seg};

#[test]
fn listen_rst_is_dropped() {
    assert_eq!(on_segment(&seg("R", 0, 0, 0)), ListenOutcome::Drop);
    assert_eq!(on_segment(&seg("RA", 0, 1, 0)), ListenOutcome::Drop);
    assert_eq!(on_segment(&seg("SR", 0, 0, 0)), ListenOutcome::Drop);
}

#[test]
fn listen_ack_is_reset_at_its_own_number() {
    for flags in ["A", "SA", "FA", "PA"] {
        let ListenOutcome::Reset(rst) = on_segment(&seg(flags, 5, 77, 0)) else {
            panic!("{flags} was not refused");
        };
        assert_eq!(said(&rst), ("R".into(), 77, 0));
        assert_eq!(rst.seq, ISS + 77);
    }
}

#[test]
fn listen_segment_without_syn_is_dropped() {
    assert_eq!(on_segment(&seg("", 0, 0, 10)), ListenOutcome::Drop);
    assert_eq!(on_segment(&seg("F", 0, 0, 0)), ListenOutcome::Drop);
    assert_eq!(on_segment(&seg("SF", 0, 0, 0)), ListenOutcome::Drop);
}

#[test]
fn listen_syn_asks_for_what_it_says() {
    let ListenOutcome::Syn(syn) = on_segment(&full_syn(42)) else {
        panic!()
    };
    let expected = SynRequest {
        irs: IRS,
        window: 1000,
        mss: Some(1400),
        window_scale: Some(7),
        sack_permitted: true,
        timestamp: Some(42),
        ecn: SynEcn::default(),
        fast_open: None,
    };
    assert_eq!(syn, expected);
}

#[test]
fn listen_syn_with_data_and_ecn_is_a_syn() {
    let ListenOutcome::Syn(syn) = on_segment(&seg("SEC", 0, 0, 100)) else {
        panic!()
    };
    assert_eq!(syn.ecn.ace, 0b011);
    let ListenOutcome::Syn(syn) = on_segment(&seg("SE", 0, 0, 0)) else {
        panic!()
    };
    assert_eq!(syn.ecn.ace, 0b001);
}

#[test]
fn listen_shift_above_14_means_14() {
    let mut syn = full_syn(1);
    syn.options.window_scale = Some(200);
    assert_eq!(SynRequest::of(&syn).window_scale, Some(14));
}

#[test]
fn listen_peer_mss_has_defaults_and_a_floor() {
    let config = Config::default();
    let mss = |option, is_v4| {
        SynRequest {
            mss: option,
            ..SynRequest::of(&full_syn(1))
        }
        .send_mss(&config, is_v4)
    };
    assert_eq!(mss(None, true), 536);
    assert_eq!(mss(None, false), 1220);
    assert_eq!(mss(Some(0), true), 536);
    assert_eq!(mss(Some(1), true), SEND_MSS_MIN);
    assert_eq!(mss(Some(8960), true), 8960);
}

#[test]
fn listen_window_shift_follows_the_largest_buffer() {
    let mut config = Config {
        recv_buffer_option_max: 0,
        ..Config::default()
    };
    let mut shift = |bytes_max| {
        config.recv_buffer.bytes_max = bytes_max;
        let open = PassiveOpen {
            buffers: Buffers {
                recv_bytes: 4_096,
                ..open().buffers
            },
            ..open()
        };
        open.initial_window(&config, true, true).shift
    };
    assert_eq!(shift(0), 0);
    assert_eq!(shift(65_535), 0);
    assert_eq!(shift(65_536), 1);
    assert_eq!(shift(15 << 20), 8);
    assert_eq!(shift(u32::MAX), 14);
}
