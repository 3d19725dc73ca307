//! Places: members of sorted sets whose scores are geohashes.

use super::sorted_sets::{store, zadd};
use crate::error::{CommandError, Outcome};
use crate::geo::{Point, Shape};
use crate::keyspace::{Keyspace, Score, SortedSet};
use crate::number::{float, parse_float, parse_integer};
use crate::reply::Reply;
use crate::request::{Args, OwnedArgs};

/// `GEOADD key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]`
pub fn geoadd(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let is_option = |word: &&[u8]| [&b"nx"[..], b"xx", b"ch"].iter().any(|name| word.eq_ignore_ascii_case(name));
    let first = 2 + args.from(2).take_while(is_option).count();
    let is_named = |name: &[u8]| args.from(2).take(first - 2).any(|word| word.eq_ignore_ascii_case(name));
    if !(args.len() - first).is_multiple_of(3) || is_named(b"nx") && is_named(b"xx") {
        return Err(CommandError::Syntax);
    }
    let places = args.from(first).step_by(3).zip(args.from(first + 1).step_by(3));
    let scores = places
        .map(|(longitude, latitude)| Ok(parse_point(longitude, latitude)?.hash().to_string()))
        .collect::<Result<Vec<String>, CommandError>>()?;
    let mut words: Vec<&[u8]> = args.from(0).take(first).collect();
    for (score, member) in scores.iter().zip(args.from(first + 2).step_by(3)) {
        words.extend([score.as_bytes(), member]);
    }
    zadd(keys, OwnedArgs::of_words(&words).args(), reply)
}

