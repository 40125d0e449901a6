//! Functions that code may call, methods of strings and lists, and slices of lists.

use std::cmp::Ordering;
use std::fmt::Write as _;

use super::eval::{binary, integer, is_true, negated, number, order};
use super::{Python, Value, format};
use crate::limits::MEMBERS_MAX;

/// The result of the function `name`; `options` are its keyword arguments.
pub(super) fn call(
    python: &mut Python,
    name: &str,
    arguments: &[Value],
    options: &[(&str, Value)],
) -> Result<Value, String> {
    let spread = match arguments {
        [Value::Tuple(parts)] => parts,
        _ => arguments,
    };
    match (name, arguments) {
        ("print" | "sys.stdout.write" | "sys.stderr.write", _) => {
            let words: Vec<String> = arguments.iter().map(Value::to_string).collect();
            let _ = writeln!(python.output, "{}", words.join(" ").trim_end_matches('\n'));
            Ok(Value::None)
        }
        ("exit" | "sys.exit", []) => exit(python, &Value::None),
        ("exit" | "sys.exit", [status]) => exit(python, status),
        ("min", _) => extreme(spread, options, Ordering::Less),
        ("max", _) => extreme(spread, options, Ordering::Greater),
        ("sorted", [values]) => sorted(values, options),
        _ if !options.is_empty() => Err(format!("{name} takes no argument {}", options[0].0)),
        ("bool", [value]) => Ok(Value::Bool(is_true(value))),
        ("str", [value]) => Ok(Value::Text(value.to_string())),
        ("repr", [value]) => Ok(Value::Text(format::repr(value))),
        ("format", [value]) => format::value(value, "").map(Value::Text),
        ("format", [value, Value::Text(spec)]) => format::value(value, spec).map(Value::Text),
        ("hex", [value]) => format::value(&Value::Int(integer(value)?), "#x").map(Value::Text),
        ("bin", [value]) => format::value(&Value::Int(integer(value)?), "#b").map(Value::Text),
        ("oct", [value]) => format::value(&Value::Int(integer(value)?), "#o").map(Value::Text),
        ("len", [Value::Text(text)]) => Ok(Value::Int(text.chars().count() as i128)),
        ("len", [Value::Tuple(parts)]) => Ok(Value::Int(parts.len() as i128)),
        _ => match of_list(name, arguments, python.room())? {
            Some(value) => Ok(value),
            None => of_numbers(name, arguments, python.room()),
        },
    }
}

/// Ends the code: successfully, or with a status or text.
fn exit(python: &mut Python, status: &Value) -> Result<Value, String> {
    if is_true(status) {
        return Err(format!("the code exits with {status}"));
    }
    python.is_over = true;
    Ok(Value::None)
}

fn of_list(name: &str, arguments: &[Value], room: usize) -> Result<Option<Value>, String> {
    let all = || members(arguments.first().cloned().unwrap_or(Value::None));
    let value = match (name, arguments.len()) {
        ("list" | "tuple", 0) => Value::Tuple(Vec::new()),
        ("list" | "tuple", 1) => Value::Tuple(all()?),
        ("set" | "frozenset", 1) => {
            let mut found: Vec<Value> = Vec::new();
            let mut compared = 0;
            for value in all()? {
                compared += found.len();
                format::fits(compared, room)?;
                if !found.contains(&value) {
                    found.push(value);
                }
            }
            // Sorted, so that two sets of the same members are equal.
            Value::Tuple(in_order(found))
        }
        ("reversed", 1) => Value::Tuple(all()?.into_iter().rev().collect()),
        ("enumerate", 1) => {
            let numbered = all()?.into_iter().enumerate();
            let pair = |(at, value)| Value::Tuple(vec![Value::Int(at as i128), value]);
            Value::Tuple(numbered.map(pair).collect())
        }
        ("zip", 2) => {
            let pairs = all()?.into_iter().zip(members(arguments[1].clone())?);
            Value::Tuple(pairs.map(|(a, b)| Value::Tuple(vec![a, b])).collect())
        }
        ("any", 1) => Value::Bool(all()?.iter().any(is_true)),
        ("all", 1) => Value::Bool(all()?.iter().all(is_true)),
        ("sum", 1 | 2) => {
            let mut sum = arguments.get(1).cloned().unwrap_or(Value::Int(0));
            for value in all()? {
                sum = binary("+", sum, value, room)?;
            }
            sum
        }
        ("range", 1..=3) => range(arguments)?,
        _ => return Ok(None),
    };
    Ok(Some(value))
}

