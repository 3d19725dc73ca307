//! `CREATE TABLE`: columns, computed columns, the watermark, options.

use std::collections::BTreeMap;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::{ColumnDef, TableDef, WatermarkDef};
use savanna_streams_model::names::near;
use savanna_streams_model::secrets;

use super::tokens::{self, is_word};
use super::{StatementParser, without_end};
use crate::plan::expression;
use crate::statement::Statement;
use crate::types::data_type;

/// A column whose type may still have to be derived.
struct Column {
    def: ColumnDef,
    place: TokenWithSpan,
    expression: Option<Expr>,
}

struct WatermarkClause {
    column: String,
    place: TokenWithSpan,
    expression: Expr,
}

#[derive(Default)]
struct Elements {
    columns: Vec<Column>,
    watermark: Option<WatermarkClause>,
    primary_key: Vec<String>,
}

/// The options of `WITH (..)`, and where in the text the values are that hold secrets, with what is shown there.
#[derive(Default)]
pub(super) struct TableOptions {
    pub(super) given: BTreeMap<String, String>,
    secrets: Vec<(Span, String)>,
}

impl StatementParser<'_> {
    /// After `CREATE [TEMPORARY] TABLE`.
    pub(super) fn create_table(&mut self, temporary: bool) -> Result<Statement> {
        let if_not_exists = self.words(&["IF", "NOT", "EXISTS"]);
        let name = self.object_name()?;
        let mut elements = Elements::default();
        if self.parser.consume_token(&Token::LParen) {
            loop {
                self.table_element(&mut elements)?;
                if !self.parser.consume_token(&Token::Comma) {
                    break;
                }
            }
            self.expect(&Token::RParen, ", or )")?;
        }
        if self.word("COMMENT") {
            self.string("the comment")?;
        }
        let next = self.parser.peek_token();
        for (word, what, instead) in [
            ("DISTRIBUTED", "DISTRIBUTED BY", "leave it out"),
            ("LIKE", "CREATE TABLE .. LIKE", "repeat the columns"),
            ("AS", "CREATE TABLE .. AS SELECT", "CREATE the table first, then INSERT INTO it"),
        ] {
            if is_word(&next.token, word) {
                return Err(self.unsupported(what, &next, instead));
            }
        }
        let partitioned_by = self.partitioned_by(&elements.columns)?;
        let options = self.table_options()?;
        let columns = self.typed_columns(elements.columns)?;
        let watermark = elements.watermark.map(|w| self.watermark(&w)).transpose()?;
        let statement = self.text_without(&options.secrets);
        let (primary_key, options) = (elements.primary_key, options.given);
        let table = TableDef { name, columns, watermark, partitioned_by, primary_key, options, statement };
        check_watermark(&table)?;
        Ok(Statement::CreateTable { table, if_not_exists, temporary })
    }

    fn table_element(&mut self, elements: &mut Elements) -> Result<()> {
        let first = self.parser.peek_token();
        let second = self.parser.peek_nth_token(1);
        if is_word(&first.token, "WATERMARK") && is_word(&second.token, "FOR") {
            let clause = self.watermark_clause()?;
            if elements.watermark.replace(clause).is_some() {
                return Err(self.invalid("a table has one WATERMARK, but this is the second", &first));
            }
            return Ok(());
        }
        if is_word(&first.token, "PRIMARY") && is_word(&second.token, "KEY") {
            self.words(&["PRIMARY", "KEY"]);
            let columns = self.names()?;
            self.not_enforced(&first)?;
            return self.primary_key(elements, columns, &first);
        }
        for (word, after) in
            [("CONSTRAINT", ""), ("UNIQUE", "("), ("CHECK", "("), ("FOREIGN", "KEY"), ("PERIOD", "FOR")]
        {
            if is_word(&first.token, word) && (after.is_empty() || second.token.to_string().eq_ignore_ascii_case(after))
            {
                return Err(self.unsupported(word, &first, "only PRIMARY KEY (..) NOT ENFORCED may be declared"));
            }
        }
        let (column, is_key) = self.column()?;
        if is_key {
            self.primary_key(elements, vec![column.def.name.clone()], &first)?;
        }
        if elements.columns.iter().any(|c| c.def.name == column.def.name) {
            return Err(
                self.invalid(&format!("column {} is declared twice; choose another name", column.def.name), &first)
            );
        }
        elements.columns.push(column);
        Ok(())
    }

    /// A column, and whether it alone is the primary key.
    fn column(&mut self) -> Result<(Column, bool)> {
        let place = self.parser.peek_token();
        let name = self.identifier("a column name")?.value;
        if self.word("AS") {
            let start = self.parser.peek_token().span.start;
            let expression = self.parser.parse_expr().map_err(|e| self.syntax(e))?;
            let computed = Some(self.text_since(start).to_owned());
            self.column_comment()?;
            let def = ColumnDef { name, data_type: arrow::datatypes::DataType::Null, nullable: true, computed };
            return Ok((Column { def, place, expression: Some(expression) }, false));
        }
        if matches!(self.parser.peek_token_ref().token, Token::Comma | Token::RParen) {
            return Err(self.expected(&format!("the type of column {name}, or AS and an expression")));
        }
        let type_token = self.parser.peek_token();
        let sql_type = self.parser.parse_data_type().map_err(|e| self.syntax(e))?;
        let data_type = data_type(&sql_type).map_err(|e| self.locate(e, &type_token))?;
        let (mut nullable, mut is_key) = (true, false);
        loop {
            let option = self.parser.peek_token();
            if self.words(&["NOT", "NULL"]) {
                nullable = false;
            } else if self.word("NULL") {
                nullable = true;
            } else if self.words(&["PRIMARY", "KEY"]) {
                self.not_enforced(&option)?;
                is_key = true;
            } else if is_word(&option.token, "METADATA") {
                return Err(self.unsupported("METADATA", &option, "declare the fields of the row itself"));
            } else if is_word(&option.token, "DEFAULT") || is_word(&option.token, "GENERATED") {
                return Err(self.unsupported(
                    &option.token.to_string(),
                    &option,
                    "write `name AS expression` for a computed column",
                ));
            } else {
                break;
            }
        }
        self.column_comment()?;
        let next = self.parser.peek_token();
        if !matches!(next.token, Token::Comma | Token::RParen) {
            return Err(self.expected_at("NOT NULL, COMMENT, a comma or )", &next));
        }
        Ok((Column { def: ColumnDef { name, data_type, nullable, computed: None }, place, expression: None }, is_key))
    }

    fn column_comment(&mut self) -> Result<()> {
        if self.word("COMMENT") {
            self.string("the comment")?;
        }
        Ok(())
    }

    fn primary_key(&self, elements: &mut Elements, columns: Vec<String>, place: &TokenWithSpan) -> Result<()> {
        if !elements.primary_key.is_empty() {
            return Err(self.invalid("a table has one PRIMARY KEY, but this is the second", place));
        }
        elements.primary_key = columns;
        Ok(())
    }

    /// A primary key is a promise of the user, which connectors may use; one that should be enforced is refused.
    fn not_enforced(&mut self, key: &TokenWithSpan) -> Result<()> {
        if self.words(&["NOT", "ENFORCED"]) {
            return Ok(());
        }
        Err(self.unsupported("an enforced PRIMARY KEY", key, "write PRIMARY KEY (..) NOT ENFORCED"))
    }

    fn watermark_clause(&mut self) -> Result<WatermarkClause> {
        self.words(&["WATERMARK", "FOR"]);
        let place = self.parser.peek_token();
        let column = self.identifier("the event-time column")?.value;
        self.expect_word("AS")?;
        let expression = self.parser.parse_expr().map_err(|e| self.syntax(e))?;
        Ok(WatermarkClause { column, place, expression })
    }

    fn watermark(&self, clause: &WatermarkClause) -> Result<WatermarkDef> {
        let column = &clause.column;
        let is_column = |e: &Expr| matches!(e, Expr::Identifier(ident) if ident.value == *column);
        let delay = match &clause.expression {
            e if is_column(e) => Some(0),
            Expr::BinaryOp { left, op: BinaryOperator::Minus, right } if is_column(left) => Some(
                expression::interval_micros(right, "the delay of a watermark")
                    .map_err(|e| self.locate(e, &clause.place))?,
            ),
            _ => None,
        };
        match delay {
            Some(delay) if delay >= 0 => Ok(WatermarkDef { column: column.clone(), delay }),
            Some(_) => Err(self.invalid("the delay of a watermark must not be negative", &clause.place)),
            None => Err(self.invalid(
                &format!("a watermark is the event-time column, or that minus an interval: WATERMARK FOR {column} AS {column} - INTERVAL '4' SECOND"),
                &clause.place,
            )),
        }
    }

    /// `PARTITIONED BY (a, b)`, columns that the connector writes.
    fn partitioned_by(&mut self, columns: &[Column]) -> Result<Vec<String>> {
        let place = self.parser.peek_token();
        if !self.word("PARTITIONED") {
            return Ok(Vec::new());
        }
        self.expect_word("BY")?;
        let names = self.names()?;
        for name in &names {
            let column = columns.iter().find(|c| c.def.name == *name);
            match column {
                Some(column) if column.expression.is_none() => {}
                Some(_) => {
                    let message = format!("PARTITIONED BY names {name}, which is computed and not written");
                    return Err(self.invalid(&message, &place));
                }
                None => {
                    let known = columns.iter().map(|c| c.def.name.as_str());
                    let hint = savanna_streams_model::names::hint(name, known, "columns of the table");
                    let position = Some(self.place(&place));
                    return Err(StreamError::Unknown { kind: "column".into(), name: name.clone(), position, hint });
                }
            }
        }
        Ok(names)
    }

    fn table_options(&mut self) -> Result<TableOptions> {
        let with = self.parser.peek_token();
        let options = self.options()?;
        if !options.given.contains_key("connector") {
            let near = options.given.keys().find(|key| !near(key, ["connector"]).is_empty());
            let advice = match near {
                Some(key) => format!("did you mean that by '{key}'?"),
                None => "SHOW CONNECTORS lists them".to_owned(),
            };
            let message =
                format!("a table needs the option 'connector', which says where its rows come from or go to; {advice}");
            return Err(self.invalid(&message, &with));
        }
        Ok(options)
    }

    /// `WITH ('name' = 'value', ..)`.
    pub(super) fn options(&mut self) -> Result<TableOptions> {
        self.expect_word("WITH")?;
        self.expect(&Token::LParen, "(")?;
        let mut options = TableOptions::default();
        loop {
            let place = self.parser.peek_token();
            let key = self.string("the name of an option")?;
            self.expect(&Token::Eq, "=")?;
            let span = self.parser.peek_token().span;
            let value = self.string("the value of the option")?;
            options.secrets.extend(secrets::hidden(&key, &value).map(|shown| (span, shown)));
            if options.given.insert(key.clone(), value).is_some() {
                return Err(self.invalid(&format!("option '{key}' is given twice; keep one"), &place));
            }
            if !self.parser.consume_token(&Token::Comma) {
                break;
            }
        }
        self.expect(&Token::RParen, ", or )")?;
        Ok(options)
    }

    /// The text of the statement, with what is shown in the place of secrets.
    fn text_without(&self, secrets: &[(Span, String)]) -> String {
        let (mut text, mut from) = (String::new(), 0);
        for (span, shown) in secrets {
            let [start, end] = [span.start, span.end].map(|place| tokens::byte_offset(self.sql, place));
            text += &self.sql[from..start];
            text += &format!("'{}'", shown.replace('\'', "''"));
            from = end;
        }
        text += &self.sql[from..];
        without_end(&text)
    }

    /// Derives the types of computed columns from the others.
    fn typed_columns(&self, columns: Vec<Column>) -> Result<Vec<ColumnDef>> {
        let physical: Vec<ColumnDef> =
            columns.iter().filter(|c| c.expression.is_none()).map(|c| c.def.clone()).collect();
        columns
            .into_iter()
            .map(|column| {
                let Column { mut def, place, expression } = column;
                if let Some(expression) = expression {
                    let field = expression::typed(&expression, &physical)
                        .map_err(|e| if e.position().is_some() { e } else { self.locate(e, &place) })?;
                    (def.data_type, def.nullable) = field;
                }
                Ok(def)
            })
            .collect()
    }

    fn invalid(&self, message: &str, token: &TokenWithSpan) -> StreamError {
        StreamError::Invalid { message: message.to_owned(), position: Some(self.place(token)) }
    }

    /// Gives an error the place of a token.
    fn locate(&self, mut error: StreamError, token: &TokenWithSpan) -> StreamError {
        if let StreamError::Invalid { position, .. }
        | StreamError::Unsupported { position, .. }
        | StreamError::Unknown { position, .. } = &mut error
        {
            *position = Some(self.place(token));
        }
        error
    }
}

/// Checks that the watermark's column exists and is a point in time. A table whose columns the connector fills in is
/// checked again once they are there.
///
/// # Errors
/// The column does not exist or has another type.
pub fn check_watermark(table: &TableDef) -> Result<()> {
    let Some(watermark) = &table.watermark else {
        return Ok(());
    };
    if table.columns.is_empty() {
        return Ok(());
    }
    let Some(column) = table.columns.iter().find(|c| c.name == watermark.column) else {
        return Err(StreamError::Unknown {
            kind: "column".into(),
            name: watermark.column.clone(),
            position: None,
            hint: savanna_streams_model::names::hint(
                &watermark.column,
                table.columns.iter().map(|c| c.name.as_str()),
                "columns of the table",
            ),
        });
    };
    if !matches!(column.data_type, arrow::datatypes::DataType::Timestamp(..)) {
        return Err(StreamError::invalid(format!(
            "the event-time column {} must be of type TIMESTAMP(3), but is {}; add a computed column, such as ts AS CAST({} AS TIMESTAMP(3))",
            column.name,
            savanna_streams_api::type_name(&column.data_type),
            column.name
        )));
    }
    Ok(())
}
