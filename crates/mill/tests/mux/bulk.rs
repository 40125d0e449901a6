//! The bulk lane: downloads in large packets are intact, with loss, across a restart of the
//! service, and with the lane off.

use serde_json::Value;

use super::*;

/// Frames that left in all, and those of the bulk lane, from `mill mux status` of the only context.
fn sent(service: &Service) -> (u64, u64) {
    let output = service
        .inside(&[MILL, "mux", "status", "--json", "--socket", &service.socket])
        .output()
        .unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let context = &said["applications"][0]["contexts"][0];
    let of = |name: &str| context[name].as_u64().unwrap();
    assert_eq!(context["drops"], serde_json::json!({}), "{said}");
    (of("tx_frames"), of("bulk_frames"))
}

#[test]
fn download_by_the_bulk_lane_is_whole() {
    if !is_veth() {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-bulk") else {
        return;
    };
    let body = noise(64 << 20);
    world.write("a/file", &body);
    let mut service = Service::start(&world, &[]);
    let _ours = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    for url in ["http://10.78.0.2:8080/file", "http://[fd78::2]:8080/file"] {
        assert!(curl(&world, url) == body, "{url}");
    }
    let (frames, bulk) = sent(&service);
    // In single segments both bodies would take 90,000 frames.
    assert!(
        bulk > 100 && frames < 60_000,
        "{bulk} of {frames} by the bulk lane"
    );
    let said = service.ask("status");
    assert!(said.contains("bulk lane: "), "{said}");
    let said = service.ask("check");
    assert!(said.contains("bulk lane"), "{said}");
    // The service ends and restarts.
    service.program = None;
    assert!(curl(&world, "http://10.78.0.2:8080/file") == body);
    service.launch(&[]);
    service.until_connected();
    assert!(curl(&world, "http://10.78.0.2:8080/file") == body);
    assert!(sent(&service).1 > bulk);
    // A lower MTU makes segments shorter, before and after the NIC cuts packets.
    let link = ["-n", &service.namespace, "link", "set", &nic()];
    run("ip", &[&link[..], &["mtu", "1400"]].concat());
    assert!(curl(&world, "http://10.78.0.2:8080/file") == body);
}

#[test]
fn download_with_loss_in_the_bulk_lane_is_whole() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-bulk-loss") else {
        return;
    };
    let body = noise(64 << 20);
    world.write("a/file", &body);
    let service = Service::start(&world, &[]);
    let _ours = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    // A short queue before the NIC, which the other lane bypasses.
    let nic = nic();
    let limit = "root tbf rate 1gbit burst 100k limit 200k";
    let words = ["-n", &service.namespace, "qdisc", "add", "dev", &nic];
    let limit: Vec<&str> = limit.split(' ').collect();
    run("tc", &[&words[..], &limit].concat());
    assert!(curl(&world, "http://10.78.0.2:8080/file") == body);
    assert!(sent(&service).1 > 100);
    let shown = Command::new("tc")
        .args([
            "-s",
            "-j",
            "-n",
            &service.namespace,
            "qdisc",
            "show",
            "dev",
            &nic,
        ])
        .output()
        .unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert!(shown[0]["drops"].as_u64() > Some(0), "{shown}");
}

#[test]
fn download_above_the_rate_is_whole_by_both_lanes() {
    if !is_veth() {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-bulk-rate") else {
        return;
    };
    let body = noise(64 << 20);
    world.write("a/file", &body);
    let service = Service::start(&world, &["--rate", "400mbit"]);
    let _ours = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    assert!(curl(&world, "http://10.78.0.2:8080/file") == body);
    let drops = service.ask("drops");
    assert!(drops.contains("rate"), "{drops}");
}

#[test]
fn wire_without_the_bulk_lane_sends_all_by_its_virtual_port() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-bulk-off") else {
        return;
    };
    let body = noise(3 << 20);
    world.write("a/file", &body);
    let service = Service::start(&world, &[]);
    let wire = format!("mux:{},bulk=off", service.socket);
    let _ours = service.serve_on(&wire, &world.directory.join("a"), &["--port", "8080"]);
    assert!(curl(&world, "http://10.78.0.2:8080/file") == body);
    assert_eq!(sent(&service).1, 0);
}

#[test]
fn service_without_bulk_lanes_has_all_sent_by_virtual_ports() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-bulk-none") else {
        return;
    };
    let body = noise(3 << 20);
    world.write("a/file", &body);
    let service = Service::start(&world, &["--bulk", "off"]);
    let _ours = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    assert!(curl(&world, "http://10.78.0.2:8080/file") == body);
    assert_eq!(sent(&service).1, 0);
    let links = service.inside(&["ip", "link"]).output().unwrap();
    let links = String::from_utf8_lossy(&links.stdout).into_owned();
    assert!(!links.contains("mill-bulk"), "{links}");
}
