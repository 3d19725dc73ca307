//! Operators of JSON, and arguments that become JSON.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::Value,
};
use sqlparser::ast::{self, BinaryOperator};

use super::{
    Binder, Typed,
    operator::{no_operator, row_of},
};
use crate::{
    expression::Expr,
    function::{Function, JsonFunction, JsonPathFunction},
};

impl Binder<'_, '_> {
    /// An operator that only JSON has; `None` for others.
    pub(super) fn json_operator(
        &mut self,
        left: &ast::Expr,
        operator: &BinaryOperator,
        right: &ast::Expr,
    ) -> Result<Option<Typed>> {
        use BinaryOperator as B;
        use JsonFunction as F;
        use Type::{Bool, Jsonb, Text, Unknown};
        let paths =
            matches!(operator, B::HashArrow | B::HashLongArrow | B::HashMinus | B::QuestionPipe | B::QuestionAnd);
        let others = matches!(
            operator,
            B::Arrow | B::LongArrow | B::AtArrow | B::ArrowAt | B::Question | B::AtQuestion | B::AtAt
        );
        if !paths && !others {
            return Ok(None);
        }
        let left = self.expr(left)?;
        let right = self.expr(right)?;
        if matches!(operator, B::AtArrow | B::ArrowAt)
            && let Some(typed) = self.array_operator(&left, &operator.to_string(), &right)?
        {
            return Ok(Some(typed));
        }
        if matches!(operator, B::AtArrow | B::ArrowAt) && (left.of.is_range() || right.of.is_range()) {
            return self.operator_call(&operator.to_string(), vec![left, right]).map(Some);
        }
        if matches!(operator, B::AtQuestion | B::AtAt) {
            return self.json_path_operator(left, operator, right).map(Some);
        }
        let texts = |of: Type| of == Unknown || of.element().is_some_and(|element| element.is_text());
        let path = Text.array().unwrap_or(Text);
        let shown = || no_operator(&format!("{} {operator} {}", self.named(left.of), self.named(right.of)));
        let json = |of: Type| matches!(of, Type::Json | Jsonb);
        let (function, wanted, of) = match (operator, left.of, right.of) {
            (B::Arrow, of, step) if json(of) && (step.becomes_text() || step.is_integer()) => {
                (F::Get { text: false }, [of, if step.is_integer() { Type::Int4 } else { Text }], of)
            }
            (B::LongArrow, of, step) if json(of) && (step.becomes_text() || step.is_integer()) => {
                (F::Get { text: true }, [of, if step.is_integer() { Type::Int4 } else { Text }], Text)
            }
            (B::HashArrow, of, steps) if json(of) && texts(steps) => (F::GetPath { text: false }, [of, path], of),
            (B::HashLongArrow, of, steps) if json(of) && texts(steps) => (F::GetPath { text: true }, [of, path], Text),
            (B::HashMinus, Jsonb, steps) if texts(steps) => (F::WithoutPath, [Jsonb, path], Jsonb),
            (B::AtArrow | B::ArrowAt, a, b)
                if a == Jsonb && (b == Jsonb || b == Unknown) || (a == Unknown && b == Jsonb) =>
            {
                (F::Contains, [Jsonb, Jsonb], Bool)
            }
            (B::Question, Jsonb, step) if step.becomes_text() => (F::HasKey, [Jsonb, Text], Bool),
            (B::QuestionPipe, Jsonb, keys) if texts(keys) => (F::HasAny, [Jsonb, path], Bool),
            (B::QuestionAnd, Jsonb, keys) if texts(keys) => (F::HasAll, [Jsonb, path], Bool),
            _ => return Err(shown()),
        };
        let [a, b] = wanted;
        let (left, right) = (self.convert(left, a, false)?, self.convert(right, b, false)?);
        let arguments = if *operator == B::ArrowAt { vec![right, left] } else { vec![left, right] };
        Ok(Some(Typed::new(self.folded(Expr::Call(Function::Json(function), arguments))?, of)))
    }

    /// `@?` and `@@`, which tell of no error of the data.
    fn json_path_operator(&mut self, left: Typed, operator: &BinaryOperator, right: Typed) -> Result<Typed> {
        use Type::{Jsonb, Jsonpath, Unknown};
        let is = |of: Type, wanted: Type| of == wanted || of == Unknown;
        if !is(left.of, Jsonb) || !is(right.of, Jsonpath) || left.of == right.of {
            return Err(no_operator(&format!("{} {operator} {}", self.named(left.of), self.named(right.of))));
        }
        let function = match operator {
            BinaryOperator::AtQuestion => JsonPathFunction::Exists,
            _ => JsonPathFunction::Match,
        };
        let arguments = vec![
            self.convert(left, Jsonb, false)?,
            self.convert(right, Jsonpath, false)?,
            Expr::Constant(Value::Bool(true)),
        ];
        self.boolean(Expr::Call(Function::JsonPath(function), arguments))
    }

