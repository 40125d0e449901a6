//! Content types by file name.

/// The content type of a file; what is not known is bytes.
pub fn type_of(path: &[u8]) -> &'static str {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let Some(dot) = name.iter().rposition(|&byte| byte == b'.') else {
        return BYTES;
    };
    let extension = name[dot + 1..].to_ascii_lowercase();
    let row = TYPES
        .iter()
        .find(|(known, _)| known.as_bytes() == extension);
    row.map_or(BYTES, |(_, media)| media)
}

const BYTES: &str = "application/octet-stream";

const TYPES: &[(&str, &str)] = &[
    ("html", "text/html; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("txt", "text/plain; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("xml", "application/xml"),
    ("json", "application/json"),
    ("wasm", "application/wasm"),
    ("pdf", "application/pdf"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
    ("tar", "application/x-tar"),
    ("zst", "application/zstd"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("svg", "image/svg+xml"),
    ("ico", "image/x-icon"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("webm", "video/webm"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_decides_whatever_its_case() {
        assert_eq!(type_of(b"a/b.HTML"), "text/html; charset=utf-8");
        assert_eq!(type_of(b"a.tar.gz"), "application/gzip");
        assert_eq!(type_of(b"a.html/b"), BYTES);
        assert_eq!(type_of(b"README"), BYTES);
        assert_eq!(type_of(b""), BYTES);
        assert_eq!(type_of(b"x."), BYTES);
    }
}
