//! Valid and invalid requests, cut at every byte.

use proptest::prelude::*;

use super::super::path::DocumentPath;
use super::super::range::ByteRange;
use super::super::request::Persistence;
use super::*;

/// All steps that a connection takes with these pieces.
fn steps(pieces: &[&[u8]]) -> Vec<Step> {
    let mut requests = Requests::default();
    let mut steps = Vec::new();
    for piece in pieces {
        requests.push(piece);
        loop {
            match requests.next() {
                Step::More => break,
                step => steps.push(step),
            }
        }
    }
    steps
}

fn request(path: &str) -> Request {
    Request {
        path: DocumentPath {
            bytes: path.as_bytes().to_vec(),
            is_directory: path.is_empty(),
        },
        head_only: false,
        range: None,
        modified_since: None,
        connection: Persistence::Stay,
    }
}

fn only_request(text: &str) -> Request {
    match &mut steps(&[text.as_bytes()])[..] {
        [Step::Request(request)] => request.clone(),
        other => panic!("{text:?}: {other:?}"),
    }
}

/// The refusals in the text, which has nothing else.
fn refusals(text: &[u8]) -> Vec<(Status, bool)> {
    let refusal = |step: Step| match step {
        Step::Refuse(refusal) => (refusal.status, refusal.connection.stays()),
        other => panic!("{other:?}"),
    };
    steps(&[text]).into_iter().map(refusal).collect()
}

fn with_fields(fields: &str) -> String {
    format!("GET /a HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

#[test]
fn plain_get() {
    assert_eq!(
        only_request("GET /a HTTP/1.1\r\nHost: h\r\n\r\n"),
        request("a")
    );
    assert_eq!(only_request("GET /a HTTP/1.1\nHost: h\n\n"), request("a"));
    assert_eq!(
        only_request("\r\n\r\nGET /a HTTP/1.1\r\nHost:\r\n\r\n"),
        request("a")
    );
}

#[test]
fn pipelined_requests_come_out_in_order_wherever_the_bytes_are_cut() {
    let text = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n\r\nHEAD /b HTTP/1.1\r\nhost: h\r\nContent-Length: 5\r\n\r\n\
        \r\n\r\nxGET /c HTTP/1.1\nHost: h\n\nPOST /d HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc\
        GET /e HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /never HTTP/1.1\r\n\r\n";
    let whole = steps(&[text]);
    let mut head = request("b");
    head.head_only = true;
    let mut last = request("e");
    last.connection = Persistence::Close;
    let refusal = Refusal {
        status: Status::MethodNotAllowed,
        head_only: false,
        connection: Persistence::Stay,
    };
    let expected = vec![
        Step::Request(request("")),
        Step::Request(head),
        Step::Request(request("c")),
        Step::Refuse(refusal),
        Step::Request(last),
    ];
    assert_eq!(whole, expected);
    for first in 0..text.len() {
        assert_eq!(
            steps(&[&text[..first], &text[first..]]),
            expected,
            "cut at {first}"
        );
    }
    let bytes: Vec<&[u8]> = text.chunks(1).collect();
    assert_eq!(steps(&bytes), expected);
}

#[test]
fn connection_field_and_version_decide_who_stays() {
    let persistence = |text: &str| only_request(text).connection;
    assert_eq!(persistence(&with_fields("")), Persistence::Stay);
    assert_eq!(
        persistence(&with_fields("Connection: upgrade, Close\r\n")),
        Persistence::Close
    );
    assert_eq!(
        persistence(&with_fields("Connection: keep-alive\r\n")),
        Persistence::Stay
    );
    assert_eq!(persistence("GET /a HTTP/1.0\r\n\r\n"), Persistence::Close);
    assert_eq!(
        persistence("GET /a HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"),
        Persistence::StayTold
    );
}

#[test]
fn range_is_honoured_alone_in_a_get_without_if_range() {
    let range = Some(ByteRange::From {
        first: 1,
        last: Some(2),
    });
    assert_eq!(
        only_request(&with_fields("Range: bytes=1-2\r\n")).range,
        range
    );
    for fields in [
        "Range: bytes=1-2,4-5\r\n",
        "Range: bytes=1-2\r\nIf-Range: \"x\"\r\n",
        "Range: bytes=1-2\r\nRange: bytes=1-2\r\n",
        "Range: nonsense\r\n",
    ] {
        assert_eq!(only_request(&with_fields(fields)).range, None, "{fields}");
    }
    let head = with_fields("Range: bytes=1-2\r\n").replace("GET", "HEAD");
    assert_eq!(only_request(&head).range, None);
}

#[test]
fn if_modified_since_yields_to_if_none_match() {
    let date = "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    assert_eq!(
        only_request(&with_fields(date)).modified_since,
        Some(784_111_777)
    );
    let both = format!("{date}If-None-Match: \"x\"\r\n");
    assert_eq!(only_request(&with_fields(&both)).modified_since, None);
    assert_eq!(
        only_request(&with_fields("If-Modified-Since: soon\r\n")).modified_since,
        None
    );
}

#[test]
fn malformed_request_is_400_and_closes() {
    for text in [
        "GET\r\n\r\n",
        "GET /a\r\n\r\n",
        "GET /a HTTP/1.1\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET /a HTTQ/1.1\r\nHost: a\r\n\r\n",
        "GET /a HTTP/1.1 x\r\nHost: a\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        "\r\n\r\n\r\n\r\n\r\n",
        "GET /a\0 HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(
            refusals(text.as_bytes()),
            [(Status::BadRequest, false)],
            "{text:?}"
        );
    }
}

