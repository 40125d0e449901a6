//! Every limit of this crate. Each one bounds the work or memory that a packet can cost.

/// Bytes of a TCP header without options, RFC 9293 section 3.1.
pub const TCP_HEADER_BYTES_MIN: usize = 20;
/// Bytes of a TCP header with all the options that its length field allows.
pub const TCP_HEADER_BYTES_MAX: usize = 60;
/// Bytes of TCP options.
pub const TCP_OPTION_BYTES_MAX: usize = TCP_HEADER_BYTES_MAX - TCP_HEADER_BYTES_MIN;
/// SACK blocks in one option, RFC 2018 section 3: four fit when there is no timestamp, three beside
/// one.
pub const SACK_BLOCKS_MAX: usize = 4;
/// Byte counters of an AccECN option, RFC 9768 section 3.2.3: one for each codepoint except
/// Not-ECT.
pub const ACCECN_FIELDS_MAX: usize = 3;
/// Bytes of the shortest Fast Open cookie, RFC 7413 section 4.1.1.
pub const FAST_OPEN_COOKIE_BYTES_MIN: usize = 4;
/// Bytes of the longest Fast Open cookie, RFC 7413 section 4.1.1.
pub const FAST_OPEN_COOKIE_BYTES_MAX: usize = 16;
/// Extension headers that are walked before an IPv6 packet is refused. RFC 8200 names six kinds,
/// and destination options may stand twice.
pub const EXTENSION_HEADERS_MAX: usize = 8;
/// Options that are walked in one IPv6 options header (RFC 8504 section 5.3 proposes 8).
pub const EXTENSION_OPTIONS_MAX: usize = 8;
/// Bytes of an IPv4 packet that carries an ICMP error, at most (RFC 1812 section 4.3.2.3).
pub const ICMPV4_ERROR_BYTES_MAX: usize = 576;
/// Bytes of an IPv6 packet that carries an ICMPv6 error, at most: IPv6's minimum MTU (RFC 4443
/// section 2.4 (c)).
pub const ICMPV6_ERROR_BYTES_MAX: usize = 1280;

const _: () = assert!(SACK_BLOCKS_MAX * 8 + 4 <= TCP_OPTION_BYTES_MAX);
const _: () = assert!(FAST_OPEN_COOKIE_BYTES_MAX + 4 <= TCP_OPTION_BYTES_MAX);
