//! Statements of PostgreSQL that the parser does not know.

use savanna_tenants_catalog::{Catalog, Name, Sequence};
use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::{
    ast::{ObjectName, Value},
    keywords::Keyword,
    parser::{Parser, ParserError},
    tokenizer::Token,
};

use crate::{
    define::{composite, domain, sequence::SequenceOptions},
    parse::{
        data_type::{no_type, type_of},
        name::{name_of, object_name, relation_name},
        words::Words,
    },
    plan::{Alteration, Commented, Define, Kind, Plan, SetConstraints},
};

/// The plan of a statement that is one of these.
///
/// # Errors
/// 42601.
pub(crate) fn plan(words: &Words<'_>, catalog: &Catalog) -> Result<Option<Plan>> {
    let Some(begin) = BEGINNINGS.into_iter().find(|begin| words.begin_with(begin)) else { return Ok(None) };
    let grammar = words.grammar();
    if begin[0] == "ALTER" {
        let mut parser = words.parser(&grammar);
        begin.iter().for_each(|_| parser.advance_token());
        if let Some(plan) = owner_change(&mut parser, begin[1], catalog)? {
            return Ok(Some(plan));
        }
    }
    let mut parser = words.parser(&grammar);
    begin.iter().for_each(|_| parser.advance_token());
    let plan = match begin {
        ["SET", "CONSTRAINTS"] => Plan::SetConstraints(set_constraints(&mut parser)?),
        ["CREATE", "SEQUENCE"] => Plan::Define(create_sequence(&mut parser, catalog, false)?),
        ["CREATE", "TEMP" | "TEMPORARY"] if is_word(&parser.peek_token().token, "SEQUENCE") => {
            parser.advance_token();
            Plan::Define(create_sequence(&mut parser, catalog, true)?)
        }
        ["COMMENT", "ON"] => Plan::Define(comment(&mut parser)?),
        ["CREATE", "DOMAIN"] => Plan::Define(domain::create(&mut parser, catalog)?),
        ["ALTER", "DOMAIN"] => Plan::Define(domain::alter(&mut parser)?),
        ["DROP", "DOMAIN"] => Plan::Define(domain::drop(&mut parser)?),
        ["ALTER", "TYPE"] => match composite::alter_type(&mut parser, catalog)? {
            Some(define) => Plan::Define(define),
            None => return Ok(None),
        },
        ["ALTER", "SEQUENCE"] => Plan::Define(alter_sequence(&mut parser)?),
        ["ALTER", "VIEW"] => Plan::Define(alter_view(&mut parser)?),
        ["ALTER", "INDEX"] => Plan::Define(alter_index(&mut parser)?),
        ["ALTER", "SCHEMA"] => Plan::Define(alter_schema(&mut parser)?),
        ["ALTER", "TABLE"] => match alter_table(&mut parser)? {
            Some(define) => Plan::Define(define),
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let _ = parser.consume_token(&Token::SemiColon);
    match parser.next_token().token {
        Token::EOF => Ok(Some(plan)),
        other => Err(wrong(&format!("expected the end of the statement, came {other}"))),
    }
}

/// The two words that a statement of these begins with.
const BEGINNINGS: [[&str; 2]; 14] = [
    ["CREATE", "DOMAIN"],
    ["ALTER", "DOMAIN"],
    ["DROP", "DOMAIN"],
    ["COMMENT", "ON"],
    ["SET", "CONSTRAINTS"],
    ["CREATE", "SEQUENCE"],
    ["CREATE", "TEMP"],
    ["CREATE", "TEMPORARY"],
    ["ALTER", "SEQUENCE"],
    ["ALTER", "TYPE"],
    ["ALTER", "VIEW"],
    ["ALTER", "INDEX"],
    ["ALTER", "SCHEMA"],
    ["ALTER", "TABLE"],
];

pub(crate) fn is_word(token: &Token, expected: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected))
}

