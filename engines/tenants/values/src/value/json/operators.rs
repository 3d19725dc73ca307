//! What is asked of values of `jsonb`, and what is made of them.

use std::cmp::Ordering;

use super::{
    Json, compare_keys,
    read::{DEPTH_MAX, index, too_deep},
};
use crate::{
    error::{Result, SqlError, state},
    value::size,
};

impl Json {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Object(pairs) = self else { return None };
        let at = pairs.binary_search_by(|(other, _)| compare_keys(other, key)).ok()?;
        Some(&pairs[at].1)
    }

    /// An element of an array, from its end if the place is negative. What is neither array nor object is the only element of one,
    /// as in PostgreSQL.
    pub fn element(&self, place: i64) -> Option<&Self> {
        match self {
            Self::Array(elements) => elements.get(index(place, elements.len())?),
            Self::Object(_) => None,
            scalar => matches!(place, 0 | -1).then_some(scalar),
        }
    }

    /// What stands at the end of a path.
    pub fn at(&self, path: &[String]) -> Option<&Self> {
        path.iter().try_fold(self, |value, step| match value {
            Self::Array(_) => value.element(step.trim().parse().ok()?),
            _ => value.get(step),
        })
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::String(_) => 1,
            Self::Number(_) => 2,
            Self::Bool(_) => 3,
            Self::Array(_) => 4,
            Self::Object(_) => 5,
        }
    }

    /// PostgreSQL's order: by kind, then by the number of elements, then by the elements.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        // A scalar that stands alone is kept as an array of one element, which only an empty array comes before.
        match (self, other) {
            (Self::Array(elements), scalar) if elements.is_empty() && scalar.is_scalar() => Ordering::Less,
            (scalar, Self::Array(elements)) if elements.is_empty() && scalar.is_scalar() => Ordering::Greater,
            (a, b) => a.compare_within(b),
        }
    }

    const fn is_scalar(&self) -> bool {
        !matches!(self, Self::Array(_) | Self::Object(_))
    }

    fn compare_within(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Number(a), Self::Number(b)) => a.cmp(b),
            (Self::String(a), Self::String(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Self::Array(a), Self::Array(b)) => {
                let each = a.iter().zip(b).map(|(a, b)| a.compare_within(b)).find(|order| order.is_ne());
                a.len().cmp(&b.len()).then_with(|| each.unwrap_or(Ordering::Equal))
            }
            (Self::Object(a), Self::Object(b)) => {
                let pair = |((ak, av), (bk, bv)): (&(String, Self), &(String, Self))| {
                    // Keys stand by their length, and are compared by their bytes.
                    ak.as_bytes().cmp(bk.as_bytes()).then_with(|| av.compare_within(bv))
                };
                let each = a.iter().zip(b).map(pair).find(|order| order.is_ne());
                a.len().cmp(&b.len()).then_with(|| each.unwrap_or(Ordering::Equal))
            }
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }

    /// Whether everything in `part` is in here, at the same place.
    pub fn contains(&self, part: &Self) -> bool {
        // An array contains a scalar that is one of its elements.
        match (self, part) {
            (Self::Array(elements), scalar) if scalar.is_scalar() => elements.contains(scalar),
            _ => self.contains_at_place(part),
        }
    }

    fn contains_at_place(&self, part: &Self) -> bool {
        match (self, part) {
            (Self::Object(_), Self::Object(pairs)) => {
                pairs.iter().all(|(key, part)| self.get(key).is_some_and(|value| value.contains_at_place(part)))
            }
            (Self::Array(elements), Self::Array(parts)) => {
                parts.iter().all(|part| elements.iter().any(|element| element.contains_at_place(part)))
            }
            (a, b) => a == b,
        }
    }

    /// Whether a text is a key, an element that is a string, or the string itself.
    pub fn has(&self, text: &str) -> bool {
        let is = |value: &Self| matches!(value, Self::String(string) if string == text);
        match self {
            Self::Array(elements) => elements.iter().any(is),
            Self::Object(_) => self.get(text).is_some(),
            other => is(other),
        }
    }

    /// `||`
    pub fn concat(self, other: Self) -> Self {
        let listed = |value: Self| if let Self::Array(elements) = value { elements } else { vec![value] };
        match (self, other) {
            (Self::Object(mut a), Self::Object(b)) => {
                a.extend(b);
                Self::object(a)
            }
            (a, b) => {
                let mut all = listed(a);
                all.extend(listed(b));
                Self::Array(all)
            }
        }
    }

    /// Without a key, or without the strings that are it.
    pub fn without(self, key: &str) -> Result<Self> {
        Ok(match self {
            Self::Object(mut pairs) => {
                pairs.retain(|(other, _)| other != key);
                Self::Object(pairs)
            }
            Self::Array(mut elements) => {
                elements.retain(|element| !matches!(element, Self::String(text) if text == key));
                Self::Array(elements)
            }
            _ => return Err(wrong_kind("cannot delete from scalar")),
        })
    }

    /// Without an element of an array.
    pub fn without_element(self, place: i64) -> Result<Self> {
        match self {
            Self::Array(mut elements) => {
                if let Some(at) = index(place, elements.len()) {
                    elements.remove(at);
                }
                Ok(Self::Array(elements))
            }
            Self::Object(_) => Err(wrong_kind("cannot delete from object using integer index")),
            _ => Err(wrong_kind("cannot delete from scalar")),
        }
    }

    /// Without what stands at the end of a path.
    pub fn without_path(mut self, path: &[String]) -> Result<Self> {
        let Some((last, before)) = path.split_last() else { return Ok(self) };
        if !matches!(self, Self::Array(_) | Self::Object(_)) {
            return Err(wrong_kind("cannot delete path in scalar"));
        }
        if let Some(parent) = self.at_mut(before)? {
            match parent {
                Self::Object(pairs) => pairs.retain(|(key, _)| key != last),
                Self::Array(elements) => {
                    if let Some(at) = index(place(last, path.len())?, elements.len()) {
                        elements.remove(at);
                    }
                }
                _ => {}
            }
        }
        Ok(self)
    }

    /// With a value at the end of a path. Only the last step may be new, and only if `create`.
    pub fn with(mut self, path: &[String], value: Self, create: bool) -> Result<Self> {
        let Some((last, before)) = path.split_last() else { return Ok(self) };
        if !matches!(self, Self::Array(_) | Self::Object(_)) {
            return Err(wrong_kind("cannot set path in scalar"));
        }
        if let Some(parent) = self.at_mut(before)? {
            match parent {
                Self::Object(pairs) => match pairs.binary_search_by(|(key, _)| compare_keys(key, last)) {
                    Ok(at) => pairs[at].1 = value,
                    Err(at) if create => pairs.insert(at, (last.clone(), value)),
                    Err(_) => {}
                },
                Self::Array(elements) => {
                    let place = place(last, path.len())?;
                    match index(place, elements.len()) {
                        Some(at) => elements[at] = value,
                        None if create && place < 0 => elements.insert(0, value),
                        None if create => elements.push(value),
                        None => {}
                    }
                }
                _ => {}
            }
        }
        Ok(self)
    }

    /// With a value more at the end of a path: before the element that is there, or behind it if `after`.
    pub fn inserted(mut self, path: &[String], value: Self, after: bool) -> Result<Self> {
        let Some((last, before)) = path.split_last() else { return Ok(self) };
        if !matches!(self, Self::Array(_) | Self::Object(_)) {
            return Err(wrong_kind("cannot set path in scalar"));
        }
        match self.at_mut(before)? {
            Some(Self::Object(pairs)) => match pairs.binary_search_by(|(key, _)| compare_keys(key, last)) {
                Ok(_) => {
                    let error = SqlError::new(state::INVALID_PARAMETER_VALUE, "cannot replace existing key");
                    return Err(error.hint("Try using the function jsonb_set to replace key value."));
                }
                Err(at) => pairs.insert(at, (last.clone(), value)),
            },
            Some(Self::Array(elements)) => {
                let place = place(last, path.len())?;
                match index(place, elements.len()) {
                    Some(at) => elements.insert(at + usize::from(after), value),
                    None if place < 0 => elements.insert(0, value),
                    None => elements.push(value),
                }
            }
            _ => {}
        }
        Ok(self)
    }

    /// With a value at the end of a path, all of which is made if it is not there: an array where a step is a number, an object elsewhere.
    ///
    /// # Errors
    /// 22023 if a step leads into a scalar, or before the first element; 22P02 if one into an array is no number; 54000, 54001.
    pub fn put(mut self, path: &[String], value: Self) -> Result<Self> {
        if path.len() > DEPTH_MAX {
            return Err(too_deep("jsonb"));
        }
        let mut target = &mut self;
        // In what the way made any number below zero is the first place.
        let mut is_made = false;
        for (at, step) in path.iter().enumerate() {
            let next = || path.get(at + 1).map_or(Self::Null, |next| Self::container(next));
            target = match target {
                Self::Object(pairs) => {
                    let found = pairs.binary_search_by(|(key, _)| compare_keys(key, step));
                    is_made = found.is_err();
                    let place = found.unwrap_or_else(|place| {
                        pairs.insert(place, (step.clone(), next()));
                        place
                    });
                    &mut pairs[place].1
                }
                Self::Array(elements) => {
                    let number = place(step, at + 1)?;
                    let number = if is_made { number.max(0) } else { number };
                    let Ok(place) = usize::try_from(if number < 0 { number + elements.len() as i64 } else { number })
                    else {
                        return Err(wrong_kind(&format!(
                            "path element at position {} is out of range: {number}",
                            at + 1
                        )));
                    };
                    is_made = place >= elements.len();
                    if is_made {
                        size::check_structure(place.saturating_mul(size_of::<Self>()))?;
                        elements.resize(place, Self::Null);
                        elements.push(next());
                    }
                    &mut elements[place]
                }
                _ => {
                    return Err(wrong_kind("cannot replace existing key")
                        .detail("The path assumes key is a composite object, but it is a scalar value."));
                }
            };
        }
        *target = value;
        Ok(self)
    }

    /// An empty one that has room for what a step leads to.
    fn container(step: &str) -> Self {
        match step.trim_start().parse::<i32>() {
            Ok(_) => Self::Array(Vec::new()),
            Err(_) => Self::Object(Vec::new()),
        }
    }

    fn at_mut(&mut self, path: &[String]) -> Result<Option<&mut Self>> {
        let mut value = self;
        for (at, step) in path.iter().enumerate() {
            let next = match value {
                Self::Object(pairs) => {
                    let found = pairs.binary_search_by(|(key, _)| compare_keys(key, step));
                    found.ok().map(|at| &mut pairs[at].1)
                }
                Self::Array(elements) => {
                    let found = index(place(step, at + 1)?, elements.len());
                    found.map(|at| &mut elements[at])
                }
                _ => None,
            };
            match next {
                Some(next) => value = next,
                None => return Ok(None),
            }
        }
        Ok(Some(value))
    }

    /// Without the keys whose value is `null`, at every depth.
    pub fn stripped(self) -> Self {
        match self {
            Self::Object(pairs) => {
                let kept = pairs.into_iter().filter(|(_, value)| *value != Self::Null);
                Self::Object(kept.map(|(key, value)| (key, value.stripped())).collect())
            }
            Self::Array(elements) => Self::Array(elements.into_iter().map(Self::stripped).collect()),
            other => other,
        }
    }

    /// With numbers in their shortest form, so that equal values have one text.
    pub fn normalized(&self) -> Self {
        match self {
            Self::Number(number) => Self::Number(number.normalized()),
            Self::Array(elements) => Self::Array(elements.iter().map(Self::normalized).collect()),
            Self::Object(pairs) => {
                Self::Object(pairs.iter().map(|(key, value)| (key.clone(), value.normalized())).collect())
            }
            other => other.clone(),
        }
    }
}

