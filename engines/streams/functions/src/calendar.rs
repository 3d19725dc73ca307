//! The proleptic Gregorian calendar, in UTC, where every day has 86,400 seconds.

/// Microseconds of a second.
pub(super) const SECOND: i64 = 1_000_000;
/// Microseconds of a day.
pub(super) const DAY: i64 = 86_400 * SECOND;

/// A day of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    pub(super) year: i64,
    /// 1 to 12.
    pub(super) month: i64,
    /// 1 to 31.
    pub(super) day: i64,
}

impl Date {
    /// The date of a day counted from 1970-01-01. Eras of 400 years begin on 1 March, so that a leap day comes last.
    pub(super) fn of(days: i64) -> Self {
        let shifted = days.saturating_add(719_468);
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        Self { year: year_of_era + era * 400 + i64::from(month <= 2), month, day }
    }

    /// The day counted from 1970-01-01.
    pub(super) fn days(self) -> i64 {
        let year = self.year - i64::from(self.month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let month = (self.month + 9) % 12;
        let day_of_year = (153 * month + 2) / 5 + self.day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        era * 146_097 + day_of_era - 719_468
    }

    /// The first day of a month counted from year 0; months beyond 12 are of later years.
    pub(super) fn first_of_month(months: i64) -> Self {
        Self { year: months.div_euclid(12), month: months.rem_euclid(12) + 1, day: 1 }
    }

    /// Months since year 0.
    pub(super) fn months(self) -> i64 {
        self.year * 12 + self.month - 1
    }

    /// How many days the month has.
    pub(super) fn days_of_month(self) -> i64 {
        let leap = self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0);
        match self.month {
            4 | 6 | 9 | 11 => 30,
            2 => 28 + i64::from(leap),
            _ => 31,
        }
    }

    /// Whether such a day exists.
    pub(super) fn exists(self) -> bool {
        (1..=12).contains(&self.month) && (1..=self.days_of_month()).contains(&self.day)
    }
}

/// The weekday of a day counted from 1970-01-01; Monday is 0.
pub(super) fn weekday(days: i64) -> i64 {
    days.saturating_add(3).rem_euclid(7)
}

/// The year that a day's week belongs to: that of its Thursday (ISO 8601).
pub(super) fn iso_year(days: i64) -> i64 {
    Date::of(days - weekday(days) + 3).year
}

/// The number of a day's week in its [`iso_year`], from 1.
pub(super) fn iso_week(days: i64) -> i64 {
    let thursday = days - weekday(days) + 3;
    let first = Date { year: Date::of(thursday).year, month: 1, day: 1 };
    (thursday - first.days()) / 7 + 1
}

/// The number of a day in its year, from 1.
pub(super) fn day_of_year(days: i64) -> i64 {
    days - Date { year: Date::of(days).year, month: 1, day: 1 }.days() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_each_others_inverse() {
        for days in (-800_000..800_000).step_by(97).chain([0, 59, 60, -1, 11_016, 11_017]) {
            let date = Date::of(days);
            assert!(date.exists(), "{date:?}");
            assert_eq!(date.days(), days, "{date:?}");
        }
        assert_eq!(Date::of(11_016), Date { year: 2000, month: 2, day: 29 });
        assert!(!Date { year: 1900, month: 2, day: 29 }.exists());
        assert_eq!(Date::first_of_month(2015 * 12 + 12), Date { year: 2016, month: 1, day: 1 });
    }

    #[test]
    fn weeks_are_those_of_iso_8601() {
        let day = |year, month, day| Date { year, month, day }.days();
        assert_eq!(weekday(day(2015, 7, 15)), 2);
        assert_eq!((iso_year(day(2016, 1, 3)), iso_week(day(2016, 1, 3))), (2015, 53));
        assert_eq!((iso_year(day(2018, 12, 31)), iso_week(day(2018, 12, 31))), (2019, 1));
        assert_eq!(day_of_year(day(2016, 12, 31)), 366);
    }
}
