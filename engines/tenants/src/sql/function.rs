//! Functions of values.

use std::borrow::Cow;

use bigdecimal::{BigDecimal, Signed, ToPrimitive};

use crate::{
    error::{Result, SqlError, state},
    sql::{
        expression::Facts,
        json::{self, JsonFunction},
        sequence, system, text_function,
    },
    types::Type,
    value::{Value, datetime, numeric, text as value_text},
};

/// A function, once its name and the types of its arguments are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Abs,
    Ascii,
    Ceil,
    CharLength,
    Chr,
    Concat,
    ConcatWs,
    /// The number that the session was given last of a sequence.
    CurrVal,
    CurrentDatabase,
    CurrentDate,
    CurrentSchema,
    CurrentUser,
    DatePart,
    DateTrunc,
    Exp,
    Floor,
    Greatest,
    Initcap,
    Json(JsonFunction),
    /// The number that the session was given last.
    LastVal,
    Least,
    Left,
    /// A pattern of LIKE with another escape character, as one with a backslash.
    LikeEscape,
    Ln,
    Log,
    Lower,
    LPad,
    LTrim,
    MakeDate,
    Mod,
    /// The next number of a sequence, by its number or name.
    NextVal,
    Now,
    NullIf,
    OctetLength,
    /// A text with blanks up to a length: a `character` as it is shown.
    Pad,
    Position,
    Power,
    Random,
    FormatType,
    Repeat,
    Replace,
    Reverse,
    Right,
    Round,
    RoundTo,
    RPad,
    RTrim,
    /// The sequence that goes with a column.
    SerialSequence,
    SetVal,
    Sign,
    SplitPart,
    Sqrt,
    StartsWith,
    StatementTimestamp,
    Substring,
    SubstringFor,
    Translate,
    Trim,
    Trunc,
    Upper,
    Uuid,
    Version,
}

