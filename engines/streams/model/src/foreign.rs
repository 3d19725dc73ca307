//! What Arrow and DataFusion say about a value or a type, in the words of SQL.

use std::str::FromStr;

use arrow::datatypes::DataType;
use datafusion::common::DataFusionError;

use savanna_streams_api::{StreamError, type_name};

/// How these libraries name the kind of an error, before they say what is wrong.
const PREFIXES: [&str; 14] = [
    "Arithmetic overflow: ",
    "Arrow error: ",
    "Arrow: ",
    "Cast error: ",
    "Compute error: ",
    "Error during planning: ",
    "Execution error: ",
    "External error: ",
    "Internal error: ",
    "Invalid argument error: ",
    "Not yet implemented: ",
    "Parquet error: ",
    "Parser error: ",
    "This feature is not implemented: ",
];

/// The error of ours that a library carried through, if there is one.
pub fn ours(error: &DataFusionError) -> Option<StreamError> {
    match error.find_root() {
        DataFusionError::External(carried) => carried.downcast_ref::<StreamError>().cloned(),
        _ => None,
    }
}

/// What the libraries say, and what we say instead. `{}` stands for what they fill in, `{0}`, `{1}`, .. for the same.
const WORDINGS: [(&str, &str); 47] = [
    ("Cannot infer common argument type for comparison operation {}", NO_OPERATION),
    ("Cannot infer common type for bitwise operation {}", NO_OPERATION),
    ("Cannot coerce arithmetic expression {} to valid types", NO_OPERATION),
    ("Cannot get result type for temporal operation {}: {}", NO_OPERATION),
    ("Cannot get result type for arithmetic operation {}: {}", NO_OPERATION),
    ("Invalid timestamp arithmetic operation: {}", NO_OPERATION),
    ("There isn't a common type to coerce {} and {} in {} expression", "there is no {0} {2} {1}; CAST one of them"),
    ("Failed to coerce types {} and {} in BETWEEN expression", "there is no {0} BETWEEN {1}; CAST one of them"),
    ("Can not find compatible types to compare {} with [{}]", "{0} cannot be compared with {1}; CAST one of them"),
    (
        "Unary operator 'NOT' requires a boolean expression, got {}",
        "NOT takes a BOOLEAN, but got {0}; compare it with something",
    ),
    (
        "Unary operator '-' only supports signed numeric, interval and timestamp types",
        "- takes a number or an INTERVAL; CAST its operand",
    ),
    ("Cannot cast string '{}' to value of {} type", "'{0}' is not a valid {1}"),
    ("Cannot cast value '{}' to value of {} type", "'{0}' is not a valid {1}"),
    ("Error parsing timestamp from '{}': {}", "'{0}' is not a valid TIMESTAMP"),
    ("Can't cast value {} to type {}", "{0} is out of the range of {1}"),
    ("value of {} is out of range {}", "{0} is out of the range of {1}"),
    (
        "{} is too large to store in a {} of precision {}. Max is {}",
        "{0} does not fit a {1} of {2} digits; the largest is {3}",
    ),
    (
        "{} is too small to store in a {} of precision {}. Min is {}",
        "{0} does not fit a {1} of {2} digits; the smallest is {3}",
    ),
    ("Unsupported CAST from {} to {}", "there is no CAST from {0} to {1}"),
    ("Operator {} is not yet supported", "the operator {0} is not supported"),
    ("Unsupported SQL unary operator BitwiseNot", "the operator ~ is not supported"),
    ("Unsupported SQL binary operator {}", "this operator is not supported"),
    (
        "UNION queries have different number of columns",
        "the sides of a UNION have different numbers of columns; select as many on each",
    ),
    (
        "Incompatible inputs for Union: Previous inputs were of type {}, but got incompatible type {} on column '{}'",
        "column {2} is {0} on one side of a UNION and {1} on another; CAST one of them",
    ),
    ("WITH query name \"{}\" specified more than once", "WITH names {0} twice; choose another name"),
    (
        "Too many columns! The subquery should only return one column: {}",
        "a subquery that is compared has several columns ({0}); select one",
    ),
    ("variable {} has no type information", "there are no variables; write the value itself"),
    ("function '{}' expects {} arguments but received {}", "function {0} takes {1} arguments, but got {2}"),
    ("[return_type] {} not supported for {}", "{0} does not take {1}; CAST it"),
    (
        "Cannot access field at argument {}: type {} is not Struct, Map, or Null",
        "{1} has no fields; read those of a ROW or a MAP",
    ),
    ("Cannot cast to {}. Overflowing on {}", "{1} does not fit a {0}"),
    (
        "Decimal overflow while applying {}",
        "the result of {0} has more digits than its type; CAST its argument to DOUBLE",
    ),
    ("Arithmetic Overflow in AvgAccumulator", "AVG of decimals overflows; CAST its argument to DOUBLE"),
    ("Cannot infer common argument type for logical boolean operation {}", NO_OPERATION),
    ("Cannot infer common string type for string concat operation {}", NO_OPERATION),
    (
        "Substring without for/from is not valid {}",
        "SUBSTRING takes a text and where to begin, such as SUBSTRING(name FROM 2 FOR 3)",
    ),
    (
        "QUALIFY clause requires window functions in the SELECT list or QUALIFY clause",
        "QUALIFY filters by a window function, and there is none; write the condition in WHERE",
    ),
    ("Failed to coerce then ({}) and else (None) to common types in CASE WHEN expression", NO_CASE_OF_MANY),
    ("Failed to coerce then ({}) and else ({}) to common types in CASE WHEN expression", NO_CASE),
    ("Failed to coerce case ({}) and when ({}) to common types in CASE WHEN expression", NO_CASE),
    (
        "Cannot find column with position {} in SELECT clause. Valid columns: {}",
        "GROUP BY {0} is not the number of a column of SELECT; those are {1}; write the column itself",
    ),
    (
        "Invalid input syntax for type interval: \"{}\"",
        "'{0}' is not a valid INTERVAL; write, for example, INTERVAL '10' SECOND",
    ),
    ("Invalid HexStringLiteral '{}'", "x'{0}' is not hexadecimal; write pairs of digits 0 to 9 and a to f"),
    ("Invalid Unicode scalar value: {}", "{0} is not the number of a character; those are 1 to 1114111"),
    ("Invalid timezone \"{}\": {}", "'{0}' is not a valid time zone; write an offset such as '+02:00'"),
    ("Format error", "the pattern has a letter after % that TO_CHAR does not know"),
    ("Execution error: {}", "{0}"),
];
const NO_CASE: &str = "CASE has {0} and {1}, which have no type in common; CAST one of them";
const NO_CASE_OF_MANY: &str = "CASE has {0}, which have no type in common; CAST some of them";
const NO_OPERATION: &str = "there is no {0}; CAST one side of it to the type of the other";