    /// `||` and `-` of `jsonb`.
    pub(super) fn json_arithmetic(&mut self, left: Typed, sign: &str, right: Typed) -> Result<Typed> {
        use Type::{Int4, Jsonb, Text, Unknown};
        let jsonb = |of: Type| of == Jsonb || of == Unknown;
        let (function, wanted) = match (sign, left.of, right.of) {
            ("||", a, b) if jsonb(a) && jsonb(b) => (JsonFunction::Concat, [Jsonb, Jsonb]),
            ("-", Jsonb, b) if b.is_integer() => (JsonFunction::Without, [Jsonb, Int4]),
            ("-", Jsonb, b) if b.becomes_text() => (JsonFunction::Without, [Jsonb, Text]),
            (_, a, b) => return Err(no_operator(&format!("{} {sign} {}", self.named(a), self.named(b)))),
        };
        let [a, b] = wanted;
        let arguments = vec![self.convert(left, a, false)?, self.convert(right, b, false)?];
        Ok(Typed::new(self.folded(Expr::Call(Function::Json(function), arguments))?, Jsonb))
    }

    /// An argument of a function that makes JSON: rows are values there.
    pub(super) fn json_argument(&mut self, ast: &ast::Expr) -> Result<Typed> {
        match self.json_row(ast, Expr::Constant(Value::Bool(false)))? {
            Some(expr) => Ok(Typed::new(expr, Type::Json)),
            None => self.expr(ast),
        }
    }

    /// A row as JSON, if an expression is one: `ROW(..)`, or the name of a table.
    pub(super) fn json_row(&mut self, ast: &ast::Expr, lines: Expr) -> Result<Option<Expr>> {
        let mut arguments = vec![lines];
        let mut add = |binder: &mut Self, name: &str, typed: Typed| -> Result<()> {
            let value = binder.json_arguments("to_json", vec![typed])?.pop().map_or(Expr::NULL, |typed| typed.expr);
            arguments.extend([Expr::Constant(Value::Text(name.to_owned())), value]);
            Ok(())
        };
        let mut missing = None;
        if let Some(values) = row_of(ast) {
            for (at, value) in values.iter().enumerate() {
                let typed = self.json_argument(value)?;
                add(self, &format!("f{}", at + 1), typed)?;
            }
        } else if let Some(columns) = self.scope.row(ast) {
            // The row of an outer join that is not there is NULL.
            if columns.iter().all(|column| column.optional) {
                missing = Expr::all(columns.iter().map(|column| Expr::IsNull(Box::new(column.expr.clone()))));
            }
            for column in columns {
                self.planner.names_column(column.origin);
                add(self, &column.name, Typed::new(column.expr, column.of))?;
            }
        } else {
            return Ok(None);
        }
        let row = Expr::Call(Function::Json(JsonFunction::Row), arguments);
        Ok(Some(match missing {
            Some(missing) => Expr::Case(vec![(missing, Expr::NULL)], Box::new(row)),
            None => self.folded(row)?,
        }))
    }

    /// `row_to_json` and `to_json`, with a line for each column if the second argument says so.
    pub(super) fn row_to_json(&mut self, name: &str, row: &ast::Expr, lines: Option<&ast::Expr>) -> Result<Typed> {
        let whole = match row {
            // A name may be that of a table.
            ast::Expr::Identifier(_) if self.scope.row(row).is_some() => None,
            row if lines.is_none() && row_of(row).is_none() => Some(self.expr(row)?),
            _ => None,
        };
        if let Some(typed) = whole.filter(|typed| typed.of.is_row()) {
            return Ok(self.json_arguments("to_json", vec![typed])?.remove(0));
        }
        let lines = match lines {
            Some(lines) => self.condition(lines, name)?,
            None => Expr::Constant(Value::Bool(false)),
        };
        let row = self.json_row(row, lines)?;
        let row =
            row.ok_or_else(|| SqlError::unsupported("row_to_json of something else than a table's name or ROW(..)"))?;
        Ok(Typed::new(row, Type::Json))
    }

    /// The arguments of a function that makes JSON of values of any types: as JSON.
    pub(super) fn json_arguments(&mut self, name: &str, arguments: Vec<Typed>) -> Result<Vec<Typed>> {
        let (of, keys) = match name {
            "to_json" | "json_build_array" => (Type::Json, false),
            "to_jsonb" | "jsonb_build_array" => (Type::Jsonb, false),
            "json_build_object" => (Type::Json, true),
            "jsonb_build_object" => (Type::Jsonb, true),
            _ => return Ok(arguments),
        };
        if keys && arguments.len() % 2 == 1 {
            return Err(SqlError::new(
                state::INVALID_PARAMETER_VALUE,
                "argument list must have even number of elements",
            )
            .hint(format!("The arguments of {name}() must consist of alternating keys and values.")));
        }
        let one = |(at, typed): (usize, Typed)| {
            let typed = if keys && at % 2 == 0 {
                if typed.of.element().is_some() || matches!(typed.of, Type::Json | Type::Jsonb) {
                    let message = "key value must be scalar, not array, composite, or json";
                    return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
                }
                Typed::new(self.cast(typed, Type::Text)?.expr, Type::Text)
            } else if typed.of == Type::Unknown {
                Typed::new(self.convert(typed, Type::Text, false)?, Type::Text)
            } else {
                typed
            };
            if typed.of == of {
                return Ok(typed);
            }
            let made = Expr::Call(Function::Json(JsonFunction::Of(typed.of)), vec![typed.expr]);
            let made = self.folded(made)?;
            Ok(match of {
                Type::Json => Typed::new(made, of),
                _ => self.cast(Typed::new(made, Type::Json), of)?,
            })
        };
        arguments.into_iter().enumerate().map(one).collect()
    }
}
