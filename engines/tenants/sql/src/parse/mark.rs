//! What the parser does not take, and a name can carry that no client can write: these marks begin with a zero.

use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use super::{is_rare, word};
use crate::{parse::dialect::is_word, plan::window::Exclusion};

/// What stands before the table of a row lock that leaves keys alone. No client can write it.
pub(crate) const WEAKER: &str = "\0";

/// Writes `FOR KEY SHARE` and `FOR NO KEY UPDATE` as `FOR SHARE` and `FOR UPDATE` of a table with a mark.
pub(super) fn write_weaker_locks(tokens: &mut Vec<TokenWithSpan>) {
    let is = |token: &TokenWithSpan, expected: &str| is_word(&token.token, expected);
    if !is_rare(tokens, "KEY") {
        return;
    }
    let places: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    // From the end, so that places before stay what they are.
    for at in (1..places.len().saturating_sub(1)).rev() {
        let reads =
            |words: &[(usize, &str)]| words.iter().all(|(place, expected)| is(&tokens[places[*place]], expected));
        let weaker = reads(&[(at - 1, "FOR"), (at, "KEY"), (at + 1, "SHARE")])
            || at > 1 && reads(&[(at - 2, "FOR"), (at - 1, "NO"), (at, "KEY"), (at + 1, "UPDATE")]);
        if !weaker {
            continue;
        }
        let mark = TokenWithSpan::wrap(Token::make_word(WEAKER, Some('"')));
        let (behind, marked) = match places.get(at + 2).filter(|of| is(&tokens[**of], "OF")) {
            Some(of) => (of + 1, [mark, TokenWithSpan::wrap(Token::Period)]),
            None => (places[at + 1] + 1, [TokenWithSpan::wrap(Token::make_keyword("OF")), mark]),
        };
        tokens.splice(behind..behind, marked);
        tokens.remove(places[at]);
        if is(&tokens[places[at - 1]], "NO") {
            tokens.remove(places[at - 1]);
        }
    }
}

/// What stands between the tables of a row lock. No client can write it.
pub(crate) const AND: &str = "\0,";

/// Writes `FOR UPDATE OF a, b` as a lock of one name, with a mark between the tables.
pub(super) fn write_lock_lists(tokens: &mut Vec<TokenWithSpan>) {
    if !is_rare(tokens, "OF") {
        return;
    }
    let places = places(tokens);
    for at in (1..places.len()).rev() {
        let is = |place: usize, words: [&str; 2]| words.iter().any(|word| is_word(&tokens[places[place]].token, word));
        if !is(at, ["OF", "OF"]) || !is(at - 1, ["UPDATE", "SHARE"]) {
            continue;
        }
        // Names with commas between them; a comma behind a name that is one of several goes on.
        let is_part = |place: &&usize| matches!(tokens[**place].token, Token::Word(_) | Token::Period | Token::Comma);
        let list: Vec<usize> = places[at + 1..].iter().take_while(is_part).copied().collect();
        let commas: Vec<usize> = list.into_iter().filter(|place| tokens[*place].token == Token::Comma).collect();
        for comma in commas.into_iter().rev() {
            let between = [Token::Period, Token::make_word(AND, Some('"')), Token::Period];
            tokens.splice(comma..=comma, between.map(TokenWithSpan::wrap));
        }
    }
}

/// The name of an argument that is an array of all further ones. No client can write it.
pub(crate) const VARIADIC: &str = "\0variadic";

/// Writes `VARIADIC array` as an argument of that name.
pub(super) fn write_variadic(tokens: &mut Vec<TokenWithSpan>) {
    if !is_rare(tokens, "VARIADIC") {
        return;
    }
    let places = places(tokens);
    for three in places.windows(3).rev() {
        let [before, at, behind] = [0, 1, 2].map(|place| &tokens[three[place]]);
        let ends = matches!(behind.token, Token::Comma | Token::RParen | Token::Period);
        if matches!(before.token, Token::LParen | Token::Comma) && word(at) == "VARIADIC" && !ends {
            let blank = Token::Whitespace(Whitespace::Space);
            let named = [Token::make_word(VARIADIC, Some('"')), blank.clone(), Token::RArrow, blank];
            tokens.splice(three[1]..=three[1], named.map(TokenWithSpan::wrap));
        }
    }
}

