//! Columns of events, each computed alone.
//!
//! The values follow the public generator (Apache Beam's, and the one for Flink): identifiers are derived from the
//! number of the event, hot sellers, bidders and auctions are the first (second, for bidders) of each hundred, prices are
//! spread evenly over the logarithm from 1 to 1,000,000 (in cents). Beam's bidders are used: the one for Flink adds the
//! first person's id twice, so that its bidders are not its people.

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::array::{StringViewArray, StructArray, TimestampMillisecondArray, new_null_array};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Fields, SchemaRef};
use std::sync::Arc;

use savanna_streams_api::{Result, StreamError};

use super::config::Config;
use super::schema::{EventKind, Leaf};
use super::selection::Selection;
use super::text::{List, Pool, Texts, view_len};
use crate::random::{Divisor, Draws, below};

const FIRST_AUCTION_ID: i64 = 1_000;
const FIRST_PERSON_ID: i64 = 1_000;
const FIRST_CATEGORY_ID: i64 = 10;
const CATEGORIES: u32 = 5;
/// Bids may go to auctions, and be made by people, that come a little later.
const ID_LEAD: i64 = 10;
/// One of so many people or auctions in a row is hot.
const HOT_RATIO: i64 = 100;

/// What a query reads of the events.
#[derive(Clone, Debug)]
pub(crate) struct Projection {
    schema: SchemaRef,
    columns: Vec<Column>,
}

#[derive(Clone, Debug)]
enum Column {
    EventType,
    Event { kind: EventKind, fields: Fields, leaves: Vec<Leaf> },
}

impl Projection {
    /// The columns of `schema`, which are some of the generator's.
    pub(crate) fn new(schema: SchemaRef) -> Result<Self> {
        let column = |field: &Arc<arrow::datatypes::Field>| {
            let kind = EventKind::ALL.into_iter().find(|k| k.column() == field.name());
            match (kind, field.data_type()) {
                (None, DataType::Int32) if field.name() == "event_type" => Some(Column::EventType),
                (Some(kind), DataType::Struct(fields)) => {
                    let leaves = fields.iter().map(|f| kind.leaf(f.name())).collect::<Option<_>>()?;
                    Some(Column::Event { kind, fields: fields.clone(), leaves })
                }
                _ => None,
            }
        };
        let columns = schema.fields().iter().map(|field| {
            column(field).ok_or_else(|| StreamError::Internal(format!("nexmark cannot make column {}", field.name())))
        });
        Ok(Self { columns: columns.collect::<Result<_>>()?, schema })
    }
}

/// Makes events.
#[derive(Debug)]
pub(crate) struct Generator {
    pub(crate) config: Config,
    texts: Texts,
    prices: Vec<f64>,
    by_total: Divisor,
}

/// The numbers of events of one kind, not further than [`super::timeline::Timeline::SPAN`] above `base`.
#[derive(Clone, Copy)]
struct Numbers<'a> {
    base: u64,
    numbers: &'a [u64],
}

/// Values of one field, one per event of its kind.
enum Values {
    Long(Vec<i64>),
    Time(Vec<i64>),
    /// Views into one of the generator's buffers.
    Shared(Vec<u128>, Pool),
    /// Views into texts made for these events.
    Own(Vec<u128>, Vec<u8>),
}

/// What an event's number says: its group of the proportions, its place in it.
#[derive(Clone, Copy)]
struct Place {
    group: i64,
    offset: i64,
}

impl Generator {
    /// A generator with these settings.
    pub(crate) fn new(config: Config) -> Self {
        let texts = Texts::new(config.seed);
        let by_total = Divisor::new(config.total_proportion);
        Self { config, texts, prices: price_table(), by_total }
    }

    /// The selected events, as the projection wants them.
    pub(crate) fn batch(&self, projection: &Projection, selection: &Selection) -> Result<RecordBatch> {
        let columns = projection.columns.iter().map(|column| match column {
            Column::EventType => event_types(selection),
            Column::Event { kind, fields, leaves } => self.events(*kind, fields, leaves, selection),
        });
        let options = RecordBatchOptions::new().with_row_count(Some(selection.rows));
        RecordBatch::try_new_with_options(Arc::clone(&projection.schema), columns.collect(), &options)
            .map_err(|e| StreamError::Internal(format!("nexmark made a wrong batch: {e}")))
    }

