//! The forms in which functions can be called, for clients that list functions.

use arrow::datatypes::{DECIMAL_DEFAULT_SCALE, DECIMAL128_MAX_PRECISION, DataType, IntervalUnit, TimeUnit};
use datafusion::common::types::NativeType;
use datafusion::logical_expr::{ArrayFunctionSignature, TypeSignature, TypeSignatureClass};
use savanna_streams_api::type_name;

/// The type that stands for any number.
const DECIMAL: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, DECIMAL_DEFAULT_SCALE);

/// One form of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// The function's name.
    pub name: String,
    /// Whether it is an aggregate.
    pub aggregate: bool,
    /// The types of its arguments; none for any type.
    pub arguments: Vec<Option<DataType>>,
    /// Whether the last argument may be repeated.
    pub variadic: bool,
    /// The type of its result; none if that depends on the arguments.
    pub returns: Option<DataType>,
}

/// All forms of all functions, sorted by name.
pub fn forms() -> Vec<Form> {
    let known = super::functions();
    let mut names: Vec<&String> = known.scalar_functions().keys().chain(known.aggregate_functions().keys()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().flat_map(|name| forms_of(name)).collect()
}

/// The forms of the function of this name.
pub fn forms_of(name: &str) -> Vec<Form> {
    let known = super::functions();
    let scalar = known.scalar_functions().get(name).into_iter().flat_map(|function| {
        of(name, false, &function.signature().type_signature, |types| function.return_type(types).ok())
    });
    let aggregate = known.aggregate_functions().get(name).into_iter().flat_map(|function| {
        of(name, true, &function.signature().type_signature, |types| function.return_type(types).ok())
    });
    scalar.chain(aggregate).collect()
}

impl Form {
    /// The arguments as SQL names their types, `(VARCHAR, BIGINT)`; none if any will do.
    pub fn in_sql(&self) -> Option<String> {
        if self.arguments.iter().all(Option::is_none) && !self.arguments.is_empty() {
            return None;
        }
        let name = |t: &Option<DataType>| match t {
            None => "any type".to_owned(),
            Some(DECIMAL) => "a number".to_owned(),
            Some(other) => type_name(other),
        };
        let mut names: Vec<String> = self.arguments.iter().map(name).collect();
        names.extend(self.variadic.then(|| "..".to_owned()));
        Some(format!("({})", names.join(", ")))
    }
}

fn of(
    name: &str,
    aggregate: bool,
    signature: &TypeSignature,
    returns: impl Fn(&[DataType]) -> Option<DataType>,
) -> Vec<Form> {
    let form = |(arguments, variadic): Shape| {
        // Whatever any type is, if it matters.
        let with = |any: DataType| {
            let types: Vec<DataType> = arguments.iter().map(|t| t.clone().unwrap_or_else(|| any.clone())).collect();
            returns(&types)
        };
        let returns = (!is_opaque(signature))
            .then(|| with(DataType::Int64).filter(|one| with(DataType::Utf8View).as_ref() == Some(one)))
            .flatten();
        Form { name: name.to_owned(), aggregate, arguments, variadic, returns }
    };
    shapes(signature).into_iter().map(form).collect()
}

/// Whether only the function itself knows what arguments it takes, so that it must not be asked about others.
fn is_opaque(signature: &TypeSignature) -> bool {
    match signature {
        TypeSignature::UserDefined | TypeSignature::ArraySignature(_) => true,
        TypeSignature::OneOf(signatures) => signatures.iter().any(is_opaque),
        _ => false,
    }
}

/// The types of arguments, and whether the last one may be repeated.
type Shape = (Vec<Option<DataType>>, bool);

fn shapes(signature: &TypeSignature) -> Vec<Shape> {
    let every = |data_type: Option<DataType>, count: usize| vec![(vec![data_type; count], false)];
    match signature {
        TypeSignature::OneOf(signatures) => signatures.iter().flat_map(shapes).collect(),
        TypeSignature::Exact(types) => vec![(types.iter().cloned().map(Some).collect(), false)],
        TypeSignature::Uniform(count, types) => {
            types.iter().map(|data_type| (vec![Some(data_type.clone()); *count], false)).collect()
        }
        TypeSignature::Coercible(arguments) => {
            vec![(arguments.iter().map(|argument| of_class(argument.desired_type())).collect(), false)]
        }
        TypeSignature::Variadic(types) => types.iter().map(|t| (vec![Some(t.clone())], true)).collect(),
        TypeSignature::Numeric(count) => every(of_class(&TypeSignatureClass::Numeric), *count),
        TypeSignature::String(count) => every(Some(DataType::Utf8View), *count),
        TypeSignature::Any(count) | TypeSignature::Comparable(count) => every(None, *count),
        TypeSignature::Nullary => every(None, 0),
        TypeSignature::VariadicAny | TypeSignature::UserDefined => vec![(vec![None], true)],
        TypeSignature::ArraySignature(ArrayFunctionSignature::Array { arguments, .. }) => every(None, arguments.len()),
        TypeSignature::ArraySignature(_) => every(None, 1),
    }
}

/// The type that stands for a class of types.
fn of_class(class: &TypeSignatureClass) -> Option<DataType> {
    Some(match class {
        TypeSignatureClass::Any => return None,
        TypeSignatureClass::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        TypeSignatureClass::Time => DataType::Time64(TimeUnit::Microsecond),
        TypeSignatureClass::Interval | TypeSignatureClass::Duration => DataType::Interval(IntervalUnit::MonthDayNano),
        TypeSignatureClass::Integer => DataType::Int64,
        TypeSignatureClass::Float => DataType::Float64,
        TypeSignatureClass::Decimal | TypeSignatureClass::Numeric => DECIMAL,
        TypeSignatureClass::Binary => DataType::Binary,
        TypeSignatureClass::Native(logical) => match logical.native() {
            NativeType::Boolean => DataType::Boolean,
            NativeType::Int8 | NativeType::UInt8 | NativeType::Int16 => DataType::Int16,
            NativeType::UInt16 | NativeType::Int32 => DataType::Int32,
            NativeType::UInt32 | NativeType::Int64 => DataType::Int64,
            NativeType::UInt64 | NativeType::Decimal(..) => DECIMAL,
            NativeType::Float16 | NativeType::Float32 => DataType::Float32,
            NativeType::Float64 => DataType::Float64,
            NativeType::Date => DataType::Date32,
            NativeType::String => DataType::Utf8View,
            NativeType::Binary | NativeType::FixedSizeBinary(_) => DataType::Binary,
            NativeType::Timestamp(unit, zone) => DataType::Timestamp(*unit, zone.clone()),
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_forms_in_which_they_are_called() {
        let forms = forms();
        let of = |name: &str| forms.iter().filter(|form| form.name == name).collect::<Vec<_>>();
        let text = Some(DataType::Utf8View);
        assert!(
            of("split_index").iter().any(|form| form.arguments == [text.clone(), text.clone(), Some(DataType::Int64)])
        );
        assert!(of("count").iter().all(|form| form.aggregate && form.returns == Some(DataType::Int64)));
        assert!(of("coalesce").iter().all(|form| form.returns.is_none()));
        assert!(of("count_char").iter().all(|form| form.returns == Some(DataType::Int64)));
        assert!(of("coalesce").iter().all(|form| form.variadic));
    }
}
