//! Values as text: `repr`, `"%d" % value`, `f"{value:>5}"`, `"{}".format(value)`.

use super::Value;
use super::eval::{TOO_MANY, integer, number};

/// Largest width of a padded field, in characters.
const WIDTH_MAX: usize = 1000;

/// Text as from Python's `repr`: strings in quotes.
pub(super) fn repr(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("'{text}'"),
        other => other.to_string(),
    }
}

/// A format: `[[fill]align][sign][#][0][width][,][.precision][type]`.
#[derive(Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    has_plus: bool,
    has_prefix: bool,
    has_commas: bool,
    width: usize,
    precision: Option<usize>,
    kind: Option<char>,
}

impl Spec {
    fn parse(text: &str) -> Result<Spec, String> {
        let mut spec = Spec::default();
        let mut chars = text.chars().peekable();
        let is_align = |c: &char| matches!(c, '<' | '>' | '^' | '=');
        if text.chars().nth(1).as_ref().is_some_and(is_align) {
            spec.fill = chars.next();
        }
        spec.align = chars.next_if(is_align);
        while let Some(c) = chars.next_if(|c| matches!(c, '+' | '-' | ' ' | '#' | '0')) {
            match c {
                '+' => spec.has_plus = true,
                '-' => spec.align = Some('<'),
                '#' => spec.has_prefix = true,
                '0' => {
                    spec.fill.get_or_insert('0');
                    spec.align.get_or_insert('=');
                }
                _ => {}
            }
        }
        let digits = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            let mut number = 0usize;
            while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
                number = number.saturating_mul(10).saturating_add(digit as usize);
                chars.next();
            }
            number.min(WIDTH_MAX)
        };
        spec.width = digits(&mut chars);
        spec.has_commas = chars.next_if(|c| matches!(c, ',' | '_')).is_some();
        if chars.next_if_eq(&'.').is_some() {
            spec.precision = Some(digits(&mut chars));
        }
        spec.kind = chars.next();
        match chars.next() {
            None => Ok(spec),
            Some(_) => Err(format!("'{text}' is no format")),
        }
    }

    fn write(&self, value: &Value) -> Result<String, String> {
        let precision = self.precision;
        let real = |value: &Value| number(value).map(f64::abs);
        let whole = |value: &Value| match value {
            Value::Float(value) => Ok((*value as i128).unsigned_abs()),
            other => integer(other).map(i128::unsigned_abs),
        };
        let digits = match (self.kind, value) {
            (Some('s'), _)
            | (None, Value::Text(_) | Value::None | Value::Bool(_) | Value::Tuple(_)) => {
                let text = value.to_string();
                return Ok(self.pad(
                    "",
                    &text
                        .chars()
                        .take(precision.unwrap_or(usize::MAX))
                        .collect::<String>(),
                    '<',
                ));
            }
            (Some('r'), _) => return Ok(self.pad("", &repr(value), '<')),
            (Some('d' | 'i' | 'u'), _) | (None, Value::Int(_)) => whole(value)?.to_string(),
            (Some('x'), _) => self.prefixed("0x", format!("{:x}", whole(value)?)),
            (Some('X'), _) => self.prefixed("0X", format!("{:X}", whole(value)?)),
            (Some('b'), _) => self.prefixed("0b", format!("{:b}", whole(value)?)),
            (Some('o'), _) => self.prefixed("0o", format!("{:o}", whole(value)?)),
            (Some('f' | 'F'), _) => format!("{:.*}", precision.unwrap_or(6), real(value)?),
            (Some('e'), _) => format!("{:.*e}", precision.unwrap_or(6), real(value)?),
            (Some('%'), _) => format!("{:.*}%", precision.unwrap_or(6), real(value)? * 100.0),
            (Some('g'), _) => format!("{}", real(value)?),
            (None, _) => match precision {
                Some(precision) => format!("{:.precision$}", real(value)?),
                None => Value::Float(real(value)?).to_string(),
            },
            (Some(kind), _) => return Err(format!("no format '{kind}'")),
        };
        let is_negative = number(value)? < 0.0;
        let sign = match (is_negative, self.has_plus) {
            (true, _) => "-",
            (false, true) => "+",
            (false, false) => "",
        };
        let digits = if self.has_commas {
            commas(&digits)
        } else {
            digits
        };
        Ok(self.pad(sign, &digits, '>'))
    }

    fn prefixed(&self, prefix: &str, digits: String) -> String {
        match self.has_prefix {
            true => format!("{prefix}{digits}"),
            false => digits,
        }
    }

    fn pad(&self, sign: &str, text: &str, otherwise: char) -> String {
        let len = sign.chars().count() + text.chars().count();
        let fill = |count: usize| self.fill.unwrap_or(' ').to_string().repeat(count);
        let missing = self.width.saturating_sub(len);
        match self.align.unwrap_or(otherwise) {
            '<' => format!("{sign}{text}{}", fill(missing)),
            '^' => format!(
                "{}{sign}{text}{}",
                fill(missing / 2),
                fill(missing - missing / 2)
            ),
            '=' => format!("{sign}{}{text}", fill(missing)),
            _ => format!("{}{sign}{text}", fill(missing)),
        }
    }
}

