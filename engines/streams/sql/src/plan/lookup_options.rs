//! The options of a table that say how rows are looked up in it: read as a whole, or asked for by key.

use std::time::Duration;

use datafusion::logical_expr::Expr;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::join::{ByKey, CacheBounds};

use super::scan::{field_path, length};

/// How often the table is read anew.
const REFRESH: &str = "lookup.refresh";
/// It is read at most so often.
const REFRESH_MIN: Duration = Duration::from_millis(100);
/// Whether all of the table is held in memory, or what it was asked for, or nothing.
const CACHE: &str = "lookup.cache";
const MAX_ROWS: &str = "lookup.cache.max-rows";
const MAX_ROWS_DEFAULT: usize = 10_000;
const TTL: &str = "lookup.cache.ttl";
const TTL_DEFAULT: Duration = Duration::from_secs(60);
/// For so long a table that is asked may be away.
const RETRY_TIMEOUT: &str = "lookup.retry.timeout";
const RETRY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);
const RETRY_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// How rows are looked up in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It is read as a whole, and again so often.
    Whole { refresh: Option<Duration> },
    /// It is asked for rows by their keys.
    ByKey { cache: Option<CacheBounds>, patience: Duration },
}

impl Way {
    /// That which the options of a table say.
    ///
    /// # Errors
    /// A value is none of its kind, or options contradict each other.
    pub(super) fn of(table: &TableDef) -> Result<Self> {
        match table.options.get(CACHE).map(String::as_str) {
            None | Some("full") => {
                for option in [MAX_ROWS, TTL, RETRY_TIMEOUT] {
                    refuse_beside(table, option, "is of a table that is asked by key; add 'lookup.cache' = 'partial'")?;
                }
                Ok(Self::Whole { refresh: refresh(table)? })
            }
            Some("partial") => {
                refuse_beside(
                    table,
                    REFRESH,
                    &format!(
                        "reads the whole table anew, of which a partial cache has none; say with '{TTL}' for how long an answer is used"
                    ),
                )?;
                let ttl = length(table, TTL)?.unwrap_or(TTL_DEFAULT);
                if ttl.is_zero() {
                    return Err(wrong(table, TTL, "a time above 0; 'lookup.cache' = 'none' keeps no answer", "0"));
                }
                let cache = Some(CacheBounds { max_rows: max_rows(table)?, ttl });
                Ok(Self::ByKey { cache, patience: patience(table)? })
            }
            Some("none") => {
                for option in [MAX_ROWS, TTL, REFRESH] {
                    refuse_beside(
                        table,
                        option,
                        "says nothing where no answer is kept; use 'lookup.cache' = 'partial'",
                    )?;
                }
                Ok(Self::ByKey { cache: None, patience: patience(table)? })
            }
            Some(other) => {
                Err(wrong(table, CACHE, "'full' (the table is read as a whole), 'partial' or 'none'", other))
            }
        }
    }
}

/// How a table is asked, if these are its columns that must equal those of the stream.
///
/// # Errors
/// One is no column of the table, as it is there.
pub(super) fn by_key<'k>(
    table: &TableDef,
    keys: impl Iterator<Item = &'k Expr>,
    cache: Option<CacheBounds>,
    patience: Duration,
) -> Result<ByKey> {
    let physical = table.physical_schema();
    let column = |key: &Expr| {
        let path = field_path(key).filter(|path| path.0.len() == 1);
        let column = path.and_then(|mut path| path.0.pop()).filter(|name| physical.index_of(name).is_ok());
        column.ok_or_else(|| {
            StreamError::invalid(format!(
                "table {} is asked by key ('{CACHE}'), so that its columns must be compared as they are; expected a column, got an expression of columns; compute \
                 on the stream's side, such as with CAST where the types differ, or declare the table's column otherwise",
                table.name
            ))
        })
    };
    Ok(ByKey { columns: keys.map(column).collect::<Result<_>>()?, cache, patience })
}

fn refresh(table: &TableDef) -> Result<Option<Duration>> {
    match length(table, REFRESH)? {
        Some(every) if every < REFRESH_MIN => {
            Err(wrong(table, REFRESH, &format!("at least {REFRESH_MIN:?}"), &format!("{every:?}")))
        }
        every => Ok(every),
    }
}

