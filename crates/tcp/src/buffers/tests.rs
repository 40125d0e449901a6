//! Windows that a buffer's memory allows, compared with values observed on Linux.

use super::{Buffers, InitialWindow, cost_of, ratio_of, window_of};
use crate::Config;

#[test]
fn costs_are_those_of_linux_buffers() {
    assert_eq!(cost_of(1000, 40).memory, 2304);
    assert_eq!(cost_of(1460, 40).memory, 2304);
    assert_eq!(cost_of(10, 40).memory, 960);
    assert_eq!(cost_of(4000, 40).memory, 8448);
    assert_eq!(cost_of(9000, 40).memory, 12_544);
    assert_eq!(ratio_of(4000, 8448), 121);
    assert_eq!(window_of(11_552, 121), 5460);
}

#[test]
fn default_sizes_give_linux_initial_window() {
    let config = Config::default();
    let initial = InitialWindow::new(&config, &Buffers::of(&config), 1460, true);
    assert_eq!((initial.window, initial.shift), (64_240, 7));
    let unscaled = InitialWindow::new(&config, &Buffers::of(&config), 1460, false);
    assert_eq!((unscaled.window, unscaled.shift), (64_240, 0));
    assert_eq!(unscaled.clamp, 65_535);
}

#[test]
fn large_maximum_gives_a_large_shift() {
    let mut config = Config::default();
    config.recv_buffer.bytes_default = 540_000;
    config.recv_buffer.bytes_max = 15 << 20;
    let initial = InitialWindow::new(&config, &Buffers::of(&config), 1448, true);
    assert_eq!((initial.syn_field(), initial.shift), (65_535, 8));
}

#[test]
fn locked_size_is_doubled_and_limits_the_shift() {
    let config = Config::default();
    let buffers = Buffers::of(&config).with_recv(10_000);
    assert_eq!(buffers.recv_bytes, 20_000);
    let initial = InitialWindow::new(&config, &buffers, 1460, true);
    assert_eq!(
        (initial.window, initial.shift, initial.clamp),
        (8760, 0, 10_000)
    );
    assert_eq!(Buffers::of(&config).with_send(1).send_bytes, 4608);
}
