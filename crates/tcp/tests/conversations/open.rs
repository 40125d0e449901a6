//! Opening: SYN_SENT, simultaneous open, what a SYN negotiates, SYN timeouts.

use tcp::{ConnectionError, Effects, IcmpError, State, TransmitClass};

use crate::peer::{MS, Peer, Setup, conversation};
use crate::states::{syn_received, syn_sent};

#[test]
fn syn_sent_syn_ack() {
    conversation(syn_sent, |p| {
        p.inject("S. 0:0(0) ack 1 <mss 1000>");
        p.expect_effects(Effects::CONNECTED);
        p.expect(". 1:1(0) ack 1");
        p.expect_state(State::Established);
        assert_eq!(p.conn.send_mss(), 1000);
        assert_eq!(p.cwnd(), 10);
    });
}

#[test]
fn syn_sent_syn_ack_with_data_waiting() {
    conversation(syn_sent, |p| {
        p.write(300);
        p.expect_nothing();
        p.inject("S. 0:0(0) ack 1 <mss 1000>");
        p.expect("P. 1:301(300) ack 1");
        p.expect_nothing();
    });
}

#[test]
fn syn_sent_syn_ack_with_data_and_fin() {
    conversation(syn_sent, |p| {
        // As with Linux, the peer must send text and FIN again.
        p.inject("FS. 0:5(5) ack 1 <mss 1000>");
        p.expect_state(State::Established);
        p.expect(". 1:1(0) ack 1");
        p.inject("F. 1:6(5) ack 1");
        p.expect_state(State::CloseWait);
        p.expect_received(5);
        p.wait_ms(50);
        p.expect(". 1:1(0) ack 7");
    });
}

#[test]
fn syn_sent_syn_ack_without_mss() {
    conversation(syn_sent, |p| {
        p.inject("S. 0:0(0) ack 1");
        p.expect(". 1:1(0) ack 1");
        assert_eq!(p.conn.send_mss(), 536);
    });
}

#[test]
fn syn_sent_ack_old() {
    conversation(syn_sent, |p| {
        p.inject(". 5:5(0) ack 0");
        p.expect("R 0:0(0)");
        p.expect_state(State::SynSent);
        p.expect_effects(Effects::NONE);
    });
}

#[test]
fn syn_sent_ack_beyond() {
    conversation(syn_sent, |p| {
        p.inject("S. 0:0(0) ack 2");
        p.expect("R 2:2(0)");
        p.expect_state(State::SynSent);
        // The open still works.
        p.inject("S. 0:0(0) ack 1");
        p.expect(". 1:1(0) ack 1");
    });
}

#[test]
fn syn_sent_ack_without_syn() {
    conversation(syn_sent, |p| {
        p.inject(". 1:1(0) ack 1");
        p.expect_nothing();
        p.expect_state(State::SynSent);
        assert_eq!(p.counters.drop_syn_sent, 1);
    });
}

#[test]
fn syn_sent_rst_ack() {
    conversation(syn_sent, |p| {
        p.inject("R. 0:0(0) ack 1");
        p.expect_effects(Effects::FAILED | Effects::CLOSED);
        assert_eq!(p.conn.error(), Some(ConnectionError::Refused));
        p.expect_nothing();
    });
}

#[test]
fn syn_sent_rst_without_ack() {
    conversation(syn_sent, |p| {
        p.inject("R 0:0(0)");
        p.expect_state(State::SynSent);
        p.expect_nothing();
    });
}

#[test]
fn syn_sent_rst_with_wrong_ack() {
    conversation(syn_sent, |p| {
        p.inject("R. 0:0(0) ack 7");
        p.expect_state(State::SynSent);
        p.expect_nothing();
    });
}

#[test]
fn syn_sent_fin() {
    conversation(syn_sent, |p| {
        p.inject("F 0:0(0)");
        p.expect_state(State::SynSent);
        p.expect_nothing();
    });
}

