//! Paths from their texts.

use super::{Chain, Head, Method, Operator, Path, Step};
use crate::{
    error::{Result, SqlError, state},
    value::numeric,
};

/// How deep brackets may stand in each other.
const DEPTH_MAX: usize = 100;
/// How many operators a path may have.
const OPERATORS_MAX: usize = 1_000;

/// A word, sign or literal of a path.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// A name, or a word with a meaning.
    Name(String),
    String(String),
    Variable(String),
    /// The text of a number.
    Number(String),
    Sign(&'static str),
}

/// Longer ones first.
const SIGNS: [&str; 27] = [
    "**", "&&", "||", "==", "!=", "<>", "<=", ">=", "$", "@", "(", ")", "[", "]", "{", "}", ".", ",", "?", "*", "+",
    "-", "/", "%", "<", ">", "!",
];

const BLANKS: [char; 5] = [' ', '\t', '\n', '\r', '\u{c}'];

/// What ends a name, beside blanks.
const SPECIAL: &str = "?%$.[]{}()|&!=<>@#,*:-+/\\\"";

pub(super) fn path(text: &str) -> Result<Path> {
    let mut reader = Reader { tokens: tokens(text)?, at: 0, depth: 0, operators: 0, filters: 0, subscripts: 0 };
    if reader.tokens.is_empty() {
        let message = format!("invalid input syntax for type jsonpath: \"{text}\"");
        return Err(SqlError::new(state::INVALID_TEXT_REPRESENTATION, message));
    }
    let strict = reader.take_name("strict");
    if !strict {
        reader.take_name("lax");
    }
    let root = reader.either()?;
    match reader.tokens.get(reader.at) {
        None => Ok(Path { strict, root }),
        Some(_) => Err(reader.wrong()),
    }
}

fn syntax(message: impl Into<String>) -> SqlError {
    SqlError::new(state::SYNTAX_ERROR, message)
}

fn wrong_at(at: &str) -> SqlError {
    match at {
        "" => syntax("syntax error at end of jsonpath input"),
        at => syntax(format!("syntax error at or near \"{at}\" of jsonpath input")),
    }
}

fn tokens(text: &str) -> Result<Vec<Token>> {
    let (mut tokens, mut rest) = (Vec::new(), text);
    loop {
        rest = rest.trim_start_matches(BLANKS);
        if let Some(comment) = rest.strip_prefix("/*") {
            rest =
                comment.split_once("*/").ok_or_else(|| syntax("unexpected end of comment at end of jsonpath input"))?.1;
            continue;
        }
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        if first == '"' {
            tokens.push(Token::String(string(&mut rest)?));
        } else if first.is_ascii_digit() || first == '.' && rest[1..].starts_with(|next: char| next.is_ascii_digit()) {
            tokens.push(Token::Number(number(&mut rest)?));
        } else if let Some(mut name) = rest.strip_prefix('$').filter(|rest| rest.starts_with('"') || begins_name(rest))
        {
            let quoted = name.starts_with('"');
            tokens.push(Token::Variable(if quoted { string(&mut name)? } else { word(&mut name)? }));
            rest = name;
        } else if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else if begins_name(rest) {
            tokens.push(Token::Name(word(&mut rest)?));
        } else {
            return Err(wrong_at(&first.to_string()));
        }
    }
}

fn begins_name(rest: &str) -> bool {
    rest.starts_with(|first: char| first == '\\' || !SPECIAL.contains(first) && !BLANKS.contains(&first))
}

