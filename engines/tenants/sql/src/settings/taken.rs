//! Settings of PostgreSQL that change nothing here but what they are shown as: how plans are chosen and how much memory they get, what is logged
//! and counted, how long PostgreSQL waits for itself. They are checked as PostgreSQL checks them, and refused with its words.

use savanna_tenants_values::error::{Result, SqlError, state};

use super::units::{Unit, number};

/// A setting.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) name: &'static str,
    /// What it is unless somebody sets it, as it is shown.
    pub(super) default: &'static str,
    pub(super) kind: Kind,
}

/// What values a setting has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Switch,
    /// A whole number between two.
    Whole(i32, i32, Unit),
    Real(f64, f64),
    /// One of these words.
    Word(&'static [&'static str]),
}

const fn switch(name: &'static str, on: bool) -> Taken {
    Taken { name, default: if on { "on" } else { "off" }, kind: Kind::Switch }
}

const fn whole(name: &'static str, default: &'static str, (min, max): (i32, i32), unit: Unit) -> Taken {
    Taken { name, default, kind: Kind::Whole(min, max, unit) }
}

const fn real(name: &'static str, default: &'static str, min: f64, max: f64) -> Taken {
    Taken { name, default, kind: Kind::Real(min, max) }
}

const fn word(name: &'static str, default: &'static str, words: &'static [&'static str]) -> Taken {
    Taken { name, default, kind: Kind::Word(words) }
}

/// Words of levels of messages.
const LEVELS: &[&str] =
    &["debug5", "debug4", "debug3", "debug2", "debug1", "info", "notice", "warning", "error", "log", "fatal", "panic"];

