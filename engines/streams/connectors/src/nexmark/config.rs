//! What the generator is asked for.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use savanna_streams_api::Result;
use savanna_streams_model::time::parse_duration;

use super::timeline::Timeline;
use crate::options::{Kind, OptionSpec, Options, Presence, instant_ms};

/// The name in `'connector' = '..'`.
pub(crate) const NAME: &str = "nexmark";

const fn option(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, kind, presence: Presence::Default(default), help }
}

const fn count(min: i64) -> Kind {
    Kind::Integer { min, max: 1_000_000 }
}

const RATE: Kind = Kind::Integer { min: 1, max: Timeline::RATE_MAX as i64 };

/// Beyond this many events, event times would leave 64 bits of microseconds.
const EVENTS_MAX: i64 = 1_000_000_000_000_000;

/// The options, with the names and defaults of the public generator where it has them.
pub(crate) const OPTIONS: &[OptionSpec] = &[
    option("events.num", Kind::Integer { min: 0, max: EVENTS_MAX }, "0", "How many events; 0 never ends."),
    option("seed", Kind::Integer { min: 0, max: i64::MAX }, "1", "Another seed gives other events."),
    option("first-event.rate", RATE, "10000", "Events per second of event time."),
    OptionSpec {
        name: "next-event.rate",
        kind: RATE,
        presence: Presence::Optional,
        help: "A second rate that takes turns with the first; the first if not given.",
    },
    option("rate.shape", Kind::Choice(&["square", "sine", "SQUARE", "SINE"]), "square", "How two rates take turns."),
    option("rate.period", Kind::Duration, "600s", "After how long two rates have taken their turns."),
    OptionSpec {
        name: "rate-limited",
        kind: Kind::Boolean,
        presence: Presence::Optional,
        help: "Whether events come when they happen, in real time. By default 'true' without end, 'false' with one.",
    },
    OptionSpec {
        name: "rate.limited",
        kind: Kind::Boolean,
        presence: Presence::Optional,
        help: "The same as 'rate-limited', under the public generator's name.",
    },
    OptionSpec {
        name: "max-emit-speed",
        kind: Kind::Boolean,
        presence: Presence::Optional,
        help: "The opposite of 'rate-limited', under the public generator's name.",
    },
    option("base-time", Kind::Instant, "2015-07-15T00:00:00Z", "Event time of the first event."),
    option("keep-alive", Kind::Boolean, "false", "Whether the source stays open, silent, after its last event."),
    option("stop-at", Kind::Integer { min: -1, max: EVENTS_MAX }, "-1", "End before this event already; -1 does not."),
    option("person.proportion", count(0), "1", "People in each group of events."),
    option("auction.proportion", count(0), "3", "Auctions in each group of events."),
    option("bid.proportion", count(0), "46", "Bids in each group of events."),
    option("person.avg-size", Kind::Size, "200b", "Average size of a person."),
    option("auction.avg-size", Kind::Size, "500b", "Average size of an auction."),
    option("bid.avg-size", Kind::Size, "100b", "Average size of a bid."),
    option("bid.hot-ratio.auctions", count(1), "2", "One in this many bids does not go to the hot auction."),
    option("bid.hot-ratio.bidders", count(1), "4", "One in this many bids does not come from the hot bidder."),
    option("auction.hot-ratio.sellers", count(1), "4", "One in this many auctions does not come from the hot seller."),
    option("auctions.in-flight", count(1), "100", "How many of the latest auctions get bids."),
    option("people.active", count(1), "1000", "How many of the latest people sell and bid."),
    option(
        "out-of-order.group-size",
        Kind::Integer { min: 1, max: 100_000 },
        "1",
        "Events are shuffled within groups of this size; 1 keeps the order.",
    ),
];

/// The largest padding, so that one batch stays far below what a text column can address.
const SIZE_MAX: u32 = 32 << 10;

/// Everything that decides what events there are.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) seed: u64,
    /// How many events there are, if they end.
    pub(crate) events: Option<u64>,
    /// Whether to stay open after the last event.
    pub(crate) keep_alive: bool,
    /// Whether events come in real time.
    pub(crate) paced: bool,
    pub(crate) timeline: Timeline,
    /// How many events in a row belong to one partition.
    pub(crate) block: u64,
    pub(crate) person_proportion: u32,
    pub(crate) auction_proportion: u32,
    /// Of people, auctions and bids together.
    pub(crate) total_proportion: u32,
    pub(crate) person_bytes: u32,
    pub(crate) auction_bytes: u32,
    pub(crate) bid_bytes: u32,
    pub(crate) hot_auctions: u32,
    pub(crate) hot_bidders: u32,
    pub(crate) hot_sellers: u32,
    pub(crate) in_flight_auctions: u32,
    pub(crate) active_people: u32,
    /// Size of the groups within which events are out of order.
    pub(crate) disorder: u64,
}

