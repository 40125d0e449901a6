//! Values of socket options as bytes in Linux's layout (x86-64), and back.

use std::net::{IpAddr, SocketAddr};

use crate::number::{AF_INET, AF_INET6};

/// An `int`.
#[must_use]
pub fn int(value: i32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

/// A `struct linger`.
#[must_use]
pub fn linger(on: bool, seconds: i32) -> Vec<u8> {
    [int(on.into()), int(seconds)].concat()
}

/// A `struct timeval`.
#[must_use]
pub fn timeval(seconds: i64, micros: i64) -> Vec<u8> {
    [seconds.to_ne_bytes(), micros.to_ne_bytes()].concat()
}

/// A `struct sockaddr_in` or `sockaddr_in6`.
#[must_use]
pub fn sockaddr(address: SocketAddr) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(ip) => {
            let family = AF_INET as u16;
            [&family.to_ne_bytes(), &port[..], &ip.octets(), &[0; 8]].concat()
        }
        IpAddr::V6(ip) => {
            let family = AF_INET6 as u16;
            [
                &family.to_ne_bytes(),
                &port[..],
                &[0; 4],
                &ip.octets(),
                &[0; 4],
            ]
            .concat()
        }
    }
}

/// A `struct timespec`.
#[must_use]
pub fn timespec(seconds: i64, nanos: i64) -> Vec<u8> {
    [seconds.to_ne_bytes(), nanos.to_ne_bytes()].concat()
}

/// The `int` at the beginning of a value; `None` if the value is shorter.
#[must_use]
pub fn to_int(value: &[u8]) -> Option<i32> {
    value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}
