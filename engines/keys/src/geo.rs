//! Places on the earth as numbers of 52 bits, whose order keeps neighbours together: geohashes, as Redis has them.
//!
//! Latitude and longitude are cut in halves by turns; each step adds a bit of both. What begins with the same bits lies in
//! one cell. Who looks around a place looks into its cell and the eight around it, at a step where these cover what is sought.

use std::f64::consts::PI;
use std::ops::RangeInclusive;

/// How many steps a place has.
const STEPS: u32 = 26;
/// Degrees of longitude, and those of latitude that a square map of the earth has.
const LONGITUDE: Range = Range { min: -180.0, max: 180.0 };
const LATITUDE: Range = Range { min: -85.051_128_78, max: 85.051_128_78 };
/// Meters.
const EARTH_RADIUS: f64 = 6_372_797.560_856;
/// Half of the way around the map, in meters.
const MERCATOR_MAX: f64 = 20_037_726.37;

/// A place in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// From west to east.
    pub longitude: f64,
    /// From south to north.
    pub latitude: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    min: f64,
    max: f64,
}

impl Range {
    const fn has(self, at: f64) -> bool {
        at >= self.min && at <= self.max
    }

    /// Which of `2^steps` parts `at` is in.
    fn part(self, at: f64, steps: u32) -> u32 {
        ((at - self.min) / (self.max - self.min) * f64::from(1_u32 << steps)) as u32
    }

    /// One of `2^steps` parts.
    fn of_part(self, part: u32, steps: u32) -> Self {
        let at = |part: f64| self.min + part / f64::from(1_u32 << steps) * (self.max - self.min);
        Self { min: at(f64::from(part)), max: at(f64::from(part) + 1.0) }
    }

    /// The parts at the last step that have any of a range.
    fn parts(self, range: Self) -> RangeInclusive<u32> {
        self.part(range.min, STEPS)..=self.part(range.max, STEPS)
    }

    fn middle(self) -> f64 {
        f64::midpoint(self.min, self.max)
    }
}

/// The bits of two numbers by turns, those of the first below.
const fn interleave(low: u32, high: u32) -> u64 {
    spread(low) | spread(high) << 1
}

const fn deinterleave(bits: u64) -> (u32, u32) {
    (gather(bits), gather(bits >> 1))
}

/// Every other bit, and pairs, groups of four and so on of which every other one is there.
const HALVES: [u64; 6] = [
    0x5555_5555_5555_5555,
    0x3333_3333_3333_3333,
    0x0f0f_0f0f_0f0f_0f0f,
    0x00ff_00ff_00ff_00ff,
    0x0000_ffff_0000_ffff,
    0x0000_0000_ffff_ffff,
];

/// Puts a bit that is 0 above each bit.
const fn spread(number: u32) -> u64 {
    let mut bits = number as u64;
    let mut half = 5;
    while half > 0 {
        half -= 1;
        bits = (bits | bits << (1 << half)) & HALVES[half];
    }
    bits
}

/// Every other bit, from the lowest on.
const fn gather(bits: u64) -> u32 {
    let mut bits = bits & HALVES[0];
    let mut half = 0;
    while half < 5 {
        bits = (bits | bits >> (1 << half)) & HALVES[half + 1];
        half += 1;
    }
    bits as u32
}

impl Point {
    /// A place; `None` if there is none such on the map.
    #[must_use]
    pub fn new(longitude: f64, latitude: f64) -> Option<Self> {
        (LONGITUDE.has(longitude) && LATITUDE.has(latitude)).then_some(Self { longitude, latitude })
    }

    /// Its number.
    #[must_use]
    pub fn hash(self) -> u64 {
        Cell::of(self, STEPS).bits
    }

    /// The middle of the cell of a number.
    #[must_use]
    pub fn of_hash(bits: u64) -> Self {
        let (longitude, latitude) = Cell { bits, steps: STEPS }.area();
        Self {
            longitude: longitude.middle().clamp(LONGITUDE.min, LONGITUDE.max),
            latitude: latitude.middle().clamp(LATITUDE.min, LATITUDE.max),
        }
    }

