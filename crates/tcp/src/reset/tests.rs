//! CLOSED, RFC 9293 section 3.10.7.1.

use super::*;
use crate::test_stack::{IRS, ISS, seg};

#[test]
fn closed_rst_earns_nothing() {
    assert_eq!(reply(&seg("R", 0, 0, 0)), None);
    assert_eq!(reply(&seg("RA", 0, 0, 0)), None);
}

#[test]
fn closed_ack_is_reset_at_its_own_number() {
    let rst = reply(&seg("PA", 9, 5, 100)).unwrap();
    assert_eq!(
        (rst.seq, rst.flags, rst.ack),
        (ISS + 5, Flags::RST, SeqNumber(0))
    );
}

#[test]
fn closed_syn_is_reset_with_an_ack_of_its_length() {
    let rst = reply(&seg("S", 0, 0, 0)).unwrap();
    assert_eq!(
        (rst.seq, rst.flags, rst.ack),
        (SeqNumber(0), Flags::RST | Flags::ACK, IRS + 1)
    );
    let rst = reply(&seg("SF", 0, 0, 10)).unwrap();
    assert_eq!(rst.ack, IRS + 12);
    assert_eq!(reply(&seg("", 3, 0, 10)).unwrap().ack, IRS + 13);
}
