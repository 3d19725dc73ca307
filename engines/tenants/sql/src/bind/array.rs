//! Arrays in expressions: how they are made, subscripts, operators, and comparisons with their elements.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::Value,
};
use sqlparser::ast::{self, AccessExpr, BinaryOperator, Subscript};

use super::{
    Binder, Typed,
    operator::{comparison_of, comparison_type, no_operator},
};
use crate::{
    expression::Expr,
    function::{ArrayFunction, Function, JsonFunction},
    parse::name::name_of,
};

impl Binder<'_, '_> {
    /// `ARRAY[..]`, whose elements have the type `wanted` if the statement says so.
    pub(super) fn array(&mut self, elements: &[ast::Expr], wanted: Option<Type>) -> Result<Typed> {
        let nested = matches!(elements.first(), Some(ast::Expr::Array(_)));
        let mut typed = Vec::with_capacity(elements.len());
        for element in elements {
            typed.push(match element {
                ast::Expr::Array(inner) => self.array(&inner.elem, wanted)?,
                other => self.expr(other)?,
            });
        }
        let nested = nested || typed.first().is_some_and(|typed| typed.of.element().is_some());
        let undecided = || {
            SqlError::new(state::INDETERMINATE_DATATYPE, "cannot determine type of empty array")
                .hint("Explicitly cast to the desired type, for example ARRAY[]::integer[].")
        };
        let element = |of: Type| of.array().ok_or_else(|| SqlError::internal("an array of nothing"));
        let (elements, of) = match wanted {
            Some(wanted) => {
                let of = if nested { element(wanted)? } else { wanted };
                let cast = |typed| self.cast(typed, of).map(|typed| typed.expr);
                (typed.into_iter().map(cast).collect::<Result<_>>()?, of)
            }
            None if typed.is_empty() => return Err(undecided()),
            None => self.common(typed, "ARRAY")?,
        };
        let made = Expr::Call(Function::Array(ArrayFunction::Make { nested }), elements);
        Ok(Typed::new(self.folded(made)?, element(of)?))
    }

    /// `array[..]`, `array[..:..]`.
    pub(super) fn subscripts(&mut self, root: &ast::Expr, chain: &[AccessExpr]) -> Result<Typed> {
        let root = match root {
            // `(t).a` of a table is `t.a`.
            ast::Expr::Nested(inner) if self.scope.row(inner).is_some() => &**inner,
            root => root,
        };
        if let Some((column, rest)) = qualified(root, chain) {
            return match rest {
                [] => self.expr(&column),
                rest => self.subscripts(&column, rest),
            };
        }
        let root = self.expr(root)?;
        self.parts(root, chain)
    }

    /// What stands at subscripts, and in columns, of a value.
    fn parts(&mut self, root: Typed, chain: &[AccessExpr]) -> Result<Typed> {
        if let [AccessExpr::Dot(ast::Expr::Identifier(name)), rest @ ..] = chain {
            let field = self.field(root, &name_of(name))?;
            return if rest.is_empty() { Ok(field) } else { self.parts(field, rest) };
        }
        let subscripts = chain.iter().take_while(|access| matches!(access, AccessExpr::Subscript(_))).count();
        if let (chain, rest @ [AccessExpr::Dot(_), ..]) = chain.split_at(subscripts)
            && subscripts > 0
        {
            let element = self.parts(root, chain)?;
            return self.parts(element, rest);
        }
        if root.of == Type::Jsonb {
            return self.members(root, chain);
        }
        let Some(element) = root.of.element() else { return Err(self.no_subscripts(root.of)) };
        let mut arguments = vec![root.expr];
        arguments.extend(self.bounds(chain)?);
        let (function, of) =
            if is_slice(chain) { (ArrayFunction::Slice, root.of) } else { (ArrayFunction::Element, element) };
        Ok(Typed::new(self.folded(Expr::Call(Function::Array(function), arguments))?, of))
    }

    fn no_subscripts(&self, of: Type) -> SqlError {
        let message = format!("cannot subscript type {} because it does not support subscripting", self.named(of));
        SqlError::new(state::DATATYPE_MISMATCH, message)
    }