    /// The eleven letters that others know it by: of the whole latitude, and with a last letter of no meaning.
    #[must_use]
    pub fn letters(self) -> String {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        const WHOLE: Range = Range { min: -90.0, max: 90.0 };
        let bits = interleave(WHOLE.part(self.latitude, STEPS), LONGITUDE.part(self.longitude, STEPS));
        let letters = (1..=10).map(|place| ALPHABET[(bits >> (2 * STEPS - 5 * place)) as usize & 31]);
        letters.chain([ALPHABET[0]]).map(char::from).collect()
    }

    /// Meters to another place on a sphere.
    #[must_use]
    pub fn distance(self, other: Self) -> f64 {
        let half = ((other.longitude.to_radians_as_in_c() - self.longitude.to_radians_as_in_c()) / 2.0).sin();
        if half == 0.0 {
            return self.distance_north(other);
        }
        let (mine, theirs) = (self.latitude.to_radians_as_in_c(), other.latitude.to_radians_as_in_c());
        let north = ((theirs - mine) / 2.0).sin();
        let a = north * north + mine.cos() * theirs.cos() * half * half;
        2.0 * EARTH_RADIUS * a.sqrt().asin()
    }

    /// Meters to another place's latitude.
    fn distance_north(self, other: Self) -> f64 {
        EARTH_RADIUS * (other.latitude.to_radians_as_in_c() - self.latitude.to_radians_as_in_c()).abs()
    }
}

trait Radians {
    /// As a product with a factor that is rounded as Redis rounds it, so that distances are equal to the last bit.
    fn to_radians_as_in_c(self) -> f64;
}

impl Radians for f64 {
    fn to_radians_as_in_c(self) -> f64 {
        self * (PI / 180.0)
    }
}

fn degrees(radians: f64) -> f64 {
    radians / (PI / 180.0)
}

/// What lies in one part of the map at some step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    bits: u64,
    steps: u32,
}

impl Cell {
    fn of(point: Point, steps: u32) -> Self {
        let bits = interleave(LATITUDE.part(point.latitude, steps), LONGITUDE.part(point.longitude, steps));
        Self { bits, steps }
    }

    /// Its longitudes and latitudes.
    fn area(self) -> (Range, Range) {
        let (latitude, longitude) = deinterleave(self.bits);
        (LONGITUDE.of_part(longitude, self.steps), LATITUDE.of_part(latitude, self.steps))
    }

    /// The cell so many to the east and to the north; at the end of the map it goes on at the other.
    fn beside(self, east: i32, north: i32) -> Self {
        let (latitude, longitude) = deinterleave(self.bits);
        let mask = (1 << self.steps) - 1;
        // What lies on the eastern or northern edge is one beyond the last part, and stays there.
        let moved = |part: u32, by: i32| if by == 0 { part } else { part.wrapping_add_signed(by) & mask };
        Self { bits: interleave(moved(latitude, north), moved(longitude, east)), steps: self.steps }
    }

    /// The numbers of the places in it, the last one excluded.
    const fn hashes(self) -> std::ops::Range<u64> {
        let shift = 2 * (STEPS - self.steps);
        self.bits << shift..(self.bits + 1) << shift
    }
}

/// What is sought around a place; lengths are in meters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// All at most so far away.
    Circle(f64),
    /// All in a box of this width and height.
    Box(f64, f64),
}

impl Shape {
    /// How far a place is from the middle, if it is in the shape.
    #[must_use]
    pub fn distance(self, middle: Point, place: Point) -> Option<f64> {
        match self {
            Self::Circle(radius) => Some(middle.distance(place)).filter(|distance| *distance <= radius),
            Self::Box(width, height) => {
                let beside = Point { longitude: middle.longitude, latitude: place.latitude };
                let is_in = place.distance_north(middle) <= height / 2.0 && place.distance(beside) <= width / 2.0;
                is_in.then(|| middle.distance(place))
            }
        }
    }