fn set_constraints(parser: &mut Parser<'_>) -> Result<SetConstraints> {
    let names = match parser.parse_keyword(Keyword::ALL) {
        true => None,
        false => {
            let names = parser
                .parse_comma_separated(|parser| parser.parse_object_name(false))
                .map_err(|error| syntax(&error))?;
            Some(names.iter().map(object_name).collect::<Result<_>>()?)
        }
    };
    let mode = parser.parse_identifier().map_err(|error| syntax(&error))?;
    let deferred = match name_of(&mode).as_str() {
        "deferred" => true,
        "immediate" => false,
        other => return Err(wrong(&format!("expected DEFERRED or IMMEDIATE, came {other}"))),
    };
    Ok(SetConstraints { names, deferred })
}

fn create_sequence(parser: &mut Parser<'_>, catalog: &Catalog, temporary: bool) -> Result<Define> {
    let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    let name = name(parser)?;
    let options = sequence_options(parser)?;
    if options.restart.is_some() {
        return Err(wrong("a new sequence cannot RESTART"));
    }
    refuse_name(&options)?;
    let schema = catalog.schema_of_new(&name, temporary)?;
    let sequence = Sequence { schema, ..options.made(name.name)? };
    Ok(Define::CreateSequence { sequence, owned_by: options.owned_by.flatten(), if_not_exists })
}

fn alter_sequence(parser: &mut Parser<'_>) -> Result<Define> {
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let old = name(parser)?;
    if parser.parse_keywords(&[Keyword::RENAME, Keyword::TO]) {
        return Ok(Define::RenameSequence { name: old, to: identifier(parser)? });
    }
    if parser.parse_keywords(&[Keyword::SET, Keyword::SCHEMA]) {
        return Ok(Define::Move { kind: Kind::Sequence, name: old, schema: identifier(parser)?, if_exists });
    }
    let options = sequence_options(parser)?;
    refuse_name(&options)?;
    Ok(Define::AlterSequence { name: old, options, if_exists })
}

/// Only the sequence of an identity column has its name among the options.
fn refuse_name(options: &SequenceOptions) -> Result<()> {
    match &options.name {
        None => Ok(()),
        Some(_) => Err(wrong("invalid sequence option SEQUENCE NAME")),
    }
}

fn alter_view(parser: &mut Parser<'_>) -> Result<Define> {
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = name(parser)?;
    if parser.parse_keywords(&[Keyword::SET, Keyword::SCHEMA]) {
        return Ok(Define::Move { kind: Kind::View, name, schema: identifier(parser)?, if_exists });
    }
    if !parser.parse_keywords(&[Keyword::RENAME, Keyword::TO]) {
        return Err(SqlError::unsupported("ALTER VIEW with something else than RENAME TO and SET SCHEMA"));
    }
    Ok(Define::RenameView { name, to: identifier(parser)?, if_exists })
}

fn alter_index(parser: &mut Parser<'_>) -> Result<Define> {
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = name(parser)?;
    if !parser.parse_keywords(&[Keyword::RENAME, Keyword::TO]) {
        return Err(SqlError::unsupported("ALTER INDEX with something else than RENAME TO"));
    }
    Ok(Define::RenameIndex { name, to: identifier(parser)?, if_exists })
}

fn alter_schema(parser: &mut Parser<'_>) -> Result<Define> {
    let name = identifier(parser)?;
    if !parser.parse_keywords(&[Keyword::RENAME, Keyword::TO]) {
        return Err(SqlError::unsupported("ALTER SCHEMA with something else than RENAME TO"));
    }
    Ok(Define::RenameSchema { name, to: identifier(parser)? })
}

