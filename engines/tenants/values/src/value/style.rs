//! How a session reads and shows dates, times and intervals: `DateStyle`, `IntervalStyle` and its time zone.

use super::zone::Zone;
use crate::error::{Result, SqlError, state};

/// How a session reads and shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Where its clocks are.
    pub zone: Zone,
    /// The order of the numbers of a date whose year does not come first.
    pub order: Order,
    /// How dates and timestamps are shown.
    pub dates: Dates,
    /// How intervals are shown.
    pub intervals: Intervals,
}

/// In which order the numbers of a date are read.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    MonthFirst,
    DayFirst,
    YearFirst,
}

/// How dates and timestamps are shown.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dates {
    #[default]
    Iso,
    Sql,
    Postgres,
    German,
}

/// How intervals are shown.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Intervals {
    #[default]
    Postgres,
    Verbose,
    Sql,
    Iso,
}

impl Style {
    /// What holds unless a session says otherwise.
    pub const PLAIN: Self =
        Self { zone: Zone::UTC, order: Order::MonthFirst, dates: Dates::Iso, intervals: Intervals::Postgres };

    /// The same clocks, with dates as ISO 8601 has them.
    #[must_use]
    pub const fn with_iso_dates(self) -> Self {
        Self { dates: Dates::Iso, ..self }
    }

    /// The same clocks, with texts read as those of definitions are, whoever reads them.
    #[must_use]
    pub const fn of_definitions(self) -> Self {
        Self { zone: self.zone, ..Self::PLAIN }
    }

    /// What `DateStyle` is.
    #[must_use]
    pub fn date_style(self) -> String {
        let dates = match self.dates {
            Dates::Iso => "ISO",
            Dates::Sql => "SQL",
            Dates::Postgres => "Postgres",
            Dates::German => "German",
        };
        let order = match self.order {
            Order::MonthFirst => "MDY",
            Order::DayFirst => "DMY",
            Order::YearFirst => "YMD",
        };
        format!("{dates}, {order}")
    }

    /// The same with what a value of `DateStyle` says, a list of words; `default` is what `DEFAULT` says.
    ///
    /// # Errors
    /// 22023 for words that say nothing, or of which one says something else than another.
    pub fn with_date_style(self, value: &str, default: Self) -> Result<Self> {
        let invalid = |detail: String| {
            let message = format!("invalid value for parameter \"DateStyle\": \"{value}\"");
            SqlError::new(state::INVALID_PARAMETER_VALUE, message).detail(detail)
        };
        if value.trim().is_empty() {
            return Ok(self);
        }
        let (mut dates, mut order) = (None, None);
        let mut implied = None;
        for word in value.split(',').map(|word| word.trim().trim_matches('"').to_ascii_lowercase()) {
            let said = match word.as_str() {
                "iso" => Said::Dates(Dates::Iso),
                "sql" => Said::Dates(Dates::Sql),
                word if word.starts_with("postgres") => Said::Dates(Dates::Postgres),
                word if word.starts_with("german") => Said::Dates(Dates::German),
                "ymd" => Said::Order(Order::YearFirst),
                word if word == "dmy" || word.starts_with("euro") => Said::Order(Order::DayFirst),
                word if matches!(word, "mdy" | "us") || word.starts_with("noneuro") => Said::Order(Order::MonthFirst),
                "default" => {
                    dates.get_or_insert(default.dates);
                    order.get_or_insert(default.order);
                    continue;
                }
                "" => return Err(invalid("List syntax is invalid.".to_owned())),
                word => return Err(invalid(format!("Unrecognized key word: \"{word}\"."))),
            };
            let agrees = match said {
                Said::Dates(said) => {
                    implied = (said == Dates::German).then_some(Order::DayFirst);
                    *dates.get_or_insert(said) == said
                }
                Said::Order(said) => *order.get_or_insert(said) == said,
            };
            if !agrees {
                return Err(invalid("Conflicting \"datestyle\" specifications.".to_owned()));
            }
        }
        let order = order.or(implied).unwrap_or(self.order);
        Ok(Self { dates: dates.unwrap_or(self.dates), order, ..self })
    }

    /// What `IntervalStyle` is.
    #[must_use]
    pub const fn interval_style(self) -> &'static str {
        match self.intervals {
            Intervals::Postgres => "postgres",
            Intervals::Verbose => "postgres_verbose",
            Intervals::Sql => "sql_standard",
            Intervals::Iso => "iso_8601",
        }
    }

    /// The same with a value of `IntervalStyle`.
    ///
    /// # Errors
    /// 22023 for one that there is not.
    pub fn with_interval_style(self, value: &str) -> Result<Self> {
        let all = [Intervals::Postgres, Intervals::Verbose, Intervals::Sql, Intervals::Iso];
        let mut styles = all.map(|intervals| Self { intervals, ..self }).into_iter();
        styles.find(|style| style.interval_style().eq_ignore_ascii_case(value)).ok_or_else(|| {
            let message = format!("invalid value for parameter \"IntervalStyle\": \"{value}\"");
            SqlError::new(state::INVALID_PARAMETER_VALUE, message)
                .hint("Available values: postgres, postgres_verbose, sql_standard, iso_8601.")
        })
    }
}

/// What a word of `DateStyle` says.
enum Said {
    Dates(Dates),
    Order(Order),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_date_styles_are_those_of_postgresql() {
        let german = Style { dates: Dates::German, order: Order::DayFirst, ..Style::PLAIN };
        let set = |value: &str| match german.with_date_style(value, Style::PLAIN) {
            Ok(style) => style.date_style(),
            Err(error) => error.state.to_owned(),
        };
        for (value, expected) in [
            ("iso", "ISO, DMY"),
            ("SQL, MDY", "SQL, MDY"),
            ("ymd", "German, YMD"),
            ("US", "German, MDY"),
            ("european", "German, DMY"),
            ("NonEuropean, Postgres", "Postgres, MDY"),
            ("postgresql", "Postgres, DMY"),
            ("german, ymd", "German, YMD"),
            ("default", "ISO, MDY"),
            ("sql, default", "SQL, MDY"),
            ("iso, iso", "ISO, DMY"),
            ("iso, sql", "22023"),
            ("ymd, dmy", "22023"),
            (" ", "German, DMY"),
            ("iso, ", "22023"),
            ("julian", "22023"),
        ] {
            assert_eq!(set(value), expected, "{value}");
        }
        assert_eq!(
            Style::PLAIN.with_date_style("german", Style::PLAIN).map(Style::date_style).as_deref(),
            Ok("German, DMY")
        );
    }

    #[test]
    fn interval_styles_are_named_whatever_their_case() {
        for name in ["postgres", "postgres_verbose", "sql_standard", "iso_8601"] {
            let set = Style::PLAIN.with_interval_style(&name.to_ascii_uppercase()).map(Style::interval_style);
            assert_eq!(set, Ok(name));
        }
        assert_eq!(Style::PLAIN.with_interval_style("iso").unwrap_err().state, "22023");
    }
}
