//! The groups of an aggregate of the user's own: their states side by side, and each group's rows of a batch taken in at once.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryBuilder, BooleanArray, UInt32Array, new_empty_array};
use arrow::compute::take;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use super::user::{AggregateFunction, failed};

/// What is kept of each group.
#[derive(Debug)]
pub(super) struct UserGroups<F: AggregateFunction> {
    function: Arc<F>,
    states: Vec<F::State>,
    /// By group: all 0 but while rows are put in order.
    slots: Vec<u32>,
    /// What the states take, in bytes.
    held: usize,
}

/// Rows of a batch, group by group.
struct ByGroup {
    rows: Vec<u32>,
    /// Each group with the number of its rows, in the order of the rows.
    groups: Vec<(usize, usize)>,
}

impl<F: AggregateFunction> UserGroups<F> {
    pub(super) fn new(function: Arc<F>) -> Self {
        Self { function, states: Vec::new(), slots: Vec::new(), held: 0 }
    }

    fn grow(&mut self, groups: usize) {
        let added = groups.saturating_sub(self.states.len());
        self.held += added * self.function.bytes(&F::State::default());
        self.states.resize_with(self.states.len() + added, F::State::default);
    }

    /// Puts rows in order by counting: first how many each group has, then where they begin.
    fn by_group(&mut self, group_indices: &[usize], filter: Option<&BooleanArray>) -> ByGroup {
        let kept = |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        let kept = || group_indices.iter().enumerate().filter(move |(row, _)| kept(*row));
        self.slots.resize(self.states.len(), 0);
        let mut touched = Vec::new();
        for (_, group) in kept() {
            let count = &mut self.slots[*group];
            if *count == 0 {
                touched.push(*group);
            }
            *count += 1;
        }
        let mut total = 0;
        let mut begin = |group: usize| {
            let count = std::mem::replace(&mut self.slots[group], total);
            total += count;
            (group, count as usize)
        };
        let groups: Vec<(usize, usize)> = touched.into_iter().map(&mut begin).collect();
        let mut rows = vec![0; total as usize];
        for (row, group) in kept() {
            let next = &mut self.slots[*group];
            rows[*next as usize] = row as u32;
            *next += 1;
        }
        groups.iter().for_each(|(group, _)| self.slots[*group] = 0);
        ByGroup { rows, groups }
    }

    /// Changes a group's state.
    fn change(&mut self, group: usize, change: impl FnOnce(&F, &mut F::State) -> Result<(), String>) -> Result<()> {
        let state = &mut self.states[group];
        let before = self.function.bytes(state);
        change(&self.function, state).map_err(|e| failed(self.function.name(), &e))?;
        self.held = (self.held + self.function.bytes(state)).saturating_sub(before);
        Ok(())
    }

    fn take(&mut self, emit_to: EmitTo) -> Vec<F::State> {
        let taken = emit_to.take_needed(&mut self.states);
        self.slots.truncate(self.states.len());
        self.held = self.states.iter().map(|state| self.function.bytes(state)).sum();
        taken
    }
}