#[test]
fn syn_sent_timeouts() {
    conversation(syn_sent, |p| {
        // Five timeouts of 1 s without doubling (Linux 6.5), then 2, 4, 8, 16 and 32 s. The open
        // fails 64 s after the last SYN.
        for seconds in [1, 1, 1, 1, 1, 2, 4, 8, 16, 32] {
            p.expect_after_ms(seconds * 1000, "S 0:0(0) <mss 1460>");
        }
        p.expect_silence_ms(63_999);
        p.expect_state(State::SynSent);
        p.wait_ms(1);
        p.expect_effects(Effects::FAILED | Effects::CLOSED);
        assert_eq!(p.conn.error(), Some(ConnectionError::TimedOut));
    });
}

#[test]
fn syn_sent_lost_once_keeps_initial_window() {
    conversation(syn_sent, |p| {
        p.expect_after_ms(1000, "S 0:0(0)");
        p.inject("S. 0:0(0) ack 1 <mss 1000>");
        p.skip_sent();
        assert_eq!(p.cwnd(), 10);
        // No round trip could be measured (RFC 6298 5.7).
        assert_eq!(p.conn.info().rto_ns, 3000 * MS);
    });
}

#[test]
fn syn_sent_lost_twice_starts_with_one_segment() {
    conversation(syn_sent, |p| {
        p.expect_after_ms(1000, "S 0:0(0)");
        p.expect_after_ms(1000, "S 0:0(0)");
        p.inject("S. 0:0(0) ack 1 <mss 1000>");
        p.skip_sent();
        assert_eq!(p.cwnd(), 1);
    });
}

#[test]
fn syn_sent_measures_round_trip() {
    conversation(syn_sent, |p| {
        p.wait_ms(80);
        p.inject("S. 0:0(0) ack 1 <mss 1000>");
        p.skip_sent();
        assert_eq!(p.conn.info().rtt_ns, 80 * MS);
        assert_eq!(p.conn.info().rto_ns, 280 * MS);
    });
}

#[test]
fn syn_sent_close() {
    conversation(syn_sent, |p| {
        p.close();
        p.expect_effects(Effects::CLOSED);
        p.expect_nothing();
    });
}

#[test]
fn syn_sent_abort() {
    conversation(syn_sent, |p| {
        p.abort();
        p.expect_effects(Effects::CLOSED);
        p.expect_nothing();
    });
}

#[test]
fn syn_sent_shutdown_then_syn_ack() {
    conversation(syn_sent, |p| {
        p.write(10);
        p.shutdown();
        p.expect_nothing();
        p.inject("S. 0:0(0) ack 1 <mss 1000>");
        p.expect("FP. 1:11(10) ack 1");
        p.expect_state(State::FinWait1);
    });
}

#[test]
fn syn_sent_icmp_port_unreachable() {
    conversation(syn_sent, |p| {
        let seq = p.conn.una();
        p.call(|conn, cx, _| conn.on_icmp_error(cx, IcmpError::PortUnreachable, seq));
        p.expect_effects(Effects::FAILED | Effects::CLOSED);
        assert_eq!(p.conn.error(), Some(ConnectionError::Refused));
    });
}

#[test]
fn syn_sent_icmp_net_unreachable() {
    conversation(syn_sent, |p| {
        let seq = p.conn.una();
        p.call(|conn, cx, _| conn.on_icmp_error(cx, IcmpError::NetUnreachable, seq));
        assert_eq!(p.conn.error(), Some(ConnectionError::NetUnreachable));
    });
}

#[test]
fn syn_sent_icmp_soft_is_remembered_when_so_configured() {
    conversation(syn_sent, |p| {
        p.config.soft_errors_end_connect = false;
        let seq = p.conn.una();
        p.call(|conn, cx, _| conn.on_icmp_error(cx, IcmpError::HostUnreachable, seq));
        p.expect_state(State::SynSent);
        p.wait_ms(140_000);
        assert_eq!(p.conn.error(), Some(ConnectionError::HostUnreachable));
    });
}

#[test]
fn syn_sent_icmp_for_another_sequence_number() {
    conversation(syn_sent, |p| {
        let seq = p.conn.nxt() + 1;
        p.call(|conn, cx, _| conn.on_icmp_error(cx, IcmpError::PortUnreachable, seq));
        p.expect_state(State::SynSent);
        assert_eq!(p.counters.drop_icmp_outside_window, 1);
    });
}