    fn events(&self, kind: EventKind, fields: &Fields, leaves: &[Leaf], selection: &Selection) -> ArrayRef {
        let numbers = Numbers { base: selection.base, numbers: &selection.numbers[kind as usize] };
        if numbers.numbers.is_empty() && selection.rows > 0 {
            return new_null_array(&DataType::Struct(fields.clone()), selection.rows);
        }
        let nulls = selection.nulls(kind);
        let arrays = leaves.iter().map(|&leaf| {
            let values = self.values(leaf, kind, numbers);
            self.array(values, kind, selection, nulls.clone())
        });
        Arc::new(StructArray::new(fields.clone(), arrays.collect(), nulls.clone()))
    }

    /// Fields are NULL wherever their event is, because not every reader of a field looks at the row around it.
    fn array(&self, values: Values, kind: EventKind, selection: &Selection, nulls: Option<NullBuffer>) -> ArrayRef {
        match values {
            Values::Long(values) => Arc::new(Int64Array::new(selection.scatter(kind, values).into(), nulls)),
            Values::Time(values) => {
                Arc::new(TimestampMillisecondArray::new(selection.scatter(kind, values).into(), nulls))
            }
            Values::Shared(views, pool) => {
                text_array(selection.scatter(kind, views), self.texts.buffer(pool).clone(), nulls)
            }
            Values::Own(views, bytes) => text_array(selection.scatter(kind, views), Buffer::from_vec(bytes), nulls),
        }
    }

    fn draws(&self, leaf: Leaf) -> Draws {
        Draws::new(self.config.seed, leaf as u64)
    }

    #[inline]
    fn place(&self, base_group: i64, base: u64, n: u64) -> Place {
        let rest = (n - base) as u32;
        let group = self.by_total.divide(rest);
        Place { group: base_group + i64::from(group), offset: i64::from(rest - group * self.config.total_proportion) }
    }

    fn values(&self, leaf: Leaf, kind: EventKind, numbers: Numbers<'_>) -> Values {
        match leaf {
            Leaf::DateTime => Values::Time(self.config.timeline.times_ms(numbers.base, numbers.numbers)),
            _ => match kind {
                EventKind::Person => self.person(leaf, numbers),
                EventKind::Auction => self.auction(leaf, numbers),
                EventKind::Bid => self.bid(leaf, numbers),
            },
        }
    }

    fn person(&self, leaf: Leaf, numbers: Numbers<'_>) -> Values {
        let draws = self.draws(leaf);
        let pick = |list| numbers.shared(Pool::Listed, |n| self.texts.pick(list, draws.pair(n).0));
        match leaf {
            Leaf::PersonId => self.longs(numbers, |_, place| self.last_person(place) + FIRST_PERSON_ID),
            Leaf::PersonName => pick(List::Names),
            Leaf::PersonCity => pick(List::Cities),
            Leaf::PersonState => pick(List::States),
            Leaf::PersonEmail => numbers.own(|n, bytes| {
                let (user, host) = self.email_parts(n);
                for part in [user, b"@".as_slice(), host, b".com".as_slice()] {
                    bytes.extend_from_slice(part);
                }
            }),
            Leaf::PersonCreditCard => numbers.own(|n, bytes| credit_card(draws.at(n), bytes)),
            _ => numbers.shared(Pool::Padding, |n| {
                let listed: u32 = [(Leaf::PersonName, List::Names), (Leaf::PersonCity, List::Cities)]
                    .map(|(leaf, list)| view_len(self.texts.pick(list, self.draws(leaf).pair(n).0)))
                    .iter()
                    .sum();
                let (user, host) = self.email_parts(n);
                let email = (user.len() + host.len() + "@.com".len()) as u32;
                let bytes = 8 + listed + email + CREDIT_CARD_LENGTH + STATE_LENGTH;
                self.texts.padding(bytes, self.config.person_bytes, draws.pair(n))
            }),
        }
    }

    fn email_parts(&self, n: u64) -> (&[u8], &[u8]) {
        let draws = self.draws(Leaf::PersonEmail);
        (self.texts.word_bytes(7, draws.pair(2 * n)), self.texts.word_bytes(5, draws.pair(2 * n + 1)))
    }

