//! `mill mux --local`: programs of the same host and applications reach each other at the addresses
//! of the NIC.

use super::*;

/// The options of a service for clients of the same host.
const LOCAL: &[&str] = &["--local"];

/// The same options, with memif in place of veth pairs.
const LOCAL_MEMIF: &[&str] = &["--local", "--path", "memif"];

/// A client of the service's own host.
fn curl_inside(service: &Service, url: &str) -> std::process::Output {
    service.inside(&CURL).arg(url).output().unwrap()
}

/// The content that `curl_inside` got.
fn fetched(service: &Service, url: &str) -> Vec<u8> {
    let output = curl_inside(service, url);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{url}: {said}\n{}",
        service.ask("drops")
    );
    output.stdout
}

/// Interfaces of the service's host.
fn links(service: &Service) -> String {
    let output = service.inside(&["ip", "link"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn same_host_clients_reach_applications_and_the_kernels_servers() {
    reach("mux-local", LOCAL);
}

#[test]
fn same_host_clients_reach_applications_and_the_kernels_servers_over_memif() {
    reach("mux-local-memif", LOCAL_MEMIF);
}

fn reach(name: &str, words: &[&str]) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new(name) else {
        return;
    };
    let body = noise(2_000_000);
    world.write("a/file", &body);
    world.write("b/file", b"by the kernel");
    let service = Service::start(&world, words);
    let directory = |name: &str| world.directory.join(name);
    let _ours = service.serve(&directory("a"), &["--port", "8080"]);
    let _kernels = service.serve_by_kernel(&directory("b"), "8081");
    for host in ["10.78.0.2", "[fd78::2]"] {
        for _ in 0..2 {
            let got = fetched(&service, &format!("http://{host}:8080/file"));
            assert!(got == body, "{} bytes", got.len());
        }
    }
    let by_kernel = "http://10.78.0.2:8081/file";
    assert_eq!(fetched(&service, by_kernel), b"by the kernel");
    // Another host still reaches both servers.
    assert!(curl(&world, "http://10.78.0.2:8080/file") == body);
    assert_eq!(curl(&world, by_kernel), b"by the kernel");
    // Loopback addresses stay the kernel's, and so does an unowned port.
    for nobody in ["http://127.0.0.1:8080/", "http://10.78.0.2:8082/"] {
        let refused = curl_inside(&service, nobody);
        assert_eq!(refused.status.code(), Some(7), "{nobody}: {refused:?}");
    }
    // A port is taken for the kernel's programs, too, as without --local.
    let serve = [MILL, "serve", "/tmp", "--wire", "kernel", "--port", "8080"];
    let taken = service.inside(&serve).output().unwrap();
    assert!(!taken.status.success(), "{taken:?}");
    let said = service.ask("check");
    assert!(
        said.contains("same host") && !said.contains("wrong"),
        "{said}"
    );
}

#[test]
fn crowd_of_same_host_clients_loses_no_request() {
    crowd("mux-local-ab", LOCAL);
}

#[test]
fn crowd_of_same_host_clients_loses_no_request_over_memif() {
    crowd("mux-local-ab-memif", LOCAL_MEMIF);
}

fn crowd(name: &str, words: &[&str]) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new(name) else {
        return;
    };
    world.write("a/file", &noise(3000));
    let service = Service::start(&world, words);
    let _ours = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    let ab = ["ab", "-q", "-n", "2000", "-c", "20", "-s", "60"];
    let output = service
        .inside(&ab)
        .arg("http://10.78.0.2:8080/file")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("Complete requests:      2000"), "{output:?}");
    assert!(said.contains("Failed requests:        0"), "{said}");
}

#[test]
fn applications_reach_each_other_and_the_kernels_servers_at_the_same_address() {
    each_other("mux-local-get", LOCAL);
}

#[test]
fn applications_reach_each_other_and_the_kernels_servers_at_the_same_address_over_memif() {
    each_other("mux-local-get-memif", LOCAL_MEMIF);
}

fn each_other(name: &str, words: &[&str]) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new(name) else {
        return;
    };
    let body = noise(300_000);
    world.write("a/file", &body);
    let service = Service::start(&world, words);
    let directory = world.directory.join("a");
    let _ours = service.serve(&directory, &["--port", "8080"]);
    let _kernels = service.serve_by_kernel(&directory, "8081");
    let wire = format!("mux:{}", service.socket);
    for port in ["8080", "8081"] {
        let file = world.directory.join(port);
        let output = Command::new(MILL)
            .args(["get", &format!("http://10.78.0.2:{port}/file")])
            .args(["--wire", &wire, "--output", file.to_str().unwrap()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{port}: {said}");
        assert!(std::fs::read(file).unwrap() == body, "{port}");
    }
}

#[test]
fn same_host_connection_goes_on_while_the_service_is_replaced() {
    replaced("mux-local-again", LOCAL);
}

#[test]
fn same_host_connection_goes_on_while_the_service_is_replaced_over_memif() {
    replaced("mux-local-again-memif", LOCAL_MEMIF);
}

fn replaced(name: &str, words: &[&str]) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new(name) else {
        return;
    };
    let mut service = Service::start(&world, words);
    let runtime = runtime(&service, 1);
    let context = runtime.context(0).unwrap();
    let listener = TcpListener::bind(&context, "10.78.0.2:8080".parse().unwrap()).unwrap();
    let mut command = service.inside(&["python3", "-c", CLIENTS]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut crowd = Crowd(Program(command.spawn().unwrap()));
    crowd.open(3);
    let mut streams = accepted(&[&listener], 3);
    crowd.echo(&mut streams);
    service.program = None;
    // With memif no frame moves while there is no service.
    if is_veth() && words == LOCAL {
        crowd.echo(&mut streams);
    }
    service.launch(words);
    service.until_connected();
    crowd.echo(&mut streams);
    assert!(links(&service).contains("mill-lo"));
    // A service without --local removes the pair.
    service.program = None;
    let words: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| *word != "--local")
        .collect();
    service.launch(&words);
    assert!(!links(&service).contains("mill-lo"));
    let refused = curl_inside(&service, "http://10.78.0.2:8080/");
    assert_eq!(refused.status.code(), Some(7), "{refused:?}");
}

/// Connects, and prints the way in which the connection ends.
const IDLE: &str = r#"
import socket
one = socket.create_connection(("10.78.0.2", 8080), 60)
print("connected", flush=True)
try:
    print("end", one.recv(1), flush=True)
except ConnectionResetError:
    print("reset", flush=True)
"#;

#[test]
fn killed_application_resets_an_idle_client_of_the_same_host() {
    killed("mux-local-kill", LOCAL);
}

#[test]
fn killed_application_resets_an_idle_client_of_the_same_host_over_memif() {
    killed("mux-local-kill-memif", LOCAL_MEMIF);
}

fn killed(name: &str, words: &[&str]) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new(name) else {
        return;
    };
    world.write("a/file", b"a");
    let service = Service::start(&world, words);
    let ours = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    let mut command = service.inside(&["python3", "-c", IDLE]);
    let command = command.stdout(Stdio::piped());
    let mut client = Crowd(Program(command.spawn().unwrap()));
    assert_eq!(client.line(), "connected\n");
    // SIGKILL.
    drop(ours);
    assert_eq!(client.line(), "reset\n");
    service.ask("stop");
    let until = Instant::now() + Duration::from_secs(60);
    while links(&service).contains("mill-lo") {
        assert!(Instant::now() < until, "{}", links(&service));
        std::thread::sleep(Duration::from_millis(20));
    }
}