/// `ALTER .. OWNER TO`, if it is that. Everything has one owner, as whom clients are shown `postgres`.
fn owner_change(parser: &mut Parser<'_>, kind: &'static str, catalog: &Catalog) -> Result<Option<Plan>> {
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let _ = parser.parse_keyword(Keyword::ONLY);
    let Ok(of) = parser.parse_object_name(false) else { return Ok(None) };
    if !parser.parse_keywords(&[Keyword::OWNER, Keyword::TO]) {
        return Ok(None);
    }
    let owner = identifier(parser)?;
    if !matches!(owner.as_str(), "postgres" | "current_user" | "current_role" | "session_user") {
        return Err(SqlError::unsupported(format_args!("an owner other than postgres, such as {owner},")));
    }
    let missing = |state, message: String| Err(SqlError::new(state, message));
    let (tag, there) = match kind {
        "DOMAIN" => {
            let name = relation_name(&of)?;
            if catalog.domain(&name).is_none() {
                return Err(no_type(catalog, &name));
            }
            ("ALTER DOMAIN", true)
        }
        "TYPE" => {
            let name = relation_name(&of)?;
            if catalog.own_number(&name).is_none() {
                return Err(no_type(catalog, &name));
            }
            ("ALTER TYPE", true)
        }
        "SCHEMA" => {
            let name = object_name(&of)?;
            if catalog.schema_number(&name).is_none() {
                return missing(state::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"));
            }
            ("ALTER SCHEMA", true)
        }
        kind => {
            let tag = match kind {
                "VIEW" => "ALTER VIEW",
                "SEQUENCE" => "ALTER SEQUENCE",
                "INDEX" => "ALTER INDEX",
                _ => "ALTER TABLE",
            };
            (tag, catalog.has(&relation_name(&of)?))
        }
    };
    if !there && !if_exists {
        return missing(state::UNDEFINED_TABLE, format!("relation \"{}\" does not exist", relation_name(&of)?));
    }
    Ok(Some(Plan::Nothing(tag)))
}

/// What is behind `COMMENT ON`.
fn comment(parser: &mut Parser<'_>) -> Result<Define> {
    let kind = identifier(parser)?;
    let on = match kind.as_str() {
        "table" => Commented::Table(name(parser)?),
        "view" => Commented::View(name(parser)?),
        "sequence" => Commented::Sequence(name(parser)?),
        "index" => Commented::Index(name(parser)?),
        "column" => match owner(parser)? {
            Some((relation, column)) => Commented::Column { relation, column },
            None => return Err(wrong("expected the name of a column behind that of its table, came NONE")),
        },
        "constraint" => {
            let constraint = identifier(parser)?;
            parser.expect_keyword(Keyword::ON).map_err(|error| syntax(&error))?;
            Commented::Constraint { table: name(parser)?, name: constraint }
        }
        "type" => Commented::Type(name(parser)?),
        "domain" => Commented::Domain(name(parser)?),
        "schema" => Commented::Schema(identifier(parser)?),
        other => return Err(SqlError::unsupported(format_args!("COMMENT ON {}", other.to_uppercase()))),
    };
    parser.expect_keyword(Keyword::IS).map_err(|error| syntax(&error))?;
    let comment = match parser.parse_keyword(Keyword::NULL) {
        true => None,
        false => Some(text(parser)?),
    };
    Ok(Define::Comment { on, comment })
}

/// A constant that is a text.
fn text(parser: &mut Parser<'_>) -> Result<String> {
    let value = parser.parse_value().map_err(|error| syntax(&error))?.value;
    match value {
        Value::SingleQuotedString(_)
        | Value::EscapedStringLiteral(_)
        | Value::UnicodeStringLiteral(_)
        | Value::DollarQuotedString(_) => Ok(value.into_string().unwrap_or_default()),
        other => Err(wrong(&format!("expected a text, came {other}"))),
    }
}

/// `ALTER COLUMN .. ADD GENERATED .. AS IDENTITY` or `DROP IDENTITY`, if it is that: the parser knows the options of its sequence in one
/// order alone, and the second not at all.
fn identity(parser: &mut Parser<'_>) -> Option<Result<Alteration>> {
    if !parser.parse_keyword(Keyword::ALTER) {
        return None;
    }
    let _ = parser.parse_keyword(Keyword::COLUMN);
    let column = identifier(parser).ok()?;
    if parser.parse_keywords(&[Keyword::DROP, Keyword::IDENTITY]) {
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        return Some(Ok(Alteration::DropIdentity { column, if_exists }));
    }
    if !parser.parse_keywords(&[Keyword::ADD, Keyword::GENERATED]) {
        return None;
    }
    let always = parser.parse_keyword(Keyword::ALWAYS);
    if !always && !parser.parse_keywords(&[Keyword::BY, Keyword::DEFAULT]) {
        return None;
    }
    if !parser.parse_keywords(&[Keyword::AS, Keyword::IDENTITY]) {
        return None;
    }
    let mut options = SequenceOptions::default();
    if parser.consume_token(&Token::LParen) {
        options = match sequence_options(parser) {
            Ok(options) => options,
            Err(error) => return Some(Err(error)),
        };
        if let Err(error) = parser.expect_token(&Token::RParen) {
            return Some(Err(syntax(&error)));
        }
    }
    Some(Ok(Alteration::AddIdentity { column, always, options }))
}

/// `ALTER TABLE .. SET SCHEMA` or a change of a column's identity, if it is that.
fn alter_table(parser: &mut Parser<'_>) -> Result<Option<Define>> {
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let _ = parser.parse_keyword(Keyword::ONLY);
    let Ok(name) = name(parser) else { return Ok(None) };
    if let Some(change) = identity(parser) {
        // With several changes it is the parser's.
        if parser.peek_token().token == Token::Comma {
            return Ok(None);
        }
        return Ok(Some(Define::Alter { table: name, if_exists, changes: vec![change?] }));
    }
    if !parser.parse_keywords(&[Keyword::SET, Keyword::SCHEMA]) {
        return Ok(None);
    }
    Ok(Some(Define::Move { kind: Kind::Table, name, schema: identifier(parser)?, if_exists }))
}

pub(crate) fn identifier(parser: &mut Parser<'_>) -> Result<String> {
    Ok(name_of(&parser.parse_identifier().map_err(|error| syntax(&error))?))
}

/// The options of a sequence, in any order.
fn sequence_options(parser: &mut Parser<'_>) -> Result<SequenceOptions> {
    let mut options = SequenceOptions::default();
    loop {
        let token = parser.next_token().token;
        let word = match &token {
            Token::Word(word) => word.value.to_ascii_lowercase(),
            Token::EOF | Token::SemiColon | Token::RParen => break,
            other => return Err(wrong(&format!("expected an option of a sequence, came {other}"))),
        };
        let twice = match word.as_str() {
            "as" => {
                let of = parser.parse_data_type().map_err(|error| syntax(&error))?;
                options.of.replace(type_of(&of, &Catalog::default())?).is_some()
            }
            "increment" => {
                let _ = parser.parse_keyword(Keyword::BY);
                options.increment.replace(number(parser)?).is_some()
            }
            "minvalue" => options.min.replace(Some(number(parser)?)).is_some(),
            "maxvalue" => options.max.replace(Some(number(parser)?)).is_some(),
            "start" => {
                let _ = parser.parse_keyword(Keyword::WITH);
                options.start.replace(number(parser)?).is_some()
            }
            "restart" => {
                let with = parser.parse_keyword(Keyword::WITH);
                let plain =
                    !with && !matches!(parser.peek_token().token, Token::Number(..) | Token::Minus | Token::Plus);
                options.restart.replace(if plain { None } else { Some(number(parser)?) }).is_some()
            }
            "sequence" => {
                if !is_word(&parser.next_token().token, "NAME") {
                    return Err(wrong("expected NAME behind SEQUENCE"));
                }
                options.name.replace(name(parser)?).is_some()
            }
            "cache" => options.cache.replace(number(parser)?).is_some(),
            "cycle" => options.cycle.replace(true).is_some(),
            "no" => match parser.next_token().token {
                token if is_word(&token, "MINVALUE") => options.min.replace(None).is_some(),
                token if is_word(&token, "MAXVALUE") => options.max.replace(None).is_some(),
                token if is_word(&token, "CYCLE") => options.cycle.replace(false).is_some(),
                other => return Err(wrong(&format!("expected MINVALUE, MAXVALUE or CYCLE, came {other}"))),
            },
            "owned" => {
                parser.expect_keyword(Keyword::BY).map_err(|error| syntax(&error))?;
                options.owned_by.replace(owner(parser)?).is_some()
            }
            _ => return Err(wrong(&format!("expected an option of a sequence, came {token}"))),
        };
        if twice {
            return Err(SqlError::new(state::SYNTAX_ERROR, "conflicting or redundant options"));
        }
    }
    parser.prev_token();
    Ok(options)
}

/// `table.column`, or `NONE`.
fn owner(parser: &mut Parser<'_>) -> Result<Option<(Name, String)>> {
    let mut parts = parser.parse_object_name(false).map_err(|error| syntax(&error))?.0;
    let column = parts.pop();
    let column = column.as_ref().and_then(|part| part.as_ident()).map(name_of).unwrap_or_default();
    match parts.is_empty() {
        true if column == "none" => Ok(None),
        true => Err(wrong("invalid OWNED BY option").hint("Specify OWNED BY table.column or OWNED BY NONE.")),
        false => Ok(Some((relation_name(&ObjectName(parts))?, column))),
    }
}

pub(crate) fn name(parser: &mut Parser<'_>) -> Result<Name> {
    relation_name(&parser.parse_object_name(false).map_err(|error| syntax(&error))?)
}

pub(crate) fn number(parser: &mut Parser<'_>) -> Result<i64> {
    let minus = parser.consume_token(&Token::Minus);
    let _ = parser.consume_token(&Token::Plus);
    let token = parser.next_token().token;
    let Token::Number(digits, _) = &token else { return Err(wrong(&format!("expected a number, came {token}"))) };
    format!("{}{digits}", if minus { "-" } else { "" }).parse().map_err(|_| {
        let message = format!("value \"{digits}\" is out of range for type bigint");
        SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, message)
    })
}