fn of_numbers(name: &str, arguments: &[Value], room: usize) -> Result<Value, String> {
    let whole = |value: f64| Ok(Value::Int(value as i128));
    match (name, arguments) {
        ("int", []) => Ok(Value::Int(0)),
        ("int", [value]) => int(value, 10),
        ("int", [value, base]) => int(value, integer(base)?),
        ("float", [value]) => number(value).map(Value::Float),
        ("abs" | "math.fabs" | "fabs", [Value::Float(value)]) => Ok(Value::Float(value.abs())),
        ("abs", [value]) => match integer(value)? {
            value @ ..0 => negated(value),
            value => Ok(Value::Int(value)),
        },
        ("round", [value]) => whole(number(value)?.round_ties_even()),
        ("round", [value, digits]) => {
            let (value, digits) = (number(value)?, integer(digits)?.clamp(-30, 30));
            let rounded = match usize::try_from(digits) {
                // Rounding looks at the number's own decimal digits; a product would round first.
                Ok(digits) => format!("{value:.digits$}").parse().unwrap_or(value),
                Err(_) => {
                    let scale = 10f64.powi(-digits as i32);
                    (value / scale).round_ties_even() * scale
                }
            };
            Ok(Value::Float(rounded))
        }
        ("pow" | "math.pow", [base, exponent]) => {
            binary("**", base.clone(), exponent.clone(), room)
        }
        ("divmod", [left, right]) => Ok(Value::Tuple(vec![
            binary("//", left.clone(), right.clone(), room)?,
            binary("%", left.clone(), right.clone(), room)?,
        ])),
        ("math.ceil" | "ceil", [value]) => whole(number(value)?.ceil()),
        ("math.floor" | "floor", [value]) => whole(number(value)?.floor()),
        ("math.trunc" | "trunc", [value]) => whole(number(value)?),
        ("math.sqrt" | "sqrt", [value]) => Ok(Value::Float(number(value)?.sqrt())),
        ("math.log" | "log", [value]) => Ok(Value::Float(number(value)?.ln())),
        ("math.log2" | "log2", [value]) => Ok(Value::Float(number(value)?.log2())),
        _ => Err(format!(
            "no function {name} of {} arguments",
            arguments.len()
        )),
    }
}

fn int(value: &Value, base: i128) -> Result<Value, String> {
    match value {
        Value::Float(value) => Ok(Value::Int(*value as i128)),
        Value::Text(text) => {
            let digits = text.trim();
            let bare = match base {
                16 => digits.trim_start_matches("0x"),
                2 => digits.trim_start_matches("0b"),
                8 => digits.trim_start_matches("0o"),
                _ => digits,
            };
            let read = match base {
                2..=36 => i128::from_str_radix(bare, base as u32).ok(),
                _ => None,
            };
            read.map(Value::Int)
                .ok_or_else(|| format!("{text:?} is no integer"))
        }
        other => integer(other).map(Value::Int),
    }
}

fn range(arguments: &[Value]) -> Result<Value, String> {
    let mut numbers = Vec::new();
    for value in arguments {
        numbers.push(integer(value)?);
    }
    let (mut at, end, step) = match numbers[..] {
        [end] => (0, end, 1),
        [start, end] => (start, end, 1),
        [start, end, step, ..] => (start, end, step),
        [] => (0, 0, 1),
    };
    if step == 0 {
        return Err("range() by steps of 0".to_owned());
    }
    let mut found = Vec::new();
    while (step > 0 && at < end) || (step < 0 && at > end) {
        if found.len() >= MEMBERS_MAX {
            return Err("a list is too long".to_owned());
        }
        found.push(Value::Int(at));
        match at.checked_add(step) {
            Some(next) => at = next,
            None => break,
        }
    }
    Ok(Value::Tuple(found))
}

fn option<'a>(options: &'a [(&str, Value)], name: &str) -> Option<&'a Value> {
    let mut found = options.iter().filter(|option| option.0 == name);
    found.next().map(|option| &option.1)
}

fn extreme(values: &[Value], options: &[(&str, Value)], wanted: Ordering) -> Result<Value, String> {
    let mut values = values.iter();
    let Some(mut best) = values.next() else {
        let otherwise = option(options, "default").cloned();
        return otherwise.ok_or_else(|| "min and max of nothing".to_owned());
    };
    for value in values {
        if order(value, best) == Some(wanted) {
            best = value;
        }
    }
    Ok(best.clone())
}

fn sorted(values: &Value, options: &[(&str, Value)]) -> Result<Value, String> {
    let mut values = in_order(members(values.clone())?);
    if option(options, "reverse").is_some_and(is_true) {
        values.reverse();
    }
    Ok(Value::Tuple(values))
}

