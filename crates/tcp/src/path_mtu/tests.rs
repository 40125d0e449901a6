//! The settings of path MTU discovery. Their effect on a connection is tested in the conversations.

use super::*;

#[test]
fn defaults_are_linuxs() {
    let settings = PathMtuSettings::default();
    assert_eq!(settings.mtu_min_v4, 552);
    assert_eq!(settings.age_ns_max, 600 * SECOND_NS);
    assert_eq!(
        (settings.probe_mss_base, settings.probe_mss_min),
        (1024, 48)
    );
    assert_eq!(settings.probing, MtuProbing::Never);
}