pub(crate) fn syntax(error: &ParserError) -> SqlError {
    wrong(error.to_string().trim_start_matches("sql parser error: "))
}

pub(crate) fn wrong(message: &str) -> SqlError {
    SqlError::new(state::SYNTAX_ERROR, format!("syntax error: {message}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn read(text: &str) -> Words<'_> {
        Words::read(text, Arc::default()).unwrap()
    }

    fn shown(text: &str) -> String {
        match plan(&read(text), &Catalog::default()) {
            Ok(plan) => format!("{plan:?}"),
            Err(error) => error.state.to_owned(),
        }
    }

    #[test]
    fn constraints_are_deferred_by_name_or_all() {
        let all = "Some(SetConstraints(SetConstraints { names: None, deferred: true }))";
        assert_eq!(shown("-- now\n/* or */ set CONSTRAINTS all deferred;"), all);
        let some = "Some(SetConstraints(SetConstraints { names: Some([\"a\", \"B\"]), deferred: false }))";
        assert_eq!(shown("SET CONSTRAINTS a, \"B\" IMMEDIATE"), some);
        assert_eq!(shown("SET CONSTRAINTS a"), "42601");
        assert_eq!(shown("SET CONSTRAINTS a DEFERRED b"), "42601");
        assert_eq!(shown("SET constraint = 1"), "None");
    }

    #[test]
    fn options_of_sequences_come_in_any_order_and_once() {
        let Ok(Some(Plan::Define(Define::CreateSequence { sequence, owned_by, if_not_exists: true }))) = plan(
            &read(
                "CREATE SEQUENCE IF NOT EXISTS s CYCLE START 7 AS int INCREMENT BY -2 MAXVALUE 9 NO MINVALUE OWNED BY t.\"C\";",
            ),
            &Catalog::default(),
        ) else {
            panic!("a sequence");
        };
        assert_eq!((sequence.start, sequence.increment, sequence.max, sequence.cycle), (7, -2, 9, true));
        assert_eq!(owned_by, Some(("t".into(), "C".to_owned())));
        for text in [
            "CREATE SEQUENCE s START 1 START 2",
            "CREATE SEQUENCE s BEGIN",
            "ALTER SEQUENCE s OWNED BY t",
            "ALTER SEQUENCE",
        ] {
            assert_eq!(shown(text), "42601", "{text}");
        }
        assert!(shown("ALTER SEQUENCE s RESTART CYCLE").contains("restart: Some(None)"));
        assert!(shown("ALTER SEQUENCE s RESTART -5").contains("restart: Some(Some(-5))"));
        assert!(shown("ALTER SEQUENCE s RENAME TO r").contains("RenameSequence"));
    }
}