/// The function of a name for arguments of these types, the types that it wants them in, and its own.
pub(crate) fn resolve(name: &str, arguments: &[Type]) -> Option<(Function, Vec<Type>, Type)> {
    use Function as F;
    use Type::{Bytea, Date, Float8, Int4, Int8, Interval, Text, Timestamp, Timestamptz, Unknown};
    let any_number = Type::Numeric(None);
    let integral = |of: &Type| of.is_integer() || *of == Unknown;
    let texty = |of: &Type| of.is_text() || *of == Unknown;
    // What is open is a floating-point number where numbers are wanted.
    let numbers: Vec<Type> = arguments.iter().map(|of| if *of == Unknown { Float8 } else { *of }).collect();
    let of_numbers = [
        "abs", "sign", "ceil", "ceiling", "floor", "round", "trunc", "power", "pow", "sqrt", "exp", "ln", "log",
        "log10",
    ];
    let arguments = if of_numbers.contains(&name) { numbers.as_slice() } else { arguments };
    // Integers and numerics go on as numerics where the result may have a fraction, everything else as a float.
    let exact = |of: &Type| of.is_number() && !matches!(of, Type::Float4 | Float8);
    Some(match (name, arguments) {
        ("abs", [of]) if of.is_number() => (F::Abs, vec![*of], of.unbounded()),
        ("sign", [of]) if exact(of) => (F::Sign, vec![any_number], any_number),
        ("sign", [of]) if of.is_number() => (F::Sign, vec![Float8], Float8),
        ("ceil" | "ceiling", [of]) if exact(of) => (F::Ceil, vec![any_number], any_number),
        ("ceil" | "ceiling", [of]) if of.is_number() => (F::Ceil, vec![Float8], Float8),
        ("floor", [of]) if exact(of) => (F::Floor, vec![any_number], any_number),
        ("floor", [of]) if of.is_number() => (F::Floor, vec![Float8], Float8),
        ("round", [of]) if exact(of) => (F::Round, vec![any_number], any_number),
        ("round", [of]) if of.is_number() => (F::Round, vec![Float8], Float8),
        ("round", [of, places]) if exact(of) && places.is_integer() => (F::RoundTo, vec![any_number, Int4], any_number),
        ("trunc", [of]) if exact(of) => (F::Trunc, vec![any_number], any_number),
        ("trunc", [of]) if of.is_number() => (F::Trunc, vec![Float8], Float8),
        ("mod", [a, b]) if a.is_integer() && b.is_integer() => {
            let of = if a.number_rank() > b.number_rank() { *a } else { *b };
            (F::Mod, vec![of, of], of)
        }
        ("mod", [a, b]) if exact(a) && exact(b) => (F::Mod, vec![any_number, any_number], any_number),
        ("power" | "pow", [a, b]) if a.is_number() && b.is_number() => (F::Power, vec![Float8, Float8], Float8),
        ("sqrt", [of]) if of.is_number() => (F::Sqrt, vec![Float8], Float8),
        ("exp", [of]) if of.is_number() && !exact(of) => (F::Exp, vec![Float8], Float8),
        ("ln", [of]) if of.is_number() && !exact(of) => (F::Ln, vec![Float8], Float8),
        ("log" | "log10", [of]) if of.is_number() && !exact(of) => (F::Log, vec![Float8], Float8),
        ("gen_random_uuid", []) => (F::Uuid, vec![], Type::Uuid),
        ("make_date", [a, b, c]) if [a, b, c].iter().all(|of| of.is_integer()) => (F::MakeDate, vec![Int4; 3], Date),
        ("ascii", [of]) if texty(of) => (F::Ascii, vec![Text], Int4),
        ("chr", [of]) if of.is_integer() => (F::Chr, vec![Int4], Text),
        ("initcap", [of]) if texty(of) => (F::Initcap, vec![Text], Text),
        ("lpad" | "rpad", [of, n]) | ("lpad" | "rpad", [of, n, _])
            if texty(of) && n.is_integer() && arguments.get(2).is_none_or(texty) =>
        {
            let wanted = [Text, Int4, Text][..arguments.len()].to_vec();
            (if name == "lpad" { F::LPad } else { F::RPad }, wanted, Text)
        }
        ("split_part", [of, by, n]) if texty(of) && texty(by) && n.is_integer() => {
            (F::SplitPart, vec![Text, Text, Int4], Text)
        }
        ("starts_with", [a, b]) if texty(a) && texty(b) => (F::StartsWith, vec![Text, Text], Type::Bool),
        ("translate", [a, b, c]) if texty(a) && texty(b) && texty(c) => (F::Translate, vec![Text, Text, Text], Text),
        ("like_escape", [a, b]) if texty(a) && texty(b) => (F::LikeEscape, vec![Text, Text], Text),
        ("concat_ws", [by, ..]) if texty(by) => (F::ConcatWs, vec![Text; arguments.len()], Text),
        ("nextval", [of]) if of.is_integer() => (F::NextVal, vec![Int8], Int8),
        ("nextval", [of]) if texty(of) => (F::NextVal, vec![Text], Int8),
        ("currval", [of]) if texty(of) => (F::CurrVal, vec![Text], Int8),
        ("lastval", []) => (F::LastVal, vec![], Int8),
        ("setval", [of, value]) if texty(of) && integral(value) => (F::SetVal, vec![Text, Int8], Int8),
        ("setval", [of, value, Type::Bool | Unknown]) if texty(of) && integral(value) => {
            (F::SetVal, vec![Text, Int8, Type::Bool], Int8)
        }
        ("pg_get_serial_sequence", [a, b]) if texty(a) && texty(b) => (F::SerialSequence, vec![Text, Text], Text),
        ("format_type", [_, _]) => (F::FormatType, vec![Int8, Int4], Text),
        ("random", []) => (F::Random, vec![], Float8),
        ("lower", [of]) if texty(of) => (F::Lower, vec![Text], Text),
        ("upper", [of]) if texty(of) => (F::Upper, vec![Text], Text),
        ("length" | "char_length" | "character_length", [of]) if texty(of) => (F::CharLength, vec![Text], Int4),
        ("octet_length", [of]) if texty(of) => (F::OctetLength, vec![Text], Int4),
        ("octet_length" | "length", [Bytea]) => (F::OctetLength, vec![Bytea], Int4),
        ("reverse", [of]) if texty(of) => (F::Reverse, vec![Text], Text),
        ("left", [of, n]) if texty(of) && n.is_integer() => (F::Left, vec![Text, Int4], Text),
        ("right", [of, n]) if texty(of) && n.is_integer() => (F::Right, vec![Text, Int4], Text),
        ("repeat", [of, n]) if texty(of) && n.is_integer() => (F::Repeat, vec![Text, Int4], Text),
        ("replace", [a, b, c]) if texty(a) && texty(b) && texty(c) => (F::Replace, vec![Text, Text, Text], Text),
        ("strpos" | "position", [a, b]) if texty(a) && texty(b) => (F::Position, vec![Text, Text], Int4),
        ("substr" | "substring", [of, n]) if texty(of) && n.is_integer() => (F::Substring, vec![Text, Int4], Text),
        ("substr" | "substring", [of, a, b]) if texty(of) && a.is_integer() && b.is_integer() => {
            (F::SubstringFor, vec![Text, Int4, Int4], Text)
        }
        ("btrim" | "ltrim" | "rtrim", [of] | [of, _]) if arguments.iter().all(texty) => {
            let function = match name {
                "btrim" => F::Trim,
                "ltrim" => F::LTrim,
                _ => F::RTrim,
            };
            let _ = of;
            (function, vec![Text; arguments.len()], Text)
        }
        ("concat", _) => (F::Concat, vec![Text; arguments.len()], Text),
        ("now" | "transaction_timestamp" | "current_timestamp", []) => (F::Now, vec![], Timestamptz),
        ("statement_timestamp" | "clock_timestamp", []) => (F::StatementTimestamp, vec![], Timestamptz),
        ("current_date", []) => (F::CurrentDate, vec![], Date),
        ("current_database", []) => (F::CurrentDatabase, vec![], Text),
        ("current_schema", []) => (F::CurrentSchema, vec![], Text),
        ("current_user" | "session_user" | "user", []) => (F::CurrentUser, vec![], Text),
        ("version", []) => (F::Version, vec![], Text),
        ("date_trunc", [field, of @ (Timestamp | Timestamptz)]) if texty(field) => (F::DateTrunc, vec![Text, *of], *of),
        ("date_trunc", [field, Date]) if texty(field) => (F::DateTrunc, vec![Text, Timestamptz], Timestamptz),
        ("date_part" | "extract", [field, of]) if texty(field) => {
            let of = match of {
                Date | Timestamp => Timestamp,
                Timestamptz => Timestamptz,
                Interval => Interval,
                _ => return None,
            };
            (F::DatePart, vec![Text, of], if name == "extract" { any_number } else { Float8 })
        }
        _ => return json::resolve(name, arguments),
    })
}

