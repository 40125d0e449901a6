//! Closing: half-close, both at once, orphans, FIN in every order, TIME_WAIT.

use tcp::{ConnectionError, Effects, State};

use crate::peer::{MS, conversation};
use crate::states::{
    close_wait, closing, established, fin_wait_1, fin_wait_2, last_ack, time_wait,
};

#[test]
fn established_fin() {
    conversation(established, |p| {
        p.inject("F. 1:1(0) ack 1");
        p.expect_effects(Effects::EOF);
        p.expect(". 1:1(0) ack 2");
        p.expect_state(State::CloseWait);
    });
}

#[test]
fn established_fin_with_data() {
    conversation(established, |p| {
        p.inject("FP. 1:101(100) ack 1");
        p.expect_effects(Effects::READABLE | Effects::EOF);
        p.expect_received(100);
        // Our answer may follow, so the ACK waits to ride on it (Linux).
        p.expect_after_ms(40, ". 1:1(0) ack 102");
    });
}

#[test]
fn established_fin_out_of_order() {
    conversation(established, |p| {
        p.inject("FP. 101:201(100) ack 1");
        p.expect_effects(Effects::NONE);
        p.expect(". 1:1(0) ack 1");
        p.inject(". 1:101(100) ack 1");
        p.expect_effects(Effects::READABLE | Effects::EOF);
        p.expect(". 1:1(0) ack 202");
        p.expect_state(State::CloseWait);
        p.expect_received(200);
    });
}

#[test]
fn established_bare_fin_out_of_order() {
    conversation(established, |p| {
        p.inject("F. 101:101(0) ack 1");
        p.expect(". 1:1(0) ack 1");
        p.inject("P. 1:101(100) ack 1");
        p.expect_effects(Effects::READABLE | Effects::EOF);
        p.expect(". 1:1(0) ack 102");
    });
}

#[test]
fn established_fin_rides_on_last_data() {
    conversation(established, |p| {
        p.polls = false;
        p.write(1500);
        p.shutdown();
        p.poll();
        p.expect(". 1:1001(1000) ack 1");
        p.expect("FP. 1001:1501(500) ack 1");
        p.inject(". 1:1(0) ack 1502");
        p.expect_effects(Effects::WRITABLE | Effects::FIN_WAIT_2);
        p.expect_state(State::FinWait2);
    });
}

#[test]
fn established_close_with_data_waiting() {
    conversation(established, |p| {
        p.write(15_000);
        p.close();
        p.expect_data(1, 10_001, 1000, 1, false);
        p.expect_nothing();
        p.expect_state(State::FinWait1);
        p.inject(". 1:1(0) ack 10001");
        p.expect_data(10_001, 14_001, 1000, 1, false);
        p.expect("FP. 14001:15001(1000) ack 1");
    });
}

#[test]
fn fin_wait_1_fin_acked() {
    conversation(fin_wait_1, |p| {
        p.inject(". 1:1(0) ack 2");
        p.expect_state(State::FinWait2);
        p.expect_nothing();
        // The application is still there and may wait for as long as it likes.
        p.expect_silence_ms(1_000_000);
        p.expect_state(State::FinWait2);
    });
}

#[test]
fn fin_wait_1_fin_retransmitted() {
    conversation(fin_wait_1, |p| {
        p.expect_after_ms(300, "F. 1:1(0) ack 1");
        p.expect_after_ms(600, "F. 1:1(0) ack 1");
        p.inject(". 1:1(0) ack 2");
        p.expect_state(State::FinWait2);
        p.expect_silence_ms(10_000);
    });
}

#[test]
fn fin_wait_1_fin() {
    conversation(fin_wait_1, |p| {
        p.inject("F. 1:1(0) ack 1");
        p.expect_effects(Effects::EOF);
        p.expect(". 2:2(0) ack 2");
        p.expect_state(State::Closing);
    });
}

#[test]
fn fin_wait_1_fin_with_ack_of_fin() {
    conversation(fin_wait_1, |p| {
        p.inject("F. 1:1(0) ack 2");
        p.expect_effects(Effects::EOF | Effects::TIME_WAIT);
        p.expect(". 2:2(0) ack 2");
        p.expect_state(State::TimeWait);
    });
}

#[test]
fn fin_wait_1_data() {
    conversation(fin_wait_1, |p| {
        p.inject("P. 1:101(100) ack 1");
        p.expect_effects(Effects::READABLE);
        p.expect(". 2:2(0) ack 101");
        p.expect_state(State::FinWait1);
    });
}

#[test]
fn fin_wait_1_orphan_data() {
    conversation(fin_wait_1, |p| {
        p.close();
        p.inject("P. 1:101(100) ack 1");
        p.expect_effects(Effects::CLOSED);
        // A RST answers that segment, as in Linux.
        p.expect("R 1:1(0)");
        assert_eq!(p.counters.bytes_drop_orphan, 100);
    });
}

#[test]
fn fin_wait_1_rst() {
    conversation(fin_wait_1, |p| {
        p.inject("R 1:1(0)");
        p.expect_effects(Effects::FAILED | Effects::CLOSED);
        assert_eq!(p.conn.error(), Some(ConnectionError::Reset));
    });
}