/// Merge sort of values of which some have no order among each other. Those stay about where they
/// are. The library's sort may panic on such an order.
fn in_order(mut values: Vec<Value>) -> Vec<Value> {
    if values.len() < 2 {
        return values;
    }
    let mut behind = in_order(values.split_off(values.len() / 2))
        .into_iter()
        .peekable();
    let mut sorted = Vec::with_capacity(values.len() + behind.len());
    for value in in_order(values) {
        while let Some(less) = behind.next_if(|next| order(next, &value) == Some(Ordering::Less)) {
            sorted.push(less);
        }
        sorted.push(value);
    }
    sorted.extend(behind);
    sorted
}

/// The members that a loop goes over.
pub(super) fn members(value: Value) -> Result<Vec<Value>, String> {
    match value {
        Value::Tuple(parts) => Ok(parts),
        Value::Text(text) => Ok(text.chars().map(|c| Value::Text(c.to_string())).collect()),
        other => Err(format!("{other} has no members")),
    }
}

fn again(of: &Value, parts: Vec<Value>) -> Value {
    match of {
        Value::Text(_) => Value::Text(parts.iter().map(Value::to_string).collect()),
        _ => Value::Tuple(parts),
    }
}

pub(super) fn index(of: &Value, index: &Value) -> Result<Value, String> {
    let parts = members(of.clone())?;
    let at = integer(index)?;
    let at = if at < 0 { at + parts.len() as i128 } else { at };
    let part = usize::try_from(at).ok().and_then(|at| parts.get(at));
    part.cloned()
        .ok_or_else(|| "an index is out of range".to_owned())
}

pub(super) fn slice(of: &Value, [start, end, step]: [Option<i128>; 3]) -> Result<Value, String> {
    let parts = members(of.clone())?;
    let len = parts.len() as i128;
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err("a slice by steps of 0".to_owned());
    }
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let bound = |bound: Option<i128>, otherwise: i128| match bound {
        Some(at) if at < 0 => (at + len).clamp(low, high),
        Some(at) => at.clamp(low, high),
        None => otherwise,
    };
    let (first, last) = if step > 0 { (low, high) } else { (high, low) };
    let (mut at, end) = (bound(start, first), bound(end, last));
    let mut found = Vec::new();
    while (step > 0 && at < end) || (step < 0 && at > end) {
        found.extend(
            usize::try_from(at)
                .ok()
                .and_then(|at| parts.get(at))
                .cloned(),
        );
        at = at.saturating_add(step);
    }
    Ok(again(of, found))
}

/// The result of a method of a string or list. A text that it makes has at most `room` bytes.
pub(super) fn method(
    of: &Value,
    name: &str,
    arguments: &[Value],
    room: usize,
) -> Result<Value, String> {
    match (of, name, arguments) {
        (Value::Text(text), "format", _) => format::braces(text, arguments, room).map(Value::Text),
        (Value::Text(text), "startswith", [Value::Text(with)]) => {
            Ok(Value::Bool(text.starts_with(with)))
        }
        (Value::Text(text), "endswith", [Value::Text(with)]) => {
            Ok(Value::Bool(text.ends_with(with)))
        }
        (Value::Text(text), "lower", []) => Ok(Value::Text(text.to_lowercase())),
        (Value::Text(text), "upper", []) => Ok(Value::Text(text.to_uppercase())),
        (Value::Text(text), "strip", []) => Ok(Value::Text(text.trim().to_owned())),
        (Value::Text(text), "split", []) => {
            let words = text.split_whitespace();
            Ok(Value::Tuple(
                words.map(|w| Value::Text(w.to_owned())).collect(),
            ))
        }
        (Value::Text(text), "join", [values]) => {
            let words: Vec<String> = members(values.clone())?
                .iter()
                .map(Value::to_string)
                .collect();
            let between = text.len().saturating_mul(words.len().saturating_sub(1));
            format::fits(between, room)?;
            Ok(Value::Text(words.join(text)))
        }
        (_, "count", [wanted]) => {
            let same = |value: &&Value| order(value, wanted) == Some(Ordering::Equal);
            let count = members(of.clone())?.iter().filter(same).count();
            Ok(Value::Int(count as i128))
        }
        (_, "index", [wanted]) => {
            let same = |value: &Value| order(value, wanted) == Some(Ordering::Equal);
            let at = members(of.clone())?.iter().position(same);
            at.map(|at| Value::Int(at as i128))
                .ok_or_else(|| format!("{wanted} is no member"))
        }
        (Value::Int(value), "bit_length", []) => {
            let bits = 128 - value.unsigned_abs().leading_zeros();
            Ok(Value::Int(i128::from(bits)))
        }
        _ => Err(format!("no method {name} of {} arguments", arguments.len())),
    }
}
