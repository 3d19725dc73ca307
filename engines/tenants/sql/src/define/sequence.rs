//! What `CREATE SEQUENCE`, `ALTER SEQUENCE` and identity columns say about a sequence.

use savanna_tenants_catalog::{Name, PUBLIC, Sequence};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
};
use sqlparser::ast::{self, SequenceOptions as Ast};

/// Options of a sequence; what is not said stays, or is as PostgreSQL has it.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceOptions {
    pub of: Option<Type>,
    pub increment: Option<i64>,
    /// `Some(None)` is `NO MINVALUE`.
    pub min: Option<Option<i64>>,
    pub max: Option<Option<i64>>,
    pub start: Option<i64>,
    pub cache: Option<i64>,
    pub cycle: Option<bool>,
    /// `SEQUENCE NAME`, of an identity column
    pub name: Option<Name>,
    /// A table and its column; `Some(None)` is `NONE`.
    pub owned_by: Option<Option<(Name, String)>>,
    /// `Some(None)` is the start.
    pub restart: Option<Option<i64>>,
}

impl SequenceOptions {
    /// The options of an identity column.
    pub(crate) fn of_identity(ast: &[Ast]) -> Result<Self> {
        let mut options = Self::default();
        for option in ast {
            match option {
                Ast::IncrementBy(by, _) => options.increment = Some(integer(by)?),
                Ast::MinValue(min) => options.min = Some(min.as_ref().map(integer).transpose()?),
                Ast::MaxValue(max) => options.max = Some(max.as_ref().map(integer).transpose()?),
                Ast::StartWith(start, _) => options.start = Some(integer(start)?),
                Ast::Cache(cache) => options.cache = Some(integer(cache)?),
                // The parser's flag is for NO CYCLE.
                Ast::Cycle(no) => options.cycle = Some(!no),
            }
        }
        Ok(options)
    }

    /// A new sequence, without numbers of its own, in `public`.
    pub fn made(&self, name: String) -> Result<Sequence> {
        let of = self.of.unwrap_or(Type::Int8);
        let increment = self.increment.unwrap_or(1);
        let (min, max) = bounds(of, increment);
        let sequence = Sequence {
            id: 0,
            name,
            state: 0,
            first: 0,
            of,
            start: if increment < 0 { max } else { min },
            increment,
            min,
            max,
            cache: 1,
            cycle: false,
            owner: None,
            schema: PUBLIC,
            comment: None,
        };
        let mut sequence = self.applied(&sequence)?;
        sequence.first = i128::from(sequence.start);
        Ok(sequence)
    }

    /// A sequence with these options instead of its own. How far it is remains.
    pub fn applied(&self, to: &Sequence) -> Result<Sequence> {
        let wrong = |message: String| SqlError::new(state::INVALID_PARAMETER_VALUE, message);
        let of = self.of.unwrap_or(to.of);
        if !of.is_integer() {
            return Err(wrong("sequence type must be smallint, integer, or bigint".to_owned()));
        }
        let increment = self.increment.unwrap_or(to.increment);
        if increment == 0 {
            return Err(wrong("INCREMENT must not be zero".to_owned()));
        }
        let (default_min, default_max) = bounds(of, increment);
        let ((least, most), (old_least, old_most)) = (range(of), range(to.of));
        // A bound that was the old type's becomes the new one's.
        let min = self.min.unwrap_or_else(|| Some(to.min).filter(|min| of == to.of || *min != old_least));
        let max = self.max.unwrap_or_else(|| Some(to.max).filter(|max| of == to.of || *max != old_most));
        let (min, max) = (min.unwrap_or(default_min), max.unwrap_or(default_max));
        for (name, value) in [("MAXVALUE", max), ("MINVALUE", min)] {
            if !(least..=most).contains(&value) {
                return Err(wrong(format!("{name} ({value}) is out of range for sequence data type {}", of.name())));
            }
        }
        if min >= max {
            return Err(wrong(format!("MINVALUE ({min}) must be less than MAXVALUE ({max})")));
        }
        let made = to.state == 0;
        let start = match self.start {
            Some(start) => start,
            None if made && increment < 0 => max,
            None if made => min,
            None => to.start,
        };
        let restart = self.restart.flatten().map(|restart| ("RESTART", restart));
        for (name, value) in [("START", start)].into_iter().chain(restart) {
            if value < min {
                return Err(wrong(format!("{name} value ({value}) cannot be less than MINVALUE ({min})")));
            }
            if value > max {
                return Err(wrong(format!("{name} value ({value}) cannot be greater than MAXVALUE ({max})")));
            }
        }
        let cache = self.cache.unwrap_or(to.cache);
        if cache < 1 {
            return Err(wrong(format!("CACHE ({cache}) must be greater than zero")));
        }
        let cycle = self.cycle.unwrap_or(to.cycle);
        Ok(Sequence { of, increment, min, max, start, cache, cycle, ..to.clone() })
    }
}

fn range(of: Type) -> (i64, i64) {
    match of {
        Type::Int2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        Type::Int4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    }
}

/// The smallest and largest number of a sequence that does not say.
fn bounds(of: Type, increment: i64) -> (i64, i64) {
    let (least, most) = range(of);
    if increment < 0 { (least, -1) } else { (1, most) }
}

fn integer(ast: &ast::Expr) -> Result<i64> {
    let text = ast.to_string();
    text.parse().map_err(|_| {
        let message = format!("value \"{text}\" is out of range for type bigint");
        SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(options: &SequenceOptions) -> std::result::Result<(i64, i64, i64), String> {
        options.made("s".to_owned()).map(|s| (s.min, s.max, s.start)).map_err(|error| error.message)
    }

    #[test]
    fn what_is_not_said_is_as_in_postgresql() {
        let none = SequenceOptions::default();
        assert_eq!(made(&none), Ok((1, i64::MAX, 1)));
        assert_eq!(made(&SequenceOptions { increment: Some(-1), ..none.clone() }), Ok((i64::MIN, -1, -1)));
        assert_eq!(
            made(&SequenceOptions { of: Some(Type::Int2), min: Some(Some(5)), ..none.clone() }),
            Ok((5, 32767, 5))
        );
        let small = SequenceOptions { of: Some(Type::Int2), ..none }.made("s".to_owned()).unwrap();
        let wider = SequenceOptions { of: Some(Type::Int4), ..SequenceOptions::default() }.applied(&small).unwrap();
        assert_eq!((wider.min, wider.max), (1, 2_147_483_647));
    }

    #[test]
    fn bounds_that_contradict_each_other_are_refused() {
        let none = SequenceOptions::default();
        for (options, message) in [
            (SequenceOptions { increment: Some(0), ..none.clone() }, "INCREMENT must not be zero"),
            (SequenceOptions { max: Some(Some(1)), ..none.clone() }, "MINVALUE (1) must be less than MAXVALUE (1)"),
            (SequenceOptions { start: Some(0), ..none.clone() }, "START value (0) cannot be less than MINVALUE (1)"),
            (SequenceOptions { cache: Some(0), ..none.clone() }, "CACHE (0) must be greater than zero"),
            (
                SequenceOptions { of: Some(Type::Int2), max: Some(Some(40_000)), ..none },
                "MAXVALUE (40000) is out of range for sequence data type smallint",
            ),
        ] {
            assert_eq!(made(&options), Err(message.to_owned()));
        }
    }
}
