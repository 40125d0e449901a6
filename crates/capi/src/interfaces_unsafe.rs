//! The kernel's addresses of an interface, and its default gateway.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr};

use libc::{ifaddrs, sockaddr};
use millstream::IpCidr;
use posix::Address;
use posix::c_layout::to_address;

/// The addresses of an interface, IPv4 first; `None`: the interface does not exist.
pub fn addresses(interface: &str) -> Option<Vec<IpCidr>> {
    let mut first: *mut ifaddrs = std::ptr::null_mut();
    // SAFETY: `first` is a place for the list; it is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return None;
    }
    let (mut found, mut is_there) = (Vec::new(), false);
    let mut at = first;
    while !at.is_null() {
        // SAFETY: an entry of the list, alive until it is freed.
        let entry = unsafe { &*at };
        // SAFETY: each entry has a name, a C string.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        if name.to_bytes() == interface.as_bytes() {
            is_there = true;
            // SAFETY: addresses of the list, of the length of their families, or null.
            let (ip, mask) = unsafe { (ip(entry.ifa_addr), ip(entry.ifa_netmask)) };
            found.extend(ip.zip(mask).and_then(|(ip, mask)| cidr(ip, mask)));
        }
        at = entry.ifa_next;
    }
    // SAFETY: the list that getifaddrs made; nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    found.sort_by_key(|cidr| cidr.address().is_ipv6());
    is_there.then_some(found)
}

/// # Safety
/// `at` is null or leads to an address as long as its family's are.
unsafe fn ip(at: *const sockaddr) -> Option<IpAddr> {
    if at.is_null() {
        return None;
    }
    // SAFETY: the caller's promise; the family comes first in all of them.
    let len = match i32::from(unsafe { (*at).sa_family }) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) };
    match to_address(bytes) {
        Address::Inet(address) => Some(address.ip()),
        _ => None,
    }
}

/// An address and its prefix. Link-local addresses are omitted: they need a link's name.
fn cidr(ip: IpAddr, mask: IpAddr) -> Option<IpCidr> {
    let bits = match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    let is_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    match is_local {
        true => None,
        false => IpCidr::new(ip, bits as u8).ok(),
    }
}

/// The kernel's default gateway through an interface.
pub fn default_gateway(interface: impl AsRef<str>) -> Option<IpAddr> {
    let table = std::fs::read_to_string("/proc/net/route").ok()?;
    gateway_in(&table, interface.as_ref())
}

/// Finds the default route in `/proc/net/route`. Columns: interface, destination, gateway, and so
/// on. Addresses are hexadecimal, in memory order.
fn gateway_in(table: &str, interface: &str) -> Option<IpAddr> {
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace();
        let (name, destination, gateway) = (words.next()?, words.next()?, words.next()?);
        if name != interface || destination != "00000000" {
            return None;
        }
        let bits = u32::from_str_radix(gateway, 16).ok().filter(|&g| g != 0)?;
        Some(Ipv4Addr::from(bits.to_ne_bytes()).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_route_is_found_by_interface() {
        let table = "Iface\tDestination\tGateway \tFlags\n\
                     eth0\t00000000\t0100000A\t0003\n\
                     eth1\t0000000A\t00000000\t0001\n";
        assert_eq!(gateway_in(table, "eth0"), Some([10, 0, 0, 1].into()));
        assert_eq!(gateway_in(table, "eth1"), None);
    }

    #[test]
    fn loopback_interface_has_its_address() {
        let found = addresses("lo").unwrap();
        assert!(found.contains(&"127.0.0.1/8".parse().unwrap()));
        assert_eq!(addresses("capi-none"), None);
    }
}
