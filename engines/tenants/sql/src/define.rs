//! Plans of what changes the catalog.

pub(crate) mod composite;
pub mod default_sequence;
pub mod domain;
pub mod index;
pub(crate) mod operator_class;
pub mod placement;
pub mod reference;
pub mod role;
pub mod sequence;
pub(crate) mod table_as;

use std::collections::{BTreeMap, HashSet};

use savanna_tenants_catalog::{
    CHANGES_MAX, COLUMNS_MAX, Catalog, Check, Column, Comments, Definition, Generated, Index, Name, OnCommit,
    Placement, PrimaryKey, Sequence, TEMPORARY, Table, name::NAME_BYTES_MAX,
};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
};
use sqlparser::ast::{
    self, AlterColumnOperation, AlterTableOperation, ColumnOption, DropBehavior, RenameTableNameKind, TableConstraint,
};

use crate::{
    bind::Binder,
    define::{
        default_sequence::with_numbers,
        domain::domain_of,
        index::{places, plain_columns},
        placement::{NewPlacement, placement_of},
        reference::{NewForeignKey, new_foreign_key},
        sequence::SequenceOptions,
    },
    expression::Expr,
    modify::{parse_expression, scope_of},
    parse::{
        data_type::type_of,
        name::{name_of, object_name, relation_name},
        print,
    },
    plan::{Alteration, Define, NewColumn, NewTable},
    query::{scope::Scope, select::Planner},
};

/// Constraints of a table that is being made, in the order in which they were met.
#[derive(Default)]
struct Constraints {
    primary: Option<(Option<String>, Vec<String>)>,
    unique: Vec<(Option<String>, Vec<String>)>,
    checks: Vec<(Option<String>, String, Option<String>)>,
    foreign_keys: Vec<NewForeignKey>,
}

impl Constraints {
    fn set_primary(
        &mut self,
        table: &str,
        key: &ast::PrimaryKeyConstraint,
        name: Option<String>,
        columns: Vec<String>,
    ) -> Result<()> {
        if key.characteristics.is_some() {
            return Err(SqlError::unsupported("a deferrable PRIMARY KEY"));
        }
        if self.primary.replace((name, columns)).is_some() {
            let message = format!("multiple primary keys for table \"{table}\" are not allowed");
            return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message));
        }
        Ok(())
    }

    fn add_unique(&mut self, key: &ast::UniqueConstraint, name: Option<String>, columns: Vec<String>) -> Result<()> {
        if key.characteristics.is_some() {
            return Err(SqlError::unsupported("a deferrable UNIQUE"));
        }
        if key.nulls_distinct == ast::NullsDistinctOption::NotDistinct {
            return Err(SqlError::unsupported("NULLS NOT DISTINCT"));
        }
        self.unique.push((name, columns));
        Ok(())
    }

    fn add_check(&mut self, check: &ast::CheckConstraint, name: Option<String>, column: Option<String>) -> Result<()> {
        if check.enforced.is_some() {
            return Err(SqlError::unsupported("a CHECK that says whether it is ENFORCED"));
        }
        self.checks.push((name, print::expression(&check.expr)?, column));
        Ok(())
    }

    fn add(&mut self, table: &str, constraint: &TableConstraint) -> Result<()> {
        match constraint {
            TableConstraint::PrimaryKey(key) => {
                self.set_primary(table, key, key.name.as_ref().map(name_of), plain_columns(&key.columns)?)
            }
            TableConstraint::Unique(key) => {
                self.add_unique(key, key.name.as_ref().map(name_of), plain_columns(&key.columns)?)
            }
            TableConstraint::Check(check) => self.add_check(check, check.name.as_ref().map(name_of), None),
            TableConstraint::ForeignKey(key) => {
                self.foreign_keys.push(new_foreign_key(key, None)?);
                Ok(())
            }
            other => Err(SqlError::unsupported(format_args!("the constraint {other}"))),
        }
    }
}

