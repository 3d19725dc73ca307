//! HyperLogLog: about how many different elements were added, in the bytes that Redis keeps.
//!
//! ```text
//! ┌──────┬──────────┬────────┬─────────────┬───────────┐   encoding: 0 dense, 1 sparse
//! │ HYLL │ encoding │ unused │ cardinality │ registers │   cardinality: as it was counted last; its top bit says that it is
//! └──────┴──────────┴────────┴─────────────┴───────────┘     not true any more
//!  4      1          3        8
//! ```
//!
//! There are 16,384 registers of 6 bits. The first bits of an element's hash choose one, and it keeps the longest run of zeros that
//! was seen in the others. *Dense* registers lie side by side, the first in the lowest bits. *Sparse* ones are runs: `00nnnnnn` is n + 1
//! zeros, `01nnnnnn nnnnnnnn` as well, `1vvvvvnn` is n + 1 times v + 1. The number is estimated from how many registers have which
//! value (Ertl, New cardinality estimation algorithms for HyperLogLog sketches, arXiv:1702.01284).

const MAGIC: &[u8; 4] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const ENCODING_AT: usize = 4;
/// The highest byte of the cardinality.
const STALE_AT: usize = 15;
const STALE: u8 = 0x80;
const HEADER_BYTES: usize = 16;

const INDEX_BITS: u32 = 14;
/// How many registers there are.
pub const REGISTERS: usize = 1 << INDEX_BITS;
const REGISTER_BITS: usize = 6;
/// The largest number that a register can have, whatever led to it.
pub const REGISTER_MAX: u8 = 0x3f;
/// How long the dense form is.
pub const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;
/// The highest value of a register that an element leads to.
const VALUE_MAX: usize = u64::BITS as usize - INDEX_BITS as usize + 1;

/// A sparse one that would be longer becomes dense, as with Redis' default of `hll-sparse-max-bytes`.
const SPARSE_BYTES_MAX: usize = 3000;
const SPARSE_VALUE_MAX: u8 = 32;
const SHORT_ZEROS_MAX: usize = 64;
/// Of one run, which has one register at least.
const RUN_BYTES_MAX: usize = 2;
const VALUES_MAX: usize = 4;

/// Bytes that are no HyperLogLog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not even their beginning is one.
    #[error("WRONGTYPE Key is not a valid HyperLogLog string value.")]
    Header,
    /// The registers are not 16,384.
    #[error("INVALIDOBJ Corrupted HLL object detected")]
    Registers,
}

/// The bytes of one, whose beginning is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HyperLogLog<B>(B);

/// Which register an element belongs to, and the value that it gives it at least.
#[must_use]
pub fn place(element: &[u8]) -> (usize, u8) {
    let hash = murmur64a(element, 0xadc8_3b19);
    let rest = hash >> INDEX_BITS | 1 << (u64::BITS - INDEX_BITS);
    (hash as usize % REGISTERS, rest.trailing_zeros() as u8 + 1)
}

/// MurmurHash64A, read in little-endian order.
fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        word ^= word >> SHIFT;
        hash = (hash ^ word.wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    }
    if !tail.is_empty() {
        let mut word = [0; 8];
        word[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(FACTOR);
    hash ^ hash >> SHIFT
}

/// A run of registers of one value in the sparse form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    value: u8,
    length: usize,
    /// How many bytes it takes.
    bytes: usize,
}

