//! The layout of each message: the number of its type, and its fields in order.
//!
//! The functions that write and read a type follow the same order of fields. `message` calls them
//! and adds version and type.

use super::super::field::{Reader, Writer};
use super::{
    Change, Claim, Hello, Lease, Memory, Message, MessageError, Move, PortKind, Query, Route, Seek,
    Tuple, VirtualPort, Welcome,
};
use crate::port::ChecksumPolicy;
use crate::text::Text;

const HELLO: u16 = 1;
const WELCOME: u16 = 2;
const MEMORY: u16 = 3;
const PORT: u16 = 4;
const CLAIM: u16 = 5;
const GRANTED: u16 = 6;
const REFUSED: u16 = 7;
const RELEASE: u16 = 8;
const LEASE: u16 = 9;
const LEASED: u16 = 10;
const RETURN: u16 = 11;
const RESOLVE: u16 = 12;
const NEXT_HOP: u16 = 13;
const CHANGE: u16 = 14;
const LEDGER: u16 = 15;
const RECOVER: u16 = 16;
const REVOKE: u16 = 17;
const STOPPING: u16 = 18;
const QUERY: u16 = 19;
const ANSWER: u16 = 20;
const JOIN: u16 = 21;
const MOVE: u16 = 22;
const BULK_ASK: u16 = 23;
const BULK: u16 = 24;
const BOUND: u16 = 25;
const FORGET: u16 = 26;
const PORT_ASK: u16 = 27;
const SEEK: u16 = 28;
const ACCEPTS: u16 = 29;

impl Message {
    /// The number of the message's type.
    pub(super) fn number(&self) -> u16 {
        match self {
            Self::Hello(_) => HELLO,
            Self::Join(_) => JOIN,
            Self::Welcome(_) => WELCOME,
            Self::Memory(_) => MEMORY,
            Self::Port(_) => PORT,
            Self::Claim(_) => CLAIM,
            Self::Granted { .. } => GRANTED,
            Self::Refused { .. } => REFUSED,
            Self::Release(_) => RELEASE,
            Self::Lease(_) => LEASE,
            Self::Leased(_) => LEASED,
            Self::Return(_) => RETURN,
            Self::Resolve { .. } => RESOLVE,
            Self::NextHop { .. } => NEXT_HOP,
            Self::Change(_) => CHANGE,
            Self::Ledger { .. } => LEDGER,
            Self::Recover { .. } => RECOVER,
            Self::Revoke { .. } => REVOKE,
            Self::Stopping { .. } => STOPPING,
            Self::Query { .. } => QUERY,
            Self::Answer { .. } => ANSWER,
            Self::Move(_) => MOVE,
            Self::BulkAsk { .. } => BULK_ASK,
            Self::Bulk { .. } => BULK,
            Self::Bound(_) => BOUND,
            Self::Forget { .. } => FORGET,
            Self::PortAsk { .. } => PORT_ASK,
            Self::Seek(_) => SEEK,
            Self::Accepts(_) => ACCEPTS,
        }
    }
}

/// Writes the fields behind the type.
pub(super) fn write(message: &Message, w: &mut Writer) {
    match message {
        Message::Hello(hello) | Message::Join(hello) => hello.write(w),
        Message::Welcome(welcome) => welcome.write(w),
        Message::Memory(memory) => memory.write(w),
        Message::Port(port) => port.write(w),
        Message::Claim(claim)
        | Message::Release(claim)
        | Message::Bound(claim)
        | Message::Accepts(claim) => claim.write(w),
        Message::Lease(lease) | Message::Leased(lease) | Message::Return(lease) => lease.write(w),
        Message::Resolve { request, address } => {
            w.u32(*request);
            w.address(*address);
        }
        Message::NextHop {
            request,
            address,
            mac,
        } => {
            w.u32(*request);
            w.address(*address);
            w.mac(*mac);
        }
        Message::Change(change) => change.write(w),
        Message::Revoke { tuple, errno } => {
            tuple.write(w);
            w.u16(*errno);
        }
        Message::Query { request, query } => {
            w.u32(*request);
            w.u8(query.number());
        }
        Message::Move(one) => one.write(w),
        Message::Seek(seek) => seek.write(w),
        Message::Forget {
            context,
            local,
            remote,
        } => {
            w.u16(*context);
            w.end(*local);
            w.end(*remote);
        }
        numbers => write_numbers(numbers, w),
    }
}