fn max_rows(table: &TableDef) -> Result<usize> {
    let Some(text) = table.options.get(MAX_ROWS) else { return Ok(MAX_ROWS_DEFAULT) };
    let rows = text.trim().parse().ok().filter(|rows| (1..=u32::MAX as usize).contains(rows));
    rows.ok_or_else(|| wrong(table, MAX_ROWS, &format!("a whole number from 1 to {}", u32::MAX), text))
}

fn patience(table: &TableDef) -> Result<Duration> {
    let patience = length(table, RETRY_TIMEOUT)?.unwrap_or(RETRY_TIMEOUT_DEFAULT);
    if patience > RETRY_TIMEOUT_MAX {
        return Err(wrong(table, RETRY_TIMEOUT, "a time up to 24 h", &format!("{patience:?}")));
    }
    Ok(patience)
}

fn refuse_beside(table: &TableDef, option: &str, why: &str) -> Result<()> {
    if table.options.contains_key(option) {
        return Err(StreamError::invalid(format!("'{option}' of table {} {why}", table.name)));
    }
    Ok(())
}

fn wrong(table: &TableDef, option: &str, expected: &str, got: &str) -> StreamError {
    StreamError::invalid(format!("'{option}' of table {}: expected {expected}, got {got}", table.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(options: &[(&str, &str)]) -> Result<Way, String> {
        let table = TableDef {
            name: "t".into(),
            columns: Vec::new(),
            watermark: None,
            partitioned_by: Vec::new(),
            primary_key: Vec::new(),
            options: options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            statement: String::new(),
        };
        Way::of(&table).map_err(|error| error.to_string())
    }

    #[test]
    fn a_table_is_read_as_a_whole_unless_it_says_otherwise() {
        assert_eq!(way(&[]), Ok(Way::Whole { refresh: None }));
        assert_eq!(way(&[("lookup.cache", "full")]), way(&[]));
        let refresh = Some(Duration::from_secs(1));
        assert_eq!(way(&[("lookup.refresh", "1s")]), Ok(Way::Whole { refresh }));
        let patience = RETRY_TIMEOUT_DEFAULT;
        let cache = Some(CacheBounds { max_rows: 10_000, ttl: Duration::from_secs(60) });
        assert_eq!(way(&[("lookup.cache", "partial")]), Ok(Way::ByKey { cache, patience }));
        let given = [("lookup.cache", "partial"), (MAX_ROWS, "7"), (TTL, "250ms"), (RETRY_TIMEOUT, "2s")];
        let cache = Some(CacheBounds { max_rows: 7, ttl: Duration::from_millis(250) });
        assert_eq!(way(&given), Ok(Way::ByKey { cache, patience: Duration::from_secs(2) }));
        assert_eq!(way(&[("lookup.cache", "none")]), Ok(Way::ByKey { cache: None, patience }));
    }

    #[test]
    fn options_that_do_not_go_together_are_refused_by_name() {
        for (options, told) in [
            (&[("lookup.cache", "some")] as &[(&str, &str)], "'lookup.cache' of table t: expected 'full'"),
            (&[(TTL, "1s")], "'lookup.cache.ttl' of table t is of a table that is asked by key"),
            (&[("lookup.cache", "full"), (MAX_ROWS, "1")], "'lookup.cache.max-rows' of table t is of a table"),
            (&[(RETRY_TIMEOUT, "1s")], "'lookup.retry.timeout' of table t is of a table that is asked by key"),
            (&[("lookup.cache", "partial"), (REFRESH, "1s")], "'lookup.refresh' of table t reads the whole table anew"),
            (&[("lookup.cache", "none"), (TTL, "1s")], "'lookup.cache.ttl' of table t says nothing"),
            (&[("lookup.cache", "none"), (REFRESH, "1s")], "'lookup.refresh' of table t says nothing"),
            (&[("lookup.cache", "partial"), (TTL, "0s")], "expected a time above 0"),
            (&[("lookup.cache", "partial"), (TTL, "soon")], "expected a length of time"),
            (&[("lookup.cache", "partial"), (MAX_ROWS, "0")], "expected a whole number from 1"),
            (&[("lookup.cache", "none"), (RETRY_TIMEOUT, "25h")], "expected a time up to 24 h"),
            (&[(REFRESH, "99ms")], "'lookup.refresh' of table t: expected at least 100ms, got 99ms"),
        ] {
            let error = way(options).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }
}
