//! The reasons why bytes are not an acceptable packet. Every caller that drops a packet counts it
//! under [`WireError::name`].

use core::fmt;

macro_rules! wire_errors {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// The reason why bytes could not be parsed.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum WireError {
            $($(#[$doc])* $variant,)*
        }

        impl WireError {
            /// All errors, in the order of [`WireError::index`].
            pub const ALL: [WireError; [$($name),*].len()] = [$(WireError::$variant),*];

            /// The name under which a counter of this error is exported.
            pub const fn name(self) -> &'static str {
                match self {
                    $(WireError::$variant => $name,)*
                }
            }

            /// A dense number, less than `ALL.len()`: the counter's place in an array.
            #[inline]
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

wire_errors! {
    /// The bytes end before the header does.
    Truncated => "truncated",
    /// A length field is below the header's minimum, or exceeds the bytes that are there.
    BadLength => "bad_length",
    /// The IP version is not the one that the frame type announced.
    BadVersion => "bad_version",
    /// The checksum does not match.
    BadChecksum => "bad_checksum",
    /// An option's length is zero, too small, or runs past its header.
    BadOption => "bad_option",
    /// The segment is signed (RFC 2385), and this stack has no keys to verify signatures.
    Signed => "signed",
    /// An address stands where the protocol forbids it: a multicast target, an unspecified source.
    BadAddress => "bad_address",
    /// A neighbour discovery message came through a router (hop limit below 255, RFC 4861 section
    /// 6.1).
    BadHopLimit => "bad_hop_limit",
    /// A code that the message type does not have.
    BadCode => "bad_code",
    /// Well formed, but of a kind that the stack refuses: source routing, ARP for other than
    /// Ethernet and IPv4, an IPv6 option that asks to be dropped.
    Unsupported => "unsupported",
    /// An IPv6 fragment; the stack does not reassemble.
    Fragment => "fragment",
    /// More extension headers or options than the limit.
    TooManyHeaders => "too_many_headers",
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WireError::Truncated => "the bytes end before the header does",
            WireError::BadLength => "a length field is wrong",
            WireError::BadVersion => "wrong IP version",
            WireError::BadChecksum => "checksum mismatch",
            WireError::BadOption => "malformed option",
            WireError::Signed => "a signature without a key",
            WireError::BadAddress => "an address that is not allowed there",
            WireError::BadHopLimit => "neighbour discovery from off the link",
            WireError::BadCode => "unknown code",
            WireError::Unsupported => "not supported",
            WireError::Fragment => "an IPv6 fragment",
            WireError::TooManyHeaders => "too many extension headers",
        })
    }
}

impl core::error::Error for WireError {}