/// Writes the fields of a message that consists only of numbers.
fn write_numbers(message: &Message, w: &mut Writer) {
    match message {
        Message::Granted { request } | Message::Bulk { request } => w.u32(*request),
        Message::BulkAsk { request, context } => {
            w.u32(*request);
            w.u16(*context);
        }
        Message::Refused { request, errno } => {
            w.u32(*request);
            w.u16(*errno);
        }
        Message::PortAsk {
            context,
            ledger_entries,
        } => {
            w.u16(*context);
            w.u32(*ledger_entries);
        }
        Message::Ledger { context, bytes } => {
            w.u16(*context);
            w.u64(*bytes);
        }
        Message::Recover {
            request,
            application,
            context,
        } => {
            w.u32(*request);
            w.u16(*application);
            w.u16(*context);
        }
        Message::Stopping { stays } => w.flag(*stays),
        Message::Answer { request, bytes } => {
            w.u32(*request);
            w.u64(*bytes);
        }
        _ => {}
    }
}

/// Reads the fields behind the type.
pub(super) fn read(number: u16, r: &mut Reader<'_>) -> Result<Message, MessageError> {
    Ok(match number {
        HELLO => Message::Hello(Hello::read(r)),
        JOIN => Message::Join(Hello::read(r)),
        WELCOME => Message::Welcome(Welcome::read(r)?),
        MEMORY => Message::Memory(Memory::read(r)),
        PORT => Message::Port(VirtualPort::read(r)?),
        CLAIM => Message::Claim(Claim::read(r)?),
        GRANTED => Message::Granted { request: r.u32() },
        REFUSED => Message::Refused {
            request: r.u32(),
            errno: r.u16(),
        },
        RELEASE => Message::Release(Claim::read(r)?),
        LEASE => Message::Lease(Lease::read(r)),
        LEASED => Message::Leased(Lease::read(r)),
        RETURN => Message::Return(Lease::read(r)),
        RESOLVE => Message::Resolve {
            request: r.u32(),
            address: r.address()?,
        },
        NEXT_HOP => Message::NextHop {
            request: r.u32(),
            address: r.address()?,
            mac: r.mac(),
        },
        CHANGE => Message::Change(Change::read(r)?),
        LEDGER => Message::Ledger {
            context: r.u16(),
            bytes: r.u64(),
        },
        RECOVER => Message::Recover {
            request: r.u32(),
            application: r.u16(),
            context: r.u16(),
        },
        REVOKE => Message::Revoke {
            tuple: Tuple::read(r)?,
            errno: r.u16(),
        },
        STOPPING => Message::Stopping { stays: r.flag()? },
        QUERY => Message::Query {
            request: r.u32(),
            query: Query::from_number(r.u8())?,
        },
        ANSWER => Message::Answer {
            request: r.u32(),
            bytes: r.u64(),
        },
        PORT_ASK => Message::PortAsk {
            context: r.u16(),
            ledger_entries: r.u32(),
        },
        MOVE => Message::Move(Move::read(r)?),
        SEEK => Message::Seek(Seek::read(r)?),
        ACCEPTS => Message::Accepts(Claim::read(r)?),
        BULK_ASK => Message::BulkAsk {
            request: r.u32(),
            context: r.u16(),
        },
        BULK => Message::Bulk { request: r.u32() },
        BOUND => Message::Bound(Claim::read(r)?),
        FORGET => Message::Forget {
            context: r.u16(),
            local: r.end()?,
            remote: r.end()?,
        },
        _ => return Err(MessageError::Type(number)),
    })
}

impl Hello {
    fn write(&self, w: &mut Writer) {
        w.put(&self.name.0);
        w.u16(self.contexts);
    }

    fn read(r: &mut Reader<'_>) -> Self {
        Self {
            name: Text(r.take()),
            contexts: r.u16(),
        }
    }
}

