//! Rings of files, and interfaces that are added late.

use super::*;

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("mst-{}-output-{name}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn interface(id: usize) -> Interface {
    Interface {
        id,
        name: format!("7/{id} xdp:eth0"),
        description: "program".to_owned(),
    }
}

fn frame<'a>(interface: &'a Interface, bytes: &'a [u8], missed: u64) -> Frame<'a> {
    Frame {
        interface,
        at_ns: 1,
        is_outbound: false,
        wire_bytes: bytes.len(),
        bytes,
        reason: Some("drop_paws"),
        missed,
    }
}

/// The kinds of a file's blocks.
fn kinds(path: &Path) -> Vec<u32> {
    let file = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (mut at, mut kinds) = (0, Vec::new());
    while at < file.len() {
        kinds.push(word(at));
        at += word(at + 4) as usize;
    }
    kinds
}

#[test]
fn full_file_is_followed_by_the_next_and_the_oldest_is_overwritten() {
    let directory = directory("ring");
    let path = directory.join("ring.pcapng");
    let limits = Limits {
        snap: 1_000,
        file_bytes_max: Some(1_500),
        files: 2,
    };
    let mut output = Output::new(&path, limits);
    let (one, two) = (interface(0), interface(1));
    output.interface(&one).unwrap();
    let bytes = [7; 2_000];
    for _ in 0..4 {
        output.frame(&frame(&one, &bytes, 0)).unwrap();
    }
    output.frame(&frame(&two, &bytes, 5)).unwrap();
    output.finish().unwrap();
    assert_eq!((output.captured, output.missed), (5, 5));
    let second = directory.join("ring.pcapng.1");
    assert_eq!(kinds(&second), [0x0a0d_0d0a, 1, 6, 6, 5]);
    assert_eq!(kinds(&path), [0x0a0d_0d0a, 1, 1, 6, 5, 5], "the third file");
    let files = std::fs::read_dir(&directory).unwrap().count();
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(files, 2);
}

#[test]
fn ring_of_small_frames_counts_the_bytes_of_blocks() {
    let directory = directory("small");
    let path = directory.join("small.pcapng");
    let limits = Limits {
        snap: 60,
        file_bytes_max: Some(10_000),
        files: 3,
    };
    let mut output = Output::new(&path, limits);
    let one = interface(0);
    for _ in 0..200 {
        output.frame(&frame(&one, &[7; 60], 0)).unwrap();
    }
    output.finish().unwrap();
    for file in std::fs::read_dir(&directory).unwrap() {
        let bytes = file.unwrap().metadata().unwrap().len();
        // The last frame and the statistics at the end come on top.
        assert!(bytes < 10_000 + 300, "{bytes}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn capture_without_an_interface_is_a_file_that_waits_for_one() {
    let directory = directory("none");
    let path = directory.join("none.pcapng");
    let limits = Limits {
        snap: 60,
        file_bytes_max: None,
        files: 1,
    };
    let mut output = Output::new(&path, limits);
    output.open().unwrap();
    output.flush().unwrap();
    assert_eq!(kinds(&path), [0x0a0d_0d0a]);
    output.frame(&frame(&interface(0), b"frame", 0)).unwrap();
    output.finish().unwrap();
    assert_eq!(kinds(&path), [0x0a0d_0d0a, 1, 6, 5]);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn interface_that_comes_late_is_told_before_its_frames() {
    let directory = directory("late");
    let path = directory.join("late.pcapng");
    let limits = Limits {
        snap: 1_000,
        file_bytes_max: None,
        files: 1,
    };
    let mut output = Output::new(&path, limits);
    let (one, two) = (interface(0), interface(1));
    output.frame(&frame(&one, b"frame", 0)).unwrap();
    output.pass(&frame(&one, b"not wanted", 3)).unwrap();
    output.frame(&frame(&two, b"frame", 0)).unwrap();
    output.finish().unwrap();
    assert_eq!(kinds(&path), [0x0a0d_0d0a, 1, 6, 1, 6, 5, 5]);
    std::fs::remove_dir_all(&directory).unwrap();
}
