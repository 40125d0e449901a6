//! `mill` over DPDK ports without a NIC: drivers that use the kernel (`net_af_packet` on a veth
//! pair, `net_tap`), and a native memif. Skipped without DPDK; the reason is printed.

#[path = "../../packetio/tests/dpdk_common/mod.rs"]
mod dpdk_common;
mod world;

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use world::{CURL, OURS, Server, World, noise};

fn ok(output: &Output) {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
}

/// A wire on the only device of an EAL.
fn wire(device: &str, options: &str) -> Option<String> {
    Some(wire_by(&dpdk_common::plugin()?, device, options))
}

fn wire_by(plugin: &Path, device: &str, options: &str) -> String {
    let plugin = plugin.display();
    format!("dpdk:0,plugin={plugin}{options},eal=--no-huge -m 256 --no-pci --vdev={device}")
}

/// The last published value of a server's counter.
fn counter(world: &World, server: &Server, name: &str) -> f64 {
    let page = world.ours(&["metrics", "--pid", &server.pid().to_string()]);
    let page = String::from_utf8_lossy(&page.stdout);
    let lines = page.lines().filter(|line| line.starts_with(name));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

/// Checks that curl gets `wanted` from `url`.
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
    // This driver takes no frame above the MTU, and the kernel would leave segmentation to the
    // other end.
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
    // One queue, and two queues that contexts share.
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

#[test]
fn tap_that_cuts_serves_large_frames_of_ipv4_and_ipv6() {
    let Some(wire) = wire("net_tap0,iface=dtap", "") else {
        return;
    };
    let Some(world) = World::new("dtso") else {
        return;
    };
    let large = noise(20_000_000);
    world.write("www/large", &large);
    let words = ["--addr", "10.79.0.2/24", "--addr", "fd79::2/64"];
    let server = world.serve(
        "ours",
        &world.directory.join("www"),
        &[&["--wire", &wire], &words[..]].concat(),
    );
    world.run_ip("ours", "addr add 10.79.0.1/24 dev dtap");
    world.run_ip("ours", "addr add fd79::1/64 dev dtap nodad");
    world.run_ip("ours", "link set dtap up");
    for (url, counted) in [
        ("http://10.79.0.2/large", "millstream_dpdk_tx_large_total"),
        ("http://[fd79::2]/large", "millstream_dpdk_tx_cut_total"),
    ] {
        let copy = world.directory.join("copy");
        let words = ["-o", copy.to_str().unwrap(), url];
        let curl = [&CURL[..], &words].concat();
        ok(&world.command("ours", &curl).output().unwrap());
        assert!(fs::read(&copy).unwrap() == large, "{url}");
        // Single segments would be 14,000 frames.
        let deadline = Instant::now() + Duration::from_secs(60);
        while counter(&world, &server, counted) < 100.0 {
            assert!(Instant::now() < deadline, "{counted}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    assert!(counter(&world, &server, "millstream_dpdk_tx_large_total") < 5_000.0);
    assert_eq!(
        counter(&world, &server, "millstream_dpdk_tx_dropped_refused_total"),
        0.0
    );
    assert_eq!(
        counter(&world, &server, "millstream_tx_frame_too_small_total"),
        0.0
    );
}

#[test]
fn driver_that_merges_gets_from_the_kernel() {
    let Some(plugin) = dpdk_common::card_plugin() else {
        return;
    };
    let Some(world) = World::new("dlro") else {
        return;
    };
    let wire = wire_by(&plugin, "net_tap0,iface=dlro,persist", "");
    world.run_ip("ours", "tuntap add name dlro mode tap multi_queue");
    world.run_ip("ours", "addr add 10.79.0.1/24 dev dlro");
    world.run_ip("ours", "addr add fd79::1/64 dev dlro nodad");
    let large = noise(20_000_000);
    world.write("www/large", &large);
    let www = world.directory.join("www");
    let copy = world.directory.join("copy");
    let ours = [
        "--wire",
        &wire,
        "--addr",
        "10.79.0.2/24",
        "--addr",
        "fd79::2/64",
    ];
    for (address, url) in [
        ("10.79.0.1/24", "http://10.79.0.1/large"),
        ("fd79::1/64", "http://[fd79::1]/large"),
    ] {
        let _server = world.serve("ours", &www, &["--wire", "kernel", "--addr", address]);
        let words = ["get", url, "-o", copy.to_str().unwrap()];
        ok(&world.ours(&[&words[..], &ours].concat()));
        assert!(fs::read(&copy).unwrap() == large, "{url}");
        fs::remove_file(&copy).unwrap();
        let load = ["get", url, "-n", "1", "--json"];
        let said = world.ours(&[&load[..], &ours].concat());
        ok(&said);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("\"rx_segments_in_large\""), "{said}");
    }
}

#[test]
fn device_without_memory_for_large_buffers_says_so_and_goes_on() {
    let Some(wire) = wire("net_tap0,iface=dmem", "") else {
        return;
    };
    let Some(world) = World::new("dmem") else {
        return;
    };
    let wire = wire.replace("-m 256", "-m 24");
    let words = ["get", "http://10.79.0.9/", "--timeout", "1"];
    let ours = ["--wire", &wire, "--addr", "10.79.0.2/24"];
    let output = world.ours(&[&words[..], &ours].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no memory for large buffers"), "{said}");
    assert!(said.contains("10.79.0.9"), "it tried to connect: {said}");
}