#[test]
fn fin_wait_1_abort() {
    conversation(fin_wait_1, |p| {
        p.abort();
        p.expect("R. 2:2(0) ack 1");
    });
}

#[test]
fn fin_wait_2_data() {
    conversation(fin_wait_2, |p| {
        p.inject("P. 1:101(100) ack 2");
        p.expect_effects(Effects::READABLE);
        p.expect(". 2:2(0) ack 101");
    });
}

#[test]
fn fin_wait_2_fin() {
    conversation(fin_wait_2, |p| {
        p.inject("F. 1:1(0) ack 2");
        p.expect_effects(Effects::EOF | Effects::TIME_WAIT);
        p.expect(". 2:2(0) ack 2");
    });
}

#[test]
fn fin_wait_2_fin_with_old_ack() {
    // Linux 6.16: "accept old ack during closing".
    conversation(fin_wait_2, |p| {
        p.inject("F. 1:1(0) ack 1");
        p.expect(". 2:2(0) ack 2");
        p.expect_state(State::TimeWait);
    });
}

#[test]
fn fin_wait_2_close_leaves_an_entry_that_waits_for_the_fin() {
    conversation(fin_wait_2, |p| {
        p.close();
        p.expect_effects(Effects::TIME_WAIT);
        p.expect_nothing();
        let entry = p.conn.time_wait().expect("nobody reads any more");
        assert!(entry.fin_wait_2);
        assert_eq!(entry.snd_nxt, p.conn.nxt());
        assert_eq!(entry.rcv_nxt, p.conn.rcv_nxt());
        assert_eq!(entry.deadline_ns, p.now_ns + 60_000 * MS);
    });
}

#[test]
fn fin_wait_2_close_with_a_long_wait_waits_itself_first() {
    conversation(fin_wait_2, |p| {
        p.conn.set_fin_wait_2(Some(90_000 * MS));
        p.close();
        p.expect_effects(Effects::NONE);
        // As in Linux, the time beyond one minute counts twice: for the connection, then for the
        // entry.
        p.wait_ms(29_999);
        p.expect_effects(Effects::NONE);
        p.wait_ms(1);
        p.expect_effects(Effects::TIME_WAIT);
        let entry = p.conn.time_wait().expect("the rest of the wait");
        assert_eq!(entry.deadline_ns, p.now_ns + 30_000 * MS);
    });
}

#[test]
fn fin_wait_2_close_with_a_short_wait_waits_for_repetitions_none_the_less() {
    conversation(fin_wait_2, |p| {
        p.conn.set_fin_wait_2(Some(MS));
        p.close();
        let entry = p.conn.time_wait().expect("nobody reads any more");
        let waits_ns = entry.deadline_ns - p.now_ns;
        assert_eq!(waits_ns, p.conn.info().rto_ns * 7 / 2);
    });
}

#[test]
fn fin_wait_2_orphan_data() {
    conversation(fin_wait_2, |p| {
        p.close();
        p.inject("P. 1:101(100) ack 2");
        p.expect_effects(Effects::CLOSED);
        p.expect("R 2:2(0)");
    });
}

#[test]
fn fin_wait_2_orphan_fin() {
    conversation(fin_wait_2, |p| {
        p.close();
        p.inject("F. 1:1(0) ack 2");
        p.expect_effects(Effects::EOF | Effects::TIME_WAIT);
        p.expect(". 2:2(0) ack 2");
    });
}

#[test]
fn fin_wait_1_orphan_whose_fin_is_acked_leaves_an_entry() {
    conversation(fin_wait_1, |p| {
        p.close();
        p.inject(". 1:1(0) ack 2");
        p.expect_effects(Effects::TIME_WAIT);
        assert!(p.conn.time_wait().is_some_and(|entry| entry.fin_wait_2));
    });
}

#[test]
fn fin_wait_1_orphan_whose_fin_is_acked_by_a_fin_is_in_time_wait_at_once() {
    conversation(fin_wait_1, |p| {
        p.close();
        p.inject("F. 1:1(0) ack 2");
        p.expect_effects(Effects::EOF | Effects::TIME_WAIT);
        p.expect(". 2:2(0) ack 2");
        assert!(p.conn.time_wait().is_some_and(|entry| !entry.fin_wait_2));
    });
}

#[test]
fn fin_wait_2_rst() {
    conversation(fin_wait_2, |p| {
        p.inject("R 1:1(0)");
        p.expect_effects(Effects::FAILED | Effects::CLOSED);
    });
}

#[test]
fn close_wait_data_from_us() {
    conversation(close_wait, |p| {
        p.write(100);
        p.expect("P. 1:101(100) ack 2");
        p.inject(". 2:2(0) ack 101");
        p.expect_effects(Effects::WRITABLE);
        p.close();
        p.expect("F. 101:101(0) ack 2");
        p.expect_state(State::LastAck);
    });
}

#[test]
fn close_wait_data() {
    conversation(close_wait, |p| {
        p.inject("P. 2:102(100) ack 1");
        p.expect_effects(Effects::NONE);
        p.expect_received(0);
        p.expect_state(State::CloseWait);
    });
}