#[test]
fn syn_sent_syn_crosses() {
    conversation(syn_sent, |p| {
        p.inject("S 0:0(0) <mss 1000>");
        p.expect_state(State::SynReceived);
        p.expect("S. 0:0(0) ack 1 <mss 1460>");
        p.inject("S. 0:0(0) ack 1 <mss 1000>");
        p.expect_effects(Effects::CONNECTED);
        p.expect_state(State::Established);
        assert_eq!(p.conn.send_mss(), 1000);
    });
}

#[test]
fn syn_received_ack() {
    conversation(syn_received, |p| {
        p.inject(". 1:1(0) ack 1");
        p.expect_effects(Effects::CONNECTED);
        p.expect_state(State::Established);
        p.expect_nothing();
        p.write(5);
        p.expect("P. 1:6(5) ack 1");
    });
}

/// No SYN was lost, but the SYN-ACK was our second one, so its ACK measured nothing. The timeout is
/// still the initial one (RFC 6298 2.1), not the longer one after a loss (5.7).
#[test]
fn syn_received_ack_of_crossed_syns_keeps_the_initial_timeout() {
    conversation(syn_received, |p| {
        p.wait_ms(300);
        p.inject(". 1:1(0) ack 1");
        p.write(5);
        p.expect("P. 1:6(5) ack 1");
        p.expect_after_ms(1000, "P. 1:6(5) ack 1");
    });
}

#[test]
fn syn_received_ack_with_data() {
    conversation(syn_received, |p| {
        p.inject("P. 1:101(100) ack 1");
        p.expect_effects(Effects::CONNECTED | Effects::READABLE);
        p.expect_received(100);
        p.expect(". 1:1(0) ack 101");
    });
}

#[test]
fn syn_received_ack_with_fin() {
    conversation(syn_received, |p| {
        p.inject("F. 1:1(0) ack 1");
        p.expect_effects(Effects::CONNECTED | Effects::EOF);
        p.expect_state(State::CloseWait);
        p.expect(". 1:1(0) ack 2");
    });
}

#[test]
fn syn_received_ack_unacceptable() {
    conversation(syn_received, |p| {
        p.inject(". 1:1(0) ack 2");
        p.expect("R 2:2(0)");
        p.expect_state(State::SynReceived);
        p.inject(". 1:1(0) ack 0");
        p.expect("R 0:0(0)");
        p.expect_state(State::SynReceived);
    });
}

#[test]
fn syn_received_syn_again() {
    conversation(syn_received, |p| {
        p.inject("S 0:0(0) <mss 1000>");
        // The answer is a challenge ACK (RFC 5961 4).
        p.expect(". 1:1(0) ack 1");
        p.expect_state(State::SynReceived);
    });
}

#[test]
fn syn_received_rst() {
    conversation(syn_received, |p| {
        p.inject("R 1:1(0)");
        p.expect_effects(Effects::FAILED | Effects::CLOSED);
        assert_eq!(p.conn.error(), Some(ConnectionError::Reset));
    });
}

#[test]
fn syn_received_rst_outside_window() {
    conversation(syn_received, |p| {
        p.inject("R 70000:70000(0)");
        p.expect_state(State::SynReceived);
        p.expect_nothing();
    });
}

#[test]
fn syn_received_timeouts() {
    conversation(syn_received, |p| {
        // The limit is that of our own SYN, because we opened.
        for seconds in [1, 2, 4, 8, 16, 32] {
            p.expect_after_ms(seconds * 1000, "S. 0:0(0) ack 1 <mss 1460>");
        }
        p.wait_ms(64_000);
        p.expect_effects(Effects::FAILED | Effects::CLOSED);
        assert_eq!(p.conn.error(), Some(ConnectionError::TimedOut));
    });
}

#[test]
fn syn_received_close() {
    conversation(syn_received, |p| {
        p.close();
        p.expect("F. 1:1(0) ack 1");
        p.expect_state(State::FinWait1);
        // The SYN-ACK's timer keeps running.
        p.expect_after_ms(1000, "S. 0:0(0) ack 1 <mss 1460>");
        p.inject(". 1:1(0) ack 1");
        p.expect_nothing();
        p.expect_after_ms(1000, "F. 1:1(0) ack 1");
        p.expect_state(State::FinWait1);
    });
}

