//! Paths from their texts.

use super::{
    Chain, Head, Method, Operator, Path, Step,
    tokens::{Token, syntax, tokens, wrong_at},
};
use crate::{
    error::{Result, SqlError, state},
    value::numeric,
};

/// How deep brackets may stand in each other.
const DEPTH_MAX: usize = 100;
/// How many operators, steps and literals a path may have.
const PARTS_MAX: usize = 2_000;
/// How long a path may be, and its numbers when all digits are written.
const BYTES_MAX: usize = 256 << 10;
/// The limits of what was shown: all brackets are written there, and all digits.
const SHOWN: Limits = Limits { depth: DEPTH_MAX + 2 * PARTS_MAX, bytes: usize::MAX };

/// What a path may take.
#[derive(Clone, Copy)]
struct Limits {
    depth: usize,
    bytes: usize,
}

pub(super) fn path(text: &str) -> Result<Path> {
    read(text, Limits { depth: DEPTH_MAX, bytes: BYTES_MAX })
}

pub(super) fn shown(text: &str) -> Result<Path> {
    read(text, SHOWN)
}

fn read(text: &str, limits: Limits) -> Result<Path> {
    if text.len() > limits.bytes {
        return Err(too_long());
    }
    let tokens = tokens(text)?;
    let mut reader = Reader { tokens, limits, at: 0, depth: 0, parts: 0, digits: 0, filters: 0, subscripts: 0 };
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

fn too_long() -> SqlError {
    let message = format!("a jsonpath, and its numbers written out, have at most {} KiB", BYTES_MAX >> 10);
    SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message)
}

/// The tokens of a path, read from their start.
struct Reader {
    tokens: Vec<Token>,
    limits: Limits,
    at: usize,
    depth: usize,
    parts: usize,
    /// Bytes of the numbers.
    digits: usize,
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
        if self.depth > self.limits.depth {
            return Err(SqlError::new("54001", format!("a jsonpath is nested more than {DEPTH_MAX} deep")));
        }
        let found = read(self)?;
        self.depth -= 1;
        Ok(found)
    }

    /// There is one more part. What stands to the left of an operator or a step is within it, so that a path of many is deep.
    fn part(&mut self) -> Result<()> {
        self.parts += 1;
        if self.parts <= PARTS_MAX {
            return Ok(());
        }
        Err(SqlError::new("54001", format!("a jsonpath has more than {PARTS_MAX} operators, steps and values")))
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
        self.part()?;
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
            self.part()?;
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
        // Only what stands in brackets of its own has steps: `(exists ($)).type()`.
        if self.take("!") {
            return Ok(alone(Head::Not(Box::new(self.delimited()?))));
        }
        if self.is_name(self.at, "exists") {
            return self.delimited();
        }
        let mut chain = self.primary()?;
        if matches!(chain.head, Head::IsUnknown(_)) && self.is_name(self.at.wrapping_sub(1), "unknown") {
            return Ok(chain);
        }
        while let Some(step) = self.step()? {
            self.part()?;
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
        let head = match self.peek().ok_or_else(|| self.wrong())? {
            Token::String(text) => Head::String(text.clone()),
            Token::Variable(name) => Head::Variable(name.clone()),
            Token::Number(text) => {
                let number = numeric::parse(text)?;
                self.digits = self.digits.saturating_add(numeric::written_bytes(&number));
                Head::Number(number)
            }
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
        if self.digits > self.limits.bytes {
            return Err(too_long());
        }
        self.at += 1;
        self.part()?;
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
            ("$ ? ((@.a - @.b).abs() > 2)", "$?((@.\"a\" - @.\"b\").abs() > 2)"),
            ("2 + (-$.a).abs()", "(2 + (-$.\"a\").abs())"),
            ("$[($.a + 1).abs()]", "$[($.\"a\" + 1).abs()]"),
            ("(($.a == 1) is unknown).type()", "(($.\"a\" == 1) is unknown).type()"),
            ("(exists ($.a)).type()", "(exists ($.\"a\")).type()"),
            ("(!($.a == 1)).type()", "(!($.\"a\" == 1)).type()"),
            ("($ like_regex \"a\").type()", "($ like_regex \"a\").type()"),
        ] {
            let path = path(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!(path.to_string(), shown, "{text}");
            assert_eq!(super::path(shown).as_ref(), Ok(&path), "{shown}");
        }
    }

    #[test]
    fn what_is_shown_is_read_however_deep_its_brackets_are() {
        let texts = [
            format!("{}$", "- ".repeat(90)),
            format!("1{}", "+1".repeat(900)),
            format!("1==1{}", "&&1==1".repeat(600)),
        ];
        // Statements run on threads with much more.
        let work = move || {
            for text in texts {
                let path = path(&text).unwrap();
                assert_eq!(shown(&path.to_string()), Ok(path));
            }
        };
        std::thread::Builder::new().stack_size(64 << 20).spawn(work).unwrap().join().unwrap();
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
            "exists ($).type()",
            "!($ == 1).type()",
            "($ == 1) is unknown.type()",
        ] {
            assert_eq!(path(text).map_err(|error| error.state), Err(state::SYNTAX_ERROR), "{text}");
        }
        assert_eq!(path(" ").unwrap_err().state, state::INVALID_TEXT_REPRESENTATION);
        for (begin, deep) in [("1", "+1"), ("", "$["), ("", "("), ("", "-"), ("", "$.a ? ("), ("$", "[0]")] {
            let text = format!("{begin}{}", deep.repeat(30_000));
            assert_eq!(path(&text).unwrap_err().state, "54001", "{deep}");
        }
        for long in [" ".repeat(1 << 20), format!("$[{}0]", "1e131071,".repeat(10))] {
            assert_eq!(path(&long).unwrap_err().state, state::PROGRAM_LIMIT_EXCEEDED);
        }
        assert_eq!(path("\"\\u0000\"").unwrap_err().state, "22P05");
    }
}
