//! The two ECN bits of an IP header (RFC 3168 section 5): the low bits of IPv4's TOS octet and of
//! IPv6's traffic class.

/// An ECN codepoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// The sender does not take part: routers drop instead of marking.
    #[default]
    NotEct = 0,
    /// ECN-capable transport, the codepoint that RFC 9331 gave to L4S.
    Ect1 = 1,
    /// ECN-capable transport.
    Ect0 = 2,
    /// Congestion experienced: set by a router.
    Ce = 3,
}

impl Ecn {
    /// The codepoint in a TOS octet or traffic class.
    #[must_use]
    pub const fn of(traffic_class: u8) -> Self {
        match traffic_class & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// `traffic_class` with this codepoint in it.
    ///
    /// ```
    /// assert_eq!(wire::Ecn::Ect0.within(0xb8), 0xba);
    /// assert_eq!(wire::Ecn::of(0xbb), wire::Ecn::Ce);
    /// ```
    #[must_use]
    pub const fn within(self, traffic_class: u8) -> u8 {
        (traffic_class & !3) | self as u8
    }
}
