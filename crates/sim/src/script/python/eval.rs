//! What statements do and what expressions are worth.

use std::cmp::Ordering;
use std::fmt::Write as _;

use super::parse::{Expr, Statement, What};
use super::{Python, Value};
use crate::script::Mismatch;

/// Integers stay far below what `i128` holds.
const SHIFT_MAX: i128 = 64;

pub(super) fn run(python: &mut Python, statements: &[Statement]) -> Result<(), Mismatch> {
    for statement in statements {
        let at = |cause: String| Mismatch::new(statement.line, cause);
        match &statement.what {
            What::Pass => {}
            What::Expr(expr) => {
                python.eval(expr).map_err(at)?;
            }
            What::Assert(condition, message) => {
                if !is_true(&python.eval(condition).map_err(at)?) {
                    return Err(at(python.broken(condition, message.as_ref())));
                }
            }
            What::Assign {
                name,
                operator,
                value,
            } => {
                let mut value = python.eval(value).map_err(at)?;
                if let Some(operator) = operator {
                    let old = python.name(name).map_err(at)?;
                    value = binary(operator, old, value).map_err(at)?;
                }
                python.set(name, value);
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
            "None" => Ok(Value::None),
            _ => match self.names.get(name) {
                Some(value) => Ok(value.clone()),
                None => Err(format!("name '{name}' is not defined")),
            },
        }
    }

    /// What to say of an assertion that does not hold.
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
        match expr {
            Expr::Int(value) => Ok(Value::Int(*value)),
            Expr::Float(value) => Ok(Value::Float(*value)),
            Expr::Text(text) => Ok(Value::Text(text.clone())),
            Expr::Name(name) => self.name(name),
            Expr::Tuple(parts) => Ok(Value::Tuple(self.all(parts)?)),
            Expr::Unary(operator, operand) => unary(operator, self.eval(operand)?),
            Expr::Binary(operator, left, right) => {
                let left = self.eval(left)?;
                binary(operator, left, self.eval(right)?)
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
            Expr::Call(name, arguments) => {
                let arguments = self.all(arguments)?;
                self.call(name, &arguments)
            }
        }
    }

    fn all(&mut self, exprs: &[Expr]) -> Result<Vec<Value>, String> {
        exprs.iter().map(|expr| self.eval(expr)).collect()
    }

    fn call(&mut self, name: &str, arguments: &[Value]) -> Result<Value, String> {
        let spread = match arguments {
            [Value::Tuple(parts)] => parts,
            _ => arguments,
        };
        match (name, arguments) {
            ("print", _) => {
                let words: Vec<String> = arguments.iter().map(Value::to_string).collect();
                let _ = writeln!(self.output, "{}", words.join(" "));
                Ok(Value::None)
            }
            ("int", [value]) => int(value),
            ("float", [value]) => number(value).map(Value::Float),
            ("bool", [value]) => Ok(Value::Bool(is_true(value))),
            ("str" | "repr", [value]) => Ok(Value::Text(value.to_string())),
            ("hex", [Value::Int(value)]) => Ok(Value::Text(format!("{value:#x}"))),
            ("abs", [value]) => match value {
                Value::Float(value) => Ok(Value::Float(value.abs())),
                _ => integer(value).map(|value| Value::Int(value.abs())),
            },
            ("round", [value]) => {
                number(value).map(|value| Value::Int(value.round_ties_even() as i128))
            }
            ("len", [Value::Text(text)]) => Ok(Value::Int(text.chars().count() as i128)),
            ("len", [Value::Tuple(parts)]) => Ok(Value::Int(parts.len() as i128)),
            ("min", _) => extreme(spread, Ordering::Less),
            ("max", _) => extreme(spread, Ordering::Greater),
            _ => Err(format!(
                "no function {name} of {} arguments",
                arguments.len()
            )),
        }
    }
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::None => false,
        Value::Bool(value) => *value,
        Value::Int(value) => *value != 0,
        Value::Float(value) => *value != 0.0,
        Value::Text(text) => !text.is_empty(),
        Value::Tuple(parts) => !parts.is_empty(),
    }
}

fn integer(value: &Value) -> Result<i128, String> {
    match value {
        Value::Int(value) => Ok(*value),
        Value::Bool(value) => Ok(i128::from(*value)),
        other => Err(format!("{other} is no integer")),
    }
}

fn number(value: &Value) -> Result<f64, String> {
    match value {
        Value::Float(value) => Ok(*value),
        Value::Text(text) => text
            .trim()
            .parse()
            .map_err(|_| format!("{text:?} is no number")),
        other => integer(other).map(|value| value as f64),
    }
}

fn int(value: &Value) -> Result<Value, String> {
    match value {
        Value::Float(value) => Ok(Value::Int(*value as i128)),
        Value::Text(text) => match text.trim().parse() {
            Ok(value) => Ok(Value::Int(value)),
            Err(_) => Err(format!("{text:?} is no integer")),
        },
        other => integer(other).map(Value::Int),
    }
}

fn unary(operator: &str, value: Value) -> Result<Value, String> {
    match (operator, &value) {
        ("not", _) => Ok(Value::Bool(!is_true(&value))),
        ("+", _) => Ok(value),
        ("-", Value::Float(value)) => Ok(Value::Float(-value)),
        ("-", _) => Ok(Value::Int(-integer(&value)?)),
        _ => Ok(Value::Int(!integer(&value)?)),
    }
}

fn binary(operator: &str, left: Value, right: Value) -> Result<Value, String> {
    match (operator, &left, &right) {
        ("+", Value::Text(left), Value::Text(right)) => {
            return Ok(Value::Text(format!("{left}{right}")));
        }
        ("%", Value::Text(format), _) => return formatted(format, &right).map(Value::Text),
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
        "//" => Some(left.div_euclid(right) - i128::from(right < 0 && left.rem_euclid(right) != 0)),
        "%" => {
            let rest = left.rem_euclid(right);
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

fn order(left: &Value, right: &Value) -> Option<Ordering> {
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

fn extreme(values: &[Value], wanted: Ordering) -> Result<Value, String> {
    let mut values = values.iter();
    let Some(mut best) = values.next() else {
        return Err("min and max of nothing".to_owned());
    };
    for value in values {
        if order(value, best) == Some(wanted) {
            best = value;
        }
    }
    Ok(best.clone())
}

/// `"%d of %s" % (1, a)`: the conversions d, i, u, s, r, x, f and %.
fn formatted(format: &str, arguments: &Value) -> Result<String, String> {
    let arguments = match arguments {
        Value::Tuple(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut arguments = arguments.iter();
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let conversion = chars.find(|c| c.is_alphabetic() || *c == '%');
        if conversion == Some('%') {
            out.push('%');
            continue;
        }
        let Some(value) = arguments.next() else {
            return Err("not enough arguments for a format string".to_owned());
        };
        match (conversion, value) {
            (Some('x'), Value::Int(value)) => write!(out, "{value:x}"),
            (Some('f'), value) => write!(out, "{:.6}", number(value)?),
            (Some('d' | 'i' | 'u'), value) => write!(out, "{}", int(value)?),
            (_, value) => write!(out, "{value}"),
        }
        .map_err(|_| "a format string failed".to_owned())?;
    }
    Ok(out)
}
