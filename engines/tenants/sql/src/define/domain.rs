//! Domains: how statements make and change them, and what holds of their values.

use std::sync::Arc;

use savanna_tenants_catalog::{Catalog, Check, Domain, Name, name::quoted};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::Value,
};
use sqlparser::{
    ast::{self, DataType},
    keywords::Keyword,
    parser::Parser,
    tokenizer::Token,
};

use crate::{
    bind::Binder,
    expression::{Env, Expr},
    modify::parse_expression,
    parse::{
        data_type::type_of,
        dialect::{identifier, is_word, name, syntax, wrong},
        name::relation_name,
        print,
    },
    plan::Define,
    query::{
        scope::{Scope, Visible},
        select::Planner,
    },
};

/// What holds of the values of a domain.
#[derive(Debug, PartialEq)]
pub struct DomainRules {
    /// Its name, as SQL has to write it.
    name: String,
    not_null: bool,
    /// The names of conditions, with the conditions over a row of the value alone.
    conditions: Vec<(String, Expr)>,
}

impl DomainRules {
    /// Whether a condition calls what is volatile.
    pub(crate) fn act(&self) -> bool {
        self.conditions.iter().any(|(_, condition)| condition.is_volatile())
    }

    /// Refuses a value that is none of the domain.
    ///
    /// # Errors
    /// 23502, 23514, and those of the conditions.
    pub fn check(&self, value: &Value, env: Env<'_>) -> Result<()> {
        if self.not_null && value.is_null() {
            let message = format!("domain {} does not allow null values", self.name);
            return Err(SqlError::new(state::NOT_NULL_VIOLATION, message));
        }
        for (name, condition) in &self.conditions {
            if *condition.value(env.with_row(std::slice::from_ref(value)))? == Value::Bool(false) {
                let message = format!("value for domain {} violates check constraint \"{name}\"", self.name);
                return Err(SqlError::new(state::CHECK_VIOLATION, message).constraint(name));
            }
        }
        Ok(())
    }
}

impl Planner<'_> {
    /// What holds of the values of a domain.
    pub fn domain_rules(&mut self, domain: &Domain) -> Result<Arc<DomainRules>> {
        let mut conditions = Vec::new();
        for Check { name, condition } in &domain.checks {
            conditions.push((name.clone(), self.domain_condition(domain.of, condition)?));
        }
        let name = self.catalog.written(domain.schema, &domain.name);
        Ok(Arc::new(DomainRules { name, not_null: domain.not_null, conditions }))
    }

    /// A condition on the values of a domain over a type.
    pub fn domain_condition(&mut self, of: Type, condition: &str) -> Result<Expr> {
        let value = Visible {
            table: String::new(),
            name: "value".to_owned(),
            of: of.exact(),
            expr: Expr::Column(0),
            origin: (0, 0),
            optional: false,
            hidden: false,
        };
        let scope = Scope { columns: vec![value], width: 1, ..Scope::default() };
        let mut binder = Binder::closed(&scope, self, "check constraints");
        binder.condition(&parse_expression(condition)?, "CHECK")
    }

    /// The default of a domain, as a value of the type that it is over.
    pub fn domain_default(&mut self, domain: &Domain) -> Result<Expr> {
        let Some(default) = &domain.default else { return Ok(Expr::NULL) };
        let nothing = Scope::default();
        let mut binder = Binder::closed(&nothing, self, "DEFAULT expressions");
        binder.assigned(&parse_expression(default)?, domain.of, &domain.name)
    }
}

/// The domain that a type's name is, if it is one.
pub(crate) fn domain_of<'a>(ast: &DataType, catalog: &'a Catalog) -> Option<&'a Arc<Domain>> {
    let DataType::Custom(name, modifiers) = ast else { return None };
    if !modifiers.is_empty() {
        return None;
    }
    catalog.domain(&relation_name(name).ok()?)
}

/// A change of a domain.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DomainChange {
    SetDefault(Option<String>),
    SetNotNull(bool),
    AddCheck { name: Option<String>, condition: String },
    DropConstraint { name: String, if_exists: bool },
    RenameConstraint { from: String, to: String },
}

/// What stands behind `CREATE DOMAIN`.
pub(crate) fn create(parser: &mut Parser<'_>, catalog: &Catalog) -> Result<Define> {
    let own: Name = name(parser)?;
    let _ = parser.parse_keyword(Keyword::AS);
    let data_type = parser.parse_data_type().map_err(|error| syntax(&error))?;
    if domain_of(&data_type, catalog).is_some() {
        return Err(SqlError::unsupported("a domain over a domain"));
    }
    let of = type_of(&data_type, catalog)?;
    if of.element().unwrap_or(of) == Type::Record {
        let message = format!("\"{}\" is not a valid base type for a domain", of.name());
        return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
    }
    let schema = catalog.schema_of_new(&own, false)?;
    let (not_null, default, checks, comment) = (false, None, Vec::new(), None);
    let mut domain = Domain { id: 0, name: own.name, schema, of, not_null, default, checks, comment };
    let mut said = None;
    let mut unnamed = Vec::new();
    loop {
        let constraint = match parser.parse_keyword(Keyword::CONSTRAINT) {
            true => Some(identifier(parser)?),
            false => None,
        };
        let twice = |message: &str| Err(SqlError::new(state::SYNTAX_ERROR, message));
        let not_null = parser.parse_keywords(&[Keyword::NOT, Keyword::NULL]);
        if not_null || parser.parse_keyword(Keyword::NULL) {
            if said.replace(not_null).is_some_and(|before| before != not_null) {
                return twice("conflicting NULL/NOT NULL constraints");
            }
            domain.not_null = not_null;
        } else if parser.parse_keyword(Keyword::DEFAULT) {
            let default = parser.parse_expr().map_err(|error| syntax(&error))?;
            if domain.default.replace(print::expression(&default)?).is_some() {
                return twice("multiple default expressions");
            }
        } else if parser.parse_keyword(Keyword::COLLATE) {
            let collation = parser.parse_object_name(false).map_err(|error| syntax(&error))?.to_string();
            if !matches!(collation.trim_matches('"'), "C" | "POSIX" | "default") {
                return Err(SqlError::unsupported(format_args!("the collation {collation}")));
            }
        } else if parser.parse_keyword(Keyword::CHECK) {
            unnamed.push((constraint, condition(parser)?));
        } else if constraint.is_some() {
            return Err(wrong("expected CHECK, NOT NULL or NULL behind the name of a constraint"));
        } else {
            break;
        }
    }
    for (name, condition) in unnamed {
        let name = check_name(&domain, name)?;
        domain.checks.push(Check { name, condition });
    }
    Ok(Define::CreateDomain(domain))
}