impl Run {
    /// The run at the beginning of bytes.
    const fn read(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [] => None,
            [first, ..] if *first & 0x80 != 0 => {
                Some(Self { value: (*first >> 2 & 0x1f) + 1, length: (*first & 3) as usize + 1, bytes: 1 })
            }
            [first, ..] if *first & 0x40 == 0 => Some(Self { value: 0, length: *first as usize + 1, bytes: 1 }),
            [first, second, ..] => {
                Some(Self { value: 0, length: ((*first as usize & 0x3f) << 8 | *second as usize) + 1, bytes: 2 })
            }
            [_] => None,
        }
    }

    /// All runs of a sparse form.
    fn all(mut bytes: &[u8]) -> impl Iterator<Item = Self> {
        std::iter::from_fn(move || {
            let run = Self::read(bytes)?;
            bytes = &bytes[run.bytes..];
            Some(run)
        })
    }

    /// Adds a run of so many registers; none of none.
    fn write(to: &mut Vec<u8>, value: u8, length: usize) {
        match (value, length.checked_sub(1)) {
            (_, None) => {}
            (0, Some(less)) if length <= SHORT_ZEROS_MAX => to.push(less as u8),
            (0, Some(less)) => to.extend([0x40 | (less >> 8) as u8, less as u8]),
            (value, Some(less)) => to.push(0x80 | (value - 1) << 2 | less as u8),
        }
    }

    const fn is_of_values(self) -> bool {
        self.value > 0
    }
}

const EACH_BYTE: u64 = 0x0101_0101_0101_0101;

/// Marks among eight bytes those that begin with 01. The first of them begins a run of two bytes.
const fn long_runs(bytes: u64) -> u64 {
    bytes & EACH_BYTE << 6 & !(bytes >> 1)
}

/// How many registers so many runs of one byte have; behind these are zeros.
const fn registers_of(runs: u64, count: usize) -> usize {
    const EVERY_OTHER: u64 = 0x00ff_00ff_00ff_00ff;
    let of_values = runs >> 7 & EACH_BYTE;
    let less = runs & (EACH_BYTE * 0x3f) & !(of_values * 0x3c);
    let pairs = (less & EVERY_OTHER) + (less >> 8 & EVERY_OTHER);
    (pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48) as usize + count
}

/// Where the run of a register is in a sparse form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    at: usize,
    /// Where the run before it is; of the first, where it is itself.
    before: usize,
    /// Its first register.
    first: usize,
    run: Run,
}

impl Found {
    /// Finds the run of a register, if those before it are right.
    fn find(body: &[u8], index: usize) -> Option<Self> {
        let (mut at, mut before, mut first) = (0, 0, 0);
        // Mostly eight bytes are eight runs. The processor foresees that, and reads on meanwhile.
        while let Some(eight) = body[at..].first_chunk::<8>() {
            let bytes = u64::from_le_bytes(*eight);
            let (last, taken, registers) = match long_runs(bytes) {
                0 => (7, 8, registers_of(bytes, 8)),
                long => {
                    let count = long.trailing_zeros() as usize / 8;
                    let registers = registers_of(bytes & ((1 << (8 * count)) - 1), count);
                    match Run::read(&eight[count..]) {
                        Some(run) => (count, count + run.bytes, registers + run.length),
                        None => (count - 1, count, registers),
                    }
                }
            };
            if index < first + registers {
                break;
            }
            (before, at, first) = (at + last, at + taken, first + registers);
        }
        loop {
            let run = Run::read(&body[at..])?;
            if index < first + run.length {
                return Some(Self { at, before, first, run });
            }
            (before, at, first) = (at, at + run.bytes, first + run.length);
        }
    }
}

/// What became of a register that was to be raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Raised {
    No,
    Yes,
    /// The sparse form cannot keep it.
    NotHere,
}

impl Default for HyperLogLog<Vec<u8>> {
    /// One without elements.
    fn default() -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[ENCODING_AT] = SPARSE;
        Run::write(&mut bytes, 0, REGISTERS);
        Self(bytes)
    }
}