/// The type of a `serial` column, if it is one.
fn serial_type(ast: &ast::DataType) -> Option<Type> {
    let ast::DataType::Custom(name, modifiers) = ast else { return None };
    match (name.to_string().to_ascii_lowercase().as_str(), modifiers.is_empty()) {
        ("smallserial" | "serial2", true) => Some(Type::Int2),
        ("serial" | "serial4", true) => Some(Type::Int4),
        ("bigserial" | "serial8", true) => Some(Type::Int8),
        _ => None,
    }
}

/// A column as it was written, with its part of the table's constraints.
fn column(catalog: &Catalog, table: &str, ast: &ast::ColumnDef, constraints: &mut Constraints) -> Result<NewColumn> {
    let name = name_of(&ast.name);
    let serial = serial_type(&ast.data_type);
    let domain = domain_of(&ast.data_type, catalog);
    let of = match (serial, domain) {
        (Some(of), _) => of,
        (None, Some(domain)) => domain.of,
        (None, None) => type_of(&ast.data_type, catalog)?,
    };
    let domain = domain.map(|domain| domain.id);
    let sequence = serial.map(|of| SequenceOptions { of: Some(of), ..SequenceOptions::default() });
    let not_null = serial.is_some();
    let mut column = NewColumn { name, of, not_null, default: None, generated: Generated::No, sequence, domain };
    for option in &ast.options {
        let constraint = option.name.as_ref().map(name_of);
        match &option.option {
            ColumnOption::Null => {}
            ColumnOption::NotNull => column.not_null = true,
            ColumnOption::Default(expr) => column.default = Some(print::expression(expr)?),
            ColumnOption::PrimaryKey(key) => {
                constraints.set_primary(table, key, constraint, vec![column.name.clone()])?;
            }
            ColumnOption::Unique(key) => constraints.add_unique(key, constraint, vec![column.name.clone()])?,
            ColumnOption::Check(check) => {
                let name = constraint.or_else(|| check.name.as_ref().map(name_of));
                constraints.add_check(check, name, Some(column.name.clone()))?;
            }
            ColumnOption::Collation(name) if matches!(object_name(name).as_deref(), Ok("C" | "POSIX" | "default")) => {}
            ColumnOption::Generated { generated_as, sequence_options, generation_expr, .. } => {
                generate(table, &mut column, *generated_as, (sequence_options.as_deref(), generation_expr.as_ref()))?;
            }
            ColumnOption::ForeignKey(key) => {
                constraints.foreign_keys.push(new_foreign_key(key, Some((constraint, &column.name)))?);
            }
            other => return Err(SqlError::unsupported(format_args!("the column option {other}"))),
        }
    }
    let twice = match &column.generated {
        _ if column.default.is_none() => None,
        Generated::Stored(_) => Some("both default and generation expression specified"),
        Generated::Identity { .. } => Some("both default and identity specified"),
        Generated::No if serial.is_some() => Some("multiple default values specified"),
        Generated::No => None,
    };
    match twice {
        None => Ok(column),
        Some(twice) => {
            let message = format!("{twice} for column \"{}\" of table \"{table}\"", column.name);
            Err(SqlError::new(state::SYNTAX_ERROR, message))
        }
    }
}

/// `GENERATED .. AS IDENTITY` and `GENERATED ALWAYS AS (..) STORED`.
fn generate(
    table: &str,
    column: &mut NewColumn,
    generated_as: ast::GeneratedAs,
    (options, expression): (Option<&[ast::SequenceOptions]>, Option<&ast::Expr>),
) -> Result<()> {
    if column.generated != Generated::No {
        let message =
            format!("multiple generation clauses specified for column \"{}\" of table \"{table}\"", column.name);
        return Err(SqlError::new(state::SYNTAX_ERROR, message));
    }
    match (generated_as, expression) {
        (ast::GeneratedAs::ExpStored, Some(expression)) => {
            column.generated = Generated::Stored(print::expression(expression)?);
        }
        (_, None) if !column.of.is_integer() => {
            let message = "identity column type must be smallint, integer, or bigint";
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
        }
        (_, None) => {
            let options = SequenceOptions::of_identity(options.unwrap_or_default())?;
            column.sequence = Some(SequenceOptions { of: Some(column.of), ..options });
            column.generated = Generated::Identity { always: generated_as == ast::GeneratedAs::Always };
            column.not_null = true;
        }
        _ => return Err(SqlError::unsupported("a generated column that is not stored")),
    }
    Ok(())
}

