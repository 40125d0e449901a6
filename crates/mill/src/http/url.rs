//! The URLs that `mill get` accepts: `http://host[:port][/path][?query]`. Called by the command
//! line.

use std::fmt;

/// A parsed http URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// A name or an address, without the brackets of IPv6.
    pub host: String,
    pub port: u16,
    /// Path and query with a leading slash: the request target.
    pub target: String,
}

/// The reason why a URL is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("https is not supported: the URL must begin with http://")]
    Https,
    #[error("the URL does not begin with http://")]
    Scheme,
    #[error("the URL names no host")]
    Host,
    #[error("the URL holds a user name, which is not supported")]
    UserInfo,
    #[error("the port is no number from 1 to 65535")]
    Port,
    #[error("the URL holds a space or a control character")]
    Character,
}

impl std::str::FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(UrlError::Character);
        }
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        match scheme.to_ascii_lowercase().as_str() {
            "http" => {}
            "https" => return Err(UrlError::Https),
            _ => return Err(UrlError::Scheme),
        }
        let rest = rest.split('#').next().unwrap_or(rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            return Err(UrlError::UserInfo);
        }
        let (host, port) = host_and_port(authority)?;
        let target = if target.starts_with('/') {
            target.to_owned()
        } else {
            format!("/{target}")
        };
        Ok(Self { host, port, target })
    }
}

fn host_and_port(authority: &str) -> Result<(String, u16), UrlError> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or(UrlError::Host)?;
            let port = match after {
                "" => None,
                after => Some(after.strip_prefix(':').ok_or(UrlError::Port)?),
            };
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err(UrlError::Host);
    }
    let port = match port {
        None | Some("") => 80,
        Some(port) => port
            .parse()
            .ok()
            .filter(|&port| port != 0)
            .ok_or(UrlError::Port)?,
    };
    Ok((host.to_owned(), port))
}

impl Url {
    /// The value of the `Host` field.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        if self.port == 80 {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// The last part of the path, for the name of a file. `None` if the path ends with a slash.
    pub fn file_name(&self) -> Option<&str> {
        let path = self.target.split('?').next()?;
        let name = path.rsplit('/').next()?;
        (!matches!(name, "" | "." | "..")).then_some(name)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "http://{}{}", self.authority(), self.target)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(text: &str) -> (String, u16, String) {
        let url: Url = text.parse().unwrap();
        (url.host, url.port, url.target)
    }

    #[test]
    fn urls_are_taken_apart() {
        assert_eq!(
            parts("http://10.0.0.2"),
            ("10.0.0.2".into(), 80, "/".into())
        );
        assert_eq!(
            parts("HTTP://h:8080/a/b?c=/d#e"),
            ("h".into(), 8080, "/a/b?c=/d".into())
        );
        assert_eq!(
            parts("http://[fd00::2]:81?x"),
            ("fd00::2".into(), 81, "/?x".into())
        );
        assert_eq!(parts("http://h:/"), ("h".into(), 80, "/".into()));
    }

    #[test]
    fn text_that_is_no_url_says_why() {
        for (text, error) in [
            ("", UrlError::Scheme),
            ("h/a", UrlError::Scheme),
            ("ftp://h/", UrlError::Scheme),
            ("https://h/", UrlError::Https),
            ("http://", UrlError::Host),
            ("http:///a", UrlError::Host),
            ("http://[::1/", UrlError::Host),
            ("http://[::1]x/", UrlError::Port),
            ("http://h:0/", UrlError::Port),
            ("http://h:65536/", UrlError::Port),
            ("http://u@h/", UrlError::UserInfo),
            ("http://h/a b", UrlError::Character),
            ("http://h/a\r\nX: y", UrlError::Character),
        ] {
            assert_eq!(text.parse::<Url>(), Err(error), "{text}");
        }
    }

    #[test]
    fn file_name_is_the_last_part() {
        let name = |text: &str| text.parse::<Url>().unwrap().file_name().map(str::to_owned);
        assert_eq!(name("http://h/a/b.bin?x=/y"), Some("b.bin".into()));
        assert_eq!(name("http://h/a/"), None);
        assert_eq!(name("http://h/.."), None);
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_no_harm(text in "(http://)?\\PC{0,40}") {
            if let Ok(url) = text.parse::<Url>() {
                prop_assert_eq!(url.to_string().parse::<Url>(), Ok(url));
            }
        }
    }
}
