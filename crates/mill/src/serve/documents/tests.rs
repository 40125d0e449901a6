//! Paths that lead to documents, and paths that do not.

use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use super::super::testing::Site;
use super::*;
use crate::http::path;

fn find(documents: &mut Documents, target: &str, now_ns: u64) -> Found {
    documents
        .find(&path::parse(target).unwrap(), now_ns)
        .unwrap()
}

fn content(found: &Found) -> &[u8] {
    match found {
        Found::Document(document) => match &document.content {
            Content::Memory(bytes) => bytes,
            Content::File(_) => panic!("not in memory"),
        },
        other => panic!("{other:?}"),
    }
}

fn is_nothing(found: &Found) -> bool {
    matches!(found, Found::Nothing)
}

#[test]
fn files_directories_and_indexes() {
    let site = Site::new("documents-files");
    site.write("a.txt", "hello");
    site.write("sub/index.html", "<p>");
    site.write("bare/x", "x");
    let mut documents = Documents::open(&site.path).unwrap();
    assert_eq!(content(&find(&mut documents, "/a.txt", 0)), b"hello");
    assert_eq!(content(&find(&mut documents, "/sub/", 0)), b"<p>");
    assert!(matches!(find(&mut documents, "/sub", 0), Found::Directory));
    for target in [
        "/",
        "/bare/",
        "/none",
        "/a.txt/",
        "/a.txt/b",
        &format!("/{}", "x".repeat(300)),
    ] {
        assert!(is_nothing(&find(&mut documents, target, 0)), "{target}");
    }
    match find(&mut documents, "/sub/", 0) {
        Found::Document(document) => assert_eq!(document.media, "text/html; charset=utf-8"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn links_that_lead_out_lead_nowhere() {
    let outside = Site::new("documents-outside");
    let secret = outside.write("secret", "s");
    let site = Site::new("documents-inside");
    site.write("in/a", "a");
    symlink("in/a", site.path.join("good")).unwrap();
    symlink("../../..", site.path.join("in/up")).unwrap();
    symlink(&secret, site.path.join("absolute")).unwrap();
    symlink(&outside.path, site.path.join("directory")).unwrap();
    let parent = format!(
        "../{}/secret",
        outside.path.file_name().unwrap().to_str().unwrap()
    );
    symlink(parent, site.path.join("relative")).unwrap();
    symlink("loop", site.path.join("loop")).unwrap();
    symlink("/proc/self/root/etc/passwd", site.path.join("magic")).unwrap();
    let mut documents = Documents::open(&site.path).unwrap();
    assert_eq!(content(&find(&mut documents, "/good", 0)), b"a");
    for target in [
        "/in/up/etc/passwd",
        "/absolute",
        "/directory/secret",
        "/relative",
        "/loop",
        "/magic",
    ] {
        assert!(is_nothing(&find(&mut documents, target, 0)), "{target}");
    }
}

#[test]
fn path_without_a_plain_file_is_nothing_and_does_not_block() {
    let site = Site::new("documents-special");
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        site.path.join("fifo"),
        FileType::Fifo,
        mode,
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(site.path.join("socket")).unwrap();
    let mut documents = Documents::open(&site.path).unwrap();
    assert!(is_nothing(&find(&mut documents, "/fifo", 0)));
    assert!(is_nothing(&find(&mut documents, "/socket", 0)));
}

#[test]
fn change_is_seen_once_the_entry_is_no_longer_fresh() {
    let site = Site::new("documents-change");
    let file = site.write("a", "first");
    let mut documents = Documents::open(&site.path).unwrap();
    assert_eq!(content(&find(&mut documents, "/a", 0)), b"first");
    site.write("a", "other");
    let later = SystemTime::now() + Duration::from_secs(5);
    File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_modified(later)
        .unwrap();
    assert_eq!(
        content(&find(&mut documents, "/a", CACHE_FRESH_NS - 1)),
        b"first"
    );
    assert_eq!(
        content(&find(&mut documents, "/a", CACHE_FRESH_NS)),
        b"other"
    );
    std::fs::remove_file(&file).unwrap();
    assert!(is_nothing(&find(&mut documents, "/a", 2 * CACHE_FRESH_NS)));
    assert_eq!(documents.cached_bytes, 0);
}

#[test]
fn cache_keeps_its_limits() {
    let site = Site::new("documents-limits");
    let large = vec![7; CACHED_FILE_BYTES_MAX as usize];
    let many = CACHE_BYTES_MAX / CACHED_FILE_BYTES_MAX + 5;
    for index in 0..many {
        site.write(&format!("{index}"), &large);
    }
    site.write("larger", [large.as_slice(), b"x"].concat());
    let mut documents = Documents::open(&site.path).unwrap();
    for index in 0..many {
        assert_eq!(
            content(&find(&mut documents, &format!("/{index}"), 0)).len(),
            large.len()
        );
        assert!(documents.cached_bytes <= CACHE_BYTES_MAX);
    }
    assert!(documents.cache.len() < many as usize);
    let Found::Document(document) = find(&mut documents, "/larger", 0) else {
        panic!("not found");
    };
    assert!(matches!(document.content, Content::File(_)));
    assert_eq!(document.length, CACHED_FILE_BYTES_MAX + 1);
}

#[test]
fn directory_that_is_none_is_refused() {
    let site = Site::new("documents-none");
    let file = site.write("a", "");
    assert!(Documents::open(&file).is_err());
    assert!(Documents::open(&site.path.join("none")).is_err());
}
