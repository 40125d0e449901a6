//! The parts of a message: its length and version, and how fields are written and read.
//!
//! Numbers are in the host's byte order, because both ends are on one host. A reader never reads
//! past the message: every layout is shorter than a message, and a field that would cross the end
//! reads as zero. `message` uses the module.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::MacAddr;

/// Bytes of every message.
pub const MESSAGE_LEN: usize = 128;
/// Version of the protocol, in every message. An end that reads another version closes the
/// connection.
pub const VERSION: u16 = 3;

const FAMILY_NONE: u8 = 0;
const FAMILY_V4: u8 = 4;
const FAMILY_V6: u8 = 6;

/// The reason why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The length is not [`MESSAGE_LEN`] bytes.
    #[error("a message has {MESSAGE_LEN} bytes")]
    Length,
    /// The version is not [`VERSION`].
    #[error("version {0}, expected {VERSION}")]
    Version(u16),
    /// This version has no such message type.
    #[error("unknown message type {0}")]
    Type(u16),
    /// A field has an impossible value.
    #[error("a field has an impossible value")]
    Value,
    /// Unused bytes are not zero.
    #[error("bytes behind the message are not zero")]
    Padding,
    /// The number of descriptors is wrong for the message.
    #[error("wrong descriptors")]
    Descriptors,
}

/// Appends fields to a message, in order.
#[derive(Debug)]
pub(super) struct Writer {
    bytes: [u8; MESSAGE_LEN],
    at: usize,
}

impl Writer {
    pub(super) fn new() -> Self {
        Self {
            bytes: [0; MESSAGE_LEN],
            at: 0,
        }
    }

    pub(super) fn finish(self) -> [u8; MESSAGE_LEN] {
        self.bytes
    }

    pub(super) fn put(&mut self, field: &[u8]) {
        let end = self.at + field.len();
        debug_assert!(end <= MESSAGE_LEN, "a layout is longer than a message");
        if let Some(room) = self.bytes.get_mut(self.at..end) {
            room.copy_from_slice(field);
        }
        self.at = end;
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.put(&value.to_ne_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.put(&value.to_ne_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.put(&value.to_ne_bytes());
    }

    pub(super) fn flag(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    pub(super) fn mac(&mut self, value: MacAddr) {
        self.put(&value.0);
    }

    pub(super) fn optional_mac(&mut self, value: Option<MacAddr>) {
        self.flag(value.is_some());
        self.mac(value.unwrap_or(MacAddr([0; 6])));
    }

    pub(super) fn address(&mut self, value: IpAddr) {
        self.optional_address(Some(value));
    }

    /// Appends one end of a connection: address, then port.
    pub(super) fn end(&mut self, value: SocketAddr) {
        self.address(value.ip());
        self.u16(value.port());
    }

    pub(super) fn optional_address(&mut self, value: Option<IpAddr>) {
        let mut octets = [0; 16];
        let family = match value {
            None => FAMILY_NONE,
            Some(IpAddr::V4(address)) => {
                octets[..4].copy_from_slice(&address.octets());
                FAMILY_V4
            }
            Some(IpAddr::V6(address)) => {
                octets = address.octets();
                FAMILY_V6
            }
        };
        self.u8(family);
        self.put(&octets);
    }
}

/// Reads fields from a message, in order.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8; MESSAGE_LEN],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8; MESSAGE_LEN]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        let end = self.at + N;
        debug_assert!(end <= MESSAGE_LEN, "a layout is longer than a message");
        if let Some(bytes) = self.bytes.get(self.at..end) {
            field.copy_from_slice(bytes);
        }
        self.at = end;
        field
    }

    pub(super) fn u8(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    pub(super) fn flag(&mut self) -> Result<bool, MessageError> {
        match self.u8() {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(MessageError::Value),
        }
    }

    pub(super) fn mac(&mut self) -> MacAddr {
        MacAddr(self.take())
    }

    pub(super) fn optional_mac(&mut self) -> Result<Option<MacAddr>, MessageError> {
        let is_there = self.flag()?;
        let mac = self.mac();
        Ok(is_there.then_some(mac))
    }

    pub(super) fn address(&mut self) -> Result<IpAddr, MessageError> {
        self.optional_address()?.ok_or(MessageError::Value)
    }

    pub(super) fn end(&mut self) -> Result<SocketAddr, MessageError> {
        Ok(SocketAddr::new(self.address()?, self.u16()))
    }

    pub(super) fn optional_address(&mut self) -> Result<Option<IpAddr>, MessageError> {
        let family = self.u8();
        let octets: [u8; 16] = self.take();
        let [a, b, c, d, ..] = octets;
        match family {
            FAMILY_NONE => Ok(None),
            FAMILY_V4 => Ok(Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))),
            FAMILY_V6 => Ok(Some(IpAddr::V6(Ipv6Addr::from(octets)))),
            _ => Err(MessageError::Value),
        }
    }
}