/// Words of the libraries that may be left in a message that no wording is for.
const WORDS: [&str; 32] = [
    "DataFusion",
    "datafusion",
    "arrow",
    "Arrow",
    "Utf8",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Float32",
    "Float64",
    "Decimal128",
    "Decimal256",
    "Date32",
    "Timestamp(",
    "MonthDayNano",
    "Struct(",
    "List(",
    "ScalarValue",
    "LogicalPlan",
    "DFSchema",
    "Schema",
    "schema",
    "Physical",
    "physical",
    "optimizer",
    "ast node",
    "coerc",
    "Coerc",
    "ignature",
    "UDF",
    "Some(",
];

/// A message without the names of the libraries' errors, in our words where there are some, and with types by their names in SQL.
pub fn in_sql(message: &str) -> String {
    // What they were doing when it happened comes first.
    let mut message = message.rsplit("caused by\n").next().unwrap_or(message).trim();
    while let Some(rest) = PREFIXES.iter().find_map(|prefix| message.strip_prefix(prefix)) {
        message = rest;
    }
    let message = with_sql_types(message);
    let reworded = WORDINGS.iter().find_map(|(theirs, ours)| Some(filled(ours, &parts(theirs, &message)?)));
    reworded.unwrap_or(message)
}

/// Whether a message still has words of the libraries in it, which tell users nothing.
pub fn is_foreign(message: &str) -> bool {
    WORDS.iter().any(|word| message.contains(word))
}

