//! `mill` over DPDK ports without a NIC: drivers that speak to the kernel (`net_af_packet` on a
//! veth pair, `net_tap`) and to a native memif. Skipped, with the reason printed, where DPDK is
//! missing.

#[path = "../../packetio/tests/dpdk_common/mod.rs"]
mod dpdk_common;
mod world;

use std::fs;
use std::process::Output;

use world::{CURL, OURS, World, noise};

fn ok(output: &Output) {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
}

/// A wire on the only device of an EAL.
fn wire(device: &str, options: &str) -> Option<String> {
    let plugin = dpdk_common::plugin()?;
    let plugin = plugin.display();
    Some(format!(
        "dpdk:0,plugin={plugin}{options},eal=--no-huge -m 256 --no-pci --vdev={device}"
    ))
}

/// curl and `wanted` bytes at `url`.
fn curl_gets(world: &World, url: &str, wanted: &[u8]) {
    let copy = world.directory.join("copy");
    let words = ["-o", copy.to_str().unwrap(), url];
    ok(&world.kernel(&[&CURL[..], &words].concat()));
    assert!(fs::read(&copy).unwrap() == wanted, "{url}");
}

#[test]
fn af_packet_on_a_veth_carries_files_both_ways() {
    let Some(wire) = wire("net_af_packet0,iface=right", ",checksum=partial") else {
        return;
    };
    let Some(world) = World::new("afp") else {
        return;
    };
    // This driver takes no frame above the MTU, and the kernel would leave the cutting to the other
    // end.
    ok(&world.kernel(&["ethtool", "-K", "left", "tso", "off", "gso", "off"]));
    let large = noise(5_000_000);
    world.write("www/large", &large);
    let www = world.directory.join("www");
    let ours = [&["--wire", &wire], &OURS[..]].concat();
    {
        let _server = world.serve("ours", &www, &ours);
        curl_gets(&world, "http://10.78.0.2/large", &large);
        curl_gets(&world, "http://[fd78::2]/large", &large);
    }
    let kernel = ["--wire", "kernel", "--addr", "10.78.0.1/24"];
    let _server = world.serve("kernel", &www, &kernel);
    let copy = world.directory.join("copy");
    fs::remove_file(&copy).unwrap();
    let words = ["get", "http://10.78.0.1/large", "-o"];
    ok(&world.ours(&[&words[..], &[copy.to_str().unwrap()], &ours].concat()));
    assert!(fs::read(&copy).unwrap() == large);
}

#[test]
fn tap_with_checksum_offload_and_interrupts_serves_the_kernel() {
    // Two queues, and contexts that share them.
    for (queues, contexts) in [("", "1"), (",queues=2", "2")] {
        let Some(wire) = wire("net_tap0,iface=dtap", queues) else {
            return;
        };
        let Some(world) = World::new("dtap") else {
            return;
        };
        let large = noise(5_000_000);
        world.write("www/large", &large);
        let words = ["--addr", "10.79.0.2/24", "--contexts", contexts];
        let ours = [&["--wire", &wire], &words[..]].concat();
        let _server = world.serve("kernel", &world.directory.join("www"), &ours);
        ok(&world.kernel(&["ip", "addr", "add", "10.79.0.1/24", "dev", "dtap"]));
        ok(&world.kernel(&["ip", "link", "set", "dtap", "up"]));
        for _ in 0..3 {
            curl_gets(&world, "http://10.79.0.2/large", &large);
        }
    }
}

#[test]
fn memif_driver_gets_from_a_native_memif() {
    let Some(world) = World::new("dmemif") else {
        return;
    };
    let socket = world.directory.join("m.sock");
    let socket = socket.to_str().unwrap();
    let device = format!("net_memif0,role=client,socket={socket},socket-abstract=no");
    let Some(wire) = wire(&device, "") else {
        return;
    };
    let large = noise(20_000_000);
    world.write("www/large", &large);
    let memif = format!("memif:{socket}");
    let serve = ["--wire", &memif, "--addr", "10.79.0.1/24"];
    let _server = world.serve("kernel", &world.directory.join("www"), &serve);
    let copy = world.directory.join("copy");
    let words = ["get", "http://10.79.0.1/large", "-o"];
    let ours = ["--wire", &wire, "--addr", "10.79.0.2/24"];
    ok(&world.ours(&[&words[..], &[copy.to_str().unwrap()], &ours].concat()));
    assert!(fs::read(&copy).unwrap() == large);
}
