//! Downloads and loads against our own server, over the kernel's sockets.

use clap::Parser;

use super::*;
use crate::serve::testing::{Server, Site};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: GetOptions,
}

fn options(line: &str) -> GetOptions {
    let words = ["get", "--wire", "kernel", "--quiet"]
        .into_iter()
        .chain(line.split(' '));
    Line::try_parse_from(words).unwrap().options
}

#[test]
fn download_writes_the_file_when_it_is_whole() {
    let site = Site::new("get-download");
    let content: Vec<u8> = (0..3_000_000u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    site.write("large", &content);
    let server = Server::start(&site.path, 10);
    let file = site.path.join("copy");
    let line = format!("http://{}/large -o {}", server.address, file.display());
    get(&options(&line)).unwrap();
    assert!(std::fs::read(&file).unwrap() == content);
    assert!(!site.path.join("copy.part").exists());
}

#[test]
fn status_and_refused_connection_are_failures() {
    let site = Site::new("get-failures");
    let server = Server::start(&site.path, 10);
    let file = site.path.join("copy");
    let line = format!("http://{}/none -o {}", server.address, file.display());
    let failure = get(&options(&line)).unwrap_err();
    assert!(
        failure.to_string().ends_with("/none: status 404"),
        "{failure}"
    );
    let address = server.address;
    server.stop();
    std::fs::remove_file(&file).unwrap();
    let failure = get(&options(&format!(
        "http://{address}/ -o {}",
        file.display()
    )))
    .unwrap_err();
    assert!(
        failure.to_string().ends_with("connect: connection refused"),
        "{failure}"
    );
    assert!(!file.exists() && !site.path.join("copy.part").exists());
}

#[test]
fn load_makes_each_request_once() {
    let site = Site::new("get-load");
    site.write("a", "hello");
    let server = Server::start(&site.path, 100);
    let address = server.address;
    get(&options(&format!("http://{address}/a -n 500 -c 20"))).unwrap();
    get(&options(&format!("http://{address}/a -n 500 -c 20 -k"))).unwrap();
    get(&options(&format!("http://{address}/a -n 3 -c 20"))).unwrap();
    assert!(get(&options(&format!("http://{address}/none -n 5 -c 2"))).is_err());
    let stats = server.stop();
    assert_eq!(stats.requests, 500 + 500 + 3 + 5);
    assert_eq!(stats.connections, 500 + 20 + 3 + 5);
}

#[test]
fn load_on_nobody_fails_and_ends() {
    let site = Site::new("get-nobody");
    let server = Server::start(&site.path, 10);
    let address = server.address;
    server.stop();
    assert!(get(&options(&format!("http://{address}/a -n 50 -c 5"))).is_err());
}