impl Welcome {
    fn write(&self, w: &mut Writer) {
        w.u16(self.application);
        w.mac(self.mac);
        w.u32(self.mtu);
        w.u8(match self.rx_checksum {
            ChecksumPolicy::Verify => 0,
            ChecksumPolicy::AcceptPartial => 1,
            ChecksumPolicy::Trust => 2,
        });
        w.flag(self.link_is_up);
        w.u32(self.ifindex);
        w.put(&self.interface.0);
        w.u32(self.ledger_entries_max);
        self.kind.write(w);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, MessageError> {
        Ok(Self {
            application: r.u16(),
            mac: r.mac(),
            mtu: r.u32(),
            rx_checksum: match r.u8() {
                0 => ChecksumPolicy::Verify,
                1 => ChecksumPolicy::AcceptPartial,
                2 => ChecksumPolicy::Trust,
                _ => return Err(MessageError::Value),
            },
            link_is_up: r.flag()?,
            ifindex: r.u32(),
            interface: Text(r.take()),
            ledger_entries_max: r.u32(),
            kind: PortKind::read(r)?,
        })
    }
}

impl Memory {
    fn write(&self, w: &mut Writer) {
        w.u16(self.context);
        w.u64(self.bytes);
        w.u32(self.chunk_bytes);
        w.u32(self.headroom_bytes);
        w.u32(self.fill_slots);
        w.u32(self.completion_slots);
        w.u32(self.rx_slots);
        w.u32(self.tx_slots);
        w.u32(self.ledger_entries);
    }

    fn read(r: &mut Reader<'_>) -> Self {
        Self {
            context: r.u16(),
            bytes: r.u64(),
            chunk_bytes: r.u32(),
            headroom_bytes: r.u32(),
            fill_slots: r.u32(),
            completion_slots: r.u32(),
            rx_slots: r.u32(),
            tx_slots: r.u32(),
            ledger_entries: r.u32(),
        }
    }
}

impl VirtualPort {
    fn write(&self, w: &mut Writer) {
        w.u16(self.context);
        w.u64(self.cookie);
        self.kind.write(w);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, MessageError> {
        Ok(Self {
            context: r.u16(),
            cookie: r.u64(),
            kind: PortKind::read(r)?,
        })
    }
}

impl PortKind {
    fn write(self, w: &mut Writer) {
        w.u8(match self {
            Self::Xdp => 0,
            Self::Memif => 1,
        });
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, MessageError> {
        match r.u8() {
            0 => Ok(Self::Xdp),
            1 => Ok(Self::Memif),
            _ => Err(MessageError::Value),
        }
    }
}

impl Tuple {
    fn write(&self, w: &mut Writer) {
        w.u8(self.protocol);
        w.address(self.address);
        w.u16(self.port);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, MessageError> {
        Ok(Self {
            protocol: r.u8(),
            address: r.address()?,
            port: r.u16(),
        })
    }
}

impl Claim {
    fn write(&self, w: &mut Writer) {
        w.u32(self.request);
        w.u16(self.context);
        self.tuple.write(w);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, MessageError> {
        Ok(Self {
            request: r.u32(),
            context: r.u16(),
            tuple: Tuple::read(r)?,
        })
    }
}

impl Move {
    fn write(&self, w: &mut Writer) {
        w.u32(self.request);
        w.u16(self.context);
        self.tuple.write(w);
        w.address(self.local);
        w.end(self.remote);
        w.u32(self.bytes);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, MessageError> {
        Ok(Self {
            request: r.u32(),
            context: r.u16(),
            tuple: Tuple::read(r)?,
            local: r.address()?,
            remote: r.end()?,
            bytes: r.u32(),
        })
    }
}

impl Seek {
    fn write(&self, w: &mut Writer) {
        w.u32(self.request);
        w.u16(self.context);
        self.tuple.write(w);
        w.flag(self.accepts);
        w.flag(self.is_urgent);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, MessageError> {
        Ok(Self {
            request: r.u32(),
            context: r.u16(),
            tuple: Tuple::read(r)?,
            accepts: r.flag()?,
            is_urgent: r.flag()?,
        })
    }
}

impl Lease {
    fn write(&self, w: &mut Writer) {
        w.u32(self.request);
        w.u16(self.context);
        w.u16(self.first);
        w.u16(self.ports);
    }

