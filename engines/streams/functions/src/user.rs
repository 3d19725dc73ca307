//! Functions of the user's own, written in Rust. They belong to the process: whatever runs a stage in it knows them.
//!
//! ```
//! use arrow::array::{ArrayRef, AsArray, Int64Array};
//! use arrow::datatypes::{DataType, Int64Type};
//! use savanna_streams_functions::{ScalarFunction, register_scalar};
//!
//! #[derive(Debug)]
//! struct Doubled;
//!
//! impl ScalarFunction for Doubled {
//!     fn name(&self) -> &str {
//!         "doubled"
//!     }
//!     fn takes(&self) -> Vec<DataType> {
//!         vec![DataType::Int64]
//!     }
//!     fn returns(&self) -> DataType {
//!         DataType::Int64
//!     }
//!     fn call(&self, arguments: &[ArrayRef]) -> Result<ArrayRef, String> {
//!         let numbers = arguments[0].as_primitive::<Int64Type>();
//!         let doubled: Int64Array = numbers.iter().map(|n| n?.checked_mul(2)).collect();
//!         Ok(std::sync::Arc::new(doubled))
//!     }
//! }
//!
//! register_scalar(Doubled)?; // SELECT doubled(price) FROM bids
//! # Ok::<(), savanna_streams_api::StreamError>(())
//! ```

use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_datafusion_err, exec_err};
use datafusion::execution::registry::FunctionRegistry;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, GroupsAccumulator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use savanna_streams_api::StreamError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::bounded::bounded;
use super::user_groups::UserGroups;

/// A function of values: one result per row, from that row's arguments alone. Asked again, it must answer the same: an epoch
/// that is replayed gives the same rows.
pub trait ScalarFunction: Debug + Send + Sync + 'static {
    /// Its name in SQL: small letters, digits and `_`.
    fn name(&self) -> &str;

    /// The types of its arguments. What is given is cast to them where nothing is lost.
    fn takes(&self) -> Vec<DataType>;

    /// The type of its result.
    fn returns(&self) -> DataType;

    /// The results for some rows: as many as each argument has, of type [`returns`](Self::returns).
    ///
    /// # Errors
    /// Why a row cannot be computed; the query fails with it.
    fn call(&self, arguments: &[ArrayRef]) -> Result<ArrayRef, String>;
}

/// A function of the rows of a group. Parts of a group are computed apart and merged in any order, so neither the order of
/// rows nor that of merging may matter.
pub trait AggregateFunction: Debug + Send + Sync + 'static {
    /// What is kept of rows: plain data that is stored and sent. The default stands for no rows.
    type State: Debug + Default + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Its name in SQL: small letters, digits and `_`.
    fn name(&self) -> &str;

    /// The types of its arguments.
    fn takes(&self) -> Vec<DataType>;

    /// The type of its result.
    fn returns(&self) -> DataType;

    /// Takes rows in.
    ///
    /// # Errors
    /// Why a row cannot be taken in; the query fails with it.
    fn add(&self, state: &mut Self::State, arguments: &[ArrayRef]) -> Result<(), String>;

    /// Takes in what was kept of other rows of the group.
    fn merge(&self, state: &mut Self::State, other: Self::State);

    /// The result, of type [`returns`](Self::returns).
    ///
    /// # Errors
    /// Why there is none; the query fails with it.
    fn finish(&self, state: &Self::State) -> Result<ScalarValue, String>;

    /// How many bytes a state takes, with what it points to.
    fn bytes(&self, state: &Self::State) -> usize {
        size_of_val(state)
    }
}

/// Makes a function known to all queries of the process that are planned from now on.
///
/// # Errors
/// The name is no name, or there is such a function already.
pub fn register_scalar(function: impl ScalarFunction) -> Result<(), StreamError> {
    let name = function.name().to_owned();
    let signature = Signature::exact(function.takes(), Volatility::Immutable);
    let udf = Arc::new(ScalarUDF::from(UserScalar { function: Arc::new(function), name: name.clone(), signature }));
    super::register(&name, |registry| registry.register_udf(bounded(udf)).map(drop))
}

/// Makes an aggregate known to all queries of the process that are planned from now on.
///
/// # Errors
/// As [`register_scalar`].
pub fn register_aggregate(function: impl AggregateFunction) -> Result<(), StreamError> {
    let name = function.name().to_owned();
    let signature = Signature::exact(function.takes(), Volatility::Immutable);
    let udaf = AggregateUDF::from(UserAggregate { function: Arc::new(function), name: name.clone(), signature });
    super::register(&name, |registry| registry.register_udaf(Arc::new(udaf)).map(drop))
}

pub(super) fn failed(name: &str, error: &str) -> DataFusionError {
    exec_datafusion_err!("{}: {error}", name.to_uppercase())
}

#[derive(Debug)]
struct UserScalar {
    function: Arc<dyn ScalarFunction>,
    name: String,
    signature: Signature,
}

impl PartialEq for UserScalar {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for UserScalar {}

impl Hash for UserScalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for UserScalar {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.function.returns())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let columns = args.args.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let result = self.function.call(&columns).map_err(|e| failed(&self.name, &e))?;
        let promised = self.function.returns();
        if *result.data_type() != promised || result.len() != rows {
            let got = format!("{} values of type {}", result.len(), result.data_type());
            return exec_err!("{} gave {got}, but {rows} of type {promised} were promised", self.name.to_uppercase());
        }
        Ok(ColumnarValue::Array(result))
    }
}

#[derive(Debug)]
struct UserAggregate<F> {
    function: Arc<F>,
    name: String,
    signature: Signature,
}

impl<F> PartialEq for UserAggregate<F> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl<F> Eq for UserAggregate<F> {}

impl<F> Hash for UserAggregate<F> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl<F: AggregateFunction> AggregateUDFImpl for UserAggregate<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.function.returns())
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "state"), DataType::Binary, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return exec_err!("{} does not take DISTINCT", self.name.to_uppercase());
        }
        Ok(Box::new(Accumulated { function: Arc::clone(&self.function), state: F::State::default() }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(UserGroups::new(Arc::clone(&self.function))))
    }
}

/// What is kept of one group.
#[derive(Debug)]
struct Accumulated<F: AggregateFunction> {
    function: Arc<F>,
    state: F::State,
}

impl<F: AggregateFunction> Accumulator for Accumulated<F> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.function.add(&mut self.state, values).map_err(|e| failed(self.function.name(), &e))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let result = self.function.finish(&self.state).map_err(|e| failed(self.function.name(), &e))?;
        result.cast_to(&self.function.returns())
    }

    fn size(&self) -> usize {
        size_of_val(self) - size_of::<F::State>() + self.function.bytes(&self.state)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let bytes = postcard::to_stdvec(&self.state).map_err(|e| failed(self.function.name(), &e.to_string()))?;
        Ok(vec![ScalarValue::Binary(Some(bytes))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(states) = states[0].as_binary_opt::<i32>() else {
            return exec_err!("the state of {} must be bytes, but is {}", self.function.name(), states[0].data_type());
        };
        for bytes in states.iter().flatten() {
            let other = postcard::from_bytes(bytes).map_err(|e| failed(self.function.name(), &e.to_string()))?;
            self.function.merge(&mut self.state, other);
        }
        Ok(())
    }
}