    fn auction(&self, leaf: Leaf, numbers: Numbers<'_>) -> Values {
        let draws = self.draws(leaf);
        let config = &self.config;
        match leaf {
            Leaf::AuctionId => self.longs(numbers, |_, place| self.last_auction(place) + FIRST_AUCTION_ID),
            Leaf::AuctionItemName => numbers.shared(Pool::Words, |n| self.texts.words(20, draws.pair(n))),
            Leaf::AuctionDescription => numbers.shared(Pool::Words, |n| self.texts.words(100, draws.pair(n))),
            Leaf::AuctionInitialBid => numbers.longs(|n| self.price(draws.at(n))),
            Leaf::AuctionReserve => {
                let initial = self.draws(Leaf::AuctionInitialBid);
                numbers.longs(|n| self.price(initial.at(n)) + self.price(draws.at(n)))
            }
            Leaf::AuctionExpires => {
                let ahead = u64::from(config.in_flight_auctions) * u64::from(config.total_proportion)
                    / u64::from(config.auction_proportion.max(1));
                Values::Time(numbers.map(|n| {
                    let time = config.timeline.time_ms(n);
                    let horizon = config.timeline.time_ms(n + ahead) - time;
                    let bound = u32::try_from((horizon * 2).max(1)).unwrap_or(u32::MAX);
                    time + 1 + i64::from(below(draws.pair(n).0, bound))
                }))
            }
            Leaf::AuctionSeller => self.longs(numbers, |n, place| {
                let (hot, which) = draws.pair(n);
                let seller = if below(hot, config.hot_sellers) > 0 {
                    self.last_person(place) / HOT_RATIO * HOT_RATIO
                } else {
                    self.any_person(place, which)
                };
                seller + FIRST_PERSON_ID
            }),
            Leaf::AuctionCategory => {
                numbers.longs(|n| FIRST_CATEGORY_ID + i64::from(below(draws.pair(n).0, CATEGORIES)))
            }
            _ => {
                let (names, descriptions) = (self.draws(Leaf::AuctionItemName), self.draws(Leaf::AuctionDescription));
                numbers.shared(Pool::Padding, |n| {
                    let name = self.texts.word_bytes(20, names.pair(n)).len();
                    let description = self.texts.word_bytes(100, descriptions.pair(n)).len();
                    let bytes = 6 * 8 + (name + description) as u32;
                    self.texts.padding(bytes, config.auction_bytes, draws.pair(n))
                })
            }
        }
    }

    fn bid(&self, leaf: Leaf, numbers: Numbers<'_>) -> Values {
        let draws = self.draws(leaf);
        let config = &self.config;
        match leaf {
            Leaf::BidAuction => self.longs(numbers, |n, place| {
                let (hot, which) = draws.pair(n);
                let last = self.last_auction(place);
                let first = (last - i64::from(config.in_flight_auctions)).max(0);
                let any = first + i64::from(below(which, (last - first + 1 + ID_LEAD) as u32));
                let hot_one = last / HOT_RATIO * HOT_RATIO;
                FIRST_AUCTION_ID + if below(hot, config.hot_auctions) > 0 { hot_one } else { any }
            }),
            Leaf::BidBidder => self.longs(numbers, |n, place| {
                let (hot, which) = draws.pair(n);
                let any = self.any_person(place, which);
                let hot_one = self.last_person(place) / HOT_RATIO * HOT_RATIO + 1;
                FIRST_PERSON_ID + if below(hot, config.hot_bidders) > 0 { hot_one } else { any }
            }),
            Leaf::BidPrice => numbers.longs(|n| self.price(draws.at(n))),
            Leaf::BidChannel => numbers.shared(Pool::Listed, |n| self.texts.channel(draws.pair(n))),
            Leaf::BidUrl => {
                let draws = self.draws(Leaf::BidChannel);
                numbers.shared(Pool::Urls, |n| self.texts.url(draws.pair(n)))
            }
            _ => numbers.shared(Pool::Padding, |n| self.texts.padding(4 * 8, config.bid_bytes, draws.pair(n))),
        }
    }

    /// The last person (from 0) that exists at a place; itself, if it is one.
    #[inline]
    fn last_person(&self, place: Place) -> i64 {
        let people = i64::from(self.config.person_proportion);
        place.group * people + place.offset.min(people - 1)
    }

