//! Patterns of `KEYS`, `SCAN` and `PSUBSCRIBE`: `*`, `?`, `[a-c]`, `[^a]`, `\` before what is meant as it is.

/// Whether a pattern matches all of `text`. Takes time in the product of the lengths, never more.
#[must_use]
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at_pattern, mut at_text) = (0, 0);
    // Where to go on if what follows the last star does not match: behind the star, one byte further.
    let mut star = None;
    while at_text < text.len() {
        if pattern.get(at_pattern) == Some(&b'*') {
            star = Some((at_pattern + 1, at_text));
            at_pattern += 1;
        } else if let Some(length) = one(&pattern[at_pattern..], text[at_text]) {
            at_pattern += length;
            at_text += 1;
        } else if let Some((behind, tried)) = star {
            star = Some((behind, tried + 1));
            (at_pattern, at_text) = (behind, tried + 1);
        } else {
            return false;
        }
    }
    pattern[at_pattern..].iter().all(|byte| *byte == b'*')
}

/// The length of the pattern's first element, if it matches one byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some(2),
        b'[' => class(pattern, byte),
        literal => (literal == byte).then_some(1),
    }
}

fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let negated = pattern.get(1) == Some(&b'^');
    let mut at = 1 + usize::from(negated);
    let mut found = false;
    while let Some(&first) = pattern.get(at) {
        match (first, pattern.get(at + 1), pattern.get(at + 2)) {
            (b']', ..) => return (found != negated).then_some(at + 1),
            (b'\\', Some(&escaped), _) => {
                found |= escaped == byte;
                at += 2;
            }
            (_, Some(b'-'), Some(&last)) => {
                found |= (first.min(last)..=first.max(last)).contains(&byte);
                at += 3;
            }
            _ => {
                found |= first == byte;
                at += 1;
            }
        }
    }
    // A class that is not closed ends with the pattern.
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeello", true),
            ("h*l*o", "hello", true),
            ("h*x", "hello", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[\\]]", "]", true),
            ("[abc", "b", true),
            ("a**", "a", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        assert!(!matches(&b"*a".repeat(30), &[b'a'; 2000][..1999].iter().map(|_| b'b').collect::<Vec<_>>()));
        assert!(!matches(&[b"*a".repeat(30), b"b".to_vec()].concat(), &[b'a'; 2000]));
    }
}