/// Stands in `GROUP BY` in front of grouping sets of which equal ones are one.
pub(crate) const DISTINCT_SETS: &str = "\0distinct";

/// Writes `GROUP BY DISTINCT ..` as `GROUP BY` of a mark and the rest; `GROUP BY ALL ..` says nothing.
pub(super) fn write_distinct_sets(tokens: &mut Vec<TokenWithSpan>) {
    if !is_rare(tokens, "GROUP") {
        return;
    }
    let places = places(tokens);
    for four in places.windows(4).rev() {
        if word(&tokens[four[0]]) != "GROUP" || word(&tokens[four[1]]) != "BY" {
            continue;
        }
        match word(&tokens[four[2]]).as_str() {
            "DISTINCT" => {
                let mark = [Token::make_word(DISTINCT_SETS, Some('"')), Token::Comma].map(TokenWithSpan::wrap);
                tokens.splice(four[2]..=four[2], mark);
            }
            "ALL" if matches!(tokens[four[3]].token, Token::Word(_) | Token::Number(..) | Token::LParen) => {
                tokens.remove(four[2]);
            }
            _ => {}
        }
    }
}

/// Writes `EXCLUDE ..` behind a frame as a mark before the name that its window begins with.
pub(super) fn write_exclusions(tokens: &mut Vec<TokenWithSpan>) {
    if !is_rare(tokens, "EXCLUDE") {
        return;
    }
    let places = places(tokens);
    for at in (0..places.len()).rev() {
        let next = |more: usize| places.get(at + more).map_or_else(String::new, |place| word(&tokens[*place]));
        if next(0) != "EXCLUDE" {
            continue;
        }
        let (mark, words) = match (next(1).as_str(), next(2).as_str()) {
            ("CURRENT", "ROW") => (Exclusion::Row, 3),
            ("GROUP", _) => (Exclusion::Group, 2),
            ("TIES", _) => (Exclusion::Ties, 2),
            ("NO", "OTHERS") => (Exclusion::Nothing, 3),
            _ => continue,
        };
        let mut depth = 1;
        let begin = (0..at).rev().find(|place| {
            let token = &tokens[places[*place]].token;
            depth += i32::from(*token == Token::RParen) - i32::from(*token == Token::LParen);
            depth == 0
        });
        let Some(begin) = begin else { continue };
        for place in &places[at..at + words] {
            tokens[*place].token = Token::Whitespace(Whitespace::Space);
        }
        if mark == Exclusion::Nothing {
            continue;
        }
        let first = &tokens[places[begin + 1]];
        let clause = matches!(word(first).as_str(), "PARTITION" | "ORDER" | "ROWS" | "RANGE" | "GROUPS");
        let name = match &first.token {
            Token::Word(name) if !clause => name.value.clone(),
            _ => String::new(),
        };
        let folded = word(first).is_empty();
        let name = if folded { name } else { name.to_ascii_lowercase() };
        let marked = TokenWithSpan::wrap(Token::make_word(&format!("\0{}{name}", mark as u8), Some('"')));
        if name.is_empty() {
            let blank = TokenWithSpan::wrap(Token::Whitespace(Whitespace::Space));
            tokens.splice(places[begin] + 1..=places[begin], [marked, blank]);
        } else {
            tokens[places[begin + 1]] = marked;
        }
    }
}

/// What the name of a window says about rows that are left out, and the name without that.
pub(crate) fn excluded(name: &str) -> (Exclusion, &str) {
    let marks = [Exclusion::Row, Exclusion::Group, Exclusion::Ties];
    let marked =
        |exclusion: &Exclusion| name.strip_prefix(&format!("\0{}", *exclusion as u8)).map(|rest| (*exclusion, rest));
    marks.iter().find_map(marked).unwrap_or((Exclusion::Nothing, name))
}

/// The places of tokens that are no blanks.
pub(super) fn places(tokens: &[TokenWithSpan]) -> Vec<usize> {
    (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect()
}