/// Chooses names that are not taken yet.
#[expect(missing_docs, reason = "the names say it")]
pub struct Names<'a> {
    pub taken: &'a dyn Fn(&str) -> bool,
    pub chosen: Vec<String>,
}

impl Names<'_> {
    /// The name that was asked for, or one out of its parts.
    pub fn choose(&mut self, asked: Option<String>, parts: &[&str], ending: &str) -> Result<String> {
        let is_taken = |names: &Self, name: &str| (names.taken)(name) || names.chosen.iter().any(|other| other == name);
        let name = match asked {
            Some(name) if is_taken(self, &name) => {
                let message = format!("relation \"{name}\" already exists");
                return Err(SqlError::new(state::DUPLICATE_TABLE, message));
            }
            Some(name) => name,
            None => {
                let first = made_of(parts, ending);
                let numbered = (1..).map(|number: u64| made_of(parts, &format!("{ending}{number}")));
                let mut names = std::iter::once(first.clone()).chain(numbered);
                names.find(|name| !is_taken(self, name)).unwrap_or(first)
            }
        };
        self.chosen.push(name.clone());
        Ok(name)
    }
}

/// Refuses a statement that does too much to one table.
fn check_changes(count: usize, what: &str) -> Result<()> {
    if count <= CHANGES_MAX {
        return Ok(());
    }
    let message = format!("a statement can make at most {CHANGES_MAX} {what} of one table");
    Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message).hint("Divide it into several statements."))
}

/// A name of a table's, of columns' and an ending, of which the longer of the first two is cut until all fit, as PostgreSQL does.
fn made_of(parts: &[&str], ending: &str) -> String {
    let (table, columns) = (parts.first().copied().unwrap_or_default(), parts.get(1..).unwrap_or_default().join("_"));
    let between = 1 + usize::from(!columns.is_empty());
    let room = NAME_BYTES_MAX - ending.len() - between;
    let (mut first, mut second) = (table.len(), columns.len());
    while first + second > room {
        *(if first > second { &mut first } else { &mut second }) -= 1;
    }
    let (table, columns) =
        (&table[..table.floor_char_boundary(first)], &columns[..columns.floor_char_boundary(second)]);
    let kept = [table, columns, ending];
    kept.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_")
}

/// The name of a constraint that has no index, which is the table's own.
pub fn constraint_name(table: &Definition, asked: Option<String>, parts: &[&str], ending: &str) -> Result<String> {
    let names: HashSet<&str> = table.constraint_names().collect();
    let taken = |name: &str| names.contains(name);
    match asked {
        Some(name) if taken(&name) => {
            let message = format!("constraint \"{name}\" for relation \"{}\" already exists", table.name);
            Err(SqlError::new(state::DUPLICATE_OBJECT, message))
        }
        asked => Names { taken: &taken, chosen: Vec::new() }.choose(asked, parts, ending),
    }
}

impl NewColumn {
    /// The column in the catalog, with a schema version.
    pub fn into_column(self, since: u16) -> Column {
        let Self { name, of, not_null, default, generated, .. } = self;
        Column { name, of, not_null, default, generated, since, missing: None, dropped: false }
    }
}

fn check_columns(count: usize) -> Result<()> {
    if count <= COLUMNS_MAX {
        return Ok(());
    }
    Err(SqlError::new("54011", format!("tables can have at most {COLUMNS_MAX} columns")))
}

fn check_names(columns: &[Column]) -> Result<()> {
    for (at, column) in columns.iter().enumerate() {
        if columns[..at].iter().any(|other| other.name == column.name) {
            let message = format!("column \"{}\" specified more than once", column.name);
            return Err(SqlError::new(state::DUPLICATE_COLUMN, message));
        }
    }
    Ok(())
}

