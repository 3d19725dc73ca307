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
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
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
/// So long it waits if nothing can be changed.
const PAUSE: Duration = Duration::from_secs(60);
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
    /// How long it goes on at once.
    pub(crate) limit: Duration,
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
    /// The one that is being emptied.
    trash: Option<Trash>,
    /// Nothing is done before.
    resume: Instant,
}

impl Round {
    const fn begin(now: u64, resume: Instant) -> Self {
        Self { now, users: VecDeque::new(), more_after: Some(Vec::new()), trash: None, resume }
    }
}

/// A trash, and how far it is emptied.
#[derive(Debug)]
struct Trash {
    path: String,
    /// Behind which name there may be more; nothing if all that is old was deleted.
    after: Option<Vec<u8>>,
    has_current: bool,
    /// Names that were taken already.
    attempt: usize,
    /// What is old, and is deleted next.
    due: VecDeque<String>,
    /// What is being deleted, which may take long: others are looked after meanwhile.
    under_way: Option<(String, Receiver<Answer>)>,
}

impl Trash {
    fn of(user: &str) -> Self {
        Self {
            path: format!("{HOMES}/{user}/.Trash"),
            after: Some(Vec::new()),
            has_current: false,
            attempt: 0,
            due: VecDeque::new(),
            under_way: None,
        }
    }
}

impl Emptier {
    /// One that keeps what is in the trash for so long; nothing if that is not for long at all.
    pub(crate) fn new(minutes: u32, now: Millis) -> Option<Self> {
        let kept = u64::from(minutes) * 60_000;
        let next = following(now.0, kept.max(1));
        (kept > 0).then(|| Self { kept, zone: zone_of_machine(), next, limit: TURN, round: None })
    }

    /// Does what is due, for a moment. What is left is done the next time, from there on.
    ///
    /// # Errors
    /// [`Unanswered::Gone`].
    pub(crate) fn turn(&mut self, files: &Files, now: Millis) -> Result<(), Unanswered> {
        let begun = Instant::now();
        if self.round.is_none() && now.0 >= self.next {
            self.next = following(now.0, self.kept);
            self.round = Some(Round::begin(now.0, begun));
        }
        let Some(mut round) = self.round.take() else { return Ok(()) };
        while begun >= round.resume {
            match self.step(files, &mut round, begun) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(Unanswered::Gone) => {
                    self.round = Some(round);
                    return Err(Unanswered::Gone);
                }
                // It would be the same for all.
                Err(Unanswered::Refused(error)) if matches!(error.class, Class::Retriable | Class::SafeMode) => {
                    tracing::warn!(%error, "a trash of files cannot be emptied now; it is tried again in {} s", PAUSE.as_secs());
                    round.resume = Instant::now() + PAUSE;
                }
                Err(Unanswered::Refused(error)) => {
                    tracing::warn!(%error, "a trash of files could not be emptied; it is tried again after files.trash minutes");
                    // Others can be emptied all the same.
                    if round.trash.take().is_none() {
                        round.more_after = None;
                    }
                }
            }
            if begun.elapsed() >= self.limit {
                break;
            }
        }
        self.round = Some(round);
        Ok(())
    }

    /// Waits no longer.
    #[cfg(test)]
    pub(crate) fn hurry(&mut self) {
        if let Some(round) = &mut self.round {
            round.resume = Instant::now();
        }
    }

    /// Does the next part of a look. Whether there may be more.
    fn step(&self, files: &Files, round: &mut Round, begun: Instant) -> Result<bool, Unanswered> {
        let now = round.now;
        if let Some(trash) = &mut round.trash {
            if self.empty(files, now, trash, begun)? {
                round.trash = None;
            }
        } else if let Some(user) = round.users.pop_front() {
            round.trash = Some(Trash::of(&user));
        } else if let Some(after) = &round.more_after {
            let (entries, more_after) = page(files, HOMES, after.clone())?;
            let names = entries.into_iter().filter(|entry| entry.is_directory);
            round.users.extend(names.filter_map(|entry| String::from_utf8(entry.name.into_vec()).ok()));
            round.more_after = more_after;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Deletes what is old of a trash, then gives what is new in it a name, for a moment. Whether that was all.
    fn empty(&self, files: &Files, now: u64, trash: &mut Trash, begun: Instant) -> Result<bool, Unanswered> {
        if let Some((name, answer)) = trash.under_way.take() {
            match answer.recv_timeout(self.limit.saturating_sub(begun.elapsed())) {
                Err(RecvTimeoutError::Timeout) => {
                    trash.under_way = Some((name, answer));
                    return Ok(false);
                }
                // It is always answered.
                Err(RecvTimeoutError::Disconnected) => return Err(Unanswered::Gone),
                // It may be what is in this trash, or above it; others can be emptied all the same.
                Ok(Err(Unanswered::Refused(error))) if error.class == Class::Retriable => {
                    tracing::warn!(path = trash.path, %error, "a trash of files could not be emptied; it is tried again after files.trash minutes");
                    return Ok(true);
                }
                Ok(Err(why)) => {
                    trash.due.push_front(name);
                    return Err(why);
                }
                Ok(Ok(_)) => {
                    tracing::info!(
                        path = format!("{}/{name}", trash.path),
                        "what was in the trash for long was deleted"
                    );
                }
            }
        }
        if let Some(name) = trash.due.pop_front() {
            let path = format!("{}/{name}", trash.path);
            trash.under_way = Some((name, begin(files, &Request::Delete { path, is_recursive: true })));
            return Ok(false);
        }
        let Some(after) = &trash.after else { return self.keep(files, now, trash) };
        let (entries, more_after) = page(files, &trash.path, after.clone())?;
        for name in entries.into_iter().filter_map(|entry| String::from_utf8(entry.name.into_vec()).ok()) {
            trash.has_current |= name == CURRENT;
            if self.instant(&name).is_some_and(|at| at < now.saturating_sub(self.kept)) {
                trash.due.push_back(name);
            }
        }
        trash.after = more_after;
        Ok(false)
    }

    /// Gives what is in a trash now the name of an instant, if the next name is free. Whether that was all.
    fn keep(&self, files: &Files, now: u64, trash: &mut Trash) -> Result<bool, Unanswered> {
        if !trash.has_current {
            return Ok(true);
        }
        let suffix = if trash.attempt == 0 { String::new() } else { format!("-{}", trash.attempt) };
        let (from, to) = (format!("{}/{CURRENT}", trash.path), format!("{}/{}{suffix}", trash.path, self.name(now)));
        match ask(files, &Request::Rename2 { from, to, overwrites: false }) {
            Err(Unanswered::Refused(error)) if error.class == Class::FileAlreadyExists && trash.attempt < ATTEMPTS => {
                trash.attempt += 1;
                Ok(false)
            }
            done => done.map(|_| true),
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
    // It is always answered.
    begin(files, request).recv().unwrap_or(Err(Unanswered::Gone))
}

/// Begins to do what the superuser may do.
fn begin(files: &Files, request: &Request) -> Receiver<Answer> {
    let (sender, answer) = sync_channel(1);
    let asker = Asker { user: files.superuser(), machine: "", call: None };
    files.call(&asker, request, move |answer| drop(sender.send(answer)));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emptier(zone: Tz) -> Emptier {
        Emptier { kept: 60_000, zone, next: 0, limit: TURN, round: None }
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