fn wrong_kind(message: &str) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
}

/// A step of a path as a place in an array.
fn place(step: &str, number: usize) -> Result<i64> {
    step.trim_start().parse::<i32>().map(i64::from).map_err(|_| {
        let message = format!("path element at position {number} is not an integer: \"{step}\"");
        SqlError::new(state::INVALID_TEXT_REPRESENTATION, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text).unwrap()
    }

    #[test]
    fn what_contains_what_is_as_in_postgresql() {
        for (whole, part, expected) in [
            ("{\"a\": 1, \"b\": [1, 2]}", "{\"b\": [2]}", true),
            ("[1, 2, [3]]", "[[3]]", true),
            ("[1, 2]", "1", true),
            ("1", "[1]", false),
            ("[[1]]", "[1]", false),
            ("{\"a\": {\"b\": 1}}", "{\"b\": 1}", false),
            ("{\"a\": 1}", "{}", true),
        ] {
            assert_eq!(json(whole).contains(&json(part)), expected, "{whole} @> {part}");
        }
    }

    #[test]
    fn paths_lead_to_what_is_replaced_added_and_removed() {
        let path = |steps: &[&str]| steps.iter().map(|step| (*step).to_owned()).collect::<Vec<_>>();
        let of = "{\"a\": [1, {\"b\": 2}]}";
        let with = |steps: &[&str], create| json(of).with(&path(steps), json("9"), create).map(|value| value.text());
        assert_eq!(with(&["a", "1", "b"], false).unwrap(), "{\"a\": [1, {\"b\": 9}]}");
        assert_eq!(with(&["a", "1", "c"], true).unwrap(), "{\"a\": [1, {\"b\": 2, \"c\": 9}]}");
        assert_eq!(with(&["a", "1", "c"], false).unwrap(), of);
        assert_eq!(with(&["a", "7"], true).unwrap(), "{\"a\": [1, {\"b\": 2}, 9]}");
        assert_eq!(with(&["x", "y"], true).unwrap(), of);
        assert_eq!(with(&["a", "x"], true).unwrap_err().state, "22P02");
        let without = |steps: &[&str]| json(of).without_path(&path(steps)).unwrap().text();
        assert_eq!(
            (without(&["a", "-1"]), without(&["a", "1", "b"])),
            ("{\"a\": [1]}".into(), "{\"a\": [1, {}]}".into())
        );
    }

    #[test]
    fn what_is_put_somewhere_makes_the_way_there() {
        let path = |steps: &[&str]| steps.iter().map(|step| (*step).to_owned()).collect::<Vec<_>>();
        let put = |of: &str, steps: &[&str]| json(of).put(&path(steps), json("9")).map(|value| value.text());
        let right: [(&str, &[&str], &str); 6] = [
            ("{\"a\": 1}", &["a"], "{\"a\": 9}"),
            ("{\"a\": 1}", &["b", "c", "d"], "{\"a\": 1, \"b\": {\"c\": {\"d\": 9}}}"),
            ("{}", &["b", "2", "d"], "{\"b\": [null, null, {\"d\": 9}]}"),
            ("[1]", &["3"], "[1, null, null, 9]"),
            ("[1, 2]", &["-2"], "[9, 2]"),
            ("[]", &["0", "a"], "[{\"a\": 9}]"),
        ];
        for (of, steps, expected) in right {
            assert_eq!(put(of, steps).unwrap(), expected, "{of}");
        }
        let wrong: [(&str, &[&str], &str); 6] = [
            ("{\"a\": 1}", &["a", "b"], state::INVALID_PARAMETER_VALUE),
            ("{\"a\": null}", &["a", "b"], state::INVALID_PARAMETER_VALUE),
            ("1", &["0"], state::INVALID_PARAMETER_VALUE),
            ("[1]", &["-2"], state::INVALID_PARAMETER_VALUE),
            ("[1]", &["a"], state::INVALID_TEXT_REPRESENTATION),
            ("[]", &["2147483647"], state::PROGRAM_LIMIT_EXCEEDED),
        ];
        for (of, steps, expected) in wrong {
            assert_eq!(put(of, steps).unwrap_err().state, expected, "{of}");
        }
    }

    #[test]
    fn values_are_ordered_as_in_postgresql() {
        let order = [
            "[]",
            "null",
            "\"b\"",
            "1",
            "2",
            "false",
            "true",
            "[5]",
            "[1, 1]",
            "{}",
            "{\"b\": 1}",
            "{\"a\": 1, \"b\": 1}",
        ];
        for pair in order.windows(2) {
            assert_eq!(json(pair[0]).compare(&json(pair[1])), Ordering::Less, "{pair:?}");
        }
    }
}
