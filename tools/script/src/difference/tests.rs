//! The class that each difference is given.

use super::super::{Options, run};
use super::*;

/// The record of a server whose script goes on with `steps`.
fn record(steps: &str) -> Record {
    let text = format!(
        "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 65535 <mss 1000>
+.1 < . 1:1(0) ack 1 win 65535
+0 accept(3, ..., ...) = 4
{steps}
+.3 %{{ print(tcpi_unacked, 'x', tcpi_bytes_received) }}%
"
    );
    let how = Options {
        record: true,
        ..Options::default()
    };
    run(&text, &how).expect("a play").record
}

fn classes(ours: &str, kernel: &str) -> Vec<String> {
    let records = [&record(ours), &record(kernel)];
    let found = differences(["ours", "kernel"], records, 30_000);
    found.into_iter().map(|one| one.class).collect()
}

#[test]
fn equal_records_have_no_class() {
    let step = "+.1 < P. 1:11(10) ack 1 win 65535";
    assert_eq!(classes(step, step), [""; 0]);
}

#[test]
fn packet_that_only_one_sent_is_named_with_its_sender() {
    let one = "+.1 < . 11:21(10) ack 1 win 65535\n+.1 write(4, ..., 10) = 10";
    let found = classes(one, "+.2 write(4, ..., 10) = 10");
    assert_eq!(found[0], "ours sent one more: ACK");
}

#[test]
fn printed_field_that_differs_is_named() {
    let found = classes(
        "+.1 < F. 1:1(0) ack 1 win 65535",
        "+.1 < F. 1:11(10) ack 1 win 65535",
    );
    assert_eq!(found, ["ACK number: ACK", "tcp_info: bytes_received"]);
}

#[test]
fn call_that_gives_something_else_is_named() {
    let found = classes("+.1 shutdown(4, SHUT_RD) = 0", "+.1 shutdown(4, 7) = 0");
    assert_eq!(found, ["call: shutdown"]);
}
