//! Header fields that a connection's packets share: the ends of the link, and the application's
//! choices for the network header.

use tcp::limits::coarse;
use wire::ethernet::MacAddr;

/// The bits of a traffic class that belong to ECN (RFC 3168).
pub(crate) const ECN_BITS: u8 = 3;

/// Hop limit of packets whose application chose none: Linux's default.
const HOP_LIMIT: u8 = 64;

/// The rule for DF in IPv4 packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DontFragment {
    /// Never.
    Never,
    /// Unless a router said that the path is narrower than any is believed to be
    /// (`tcp::path_mtu::PathMtuSettings::mtu_min_v4`): then only fragments pass.
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
    /// Fields of the network header inside.
    pub header: HeaderFields,
}

/// Network header fields that an application may choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HeaderFields {
    /// The DSCP in the upper six bits; the lower two are zero.
    pub dscp: u8,
    pub hop_limit: u8,
    /// The value of DF in sent packets, by `dont_fragment` and by what is known of the path. IPv6
    /// has no such bit.
    pub discovers_mtu: bool,
    /// The application's choice for DF.
    pub dont_fragment: DontFragment,
    /// Segments in flight that are too long for the path are sent again, smaller, when a router
    /// reports it. IPv6 always does so, because routers do not fragment its packets.
    pub resends_for_mtu: bool,
    /// Over IPv6 what routers say of the path counts.
    pub heeds_mtu_v6: bool,
    /// Identification of a packet without DF: it tells this packet's fragments from others' (RFC
    /// 6864).
    pub ident: u16,
    /// Until then, in coarse time, a router's word counts that the path is narrower than any is
    /// believed to be; 0: there is none.
    pub too_narrow_until: u32,
}

impl Default for HeaderFields {
    fn default() -> Self {
        Self {
            dscp: 0,
            hop_limit: HOP_LIMIT,
            discovers_mtu: true,
            dont_fragment: DontFragment::default(),
            resends_for_mtu: true,
            heeds_mtu_v6: true,
            // With DF set the field has no meaning.
            ident: 0,
            too_narrow_until: 0,
        }
    }
}

impl HeaderFields {
    /// The application wants DF so.
    pub fn set_dont_fragment(&mut self, when: DontFragment) {
        self.dont_fragment = when;
        self.refresh_df();
    }

    /// A router reports a path MTU below the least value that is believed, which is used instead.
    /// Packets must be cut on the way (Linux locks such a route's MTU).
    pub fn narrow_too_far(&mut self, until_ns: u64) {
        self.too_narrow_until = coarse(until_ns).saturating_add(1);
        self.refresh_df();
    }

    /// Before a packet without DF: its number, and whether it still goes without.
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

    /// Fields of an answer without a connection: this DSCP, and the defaults.
    pub fn of_answer(dscp: u8) -> Self {
        Self {
            dscp,
            ..Self::default()
        }
    }
}
