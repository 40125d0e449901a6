//! Every figure and table of the papers: what shows it here, or why nothing does.

use super::{Benchmark, Drawn, Paper, Row, Shown};

const DESIGN: &str = "A drawing of the design or a listing: nothing is measured in it.";

/// All rows, each paper's in its order.
pub const CONTENTS: &[Row] = &[
    Row {
        paper: Paper::Mtcp,
        names: &["figure 1"],
        about: "where the CPU time of a server of small messages goes",
        shown: Shown::Here {
            drawn: &[Drawn {
                benchmark: Benchmark::Message,
                figure: "cpu",
                ids: &["cpu-0", "cpu-1", "cpu-2"],
            }],
            differs: "The paper samples lighttpd with a file of 64 bytes on eight cores. Here both ends of a 64-byte message are sampled, on a core each. Linux 2.6, Linux 3.10 and MegaPipe are not here; the kernel is the machine's.",
        },
    },
    Row {
        paper: Paper::Mtcp,
        names: &["figure 2"],
        about: "transactions for a cycle of the stack",
        shown: Shown::Here {
            drawn: &[Drawn {
                benchmark: Benchmark::Message,
                figure: "cpu",
                ids: &["cycles-stack", "cycles"],
            }],
            differs: "The paper counts cycles in the kernel with TCP/IP and I/O, of lighttpd. Here they are the CPU time of both ends without the applications' part, at the processor's nominal rate.",
        },
    },
    Row {
        paper: Paper::Mtcp,
        names: &["figure 3", "figure 4", "figure 5", "figure 6"],
        about: "overview, threads, processing and interface of mTCP",
        shown: Shown::Not(DESIGN),
    },
    Row {
        paper: Paper::Mtcp,
        names: &["figure 7a"],
        about: "short messages, by the server's cores",
        shown: Shown::Here {
            drawn: &[
                Drawn {
                    benchmark: Benchmark::Message,
                    figure: "7a-cores",
                    ids: &["7a-cores", "7a-cores-cpu"],
                },
                Drawn {
                    benchmark: Benchmark::Message,
                    figure: "7a",
                    ids: &["7a", "7a-server", "7a-work", "7a-cpu"],
                },
            ],
            differs: "The paper has 1 to 8 cores for the server and other machines as clients, with a NIC between. This machine has two cores, the second of which is the client's, too, and memif or loopback between. By connections it is shown for one core. MegaPipe is not here.",
        },
    },
    Row {
        paper: Paper::Mtcp,
        names: &["figure 7b"],
        about: "messages for each connection",
        shown: Shown::Here {
            drawn: &[Drawn {
                benchmark: Benchmark::Message,
                figure: "7b",
                ids: &["7b"],
            }],
            differs: "One core for each side where the paper has eight for the server.",
        },
    },
    Row {
        paper: Paper::Mtcp,
        names: &["figure 7c"],
        about: "size of the message",
        shown: Shown::Here {
            drawn: &[Drawn {
                benchmark: Benchmark::Message,
                figure: "7c",
                ids: &["7c", "7c-bits"],
            }],
            differs: "One core for each side where the paper has eight for the server; memif has no 10 Gbit/s to end at.",
        },
    },
    Row {
        paper: Paper::Mtcp,
        names: &["figure 8"],
        about: "connections that are accepted and reset",
        shown: Shown::Here {
            drawn: &[
                Drawn {
                    benchmark: Benchmark::Message,
                    figure: "8-cores",
                    ids: &["8-cores", "8-cores-cpu"],
                },
                Drawn {
                    benchmark: Benchmark::Message,
                    figure: "8",
                    ids: &["8", "8-server"],
                },
            ],
            differs: "One core of the server and two, the second of which is the client's, too, where the paper has 1 to 8.",
        },
    },
    Row {
        paper: Paper::Mtcp,
        names: &["figure 9", "figure 10", "table 3", "table 4"],
        about: "applications: lighttpd with SPECweb2009's files, SSLShader, replayed web traffic",
        shown: Shown::Not(
            "They take SPECweb2009's set of files, a GPU for SSLShader, a recorded trace of a mobile network, and 10 Gbit/s NICs between machines. What the stack gains unmodified servers here is `cargo xtask bench programs`.",
        ),
    },
    Row {
        paper: Paper::Mtcp,
        names: &["table 1"],
        about: "mechanisms of earlier systems",
        shown: Shown::Not("A comparison of designs in words: nothing is measured in it."),
    },
    Row {
        paper: Paper::Mtcp,
        names: &["table 2"],
        about: "distribution of response times with 8,192 connections",
        shown: Shown::Here {
            drawn: &[
                Drawn {
                    benchmark: Benchmark::Message,
                    figure: "table2",
                    ids: &[
                        "table2-max",
                        "table2-min",
                        "table2-mean",
                        "table2-deviation",
                        "table2-p50",
                        "table2-p99",
                        "table2-p999",
                    ],
                },
                Drawn {
                    benchmark: Benchmark::Message,
                    figure: "parts",
                    ids: &[
                        "parts-connect-mean",
                        "parts-processing-mean",
                        "parts-total-mean",
                        "parts-connect",
                        "parts-processing",
                        "parts-total",
                    ],
                },
            ],
            differs: "The paper has ten million requests of `ab` to eight cores. Here each side has a core and a time; `--quick` has 1,024 connections.",
        },
    },
    Row {
        paper: Paper::Mtcp,
        names: &["text: events of a period"],
        about: "events and jobs that one turn handles together",
        shown: Shown::Here {
            drawn: &[Drawn {
                benchmark: Benchmark::Message,
                figure: "parts",
                ids: &[
                    "batch-events-mean",
                    "batch-jobs-mean",
                    "batch-events",
                    "batch-jobs",
                ],
            }],
            differs: "A turn of the stack is here what the paper calls a period of mTCP's thread.",
        },
    },
    Row {
        paper: Paper::Mtcp,
        names: &["text: fairness"],
        about: "Jain's index of 8,192 downloads",
        shown: Shown::Here {
            drawn: &[Drawn {
                benchmark: Benchmark::Bulk,
                figure: "jain",
                ids: &["jain-jain", "jain"],
            }],
            differs: "The downloads have a time rather than 10 MB each, which the kernel would take minutes for. A short run has a lower index: flows share evenly over seconds.",
        },
    },
    Row {
        paper: Paper::Multistack,
        names: &["figure 1"],
        about: "TCP options in use on the Internet, 2007 to 2012",
        shown: Shown::Not(
            "It is counted in traces of a backbone over six years, and measures no stack.",
        ),
    },
    Row {
        paper: Paper::Multistack,
        names: &["figure 2", "figure 3"],
        about: "architecture of MultiStack",
        shown: Shown::Not(DESIGN),
    },
    Row {
        paper: Paper::Multistack,
        names: &["figure 4"],
        about: "frames a second by size and by virtual ports",
        shown: Shown::Here {
            drawn: &[Drawn {
                benchmark: Benchmark::Mux,
                figure: "ports",
                ids: &["receive", "receive-ratio", "send", "send-ratio"],
            }],
            differs: "The paper has netmap on a 10 Gbit/s NIC. Here a veth pair stands for it, whose driver copies each frame on the sender's core. So the ratios to AF_XDP on the same pair are what compares.",
        },
    },
    Row {
        paper: Paper::Multistack,
        names: &["figure 5"],
        about: "not known to this project",
        shown: Shown::Not(
            "The parts of the paper that this project has read do not say what it draws, so nothing is said to redraw it.",
        ),
    },
    Row {
        paper: Paper::Multistack,
        names: &["figure 6"],
        about: "documents by HTTP against the kernel's server and nginx",
        shown: Shown::Here {
            drawn: &[Drawn {
                benchmark: Benchmark::Mux,
                figure: "http",
                ids: &["http", "http-tso"],
            }],
            differs: "Server and clients share two cores, and a veth pair stands for the 10 Gbit/s NIC. The server is `mill serve`, on a virtual port and on the kernel.",
        },
    },
    Row {
        paper: Paper::Receive,
        names: &[
            "figure 1", "figure 2", "figure 3", "figure 4", "figure 5", "figure 6",
        ],
        about: "shares of Linux's and Xen's receive path before the change, and the design",
        shown: Shown::Not(
            "They are of Linux 2.6.16 and Xen on a processor whose prefetching was switched; a guest may not switch it, and neither system is here. Figure 9 shows the same shares for this machine's kernel. Drawings of the design measure nothing.",
        ),
    },
    Row {
        paper: Paper::Receive,
        names: &["figure 7"],
        about: "the whole gain of receive aggregation and ACK offload",
        shown: Shown::Here {
            drawn: &[Drawn {
                benchmark: Benchmark::Bulk,
                figure: "7",
                ids: &[
                    "overall-receiver",
                    "overall-both",
                    "overall",
                    "overall-sender",
                ],
            }],
            differs: "The paper's gain is throughput, scaled by the CPU where the network was full. Here it is the receiver's CPU time for a byte, off against on. The kernel's counterpart is GRO over veth, whose receiver works in the sender's process, so both ends count.",
        },
    },
    Row {
        paper: Paper::Receive,
        names: &["figure 8"],
        about: "the receiver's cycles for a packet by kind of work, off and on",
        shown: Shown::Here {
            drawn: &[Drawn {
                benchmark: Benchmark::Bulk,
                figure: "8",
                ids: &["work-ours"],
            }],
            differs: "It is Millstream's receiver over memif where the paper has Linux's.",
        },
    },
    Row {
        paper: Paper::Receive,
        names: &["figure 9"],
        about: "the same in another configuration of Linux",
        shown: Shown::Here {
            drawn: &[Drawn {
                benchmark: Benchmark::Bulk,
                figure: "9",
                ids: &["work-kernel"],
            }],
            differs: "It is this machine's kernel over veth, without GRO and with it, which is the kernel's own aggregation.",
        },
    },
    Row {
        paper: Paper::Receive,
        names: &["figure 10"],
        about: "the same in a guest of Xen",
        shown: Shown::Not(
            "It takes a host with Xen and its driver domain. This machine is a guest itself.",
        ),
    },
    Row {
        paper: Paper::Receive,
        names: &["figure 11"],
        about: "the limit of aggregation",
        shown: Shown::Here {
            drawn: &[Drawn {
                benchmark: Benchmark::Bulk,
                figure: "11",
                ids: &[
                    "aggregation-receiver",
                    "aggregation",
                    "saturated-receiver",
                    "saturated",
                ],
            }],
            differs: "The receiver is Millstream's: over memif, and in one thread with its sender, where it is never short of segments.",
        },
    },
    Row {
        paper: Paper::Receive,
        names: &["figure 12"],
        about: "many connections at once",
        shown: Shown::Here {
            drawn: &[Drawn {
                benchmark: Benchmark::Bulk,
                figure: "12",
                ids: &["aggregation-flows", "aggregation-flows-receiver"],
            }],
            differs: "Each sender's segments come in bursts here, as memif's sender makes them. The row on section 3.5 interleaves them.",
        },
    },
    Row {
        paper: Paper::Receive,
        names: &["table 1"],
        about: "requests of one byte on one connection",
        shown: Shown::Here {
            drawn: &[Drawn {
                benchmark: Benchmark::Bulk,
                figure: "table1",
                ids: &["table1"],
            }],
            differs: "Both ends are Millstream's over memif, with both mechanisms and without.",
        },
    },
    Row {
        paper: Paper::Receive,
        names: &["text: section 3.5"],
        about: "flows whose packets interleave",
        shown: Shown::Here {
            drawn: &[Drawn {
                benchmark: Benchmark::Bulk,
                figure: "interleaved",
                ids: &[
                    "interleaved-1-receiver",
                    "interleaved-1",
                    "interleaved-1-both",
                    "interleaved-bursts-receiver",
                    "interleaved-bursts",
                    "interleaved-bursts-both",
                ],
            }],
            differs: "The sender is Millstream's for all receivers: over memif, on AF_XDP, in one thread, and the kernel's.",
        },
    },
];
