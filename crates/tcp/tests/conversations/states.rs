//! Ways into every state, with which conversations start.

use tcp::State;

use crate::peer::{Peer, Setup, Variant};

pub fn syn_sent(variant: Variant) -> Peer {
    let mut p = Peer::connecting(&Setup::default(), variant);
    p.expect("S 0:0(0) <mss 1460>");
    p
}

pub fn syn_received(variant: Variant) -> Peer {
    let mut p = syn_sent(variant);
    p.inject("S 0:0(0) <mss 1000>");
    p.expect("S. 0:0(0) ack 1 <mss 1460>");
    p.expect_state(State::SynReceived);
    p
}

/// A passive open whose completing ACK was taken.
pub fn established(variant: Variant) -> Peer {
    let mut p = Peer::accepted(&Setup::default(), variant);
    p.inject(". 1:1(0) ack 1");
    p.expect_nothing();
    p.expect_state(State::Established);
    p
}

/// An established connection with timestamps: TS.Recent is 100.
pub fn established_timestamps(variant: Variant) -> Peer {
    let setup = Setup {
        timestamps: true,
        ..Setup::default()
    };
    let mut p = Peer::accepted(&setup, variant);
    p.inject(". 1:1(0) ack 1 <TS val 100 ecr 1000>");
    p.expect_nothing();
    p
}

/// An established connection with SACK, whose handshake measured a round trip of 100 ms.
pub fn established_sack(variant: Variant) -> Peer {
    let setup = Setup {
        sack: true,
        ..Setup::default()
    };
    let mut p = Peer::accepted(&setup, variant);
    p.inject(". 1:1(0) ack 1");
    p.expect_nothing();
    p
}

/// An established connection with SACK and timestamps: TS.Recent is 100, our clock says 1000, and
/// segments have 988 bytes.
pub fn established_sack_timestamps(variant: Variant) -> Peer {
    let setup = Setup {
        sack: true,
        timestamps: true,
        ..Setup::default()
    };
    let mut p = Peer::accepted(&setup, variant);
    p.inject(". 1:1(0) ack 1 <TS val 100 ecr 1000>");
    p.expect_nothing();
    p
}

/// Our FIN is sent and unacknowledged; the application is still there.
pub fn fin_wait_1(variant: Variant) -> Peer {
    let mut p = established(variant);
    p.shutdown();
    p.expect("F. 1:1(0) ack 1");
    p.expect_state(State::FinWait1);
    p
}

pub fn fin_wait_2(variant: Variant) -> Peer {
    let mut p = fin_wait_1(variant);
    p.inject(". 1:1(0) ack 2");
    p.expect_state(State::FinWait2);
    p
}

pub fn close_wait(variant: Variant) -> Peer {
    let mut p = established(variant);
    p.inject("F. 1:1(0) ack 1");
    p.expect(". 1:1(0) ack 2");
    p.expect_state(State::CloseWait);
    p
}

pub fn closing(variant: Variant) -> Peer {
    let mut p = fin_wait_1(variant);
    p.inject("F. 1:1(0) ack 1");
    p.expect(". 2:2(0) ack 2");
    p.expect_state(State::Closing);
    p
}

pub fn last_ack(variant: Variant) -> Peer {
    let mut p = close_wait(variant);
    p.shutdown();
    p.expect("F. 1:1(0) ack 2");
    p.expect_state(State::LastAck);
    p
}

pub fn time_wait(variant: Variant) -> Peer {
    let mut p = fin_wait_2(variant);
    p.inject("F. 1:1(0) ack 2");
    p.expect(". 2:2(0) ack 2");
    p.expect_state(State::TimeWait);
    p
}
