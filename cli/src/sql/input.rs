//! Whether what was typed is complete.

/// Whether a text ends with `;`, outside of strings, quoted names and comments.
pub(crate) fn is_complete(text: &str) -> bool {
    let mut chars = text.chars().peekable();
    let mut ended = false;
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' | '`' => {
                ended = false;
                // A doubled quote closes and opens again, which comes to the same.
                if !chars.by_ref().any(|inner| inner == c) {
                    return false;
                }
            }
            '-' if chars.peek() == Some(&'-') => {
                chars.by_ref().take_while(|inner| *inner != '\n').for_each(drop);
            }
            '/' if chars.peek() == Some(&'*') => {
                chars.next();
                let mut last = ' ';
                let closed = chars.by_ref().any(|inner| {
                    let closes = last == '*' && inner == '/';
                    last = inner;
                    closes
                });
                if !closed {
                    return false;
                }
            }
            ';' => ended = true,
            c if c.is_whitespace() => {}
            _ => ended = false,
        }
    }
    ended
}

/// A line that is for the prompt itself and not for the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meta {
    /// `\q`, `quit`, `exit`.
    Quit,
    /// `\?`, `\h`, `help`.
    Help,
    /// `\d`: tables and views; with a name, its columns.
    Describe(Option<String>),
    /// `\queries`.
    Queries,
    /// No such command.
    Unknown(String),
}

/// What a line asks of the prompt, or nothing if it is SQL.
pub(crate) fn meta(line: &str) -> Option<Meta> {
    let line = line.trim();
    match line.trim_end_matches(';').to_ascii_lowercase().as_str() {
        "quit" | "exit" => return Some(Meta::Quit),
        "help" => return Some(Meta::Help),
        _ => {}
    }
    let command = line.strip_prefix('\\')?;
    let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let rest = rest.trim().trim_end_matches(';');
    Some(match name {
        "q" => Meta::Quit,
        "?" | "h" => Meta::Help,
        "d" => Meta::Describe((!rest.is_empty()).then(|| rest.to_owned())),
        "queries" => Meta::Queries,
        _ => Meta::Unknown(format!("\\{name}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_complete_at_its_semicolon() {
        for complete in ["SELECT 1;", "SELECT ';';", "SELECT 1; -- done", "SELECT 1 /* ; */ ;\n", "SELECT 'it''s';"] {
            assert!(is_complete(complete), "{complete:?}");
        }
        for open in ["", "SELECT 1", "SELECT ';", "SELECT 1 -- ;", "SELECT 1 /* ;", "SELECT `a;", "SELECT 1; SELECT 2"]
        {
            assert!(!is_complete(open), "{open:?}");
        }
    }

    #[test]
    fn lines_for_the_prompt_are_told_from_sql() {
        assert_eq!(meta("\\q"), Some(Meta::Quit));
        assert_eq!(meta(" EXIT; "), Some(Meta::Quit));
        assert_eq!(meta("\\d"), Some(Meta::Describe(None)));
        assert_eq!(meta("\\d bid;"), Some(Meta::Describe(Some("bid".into()))));
        assert_eq!(meta("\\x on"), Some(Meta::Unknown("\\x".into())));
        assert_eq!(meta("SELECT 1;"), None);
        assert_eq!(meta("helpers"), None);
    }
}