/// All of them, by their names.
const TAKEN: &[Taken] = &[
    switch("check_function_bodies", true),
    word("compute_query_id", "auto", &["auto", "regress", "on", "off"]),
    word("constraint_exclusion", "partition", &["partition", "on", "off"]),
    real("cpu_index_tuple_cost", "0.005", 0.0, f64::MAX),
    real("cpu_operator_cost", "0.0025", 0.0, f64::MAX),
    real("cpu_tuple_cost", "0.01", 0.0, f64::MAX),
    real("cursor_tuple_fraction", "0.1", 0.0, 1.0),
    switch("debug_pretty_print", true),
    switch("debug_print_parse", false),
    switch("debug_print_plan", false),
    switch("debug_print_rewritten", false),
    whole("default_statistics_target", "100", (1, 10_000), Unit::Nothing),
    word("default_toast_compression", "pglz", &["pglz", "lz4"]),
    whole("effective_cache_size", "4GB", (1, i32::MAX), Unit::Pages),
    whole("effective_io_concurrency", "1", (0, 1_000), Unit::Nothing),
    switch("enable_async_append", true),
    switch("enable_bitmapscan", true),
    switch("enable_gathermerge", true),
    switch("enable_hashagg", true),
    switch("enable_hashjoin", true),
    switch("enable_incremental_sort", true),
    switch("enable_indexonlyscan", true),
    switch("enable_indexscan", true),
    switch("enable_material", true),
    switch("enable_memoize", true),
    switch("enable_mergejoin", true),
    switch("enable_nestloop", true),
    switch("enable_parallel_append", true),
    switch("enable_parallel_hash", true),
    switch("enable_partition_pruning", true),
    switch("enable_partitionwise_aggregate", false),
    switch("enable_partitionwise_join", false),
    switch("enable_seqscan", true),
    switch("enable_sort", true),
    switch("enable_tidscan", true),
    word("force_parallel_mode", "off", &["off", "on", "regress"]),
    whole("from_collapse_limit", "8", (1, i32::MAX), Unit::Nothing),
    switch("geqo", true),
    whole("geqo_effort", "5", (1, 10), Unit::Nothing),
    whole("geqo_generations", "0", (0, i32::MAX), Unit::Nothing),
    whole("geqo_pool_size", "0", (0, i32::MAX), Unit::Nothing),
    real("geqo_seed", "0", 0.0, 1.0),
    real("geqo_selection_bias", "2", 1.5, 2.0),
    whole("geqo_threshold", "12", (2, i32::MAX), Unit::Nothing),
    whole("gin_fuzzy_search_limit", "0", (0, i32::MAX), Unit::Nothing),
    whole("gin_pending_list_limit", "4MB", (64, i32::MAX), Unit::Kilobytes),
    real("hash_mem_multiplier", "2", 1.0, 1_000.0),
    switch("jit", false),
    real("jit_above_cost", "100000", -1.0, f64::MAX),
    switch("jit_expressions", true),
    real("jit_inline_above_cost", "500000", -1.0, f64::MAX),
    real("jit_optimize_above_cost", "500000", -1.0, f64::MAX),
    switch("jit_tuple_deforming", true),
    whole("join_collapse_limit", "8", (1, i32::MAX), Unit::Nothing),
    switch("log_duration", false),
    word("log_error_verbosity", "default", &["terse", "default", "verbose"]),
    switch("log_executor_stats", false),
    switch("log_lock_waits", false),
    whole("log_min_duration_sample", "-1", (-1, i32::MAX), Unit::Milliseconds),
    whole("log_min_duration_statement", "-1", (-1, i32::MAX), Unit::Milliseconds),
    word("log_min_error_statement", "error", LEVELS),
    word("log_min_messages", "warning", LEVELS),
    switch("log_parser_stats", false),
    switch("log_planner_stats", false),
    word("log_statement", "none", &["none", "ddl", "mod", "all"]),
    switch("log_statement_stats", false),
    whole("log_temp_files", "-1", (-1, i32::MAX), Unit::Kilobytes),
    whole("logical_decoding_work_mem", "64MB", (64, i32::MAX), Unit::Kilobytes),
    whole("maintenance_io_concurrency", "10", (0, 1_000), Unit::Nothing),
    whole("maintenance_work_mem", "64MB", (1_024, i32::MAX), Unit::Kilobytes),
    whole("max_parallel_maintenance_workers", "2", (0, 1_024), Unit::Nothing),
    whole("max_parallel_workers", "8", (0, 1_024), Unit::Nothing),
    whole("max_parallel_workers_per_gather", "2", (0, 1_024), Unit::Nothing),
    whole("min_parallel_index_scan_size", "512kB", (0, 715_827_882), Unit::Pages),
    whole("min_parallel_table_scan_size", "8MB", (0, 715_827_882), Unit::Pages),
    switch("parallel_leader_participation", true),
    real("parallel_setup_cost", "1000", 0.0, f64::MAX),
    real("parallel_tuple_cost", "0.1", 0.0, f64::MAX),
    word("plan_cache_mode", "auto", &["auto", "force_generic_plan", "force_custom_plan"]),
    real("random_page_cost", "4", 0.0, f64::MAX),
    real("recursive_worktable_factor", "10", 0.001, 1e6),
    // There are no policies that it could be about.
    switch("row_security", true),
    real("seq_page_cost", "1", 0.0, f64::MAX),
    word("stats_fetch_consistency", "cache", &["none", "cache", "snapshot"]),
    switch("synchronize_seqscans", true),
    // Every commit is on the disk before it is told, so that all of these are kept.
    word("synchronous_commit", "on", &["local", "remote_write", "remote_apply", "on", "off"]),
    whole("temp_buffers", "8MB", (100, 1_073_741_823), Unit::Pages),
    switch("trace_notify", false),
    switch("trace_sort", false),
    switch("track_activities", true),
    switch("track_counts", true),
    word("track_functions", "none", &["none", "pl", "all"]),
    switch("track_io_timing", false),
    switch("track_wal_io_timing", false),
    switch("update_process_title", true),
    real("vacuum_cost_delay", "0", 0.0, 100.0),
    whole("vacuum_cost_limit", "200", (1, 10_000), Unit::Nothing),
    whole("vacuum_freeze_min_age", "50000000", (0, 1_000_000_000), Unit::Nothing),
    whole("vacuum_freeze_table_age", "150000000", (0, 2_000_000_000), Unit::Nothing),
    switch("wal_init_zero", true),
    switch("wal_recycle", true),
    whole("work_mem", "4MB", (64, i32::MAX), Unit::Kilobytes),
    word("xmlbinary", "base64", &["base64", "hex"]),
    word("xmloption", "content", &["content", "document"]),
];

