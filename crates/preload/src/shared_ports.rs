//! Ports of listeners from which another process may accept, too: a child, or a program that got
//! the listener's descriptor. This process's own connections to them use the kernel.
//!
//! Words without a lock, since a child of `vfork` writes them in its parent's memory. A port is
//! never taken out: nothing tells when the last other process has closed the listener.

use ring::published::Published32;

static PORTS: [Published32; 1 << 16] = [const { Published32::new(0) }; 1 << 16];

/// Notes that another process shares the listener's port.
pub fn add(port: u16) {
    PORTS[usize::from(port)].store(1);
}

/// True if another process shares the port.
pub fn has(port: u16) -> bool {
    PORTS[usize::from(port)].load() != 0
}