impl<F: AggregateFunction> GroupsAccumulator for UserGroups<F> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.grow(total_num_groups);
        let ByGroup { rows, groups } = self.by_group(group_indices, filter);
        let in_order = rows.len() == group_indices.len() && rows.is_sorted();
        let columns = if in_order {
            values.to_vec()
        } else {
            let places = UInt32Array::from(rows);
            values.iter().map(|column| Ok(take(column, &places, None)?)).collect::<Result<_>>()?
        };
        let mut start = 0;
        for (group, count) in groups {
            let arguments: Vec<ArrayRef> = columns.iter().map(|column| column.slice(start, count)).collect();
            self.change(group, |function, state| function.add(state, &arguments))?;
            start += count;
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let returns = self.function.returns();
        let states = self.take(emit_to);
        if states.is_empty() {
            return Ok(new_empty_array(&returns));
        }
        let finish = |state: &F::State| -> Result<ScalarValue> {
            let result = self.function.finish(state).map_err(|e| failed(self.function.name(), &e))?;
            if result.data_type() == returns { Ok(result) } else { result.cast_to(&returns) }
        };
        ScalarValue::iter_to_array(states.iter().map(finish).collect::<Result<Vec<_>>>()?)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let states = self.take(emit_to);
        let mut column = BinaryBuilder::with_capacity(states.len(), states.len() * size_of::<F::State>());
        let mut bytes = Vec::new();
        for state in &states {
            bytes.clear();
            bytes = postcard::to_extend(state, bytes).map_err(|e| failed(self.function.name(), &e.to_string()))?;
            column.append_value(&bytes);
        }
        Ok(vec![Arc::new(column.finish())])
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.grow(total_num_groups);
        let Some(states) = values[0].as_binary_opt::<i32>() else {
            return exec_err!("the state of {} must be bytes, but is {}", self.function.name(), values[0].data_type());
        };
        for (group, bytes) in group_indices.iter().zip(states) {
            let Some(bytes) = bytes else { continue };
            self.change(*group, |function, state| {
                function.merge(state, postcard::from_bytes(bytes).map_err(|e| e.to_string())?);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut alone = Self::new(Arc::clone(&self.function));
        let rows = values.first().map_or(0, |column| column.len());
        alone.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        alone.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        let slots = self.slots.capacity() * size_of::<u32>();
        self.held + slots + (self.states.capacity() - self.states.len()) * size_of::<F::State>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{DataType, Int64Type};

    use super::*;

    /// How many different numbers there are.
    #[derive(Debug)]
    struct Different;

    impl AggregateFunction for Different {
        type State = BTreeSet<i64>;

        fn name(&self) -> &str {
            "different"
        }

        fn takes(&self) -> Vec<DataType> {
            vec![DataType::Int64]
        }

        fn returns(&self) -> DataType {
            DataType::Int64
        }

        fn add(&self, seen: &mut Self::State, arguments: &[ArrayRef]) -> Result<(), String> {
            for number in arguments[0].as_primitive::<Int64Type>().iter().flatten() {
                seen.insert(if number < 0 { return Err("a number below 0".into()) } else { number });
            }
            Ok(())
        }

        fn merge(&self, seen: &mut Self::State, other: Self::State) {
            seen.extend(other);
        }

        fn finish(&self, seen: &Self::State) -> Result<ScalarValue, String> {
            Ok(ScalarValue::Int64(Some(seen.len() as i64)))
        }

        fn bytes(&self, seen: &Self::State) -> usize {
            size_of_val(seen) + seen.len() * 16
        }
    }

    fn groups() -> UserGroups<Different> {
        UserGroups::new(Arc::new(Different))
    }

    fn numbers(values: &[i64]) -> Vec<ArrayRef> {
        vec![Arc::new(Int64Array::from(values.to_vec()))]
    }

    fn counts(groups: &mut UserGroups<Different>) -> Vec<i64> {
        groups.evaluate(EmitTo::All).unwrap().as_primitive::<Int64Type>().values().to_vec()
    }

    #[test]
    fn each_group_gets_its_rows_in_whatever_order_they_come() {
        let mut together = groups();
        together.update_batch(&numbers(&[1, 2, 1, 3, 1]), &[1, 0, 1, 1, 2], None, 4).unwrap();
        let filter = BooleanArray::from(vec![Some(true), Some(false), None]);
        together.update_batch(&numbers(&[7, 8, 9]), &[0, 0, 3], Some(&filter), 4).unwrap();
        assert_eq!(counts(&mut together), [2, 2, 1, 0]);
        assert!(counts(&mut together).is_empty());
    }

    #[test]
    fn states_are_merged_group_by_group() {
        let (mut one, mut other) = (groups(), groups());
        one.update_batch(&numbers(&[1, 2, 3]), &[0, 1, 1], None, 2).unwrap();
        other.update_batch(&numbers(&[1, 9]), &[0, 1], None, 2).unwrap();
        let states = other.state(EmitTo::All).unwrap();
        one.merge_batch(&states, &[1, 2], 3).unwrap();
        assert_eq!(counts(&mut one), [1, 3, 1]);
    }

    #[test]
    fn what_states_take_is_counted_and_given_back() {
        let mut groups = groups();
        groups.update_batch(&numbers(&[1, 2, 2]), &[0, 1, 1], None, 2).unwrap();
        assert!(groups.size() >= 2 * size_of::<BTreeSet<i64>>() + 2 * 16);
        groups.evaluate(EmitTo::First(1)).unwrap();
        assert_eq!(groups.held, size_of::<BTreeSet<i64>>() + 16);
    }

    #[test]
    fn what_the_function_refuses_fails_under_its_name() {
        let error = groups().update_batch(&numbers(&[-1]), &[0], None, 1).unwrap_err();
        assert!(error.strip_backtrace().contains("DIFFERENT: a number below 0"), "{error}");
        let texts: Vec<ArrayRef> = vec![Arc::new(StringArray::from(vec!["no state"]))];
        assert!(groups().merge_batch(&texts, &[0], 1).is_err());
    }
}
