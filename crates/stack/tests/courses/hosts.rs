//! The host behind a stack's first port. It lends local ports, changes addresses, routes and links,
//! and carries unaccepted connections to another process. That process is the same stack, which may
//! listen at the address again.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use packetio::host::{Change, NoPorts, Route, Transfer, Wish};
use packetio::ledger::{ENTRY_BYTES, LedgerFile};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use stack::Limits;

use crate::common::hosted::HostEnd;
use crate::digest::Digest;
use crate::draw::Random;

pub struct HostSide {
    pub end: HostEnd,
    ledger: OwnedFd,
    ledger_bytes: usize,
    lent: u16,
}

impl HostSide {
    pub fn new(limits: &Limits) -> HostSide {
        let entries = limits.sockets_max + limits.time_wait_max + limits.half_open_max;
        let ledger_bytes = entries * ENTRY_BYTES;
        let ledger = memfd_create("ledger", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&ledger, ledger_bytes as u64).unwrap();
        let end = HostEnd::default();
        end.talk().is_shared = true;
        let map = LedgerFile::map(ledger.as_fd(), ledger_bytes as u64).unwrap();
        end.talk().ledger = Some(map);
        HostSide {
            end,
            ledger,
            ledger_bytes,
            lent: 40_000,
        }
    }

    /// Answers some of the stack's wishes, and changes something at random.
    pub fn look(&mut self, random: &mut Random, digest: &mut Digest, number: usize) {
        let mut talk = self.end.talk();
        for wish in std::mem::take(&mut talk.wishes) {
            digest.debug(&wish);
            if wish == Wish::LocalPorts {
                let lease = match random.chance(70) {
                    true => Ok((self.lent, self.lent + 2)),
                    false => Err(NoPorts),
                };
                self.lent += 3;
                talk.leases.push_back(lease);
            }
        }
        if random.chance(3) {
            let change = change(random, number);
            talk.changes.push_back(change);
        }
        if random.chance(10) {
            talk.is_shared = random.chance(70);
        }
        while let Some(transfer) = talk.sent.pop_front() {
            digest.debug(&transfer);
            match transfer {
                Transfer::Connection { number, .. } => {
                    talk.coming.push_back(match random.below(6) {
                        0 => Transfer::Taken { number },
                        1 => Transfer::Refused { number },
                        _ => transfer,
                    })
                }
                Transfer::Seek { number, .. } if random.chance(90) => {
                    talk.coming.push_back(match random.chance(50) {
                        true => Transfer::Taken { number },
                        false => Transfer::Refused { number },
                    });
                }
                other => talk.coming.push_back(other),
            }
        }
    }

    /// Adds the list of connections to the digest.
    pub fn note_ledger(&self, digest: &mut Digest) {
        let mut bytes = vec![0; self.ledger_bytes];
        let read = rustix::io::pread(&self.ledger, &mut bytes, 0).unwrap();
        digest.bytes(&bytes[..read]);
    }
}

fn change(random: &mut Random, number: usize) -> Change {
    let other = 2 - number;
    let address: IpAddr = random
        .one_of(&["10.0.0.30", "fd00::30", "192.0.2.40"])
        .parse()
        .unwrap();
    let prefix = if address.is_ipv4() { 24 } else { 64 };
    let gateway = random.one_of(&[10, 77]);
    let route = Route {
        destination: random
            .one_of(&["198.51.100.0", "203.0.113.0"])
            .parse()
            .unwrap(),
        prefix: 24,
        gateway: Some(format!("10.0.0.{gateway}").parse().unwrap()),
        source: None,
        mtu: 0,
        metric: 0,
    };
    match random.below(9) {
        0 | 1 => Change::AddressAdded { address, prefix },
        2 => Change::AddressRemoved { address, prefix },
        3 => Change::RouteAdded(route),
        4 => Change::RouteRemoved(route),
        5 => Change::Mtu(random.one_of(&[1_300, 1_500])),
        6 => Change::Mac(crate::mac(number, 0)),
        7 => Change::NextHop {
            address: format!("10.0.0.{other}").parse().unwrap(),
            mac: random.chance(60).then(|| crate::mac(1 - number, 0)),
        },
        _ => Change::OwnHop(random.chance(50).then(|| crate::mac(1 - number, 0))),
    }
}
