//! The reasons for which the egress check drops a frame: one table for the XDP program, its
//! user-space twin, and all reports.
//!
//! Owns the numbering, which is that of `bpf/mux_reasons.h` and the order of the checks. A test
//! compares the two.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A reason to drop a frame that an application sends, in the order of the checks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All reasons, in the order of the checks: `ALL[reason as usize] == reason`.
            pub const ALL: &[Reason] = &[$(Reason::$name,)*];

            /// The name of the reason's counter.
            pub fn name(self) -> &'static str {
                match self {
                    $(Reason::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// The frame exceeds the NIC's MTU.
    Oversize = "oversize",
    /// The frame is too short for an Ethernet and an IP header.
    Runt = "runt",
    /// ARP, which the kernel handles for all.
    Arp = "arp",
    /// The frame has a VLAN tag.
    Vlan = "vlan",
    /// Neither IPv4 nor IPv6.
    Ethertype = "ethertype",
    /// The source MAC address is not the NIC's.
    SourceMac = "source_mac",
    /// The destination MAC address is not a next hop that the service resolved.
    NextHop = "next_hop",
    /// The IP version contradicts the ethertype, or the header is too short or exceeds the frame.
    HeaderLength = "header_length",
    /// The packet's total length contradicts the frame's length.
    TotalLength = "total_length",
    /// The IPv4 header checksum is wrong.
    HeaderChecksum = "header_checksum",
    /// The packet is a fragment.
    Fragment = "fragment",
    /// The packet has IPv4 options or IPv6 extension headers.
    Options = "options",
    /// The packet is not TCP.
    Protocol = "protocol",
    /// The destination is a multicast address.
    Multicast = "multicast",
    /// The destination is a broadcast, this-network or reserved address.
    Broadcast = "broadcast",
    /// The destination is a loopback address, or an IPv6 address that embeds an IPv4 address.
    Loopback = "loopback",
    /// The destination is an address of this host.
    Local = "local",
    /// The TCP header is too short or exceeds the packet.
    DataOffset = "data_offset",
    /// The source is not an address of the NIC.
    SourceAddress = "source_address",
    /// The source port is neither claimed nor leased.
    SourcePort = "source_port",
    /// The source port is another application's, or another context's.
    ForeignPort = "foreign_port",
    /// The virtio header asks for a checksum where the check has read the packet, or for segments
    /// that are too short (bulk lane).
    Offload = "offload",
    /// The application exceeds its rate.
    Rate = "rate",
    /// The NIC is not present.
    NoNic = "no_nic",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_that_of_the_xdp_program() {
        let header = include_str!("../../../bpf/mux_reasons.h");
        let names: Vec<&str> = header
            .lines()
            .filter_map(|line| line.trim().strip_prefix("REASON("))
            .filter_map(|rest| rest.split('"').nth(1))
            .collect();
        let ours: Vec<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names, ours);
        for (number, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, number);
        }
    }
}