/// `1234567.5` as `1,234,567.5`
fn commas(digits: &str) -> String {
    let whole = digits.find('.').unwrap_or(digits.len());
    let mut out = String::new();
    for (at, c) in digits.chars().enumerate() {
        if at > 0 && at < whole && (whole - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A value formatted as in an f-string.
pub(super) fn value(value: &Value, spec: &str) -> Result<String, String> {
    match spec {
        "" => Ok(value.to_string()),
        _ => Spec::parse(spec)?.write(value),
    }
}

/// Refuses a text of `len` bytes that exceeds `room`. Checked while the text grows, since a short
/// format may repeat a long argument.
pub(super) fn fits(len: usize, room: usize) -> Result<(), String> {
    match len > room {
        true => Err(TOO_MANY.to_owned()),
        false => Ok(()),
    }
}

/// The result of `"%d of %s" % (1, a)`, at most `room` bytes.
pub(super) fn percent(format: &str, arguments: &Value, room: usize) -> Result<String, String> {
    let arguments = match arguments {
        Value::Tuple(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut arguments = arguments.iter();
    let mut out = String::new();
    let mut rest = format;
    while let Some((before, behind)) = rest.split_once('%') {
        out += before;
        let end = behind.find(|c: char| c.is_ascii_alphabetic() || c == '%');
        let Some(end) = end else {
            return Err("a format string ends within a field".to_owned());
        };
        let (spec, behind) = behind.split_at(end + 1);
        rest = behind;
        if spec == "%" {
            out.push('%');
            continue;
        }
        // `%ld` is C's; Python takes it too.
        let (spec, behind) = match spec.strip_suffix('l') {
            Some(spec) if behind.starts_with(['d', 'u', 'i']) => (format!("{spec}d"), &behind[1..]),
            _ => (spec.to_owned(), behind),
        };
        rest = behind;
        let Some(value) = arguments.next() else {
            return Err("not enough arguments for a format string".to_owned());
        };
        out += &Spec::parse(&spec)?.write(value)?;
        fits(out.len(), room)?;
    }
    match arguments.next() {
        Some(_) => Err("not all arguments of a format string were used".to_owned()),
        None => Ok(out + rest),
    }
}

/// The result of `"{} of {1:x}".format(a, b)`, at most `room` bytes.
pub(super) fn braces(format: &str, arguments: &[Value], room: usize) -> Result<String, String> {
    let mut out = String::new();
    let (mut rest, mut next) = (format, 0);
    while let Some(at) = rest.find(['{', '}']) {
        let (before, behind) = rest.split_at(at);
        out += before;
        if behind.starts_with("{{") || behind.starts_with("}}") {
            out += &behind[..1];
            rest = &behind[2..];
            continue;
        }
        let Some(end) = behind.find('}').filter(|_| behind.starts_with('{')) else {
            return Err("a single brace in a format string".to_owned());
        };
        let (place, spec) = behind[1..end]
            .split_once(':')
            .unwrap_or((&behind[1..end], ""));
        let place: usize = match place {
            "" => next,
            number => number
                .parse()
                .map_err(|_| format!("no argument {number}"))?,
        };
        next = place.saturating_add(1);
        let Some(argument) = arguments.get(place) else {
            return Err("not enough arguments for a format string".to_owned());
        };
        out += &value(argument, spec)?;
        fits(out.len(), room)?;
        rest = &behind[end + 1..];
    }
    Ok(out + rest)
}
