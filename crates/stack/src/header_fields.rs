//! Header fields that all packets of a connection share: the link's MAC addresses, and the
//! application's choices for the network header.

use tcp::limits::coarse;
use wire::ethernet::MacAddr;

/// Bits of the traffic class that belong to ECN (RFC 3168).
pub(crate) const ECN_BITS: u8 = 3;

/// Default hop limit, as in Linux.
const HOP_LIMIT: u8 = 64;

/// When IPv4 packets carry DF (don't fragment).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DontFragment {
    /// Never.
    Never,
    /// DF is set unless a router reported a path narrower than any that is believed
    /// (`tcp::path_mtu::PathMtuSettings::mtu_min_v4`). Then only fragments pass.
    #[default]
    OnBelievablePaths,
    /// Always.
    Always,
}

/// The two ends of the link that a frame crosses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkEnds {
    pub source: MacAddr,
    pub destination: MacAddr,
    /// Fields of the network header.
    pub header: HeaderFields,
}

/// Network header fields that an application may choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HeaderFields {
    /// The DSCP in the upper six bits; the lower two are zero.
    pub dscp: u8,
    pub hop_limit: u8,
    /// The value of DF in sent packets; it follows from `dont_fragment` and the reports about the
    /// path. IPv6 has no such bit.
    pub discovers_mtu: bool,
    /// The application's choice for DF.
    pub dont_fragment: DontFragment,
    /// True if a router's report makes the connection resend segments in flight that are too long
    /// for the path. IPv6 always does, because its routers do not fragment.
    pub retransmits_for_mtu: bool,
    /// True if routers' reports about an IPv6 path count.
    pub heeds_mtu_v6: bool,
    /// Identification of packets without DF, counted up; it keeps fragments of different packets
    /// apart (RFC 6864).
    pub ident: u16,
    /// Coarse time until which a report of a path narrower than any believed one counts; 0: there
    /// is none.
    pub too_narrow_until: u32,
}

impl Default for HeaderFields {
    fn default() -> Self {
        Self {
            dscp: 0,
            hop_limit: HOP_LIMIT,
            discovers_mtu: true,
            dont_fragment: DontFragment::default(),
            retransmits_for_mtu: true,
            heeds_mtu_v6: true,
            // The field has no meaning while DF is set.
            ident: 0,
            too_narrow_until: 0,
        }
    }
}

impl HeaderFields {
    /// Sets the application's choice for DF.
    pub fn set_dont_fragment(&mut self, when: DontFragment) {
        self.dont_fragment = when;
        self.refresh_df();
    }

    /// Notes a router's report of a path MTU below the least that is believed. Until `until_ns`
    /// packets go without DF, so that routers can cut them (Linux locks such a route's MTU).
    pub fn narrow_too_far(&mut self, until_ns: u64) {
        self.too_narrow_until = coarse(until_ns).saturating_add(1);
        self.refresh_df();
    }

    /// Prepares a packet without DF: takes the next identification, and restores DF if the report
    /// has expired.
    #[cold]
    pub fn before_fragmentable(&mut self, now_ns: u64) {
        if self.too_narrow_until != 0 && coarse(now_ns) >= self.too_narrow_until {
            self.too_narrow_until = 0;
            self.refresh_df();
        }
        self.ident = self.ident.wrapping_add(1);
    }

    fn refresh_df(&mut self) {
        self.discovers_mtu = match self.dont_fragment {
            DontFragment::Never => false,
            DontFragment::OnBelievablePaths => self.too_narrow_until == 0,
            DontFragment::Always => true,
        };
    }

    /// Header fields of an answer without a connection: `dscp`, and defaults.
    pub fn of_answer(dscp: u8) -> Self {
        Self {
            dscp,
            ..Self::default()
        }
    }
}
