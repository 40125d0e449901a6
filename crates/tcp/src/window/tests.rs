//! The choice of the window shift.

use super::shift_for;

#[test]
fn shift_is_the_least_that_suffices() {
    for (bytes, shift) in [
        (0, 0),
        (65_535, 0),
        (65_536, 1),
        (131_071, 1),
        (131_072, 2),
        // Linux's defaults: 6 MiB and 15 MiB.
        (6 << 20, 7),
        (15 << 20, 8),
        (u32::MAX, 14),
    ] {
        assert_eq!(shift_for(bytes), shift, "{bytes}");
    }
}
