//! The request target as a path below the served directory (RFC 9112, 3.2; RFC 3986, 5.2.4).
//!
//! A [`DocumentPath`] has no `..`, no empty part, no NUL and no leading slash. Symbolic links could
//! still lead out; the kernel prevents that when `serve::documents` opens the path.

use super::status::Status;

/// A path below the served directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DocumentPath {
    /// Parts joined by `/`; empty for the directory itself.
    pub bytes: Vec<u8>,
    /// The target ended with a slash, which asks for a directory's index.
    pub is_directory: bool,
}

/// Reads a target in origin form (`/a/b?query`) or absolute form (`http://host/a/b`).
pub fn parse(target: &str) -> Result<DocumentPath, Status> {
    let path = without_authority(target).ok_or(Status::BadRequest)?;
    let path = path.split(['?', '#']).next().unwrap_or(path);
    if !path.starts_with('/') {
        return Err(Status::BadRequest);
    }
    let decoded = percent_decoded(path.as_bytes())?;
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut is_directory = true;
    for part in decoded.split(|&byte| byte == b'/') {
        is_directory = matches!(part, b"" | b"." | b"..");
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop().ok_or(Status::BadRequest)?),
            part => parts.push(part),
        }
    }
    Ok(DocumentPath {
        bytes: parts.join(&b'/'),
        is_directory,
    })
}

/// The part of an absolute form after its authority; other forms unchanged.
fn without_authority(target: &str) -> Option<&str> {
    let scheme = target
        .get(..7)
        .filter(|scheme| scheme.eq_ignore_ascii_case("http://"));
    if scheme.is_none() {
        return Some(target);
    }
    let rest = &target[7..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match &rest[end..] {
        _ if end == 0 => None,
        path if path.starts_with('/') => Some(path),
        _ => Some("/"),
    }
}

fn percent_decoded(path: &[u8]) -> Result<Vec<u8>, Status> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.iter();
    while let Some(&byte) = rest.next() {
        let byte = match byte {
            b'%' => hex(rest.next())? << 4 | hex(rest.next())?,
            byte => byte,
        };
        if byte == 0 {
            return Err(Status::BadRequest);
        }
        decoded.push(byte);
    }
    Ok(decoded)
}

fn hex(digit: Option<&u8>) -> Result<u8, Status> {
    let value = digit.and_then(|&digit| char::from(digit).to_digit(16));
    value.map(|value| value as u8).ok_or(Status::BadRequest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(target: &str) -> (String, bool) {
        let path = parse(target).unwrap();
        (
            String::from_utf8_lossy(&path.bytes).into_owned(),
            path.is_directory,
        )
    }

    #[test]
    fn targets_become_paths() {
        assert_eq!(path("/"), (String::new(), true));
        assert_eq!(path("/a/b"), ("a/b".to_owned(), false));
        assert_eq!(path("/a/b/"), ("a/b".to_owned(), true));
        assert_eq!(path("//a//b"), ("a/b".to_owned(), false));
        assert_eq!(path("/a/./b/../c"), ("a/c".to_owned(), false));
        assert_eq!(path("/a/.."), (String::new(), true));
        assert_eq!(path("/a%20b?x=/../.."), ("a b".to_owned(), false));
        assert_eq!(path("/a%2fb"), ("a/b".to_owned(), false));
        assert_eq!(path("http://host:80/a"), ("a".to_owned(), false));
        assert_eq!(path("HTTP://host"), (String::new(), true));
        assert_eq!(path("http://host?x"), (String::new(), true));
        assert_eq!(path("/...hidden"), ("...hidden".to_owned(), false));
    }

    #[test]
    fn path_that_leads_out_or_is_malformed_is_refused() {
        for target in [
            "",
            "*",
            "a",
            "/..",
            "/a/../..",
            "/%2e%2e",
            "/%2e%2e/etc/passwd",
            "/a%2f..%2f..%2f",
            "/%",
            "/%4",
            "/%zz",
            "/a%00b",
            "http://",
            "http:///a",
            "host:443",
        ] {
            assert_eq!(parse(target), Err(Status::BadRequest), "{target}");
        }
    }

    proptest! {
        #[test]
        fn no_path_leads_out(target in "(/|\\.|\\.\\.|%2e|%2F|%00|a|%|é|\\?){0,24}") {
            if let Ok(path) = parse(&target) {
                prop_assert!(!path.bytes.starts_with(b"/"));
                prop_assert!(!path.bytes.contains(&0));
                let mut parts = path.bytes.split(|&byte| byte == b'/');
                prop_assert!(path.bytes.is_empty() || parts.all(|part| !matches!(part, b"" | b"." | b"..")));
            }
        }

        #[test]
        fn arbitrary_target_does_no_harm(target in "\\PC{0,64}") {
            let _ = parse(&target);
        }
    }
}