#[test]
fn bad_path_is_400_and_the_connection_stays() {
    let text = "GET /../etc/passwd HTTP/1.1\r\nHost: h\r\n\r\n";
    assert_eq!(refusals(text.as_bytes()), [(Status::BadRequest, true)]);
}

#[test]
fn other_versions_are_505() {
    for version in ["HTTP/2.0", "HTTP/1.2", "HTTP/0.9", "HTTP/9.9"] {
        let text = format!("GET /a {version}\r\nHost: a\r\n\r\n");
        assert_eq!(
            refusals(text.as_bytes()),
            [(Status::VersionNotSupported, false)],
            "{version}"
        );
    }
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    assert_eq!(refusals(preface), [(Status::VersionNotSupported, false)]);
}

#[test]
fn other_methods_are_405_and_unknown_words_501() {
    let post = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(
        refusals(post.repeat(2).as_bytes()),
        [(Status::MethodNotAllowed, true); 2]
    );
    let chunked = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(
        refusals(chunked.as_bytes()),
        [(Status::MethodNotAllowed, false)]
    );
    let brew = "BREW /pot HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(refusals(brew.as_bytes()), [(Status::NotImplemented, true)]);
    let options = "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(
        refusals(options.as_bytes()),
        [(Status::MethodNotAllowed, true)]
    );
}

#[test]
fn unwanted_content_is_skipped_refused_or_not_waited_for() {
    let small = with_fields("Content-Length: 3\r\n") + "abc" + &with_fields("");
    assert_eq!(steps(&[small.as_bytes()]).len(), 2);
    let chunked = with_fields("Transfer-Encoding: chunked\r\n");
    assert_eq!(
        refusals(chunked.as_bytes()),
        [(Status::LengthRequired, false)]
    );
    let large = with_fields("Content-Length: 65537\r\n");
    assert_eq!(
        refusals(large.as_bytes()),
        [(Status::ContentTooLarge, false)]
    );
    let endless = with_fields("Content-Length: 99999999999999999999999\r\n");
    assert_eq!(
        refusals(endless.as_bytes()),
        [(Status::ContentTooLarge, false)]
    );
    let expecting = with_fields("Content-Length: 3\r\nExpect: 100-continue\r\n");
    assert_eq!(only_request(&expecting).connection, Persistence::Close);
    let strange = with_fields("Expect: wonders\r\n");
    assert_eq!(
        refusals(strange.as_bytes()),
        [(Status::ExpectationFailed, false)]
    );
}

#[test]
fn long_heads_are_refused_before_they_end() {
    let line = format!("GET /{}", "a".repeat(REQUEST_LINE_BYTES_MAX));
    assert_eq!(refusals(line.as_bytes()), [(Status::UriTooLong, false)]);
    let ended = format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(refusals(ended.as_bytes()), [(Status::UriTooLong, false)]);
    let fields = with_fields(&format!("X: {}\r\n", "a".repeat(HEAD_BYTES_MAX)));
    assert_eq!(
        refusals(fields.as_bytes()),
        [(Status::HeaderFieldsTooLarge, false)]
    );
    let unfinished = &fields.as_bytes()[..HEAD_BYTES_MAX + 1];
    assert_eq!(
        refusals(unfinished),
        [(Status::HeaderFieldsTooLarge, false)]
    );
    let many = with_fields(&"X: y\r\n".repeat(200));
    assert_eq!(
        refusals(many.as_bytes()),
        [(Status::HeaderFieldsTooLarge, false)]
    );
}

#[test]
fn memory_of_a_connection_stays_bounded() {
    let mut requests = Requests::default();
    for _ in 0..1000 {
        requests.push(&[b'a'; 1000]);
        let _ = requests.next();
    }
    assert!(requests.input.capacity() <= 4 * HEAD_BYTES_MAX);
    let mut requests = Requests::default();
    let large = with_fields(&format!("X: {}\r\n", "a".repeat(8000)));
    for _ in 0..3 {
        requests.push(large.as_bytes());
        assert!(matches!(requests.next(), Step::Request(_)));
    }
    requests.push(b"");
    assert!(requests.input.capacity() <= IDLE_BUFFER_BYTES_MAX);
}

#[test]
fn partial_request_is_seen() {
    let mut requests = Requests::default();
    assert!(!requests.is_partial());
    requests.push(b"GET ");
    assert_eq!(requests.next(), Step::More);
    assert!(requests.is_partial());
    requests.push(b"/ HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n");
    assert!(matches!(requests.next(), Step::Request(_)));
    assert!(requests.is_partial());
    requests.push(b"x");
    assert_eq!(requests.next(), Step::More);
    assert!(!requests.is_partial());
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_no_harm(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..8)) {
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let _ = steps(&pieces);
    }

    #[test]
    fn arbitrary_fields_do_no_harm_and_cuts_change_nothing(
        text in "(GET|HEAD|POST|X) /[a-z./%]{0,8} HTTP/1.[01]\r\n((Host|Range|Content-Length|Connection|Expect|Transfer-Encoding): [ -~]{0,12}\r\n){0,5}\r\n[a-z]{0,6}",
        cut in any::<prop::sample::Index>(),
    ) {
        let text = text.repeat(2);
        let cut = cut.index(text.len());
        let (first, second) = text.as_bytes().split_at(cut);
        prop_assert_eq!(steps(&[first, second]), steps(&[text.as_bytes()]));
    }
}
