//! `mill mux --path memif`: frames through shared memory, checked and switched by the service.

use super::*;

/// The words of a service with this path.
const PATH: [&str; 2] = ["--path", "memif"];

#[test]
fn millstream_and_the_kernel_serve_at_the_same_address_over_memif() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-memif") else {
        return;
    };
    let body = noise(300_000);
    world.write("a/file", &body);
    world.write("b/file", b"by the kernel");
    let service = Service::start(&world, &PATH);
    let directory = |name: &str| world.directory.join(name);
    let _ours = service.serve(&directory("a"), &["--port", "8080"]);
    let _kernels = service.serve_by_kernel(&directory("b"), "8081");
    for _ in 0..3 {
        assert_eq!(curl(&world, "http://10.78.0.2:8080/file"), body);
        assert_eq!(curl(&world, "http://10.78.0.2:8081/file"), b"by the kernel");
    }
    assert_eq!(curl(&world, "http://[fd78::2]:8080/file"), body);
    let ping = world.kernel(&["ping", "-c", "1", "-W", "10", "10.78.0.2"]);
    assert!(ping.status.success(), "{ping:?}");
    let taken = service
        .inside(&[MILL, "serve", "/tmp", "--wire", "kernel", "--port", "8080"])
        .output()
        .unwrap();
    assert!(!taken.status.success(), "{taken:?}");
    let said = service.ask("status");
    assert!(
        said.contains("8080") && said.contains("path memif"),
        "{said}"
    );
    let said = service.ask("check");
    assert!(
        said.contains("channel") && !said.contains("wrong"),
        "{said}"
    );
}
