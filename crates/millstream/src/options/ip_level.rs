//! `SOL_IP` and `SOL_IPV6`.

use super::*;
use crate::settings::MtuDiscover;

impl SocketOptions<'_> {
    /// `IP_TOS`, `IPV6_TCLASS`: the DSCP of what is sent, in the upper six bits. The lower two are ECN's (RFC 3168) and stay as they are.
    ///
    /// # Errors
    /// The kernel's, should this have to wait; so for all that follow.
    pub fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        self.change(|settings| settings.traffic_class = class & !ECN_BITS);
        self.tell(SocketOption::TrafficClass(class))
    }

    /// `IP_TOS`, `IPV6_TCLASS`
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        self.look(|settings| settings.traffic_class)
    }

    /// `IP_TTL`, `IPV6_UNICAST_HOPS` of what is sent; `None`: the default, 64.
    ///
    /// # Errors
    /// As [`set_traffic_class`](Self::set_traffic_class).
    pub fn set_hop_limit(&self, limit: Option<u8>) -> io::Result<()> {
        self.change(|settings| settings.hop_limit = limit);
        self.tell(SocketOption::HopLimit(limit.unwrap_or(HOP_LIMIT)))
    }

    /// `IP_TTL`, `IPV6_UNICAST_HOPS`
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        self.look(|settings| settings.hop_limit.unwrap_or(HOP_LIMIT))
    }

    /// `IP_MTU_DISCOVER`: whether packets may be fragmented on their way, and whether what routers say of the path counts.
    ///
    /// # Errors
    /// As [`set_traffic_class`](Self::set_traffic_class).
    pub fn set_mtu_discover(&self, how: MtuDiscover) -> io::Result<()> {
        self.change(|settings| settings.mtu_discover = how);
        self.tell(how.option())
    }

    /// `IP_MTU_DISCOVER`
    #[must_use]
    pub fn mtu_discover(&self) -> MtuDiscover {
        self.look(|settings| settings.mtu_discover)
    }
}

/// What of a traffic class is ECN's.
const ECN_BITS: u8 = 3;
/// Hop limit of what we send.
const HOP_LIMIT: u8 = 64;