    /// What is outside is not in the shape; what is inside may be.
    #[must_use]
    pub fn window(self, middle: Point) -> Window {
        /// More than what rounding does to a distance, and than half a cell.
        const SLACK: f64 = 1e-6;
        let north = match self {
            Self::Circle(radius) => radius,
            Self::Box(_, height) => height / 2.0,
        } / EARTH_RADIUS;
        let reach = |middle: f64, degrees: f64| Range { min: middle - degrees, max: middle + degrees };
        let latitudes = reach(middle.latitude, degrees(north) * (1.0 + SLACK) + SLACK);
        let widest = north.sin() / middle.latitude.to_radians_as_in_c().cos();
        let longitudes = match self {
            // It has no pole.
            Self::Circle(_) if north < PI / 2.0 && widest < 1.0 => {
                reach(middle.longitude, degrees(widest.asin()) * (1.0 + SLACK) + SLACK)
            }
            _ => LONGITUDE,
        };
        let is_around = longitudes.min < LONGITUDE.min || longitudes.max > LONGITUDE.max;
        Window {
            longitudes: LONGITUDE.parts(if is_around { LONGITUDE } else { longitudes }),
            latitudes: LATITUDE.parts(latitudes),
        }
    }

    /// How far its farthest part is away.
    fn reach(self) -> f64 {
        match self {
            Self::Circle(radius) => radius,
            Self::Box(width, height) => ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt(),
        }
    }

    /// The longitudes and latitudes that it is in.
    fn bounds(self, middle: Point) -> (Range, Range) {
        let (width, height) = match self {
            Self::Circle(radius) => (radius, radius),
            Self::Box(width, height) => (width / 2.0, height / 2.0),
        };
        let north = degrees(height / EARTH_RADIUS);
        // Circles of latitude are shortest towards the pole.
        let far = if middle.latitude < 0.0 { middle.latitude - north } else { middle.latitude + north };
        let east = degrees(width / EARTH_RADIUS / far.to_radians_as_in_c().cos());
        (
            Range { min: middle.longitude - east, max: middle.longitude + east },
            Range { min: middle.latitude - north, max: middle.latitude + north },
        )
    }

    /// The numbers of the places among which those in the shape are, range by range, in the order in which Redis looks at them.
    #[must_use]
    pub fn ranges(self, middle: Point) -> Vec<std::ops::Range<u64>> {
        /// The cell itself, then what is beside it.
        const AROUND: [(i32, i32); 9] = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let (longitudes, latitudes) = self.bounds(middle);
        let mut steps = steps_for(self.reach(), middle.latitude);
        let mut cell = Cell::of(middle, steps);
        let is_covered = cell.beside(0, 1).area().1.max >= latitudes.max
            && cell.beside(0, -1).area().1.min <= latitudes.min
            && cell.beside(1, 0).area().0.max >= longitudes.max
            && cell.beside(-1, 0).area().0.min <= longitudes.min;
        if !is_covered && steps > 1 {
            steps -= 1;
            cell = Cell::of(middle, steps);
        }
        let (longitude, latitude) = cell.area();
        // Where the cell itself reaches beyond the shape, nothing on that side is sought.
        let is_useless = |(east, north): (i32, i32)| {
            steps >= 2
                && (north < 0 && latitude.min < latitudes.min
                    || north > 0 && latitude.max > latitudes.max
                    || east < 0 && longitude.min < longitudes.min
                    || east > 0 && longitude.max > longitudes.max)
        };
        let cells = AROUND.into_iter().filter(|beside| !is_useless(*beside));
        let mut cells: Vec<Cell> = cells.map(|(east, north)| cell.beside(east, north)).collect();
        // Large ones meet around the earth.
        let mut seen: Vec<Cell> = Vec::new();
        cells.retain(|cell| {
            let is_new = !seen.contains(cell);
            seen.push(*cell);
            is_new
        });
        cells.into_iter().map(Cell::hashes).collect()
    }
}

