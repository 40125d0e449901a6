//! Responses in every framing, cut at every byte.

use proptest::prelude::*;

use super::*;

/// Head, content, whether the end came, and bytes used, for a response in these pieces.
type Seen = (Option<ResponseHead>, Vec<u8>, bool, usize);

fn see(pieces: &[&[u8]], to_head: bool) -> Result<Seen, ResponseError> {
    let mut response = Response::new(to_head);
    let mut seen: Seen = (None, Vec::new(), false, 0);
    for piece in pieces {
        let mut rest = *piece;
        loop {
            let (used, output) = response.take(rest)?;
            rest = &rest[used..];
            match output {
                Output::Nothing if rest.is_empty() => break,
                Output::Nothing => {}
                Output::Head(head) => seen.0 = Some(head),
                Output::Content(content) => seen.1.extend_from_slice(content),
                Output::End => {
                    seen.2 = true;
                    seen.3 += rest.len();
                    break;
                }
            }
        }
    }
    if !seen.2 {
        response.close()?;
    }
    Ok(seen)
}

/// Checks every cut. Returns the content, and whether the connection may continue.
fn content(text: &str) -> (String, bool) {
    let whole = see(&[text.as_bytes()], false).unwrap();
    for cut in 0..text.len() {
        let (first, second) = text.as_bytes().split_at(cut);
        assert_eq!(
            see(&[first, second], false),
            Ok(whole.clone()),
            "cut at {cut}"
        );
    }
    let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
    assert_eq!(see(&bytes, false), Ok(whole.clone()));
    (
        String::from_utf8(whole.1).unwrap(),
        whole.0.unwrap().keep_alive,
    )
}

#[test]
fn content_by_length() {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(content(text), ("hello".into(), true));
    assert_eq!(
        content("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        (String::new(), true)
    );
}

#[test]
fn content_by_chunks_with_extensions_and_trailers() {
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n A \r\n, world...\r\n0\r\nT: u\r\n\r\n";
    assert_eq!(content(text), ("hello, world...".into(), true));
}

#[test]
fn content_until_close() {
    let text = "HTTP/1.1 200 OK\r\n\r\nhello";
    assert_eq!(content(text), ("hello".into(), false));
}

#[test]
fn interim_responses_are_passed_over() {
    let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    assert_eq!(content(text), ("hi".into(), true));
}

#[test]
fn responses_without_content() {
    let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let seen = see(&[text], true).unwrap();
    assert_eq!((seen.0.unwrap().content_length, seen.2), (Some(5), true));
    let seen = see(&[b"HTTP/1.1 304 Not Modified\r\n\r\nrest"], false).unwrap();
    assert_eq!((seen.1.len(), seen.2, seen.3), (0, true, 4));
}

#[test]
fn connection_field_decides() {
    let keeps = |fields: &str| {
        let text = format!("HTTP/1.{fields}Content-Length: 0\r\n\r\n");
        see(&[text.as_bytes()], false)
            .unwrap()
            .0
            .unwrap()
            .keep_alive
    };
    assert!(keeps("1 200 OK\r\n"));
    assert!(!keeps("1 200 OK\r\nConnection: Close\r\n"));
    assert!(!keeps("0 200 OK\r\n"));
    assert!(keeps("0 200 OK\r\nConnection: Keep-Alive\r\n"));
}

#[test]
fn response_cut_short_or_malformed_is_an_error() {
    for (text, error) in [
        ("", ResponseError::CutShort),
        ("HTTP/1.1 200 OK\r\n", ResponseError::CutShort),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            ResponseError::CutShort,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello",
            ResponseError::CutShort,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloworld\r\n",
            ResponseError::Chunk,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
            ResponseError::Chunk,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
            ResponseError::Chunk,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            ResponseError::Framing,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            ResponseError::Framing,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            ResponseError::Framing,
        ),
        ("SSH-2.0-x\r\n", ResponseError::Head),
    ] {
        assert_eq!(see(&[text.as_bytes()], false), Err(error), "{text:?}");
    }
}

#[test]
fn endless_heads_and_lines_are_errors() {
    let head = format!(
        "HTTP/1.1 200 OK\r\nX: {}",
        "a".repeat(RESPONSE_HEAD_BYTES_MAX)
    );
    assert_eq!(
        see(&[head.as_bytes()], false),
        Err(ResponseError::HeadTooLong)
    );
    let line = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{}",
        "a".repeat(CHUNK_LINE_BYTES_MAX)
    );
    assert_eq!(see(&[line.as_bytes()], false), Err(ResponseError::Chunk));
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_no_harm(
        head in "(HTTP/1.1 200 OK\r\n(Transfer-Encoding: chunked\r\n|Content-Length: 3\r\n)?\r\n)?",
        tail in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let _ = see(&[head.as_bytes(), &tail], false);
    }
}
