//! Fast Open cookies are the same as Linux's, byte for byte.

use super::*;
use std::net::IpAddr;

fn flow(client: &str, server: &str) -> FlowKey {
    let addr = |text: &str| wire::Addr::from(text.parse::<IpAddr>().unwrap());
    FlowKey {
        local: addr(server),
        remote: addr(client),
        local_port: 80,
        remote_port: 40_000,
    }
}

const KEY: [u8; 16] = *b"\xa1\xa1\xa1\xa1\xb2\xb2\xb2\xb2\xc3\xc3\xc3\xc3\xd4\xd4\xd4\xd4";

#[test]
fn cookies_are_those_that_linux_makes() {
    let flow = flow("192.0.2.1", "192.168.0.1");
    let cookie = |key| FastOpenKeys::new(key).cookie(&flow, false);
    assert_eq!(std::format!("{:?}", cookie(KEY)), "3021b9d889017eeb");
    assert_eq!(std::format!("{:?}", cookie([0; 16])), "b7c12350a90dc8f5");
}

#[test]
fn a_cookie_belongs_to_its_pair_of_addresses() {
    let keys = FastOpenKeys::new(KEY);
    let (one, other) = (flow("fd00::1", "fd00::2"), flow("fd00::3", "fd00::2"));
    let cookie = keys.cookie(&one, true);
    assert!(cookie.experimental);
    assert_eq!(keys.judge(&one, &cookie), Verdict::Good);
    assert_eq!(keys.judge(&other, &cookie), Verdict::Bad);
}

#[test]
fn a_cookie_of_the_backup_key_is_outdated_and_of_neither_bad() {
    let flow = flow("192.0.2.1", "192.168.0.1");
    let old = FastOpenKeys::new([7; 16]).cookie(&flow, false);
    let mut keys = FastOpenKeys::new(KEY);
    assert_eq!(keys.judge(&flow, &old), Verdict::Bad);
    keys.backup = Some([7; 16]);
    assert_eq!(keys.judge(&flow, &old), Verdict::Outdated);
    assert_eq!(keys.judge(&flow, &keys.cookie(&flow, false)), Verdict::Good);
}

#[test]
fn settings_are_the_bits_of_the_sysctl() {
    for bits in [0, 1, 2, 3, 5, 0x202, 0x402, 0x607] {
        assert_eq!(FastOpenSettings::default().with_bits(bits).bits(), bits);
    }
}