/// What `random` goes through: SplitMix64.
pub(crate) fn next_random(facts: &Facts) -> u64 {
    let state = facts.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    facts.random.set(state);
    let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl Function {
    /// Whether its value depends on its arguments alone.
    pub(crate) fn is_immutable(self) -> bool {
        !matches!(
            self,
            Self::Now
                | Self::StatementTimestamp
                | Self::CurrentDate
                | Self::CurrentDatabase
                | Self::CurrentUser
                | Self::CurrVal
                | Self::LastVal
                | Self::NextVal
                | Self::Random
                | Self::Uuid
                | Self::SerialSequence
                | Self::SetVal
        )
    }

    /// Whether it may have another value each time it is called.
    pub(crate) fn is_volatile(self) -> bool {
        matches!(self, Self::NextVal | Self::Random | Self::SetVal | Self::Uuid)
    }

    /// Whether it is NULL as soon as one of its arguments is.
    pub(crate) fn is_strict(self) -> bool {
        match self {
            Self::Json(function) => function.is_strict(),
            other => !matches!(other, Self::Concat | Self::ConcatWs | Self::Greatest | Self::Least | Self::NullIf),
        }
    }

    /// Its value. Most functions of NULL are NULL.
    pub(crate) fn call(self, arguments: &[Cow<'_, Value>], facts: &Facts) -> Result<Value> {
        match self {
            Self::Now => return Ok(Value::Timestamp(facts.transaction_began)),
            Self::StatementTimestamp => return Ok(Value::Timestamp(facts.statement_began)),
            Self::CurrentDate => {
                return Ok(Value::Date(facts.transaction_began.div_euclid(datetime::MICROS_PER_DAY) as i32));
            }
            Self::CurrentDatabase => return Ok(Value::Text(facts.database.clone())),
            Self::CurrentUser => return Ok(Value::Text(facts.user.clone())),
            Self::CurrentSchema => return Ok(Value::Text("public".to_owned())),
            Self::Version => {
                return Ok(Value::Text(format!("PostgreSQL 15.0 (Savanna {})", env!("CARGO_PKG_VERSION"))));
            }
            Self::LastVal => return facts.given.borrow().last(),
            Self::Random => return Ok(Value::Float((next_random(facts) >> 11) as f64 / (1_u64 << 53) as f64)),
            Self::FormatType => {
                let number = |at: usize| match arguments.get(at).map(AsRef::as_ref) {
                    Some(Value::Int(number)) => Some(*number),
                    _ => None,
                };
                return Ok(number(0).map_or(Value::Null, |oid| Value::Text(system::format_type(oid, number(1)))));
            }
            Self::Concat => return Ok(Value::Text(arguments.iter().filter_map(|argument| text(argument)).collect())),
            Self::ConcatWs => {
                let Some(Value::Text(by)) = arguments.first().map(|by| &**by) else { return Ok(Value::Null) };
                let parts: Vec<&str> = arguments.iter().skip(1).filter_map(|argument| text(argument)).collect();
                return Ok(Value::Text(parts.join(by)));
            }
            Self::Uuid => return Ok(Value::Uuid(random_uuid(facts))),
            Self::Greatest | Self::Least => return Ok(extreme(self, arguments)),
            Self::NullIf => {
                let [a, b] = arguments else { return Err(wrong_arguments(self)) };
                return Ok(if a.compare(b).is_eq() { Value::Null } else { a.clone().into_owned() });
            }
            Self::Json(function) if !function.is_strict() => {
                return function.call(&arguments.iter().map(|argument| &**argument).collect::<Vec<_>>());
            }
            _ => {}
        }
        if arguments.iter().any(|argument| argument.is_null()) {
            return Ok(Value::Null);
        }
        let values: Vec<&Value> = arguments.iter().map(|argument| &**argument).collect();
        match values.as_slice() {
            values if let Self::Json(function) = self => function.call(values),
            [sequence, rest @ ..] if matches!(self, Self::NextVal | Self::CurrVal | Self::SetVal) => {
                sequence::call(self, sequence, rest, facts)
            }
            [Value::Text(table), Value::Text(column)] if self == Self::SerialSequence => {
                sequence::of_column(table, column, &facts.catalog)
            }
            [Value::Int(code)] if self == Self::Chr => text_function::chr(*code),
            [Value::Int(year), Value::Int(month), Value::Int(day)] => make_date(*year, *month, *day),
            [Value::Text(text), rest @ ..] => self.of_text(text, rest),
            [Value::Float(value)] => self.of_float(*value),
            [Value::Float(a), Value::Float(b)] => power(*a, *b),
            [Value::Int(value)] => match value.checked_abs() {
                Some(value) => Ok(Value::Int(value)),
                None => Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range")),
            },
            [Value::Int(_), Value::Int(0)] => Err(SqlError::new(state::DIVISION_BY_ZERO, "division by zero")),
            [Value::Int(a), Value::Int(b)] => Ok(Value::Int(a.checked_rem(*b).unwrap_or(0))),
            [Value::Numeric(value)] => self.of_numeric(value),
            [Value::Numeric(value), Value::Int(places)] => {
                let places = (*places).clamp(-2_000, 2_000);
                Ok(Value::Numeric(numeric::round(value, places)))
            }
            [Value::Numeric(a), Value::Numeric(b)] => Ok(Value::Numeric(numeric::remainder(a, b)?)),
            [Value::Bytes(bytes)] => Ok(Value::Int(bytes.len() as i64)),
            _ => Err(wrong_arguments(self)),
        }
    }

    fn of_text(self, text: &str, rest: &[&Value]) -> Result<Value> {
        let characters = || text.chars().count() as i64;
        Ok(match (self, rest) {
            (Self::Lower, []) => Value::Text(text.to_lowercase()),
            (Self::Upper, []) => Value::Text(text.to_uppercase()),
            (Self::CharLength, []) => Value::Int(characters()),
            (Self::OctetLength, []) => Value::Int(text.len() as i64),
            (Self::Reverse, []) => Value::Text(text.chars().rev().collect()),
            (Self::Left, [Value::Int(n)]) => {
                let keep = if *n < 0 { characters() + n } else { *n };
                Value::Text(text.chars().take(keep.max(0) as usize).collect())
            }
            (Self::Right, [Value::Int(n)]) => {
                let skip = if *n < 0 { -n } else { characters() - n };
                Value::Text(text.chars().skip(skip.max(0) as usize).collect())
            }
            (Self::Repeat, [Value::Int(n)]) => {
                let times = (*n).max(0) as usize;
                if text.len().saturating_mul(times) > 64 << 20 {
                    return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, "requested length too large"));
                }
                Value::Text(text.repeat(times))
            }
            (Self::Pad, [Value::Int(length)]) => {
                let blanks = (length - characters()).max(0) as usize;
                Value::Text([text, &" ".repeat(blanks)].concat())
            }
            (Self::Replace, [Value::Text(from), Value::Text(to)]) => {
                Value::Text(if from.is_empty() { text.to_owned() } else { text.replace(from.as_str(), to) })
            }
            (Self::Position, [Value::Text(part)]) => {
                Value::Int(text.find(part.as_str()).map_or(0, |at| text[..at].chars().count() as i64 + 1))
            }
            (Self::Substring, [Value::Int(from)]) => substring(text, *from, None)?,
            (Self::SubstringFor, [Value::Int(from), Value::Int(length)]) => substring(text, *from, Some(*length))?,
            (Self::Trim | Self::LTrim | Self::RTrim, rest) => {
                let what = if let [Value::Text(what)] = rest { what.as_str() } else { " " };
                let mut trimmed = text;
                if self != Self::RTrim {
                    trimmed = trimmed.trim_start_matches(|c| what.contains(c));
                }
                if self != Self::LTrim {
                    trimmed = trimmed.trim_end_matches(|c| what.contains(c));
                }
                Value::Text(trimmed.to_owned())
            }
            (Self::Ascii, []) => Value::Int(text.chars().next().map_or(0, |first| i64::from(u32::from(first)))),
            (Self::Initcap, []) => Value::Text(text_function::initcap(text)),
            (Self::LPad | Self::RPad, [Value::Int(length), rest @ ..]) => {
                let fill = if let [Value::Text(fill)] = rest { fill.as_str() } else { " " };
                Value::Text(text_function::pad(text, *length, fill, self == Self::LPad)?)
            }
            (Self::SplitPart, [Value::Text(by), Value::Int(place)]) => {
                Value::Text(text_function::split_part(text, by, *place)?.to_owned())
            }
            (Self::StartsWith, [Value::Text(start)]) => Value::Bool(text.starts_with(start.as_str())),
            (Self::Translate, [Value::Text(from), Value::Text(to)]) => {
                Value::Text(text_function::translate(text, from, to))
            }
            (Self::LikeEscape, [Value::Text(escape)]) => Value::Text(text_function::like_escape(text, escape)?),
            (Self::DatePart, [of]) => date_part(text, of)?,
            (Self::DateTrunc, [Value::Timestamp(micros)]) => Value::Timestamp(date_trunc(text, *micros)?),
            _ => return Err(wrong_arguments(self)),
        })
    }

    fn of_float(self, value: f64) -> Result<Value> {
        Ok(Value::Float(match self {
            Self::Abs => value.abs(),
            Self::Ceil => value.ceil(),
            Self::Floor => value.floor(),
            Self::Round => value.round_ties_even(),
            Self::Trunc => value.trunc(),
            Self::Sign => f64::from(i8::from(value > 0.0) - i8::from(value < 0.0)),
            Self::Sqrt if value < 0.0 => {
                return Err(SqlError::new("2201F", "cannot take square root of a negative number"));
            }
            Self::Sqrt => value.sqrt(),
            Self::Exp if value.exp().is_infinite() && value.is_finite() => {
                return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"));
            }
            Self::Exp => value.exp(),
            Self::Ln | Self::Log if value == 0.0 => {
                return Err(SqlError::new("2201E", "cannot take logarithm of zero"));
            }
            Self::Ln | Self::Log if value < 0.0 => {
                return Err(SqlError::new("2201E", "cannot take logarithm of a negative number"));
            }
            Self::Ln => value.ln(),
            Self::Log => value.log10(),
            _ => return Err(wrong_arguments(self)),
        }))
    }

    fn of_numeric(self, value: &BigDecimal) -> Result<Value> {
        use bigdecimal::RoundingMode::{Ceiling, Down, Floor};
        Ok(Value::Numeric(match self {
            Self::Abs => value.abs(),
            Self::Ceil => value.with_scale_round(0, Ceiling),
            Self::Floor => value.with_scale_round(0, Floor),
            Self::Round => numeric::round(value, 0),
            Self::Trunc => value.with_scale_round(0, Down),
            Self::Sign => value.signum().with_scale(0),
            _ => return Err(wrong_arguments(self)),
        }))
    }
}