impl Config {
    /// Reads the options of a table.
    pub(crate) fn new(given: &BTreeMap<String, String>) -> Result<Self> {
        let options = Options::check(NAME, OPTIONS, given)?;
        let [person, auction, bid] =
            ["person.proportion", "auction.proportion", "bid.proportion"].map(|name| options.integer::<u32>(name));
        let (person, auction, bid) = (person?, auction?, bid?);
        if person + auction + bid == 0 {
            return Err(options.error("bid.proportion", "at least one proportion above 0"));
        }
        let size = |name| match options.bytes(name)? {
            bytes if bytes <= SIZE_MAX => Ok(bytes),
            _ => Err(options.error(name, "at most 32KiB")),
        };
        let disorder: u64 = options.integer("out-of-order.group-size")?;
        if disorder > 1 && disorder.is_multiple_of(DISORDER_STEP) {
            return Err(options.error("out-of-order.group-size", "a number that 953 does not divide"));
        }
        let stop_at: i64 = options.integer("stop-at")?;
        let events = match (options.integer::<u64>("events.num")?, u64::try_from(stop_at).ok()) {
            (0, stop) => stop,
            (events, stop) => Some(stop.map_or(events, |stop| stop.min(events))),
        };
        let first_rate: u32 = options.integer("first-event.rate")?;
        Ok(Self {
            seed: options.integer("seed")?,
            events,
            keep_alive: options.boolean("keep-alive")?,
            paced: paced(&options)?.unwrap_or_else(|| events.is_none()),
            timeline: timeline(&options, first_rate)?,
            // A tenth of a second, so that partitions progress evenly in event time, but not too small to be fast.
            block: u64::from(first_rate / 10).clamp(64, 8_192).next_multiple_of(disorder),
            person_proportion: person,
            auction_proportion: auction,
            total_proportion: person + auction + bid,
            person_bytes: size("person.avg-size")?,
            auction_bytes: size("auction.avg-size")?,
            bid_bytes: size("bid.avg-size")?,
            hot_auctions: options.integer("bid.hot-ratio.auctions")?,
            hot_bidders: options.integer("bid.hot-ratio.bidders")?,
            hot_sellers: options.integer("auction.hot-ratio.sellers")?,
            in_flight_auctions: options.integer("auctions.in-flight")?,
            active_people: options.integer("people.active")?,
            disorder,
        })
    }

    /// The number of the event at place `position` of the stream: the same, unless events are out of order.
    pub(crate) const fn number_at(&self, position: u64) -> u64 {
        if self.disorder == 1 {
            return position;
        }
        let base = position - position % self.disorder;
        base + (position * DISORDER_STEP) % self.disorder
    }
}

/// The stride through a group that is out of order; coprime to the group's size, so that each event comes once.
const DISORDER_STEP: u64 = 953;

/// Replaces `'base-time' = 'now'` by the present instant, so that a table means the same whenever it is read.
pub(crate) fn fix_base_time(given: &mut BTreeMap<String, String>) {
    if let Some(base) = given.get_mut("base-time")
        && base == "now"
    {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        *base = since_1970.as_millis().to_string();
    }
}

fn paced(options: &Options<'_>) -> Result<Option<bool>> {
    let limited = options.find("rate-limited", crate::options::truth)?;
    let public = options.find("rate.limited", crate::options::truth)?;
    let full_speed = options.find("max-emit-speed", crate::options::truth)?;
    Ok(limited.or(public).or_else(|| full_speed.map(|full| !full)))
}

fn timeline(options: &Options<'_>, first: u32) -> Result<Timeline> {
    let base_ms = options.get("base-time", instant_ms)?;
    let next: u32 = match options.text("next-event.rate") {
        Some(_) => options.integer("next-event.rate")?,
        None => first,
    };
    let rates = if next == first {
        vec![first]
    } else if options.text("rate.shape").is_some_and(|shape| shape.eq_ignore_ascii_case("sine")) {
        sine(first, next)
    } else {
        vec![first, next]
    };
    let period = options.get("rate.period", parse_duration)?.as_secs();
    if period > 1_000_000 {
        return Err(options.error("rate.period", "at most 1000000s"));
    }
    Ok(Timeline::new(base_ms, &rates, period.div_ceil(rates.len() as u64).max(1)))
}

/// One period of a sine from `first` to `next` and back in ten steps.
fn sine(first: u32, next: u32) -> Vec<u32> {
    // cos(2 pi i / 10) for i = 0..10, written out so that it is the same on every machine.
    const COSINE: [f64; 10] = [
        1.0,
        0.809_016_994_374_947_5,
        0.309_016_994_374_947_45,
        -0.309_016_994_374_947_45,
        -0.809_016_994_374_947_5,
        -1.0,
        -0.809_016_994_374_947_5,
        -0.309_016_994_374_947_45,
        0.309_016_994_374_947_45,
        0.809_016_994_374_947_5,
    ];
    let (first, next) = (f64::from(first), f64::from(next));
    let (middle, swing) = (f64::midpoint(first, next), (first - next) / 2.0);
    COSINE.iter().map(|cosine| ((middle + swing * cosine).round() as u32).max(1)).collect()
}