fn parse_point(longitude: &[u8], latitude: &[u8]) -> Result<Point, CommandError> {
    let (longitude, latitude) = (parse_float(longitude)?, parse_float(latitude)?);
    Point::new(longitude, latitude)
        .ok_or_else(|| CommandError::from(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")))
}

/// How many meters a unit has.
fn parse_unit(name: &[u8]) -> Result<f64, CommandError> {
    match name.to_ascii_lowercase().as_slice() {
        b"m" => Ok(1.0),
        b"km" => Ok(1000.0),
        b"ft" => Ok(0.3048),
        b"mi" => Ok(1609.34),
        _ => Err(CommandError::text("ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

/// Where a member is.
fn place_of(set: &SortedSet, member: &[u8]) -> Option<Point> {
    set.score(member).map(point_of)
}

fn point_of(score: Score) -> Point {
    Point::of_hash(hash_of(score))
}

fn hash_of(score: Score) -> u64 {
    // One that is below 0 is that of the same 64 bits.
    let score = score.get();
    if score < 0.0 { score as i64 as u64 } else { score as u64 }
}

/// With four digits behind the point.
fn answer_distance(distance: f64, reply: &mut dyn Reply) {
    let parts = (distance * 10_000.0).round_ties_even() as u64;
    reply.bulk(format!("{}.{:04}", parts / 10_000, parts % 10_000).as_bytes());
}

fn answer_point(point: Point, reply: &mut dyn Reply) {
    reply.array(2);
    reply.fraction(point.longitude);
    reply.fraction(point.latitude);
}

/// `GEOPOS key [member ...]`
pub fn geopos(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let set = keys.collection::<SortedSet>(&args[1])?;
    reply.array(args.len() - 2);
    for member in args.from(2) {
        match set.and_then(|set| place_of(set, member)) {
            Some(point) => answer_point(point, reply),
            None => reply.null_array(),
        }
    }
    Ok(())
}

/// `GEOHASH key [member ...]`
pub fn geohash(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let set = keys.collection::<SortedSet>(&args[1])?;
    reply.array(args.len() - 2);
    for member in args.from(2) {
        let letters = set.and_then(|set| place_of(set, member)).map(Point::letters);
        reply.bulk_or_null(letters.as_ref().map(String::as_bytes));
    }
    Ok(())
}

/// `GEODIST key member1 member2 [M | KM | FT | MI]`
pub fn geodist(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let unit = match args.len() {
        4 => 1.0,
        5 => parse_unit(&args[4])?,
        _ => return Err(CommandError::Syntax),
    };
    let set = keys.collection::<SortedSet>(&args[1])?;
    match set.and_then(|set| place_of(set, &args[2]).zip(place_of(set, &args[3]))) {
        Some((one, other)) => answer_distance(one.distance(other) / unit, reply),
        None => reply.null(),
    }
    Ok(())
}

/// Where a search begins, as a request says it.
#[derive(Clone, Copy)]
enum Middle<'a> {
    At(Point),
    Member(&'a [u8]),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    None,
    Ascending,
    Descending,
}

/// What is sought, and what is told of it.
struct Search<'a> {
    middle: Option<Middle<'a>>,
    shape: Option<Shape>,
    /// Meters of the unit in which it was said.
    unit: f64,
    sort: Sort,
    count: Option<usize>,
    /// Whether any will do, and not only the nearest.
    takes_any: bool,
    with_distance: bool,
    with_hash: bool,
    with_place: bool,
    store: Option<&'a [u8]>,
    stores_distance: bool,
}

/// Which of the commands it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Search,
    SearchStore,
    Radius { may_store: bool },
}

/// A place that was found.
struct Found<'a> {
    member: &'a [u8],
    score: Score,
    point: Point,
    distance: f64,
}

impl<'a> Search<'a> {
    fn new() -> Self {
        Self {
            middle: None,
            shape: None,
            unit: 1.0,
            sort: Sort::None,
            count: None,
            takes_any: false,
            with_distance: false,
            with_hash: false,
            with_place: false,
            store: None,
            stores_distance: false,
        }
    }

    fn circle(&mut self, radius: &[u8], unit: &[u8]) -> Outcome {
        let radius = float(radius).ok_or(CommandError::text("ERR need numeric radius"))?;
        if radius < 0.0 {
            return Err(CommandError::text("ERR radius cannot be negative"));
        }
        self.unit = parse_unit(unit)?;
        self.shape = Some(Shape::Circle(radius * self.unit));
        Ok(())
    }

    fn rectangle(&mut self, width: &[u8], height: &[u8], unit: &[u8]) -> Outcome {
        let width = float(width).ok_or(CommandError::text("ERR need numeric width"))?;
        let height = float(height).ok_or(CommandError::text("ERR need numeric height"))?;
        if width < 0.0 || height < 0.0 {
            return Err(CommandError::text("ERR height or width cannot be negative"));
        }
        self.unit = parse_unit(unit)?;
        self.shape = Some(Shape::Box(width * self.unit, height * self.unit));
        Ok(())
    }

    /// Reads the options from the word `first` on. A member is looked for in `set` as soon as it is named.
    fn parse_options(&mut self, args: Args<'a>, first: usize, form: Form, set: Option<&SortedSet>) -> Outcome {
        let is_search = matches!(form, Form::Search | Form::SearchStore);
        let mut rest = args.from(first);
        while let Some(option) = rest.next() {
            let left = rest.len();
            let mut next = || rest.next().unwrap_or_default();
            let is_from_place = matches!(self.middle, Some(Middle::At(_)));
            match option.to_ascii_lowercase().as_slice() {
                b"withdist" => self.with_distance = true,
                b"withhash" => self.with_hash = true,
                b"withcoord" => self.with_place = true,
                b"any" => self.takes_any = true,
                b"asc" => self.sort = Sort::Ascending,
                b"desc" => self.sort = Sort::Descending,
                b"count" if left > 0 => {
                    let count = usize::try_from(parse_integer(next())?).ok().filter(|count| *count > 0);
                    self.count = Some(count.ok_or(CommandError::text("ERR COUNT must be > 0"))?);
                }
                name @ (b"store" | b"storedist") if left > 0 && form == Form::Radius { may_store: true } => {
                    self.stores_distance = name == b"storedist";
                    self.store = Some(next());
                }
                b"storedist" if form == Form::SearchStore => self.stores_distance = true,
                b"frommember" if left > 0 && is_search && !is_from_place => {
                    let member = next();
                    self.middle = Some(Middle::Member(member));
                    middle_of(set, member)?;
                }
                b"fromlonlat" if left > 1 && is_search && matches!(self.middle, None | Some(Middle::At(_))) => {
                    self.middle = Some(Middle::At(parse_point(next(), next())?));
                }
                b"byradius" if left > 1 && is_search && !matches!(self.shape, Some(Shape::Box(..))) => {
                    self.circle(next(), next())?;
                }
                b"bybox" if left > 2 && is_search && !matches!(self.shape, Some(Shape::Circle(_))) => {
                    self.rectangle(next(), next(), next())?;
                }
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(())
    }

    /// Whether the options go together.
    fn check(&self, args: Args<'_>, form: Form) -> Outcome {
        let name = String::from_utf8_lossy(&args[0]);
        if self.store.is_some() && (self.with_distance || self.with_hash || self.with_place) {
            let what = if form == Form::SearchStore { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(CommandError::from(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        if self.middle.is_none() {
            return Err(CommandError::from(format!(
                "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}"
            )));
        }
        if self.shape.is_none() {
            return Err(CommandError::from(format!(
                "ERR exactly one of BYRADIUS and BYBOX can be specified for {name}"
            )));
        }
        if self.takes_any && self.count.is_none() {
            return Err(CommandError::text("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }

    /// What lies in the shape, as it was asked for.
    fn find<'s>(&self, set: &'s SortedSet) -> Result<Vec<Found<'s>>, CommandError> {
        let middle = match self.middle {
            Some(Middle::At(point)) => point,
            Some(Middle::Member(member)) => middle_of(Some(set), member)?.ok_or(CommandError::Syntax)?,
            None => return Err(CommandError::Syntax),
        };
        let Some(shape) = self.shape else { return Err(CommandError::Syntax) };
        let limit = self.count.filter(|_| self.takes_any).unwrap_or(usize::MAX);
        let mut found: Vec<Found<'s>> = Vec::new();
        let window = shape.window(middle);
        for range in shape.ranges(middle) {
            // Numbers of 52 bits are fractions, too.
            let bound = |hash: u64| Score::new(hash as f64).ok_or(CommandError::NotFloat);
            let near =
                set.between(bound(range.start)?, bound(range.end)?).filter(|(_, score)| window.has(hash_of(*score)));
            let places = near.filter_map(|(member, score)| {
                let point = point_of(score);
                let distance = shape.distance(middle, point)?;
                Some(Found { member, score, point, distance })
            });
            found.extend(places.take(limit - found.len()));
        }
        let sort = match self.sort {
            Sort::None if self.count.is_some() && !self.takes_any => Sort::Ascending,
            sort => sort,
        };
        match sort {
            Sort::None => {}
            Sort::Ascending => found.sort_by(|a, b| a.distance.total_cmp(&b.distance)),
            Sort::Descending => found.sort_by(|a, b| b.distance.total_cmp(&a.distance)),
        }
        found.truncate(self.count.unwrap_or(usize::MAX));
        Ok(found)
    }

    fn answer(&self, found: &[Found<'_>], reply: &mut dyn Reply) {
        let told = [self.with_distance, self.with_hash, self.with_place].into_iter().filter(|told| *told).count();
        reply.array(found.len());
        for place in found {
            if told > 0 {
                reply.array(1 + told);
            }
            reply.bulk(place.member);
            if self.with_distance {
                answer_distance(place.distance / self.unit, reply);
            }
            if self.with_hash {
                reply.integer(place.score.get() as i64);
            }
            if self.with_place {
                answer_point(place.point, reply);
            }
        }
    }
}

/// Where a member is of which a search begins; nowhere if there is no set.
fn middle_of(set: Option<&SortedSet>, member: &[u8]) -> Result<Option<Point>, CommandError> {
    let refusal = CommandError::text("ERR could not decode requested zset member");
    set.map(|set| place_of(set, member).ok_or(refusal)).transpose()
}

fn search(keys: &mut Keyspace, args: Args<'_>, source: usize, form: Form, reply: &mut dyn Reply) -> Outcome {
    let mut search = Search::new();
    if form == Form::SearchStore {
        keys.ask_for_memory_of(args.from(source).take(1))?;
        search.store = Some(args.at(1));
    }
    let set = keys.collection::<SortedSet>(&args[source])?;
    let options = match (form, &args[0]) {
        (Form::Search | Form::SearchStore, _) => source + 1,
        (Form::Radius { .. }, name) if name.to_ascii_lowercase().starts_with(b"georadiusbymember") => {
            search.middle = Some(Middle::Member(args.at(2)));
            if middle_of(set, &args[2])?.is_some() {
                search.circle(args.at(3), args.at(4))?;
            } else {
                // Only its presence is looked at.
                search.shape = Some(Shape::Circle(0.0));
            }
            5
        }
        (Form::Radius { .. }, _) => {
            search.middle = Some(Middle::At(parse_point(&args[2], &args[3])?));
            search.circle(args.at(4), args.at(5))?;
            6
        }
    };
    search.parse_options(args, options, form, set)?;
    search.check(args, form)?;
    let found = set.map_or_else(|| Ok(Vec::new()), |set| search.find(set))?;
    let Some(destination) = search.store else {
        search.answer(&found, reply);
        return Ok(());
    };
    let scored = found.iter().filter_map(|place| {
        let score = if search.stores_distance { Score::new(place.distance / search.unit)? } else { place.score };
        Some((place.member, score))
    });
    let stored: SortedSet = scored.collect();
    let event = if form == Form::SearchStore { "geosearchstore" } else { "georadiusstore" };
    store(keys, destination, stored, reply, event)
}

/// `GEOSEARCH key FROMMEMBER member | FROMLONLAT longitude latitude BYRADIUS radius unit | BYBOX width height unit [ASC | DESC]
/// [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]`
pub fn geosearch(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    search(keys, args, 1, Form::Search, reply)
}

/// `GEOSEARCHSTORE destination source`, and as [`geosearch`] `[STOREDIST]`
pub fn geosearchstore(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    search(keys, args, 2, Form::SearchStore, reply)
}

/// `GEORADIUS key longitude latitude radius unit [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]
/// [STORE key] [STOREDIST key]`; `GEORADIUSBYMEMBER key member radius unit` with the same options
pub fn georadius(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    search(keys, args, 1, Form::Radius { may_store: true }, reply)
}

/// The forms that keep nothing: `GEORADIUS_RO`, `GEORADIUSBYMEMBER_RO`
pub fn georadius_ro(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    search(keys, args, 1, Form::Radius { may_store: false }, reply)
}
