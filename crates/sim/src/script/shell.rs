//! The shell commands of a script, as far as they mean something to a stack: settings.
//!
//! Nothing is executed. `sysctl`, writes to `/proc/sys` and `/sys/module/*/parameters` and the suites' own helpers become
//! [`Effect`]s; everything else is reported as ignored.

/// What a command would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    /// A setting by its `sysctl` name (`net.ipv4.tcp_ecn`), or `module.parameter` (`tcp_cubic.hystart`).
    Set { name: String, value: String },
    /// The suites' common settings.
    Defaults,
    /// Back to the settings at the script's start.
    Restore,
    /// What is remembered of peers is forgotten: `ip tcp_metrics flush`.
    ForgetPeers,
    /// A queue that takes nothing stands before the device, or is taken away.
    Congested(bool),
    /// The device takes packets of so many bytes: `ip link set .. mtu N`.
    Mtu(usize),
    /// It does nothing here; this is its text.
    Ignored(String),
}

/// What the commands of `text` would do, in order.
pub(super) fn effects(text: &str) -> Vec<Effect> {
    let mut effects = Vec::new();
    for command in commands(text) {
        effect(&command, &mut effects);
    }
    effects
}

/// The words of each command; a redirection is a word of its own.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars().peekable();
    let mut depth = 0u32;
    while let Some(c) = chars.next() {
        let ends_word = match (quote, c) {
            (Some(open), _) if c == open => {
                quote = None;
                continue;
            }
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
                continue;
            }
            (None | Some('"'), '\\') => {
                match chars.next() {
                    Some('\n') | None => {}
                    Some(escaped) => word.get_or_insert_default().push(escaped),
                }
                continue;
            }
            (None, '#') if word.is_none() => {
                while chars.next_if(|c| *c != '\n').is_some() {}
                continue;
            }
            (None, '(') => {
                depth += 1;
                false
            }
            (None, ')') => {
                depth = depth.saturating_sub(1);
                false
            }
            (None, _) => depth == 0 && (c.is_whitespace() || ";&|>".contains(c)),
            _ => false,
        };
        if !ends_word {
            word.get_or_insert_default().push(c);
            continue;
        }
        let is_redirected = c == '>'
            && word
                .as_ref()
                .is_none_or(|w| !w.chars().all(|c| c.is_ascii_digit()));
        if c == '>' && !is_redirected {
            // `2>/dev/null`, `2>&1`: not the output.
            word = None;
            while chars.next_if(|c| *c == ' ').is_some() {}
            while chars.next_if(|c| !c.is_whitespace() && *c != ';').is_some() {}
            continue;
        }
        if let (Some(word), Some(command)) = (word.take(), commands.last_mut()) {
            command.push(word);
        }
        match (c, commands.last_mut()) {
            ('>', Some(command)) => command.push(">".to_owned()),
            ('\n' | ';' | '&' | '|', _) => commands.push(Vec::new()),
            _ => {}
        }
    }
    if let (Some(word), Some(command)) = (word, commands.last_mut()) {
        command.push(word);
    }
    commands.retain(|command| !command.is_empty());
    commands
}

fn effect(command: &[String], out: &mut Vec<Effect>) {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let ignored = || Effect::Ignored(words.join(" "));
    match words.as_slice() {
        [path, ..] if path.ends_with("defaults.sh") => {
            out.push(Effect::Defaults);
            if *path == "./defaults.sh" {
                // The kernel's own copy of the file differs from the older one in this.
                out.extend(setting("net.ipv4.tcp_fastopen=0x3"));
            }
        }
        [path, ..] if path.contains("sysctl_restore") => out.push(Effect::Restore),
        [path, rest @ ..] if path.ends_with("set_sysctls.py") => {
            for word in rest {
                out.push(file_setting(word).unwrap_or_else(ignored));
            }
        }
        ["sysctl", rest @ ..] => {
            for word in rest.iter().filter(|word| word.contains('=')) {
                out.push(setting(word).unwrap_or_else(ignored));
            }
        }
        ["echo" | "printf", value @ .., ">", path] => {
            let value: Vec<&str> = value.iter().copied().filter(|word| *word != "-n").collect();
            let written = format!("{path}={}", value.join(" "));
            out.push(file_setting(&written).unwrap_or_else(ignored));
        }
        ["ip", rest @ ..] if rest.contains(&"tcp_metrics") => out.push(Effect::ForgetPeers),
        ["ip", "link" | "l", .., "mtu", bytes] => out.push(match bytes.parse() {
            Ok(bytes) => Effect::Mtu(bytes),
            Err(_) => ignored(),
        }),
        ["tc", "qdisc", verb, rest @ ..] => {
            let takes_nothing = rest.windows(2).any(|pair| pair == ["limit", "0"]);
            out.push(match *verb {
                "add" | "replace" | "change" if takes_nothing => Effect::Congested(true),
                _ => Effect::Congested(false),
            });
        }
        _ => out.push(ignored()),
    }
}

/// `net.ipv4.tcp_ecn=1`
fn setting(word: &str) -> Option<Effect> {
    let (name, value) = word.split_once('=')?;
    Some(Effect::Set {
        name: name.trim().replace('/', "."),
        value: arithmetic(value.trim()),
    })
}

/// `/proc/sys/net/ipv4/tcp_ecn=1`, `/sys/module/tcp_cubic/parameters/hystart=0`
fn file_setting(word: &str) -> Option<Effect> {
    let (path, value) = word.split_once('=')?;
    let name = if let Some(name) = path.strip_prefix("/proc/sys/") {
        name.replace('/', ".")
    } else {
        let (module, parameter) = path
            .strip_prefix("/sys/module/")?
            .split_once("/parameters/")?;
        format!("{module}.{parameter}")
    };
    Some(Effect::Set {
        name,
        value: arithmetic(value),
    })
}

/// Replaces `$((15*1024))`, products of numbers, by their value.
fn arithmetic(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("$((") {
        let Some((product, behind)) = after.split_once("))") else {
            break;
        };
        let factors: Option<Vec<u64>> = product.split('*').map(|f| f.trim().parse().ok()).collect();
        let Some(factors) = factors else {
            break;
        };
        out += before;
        out += &factors
            .iter()
            .fold(1u64, |all, f| all.saturating_mul(*f))
            .to_string();
        rest = behind;
    }
    out + rest
}

#[cfg(test)]
mod tests;