/// A UUID of version 4.
fn random_uuid(facts: &Facts) -> [u8; 16] {
    let random = u128::from(next_random(facts)) << 64 | u128::from(next_random(facts));
    let mut bytes = random.to_be_bytes();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

fn make_date(year: i64, month: i64, day: i64) -> Result<Value> {
    let shown = format!("{year}-{month:02}-{day:02}");
    match value_text::parse(&shown, Type::Date) {
        Ok(date) if year > 0 => Ok(date),
        _ => Err(SqlError::new(state::DATETIME_FIELD_OVERFLOW, format!("date field value out of range: {shown}"))),
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

fn wrong_arguments(function: Function) -> SqlError {
    SqlError::internal(format_args!("{function:?} was called with other arguments than it takes"))
}

fn power(a: f64, b: f64) -> Result<Value> {
    if a == 0.0 && b < 0.0 {
        return Err(SqlError::new("2201F", "zero raised to a negative power is undefined"));
    }
    if a < 0.0 && b.fract() != 0.0 {
        return Err(SqlError::new("2201F", "a negative number raised to a non-integer power yields a complex result"));
    }
    let result = a.powf(b);
    match result.is_infinite() && a.is_finite() && b.is_finite() {
        true => Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow")),
        false => Ok(Value::Float(result)),
    }
}

/// NULLs do not count.
fn extreme(which: Function, arguments: &[Cow<'_, Value>]) -> Value {
    let values = arguments.iter().filter(|value| !value.is_null());
    let found = match which {
        Function::Greatest => values.max_by(|a, b| a.compare(b)),
        _ => values.min_by(|a, b| a.compare(b)),
    };
    found.map_or(Value::Null, |value| value.clone().into_owned())
}

/// Characters from a place on, counted from 1; places before the text count, too.
fn substring(text: &str, from: i64, length: Option<i64>) -> Result<Value> {
    if length.is_some_and(|length| length < 0) {
        return Err(SqlError::new(state::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let end = length.map_or(i64::MAX, |length| from.saturating_add(length));
    let (skip, end) = ((from - 1).max(0), (end - 1).max(0));
    let take = usize::try_from(end.saturating_sub(skip).max(0)).unwrap_or(usize::MAX);
    Ok(Value::Text(text.chars().skip(skip as usize).take(take).collect()))
}

fn unknown_field(field: &str) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, format!("unit \"{field}\" not recognized"))
}

fn date_part(field: &str, of: &Value) -> Result<Value> {
    let field = field.to_ascii_lowercase();
    let seconds = |micros: i64| BigDecimal::new(micros.into(), 6);
    let number = match of {
        Value::Interval(interval) => match field.as_str() {
            "epoch" => BigDecimal::new(
                (i128::from(interval.months / 12) * 31_557_600_000_000
                    + i128::from(interval.months % 12) * 30 * i128::from(datetime::MICROS_PER_DAY)
                    + i128::from(interval.days) * i128::from(datetime::MICROS_PER_DAY)
                    + i128::from(interval.micros))
                .into(),
                6,
            ),
            "year" => BigDecimal::from(interval.months / 12),
            "month" => BigDecimal::from(interval.months % 12),
            "day" => BigDecimal::from(interval.days),
            "hour" => BigDecimal::from(interval.micros / datetime::MICROS_PER_HOUR),
            "minute" => BigDecimal::from(interval.micros / datetime::MICROS_PER_MINUTE % 60),
            "second" => seconds(interval.micros % datetime::MICROS_PER_MINUTE),
            _ => return Err(unknown_field(&field)),
        },
        Value::Timestamp(micros) => {
            let (days, time) =
                (micros.div_euclid(datetime::MICROS_PER_DAY), micros.rem_euclid(datetime::MICROS_PER_DAY));
            let (year, month, day) = datetime::date_of(days);
            // 2000-01-01 was a Saturday.
            let weekday = (days + 6).rem_euclid(7);
            match field.as_str() {
                "epoch" => BigDecimal::new((i128::from(*micros) + i128::from(datetime::EPOCH_MICROS)).into(), 6),
                "year" => BigDecimal::from(if year > 0 { year } else { year - 1 }),
                "quarter" => BigDecimal::from((month - 1) / 3 + 1),
                "month" => BigDecimal::from(month),
                "day" => BigDecimal::from(day),
                "dow" => BigDecimal::from(weekday),
                "isodow" => BigDecimal::from(if weekday == 0 { 7 } else { weekday }),
                "doy" => BigDecimal::from(days - datetime::days_of(year, 1, 1) + 1),
                "hour" => BigDecimal::from(time / datetime::MICROS_PER_HOUR),
                "minute" => BigDecimal::from(time / datetime::MICROS_PER_MINUTE % 60),
                "second" => seconds(time % datetime::MICROS_PER_MINUTE),
                "milliseconds" => BigDecimal::new((time % datetime::MICROS_PER_MINUTE).into(), 3),
                "microseconds" => BigDecimal::from(time % datetime::MICROS_PER_MINUTE),
                _ => return Err(unknown_field(&field)),
            }
        }
        other => return Err(SqlError::internal(format_args!("a field of {other:?}"))),
    };
    Ok(Value::Numeric(number))
}

fn date_trunc(field: &str, micros: i64) -> Result<i64> {
    let field = field.to_ascii_lowercase();
    let (year, month, _) = datetime::date_of(micros.div_euclid(datetime::MICROS_PER_DAY));
    let day = |year, month| datetime::days_of(year, month, 1) * datetime::MICROS_PER_DAY;
    let unit = match field.as_str() {
        "microseconds" => 1,
        "milliseconds" => 1_000,
        "second" => datetime::MICROS_PER_SECOND,
        "minute" => datetime::MICROS_PER_MINUTE,
        "hour" => datetime::MICROS_PER_HOUR,
        "day" => datetime::MICROS_PER_DAY,
        "week" => {
            // Weeks begin on Mondays.
            let days = micros.div_euclid(datetime::MICROS_PER_DAY);
            return Ok((days - (days + 5).rem_euclid(7)) * datetime::MICROS_PER_DAY);
        }
        "month" => return Ok(day(year, month)),
        "quarter" => return Ok(day(year, (month - 1) / 3 * 3 + 1)),
        "year" => return Ok(day(year, 1)),
        _ => return Err(unknown_field(&field)),
    };
    Ok(micros.div_euclid(unit) * unit)
}

/// Whether a text matches a pattern of `LIKE`: `%` is any characters, `_` one, `\` takes the next as it is.
pub(crate) fn like(text: &str, pattern: &str, any_case: bool) -> Result<bool> {
    if any_case {
        return like(&text.to_lowercase(), &pattern.to_lowercase(), false);
    }
    #[derive(PartialEq)]
    enum Part {
        Any,
        One,
        This(char),
    }
    let mut parts = Vec::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        parts.push(match character {
            '%' => Part::Any,
            '_' => Part::One,
            '\\' => Part::This(characters.next().ok_or_else(|| {
                SqlError::new(state::INVALID_ESCAPE_SEQUENCE, "LIKE pattern must not end with escape character")
            })?),
            other => Part::This(other),
        });
    }
    let text: Vec<char> = text.chars().collect();
    // Back to the last `%` whenever the rest does not match: it takes one character more.
    let (mut at, mut part) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while at < text.len() {
        match parts.get(part) {
            Some(Part::Any) => {
                back = Some((at, part + 1));
                part += 1;
            }
            Some(Part::One) => (at, part) = (at + 1, part + 1),
            Some(Part::This(character)) if *character == text[at] => (at, part) = (at + 1, part + 1),
            _ => match back {
                Some((from, next)) => {
                    back = Some((from + 1, next));
                    (at, part) = (from + 1, next);
                }
                None => return Ok(false),
            },
        }
    }
    Ok(parts[part..].iter().all(|part| *part == Part::Any))
}

/// A count that a client gave, for LIMIT and OFFSET.
pub(crate) fn count(value: &Value) -> Option<i64> {
    match value {
        Value::Int(count) => Some(*count),
        Value::Numeric(count) => count.to_i64(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_matches_as_postgresql_does() {
        for (text, pattern, matches) in [
            ("abc", "abc", true),
            ("abc", "a%", true),
            ("abc", "%c", true),
            ("abc", "a_c", true),
            ("abc", "_", false),
            ("", "%", true),
            ("", "_", false),
            ("a%c", "a\\%c", true),
            ("abc", "a\\%c", false),
            ("aaab", "%a%ab", true),
            ("mississippi", "%iss%ip%", true),
            ("mississippi", "%isx%", false),
        ] {
            assert_eq!(like(text, pattern, false), Ok(matches), "{text} LIKE {pattern}");
        }
        assert_eq!(like("ABC", "a%", true), Ok(true));
        assert!(like("a", "\\", false).is_err());
    }

    #[test]
    fn substrings_count_from_one_and_may_begin_before() {
        let of = |from, length| substring("hello", from, length).unwrap();
        assert_eq!(of(2, Some(3)), Value::Text("ell".to_owned()));
        assert_eq!(of(-1, Some(3)), Value::Text("h".to_owned()));
        assert_eq!(of(4, None), Value::Text("lo".to_owned()));
        assert_eq!(of(9, Some(2)), Value::Text(String::new()));
        assert!(substring("hello", 1, Some(-1)).is_err());
    }
}
