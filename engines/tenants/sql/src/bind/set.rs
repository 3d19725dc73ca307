//! Functions that return rows, among what is selected.

use savanna_tenants_values::error::{Result, SqlError};
use sqlparser::ast::{FunctionArg, FunctionArgExpr};

use super::{Binder, Typed, aggregate::AGGREGATE_ARGUMENT};
use crate::{expression::Expr, plan::query::SetCall};

/// The functions that return rows of a SELECT.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    calls: Vec<SetCall>,
}

/// Those that are computed together, and where what they come to stands.
pub(crate) struct Staged {
    pub(crate) sets: Vec<Vec<SetCall>>,
    /// The place of each in the row, if it is among these.
    places: Vec<Option<usize>>,
}

impl Binder<'_, '_> {
    /// A call of a function that returns rows, as a value.
    pub(super) fn set_call(&mut self, name: &str, arguments: &[FunctionArg]) -> Result<Typed> {
        match &self.sets {
            Ok(_) => {}
            Err(AGGREGATE_ARGUMENT) => {
                let message = "aggregate function calls cannot contain set-returning function calls";
                return Err(SqlError::new("0A000", message));
            }
            Err(place) => {
                let message = format!("set-returning functions are not allowed in {place}");
                return Err(SqlError::new("0A000", message));
            }
        }
        let argument = |argument| match argument {
            &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref argument)) => Ok(argument),
            other => Err(SqlError::unsupported(format_args!("the argument {other}"))),
        };
        let arguments = arguments.iter().map(argument).collect::<Result<Vec<_>>>()?;
        let (resolved, arguments) = self.set_function(name, &arguments)?;
        let [(_, of)] = resolved.columns.as_slice() else {
            return Err(SqlError::unsupported(format_args!("a row of {name} as a value"))
                .hint("Call the function in FROM, where each of its columns has a name."));
        };
        let Ok(sets) = &mut self.sets else { return Err(SqlError::internal("rows out of place")) };
        Ok(Typed::new(Expr::Set(sets.add(SetCall { function: resolved.function, arguments })), *of))
    }

    /// Binds something in which there may be no functions that return rows.
    pub(super) fn without_sets<T>(&mut self, place: &'static str, bind: impl FnOnce(&mut Self) -> T) -> T {
        let sets = std::mem::replace(&mut self.sets, Err(place));
        let bound = bind(self);
        self.sets = sets;
        bound
    }
}

impl Sets {
    fn add(&mut self, call: SetCall) -> usize {
        let volatile = call.arguments.iter().any(Expr::is_volatile);
        let known = self.calls.iter().position(|other| *other == call && !volatile);
        known.unwrap_or_else(|| {
            self.calls.push(call);
            self.calls.len() - 1
        })
    }

    /// The arguments of all.
    pub(crate) fn arguments_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        self.calls.iter_mut().flat_map(|call| &mut call.arguments)
    }

    /// The arguments of all that are not in some expressions.
    pub(crate) fn others_mut(&mut self, within: &[Expr]) -> impl Iterator<Item = &mut Expr> {
        let mut found = vec![false; self.calls.len()];
        within.iter().for_each(|expr| self.note(expr, &mut found));
        let others = self.calls.iter_mut().zip(found).filter(|(_, found)| !found);
        others.flat_map(|(call, _)| &mut call.arguments)
    }

    /// How deep the functions in it are that stand within others.
    fn depth(&self, expr: &Expr) -> usize {
        let mut depth = 0;
        if let Expr::Set(at) = expr {
            depth = 1 + self.calls[*at].arguments.iter().map(|argument| self.depth(argument)).max().unwrap_or(0);
        }
        expr.children(&mut |child| depth = depth.max(self.depth(child)));
        depth
    }

    fn note(&self, expr: &Expr, found: &mut [bool]) {
        if let Expr::Set(at) = expr {
            found[*at] = true;
            self.calls[*at].arguments.iter().for_each(|argument| self.note(argument, found));
        }
        expr.children(&mut |child| self.note(child, found));
    }

    /// Those in some expressions, or all but these, in steps; what they come to stands in the row from `width` on.
    pub(crate) fn staged(&self, within: &[Expr], rest: bool, width: usize) -> Result<Staged> {
        let mut wanted = vec![false; self.calls.len()];
        within.iter().for_each(|expr| self.note(expr, &mut wanted));
        let mut staged = Staged { sets: Vec::new(), places: vec![None; self.calls.len()] };
        let mut place = width;
        for depth in 1.. {
            let step = |at: &usize| wanted[*at] != rest && self.depth(&Expr::Set(*at)) == depth;
            let calls: Vec<usize> = (0..self.calls.len()).filter(step).collect();
            for at in &calls {
                staged.places[*at] = Some(place);
                place += 1;
            }
            if calls.is_empty() {
                break;
            }
            let mut calls: Vec<SetCall> = calls.into_iter().map(|at| self.calls[at].clone()).collect();
            calls.iter_mut().flat_map(|call| &mut call.arguments).try_for_each(|expr| staged.place(expr))?;
            staged.sets.push(calls);
        }
        Ok(staged)
    }
}

impl Staged {
    /// What functions come to is a column of the row from now on.
    pub(crate) fn place(&self, expr: &mut Expr) -> Result<()> {
        if let Expr::Set(at) = expr {
            let place = self.places[*at].ok_or_else(|| {
                let message = "a function that returns rows is grouped by, and used otherwise, too";
                SqlError::unsupported(message)
            })?;
            *expr = Expr::Column(place);
            return Ok(());
        }
        expr.children_mut(&mut |child| self.place(child))
    }
}