    /// Subscripts one by one, or the first and the last of each range if one of them is a range. What is left out is a number that is
    /// beyond all subscripts.
    fn bounds(&mut self, chain: &[AccessExpr]) -> Result<Vec<Expr>> {
        let number = |number: i64| Expr::Constant(Value::Int(number));
        let mut bounds = Vec::new();
        for access in chain {
            match access {
                AccessExpr::Subscript(Subscript::Index { index }) => {
                    // In a slice a subscript alone is the last one of a range that begins at 1.
                    if is_slice(chain) {
                        bounds.push(number(1));
                    }
                    bounds.push(self.subscript(index)?);
                }
                AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride: None }) => {
                    let lower = lower_bound.as_ref().map(|bound| self.subscript(bound)).transpose()?;
                    let upper = upper_bound.as_ref().map(|bound| self.subscript(bound)).transpose()?;
                    bounds.push(lower.unwrap_or_else(|| number(i64::MIN)));
                    bounds.push(upper.unwrap_or_else(|| number(i64::MAX)));
                }
                other => return Err(SqlError::unsupported(format_args!("the access {other}"))),
            }
        }
        Ok(bounds)
    }

    /// The type of what stands at subscripts of a column.
    pub(crate) fn type_at(&self, of: Type, chain: &[AccessExpr]) -> Result<Type> {
        if let [AccessExpr::Dot(ast::Expr::Identifier(name)), rest @ ..] = chain {
            let (_, of) = self.attribute_of(of, &name_of(name))?;
            return if rest.is_empty() { Ok(of) } else { self.type_at(of, rest) };
        }
        match (of, of.element()) {
            (Type::Jsonb, _) => Ok(of),
            (_, Some(_)) if is_slice(chain) => Ok(of),
            (_, Some(element)) => Ok(element),
            _ => Err(self.no_subscripts(of)),
        }
    }

    /// What a column becomes if a value is put at subscripts: `SET column[..] = value`.
    pub(crate) fn put(&mut self, old: Expr, of: Type, chain: &[AccessExpr], value: Expr) -> Result<Expr> {
        if let [AccessExpr::Dot(ast::Expr::Identifier(name)), rest @ ..] = chain {
            return self.put_field(old, of, &name_of(name), rest, value);
        }
        let mut arguments = vec![old, value];
        let function = if of == Type::Jsonb {
            let (steps, listed) = self.steps(chain)?;
            arguments.push(steps);
            Function::Json(JsonFunction::Put { listed })
        } else {
            arguments.extend(self.bounds(chain)?);
            Function::Array(if is_slice(chain) { ArrayFunction::PutSlice } else { ArrayFunction::Put })
        };
        Ok(Expr::Call(function, arguments))
    }

    /// `jsonb['key'][0]`: the steps of a path, as those of `#>`.
    fn members(&mut self, root: Typed, chain: &[AccessExpr]) -> Result<Typed> {
        let (path, _) = self.steps(chain)?;
        let member = Expr::Call(Function::Json(JsonFunction::GetPath { text: false }), vec![root.expr, path]);
        Ok(Typed::new(self.folded(member)?, Type::Jsonb))
    }

    /// Subscripts of a `jsonb` as an array of texts, and whether the first is a number.
    fn steps(&mut self, chain: &[AccessExpr]) -> Result<(Expr, bool)> {
        let (mut steps, mut listed) = (Vec::new(), false);
        for access in chain {
            let AccessExpr::Subscript(Subscript::Index { index }) = access else {
                return Err(SqlError::new(state::DATATYPE_MISMATCH, "jsonb subscript does not support slices"));
            };
            let step = self.expr(index)?;
            if !step.of.is_integer() && !matches!(step.of, Type::Unknown | Type::Text) {
                let message = "subscript type is not supported: expected an integer or a text";
                return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
            }
            listed |= steps.is_empty() && step.of.is_integer();
            steps.push(self.cast(step, Type::Text)?.expr);
        }
        let path = Expr::Call(Function::Array(ArrayFunction::Make { nested: false }), steps);
        Ok((self.folded(path)?, listed))
    }

    fn subscript(&mut self, ast: &ast::Expr) -> Result<Expr> {
        let typed = self.expr(ast)?;
        if !typed.of.is_integer() && typed.of != Type::Unknown {
            return Err(SqlError::new(state::DATATYPE_MISMATCH, "array subscript must have type integer"));
        }
        self.convert(typed, Type::Int4, true)
    }

    /// `.. = ANY (array)`, and the other comparisons; `ALL` with `all`.
    pub(super) fn with_elements(
        &mut self,
        left: &ast::Expr,
        operator: &BinaryOperator,
        right: &ast::Expr,
        all: bool,
    ) -> Result<Typed> {
        if let Some(like) = like_of(operator) {
            return self.like_elements(left, right, all, like);
        }
        let Some(comparison) = comparison_of(operator) else {
            let word = if all { "ALL" } else { "ANY" };
            return Err(SqlError::unsupported(format_args!("{operator} {word} ({right})")));
        };
        let (left, right) = (self.expr(left)?, self.expr(right)?);
        let element = match (right.of.element(), right.of) {
            (Some(element), _) => element,
            (None, Type::Unknown) => left.of.unbounded(),
            _ => return Err(not_an_array()),
        };
        let of = comparison_type(left.of, element)
            .filter(|of| of.is_comparable())
            .ok_or_else(|| no_operator(&format!("{} {operator} {}", self.named(left.of), self.named(element))))?;
        let of = if of == Type::Unknown { Type::Text } else { of };
        let array = of.array().ok_or_else(|| SqlError::internal("an array of nothing"))?;
        let (left, right) = (self.implicit(left, of)?, self.convert(right, array, false)?);
        let function = if all { ArrayFunction::All(comparison) } else { ArrayFunction::Any(comparison) };
        self.boolean(Expr::Call(Function::Array(function), vec![left, right]))
    }

    /// An operator on two arrays, or an array and an element; `None` if neither is one.
    pub(super) fn array_operator(&mut self, left: &Typed, operator: &str, right: &Typed) -> Result<Option<Typed>> {
        if left.of.element().is_none() && right.of.element().is_none() {
            return Ok(None);
        }
        let shown = || no_operator(&format!("{} {operator} {}", self.named(left.of), self.named(right.of)));
        let (left, right) = (left.clone(), right.clone());
        let array = |of: Type| of.element().is_some() || of == Type::Unknown;
        let name = match operator {
            "||" if array(left.of) && array(right.of) => "array_cat",
            "||" if left.of.element().is_some() => "array_append",
            "||" => "array_prepend",
            _ if array(left.of) && array(right.of) => "",
            _ => return Err(shown()),
        };
        if !name.is_empty() {
            let types = [left.of, right.of];
            if crate::function::resolve(name, &types).is_none() {
                return Err(shown());
            }
            return self.call(name, vec![left, right]).map(Some);
        }
        let of = match (left.of.element(), right.of.element()) {
            (Some(a), Some(b)) if a.unbounded() == b.unbounded() || (a.is_text() && b.is_text()) => left.of,
            (Some(_), None) => left.of,
            (None, Some(_)) => right.of,
            _ => return Err(shown()),
        };
        let (left, right) = (self.convert(left, of, false)?, self.convert(right, of, false)?);
        let (function, arguments) = match operator {
            "@>" => (ArrayFunction::Contains, vec![left, right]),
            "<@" => (ArrayFunction::Contains, vec![right, left]),
            _ => (ArrayFunction::Overlaps, vec![left, right]),
        };
        Ok(Some(Typed::new(self.folded(Expr::Call(Function::Array(function), arguments))?, Type::Bool)))
    }
}