/// A condition in brackets, as SQL.
fn condition(parser: &mut Parser<'_>) -> Result<String> {
    parser.expect_token(&Token::LParen).map_err(|error| syntax(&error))?;
    let condition: ast::Expr = parser.parse_expr().map_err(|error| syntax(&error))?;
    parser.expect_token(&Token::RParen).map_err(|error| syntax(&error))?;
    print::expression(&condition)
}

/// The name of a new condition: the one that was asked for, or the first that is free.
pub fn check_name(domain: &Domain, asked: Option<String>) -> Result<String> {
    let is_taken = |name: &str| domain.checks.iter().any(|check| check.name == name);
    match asked {
        Some(name) if is_taken(&name) => {
            let message = format!("constraint \"{name}\" for domain {} already exists", quoted(&domain.name));
            Err(SqlError::new(state::DUPLICATE_OBJECT, message))
        }
        Some(name) => Ok(name),
        None => {
            let first = format!("{}_check", domain.name);
            let numbered = (1..).map(|number: u64| format!("{}_check{number}", domain.name));
            let mut names = std::iter::once(first.clone()).chain(numbered);
            Ok(names.find(|name| !is_taken(name)).unwrap_or(first))
        }
    }
}

/// What stands behind `ALTER DOMAIN`.
pub(crate) fn alter(parser: &mut Parser<'_>) -> Result<Define> {
    let domain = name(parser)?;
    let token = parser.next_token().token;
    let change = match &token {
        verb if is_word(verb, "SET") => {
            if parser.parse_keyword(Keyword::DEFAULT) {
                let default = parser.parse_expr().map_err(|error| syntax(&error))?;
                DomainChange::SetDefault(Some(print::expression(&default)?))
            } else if parser.parse_keywords(&[Keyword::NOT, Keyword::NULL]) {
                DomainChange::SetNotNull(true)
            } else {
                return Err(SqlError::unsupported("ALTER DOMAIN .. SET with something else than DEFAULT and NOT NULL"));
            }
        }
        verb if is_word(verb, "DROP") => {
            if parser.parse_keyword(Keyword::DEFAULT) {
                DomainChange::SetDefault(None)
            } else if parser.parse_keywords(&[Keyword::NOT, Keyword::NULL]) {
                DomainChange::SetNotNull(false)
            } else {
                parser.expect_keyword(Keyword::CONSTRAINT).map_err(|error| syntax(&error))?;
                let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
                let name = identifier(parser)?;
                let _ = parser.parse_one_of_keywords(&[Keyword::CASCADE, Keyword::RESTRICT]);
                DomainChange::DropConstraint { name, if_exists }
            }
        }
        verb if is_word(verb, "ADD") => {
            let name = match parser.parse_keyword(Keyword::CONSTRAINT) {
                true => Some(identifier(parser)?),
                false => None,
            };
            parser.expect_keyword(Keyword::CHECK).map_err(|error| syntax(&error))?;
            let condition = condition(parser)?;
            if parser.parse_keywords(&[Keyword::NOT, Keyword::VALID]) {
                return Err(SqlError::unsupported("a constraint of a domain that is NOT VALID"));
            }
            DomainChange::AddCheck { name, condition }
        }
        verb if is_word(verb, "RENAME") && parser.parse_keyword(Keyword::CONSTRAINT) => {
            let from = identifier(parser)?;
            parser.expect_keyword(Keyword::TO).map_err(|error| syntax(&error))?;
            DomainChange::RenameConstraint { from, to: identifier(parser)? }
        }
        verb if is_word(verb, "RENAME") => {
            parser.expect_keyword(Keyword::TO).map_err(|error| syntax(&error))?;
            return Ok(Define::RenameType { name: domain, to: identifier(parser)? });
        }
        other => return Err(wrong(&format!("expected SET, DROP, ADD or RENAME, came {other}"))),
    };
    Ok(Define::AlterDomain { name: domain, change })
}

/// What stands behind `DROP DOMAIN`.
pub(crate) fn drop(parser: &mut Parser<'_>) -> Result<Define> {
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let mut names = vec![name(parser)?];
    while parser.consume_token(&Token::Comma) {
        names.push(name(parser)?);
    }
    let cascade = parser.parse_keyword(Keyword::CASCADE);
    let _ = parser.parse_keyword(Keyword::RESTRICT);
    Ok(Define::DropDomains { names, if_exists, cascade })
}