impl<B: AsRef<[u8]>> HyperLogLog<B> {
    /// Reads bytes.
    ///
    /// # Errors
    /// [`Malformed`]; whether the runs are right is found where they are read.
    pub fn open(bytes: B) -> Result<Self, Malformed> {
        let all = bytes.as_ref();
        let is_right = all.len() >= HEADER_BYTES
            && all.starts_with(MAGIC)
            && (all[ENCODING_AT] == SPARSE || all[ENCODING_AT] == DENSE && all.len() == DENSE_BYTES);
        match is_right {
            false => Err(Malformed::Header),
            true if all.len() > HEADER_BYTES + RUN_BYTES_MAX * REGISTERS => Err(Malformed::Registers),
            true => Ok(Self(bytes)),
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// Whether it is in the dense form.
    pub fn is_dense(&self) -> bool {
        self.bytes()[ENCODING_AT] == DENSE
    }

    fn body(&self) -> &[u8] {
        &self.bytes()[HEADER_BYTES..]
    }

    /// How many elements there are, if that was counted since it changed.
    pub fn counted(&self) -> Option<u64> {
        let (_, number) = self.bytes().first_chunk::<HEADER_BYTES>()?.split_last_chunk::<8>()?;
        (number[7] & STALE == 0).then(|| u64::from_le_bytes(*number))
    }

    /// A register of the dense form.
    fn dense(&self, index: usize) -> u8 {
        let (pair, shift) = pair_at(self.bytes(), index);
        (pair >> shift) as u8 & REGISTER_MAX
    }

    /// The value of a register, if the runs before it are right.
    pub fn register(&self, index: usize) -> Option<u8> {
        if self.is_dense() {
            return Some(self.dense(index));
        }
        Found::find(self.body(), index).map(|found| found.run.value)
    }

    /// All registers.
    ///
    /// # Errors
    /// [`Malformed::Registers`].
    pub fn registers(&self) -> Result<[u8; REGISTERS], Malformed> {
        let mut registers = [0; REGISTERS];
        self.raise_all(&mut registers).map(|()| registers)
    }

    /// Takes into `registers` what is higher here.
    ///
    /// # Errors
    /// [`Malformed::Registers`].
    pub fn raise_all(&self, registers: &mut [u8; REGISTERS]) -> Result<(), Malformed> {
        if self.is_dense() {
            for (index, register) in registers.iter_mut().enumerate() {
                *register = self.dense(index).max(*register);
            }
            return Ok(());
        }
        let mut rest = &mut registers[..];
        for run in Run::all(self.body()) {
            let (part, behind) = rest.split_at_mut_checked(run.length).ok_or(Malformed::Registers)?;
            if run.is_of_values() {
                part.iter_mut().for_each(|register| *register = run.value.max(*register));
            }
            rest = behind;
        }
        if rest.is_empty() { Ok(()) } else { Err(Malformed::Registers) }
    }

    /// About how many different elements were added.
    ///
    /// # Errors
    /// [`Malformed::Registers`].
    pub fn count(&self) -> Result<u64, Malformed> {
        let mut values = [0; 64];
        if self.is_dense() {
            (0..REGISTERS).for_each(|index| values[usize::from(self.dense(index))] += 1);
        } else {
            Run::all(self.body()).for_each(|run| values[usize::from(run.value)] += run.length);
            if values.iter().sum::<usize>() != REGISTERS {
                return Err(Malformed::Registers);
            }
        }
        Ok(estimate(&values))
    }

    /// The runs of the sparse form, for people; `None` of a dense one.
    pub fn describe(&self) -> Option<String> {
        let describe = |run: Run| match run {
            Run { value: 0, length, bytes: 1 } => format!("z:{length}"),
            Run { value: 0, length, .. } => format!("Z:{length}"),
            Run { value, length, .. } => format!("v:{value},{length}"),
        };
        (!self.is_dense()).then(|| Run::all(self.body()).map(describe).collect::<Vec<_>>().join(" "))
    }
}

impl HyperLogLog<Vec<u8>> {
    /// Its bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Says that the number that was counted is not true any more.
    pub fn forget_count(&mut self) {
        forget_count(&mut self.0);
    }

    /// Takes the dense form. Says whether it had another.
    ///
    /// # Errors
    /// [`Malformed::Registers`].
    pub fn make_dense(&mut self) -> Result<bool, Malformed> {
        if self.is_dense() {
            return Ok(false);
        }
        let registers = self.registers()?;
        self.write_dense(&registers);
        Ok(true)
    }

    fn write_dense(&mut self, registers: &[u8; REGISTERS]) {
        self.0.truncate(HEADER_BYTES);
        self.0.resize(DENSE_BYTES, 0);
        self.0[ENCODING_AT] = DENSE;
        for (index, value) in registers.iter().enumerate() {
            raise_dense(&mut self.0, index, *value);
        }
    }

    /// One with these registers, in the dense form if it is wanted or the sparse one cannot keep them. Nothing is counted yet.
    #[must_use]
    pub fn of_registers(registers: &[u8; REGISTERS], is_dense: bool) -> Self {
        let mut sketch = Self::default();
        sketch.0.truncate(HEADER_BYTES);
        for run in registers.chunk_by(PartialEq::eq) {
            let value = run[0];
            let longest = if value == 0 { REGISTERS } else { VALUES_MAX };
            run.chunks(longest).for_each(|run| Run::write(&mut sketch.0, value.min(SPARSE_VALUE_MAX), run.len()));
        }
        if is_dense || sketch.0.len() > SPARSE_BYTES_MAX || registers.iter().any(|value| *value > SPARSE_VALUE_MAX) {
            sketch.write_dense(registers);
        }
        sketch.forget_count();
        sketch
    }

    /// Raises a register to a value at least. Says whether it was lower.
    ///
    /// # Errors
    /// [`Malformed::Registers`].
    pub fn raise(&mut self, index: usize, value: u8) -> Result<bool, Malformed> {
        let raised = if self.is_dense() { Raised::NotHere } else { self.raise_sparse(index, value)? };
        let is_raised = match raised {
            Raised::No => false,
            Raised::Yes => true,
            Raised::NotHere => {
                self.make_dense()?;
                raise_dense(&mut self.0, index, value)
            }
        };
        if is_raised {
            self.forget_count();
        }
        Ok(is_raised)
    }

    fn raise_sparse(&mut self, index: usize, value: u8) -> Result<Raised, Malformed> {
        if value > SPARSE_VALUE_MAX {
            return Ok(Raised::NotHere);
        }
        let Found { at, before, first, run } = Found::find(self.body(), index).ok_or(Malformed::Registers)?;
        if run.value >= value {
            return Ok(Raised::No);
        }
        // What was one run becomes up to three.
        let mut runs = Vec::with_capacity(5);
        Run::write(&mut runs, run.value, index - first);
        Run::write(&mut runs, value, 1);
        Run::write(&mut runs, run.value, first + run.length - 1 - index);
        let grows = runs.len() > run.bytes;
        if grows && self.0.len() + runs.len() - run.bytes > SPARSE_BYTES_MAX {
            return Ok(Raised::NotHere);
        }
        self.0.splice(HEADER_BYTES + at..HEADER_BYTES + at + run.bytes, runs);
        self.join_runs(HEADER_BYTES + before);
        Ok(Raised::Yes)
    }

    /// Joins runs of one value, looking at five from a place on, as Redis does: the bytes are to be the same.
    fn join_runs(&mut self, mut at: usize) {
        for _ in 0..5 {
            let Some(run) = Run::read(&self.0[at..]) else { return };
            let next =
                Run::read(&self.0[at + run.bytes..]).filter(|next| run.is_of_values() && next.value == run.value);
            match next.map(|next| run.length + next.length) {
                Some(length) if length <= VALUES_MAX => {
                    let mut joined = Vec::with_capacity(1);
                    Run::write(&mut joined, run.value, length);
                    self.0.splice(at..at + 2, joined);
                }
                _ => at += run.bytes,
            }
        }
    }
}

/// The bytes of the dense form that have a register, as a number, and how many of its bits are below the register.
fn pair_at(bytes: &[u8], index: usize) -> (u16, usize) {
    let mut pair = [0; 2];
    let part = bytes_of_register(index);
    pair[..part.len()].copy_from_slice(&bytes[part]);
    (u16::from_le_bytes(pair), index * REGISTER_BITS % 8)
}

/// Raises a register of the dense form to a value at least. Says whether it was lower.
pub fn raise_dense(bytes: &mut [u8], index: usize, value: u8) -> bool {
    let (pair, shift) = pair_at(bytes, index);
    let is_lower = ((pair >> shift) as u8 & REGISTER_MAX) < value;
    if is_lower {
        let raised = pair & !(u16::from(REGISTER_MAX) << shift) | u16::from(value) << shift;
        let part = bytes_of_register(index);
        let length = part.len();
        bytes[part].copy_from_slice(&raised.to_le_bytes()[..length]);
    }
    is_lower
}

/// Which bytes of the dense form have a register.
#[must_use]
pub fn bytes_of_register(index: usize) -> std::ops::Range<usize> {
    let start = HEADER_BYTES + index * REGISTER_BITS / 8;
    start..(start + 2).min(DENSE_BYTES)
}

/// Says that the number that was counted is not true any more.
pub fn forget_count(bytes: &mut [u8]) {
    bytes[STALE_AT] |= STALE;
}

/// Which byte says that the number that was counted is not true any more.
pub const COUNT_MARK: std::ops::Range<usize> = STALE_AT..STALE_AT + 1;

/// About how many different elements led to these registers.
#[must_use]
pub fn count_registers(registers: &[u8; REGISTERS]) -> u64 {
    let mut values = [0; 64];
    registers.iter().for_each(|value| values[usize::from(*value)] += 1);
    estimate(&values)
}

/// The estimate for so many registers of each value.
fn estimate(values: &[usize; 64]) -> u64 {
    /// 1 / (2 ln 2).
    const ALPHA: f64 = 0.721_347_520_444_481_7;
    let m = REGISTERS as f64;
    let mut z = m * tau((m - values[VALUE_MAX] as f64) / m);
    for count in values[1..VALUE_MAX].iter().rev() {
        z = (z + *count as f64) * 0.5;
    }
    z += m * sigma(values[0] as f64 / m);
    (ALPHA * m * m / z).round() as u64
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn add(sketch: &mut HyperLogLog<Vec<u8>>, element: &[u8]) -> bool {
        let (index, value) = place(element);
        sketch.raise(index, value).expect("it is right")
    }

    #[test]
    fn both_forms_have_the_same_registers() {
        let (mut sparse, mut dense) = (HyperLogLog::default(), HyperLogLog::default());
        assert_eq!(dense.make_dense(), Ok(true));
        for number in 0..20_000_u32 {
            let element = number.to_string();
            assert_eq!(add(&mut sparse, element.as_bytes()), add(&mut dense, element.as_bytes()), "{element}");
            if number % 500 == 0 {
                let (mut a, mut b) = ([0; REGISTERS], [0; REGISTERS]);
                sparse.raise_all(&mut a).expect("it is right");
                dense.raise_all(&mut b).expect("it is right");
                assert!(a == b && sparse.count() == dense.count() && sparse.count() == Ok(count_registers(&a)));
                assert!((0..REGISTERS).step_by(97).all(|index| sparse.register(index) == Some(a[index])));
            }
        }
        assert!(sparse.is_dense(), "it became too long");
        assert_eq!(sparse, dense);
    }

    #[test]
    fn what_is_made_of_registers_has_them() {
        let mut sketch = HyperLogLog::default();
        for number in 0..20_000_u32 {
            if number.is_power_of_two() || number % 1000 == 0 {
                let registers = sketch.registers().expect("it is right");
                let made = HyperLogLog::of_registers(&registers, false);
                assert_eq!(made.registers(), Ok(registers), "{number}");
                assert!(made.counted().is_none() && made.bytes().len() <= sketch.bytes().len());
                assert!(HyperLogLog::of_registers(&registers, true).is_dense());
            }
            add(&mut sketch, &number.to_le_bytes());
        }
        let mut highest = [0; REGISTERS];
        highest[7] = VALUE_MAX as u8;
        let made = HyperLogLog::of_registers(&highest, false);
        assert!(made.is_dense() && made.registers() == Ok(highest));
    }

    proptest! {
        #[test]
        fn a_run_is_found_as_by_reading_one_behind_the_other(
            lengths in prop::collection::vec(prop_oneof![1..=4_usize, 5..=64_usize, 65..=700_usize], 1..100), value in 0..=SPARSE_VALUE_MAX,
        ) {
            let (mut body, mut runs, mut registers) = (Vec::new(), Vec::new(), 0);
            for length in lengths {
                runs.push((body.len(), registers));
                Run::write(&mut body, if length <= VALUES_MAX { value } else { 0 }, length);
                registers += length;
            }
            let mut number = 0;
            for index in 0..registers {
                number += usize::from(runs.get(number + 1).is_some_and(|(_, first)| *first == index));
                let ((at, first), (before, _)) = (runs[number], runs[number.saturating_sub(1)]);
                let run = Run::read(&body[at..]).expect("a run");
                prop_assert_eq!(Found::find(&body, index), Some(Found { at, before, first, run }));
            }
            prop_assert_eq!(Found::find(&body, registers), None);
        }
    }

    #[test]
    fn the_estimate_is_near() {
        let mut sketch = HyperLogLog::default();
        assert_eq!(sketch.count(), Ok(0));
        for number in 1..=100_000_u32 {
            add(&mut sketch, &number.to_le_bytes());
            if [1, 10, 100, 1000, 10_000, 100_000].contains(&number) {
                let count = sketch.count().expect("it is right") as f64;
                let error = (count - f64::from(number)).abs() / f64::from(number);
                assert!(error < 6.0 * 1.04 / (REGISTERS as f64).sqrt(), "{number}: {count}");
            }
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        let empty = HyperLogLog::default().into_bytes();
        assert_eq!(empty, b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0\x7f\xff");
        for bytes in
            [&b""[..], b"HYLL", b"HYLX\x01\0\0\0\0\0\0\0\0\0\0\0\x7f\xff", b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\0\x7f\xff"]
        {
            assert_eq!(HyperLogLog::open(bytes).err(), Some(Malformed::Header));
        }
        let longest = [&empty[..HEADER_BYTES], &[0x40, 0].repeat(REGISTERS)].concat();
        assert!(HyperLogLog::open(&longest[..]).is_ok_and(|sketch| sketch.count() == Ok(0)));
        assert_eq!(HyperLogLog::open([&longest[..], &[0]].concat()).err(), Some(Malformed::Registers));
        for runs in [&b""[..], b"\x7f", b"\x7f\xfe", b"\x7f\xff\x00", b"\xff\x7f\xff"] {
            let bytes = [&empty[..HEADER_BYTES], runs].concat();
            let mut sketch = HyperLogLog::open(bytes).expect("its beginning is right");
            assert_eq!(sketch.count(), Err(Malformed::Registers), "{runs:?}");
            assert_eq!(sketch.raise_all(&mut [0; REGISTERS]), Err(Malformed::Registers));
            assert_eq!(sketch.make_dense(), Err(Malformed::Registers));
        }
    }

    #[test]
    fn the_hash_is_that_of_redis() {
        // Of an empty text and of one with a tail, as the reference gives them.
        assert_eq!(murmur64a(b"", 0), 0);
        assert_ne!(murmur64a(b"12345678", 1), murmur64a(b"123456781", 1));
    }
}
