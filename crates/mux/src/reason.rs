//! Why the egress check drops a frame: one table for the XDP program, its twin in user space, and
//! every report.
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
    /// Longer than the NIC's MTU allows.
    Oversize = "oversize",
    /// Too short for an Ethernet and an IP header.
    Runt = "runt",
    /// ARP, which the kernel does for all.
    Arp = "arp",
    /// A VLAN tag.
    Vlan = "vlan",
    /// Neither IPv4 nor IPv6.
    Ethertype = "ethertype",
    /// The source is not the NIC's MAC address.
    SourceMac = "source_mac",
    /// The destination is no next hop that the service resolved.
    NextHop = "next_hop",
    /// Another version than the ethertype says, or a header that is too short or longer than the
    /// frame.
    HeaderLength = "header_length",
    /// The packet's length is not the frame's.
    TotalLength = "total_length",
    /// The sum of the IPv4 header is wrong.
    HeaderChecksum = "header_checksum",
    /// A fragment.
    Fragment = "fragment",
    /// IPv4 options or IPv6 extension headers.
    Options = "options",
    /// Not TCP.
    Protocol = "protocol",
    /// To a multicast group.
    Multicast = "multicast",
    /// To all hosts, to this network, or to a reserved address.
    Broadcast = "broadcast",
    /// To the loopback network, or to an IPv6 address that embeds one of IPv4.
    Loopback = "loopback",
    /// To an address of this host.
    Local = "local",
    /// TCP's header is too short or longer than the packet.
    DataOffset = "data_offset",
    /// From an address that the NIC does not have.
    SourceAddress = "source_address",
    /// From a port that nobody has claimed or leased.
    SourcePort = "source_port",
    /// From a port of another application, or of another context.
    ForeignPort = "foreign_port",
    /// The virtio header asks for a checksum where the check has read the packet, or for segments
    /// that are too short (bulk lane).
    Offload = "offload",
    /// More than the application's rate.
    Rate = "rate",
    /// The NIC is not there.
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
