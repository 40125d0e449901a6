//! The interface gets its address by DHCP while a service shares it: the exchange stays with the
//! kernel, and servers that started without an address have it as soon as the host does.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::world::{World, noise};
use crate::{ONE, Program, Service, curl, nic, run};

/// Sets the address of a lease, as the scripts of distributions do.
const SCRIPT: &str = "#!/bin/sh\n\
    case $1 in bound|renew) ip addr replace $ip/24 dev $interface;; esac\n\
    echo $1 >> $0.said\n";

/// A DHCP server on the other host, which has one address to give, for a minute.
fn dhcp_server(world: &World) -> Program {
    let configuration = format!(
        "start 10.78.0.50\nend 10.78.0.50\ninterface left\noption subnet 255.255.255.0\n\
         option lease 60\nlease_file {0}/leases\npidfile {0}/udhcpd.pid\n",
        world.directory.display()
    );
    world.write("leases", b"");
    world.write("udhcpd.conf", configuration.as_bytes());
    let path = world.directory.join("udhcpd.conf");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &world.namespace("kernel")]);
    command.args(["busybox", "udhcpd", "-f", path.to_str().unwrap()]);
    quiet(command)
}

/// A DHCP client of the service's host, which asks again when it gets the signal USR1.
fn dhcp_client(world: &World, service: &Service) -> Program {
    world.write("script", SCRIPT.as_bytes());
    let script = world.directory.join("script");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&script, executable).unwrap();
    let script = script.to_str().unwrap().to_owned();
    let nic = nic();
    let words = ["busybox", "udhcpc", "-f", "-i", &nic, "-s", &script];
    quiet(service.inside(&words))
}

fn quiet(mut command: Command) -> Program {
    command.stdin(Stdio::null());
    Program(
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    )
}

/// Waits until the client has called its script so often for a reason.
fn until_told(world: &World, reason: &str, times: usize) {
    let until = Instant::now() + Duration::from_secs(60);
    let said = || std::fs::read_to_string(world.directory.join("script.said")).unwrap_or_default();
    while said().lines().filter(|line| *line == reason).count() < times {
        assert!(Instant::now() < until, "no {reason}: {}", said());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn address_by_dhcp_is_the_kernels_and_a_waiting_servers() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-dhcp") else {
        return;
    };
    let body = noise(100_000);
    world.write("a/file", &body);
    let service = Service::start(&world, &[]);
    run(
        "ip",
        &["-n", &service.namespace, "addr", "flush", "dev", &nic()],
    );
    let _server = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    let _theirs = dhcp_server(&world);
    let client = dhcp_client(&world, &service);
    until_told(&world, "bound", 1);
    must_be_served(&world, &body);
    // A renewal is a datagram for the host's own address.
    run("kill", &["-USR1", &client.0.id().to_string()]);
    until_told(&world, "renew", 1);
    must_be_served(&world, &body);
}

/// The server answers at the address that the lease gave, and the kernel does.
fn must_be_served(world: &World, body: &[u8]) {
    assert_eq!(curl(world, "http://10.78.0.50:8080/file"), body);
    let ping = world.kernel(&["ping", "-c", "1", "-W", "10", "10.78.0.50"]);
    assert!(ping.status.success(), "{ping:?}");
}
