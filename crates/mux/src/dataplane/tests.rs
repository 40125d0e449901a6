//! A whole data path in network namespaces: what is built, what the programs decide, and what
//! remains after the end.
//!
//! Needs root. Without it each test reports that it was skipped.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::Command;

use packetio::ledger::{ENTRY_BYTES, Entry, LedgerFile};
use packetio::mux::message::Memory;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::*;
use crate::limits::LEDGER_BYTES_MAX;
use crate::plane::Plane;

mod bulk;
mod egress;
mod flows;
mod hops;
mod ingress;
mod local;
mod memif;
mod model;

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const GATEWAY: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const DROP: u32 = 1;
const PASS: u32 = 2;
const REDIRECT: u32 = 4;

/// A veth pair as the NIC and its peer, in a namespace that this thread stays in until the drop.
struct Host {
    name: String,
    home: OwnedFd,
}

impl Host {
    fn enter(test: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            let _ = writeln!(std::io::stderr(), "ignored: needs root");
            return None;
        }
        let name = format!("mst-{}-{test}", std::process::id());
        let home = file("/proc/thread-self/ns/net");
        if !run("ip", &["netns", "add", &name]) {
            let _ = writeln!(std::io::stderr(), "ignored: cannot add a network namespace");
            return None;
        }
        let host = Self { name, home };
        move_to(&file(&format!("/run/netns/{}", host.name)));
        let veth = "link add name nic0 type veth peer name peer0";
        assert!(run("ip", &veth.split(' ').collect::<Vec<_>>()));
        for link in ["nic0", "peer0", "lo"] {
            assert!(run("ip", &["link", "set", link, "up"]));
        }
        Some(host)
    }

    fn options(&self) -> DataplaneOptions {
        DataplaneOptions {
            interface: "nic0".to_owned(),
            run_dir: PathBuf::from(format!("/run/millstream-{}", self.name)),
            mode: XdpMode::Auto,
            rate_bytes: 0,
            is_local: false,
            has_bulk: true,
            path: DataPath::Veth,
        }
    }

    fn open(&self) -> Dataplane {
        let mut plane = Dataplane::open(self.options()).expect("a data path");
        let broadcast = Some(IpAddr::from([10, 0, 0, 255]));
        plane.address_add(OURS.into(), broadcast).unwrap();
        let v6 = "fd00::1".parse().unwrap();
        plane.address_add(v6, None).unwrap();
        plane.next_hop_set(GATEWAY, true).unwrap();
        plane
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        move_to(&self.home);
        run("ip", &["netns", "del", &self.name]);
        // A failed test may have left the namespace.
        let dir = self.options().run_dir;
        if dir.exists() {
            remove_bpf_file_system(&dir.join("bpf"));
            if let Ok((namespace, _)) = Namespace::open(&dir.join("netns")) {
                namespace.remove();
            }
            let _ = fs::remove_file(dir.join("lock"));
            let _ = fs::remove_dir(dir);
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let status = Command::new(program).args(arguments).status();
    status.is_ok_and(|status| status.success())
}

fn file(path: &str) -> OwnedFd {
    fs::File::open(path).unwrap().into()
}

fn move_to(namespace: &OwnedFd) {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

/// The memory of an application with 64 chunks.
fn memory() -> (Memory, OwnedFd) {
    let memory = Memory {
        context: 0,
        bytes: 64 * 2048,
        chunk_bytes: 2048,
        headroom_bytes: 0,
        fill_slots: 64,
        completion_slots: 64,
        rx_slots: 64,
        tx_slots: 64,
        ledger_entries: 0,
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("test", flags).unwrap();
    ftruncate(&file, memory.bytes).unwrap();
    (memory, file)
}

fn sealed() -> (Memory, OwnedFd) {
    let (memory, file) = memory();
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
    (memory, file)
}

fn add_port(plane: &mut Dataplane, slot: u16, context: u16) -> NewPort {
    let (memory, file) = sealed();
    plane
        .port_add(slot, context, &memory, file.as_fd())
        .expect("a virtual port")
}

#[test]
fn data_path_closes_and_nothing_is_left() {
    let Some(host) = Host::enter("close") else {
        return;
    };
    let mut plane = host.open();
    assert_eq!(plane.mode(), XdpMode::Native);
    let first = add_port(&mut plane, 0, 0);
    let second = add_port(&mut plane, 1, 0);
    assert_ne!(first.cookie, second.cookie);
    plane.port_remove(0, 0);
    let again = add_port(&mut plane, 0, 0);
    drop((first, second, again));
    plane.close();
    assert!(!host.options().run_dir.exists());
    let shown = Command::new("ip").args(["link", "show", "nic0"]).output();
    let shown = String::from_utf8_lossy(&shown.unwrap().stdout).into_owned();
    assert!(!shown.contains("xdp"), "{shown}");
}

#[test]
fn interface_that_is_not_there_is_named() {
    let Some(host) = Host::enter("nosuch") else {
        return;
    };
    let mut options = host.options();
    options.interface = "nosuch".to_owned();
    let error = Dataplane::open(options).unwrap_err();
    assert_eq!(error.to_string(), "nosuch: there is no such interface");
}

#[test]
fn new_service_takes_over_what_the_old_one_left() {
    let Some(host) = Host::enter("recover") else {
        return;
    };
    let mut plane = host.open();
    let port = add_port(&mut plane, 3, 1);
    let endpoint = "0.0.0.0:80".parse().unwrap();
    plane.claim_set(endpoint, 3, &[1]).unwrap();
    drop(plane);
    let mut plane = host.open();
    let recovered = RecoveredPort {
        slot: 3,
        context: 1,
        cookie: port.cookie,
    };
    assert_eq!(plane.recovered(), [recovered]);
    assert_eq!(plane.claim(endpoint), Some((3, &[1][..])));
    plane.claim_remove(endpoint).unwrap();
    plane.port_remove(3, 1);
    assert_eq!(plane.recovered(), []);
    plane.close();
}

#[test]
fn half_made_port_goes_with_the_next_service() {
    let Some(host) = Host::enter("half") else {
        return;
    };
    let mut plane = host.open();
    drop(add_port(&mut plane, 3, 1));
    let whole = add_port(&mut plane, 4, 0);
    let (pin, ledger) = (plane.pin("link_near0"), plane.ledger_pin(0));
    plane.ledger_add(3, 1, 10).unwrap();
    // A service that is killed now has not written the slot yet.
    let empty = SlotValue::default().encode();
    plane
        .maps
        .set("slots", &0u32.to_ne_bytes(), &empty)
        .unwrap();
    drop(plane);
    let plane = host.open();
    let has = |device: u16| {
        let name = format!("near{device}");
        let found = plane.namespace.run(|| {
            let found = Device::find(&name);
            found.map_err(|(step, errno)| DataplaneError::io(step, errno))
        });
        found.is_ok()
    };
    assert!(!has(0) && !pin.exists() && !ledger.exists());
    assert!(has(1) && plane.pin("link_near1").exists());
    drop(whole);
    plane.close();
}

#[test]
fn address_and_next_hop_of_before_are_known_and_go() {
    let Some(host) = Host::enter("rights") else {
        return;
    };
    drop(host.open());
    let mut plane = Dataplane::open(host.options()).unwrap();
    let known: [IpAddr; 3] = ["10.0.0.1", "10.0.0.255", "fd00::1"].map(|one| one.parse().unwrap());
    let mut found = Plane::addresses(&plane);
    found.sort();
    assert_eq!(found, known);
    assert_eq!(Plane::next_hops(&plane), [GATEWAY]);
    for address in found {
        plane.address_remove(address).unwrap();
    }
    plane.next_hop_set(GATEWAY, false).unwrap();
    assert!(Plane::addresses(&plane).is_empty() && Plane::next_hops(&plane).is_empty());
    plane.close();
}

#[test]
fn ledger_survives_service_and_application() {
    let Some(host) = Host::enter("ledger") else {
        return;
    };
    let entry = Entry {
        local: "10.0.0.1:80".parse().unwrap(),
        remote: "10.0.0.2:4000".parse().unwrap(),
    };
    let mut plane = host.open();
    let port = add_port(&mut plane, 3, 1);
    let bytes = 100 * ENTRY_BYTES as u64;
    let memory = plane.ledger_add(3, 1, 100).unwrap();
    let mut written = LedgerFile::map(memory.as_fd(), bytes).unwrap();
    assert!(LedgerFile::map(memory.as_fd(), 1 << 20).is_err());
    written.set(99, Some(&entry));
    drop((plane, port, memory, written));
    let mut plane = host.open();
    let ledger = plane.ledger(3, 1).unwrap();
    assert_eq!(ledger.entry(99), Some(entry.encode()));
    assert_eq!(ledger.entry(0), Some([0; ENTRY_BYTES]));
    assert_eq!(ledger.entry(100), None);
    let kept = plane.ledger_keep(3, 1).unwrap();
    plane.port_remove(3, 1);
    drop(plane);
    let mut plane = host.open();
    assert_eq!(Plane::ledgers_kept(&plane), [kept]);
    let again = plane.ledger_kept(kept).unwrap();
    assert_eq!(again.entry(99), Some(entry.encode()));
    plane.ledger_drop(kept);
    assert!(plane.ledger_kept(kept).is_none() && Plane::ledgers_kept(&plane).is_empty());
    assert!(
        plane.ledger_keep(3, 1).is_err(),
        "a context without a ledger"
    );
    // The open ledger keeps its memory, but the context no longer has a ledger.
    assert_eq!(ledger.entry(99), Some(entry.encode()));
    drop(add_port(&mut plane, 3, 1));
    assert!(plane.ledger(3, 1).is_none());
    let many = LEDGER_BYTES_MAX / ENTRY_BYTES as u64 + 1;
    let refused = plane.ledger_add(3, 1, many as u32).unwrap_err();
    assert_eq!(refused.errno(), Errno::NOBUFS);
    plane.close();
}

#[test]
fn memory_that_is_not_sealed_is_refused() {
    let Some(host) = Host::enter("seals") else {
        return;
    };
    let mut plane = host.open();
    let (memory, file) = memory();
    let refused = |plane: &mut Dataplane, memory: &Memory, file: &OwnedFd| {
        let error = plane.port_add(0, 0, memory, file.as_fd()).unwrap_err();
        error.to_string()
    };
    assert!(refused(&mut plane, &memory, &file).contains("sealed"));
    let pipe = rustix::pipe::pipe().unwrap().0;
    assert!(refused(&mut plane, &memory, &pipe).contains("not a file"));
    let (mut memory, file) = sealed();
    memory.bytes *= 2;
    assert!(refused(&mut plane, &memory, &file).contains("length"));
    let (mut memory, file) = sealed();
    memory.chunk_bytes = 1000;
    assert!(refused(&mut plane, &memory, &file).contains("chunks"));
    let (mut memory, file) = sealed();
    memory.rx_slots = 63;
    assert!(refused(&mut plane, &memory, &file).contains("ring"));
    add_port(&mut plane, 0, 0);
    plane.close();
}

#[test]
fn peer_of_a_veth_without_gro_and_xdp_is_told_by_the_check() {
    let Some(host) = Host::enter("peer") else {
        return;
    };
    let plane = host.open();
    let cause = plane.check_peer().unwrap_err();
    assert!(cause.contains("neither an XDP program nor GRO"), "{cause}");
    assert!(run("ethtool", &["-K", "peer0", "gro", "on"]));
    assert_eq!(plane.check_peer(), Ok(()));
    assert!(run("ethtool", &["-K", "peer0", "gro", "off"]));
    assert!(plane.check_peer().is_err());
    plane.close();
}

#[test]
fn generic_xdp_serves_where_it_is_asked_for() {
    let Some(host) = Host::enter("generic") else {
        return;
    };
    let mut options = host.options();
    options.mode = XdpMode::Generic;
    let mut plane = Dataplane::open(options).unwrap();
    assert_eq!(plane.mode(), XdpMode::Generic);
    drop(add_port(&mut plane, 0, 0));
    assert_eq!(plane.check_peer(), Ok(()), "the kernel's stack sends");
    drop(plane);
    let plane = host.open();
    assert_eq!(plane.mode(), XdpMode::Generic, "as the service before");
    plane.close();
}

#[test]
fn mtu_of_half_a_page_and_more_is_served_by_both_paths() {
    let Some(host) = Host::enter("mtu") else {
        return;
    };
    let set = |mtu: &str| {
        for link in ["nic0", "peer0"] {
            assert!(run("ip", &["link", "set", link, "mtu", mtu]));
        }
    };
    for mtu in ["3400", "3498"] {
        set(mtu);
        let mut plane = host.open();
        assert_eq!(plane.mode(), XdpMode::Native);
        drop(add_port(&mut plane, 0, 0));
        plane.lease_add(80..=80, 0, 0).unwrap();
        let longest = egress::v4(plane.nic().mac, 80, mtu.parse::<usize>().unwrap() - 40);
        let program = plane.maps.egress.as_fd();
        let action = plane.namespace.run(|| {
            bpf::dry_run(program, &longest, near_index(0))
                .map_err(|errno| DataplaneError::io("BPF_PROG_TEST_RUN", errno))
        });
        assert_eq!(action, Ok(REDIRECT), "{mtu}");
        let lane = plane.bulk_add(0, 0).unwrap();
        let lane_frame = bulk::Virtio::default().before(&longest);
        assert_eq!(bulk::outcome(&plane, &lane, &lane_frame), (1, vec![]));
        plane.close();
        let mut options = host.options();
        options.path = DataPath::Memif;
        let mut plane = Dataplane::open(options).unwrap();
        drop(plane.channel_add(0, 0).unwrap());
        plane.close();
    }
}

#[test]
fn mtu_that_no_virtual_port_has_room_for_is_refused_in_one_line() {
    let Some(host) = Host::enter("jumbo") else {
        return;
    };
    for link in ["nic0", "peer0"] {
        assert!(run("ip", &["link", "set", link, "mtu", "9000"]));
    }
    for (mode, path) in [
        (XdpMode::Auto, DataPath::Veth),
        (XdpMode::Generic, DataPath::Veth),
        (XdpMode::Auto, DataPath::Memif),
    ] {
        let mut options = host.options();
        (options.mode, options.path) = (mode, path);
        let error = Dataplane::open(options).unwrap_err().to_string();
        assert!(error.contains("its MTU is 9000"), "{error}");
        assert!(!error.contains('\n'), "{error}");
        assert!(!host.options().run_dir.exists());
    }
}

#[test]
fn program_of_another_is_left_alone() {
    let Some(host) = Host::enter("other") else {
        return;
    };
    let plane = host.open();
    let mut options = host.options();
    options.run_dir.set_extension("second");
    let error = Dataplane::open(options.clone()).unwrap_err();
    assert!(error.to_string().contains("another XDP program"), "{error}");
    assert!(!options.run_dir.exists());
    plane.close();
}
