//! `CASE`.

use savanna_tenants_values::{error::Result, types::Type, value::Value};
use sqlparser::ast;

use super::{Binder, Typed};
use crate::expression::{Comparison, Expr};

impl Binder<'_, '_> {
    pub(super) fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        cases: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
    ) -> Result<Typed> {
        self.branches += 1;
        let bound = self.without_sets("CASE", |binder| binder.case_branches(operand, cases, otherwise));
        self.branches -= 1;
        let (conditions, results) = bound?;
        let (results, of) = self.common(results, "CASE")?;
        let mut results = results.into_iter();
        let mut otherwise = results.next().unwrap_or(Expr::NULL);
        // Conditions that are known decide now.
        let mut cases = Vec::new();
        for (condition, result) in conditions.into_iter().zip(results) {
            match condition {
                Expr::Constant(Value::Bool(true)) => {
                    otherwise = result;
                    break;
                }
                Expr::Constant(_) => {}
                condition => cases.push((condition, result)),
            }
        }
        let expr = if cases.is_empty() { otherwise } else { Expr::Case(cases, Box::new(otherwise)) };
        Ok(Typed::new(self.branched(expr), of))
    }

    /// The conditions of a CASE, and its results. What is without a condition comes first: its type is the first to be asked, as in PostgreSQL.
    fn case_branches(
        &mut self,
        operand: Option<&ast::Expr>,
        cases: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
    ) -> Result<(Vec<Expr>, Vec<Typed>)> {
        let mut conditions = Vec::new();
        let mut results = vec![match otherwise {
            Some(otherwise) => self.expr(otherwise)?,
            None => Typed::new(Expr::NULL, Type::Unknown),
        }];
        for case in cases {
            conditions.push(match operand {
                Some(operand) => {
                    let (a, b) = self.comparable(operand, &case.condition, "=")?;
                    self.folded(Expr::Compare(Comparison::Equal, Box::new(a), Box::new(b)))?
                }
                None => self.condition(&case.condition, "CASE/WHEN")?,
            });
            results.push(self.expr(&case.result)?);
        }
        Ok((conditions, results))
    }
}
