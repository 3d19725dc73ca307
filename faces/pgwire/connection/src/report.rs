//! Errors, as a client is told of them.

use savanna_pgwire_login::Refusal;

/// SQLSTATE of a client that breaks the protocol.
const PROTOCOL_VIOLATION: &str = "08P01";

/// What went wrong, in the fields of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its SQLSTATE.
    pub state: &'static str,
    /// What was expected, and what came.
    pub message: String,
    /// More about it.
    pub detail: Option<Box<str>>,
    /// What to do about it.
    pub hint: Option<Box<str>>,
    /// The constraint that is violated.
    pub constraint: Option<Box<str>>,
    /// Where in the text that the client sent, in characters from 1.
    pub position: Option<u64>,
}

impl Report {
    /// With a message, and nothing else.
    pub fn new(state: &'static str, message: impl Into<String>) -> Self {
        Self { state, message: message.into(), detail: None, hint: None, constraint: None, position: None }
    }

    /// The client broke the protocol.
    pub fn protocol(message: impl Into<String>) -> Self {
        Self::new(PROTOCOL_VIOLATION, message)
    }

    /// With what to do about it.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<Box<str>>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The fields of the message that tells it.
    pub(crate) fn fields(&self, severity: &str) -> Vec<(u8, String)> {
        let mut fields = vec![
            (b'S', severity.to_owned()),
            (b'V', severity.to_owned()),
            (b'C', self.state.to_owned()),
            (b'M', self.message.clone()),
        ];
        let optional = [(b'D', &self.detail), (b'H', &self.hint), (b'n', &self.constraint)];
        fields.extend(optional.into_iter().filter_map(|(code, text)| Some((code, text.as_deref()?.to_owned()))));
        fields.extend(self.position.map(|position| (b'P', position.to_string())));
        fields.iter_mut().for_each(|(_, text)| drop_zeros(text));
        fields
    }
}

/// Drops zeros from what a client is told: behind one begins the next field.
pub(crate) fn drop_zeros(text: &mut String) {
    text.retain(|character| character != '\0');
}

impl From<Refusal> for Report {
    fn from(Refusal { state, message, hint }: Refusal) -> Self {
        Self { hint: hint.map(Into::into), ..Self::new(state, message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_zero_ends_a_field_of_an_error_early() {
        let report = Report::new("42883", "the call \0f(a) \0is not known").with_hint("a\0b");
        let told: Vec<String> = report.fields("ERROR").into_iter().map(|(_, text)| text).collect();
        assert_eq!(told, ["ERROR", "ERROR", "42883", "the call f(a) is not known", "ab"]);
    }
}
