//! Claims and leases of applications. The kernel's ports are those of the machine that runs the
//! test, so tests use ports that the kernel has just given out and got back.

use std::net::TcpListener;

use super::*;

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn endpoint(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

fn ownership() -> Ownership {
    Ownership::new(10_000..=10_127)
}

#[test]
fn claim_of_one_application_is_in_use_for_another() {
    let mut table = ownership();
    let port = free_port();
    let local = endpoint("127.0.0.1", port);
    assert_eq!(table.claim_add(1, 0, local), Ok(vec![0]));
    assert_eq!(table.claim_add(1, 1, local), Ok(vec![0, 1]));
    assert_eq!(table.claim_add(1, 1, local), Ok(vec![0, 1]));
    assert_eq!(table.claim_add(2, 0, local), Err(Errno::ADDRINUSE));
    assert_eq!(
        table.claim_add(2, 0, endpoint("0.0.0.0", port)),
        Err(Errno::ADDRINUSE)
    );
    assert_eq!(table.claim_remove(1, 0, local), Ok(vec![1]));
    assert_eq!(table.claim_remove(2, 1, local), Err(Errno::NOENT));
    assert_eq!(table.claim_remove(1, 1, local), Ok(vec![]));
    assert_eq!(table.claim_add(2, 0, local), Ok(vec![0]));
}

#[test]
fn wildcard_covers_the_addresses_of_its_family() {
    let mut table = ownership();
    let port = free_port();
    assert_eq!(
        table.claim_add(1, 0, endpoint("0.0.0.0", port)),
        Ok(vec![0])
    );
    let other = table.claim_add(2, 0, endpoint("127.0.0.2", port));
    assert_eq!(other, Err(Errno::ADDRINUSE));
    assert_eq!(table.claim_add(2, 0, endpoint("::", port)), Ok(vec![0]));
}

#[test]
fn port_of_a_kernel_listener_is_in_use_and_a_claimed_port_is_for_the_kernel() {
    let mut table = ownership();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap();
    let everywhere = endpoint("0.0.0.0", local.port());
    assert_eq!(table.claim_add(1, 0, local), Err(Errno::ADDRINUSE));
    assert_eq!(table.claim_add(1, 0, everywhere), Err(Errno::ADDRINUSE));
    drop(listener);
    assert_eq!(table.claim_add(1, 0, local), Ok(vec![0]));
    let error = TcpListener::bind(local).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    drop(table.take_all(1));
    TcpListener::bind(local).unwrap();
}

#[test]
fn leases_are_whole_blocks_that_do_not_overlap() {
    let mut table = ownership();
    let first = table.lease_add(1, 0, 33).unwrap();
    assert_eq!(first, 10_000..=10_063);
    let second = table.lease_add(2, 1, 1000).unwrap();
    assert_eq!(second, 10_064..=10_127);
    assert_eq!(table.lease_add(1, 0, 1), Err(Errno::ADDRNOTAVAIL));
    assert_eq!(table.lease_remove(2, &first), Err(Errno::NOENT));
    assert_eq!(table.lease_remove(1, &first), Ok(()));
    assert_eq!(table.lease_again(3, 0, 10_032..=10_063), Ok(()));
    assert_eq!(
        table.lease_again(3, 0, 10_060..=10_091),
        Err(Errno::ADDRINUSE)
    );
    let claim = table.claim_add(3, 0, endpoint("127.0.0.1", 10_000));
    assert_eq!(claim, Err(Errno::ADDRINUSE));
}

#[test]
fn application_that_died_leaves_nothing() {
    let mut table = ownership();
    let local = endpoint("127.0.0.1", free_port());
    table.claim_add(1, 0, local).unwrap();
    table.lease_add(1, 0, 32).unwrap();
    let (claims, leases) = table.take_all(1);
    assert_eq!((claims.len(), leases.len()), (1, 1));
    drop((claims, leases));
    assert_eq!(table.claims().count() + table.leases().count(), 0);
    table.claim_add(2, 0, local).unwrap();
}

#[test]
fn address_that_is_lost_takes_its_claims_and_leaves_the_wildcard() {
    let mut table = ownership();
    let port = free_port();
    table.claim_add(1, 0, endpoint("127.0.0.3", port)).unwrap();
    table
        .claim_add(1, 0, endpoint("0.0.0.0", free_port()))
        .unwrap();
    let lost = table.take_address("127.0.0.3".parse().unwrap());
    assert_eq!(lost.len(), 1);
    assert_eq!(table.claims().count(), 1);
}
