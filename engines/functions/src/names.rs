//! What functions are called: a name, a partial ARN or an ARN, each with a qualifier or without.

use crate::refusal::Refusal;

/// The account of all functions of a host.
pub const ACCOUNT: &str = "000000000000";
/// Characters of a name at most.
pub const NAME_MAX: usize = 64;
/// The qualifier of what can be changed.
pub const LATEST: &str = "$LATEST";

/// A function as a client names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub function: String,
    /// A version or an alias, if the name says one.
    pub qualifier: Option<String>,
}

impl Named {
    /// Reads a name, `account:function:name`, or an ARN.
    ///
    /// # Errors
    /// It is none of these.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let refused = || {
            Refusal::constraint(
                text,
                "functionName",
                "Member must satisfy regular expression pattern: (arn:(aws[a-zA-Z-]*)?:lambda:)?([a-z]{2}((-gov)|(-iso([a-z]?)))?-[a-z]+-\\d{1}:)?(\\d{12}:)?(function:)?([a-zA-Z0-9-_]+)(:(\\$LATEST|[a-zA-Z0-9-_]+))?",
            )
        };
        let parts: Vec<&str> = text.split(':').collect();
        let rest = match parts.as_slice() {
            ["arn", partition, "lambda", _, _, "function", rest @ ..] if partition.starts_with("aws") => rest,
            [account, "function", rest @ ..] if account.bytes().all(|b| b.is_ascii_digit()) => rest,
            ["function", rest @ ..] => rest,
            rest => rest,
        };
        let (name, qualifier) = match rest {
            [name] => (*name, None),
            [name, qualifier] => (*name, Some(*qualifier)),
            _ => return Err(refused()),
        };
        if !is_name(name, NAME_MAX) || qualifier.is_some_and(|qualifier| !is_qualifier(qualifier)) {
            return Err(refused());
        }
        Ok(Self { function: name.to_owned(), qualifier: qualifier.map(str::to_owned) })
    }

    /// With the qualifier that a request has beside the name; both may be there only if they are the same.
    ///
    /// # Errors
    /// They are not, or it is none.
    pub fn qualified(mut self, qualifier: Option<&str>) -> Result<Self, Refusal> {
        let Some(qualifier) = qualifier else { return Ok(self) };
        if !is_qualifier(qualifier) {
            return Err(Refusal::constraint(
                qualifier,
                "qualifier",
                "Member must satisfy regular expression pattern: (|[a-zA-Z0-9$_-]+)",
            ));
        }
        match &self.qualifier {
            Some(own) if own != qualifier => Err(Refusal::parameter(format!(
                "The derived qualifier from the function name does not match the specified qualifier: {own} and {qualifier}."
            ))),
            _ => {
                self.qualifier = Some(qualifier.to_owned());
                Ok(self)
            }
        }
    }
}

/// Who is told what has become of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A function.
    Function(Named),
    /// A stream of a keys server, by its key.
    Stream(String),
}

/// How the names begin that streams have among functions: none of these may have a colon.
const STREAM: &str = "stream:";
/// Bytes of the key of a stream at most.
const STREAM_MAX: usize = 256;

impl Place {
    /// Reads an ARN: of a function, or `arn:savanna:keys:REGION:ACCOUNT:stream:KEY`. None if it is neither.
    #[must_use]
    pub fn parse(arn: &str) -> Option<Self> {
        let parts: Vec<&str> = arn.splitn(7, ':').collect();
        match parts.as_slice() {
            ["arn", "savanna", "keys", _, _, "stream", key] => {
                let fits = (1..=STREAM_MAX).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic());
                fits.then(|| Self::Stream((*key).to_owned()))
            }
            ["arn", ..] => Named::parse(arn).ok().map(Self::Function),
            _ => None,
        }
    }

    /// Whose events those are that tell it: the name and the qualifier.
    #[must_use]
    pub fn target(self) -> (String, String) {
        match self {
            Self::Function(named) => (named.function, named.qualifier.unwrap_or_else(|| LATEST.to_owned())),
            Self::Stream(key) => (format!("{STREAM}{key}"), LATEST.to_owned()),
        }
    }
}

/// The key of a stream by its name among functions; none if that is a function's.
#[must_use]
pub fn stream(target: &str) -> Option<&str> {
    target.strip_prefix(STREAM)
}

fn is_name(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// Whether it may be a version or an alias.
#[must_use]
pub fn is_qualifier(text: &str) -> bool {
    text == LATEST || is_name(text, 128)
}

/// Whether it may be an alias: no number, or it would be taken for a version.
#[must_use]
pub fn is_alias(text: &str) -> bool {
    is_name(text, 128) && !text.bytes().all(|b| b.is_ascii_digit())
}

/// The ARN of a function, or of one of its versions or aliases.
#[must_use]
pub fn arn(region: &str, function: &str, qualifier: Option<&str>) -> String {
    let base = format!("arn:aws:lambda:{region}:{ACCOUNT}:function:{function}");
    qualifier.map_or_else(|| base.clone(), |qualifier| format!("{base}:{qualifier}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(function: &str, qualifier: Option<&str>) -> Named {
        Named { function: function.to_owned(), qualifier: qualifier.map(str::to_owned) }
    }

    #[test]
    fn a_function_has_a_name_a_partial_arn_and_an_arn() {
        for (text, expected) in [
            ("f", named("f", None)),
            ("f:7", named("f", Some("7"))),
            ("f:$LATEST", named("f", Some("$LATEST"))),
            ("123456789012:function:f", named("f", None)),
            ("123456789012:function:f:live", named("f", Some("live"))),
            ("function:f", named("f", None)),
            ("arn:aws:lambda:eu-west-1:000000000000:function:f:live", named("f", Some("live"))),
        ] {
            assert_eq!(Named::parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_place_is_a_function_or_a_stream() {
        let function = Place::parse("arn:aws:lambda:us-east-1:000000000000:function:f:live").unwrap();
        assert_eq!(function.target(), ("f".to_owned(), "live".to_owned()));
        let place = Place::parse("arn:savanna:keys:us-east-1:000000000000:stream:orders:failed").unwrap();
        let (target, qualifier) = place.target();
        assert_eq!((stream(&target), qualifier.as_str()), (Some("orders:failed"), LATEST));
        assert_eq!(stream("f"), None);
        let long = format!("arn:savanna:keys:r:0:stream:{}", "x".repeat(257));
        for text in [
            "f",
            "arn:aws:sqs:us-east-1:000000000000:q",
            "arn:savanna:keys:r:0:stream:",
            "arn:savanna:keys:r:0:stream:a b",
            "arn:savanna:keys:r:0:set:a",
            &long,
        ] {
            assert_eq!(Place::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = "x".repeat(65);
        for text in ["", "a b", "../x", "f:a:b", "f:", "f:$HEAD", long.as_str(), "a/b"] {
            assert!(Named::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn two_qualifiers_have_to_be_the_same() {
        assert!(Named::parse("f:1").unwrap().qualified(Some("2")).is_err());
        assert_eq!(Named::parse("f:1").unwrap().qualified(Some("1")).unwrap(), named("f", Some("1")));
        assert_eq!(Named::parse("f").unwrap().qualified(Some("a")).unwrap(), named("f", Some("a")));
    }

    #[test]
    fn an_alias_is_no_number() {
        assert!(is_alias("live") && is_alias("v1") && !is_alias("17") && !is_alias("$LATEST"));
    }
}