/// A number in front of something.
fn number(rest: &mut &str) -> Result<String> {
    let bytes = rest.as_bytes();
    let digits =
        |from: usize| bytes.get(from..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut at = whole;
    let junk = |end: usize| {
        let shown: String = rest.chars().take(end + 1).collect();
        syntax(format!("trailing junk after numeric literal at or near \"{shown}\" of jsonpath input"))
    };
    if whole > 1 && bytes[0] == b'0' {
        return Err(junk(1));
    }
    // Two points are none of a number.
    if bytes.get(at) == Some(&b'.') {
        at += 1 + digits(at + 1);
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        match digits(at + 1 + sign) {
            0 => return Err(junk(at)),
            exponent => at += 1 + sign + exponent,
        }
    }
    if begins_name(&rest[at..]) {
        return Err(junk(at));
    }
    let (number, behind) = rest.split_at(at);
    *rest = behind;
    Ok(number.to_owned())
}

/// A name in front of something.
fn word(rest: &mut &str) -> Result<String> {
    let mut name = String::new();
    while begins_name(rest) {
        name.push(character(rest)?);
    }
    Ok(name)
}

/// A string between quotes in front of something.
fn string(rest: &mut &str) -> Result<String> {
    let mut inner = &rest[1..];
    let mut text = String::new();
    loop {
        match inner.chars().next() {
            None => return Err(syntax("unterminated quoted string at end of jsonpath input")),
            Some('"') => break,
            Some(_) => text.push(character(&mut inner)?),
        }
    }
    *rest = &inner[1..];
    Ok(text)
}

/// A character, which may be written with a backslash, in front of something.
fn character(rest: &mut &str) -> Result<char> {
    let mut characters = rest.chars();
    let first = characters.next().ok_or_else(|| wrong_at(""))?;
    let value = match first {
        '\\' => match characters.next() {
            None => return Err(syntax("unexpected end after backslash at end of jsonpath input")),
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some('x') => {
                let code = hex(&mut characters, 2)?;
                nonzero(code)?
            }
            Some('u') => unicode(&mut characters)?,
            Some(other) => other,
        },
        other => other,
    };
    *rest = characters.as_str();
    Ok(value)
}

fn hex(characters: &mut std::str::Chars<'_>, count: usize) -> Result<u32> {
    let mut code = 0;
    for _ in 0..count {
        let digit = characters.next().and_then(|digit| digit.to_digit(16));
        code = code << 4 | digit.ok_or_else(|| syntax("invalid Unicode escape sequence of jsonpath input"))?;
    }
    Ok(code)
}

/// What stands behind `\u`: four digits, or up to six in braces, perhaps with a second half.
fn unicode(characters: &mut std::str::Chars<'_>) -> Result<char> {
    let first = match characters.as_str().strip_prefix('{') {
        None => hex(characters, 4)?,
        Some(braced) => {
            let digits = braced.find('}').filter(|digits| (1..=6).contains(digits));
            let digits = digits.ok_or_else(|| syntax("invalid Unicode escape sequence of jsonpath input"))?;
            characters.next();
            let code = hex(characters, digits)?;
            characters.next();
            code
        }
    };
    let wrong = |what: &str| {
        SqlError::new(state::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type jsonpath")
            .detail(format!("Unicode {what}."))
    };
    match first {
        0xd800..0xdc00 => {
            let missing = || wrong("low surrogate must follow a high surrogate");
            let behind = characters.as_str().strip_prefix("\\u").ok_or_else(missing)?;
            *characters = behind.chars();
            match hex(characters, 4)? {
                second @ 0xdc00..0xe000 => nonzero(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)),
                _ => Err(missing()),
            }
        }
        0xdc00..0xe000 => Err(wrong("low surrogate must follow a high surrogate")),
        code => nonzero(code),
    }
}

fn nonzero(code: u32) -> Result<char> {
    let wrong =
        || SqlError::new("22P05", "unsupported Unicode escape sequence").detail("\\u0000 cannot be converted to text.");
    char::from_u32(code).filter(|character| *character != '\0').ok_or_else(wrong)
}

/// The tokens of a path, read from their start.
struct Reader {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    operators: usize,
    /// How many filters and subscripts are around.
    filters: usize,
    subscripts: usize,
}

impl Reader {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take(&mut self, sign: &str) -> bool {
        let is = matches!(self.peek(), Some(Token::Sign(other)) if *other == sign);
        self.at += usize::from(is);
        is
    }

    fn is_name(&self, at: usize, name: &str) -> bool {
        matches!(self.tokens.get(at), Some(Token::Name(other)) if other.eq_ignore_ascii_case(name))
    }

    fn take_name(&mut self, name: &str) -> bool {
        let is = self.is_name(self.at, name);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, sign: &str) -> Result<()> {
        if self.take(sign) { Ok(()) } else { Err(self.wrong()) }
    }

    fn string(&mut self) -> Result<String> {
        match self.peek() {
            Some(Token::String(text)) => {
                let text = text.clone();
                self.at += 1;
                Ok(text)
            }
            _ => Err(self.wrong()),
        }
    }

    fn wrong(&self) -> SqlError {
        wrong_at(match self.peek() {
            None => "",
            Some(Token::Name(text) | Token::String(text) | Token::Variable(text) | Token::Number(text)) => text,
            Some(Token::Sign(sign)) => sign,
        })
    }

    /// Reads what stands between brackets.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(SqlError::new("54001", format!("a jsonpath is nested more than {DEPTH_MAX} deep")));
        }
        let found = read(self)?;
        self.depth -= 1;
        Ok(found)
    }

    /// There is one more operator: what stands to its left is an operand of it, and so on.
    fn operator(&mut self) -> Result<()> {
        self.operators += 1;
        if self.operators <= OPERATORS_MAX {
            return Ok(());
        }
        Err(SqlError::new("54001", format!("a jsonpath has more than {OPERATORS_MAX} operators")))
    }

    /// A predicate, where nothing else may stand.
    fn predicate(&mut self) -> Result<Chain> {
        let found = self.either()?;
        if found.is_predicate() { Ok(found) } else { Err(self.wrong()) }
    }

    /// Something that is no predicate.
    fn value(&mut self) -> Result<Chain> {
        let found = self.either()?;
        if found.is_predicate() { Err(self.wrong()) } else { Ok(found) }
    }

    /// Alternatives, the weakest of operators.
    fn either(&mut self) -> Result<Chain> {
        let mut left = self.all()?;
        while self.take("||") {
            let right = self.all()?;
            left = self.logical(Operator::Or, left, right)?;
        }
        Ok(left)
    }

    fn all(&mut self) -> Result<Chain> {
        let mut left = self.condition()?;
        while self.take("&&") {
            let right = self.condition()?;
            left = self.logical(Operator::And, left, right)?;
        }
        Ok(left)
    }

    fn logical(&mut self, operator: Operator, left: Chain, right: Chain) -> Result<Chain> {
        self.operator()?;
        if left.is_predicate() && right.is_predicate() { Ok(binary(operator, left, right)) } else { Err(self.wrong()) }
    }

    /// A comparison, or what has none.
    fn condition(&mut self) -> Result<Chain> {
        let left = self.sum()?;
        let comparison = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<>", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ]
        .into_iter()
        .find(|(sign, _)| self.take(sign));
        let (is_starts, is_like) = (self.is_name(self.at, "starts"), self.is_name(self.at, "like_regex"));
        if left.is_predicate() && (comparison.is_some() || is_starts || is_like) {
            return Err(self.wrong());
        }
        if let Some((_, operator)) = comparison {
            let right = self.sum()?;
            if right.is_predicate() {
                return Err(self.wrong());
            }
            return Ok(binary(operator, left, right));
        }
        if is_starts {
            self.at += 1;
            if !self.take_name("with") {
                return Err(self.wrong());
            }
            let prefix = match self.peek() {
                Some(Token::String(text)) => Head::String(text.clone()),
                Some(Token::Variable(name)) => Head::Variable(name.clone()),
                _ => return Err(self.wrong()),
            };
            self.at += 1;
            return Ok(binary(Operator::StartsWith, left, alone(prefix)));
        }
        if is_like {
            self.at += 1;
            let pattern = self.string()?;
            let flags = if self.take_name("flag") { flags(&self.string()?)? } else { String::new() };
            return Ok(alone(Head::Like { of: Box::new(left), pattern, flags }));
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<Chain> {
        self.operators(&[("+", Operator::Add), ("-", Operator::Subtract)], Self::product)
    }

    fn product(&mut self) -> Result<Chain> {
        let signs = [("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Remainder)];
        self.operators(&signs, Self::signed)
    }

    /// Operands with operators of one kind between them.
    fn operators(&mut self, signs: &[(&str, Operator)], operand: impl Fn(&mut Self) -> Result<Chain>) -> Result<Chain> {
        let mut left = operand(self)?;
        while let Some((_, operator)) = signs.iter().find(|(sign, _)| self.take(sign)) {
            let right = operand(self)?;
            if left.is_predicate() || right.is_predicate() {
                return Err(self.wrong());
            }
            self.operator()?;
            left = binary(*operator, left, right);
        }
        Ok(left)
    }

    fn signed(&mut self) -> Result<Chain> {
        let negative = self.take("-");
        if !negative && !self.take("+") {
            return self.accessed();
        }
        let of = self.deeper(Self::signed)?;
        if of.is_predicate() {
            return Err(self.wrong());
        }
        Ok(match of {
            Chain { head: Head::Number(number), steps } if steps.is_empty() => {
                alone(Head::Number(if negative { -number } else { number }))
            }
            of => alone(Head::Sign { negative, of: Box::new(of) }),
        })
    }

    /// Something with what leads on from it.
    fn accessed(&mut self) -> Result<Chain> {
        let mut chain = self.primary()?;
        while let Some(step) = self.step()? {
            chain.steps.push(step);
        }
        Ok(chain)
    }

    fn primary(&mut self) -> Result<Chain> {
        if self.take("(") {
            let mut inner = self.deeper(Self::either)?;
            self.expect(")")?;
            if inner.is_predicate() && self.is_name(self.at, "is") && self.is_name(self.at + 1, "unknown") {
                self.at += 2;
                inner = alone(Head::IsUnknown(Box::new(inner)));
            }
            return Ok(inner);
        }
        if self.take("!") {
            return Ok(alone(Head::Not(Box::new(self.delimited()?))));
        }
        if self.is_name(self.at, "exists") {
            return self.delimited();
        }
        let head = match self.peek().ok_or_else(|| self.wrong())? {
            Token::String(text) => Head::String(text.clone()),
            Token::Variable(name) => Head::Variable(name.clone()),
            Token::Number(text) => Head::Number(numeric::parse(text)?),
            Token::Sign("$") => Head::Root,
            Token::Sign("@") if self.filters > 0 => Head::Current,
            Token::Sign("@") => return Err(syntax("@ is not allowed in root expressions")),
            // These three are words only as they are.
            Token::Name(word) if word == "null" => Head::Null,
            Token::Name(word) if word == "true" => Head::Bool(true),
            Token::Name(word) if word == "false" => Head::Bool(false),
            Token::Name(word) if word.eq_ignore_ascii_case("last") && self.subscripts > 0 => Head::Last,
            Token::Name(word) if word.eq_ignore_ascii_case("last") => {
                return Err(syntax("LAST is allowed only in array subscripts"));
            }
            _ => return Err(self.wrong()),
        };
        self.at += 1;
        Ok(alone(head))
    }

    /// `(predicate)` or `exists (value)`
    fn delimited(&mut self) -> Result<Chain> {
        if self.take_name("exists") {
            self.expect("(")?;
            let of = self.deeper(Self::value)?;
            self.expect(")")?;
            return Ok(alone(Head::Exists(Box::new(of))));
        }
        self.expect("(")?;
        let of = self.deeper(Self::predicate)?;
        self.expect(")")?;
        Ok(of)
    }

    /// The next step, if there is one.
    fn step(&mut self) -> Result<Option<Step>> {
        if self.take("?") {
            self.expect("(")?;
            self.filters += 1;
            let condition = self.deeper(Self::predicate)?;
            self.filters -= 1;
            self.expect(")")?;
            return Ok(Some(Step::Filter(condition)));
        }
        if self.take("[") {
            return self.subscript().map(Some);
        }
        if !self.take(".") {
            return Ok(None);
        }
        if self.take("**") {
            return self.levels().map(Some);
        }
        if self.take("*") {
            return Ok(Some(Step::AnyKey));
        }
        let is_string = matches!(self.peek(), Some(Token::String(_)));
        let name = match self.peek() {
            Some(Token::Name(name) | Token::String(name)) => name.clone(),
            _ => return Err(self.wrong()),
        };
        self.at += 1;
        if is_string || !self.take("(") {
            return Ok(Some(Step::Key(name)));
        }
        let lower = name.to_ascii_lowercase();
        let step = match Method::named(&lower) {
            Some(method) => Step::Method(method),
            None if lower == "datetime" => Step::Datetime(match self.peek() {
                Some(Token::String(_)) => Some(self.string()?),
                _ => None,
            }),
            None => {
                self.at -= 1;
                return Err(self.wrong());
            }
        };
        self.expect(")")?;
        Ok(Some(step))
    }

    /// What stands behind `[`.
    fn subscript(&mut self) -> Result<Step> {
        if self.take("*") {
            self.expect("]")?;
            return Ok(Step::AnyElement);
        }
        self.subscripts += 1;
        let mut all = Vec::new();
        loop {
            let from = self.deeper(Self::value)?;
            let to = if self.take_name("to") { Some(self.deeper(Self::value)?) } else { None };
            all.push((from, to));
            if !self.take(",") {
                break;
            }
        }
        self.subscripts -= 1;
        self.expect("]")?;
        Ok(Step::Elements(all))
    }

    /// What stands behind `**`.
    fn levels(&mut self) -> Result<Step> {
        if !self.take("{") {
            return Ok(Step::Any { from: Some(0), to: None });
        }
        let from = self.level()?;
        let to = if self.take_name("to") { self.level()? } else { from };
        self.expect("}")?;
        Ok(Step::Any { from, to })
    }

    fn level(&mut self) -> Result<Option<u32>> {
        if self.take_name("last") {
            return Ok(None);
        }
        let level = match self.peek() {
            Some(Token::Number(text)) => text.parse::<i32>().ok().and_then(|level| u32::try_from(level).ok()),
            _ => None,
        };
        let level = level.ok_or_else(|| self.wrong())?;
        self.at += 1;
        Ok(Some(level))
    }
}

fn alone(head: Head) -> Chain {
    Chain { head, steps: Vec::new() }
}

fn binary(operator: Operator, left: Chain, right: Chain) -> Chain {
    alone(Head::Binary(operator, Box::new(left), Box::new(right)))
}

/// The flags of a regular expression, each once, in PostgreSQL's order.
fn flags(text: &str) -> Result<String> {
    if let Some(other) = text.chars().find(|flag| !"ismxq".contains(*flag)) {
        return Err(syntax("invalid input syntax for type jsonpath")
            .detail(format!("Unrecognized flag character \"{other}\" in LIKE_REGEX predicate.")));
    }
    if text.contains('x') && !text.contains('q') {
        return Err(SqlError::new(
            state::FEATURE_NOT_SUPPORTED,
            "XQuery \"x\" flag (expanded regular expressions) is not implemented",
        ));
    }
    Ok("ismxq".chars().filter(|flag| text.contains(*flag)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_as_postgresql_shows_them() {
        for (text, shown) in [
            ("$", "$"),
            ("strict $", "strict $"),
            ("lax $", "$"),
            ("$.a", "$.\"a\""),
            ("$.a.*[*].v", "$.\"a\".*[*].\"v\""),
            ("$.a[1, last - 1, 2 to 4]", "$.\"a\"[1,last - 1,2 to 4]"),
            ("$.**{2 to last}.b", "$.**{2 to last}.\"b\""),
            ("$.**{last}.b", "$.**{last}.\"b\""),
            ("$ ? (@.a == 1 && !(@.b < \"x\"))", "$?(@.\"a\" == 1 && !(@.\"b\" < \"x\"))"),
            ("$.a + 1 * 2", "($.\"a\" + 1 * 2)"),
            ("(1 + 2) * 3", "((1 + 2) * 3)"),
            ("-$.a", "(-$.\"a\")"),
            ("- 1", "-1"),
            ("(1).type()", "(1).type()"),
            ("$ ? ((@.a == 1) is unknown)", "$?((@.\"a\" == 1) is unknown)"),
            ("$ ? (exists (@.x ? (@ > 2)))", "$?(exists (@.\"x\"?(@ > 2)))"),
            ("$ ? (@ like_regex \"^a\" flag \"xqi\")", "$?(@ like_regex \"^a\" flag \"ixq\")"),
            ("$ ? (@ starts with $\"p q\")", "$?(@ starts with $\"p q\")"),
            ("1.5e2", "150"),
            (".5", "0.5"),
            ("$.size.size()", "$.\"size\".size()"),
            ("$.datetime(\"HH24\")", "$.datetime(\"HH24\")"),
            ("\"\\u0041\\x42\\b\"", "\"AB\\b\""),
            ("$ /* here */ .a", "$.\"a\""),
            ("$.a == 1", "($.\"a\" == 1)"),
        ] {
            let path = path(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!(path.to_string(), shown, "{text}");
            assert_eq!(super::path(shown).as_ref(), Ok(&path), "{shown}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in [
            "$.",
            "$[",
            "$[]",
            "$.a[last].last +",
            "@",
            "last",
            "$ ? (@.a)",
            "$ ? (1 + (2 == 3))",
            "1.type()",
            "1a",
            "01",
            "$ ? (@ like_regex \"a\" flag \"z\")",
            "$.a == 1 == 2",
            "\"a",
            "$.foo()",
            "!$.a",
            "$ $",
            "$ == (1 == 1)",
            "exists ($) + 1",
        ] {
            assert_eq!(path(text).map_err(|error| error.state), Err(state::SYNTAX_ERROR), "{text}");
        }
        assert_eq!(path(" ").unwrap_err().state, state::INVALID_TEXT_REPRESENTATION);
        assert_eq!(path(&format!("1{}", "+1".repeat(1_000_000))).unwrap_err().state, "54001");
        assert_eq!(path(&"$[".repeat(1_000_000)).unwrap_err().state, "54001");
        assert_eq!(path(&"(".repeat(1_000_000)).unwrap_err().state, "54001");
        assert_eq!(path(&"-".repeat(1_000_000)).unwrap_err().state, "54001");
        assert_eq!(path("\"\\u0000\"").unwrap_err().state, "22P05");
    }
}
