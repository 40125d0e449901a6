//! Ledgers by turns, rates, and entries that the application could not have had.

use std::sync::Arc;
use std::sync::Mutex;

use packetio::ledger::ENTRY_BYTES;

use super::*;

fn owned() -> Owned {
    Owned {
        endpoints: vec![
            "0.0.0.0:80".parse().unwrap(),
            "[fd00::1]:81".parse().unwrap(),
        ],
        leases: vec![20_000..=20_031],
        addresses: ["10.9.0.1", "fd00::1", "fe80::1"]
            .map(|one| one.parse().unwrap())
            .to_vec(),
        broadcasts: vec!["10.9.0.255".parse().unwrap()],
        link: Some(1),
        is_local: false,
    }
}

fn entry(local: &str, remote: &str) -> Entry {
    let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
    Entry { local, remote }
}

#[test]
fn connection_of_own_port_and_address_is_covered() {
    for (local, remote) in [
        ("10.9.0.1:80", "192.0.2.1:4000"),
        ("10.9.0.1:20031", "10.9.0.2:80"),
        ("[fd00::1]:81", "[2001:db8::1]:4000"),
        ("[fe80::1]:20000", "[fe80::2]:80"),
    ] {
        assert!(owned().covers(&entry(local, remote)), "{local} {remote}");
    }
}

#[test]
fn local_end_that_the_application_did_not_own_is_refused() {
    for local in [
        "8.8.8.8:80",
        "8.8.8.8:20000",
        "10.9.0.1:81",
        "10.9.0.1:20032",
        "[2001:db8::9]:81",
        "[2001:db8::9]:20000",
    ] {
        let remote = match local.starts_with('[') {
            true => "[2001:db8::1]:4000",
            false => "192.0.2.1:4000",
        };
        assert!(!owned().covers(&entry(local, remote)), "{local}");
    }
}

#[test]
fn remote_end_that_is_no_host_behind_the_nic_is_refused() {
    for remote in [
        "0.0.0.0:80",
        "0.1.2.3:80",
        "127.0.0.1:80",
        "224.0.0.5:80",
        "255.255.255.255:80",
        "10.9.0.255:80",
        "10.9.0.1:80",
        "192.0.2.1:0",
    ] {
        assert!(!owned().covers(&entry("10.9.0.1:80", remote)), "{remote}");
    }
    for remote in [
        "[::]:80",
        "[::1]:80",
        "[ff02::1]:80",
        "[::ffff:127.0.0.1]:80",
        "[fd00::1]:80",
    ] {
        assert!(!owned().covers(&entry("[fd00::1]:81", remote)), "{remote}");
    }
}

#[test]
fn own_address_is_reachable_with_local_clients() {
    let owned = Owned {
        is_local: true,
        ..owned()
    };
    assert!(owned.covers(&entry("10.9.0.1:80", "10.9.0.1:4000")));
}

/// A ledger of `entries` free entries that writes down when it is read to its end.
#[derive(Debug)]
struct Free {
    name: &'static str,
    entries: u32,
    read: Arc<Mutex<Vec<&'static str>>>,
}

impl Ledger for Free {
    fn entry(&self, index: u32) -> Option<[u8; ENTRY_BYTES]> {
        if index == self.entries {
            self.read.lock().unwrap().push(self.name);
        }
        (index < self.entries).then_some([0; ENTRY_BYTES])
    }
}

#[test]
fn long_ledger_delays_no_other_one() {
    // Raw sockets are root's.
    let Ok(mut resets) = Resets::new(0) else {
        return;
    };
    let read = Arc::default();
    let mut add = |name, entries| {
        let read = Arc::clone(&read);
        resets.add(
            Box::new(Free {
                name,
                entries,
                read,
            }),
            None,
            size(0, 0),
            owned(),
        );
    };
    add("long", 1 << 20);
    add("short", 1);
    let now = Instant::now();
    resets.turn(now);
    resets.turn(now);
    assert_eq!(read.lock().unwrap().first(), Some(&"short"));
}

#[test]
fn resets_of_a_context_keep_its_rate() {
    let Ok(mut resets) = Resets::new(CONNECTION_BYTES * 1000) else {
        return;
    };
    let now = Instant::now();
    // A thousand connections a second: a slice of 256 takes that much of one.
    let next = resets.next_slice(now, now, 256);
    assert_eq!(next - now, Duration::from_millis(256));
    resets.rate = 0;
    assert!(resets.next_slice(now, now, 256) <= now);
}

fn size(uid: u32, bytes: u64) -> LedgerSize {
    LedgerSize { uid, bytes }
}

#[test]
fn ledger_counts_until_its_second_round_is_over() {
    let Ok(mut resets) = Resets::new(0) else {
        return;
    };
    let ledger = Box::new(Free {
        name: "one",
        entries: 1,
        read: Arc::default(),
    });
    // The loopback interface: nothing of an empty ledger leaves.
    let owned = Owned {
        link: Some(1),
        ..owned()
    };
    resets.add(ledger, Some(3), size(7, 40), owned);
    let now = Instant::now();
    resets.turn(now);
    assert_eq!(resets.ledgers().collect::<Vec<_>>(), [size(7, 40)]);
    let kept = resets.kept().map(|(number, size, _)| (number, size));
    assert_eq!(kept.collect::<Vec<_>>(), [(3, size(7, 40))]);
    assert!(resets.take_finished().is_empty());
    resets.turn(now + Duration::from_nanos(RESET_AGAIN_NS));
    assert_eq!(resets.ledgers().count(), 0);
    assert_eq!(resets.take_finished(), [3]);
    assert!(resets.take_finished().is_empty());
}