/// What `ANY` or `ALL` is asked of is no array.
pub(super) fn not_an_array() -> SqlError {
    SqlError::new(state::WRONG_OBJECT_TYPE, "op ANY/ALL (array) requires array on right side")
}

/// Whether an operator that is a LIKE is negated, and whether it takes letters in any case.
fn like_of(operator: &BinaryOperator) -> Option<(bool, bool)> {
    Some(match operator {
        BinaryOperator::PGLikeMatch => (false, false),
        BinaryOperator::PGNotLikeMatch => (true, false),
        BinaryOperator::PGILikeMatch => (false, true),
        BinaryOperator::PGNotILikeMatch => (true, true),
        _ => return None,
    })
}

/// Whether one of the subscripts is a range.
fn is_slice(chain: &[AccessExpr]) -> bool {
    chain.iter().any(|access| matches!(access, AccessExpr::Subscript(Subscript::Slice { .. })))
}

/// A column with its table's name, of which the parser makes a field of a row where subscripts follow, and the subscripts.
fn qualified<'a>(root: &ast::Expr, chain: &'a [AccessExpr]) -> Option<(ast::Expr, &'a [AccessExpr])> {
    let mut names = match root {
        ast::Expr::Identifier(name) => vec![name.clone()],
        ast::Expr::CompoundIdentifier(names) => names.clone(),
        _ => return None,
    };
    let mut rest = chain;
    while let [AccessExpr::Dot(ast::Expr::Identifier(name)), behind @ ..] = rest {
        names.push(name.clone());
        rest = behind;
    }
    (rest.len() < chain.len()).then_some((ast::Expr::CompoundIdentifier(names), rest))
}
