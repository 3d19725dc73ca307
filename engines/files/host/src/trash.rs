//! The trash of users: what they moved there goes when it has been there for long enough, as Hadoop's emptier does it.
//!
//! ```text
//! /user/NAME/.Trash/Current         where clients move what they delete
//!                   yyMMddHHmmss    what was there at that instant, as clocks of this machine show it
//! ```
//!
//! Each interval what is older than that is deleted, and what is in `Current` gets a name. Other names are left alone. Clients (`-expunge`) do the same with
//! the same names, so an instant is written in the time zone of the machine, as Java does.

use std::collections::VecDeque;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use chrono::{DateTime, Datelike as _, NaiveDate, NaiveDateTime, TimeDelta, TimeZone as _, Timelike as _};
use chrono_tz::Tz;
use savanna_files::ids::Millis;
use savanna_files::request::Status;
use savanna_files::{Class, Reply, Request};

use crate::files::{Answer, Asker, Files, Unanswered};

/// The directories of users.
const HOMES: &str = "/user";
/// Where clients move to.
const CURRENT: &str = "Current";
/// So long it goes on at once; others have their turn then.
const TURN: Duration = Duration::from_millis(100);
/// Names that are tried if others were made in the same second.
const ATTEMPTS: usize = 1_000;

/// Empties the trash of all users, some at a time.
#[derive(Debug)]
pub(crate) struct Emptier {
    /// How long something is kept, and how often it is looked.
    kept: u64,
    zone: Tz,
    /// When it is looked next.
    next: u64,
    /// What is left of a look that is under way.
    round: Option<Round>,
}

/// A look at all trashes.
#[derive(Debug)]
struct Round {
    now: u64,
    users: VecDeque<String>,
    /// Behind which user there may be more.
    more_after: Option<Vec<u8>>,
}

impl Emptier {
    /// One that keeps what is in the trash for so long; nothing if that is not for long at all.
    pub(crate) fn new(minutes: u32, now: Millis) -> Option<Self> {
        let kept = u64::from(minutes) * 60_000;
        (kept > 0).then(|| Self { kept, zone: zone_of_machine(), next: following(now.0, kept), round: None })
    }

    /// Does what is due, for a moment. What is left is done the next time.
    ///
    /// # Errors
    /// [`Unanswered::Gone`].
    pub(crate) fn turn(&mut self, files: &Files, now: Millis) -> Result<(), Unanswered> {
        if self.round.is_none() && now.0 >= self.next {
            self.next = following(now.0, self.kept);
            self.round = Some(Round { now: now.0, users: VecDeque::new(), more_after: Some(Vec::new()) });
        }
        let Some(mut round) = self.round.take() else { return Ok(()) };
        let begun = Instant::now();
        while begun.elapsed() < TURN {
            let done = match (round.users.pop_front(), round.more_after.take()) {
                (Some(user), more_after) => {
                    round.more_after = more_after;
                    self.empty(files, round.now, &format!("{HOMES}/{user}/.Trash"))
                }
                (None, Some(after)) => page(files, HOMES, after).map(|(entries, more_after)| {
                    let names = entries.into_iter().filter(|entry| entry.is_directory);
                    round.users.extend(names.filter_map(|entry| String::from_utf8(entry.name.into_vec()).ok()));
                    round.more_after = more_after;
                }),
                (None, None) => return Ok(()),
            };
            match done {
                Err(Unanswered::Gone) => return Err(Unanswered::Gone),
                // Others can be emptied all the same.
                Err(Unanswered::Refused(error)) => {
                    tracing::warn!(%error, "a trash of files could not be emptied; it is tried again after files.trash minutes");
                }
                Ok(()) => {}
            }
        }
        self.round = Some(round);
        Ok(())
    }

    /// Deletes what is old of a trash, and gives what is new in it a name.
    fn empty(&self, files: &Files, now: u64, trash: &str) -> Result<(), Unanswered> {
        let (mut after, mut has_current) = (Some(Vec::new()), false);
        while let Some(behind) = after.take() {
            let (entries, more_after) = page(files, trash, behind)?;
            after = more_after;
            for entry in entries {
                let Ok(name) = str::from_utf8(&entry.name) else { continue };
                has_current |= name == CURRENT;
                if self.instant(name).is_some_and(|at| at < now.saturating_sub(self.kept)) {
                    let path = format!("{trash}/{name}");
                    ask(files, &Request::Delete { path: path.clone(), is_recursive: true })?;
                    tracing::info!(path, "what was in the trash for long was deleted");
                }
            }
        }
        if has_current { self.keep(files, now, trash) } else { Ok(()) }
    }

    /// Gives what is in a trash now the name of an instant.
    fn keep(&self, files: &Files, now: u64, trash: &str) -> Result<(), Unanswered> {
        let name = self.name(now);
        let mut attempt = 0;
        loop {
            let suffix = if attempt == 0 { String::new() } else { format!("-{attempt}") };
            let (from, to) = (format!("{trash}/{CURRENT}"), format!("{trash}/{name}{suffix}"));
            match ask(files, &Request::Rename2 { from, to, overwrites: false }) {
                Err(Unanswered::Refused(error)) if error.class == Class::FileAlreadyExists && attempt < ATTEMPTS => {
                    attempt += 1;
                }
                done => return done.map(drop),
            }
        }
    }