    /// The last auction (from 0) that exists at a place; itself, if it is one.
    #[inline]
    fn last_auction(&self, place: Place) -> i64 {
        let people = i64::from(self.config.person_proportion);
        let auctions = i64::from(self.config.auction_proportion);
        // Before the group's first auction this is the last one of the group before: offset - people is negative there.
        place.group * auctions + (place.offset - people).max(-1).min(auctions - 1)
    }

    /// Any of the active people, or one of the next few.
    #[inline]
    fn any_person(&self, place: Place, bits: u32) -> i64 {
        let people = self.last_person(place) + 1;
        let active = people.min(i64::from(self.config.active_people));
        people - active + i64::from(below(bits, (active + ID_LEAD) as u32))
    }

    /// A price in cents: `100 * 10^(6 u)` with `u` evenly from 0 to 1, by linear interpolation between 4096 points
    /// (off by less than 2 in a million), so that it is the same on every machine.
    #[inline]
    fn price(&self, bits: u64) -> i64 {
        let at = (bits >> 52) as usize;
        let fraction = (bits << 12 >> 12) as f64 / (1_u64 << 52) as f64;
        let (low, high) = (self.prices[at], self.prices[at + 1]);
        (low + fraction * (high - low) + 0.5) as i64
    }

    fn longs(&self, numbers: Numbers<'_>, value: impl Fn(u64, Place) -> i64) -> Values {
        let base_group = (numbers.base / u64::from(self.config.total_proportion)) as i64;
        Values::Long(numbers.map(|n| value(n, self.place(base_group, numbers.base, n))))
    }
}

impl Numbers<'_> {
    #[inline]
    fn map<T>(self, value: impl Fn(u64) -> T) -> Vec<T> {
        self.numbers.iter().map(|&n| value(n)).collect()
    }

    #[inline]
    fn longs(self, value: impl Fn(u64) -> i64) -> Values {
        Values::Long(self.map(value))
    }

    #[inline]
    fn shared(self, pool: Pool, view: impl Fn(u64) -> u128) -> Values {
        Values::Shared(self.map(view), pool)
    }

    fn own(self, write: impl Fn(u64, &mut Vec<u8>)) -> Values {
        let mut bytes = Vec::with_capacity(self.numbers.len() * 20);
        let views = self.numbers.iter().map(|&n| {
            let at = bytes.len();
            write(n, &mut bytes);
            arrow::array::builder::make_view(&bytes[at..], 0, at as u32)
        });
        let views = views.collect();
        Values::Own(views, bytes)
    }
}

fn event_types(selection: &Selection) -> ArrayRef {
    let types: Vec<i32> = if selection.kinds.is_empty() {
        let kind = EventKind::ALL.into_iter().find(|k| !selection.numbers[*k as usize].is_empty());
        vec![kind.map_or(0, |k| k as i32); selection.rows]
    } else {
        selection.kinds.iter().map(|&kind| i32::from(kind)).collect()
    };
    Arc::new(Int32Array::new(types.into(), None))
}

fn text_array(views: Vec<u128>, buffer: Buffer, nulls: Option<NullBuffer>) -> ArrayRef {
    let (views, buffers) = (ScalarBuffer::from(views), vec![buffer]);
    // SAFETY: every view was made by `make_view` from the bytes that lie at its offset in this very buffer, or is 0, the
    // empty text; all bytes are ASCII, so every slice of them is UTF-8; `nulls` has as many bits as there are views.
    // Checking that again for each text would cost more than making it (`tests::views_are_valid` does).
    Arc::new(unsafe { StringViewArray::new_unchecked(views, buffers, nulls) })
}

const CREDIT_CARD_LENGTH: u32 = 19;
const STATE_LENGTH: u32 = 2;

/// Four groups of four digits.
fn credit_card(bits: u64, bytes: &mut Vec<u8>) {
    for group in 0..4 {
        if group > 0 {
            bytes.push(b' ');
        }
        let number = below((bits >> (16 * group)) as u32 & 0xffff, 10_000 << 16);
        bytes.extend([1_000, 100, 10, 1].map(|unit| b'0' + (number / unit % 10) as u8));
    }
}

/// `100 * 10^(6 i / 4096)` for `i` from 0 to 4096.
fn price_table() -> Vec<f64> {
    // 10^(6 / 4096); repeated multiplication is exact enough and, unlike `powf`, the same everywhere.
    const RATIO: f64 = 1.003_378_622_102_704_8;
    std::iter::successors(Some(100.0), |price| Some(price * RATIO)).take(4_097).collect()
}
