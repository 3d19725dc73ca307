//! Composite types that statements make and change.

use savanna_tenants_catalog::{COLUMNS_MAX, Catalog, Name};
use savanna_tenants_values::{
    composite::{Attribute, Composite},
    error::{Result, SqlError, state},
    types::Type,
};
use sqlparser::{
    ast::{self, DataType, UserDefinedTypeCompositeAttributeDef},
    keywords::Keyword,
    parser::Parser,
    tokenizer::Token,
};

use crate::{
    parse::{
        data_type::type_of,
        dialect::{identifier, is_word, syntax, wrong},
        name::{name_of, object_name, relation_name},
    },
    plan::{AttributeChange, Define},
    query::select::Planner,
};

impl Planner<'_> {
    /// `CREATE TYPE .. AS (..)`
    pub(crate) fn create_composite(
        &mut self,
        name: &ast::ObjectName,
        ast: &[UserDefinedTypeCompositeAttributeDef],
    ) -> Result<Define> {
        let name = relation_name(name)?;
        let schema = self.catalog.schema_of_new(&name, false)?;
        if ast.len() > COLUMNS_MAX {
            return Err(SqlError::new("54011", format!("tables can have at most {COLUMNS_MAX} columns")));
        }
        let mut attributes: Vec<Attribute> = Vec::with_capacity(ast.len());
        for UserDefinedTypeCompositeAttributeDef { name, data_type, collation } in ast {
            let name = name_of(name);
            if attributes.iter().any(|other| other.name == name) {
                let message = format!("column \"{name}\" specified more than once");
                return Err(SqlError::new(state::DUPLICATE_COLUMN, message));
            }
            if let Some(collation) = collation {
                check_collation(&object_name(collation)?)?;
            }
            attributes.push(Attribute::new(name.clone(), attribute_type(&name, data_type, self.catalog)?));
        }
        Ok(Define::CreateComposite(Composite { id: 0, name: name.name, schema, attributes, comment: None }))
    }
}

/// Texts have one order here.
fn check_collation(name: &str) -> Result<()> {
    match name {
        "C" | "POSIX" | "default" => Ok(()),
        other => Err(SqlError::unsupported(format_args!("the collation {other}"))),
    }
}

/// The type of an attribute.
fn attribute_type(name: &str, ast: &DataType, catalog: &Catalog) -> Result<Type> {
    let of = type_of(ast, catalog)?;
    match of.element().unwrap_or(of) {
        Type::Record => {
            let message = format!("column \"{name}\" has pseudo-type {}", of.name());
            Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message))
        }
        _ => Ok(of),
    }
}

/// What stands behind `ALTER TYPE`, if it changes attributes: the parser does not know that.
pub(crate) fn alter_type(parser: &mut Parser<'_>, catalog: &Catalog) -> Result<Option<Define>> {
    let Ok(name) = parser.parse_object_name(false) else { return Ok(None) };
    let name: Name = relation_name(&name)?;
    let mut changes = Vec::new();
    loop {
        let verb = parser.next_token().token;
        if !is_word(&parser.next_token().token, "ATTRIBUTE") {
            return match changes.is_empty() {
                true => Ok(None),
                false => Err(wrong("expected another change of an attribute")),
            };
        }
        let change = match verb {
            verb if is_word(&verb, "ADD") => {
                let (attribute, of) = (identifier(parser)?, data_type(parser)?);
                let of = attribute_type(&attribute, &of, catalog)?;
                AttributeChange::Add { name: attribute, of }
            }
            verb if is_word(&verb, "DROP") => {
                let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
                let cascade = is_word(&parser.peek_nth_token(1).token, "CASCADE");
                AttributeChange::Drop { name: identifier(parser)?, if_exists, cascade }
            }
            verb if is_word(&verb, "ALTER") => {
                let attribute = identifier(parser)?;
                let _ = parser.parse_keywords(&[Keyword::SET, Keyword::DATA]);
                parser.expect_keyword(Keyword::TYPE).map_err(|error| syntax(&error))?;
                let of = attribute_type(&attribute, &data_type(parser)?, catalog)?;
                AttributeChange::SetType { name: attribute, of }
            }
            verb if is_word(&verb, "RENAME") => {
                let from = identifier(parser)?;
                parser.expect_keyword(Keyword::TO).map_err(|error| syntax(&error))?;
                AttributeChange::Rename { from, to: identifier(parser)? }
            }
            other => return Err(wrong(&format!("expected ADD, DROP, ALTER or RENAME, came {other}"))),
        };
        changes.push(change);
        let _ = parser.parse_one_of_keywords(&[Keyword::CASCADE, Keyword::RESTRICT]);
        if !parser.consume_token(&Token::Comma) {
            return Ok(Some(Define::AlterComposite { name, changes }));
        }
    }
}

fn data_type(parser: &mut Parser<'_>) -> Result<DataType> {
    let of = parser.parse_data_type().map_err(|error| syntax(&error))?;
    if parser.parse_keyword(Keyword::COLLATE) {
        check_collation(&identifier(parser)?)?;
    }
    Ok(of)
}
