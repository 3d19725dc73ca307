//! The parameters of a request. Pure: also of clients that send anything.

use savanna_files_host::{Class, FilesError};

/// What stands behind the question mark. Names are known in any case of their letters; what is empty counts for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Takes a query apart.
    pub(crate) fn parse(query: &str) -> Result<Self, FilesError> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let parsed = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let text = |text: &str| decoded(&text.replace('+', " "));
            Ok::<_, FilesError>((text(name)?.to_ascii_lowercase(), text(value)?))
        });
        parsed
            .filter(|pair| pair.as_ref().is_ok_and(|(_, value)| !value.is_empty()) || pair.is_err())
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// All values of a parameter.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| &**value)
    }

    /// A parameter, if it is there.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| &**value)
    }

    /// A parameter that has to be there.
    pub(crate) fn required(&self, name: &str) -> Result<&str, FilesError> {
        self.text(name).ok_or_else(|| {
            let words =
                format!("Required param {name} for op: {} is null or empty", self.text("op").unwrap_or_default());
            FilesError::new(Class::IllegalArgument, words)
        })
    }

    /// A parameter in a form; nothing if it is not there.
    pub(crate) fn parsed<T>(
        &self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, FilesError> {
        let Some(came) = self.text(name) else { return Ok(None) };
        parse(came).map(Some).ok_or_else(|| {
            let words = format!("Invalid value for webhdfs parameter \"{name}\": expected {expected}, came {came:?}");
            FilesError::new(Class::IllegalArgument, words)
        })
    }

    /// A whole number that is not below nothing.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, FilesError> {
        let most = i64::MAX.unsigned_abs();
        self.parsed(name, "a whole number", |text| text.parse().ok().filter(|number| *number <= most))
    }

    /// A truth value.
    pub(crate) fn flag(&self, name: &str, otherwise: bool) -> Result<bool, FilesError> {
        let parsed = self.parsed(name, "true or false", |text| text.to_ascii_lowercase().parse().ok())?;
        Ok(parsed.unwrap_or(otherwise))
    }

    /// Permission bits.
    pub(crate) fn mode(&self, name: &str) -> Result<Option<u16>, FilesError> {
        let octal = |text: &str| u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o1777);
        self.parsed(name, "an octal number, 0 to 1777", octal)
    }

    /// Words with commas between them, each one of those that there may be.
    pub(crate) fn words(&self, name: &str, possible: &[&str]) -> Result<Vec<String>, FilesError> {
        let expected = format!("words of {}", possible.join(", "));
        let parsed = self.parsed(name, &expected, |text| {
            let words = text.split(',').map(|word| word.trim().to_ascii_uppercase());
            words.map(|word| possible.contains(&&*word).then_some(word)).collect::<Option<Vec<_>>>()
        })?;
        Ok(parsed.unwrap_or_default())
    }
}

/// A text without its escapes.
pub(crate) fn decoded(text: &str) -> Result<String, FilesError> {
    let malformed = || {
        let words = format!("Expected text in UTF-8 with escapes of two hexadecimal digits behind %, came {text:?}");
        FilesError::new(Class::IllegalArgument, words)
    };
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2).ok_or_else(malformed)?;
        let digits = str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        bytes.push(digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(malformed)?);
        rest = behind;
    }
    String::from_utf8(bytes).map_err(|_| malformed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_what_they_stand_for() {
        let parameters =
            Parameters::parse("OP=open&a=1+2%2b3&&b&c=&permission=1755&offset=9&recursive=TRUE&x=a&x=b").unwrap();
        assert_eq!(parameters.text("op"), Some("open"));
        assert_eq!(parameters.text("a"), Some("1 2+3"));
        assert_eq!((parameters.text("b"), parameters.text("c")), (None, None));
        assert_eq!((parameters.mode("permission"), parameters.number("offset")), (Ok(Some(0o1755)), Ok(Some(9))));
        assert_eq!((parameters.flag("recursive", false), parameters.flag("none", true)), (Ok(true), Ok(true)));
        assert_eq!(parameters.all("x").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(parameters.words("op", &["OPEN", "NONE"]), Ok(vec!["OPEN".to_owned()]));
    }

    #[test]
    fn what_is_none_is_refused_with_what_came() {
        let parameters = Parameters::parse("op=X&mode=888&size=-1&flag=1&large=9223372036854775808&words=a,b").unwrap();
        for refused in [
            parameters.mode("mode").map(drop),
            parameters.number("size").map(drop),
            parameters.number("large").map(drop),
            parameters.flag("flag", false).map(drop),
            parameters.words("words", &["A"]).map(drop),
        ] {
            let error = refused.unwrap_err();
            assert!(error.class == Class::IllegalArgument && error.message.contains("came "), "{error:?}");
        }
        assert_eq!(parameters.required("y").unwrap_err().message, "Required param y for op: X is null or empty");
        for text in ["%", "%4", "%zz", "%+1", "%ff"] {
            assert_eq!(Parameters::parse(text).unwrap_err().class, Class::IllegalArgument, "{text}");
            assert_eq!(decoded(text).unwrap_err().class, Class::IllegalArgument, "{text}");
        }
        assert_eq!(decoded("/a+b%20%C3%BC").unwrap(), "/a+b ü");
    }
}