impl Planner<'_> {
    pub(crate) fn create_table(&mut self, ast: &ast::CreateTable) -> Result<Define> {
        let placement = match &ast.table_options {
            ast::CreateTableOptions::None => Some(NewPlacement::Plain),
            ast::CreateTableOptions::With(options) => Some(placement_of(options)?),
            _ => None,
        };
        // Whatever else it says would be lost.
        let understood = ast::helpers::stmt_create_table::CreateTableBuilder::new(ast.name.clone())
            .columns(ast.columns.clone())
            .constraints(ast.constraints.clone())
            .temporary(ast.temporary)
            .if_not_exists(ast.if_not_exists)
            .on_commit(ast.on_commit)
            .table_options(ast.table_options.clone())
            .query(ast.query.clone())
            .like(ast.like.clone())
            .build();
        let Some(placement) = placement.filter(|_| *ast == understood) else {
            return Err(SqlError::unsupported("this kind of CREATE TABLE"));
        };
        let name = relation_name(&ast.name)?;
        let schema = self.catalog.schema_of_new(&name, ast.temporary)?;
        let on_commit = match ast.on_commit {
            None | Some(ast::OnCommit::PreserveRows) => OnCommit::PreserveRows,
            Some(ast::OnCommit::DeleteRows) => OnCommit::DeleteRows,
            Some(ast::OnCommit::Drop) => OnCommit::Drop,
        };
        if ast.on_commit.is_some() && schema != TEMPORARY {
            let message = "ON COMMIT can only be used on temporary tables";
            return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message));
        }
        let name = name.name;
        let mut constraints = Constraints::default();
        let (mut columns, mut domains) = match &ast.like {
            Some(like) => self.columns_like(like)?,
            None => (Vec::new(), BTreeMap::new()),
        };
        let mut own = Vec::new();
        check_columns(ast.columns.len())?;
        for new in &ast.columns {
            let new = column(self.catalog, &name, new, &mut constraints)?;
            own.extend(new.sequence.clone().map(|sequence| (sequence, columns.len())));
            domains.extend(new.domain.map(|domain| (columns.len(), domain)));
            columns.push(new.into_column(1));
        }
        let mut rows = None;
        if let Some(query) = &ast.query {
            let (query, selected) = self.rows_of_new(query)?;
            columns.extend(selected);
            rows = Some(Box::new(query));
        }
        check_columns(columns.len())?;
        check_names(&columns)?;
        for constraint in &ast.constraints {
            constraints.add(&name, constraint)?;
        }
        let [unique, checks, keys] =
            [constraints.unique.len(), constraints.checks.len(), constraints.foreign_keys.len()];
        check_changes(unique + checks + keys, "constraints")?;
        let definition = Definition {
            id: 0,
            name: name.clone(),
            relation: 0,
            version: 1,
            columns,
            primary: None,
            indexes: Vec::new(),
            checks: Vec::new(),
            foreign_keys: Vec::new(),
            schema,
            placement: Placement::Plain,
            comments: Comments::new(),
            domains,
        };
        let table = Table::new(definition, self.catalog.own_types());
        let catalog = self.catalog;
        let taken = |name: &str| catalog.in_schema(schema, name).is_some();
        let mut names = Names { taken: &taken, chosen: vec![name.clone()] };
        let mut made = table.definition.clone();
        if let Some((asked, columns)) = constraints.primary {
            let columns = places(&table, &columns)?;
            for column in &columns {
                made.columns[*column].not_null = true;
            }
            made.primary = Some(PrimaryKey { name: names.choose(asked, &[&name], "pkey")?, columns });
        }
        for (asked, columns) in constraints.unique {
            let index_name = names.choose(asked, &with_names(&name, &columns), "key")?;
            made.indexes.push(Index::of_constraint(index_name, places(&table, &columns)?));
        }
        let mut sequences = Vec::new();
        for (options, column) in own {
            let sequence_name = names.choose(None, &[&name, &table.columns[column].name], "seq")?;
            sequences.push((Sequence { schema, ..options.made(sequence_name)? }, column));
        }
        for (asked, condition, of) in constraints.checks {
            let parts: Vec<&str> = std::iter::once(name.as_str()).chain(of.as_deref()).collect();
            let check_name = constraint_name(&made, asked, &parts, "check")?;
            self.check_condition(&table, &condition)?;
            made.checks.push(Check { name: check_name, condition });
        }
        for column in &mut made.columns {
            self.check_default(column.default.as_deref(), column.of, &column.name)?;
            column.default = column.default.take().map(|default| with_numbers(&default, self.catalog)).transpose()?;
        }
        for column in 0..made.columns.len() {
            self.computed(&table, column)?;
        }
        let foreign_keys = constraints.foreign_keys;
        let table = NewTable { definition: made, sequences, foreign_keys, on_commit, placement };
        Ok(Define::CreateTable { table: Box::new(table), rows, if_not_exists: ast.if_not_exists })
    }

    fn check_condition(&mut self, table: &Table, condition: &str) -> Result<()> {
        let scope = scope_of(table, &table.name);
        let before = self.parameters.types.len();
        let mut binder = Binder::closed(&scope, self, "check constraints");
        binder.condition(&parse_expression(condition)?, "CHECK")?;
        self.no_parameters(before)
    }

    fn check_default(&mut self, default: Option<&str>, of: Type, name: &str) -> Result<()> {
        let Some(default) = default else { return Ok(()) };
        let before = self.parameters.types.len();
        let nothing = Scope::default();
        let mut binder = Binder::closed(&nothing, self, "DEFAULT expressions");
        binder.assigned(&parse_expression(default)?, of, name)?;
        self.no_parameters(before)
    }

    /// The expression of a column that is computed from the others.
    pub fn computed(&mut self, table: &Table, column: usize) -> Result<Option<Expr>> {
        let Generated::Stored(text) = &table.columns[column].generated else { return Ok(None) };
        let scope = scope_of(table, &table.name);
        let before = self.parameters.types.len();
        let mut binder = Binder::closed(&scope, self, "column generation expressions");
        let of = &table.columns[column];
        let expr = binder.assigned(&parse_expression(text)?, of.of, &of.name)?;
        self.no_parameters(before)?;
        let wrong = |message: String| SqlError::new(state::INVALID_OBJECT_DEFINITION, message);
        if !expr.is_immutable() {
            return Err(wrong("generation expression is not immutable".to_owned()));
        }
        let mut generated = None;
        expr.columns(&mut |at| {
            if matches!(table.columns[at].generated, Generated::Stored(_)) {
                generated = Some(at);
            }
        });
        match generated {
            None => Ok(Some(expr)),
            Some(at) => {
                let name = &table.columns[at].name;
                let message = format!("cannot use generated column \"{name}\" in column generation expression");
                Err(wrong(message).detail("A generated column cannot reference another generated column."))
            }
        }
    }

    pub(crate) fn no_parameters(&self, before: usize) -> Result<()> {
        match self.parameters.types.len() == before {
            true => Ok(()),
            false => Err(SqlError::new(state::UNDEFINED_PARAMETER, "a definition cannot have parameters")),
        }
    }

    pub(crate) fn alter_table(&mut self, ast: &ast::AlterTable) -> Result<Define> {
        let mut changes = Vec::new();
        let name = relation_name(&ast.name)?;
        let table = name.name.clone();
        check_changes(ast.operations.len(), "changes")?;
        for operation in &ast.operations {
            changes.push(match operation {
                AlterTableOperation::AddConstraint { constraint, not_valid: false } => {
                    let mut constraints = Constraints::default();
                    constraints.add(&table, constraint)?;
                    let Constraints { primary, unique, checks, foreign_keys } = constraints;
                    let primary = primary.map(|(name, columns)| Alteration::AddPrimaryKey { name, columns });
                    let unique = unique.into_iter().map(|(name, columns)| Alteration::AddUnique { name, columns });
                    let checks = checks.into_iter().map(|(name, condition, column)| Alteration::AddCheck {
                        name,
                        condition,
                        column,
                    });
                    let foreign_keys = foreign_keys.into_iter().map(Alteration::AddForeignKey);
                    changes.extend(primary.into_iter().chain(unique).chain(checks).chain(foreign_keys));
                    continue;
                }
                AlterTableOperation::AddColumn { column_def, if_not_exists, column_position: None, .. } => {
                    let mut constraints = Constraints::default();
                    let mut column = column(self.catalog, &table, column_def, &mut constraints)?;
                    let Constraints { primary, unique, checks, foreign_keys } = constraints;
                    let mut more = Vec::new();
                    more.extend(primary.map(|(name, columns)| Alteration::AddPrimaryKey { name, columns }));
                    more.extend(unique.into_iter().map(|(name, columns)| Alteration::AddUnique { name, columns }));
                    let check = |(name, condition, column)| Alteration::AddCheck { name, condition, column };
                    more.extend(checks.into_iter().map(check));
                    more.extend(foreign_keys.into_iter().map(Alteration::AddForeignKey));
                    if *if_not_exists && !more.is_empty() {
                        return Err(SqlError::unsupported("ADD COLUMN IF NOT EXISTS with a constraint"));
                    }
                    self.check_default(column.default.as_deref(), column.of, &column.name)?;
                    column.default = column.default.take().map(|text| with_numbers(&text, self.catalog)).transpose()?;
                    changes.push(Alteration::AddColumn { column, if_not_exists: *if_not_exists });
                    changes.extend(more);
                    continue;
                }
                AlterTableOperation::DropColumn { column_names, if_exists, drop_behavior, .. } => {
                    let cascade = *drop_behavior == Some(DropBehavior::Cascade);
                    let drop = |name| Alteration::DropColumn { name: name_of(name), if_exists: *if_exists, cascade };
                    changes.extend(column_names.iter().map(drop));
                    continue;
                }
                AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                    Alteration::RenameColumn { from: name_of(old_column_name), to: name_of(new_column_name) }
                }
                AlterTableOperation::RenameTable { table_name: RenameTableNameKind::To(name) } => {
                    Alteration::RenameTable(alone(name)?)
                }
                AlterTableOperation::DropConstraint { name, if_exists, drop_behavior } => {
                    let cascade = *drop_behavior == Some(DropBehavior::Cascade);
                    Alteration::DropConstraint { name: name_of(name), if_exists: *if_exists, cascade }
                }
                AlterTableOperation::AlterColumn { column_name, op } => {
                    let column = name_of(column_name);
                    match op {
                        AlterColumnOperation::SetNotNull => Alteration::SetNotNull { column, not_null: true },
                        AlterColumnOperation::DropNotNull => Alteration::SetNotNull { column, not_null: false },
                        AlterColumnOperation::SetDefault { value } => {
                            Alteration::SetDefault { column, default: Some(print::expression(value)?) }
                        }
                        AlterColumnOperation::DropDefault => Alteration::SetDefault { column, default: None },
                        AlterColumnOperation::SetDataType { data_type, using, .. } => {
                            let domain = domain_of(data_type, self.catalog);
                            let of = domain.map_or_else(|| type_of(data_type, self.catalog), |domain| Ok(domain.of))?;
                            Alteration::SetType {
                                column,
                                of,
                                domain: domain.map(|domain| domain.id),
                                using: using.as_ref().map(print::expression).transpose()?,
                            }
                        }
                        AlterColumnOperation::AddGenerated { generated_as, sequence_options } => {
                            let always = *generated_as == Some(ast::GeneratedAs::Always);
                            let options = sequence_options.as_deref().unwrap_or_default();
                            Alteration::AddIdentity { column, always, options: SequenceOptions::of_identity(options)? }
                        }
                    }
                }
                other => return Err(SqlError::unsupported(format_args!("ALTER TABLE {other}"))),
            });
        }
        Ok(Define::Alter { table: name, if_exists: ast.if_exists, changes })
    }
}

/// The name of a new object that is in the schema of its table, or where it was.
pub(crate) fn alone(name: &ast::ObjectName) -> Result<String> {
    match relation_name(name)? {
        Name { schema: None, name } => Ok(name),
        Name { schema: Some(_), .. } => {
            let message = format!("syntax error: the name {name} has a schema, which is that of the table");
            Err(SqlError::new(state::SYNTAX_ERROR, message))
        }
    }
}

/// A table's name and its columns', which an index's name is made of.
pub fn with_names<'a>(table: &'a str, columns: &'a [String]) -> Vec<&'a str> {
    std::iter::once(table).chain(columns.iter().map(String::as_str)).collect()
}