/// What stands in a text where a template has `{}`; none if it is another text.
fn parts<'t>(template: &str, text: &'t str) -> Option<Vec<&'t str>> {
    let mut literals = template.split("{}");
    let mut rest = text.strip_prefix(literals.next()?)?;
    let mut parts = Vec::new();
    for literal in literals {
        let end = if literal.is_empty() { rest.len() } else { rest.find(literal)? };
        parts.push(&rest[..end]);
        rest = &rest[end + literal.len()..];
    }
    rest.is_empty().then_some(parts)
}

fn filled(template: &str, parts: &[&str]) -> String {
    let numbered = parts.iter().enumerate();
    numbered.fold(template.to_owned(), |text, (at, part)| text.replace(&format!("{{{at}}}"), part))
}

/// What is wrong with a value, and what to do where it is known.
pub fn about_a_value(message: &str) -> String {
    let casts =
        ["Cannot cast ", "Can't cast ", "Error parsing ", "Overflowing on "].iter().any(|cast| message.contains(cast));
    let message = in_sql(message);
    if message == "Divide by zero error" {
        return "the divisor is 0; leave such rows out, or divide by NULLIF(.., 0)".into();
    }
    if message.starts_with("Overflow happened on: ") {
        return "the result has more digits than its type; CAST a part of it to DOUBLE, or to fewer digits".into();
    }
    if casts {
        return format!("{message}; leave such rows out, or TRY_CAST, which gives NULL for them");
    }
    if is_foreign(&message) { "a value cannot be computed; leave such rows out".into() } else { message }
}