#[test]
fn close_wait_fin_again() {
    conversation(close_wait, |p| {
        p.inject("F. 1:1(0) ack 1");
        p.expect(". 1:1(0) ack 2");
        p.expect_effects(Effects::NONE);
    });
}

#[test]
fn close_wait_rst() {
    conversation(close_wait, |p| {
        p.inject("R 2:2(0)");
        p.expect_effects(Effects::FAILED | Effects::CLOSED);
        assert_eq!(p.conn.error(), Some(ConnectionError::Reset));
    });
}

#[test]
fn close_wait_abort() {
    conversation(close_wait, |p| {
        p.abort();
        p.expect("R. 1:1(0) ack 2");
    });
}

#[test]
fn last_ack_acked() {
    conversation(last_ack, |p| {
        p.inject(". 2:2(0) ack 2");
        p.expect_effects(Effects::CLOSED);
        assert_eq!(p.conn.error(), None);
        p.expect_nothing();
    });
}

#[test]
fn last_ack_old_ack() {
    conversation(last_ack, |p| {
        p.inject(". 2:2(0) ack 1");
        p.expect_state(State::LastAck);
        p.expect_after_ms(300, "F. 1:1(0) ack 2");
    });
}

#[test]
fn last_ack_rst() {
    conversation(last_ack, |p| {
        p.inject("R 2:2(0)");
        p.expect_effects(Effects::FAILED | Effects::CLOSED);
        assert_eq!(p.conn.error(), Some(tcp::ConnectionError::Reset));
    });
}

#[test]
fn last_ack_fin_again() {
    conversation(last_ack, |p| {
        p.inject("F. 1:1(0) ack 1");
        p.expect(". 2:2(0) ack 2");
        p.expect_state(State::LastAck);
    });
}

#[test]
fn last_ack_abort() {
    conversation(last_ack, |p| {
        p.abort();
        p.expect_effects(Effects::CLOSED);
        p.expect_nothing();
    });
}

#[test]
fn fin_wait_2_close_after_long_timeouts() {
    conversation(fin_wait_1, |p| {
        // The FIN is repeated until a timeout takes two minutes, so three and a half timeouts are
        // much longer than an entry waits.
        p.wait_ms(500_000);
        assert!(p.skip_sent() > 5);
        p.inject(". 1:1(0) ack 2");
        p.expect_state(State::FinWait2);
        p.close();
        p.wait_ms(300_000);
        assert!(!p.is_handed_over());
        p.wait_ms(100_000);
        assert!(p.is_handed_over());
    });
}

#[test]
fn closing_acked() {
    conversation(closing, |p| {
        p.inject(". 2:2(0) ack 2");
        p.expect_effects(Effects::TIME_WAIT);
        p.expect_state(State::TimeWait);
        p.expect_nothing();
    });
}

#[test]
fn closing_timeout() {
    conversation(closing, |p| {
        p.expect_after_ms(300, "F. 1:1(0) ack 2");
    });
}

#[test]
fn closing_rst() {
    conversation(closing, |p| {
        p.inject("R 2:2(0)");
        p.expect_effects(Effects::FAILED | Effects::CLOSED);
    });
}

#[test]
fn time_wait_fin_again() {
    conversation(time_wait, |p| {
        p.wait_ms(50_000);
        p.inject("F. 1:1(0) ack 2");
        p.expect(". 2:2(0) ack 2");
        // The wait starts over.
        p.wait_ms(50_000);
        p.expect_state(State::TimeWait);
        p.wait_ms(10_000);
        p.expect_effects(Effects::CLOSED);
    });
}

#[test]
fn time_wait_expires() {
    conversation(time_wait, |p| {
        p.wait_ms(59_999);
        p.expect_state(State::TimeWait);
        p.wait_ms(1);
        p.expect_effects(Effects::CLOSED);
    });
}

#[test]
fn time_wait_entry() {
    conversation(time_wait, |p| {
        let entry = p.conn.time_wait().expect("in TIME_WAIT");
        assert_eq!(entry.snd_nxt, p.conn.nxt());
        assert_eq!(entry.rcv_nxt, p.conn.rcv_nxt());
        assert_eq!(entry.deadline_ns, p.now_ns + 60_000 * MS);
        assert!(!entry.timestamps);
    });
}

#[test]
fn time_wait_ack() {
    conversation(time_wait, |p| {
        p.inject(". 2:2(0) ack 2");
        p.expect_nothing();
        p.expect_state(State::TimeWait);
    });
}

#[test]
fn time_wait_syn() {
    conversation(time_wait, |p| {
        p.inject("S 900000:900000(0)");
        p.expect(". 2:2(0) ack 2");
        p.expect_state(State::TimeWait);
    });
}

#[test]
fn time_wait_rst() {
    conversation(time_wait, |p| {
        p.inject("R 2:2(0)");
        p.expect_effects(Effects::CLOSED);
    });
}

#[test]
fn time_wait_close() {
    conversation(time_wait, |p| {
        p.close();
        p.expect_effects(Effects::TIME_WAIT);
    });
}
