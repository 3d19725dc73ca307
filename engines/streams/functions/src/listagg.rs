//! `LISTAGG([DISTINCT] text [, separator])`: the texts of a group in one. They are sorted, because rows are merged in any order
//! and the result may not depend on that.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, TypeSignature, Volatility};
use datafusion::physical_expr::expressions::Literal;

use super::budget;

/// The aggregate.
pub(super) fn function() -> Arc<AggregateUDF> {
    const TEXT: DataType = DataType::Utf8View;
    let forms = vec![TypeSignature::Exact(vec![TEXT]), TypeSignature::Exact(vec![TEXT, TEXT])];
    Arc::new(ListAgg { signature: Signature::one_of(forms, Volatility::Immutable) }.into())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ListAgg {
    signature: Signature,
}

impl AggregateUDFImpl for ListAgg {
    fn name(&self) -> &'static str {
        "listagg"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let texts = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8View, true)));
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "texts"), texts, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let separator = match args.exprs.get(1) {
            None => ",".to_owned(),
            Some(separator) => match separator.downcast_ref::<Literal>().map(|literal| literal.value().try_as_str()) {
                Some(Some(Some(text))) => text.to_owned(),
                _ => return plan_err!("the separator of LISTAGG must be a constant text"),
            },
        };
        Ok(Box::new(Texts { counts: BTreeMap::new(), bytes: 0, distinct: args.is_distinct, separator }))
    }
}

/// The texts of one group, and how often each occurs.
#[derive(Debug)]
struct Texts {
    counts: BTreeMap<String, usize>,
    bytes: usize,
    distinct: bool,
    separator: String,
}

impl Accumulator for Texts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let texts = cast(&values[0], &DataType::Utf8View)?;
        for text in texts.as_string_view().iter().flatten() {
            match self.counts.get_mut(text) {
                Some(count) => *count += usize::from(!self.distinct),
                None => {
                    self.bytes += text.len();
                    self.counts.insert(text.to_owned(), 1);
                }
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.counts.is_empty() {
            return Ok(ScalarValue::Utf8View(None));
        }
        let bytes = self.counts.iter().map(|(text, count)| ((text.len() + self.separator.len()) * count) as u128).sum();
        budget::check("LISTAGG", bytes)?;
        let texts = self.counts.iter().flat_map(|(text, count)| std::iter::repeat_n(text.as_str(), *count));
        Ok(ScalarValue::Utf8View(Some(texts.collect::<Vec<_>>().join(&self.separator))))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.bytes + self.counts.len() * size_of::<(String, usize)>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let texts = self.counts.iter().flat_map(|(text, count)| std::iter::repeat_n(text, *count));
        let texts: Vec<ScalarValue> = texts.map(|text| ScalarValue::Utf8View(Some(text.clone()))).collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&texts, &DataType::Utf8View))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(lists) = states[0].as_list_opt::<i32>() else {
            return exec_err!("the state of LISTAGG must be lists, but is {}", states[0].data_type());
        };
        lists.iter().flatten().try_for_each(|texts| self.update_batch(&[texts]))
    }
}
