//! Functions written in Rust, called from SQL: through planning, encoding, and stages with several members.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringViewArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::ScalarValue;
use savanna_streams::EngineOptions;
use savanna_streams::functions::{AggregateFunction, ScalarFunction, register_aggregate, register_scalar};

use crate::session::Session;
use crate::unasked::Unasked;

/// A price in words.
#[derive(Debug)]
struct PriceBand;

impl ScalarFunction for PriceBand {
    fn name(&self) -> &str {
        "price_band"
    }

    fn takes(&self) -> Vec<DataType> {
        vec![DataType::Int64]
    }

    fn returns(&self) -> DataType {
        DataType::Utf8View
    }

    fn call(&self, arguments: &[ArrayRef]) -> Result<ArrayRef, String> {
        let prices = arguments[0].as_primitive::<Int64Type>();
        let band = |price: Option<i64>| match price? {
            ..100 => Some("low"),
            100..300 => Some("middle"),
            300.. => Some("high"),
        };
        Ok(Arc::new(prices.iter().map(band).collect::<StringViewArray>()))
    }
}

/// The text that occurs most often; of equals the first by name.
#[derive(Debug)]
struct MostOften;

impl AggregateFunction for MostOften {
    type State = BTreeMap<String, u64>;

    fn name(&self) -> &str {
        "most_often"
    }

    fn takes(&self) -> Vec<DataType> {
        vec![DataType::Utf8View]
    }

    fn returns(&self) -> DataType {
        DataType::Utf8View
    }

    fn add(&self, counts: &mut Self::State, arguments: &[ArrayRef]) -> Result<(), String> {
        for text in arguments[0].as_string_view().iter().flatten() {
            *counts.entry(text.to_owned()).or_default() += 1;
        }
        Ok(())
    }

    fn merge(&self, counts: &mut Self::State, other: Self::State) {
        for (text, count) in other {
            *counts.entry(text).or_default() += count;
        }
    }

    fn finish(&self, counts: &Self::State) -> Result<ScalarValue, String> {
        let most = counts.iter().rev().max_by_key(|(_, count)| **count);
        Ok(ScalarValue::Utf8View(most.map(|(text, _)| text.clone())))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_in_rust_are_called_from_sql() {
    register_scalar(PriceBand).unwrap();
    register_aggregate(MostOften).unwrap();
    let again = register_scalar(PriceBand).unwrap_err();
    assert_eq!(again.to_string(), "function price_band exists already; choose another name");

    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sql/data");
    let tables = include_str!("../sql/data/tables.ddl").replace("${DATA}", data);
    for (parallelism, events) in [(1, 0), (3, 1)] {
        let session = Session::open(EngineOptions::default()).await;
        let settings = format!("SET 'group-size' = '{parallelism}'; SET 'epoch-events' = '{events}';");
        let query = "SELECT price_band(price) AS band, most_often(item) AS item, count(*) AS n
                     FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '1' MINUTE))
                     GROUP BY price_band(price), window_start, window_end;";
        let results = session.run(&format!("{settings}{tables}{query}")).await.unwrap();
        assert_eq!(results, ["band | item | n\nhigh | chair | 4\nlow | NULL | 3\nmiddle | lamp | 6\n"]);
        session.close().await;
    }

    let mut options = EngineOptions::default();
    options.runtime.cloud = Some(Arc::new(Unasked));
    let session = Session::open(options).await;
    let query = "SELECT most_often(price_band(price)) AS band, sum(price) AS total
                 FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '1' MINUTE))
                 GROUP BY window_start, window_end;";
    let refused = session.run(&format!("{tables}{query}")).await.unwrap_err().to_string();
    assert!(
        refused.starts_with("functions of this program (most_often, price_band) on functions of a host is"),
        "{refused}"
    );
    session.close().await;
}