/// A part of the map, by the cells of the last step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    longitudes: RangeInclusive<u32>,
    latitudes: RangeInclusive<u32>,
}

impl Window {
    /// Whether a place is in it.
    #[must_use]
    pub fn has(&self, hash: u64) -> bool {
        let (latitude, longitude) = deinterleave(hash);
        self.latitudes.contains(&latitude) && self.longitudes.contains(&longitude)
    }
}

/// At which step nine cells cover what is so many meters away.
fn steps_for(meters: f64, latitude: f64) -> u32 {
    if meters == 0.0 {
        return STEPS;
    }
    let mut steps = 1;
    let mut reached = meters;
    while reached < MERCATOR_MAX {
        reached *= 2.0;
        steps += 1;
    }
    // Cells become narrow towards the poles.
    let narrow = if latitude.abs() > 80.0 { 2 } else { i32::from(latitude.abs() > 66.0) };
    (steps - 2 - narrow).clamp(1, STEPS as i32) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_place_is_near_the_middle_of_its_cell() {
        let palermo = Point::new(13.361389, 38.115556).expect("a place");
        assert_eq!(palermo.hash(), 3_479_099_956_230_698);
        let again = Point::of_hash(palermo.hash());
        assert!(again.distance(palermo) < 1.0);
        assert_eq!(again.hash(), palermo.hash());
        assert_eq!(again.letters(), "sqc8b49rny0");
        assert!(Point::new(180.1, 0.0).is_none() && Point::new(0.0, 85.1).is_none());
    }

    #[test]
    fn cells_go_on_at_the_other_end() {
        let cell = Cell::of(Point { longitude: 179.0, latitude: 0.0 }, 5);
        assert!(cell.beside(1, 0).area().0.min == -180.0);
        assert_eq!(cell.beside(1, 0).beside(-1, 0), cell);
        let corner = Point::new(180.0, 85.0).expect("a place");
        assert!(Shape::Circle(100.0).ranges(corner).iter().any(|range| range.contains(&corner.hash())));
        assert_eq!(deinterleave(interleave(0xdead_beef, 0x1234_5678)), (0xdead_beef, 0x1234_5678));
    }

    proptest! {
        #[test]
        fn what_is_in_a_shape_is_in_its_ranges(
            longitude in -170.0..170.0_f64, latitude in -60.0..60.0_f64,
            east in -1.0..1.0_f64, north in -1.0..1.0_f64, meters in 1.0..500_000.0_f64, is_box in any::<bool>(),
        ) {
            let middle = Point { longitude, latitude };
            let shape = if is_box { Shape::Box(meters, meters / 2.0) } else { Shape::Circle(meters) };
            let (longitudes, latitudes) = shape.bounds(middle);
            let place = Point {
                longitude: longitude + east * (longitudes.max - longitude),
                latitude: latitude + north * (latitudes.max - latitude),
            };
            if shape.distance(middle, place).is_some() {
                prop_assert!(shape.ranges(middle).iter().any(|range| range.contains(&place.hash())));
            }
            let found = Point::of_hash(place.hash());
            if shape.distance(middle, found).is_some() {
                prop_assert!(shape.window(middle).has(place.hash()));
            }
        }

        #[test]
        fn what_is_in_a_shape_is_in_its_window_wherever_that_is(
            longitude in -180.0..180.0_f64, latitude in -85.0..85.0_f64, bits in 0..1_u64 << (2 * STEPS), near in 0..2 * STEPS,
            meters in prop_oneof![0.0..100.0_f64, 0.0..30_000_000.0_f64], is_box in any::<bool>(),
        ) {
            let middle = Point { longitude, latitude };
            let shape = if is_box { Shape::Box(meters, meters / 2.0) } else { Shape::Circle(meters) };
            // Some are near, some anywhere.
            let hash = middle.hash() ^ bits >> near;
            if shape.distance(middle, Point::of_hash(hash)).is_some() {
                prop_assert!(shape.window(middle).has(hash));
            }
        }
    }
}
