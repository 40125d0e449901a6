//! Programs that can and cannot be run.

use std::path::Path;

use clap::Parser;

use super::*;
use crate::cli::{Cli, Command as Chosen};

fn options(line: &str) -> RunOptions {
    let cli = Cli::try_parse_from(line.split(' ')).expect("a command line");
    match cli.command {
        Chosen::Run(options) => *options,
        other => panic!("{other:?}"),
    }
}

#[test]
fn settings_are_lines_that_the_library_reads() {
    let line = "mill run --wire packet:v0 --addr 10.0.0.2/24 --listen 80,443 --not 22 \
                --story-one-in 9 -- true -x";
    let options = options(line);
    assert_eq!(
        settings(&options, &options.wire(), Vec::new()),
        "wire=packet:v0\naddr=10.0.0.2/24\nlisten=80,443\nnot=22\nstory_one_in=9"
    );
    assert_eq!(options.program, ["true", "-x"]);
}

#[test]
fn pages_and_packet_rules_are_settings_of_the_stack() {
    let line = "mill run --wire packet:v0 --addr 10.0.0.2/24 --hugetlb off \
                --packet-rules /etc/rules.toml --report /tmp/counters -- true";
    let options = options(line);
    assert_eq!(
        settings(&options, &options.wire(), Vec::new()),
        "wire=packet:v0\naddr=10.0.0.2/24\nhugetlb=off\npacket_rules=/etc/rules.toml\n\
         report=/tmp/counters"
    );
    let refused = Cli::try_parse_from("mill run --hugetlb require -- true".split(' '));
    let cause = refused.expect_err("a complaint").to_string();
    assert!(cause.contains("forks may end by SIGBUS"), "{cause}");
}

#[test]
fn wrong_packet_rules_are_named_with_their_line_before_the_program_begins() {
    let file = std::env::temp_dir().join(format!("mill-run-rules-{}", std::process::id()));
    std::fs::write(&file, "[[rule]]\nsuorce = '10.0.0.0/8'\n").expect("a file");
    let name = file.display();
    let line = format!("mill run --lo --packet-rules {name} -- true");
    let cause = run(&options(&line)).expect_err("a complaint").to_string();
    std::fs::remove_file(&file).expect("removed");
    let expected = format!("{name}:2: suorce: there is no such key of a rule");
    assert_eq!(cause, expected);
    let cause = run(&options("mill run --lo --packet-rules /none -- true")).expect_err("none");
    let cause = cause.to_string();
    assert!(cause.starts_with("--packet-rules /none: "), "{cause}");
}

#[test]
fn localhost_alone_needs_neither_wire_nor_address() {
    let options = options("mill run --lo -- true");
    assert_eq!(
        settings(&options, &options.wire(), Vec::new()),
        "wire=loopback\nlo"
    );
    let options = self::options("mill run -- true");
    assert_eq!(settings(&options, &options.wire(), Vec::new()), "wire=mux:");
}

#[test]
fn rules_of_a_file_are_settings_of_programs() {
    let text = "# all\nnot 22\n\nprogram nginx # a server\n listen 80,443\n";
    let lines = rules::settings(text).expect("rules");
    assert_eq!(
        lines,
        ["not=22", "program=nginx", "listen=80,443", "program=*"]
    );
    let options = options("mill run --not 23 -- true");
    let settings = settings(&options, &options.wire(), lines);
    assert!(settings.ends_with("listen=80,443\nprogram=*\nnot=23"));
}

#[test]
fn wrong_rules_are_named_with_their_line() {
    for (text, cause) in [
        ("listen", "line 1: `listen` is not a word and a list"),
        (
            "\nlisten 80 81",
            "line 2: `listen 80 81` is not a word and a list",
        ),
        ("listen http", "line 1: `http` is no port"),
        ("connect 10.0.0.0/99", "line 1: `10.0.0.0/99` is no prefix"),
        ("fly 1", "line 1: `fly` is no rule"),
        (
            "program /bin/true",
            "line 1: `/bin/true` is a path: a program has its file's name",
        ),
    ] {
        assert_eq!(rules::settings(text), Err(cause.to_owned()));
    }
    let cause = run(&options("mill run --lo --rules /none -- true")).expect_err("a complaint");
    assert!(cause.to_string().starts_with("run: /none: "), "{cause}");
}

#[test]
fn wire_without_an_address_is_refused_in_one_line() {
    let cause = run(&options("mill run --wire packet:v0 -- true")).expect_err("a complaint");
    assert_eq!(cause.to_string(), "run: packet needs --addr IP/PREFIX");
}

#[test]
fn program_that_is_not_there_is_named() {
    let cause = run(&options("mill run -- no-such-program")).expect_err("a complaint");
    assert_eq!(cause.to_string(), "run: no-such-program: not found");
}

#[test]
fn static_program_is_told_from_one_with_a_loader() {
    let mut head = vec![0; 64 + 56];
    head[..5].copy_from_slice(b"\x7fELF\x02");
    head[32] = 64;
    head[54] = 56;
    head[56] = 1;
    head[64] = 1;
    assert!(
        program::is_static(&head),
        "a segment to load, and none that names a loader"
    );
    head[64] = 3;
    assert!(!program::is_static(&head));
    assert!(!program::is_static(b"#!/bin/sh"));
    let shell = program::find("sh").expect("a shell");
    program::check(&shell).expect("a program with a loader");
    program::check(Path::new("/nonexistent")).expect_err("no file");
}