/// The setting of a name.
pub(super) fn taken(name: &str) -> Option<&'static Taken> {
    TAKEN.iter().find(|taken| taken.name == name)
}

/// All names.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TAKEN.iter().map(|taken| taken.name)
}

impl Taken {
    /// A value as it is shown.
    ///
    /// # Errors
    /// 22023.
    pub(super) fn shown(&self, value: &str) -> Result<String> {
        let name = self.name;
        let wrong = || invalid(name, value);
        match self.kind {
            Kind::Switch => Ok(if super::switch(name, value)? { "on" } else { "off" }.to_owned()),
            Kind::Word(words) => {
                let known = |known: &str| words.iter().find(|word| word.eq_ignore_ascii_case(known)).copied();
                // Of settings that may be on or off, or something else.
                let switched = words.contains(&"on").then(|| super::switched(value)).flatten();
                let found = known(value).or_else(|| known(if switched? { "on" } else { "off" }));
                let hint = || wrong().hint(format!("Available values: {}.", words.join(", ")));
                found.map(ToOwned::to_owned).ok_or_else(hint)
            }
            Kind::Whole(min, max, unit) => {
                let whole = number(name, value, unit)?.round_ties_even();
                if !(f64::from(min)..=f64::from(max)).contains(&whole) {
                    return Err(outside(name, &unit.beside(whole), &min.to_string(), &max.to_string()));
                }
                Ok(unit.shown(whole as i64))
            }
            Kind::Real(min, max) => {
                let real: f64 = value.trim().parse().map_err(|_| wrong())?;
                if !(min..=max).contains(&real) {
                    let shown =
                        |bound: f64| if bound == f64::MAX { "1.79769e+308".to_owned() } else { bound.to_string() };
                    return Err(outside(name, &real.to_string(), &shown(min), &shown(max)));
                }
                Ok(real.to_string())
            }
        }
    }
}

/// A setting has no such value.
pub(super) fn invalid(name: &str, value: &str) -> SqlError {
    let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
}

/// A number is too small or too large.
pub(super) fn outside(name: &str, value: &str, min: &str, max: &str) -> SqlError {
    let message = format!("{value} is outside the valid range for parameter \"{name}\" ({min} .. {max})");
    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_shown_as_they_would_be_if_somebody_set_them() {
        for taken in TAKEN {
            assert_eq!(taken.shown(taken.default).as_deref(), Ok(taken.default), "{}", taken.name);
        }
        assert!(TAKEN.is_sorted_by_key(|taken| taken.name));
    }

    #[test]
    fn values_are_checked_as_in_postgresql() {
        let shown = |name: &str, value: &str| {
            let error =
                |error: SqlError| format!("{} {} {}", error.state, error.message, error.hint.unwrap_or_default());
            taken(name).unwrap().shown(value).unwrap_or_else(error)
        };
        for (name, value, expected) in [
            ("enable_sort", "OF", "off"),
            ("enable_sort", "1", "on"),
            ("enable_sort", "o", "22023 parameter \"enable_sort\" requires a Boolean value "),
            ("work_mem", "64", "64kB"),
            ("work_mem", "1.5 GB", "1536MB"),
            ("work_mem", "1", "22023 1 kB is outside the valid range for parameter \"work_mem\" (64 .. 2147483647) "),
            (
                "work_mem",
                "1x",
                "22023 invalid value for parameter \"work_mem\": \"1x\" \
                 Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\".",
            ),
            ("effective_cache_size", "1MB", "1MB"),
            ("log_min_duration_statement", "-1", "-1"),
            (
                "geqo_threshold",
                "1",
                "22023 1 is outside the valid range for parameter \"geqo_threshold\" (2 .. 2147483647) ",
            ),
            ("random_page_cost", "1.5", "1.5"),
            ("geqo_seed", "2", "22023 2 is outside the valid range for parameter \"geqo_seed\" (0 .. 1) "),
            ("xmloption", "DOCUMENT", "document"),
            (
                "xmloption",
                "x",
                "22023 invalid value for parameter \"xmloption\": \"x\" Available values: content, document.",
            ),
            ("synchronous_commit", "no", "off"),
        ] {
            assert_eq!(shown(name, value), expected, "{name} {value}");
        }
    }
}