    /// An instant as the name of a directory.
    fn name(&self, now: u64) -> String {
        let at = DateTime::from_timestamp_millis(now.cast_signed()).unwrap_or_default().with_timezone(&self.zone);
        let parts =
            [at.year().rem_euclid(100).unsigned_abs(), at.month(), at.day(), at.hour(), at.minute(), at.second()];
        parts.iter().map(|part| format!("{part:02}")).collect()
    }

    /// The instant of a name; nothing if it is none.
    fn instant(&self, name: &str) -> Option<u64> {
        let (digits, rest) = name.split_at_checked(12)?;
        let is_suffix = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
        if !digits.bytes().all(|byte| byte.is_ascii_digit())
            || !(rest.is_empty() || rest.strip_prefix('-').is_some_and(is_suffix))
        {
            return None;
        }
        let part = |at: usize| digits.get(at..at + 2)?.parse::<u32>().ok();
        let year = 2_000 + i32::try_from(part(0)?).ok()?;
        let date = NaiveDate::from_ymd_opt(year, part(2)?, part(4)?)?;
        let clock: NaiveDateTime = date.and_hms_opt(part(6)?, part(8)?, part(10)?)?;
        // The later one where clocks show it twice; where they never do, what they show an hour later.
        let at = self.zone.from_local_datetime(&clock).latest();
        let at = at.or_else(|| self.zone.from_local_datetime(&(clock + TimeDelta::hours(1))).latest())?;
        u64::try_from(at.timestamp_millis()).ok()
    }
}

/// The next instant that is a multiple of an interval.
const fn following(now: u64, interval: u64) -> u64 {
    (now / interval + 1) * interval
}

/// The time zone that programs on this machine show clocks in.
fn zone_of_machine() -> Tz {
    let place = std::env::var("TZ").ok().filter(|place| !place.is_empty()).or_else(|| {
        let link = std::fs::read_link("/etc/localtime").ok()?;
        Some(link.to_str()?.split_once("zoneinfo/")?.1.to_owned())
    });
    place.and_then(|place| place.trim_start_matches(':').parse().ok()).unwrap_or(Tz::UTC)
}

/// What is in a directory behind a name, and behind which there is more; nothing if there is no directory.
fn page(files: &Files, path: &str, after: Vec<u8>) -> Result<(Vec<Status>, Option<Vec<u8>>), Unanswered> {
    let request = Request::Listing { path: path.to_owned(), after, with_locations: false };
    let Reply::Listing(Some(listing)) = ask(files, &request)? else { return Ok((Vec::new(), None)) };
    let last = listing.entries.last().filter(|_| listing.remaining > 0);
    let more_after = last.map(|entry| entry.name.to_vec());
    Ok((listing.entries, more_after))
}

/// Does what the superuser may do. Blocks.
fn ask(files: &Files, request: &Request) -> Answer {
    let (sender, answer) = sync_channel(1);
    let asker = Asker { user: files.superuser(), machine: "", call: None };
    files.call(&asker, request, move |answer| drop(sender.send(answer)));
    // It is always answered.
    answer.recv().unwrap_or(Err(Unanswered::Gone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emptier(zone: Tz) -> Emptier {
        Emptier { kept: 60_000, zone, next: 0, round: None }
    }

    #[test]
    fn an_instant_is_a_name_and_back() {
        let now = 1_796_000_123_000;
        assert_eq!(emptier(Tz::UTC).name(now), "261130005523");
        assert_eq!(emptier(Tz::America__New_York).name(now), "261129195523");
        for zone in [Tz::UTC, Tz::America__New_York, Tz::Asia__Kolkata] {
            let emptier = emptier(zone);
            assert_eq!(emptier.instant(&emptier.name(now)), Some(now), "{zone}");
            assert_eq!(emptier.instant(&format!("{}-12", emptier.name(now))), Some(now), "{zone}");
        }
        for name in [
            "Current",
            "",
            "26113000552",
            "2611300055234",
            "261130005523-",
            "261130005523-x",
            "261330005523",
            "२६११३०००५५२३",
        ] {
            assert_eq!(emptier(Tz::UTC).instant(name), None, "{name}");
        }
    }

    #[test]
    fn what_clocks_show_twice_or_never_is_not_early() {
        let emptier = emptier(Tz::Europe__Berlin);
        // Clocks go from 03:00 to 02:00 at 01:00 UTC, and half a year before from 02:00 to 03:00.
        assert_eq!(emptier.instant("261025023000"), Some(1_792_891_800_000));
        assert_eq!(emptier.instant("260329023000"), emptier.instant("260329033000"));
    }

    #[test]
    fn it_is_looked_at_multiples_of_the_interval() {
        let emptier = Emptier::new(5, Millis(299_999)).unwrap();
        assert_eq!((emptier.next, following(300_000, 300_000)), (300_000, 600_000));
        assert!(Emptier::new(0, Millis(0)).is_none());
    }
}
