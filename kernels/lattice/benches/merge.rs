//! What a merge costs and what a collection weighs, by its size. `cargo bench -p savanna-lattice`
//!
//! The first table is the reason for the forms of `src/sorted.rs`: a set against the B-tree that it is above 32 elements,
//! and against a sorted vector of any size. The second shows that a delta costs by its own size, not by that of the set
//! that it is merged into.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use savanna_lattice::{Lattice, OrSet, Set, WriterId};

/// Counts the bytes in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    println!("a set of u64, filled in random order: bytes in all, and ns per element");
    println!("{:>9} {:>16} {:>16} {:>16}", "elements", "Set", "BTreeSet", "sorted vector");
    for elements in [1, 4, 16, 32, 64, 256, 4096] {
        let numbers: Vec<u64> = scattered(elements).collect();
        let set = fill(&numbers, Set::new, |set, number| {
            set.merge(Set::from([number]));
        });
        let tree = fill(&numbers, BTreeSet::new, |tree, number| {
            tree.insert(number);
        });
        let vector = fill(&numbers, Vec::new, |vector, number| {
            if let Err(at) = vector.binary_search(&number) {
                vector.insert(at, number);
            }
        });
        println!("{elements:>9} {set:>16} {tree:>16} {vector:>16}");
    }

    println!("\nan observed-remove set of u64: bytes per element, and ns to merge a delta");
    println!("{:>9} {:>9} {:>9} {:>9}", "elements", "bytes", "add", "remove");
    for elements in [10, 1_000, 100_000] {
        let before = IN_USE.load(Ordering::Relaxed);
        let mut here = OrSet::new();
        for number in scattered(elements) {
            here.add(WriterId(1), number);
        }
        let bytes = (IN_USE.load(Ordering::Relaxed) - before) / elements;
        let mut there = here.clone();
        let numbers: Vec<u64> = (0..10_000).map(|number| number * 2 + 1).collect();
        let added: Vec<OrSet<u64>> = numbers.iter().map(|number| here.add(WriterId(1), *number)).collect();
        let removed: Vec<OrSet<u64>> = numbers.iter().map(|number| here.remove(number)).collect();
        let add = merge_all(&mut there, added);
        let remove = merge_all(&mut there, removed);
        println!("{elements:>9} {bytes:>9} {add:>9} {remove:>9}");
    }
}

/// Even numbers in an order without pattern.
fn scattered(count: usize) -> impl Iterator<Item = u64> {
    (1..=count as u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & !1)
}

/// Fills collections one after the other for a while: "bytes, ns per element".
fn fill<C>(numbers: &[u64], empty: impl Fn() -> C, add: impl Fn(&mut C, u64)) -> String {
    let before = IN_USE.load(Ordering::Relaxed);
    let mut bytes = 0;
    let mut filled = 0_u32;
    let mut spent = Duration::ZERO;
    while spent < Duration::from_millis(100) {
        let begin = Instant::now();
        let mut collection = empty();
        for number in numbers {
            add(&mut collection, black_box(*number));
        }
        spent += begin.elapsed();
        filled += 1;
        bytes = IN_USE.load(Ordering::Relaxed) - before;
        drop(collection);
    }
    format!("{} {:>6.1}", bytes, spent.as_secs_f64() * 1e9 / f64::from(filled) / numbers.len() as f64)
}

/// Nanoseconds per delta.
fn merge_all(value: &mut OrSet<u64>, deltas: Vec<OrSet<u64>>) -> u128 {
    let count = deltas.len() as u128;
    let begin = Instant::now();
    for delta in deltas {
        value.merge(black_box(delta));
    }
    begin.elapsed().as_nanos() / count
}
