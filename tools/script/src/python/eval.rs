//! Effects of statements and values of expressions.

use std::cmp::Ordering;
use std::fmt::Write as _;

use super::expression::{Expr, Loop, Piece, Target};
use super::parse::{Statement, What};
use super::{Python, Value, calls, format};
use crate::Mismatch;
use crate::limits::{MEMBERS_MAX, NESTING_MAX, VALUES_MAX};

/// The error message beyond [`VALUES_MAX`].
pub(super) const TOO_MANY: &str = "the code makes too many values";

/// Longest shift in bits. A longer one is refused, as its value would exceed an `i128`.
const SHIFT_MAX: i128 = 126;

pub(super) fn run(python: &mut Python, statements: &[Statement]) -> Result<(), Mismatch> {
    for statement in statements {
        if python.is_over {
            return Ok(());
        }
        let at = |cause: String| Mismatch::new(statement.line, cause);
        match &statement.what {
            What::Pass => {}
            What::Raise(name, arguments) => {
                let said = python.all(arguments).map_err(at)?;
                let said: Vec<String> = said.iter().map(Value::to_string).collect();
                return Err(at(format!("{name}: {}", said.join(", "))));
            }
            What::Expr(expr) => {
                python.eval(expr).map_err(at)?;
            }
            What::Assert(condition, message) => {
                if !is_true(&python.eval(condition).map_err(at)?) {
                    return Err(at(python.broken(condition, message.as_ref())));
                }
            }
            What::Assign(targets, value) => {
                let value = python.eval(value).map_err(at)?;
                for (place, target) in targets.iter().enumerate() {
                    if place > 0 {
                        python.count(weight(&value)).map_err(at)?;
                    }
                    python.assign(target, value.clone()).map_err(at)?;
                }
            }
            What::Change {
                name,
                operator,
                value,
            } => {
                let value = python.eval(value).map_err(at)?;
                let old = python.name(name).map_err(at)?;
                python.count(weight(&old)).map_err(at)?;
                let value = binary(operator, old, value, python.room()).map_err(at)?;
                python.keep(name, value).map_err(at)?;
            }
            What::For {
                target,
                over,
                block,
            } => {
                let values = python.eval(over).and_then(calls::members).map_err(at)?;
                for value in values {
                    python.assign(target, value).map_err(at)?;
                    run(python, block)?;
                }
            }
            What::If(arms) => {
                for (condition, block) in arms {
                    let holds = match condition {
                        Some(condition) => is_true(&python.eval(condition).map_err(at)?),
                        None => true,
                    };
                    if holds {
                        run(python, block)?;
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}

impl Python {
    fn name(&self, name: &str) -> Result<Value, String> {
        match name {
            "True" => Ok(Value::Bool(true)),
            "False" => Ok(Value::Bool(false)),
            "None" | "sys.stdout" | "sys.stderr" => Ok(Value::None),
            "math.pi" => Ok(Value::Float(std::f64::consts::PI)),
            "math.inf" => Ok(Value::Float(f64::INFINITY)),
            _ => match self.names.get(name) {
                Some(value) => Ok(value.clone()),
                None => Err(format!("name '{name}' is not defined")),
            },
        }
    }

    /// The message of an assertion that does not hold.
    fn broken(&mut self, condition: &Expr, message: Option<&Expr>) -> String {
        let mut text = "assertion failed".to_owned();
        if let Expr::Compare(first, rest) = condition {
            let values: Option<Vec<String>> = std::iter::once(&**first)
                .chain(rest.iter().map(|(_, value)| value))
                .map(|value| self.eval(value).ok().map(|value| value.to_string()))
                .collect();
            if let Some(values) = values {
                let _ = write!(text, ": {}", values[0]);
                for ((operator, _), value) in rest.iter().zip(&values[1..]) {
                    let _ = write!(text, " {operator} {value}");
                }
            }
        }
        if let Some(Ok(message)) = message.map(|message| self.eval(message)) {
            let _ = write!(text, " ({message})");
        }
        text
    }

    fn eval(&mut self, expr: &Expr) -> Result<Value, String> {
        let value = self.worth(expr)?;
        self.count(weight(&value))?;
        Ok(value)
    }

    /// Counts `values` more as made, and fails beyond the limit.
    fn count(&mut self, values: usize) -> Result<(), String> {
        self.made = self.made.saturating_add(values);
        match self.made > VALUES_MAX {
            true => Err(TOO_MANY.to_owned()),
            false => Ok(()),
        }
    }

    /// Number of values that may still be made. A larger result is refused before it is built.
    pub(super) fn room(&self) -> usize {
        VALUES_MAX.saturating_sub(self.made)
    }

    fn worth(&mut self, expr: &Expr) -> Result<Value, String> {
        match expr {
            Expr::Int(value) => Ok(Value::Int(*value)),
            Expr::Float(value) => Ok(Value::Float(*value)),
            Expr::Text(text) => Ok(Value::Text(text.clone())),
            Expr::Name(name) => self.name(name),
            Expr::Tuple(parts) => Ok(Value::Tuple(self.all(parts)?)),
            Expr::Unary(operator, operand) => unary(operator, self.eval(operand)?),
            Expr::Binary(operator, left, right) => {
                let (left, right) = (self.eval(left)?, self.eval(right)?);
                binary(operator, left, right, self.room())
            }
            Expr::Compare(first, rest) => {
                let mut left = self.eval(first)?;
                for (operator, right) in rest {
                    let right = self.eval(right)?;
                    if !compare(operator, &left, &right)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Ok(Value::Bool(true))
            }
            Expr::And(left, right) => {
                let left = self.eval(left)?;
                if is_true(&left) {
                    self.eval(right)
                } else {
                    Ok(left)
                }
            }
            Expr::Or(left, right) => {
                let left = self.eval(left)?;
                if is_true(&left) {
                    Ok(left)
                } else {
                    self.eval(right)
                }
            }
            Expr::If {
                condition,
                then,
                otherwise,
            } => {
                let holds = is_true(&self.eval(condition)?);
                self.eval(if holds { then } else { otherwise })
            }
            expr => self.worth_made(expr),
        }
    }

    /// Value of a call, of a part taken out of a value, or of a collection.
    fn worth_made(&mut self, expr: &Expr) -> Result<Value, String> {
        match expr {
            Expr::Call(name, arguments, named) => {
                let arguments = self.all(arguments)?;
                let mut options = Vec::new();
                for (name, value) in named {
                    options.push((name.as_str(), self.eval(value)?));
                }
                calls::call(self, name, &arguments, &options)
            }
            Expr::Method(of, name, arguments) => {
                let of = self.eval(of)?;
                let arguments = self.all(arguments)?;
                calls::method(&of, name, &arguments, self.room())
            }
            Expr::Index(of, index) => {
                let of = self.eval(of)?;
                calls::index(&of, &self.eval(index)?)
            }
            Expr::Slice(of, parts) => {
                let of = self.eval(of)?;
                let mut bounds = [None; 3];
                for (bound, part) in bounds.iter_mut().zip(parts) {
                    if let Some(part) = part {
                        *bound = Some(integer(&self.eval(part)?)?);
                    }
                }
                calls::slice(&of, bounds)
            }
            Expr::Pieces(pieces) => self.pieces(pieces),
            Expr::Each(element, loops) => {
                let mut found = Vec::new();
                self.each(element, loops, &mut found)?;
                Ok(Value::Tuple(found))
            }
            _ => Err("code of no value".to_owned()),
        }
    }

    fn all(&mut self, exprs: &[Expr]) -> Result<Vec<Value>, String> {
        exprs.iter().map(|expr| self.eval(expr)).collect()
    }

    /// Assigns `value` to a name. A value nested too deep is refused, so that a list cannot grow
    /// inward without end.
    fn keep(&mut self, name: &str, value: Value) -> Result<(), String> {
        if depth(&value) > NESTING_MAX {
            return Err("a list is nested too deep".to_owned());
        }
        self.set(name, value);
        Ok(())
    }

    fn assign(&mut self, target: &Target, value: Value) -> Result<(), String> {
        match target {
            Target::Name(name) => self.keep(name, value)?,
            Target::Tuple(targets) => {
                let values = calls::members(value)?;
                if values.len() != targets.len() {
                    let (wanted, seen) = (targets.len(), values.len());
                    return Err(format!("{seen} values for {wanted} names"));
                }
                for (target, value) in targets.iter().zip(values) {
                    self.assign(target, value)?;
                }
            }
        }
        Ok(())
    }

    fn pieces(&mut self, pieces: &[Piece]) -> Result<Value, String> {
        let mut text = String::new();
        for piece in pieces {
            match piece {
                Piece::Text(piece) => text += piece,
                Piece::Value(expr, is_repr, spec) => {
                    let mut value = self.eval(expr)?;
                    if *is_repr && spec.is_empty() {
                        value = Value::Text(format::repr(&value));
                    }
                    text += &format::value(&value, spec)?;
                }
            }
            format::fits(text.len(), self.room())?;
        }
        Ok(Value::Text(text))
    }

    /// The values of a comprehension. Unlike Python's, its loop names stay defined.
    fn each(
        &mut self,
        element: &Expr,
        loops: &[Loop],
        found: &mut Vec<Value>,
    ) -> Result<(), String> {
        let Some((first, rest)) = loops.split_first() else {
            found.push(self.eval(element)?);
            return match found.len() > MEMBERS_MAX {
                true => Err("a list is too long".to_owned()),
                false => Ok(()),
            };
        };
        let values = self.eval(&first.over).and_then(calls::members)?;
        'values: for value in values {
            self.assign(&first.target, value)?;
            for condition in &first.conditions {
                if !is_true(&self.eval(condition)?) {
                    continue 'values;
                }
            }
            self.each(element, rest, found)?;
        }
        Ok(())
    }
}

/// Number of values in `value`, letters included.
fn weight(value: &Value) -> usize {
    match value {
        Value::Text(text) => 1 + text.len(),
        Value::Tuple(parts) => 1 + parts.iter().map(weight).sum::<usize>(),
        _ => 1,
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Tuple(parts) => 1 + parts.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

pub(super) fn is_true(value: &Value) -> bool {
    match value {
        Value::None => false,
        Value::Bool(value) => *value,
        Value::Int(value) => *value != 0,
        Value::Float(value) => *value != 0.0,
        Value::Text(text) => !text.is_empty(),
        Value::Tuple(parts) => !parts.is_empty(),
    }
}

pub(super) fn integer(value: &Value) -> Result<i128, String> {
    match value {
        Value::Int(value) => Ok(*value),
        Value::Bool(value) => Ok(i128::from(*value)),
        other => Err(format!("{other} is no integer")),
    }
}

pub(super) fn number(value: &Value) -> Result<f64, String> {
    match value {
        Value::Float(value) => Ok(*value),
        Value::Text(text) => text
            .trim()
            .parse()
            .map_err(|_| format!("{text:?} is no number")),
        other => integer(other).map(|value| value as f64),
    }
}

fn unary(operator: &str, value: Value) -> Result<Value, String> {
    match (operator, &value) {
        ("not", _) => Ok(Value::Bool(!is_true(&value))),
        ("+", _) => Ok(value),
        ("-", Value::Float(value)) => Ok(Value::Float(-value)),
        ("-", _) => negated(integer(&value)?),
        _ => Ok(Value::Int(!integer(&value)?)),
    }
}

/// The value with its sign changed. The least `i128` has no counterpart.
pub(super) fn negated(value: i128) -> Result<Value, String> {
    let negated = value.checked_neg().map(Value::Int);
    negated.ok_or_else(|| format!("-({value}) is out of range"))
}

/// Value of an operation on two values; a text has at most `room` bytes.
pub(super) fn binary(
    operator: &str,
    mut left: Value,
    right: Value,
    room: usize,
) -> Result<Value, String> {
    match (operator, &mut left, &right) {
        ("+", Value::Tuple(parts), Value::Tuple(more)) => {
            parts.extend_from_slice(more);
            return Ok(left);
        }
        ("+", Value::Text(text), Value::Text(more)) => {
            text.push_str(more);
            return Ok(left);
        }
        _ => {}
    }
    match (operator, &left, &right) {
        ("%", Value::Text(text), _) => return format::percent(text, &right, room).map(Value::Text),
        ("*", Value::Text(text), _) => {
            return repeated(text.len(), &right, |n| Value::Text(text.repeat(n)));
        }
        ("*", Value::Tuple(parts), _) => {
            let again = |n| std::iter::repeat_n(parts, n).flatten().cloned().collect();
            let len = parts.iter().map(weight).sum();
            return repeated(len, &right, |n| Value::Tuple(again(n)));
        }
        _ => {}
    }
    let is_float = matches!(left, Value::Float(_)) || matches!(right, Value::Float(_));
    if is_float || operator == "/" {
        return float(operator, number(&left)?, number(&right)?).map(Value::Float);
    }
    let (left, right) = (integer(&left)?, integer(&right)?);
    let out_of_range = || format!("{left} {operator} {right} is out of range");
    let result = match operator {
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        "//" | "%" if right == 0 => return Err("division by zero".to_owned()),
        "//" => {
            let is_over = right < 0 && left.wrapping_rem_euclid(right) != 0;
            left.checked_div_euclid(right)
                .map(|quotient| quotient - i128::from(is_over))
        }
        "%" => {
            let rest = left.wrapping_rem_euclid(right);
            Some(if right < 0 && rest != 0 {
                rest + right
            } else {
                rest
            })
        }
        "|" => Some(left | right),
        "&" => Some(left & right),
        "^" => Some(left ^ right),
        "<<" if (0..=SHIFT_MAX).contains(&right) => left.checked_mul(1 << right),
        ">>" if (0..=SHIFT_MAX).contains(&right) => Some(left >> right),
        "**" if (0..=SHIFT_MAX).contains(&right) => left.checked_pow(right as u32),
        "**" => return float(operator, left as f64, right as f64).map(Value::Float),
        _ => None,
    };
    result.map(Value::Int).ok_or_else(out_of_range)
}

/// A text or list of `len` parts, repeated `count` times.
fn repeated(len: usize, count: &Value, make: impl Fn(usize) -> Value) -> Result<Value, String> {
    let count = usize::try_from(integer(count)?.max(0)).unwrap_or(usize::MAX);
    if len == 0 {
        // An empty text stays empty, however large the count. Build nothing.
        return Ok(make(0));
    }
    match len.checked_mul(count) {
        Some(len) if len <= MEMBERS_MAX => Ok(make(count)),
        _ => Err("a list is too long".to_owned()),
    }
}

fn float(operator: &str, left: f64, right: f64) -> Result<f64, String> {
    match operator {
        "+" => Ok(left + right),
        "-" => Ok(left - right),
        "*" => Ok(left * right),
        "/" | "//" | "%" if right == 0.0 => Err("division by zero".to_owned()),
        "/" => Ok(left / right),
        "//" => Ok((left / right).floor()),
        "%" => Ok(left - right * (left / right).floor()),
        "**" => Ok(left.powf(right)),
        _ => Err(format!("no operator {operator} for floating point")),
    }
}

fn compare(operator: &str, left: &Value, right: &Value) -> Result<bool, String> {
    if operator == "not in" {
        return compare("in", left, right).map(|is_in| !is_in);
    }
    if operator == "in" {
        return match (left, right) {
            (_, Value::Tuple(parts)) => Ok(parts
                .iter()
                .any(|part| order(left, part) == Some(Ordering::Equal))),
            (Value::Text(left), Value::Text(right)) => Ok(right.contains(left)),
            _ => Err(format!("{right} has no members")),
        };
    }
    let order = order(left, right);
    match operator {
        "==" => return Ok(order == Some(Ordering::Equal)),
        "!=" => return Ok(order != Some(Ordering::Equal)),
        _ => {}
    }
    let Some(order) = order else {
        return Err(format!("{left} and {right} have no order"));
    };
    Ok(match operator {
        "<" => order.is_lt(),
        ">" => order.is_gt(),
        "<=" => order.is_le(),
        _ => order.is_ge(),
    })
}

pub(super) fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Text(left), Value::Text(right)) => Some(left.cmp(right)),
        (Value::Text(_), _) | (_, Value::Text(_)) => None,
        (Value::None, Value::None) => Some(Ordering::Equal),
        (Value::Tuple(left), Value::Tuple(right)) => {
            for (left, right) in left.iter().zip(right) {
                match order(left, right) {
                    Some(Ordering::Equal) => {}
                    other => return other,
                }
            }
            Some(left.len().cmp(&right.len()))
        }
        (Value::Float(_), _) | (_, Value::Float(_)) => {
            number(left).ok()?.partial_cmp(&number(right).ok()?)
        }
        _ => Some(integer(left).ok()?.cmp(&integer(right).ok()?)),
    }
}
