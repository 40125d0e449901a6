//! Generic XDP, for NICs whose driver has no native XDP.

use std::process::Stdio;
use std::sync::PoisonError;

use crate::world::{CURL, World, noise};
use crate::{ONE, Service, curl};

#[test]
fn downloads_over_generic_xdp_are_whole_beside_the_kernels() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-generic") else {
        return;
    };
    let body = noise(3_000_000);
    world.write("a/file", &body);
    let service = Service::start(&world, &["--mode", "generic", "--path", "veth"]);
    assert!(service.ask("status").contains("generic XDP, path veth"));
    let directory = world.directory.join("a");
    let _server = service.serve(&directory, &["--port", "8080"]);
    let _kernels = service.serve_by_kernel(&directory, "8081");
    let urls = [
        "http://10.78.0.2:8080/file",
        "http://[fd78::2]:8080/file",
        "http://10.78.0.2:8081/file",
        "http://10.78.0.2:8080/file",
    ];
    let downloads = urls.map(|url| {
        let mut download = world.command("kernel", &[&CURL[..], &["-g", url]].concat());
        download.stdout(Stdio::piped()).spawn().unwrap()
    });
    for (url, download) in urls.iter().zip(downloads) {
        let output = download.wait_with_output().unwrap();
        assert!(output.status.success() && output.stdout == body, "{url}");
    }
    let checked = service.ask("check");
    assert!(!checked.contains("wrong"), "{checked}");
    assert_eq!(curl(&world, urls[0]), body);
}
