//! Content types by file name.

use mime_guess::MimeGuess;

/// The content type of a file; `application/octet-stream` if unknown.
pub fn type_of(path: &[u8]) -> String {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let dot = name.iter().rposition(|&byte| byte == b'.');
    let extension = dot.and_then(|dot| str::from_utf8(&name[dot + 1..]).ok());
    let media = extension.and_then(|extension| MimeGuess::from_ext(extension).first_raw());
    match media {
        None => BYTES.to_owned(),
        // Without a character set browsers assume an old one.
        Some(text) if text.starts_with("text/") => format!("{text}; charset=utf-8"),
        Some(other) => other.to_owned(),
    }
}

const BYTES: &str = "application/octet-stream";

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
