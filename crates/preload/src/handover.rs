//! Listeners as text, one line for each descriptor, for the next program of `exec`.
//!
//! ```text
//! 6 0 10.0.0.2:80 4 1 0 511 1/2=01000000,6/9=05000000
//! ```
//!
//! Fields: descriptor, number shared by its copies, address, family, `O_NONBLOCK`, whether the
//! kernel's socket is bound to the same address, backlog (`-`: bound only), options. Owns nothing.
//! Called before and after `exec`.

use std::net::{Ipv4Addr, SocketAddr};

/// A socket option that was set: level, name, value.
pub type SetOption = (i32, i32, Vec<u8>);

/// The specification of a listener. Every process that has its descriptor can open it.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The address to which it is bound.
    pub local: SocketAddr,
    /// True for an IPv6 socket.
    pub is_v6: bool,
    /// Options that were set.
    pub options: Vec<SetOption>,
    /// Its calls did not wait at the time of `fork` or `exec`.
    pub is_nonblocking: bool,
    /// The kernel's socket behind the same descriptor is bound to the same address and listens,
    /// too.
    pub is_both: bool,
    /// The backlog given to `listen`; `None`: bound only.
    pub backlog: Option<i32>,
    /// True if the listener is open in this process's stack.
    pub is_open: bool,
}

impl Listener {
    /// The addresses and ports that the listener takes. An IPv6 socket on `::` also takes IPv4's,
    /// unless `IPV6_V6ONLY` is set.
    pub fn places(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        let is_only_v6 = self.options.iter().rev().find_map(|(level, name, value)| {
            let is_it = (*level, *name) == (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
            is_it.then(|| value.iter().any(|byte| *byte != 0))
        });
        let is_any = self.local.is_ipv6() && self.local.ip().is_unspecified();
        let is_dual = is_any && is_only_v6 != Some(true);
        let other = SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.local.port()));
        [Some(self.local), is_dual.then_some(other)]
            .into_iter()
            .flatten()
    }
}

/// A descriptor, the number that its copies share, and the listener.
pub type Inherited = (i32, usize, Listener);

/// The line of one descriptor.
pub fn line((fd, key, listener): &Inherited) -> String {
    let family = if listener.is_v6 { 6 } else { 4 };
    let nonblocking = u8::from(listener.is_nonblocking);
    let both = u8::from(listener.is_both);
    let backlog = match listener.backlog {
        Some(backlog) => backlog.to_string(),
        None => "-".to_owned(),
    };
    let option = |(level, name, value): &SetOption| {
        let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{level}/{name}={digits}")
    };
    let options: Vec<String> = listener.options.iter().map(option).collect();
    let (local, options) = (listener.local, options.join(","));
    format!("{fd} {key} {local} {family} {nonblocking} {both} {backlog} {options}\n")
}

/// The listeners in a text; `None`: the text is invalid.
pub fn parse(text: &str) -> Option<Vec<Inherited>> {
    text.lines().map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Inherited> {
    let mut words = line.split(' ');
    let mut word = || words.next();
    let (fd, key) = (word()?.parse().ok()?, word()?.parse().ok()?);
    let local = word()?.parse().ok()?;
    let (is_v6, is_nonblocking, is_both) = (word()? == "6", word()? == "1", word()? == "1");
    let backlog = match word()? {
        "-" => None,
        number => Some(number.parse().ok()?),
    };
    let options = word()?.split(',').filter(|part| !part.is_empty());
    let options = options.map(parse_option).collect::<Option<_>>()?;
    let listener = Listener {
        local,
        is_v6,
        options,
        is_nonblocking,
        is_both,
        backlog,
        is_open: false,
    };
    Some((fd, key, listener))
}

fn parse_option(text: &str) -> Option<SetOption> {
    let (name, value) = text.split_once('=')?;
    let (level, name) = name.split_once('/')?;
    let byte = |at: usize| u8::from_str_radix(value.get(at..at + 2)?, 16).ok();
    let bytes = (0..value.len())
        .step_by(2)
        .map(byte)
        .collect::<Option<_>>()?;
    Some((level.parse().ok()?, name.parse().ok()?, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_of_both_families_has_two_places() {
        let mut listener = Listener {
            local: "[::]:80".parse().expect("an address"),
            is_v6: true,
            options: Vec::new(),
            is_nonblocking: false,
            is_both: true,
            backlog: None,
            is_open: false,
        };
        assert_eq!(listener.places().count(), 2);
        let only = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, vec![1, 0, 0, 0]);
        listener.options.push(only);
        assert_eq!(listener.places().collect::<Vec<_>>(), [listener.local]);
        listener.local = "0.0.0.0:80".parse().expect("an address");
        listener.options.clear();
        assert_eq!(listener.places().count(), 1);
    }

    #[test]
    fn listeners_written_are_read() {
        let listener = |backlog: Option<i32>, options| Listener {
            local: "[2001:db8::1]:80".parse().expect("an address"),
            is_v6: true,
            options,
            is_nonblocking: true,
            is_both: backlog.is_some(),
            backlog,
            is_open: false,
        };
        let all = [
            (6, 0, listener(Some(511), vec![(1, 2, vec![1, 0, 0, 255])])),
            (7, 3, listener(None, vec![])),
        ];
        let text: String = all.iter().map(line).collect();
        let read = parse(&text).expect("text of ours");
        assert_eq!(format!("{read:?}"), format!("{all:?}"));
        for bad in [
            "6",
            "6 0 nowhere 4 0 0 - ",
            "6 0 10.0.0.1:80 4 0 0 - 1/2=0g",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
