//! The same keys in TOML: numbers and strings as such, several values as an array. `routes` and
//! `arp` replace `route.conf` and `arp.conf`. `[[rule]]` and `rule_default` are packet rules
//! ([`millstream::rules`]), which mTCP's grammar does not have.
//!
//! ```toml
//! io = "xdp"
//! port = "eth1"
//! ip_addr = ["10.0.0.2/24", "fd00::2/64"]
//! num_cores = 2
//! routes = ["10.0.0.1/0"]
//! arp = ["10.0.0.1/32 00:00:00:00:00:01"]
//!
//! [[rule]]
//! source = "203.0.113.0/24"
//! action = "deny"
//! ```

use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::{Problem, Settings, files, keys};

/// Reads a file's text.
pub fn read(settings: &mut Settings, file: &Path, text: &str) -> Result<(), Problem> {
    let line_of = |span: Range<usize>| 1 + text[..span.start.min(text.len())].matches('\n').count();
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(0, line_of);
        Problem::at(file, line, error.message())
    })?;
    settings.rules = millstream::rules::parse_among(text)
        .map_err(|error| Problem::at(file, error.line, error.why))?;
    for (key, value) in table.get_ref() {
        let line = line_of(key.span());
        let fail = |why: String| Problem::at(file, line, why);
        let name: &str = key.get_ref();
        if matches!(name, "rule" | "rule_default") {
            continue;
        }
        let texts = texts(value.get_ref()).ok_or_else(|| {
            fail(format!(
                "{name}: expected a number, a text or an array of them"
            ))
        })?;
        match name {
            "routes" => {
                for text in &texts {
                    files::add_route(settings, text).map_err(fail)?;
                }
            }
            "arp" => {
                for text in &texts {
                    files::add_neighbour(settings, text).map_err(fail)?;
                }
            }
            _ => keys::set(settings, name, &texts.join(" "), line).map_err(fail)?,
        }
    }
    Ok(())
}

fn texts(value: &DeValue<'_>) -> Option<Vec<String>> {
    match value {
        DeValue::Array(values) => values.iter().map(|value| text(value.get_ref())).collect(),
        _ => Some(vec![text(value)?]),
    }
}

fn text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            let digits = number.as_str();
            i64::from_str_radix(digits, number.radix())
                .ok()
                .map(|number| number.to_string())
        }
        _ => None,
    }
}