/// Replaces types outside of quoted texts.
fn with_sql_types(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(first) = rest.chars().next() {
        let word = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len();
        if word > 0 {
            let (len, name) = sql_type(rest, word).unwrap_or_else(|| (word, rest[..word].to_owned()));
            out.push_str(&name);
            rest = &rest[len..];
            continue;
        }
        // An apostrophe behind a letter ends no word, so it begins no quoted text.
        let quoted = match first {
            '\'' if !out.ends_with(char::is_alphanumeric) => rest[1..].find('\'').map(|end| end + 2),
            _ => None,
        };
        let len = quoted.unwrap_or_else(|| first.len_utf8());
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    out
}

/// The type that a text begins with, in SQL, and how much of the text it is.
fn sql_type(text: &str, word: usize) -> Option<(usize, String)> {
    if ["Decimal128", "Decimal256"].contains(&&text[..word]) && !text[word..].starts_with('(') {
        return Some((word, "DECIMAL".into()));
    }
    // These are words of English as well.
    if !text.starts_with(|c: char| c.is_ascii_uppercase()) || ["Null", "Binary"].contains(&&text[..word]) {
        return None;
    }
    if let Some(constant) = constant(text, word) {
        return Some(constant);
    }
    let whole = if text[word..].starts_with('(') { closing(&text[word..]).map(|end| word + end) } else { Some(word) };
    let parsed = whole.and_then(|len| Some((len, DataType::from_str(&text[..len]).ok()?)));
    parsed.map(|(len, data_type)| (len, type_name(&data_type)))
}

/// The constant that a text begins with, `Int64(1)` or `Utf8("a")`, as SQL writes it, and how much of the text it is.
fn constant(text: &str, word: usize) -> Option<(usize, String)> {
    const TYPES: [&str; 15] = [
        "Boolean",
        "Int8",
        "Int16",
        "Int32",
        "Int64",
        "UInt8",
        "UInt16",
        "UInt32",
        "UInt64",
        "Float32",
        "Float64",
        "Utf8",
        "LargeUtf8",
        "Utf8View",
        "Decimal128",
    ];
    if !TYPES.contains(&&text[..word]) || !text[word..].starts_with('(') {
        return None;
    }
    if let Some(content) = text[word..].strip_prefix("(\"") {
        let end = content.find("\")")?;
        return Some((word + end + 4, format!("'{}'", &content[..end])));
    }
    let end = closing(&text[word..])?;
    let content = &text[word + 1..word + end - 1];
    let value = match content.strip_prefix("Some(") {
        None if text.starts_with("Decimal") => return None,
        None => content.to_owned(),
        Some(decimal) => {
            let (digits, rest) = decimal.split_once(')')?;
            let scale: usize = rest.rsplit(',').next()?.parse().ok()?;
            let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
            let digits = format!("{digits:0>width$}", width = scale + 1);
            let (whole, fraction) = digits.split_at(digits.len() - scale);
            if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
        }
    };
    Some((word + end, value))
}

/// Where the parenthesis closes that a text begins with.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_called_as_in_sql() {
        for (foreign, ours) in [
            (
                "Arrow error: Cast error: Cannot cast string 'Int64' to value of Int64 type",
                "'Int64' is not a valid BIGINT",
            ),
            ("Struct(\"a\": Int32, \"b\": Utf8View) + Int64", "ROW<a INT, b VARCHAR> + BIGINT"),
            (
                "Map(\"entries\": non-null Struct(\"key\": non-null Utf8View, \"value\": Int32), unsorted)",
                "MAP<VARCHAR, INT>",
            ),
            ("List(Timestamp(ms)) or Decimal128(10, 2)", "ARRAY<TIMESTAMP(3)> or DECIMAL(10, 2)"),
            ("it doesn't take Utf8, isn't it", "it doesn't take VARCHAR, isn't it"),
            ("a Decimal128 of precision 3", "a DECIMAL of precision 3"),
            ("Interval(MonthDayNano) and Date32", "INTERVAL and DATE"),
            (
                "Null and Binary are words, Int64_t and Foo(Int8) are none",
                "Null and Binary are words, Int64_t and Foo(TINYINT) are none",
            ),
        ] {
            assert_eq!(in_sql(foreign), ours);
        }
    }

    #[test]
    fn constants_are_written_as_in_sql() {
        let foreign = "a + Int64(1) = Utf8(\"it's\") OR Decimal128(Some(-5),3,2) > Float64(1.5)";
        assert_eq!(in_sql(foreign), "a + 1 = 'it's' OR -0.05 > 1.5");
    }

    #[test]
    fn what_is_said_often_is_said_in_our_words() {
        for (foreign, ours) in [
            (
                "type_coercion: Cannot infer common argument type for comparison operation Int64 = Utf8",
                "type_coercion: Cannot infer common argument type for comparison operation BIGINT = VARCHAR",
            ),
            (
                "Cannot infer common argument type for comparison operation Int64 = Utf8",
                "there is no BIGINT = VARCHAR; CAST one side of it to the type of the other",
            ),
            (
                "There isn't a common type to coerce Int64 and Utf8 in LIKE expression",
                "there is no BIGINT LIKE VARCHAR; CAST one of them",
            ),
        ] {
            assert_eq!(in_sql(foreign), ours);
        }
        assert_eq!(
            about_a_value("Cast error: Cannot cast string 'x' to value of Int32 type"),
            "'x' is not a valid INT; leave such rows out, or TRY_CAST, which gives NULL for them"
        );
        assert!(is_foreign("the Schema of a LogicalPlan") && !is_foreign("column price is BIGINT"));
    }

    #[test]
    fn the_kinds_of_errors_are_left_out() {
        assert_eq!(in_sql("Execution error: Error during planning: no"), "no");
        assert_eq!(in_sql("While casting\ncaused by\nArrow error: Cast error: no"), "no");
        assert_eq!(in_sql(""), "");
        assert_eq!(in_sql("("), "(");
    }
}