#[test]
fn syn_received_close_after_a_timeout() {
    conversation(syn_received, |p| {
        p.expect_after_ms(1000, "S. 0:0(0) ack 1 <mss 1460>");
        p.close();
        p.expect_nothing();
        p.inject(". 1:1(0) ack 1");
        p.expect("F. 1:1(0) ack 1");
        p.expect_state(State::FinWait1);
    });
}

#[test]
fn syn_received_abort() {
    conversation(syn_received, |p| {
        p.abort();
        p.expect("R. 1:1(0) ack 1");
        assert!(p.is_removed());
    });
}

#[test]
fn syn_negotiates_window_scale() {
    let setup = Setup {
        scales: Some((8, 7)),
        ..Setup::default()
    };
    conversation(
        |v| Peer::connecting(&setup, v),
        |p| {
            p.expect("S 0:0(0) win 59860 <mss 1460,wscale 8>");
            // The window of a SYN is not scaled.
            p.inject("S. 0:0(0) ack 1 win 1000 <mss 1000,wscale 7>");
            p.skip_sent();
            assert_eq!(p.conn.info().snd_wnd, 1000);
            p.inject(". 1:1(0) ack 1 win 1000");
            assert_eq!(p.conn.info().snd_wnd, 128_000);
            p.inject("P. 1:2(1) ack 1 win 1000");
            // Our window: 59860 less one, in whole units of 256.
            p.expect(". 1:1(0) ack 2 win 234");
        },
    );
}

#[test]
fn syn_window_scale_beyond_14_means_14() {
    let setup = Setup {
        scales: Some((0, 14)),
        ..Setup::default()
    };
    conversation(
        |v| Peer::connecting(&setup, v),
        |p| {
            p.inject("S. 0:0(0) ack 1 <mss 1000,wscale 15>");
            assert_eq!(p.conn.info().snd_wscale, 14);
        },
    );
}

#[test]
fn syn_ack_without_window_scale_turns_it_off() {
    let setup = Setup {
        scales: Some((8, 7)),
        ..Setup::default()
    };
    conversation(
        |v| Peer::connecting(&setup, v),
        |p| {
            p.skip_sent();
            p.inject("S. 0:0(0) ack 1 <mss 1000>");
            assert_eq!((p.conn.info().snd_wscale, p.conn.info().rcv_wscale), (0, 0));
            p.expect(". 1:1(0) ack 1 win 59860");
        },
    );
}

#[test]
fn syn_negotiates_timestamps() {
    let setup = Setup {
        timestamps: true,
        ..Setup::default()
    };
    conversation(
        |v| Peer::connecting(&setup, v),
        |p| {
            p.expect("S 0:0(0) <mss 1460,TS val 1000 ecr 0>");
            p.wait_ms(50);
            p.inject("S. 0:0(0) ack 1 <mss 1000,TS val 77 ecr 1000>");
            p.expect(". 1:1(0) ack 1 <TS val 1050 ecr 77>");
            assert_eq!(p.conn.send_mss(), 988);
            p.write(2000);
            p.expect(". 1:989(988) ack 1 <TS val 1050 ecr 77>");
        },
    );
}

#[test]
fn syn_ack_without_timestamps_turns_them_off() {
    let setup = Setup {
        timestamps: true,
        ..Setup::default()
    };
    conversation(
        |v| Peer::connecting(&setup, v),
        |p| {
            p.skip_sent();
            p.inject("S. 0:0(0) ack 1 <mss 1000>");
            p.expect(". 1:1(0) ack 1 <>");
            assert_eq!(p.conn.send_mss(), 1000);
        },
    );
}

#[test]
fn syn_is_control() {
    conversation(
        |v| Peer::connecting(&Setup::default(), v),
        |p| {
            p.skip_sent();
            p.polls = false;
            p.wait_ms(1000);
            assert_eq!(p.class(), TransmitClass::Opening);
        },
    );
}