    fn read(r: &mut Reader<'_>) -> Self {
        Self {
            request: r.u32(),
            context: r.u16(),
            first: r.u16(),
            ports: r.u16(),
        }
    }
}

impl Route {
    fn write(&self, w: &mut Writer) {
        w.address(self.destination);
        w.u8(self.prefix);
        w.optional_address(self.gateway);
        w.optional_address(self.source);
        w.u32(self.mtu);
        w.u32(self.metric);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, MessageError> {
        Ok(Self {
            destination: r.address()?,
            prefix: r.u8(),
            gateway: r.optional_address()?,
            source: r.optional_address()?,
            mtu: r.u32(),
            metric: r.u32(),
        })
    }
}

const COMPLETE: u8 = 0;
const LINK: u8 = 1;
const MAC: u8 = 2;
const MTU: u8 = 3;
const ADDRESS_ADDED: u8 = 4;
const ADDRESS_REMOVED: u8 = 5;
const ROUTE_ADDED: u8 = 6;
const ROUTE_REMOVED: u8 = 7;
const NEIGHBOUR: u8 = 8;
const GONE: u8 = 9;
const OWN_HOP: u8 = 10;

impl Change {
    fn number(&self) -> u8 {
        match self {
            Self::Complete => COMPLETE,
            Self::Link { .. } => LINK,
            Self::Mac(_) => MAC,
            Self::Mtu(_) => MTU,
            Self::AddressAdded { .. } => ADDRESS_ADDED,
            Self::AddressRemoved { .. } => ADDRESS_REMOVED,
            Self::RouteAdded(_) => ROUTE_ADDED,
            Self::RouteRemoved(_) => ROUTE_REMOVED,
            Self::NextHop { .. } => NEIGHBOUR,
            Self::Gone => GONE,
            Self::OwnHop(_) => OWN_HOP,
        }
    }

    fn write(&self, w: &mut Writer) {
        w.u8(self.number());
        match self {
            Self::Complete | Self::Gone => {}
            Self::Link { is_up } => w.flag(*is_up),
            Self::Mac(mac) => w.mac(*mac),
            Self::OwnHop(mac) => w.optional_mac(*mac),
            Self::Mtu(mtu) => w.u32(*mtu),
            Self::AddressAdded { address, prefix } | Self::AddressRemoved { address, prefix } => {
                w.address(*address);
                w.u8(*prefix);
            }
            Self::RouteAdded(route) | Self::RouteRemoved(route) => route.write(w),
            Self::NextHop { address, mac } => {
                w.address(*address);
                w.optional_mac(*mac);
            }
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, MessageError> {
        Ok(match r.u8() {
            COMPLETE => Self::Complete,
            LINK => Self::Link { is_up: r.flag()? },
            MAC => Self::Mac(r.mac()),
            MTU => Self::Mtu(r.u32()),
            ADDRESS_ADDED => Self::AddressAdded {
                address: r.address()?,
                prefix: r.u8(),
            },
            ADDRESS_REMOVED => Self::AddressRemoved {
                address: r.address()?,
                prefix: r.u8(),
            },
            ROUTE_ADDED => Self::RouteAdded(Route::read(r)?),
            ROUTE_REMOVED => Self::RouteRemoved(Route::read(r)?),
            NEIGHBOUR => Self::NextHop {
                address: r.address()?,
                mac: r.optional_mac()?,
            },
            GONE => Self::Gone,
            OWN_HOP => Self::OwnHop(r.optional_mac()?),
            _ => return Err(MessageError::Value),
        })
    }
}

impl Query {
    fn number(self) -> u8 {
        match self {
            Self::Status => 1,
            Self::Ports => 2,
            Self::Drops => 3,
            Self::Check => 4,
            Self::Stop => 5,
        }
    }

    fn from_number(number: u8) -> Result<Self, MessageError> {
        Ok(match number {
            1 => Self::Status,
            2 => Self::Ports,
            3 => Self::Drops,
            4 => Self::Check,
            5 => Self::Stop,
            _ => return Err(MessageError::Value),
        })
    }
}
